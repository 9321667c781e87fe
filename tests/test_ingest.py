"""Ingest: archives and live brokers to Parquet through real Spark, resumed, interrupted, damaged, refused."""

from __future__ import annotations

import functools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import kafka07c.spark
from kafka07c import Codec, MessageSet, build_message_set
from kafka07c._compress import deflate
from kafka07c.broker import Broker
from kafka07c.cli import main
from kafka07c.cluster import Cluster
from kafka07c.names import TopicPartition
from kafka07c.errors import (
    BrokerConnectionError,
    CorruptMessageError,
    ManifestError,
    SourceChangedError,
    UnknownTopicError,
)
from kafka07c.ranges import Range, open_source
from kafka07c.segments import Log
from kafka07c.simple import SyncProducer
from kafka07c.spark import files, writer
from kafka07c.spark.ingest import IngestReport, ingest
from kafka07c.spark.layout import Layout
from kafka07c.spark.manifest import STATE, Output
from kafka07c.testing import ZooKeeper

pytestmark = pytest.mark.spark

COLUMNS = ["topic", "broker", "partition", "offset", "index", "next_offset", "value"]


@pytest.fixture(scope="module")
def spark():
    from pyspark import SparkContext

    from kafka07c.spark import session

    running = SparkContext._active_spark_context is not None
    spark = session(app="test_ingest", master="local[2]")
    yield spark
    if not running:
        spark.stop()


# --- archives that are written here, and what their rows have to be -------------------------------------------------


def gzip_wrapper(inner: bytes) -> bytes:
    """An entry that holds ``inner``, whatever that is, with the attributes of a gzip wrapper."""
    entry = build_message_set([deflate(Codec.GZIP, inner)])
    return entry[:5] + b"\x01" + entry[6:]


EMPTY_WRAPPER = gzip_wrapper(b"")


class Partition:
    """A log directory, written entry by entry; ``rows`` is what ingest has to make of it."""

    def __init__(self, log_dir: Path, broker: int, topic: str = "clicks", number: int = 0):
        self.tp = TopicPartition(topic, broker, number)
        self.directory = log_dir / f"{topic}-{number}"
        self.directory.mkdir(parents=True)
        self.rows: list[tuple] = []
        self.entries: list[int] = []
        self.end = 0
        self.roll()

    def roll(self) -> None:
        self.path = self.directory / f"{self.end:020d}.kafka"
        self.path.touch()

    def add(self, *payloads: bytes, codec: str = "none") -> None:
        if codec == "none":
            for payload in payloads:
                self._append(build_message_set([payload]), [payload])
        else:
            self._append(build_message_set(payloads, codec), payloads)

    def add_raw(self, entry: bytes) -> None:
        """Bytes that are no messages."""
        self._append(entry, ())

    def _append(self, entry: bytes, payloads) -> None:
        with open(self.path, "ab") as file:
            file.write(entry)
        after = self.end + len(entry)
        for index, payload in enumerate(payloads):
            next_offset = after if index == len(payloads) - 1 else self.end
            self.rows.append((*self.tp, self.end, index, next_offset, payload))
        self.entries.append(self.end)
        self.end = after

    def break_entry(self, entry: int) -> None:
        """Flips a bit in the last byte of an entry (that is payload)."""
        position = [*self.entries[1:], self.end][entry] - 1
        segment = max(
            (path for path in self.directory.iterdir() if int(path.stem) <= position), key=lambda path: int(path.stem)
        )
        data = bytearray(segment.read_bytes())
        data[position - int(segment.stem)] ^= 1
        segment.write_bytes(data)


def filled(log_dir: Path, broker: int, number: int = 0, *, segments: int = 3, topic: str = "clicks") -> Partition:
    """Three entries in each segment: a plain one, a gzip and a snappy wrapper of five messages each."""
    partition = Partition(log_dir, broker, topic, number)
    for segment in range(segments):
        if segment:
            partition.roll()
        more(partition, segment)
    return partition


def more(partition: Partition, label: object) -> None:
    for codec, count in (("none", 1), ("gzip", 5), ("snappy", 5)):
        partition.add(*(f"{partition.tp} {label} {codec} {i}".encode() for i in range(count)), codec=codec)


def read(out: Path) -> list[tuple]:
    """The rows that a reader gets who knows nothing of manifests, in the order of the log."""
    table = pyarrow.dataset.dataset(out, format="parquet").to_table(columns=COLUMNS)
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def logs(*paths: Path) -> str:
    return ",".join(f"{broker}:{path}" for broker, path in enumerate(paths))


