"""The codec's speed, by pytest-benchmark; the answer is asserted each time.

    python -m pytest bench --benchmark-enable --benchmark-only

Groups hold a scan beside a memcpy of the same bytes. ``ratio`` in a scan's extra info is that of interleaved repeats
(see ratios.py), which is the figure to quote; without ``--benchmark-enable`` everything runs once, as a test.
"""

from __future__ import annotations

import pytest
from bench.ratios import PAYLOADS, Copier, check, make_sample, measure, scan

from kafka07c import _crc32, crc32


@pytest.fixture(scope="module", params=PAYLOADS)
def payload(request):
    return request.param


@pytest.fixture(scope="module")
def sample(payload):
    return make_sample(payload)


@pytest.fixture(params=_crc32.kernels())
def kernel(request):
    before = _crc32.kernel()
    _crc32.select_kernel(request.param)
    yield request.param
    _crc32.select_kernel(before)


def test_scan(benchmark, payload, sample, kernel):
    benchmark.group = f"scan + CRC + columns, {payload}"
    check(sample, benchmark(scan, sample.data))
    benchmark.extra_info["messages"] = len(sample.offsets)
    if benchmark.enabled:
        benchmark.extra_info["ratio"] = round(measure(payload).ratio, 2)


def test_memcpy(benchmark, payload, sample):
    benchmark.group = f"scan + CRC + columns, {payload}"
    copy = Copier(sample.data)
    benchmark(copy)
    assert copy.target.raw[: len(sample.data)] == sample.data


def test_crc32_of_a_megabyte(benchmark, kernel):
    benchmark.group = "crc32 of a megabyte"
    assert benchmark(crc32, bytes(1 << 20)) == 0xA738EA1C  # zlib.crc32 of a mebibyte of zeros
