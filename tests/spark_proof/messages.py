"""The messages of a proof: each carries its number, and every byte of it follows from that. And what became of them.

A payload is SIZE bytes: the number in twelve digits, and letters that a generator makes of the number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SIZE = 139
_DIGITS = 12
_FILLER = SIZE - _DIGITS
_WORDS = -(-_FILLER // 8)
_POWERS = 10 ** np.arange(_DIGITS - 1, -1, -1, dtype=np.int64)
_ROW_WORDS = -(-SIZE // 8)

#: rows looked at in one go
_STEP = 50_000


def payloads(first: int, count: int) -> np.ndarray:
    """``count`` payloads from that number on: a row of SIZE bytes each."""
    return payloads_of(np.arange(first, first + count, dtype=np.int64))


def payloads_of(numbers: np.ndarray) -> np.ndarray:
    """The payloads that carry these numbers."""
    rows = np.empty((len(numbers), SIZE), np.uint8)
    rows[:, :_DIGITS] = (numbers[:, None] // _POWERS) % 10 + ord("0")
    seeds = numbers.astype(np.uint64)[:, None] * np.uint64(_WORDS) + np.arange(_WORDS, dtype=np.uint64)
    filler = _mixed(seeds).view(np.uint8)[:, :_FILLER]
    rows[:, _DIGITS:] = (filler & 15) + ord("a")
    return rows


def digest(rows: np.ndarray) -> int:
    """A number of 64 bits that all bytes of all rows go into, and their order does not."""
    padded = np.zeros((len(rows), _ROW_WORDS * 8), np.uint8)
    padded[:, : rows.shape[1]] = rows
    words = padded.view("<u8")
    places = _mixed(np.arange(_ROW_WORDS, dtype=np.uint64)) | np.uint64(1)
    return int(_mixed((words * places).sum(axis=1, dtype=np.uint64)).sum(dtype=np.uint64))


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """splitmix64 of each."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


@dataclass(frozen=True)
class Tally:
    """What there is of what was sent: ``rows`` of it, ``distinct`` numbers, digests of all rows and of one row of each.

    ``foreign``: rows that are no payload that was ever sent, by as little as a bit; they are in ``rows`` alone.
    """

    rows: int
    distinct: int
    digest: int
    digest_of_distinct: int
    foreign: int = 0

    @property
    def repeats(self) -> int:
        return self.rows - self.distinct - self.foreign


def tally_sent(count: int) -> Tally:
    """Of the numbers from 0 on, each once."""
    digests = (digest(payloads(first, min(_STEP, count - first))) for first in range(0, count, _STEP))
    whole = sum(digests) % 2**64
    return Tally(count, count, whole, whole)


def tally(columns: Iterable[pa.Array], count: int) -> Tally:
    """Of columns of binary that should hold the numbers from 0 up to ``count``."""
    seen = np.zeros(count, bool)
    rows = foreign = whole = once = 0
    for column in columns:
        for start in range(0, len(column), _STEP):
            part = column.slice(start, _STEP)
            rows += len(part)
            found = _rows(part)
            numbers = (found[:, :_DIGITS].astype(np.int64) - ord("0")) @ _POWERS
            known = (numbers >= 0) & (numbers < count)
            known[known] = (found[known] == payloads_of(numbers[known])).all(axis=1)
            foreign += len(part) - int(known.sum())
            found, numbers = found[known], numbers[known]
            whole += digest(found)
            new = np.unique(numbers, return_index=True)[1]
            new = new[~seen[numbers[new]]]
            seen[numbers[new]] = True
            once += digest(found[new])
    return Tally(rows, int(seen.sum()), whole % 2**64, once % 2**64, foreign)


def _rows(column: pa.Array) -> np.ndarray:
    """The values of SIZE bytes, a row each; others are left out, and so count as foreign."""
    lengths = pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    if not (lengths == SIZE).all():
        column = column.filter(pa.array(lengths == SIZE))
    _, offsets, data = column.buffers()
    begin = int(np.frombuffer(offsets, np.int32)[column.offset]) if len(column) else 0
    return np.frombuffer(data or b"", np.uint8)[begin : begin + len(column) * SIZE].reshape(len(column), SIZE)
