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
        self._starting = threading.Lock()
        self._closed = False

    @property
    def is_mine(self) -> bool:
        """Whether this is called from a callback."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Start the thread now, if it is not; RuntimeError when the interpreter is about to end and takes no more."""
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="kafka07c-callbacks", daemon=True)
                thread.start()
                self._thread = thread

    def call(self, function: Callable[..., Any], *arguments: Any, wait: float = 0.0) -> bool:
        """Call it soon; whether it has returned (or raised) within ``wait`` seconds. Any thread may ask for it."""
        if self._closed:
            return False
        if self._thread is None:
            self.start()
        done = threading.Event()
        self._calls.put((function, arguments, done))
        # a callback that makes us call another one cannot wait for itself
        return done.wait(wait) if wait and not self.is_mine else False

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
