"""Calling the application back from a thread of its own, so that nothing of ours waits longer for it than it may."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

__all__ = ["Callbacks"]


class Callbacks:
    """Calls functions one after the other, in the order given, from one thread, which is started by the first.

    What a function raises is logged, SystemExit too: it ends nothing. After :meth:`close` what was asked for before is
    still called; no more is taken.
    """

    def __init__(self, log: logging.Logger | logging.LoggerAdapter[logging.Logger]):
        self._log = log
        self._calls: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], threading.Event] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def call(self, function: Callable[..., Any], *arguments: Any, wait: float = 0.0) -> bool:
        """Call it soon; whether it has returned (or raised) within ``wait`` seconds. Any thread may ask for it."""
        if self._closed:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kafka07c-callbacks", daemon=True)
            self._thread.start()
        done = threading.Event()
        self._calls.put((function, arguments, done))
        # a callback that makes us call another one cannot wait for itself
        return done.wait(wait) if wait and threading.current_thread() is not self._thread else False

    def close(self) -> None:
        """Take no more calls, and end the thread after those that are waiting; twice does no harm."""
        self._closed = True
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            function, arguments, done = call
            try:
                function(*arguments)
            except BaseException:  # whoever waits for the calls behind it would wait for ever
                self._log.exception("a callback failed")
            finally:
                done.set()
