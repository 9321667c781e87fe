"""The processes below a driver: its Java, the one that plans, and the workers that run tasks."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    command: str

    @property
    def rss(self) -> int:
        """Bytes of memory that it has; 0 when it has ended."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> bool:
        """``kill -9``; False when it had ended before."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


def below(pid: int) -> list[Process]:
    """All processes that descend from ``pid``, parents first."""
    children: dict[int, list[Process]] = {}
    for process in _all():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [pid]
    while waiting:
        mine = children.get(waiting.pop(), [])
        found += mine
        waiting += [each.pid for each in mine]
    return found


def _all() -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            yield Process(int(folder.name), int(stat.rpartition(")")[2].split()[1]), command)


def java(pid: int) -> Process | None:
    """The JVM of the driver ``pid``."""
    return next((each for each in below(pid) if "SparkSubmit" in each.command and "java" in each.command), None)


def workers(pid: int) -> list[Process]:
    """The Python processes that run tasks: the children of the daemon that Spark's Java has for them."""
    found = below(pid)
    daemons = {each.pid for each in found if "pyspark.daemon pyspark.worker" in each.command}
    return [each for each in found if each.parent in daemons]


def planners(pid: int) -> list[Process]:
    """Those that look sources up, plan their batches, or commit them, and the daemons above these and the workers."""
    running = {each.pid for each in workers(pid)}
    return [each for each in below(pid) if "pyspark.daemon" in each.command and each.pid not in running]
