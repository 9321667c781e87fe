"""Log directories of a real 0.7.2 broker under our classes and our broker, and ours under the real one."""

from __future__ import annotations

import re
import shutil
import signal

import pytest
from interop.scala07 import ConsoleConsumer, wait_until
from interop.test_wire import CODECS, lines, read_all, wait_for_messages

from kafka07c import MessageSet
from kafka07c.broker import Broker
from kafka07c.segments import Log
from kafka07c.simple import SimpleConsumer, SyncProducer

LARGE_SEGMENTS = {"log.flush.interval": 1}
SMALL_SEGMENTS = {"log.flush.interval": 1, "log.file.size": 20_000}


def fill(broker):
    """Plain and compressed messages in the topic ``t``; what was sent, in order."""
    sent = []
    with SyncProducer(broker.host, broker.port) as producer:
        for number in range(12):
            payloads = lines(number, 40)
            producer.send("t", 0, payloads, CODECS[number % 3])
            sent += payloads
    with SimpleConsumer(broker.host, broker.port) as consumer:
        wait_for_messages(consumer, "t", len(sent))
    return sent


def read(broker):
    with SimpleConsumer(broker.host, broker.port) as consumer:
        return describe(read_all(consumer, "t"))


def describe(messages):
    return [(m.offset, m.index, m.next_offset, m.codec, m.value) for m in messages]


def scan(log_dir):
    with Log(log_dir / "t-0") as log:
        report = log.verify()
        assert report.ok, report
        return describe(message for messages in log.scan() for message in messages)


def test_the_log_class_reads_what_the_broker_wrote(real_broker, jvm):
    with real_broker(log_file_size=20_000) as broker:
        sent = fill(broker)
        fetched = read(broker)
        scanned = scan(broker.log_dir)
    assert [value for *_, value in scanned] == sent
    assert scanned == fetched
    with Log(broker.log_dir / "t-0") as log:
        assert (log.topic, log.partition, len(log.segments) > 3) == ("t", 0, True)
        for segment in log.segments:
            assert_dump_agrees(jvm, segment)


def assert_dump_agrees(jvm, segment):
    """0.7.2's own dump of a segment lists the same entries."""
    dump = jvm.run("kafka.tools.DumpLogSegments", "-noprint", segment.path)
    line = r"^offset: (\d+) isvalid: (\w+) payloadsize: (\d+) magic: (\d) compresscodec: (\w+)"
    dumped = re.findall(line, dump, re.MULTILINE)
    entries = MessageSet(segment.path.read_bytes(), segment.start_offset, shallow=True, final=True)
    codecs = {"NoCompressionCodec": 0, "GZIPCompressionCodec": 1, "SnappyCompressionCodec": 2}
    assert [
        (int(offset), valid, int(size), int(magic), codecs[codec]) for offset, valid, size, magic, codec in dumped
    ] == [(entry.offset, "true", len(entry.payload), entry.magic, entry.codec) for entry in entries]
    assert f"tail of the log is at offset: {segment.end_offset}" in dump


@pytest.mark.parametrize("properties", [LARGE_SEGMENTS, SMALL_SEGMENTS], ids=["one-segment", "many-segments"])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
def test_the_real_broker_goes_on_with_our_logs(real_broker, zookeeper, jvm, tmp_path, properties, clean):
    folder = tmp_path / "ours"
    broker = Broker(folder, partitions=1, properties=properties)
    with broker:
        sent = fill(broker)
        ours = read(broker)
        broker.stop(clean=clean)
    assert [value for *_, value in ours] == sent
    before = {path.name: path.read_bytes() for path in folder.glob("t-0/*.kafka")}
    with real_broker(zookeeper, folder) as real:
        assert {path.name: path.read_bytes() for path in folder.glob("t-0/*.kafka")} == before
        assert read(real) == ours
        with SyncProducer(real.host, real.port) as producer:
            producer.send("t", 0, [b"the end"])
        with ConsoleConsumer(jvm, zookeeper, "t") as console:
            assert console.until(b"the end") == b"".join(payload + b"\n" for payload in [*sent, b"the end"])
        real.stop()
    assert [value for *_, value in scan(folder)] == [*sent, b"the end"]


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_our_broker_goes_on_with_the_real_one_s_logs(real_broker, tmp_path, with_signal):
    with real_broker(log_file_size=20_000) as real:
        sent = fill(real)
        theirs = read(real)
        real.stop(with_signal)
    folder = tmp_path / "copy"
    shutil.copytree(real.log_dir, folder)
    with Broker(folder, partitions=1, properties=SMALL_SEGMENTS) as ours:
        assert ours.recovered == []
        assert read(ours) == theirs
        with SyncProducer(ours.host, ours.port) as producer:
            producer.send("t", 0, [b"the end"], "gzip")
        with SimpleConsumer(ours.host, ours.port) as consumer:
            wait_for_messages(consumer, "t", len(sent) + 1)
    # And back again.
    with real_broker(log_dir=folder) as real:
        assert [value for *_, value in read(real)] == [*sent, b"the end"]


def test_both_recoveries_cut_a_torn_log_at_the_same_place(real_broker, tmp_path):
    with real_broker() as real:
        fill(real)
        real.stop(signal.SIGKILL)
    (segment,) = real.log_dir.glob("t-0/*.kafka")
    whole = segment.read_bytes()
    for number, torn in enumerate([whole[:-1], whole + bytes(10), whole[:-200] + b"\xff" + whole[-199:]]):
        folders = [tmp_path / f"{name}-torn-{number}" for name in ("real", "our")]
        for folder in folders:
            shutil.copytree(real.log_dir, folder)
            (folder / "t-0" / segment.name).write_bytes(torn)
        with real_broker(log_dir=folders[0]) as real_again, Broker(folders[1], partitions=1) as ours:
            kept = [folder.joinpath("t-0", segment.name).read_bytes() for folder in folders]
            assert kept[0] == kept[1] == torn[: len(kept[0])]
            assert len(ours.recovered) == 1
            assert read(real_again) == read(ours)


def test_a_log_is_read_while_the_broker_writes(real_broker):
    with real_broker(log_file_size=20_000) as broker, SyncProducer(broker.host, broker.port) as producer:
        producer.send("t", 0, [b"first"])
        folder = wait_until(lambda: next(broker.log_dir.glob("t-0/*.kafka"), None), "the log").parent
        with Log(folder) as log:
            sent, found, offset = [b"first"], [], 0
            for number in range(200):
                payloads = lines(number, 3)[3:]
                producer.send("t", 0, payloads, CODECS[number % 3])
                sent += payloads
                for messages in log.scan(offset):
                    found += messages.payloads()
                    offset = messages.next_offset

            def all_found():
                nonlocal offset
                for messages in log.scan(offset):
                    found.extend(messages.payloads())
                    offset = messages.next_offset
                return len(found) >= len(sent)

            wait_until(all_found, "the rest")
    assert found == sent
