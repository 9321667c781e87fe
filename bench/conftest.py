"""pytest-benchmark over the works of the suites: ``python -m pytest bench --benchmark-enable --benchmark-only``.

Absolute times, for each work and size; KAFKA07C_KERNEL names another kernel than the best. The ratios that are quoted
come from interleaved repeats: ``python -m bench``. Without ``--benchmark-enable`` everything runs once, as a test.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from bench.__main__ import SUITES
from bench.measuring import SIZES, Works
from bench.suites import Context


def suite_tests(name: str) -> tuple[Callable[..., object], Callable[..., object]]:
    """The fixture that opens a suite for one size after the other, and the test of each of its works"""
    suite = SUITES[name]

    @pytest.fixture(scope="module", params=suite.sizes)
    def opened(request: pytest.FixtureRequest) -> Iterator[tuple[str, Works, Context]]:
        context = Context(quick=True, classpath=os.environ.get("KAFKA_CLASSPATH", ""))
        with suite.works(SIZES[request.param], context) as works:
            yield request.param, works, context

    @pytest.mark.parametrize("work", suite.names)
    def test_work(benchmark: object, opened: tuple[str, Works, Context], work: str) -> None:
        size, works, context = opened
        if work not in works:
            pytest.skip(context.missing.get(work, "not with payloads of this size"))
        benchmark.group = f"{name}, {size}"  # type: ignore[attr-defined]
        benchmark.extra_info["messages"] = works[work].messages  # type: ignore[attr-defined]
        benchmark(works[work].call)  # type: ignore[operator]

    return opened, test_work
