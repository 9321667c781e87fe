"""The ZooKeeper that the short scenarios share; each has a chroot of its own."""

from __future__ import annotations

import pytest

from kafka07c.testing import ZooKeeper


@pytest.fixture(scope="module")
def zookeeper():
    with ZooKeeper(tick_ms=200) as zookeeper:
        yield zookeeper


@pytest.fixture(scope="module")
def ensemble():
    with ZooKeeper(nodes=3, tick_ms=200) as zookeeper:
        yield zookeeper
