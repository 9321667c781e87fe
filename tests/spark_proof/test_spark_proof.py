"""Streams are killed with ``kill -9`` and lose nothing: a short run of what ``make spark-proof`` does for long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from spark_proof.messages import SIZE, payloads, tally, tally_sent
from spark_proof.scenario import Run

from kafka07c.testing import ZooKeeper

pytestmark = pytest.mark.spark


def column(rows: np.ndarray) -> pa.Array:
    return pa.array([row.tobytes() for row in rows], pa.binary())


def test_a_tally_finds_what_is_lost_repeated_or_changed():
    sent, rows = tally_sent(1000), payloads(0, 1000)
    assert tally([column(rows[500:]), column(rows[:500])], 1000) == sent
    assert tally([column(rows[::-1])], 1000) == sent
    lost = tally([column(rows[1:])], 1000)
    assert (lost.rows, lost.distinct) == (999, 999) and lost.digest_of_distinct != sent.digest_of_distinct
    repeated = tally([column(rows), column(rows[7:9]), column(rows[7:8])], 1000)
    assert (repeated.rows, repeated.distinct, repeated.repeats) == (1003, 1000, 3)
    assert repeated.digest_of_distinct == sent.digest_of_distinct and repeated.digest != sent.digest
    rows[3, SIZE - 1] ^= 1
    changed = tally([column(rows), pa.array([b"short", None], pa.binary())], 1000)
    assert (changed.rows, changed.distinct, changed.foreign) == (1002, 999, 3)


@pytest.mark.timeout(900)  # a driver may give up where the machine is very busy, and another is started
def test_two_kills_and_everything_is_there(tmp_path):
    with ZooKeeper() as zookeeper:
        run = Run(
            seed=1, rows=100_000, kinds=("parquet", "archive", "topic"), kills=("java", "worker"), max_bytes=1 << 20
        )
        run.perform(zookeeper, Path(tmp_path, "kept"))
    assert [outcome for outcome in run.outcomes if not outcome.ok] == []
    assert len(run.killed) == 2
