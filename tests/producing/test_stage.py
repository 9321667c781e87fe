"""The observer, tested: that it sees each going of a broker, and nothing else."""

from __future__ import annotations

import pytest
from faults.stage import BrokerStage
from faults.transactions import read_changes
from producing.stage import gone

from kafka07c.testing import ZooKeeper

pytestmark = pytest.mark.zookeeper


def test_the_observer_sees_brokers_go():
    with ZooKeeper(tick_ms=200) as zookeeper, BrokerStage(zookeeper, "going", seed=1, session=2.0) as stage:

        def seen():
            changes = read_changes(node.folder for node in zookeeper._nodes)
            return [event["target"] for event in gone(changes, "/going")]

        first, second = stage.brokers
        assert seen() == []
        first.terminate()
        assert seen() == ["broker 0"]
        first.start()
        second.kill()
        stage.wait_for_end_of(second)
        assert seen() == ["broker 0", "broker 1"]
        second.start()
        assert seen() == ["broker 0", "broker 1"]
        assert gone(read_changes(node.folder for node in zookeeper._nodes), "/elsewhere") == []
