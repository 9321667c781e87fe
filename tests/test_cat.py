"""kafka07c cat: where it begins and ends, what it prints, following a live broker."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafka07c import build_message_set
from kafka07c.broker import Broker
from kafka07c.cli import main
from kafka07c.cli.arguments import open_source
from kafka07c.errors import OffsetOutOfRangeError
from kafka07c.ranges import Source
from kafka07c.simple import SyncProducer

CODECS = ("none", "gzip", "snappy")


def archive(root: Path, topic: str = "clicks", number: int = 0, label: str = "") -> list[tuple[int, int, bytes]]:
    """Three segments of entries with 1 to 5 messages each; (offset, index, payload) of each message."""
    folder = root / f"{topic}-{number}"
    folder.mkdir(parents=True)
    messages, end, count = [], 0, 0
    for segment in range(3):
        data = b""
        for entry in range(7):
            codec = CODECS[(segment + entry) % 3]
            payloads = [f"{label}{count + i}".encode() for i in range(1 if codec == "none" else entry % 5 + 1)]
            count += len(payloads)
            messages += [(end + len(data), i, payload) for i, payload in enumerate(payloads)]
            data += build_message_set(payloads, codec)
        (folder / f"{end:020d}.kafka").write_bytes(data)
        end += len(data)
    return messages


@pytest.fixture
def run(capsysbinary):
    """Runs ``kafka07c cat -t clicks``: (exit code, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, bytes, str]:
        code = main(["cat", "-t", "clicks", *map(str, arguments)])
        captured = capsysbinary.readouterr()
        return code, captured.out, captured.err.decode()

    return run


@pytest.fixture
def one(tmp_path):
    """One partition: (arguments, its messages)."""
    messages = archive(tmp_path / "b0")
    return ("--logs", f"0:{tmp_path / 'b0'}", "-e", "-q"), messages


def lines(payloads) -> bytes:
    return b"".join(payload + b"\n" for payload in payloads)


# --- where it begins and ends -------------------------------------------------------------------------------------


def test_all_of_it(run, one):
    arguments, messages = one
    assert run(*arguments) == (0, lines(payload for *_, payload in messages), "")


@pytest.mark.parametrize("fetched", [1 << 20, 30])
def test_the_last_n_for_every_n(run, one, monkeypatch, fetched):
    """Inside wrappers, across segments, more than there are; in one set per segment, and in many small ones."""
    from kafka07c.ranges import ArchiveSource

    read = ArchiveSource.read
    monkeypatch.setattr(ArchiveSource, "read", lambda self, wanted: read(self, wanted, fetch_bytes=fetched))
    arguments, messages = one
    payloads = [payload for *_, payload in messages]
    for count in range(1, len(payloads) + 3):
        assert run(*arguments, "-o", -count) == (0, lines(payloads[-count:]), ""), count


def test_the_last_n_are_counted_by_partition(run, tmp_path):
    for broker in (0, 1):
        archive(tmp_path / f"b{broker}", label=f"{broker}:")
    code, out, _ = run("--logs", f"0:{tmp_path / 'b0'},1:{tmp_path / 'b1'}", "-e", "-o-2", "-f", "%b-%p ")
    assert (code, out) == (0, b"0-0 0-0 1-0 1-0 ")


def test_beginning_end_and_an_offset(run, one):
    arguments, messages = one
    assert run(*arguments, "-o", "beginning")[1].startswith(b"0\n1\n")
    assert run(*arguments, "-o", "end") == (0, b"", "")
    offset, _, _ = messages[20]
    assert run(*arguments, "-o", offset)[1] == lines(payload for at, _, payload in messages if at >= offset)


def test_an_offset_outside_the_log(run, one):
    arguments, _ = one
    code, out, err = run(*arguments, "-o", 10**6)
    assert (code, out) == (5, b"")
    assert "partition 0, offset 1000000: the log has offsets 0 to " in err


@pytest.mark.parametrize("count", [1, 2, 9, 30])
def test_count(run, one, count):
    arguments, messages = one
    assert run(*arguments, "-c", count)[1] == lines(payload for *_, payload in messages[:count])


def test_count_ends_it_without_an_end(run, one):
    arguments, messages = one
    following = [argument for argument in arguments if argument != "-e"]
    assert run(*following, "-c", len(messages))[1] == lines(payload for *_, payload in messages)


