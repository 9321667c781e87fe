"""SIGINT and SIGTERM for commands that end by them: noted first, so that what is under way can come to its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Self

__all__ = ["StopSignal"]


class StopSignal:
    """Whether SIGINT or SIGTERM has come; a second one is a KeyboardInterrupt. A context manager, in the main thread.

    ``on_first`` is called by the first one, in the signal handler: it may do no more than set and wake. ``said`` is
    written to stderr then.
    """

    _SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self, on_first: Callable[[], object] | None = None, said: str | None = None):
        self._on_first = on_first
        self._said = said
        self._arrived = False

    def is_set(self) -> bool:
        """Whether the first one has come."""
        return self._arrived

    def __enter__(self) -> Self:
        self._before = [signal.signal(number, self._handle) for number in self._SIGNALS]
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in zip(self._SIGNALS, self._before, strict=True):
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._arrived:
            raise KeyboardInterrupt
        self._arrived = True
        if self._said is not None:
            try:
                os.write(2, f"{self._said}\n".encode())  # sys.stderr may be in the middle of a line of ours
            except OSError:
                pass  # nobody reads it
        if self._on_first is not None:
            self._on_first()
