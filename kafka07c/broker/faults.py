"""Scripted faults: what a test can make the broker do wrong, request by request.

Each call of :class:`Faults` puts one fault at the end of a list. A request takes the first fault of each kind in the
list that matches it when it comes in, so faults scripted one after another come one after another, and none hits a
request that has been answered already. (A produce request has no answer: to be sure that it has come in before a fault
is scripted, ask something else on its connection.) Everything here may be called from any thread.

``api`` is "produce", "fetch", "multifetch", "multiproduce" or "offsets"; None matches every request. ``topic`` narrows
a fault to requests that name the topic. ``times`` is how many requests (for ``fail_next``: parts of requests) it hits.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from kafka07c.errors import error_for_code

__all__ = ["APIS", "Faults", "Script", "Stall"]

APIS = ("produce", "fetch", "multifetch", "multiproduce", "offsets")


class Stall:
    """A pause before a request is carried out, as :meth:`Faults.stall_next` makes it."""

    def __init__(self, seconds: float | None):
        self._seconds = seconds
        self._entered = threading.Event()
        self._released = threading.Event()

    def wait_entered(self, timeout: float | None = None) -> bool:
        """Wait until a request is being held; False if none came within ``timeout`` seconds."""
        return self._entered.wait(timeout)

    def release(self) -> None:
        """Let the held request, and those that this fault would still hold, go on at once."""
        self._released.set()

    def hold(self) -> None:
        """Hold the calling thread until released, or for as long as was asked."""
        self._entered.set()
        self._released.wait(self._seconds)


@dataclass(eq=False)
class _Fault:
    kind: str  # fail, cut, stall, close before, close after
    api: str | None
    topic: str | None
    times: int
    what: Any

    def matches(self, api: str, topics: Collection[str]) -> bool:
        return self.api in (None, api) and (self.topic is None or self.topic in topics)


@dataclass(frozen=True)
class Script:
    """What is to happen to one request, whatever becomes of its work."""

    close_before: bool
    stall: Stall | None
    cut_at_byte: int | None
    close_after: bool


class Faults:
    """The list of faults that are still to happen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[_Fault] = []
        self._stalls: list[Stall] = []

    def fail_next(
        self, api: str | None, error: int | BaseException | type[BaseException], *, times: int = 1,
        topic: str | None = None,
    ) -> None:
        """Fail the work on the next part of a request, in place of doing it.

        A number is an error code: fetch, multifetch (that part) and offsets answer with it; produce and multiproduce,
        which have no answer, close the connection. An exception (or its class) is raised where the work would be done,
        and has the consequences that it has in 0.7.2: a fetch answers with the code of a BrokerError and with -1 for
        any other, MessageTooLargeError drops a produced set silently, all else closes the connection.
        """
        if isinstance(error, int) and error == 0:
            raise ValueError("error code 0 is no failure")
        self._add("fail", api, topic, times, error)

    def cut_next(self, api: str | None, at_byte: int, *, times: int = 1, topic: str | None = None) -> None:
        """Carry the next request out, send the first ``at_byte`` bytes of the answer (its size field counts too), then
        close the connection. 0 sends nothing; at or past the answer's end, it is sent whole before the close."""
        if at_byte < 0:
            raise ValueError(f"at_byte must not be negative, but is {at_byte}")
        self._add("cut", api, topic, times, at_byte)

    def stall_next(
        self, api: str | None, seconds: float | None = None, *, times: int = 1, topic: str | None = None
    ) -> Stall:
        """Hold the next request before it is carried out, for ``seconds`` or (None) until the Stall that is given back
        is released. Other connections go on. Stopping the broker releases all."""
        stall = Stall(seconds)
        self._add("stall", api, topic, times, stall)
        return stall

    def close_next(
        self, api: str | None, *, when: str = "before", times: int = 1, topic: str | None = None
    ) -> None:
        """Close the connection at the next request: "before" it is carried out, or "after" it is carried out and
        answered. (Carried out but not answered is ``cut_next(api, 0)``.)"""
        if when not in ("before", "after"):
            raise ValueError(f'when must be "before" or "after", but is {when!r}')
        self._add(f"close {when}", api, topic, times, None)

    def clear(self) -> None:
        """Forget all faults that have not happened, and release all stalls."""
        with self._lock:
            self._faults.clear()
            stalls, self._stalls = self._stalls, []
        for stall in stalls:
            stall.release()

    @property
    def pending(self) -> int:
        """How many faults have still to happen, each counted as often as its ``times`` has left."""
        with self._lock:
            return sum(fault.times for fault in self._faults)

    def take(self, api: str, topics: Collection[str]) -> Script:
        """What has been scripted for a request that has come in, used up. For the broker's own use."""
        with self._lock:
            stall, cut = self._take("stall", api, topics), self._take("cut", api, topics)
            return Script(
                close_before=self._take("close before", api, topics) is not None,
                stall=None if stall is None else stall.what,
                cut_at_byte=None if cut is None else cut.what,
                close_after=self._take("close after", api, topics) is not None,
            )

    def maybe_fail(self, api: str, topic: str) -> None:
        """Raise what ``fail_next`` has scripted for this part of a request, if anything. For the broker's own use."""
        with self._lock:
            fault = self._take("fail", api, (topic,))
        if fault is None:
            return
        if isinstance(fault.what, int):
            raise error_for_code(fault.what, f"a scripted fault of {api}", topic=topic)
        raise fault.what

    def _take(self, kind: str, api: str, topics: Collection[str]) -> _Fault | None:
        for fault in self._faults:
            if fault.kind == kind and fault.matches(api, topics):
                fault.times -= 1
                if not fault.times:
                    self._faults.remove(fault)
                return fault
        return None

    def _add(self, kind: str, api: str | None, topic: str | None, times: int, what: Any) -> None:
        if api is not None and api not in APIS:
            raise ValueError(f"api must be one of {', '.join(APIS)} or None, but is {api!r}")
        if times < 1:
            raise ValueError(f"times must be at least 1, but is {times}")
        with self._lock:
            self._faults.append(_Fault(kind, api, topic, times, what))
            if isinstance(what, Stall):
                self._stalls.append(what)
