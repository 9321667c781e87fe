"""Ranges and sources: archives and live brokers give the same entries for the same range."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import socket
import time
from pathlib import Path

import pytest

from kafka07c import ranges
from kafka07c._build import build_message_set
from kafka07c._compress import Codec, deflate
from kafka07c._crc32 import crc32
from kafka07c._views import MessageSet
from kafka07c.broker import Broker
from kafka07c.names import TopicPartition
from kafka07c.errors import (
    BrokerConnectionError,
    CorruptMessageError,
    LogError,
    OffsetOutOfRangeError,
    ProtocolError,
    UnknownTopicError,
    WrongPartitionError,
    ZooKeeperError,
)
from kafka07c.protocol import EARLIEST
from kafka07c.ranges import Range, open_source
from kafka07c.simple import SimpleConsumer
from kafka07c.spark.options import parse
from kafka07c.spark.planning import plan
from kafka07c.testing import ZooKeeper

GOLDEN = Path(__file__).parent / "golden07"

CLICKS = TopicPartition("clicks", 0, 0)


def write_log(log_dir: Path, *segments: bytes, start: int = 0, name: str = "clicks-0") -> Path:
    """A log directory of one partition whose segment files hold just these bytes; the broker leaves it as it is."""
    directory = log_dir / name
    directory.mkdir(parents=True)
    for data in segments:
        (directory / f"{start:020d}.kafka").write_bytes(data)
        start += len(data)
    (log_dir / ".kafka_cleanshutdown").touch()
    return directory


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :]


@pytest.fixture(params=["archive", "broker"])
def open_log_dir(request):
    """Opens a source over a log directory: as an archive, or as what a live broker serves."""
    running = []

    def open_log_dir(log_dir: Path, partitions: int = 2):
        if request.param == "archive":
            return open_source(logs=f"0:{log_dir}")
        broker = Broker(log_dir, broker_id=0, partitions=partitions).start()
        running.append(broker)
        return open_source(brokers=f"0:127.0.0.1:{broker.port}")

    yield open_log_dir
    for broker in running:
        broker.stop()


def whole(source, tp: TopicPartition) -> Range:
    return Range(*tp, *source.bounds(tp))


def messages(parts) -> list[tuple[int, int, int, bytes]]:
    return [(m.offset, m.index, m.next_offset, m.value) for part in parts for m in part]


# --- ranges


def test_range_is_cut_inside_only():
    wanted = Range("clicks", 0, 1, 100, 300)
    assert wanted.cut_at([300, 200, 0, 100, 200, 400]) == [
        Range("clicks", 0, 1, 100, 200),
        Range("clicks", 0, 1, 200, 300),
    ]
    assert wanted.cut_at([]) == [wanted]
    assert Range("clicks", 0, 1, 100, 100).cut_at([50, 100, 150]) == []


def test_range_says_what_it_is():
    wanted = Range("clicks", 0, 1, 100, 300)
    assert (wanted.tp, wanted.size, str(wanted)) == (TopicPartition("clicks", 0, 1), 200, "clicks 0-1 from 100 to 300")
    assert pickle.loads(pickle.dumps(wanted)) == wanted
    assert wanted.after(200) == Range("clicks", 0, 1, 200, 300)
    assert wanted.after(500).size == 0


@pytest.mark.parametrize("start, end", [(-1, 5), (5, 4)])
def test_range_that_makes_no_sense(start, end):
    with pytest.raises(ValueError, match="ends no earlier than it starts"):
        Range("clicks", 0, 0, start, end)


@pytest.mark.parametrize(
    "start, end, left",
    [
        (100, 200, (100, 200)),
        (50, 150, (100, 150)),
        (150, 250, (150, 200)),
        (0, 50, (100, 100)),
        (300, 400, (200, 200)),
    ],
)
def test_range_within_what_is_there(start, end, left, caplog):
    wanted = Range("clicks", 0, 0, start, end)
    assert wanted.within((100, 200), fail_on_data_loss=False) == Range("clicks", 0, 0, *left)
    if (start, end) == left:
        assert wanted.within((100, 200)) == wanted
        assert not caplog.records
    else:
        assert f"offsets {start} to {end} are wanted, the partition has 100 to 200" in caplog.text
        with pytest.raises(OffsetOutOfRangeError, match=rf"clicks.*offsets {start} to {end} are wanted"):
            wanted.within((100, 200))


# --- naming a source


@pytest.mark.parametrize("given", [{}, {"logs": "0:/a", "brokers": "0:a:1"}, {"zookeeper": "a:1", "brokers": "0:a:1"}])
def test_exactly_one_source(given):
    with pytest.raises(ValueError, match="exactly one of zookeeper, brokers and logs"):
        open_source(**given)


@pytest.mark.parametrize("logs", ["", "/path", "x:/path", "0:", "0:/a,1:", "-1:/a"])
def test_malformed_logs(logs):
    with pytest.raises(ValueError, match="expected id:/path"):
        open_source(logs=logs)


def test_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_source(logs="0:a, 1:/b,c").name == f"logs:0:{tmp_path}/a,1:/b,c"
    assert open_source(brokers="0:127.0.0.1:9092").name == "brokers:0:127.0.0.1:9092"
    assert open_source(zookeeper="127.0.0.1:2181/x").name == "zookeeper:127.0.0.1:2181/x"


def test_opening_and_pickling_touch_nothing(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a socket")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for given in ({"zookeeper": "127.0.0.1:1"}, {"brokers": "0:127.0.0.1:1"}, {"logs": "0:/no/such/directory"}):
        source = pickle.loads(pickle.dumps(open_source(**given)))
        assert source.name == open_source(**given).name
        source.close()


# --- archives on disk


def test_archive_of_a_single_partition_and_of_whole_directories(tmp_path):
    for log_dir, name in (("a", "clicks-0"), ("a", "views-0"), ("b", "clicks-0"), ("c", "clicks-1")):
        write_log(tmp_path / log_dir / name, build_message_set([name.encode()]), name=name)
        shutil.move(tmp_path / log_dir / name / name, tmp_path / log_dir / "moved")
        shutil.rmtree(tmp_path / log_dir / name)
        shutil.move(tmp_path / log_dir / "moved", tmp_path / log_dir / name)
    source = open_source(logs=f"0:{tmp_path}/a,1:{tmp_path}/b,0:{tmp_path}/c/clicks-1")
    assert source.topics() == ["clicks", "views"]
    assert list(map(str, source.partitions("clicks"))) == ["clicks 0-0", "clicks 0-1", "clicks 1-0"]
    assert messages(source.read(whole(source, TopicPartition("clicks", 0, 1)))) == [(0, 0, 18, b"clicks-1")]


def test_archive_that_is_not_there(tmp_path):
    with pytest.raises(LogError, match="cannot list the log directory .*/nowhere'"):
        open_source(logs=f"0:{tmp_path}/nowhere").topics()
    with pytest.raises(LogError, match="no logs in .* named topic-partition"):
        open_source(logs=f"0:{tmp_path}").topics()


def test_archive_with_a_partition_twice(tmp_path):
    a = write_log(tmp_path / "a", build_message_set([b"a"]))
    b = write_log(tmp_path / "b", build_message_set([b"b"]))
    with pytest.raises(LogError, match=f"two directories are given for clicks 0-0: '{a}' and '{b}'"):
        open_source(logs=f"0:{tmp_path}/a,0:{tmp_path}/b").topics()
    source = open_source(logs=f"0:{tmp_path}/a,1:{tmp_path}/b")
    assert list(map(str, source.partitions("clicks"))) == ["clicks 0-0", "clicks 1-0"]


def test_archive_of_the_same_directory_twice(tmp_path):
    a = write_log(tmp_path, build_message_set([b"a"]))
    assert open_source(logs=f"0:{tmp_path},0:{a}").partitions("clicks") == [CLICKS]


# --- what both kinds give


def test_golden_logs_are_read_as_the_scala_classes_read_them(golden, tmp_path, open_log_dir):
    shutil.copytree(GOLDEN / "logs", tmp_path / "logs")
    with open_log_dir(tmp_path / "logs") as source:
        for segment in golden.manifest["segments"]:
            topic, partition = Path(segment["file"]).parent.name.rsplit("-", 1)
            wanted = Range(topic, 0, int(partition), segment["start_offset"], segment["tail_offset"])
            read = list(source.read(wanted))
            assert [(m.next_offset, hashlib.sha1(m.payload).hexdigest()) for part in read for m in part] == [
                (m["next_offset"], m["payload"]["sha1"]) for m in segment["messages"]
            ]
            assert {(p.topic, p.broker, p.partition) for p in read} <= {(topic, 0, int(partition))}


def test_bounds_and_segments(tmp_path, open_log_dir):
    sets = [build_message_set([b"%d" % i] * 10) for i in range(3)]
    write_log(tmp_path, *sets, start=1000)
    with open_log_dir(tmp_path) as source:
        assert source.bounds(CLICKS) == (1000, 1330)
        assert source.split(whole(source, CLICKS)) == [
            Range(*CLICKS, 1000, 1110),
            Range(*CLICKS, 1110, 1220),
            Range(*CLICKS, 1220, 1330),
        ]
        assert source.split(Range(*CLICKS, 1050, 1115)) == [Range(*CLICKS, 1050, 1110), Range(*CLICKS, 1110, 1115)]
        assert source.split(Range(*CLICKS, 1330, 1330)) == []


def test_many_partitions_at_a_time(tmp_path, open_log_dir):
    """The same as one after the other, also where a broker is asked in more than one go."""
    segment = build_message_set([b"a" * 10])
    for number in range(260):
        write_log(tmp_path, *[segment] * (number % 3 + 1), start=number, name=f"clicks-{number}")
    write_log(tmp_path, segment, name="views-0")
    with open_log_dir(tmp_path, partitions=260) as source:
        partitions = [tp for tp in source.partitions_of(["views", "clicks"]) if tp.topic == "clicks" or not tp.partition]
        assert len(partitions) == 261
        assert [tp.topic for tp in partitions[:2]] == ["views", "clicks"]
        bounds = source.all_bounds(partitions)
        assert list(bounds) == partitions
        asked = [*partitions[:5], *partitions[-5:]]
        assert [bounds[tp] for tp in asked] == [source.bounds(tp) for tp in asked]
        wanted = [Range(*tp, *bounds[tp]) for tp in partitions]
        wanted.insert(3, Range("views", 0, 0, 5, 5))  # an empty one gives nothing
        pieces = source.split_all(wanted)
        assert pieces == [piece for each in wanted for piece in source.split(each)]
        assert len(pieces) == 1 + sum(number % 3 + 1 for number in range(260))
        assert (source.all_bounds([]), source.split_all([])) == ({}, [])
        with pytest.raises((UnknownTopicError, BrokerConnectionError), match="clicks.*70000"):
            source.all_bounds([CLICKS, TopicPartition("clicks", 0, 70_000)])


def test_planning_asks_no_broker_one_by_one(tmp_path, monkeypatch):
    write_log(tmp_path, build_message_set([b"a" * 10]), build_message_set([b"b" * 10]))
    write_log(tmp_path, build_message_set([b"a" * 10]), name="clicks-1")
    with Broker(tmp_path, broker_id=0, partitions=2) as broker:
        options = parse({"kafka07.brokers": f"0:127.0.0.1:{broker.port}", "subscribe": "clicks"})

        def refuse(*args, **kwargs):
            raise AssertionError("a round trip for one partition")

        monkeypatch.setattr(SimpleConsumer, "get_offsets_before", refuse)
        with options.open_source() as source:
            assert [str(each) for each in plan(options, source)] == [
                "clicks 0-0 from 0 to 20", "clicks 0-0 from 20 to 40", "clicks 0-1 from 0 to 20",
            ]  # fmt: skip


def test_topics_of_an_archive_are_found_in_one_look(tmp_path, monkeypatch):
    for name in ("clicks-0", "views-0", "views-1"):
        write_log(tmp_path, build_message_set([b"a"]), name=name)
    looks = []
    look = ranges.find_logs
    monkeypatch.setattr(ranges, "find_logs", lambda root: looks.append(root) or look(root))
    source = open_source(logs=f"0:{tmp_path}", live=True)
    assert list(map(str, source.partitions_of(["views", "clicks"]))) == ["views 0-0", "views 0-1", "clicks 0-0"]
    assert looks == [tmp_path]
    with pytest.raises(UnknownTopicError, match="has no topic 'orders'; there: clicks, views"):
        source.partitions_of(["clicks", "orders"])


@pytest.mark.parametrize("fetch_bytes", [16, 100, 1 << 20])
def test_every_range_gives_the_entries_that_start_in_it(tmp_path, open_log_dir, fetch_bytes):
    """Ends in the middle of entries included; entries larger than the fetch, an empty wrapper, two segments."""
    entries = [
        build_message_set([b""], magic=0),
        build_message_set([b"a" * 40]),
        build_message_set([b"b", b"c" * 30, b"d"], "gzip"),
        build_message_set([], "snappy"),
        build_message_set([b"e"]),
        build_message_set([b"f" * 150, b"g"], "snappy"),
        build_message_set([b""]),
    ]
    write_log(tmp_path, b"".join(entries[:4]), b"".join(entries[4:]))
    starts = [sum(map(len, entries[:i])) for i in range(len(entries))]
    log_end = sum(map(len, entries))
    everything = messages([MessageSet(b"".join(entries))])
    with open_log_dir(tmp_path) as source:
        for start in starts:
            for end in range(start, log_end + 1):
                read = list(source.read(Range(*CLICKS, start, end), fetch_bytes=fetch_bytes))
                assert messages(read) == [m for m in everything if start <= m[0] < end]
                if read:
                    assert read[-1].next_offset == next((s for s in starts if s >= end), log_end)


def test_a_source_of_one_partition_reads_elsewhere(tmp_path, open_log_dir):
    write_log(tmp_path, build_message_set([b"a", b"b"]))
    with open_log_dir(tmp_path) as source:
        wanted = whole(source, CLICKS)
        pickled = pickle.dumps(source.only(CLICKS))
    with pickle.loads(pickled) as task_source:
        assert task_source.name == source.name
        assert [m[3] for m in messages(task_source.read(wanted))] == [b"a", b"b"]
    assert len(pickled) < 1000


def test_what_is_not_there(tmp_path, open_log_dir):
    write_log(tmp_path, build_message_set([b"a"]))
    with open_log_dir(tmp_path) as source:
        with pytest.raises((UnknownTopicError, WrongPartitionError)):
            list(source.read(Range("clicks", 0, 7, 0, 10)))
        with pytest.raises(ValueError, match="'stop' or 'skip'"):
            source.read(whole(source, CLICKS), on_corrupt="ignore")


# --- damage

GOOD = [build_message_set([b"%d" % i * 20]) for i in range(6)]
SIZE = len(GOOD[0])  # 30
TAIL = GOOD[3] + GOOD[4]


def values(parts) -> list[bytes]:
    return [value for part in parts for value in part.good().payloads()]


@pytest.mark.parametrize("fetch_bytes", [20, 75, 1 << 20])
@pytest.mark.parametrize(
    "damaged, skipped",
    [
        pytest.param(flipped(GOOD[1], 15), (SIZE, 2 * SIZE), id="CRC: the next entry is believed"),
        pytest.param(GOOD[1][:4] + b"\x05" + GOOD[1][5:], (SIZE, 2 * SIZE), id="magic"),
        pytest.param(flipped(GOOD[1], 3), (SIZE, 3 * SIZE), id="size: on at the next segment"),
        pytest.param(flipped(GOOD[1], 0), (SIZE, 3 * SIZE), id="size above the limit: on at the next segment"),
        pytest.param(bytes(SIZE), (SIZE, 3 * SIZE), id="zeros"),
        pytest.param(b"\xff" * SIZE, (SIZE, 3 * SIZE), id="negative size"),
    ],
)
def test_damage_stops_or_is_skipped(tmp_path, open_log_dir, damaged, skipped, fetch_bytes):
    write_log(tmp_path, GOOD[0] + damaged + GOOD[2], TAIL)
    with open_log_dir(tmp_path) as source:
        wanted = whole(source, CLICKS)
        stopped = list(source.read(wanted, fetch_bytes=fetch_bytes))
        assert values(stopped) == [b"0" * 20]
        assert [part.error is not None for part in stopped[:-1]] == [False] * (len(stopped) - 1)
        error = stopped[-1].error
        assert isinstance(error, CorruptMessageError)
        assert (error.topic, error.broker, error.partition, error.offset) == ("clicks", 0, 0, SIZE)

        read = list(source.read(wanted, on_corrupt="skip", fetch_bytes=fetch_bytes))
        believed = [b"2" * 20] if skipped[1] == 2 * SIZE else []
        assert values(read) == [b"0" * 20, *believed, b"3" * 20, b"4" * 20]
        errors = [part.error for part in read if part.error is not None]
        assert [(error.offset, error.next_offset) for error in errors] == [skipped]


def test_damage_of_unknown_length_in_the_last_segment_is_skipped_to_the_end(tmp_path, open_log_dir):
    write_log(tmp_path, GOOD[0], GOOD[1] + bytes(8) + GOOD[2])
    with open_log_dir(tmp_path) as source:
        read = list(source.read(whole(source, CLICKS), on_corrupt="skip"))
        assert values(read) == [b"0" * 20, b"1" * 20]
        assert (read[-1].error.offset, read[-1].error.next_offset) == (2 * SIZE, 3 * SIZE + 8)


def test_damage_behind_the_range_is_not_its_business(tmp_path, open_log_dir):
    write_log(tmp_path, GOOD[0] + flipped(GOOD[1], 15) + GOOD[2])
    with open_log_dir(tmp_path) as source:
        read = list(source.read(Range(*CLICKS, 0, SIZE)))
        assert values(read) == [b"0" * 20]
        assert [part.error for part in read] == [None]


def test_damage_inside_a_wrapper(tmp_path, open_log_dir):
    """The messages before the bad inner one are good; what is skipped is the wrapper."""
    inner = GOOD[0] + flipped(GOOD[1], 15) + GOOD[2]
    body = bytes(deflate(Codec.GZIP, inner))
    wrapper = (6 + len(body)).to_bytes(4, "big") + b"\x01\x01" + crc32(body).to_bytes(4, "big") + body
    write_log(tmp_path, wrapper + GOOD[3])
    with open_log_dir(tmp_path) as source:
        read = list(source.read(whole(source, CLICKS), on_corrupt="skip"))
        assert values(read) == [b"0" * 20, b"3" * 20]
        [error] = [part.error for part in read if part.error is not None]
        assert (error.offset, error.next_offset) == (0, len(wrapper))


# --- loss


def test_a_range_that_begins_before_the_log_or_ends_after_it(tmp_path, open_log_dir, caplog):
    write_log(tmp_path, GOOD[0], GOOD[1], start=100)
    with open_log_dir(tmp_path) as source:
        for start, end in ((40, 160), (100, 190), (0, 50)):
            wanted = Range(*CLICKS, start, end)
            with pytest.raises(OffsetOutOfRangeError, match="clicks.* the partition has 100 to 160"):
                list(source.read(wanted))
            caplog.clear()
            left = [value for value in (b"0" * 20, b"1" * 20) if end > 100]
            assert values(source.read(wanted, fail_on_data_loss=False)) == left
            assert f"to {end} are wanted, the partition has 100 to 160" in caplog.text


def test_archive_whose_next_segments_are_deleted(tmp_path, caplog):
    directory = write_log(tmp_path, *GOOD)

    def delete_after_first(parts):
        yield next(parts)
        for number in range(3):
            (directory / f"{number * SIZE:020d}.kafka").unlink(missing_ok=True)
        yield from parts

    with open_source(logs=f"0:{tmp_path}") as source:
        wanted = whole(source, CLICKS)
        left = values(delete_after_first(source.read(wanted, fail_on_data_loss=False)))
        assert left == [b"0" * 20, b"3" * 20, b"4" * 20, b"5" * 20]
        assert f"offsets {SIZE} to {6 * SIZE} are wanted, the partition has {3 * SIZE} to {6 * SIZE}" in caplog.text
        wanted = whole(source, CLICKS)
        parts = source.read(wanted)
        next(parts)
        (directory / f"{4 * SIZE:020d}.kafka").unlink()
        with pytest.raises(OffsetOutOfRangeError, match=f"clicks.*partition 0, offset {4 * SIZE}.*has been deleted"):
            next(parts)


# --- live brokers


@pytest.fixture
def broker(tmp_path):
    write_log(tmp_path, *GOOD)
    with Broker(tmp_path, broker_id=0, partitions=1, properties={"log.retention.size": 3 * SIZE}) as broker:
        yield broker


@pytest.fixture
def live(broker):
    with open_source(brokers=f"0:127.0.0.1:{broker.port}") as source:
        yield source


@pytest.mark.parametrize("fail_on_data_loss", [False, True])
def test_broker_whose_next_segments_are_deleted(broker, live, caplog, fail_on_data_loss):
    broker.faults.stall_next("fetch", 0.0)
    second = broker.faults.stall_next("fetch")
    parts = live.read(whole(live, CLICKS), fetch_bytes=SIZE, fail_on_data_loss=fail_on_data_loss)
    assert values([next(parts)]) == [b"0" * 20]
    assert second.wait_entered(30)
    assert broker.retain() == 3
    second.release()
    loss = f"offsets {SIZE} to {6 * SIZE} are wanted, the partition has {3 * SIZE} to {6 * SIZE}"
    if fail_on_data_loss:
        with pytest.raises(OffsetOutOfRangeError, match=f"clicks.*partition 0, offset {SIZE}: {loss}"):
            next(parts)
    else:
        assert values(parts) == [b"3" * 20, b"4" * 20, b"5" * 20]
        assert loss in caplog.text


@pytest.mark.parametrize("offsets", [[], [10**9], [-5]])
def test_broker_whose_offsets_make_no_sense(live, monkeypatch, offsets):
    true_answer = SimpleConsumer.get_offsets_before

    def answer(consumer, topic, partition, time, max_offsets=1):
        return offsets if time == EARLIEST else true_answer(consumer, topic, partition, time, max_offsets)

    monkeypatch.setattr(SimpleConsumer, "get_offsets_before", answer)
    with pytest.raises(ProtocolError, match="clicks 0-0: broker 127.0.0.1:.* says its log goes from"):
        live.bounds(CLICKS)


def test_next_fetch_is_on_its_way_before_a_part_is_handed_out(broker, live):
    broker.faults.stall_next("fetch", 0.0)
    second = broker.faults.stall_next("fetch")
    parts = live.read(whole(live, CLICKS), fetch_bytes=SIZE)
    assert values([next(parts)]) == [b"0" * 20]
    assert second.wait_entered(30)
    second.release()
    assert values(parts) == [bytes([48 + i]) * 20 for i in range(1, 6)]


def test_broker_that_closes_the_connection_in_between(broker, live):
    parts = live.read(whole(live, CLICKS), fetch_bytes=SIZE)
    first = next(parts)
    broker.close_connections()
    assert values([first, *parts]) == [bytes([48 + i]) * 20 for i in range(6)]


def test_broker_that_contradicts_itself(broker, live):
    broker.faults.fail_next("fetch", OffsetOutOfRangeError.code)
    with pytest.raises(ProtocolError, match=f"clicks 0-0: the log goes from 0 to {6 * SIZE}, but has nothing at 0"):
        list(live.read(whole(live, CLICKS)))


def test_reading_that_is_given_up_closes_its_connection(broker, live):
    parts = live.read(whole(live, CLICKS), fetch_bytes=SIZE)
    next(parts)
    parts.close()
    live.close()
    while broker.connections:  # the broker notices in its own time; the test's time-out is the limit
        time.sleep(0.01)


def test_static_list_knows_no_topics(live):
    with pytest.raises(ZooKeeperError, match="a static list of brokers knows no topics"):
        live.topics()


def test_unreachable_broker(broker, live):
    broker.stop()
    with pytest.raises(BrokerConnectionError, match=f"127.0.0.1:{broker.port}"):
        live.bounds(CLICKS)
    with pytest.raises(BrokerConnectionError, match=f"127.0.0.1:{broker.port}"):
        list(live.read(Range(*CLICKS, 0, SIZE)))


@pytest.mark.zookeeper
def test_source_from_zookeeper_and_tasks_without_it(tmp_path):
    write_log(tmp_path / "0", GOOD[0])
    write_log(tmp_path / "1", GOOD[1])
    with ZooKeeper() as zookeeper:
        at = {"zookeeper": zookeeper.address}
        with Broker(tmp_path / "0", 0, **at), Broker(tmp_path / "1", 1, **at):
            with open_source(zookeeper=zookeeper.address) as source:
                assert source.topics() == ["clicks"]
                partitions = source.partitions("clicks")
                assert list(map(str, partitions)) == ["clicks 0-0", "clicks 1-0"]
                with pytest.raises(UnknownTopicError, match="no broker of zookeeper:.* has topic 'views'"):
                    source.partitions("views")
                ranges = [whole(source, tp) for tp in partitions]
                tasks = [pickle.dumps((source.only(wanted.tp), wanted)) for wanted in ranges]
            zookeeper.kill()
            read = []
            for source, wanted in map(pickle.loads, tasks):
                with source:
                    read += source.read(wanted)
            assert [(part.broker, *part.payloads()) for part in read] == [(0, b"0" * 20), (1, b"1" * 20)]
