"""Groups under faults, a round or two of each scenario; ``make soak`` has the long version.

They run side by side, for most of the time is waiting for sessions to end. How long a partition waits for a new owner
is measured by ``make soak`` alone: here another test may have the machine.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from groups.scenarios import SCENARIOS, Run

from kafka07c.testing import ZooKeeper

pytestmark = pytest.mark.zookeeper

SEED = 7
ROUNDS = {"network": 6}
OPTIONS = {"many": {"partitions": 200, "session": 4.0}}
AT_ONCE = 4


@pytest.fixture(scope="module")
def runs(request):
    """What comes of each scenario that was asked for."""
    names = [
        item.callspec.params["name"] for item in request.session.items
        if item.module is request.module and "runs" in item.fixturenames
    ]
    with ExitStack() as stack:
        needed = {SCENARIOS[name].nodes for name in names}
        servers = {nodes: stack.enter_context(ZooKeeper(nodes, tick_ms=200)) for nodes in needed}
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        yield {name: pool.submit(perform, name, servers[SCENARIOS[name].nodes]) for name in names}


def perform(name: str, zookeeper: ZooKeeper) -> Run:
    rounds = iter(range(ROUNDS.get(name, 1)))
    run = Run(SCENARIOS[name], name)
    return run.perform(
        zookeeper, lambda: next(rounds, None) is not None, seed=SEED, new_owner=60.0, **OPTIONS.get(name, {})
    )


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_group_under_faults(runs, name):
    run = runs[name].result()
    assert run.verdict.ok, run.verdict.told()
    assert run.verdict.records > 0
    assert run.verdict.commits > 0
    assert sum(run.verdict.faults.values()) > 0
