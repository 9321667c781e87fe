"""Interleaved repeats of several works, the rows that compare them, and what the machine was like meanwhile."""

from __future__ import annotations

import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import peers
from kafka07c import _crc32, build_info

SET_BYTES = 1 << 20
HEADER_BYTES = 10

#: payload bytes; every row has a figure for each
SIZES = {"10 B": 10, "100 B": 100, "1 KB": 1024, "10 KB": 10240}

#: of the time of a quickest work, after which a slow one has a repeat only each so many rounds
_SLOW = 40

#: nanoseconds
_WARM_NS = 1_000_000

_LEAST_ROUNDS = 5
_MOST_ROUNDS = 401


@dataclass(frozen=True)
class Work:
    """Something to be timed. ``messages``: how many it deals with, for its cost is given for each.

    ``by_kernel``: it depends on the kernel of CRC-32. ``threads``: it has threads of its own, and all of them count.
    ``server``: the id of a process whose CPU time counts too: that of both ends of a connection on one core.
    ``warm``: each time it is first run untimed for a millisecond at least, so that its own bytes are in the cache, and
    then timed over as many runs.
    """

    call: Callable[[], object]
    messages: int
    by_kernel: bool = False
    threads: bool = False
    server: int | None = None
    warm: bool = True

    def cost(self) -> tuple[float, float]:
        """Nanoseconds for each message: of CPU, and by the clock on the wall"""
        clock = time.process_time_ns if self.threads else time.thread_time_ns
        calls = self._warmed() if self.warm else 1
        there = cpu_ns_of(self.server)
        wall, begin = time.perf_counter_ns(), clock()
        for _ in range(calls):
            self.call()
        end, wall_end = clock(), time.perf_counter_ns()
        cpu = end - begin + cpu_ns_of(self.server) - there
        return cpu / calls / self.messages, (wall_end - wall) / calls / self.messages

    def _warmed(self) -> int:
        """How many runs take as long as the caches and the branch predictor take to forget the work before"""
        begin, calls = time.perf_counter_ns(), 0
        while time.perf_counter_ns() - begin < _WARM_NS:
            self.call()
            calls += 1
        return calls


Works = dict[str, Work]


@dataclass
class Costs:
    """Nanoseconds a message of one work with one kernel, all repeats; ``wall`` by the clock on the wall."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)


def interleaved(works: Works, kernels: Iterable[str], seconds: float) -> dict[tuple[str, str], Costs]:
    """Costs by (work, kernel), in rounds: each work has its turn, then each again. Those without a kernel have ""."""
    turns = [(name, kernel) for name, work in works.items() for kernel in (kernels if work.by_kernel else [""])]
    costs = {turn: Costs() for turn in turns}
    spent: dict[tuple[str, str], float] = {}
    before, begin, number = _crc32.kernel(), time.perf_counter(), 0
    gc.collect()
    gc.disable()
    try:
        while number < _LEAST_ROUNDS or (number < _MOST_ROUNDS and time.perf_counter() - begin < seconds):
            quick = min(spent.values(), default=0.0)
            for turn in turns:
                every = max(1, int(spent[turn] / quick / _SLOW)) if turn in spent else 1
                if number >= _LEAST_ROUNDS and number % min(every, 16):
                    continue
                name, kernel = turn
                if kernel:
                    _crc32.select_kernel(kernel)
                started = time.perf_counter()
                cpu, wall = works[name].cost()
                spent[turn] = time.perf_counter() - started
                costs[turn].cpu.append(cpu)
                costs[turn].wall.append(wall)
            number += 1
    finally:
        gc.enable()
        _crc32.select_kernel(before)
    return costs


Limits = tuple[float | None, float | None, float | None, float | None]


@dataclass(frozen=True)
class Row:
    """``work`` against ``other``: the ratio of times, to be at most the limit; or of rates, to be at least that."""

    name: str
    work: str
    other: str
    rate: bool
    limits: Limits
    wall: bool = False  # by the clock on the wall, not by CPU time

    def limit(self, size: str) -> float | None:
        return self.limits[list(SIZES).index(size)]

    def ratio(self, ours: float, others: float) -> float:
        return others / ours if self.rate else ours / others

    def met(self, ratio: float, size: str) -> bool | None:
        limit = self.limit(size)
        if limit is None:
            return None
        return ratio >= limit if self.rate else ratio <= limit


@dataclass(frozen=True)
class Ratio:
    """A figure of the table: the ratio of medians, and of the quickest of each, which a busy machine moves less."""

    suite: str
    row: str
    size: str
    kernel: str
    ratio: float
    best: float
    limit: float | None
    rate: bool
    met: bool | None
    ours_ns: float
    other_ns: float
    repeats: int


def ratios(suite: str, rows: Iterable[Row], size: str, costs: dict[tuple[str, str], Costs]) -> list[Ratio]:
    """A ratio for each row whose two works are there, and for each kernel"""
    found = []
    best = _crc32.kernels()[0]
    for row in rows:
        kernels = {kernel for name, kernel in costs if name == row.work}
        for kernel in [each for each in (*_crc32.kernels(), "") if each in kernels]:
            ours = costs.get((row.work, kernel))
            others = costs.get((row.other, kernel)) or costs.get((row.other, ""))
            if not ours or not others:
                continue
            mine, theirs = (ours.wall, others.wall) if row.wall else (ours.cpu, others.cpu)
            middle = statistics.median(mine), statistics.median(theirs)
            ratio = row.ratio(*middle)
            met = row.met(ratio, size) if kernel in ("", best) else None  # the limits are for the best kernel
            found.append(
                Ratio(
                    suite, row.name, size, kernel, ratio, row.ratio(min(mine), min(theirs)), row.limit(size),
                    row.rate, met, *middle, min(len(mine), len(theirs)),
                )
            )  # fmt: skip
    return found


def cpu_ns_of(process: int | None) -> int:
    """What all threads of another process have run, in nanoseconds; of None, nothing. Linux tells"""
    if process is None:
        return 0
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{process}/task").glob("*/schedstat"))


# The machine


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine() -> dict[str, object]:
    """What figures go with: CPU, versions, load"""
    import numpy
    import pyarrow

    versions = {"numpy": numpy.__version__, "pyarrow": pyarrow.__version__} | {
        name: version
        for name in ("aiokafka", "kafka-python", "confluent-kafka", "cramjam", "isal")
        if (version := peers.version(name))
    }
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        "build": str(build_info()),
        "kernels": _crc32.kernels(),
        "versions": versions,
        "load": round(os.getloadavg()[0], 1),
    }


@contextmanager
def on_cpu(number: int) -> Iterator[None]:
    """This thread, and those that it starts, on one core; where the system knows no such thing, wherever they are"""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[number % len(allowed)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
