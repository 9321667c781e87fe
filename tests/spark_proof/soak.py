"""``make spark-proof``: five million rows through three queries side by side, with ten kills and a broker that bounces;
then memory over fifty batches; and a table.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from faults.soak import note, table

from kafka07c.testing import ZooKeeper
from spark_proof.memory import Growth, watch_memory
from spark_proof.messages import SIZE
from spark_proof.scenario import Outcome, Run, drawn_kills

_COLUMNS = (
    "rows", "found", "distinct", "repeats", "foreign", "digest", "java killed", "worker killed", "broker killed",
    "gave up", "in a batch", "seconds", "right",
)  # fmt: skip

_KINDS = ("parquet", "archive", "topic")


def main() -> int:
    """The command: 0 when everything is there that was sent, and memory is flat."""
    logging.basicConfig(level=logging.CRITICAL)  # what clients say of servers that are killed is no news
    parser = argparse.ArgumentParser(prog="make spark-proof")
    parser.add_argument("--seed", type=int, default=None, help="that of a run that is to be done again")
    parser.add_argument("--rows", type=int, default=5_000_000, help="that each query reads; 0: none")
    parser.add_argument("--kills", type=int, default=10, help="of Java and workers")
    parser.add_argument("--batches", type=int, default=50, help="for memory; 0: do without")
    parser.add_argument("--kinds", default=",".join(_KINDS))
    parser.add_argument("--keep", type=Path, default=Path("build/spark-proof"), help="where to put what went wrong")
    args = parser.parse_args()
    seed = time.time_ns() % 1_000_000 if args.seed is None else args.seed
    note(f"seed {seed}")
    rows, right = {}, True
    growth = None
    with ZooKeeper() as zookeeper:
        if args.rows:
            kills = [*drawn_kills(seed, args.kills), "broker"]
            run = Run(seed, args.rows, args.kinds.split(","), kills, max_bytes=max(1, args.rows * SIZE // 50))
            run.perform(zookeeper, args.keep / str(seed))
            rows = {outcome.kind: _figures(run, outcome) for outcome in run.outcomes}
            right = run.ok
        if args.batches:
            growth = watch_memory(zookeeper, args.batches, seed)
    print(table(rows, _COLUMNS))
    if growth is not None:
        print(growth.table())
        right &= growth.ok
    print(json.dumps({"seed": seed, "streams": rows, "memory": growth.as_dict() if growth else None}))
    return 0 if right else 1


def _figures(run: Run, outcome: Outcome) -> dict[str, Any]:
    found = outcome.found
    kinds = [killed.what for killed in run.killed]
    shown = found.digest_of_distinct if outcome.kind == "topic" else found.digest
    return {
        "rows": run.rows, "found": found.rows, "distinct": found.distinct, "repeats": found.repeats,
        "foreign": found.foreign, "digest": "same" if shown == outcome.sent.digest else "OTHER",
        "java killed": kinds.count("java"), "worker killed": kinds.count("worker"),
        "broker killed": kinds.count("broker"), "gave up": run.gave_up,
        "in a batch": sum(outcome.kind in each.under_way for each in run.killed),
        "seconds": round(run.seconds), "right": "yes" if outcome.ok else "NO",
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
