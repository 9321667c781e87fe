"""``kafka07c metrics`` against processes that run with ``--metrics``, and against whatever else may answer."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from kafka07c import SimpleConsumer, SyncProducer
from kafka07c import metrics as names
from kafka07c.broker import Broker
from kafka07c.cli import main
from kafka07c.metrics import Metrics
from kafka07c.metrics_server import serve
from kafka07c.testing import ZooKeeper, free_ports

from group_cluster import PATIENCE, until
from scripted_server import ScriptedServer

COMMAND = [sys.executable, "-m", "kafka07c"]


@contextmanager
def running(*arguments: str):
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.fixture
def shown():
    """Figures of our own, and the port where they are."""
    metrics = Metrics()
    metrics.counter(names.MESSAGES, topic="clicks").inc(3)
    metrics.counter(names.MESSAGES, topic='or"ders').inc(4)
    metrics.gauge(names.OFFSET_LAG, topic="clicks", partition=0).set(1.5)
    with serve(metrics, 0) as server:
        yield metrics, str(server.port)


def objects(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_table(shown, capsys):
    assert main(["metrics", shown[1]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:1] + lines[2:]] == [
        ["NAME", "LABELS", "VALUE"],
        [names.MESSAGES, "topic=clicks", "3"],
        [names.MESSAGES, 'topic=or"ders', "4"],
        [names.OFFSET_LAG, "partition=0,topic=clicks", "1.5"],
    ]


def test_json_and_match(shown, capsys):
    assert main(["metrics", f"127.0.0.1:{shown[1]}", "--json", "--match", r"PerTopic\{.*clicks"]) == 0
    (row,) = objects(capsys.readouterr().out)
    assert row.pop("time") > 1_700_000_000_000
    assert row == {"kind": "counter", "name": names.MESSAGES, "labels": {"topic": "clicks"}, "value": 3}
    assert main(["metrics", shown[1], "--json", "--match", "nothing"]) == 0
    assert capsys.readouterr().out == ""


def test_rates_of_counters(shown, capsys):
    metrics, port = shown
    metrics.gauge("Looks").set(lambda: metrics.counter(names.MESSAGES, topic="clicks").inc(10) or 0)
    assert main(["metrics", port, "--json", "--interval", "0.05", "-c", "3"]) == 0
    rows = [row for row in objects(capsys.readouterr().out) if row["labels"].get("topic") == "clicks"]
    counted = [row for row in rows if row["kind"] == "counter"]
    assert len(counted) == 3 and counted[0]["per_second"] is None
    for before, after in zip(counted, counted[1:], strict=False):
        seconds = (after["time"] - before["time"]) / 1000
        assert seconds > 0
        assert after["per_second"] == pytest.approx((after["value"] - before["value"]) / seconds)
    assert {row["per_second"] for row in rows if row["kind"] == "gauge"} == {None}
    assert main(["metrics", port, "--interval", "0.05", "-c", "2"]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.splitlines()[0].split()[-1] == "PER-SECOND"
    assert re.search(r"topic=clicks +\d+ +-$", first, re.M) and re.search(r"topic=clicks +\d+ +\d+\.\d$", second, re.M)


#: a line of JmxTool: a time, then numbers
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}(, -?\d+(\.\d+(E-?\d+)?)?)+")
HEADS = re.compile(r'"time"(, "([^"]|"")+")+')


def test_csv_has_the_lines_of_jmx_tool(shown, capsys, golden):
    heads, *recorded = golden.bytes("tools/jmx-tool.txt").decode().splitlines()
    assert HEADS.fullmatch(heads) and all(map(LINE.fullmatch, recorded))
    assert main(["metrics", shown[1], "--csv", "--interval", "0.05", "-c", "2"]) == 0
    heads, *lines = capsys.readouterr().out.splitlines()
    assert HEADS.fullmatch(heads) and len(lines) == 2 and all(map(LINE.fullmatch, lines))
    assert heads == (
        f'"time", "{names.OFFSET_LAG}{{partition=0,topic=clicks}}", "{names.MESSAGES}{{topic=clicks}}", '
        f'"{names.MESSAGES}{{topic=or""ders}}"'
    )
    assert lines[0].split(", ")[1:] == ["1.5", "3", "4"]


def test_csv_keeps_its_columns(shown, capsys):
    metrics, port = shown

    def look() -> int:
        metrics.remove(names.OFFSET_LAG, topic="clicks", partition=0)
        metrics.counter("new").inc()
        return 7

    metrics.gauge("A").set(look)
    assert main(["metrics", port, "--csv", "--interval", "0.05", "-c", "2", "--match", "^A|new|Lag"]) == 0
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split(", ")[1:] == ["7", "1.5"] and second.split(", ")[1:] == ["7", ""]


def test_nobody_answers(capsys):
    port = free_ports(1)[0]
    assert main(["metrics", str(port)]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"kafka07c metrics: nobody shows figures at 127.0.0.1:{port}: Connection refused\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x01\x02\x03", b"", b"HTTP/1.0 200 OK\r\n\r\nhello", b"HTTP/1.0 200 OK\r\n\r\n[]",
        b"HTTP/1.0 404 Not Found\r\n\r\n", b'HTTP/1.0 200 OK\r\n\r\n{"time": 1, "metrics": [{"kind": "counter"}]}',
        b'HTTP/1.0 200 OK\r\n\r\n{"time": 1, "metrics": [{"kind": "gauge", "name": "n", "labels": {}, "value": "x"}]}',
        b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 100_000,
    ],
    ids=["binary", "nothing", "text", "a list", "404", "too little", "no number", "deep"],
)  # fmt: skip
def test_somebody_else_answers(answer, capsys):
    def speak(peer):
        peer.socket.recv(1 << 16)
        peer.send(answer)

    with ScriptedServer(speak) as server:
        assert main(["metrics", str(server.port)]) == 3
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("kafka07c metrics: ") and len(err) < 200


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["1:2:3"], ["99999"], ["1", "--match", "("], ["1", "--interval", "0"], ["1", "-c", "0"]]
)
def test_a_wrong_command_line(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["metrics", *arguments])
    assert ended.value.code == 2


def test_count_without_interval(shown, capsys):
    assert main(["metrics", shown[1], "-c", "2"]) == 2


def test_ctrl_c_ends_the_polling_with_what_was_seen(shown):
    with running("metrics", shown[1], "--interval", "0.05", "--csv") as process:
        assert [process.stdout.readline()[:1] for _ in range(3)] == ['"', "2", "2"]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (0, "")


def test_a_process_that_ends_while_it_is_looked_at(shown):
    metrics = Metrics()
    with serve(metrics, 0) as server, running("metrics", str(server.port), "--interval", "0.05", "--csv") as process:
        process.stdout.readline()
        server.close()
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3 and err.count("\n") == 1


# the commands that show their figures


def shown_at(process: subprocess.Popen) -> str:
    """The port in the line that says where the figures are."""
    for line in process.stderr:
        if found := re.search(r"kafka07c metrics 127\.0\.0\.1:(\d+)$", line):
            return found[1]
    raise AssertionError("it did not say where its figures are")


def figure(port: str, capsys, match: str) -> list[float]:
    assert main(["metrics", port, "--json", "--match", match]) == 0
    return [row["value"] for row in objects(capsys.readouterr().out)]


def test_the_broker_command(tmp_path, capsys):
    with running("broker", "--log-dir", str(tmp_path), "--port", "0", "--metrics", "0", "--json") as process:
        port = shown_at(process)
        where = json.loads(process.stdout.readline())
        assert set(where) == {"broker", "host", "port"}
        with SyncProducer("127.0.0.1", where["port"]) as producer:
            producer.send("clicks", 0, [b"a", b"b"])
            with SimpleConsumer("127.0.0.1", where["port"]) as consumer:
                consumer.get_offsets_before("clicks", 0, -1)
        until(lambda: figure(port, capsys, r"^BrokerTopicStat\.MessagesIn{topic=clicks}") == [2])
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert main(["metrics", port]) == 3


@pytest.mark.zookeeper
def test_a_member_of_a_group(tmp_path, capsys):
    with ZooKeeper(tick_ms=100) as server:
        with Broker(tmp_path, zookeeper=server.address, properties={"log.flush.interval": 1}) as broker:
            with SyncProducer("127.0.0.1", broker.port) as producer:
                producer.send("clicks", 0, [b"a", b"b"])
            with running("cat", "--zookeeper", server.address, "-G", "g", "clicks", "--metrics", "0") as process:
                port = shown_at(process)
                assert [process.stdout.readline() for _ in range(2)] == ["a\n", "b\n"]
                until(lambda: figure(port, capsys, r"^ConsumerTopicStat\.MessagesPerTopic{topic=clicks}") == [2])
                assert figure(port, capsys, "PartOwnerStats") == [1]
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE) == 0


def test_metrics_of_cat_go_with_a_group(capsys):
    assert main(["cat", "-b", "h:1", "-t", "t", "--metrics", "0"]) == 2
    assert "--metrics go with -G" in capsys.readouterr().err


def test_an_address_that_cannot_be_had(shown, tmp_path, capsys):
    assert main(["broker", "--log-dir", str(tmp_path), "--port", "0", "--metrics", shown[1]]) == 2
    assert capsys.readouterr().err == (
        f"kafka07c broker: --metrics: cannot listen on 127.0.0.1:{shown[1]}: Address already in use\n"
    )
    assert list(tmp_path.iterdir()) == []
