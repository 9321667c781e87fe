"""What the benchmarks of Spark stand on: rows of 139 bytes in a broker's log, the broker as a process, and turns."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy

from kafka07c import build_message_set
from kafka07c.segments import Log
from kafka07c.testing import start_process

SIZE = 139

#: where there is no disk in the way, if there is such a place
_SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None

_PER_SET = 7_000


def payloads(seed: int, count: int) -> numpy.ndarray:
    """Letters, so that compression has something to do: about half of their size is left."""
    return numpy.random.default_rng(seed).integers(ord("a"), ord("a") + 16, (count, SIZE), numpy.uint8)


class Rows:
    """``topics`` (name -> partitions) of ``rows`` each, in ``logs``; and a broker process that serves them.

    A context manager; everything is gone at its end.
    """

    def __init__(self, rows: int, topics: Mapping[str, int]):
        self.rows = rows
        self.folder = Path(tempfile.mkdtemp(prefix="kafka07c-bench-", dir=_SCRATCH))
        self.logs = self.folder / "logs"
        self._topics = topics
        self._broker: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        try:
            for topic, partitions in self._topics.items():
                for partition in range(partitions):
                    self._fill(f"{topic}-{partition}", self.rows // partitions)
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._broker is not None:
            self._broker.kill()
            self._broker.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _fill(self, name: str, rows: int) -> None:
        sets = [build_message_set(payloads(seed, _PER_SET)) for seed in range(4)]
        with Log(self.logs / name, writable=True, segment_bytes=(1 << 31) - 1) as log:
            for number in range(rows // _PER_SET):
                log.append(sets[number % len(sets)])
            if rest := rows % _PER_SET:
                log.append(build_message_set(payloads(9, rest)))

    def _start(self) -> None:
        command = [sys.executable, "-m", "kafka07c", "broker", "--id", "0", "--log-dir", str(self.logs)]
        command += ["--port", "0", "--partitions", str(max(self._topics.values()))]
        self._broker = start_process(command, stdout=subprocess.PIPE)
        assert self._broker.stdout is not None
        listening = self._broker.stdout.readline().decode()  # "… host:port" once it listens
        self._port = int(listening.rpartition(":")[2])

    @property
    def live(self) -> dict[str, str]:
        """The source's options for the broker."""
        return {"kafka07.brokers": f"0:127.0.0.1:{self._port}"}

    @property
    def archived(self) -> dict[str, str]:
        """And for the same logs on disk."""
        return {"kafka07.logs": f"0:{self.logs}"}

    def out(self) -> Path:
        """A folder that is not there yet, beside the logs."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        return self.folder / "out"


def in_turns(works: Mapping[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """Seconds of each, in the order a, b, c, a, b, c; a turn before the first is not counted."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(turns + 1):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            if turn:
                times[name].append(time.perf_counter() - began)
    return times


@dataclass(frozen=True)
class Ratio:
    """How many times as fast ``ours`` is as ``other``, to be at least ``goal``.

    ``cores``: those that ours had where the other had one; what counts is the rate of one.
    """

    name: str
    ours: str
    other: str
    goal: float
    cores: int = 1

    def of(self, times: Mapping[str, list[float]]) -> float:
        """From the medians."""
        return statistics.median(times[self.other]) / statistics.median(times[self.ours]) / self.cores


def told(ratios: list[Ratio], times: Mapping[str, list[float]], rows: Mapping[str, int], as_json: bool) -> None:
    """Prints rates, ratios and whether the goals are met."""
    rates = {name: rows[name] / statistics.median(found) / 1e6 for name, found in times.items()}
    found = {ratio.name: ratio.of(times) for ratio in ratios}
    if as_json:
        goals = {ratio.name: ratio.goal for ratio in ratios}
        print(json.dumps({"million rows/s": rates, "seconds": times, "ratios": found, "goals": goals}))
        return
    for name, rate in rates.items():
        print(f"{name:44}{rate:8.2f} million rows/s")
    print()
    for ratio in ratios:
        value = found[ratio.name]
        print(f"{ratio.name:62}{value:8.2f}  >= {ratio.goal:g}  {'met' if value >= ratio.goal else 'MISSED'}")


def parser(text: str | None, rows: int) -> argparse.ArgumentParser:
    """What all of them take."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rows", type=int, default=rows)
    made.add_argument("--turns", type=int, default=5, help="runs of each, of which the median counts")
    made.add_argument("--json", action="store_true", help="one JSON object")
    return made
