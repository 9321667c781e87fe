"""Ranges of live brokers cut where entries seem to begin: right guesses count, wrong ones cost a second reading.

The tasks run in this process, without Spark; the brokers are real.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafka07c import MessageSet, build_message_set
from kafka07c.broker import Broker
from kafka07c.ranges import Range, open_source
from kafka07c.segments import Log
from kafka07c.spark import guesses, ingest
from kafka07c.spark.guesses import guess, next_entry
from kafka07c.spark.layout import Layout
from kafka07c.spark.remote import files_of
from kafka07c.spark.writer import write_range


@pytest.fixture
def runs(monkeypatch):
    """What was read, run by run, with eight cores and tasks of a kilobyte."""
    runs: list[list[Range]] = []

    def run_tasks(spark, source, ranges, stage, on_corrupt, layout):
        runs.append(ranges)
        return {
            range: write_range(source.only(range.tp), range, stage, slot, on_corrupt=on_corrupt, layout=layout)
            for slot, range in enumerate(ranges)
        }

    monkeypatch.setattr(ingest, "run_tasks", run_tasks)
    monkeypatch.setattr(ingest, "_session", lambda spark, master: contextlib.nullcontext())
    monkeypatch.setattr(guesses, "_WORTH_A_TASK", 1000)
    monkeypatch.setattr(guesses.os, "cpu_count", lambda: 8)
    return runs


def written(folder: Path, *sets: bytes) -> list[int]:
    """A log; where its entries begin and end."""
    with Log(folder / "clicks-0", writable=True) as log:
        for each in sets:
            log.append(each)
    data = b"".join(sets)
    return [0, *MessageSet(data, shallow=True).next_offsets.tolist()]


def taken(folder: Path, out: Path, *, damage: Callable[[], object] = lambda: None, **options):
    """``damage`` comes once the broker has started, which cuts what is damaged at the end."""
    with Broker(folder, 0) as broker, open_source(brokers=f"0:{broker.host}:{broker.port}") as source:
        damage()
        return ingest.ingest(source, ["clicks"], out, layout=Layout("none"), **options)


def values(out: Path) -> list[bytes]:
    tables = [pq.read_table(path) for path in files_of(out)]
    rows = [row for table in tables for row in table.select(["offset", "index", "value"]).to_pylist()]
    return [row["value"] for row in sorted(rows, key=lambda row: (row["offset"], row["index"]))]


def expected(*sets: bytes) -> list[bytes]:
    return [message.value for each in sets for message in MessageSet(each)]


def test_one_segment_of_a_live_broker_is_read_by_many(runs, tmp_path):
    dice = random.Random(3)
    sets = [
        build_message_set([dice.randbytes(50) for _ in range(5)], "gzip" if n % 3 == 0 else "none") for n in range(400)
    ]
    boundaries = written(tmp_path / "b0", *sets)
    report = taken(tmp_path / "b0", tmp_path / "out")
    [ranges] = runs
    assert len(ranges) == 8 and {each.start for each in ranges} <= set(boundaries)
    assert max(each.size for each in ranges) < 2 * min(each.size for each in ranges)
    assert not report.incomplete and values(tmp_path / "out") == expected(*sets)
    assert taken(tmp_path / "b0", tmp_path / "out").messages == 0


def test_payloads_that_hold_messages_lead_astray_and_nothing_is_lost_or_twice(runs, tmp_path):
    inner = build_message_set([b"not a message of this log"] * 2000)
    sets = [
        build_message_set([b"%d" % n * 20 for n in range(500)]),
        build_message_set([inner]),
        build_message_set([b"end"]),
    ]
    boundaries = written(tmp_path / "b0", *sets)
    report = taken(tmp_path / "b0", tmp_path / "out")
    first, second = runs
    assert not {each.start for each in first} <= set(boundaries)  # else it shows nothing
    assert [(each.start, each.end) for each in second] == [(0, boundaries[-1])]
    assert not report.incomplete and report.messages == 502
    assert values(tmp_path / "out") == expected(*sets)
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 1


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_damage_among_the_pieces(runs, tmp_path, policy):
    """What a reading that goes on behind damage leaps to is no proof."""
    sets = [build_message_set([b"%05d" % n * 10]) for n in range(300)]
    boundaries = written(tmp_path / "b0", *sets)
    [segment] = (tmp_path / "b0" / "clicks-0").iterdir()
    data = bytearray(segment.read_bytes())
    at = boundaries[100]
    data[at : at + 4] = b"\xff" * 4  # a length that nobody believes: "skip" goes on at the range's end
    report = taken(tmp_path / "b0", tmp_path / "out", damage=lambda: segment.write_bytes(data), on_corrupt=policy)
    before = expected(*sets[:100])
    if policy == "stop":
        assert report.corrupt and report.partitions[0].end == at and len(runs) == 1
    else:
        assert [(bad.start, bad.end) for bad in report.partitions[0].corrupt] == [(at, boundaries[-1])]
        assert len(runs) == 2
    assert values(tmp_path / "out") == before


def test_archives_and_small_ranges_are_not_cut_here(tmp_path):
    written(tmp_path / "b0", *[build_message_set([b"x" * 100])] * 100)
    with open_source(logs=f"0:{tmp_path / 'b0'}") as source:
        whole = [Range("clicks", 0, 0, 0, 11000)]
        assert guess(source, whole, 8) == (whole, set())
    with Broker(tmp_path / "b0", 0) as broker, open_source(brokers=f"0:{broker.host}:{broker.port}") as source:
        assert guess(source, whole, 8) == (whole, set())


def test_where_the_next_entry_is():
    entries = build_message_set([b"one", b"two" * 50_000, b"three"])
    second = len(build_message_set([b"one"]))
    assert next_entry(entries) == 0
    assert next_entry(entries[1:]) == second - 1
    assert next_entry(entries[second + 1 :]) is None  # one alone is not enough
    assert next_entry(b"") is next_entry(b"\0" * 9) is next_entry(bytes(100_000)) is None
    dice = random.Random(1)
    assert next_entry(dice.randbytes(200_000)) is None
    noise = dice.randbytes(1000)
    assert next_entry(noise + build_message_set([b"a", b"b", b"c"])) == 1000
