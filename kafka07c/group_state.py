"""A consumer group as ZooKeeper has it at one time: its members, who owns what, how far it is; and who should own what.

This looks on from outside, for tools: it takes no part in the group and watches nothing. The answers are read one
after the other, so a group that is just rebalancing may look as it never was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka07c.assignment import assign
from kafka07c.errors import GroupError
from kafka07c.names import TopicPartition
from kafka07c.positions import Position
from kafka07c.subscription import Subscription
from kafka07c.zookeeper import CONNECT_TIMEOUT, Access, Snapshot, read_snapshot, session
from kafka07c.zookeeper.groups import list_groups, read_members, read_offsets, read_owners

__all__ = ["GroupState", "Problem", "read_group", "read_groups"]


class Problem(NamedTuple):
    """A partition whose ``owner`` (a thread id, None for nobody) is not the thread that is ``expected``."""

    tp: TopicPartition
    owner: str | None
    expected: str | None
    reason: str


@dataclass(frozen=True)
class GroupState:
    """One group.

    ``members`` has the data of each member's node by member id, ``owners`` the thread id that owns each partition,
    ``offsets`` what was committed, ``cluster`` the brokers and topics at the same time. Partitions in ascending order.
    """

    name: str
    members: dict[str, bytes]
    owners: dict[TopicPartition, str]
    offsets: dict[TopicPartition, Position]
    cluster: Snapshot

    def subscriptions(self) -> dict[str, Subscription]:
        """What each member wants; GroupError, naming the member, when the node of one cannot be read."""
        subscriptions = {}
        for member, data in sorted(self.members.items()):
            try:
                subscriptions[member] = Subscription.decode(data)
            except ValueError as error:
                raise GroupError(f"member {member} of group {self.name!r}: {error}") from None
        return subscriptions

    def topics(self) -> list[str]:
        """The topics that the group has to do with: wanted by a member, owned, or with an offset."""
        known = {tp.topic for tp in (*self.owners, *self.offsets)}
        return sorted(known.union(self._threads()))

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions that brokers have of the topic at present, in ascending order."""
        counts = self.cluster.topics.get(topic, {})
        return [TopicPartition(topic, broker, number) for broker, count in counts.items() for number in range(count)]

    def expected_owners(self) -> dict[TopicPartition, str]:
        """The thread that each partition belongs to, as all members work it out."""
        expected: dict[TopicPartition, str] = {}
        for topic, threads in self._threads().items():
            by_name = {tp.name: tp for tp in self.partitions(topic)}
            for thread, names in assign(by_name, threads).items():
                expected.update((by_name[name], thread) for name in names)
        return dict(sorted(expected.items()))

    def problems(self) -> list[Problem]:
        """All partitions that are not owned as the algorithm says, in ascending order."""
        return sorted(self._problems())

    def _threads(self) -> dict[str, list[str]]:
        threads: dict[str, list[str]] = {}
        for member, subscription in self.subscriptions().items():
            for topic in self.cluster.topics:
                for number in range(subscription.threads_for(topic)):
                    threads.setdefault(topic, []).append(f"{member}-{number}")
        return threads

    def _problems(self) -> Iterator[Problem]:
        expected = self.expected_owners()
        members = {thread for threads in self._threads().values() for thread in threads}
        for tp in expected.keys() | self.owners.keys():
            owner, right = self.owners.get(tp), expected.get(tp)
            if owner == right:
                continue
            if owner is None:
                reason = "nobody owns it"
            elif owner not in members:
                reason = "its owner is no member of the group"
            elif right is None:
                reason = "no broker has it, or no member wants it"
            else:
                reason = "another thread should own it"
            yield Problem(tp, owner, right, reason)


def read_groups(zookeeper: str | Access, timeout: float = CONNECT_TIMEOUT) -> list[GroupState]:
    """All groups that there are, by name; ZooKeeperError when ZooKeeper cannot be asked."""
    with session(zookeeper, timeout) as client:
        cluster = read_snapshot(client, timeout)
        return [_read(client, name, cluster) for name in list_groups(client)]


def read_group(zookeeper: str | Access, name: str, timeout: float = CONNECT_TIMEOUT) -> GroupState | None:
    """The group of this name, None when there is none; ZooKeeperError when ZooKeeper cannot be asked."""
    with session(zookeeper, timeout) as client:
        if name not in list_groups(client):
            return None
        return _read(client, name, read_snapshot(client, timeout))


def _read(client: Any, name: str, cluster: Snapshot) -> GroupState:
    owners = read_owners(client, name)
    return GroupState(
        name,
        read_members(client, name),
        {tp: owners[tp].thread for tp in sorted(owners)},
        dict(sorted(read_offsets(client, name).items())),
        cluster,
    )
