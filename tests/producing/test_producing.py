"""Producing under faults, a round or two of each scenario; ``make soak-producer`` has the long version.

They run side by side, for most of the time is waiting.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from producing.scenarios import SCENARIOS, Run

from kafka07c.testing import ZooKeeper

pytestmark = pytest.mark.zookeeper

SEED = 7
ROUNDS = {"network": 3, "bouncing": 2}
AT_ONCE = 3


@pytest.fixture(scope="module")
def runs(request):
    """What comes of each scenario that was asked for."""
    names = [
        item.callspec.params["name"] for item in request.session.items
        if item.module is request.module and "runs" in item.fixturenames
    ]
    with ZooKeeper(tick_ms=200) as zookeeper, ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        yield {name: pool.submit(perform, name, zookeeper) for name in names}


def perform(name: str, zookeeper: ZooKeeper) -> Run:
    rounds = iter(range(ROUNDS.get(name, 1)))
    return Run(SCENARIOS[name], name).perform(zookeeper, lambda: next(rounds, None) is not None, seed=SEED)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_producing_under_faults(runs, name):
    verdict = runs[name].result().verdict
    assert verdict.ok, verdict.told()
    assert verdict.states["verified"] > 0
    assert verdict.states["written"] > 0
    if name == "calm":
        assert not verdict.lost and not verdict.duplicates and not verdict.resends
        assert verdict.handed == verdict.stored == sum(verdict.states[state] for state in ("verified", "written"))
    else:
        assert sum(verdict.faults.values()) > 0
