"""``make soak``: all scenarios side by side for many minutes or faults, seeded, and one table of what came of it."""

from __future__ import annotations

import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

from faults import soak
from faults.soak import note
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


class Soak(soak.Soak):
    """One run of all."""

    columns = (
        "rounds", "faults", "records", "deliveries", "lost", "duplicates", "rewinds", "overlap", "new owner",
        "its median", "violations",
    )  # fmt: skip

    def perform(self) -> None:
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


if __name__ == "__main__":
    sys.exit(soak.main(Soak, "make soak", Path("build/soak")))
