"""Cutting ranges of live brokers inside their segments, where entries seem to begin.

Brokers tell where segments begin and no more. In between a look at the bytes finds a place where an entry seems to
begin; it may be wrong, for a payload may itself hold valid messages. So a guess serves only here, where files count by
the manifest alone: it counts once the task to its left, walking from a proved place, has met an entry that ends just there.
Otherwise what was read around it is dropped, and read once more, unsplit.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from typing import Protocol

import numpy as np

from kafka07c import config
from kafka07c._views import MessageSet
from kafka07c.errors import KafkaError
from kafka07c.ranges import Range, Source

__all__ = ["Outcome", "guess", "next_entry", "unproved"]

_log = logging.getLogger(__name__)

#: a task has this much to read at least
_WORTH_A_TASK = 16 * 1024 * 1024

#: bytes that are looked at for a place where an entry begins
_GLIMPSE = 1024 * 1024

#: so many places are tried, each with so many bytes behind it
_TRIES = 2000
_TRIED_BYTES = 64 * 1024

#: size field, magic, attributes or CRC
_SHORTEST_ENTRY = 9


class Outcome(Protocol):
    """What there has to be known of a range that was read; see RangeResult."""

    @property
    def lands_on(self) -> int | None:
        """Where the last entry that was walked over ends; None: the range was not walked to its end."""


def guess(source: Source, ranges: list[Range], wanted: int | None = None) -> tuple[list[Range], set[Range]]:
    """``ranges`` cut further, so that there is work for ``wanted`` tasks (None: for all cores), and those pieces
    of them that begin at a guess. Of sources whose ranges are cut by walking nothing is cut here.
    """
    wanted = wanted or os.cpu_count() or 1
    if source.walks_cheaply or len(ranges) >= wanted:
        return ranges, set()
    size = max(sum(each.size for each in ranges) / wanted, _WORTH_A_TASK)
    pieces: list[Range] = []
    guessed: set[Range] = set()
    for each in ranges:
        parts = each.cut_at(_places(source, each, round(each.size / size)))
        pieces += parts
        guessed |= set(parts[1:])
    return pieces, guessed


def _places(source: Source, wanted: Range, parts: int) -> list[int]:
    places = []
    for number in range(1, parts):
        offset = wanted.start + wanted.size * number // parts
        try:
            found = next_entry(source.glimpse(wanted.tp, offset, _GLIMPSE))
        except KafkaError as error:  # whoever reads will meet it too, and say it
            _log.info("%s: no look at offset %d: %s", wanted.tp, offset, error)
            break
        if found is not None:
            places.append(offset + found)
    return places


def next_entry(data: bytes | memoryview) -> int | None:
    """The first place in ``data`` where two good entries follow one another; None if there is none."""
    view = np.frombuffer(data, np.uint8)
    if len(view) < _SHORTEST_ENTRY:
        return None
    sizes = np.zeros(len(view) - 4, np.int64)
    for number in range(4):
        sizes = sizes << 8 | view[number : len(view) - 4 + number]
    plausible = (view[4:] <= 1) & (sizes >= _SHORTEST_ENTRY - 4) & (sizes <= config.MAX_FETCH_MESSAGE_BYTES)
    held = memoryview(data)
    for place in np.flatnonzero(plausible)[:_TRIES].tolist():
        following = place + 4 + int(sizes[place])
        if following >= len(sizes):
            continue
        end = max(place + _TRIED_BYTES, following + 4 + int(sizes[following]))
        found = MessageSet(held[place:end], shallow=True)
        if found.error is None and len(found) > 1:
            return int(place)
    return None


def unproved(ranges: list[Range], guessed: Collection[Range], outcomes: Mapping[Range, Outcome]) -> list[list[Range]]:
    """Of the ranges of a partition, in order, those that have to be read again as one, each time for a wrong guess."""
    groups: list[list[Range]] = []
    for each in ranges:
        if each in guessed:
            groups[-1].append(each)
        else:
            groups.append([each])
    return [group for group in groups if not _holds(group, outcomes)]


def _holds(group: list[Range], outcomes: Mapping[Range, Outcome]) -> bool:
    for left, right in zip(group, group[1:], strict=False):
        landed = outcomes[left].lands_on
        if landed is None:
            return True  # it ends in there, for a reason of its own: what is behind it does not count
        if landed != right.start:
            return False
    return True
