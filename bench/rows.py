"""Rows of the table of ratios that need the codec alone: decoding, encoding, Arrow, wrappers.

    python -m bench.rows                       the best kernel of this CPU
    python -m bench.rows --kernel slice16 --repeats 21

Each row is the ratio of two medians of interleaved repeats in this run, over sets of a megabyte, hot in the cache; in
brackets the ratio of the best of each, which a busy machine moves less. CPU time of the thread is measured. Every run that
is timed follows one of its own kind that is not; all answers are compared before.
"""

from __future__ import annotations

import argparse
import random
import statistics
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy
import pyarrow

from bench.ratios import SET_BYTES, Copier
from kafka07c import MessageSet, _crc32, build_message_set

SIZES = {"10 B": 10, "100 B": 100, "1 KB": 1024, "10 KB": 10240}
SLOW = 4  # plain Python has a repeat only each so many rounds

Work = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """``work`` against ``other``: the ratio of times, to be at most the limit; or of rates, to be at least it."""

    name: str
    work: str
    other: str
    rate: bool
    limits: tuple[float | None, float | None, float | None, float | None]


ROWS = (
    Row("scan + CRC + columns, time : memcpy", "columns", "memcpy", False, (10.5, 3.1, 1.15, 1.0)),
    Row("the same, rate : plain Python", "columns", "plain decode", True, (100, 50, 20, 12)),
    Row("iterate Message, rate : plain Python", "iterate", "plain decode", True, (None,) * 4),
    Row("Arrow binary_view, time : scan", "view", "scan", False, (2, 1.5, 1.3, 1.3)),
    Row("Arrow binary, time : scan", "binary", "scan", False, (3, 2.5, 3, 3)),
    Row("gzip wrapper to columns, rate : zlib", "gzip", "zlib", True, (None, 1.8, 1.8, None)),
    Row("encode from columns, time : memcpy", "encode columns", "memcpy", False, (None, 5, 2.2, 2)),
    Row("encode from a list, rate : plain Python", "encode list", "plain encode", True, (5, 8, 5, 4)),
)


def plain_decode(data: bytes) -> list[tuple[int, int, memoryview]]:
    view, found, start = memoryview(data), [], 0
    unpack, crc32 = struct.Struct(">iBBI").unpack_from, zlib.crc32
    while start < len(data):
        size, _, _, crc = unpack(data, start)
        end = start + 4 + size
        payload = view[start + 10 : end]
        if crc32(payload) != crc:
            raise ValueError(start)
        found.append((start, end, payload))
        start = end
    return found


def plain_encode(payloads: list[bytes]) -> bytes:
    pack, crc32 = struct.Struct(">iBBI").pack, zlib.crc32
    parts: list[bytes] = []
    for payload in payloads:
        parts += (pack(len(payload) + 6, 1, 0, crc32(payload)), payload)
    return b"".join(parts)


def through_zlib(wrapper: bytes) -> numpy.ndarray:
    return MessageSet(zlib.decompress(memoryview(wrapper)[10:], 31)).lengths


def columns(data: bytes) -> numpy.ndarray:
    messages = MessageSet(data)
    assert messages.offsets is not None
    return messages.lengths


def iterate(data: bytes) -> None:
    for _ in MessageSet(data):
        pass


def words(rng: random.Random, size: int) -> bytes:
    """Text of a kind that compresses to about a third"""
    return b" ".join(b"%x" % rng.randrange(1 << 12) for _ in range(size // 3 + 1))[:size]


def works(size: int) -> dict[str, Work]:
    rng = random.Random(size)
    count = SET_BYTES // (size + 10)
    payloads = [rng.randbytes(size) for _ in range(count)]
    data = build_message_set(payloads)
    column = pyarrow.array(payloads, pyarrow.binary())
    wrapper = build_message_set([words(rng, size) for _ in range(count)], "gzip")
    assert data == plain_encode(payloads) == build_message_set(column)
    assert [payload for _, _, payload in plain_decode(data)] == payloads == MessageSet(data).payloads()
    assert (columns(wrapper) == through_zlib(wrapper)).all()
    batch = pyarrow.record_batch(MessageSet(data))
    assert batch.column("value").equals(column)
    assert pyarrow.record_batch(MessageSet(data).binary_view()).column("value").cast(pyarrow.binary()).equals(column)
    return {
        "memcpy": Copier(data),
        "scan": lambda: MessageSet(data),
        "columns": lambda: columns(data),
        "iterate": lambda: iterate(data),
        "view": lambda: pyarrow.record_batch(MessageSet(data).binary_view()),
        "binary": lambda: pyarrow.record_batch(MessageSet(data)),
        "gzip": lambda: columns(wrapper),
        "zlib": lambda: through_zlib(wrapper),
        "encode columns": lambda: build_message_set(column),
        "encode list": lambda: build_message_set(payloads),
        "plain decode": lambda: plain_decode(data),
        "plain encode": lambda: plain_encode(payloads),
    }


def measure(size: int, repeats: int) -> dict[str, list[int]]:
    """Nanoseconds of CPU time, in the order a, b, c, a, b, c."""
    todo = works(size)
    times: dict[str, list[int]] = {name: [] for name in todo}
    for turn in range(repeats):
        for name, work in todo.items():
            if turn % SLOW and name.startswith("plain"):
                continue
            work()
            begin = time.thread_time_ns()
            work()
            times[name].append(time.thread_time_ns() - begin)
    return times


def cell(row: Row, times: dict[str, list[int]], limit: float | None) -> str:
    ours, others = times[row.work], times[row.other]
    ratios = [of(others) / of(ours) if row.rate else of(ours) / of(others) for of in (statistics.median, min)]
    bound = "" if limit is None else f" {'>=' if row.rate else '<='} {limit:g}"
    met = limit is None or (ratios[0] >= limit if row.rate else ratios[0] <= limit)
    return f"{ratios[0]:.2f} ({ratios[1]:.2f}){bound}{'' if met else ' MISSED'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="auto", help="auto, or one of " + ", ".join(_crc32.kernels()))
    parser.add_argument("--repeats", type=int, default=61)
    options = parser.parse_args()
    _crc32.select_kernel(options.kernel)
    times = [measure(size, options.repeats) for size in SIZES.values()]
    print(f"{_crc32.kernel():42}" + "".join(f"{name:>30}" for name in SIZES))
    for row in ROWS:
        print(f"{row.name:42}" + "".join(f"{cell(row, t, m):>30}" for t, m in zip(times, row.limits, strict=True)))


if __name__ == "__main__":
    main()
