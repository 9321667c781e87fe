"""archive(): streams into an output folder, exactly once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import kafka07c.spark
from kafka07c._build import build_message_set
from kafka07c.cli import main
from kafka07c.errors import ManifestError
from kafka07c.ranges import open_source
from kafka07c.segments import Log
from kafka07c.spark.archiving import archive
from kafka07c.spark.decoders import JsonDecoder, parse_schema
from kafka07c.spark.ingest import ingest
from kafka07c.spark.layout import Layout
from kafka07c.spark.manifest import Output
from kafka07c.testing import start_process

pytestmark = pytest.mark.spark

NOW = {"availableNow": True}


@pytest.fixture(scope="module")
def spark():
    spark = kafka07c.spark.session(app="tests of archive", master="local[2]")
    yield spark
    spark.stop()


def append(tmp_path: Path, first: int, count: int, name: str = "clicks-0") -> None:
    with Log(tmp_path / "logs" / name, writable=True) as log:
        for start in range(first, first + count, 100):
            log.append(build_message_set([b"%08d" % number for number in range(start, start + 100)]))


def values(out: Path) -> list[int]:
    return sorted(map(int, ds.dataset(out, format="parquet").to_table(columns=["value"])["value"].to_pylist()))


@pytest.fixture
def run(spark, tmp_path):
    def run(out: Path = tmp_path / "out", **options) -> None:
        read = {"kafka07.logs": f"0:{tmp_path / 'logs'}", "subscribe": "clicks"} | options
        query = archive(read, out, spark=spark, trigger=NOW)
        try:
            query.awaitTermination()
        finally:
            wait_until_free(out)

    return run


def wait_until_free(out: Path) -> None:
    """The lock is given back by a thread that waits for the query's end."""
    while True:
        try:
            Output(out).close()
            return
        except ManifestError:
            time.sleep(0.05)


def manifests(out: Path) -> int:
    return len(list((out / "_kafka07c" / "manifests").iterdir()))


def test_batches_are_commits_and_runs_go_on(run, tmp_path):
    out = tmp_path / "out"
    append(tmp_path, 0, 10_000)
    append(tmp_path, 10_000, 5_000, "clicks-1")
    run(maxBytesPerTrigger="100k")
    assert values(out) == list(range(15_000))
    assert manifests(out) == 1 + 3  # where the partitions begin, and three batches
    append(tmp_path, 15_000, 1_000)
    append(tmp_path, 16_000, 1_000, "clicks-2")
    run()
    run()
    assert values(out) == list(range(17_000))


def test_the_manifests_count_whatever_the_checkpoint_says(run, tmp_path):
    """As after a crash between commit and checkpoint: Spark runs the batch again."""
    out = tmp_path / "out"
    append(tmp_path, 0, 1_000)
    run()
    checkpoint = out / "_kafka07c" / "checkpoint"
    for folder in ("offsets", "commits"):
        latest = max((checkpoint / folder).glob("[0-9]*"), key=lambda path: int(path.name))
        if folder == "commits":
            latest.unlink()
            (checkpoint / folder / f".{latest.name}.crc").unlink()
    append(tmp_path, 1_000, 1_000)
    run()
    assert values(out) == list(range(2_000))


def test_a_checkpoint_that_never_got_to_a_batch_is_begun_anew(spark, run, tmp_path):
    """A kill -9 in the middle of the first offsets leaves a file that Spark refuses to start on, in any session."""
    offsets = tmp_path / "out" / "_kafka07c" / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.80cf7770-1873-4000-a41e-76de4cf4fb8e.tmp").write_bytes(b"v1\n")
    append(tmp_path, 0, 1_000)
    setting = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
    ours = spark.conf.get(setting)
    spark.conf.set(setting, "true")
    try:
        run()
    finally:
        spark.conf.set(setting, ours)
    assert values(tmp_path / "out") == list(range(1_000))


def test_a_folder_that_batch_ingest_has_begun(run, tmp_path):
    append(tmp_path, 0, 1_000)
    with open_source(logs=f"0:{tmp_path / 'logs'}") as source:
        ingest(source, ["clicks"], tmp_path / "out")
    append(tmp_path, 1_000, 1_000)
    run()
    assert values(tmp_path / "out") == list(range(2_000))


