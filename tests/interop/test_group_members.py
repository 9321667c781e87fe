"""Our members and 0.7.2's console consumers in one group, in a ZooKeeper 3.3 that has no transactions."""

from __future__ import annotations

import signal
import subprocess
from contextlib import ExitStack

import pytest
from interop.scala07 import wait_until

from kafka07c.broker import Broker
from kafka07c.consumer.config import ConsumerConfig
from kafka07c.consumer.coordinator import GroupMember, State
from kafka07c.errors import CommitFailedError
from kafka07c.group_state import read_group
from kafka07c.names import TopicPartition
from kafka07c.positions import Position
from kafka07c.simple import SyncProducer
from kafka07c.subscription import Subscription
from kafka07c.zookeeper import session
from kafka07c.zookeeper.groups import GroupPaths, read_offsets
from kafka07c.zookeeper.members import GroupNodes

PARTITIONS = [TopicPartition("clicks", 0, number) for number in range(4)]
CLICKS = Subscription.topics({"clicks": 1})
CONFIG = ConsumerConfig.from_properties(zookeeper_session_ms=2000, zookeeper_connect_ms=10_000)


class Listener:
    """Keeps where each partition went on, and commits nothing by itself."""

    def __init__(self):
        self.began = {}

    def on_assigned(self, partitions, generation):
        self.began |= {tp: position for tp, (_thread, position) in partitions.items()}

    def on_revoked(self, partitions, can_commit):
        pass

    on_lost = on_failed = lambda self, argument: None
    on_suspended = on_resumed = lambda self: None


@pytest.fixture
def broker(tmp_path, zookeeper):
    """Our broker, with ten messages of 16 bytes in each partition."""
    properties = {"log.flush.interval": 1}
    with Broker(tmp_path / "ours", partitions=4, zookeeper=zookeeper, properties=properties) as broker:
        with SyncProducer(broker.host, broker.port) as producer:
            for tp in PARTITIONS:
                producer.send("clicks", tp.partition, [b"%06d" % n for n in range(10)])
        yield broker


@pytest.fixture
def join(zookeeper):
    with ExitStack() as stack:

        def join(consumer_id):
            listener = Listener()
            member = GroupMember(zookeeper, "g", CLICKS, config=CONFIG, listener=listener, consumer_id=consumer_id)
            member.listener = listener
            return stack.enter_context(member)

        yield join


@pytest.fixture
def console(jvm, zookeeper):
    """Starts console consumers in group g."""
    with ExitStack() as stack:

        def start(*arguments):
            return stack.enter_context(
                jvm.start(
                    "kafka.consumer.ConsoleConsumer", "--zookeeper", zookeeper, "--topic", "clicks", "--group", "g",
                    "--autocommit.interval.ms", 200, *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                )
            )  # fmt: skip

        yield start


def settled(zookeeper, members, jvm_members):
    """Wait until all are there and every partition is owned by whom the algorithm says."""

    def as_computed():
        group = read_group(zookeeper, "g")
        if group is None or len(group.members) != len(members) + jvm_members or group.problems():
            return False
        ours = {tp: member.member_id for member in members for tp in member.owned}
        return len(group.owners) == len(PARTITIONS) and all(
            (owner.rpartition("-")[0] == ours[tp]) if tp in ours else True for tp, owner in group.owners.items()
        ) and all(member.state is State.BALANCED for member in members)  # fmt: skip

    wait_until(as_computed, f"{len(members)} members of ours and {jvm_members} of the JVM's to share the partitions")


def test_a_mixed_group(broker, zookeeper, join, console):
    first = join("a")
    settled(zookeeper, [first], 0)
    first.commit(dict.fromkeys(PARTITIONS, Position(48)))

    consoles = [console()]  # its id begins with the host's name
    settled(zookeeper, [first], 1)
    assert len(first.owned) == 2
    second = join("b")
    settled(zookeeper, [first, second], 1)
    consoles.append(console())
    settled(zookeeper, [first, second], 2)
    assert [len(member.owned) for member in (first, second)] == [1, 1]

    theirs = set(PARTITIONS) - first.owned.keys() - second.owned.keys()
    with session(zookeeper) as client:
        wait_until(
            lambda: all(read_offsets(client, "g")[tp] == Position(160) for tp in theirs),
            "the console consumers to commit the end, from where we were",
        )

    consoles.pop().stop()  # it leaves
    settled(zookeeper, [first, second], 1)
    consoles.pop().stop(signal.SIGKILL)  # it does not
    settled(zookeeper, [first, second], 0)
    began = first.listener.began | second.listener.began
    assert {began[tp] for tp in theirs} == {Position(160)}

    consoles.append(console())
    settled(zookeeper, [first, second], 1)
    first.close()
    settled(zookeeper, [second], 1)
    second.close()
    settled(zookeeper, [], 1)


def test_a_console_consumer_from_the_beginning_deletes_the_group_and_we_come_back(broker, zookeeper, join, console):
    member = join("a")
    settled(zookeeper, [member], 0)
    member.commit(dict.fromkeys(PARTITIONS, Position(48)))
    path = GroupPaths("g").member("g_a")
    with session(zookeeper) as client:
        made = client.get(path)[1].czxid
        console("--from-beginning")
        wait_until(lambda: (stat := client.exists(path)) and stat.czxid != made, "our id to be put back")
    settled(zookeeper, [member], 1)
    owned = list(member.owned)
    try:
        member.commit(dict.fromkeys(owned, Position(160)))
    except CommitFailedError as error:  # of those that stayed ours: their offsets were deleted, or committed since
        assert not error.lost and Position(48) not in error.moved.values()
    else:
        assert Position(48) not in [member.listener.began[tp] for tp in owned]


def test_without_transactions_who_lost_a_partition_cannot_commit_it(zookeeper):
    made = []

    def own(member_id):
        made.append(GroupNodes(zookeeper, "g", member_id, session_timeout=5.0, connect_timeout=10.0,
                               on_state=lambda state: None, on_change=lambda path: None))  # fmt: skip
        assert made[-1].register(CLICKS.encode()) is None
        assert made[-1].claim({PARTITIONS[0]: f"{member_id}-0"}) == {}
        return made[-1], made[-1].take_over([PARTITIONS[0]])

    zombie, position = own("g_a")
    assert position == {PARTITIONS[0]: None}
    zombie.commit({PARTITIONS[0]: Position(48)})
    with session(zookeeper) as client:
        client.delete(GroupPaths("g").owner(PARTITIONS[0]))  # its session lives, and it knows nothing
        successor, position = own("g_b")
        assert position == {PARTITIONS[0]: Position(48)}
        assert zombie.commit({PARTITIONS[0]: Position(16)}).refused == {PARTITIONS[0]}
        assert read_offsets(client, "g") == position
        successor.commit({PARTITIONS[0]: Position(64, 1)})
        assert read_offsets(client, "g") == {PARTITIONS[0]: Position(64, 1)}
    for nodes in made:
        nodes.close()