def test_count_and_last_n(run, one):
    arguments, messages = one
    assert run(*arguments, "-o", -9, "-c", 4)[1] == lines(payload for *_, payload in messages[-9:-5])


@pytest.mark.parametrize(("wanted", "found"), [("0-1", b"0-1"), ("1-0", b"1-0"), ("1", b"0-1"), ("0", b"0-0,1-0")])
def test_partitions(run, tmp_path, wanted, found):
    for broker, number in ((0, 0), (0, 1), (1, 0)):
        archive(tmp_path / f"b{broker}", number=number)
    source = f"0:{tmp_path / 'b0'},1:{tmp_path / 'b1'}"
    code, out, _ = run("--logs", source, "-e", "-q", "-o-1", "-f", "%b-%p,", "-p", wanted)
    assert (code, out) == (0, found + b",")


def test_a_partition_that_is_not_there(run, one):
    arguments, _ = one
    code, out, err = run(*arguments, "-p", "0-7")
    assert (code, out) == (2, b"")
    assert "topic 'clicks' has no partition 0-7; there are 0-0" in err


def test_a_note_says_that_the_end_is_reached(run, one):
    arguments, _ = one
    _, _, err = run(*(argument for argument in arguments if argument != "-q"))
    assert err == "% Reached the end of all 1 partitions\n"


# --- what it prints -----------------------------------------------------------------------------------------------


def test_format_has_every_field(run, one):
    arguments, messages = one
    form = r"%t|%b|%p|%o|%i|%S|%s|%R|%k|%K|%T|%h|%%\t\x41\\\n"
    _, out, _ = run(*arguments, "-f", form)
    expected = [
        b"clicks|0|0|%d|%d|%d|%b|%b||-1|-1||%%\tA\\\n" % (offset, index, len(value), value, len(value).to_bytes(4))
        for offset, index, value in messages
    ]
    assert out == b"".join(expected)


def test_a_format_field_that_is_unknown(run, one):
    arguments, _ = one
    code, _, err = run(*arguments, "-f", "%s %z")
    assert code == 2 and "%z is no field" in err
    assert run(*arguments, "-f", "100%")[0] == 2


def test_payloads_are_not_touched(run, tmp_path):
    payload = bytes(range(256)) * 3
    folder = tmp_path / "b0" / "clicks-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.kafka").write_bytes(build_message_set([payload, b""]))
    source = ("--logs", f"0:{tmp_path / 'b0'}", "-e", "-q")
    assert run(*source, "-D", r"\x00\xff")[1] == payload + b"\x00\xff" + b"\x00\xff"
    assert run(*source, "-D", "")[1] == payload
    assert run(*source, "-f", "%s")[1] == payload


def test_json(run, one):
    arguments, messages = one
    _, out, _ = run(*arguments, "-J")
    parsed = [json.loads(line) for line in out.splitlines()]
    assert [(line["offset"], line["index"], line["payload"].encode()) for line in parsed] == messages
    assert parsed[0] == {
        "topic": "clicks", "broker": 0, "partition": 0, "offset": 0, "index": 0, "next_offset": messages[1][0],
        "key": None, "payload": "0",
    }  # fmt: skip


# --- trouble ------------------------------------------------------------------------------------------------------


def test_good_messages_come_before_the_error_and_the_other_partitions_too(run, tmp_path):
    for number in (0, 1):
        folder = tmp_path / "b0" / f"clicks-{number}"
        folder.mkdir(parents=True)
        data = bytearray(build_message_set([b"%d good" % number, b"%d bad?" % number, b"%d lost?" % number]))
        if number == 0:
            data[data.index(b"bad")] ^= 1
        (folder / f"{0:020d}.kafka").write_bytes(data)
    code, out, err = run("--logs", f"0:{tmp_path / 'b0'}", "-e", "-q")
    assert (code, out) == (4, b"0 good\n1 good\n1 bad?\n1 lost?\n")
    assert "partition 0, offset 16: corrupt entry" in err and len(err.splitlines()) == 1


def test_an_error_that_is_no_corruption_is_not_told_as_one(run, one, monkeypatch):
    """Retention was faster: the partition is not read to its end, and nothing in it is damaged."""
    arguments, messages = one

    def read_and_lose(source, wanted, **options):
        yield from itertools.islice(read(source, wanted, **options), 1)
        raise OffsetOutOfRangeError("its segment has been deleted", topic="clicks", offset=wanted.start)

    read = Source.read
    monkeypatch.setattr(Source, "read", read_and_lose)
    code, out, err = run(*arguments[:-1])
    assert code == 5 and lines(payload for _, _, payload in messages).startswith(out) and out
    assert "deleted" in err and len(err.splitlines()) == 1  # and no word of an end that was reached