def run(source: str, out: Path, **kwargs) -> IngestReport:
    with open_source(logs=source) as opened:
        return ingest(opened, ["clicks"], out, **kwargs)


def manifests(out: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((out / STATE / "manifests").iterdir())]


# --- what comes out -----------------------------------------------------------------------------------------------


def test_an_archive_of_two_brokers_row_for_row(spark, tmp_path):
    partitions = [filled(tmp_path / "b0", 0, 0), filled(tmp_path / "b0", 0, 1), filled(tmp_path / "b1", 1, 0)]
    filled(tmp_path / "b1", 1, topic="other")
    out = tmp_path / "out"
    seen = []
    report = run(logs(tmp_path / "b0", tmp_path / "b1"), out, progress=lambda *done: seen.append(done))

    expected = sorted(row for partition in partitions for row in partition.rows)
    assert read(out) == expected
    frame = spark.read.parquet(str(out))
    assert frame.columns == COLUMNS
    assert sorted((*row[:6], bytes(row[6])) for row in frame.collect()) == expected
    assert frame.where("broker = 1").count() == 33

    total = sum(partition.end for partition in partitions)
    assert (report.messages, report.bytes, report.manifest) == (99, total, 1)
    assert seen[-1] == (total, total)
    first = report.partitions[0]
    assert (first.tp, first.messages, first.bytes) == (partitions[0].tp, 33, partitions[0].end)
    assert (first.start, first.end) == (0, partitions[0].end)
    assert (first.first_offset, first.last_offset) == (0, partitions[0].entries[-1])
    assert [file.rows for file in first.files] == [11, 11, 11]
    assert not list((out / STATE / "staged").iterdir())

    schema = pq.read_schema(out / first.files[0].path)
    assert schema == pa.schema(
        [
            pa.field("topic", pa.string(), nullable=False),
            *(pa.field(name, pa.int32(), nullable=False) for name in ("broker", "partition")),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("index", pa.int32(), nullable=False),
            pa.field("next_offset", pa.int64(), nullable=False),
            pa.field("value", pa.binary(), nullable=False),
        ]
    )


def test_every_recorded_log_but_the_one_without_messages(spark, tmp_path, golden):
    """What the Scala classes read of each segment, against the rows."""
    source = open_source(logs=f"0:{golden.root / 'logs'}")
    report = ingest(source, source.topics(), tmp_path / "out")
    assert not report.incomplete and not report.corrupt
    expected = {}
    for segment in golden.manifest["segments"]:
        name = Path(segment["file"]).parent.name
        topic, _, number = name.rpartition("-")
        found = [(message["next_offset"], message["payload"]["len"]) for message in segment["messages"]]
        expected.setdefault((topic, int(number)), []).extend(found)
    rows: dict = {}
    for topic, _, partition, _, _, next_offset, value in read(tmp_path / "out"):
        rows.setdefault((topic, partition), []).append((next_offset, len(value)))
    assert rows == {place: found for place, found in expected.items() if found}


def test_live_brokers_found_through_zookeeper(spark, tmp_path):
    sent: dict[TopicPartition, list[bytes]] = {}
    out = tmp_path / "out"
    with ZooKeeper() as zookeeper:
        settings = {"zookeeper": zookeeper.address, "properties": {"log.flush.interval": 1}}
        with (
            Broker(tmp_path / "b0", 0, partitions=2, **settings) as one,
            Broker(tmp_path / "b1", 1, partitions=2, **settings) as other,
        ):
            for broker in (one, other):
                with SyncProducer(broker.host, broker.port) as producer:
                    for number in range(2):
                        tp = TopicPartition("clicks", one is not broker, number)
                        sent[tp] = [f"{tp} {i}".encode() for i in range(50)]
                        producer.send("clicks", number, sent[tp], "gzip" if number else "none")
                broker.flush()
            wait_for(zookeeper.address, {tp: len(payloads) for tp, payloads in sent.items()})
            with open_source(zookeeper=zookeeper.address) as source:
                report = ingest(source, ["clicks"], out)
    assert report.messages == 200 and not report.incomplete
    rows = read(out)
    for tp, payloads in sent.items():
        assert [row[6] for row in rows if row[:3] == tp] == payloads


