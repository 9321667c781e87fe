"""The recorded groups, again: the same members and partitions on a real ZooKeeper come to the same owners."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from kafka07c.consumer.config import ConsumerConfig
from kafka07c.consumer.coordinator import GroupMember
from kafka07c.subscription import Subscription
from kafka07c.testing import ZooKeeper
from kafka07c.zookeeper import connect
from kafka07c.zookeeper.groups import read_members, read_owners

pytestmark = pytest.mark.zookeeper

GOLDEN = Path(__file__).parent.parent / "golden07" / "zk"

RECORDED = [("2-two-consumers-static-and-whitelist", "golden"), ("4-blacklist-consumer", "golden-black")]


class Listener:
    """Takes what it is given."""

    def on_assigned(self, partitions, generation):
        pass

    on_revoked = on_assigned

    def on_lost(self, partitions):
        pass

    on_failed = on_lost

    def on_suspended(self):
        pass

    on_resumed = on_suspended


def recorded(dump: str, pattern: str) -> dict[str, str]:
    nodes = json.loads((GOLDEN / f"{dump}.json").read_text())
    matches = {node["path"]: re.fullmatch(pattern, node["path"]) for node in nodes}
    return {matches[node["path"]][1]: node["data"] for node in nodes if matches[node["path"]]}


@pytest.mark.parametrize(("dump", "group"), RECORDED)
def test_the_same_members_come_to_the_same_owners(dump, group):
    members = recorded(dump, rf"/consumers/{group}/ids/({group}_.+)")
    wanted = recorded(dump, rf"/consumers/{group}/owners/([^/]+/.+)")
    with ZooKeeper(tick_ms=200) as zookeeper:
        client = connect(zookeeper.address)
        for path, data in recorded(dump, "(/brokers/.+)").items():
            client.create(path, (data or "").encode(), makepath=True)
        joined = [
            GroupMember(
                zookeeper.address, group, Subscription.decode(data.encode()), config=ConsumerConfig(),
                listener=Listener(), consumer_id=member.removeprefix(f"{group}_"),
            )
            for member, data in members.items()
        ]  # fmt: skip
        try:
            for member in joined:
                member.start()
            owners, deadline = None, time.monotonic() + 60
            while owners != wanted and time.monotonic() < deadline:
                time.sleep(0.05)
                owners = {f"{tp.topic}/{tp.name}": owner.thread for tp, owner in read_owners(client, group).items()}
            assert owners == wanted
            assert read_members(client, group) == {member: data.encode() for member, data in members.items()}
        finally:
            for member in joined:
                member.close()
            client.stop()
            client.close()
