"""kafka07c perf: that it counts what it says, against real brokers; no test looks at how fast anything is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import numpy
import pytest
from hypothesis import given, strategies as st

from kafka07c import SimpleConsumer, SyncProducer
from kafka07c.broker import Broker
from kafka07c.cli import main
from kafka07c.cli.perf import Latencies
from kafka07c.testing import ZooKeeper, free_ports
from kafka07c.zookeeper import connect

PAYLOADS = [b"%06d" % number + b"x" * (number % 50) for number in range(3000)]
BYTES = sum(map(len, PAYLOADS))


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path / "logs", 0, partitions=3, properties={"log.flush.interval": 1}) as broker:
        yield broker


@pytest.fixture
def filled(broker):
    """3000 messages over three partitions, one of them compressed."""
    with SyncProducer(broker.host, broker.port) as producer:
        for number in range(3):
            for first in range(0, 1000, 100):
                start = 1000 * number + first
                producer.send("test", number, PAYLOADS[start : start + 100], "gzip" if number == 2 else "none")
    until(lambda: stored(broker)[0] == 3000)
    return broker


@pytest.fixture
def run(capsys, broker):
    """The exit code, the JSON lines and stderr of ``kafka07c perf ACTION -t test --json``."""

    def run(action: str, *arguments: object, where=None) -> tuple[int, list[dict], str]:
        where = where or ("-b", f"{broker.host}:{broker.port}")
        code = main(["perf", action, *where, "-t", "test", "--json", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, [json.loads(line) for line in captured.out.splitlines()], captured.err

    return run


def stored(broker: Broker) -> tuple[int, int]:
    """How many messages of topic test there are, and their bytes."""
    found = []
    with SimpleConsumer(broker.host, broker.port) as consumer:
        for number in range(3):
            offset = 0
            while len(messages := consumer.fetch("test", number, offset)):
                found += messages.payloads()
                offset = messages.next_offset
    return len(found), sum(map(len, found))


def until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.02)


# --- latencies ----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10**11), min_size=1, max_size=200), st.sampled_from([1, 50, 90, 95, 99, 100]))
def test_a_percentile_is_at_most_a_64th_too_much(values, percent):
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    exact = int(numpy.percentile(values, percent, method="inverted_cdf"))
    found = latencies.percentile(percent)
    assert exact <= found <= exact + exact // 64 + 1
    assert latencies.milliseconds()["max"] == round(max(values) / 1e6, 3)


def test_latencies_add_up():
    one, other = Latencies(), Latencies()
    one.add(10, 99)
    other.add(10_000_000)
    one.update(other)
    assert (one.count, one.percentile(99), one.percentile(100)) == (100, 10, 10_000_000)
    assert Latencies().milliseconds() == {"p50": None, "p95": None, "p99": None, "max": None}


# --- produce ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("via", ["send", "send_many", "send_batch"])
@pytest.mark.parametrize("mode", [[], ["--sync"]])
def test_produce_counts_what_arrives(run, broker, via, mode):
    code, said, err = run(
        "produce", "-c", 1010, "--size", "20-60", "--batch", 100, "--via", via, "--threads", 3, "-p", "0-1", *mode
    )
    total = said[-1]
    assert (code, err, total["line"], total["what"], total["messages"]) == (0, "", "total", "produce", 1010)
    assert stored(broker) == (1010, total["bytes"])
    assert (total["written"], total["verified"], total["failed"], total["unknown"]) == (1010, 0, 0, 0)
    assert 20 * 1010 <= total["bytes"] <= 60 * 1010
    latency = total["latency_ms"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]
    rounded = 0.001 * total["messages_per_s"] + total["seconds"]  # to milliseconds, and to whole messages a second
    assert total["messages_per_s"] * total["seconds"] == pytest.approx(1010, abs=rounded)


def test_produce_leaves_the_warm_up_out(run, broker):
    code, said, _ = run("produce", "-c", 500, "--size", 10, "--warm-up", 300, "--threads", 2)
    assert (code, said[-1]["messages"], said[-1]["bytes"]) == (0, 500, 5000)
    assert stored(broker) == (800, 8000)


def test_produce_compressed_words(run, broker):
    code, said, _ = run("produce", "-c", 1000, "--size", 100, "-z", "snappy", "--content", "words", "-p", "0-0")
    assert (code, said[-1]["codec"]) == (0, "snappy") and stored(broker) == (1000, 100_000)
    with SimpleConsumer(broker.host, broker.port) as consumer:
        assert consumer.get_offsets_before("test", 0, -1)[0] < 80_000


def test_produce_at_a_rate_says_how_it_goes(run):
    code, said, _ = run("produce", "-c", 300, "--batch", 10, "--rate", 1000, "--interval", "0.1")
    assert code == 0 and [line["line"] for line in said] == ["interval"] * (len(said) - 1) + ["total"]
    assert len(said) >= 2 and sum(line["messages"] for line in said[:-1]) <= 300 == said[-1]["messages"]
    assert said[-1]["seconds"] >= 0.28  # the last batch is due after 290 ms


def test_produce_without_a_broker(run):
    where = ("-b", f"127.0.0.1:{free_ports(1)[0]}")
    code, said, err = run("produce", "-c", 10, "-X", "delivery.timeout.ms=300", where=where)
    assert (code, said[-1]["failed"]) == (5, 10)
    assert [line for line in err.splitlines() if line.startswith("kafka07c perf: ")]


# --- consume and fetch --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--threads", 2], ["--threads", 7], ["--via", "poll"],
                                       ["--fetch-size", 500]])  # fmt: skip
def test_consume_counts_what_is_there(run, filled, arguments):
    code, said, err = run("consume", *arguments)
    assert (code, err, said[-1]["messages"], said[-1]["bytes"]) == (0, "", 3000, BYTES)
    assert said[-1]["latency_ms"]["max"] > 0


@pytest.mark.parametrize("action", ["consume", "fetch"])
def test_a_count_and_a_warm_up(run, filled, action):
    code, said, _ = run(action, "-c", 1234, "--warm-up", 111, "--threads", 2)
    assert (code, said[-1]["messages"]) == (0, 1234)
    code, said, _ = run(action, "--warm-up", 100)
    assert (code, said[-1]["messages"]) == (0, 2900)


@pytest.mark.parametrize("arguments", [[], ["--threads", 3], ["--fetch-size", 300], ["--threads", 9]])
def test_fetch_counts_what_is_there(run, filled, arguments):
    code, said, err = run("fetch", *arguments)
    total = said[-1]
    assert (code, err, total["messages"], total["bytes"]) == (0, "", 3000, BYTES)
    assert total["requests"] == 3 if total["fetch_size"] == 1 << 20 else total["requests"] > 100


def test_fetch_of_one_partition(run, filled):
    code, said, _ = run("fetch", "-p", "0-1")
    assert (code, said[-1]["bytes"]) == (0, sum(map(len, PAYLOADS[1000:2000])))
    code, said, err = run("fetch", "-p", "0-9")
    assert (code, said) == (2, []) and "there are 0-0, 0-1, 0-2" in err


@pytest.mark.parametrize("action", ["consume", "fetch"])
def test_damage_is_told_behind_what_was_read(run, filled, tmp_path, action):
    log = next((tmp_path / "logs" / "test-1").glob("*.kafka"))
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    code, said, err = run(action, "--fetch-size", 500)
    assert code == 4 and 1000 < said[-1]["messages"] < 3000
    assert err.startswith("kafka07c perf: ") and "corrupt entry" in err and err.count("\n") == 1


@pytest.mark.parametrize("action", ["consume", "fetch"])
def test_no_broker_to_read_from(run, action):
    code, said, err = run(action, where=("-b", f"127.0.0.1:{free_ports(1)[0]}"))
    assert (code, said) == (3, []) and "cannot be reached" in err and err.count("\n") == 1


@pytest.mark.zookeeper
def test_consume_as_a_group(run, tmp_path):
    with ZooKeeper(tick_ms=100) as zookeeper:
        properties = {"log.flush.interval": 1}
        with Broker(tmp_path / "grouped", 0, partitions=3, zookeeper=zookeeper.address, properties=properties):
            where = ("--zookeeper", zookeeper.address)
            assert run("consume", where=where)[0] == 2  # there is no such topic yet
            for _ in range(2):
                assert run("produce", "-c", 500, "--size", 10, where=where)[0] == 0
                client = connect(zookeeper.address)
                try:
                    until(lambda: client.exists("/brokers/topics/test/0"))
                finally:
                    client.stop()
                    client.close()
                code, said, _ = run("consume", "-g", "perf", "--threads", 2, where=where)
                assert (code, said[-1]["messages"], said[-1]["bytes"]) == (0, 500, 5000)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["consume", "-g", "g", "-b", "0:h:1"], "-g needs --zookeeper"), (["fetch"], "give one of"),
     (["produce", "-b", "h:1", "-X", "batch.sise=1"], "batch.size"),
     (["consume", "-b", "h:1", "-X", "a"], "NAME=VALUE"),
     (["produce", "-b", "h:1", "--verify"], "needs -p"), (["produce", "-b", "h:1", "-X", "verify=true"], "needs -p")],
)  # fmt: skip
def test_a_command_line_that_makes_no_sense(monkeypatch, capsys, arguments, reason):
    monkeypatch.delenv("KAFKA07C_ZOOKEEPER", raising=False)
    assert main(["perf", *arguments, "-t", "test"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and reason in captured.err and captured.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["produce", "--size", "9-3"], ["produce", "--size", "x"], ["fetch", "-c", "0"],
                                       ["consume", "--warm-up", "-1"], []])  # fmt: skip
def test_what_the_parser_refuses(arguments):
    with pytest.raises(SystemExit) as ended:
        main(["perf", *arguments, *(["-t", "test", "-b", "h:1"] if arguments else [])])
    assert ended.value.code == 2


@pytest.mark.parametrize("action", ["produce", "consume", "fetch"])
def test_each_action_has_an_example(action, capsys):
    with pytest.raises(SystemExit):
        main(["perf", action, "--help"])
    assert f"  kafka07c perf {action} " in capsys.readouterr().out.partition("example:\n")[2]


def test_ctrl_c_ends_it_with_what_was_measured(broker):
    command = [sys.executable, "-m", "kafka07c", "perf", "produce", "-b", f"{broker.host}:{broker.port}", "-t", "test",
               "-c", "100000000", "--rate", "2000", "--batch", "10", "--interval", "0.05", "--json"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        while json.loads(process.stdout.readline())["messages"] == 0:
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    total = json.loads(out.splitlines()[-1])
    assert (process.returncode, err, total["line"]) == (130, b"", "total")
    assert stored(broker) == (total["messages"], total["bytes"])