def test_no_source_and_two_sources(run, monkeypatch, tmp_path):
    monkeypatch.delenv("KAFKA07C_ZOOKEEPER", raising=False)
    assert run("-e")[0] == 2
    assert run("-e", "-b", "0:h:1", "--logs", f"0:{tmp_path}")[0] == 2
    assert run("-e", "-b", "nonsense")[0] == 2


def test_the_environment_variable_names_a_zookeeper(monkeypatch):
    monkeypatch.setenv("KAFKA07C_ZOOKEEPER", "zk:2181/chroot")
    given = argparse.Namespace(zookeeper=None, brokers=None, logs=None, zk_access=None)
    assert open_source(given).name == "zookeeper:zk:2181/chroot"
    given.brokers = "0:h:1"
    assert open_source(given).name == "brokers:0:h:1"


@pytest.mark.parametrize("arguments", [["-o", "middle"], ["-o", "--3"], ["-c", "0"], ["-c", "x"], ["-J", "-f", "%s"]])
def test_arguments_that_make_no_sense(run, one, arguments):
    with pytest.raises(SystemExit) as ended:
        run(*one[0], *arguments)
    assert ended.value.code == 2


# --- as a process -------------------------------------------------------------------------------------------------


def start(*arguments: str, **kwargs) -> subprocess.Popen:
    command = [sys.executable, "-m", "kafka07c", "cat", "-t", "clicks", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)


def test_follows_a_broker_until_ctrl_c(tmp_path):
    with Broker(tmp_path, 0, properties={"log.flush.interval": 1}) as broker:
        with SyncProducer(broker.host, broker.port) as producer:
            producer.send("clicks", 0, [b"before"])
            process = start("-b", f"0:{broker.host}:{broker.port}")
            try:
                assert process.stdout.readline() == b"before\n"
                producer.send("clicks", 0, [b"later", b"and later"], "gzip")
                assert process.stdout.readline() == b"later\n"
                assert process.stdout.readline() == b"and later\n"
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=30)
                assert (process.returncode, out, err) == (0, b"", b"")
            finally:
                process.kill()
                process.wait()


def test_a_broker_may_be_named_as_kcat_does(tmp_path, run):
    with Broker(tmp_path, 0, properties={"log.flush.interval": 1}) as broker:
        with SyncProducer(broker.host, broker.port) as producer:
            producer.send("clicks", 0, [b"one"])
        assert run("-b", f"{broker.host}:{broker.port}", "-e", "-f", "%b-%p %s\n")[:2] == (0, b"0-0 one\n")


def test_a_broker_that_is_restarted_is_followed_on(tmp_path):
    broker = Broker(tmp_path, 0, properties={"log.flush.interval": 1}).start()
    process = None
    try:
        port = broker.port
        with SyncProducer(broker.host, port) as producer:
            producer.send("clicks", 0, [b"before"])
        process = start("-b", f"0:127.0.0.1:{port}")
        assert process.stdout.readline() == b"before\n"
        broker.stop()
        assert b"trying again" in process.stderr.readline()
        broker = Broker(tmp_path, 0, port, properties={"log.flush.interval": 1}).start()
        with SyncProducer(broker.host, port) as producer:
            producer.send("clicks", 0, [b"after"])
        assert process.stdout.readline() == b"after\n"
    finally:
        if process is not None:
            process.kill()
            process.communicate()
        broker.stop()


def test_a_reader_who_has_had_enough_ends_it_quietly(tmp_path):
    folder = tmp_path / "b0" / "clicks-0"
    folder.mkdir(parents=True)
    data = build_message_set([b"x" * 1000] * 3000)
    (folder / f"{0:020d}.kafka").write_bytes(data)
    process = start("--logs", f"0:{tmp_path / 'b0'}", "-e")
    assert process.stdout.read(5) == b"xxxxx"
    process.stdout.close()
    assert process.wait(timeout=30) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_behind_stdout_is_an_error(tmp_path):
    archive(tmp_path / "b0")
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "kafka07c", "cat", "-t", "clicks", "--logs", f"0:{tmp_path / 'b0'}", "-e"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=30)
    assert ended.returncode == 5
    assert b"kafka07c cat: " in ended.stderr and b"No space left" in ended.stderr
