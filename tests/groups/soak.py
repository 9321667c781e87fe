"""``make soak``: all scenarios side by side for many minutes or faults, seeded, and one table of what came of it."""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

from groups.scenarios import SCENARIOS, Run

from kafka07c.testing import ZooKeeper

_TICK_MS = 200
_SESSION = 3.0

#: how many groups go through each scenario at the same time; "many" has the machine for itself, once
_GROUPS = {
    "churn": 2, "expiring": 2, "stopping": 2, "cut-off": 2, "electing": 1,
    "network": 1, "brokers": 1, "growing": 1, "crowding": 1,
}  # fmt: skip

#: seconds from one group's start to the next one's, so that they do not all start their processes at once
_APART = 3.0

_COLUMNS = (
    "rounds", "faults", "records", "deliveries", "lost", "duplicates", "rewinds", "overlap", "new owner",
    "its median", "violations",
)  # fmt: skip


class Soak:
    """One run of all."""

    def __init__(self, seed: int, minutes: float, faults: int | None, keep: Path):
        self.seed = seed
        self.runs: list[Run] = []
        self._minutes = minutes
        self._faults = faults
        self._keep = keep
        self._began = time.monotonic()
        self._last_told = 0.0
        self._lock = threading.Lock()

    def more(self) -> bool:
        """Whether there is to be another round."""
        self._tell()
        if self._faults is not None:
            return self.faults < self._faults
        return time.monotonic() - self._began < self._minutes * 60

    @property
    def faults(self) -> int:
        return sum(run.stage.faults for run in self.runs if run.stage is not None)

    def _tell(self) -> None:
        with self._lock:
            if time.monotonic() - self._last_told < 30:
                return
            self._last_told = time.monotonic()
        note(f"{(time.monotonic() - self._began) / 60:.1f} minutes, {self.faults} faults")

    def perform(self) -> None:
        note(f"seed {self.seed}")
        self._settle_many()
        self._began = time.monotonic()
        with ExitStack() as stack:
            servers = {nodes: stack.enter_context(ZooKeeper(nodes, tick_ms=_TICK_MS)) for nodes in (1, 3)}
            names = [(name, number) for name, groups in _GROUPS.items() for number in range(groups)]
            with ThreadPoolExecutor(len(names)) as pool:
                started = [
                    pool.submit(self._perform, *each, servers, _APART * place) for place, each in enumerate(names)
                ]
                for future in as_completed(started):
                    self._tell_end(future.result())

    def _settle_many(self) -> None:
        note("1000 partitions, 50 members")
        rounds = iter([True])
        with ZooKeeper(tick_ms=_TICK_MS) as zookeeper:
            run = self._made("many", 0)
            run.perform(zookeeper, lambda: next(rounds, False), seed=self.seed, keep=self._keep, session=10.0)
        note("settled after " + ", ".join(f"{seconds:.1f} s" for seconds in run.stage.settling))
        self._tell_end(run)

    def _perform(self, name: str, number: int, servers: dict[int, ZooKeeper], delay: float) -> Run:
        time.sleep(delay)
        run = self._made(name, number)
        options = {"session": _SESSION} if "session" not in run.scenario.options else {}
        return run.perform(servers[run.scenario.nodes], self.more, seed=self.seed, keep=self._keep, **options)

    def _made(self, name: str, number: int) -> Run:
        run = Run(SCENARIOS[name], f"{name}-{number}")
        self.runs.append(run)
        return run

    def _tell_end(self, run: Run) -> None:
        note(f"{run.name}: {run.rounds} rounds")
        if not run.verdict.ok:
            note(f"{run.name} broke rules; history and logs are in {self._keep / run.name}\n{run.verdict.told()}")

    def figures(self) -> dict[str, dict]:
        """By scenario, and all together."""
        figures = {name: _figures([run for run in self.runs if run.scenario.name == name]) for name in SCENARIOS}
        return figures | {"all": _figures(self.runs)}


def _figures(runs: list[Run]) -> dict:
    verdicts = [run.verdict for run in runs]
    takeovers = [seconds for verdict in verdicts for seconds in verdict.takeovers]
    kinds = sum((verdict.faults for verdict in verdicts), start=type(verdicts[0].faults)())
    sessions = {run.stage.session for run in runs}
    return {
        "groups": len(runs),
        "sessions": sorted(sessions),
        "rounds": sum(run.rounds for run in runs),
        "faults": sum(kinds.values()),
        "records": sum(verdict.records for verdict in verdicts),
        "deliveries": sum(verdict.deliveries for verdict in verdicts),
        "lost": sum(verdict.lost for verdict in verdicts),
        "duplicates": sum(verdict.duplicates for verdict in verdicts),
        "rewinds": sum(verdict.rewinds for verdict in verdicts),
        "overlap": round(max(verdict.overlap for verdict in verdicts), 3),
        "new owner": round(max(takeovers, default=0.0), 3),
        "its median": round(statistics.median(takeovers), 3) if takeovers else 0.0,
        "violations": sum(len(found) for verdict in verdicts for found in verdict.violations.values()),
        "kinds": dict(kinds.most_common()),
        "settling": [round(seconds, 2) for run in runs for seconds in run.stage.settling][-3:],
    }


def table(figures: dict[str, dict]) -> str:
    """The figures, one scenario a line."""
    rows = [("scenario", *_COLUMNS)]
    rows += [(name, *(str(found[column]) for column in _COLUMNS)) for name, found in figures.items()]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join(cell.rjust(width) if n else cell.ljust(width) for n, (cell, width) in enumerate(zip(row, widths)))
        for row in rows
    )


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    logging.basicConfig(level=logging.CRITICAL)  # what clients say of servers that are killed is no news
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--seed", type=int, default=None, help="that of a run that is to be done again")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--faults", type=int, default=None, help="go on until there are so many, however long it takes")
    parser.add_argument("--keep", type=Path, default=Path("build/soak"), help="where to put what broke a rule")
    args = parser.parse_args()
    began = time.monotonic()
    seed = time.time_ns() % 1_000_000 if args.seed is None else args.seed
    soak = Soak(seed, args.minutes, args.faults, args.keep / str(seed))
    soak.perform()
    figures = soak.figures()
    print(table(figures))
    print("faults: " + ", ".join(f"{count} x {kind}" for kind, count in figures["all"]["kinds"].items()))
    print(json.dumps({"seed": seed, "minutes": round((time.monotonic() - began) / 60, 1), **figures}))
    return 1 if figures["all"]["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
