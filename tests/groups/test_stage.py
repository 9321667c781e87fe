"""The stage's tricks, tested: that they do what the scenarios count on."""

from __future__ import annotations

import queue

import pytest
from groups.stage import end_session, session_password

from kafka07c.testing import ZooKeeper
from kafka07c.zookeeper import connect

pytestmark = pytest.mark.zookeeper


def test_a_session_is_ended_behind_its_clients_back():
    states = queue.SimpleQueue()
    with ZooKeeper(tick_ms=200) as zookeeper:
        client = connect(zookeeper.address, session_timeout=10.0)
        watcher = connect(zookeeper.address)
        session, password = client.client_id
        assert session_password(session) == password
        client.create("/ours", ephemeral=True)
        client.add_listener(states.put)
        while watcher.exists("/ours"):  # the client may be faster, and keep it
            end_session(zookeeper.address, session)
        while states.get(timeout=30) != "LOST":
            pass
        for each in (client, watcher):
            each.stop()
            each.close()