def wait_for(zookeeper: str, counts: dict[TopicPartition, int]) -> None:
    """Until so many messages are to be seen of listed partitions; pytest's time-out ends it otherwise."""
    for tp, count in counts.items():
        while True:
            with open_source(zookeeper=zookeeper) as source:
                seen = sum(map(len, source.read(Range(*tp, *source.bounds(tp)))))
                with Cluster(zookeeper=zookeeper) as cluster:
                    if seen == count and tp.broker in cluster.topics.get(tp.topic, {}):
                        break
            time.sleep(0.05)


# --- running again ------------------------------------------------------------------------------------------------


def test_running_again_takes_what_is_new_and_only_that(spark, tmp_path):
    one, other = filled(tmp_path / "b0", 0), filled(tmp_path / "b1", 1)
    source, out = logs(tmp_path / "b0", tmp_path / "b1"), tmp_path / "out"
    run(source, out)
    again = run(source, out)
    assert (again.messages, again.manifest) == (0, None)
    assert len(manifests(out)) == 1

    more(one, "later")
    one.roll()
    more(one, "still later")
    newcomer = filled(tmp_path / "b1", 1, 7)
    report = run(source, out)
    assert report.messages == 2 * 11 + 33
    assert read(out) == sorted([*one.rows, *other.rows, *newcomer.rows])
    assert [each["start"] for each in manifests(out)[1]["partitions"]] == [one.rows[33][3], 0]


def test_a_torn_tail_is_read_once_it_is_whole(spark, tmp_path):
    partition = filled(tmp_path / "b0", 0, segments=1)
    entry = build_message_set([b"the last one"])
    with open(partition.path, "ab") as file:
        file.write(entry[:-3])
    source, out = logs(tmp_path / "b0"), tmp_path / "out"
    report = run(source, out)
    assert not report.incomplete and not report.corrupt
    assert run(source, out).manifest is None
    with open(partition.path, "ab") as file:
        file.write(entry[-3:])
    assert run(source, out).messages == 1
    assert [row[6] for row in read(out)][-1] == b"the last one"


def test_the_last_entry_may_be_an_empty_wrapper(spark, tmp_path):
    partition = filled(tmp_path / "b0", 0, segments=1)
    partition.add_raw(EMPTY_WRAPPER)
    source, out = logs(tmp_path / "b0"), tmp_path / "out"
    run(source, out)
    assert manifests(out)[0]["partitions"][0]["last"]["offset"] == partition.entries[-1]
    more(partition, "later")
    run(source, out)
    assert read(out) == partition.rows


# --- the source is not what it was ----------------------------------------------------------------------------------


@pytest.fixture
def read_once(spark, tmp_path):
    partition = filled(tmp_path / "b0", 0)
    out = tmp_path / "out"
    run(logs(tmp_path / "b0"), out)
    yield partition, out
    # whatever happened, what had been committed is still there, and nothing else
    assert read(out) == partition.rows
    assert len(manifests(out)) == 1


def test_another_log_in_its_place_is_an_error(read_once, tmp_path):
    partition, out = read_once
    shutil.rmtree(partition.directory)
    stranger = Partition(tmp_path / "b0", 0)
    while stranger.end < partition.end:
        stranger.add(b"another cluster's event")
    with pytest.raises(SourceChangedError, match=rf"offset {partition.entries[-1]}: .* another log"):
        run(logs(tmp_path / "b0"), out)


def test_one_changed_byte_in_the_last_entry_is_an_error(read_once, tmp_path):
    partition, out = read_once
    partition.break_entry(-1)
    with pytest.raises(SourceChangedError, match="read an entry of CRC .* now there is none"):
        run(logs(tmp_path / "b0"), out)


def test_a_log_that_was_cut_is_an_error(read_once, tmp_path):
    partition, out = read_once
    max(partition.directory.iterdir()).unlink()
    with pytest.raises(SourceChangedError, match="the log ends at"):
        run(logs(tmp_path / "b0"), out)


def test_a_gap_left_by_retention_is_an_error(read_once, tmp_path):
    partition, out = read_once
    for path in partition.directory.iterdir():
        path.unlink()
    (partition.directory / f"{partition.end + 10:020d}.kafka").write_bytes(build_message_set([b"much later"]))
    with pytest.raises(SourceChangedError, match="the log now begins at"):
        run(logs(tmp_path / "b0"), out)


def test_a_source_in_which_nothing_is_found_again_is_an_error(read_once, tmp_path):
    partition, out = read_once
    filled(tmp_path / "elsewhere", 5)
    with pytest.raises(SourceChangedError, match="nothing of that is found again"):
        with open_source(logs=f"5:{tmp_path / 'elsewhere'}") as source:
            ingest(source, ["clicks"], out)


