"""Scan + CRC + columns of 1-MB message sets, held against a memcpy of the same bytes in the same run.

    make bench, or python -m bench.ratios     the best kernel of this CPU
    python -m bench.ratios --kernel all       every kernel of this CPU
    python -m bench.ratios --json             one JSON object a row

Absolute times move with the neighbours' load; the ratio of medians of interleaved repeats holds. The bytes are hot, the
copy goes to memory that has been written before. The scan makes a ``MessageSet`` and takes its columns as numpy arrays,
so the fixed price of a set in Python is in it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy

from kafka07c import MessageSet, _crc32, build_message_set

SET_BYTES = 1 << 20
REPEATS = 301
HEADER_BYTES = 10

#: name of a row -> payload bytes, from and to
PAYLOADS = {"10 B": (10, 10), "100 B": (100, 100), "1 KB": (1024, 1024), "10 KB": (10240, 10240), "0-200 B": (0, 200)}

#: the most that a scan may take, in copies of the same bytes
LIMITS = {"100 B": 4.0, "1 KB": 1.5}


@dataclass(frozen=True)
class Sample:
    """A message set and what a scan of it has to find."""

    data: bytes
    offsets: numpy.ndarray
    lengths: numpy.ndarray


@dataclass(frozen=True)
class Row:
    payload: str
    kernel: str
    messages: int
    copy_us: float
    scan_us: float
    ns_per_message: float
    gb_per_s: float
    ratio: float


def make_sample(payload: str) -> Sample:
    """A plain set of about a megabyte, the same in every run."""
    shortest, longest = PAYLOADS[payload]
    rng = random.Random(payload)
    lengths, size = [], 0
    while size < SET_BYTES:
        lengths.append(rng.randint(shortest, longest))
        size += HEADER_BYTES + lengths[-1]
    ends = numpy.cumsum(numpy.array(lengths) + HEADER_BYTES)
    data = build_message_set([rng.randbytes(length) for length in lengths])
    return Sample(data, ends - (numpy.array(lengths) + HEADER_BYTES), numpy.array(lengths, "int32"))


def scan(data: bytes) -> tuple[numpy.ndarray, numpy.ndarray]:
    messages = MessageSet(data)
    return messages.offsets, messages.lengths


def check(sample: Sample, columns: tuple[numpy.ndarray, numpy.ndarray]) -> None:
    offsets, lengths = columns
    if not (numpy.array_equal(offsets, sample.offsets) and numpy.array_equal(lengths, sample.lengths)):
        raise AssertionError("the scan did not find the messages that are there")


class Copier:
    """Called, it copies ``data`` over the same memory each time."""

    def __init__(self, data: bytes):
        self.data = data
        self.target = ctypes.create_string_buffer(len(data))

    def __call__(self) -> None:
        ctypes.memmove(self.target, self.data, len(self.data))


def measure(payload: str) -> Row:
    """Medians, in the order copy, scan, copy, scan; each timed run follows one of its own kind that is not timed."""
    sample = make_sample(payload)
    check(sample, scan(sample.data))
    works: tuple[Callable[[], object], ...] = (Copier(sample.data), lambda: scan(sample.data))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPEATS):
        for work, taken in zip(works, times, strict=True):
            work()
            begin = time.perf_counter()
            work()
            taken.append(time.perf_counter() - begin)
    copy, scanned = map(statistics.median, times)
    return Row(
        payload=payload,
        kernel=_crc32.kernel(),
        messages=len(sample.offsets),
        copy_us=copy * 1e6,
        scan_us=scanned * 1e6,
        ns_per_message=scanned * 1e9 / len(sample.offsets),
        gb_per_s=len(sample.data) / scanned / 1e9,
        ratio=scanned / copy,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Scan + CRC + columns against a memcpy of the same megabyte.")
    parser.add_argument("--kernel", default="auto", help="auto, all, or one of " + ", ".join(_crc32.kernels()))
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    options = parser.parse_args()
    if not options.json:
        titles = ("memcpy us", 11), ("scan us", 9), ("ns/message", 12), ("GB/s", 7), ("ratio", 8)
        print(f"{'kernel':14}{'payload':>9}" + "".join(f"{title:>{width}}" for title, width in titles) + "  limit")
    for kernel in _crc32.kernels() if options.kernel == "all" else [options.kernel]:
        _crc32.select_kernel(kernel)
        for payload in PAYLOADS:
            row = measure(payload)
            if options.json:
                print(json.dumps(asdict(row)))
            else:
                print(
                    f"{row.kernel:14}{row.payload:>9}{row.copy_us:11.1f}{row.scan_us:9.1f}{row.ns_per_message:12.2f}"
                    f"{row.gb_per_s:7.1f}{row.ratio:7.2f}x  {LIMITS.get(payload, '')}"
                )


if __name__ == "__main__":
    main()
