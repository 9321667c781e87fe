"""``kafka07c offsets before``: the same answers from ZooKeeper's brokers, from a list of them and from their logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from kafka07c import SyncProducer
from kafka07c.broker import Broker
from kafka07c.cli import main
from kafka07c.cli.offsets_before import parse_time
from kafka07c.protocol import EARLIEST, LATEST
from kafka07c.testing import ZooKeeper, free_ports
from kafka07c.zookeeper import connect
from kafka07c.zookeeper.client import disconnect

from broker_client import log_end
from group_cluster import until

#: bytes in the log of one message of 10 bytes; three fill a segment here
ENTRY = 20
STARTS = [0, 3 * ENTRY, 6 * ENTRY]
END = 8 * ENTRY

#: when the three segments were last written: hours of a day
HOURS = (10, 12, 14)


def at(hour: float) -> float:
    return datetime.fromisoformat("2020-01-01T00:00:00Z").timestamp() + 3600 * hour


@pytest.fixture(scope="module")
def zookeeper():
    with ZooKeeper(tick_ms=100) as server:
        yield server.address


@pytest.fixture(scope="module")
def broker(tmp_path_factory, zookeeper):
    """A broker with two partitions of ``clicks``: 0-0 has three segments, 0-1 nothing."""
    folder = tmp_path_factory.mktemp("logs")
    properties = {"log.flush.interval": 1, "log.file.size": 3 * ENTRY - 1}
    with Broker(folder, partitions=2, zookeeper=zookeeper, properties=properties) as broker:
        with SyncProducer("127.0.0.1", broker.port) as producer:
            for number in range(8):
                producer.send("clicks", 0, [b"message %02d" % number])
        until(lambda: log_end(broker.port, "clicks", 0) == END)
        files = sorted((folder / "clicks-0").glob("*.kafka"))
        assert [int(path.stem) for path in files] == STARTS
        for path, hour in zip(files, HOURS, strict=True):
            os.utime(path, (at(hour), at(hour)))
        yield broker


@pytest.fixture(params=["zookeeper", "brokers", "logs"])
def ask(request, broker, zookeeper, capsys):
    """Offsets by partition, from each kind of source, as ``--json`` has them."""
    source = {
        "zookeeper": ["--zookeeper", zookeeper],
        "brokers": ["-b", f"0:127.0.0.1:{broker.port}"],
        "logs": ["--logs", f"0:{broker.config.log_dir}"],
    }[request.param]

    def ask(time: object, *more: str) -> dict[str, list[int | None]]:
        assert main(["offsets", "before", str(time), *source, "-t", "clicks", "--json", *more]) == 0
        found: dict[str, list[int | None]] = {}
        for line in capsys.readouterr().out.splitlines():
            row = json.loads(line)
            assert set(row) == {"topic", "partition", "offset"} and row["topic"] == "clicks"
            found.setdefault(row["partition"], []).append(row["offset"])
        return found

    ask.kind = request.param
    return ask


pytestmark = pytest.mark.zookeeper


@pytest.mark.parametrize(
    ("time", "most", "offsets"),
    [
        ("latest", 1, [END]),
        ("-1", 9, [END, *reversed(STARTS)]),
        ("earliest", 9, [0]),
        ("-2", 9, [0]),
        ("2020-01-01T13:00:00Z", 9, [3 * ENTRY, 0]),
        ("2020-01-01T13:00:00Z", 1, [3 * ENTRY]),
        ("2020-01-01T14:00+02:00", 1, [3 * ENTRY]),
        ("2020-01-01 11:59:59.999", 1, [0]),
        (int(at(14) * 1000), 1, [6 * ENTRY]),
        (int(at(14) * 1000) - 1, 1, [3 * ENTRY]),
        ("2020-01-01", 1, [None]),
        (0, 1, [None]),
        ("2999-01-01", 9, [END, *reversed(STARTS)]),
    ],
)
def test_what_a_partition_answers(ask, time, most, offsets):
    assert ask(time, "-p", "0-0", "--max", str(most)) == {"0-0": offsets}


def test_the_recorded_answer_of_get_offset_shell(golden, capsys):
    """The tool prints a number of results and then one offset a line."""
    first, *recorded = golden.bytes("tools/get-offset-shell.txt").decode().split("\n")
    source = ["--logs", f"0:{golden.root / 'logs' / 'seg-0'}"]
    assert main(["offsets", "before", "-1", *source, "-t", "seg", "--max", "10", "--json"]) == 0
    offsets = [str(json.loads(line)["offset"]) for line in capsys.readouterr().out.splitlines()]
    assert (first, [line for line in recorded if line]) == (f"get {len(offsets)} results", offsets)


def test_all_partitions(ask):
    assert ask("latest", "--max", "2") == ({"0-0": [END, 6 * ENTRY]} | ({} if ask.kind == "logs" else {"0-1": [0]}))


def test_the_table_and_how_the_time_was_understood(broker, capsys):
    source = ["-b", f"127.0.0.1:{broker.port}"]
    assert main(["offsets", "before", "2020-01-01T13:00", *source, "-t", "clicks"]) == 0
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()[2:]] == [["clicks", "0-0", "60"], ["clicks", "0-1", "-"]]
    assert err == "% of segments last written at 2020-01-01T13:00:00.000Z or before: a lower bound\n"
    assert main(["offsets", "before", "latest", *source, "-t", "clicks"]) == 0
    assert capsys.readouterr().err == ""


def test_a_partition_that_is_not_there(broker, capsys):
    assert main(["offsets", "before", "latest", "-b", f"127.0.0.1:{broker.port}", "-t", "clicks", "-p", "0-7"]) == 2
    assert "has no partition 0-7; there are 0-0, 0-1" in capsys.readouterr().err


def test_nobody_answers(capsys):
    port = free_ports(1)[0]
    assert main(["offsets", "before", "latest", "-b", f"127.0.0.1:{port}", "-t", "clicks"]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_of_two_brokers_one_that_is_away_hides_nothing_of_the_other(zookeeper, tmp_path, capsys):
    where = f"{zookeeper}/two"
    nodes = connect(where, make_chroot=True)
    try:
        nodes.create("/brokers/ids/7", f"h-1:127.0.0.1:{free_ports(1)[0]}".encode(), makepath=True)
        nodes.create("/brokers/topics/clicks/7", b"2", makepath=True)
        with Broker(tmp_path, 1, zookeeper=where) as broker, SyncProducer("127.0.0.1", broker.port) as producer:
            producer.send("clicks", 0, [b"x"])
            until(lambda: nodes.exists("/brokers/topics/clicks/1"))
            assert main(["offsets", "before", "earliest", "--zookeeper", where, "-t", "clicks", "--json"]) == 3
    finally:
        disconnect(nodes)
    out, err = capsys.readouterr()
    assert json.loads(out) == {"topic": "clicks", "partition": "1-0", "offset": 0}
    assert err.count("\n") == 1 and err.startswith("kafka07c offsets before: ")


@pytest.mark.parametrize("time", ["yesterday", "2020-13-01", "-3", "1e3", str(2**63), ""])
def test_what_is_no_time(time):
    command = [sys.executable, "-m", "kafka07c", "offsets", "before", "-t", "t", "-b", "h:1", time]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and "argument TIME" in ended.stderr


def test_named_times():
    assert (parse_time("latest"), parse_time("earliest")) == (LATEST, EARLIEST)
    assert parse_time("1969-12-31") == 0


ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(datetime(1970, 1, 1), timezones=ZONES))
def test_iso_8601_with_a_zone(time):
    delta = time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    assert parse_time(time.isoformat()) == max(0, delta // timedelta(milliseconds=1))
