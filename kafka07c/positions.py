"""How far a consumer is in a partition."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Position"]


class Position(NamedTuple):
    """Where to go on in a partition: fetch from ``offset``, skip the first ``index`` messages of that entry.

    ``offset`` is a byte position in the log at which a stored entry starts (or the log ends): 0.7's commits hold
    this number and nothing else. ``index`` counts messages of that one entry that were handled already; it is above
    0 only inside a compressed wrapper.
    """

    offset: int
    index: int = 0