def test_the_same_archive_at_another_place_goes_on(spark, tmp_path):
    partition = filled(tmp_path / "b0", 0)
    out = tmp_path / "out"
    run(logs(tmp_path / "b0"), out)
    os.rename(tmp_path / "b0", tmp_path / "moved")
    partition.path = tmp_path / "moved" / "clicks-0" / partition.path.name
    more(partition, "later")
    assert run(logs(tmp_path / "moved"), out).messages == 11
    assert read(out) == partition.rows


def test_retention_up_to_where_it_goes_on_is_no_error(spark, tmp_path):
    partition = filled(tmp_path / "b0", 0)
    out = tmp_path / "out"
    run(logs(tmp_path / "b0"), out)
    old = list(partition.directory.iterdir())
    partition.roll()
    more(partition, "later")
    for path in old:
        path.unlink()
    assert run(logs(tmp_path / "b0"), out).messages == 11
    assert read(out) == partition.rows


def test_a_broker_that_is_not_there_any_more_makes_the_run_incomplete(spark, tmp_path):
    one, other = filled(tmp_path / "b0", 0), filled(tmp_path / "b1", 1)
    out = tmp_path / "out"
    run(logs(tmp_path / "b0", tmp_path / "b1"), out)
    more(one, "later")
    report = run(logs(tmp_path / "b0"), out)
    assert report.incomplete and report.messages == 11
    assert "is its broker down?" in str(report.partitions[1].failure)
    assert read(out) == sorted([*one.rows, *other.rows])


# --- corruption ---------------------------------------------------------------------------------------------------


def test_stop_ends_a_partition_before_the_entry_and_the_others_finish(spark, tmp_path, capsys):
    bad, good = filled(tmp_path / "b0", 0), filled(tmp_path / "b1", 1)
    bad.break_entry(4)  # in the second segment of three
    source, out = logs(tmp_path / "b0", tmp_path / "b1"), tmp_path / "out"
    before = [row for row in bad.rows if row[3] < bad.entries[4]]
    for _ in range(2):  # running again changes nothing
        assert main(["ingest", "--logs", source, "--topic", "clicks", "--out", str(out)]) == 4
        printed = capsys.readouterr()
        assert f"clicks 0-0 was read up to offset {bad.entries[4]}: topic 'clicks'" in printed.err
        assert read(out) == sorted([*before, *good.rows])
    assert len(manifests(out)) == 1
    written = manifests(out)[0]["partitions"][0]
    assert (written["end"], written["complete"], written["corrupt"]) == (bad.entries[4], False, [])
    assert f"offset {bad.entries[4]}" in written["reason"]

    # and then past it
    report = run(source, out, on_corrupt="skip")
    assert [(each.start, each.end) for each in report.partitions[0].corrupt] == [(bad.entries[4], bad.entries[5])]
    rest = [row for row in bad.rows if row[3] != bad.entries[4]]
    assert read(out) == sorted([*rest, *good.rows])


def test_stop_takes_nothing_of_a_half_good_wrapper_and_skip_its_good_beginning(spark, tmp_path):
    partition = filled(tmp_path / "b0", 0, segments=1)
    inner = bytearray(build_message_set([b"good", b"bad", b"lost"]))
    inner[inner.index(b"bad")] ^= 1
    wrapped = gzip_wrapper(bytes(inner))
    at = partition.end
    partition.add_raw(wrapped)
    more(partition, "after")

    report = run(logs(tmp_path / "b0"), tmp_path / "stop")
    assert (report.corrupt, report.partitions[0].end) == (True, at)
    assert read(tmp_path / "stop") == [row for row in partition.rows if row[3] < at]

    report = run(logs(tmp_path / "b0"), tmp_path / "skip", on_corrupt="skip")
    assert not report.corrupt and not report.incomplete
    [skipped] = report.partitions[0].corrupt
    assert (skipped.start, skipped.end) == (at, at + len(wrapped))
    assert report.bytes == partition.end - len(wrapped)
    assert read(tmp_path / "skip") == sorted([*partition.rows, (*partition.tp, at, 0, at, b"good")])
    [written] = manifests(tmp_path / "skip")[0]["partitions"]
    assert [(bad["start"], bad["end"]) for bad in written["corrupt"]] == [(at, at + len(wrapped))]
    assert written["complete"]


