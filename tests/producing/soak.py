"""``make soak-producer``: all scenarios side by side for minutes or faults, seeded, and one table of the outcome."""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from faults import soak
from producing.scenarios import SCENARIOS, Run

from kafka07c.testing import ZooKeeper

_TICK_MS = 200

#: messages each second of each sender, at most
_RATE = 150.0

#: seconds from one scenario's start to the next one's, so that they do not all start their processes at once
_APART = 4.0


class Soak(soak.Soak):
    """One run of all."""

    columns = (
        "rounds", "faults", "records", "verified", "written", "failed", "unknown", "open", "lost", "lost unverified",
        "resends", "duplicates", "back after", "its median", "violations",
    )  # fmt: skip

    def perform(self) -> None:
        with ZooKeeper(tick_ms=_TICK_MS) as zookeeper, ThreadPoolExecutor(len(SCENARIOS)) as pool:
            started = [
                pool.submit(self._perform, name, zookeeper, _APART * place) for place, name in enumerate(SCENARIOS)
            ]
            for future in as_completed(started):
                self._tell_end(future.result())

    def _perform(self, name: str, zookeeper: ZooKeeper, delay: float) -> Run:
        time.sleep(delay)
        run = Run(SCENARIOS[name], name)
        self.runs.append(run)
        return run.perform(zookeeper, self.more, seed=self.seed, long=True, keep=self._keep, rate=_RATE)

    def figures(self) -> dict[str, dict]:
        figures = {name: _figures([run for run in self.runs if run.name == name]) for name in SCENARIOS}
        return figures | {"all": _figures(self.runs)}


def _figures(runs: list[Run]) -> dict[str, Any]:
    verdicts = [run.verdict for run in runs]
    kinds = sum((verdict.faults for verdict in verdicts), Counter())
    states = sum((verdict.states for verdict in verdicts), Counter())
    waits = [seconds for run in runs for seconds in run.stage.recovering]
    lost_verified = sum(len(verdict.violations.get("lost", ())) for verdict in verdicts)
    return {
        "rounds": sum(run.rounds for run in runs),
        "faults": sum(kinds.values()),
        "records": sum(verdict.handed for verdict in verdicts),
        **{state: states[state] for state in ("verified", "written", "failed", "unknown")},
        "open": sum(verdict.open for verdict in verdicts),
        "lost": lost_verified,
        "lost unverified": sum(verdict.lost for verdict in verdicts) - lost_verified,
        "resends": sum(verdict.resends for verdict in verdicts),
        "duplicates": sum(verdict.duplicates for verdict in verdicts),
        "back after": round(max(waits, default=0.0), 2),
        "its median": round(statistics.median(waits), 2) if waits else 0.0,
        "violations": sum(len(found) for verdict in verdicts for found in verdict.violations.values()),
        "kinds": dict(kinds.most_common()),
    }


if __name__ == "__main__":
    sys.exit(soak.main(Soak, "make soak-producer", Path("build/soak-producer")))
