"""kafka07c produce: what it reads, where it goes, what it says in the end; against real brokers, as a process."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafka07c import Codec, SimpleConsumer
from kafka07c.broker import Broker
from kafka07c.cli import main, produce
from kafka07c.cli.exit_codes import UsageError
from kafka07c.cluster import Cluster
from kafka07c.producer import default_partition
from kafka07c.testing import ZooKeeper, free_ports


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path / "logs", 0, partitions=2, properties={"log.flush.interval": 1}) as broker:
        yield broker


def start(broker: Broker | None, *arguments: object, **options) -> subprocess.Popen:
    where = [] if broker is None else ["-b", f"{broker.host}:{broker.port}"]
    command = [sys.executable, "-m", "kafka07c", "produce", *where, *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **{**pipes, **options})


def run(broker: Broker | None, *arguments: object, given: bytes = b"") -> tuple[int, bytes, str]:
    """Exit code, stdout and stderr of ``kafka07c produce -b … ARGUMENTS`` that reads ``given``."""
    process = start(broker, *arguments)
    out, err = process.communicate(given, timeout=60)
    return process.returncode, out, err.decode()


def stored(broker: Broker, topic: str, partition: int):
    """The messages of a partition."""
    with SimpleConsumer(broker.host, broker.port) as consumer:
        messages, offset = [], 0
        while len(found := consumer.fetch(topic, partition, offset)):
            messages += found
            offset = found.next_offset
        return messages


def payloads(broker: Broker, topic: str = "clicks", partition: int = 1) -> list[bytes]:
    return [message.value for message in stored(broker, topic, partition)]


def until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.02)


TO = ("-t", "clicks", "-p", "0-1")


# --- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [b"\n", b"\0\n", b"aab"])
def test_lines_are_the_same_however_they_are_read(delimiter):
    chance = random.Random(7)
    for _ in range(300):
        data = bytes(chance.choices(b"ab\0\n", k=chance.randrange(60)))
        cuts = sorted(chance.choices(range(len(data) + 1), k=chance.randrange(12)))
        blocks = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)]) if b > a]
        read = list(produce._lines(iter(blocks), delimiter))
        expected = data.split(delimiter)
        assert [line for _, lines in read for line in lines] == (expected if expected[-1] else expected[:-1])


def test_a_line_that_nothing_ends(monkeypatch):
    monkeypatch.setattr(produce, "_LONGEST", 100)
    with pytest.raises(UsageError, match="120 bytes without the delimiter"):
        list(produce._lines(iter([b"x\n", *[b"y" * 20] * 10]), b"\n"))


def test_stdin(broker):
    code, out, err = run(broker, *TO, given=b"one\n\ntwo\r\n\xff\x00three\nlast")
    assert (code, out) == (0, b"")
    assert payloads(broker) == [b"one", b"", b"two\r", b"\xff\x00three", b"last"]
    assert err.startswith("% 5 messages, 18 bytes in ") and err.endswith(": 5 written\n")


def test_nothing_on_stdin(broker):
    code, out, err = run(broker, *TO)
    assert (code, out) == (0, b"") and "% 0 messages" in err and "nothing sent" in err
    assert run(broker, *TO, "-q") == (0, b"", "")


def test_lines_of_files_and_files_as_messages(broker, tmp_path):
    (tmp_path / "a").write_bytes(b"1\n2\n")
    (tmp_path / "b").write_bytes(b"3\n4")
    names = tmp_path / "a", tmp_path / "b"
    assert run(broker, *TO, "-q", "-l", *names) == (0, b"", "")
    assert payloads(broker) == [b"1", b"2", b"3", b"4"]
    assert run(broker, *TO, "-q", *names) == (0, b"", "")
    assert payloads(broker)[4:] == [b"1\n2\n", b"3\n4"]


def test_a_file_that_is_not_there_and_what_came_before_it(broker, tmp_path):
    (tmp_path / "a").write_bytes(b"1\n2\n")
    code, out, err = run(broker, *TO, "-l", tmp_path / "a", tmp_path / "nowhere")
    assert code == 5 and payloads(broker) == [b"1", b"2"]
    assert "2 written" in err and err.splitlines()[-1].endswith("nowhere: No such file or directory")


@pytest.mark.parametrize(("text", "delimiter"), [(r"\x00", b"\0"), ("::", b"::"), (r"\t", b"\t")])
def test_delimiters(broker, text, delimiter):
    assert run(broker, *TO, "-q", f"-D{text}", given=delimiter.join([b"a\n", b"b", b"c"]))[0] == 0
    assert payloads(broker) == [b"a\n", b"b", b"c"]


def test_count_and_tee(broker):
    code, out, _ = run(broker, *TO, "-q", "-c", 3, "-T", given=b"1\n2\n3\n4\n5\n")
    assert (code, out) == (0, b"1\n2\n3\n") and payloads(broker) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_codecs(broker, codec):
    lines = [b"line %04d" % number for number in range(2000)]
    assert run(broker, *TO, "-q", "-z", codec, given=b"\n".join(lines))[0] == 0
    messages = stored(broker, "clicks", 1)
    assert [message.value for message in messages] == lines
    assert {message.codec for message in messages} == {Codec[codec.upper()]}


def test_properties_and_a_file_of_them(broker, tmp_path):
    (tmp_path / "producer.properties").write_text("compression.codec=1\nbatch.size=1\n")
    assert run(broker, *TO, "-q", "-F", tmp_path / "producer.properties", "-X", "compression.codec=2",
               given=b"a\n")[0] == 0  # fmt: skip
    assert [message.codec for message in stored(broker, "clicks", 1)] == [Codec.SNAPPY]
    code, _, err = run(broker, *TO, "-X", "batch.sise=3")
    assert code == 2 and "batch.size" in err and err.count("\n") == 1


@pytest.mark.parametrize("how", [["--sync"], ["-X", "producer.type=sync"]])
def test_sync(broker, how):
    assert run(broker, *TO, *how, given=b"a\nb\n")[0] == 0
    assert payloads(broker) == [b"a", b"b"]


def test_lines_of_many_blocks(broker):
    lines = [b"%07d " % number + b"x" * (number % 200) for number in range(40_000)]
    code, _, err = run(broker, *TO, given=b"\n".join(lines))
    assert code == 0 and f"% 40000 messages, {sum(map(len, lines))} bytes" in err
    assert payloads(broker) == lines


def test_memory_is_bounded(broker):
    """192 MB go through a queue of 4 MiB; the process has to stay well below what it reads."""
    process = start(broker, *TO, "-q", "-X", "queue.bytes.max=4194304")
    block = (b"x" * 99 + b"\n") * 10_000
    for _ in range(192):
        process.stdin.write(block)
    most = int(re.search(r"VmHWM:\s+([0-9]+) kB", Path(f"/proc/{process.pid}/status").read_text())[1])
    assert process.communicate(timeout=60) == (b"", b"") and process.returncode == 0
    assert most * 1024 < 120e6


# --- where it goes ------------------------------------------------------------------------------------------------


def test_without_a_partition_the_broker_picks_one(broker):
    assert run(broker, "-t", "clicks", "-q", given=b"a\nb\n")[0] == 0
    assert payloads(broker, partition=0) + payloads(broker) == [b"a", b"b"]


def test_a_partition_has_a_broker(broker, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["produce", "-b", "h:1", "-t", "t", "-p", "1"])
    assert ended.value.code == 2
    assert "in 0.7 each broker has its own partition 1. Write BROKER-PARTITION, such as 0-1" in capsys.readouterr().err
    assert run(broker, "-t", "clicks", "-p", "-1", "-q", given=b"a")[0] == 0  # kcat's word for any


@pytest.mark.zookeeper
def test_keys_choose_the_partition(tmp_path):
    lines = [b"user-%d:value %d:x" % (number % 17, number) for number in range(200)]
    with ZooKeeper(tick_ms=100) as zookeeper:
        properties = {"log.flush.interval": 1}
        with Broker(tmp_path, 3, partitions=4, zookeeper=zookeeper.address, properties=properties) as broker:
            to = ("--zookeeper", zookeeper.address, "-q", "-t")
            assert run(None, *to, "keyed", "-c", "1", given=b"makes the topic")[0] == 0
            with Cluster(zookeeper=zookeeper.address) as cluster:
                until(lambda: cluster.refresh() or cluster.topics.get("keyed") == {3: 4})
            before = {number: len(payloads(broker, "keyed", number)) for number in range(4)}
            code, _, err = run(None, *to, "keyed", "-K", ":", given=b"\n".join([*lines, b"no key"]))
            assert (code, err) == (0, "")
            found = {number: payloads(broker, "keyed", number)[before[number] :] for number in range(4)}
            expected = {number: [] for number in range(4)}
            for line in lines:
                key, _, value = line.partition(b":")
                expected[default_partition(key, 4)].append(value)
            assert sum(map(len, found.values())) == len(lines) + 1
            for number in range(4):
                assert [value for value in found[number] if value != b"no key"] == expected[number]

            assert run(None, *to, "keyed", "-K", ":", "-k", "all", given=b"a\nuser-1:b\nc")[0] == 0
            place = default_partition(b"all", 4)
            fixed = [value for value in payloads(broker, "keyed", place) if value in (b"a", b"c")]
            assert fixed == [b"a", b"c"]
            assert payloads(broker, "keyed", default_partition(b"user-1", 4))[-1:] == [b"b"] or place == (
                default_partition(b"user-1", 4)
            )


def test_keys_with_a_list_of_brokers_have_no_effect_and_it_says_so(broker):
    code, _, err = run(broker, "-t", "clicks", "-K", ":", given=b"key:value\n")
    assert code == 0 and "keys have no effect" in err
    assert payloads(broker, partition=0) + payloads(broker) == [b"value"]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_verify_reads_back(broker, codec):
    lines = [b"line %05d" % number for number in range(20_000)]
    code, out, err = run(broker, *TO, "--verify", "--json", "-z", codec, given=b"\n".join(lines))
    assert code == 0 and "20000 verified" in err
    summary = json.loads(out)
    assert (summary["verified"], summary["written"], summary["unknown"]) == (20_000, 0, 0)
    assert payloads(broker) == lines


def test_what_cannot_be_verified_in_time_is_unknown(tmp_path):
    """A broker that does not flush: what it has is not to be seen, and may or may not last."""
    properties = {"log.flush.interval": 10**6, "log.default.flush.scheduler.interval.ms": 3_600_000}
    with Broker(tmp_path / "logs", 0, partitions=2, properties=properties) as broker:
        code, out, err = run(broker, *TO, "--verify", "--json", "-X", "verify.timeout.ms=500",
                             "--dead-letter", tmp_path / "letter", given=b"1\n2\n")  # fmt: skip
        summary = json.loads(out)
        assert (code, summary["unknown"], summary["verified"]) == (5, 2, 0)
        assert "'1' (1 bytes): unknown: " in err and (tmp_path / "letter").read_bytes() == b"1\n2\n"


# --- what cannot be sent ------------------------------------------------------------------------------------------


def test_a_line_that_is_too_large_fails_alone(broker, tmp_path):
    given = b"before\n" + b"x" * 2000 + b"\nbehind\n"
    letter = tmp_path / "letter"
    code, out, err = run(broker, *TO, "-X", "max.message.size=1000", "--json", "--dead-letter", letter, given=given)
    assert code == 5 and payloads(broker) == [b"before", b"behind"]
    assert letter.read_bytes() == b"x" * 2000 + b"\n"
    assert "2000 bytes): failed: " in err and "max.message.size" in err
    summary = json.loads(out)
    assert summary.pop("seconds") > 0
    assert summary == {
        "topic": "clicks", "messages": 3, "bytes": 2012, "written": 2, "verified": 0, "failed": 1, "unknown": 0,
        "resent": 0,
    }  # fmt: skip


@pytest.mark.parametrize("keys", [[], ["-K", ":"]])
def test_a_broker_that_is_not_there(tmp_path, keys):
    lines = b"".join(b"key:%d\n" % number for number in range(8))
    letter = tmp_path / "letter"
    code, out, err = run(
        None, "-b", f"127.0.0.1:{free_ports(1)[0]}", *TO, *keys, "-X", "delivery.timeout.ms=300", "--json",
        "--dead-letter", letter, given=lines,
    )  # fmt: skip
    assert code == 5 and letter.read_bytes() == lines
    summary = json.loads(out)
    assert (summary["messages"], summary["failed"], summary["written"]) == (8, 8, 0)
    told = [line for line in err.splitlines() if line.startswith("kafka07c produce: ")]
    assert len(told) == 6 and "'key:0' (5 bytes): failed: " in told[0] and told[5].endswith(": and 3 more")


@pytest.mark.parametrize("keys", [[], ["-K", ":"]])
def test_a_zookeeper_that_is_not_there(tmp_path, keys):
    lines = b"".join(b"key:%d\n" % number for number in range(8))
    letter = tmp_path / "letter"
    code, out, err = run(
        None, "--zookeeper", f"127.0.0.1:{free_ports(1)[0]}", "-t", "clicks", *keys, "--json", "--dead-letter", letter,
        "-X", "zk.connectiontimeout.ms=300", "-X", "zk.read.num.retries=0", given=lines,
    )  # fmt: skip
    assert code == 3 and letter.read_bytes() == lines and "8 failed" in err
    assert json.loads(out)["failed"] == 8


@pytest.mark.parametrize("keys", [[], ["-K", ":"]])
def test_what_finds_no_room_is_kept_and_the_rest_is_told_about(broker, tmp_path, keys):
    lines = [b"key:%d" % number for number in range(20)]
    letter = tmp_path / "letter"
    options = ("-X", "queue.size=10", "-X", "queue.enqueueTimeout.ms=0", "--json", "--dead-letter", letter)
    code, out, _ = run(broker, *TO, *keys, *options, given=b"\n".join(lines))
    summary = json.loads(out)
    assert (code, summary["written"], summary["failed"]) == (5, 10, 10)
    assert letter.read_bytes().split() == lines[10:]
    assert payloads(broker) == ([line[4:] for line in lines[:10]] if keys else lines[:10])


def test_what_failed_can_be_sent_again(broker, tmp_path):
    lines = b"1\n2\n3\n"
    letter = tmp_path / "letter"
    assert run(None, "-b", f"127.0.0.1:{free_ports(1)[0]}", *TO, "-X", "delivery.timeout.ms=300", "-q",
               "--dead-letter", letter, given=lines)[0] == 5  # fmt: skip
    assert run(broker, *TO, "-q", "-l", letter)[0] == 0
    assert payloads(broker) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["-Z"], "no null message"), (["-H", "a=b"], "no headers"), (["-l"], "-l goes with files"),
     (["-T", "--json"], "both want stdout"), (["-D", ""], "at least one"), (["--dead-letter", "f", "a"], "for lines"),
     (["-X", "nonsense"], "NAME=VALUE"), (["-F", "/nowhere/x"], "cannot read"), (["--verify"], "needs -p")],
)  # fmt: skip
def test_a_command_line_that_makes_no_sense(capsys, arguments, reason):
    assert main(["produce", "-b", "0:127.0.0.1:1", "-t", "clicks", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and reason in captured.err and captured.err.count("\n") == 1


def test_no_cluster_and_two(capsys, monkeypatch):
    monkeypatch.delenv("KAFKA07C_ZOOKEEPER", raising=False)
    assert main(["produce", "-t", "t"]) == 2 and "give one of" in capsys.readouterr().err
    assert main(["produce", "-t", "t", "-b", "h:1", "--zookeeper", "h:1"]) == 2
    assert main(["produce", "-t", "t", "-b", "nonsense"]) == 2
    assert main(["produce", "-t", "a/b", "-b", "127.0.0.1:1", str(Path(__file__))]) == 2  # no such name can be
    assert "a/b" in capsys.readouterr().err


# --- signals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_all_that_was_read(broker, number):
    process = start(broker, *TO, "--json")
    try:
        process.stdin.write(b"1\n2\n3\nrest")
        process.stdin.flush()
        until(lambda: payloads(broker) == [b"1", b"2", b"3"])
        process.send_signal(number)
        assert process.wait(30) == 130
        out, err = process.stdout.read(), process.stderr.read().decode()
    finally:
        process.kill()
        process.communicate()
    assert payloads(broker) == [b"1", b"2", b"3", b"rest"]
    assert json.loads(out)["written"] == 4 and "Sending what was read" in err and "4 written" in err


def test_a_second_signal_gives_up(tmp_path):
    """There is no broker: what was read waits for one."""
    process = start(None, "-b", f"127.0.0.1:{free_ports(1)[0]}", *TO, "--json", "--dead-letter", tmp_path / "letter")
    try:
        process.stdin.write(b"1\n2\n")
        process.stdin.flush()
        assert process.poll() is None
        assert b"cannot be reached" in process.stderr.readline()  # so it has read that
        process.send_signal(signal.SIGINT)
        assert any(b"once more gives it up" in line for line in iter(process.stderr.readline, b""))
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 5
        summary = json.loads(process.stdout.read())
    finally:
        process.kill()
        process.communicate()
    assert summary["failed"] == summary["messages"] == 2
    assert (tmp_path / "letter").read_bytes() == b"1\n2\n"
