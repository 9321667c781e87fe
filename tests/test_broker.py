"""The embedded broker as its users meet it: starting, stopping, serving many, forgetting nothing, breaking nobody."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_client import PATIENCE, Wire, log_end
from kafka07c import Codec, MessageSet, build_message_set, crc32
from kafka07c._compress import deflate
from kafka07c.broker import Broker
from kafka07c.config import MAX_NESTING
from kafka07c.errors import BrokerIdInUseError, LogError
from kafka07c.protocol import (
    EARLIEST,
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    ProduceData,
    decode_fetch_response,
    decode_multifetch_response,
)
from kafka07c.segments import Log
from kafka07c.testing import ZooKeeper, free_ports
from kafka07c.zookeeper import read_snapshot, session

AT_ONCE = {"log.flush.interval": 1}
MARK = ".kafka_cleanshutdown"


def produce(broker: Broker, topic: str, *payloads: bytes, partition: int = 0, codec: str = "none") -> None:
    """Send one set and wait until the broker has dealt with it."""
    with Wire(broker.port) as wire:
        wire.send(ProduceData(topic, partition, build_message_set(payloads, codec)).encode())
        wire.offsets("probe", 0)


def fetch(broker: Broker, topic: str, offset: int = 0, partition: int = 0, max_bytes: int = 1 << 20) -> bytes:
    with Wire(broker.port) as wire:
        error, data = decode_fetch_response(wire.ask(FetchRequest(topic, partition, offset, max_bytes))[4:])
    assert error == 0
    return bytes(data)


def values(data: bytes) -> list[bytes]:
    return [message.value for message in MessageSet(data)]


def eventually(found: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


# starting and stopping


def test_what_is_written_is_there_after_a_restart_on_the_same_port(tmp_path):
    broker = Broker(tmp_path / "new" / "logs", properties=AT_ONCE)
    with broker:
        port = broker.port
        produce(broker, "clicks", b"one", b"two")
    with broker:
        assert broker.port == port
        assert broker.topics == {"clicks": 1}
        produce(broker, "clicks", b"three")
        assert values(fetch(broker, "clicks")) == [b"one", b"two", b"three"]


def test_a_stop_flushes(tmp_path):
    with Broker(tmp_path) as broker:
        produce(broker, "clicks", b"one")
        assert log_end(broker.port, "clicks", 0) == 0
    with Broker(tmp_path) as broker:
        assert values(fetch(broker, "clicks")) == [b"one"]


def test_the_mark_of_a_clean_stop_is_there_exactly_while_stopped(tmp_path):
    with Broker(tmp_path):
        assert not (tmp_path / MARK).exists()
    assert (tmp_path / MARK).exists()
    broker = Broker(tmp_path).start()
    broker.stop(clean=False)
    assert not (tmp_path / MARK).exists()


def test_a_torn_tail_is_cut_after_a_crash_and_kept_beside(tmp_path, caplog):
    broker = Broker(tmp_path, properties=AT_ONCE).start()
    produce(broker, "clicks", b"one")
    broker.stop(clean=False)
    segment = tmp_path / "clicks-0" / f"{0:020d}.kafka"
    good = segment.read_bytes()
    segment.write_bytes(good + b"\0\0\0\x20torn")
    with broker:
        (recovery,) = broker.recovered
        assert (recovery.path, recovery.kept_bytes, recovery.cut_bytes) == (segment, len(good), 8)
        assert recovery.copy.read_bytes() == b"\0\0\0\x20torn"
        assert "recovery cut 8 bytes" in caplog.text
        produce(broker, "clicks", b"two")
        assert values(fetch(broker, "clicks")) == [b"one", b"two"]


def test_a_start_that_fails_leaves_the_mark_and_no_lock(tmp_path):
    with Broker(tmp_path):
        pass
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(OSError, match="in use"):
            Broker(tmp_path, port=taken.getsockname()[1]).start()
    assert (tmp_path / MARK).exists()
    with Broker(tmp_path):
        pass


def test_logs_with_a_gap_are_refused_and_left_as_they_are(tmp_path):
    log = tmp_path / "clicks-0"
    log.mkdir()
    (log / f"{0:020d}.kafka").write_bytes(build_message_set([b"one"]))
    (log / f"{100:020d}.kafka").write_bytes(build_message_set([b"two"]))
    (tmp_path / MARK).touch()
    with pytest.raises(LogError, match="gap"):
        Broker(tmp_path).start()
    assert (tmp_path / MARK).exists()
    assert sorted(p.name for p in log.iterdir()) == [f"{0:020d}.kafka", f"{100:020d}.kafka"]


def test_a_stop_that_fails_leaves_no_mark_and_nothing_running(tmp_path, monkeypatch):
    close, threads = Log.close, threading.active_count()

    def close_and_fail(log: Log) -> None:
        close(log)
        raise LogError("the disk says no")

    broker = Broker(tmp_path).start()
    produce(broker, "clicks", b"one")
    monkeypatch.setattr(Log, "close", close_and_fail)
    with pytest.raises(LogError, match="the disk says no"):
        broker.stop()
    monkeypatch.undo()
    assert not (tmp_path / MARK).exists()
    assert threading.active_count() == threads
    with broker:
        assert values(fetch(broker, "clicks")) == [b"one"]


def test_one_broker_for_a_log_directory(tmp_path):
    with Broker(tmp_path):
        with pytest.raises(LogError, match="another broker uses"):
            Broker(tmp_path).start()
    with Broker(tmp_path):
        pass


def test_a_file_is_no_log_directory(tmp_path):
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(LogError, match="cannot use the log directory"):
        Broker(path).start()


def test_strange_neighbours_in_the_log_directory_are_left_alone(tmp_path, caplog):
    (tmp_path / "notes.txt").write_text("mine")
    for name in ("lost+found", "clicks-00", "clicks-", "-1"):
        (tmp_path / name).mkdir()
    with Broker(tmp_path) as broker:
        assert broker.topics == {}
    for name in ("notes.txt", "lost+found", "clicks-00", "clicks-", "-1"):
        assert f"{name} is no log" in caplog.text
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_log_directory_named_like_a_log(tmp_path):
    with Broker(tmp_path / "broker-0", properties=AT_ONCE) as broker:
        produce(broker, "clicks", b"one")
    assert (tmp_path / "broker-0" / "clicks-0").is_dir()


def test_no_thread_and_no_descriptor_outlives_a_stop(tmp_path):
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    threads, open_before = threading.active_count(), descriptors()
    with Broker(tmp_path) as broker, Wire(broker.port) as idle, Wire(broker.port) as half:
        half.send(b"\0\0")
        produce(broker, "clicks", b"one")
        eventually(lambda: broker.connections == 2)
        broker.stop()
        assert idle.read_to_end() == half.read_to_end() == b""
        broker.stop()
    assert (threading.active_count(), descriptors()) == (threads, open_before)


def test_a_broker_starts_once(tmp_path):
    with Broker(tmp_path) as broker, pytest.raises(RuntimeError, match="running already"):
        broker.start()
    with pytest.raises(RuntimeError, match="not running"):
        broker.flush()


def test_settings_that_make_no_sense(tmp_path):
    with pytest.raises(ValueError, match="log.dir"):
        Broker()
    with pytest.raises(ValueError, match="num.partitions"):
        Broker(tmp_path, partitions=0)
    with pytest.raises(ValueError, match="no ZooKeeper address"):
        Broker(tmp_path, zookeeper="::")


# many at a time


def test_a_slow_reader_holds_up_nobody_and_no_stop(tmp_path):
    with Broker(tmp_path) as broker:
        for _ in range(20):
            produce(broker, "large", os.urandom(900_000))
        broker.flush()
        with Wire(broker.port) as slow:
            slow.send(FetchRequest("large", 0, 0, 1 << 30).encode() * 3)
            slow.read(4)
            for number in range(50):
                produce(broker, "clicks", b"%d" % number)
            broker.flush()
            assert len(values(fetch(broker, "clicks"))) == 50
            broker.stop()  # with the answer still half on its way


def test_writers_and_readers_of_one_log_at_once(tmp_path):
    sent_each, writers = 100, 4
    with Broker(tmp_path, properties={"log.flush.interval": 7, "log.file.size": 1000}) as broker:

        def write(writer: int) -> None:
            with Wire(broker.port) as wire:
                for number in range(sent_each):
                    data = build_message_set([b"%d-%d" % (writer, number)])
                    wire.send(ProduceData("busy", 0, data).encode())
                wire.offsets("probe", 0)

        def read(found: list[bytes]) -> None:
            with Wire(broker.port) as wire:
                offset = 0
                while len(found) < sent_each * writers:
                    data = decode_fetch_response(wire.ask(FetchRequest("busy", 0, offset, 5000))[4:])[1]
                    messages = MessageSet(data, offset)
                    found += [message.value for message in messages]
                    offset = messages.next_offset

        seen: list[list[bytes]] = [[], []]
        readers = [threading.Thread(target=read, args=(found,)) for found in seen]
        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
        for thread in readers + threads:
            thread.start()
        for thread in threads:
            thread.join()
        broker.flush()
        for thread in readers:
            thread.join(PATIENCE)
            assert not thread.is_alive()
    assert seen[0] == seen[1]
    for writer in range(writers):
        # one writer's sets keep their order, whatever comes between them
        found = [value for value in seen[0] if value.startswith(b"%d-" % writer)]
        assert found == [b"%d-%d" % (writer, number) for number in range(sent_each)]
    assert len(list((tmp_path / "busy-0").glob("*.kafka"))) > 1


def test_pipelined_requests_are_answered_in_order(tmp_path):
    with Broker(tmp_path, properties=AT_ONCE) as broker, Wire(broker.port) as wire:
        requests = b""
        for number in range(50):
            payload = b"%02d" % number
            requests += ProduceData("clicks", 0, build_message_set([payload])).encode()
            requests += FetchRequest("clicks", 0, number * 12, 100).encode()
        wire.send(requests)
        for number in range(50):
            data = decode_fetch_response(wire.read_response()[4:])[1]
            assert values(bytes(data)) == [b"%02d" % number]


def test_a_request_byte_by_byte(tmp_path):
    with Broker(tmp_path, properties=AT_ONCE) as broker, Wire(broker.port) as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in ProduceData("clicks", 0, build_message_set([b"one"])).encode():
            wire.send(bytes([byte]))
        assert wire.offsets("clicks", 0) == [13, 0]


def test_connections_above_the_limit_are_closed(tmp_path):
    with Broker(tmp_path, max_connections=2) as broker:
        with Wire(broker.port) as first, Wire(broker.port) as second:
            assert first.offsets("probe", 0) == second.offsets("probe", 0) == [0]
            with Wire(broker.port) as third:
                assert third.read_to_end() == b""
            assert first.offsets("probe", 0) == [0]
        eventually(lambda: broker.connections == 0)
        with Wire(broker.port) as again:
            assert again.offsets("probe", 0) == [0]


def test_connections_can_be_closed_by_the_test(tmp_path):
    with Broker(tmp_path) as broker, Wire(broker.port) as wire:
        assert wire.offsets("probe", 0) == [0]
        broker.close_connections()
        assert wire.read_to_end() == b""
        with Wire(broker.port) as again:
            assert again.offsets("probe", 0) == [0]


# what cannot be trusted, and what fails


def test_no_memory_on_the_word_of_a_size_field(tmp_path):
    with Broker(tmp_path) as broker:
        tracemalloc.start()
        try:
            for _ in range(10):
                with Wire(broker.port) as wire:
                    wire.send((100_000_000).to_bytes(4) + bytes(100))
                    wire.socket.shutdown(socket.SHUT_WR)
                    # its end of the connection shows that it has read ours
                    assert wire.read_to_end() == b""
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 10_000_000


def test_a_request_above_the_limit_is_not_read(tmp_path):
    with Broker(tmp_path, properties={"max.socket.request.bytes": 1000}) as broker:
        with Wire(broker.port) as wire:
            wire.send((1001).to_bytes(4))
            assert wire.read_to_end() == b""
        with Wire(broker.port) as wire:
            fetch_request = FetchRequest("clicks", 0, 0, 10).encode()[4:]
            wire.send((1000).to_bytes(4) + fetch_request + bytes(1000 - len(fetch_request)))
            assert wire.read_response() == b"\0\0\0\2\0\0"


def test_a_failure_in_a_handler_ends_that_connection_only(tmp_path, caplog):
    with Broker(tmp_path, properties=AT_ONCE) as broker:
        produce(broker, "clicks", b"one")
        # somebody puts a file where the log of the next topic has to be
        (tmp_path / "views-0").touch()
        with Wire(broker.port) as wire, Wire(broker.port) as other:
            wire.send_to_closing(ProduceData("views", 0, build_message_set([b"lost"])).encode())
            assert wire.read_to_end() == b""
            assert other.offsets("clicks", 0) == [13, 0]
        assert "views-0" in caplog.text


def test_a_segment_that_vanishes_ends_the_fetch_only(tmp_path):
    with Broker(tmp_path, properties={**AT_ONCE, "log.file.size": 10}) as broker:
        produce(broker, "clicks", b"one")
        produce(broker, "clicks", b"two")
        (tmp_path / "clicks-0" / f"{0:020d}.kafka").unlink()
        with Wire(broker.port) as wire:
            assert decode_fetch_response(wire.ask(FetchRequest("clicks", 0, 0, 100))[4:])[0] == 1
            assert values(bytes(decode_fetch_response(wire.ask(FetchRequest("clicks", 0, 13, 100))[4:])[1])) == [b"two"]


def test_a_log_that_cannot_be_flushed_does_not_keep_the_others_from_it(tmp_path, monkeypatch):
    flush = Log.flush

    def fail_for_the_first(log: Log) -> bool:
        if log.topic == "broken":
            raise LogError("the disk says no")
        return flush(log)

    with Broker(tmp_path, clock=lambda: 0.0) as broker:
        for topic in ("broken", "clicks"):
            produce(broker, topic, b"one")
        # no disk fails to order
        monkeypatch.setattr(Log, "flush", fail_for_the_first)
        with pytest.raises(LogError, match="the disk says no"):
            broker.flush()
        assert log_end(broker.port, "broken", 0) == 0
        assert log_end(broker.port, "clicks", 0) == 13


def test_a_multifetch_of_thousands_holds_few_descriptors(tmp_path):
    with Broker(tmp_path, properties=AT_ONCE) as broker:
        produce(broker, "clicks", b"one")
        count = 20_000
        with Wire(broker.port) as wire:
            response = wire.ask(MultiFetchRequest((FetchRequest("clicks", 0, 0, 100),) * count))
        outer, parts = decode_multifetch_response(response[4:], count)
        assert outer == 0
        assert {(error, bytes(data)) for error, data in parts} == {(0, build_message_set([b"one"]))}


@pytest.mark.parametrize("max_bytes", [-1, -2, -(2**31)])
def test_a_negative_maximum_in_a_multifetch_breaks_off_there(tmp_path, max_bytes):
    with Broker(tmp_path, properties=AT_ONCE) as broker:
        produce(broker, "clicks", b"one")
        good, bad = FetchRequest("clicks", 0, 0, 13), FetchRequest("clicks", 0, 0, max_bytes)
        at_end = FetchRequest("clicks", 0, 13, max_bytes)
        with Wire(broker.port) as wire:
            wire.send(MultiFetchRequest((at_end, good, bad, good)).encode())
            answer = wire.read_to_end()
        # kafka.server.MessageSetSend: the maximum counts as the size of the bad part, in its header and in the sum
        total = 2 + 4 * 6 + 13 + max_bytes + 13
        empty, one = (2).to_bytes(4) + b"\0\0", (15).to_bytes(4) + b"\0\0" + build_message_set([b"one"])
        lie = (max_bytes + 2).to_bytes(4, signed=True) + b"\0\0"
        assert answer == total.to_bytes(4, signed=True) + b"\0\0" + empty + one + lie


def nested(depth: int) -> bytes:
    """One message in so many gzip wrappers, each inside the next."""
    data = build_message_set([b"x"])
    for _ in range(depth):
        payload = bytes(deflate(Codec.GZIP, data))
        data = struct.pack(">ibbI", 6 + len(payload), 1, 1, crc32(payload)) + payload
    return data


@pytest.mark.parametrize(("depth", "taken"), [(10, True), (MAX_NESTING + 1, False)])
def test_a_bomb_of_wrappers_closes_the_connection(tmp_path, depth, taken):
    data = nested(depth)
    with Broker(tmp_path, properties=AT_ONCE) as broker:
        with Wire(broker.port) as wire:
            wire.send(ProduceData("clicks", 0, data).encode())
            if taken:
                assert wire.offsets("clicks", 0) == [len(data), 0]
            else:
                assert wire.read_to_end() == b""
        assert log_end(broker.port, "clicks", 0) == (len(data) if taken else 0)


# what the settings do


def test_flush_by_count_counts_what_is_in_wrappers(tmp_path):
    with Broker(tmp_path, properties={"log.flush.interval": 5}, clock=lambda: 0.0) as broker:
        produce(broker, "clicks", b"1", b"2", codec="gzip")
        produce(broker, "clicks", b"3", b"4")
        assert log_end(broker.port, "clicks", 0) == 0
        produce(broker, "clicks", b"5")
        assert values(fetch(broker, "clicks")) == [b"1", b"2", b"3", b"4", b"5"]


def test_flush_by_time(tmp_path):
    properties = {
        "log.flush.interval": 1000,
        "log.default.flush.scheduler.interval.ms": 5,
        "log.default.flush.interval.ms": 10,
        "topic.flush.intervals.ms": "late:100000000",
    }
    with Broker(tmp_path, properties=properties) as broker:
        produce(broker, "late", b"one")
        produce(broker, "clicks", b"one")
        eventually(lambda: log_end(broker.port, "clicks", 0) == 13)
        assert log_end(broker.port, "late", 0) == 0


def test_a_flush_that_fails_is_tried_again(tmp_path, monkeypatch, caplog):
    flush_if_older, failures = Log.flush_if_older, iter(range(2))

    def fail_twice(log: Log, max_age_ms: int) -> bool:
        if next(failures, None) is not None:
            raise LogError("the disk says no")
        return flush_if_older(log, max_age_ms)

    monkeypatch.setattr(Log, "flush_if_older", fail_twice)
    with Broker(tmp_path, properties={"log.default.flush.scheduler.interval.ms": 5}) as broker:
        produce(broker, "clicks", b"one")
        eventually(lambda: log_end(broker.port, "clicks", 0) == 13)
    assert "flush_due failed" in caplog.text


def test_a_segment_rolls_by_age(tmp_path):
    now = [1000.0]
    properties = {**AT_ONCE, "log.roll.hours": 2, "topic.log.roll.hours": "slow:3"}
    with Broker(tmp_path, properties=properties, clock=lambda: now[0]) as broker:
        for hours in (0, 2.5):
            now[0] += hours * 3600
            produce(broker, "clicks", b"one")
            produce(broker, "slow", b"one")
        with Wire(broker.port) as wire:
            assert wire.offsets("clicks", 0) == [26, 13, 0]
            assert wire.offsets("slow", 0) == [26, 0]


def age(directory: Path, hours: float) -> None:
    for path in directory.glob("*.kafka"):
        then = time.time() - hours * 3600
        os.utime(path, (then, then))


@pytest.mark.parametrize(
    ("properties", "deleted", "starts"),
    [
        ({}, 0, {"clicks": 0, "views": 0}),
        ({"log.retention.hours": 2}, 4, {"clicks": 26, "views": 26}),
        ({"topic.log.retention.hours": "views:2"}, 2, {"clicks": 0, "views": 26}),
        ({"log.retention.size": 13}, 2, {"clicks": 13, "views": 13}),
        ({"log.retention.size": -1, "topic.log.retention.size": "clicks:13"}, 1, {"clicks": 13, "views": 0}),
        ({"log.retention.hours": 4}, 0, {"clicks": 0, "views": 0}),
    ],
)
def test_retention_is_off_until_it_is_asked_for(tmp_path, properties, deleted, starts):
    with Broker(tmp_path, properties={**AT_ONCE, "log.file.size": 5, **properties}) as broker:
        for topic in ("clicks", "views"):
            produce(broker, topic, b"one")
            produce(broker, topic, b"two")
            age(tmp_path / f"{topic}-0", 3)
        assert broker.retain() == deleted
        for topic, start in starts.items():
            with Wire(broker.port) as wire:
                assert wire.offsets(topic, 0, EARLIEST) == [start]
                # the end stays where it was, whatever is gone
                assert wire.offsets(topic, 0)[0] == 26


def test_partitions_by_topic(tmp_path):
    properties = {**AT_ONCE, "topic.partition.count.map": "clicks:3"}
    with Broker(tmp_path, partitions=2, properties=properties) as broker:
        produce(broker, "clicks", b"one", partition=2)
        produce(broker, "views", b"one", partition=1)
        assert broker.topics == {"clicks": 3, "views": 2}
        with Wire(broker.port) as wire:
            assert decode_fetch_response(wire.ask(FetchRequest("clicks", 3, 0, 10))[4:])[0] == 3
            assert decode_fetch_response(wire.ask(FetchRequest("views", 2, 0, 10))[4:])[0] == 3


def test_random_partitions_are_all_used(tmp_path):
    with Broker(tmp_path, partitions=3, properties=AT_ONCE) as broker, Wire(broker.port) as wire:
        one = ProduceData("clicks", -1, build_message_set([b"one"]))
        wire.send(MultiProduceRequest((one,) * 200).encode())
        ends = [wire.offsets("clicks", partition, max_offsets=1)[0] for partition in range(3)]
    assert sum(ends) == 200 * 13
    assert all(ends)


def test_a_log_that_the_settings_leave_out_is_said_so(tmp_path, caplog):
    with Broker(tmp_path, partitions=2, properties=AT_ONCE) as broker:
        produce(broker, "clicks", b"one", partition=1)
    with Broker(tmp_path):
        assert "clicks-1 is not served" in caplog.text


def test_the_longest_topic_name(tmp_path):
    with Broker(tmp_path, properties={"max.topic.name.length": 5}) as broker:
        produce(broker, "views", b"one")
        with Wire(broker.port) as wire:
            wire.send_to_closing(ProduceData("clicks", 0, build_message_set([b"one"])).encode())
            assert wire.read_to_end() == b""
        assert broker.topics == {"views": 1}


def test_properties_without_effect_are_named(tmp_path, caplog):
    caplog.set_level("INFO", "kafka07c.broker")
    with Broker(tmp_path, properties={"num.threads": 8}):
        assert "have no effect here: num.threads" in caplog.text


def test_it_binds_to_localhost_unless_told_otherwise(tmp_path):
    with Broker(tmp_path) as broker:
        assert broker.host == "127.0.0.1"
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", broker.port), 5).close()


# ZooKeeper


@pytest.fixture(scope="module")
def zookeeper():
    with ZooKeeper(tick_ms=100) as server:
        yield server


@pytest.mark.zookeeper
def test_registration(tmp_path, zookeeper):
    hosts = f"{zookeeper.address}/registration"
    properties = {**AT_ONCE, "topic.partition.count.map": "clicks:3", "hostname": "localhost"}

    def snapshot():
        with session(hosts) as client:
            return read_snapshot(client)

    broker = Broker(tmp_path, broker_id=7, partitions=2, zookeeper=hosts, properties=properties)
    with broker:
        assert snapshot().brokers == {7: ("localhost", broker.port)}
        produce(broker, "clicks", b"one", partition=2)
        produce(broker, "views", b"one")
        eventually(lambda: snapshot().topics == {"clicks": {7: 3}, "views": {7: 2}})
    assert snapshot().brokers == {}
    with broker:
        # what lies in the log directory is registered with the broker itself
        assert snapshot().topics == {"clicks": {7: 3}, "views": {7: 2}}


@pytest.mark.zookeeper
def test_the_second_broker_of_an_id_does_not_start_and_changes_nothing(tmp_path, zookeeper):
    hosts = f"{zookeeper.address}/twice"
    with Broker(tmp_path / "2"):
        pass
    with Broker(tmp_path / "1", zookeeper=hosts) as first:
        with pytest.raises(BrokerIdInUseError, match=f"127.0.0.1:{first.port}"):
            Broker(tmp_path / "2", zookeeper=hosts).start()
        assert (tmp_path / "2" / MARK).exists()
        with Broker(tmp_path / "2", zookeeper=hosts, properties={"enable.zookeeper": "false"}):
            pass


# as a process

_MAIN = [sys.executable, "-c", "import sys; from kafka07c.cli import main; sys.exit(main())", "broker"]


def run_process(*args: object) -> subprocess.Popen[str]:
    command = [*_MAIN, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_process(tmp_path, number):
    config = tmp_path / "server.properties"
    config.write_text(f"log.dir={tmp_path}/logs\nport=0\nnum.partitions=2\nlog.flush.interval=1000\nnum.threads=3\n")
    process = run_process("--config", config, "--property", "log.flush.interval=1", "--partitions", 3)
    try:
        host, port = process.stdout.readline().strip().split(":")
        assert host == "127.0.0.1"
        with Wire(int(port)) as wire:
            wire.send(ProduceData("clicks", 2, build_message_set([b"one"])).encode())
            assert wire.offsets("clicks", 2) == [13, 0]
            process.send_signal(number)
            out, err = process.communicate(timeout=PATIENCE)
            assert wire.read_to_end() == b""
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out) == (0, "")
    assert "development, tests and demos" in err
    assert "no effect here: num.threads" in err
    assert (tmp_path / "logs" / MARK).exists()


@pytest.mark.zookeeper
def test_a_broker_process_that_is_killed_comes_back_at_its_address(tmp_path, zookeeper):
    (port,) = free_ports(1)
    hosts = f"{zookeeper.address}/killed"
    args = ["--log-dir", tmp_path, "--port", port, "--zookeeper", hosts, "--property", "log.flush.interval=1"]
    args += ["--property", "zk.sessiontimeout.ms=1500"]
    killed = run_process(*args)
    try:
        assert killed.stdout.readline() == f"127.0.0.1:{port}\n"
        with Wire(port) as wire:
            wire.send(ProduceData("clicks", 0, build_message_set([b"one"])).encode())
            assert wire.offsets("clicks", 0) == [13, 0]
    finally:
        killed.kill()
        killed.communicate()
    assert not (tmp_path / MARK).exists()
    back = run_process(*args)
    try:
        assert back.stdout.readline() == f"127.0.0.1:{port}\n"
        assert log_end(port, "clicks", 0) == 13
        with session(hosts) as client:
            assert read_snapshot(client).brokers == {0: ("127.0.0.1", port)}
    finally:
        back.terminate()
        back.communicate(timeout=PATIENCE)
    assert (tmp_path / MARK).exists()


@pytest.mark.zookeeper
def test_a_broker_process_is_told_to_stop_while_it_waits_for_a_stale_node(tmp_path, zookeeper):
    (port,) = free_ports(1)
    with Broker(tmp_path):
        pass
    with session(zookeeper.address) as client:
        # what a broker at this address would have left behind, in a session that does not end
        client.create("/brokers/ids/9", f"127.0.0.1-1:127.0.0.1:{port}".encode(), ephemeral=True, makepath=True)
        process = run_process("--log-dir", tmp_path, "--id", 9, "--port", port, "--zookeeper", zookeeper.address)
        try:
            while "still held by session" not in (line := process.stderr.readline()):
                assert line, "it did not wait"
            process.terminate()
            assert process.communicate(timeout=PATIENCE)[0] == ""
            assert process.returncode == 0
        finally:
            process.kill()
            process.communicate()
    assert (tmp_path / MARK).exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "needs a log directory"),
        (["--log-dir", "{tmp}", "--property", "log.flush.intervall=1"], "did you mean 'log.flush.interval'"),
        (["--log-dir", "{tmp}", "--property", "port"], "NAME=VALUE"),
        (["--log-dir", "{tmp}", "--partitions", "0"], "num.partitions"),
        (["--config", "{tmp}/none.properties"], "cannot read"),
    ],
)
def test_a_command_line_that_cannot_be(tmp_path, args, message):
    process = run_process(*(arg.format(tmp=tmp_path) for arg in args))
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, "")
    assert re.fullmatch(f"kafka07c broker: .*{re.escape(message)}.*\n", err)
