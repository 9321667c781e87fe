"""Tasks that come again and again, one after another in one thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

__all__ = ["Ticker"]

logger = logging.getLogger("kafka07c.broker")


class Ticker:
    """Runs tasks in turn from :meth:`start` to :meth:`stop`. A task that fails is logged and comes again."""

    def __init__(self, name: str):
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._stopping = threading.Event()
        self._tasks: list[tuple[Callable[[], object], float]] = []
        self._due: list[float] = []

    def every(self, seconds: float, task: Callable[[], object], *, first: float | None = None) -> None:
        """Run ``task`` every ``seconds``, the first time after ``first`` (None: after ``seconds``). Before start."""
        self._tasks.append((task, seconds))
        self._due.append(time.monotonic() + (seconds if first is None else first))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when a task that is being run has ended."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(max(0.0, min(self._due) - time.monotonic())):
            for number, (task, seconds) in enumerate(self._tasks):
                now = time.monotonic()
                if now < self._due[number]:
                    continue
                # from now: what a slow task or a sleeping machine has missed is not made up for
                self._due[number] = now + seconds
                try:
                    task()
                except Exception:
                    logger.exception("%s failed", getattr(task, "__name__", "a task"))
