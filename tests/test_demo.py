"""The demo: small, and that its check would notice what it is there to notice."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest

from kafka07c.names import TopicPartition
from kafka07c.demo import Tally, _new_folder, differences, python_events

A, B = TopicPartition("events", 0, 0), TopicPartition("events", 1, 0)


def tally(**partitions: list[bytes]) -> Tally:
    result = Tally()
    for name, payloads in partitions.items():
        result.add({"a": A, "b": B}[name], payloads)
    return result


SENT = {"a": [b"1", b"2", b"3"], "b": [b"4", b"5"]}


def test_order_does_not_matter():
    assert differences(tally(**SENT), tally(b=[b"5", b"4"], a=[b"2", b"3", b"1"]), bytes([1] * 5)) == []


@pytest.mark.parametrize(
    ("read", "sequences", "expected"),
    [
        ({"a": [b"1", b"2"], "b": [b"4", b"5"]}, [1, 1, 0, 1, 1], ["events 0-0: 3 sent, 2 read", "1 sequence numbers"]),
        ({"a": [b"1", b"2", b"2"], "b": [b"4", b"5"]}, [1, 2, 0, 1, 1], ["events 0-0: digest", "1 sequence numbers"]),
        ({"a": [b"1", b"2", b"3"] * 3, "b": [b"4", b"5"]}, [3, 3, 3, 1, 1], ["events 0-0: 3 sent, 9", "0 sequence"]),
        ({"a": [b"1", b"2", b"4"], "b": [b"3", b"5"]}, [1] * 5, ["events 0-0: digest", "events 1-0: digest"]),
        ({"a": [b"1", b"2", b"3"], "b": [b"4", b"x"]}, [1] * 5, ["events 1-0: digest"]),
    ],
    ids=["lost", "one twice in place of another", "three times", "swapped between partitions", "altered"],
)
def test_every_difference_is_told(read, sequences, expected):
    found = differences(tally(**SENT), tally(**read), bytes(sequences))
    assert len(found) == len(expected)
    assert all(line.startswith(start) for line, start in zip(found, expected)), found


def test_an_event_that_nobody_sent():
    assert differences(tally(**SENT), tally(**SENT), bytes([1] * 5), unknown=1)


def test_events_are_numbered_lines_of_the_library():
    events = [json.loads(event) for event in itertools.islice(python_events(), 1000)]
    assert [event["seq"] for event in events] == list(range(1000))
    assert events[0]["file"].endswith(".py") and events[0]["line"] == 1


def test_only_the_last_run_is_kept(tmp_path):
    for name in ("run-7", "run-12", "run-07", "run-x", "else"):
        (tmp_path / name / "parquet").mkdir(parents=True)
    assert _new_folder(tmp_path) == tmp_path / "run-13"
    assert {path.name for path in tmp_path.iterdir()} == {"run-13", "run-07", "run-x", "else"}
    assert _new_folder(tmp_path / "new") == tmp_path / "new" / "run-1"


@pytest.mark.spark
@pytest.mark.zookeeper
def test_a_small_run(tmp_path):
    command = [sys.executable, "-m", "kafka07c.demo", "--events", "20000", "--dir", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert ended.returncode == 0, ended.stderr
    last = ended.stdout.splitlines()[-1]
    parquet = tmp_path / "run-1" / "parquet"
    assert last.startswith("All 20,000 events are there, each exactly once.") and str(parquet) in last
    assert len(list(parquet.glob("events-*.parquet"))) == 6
