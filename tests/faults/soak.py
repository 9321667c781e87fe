"""A long run of scenarios side by side, seeded, and one table of what came of it."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class Soak:
    """For so many ``minutes``, or until there were so many ``faults``; ``keep``: where to put what broke a rule.

    ``columns``: those of the figures that go into the table. Subclasses say what there is to perform, and the figures.
    """

    columns: tuple[str, ...] = ()

    def __init__(self, seed: int, minutes: float, faults: int | None, keep: Path):
        self.seed = seed
        self.runs: list[Any] = []
        self._minutes = minutes
        self._faults = faults
        self._keep = keep
        self._began = time.monotonic()
        self._last_told = 0.0
        self._lock = threading.Lock()

    def perform(self) -> None:
        """All of it."""
        raise NotImplementedError

    def figures(self) -> dict[str, dict[str, Any]]:
        """By scenario, and all together; ``violations`` and ``kinds`` (of faults) among them."""
        raise NotImplementedError

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

    def _tell_end(self, run: Any) -> None:
        note(f"{run.name}: {run.rounds} rounds")
        if not run.verdict.ok:
            note(f"{run.name} broke rules; history and logs are in {self._keep / run.name}\n{run.verdict.told()}")


def table(figures: Mapping[str, Mapping[str, Any]], columns: Iterable[str]) -> str:
    """The figures, one scenario a line."""
    rows = [("scenario", *columns)]
    rows += [(name, *(str(found[column]) for column in columns)) for name, found in figures.items()]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join(cell.rjust(width) if n else cell.ljust(width) for n, (cell, width) in enumerate(zip(row, widths)))
        for row in rows
    )


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(kind: type[Soak], prog: str, keep: Path) -> int:
    """The command: 0 when no rule was broken."""
    logging.basicConfig(level=logging.CRITICAL)  # what clients say of servers that are killed is no news
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("--seed", type=int, default=None, help="that of a run that is to be done again")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--faults", type=int, default=None, help="go on until there are so many, however long it takes")
    parser.add_argument("--keep", type=Path, default=keep, help="where to put what broke a rule")
    args = parser.parse_args()
    began = time.monotonic()
    seed = time.time_ns() % 1_000_000 if args.seed is None else args.seed
    soak = kind(seed, args.minutes, args.faults, args.keep / str(seed))
    note(f"seed {seed}")
    soak.perform()
    figures = soak.figures()
    print(table(figures, soak.columns))
    print("faults: " + ", ".join(f"{count} x {kind}" for kind, count in figures["all"]["kinds"].items()))
    print(json.dumps({"seed": seed, "minutes": round((time.monotonic() - began) / 60, 1), **figures}))
    return 1 if figures["all"]["violations"] else 0