def test_corruption_stops_the_query_after_what_comes_before(run, tmp_path):
    append(tmp_path, 0, 1_000)
    [segment] = (tmp_path / "logs" / "clicks-0").iterdir()
    data = bytearray(segment.read_bytes())
    data[18 * 500 + 12] ^= 1
    segment.write_bytes(data)
    with pytest.raises(StreamingQueryException, match="partition 0, offset 9000: corrupt entry"):
        run()
    assert values(tmp_path / "out") == list(range(500))
    with pytest.raises(StreamingQueryException, match="offset 9000"):
        run()
    assert values(tmp_path / "out") == list(range(500))


def test_one_writer_at_a_time(spark, tmp_path):
    append(tmp_path, 0, 100)
    with Output(tmp_path / "out"), pytest.raises(ManifestError, match="is being written by"):
        archive({"kafka07.logs": f"0:{tmp_path / 'logs'}", "subscribe": "clicks"}, tmp_path / "out", spark=spark)


def test_decoded_columns_and_a_place_without_renames(spark, tmp_path):
    """The checkpoint lies there too; a message that does not decode ends the query, unless it has a place to go."""
    read = {"kafka07.logs": f"0:{tmp_path / 'logs'}", "subscribe": "clicks"}
    out = (tmp_path / "out").as_uri()
    decoder = JsonDecoder(parse_schema("id: int64"))
    with Log(tmp_path / "logs" / "clicks-0", writable=True) as log:
        log.append(build_message_set([b'{"id": 1}', b'{"id": 2}', b"three", b'{"id": 4}']))

    with pytest.raises(StreamingQueryException, match="partition 0, offset 38: message 0 of the entry here does not"):
        archive(read, out, spark=spark, trigger=NOW, layout=Layout(decoder=decoder)).awaitTermination()
    assert [pq.read_table(path)["id"].to_pylist() for path in sorted((tmp_path / "out").glob("*.parquet"))] == [[1, 2]]

    layout = Layout(decoder=decoder, on_undecodable="dead-letter")
    archive(read, out, spark=spark, trigger=NOW, layout=layout).awaitTermination()
    rows = spark.read.parquet(*kafka07c.spark.files_of(out)).collect()
    assert sorted(row.id for row in rows) == [1, 2, 4]
    assert (tmp_path / "out" / "_kafka07c" / "checkpoint" / "commits").is_dir()


# --- as a command


def follow(tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-m", "kafka07c", "ingest", "--logs", f"0:{tmp_path / 'logs'}", "--topic", "clicks",
        "--out", str(tmp_path / "out"), "--follow", "--interval", "0.5", "--master", "local[2]", *options,
    ]  # fmt: skip
    return start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_follow_takes_what_comes_until_ctrl_c(tmp_path):
    append(tmp_path, 0, 1_000)
    with follow(tmp_path, "--json") as process:
        counted = first = 0
        for line in process.stdout:
            counted += json.loads(line)["messages"]
            if counted == 1_000 and not first:
                first = counted
                append(tmp_path, 1_000, 500)
            if counted == 1_500:
                process.send_signal(signal.SIGINT)
                break
        _, said = process.communicate()
    assert process.returncode == 0, said
    assert "1,500 messages, 27,000 bytes of log" in said
    assert values(tmp_path / "out") == list(range(1_500))


def test_follow_ends_at_damage_with_its_own_code_and_one_line(tmp_path):
    append(tmp_path, 0, 100)
    [segment] = (tmp_path / "logs" / "clicks-0").iterdir()
    segment.write_bytes(segment.read_bytes()[:900] + b"\0" * 900)
    with follow(tmp_path) as process:
        _, said = process.communicate()
    assert process.returncode == 4, said
    [line] = [line for line in said.splitlines() if line.startswith("kafka07c ingest:")]
    assert "topic 'clicks', broker 0, partition 0, offset 900: corrupt entry" in line
    assert values(tmp_path / "out") == list(range(50))


def test_wrong_ways_to_ask_for_folders(tmp_path, capsys):
    append(tmp_path, 0, 100)
    base = ["ingest", "--logs", f"0:{tmp_path / 'logs'}", "--topic", "clicks", "--out", str(tmp_path / "out")]
    for more, said in (
        (["--partition-by", "date"], "--partition-by date and --date-from go together"),
        (["--partition-by", "date", "--date-from", "nowhere:at_all"], "No module named 'nowhere'"),
        (["--partition-by", "date", "--date-from", "json:at_all"], "no attribute 'at_all'"),
    ):
        assert main([*base, *more]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