def test_skip_goes_on_at_the_next_segment_where_no_length_can_be_believed(spark, tmp_path, capsys):
    partition = filled(tmp_path / "b0", 0)
    second = int(sorted(path.stem for path in partition.directory.iterdir())[1])
    third = int(sorted(path.stem for path in partition.directory.iterdir())[2])
    path = partition.directory / f"{second:020d}.kafka"
    path.write_bytes(b"\xff" * path.stat().st_size)
    arguments = ["ingest", "--logs", logs(tmp_path / "b0"), "--topic", "clicks", "--out", str(tmp_path / "out")]
    assert main([*arguments, "--on-corrupt", "skip", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    [bad] = printed["partitions"][0]["corrupt"]
    assert (bad["start"], bad["end"]) == (second, third)
    assert read(tmp_path / "out") == [row for row in partition.rows if not second <= row[3] < third]


def test_a_gap_between_segments_stops_the_partition(spark, tmp_path):
    partition = filled(tmp_path / "b0", 0)
    second = sorted(partition.directory.iterdir())[1]
    gap = int(second.stem)
    second.unlink()
    report = run(logs(tmp_path / "b0"), tmp_path / "out")
    assert report.corrupt and report.partitions[0].end == gap
    assert isinstance(report.partitions[0].failure, CorruptMessageError)
    assert read(tmp_path / "out") == [row for row in partition.rows if row[3] < gap]


# --- trouble ------------------------------------------------------------------------------------------------------


def test_a_broker_that_dies_in_mid_run_leaves_what_is_whole_and_running_again_goes_on(spark, tmp_path):
    """Two partitions on two brokers; one broker dies while a fetch waits for it, its first segment already read."""
    payload = random.Random(3).randbytes(900)
    out = tmp_path / "out"
    with ZooKeeper() as zookeeper:
        settings = {"zookeeper": zookeeper.address, "properties": {"log.flush.interval": 1, "log.file.size": 1 << 20}}
        count = 4000
        other = Broker(tmp_path / "b1", 1, **settings).start()
        try:
            with Broker(tmp_path / "b0", 0, **settings) as one:
                for broker in (one, other):
                    with SyncProducer(broker.host, broker.port) as producer:
                        for first in range(0, count, 100):
                            producer.send("clicks", 0, [b"%d %b" % (i, payload) for i in range(first, first + 100)])
                wait_for(zookeeper.address, {TopicPartition("clicks", broker, 0): count for broker in (0, 1)})
                with open_source(zookeeper=zookeeper.address) as source:
                    stall = stall_later(other)
                    report = ingest(source, ["clicks"], out)
                    assert stall.wait_entered(0)
                alive, dead = report.partitions
                assert report.incomplete and not report.unreachable
                assert alive.failure is None and alive.messages == count
                assert isinstance(dead.failure, BrokerConnectionError)
                rows = read(out)
                assert len(rows) == count + dead.messages and dead.messages < count

                other = Broker(tmp_path / "b1", 1, **settings).start()
                with open_source(zookeeper=zookeeper.address) as source:
                    report = ingest(source, ["clicks"], out)
                assert report.messages == count - dead.messages and not report.incomplete
        finally:
            other.stop()
    rows = read(out)
    for broker in (0, 1):
        values = [row[6] for row in rows if row[1] == broker]
        assert values == [b"%d %b" % (i, payload) for i in range(count)]


def stall_later(broker: Broker):
    """Stops ``broker`` as soon as it holds a fetch."""
    stall = broker.stall_next("fetch")

    def stop() -> None:
        stall.wait_entered()
        broker.stop()

    threading.Thread(target=stop, daemon=True).start()
    return stall


def test_nobody_there_is_exit_code_3_and_leaves_no_folder(tmp_path, capsys):
    from kafka07c.testing import free_ports

    [port] = free_ports(1)
    arguments = ["ingest", "--brokers", f"0:127.0.0.1:{port}", "--topic", "clicks", "--out", str(tmp_path / "out")]
    assert main(arguments) == 3
    assert str(port) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_unknown_topic_leaves_no_folder(tmp_path):
    filled(tmp_path / "b0", 0)
    with pytest.raises(UnknownTopicError), open_source(logs=logs(tmp_path / "b0")) as source:
        ingest(source, ["clicks", "cliks"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_second_writer_is_told_who_holds_the_folder(tmp_path, capsys):
    filled(tmp_path / "b0", 0)
    out = tmp_path / "out"
    with Output(out):
        with pytest.raises(ManifestError):
            run(logs(tmp_path / "b0"), out)
        assert main(["ingest", "--logs", logs(tmp_path / "b0"), "--topic", "clicks", "--out", str(out)]) == 5
    assert f"process {os.getpid()} on " in capsys.readouterr().err


def command(kind: str, source: str, out: Path, *more: str) -> list[str]:
    ingest = ["ingest", kind, source, "--topic", "clicks", "--out", str(out), "--master", "local[2]"]
    return [sys.executable, "-m", "kafka07c", *ingest, *more]


def test_a_full_disk_is_told_and_running_again_goes_on(spark, tmp_path):
    """A limit on the size of files, which fails writes as a full disk does, hits the large one of two partitions."""
    large, small = filled(tmp_path / "b0", 0), filled(tmp_path / "b1", 1)
    large.roll()
    dice = random.Random(7)
    for _ in range(10):
        large.add(*(dice.randbytes(1000) for _ in range(500)))
    source, out = logs(tmp_path / "b0", tmp_path / "b1"), tmp_path / "out"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))

    ended = subprocess.run(
        command("--logs", source, out, "--json"), preexec_fn=limit, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 5, ended.stderr
    assert "File too large" in ended.stderr
    # the segments before the large one are there
    assert read(out) == sorted([*large.rows[:33], *small.rows])
    assert json.loads(ended.stdout)["messages"] == 66
    assert not list((out / STATE / "staged").iterdir())

    assert run(source, out).messages == 5000
    assert read(out) == sorted([*large.rows, *small.rows])


KILLED = """
import os, signal, sys
from kafka07c.cli import main
from kafka07c.spark import manifest

manifest.Output.move = lambda self, manifest: os.kill(os.getpid(), signal.SIGKILL)
main(sys.argv[1:])
"""


def test_killed_between_the_commit_and_the_moves(spark, tmp_path):
    partition = filled(tmp_path / "b0", 0)
    source, out = logs(tmp_path / "b0"), tmp_path / "out"
    arguments = command("--logs", source, out)[3:]
    ended = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, timeout=120)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert len(list((out / STATE / "staged").glob("*/*.staged"))) == 3
    assert not list(out.glob("*.parquet"))
    assert run(source, out).messages == 0
    assert read(out) == partition.rows
    assert not list((out / STATE / "staged").iterdir())


def java_of(process: subprocess.Popen) -> int:
    """The process id of the Java that a process of ours has started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    [java] = [child for child in children if os.path.basename(os.readlink(f"/proc/{child}/exe")) == "java"]
    return int(java)


ENDINGS = {
    "killed": lambda process: os.killpg(process.pid, signal.SIGKILL),
    "Ctrl-C": lambda process: os.killpg(process.pid, signal.SIGINT),  # as the terminal does it
    "its Java killed": lambda process: os.kill(java_of(process), signal.SIGKILL),  # as by a kernel short of memory
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_ended_in_the_middle_of_its_tasks(spark, tmp_path, ending):
    """One task has written its file, the other one waits for its broker. A kill commits nothing; Ctrl-C, or a Java that
    dies, what Spark has been told of by then."""
    out = tmp_path / "out"
    with ZooKeeper() as zookeeper:
        settings = {"zookeeper": zookeeper.address, "properties": {"log.flush.interval": 1}}
        with Broker(tmp_path / "b0", 0, **settings) as one, Broker(tmp_path / "b1", 1, **settings) as other:
            for broker in (one, other):
                with SyncProducer(broker.host, broker.port) as producer:
                    producer.send("clicks", 0, [b"%d" % i for i in range(100)])
            wait_for(zookeeper.address, {TopicPartition("clicks", broker, 0): 100 for broker in (0, 1)})
            stall = other.stall_next("fetch")
            process = subprocess.Popen(
                command("--zookeeper", zookeeper.address, out, "--json"),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            )  # fmt: skip
            try:
                while not (stall.wait_entered(0.05) and list((out / STATE / "staged").glob("*/*.staged"))):
                    assert process.poll() is None, "it ended before it could be killed"
                ENDINGS[ending](process)
                printed, notes = process.communicate(timeout=60)
            finally:
                process.kill()
                process.communicate()
                stall.release()
            committed = 0
            if ending == "killed":
                assert process.returncode == -signal.SIGKILL
            else:
                assert process.returncode == 5, notes
                reason = {"Ctrl-C": "the run was interrupted", "its Java killed": "Spark's Java was killed by SIGKILL"}[ending]
                assert f"clicks 1-0 was read up to offset 0: {reason}" in notes
                committed = json.loads(printed)["messages"]
                assert committed in (0, 100)
            visible = read(out) if list(out.glob("*.parquet")) else []
            assert [row[6] for row in visible] == [b"%d" % i for i in range(committed)]
            with open_source(zookeeper=zookeeper.address) as source:
                assert ingest(source, ["clicks"], out).messages == 200 - committed
    assert [row[1:3] + row[6:] for row in read(out)] == [(b, 0, b"%d" % i) for b in (0, 1) for i in range(100)]


# --- the writer of one range ----------------------------------------------------------------------------------------


def test_row_groups_are_cut_by_rows_and_by_bytes(tmp_path, monkeypatch):
    partition = Partition(tmp_path / "b0", 0)
    partition.add(*(b"%06d" % i for i in range(1000)))
    source = open_source(logs=logs(tmp_path / "b0"))
    monkeypatch.setattr(writer, "BATCH_ROWS", 100)
    monkeypatch.setattr(files, "ROW_GROUP_ROWS", 300)

    class Small:
        """The source in sets of a few messages."""

        def read(self, wanted, **kwargs):
            return source.read(wanted, fetch_bytes=400, **kwargs)

        def close(self):
            source.close()

    wanted = Range(*partition.tp, 0, partition.end)
    result = writer.write_range(Small(), wanted, tmp_path, 0, on_corrupt="stop", layout=Layout("none"))
    assert result.failure is None and result.messages == 1000
    [staged] = result.files
    file = pq.ParquetFile(tmp_path / staged.name)
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    assert sum(sizes) == 1000 and len(sizes) == 4 and all(300 <= size < 450 for size in sizes[:-1])
    assert [row[6] for row in partition.rows] == file.read().column("value").to_pylist()


def test_a_range_without_messages_makes_no_file(tmp_path):
    partition = Partition(tmp_path / "b0", 0)
    partition.add_raw(EMPTY_WRAPPER)
    wanted = Range(*partition.tp, 0, partition.end)
    source = open_source(logs=logs(tmp_path / "b0"))
    result = writer.write_range(source, wanted, tmp_path, 0, on_corrupt="stop", layout=Layout("none"))
    assert (result.end, result.files, result.last.next_offset) == (partition.end, [], partition.end)
    assert not list(tmp_path.glob("*.staged"))


def entries() -> Iterator[tuple[str, bytes]]:
    plain, wrapper = build_message_set([b"a", b"bc"]), build_message_set([b"d", b"e"], "gzip")
    empty = EMPTY_WRAPPER
    yield "plain", plain
    yield "wrapper", plain + wrapper
    yield "empty wrapper", wrapper + empty
    yield "two empty wrappers", plain + empty + empty
    yield "nothing but an empty wrapper", empty
    yield "cut", plain + wrapper[:-1]


@pytest.mark.parametrize("data", [data for _, data in entries()], ids=[name for name, _ in entries()])
def test_last_entry_is_the_last_as_stored(data):
    stored = list(MessageSet(data, 1000, shallow=True))[-1]
    last = writer.last_entry(MessageSet(data, 1000))
    assert (last.offset, last.next_offset, last.crc) == (stored.offset, stored.next_offset, stored.crc)


def test_no_entry_no_last_entry():
    assert writer.last_entry(MessageSet(b"", 5)) is None
    assert writer.last_entry(MessageSet(build_message_set([b"abc"])[:-1], 5)) is None


# --- what the files are like


def test_a_file_is_closed_at_its_target_size_and_its_range_goes_on_in_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "BATCH_ROWS", 100)
    monkeypatch.setattr(files, "ROW_GROUP_ROWS", 100)
    payloads = [os.urandom(100) for _ in range(3000)]
    with Log(tmp_path / "b0" / "clicks-0", writable=True) as log:
        for start in range(0, 3000, 50):
            log.append(build_message_set(payloads[start : start + 50]))
    wanted = Range("clicks", 0, 0, 0, log.end_offset)
    source = open_source(logs=logs(tmp_path / "b0"))
    monkeypatch.setattr(source, "read", functools.partial(source.read, fetch_bytes=5000))
    (tmp_path / "stage").mkdir()
    result = writer.write_range(
        source, wanted, tmp_path / "stage", 0, on_corrupt="stop", layout=Layout("none", target_bytes=50_000)
    )
    assert result.failure is None and result.messages == 3000 and len(result.files) == 6
    assert [file.start for file in result.files] == [0, *(file.end for file in result.files[:-1])]
    assert result.files[-1].end == wanted.end
    assert all(50_000 <= file.bytes < 80_000 for file in result.files[:-1])
    read = [pq.read_table(tmp_path / "stage" / file.name) for file in result.files]
    assert [value for table in read for value in table["value"].to_pylist()] == payloads
    assert all(table["offset"][0].as_py() == file.start for table, file in zip(read, result.files))


def by_month(values: pa.Array) -> pa.Array:
    """The extractor of the test below: a payload begins with its month, or with a dash."""
    text = pc.utf8_slice_codeunits(values.cast(pa.string()), 0, 7)
    return pc.if_else(pc.starts_with(text, "-"), None, text)


def test_folders_by_topic_and_date(tmp_path, spark):
    dates = ["2012-01", "2012-02", "-"]
    for topic in ("clicks", "wei rd"):
        with Log(tmp_path / "b0" / f"{topic}-0", writable=True) as log:
            log.append(build_message_set([f"{dates[n % 3]} {topic} {n}".encode() for n in range(300)]))
    layout = Layout(by_topic=True, date=by_month)
    out = tmp_path / "out"
    with open_source(logs=logs(tmp_path / "b0")) as source:
        report = ingest(source, ["clicks", "wei rd"], out, layout=layout, spark=spark)
        assert (report.messages, report.incomplete) == (600, False)
    folders = sorted(str(path.parent.relative_to(out)) for path in out.glob("*/*/*.parquet"))
    assert folders == [
        f"topic={topic}/date={date}"
        for topic in ("clicks", "wei%20rd")
        for date in ("2012-01", "2012-02", "__HIVE_DEFAULT_PARTITION__")
    ]
    found = spark.read.parquet(str(out)).groupBy("topic", "date").count().collect()
    assert {(row.topic, row.date): row["count"] for row in found} == {
        (topic, date): 100 for topic in ("clicks", "wei rd") for date in ("2012-01", "2012-02", None)
    }
    with Output(out) as output:  # the manifest is read and checked anew
        assert output.positions[TopicPartition("clicks", 0, 0)].end > 0
    with open_source(logs=logs(tmp_path / "b0")) as source:
        assert ingest(source, ["clicks", "wei rd"], out, layout=layout, spark=spark).messages == 0


def test_two_cores_share_one_segment(tmp_path, spark):
    payloads = [b"%07d" % number + b"." * 93 for number in range(400_000)]
    with Log(tmp_path / "b0" / "clicks-0", writable=True, flush_messages=10**9) as log:
        for start in range(0, len(payloads), 10_000):
            log.append(build_message_set(payloads[start : start + 10_000]))
    with open_source(logs=logs(tmp_path / "b0")) as source:
        report = ingest(source, ["clicks"], tmp_path / "out", spark=spark)
    assert len(report.partitions[0].files) >= min(2, os.cpu_count() or 1)
    found = pq.ParquetDataset(tmp_path / "out").read(columns=["value"])["value"].to_pylist()
    assert sorted(found) == payloads


MINE = """
import pyarrow as pa, pyarrow.compute as pc

def decode(values):
    text = values.cast(pa.string())
    return pa.record_batch({"kind": pc.list_element(pc.split_pattern(text, " "), 3)}), pc.ends_with(text, "gzip 3")
"""


def test_a_decoder_of_the_users_own_in_the_workers_and_files_by_uri(spark, tmp_path):
    """The module lies in the current folder, and nowhere else."""
    partition = filled(tmp_path / "b0", 0)
    (tmp_path / "mine.py").write_text(MINE)
    arguments = command("--logs", logs(tmp_path / "b0"), Path("out"))
    arguments[arguments.index("out")] = (tmp_path / "out").as_uri()
    arguments[1:1] = ["-P"]
    ended = subprocess.run(
        [*arguments, "--decoder", "mine:decode", "--on-undecodable", "dead-letter", "--json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["messages"], report["partitions"][0]["undecodable"]) == (30, 3)
    paths = kafka07c.spark.files_of((tmp_path / "out").as_uri())
    assert sorted(path.removeprefix("file://") for path in paths) == sorted(map(str, (tmp_path / "out").glob("*.parquet")))
    found = spark.read.parquet(*paths).groupBy("kind").count().collect()
    assert {row.kind: row["count"] for row in found} == {"none": 3, "gzip": 12, "snappy": 15}
    assert len(partition.rows) == 33
