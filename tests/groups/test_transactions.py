"""The observer against a real ZooKeeper: each change is there, with its session, also those that no watch would see."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from faults.transactions import read_changes
from groups.observer import observe

from kafka07c.testing import ZooKeeper
from kafka07c.zookeeper import connect

pytestmark = pytest.mark.zookeeper

OWNER = "/consumers/g-1/owners/a topic/0-1"
OFFSET = "/consumers/g-1/offsets/a topic/0-1"


def data_folders(zookeeper: ZooKeeper) -> list[Path]:
    return [node.folder for node in zookeeper._nodes]


def test_owners_offsets_and_sessions():
    with ZooKeeper() as zookeeper:
        owner = connect(f"{zookeeper.address}/chroot", make_chroot=True)
        operator = connect(f"{zookeeper.address}/chroot")
        before = time.monotonic()
        owner.create(OWNER, b"g-1_m-1-0", ephemeral=True, makepath=True)
        owner.create(OFFSET, b"0", makepath=True)
        for offset in range(10, 100, 10):
            owner.set(OFFSET, str(offset).encode())
        in_one = owner.transaction()
        in_one.set_data(OFFSET, b"100")
        in_one.delete(OWNER)
        in_one.create(OWNER, b"g-1_m-1-0", ephemeral=True)
        in_one.commit()
        failing = owner.transaction()
        failing.set_data(OFFSET, b"1")
        failing.check(OWNER, 77)
        failing.commit()
        operator.delete(OFFSET)
        sessions = owner.client_id[0], operator.client_id[0]
        for client in (owner, operator):
            client.stop()
            client.close()
        events = observe(read_changes(data_folders(zookeeper)), "g-1", "/chroot")
        others = observe(read_changes(data_folders(zookeeper)), "g", "/chroot")
    mine, theirs = ([event for event in events if event.fields.get("session") == session] for session in sessions)
    whats = ["owned", *11 * ["committed"], "disowned", "owned", "disowned", "session ended"]
    assert [event.what for event in mine] == whats
    assert [event["offset"] for event in mine if event.what == "committed"] == list(range(0, 101, 10))
    assert mine[0].fields == {"partition": "a topic 0-1", "member": "m-1", "session": sessions[0]}
    assert [event["offset"] for event in theirs if event.what == "committed"] == [None]
    assert before - 0.01 <= mine[0].at <= time.monotonic() + 0.01
    assert not [event for event in others if event.what != "session ended"]


def test_an_ensembles_logs_are_one_history():
    with ZooKeeper(nodes=3, tick_ms=200) as zookeeper:
        client = connect(zookeeper.address, 30)
        client.create(OFFSET, b"0", makepath=True)
        for round_number in range(1, 3):
            leader = zookeeper.leader
            zookeeper.kill(leader)
            client.retry(client.set, OFFSET, str(round_number).encode())
            zookeeper.restart(leader)
        client.stop()
        client.close()
        events = observe(read_changes(data_folders(zookeeper)), "g-1")
    # a retried set may have been done twice: the first answer was lost with the leader
    assert sorted({event["offset"] for event in events if event.what == "committed"}) == [0, 1, 2]
