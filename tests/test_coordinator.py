"""Members of a group against the real ZooKeeper: sharing, sessions lost, nodes deleted, zombies, JVM-like members."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient

from kafka07c import metrics as figures
from kafka07c.assignment import assign
from kafka07c.consumer import coordinator
from kafka07c.consumer.config import ConsumerConfig
from kafka07c.consumer.coordinator import TRANSITIONS, Event, GroupMember, State
from kafka07c.errors import CommitFailedError, GroupError, ZooKeeperError
from kafka07c.metrics import Metrics
from kafka07c.names import TopicPartition
from kafka07c.positions import Position
from kafka07c.subscription import Subscription
from kafka07c.testing import ZooKeeper, start_process
from kafka07c.zookeeper import connect, parse_hosts
from kafka07c.zookeeper.client import disconnect
from kafka07c.zookeeper.groups import GroupPaths, read_members, read_owners
from kafka07c.zookeeper.members import GroupNodes

pytestmark = pytest.mark.zookeeper

PATHS = GroupPaths("g")
CLICKS = Subscription.topics({"clicks": 1})


@pytest.fixture(autouse=True)
def no_audit(monkeypatch):
    """What is noticed is noticed by watches, unless a test is about the audit."""
    monkeypatch.setattr(coordinator, "_AUDIT_SECONDS", 1000.0)


def add_topic(client, topic, **partitions):
    """``add_topic(client, "clicks", b0=4, b1=2)``: so many partitions on each broker."""
    for broker, number in partitions.items():
        client.create(f"/brokers/topics/{topic}/{broker[1:]}", str(number).encode(), makepath=True)


def tp(name, topic="clicks"):
    return TopicPartition(topic, *map(int, name.split("-")))


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


class Log(list):
    """A listener that keeps ``(what, arguments…)``, and checks that it is told of nothing twice."""

    def __init__(self):
        super().__init__()
        self.partitions = set()

    def on_assigned(self, partitions, generation):
        assert not self.partitions & partitions.keys()
        self.partitions |= partitions.keys()
        self.append(("assigned", partitions, generation))

    def on_revoked(self, partitions, can_commit):
        assert self.partitions >= partitions
        self.partitions -= partitions
        self.append(("revoked", partitions, can_commit))

    def on_lost(self, partitions):
        assert self.partitions >= partitions
        self.partitions -= partitions
        self.append(("lost", partitions))

    def on_suspended(self):
        self.append(("suspended",))

    def on_resumed(self):
        self.append(("resumed",))

    def on_failed(self, error):
        self.append(("failed", error))

    def named(self, what):
        return [entry for entry in self if entry[0] == what]


def settings(**options):
    options = {"zookeeper_session_ms": 1000, "zookeeper_connect_ms": 10_000, "rebalance_backoff_ms": 200} | options
    return ConsumerConfig.from_properties(**options)


@pytest.fixture
def join(hosts):
    """Makes members of group g that have joined; each with ``log``."""
    with ExitStack() as stack:

        def join(subscription=CLICKS, *, log=None, wait=True, metrics=None, consumer_id=None, **options):
            log = Log() if log is None else log
            config = settings(**options)
            member = GroupMember(
                hosts, "g", subscription, config=config, listener=log, metrics=metrics, consumer_id=consumer_id
            )
            member.log = log
            stack.enter_context(member)
            if wait:
                assert member.wait_until_balanced(30)
            return member

        yield join


def as_computed(client, members, partitions, topic="clicks"):
    """Whether each partition is owned by the thread that the algorithm says, and all members know."""
    threads = [f"{each.member_id}-{n}" for each in members for n in range(each.subscription.threads_for(topic))]
    expected = {tp(name, topic): thread for thread, names in assign(partitions, threads).items() for name in names}
    owners = {each: owner.thread for each, owner in read_owners(client, "g").items() if each.topic == topic}
    known = {
        each: f"{member.member_id}-{thread}" for member in members for each, thread in member.owned.items()
        if each.topic == topic
    }  # fmt: skip
    return owners == expected == known


# The table


def test_there_is_a_row_for_whatever_can_happen():
    from_outside = {Event.CONNECTED, Event.DISCONNECTED, Event.SESSION_LOST, Event.CHANGED, Event.CLOSE}
    by_the_clock = {Event.DUE, Event.HEARTBEAT}
    for state in State:
        rows = {event for here, event in TRANSITIONS if here is state}
        if state is State.CLOSED:
            assert not rows
        elif state is State.NEW:
            assert rows == from_outside - {Event.CHANGED}  # nothing has been read yet
        elif state in (State.SUSPENDED, State.EXPIRED):
            assert rows == from_outside | {Event.DUE}
        else:
            assert rows >= from_outside | by_the_clock | {Event.FAILED}


def test_every_state_leads_to_the_end_and_the_end_nowhere():
    for state in set(State) - {State.CLOSED}:
        assert TRANSITIONS[state, Event.CLOSE][1] is State.CLOSED
    assert {after for _, after in TRANSITIONS.values()} == set(State)


def test_what_a_jvm_member_waits_for_is_released_before_it_looks_again():
    assert coordinator._GATHER_SECONDS[1] + coordinator.REVOKE_SECONDS < 2


# Sharing


def test_alone_in_a_group(join, client):
    add_topic(client, "clicks", b0=2, b1=1)
    member = join(Subscription.topics({"clicks": 2}))
    assert member.state is State.BALANCED
    assert member.owned == {tp("0-0"): 0, tp("0-1"): 0, tp("1-0"): 1}
    assert member.log == [("assigned", {tp("0-0"): (0, None), tp("0-1"): (0, None), tp("1-0"): (1, None)}, 1)]
    assert read_members(client, "g") == {member.member_id: b'{ "clicks": 2 }'}
    assert {str(each): owner.thread for each, owner in read_owners(client, "g").items()} == {
        "clicks 0-0": f"{member.member_id}-0",
        "clicks 0-1": f"{member.member_id}-0",
        "clicks 1-0": f"{member.member_id}-1",
    }


def test_members_come_and_go_and_offsets_with_the_partitions(join, client):
    add_topic(client, "clicks", b0=12)
    names = [f"0-{number}" for number in range(12)]
    members = []
    for number in range(3):
        members.append(join(wait=False))
        until(lambda: as_computed(client, members, names))
        for member in members:
            member.commit({each: Position(100 * (number + 1), 1) for each in member.owned})
    positions = [position for _, position in members[-1].log.named("assigned")[0][1].values()]
    assert positions == [Position(200, 1)] * 4
    for _ in range(2):
        members.pop(0).close()
        until(lambda: as_computed(client, members, names))
    assert set(read_members(client, "g")) == {members[0].member_id}
    last = [position for entry in members[0].log.named("assigned") for _, position in entry[1].values()]
    assert last.count(Position(300, 1)) == 8


def test_what_stays_is_left_alone(join, client):
    add_topic(client, "clicks", b0=4)
    first = join(consumer_id="a")
    owners = read_owners(client, "g")
    join(consumer_id="b")
    until(lambda: len(first.owned) == 2)
    assert first.log.named("revoked") == [("revoked", {tp("0-2"), tp("0-3")}, True)]
    assert len(first.log.named("assigned")) == 1
    now = read_owners(client, "g")
    assert [now[tp(name)] for name in ("0-0", "0-1")] == [owners[tp(name)] for name in ("0-0", "0-1")]
    first.commit({tp("0-0"): Position(1)}, generation=1)  # what was fetched before is still good


def test_an_unchanged_assignment_is_no_rebalance(join, client):
    add_topic(client, "clicks", b0=2)
    add_topic(client, "orders", b0=2)
    metrics = Metrics()
    first = join(metrics=metrics)
    join(Subscription.topics({"orders": 1})).close()
    until(lambda: len(read_members(client, "g")) == 1)
    client.create("/brokers/topics/clicks/7", b"0")
    client.set("/brokers/topics/clicks/7", b"1")  # and this one is
    until(lambda: tp("7-0") in first.owned)
    assert [entry[0] for entry in first.log] == ["assigned", "assigned"]
    assert first.generation == 2
    assert metrics.snapshot()["ConsumerStats.Rebalances{group=g}"] == 2
    assert metrics.snapshot()["ConsumerStats.Generation{group=g}"] == 2


def test_a_thread_moved_within_a_member_is_another_owner(join, client):
    add_topic(client, "clicks", b0=3)
    member = join(Subscription.topics({"clicks": 2}))
    client.set("/brokers/topics/clicks/0", b"2")
    until(lambda: member.owned == {tp("0-0"): 0, tp("0-1"): 1})
    assert read_owners(client, "g")[tp("0-1")].thread == f"{member.member_id}-1"
    assert member.log.named("revoked") == [("revoked", {tp("0-1"), tp("0-2")}, True)]


def test_more_members_than_partitions(join, client):
    add_topic(client, "clicks", b0=2)
    members = [join(wait=False, consumer_id=name) for name in "abcd"]
    until(lambda: as_computed(client, members, ["0-0", "0-1"]))
    assert [len(member.owned) for member in members] == [1, 1, 0, 0]
    members[0].close()
    until(lambda: as_computed(client, members[1:], ["0-0", "0-1"]))


def test_nothing_there_yet_then_topics_partitions_and_brokers_appear(join, client):
    member = join(Subscription.whitelist("cl.*"))
    by_name = join(Subscription.topics({"orders": 1}))
    assert member.owned == by_name.owned == {}
    add_topic(client, "clicks", b0=1)
    until(lambda: member.owned == {tp("0-0"): 0})
    add_topic(client, "clocks", b0=1)
    add_topic(client, "orders", b0=1)
    until(lambda: len(member.owned) == 2 and by_name.owned == {tp("0-0", "orders"): 0})
    client.set("/brokers/topics/clicks/0", b"2")
    client.create("/brokers/topics/orders/1", b"1")
    until(lambda: len(member.owned) == 3 and len(by_name.owned) == 2)
    client.delete("/brokers/topics/clicks", recursive=True)
    until(lambda: member.owned == {tp("0-0", "clocks"): 0})


def test_nodes_that_make_no_sense_hide_nothing_else(join, client, caplog):
    add_topic(client, "clicks", b0=2)
    client.create("/brokers/topics/clicks/x", b"1")
    client.create("/brokers/topics/clicks/3", b"many")
    client.create(PATHS.member("g_nonsense"), b"{", makepath=True)
    client.create(PATHS.member("g_greedy"), b'{ "clicks": 2000000000 }')
    member = join()
    assert set(member.owned) == {tp("0-0"), tp("0-1")}
    for found in ("clicks/3", "g_nonsense", "g_greedy"):
        assert found in caplog.text


# JVM-like members: nodes written by hand


def test_a_jvm_member_gets_what_it_waits_for_and_gives_back(join, client):
    add_topic(client, "clicks", b0=2)
    member = join(consumer_id="m", rebalance_backoff_ms=1_000_000)  # it does not depend on looking again
    client.create(PATHS.member("g_a"), b'{ "clicks": 1 }', ephemeral=True)
    until(lambda: not client.exists(PATHS.owner(tp("0-0"))))
    assert member.owned == {tp("0-1"): 0}
    client.create(PATHS.owner(tp("0-0")), b"g_a-0", ephemeral=True)
    client.delete(PATHS.member("g_a"))  # it leaves, and its owner node is still there
    until(lambda: member.state is State.UNBALANCED)
    client.delete(PATHS.owner(tp("0-0")))
    until(lambda: set(member.owned) == {tp("0-0"), tp("0-1")})
    assert client.get(PATHS.owner(tp("0-0")))[0] == b"g_m-0"


def test_offsets_that_a_jvm_member_committed_are_where_we_go_on(join, client):
    add_topic(client, "clicks", b0=1)
    client.create(PATHS.offset(tp("0-0")), b"6721", makepath=True)
    assert join().log[0][1] == {tp("0-0"): (0, Position(6721))}


def test_it_tries_until_it_is_closed_and_says_so(join, client):
    add_topic(client, "clicks", b0=2)
    client.create(PATHS.owner(tp("0-1")), b"g_stuck-0", makepath=True)
    metrics = Metrics()
    member = join(wait=False, rebalance_backoff_ms=20, metrics=metrics)
    until(lambda: len(member.log.named("failed")) > 2)
    assert set(member.owned) == {tp("0-0")}  # what nobody is in the way of is ours meanwhile
    error = member.log.named("failed")[0][1]
    assert isinstance(error, GroupError) and "clicks/0-1 (held by g_stuck-0)" in str(error)
    client.delete(PATHS.owner(tp("0-1")))
    assert member.wait_until_balanced(30)
    assert set(member.owned) == {tp("0-0"), tp("0-1")}
    snapshot = metrics.snapshot()
    assert snapshot["ConsumerStats.FailedRebalances{group=g}"] == len(member.log.named("failed"))
    assert snapshot[f"{figures.SECONDS_WITHOUT_OWNER}{{group=g}}"] > 4 * 0.02


def test_a_member_whose_regex_cannot_be_read_here_is_an_error_and_nothing_moves(join, client):
    add_topic(client, "clicks", b0=2)
    member = join()
    client.create(PATHS.member("g_jvm"), rb"*1*\p{javaLowerCase}+", ephemeral=True)
    until(lambda: member.log.named("failed"))
    assert "member g_jvm" in str(member.log.named("failed")[0][1])
    assert set(member.owned) == {tp("0-0"), tp("0-1")}
    client.delete(PATHS.member("g_jvm"))
    assert member.wait_until_balanced(30)


# Sessions


def expire(member):
    """End the member's session, as ZooKeeper would: somebody else opens it with its password, and closes it."""
    own = member._nodes._client
    servers, _ = parse_hosts(member._nodes.hosts)
    other = KazooClient(servers, client_id=own.client_id)
    other.start()
    disconnect(other)


def test_an_expired_session_is_registered_anew_under_the_same_id(join, client):
    add_topic(client, "clicks", b0=2)
    member = join()
    member.commit({tp("0-0"): Position(80, 3)})
    expire(member)
    until(lambda: len(member.log.named("assigned")) == 2)
    assert [entry[0] for entry in member.log if entry[0] != "suspended"] == ["assigned", "lost", "assigned"]
    assert member.log.named("lost") == [("lost", {tp("0-0"), tp("0-1")})]
    again = member.log.named("assigned")[1]
    assert again[1:] == ({tp("0-0"): (0, Position(80, 3)), tp("0-1"): (0, None)}, 3)
    assert list(read_members(client, "g")) == [member.member_id]
    until(lambda: member.state is State.BALANCED)
    with pytest.raises(CommitFailedError) as caught:
        member.commit({tp("0-0"): Position(90)}, generation=1)  # of something that was fetched before
    assert caught.value.lost == [tp("0-0")]
    member.commit({tp("0-0"): Position(90)}, generation=3)


def test_sessions_expire_again_and_again_in_a_group(join, client):
    add_topic(client, "clicks", b0=7)
    members = [join(wait=False) for _ in range(3)]
    for turn in range(6):
        expire(members[turn % 3])
        if turn % 2:
            until(lambda: as_computed(client, members, [f"0-{number}" for number in range(7)]))


def test_a_lost_connection_suspends_and_the_same_session_goes_on():
    with ZooKeeper(tick_ms=100) as server:
        client = connect(server.address)
        add_topic(client, "clicks", b0=2)
        log, config = Log(), settings(zookeeper_session_ms=10_000, rebalance_backoff_ms=20)
        with GroupMember(server.address, "g", CLICKS, config=config, listener=log) as member:
            assert member.wait_until_balanced(30)
            server.kill()
            until(lambda: log.named("suspended"))
            assert member.state is State.SUSPENDED
            assert member.may_deliver_until < time.monotonic()
            with pytest.raises(CommitFailedError, match="ZooKeeper did not take clicks 0-0: .* out of touch") as caught:
                member.commit({tp("0-0"): Position(1)})
            assert caught.value.lost == [tp("0-0")]
            assert "no longer ours" not in str(caught.value)
            until(lambda: log.named("failed"))
            assert "has not been reached for 0.08 s" in str(log.named("failed")[0][1])
            server.restart()
            assert member.wait_until_balanced(30)
            assert [entry[0] for entry in log if entry[0] != "failed"] == ["assigned", "suspended", "resumed"]
            assert member.may_deliver_until > time.monotonic()
            member.commit({tp("0-0"): Position(1)}, generation=1)
            server.kill()
            until(lambda: member.state is State.SUSPENDED)
        assert log[-1] == ("revoked", {tp("0-0"), tp("0-1")}, False)
        disconnect(client)


def test_what_is_certain_ends_with_the_session(join, client):
    add_topic(client, "clicks", b0=1)
    before = time.monotonic()
    member = join()
    assert before < member.may_deliver_until < time.monotonic() + 1.0
    first = member.may_deliver_until
    until(lambda: member.may_deliver_until > first)  # by its heartbeat
    member.close()
    assert member.may_deliver_until < before


# Nodes deleted by somebody's hand


def test_an_owner_node_is_put_back(join, client):
    add_topic(client, "clicks", b0=1)
    member = join()
    client.delete(PATHS.owner(tp("0-0")))
    until(lambda: client.exists(PATHS.owner(tp("0-0"))))
    assert client.get(PATHS.owner(tp("0-0")))[0].decode() == f"{member.member_id}-0"
    member.commit({tp("0-0"): Position(7)}, generation=1)
    assert [entry[0] for entry in member.log] == ["assigned"]


def test_an_owner_node_that_somebody_else_took_is_lost(join, client):
    add_topic(client, "clicks", b0=1)
    member = join()
    taken = client.transaction()
    taken.delete(PATHS.owner(tp("0-0")))
    taken.create(PATHS.owner(tp("0-0")), b"g_thief-0", ephemeral=True)
    taken.commit()
    until(lambda: member.log.named("lost"))
    assert member.owned == {}
    member.close()
    assert client.get(PATHS.owner(tp("0-0")))[0] == b"g_thief-0"


def test_the_audit_finds_what_no_watch_has_told(join, client, monkeypatch):
    monkeypatch.setattr(coordinator, "_AUDIT_SECONDS", 0.1)
    monkeypatch.setattr(GroupNodes, "_watch", lambda self, event: None)
    add_topic(client, "clicks", b0=1)
    member = join()
    client.delete(PATHS.owner(tp("0-0")))
    until(lambda: client.exists(PATHS.owner(tp("0-0"))))
    client.delete(PATHS.member(member.member_id))
    until(lambda: client.exists(PATHS.member(member.member_id)))
    client.set("/brokers/topics/clicks/0", b"2")
    until(lambda: set(member.owned) == {tp("0-0"), tp("0-1")})


def test_an_id_is_put_back(join, client):
    add_topic(client, "clicks", b0=2)
    members = [join(), join()]
    client.delete(PATHS.member(members[0].member_id))
    until(lambda: len(read_members(client, "g")) == 2)
    until(lambda: as_computed(client, members, ["0-0", "0-1"]))


@pytest.mark.parametrize("count_of_members", [1, 2])
def test_a_whole_group_that_is_deleted_comes_back_and_begins_anew(join, client, count_of_members):
    add_topic(client, "clicks", b0=2)
    members = [join() for _ in range(count_of_members)]
    until(lambda: as_computed(client, members, ["0-0", "0-1"]))
    for member in members:
        member.commit(dict.fromkeys(member.owned, Position(100)))
        member.log.clear()
    for member in members:
        client.delete(PATHS.member(member.member_id))
    for name in ("owners", "offsets"):
        client.delete(f"{PATHS.root}/{name}", recursive=True)
    until(lambda: set(read_members(client, "g")) == {member.member_id for member in members})
    until(lambda: as_computed(client, members, ["0-0", "0-1"]))
    until(lambda: all(member.state is State.BALANCED for member in members))
    for member in members:
        new = {each: position for entry in member.log.named("assigned") for each, (_, position) in entry[1].items()}
        kept = member.owned.keys() - new.keys()
        assert set(new.values()) <= {None}
        if kept:  # it went on, and is told when it commits
            with pytest.raises(CommitFailedError) as caught:
                member.commit(dict.fromkeys(kept, Position(200)))
            assert caught.value.moved == dict.fromkeys(kept) and not caught.value.lost
        member.commit(dict.fromkeys(member.owned, Position(10)))
    assert count_of_members > 1 or not new


# Committing


def test_a_partition_that_is_given_up_can_be_committed_for_the_last_time(join, client):
    add_topic(client, "clicks", b0=2)

    class Committing(Log):
        def on_revoked(self, partitions, can_commit):
            super().on_revoked(partitions, can_commit)
            thread = threading.Thread(target=member.commit, args=(dict.fromkeys(partitions, Position(555)),))
            thread.start()
            thread.join()

    member = join(log=Committing(), consumer_id="a")
    second = join(consumer_id="b")
    assert second.log.named("assigned")[0][1] == {tp("0-1"): (0, Position(555))}
    member.close()
    until(lambda: tp("0-0") in second.owned)
    assert second.log.named("assigned")[1][1] == {tp("0-0"): (0, Position(555))}


def test_a_commit_of_some_that_are_lost_commits_the_others(join, client):
    add_topic(client, "clicks", b0=2)
    member = join(consumer_id="a")
    join(consumer_id="b")
    until(lambda: len(member.owned) == 1)
    with pytest.raises(CommitFailedError, match="group g: not committed: no longer ours: clicks 0-1") as caught:
        member.commit({tp("0-0"): Position(5), tp("0-1"): Position(5)})
    assert (caught.value.lost, caught.value.moved) == ([tp("0-1")], {})
    assert member.committed([tp("0-0"), tp("0-1")]) == {tp("0-0"): Position(5), tp("0-1"): None}
    member.close()
    with pytest.raises(CommitFailedError):
        member.commit({tp("0-0"): Position(6)})


# In other processes

MEMBER = """\
import sys, time
from kafka07c.consumer.config import ConsumerConfig
from kafka07c.consumer.coordinator import GroupMember
from kafka07c.errors import CommitFailedError
from kafka07c.positions import Position
from kafka07c.subscription import Subscription
from kafka07c.zookeeper.members import GroupNodes
class Silent:
    def __getattr__(self, name):
        return lambda *arguments: None

hosts, transactions, consumer_id = sys.argv[1:]
if transactions == "versions":
    GroupNodes._has_transactions = lambda self: False
config = ConsumerConfig.from_properties(zookeeper_session_ms=1000, zookeeper_connect_ms=10000)
member = GroupMember(hosts, "g", Subscription.topics({"clicks": 1}), config=config, listener=Silent(),
                     consumer_id=consumer_id).start()
member.wait_until_balanced(30)
print("balanced", flush=True)
for number in range(10**9):
    mine = member.owned
    # neither its own view of what it owns, nor the clock, nor a generation protect this zombie: only the nodes do
    member.may_deliver_until = float("inf")
    try:
        member.commit(dict.fromkeys(mine, Position(number)))
    except CommitFailedError as error:
        print("refused", flush=True)
        sys.stdin.readline()
        break
"""


@pytest.fixture
def process(hosts):
    processes = []

    def start(consumer_id, transactions="transactions"):
        processes.append(
            start_process(
                [sys.executable, "-c", MEMBER, hosts, transactions, consumer_id],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ,
            )  # fmt: skip
        )
        assert processes[-1].stdout.readline() == "balanced\n"
        return processes[-1]

    yield start
    for each in processes:
        each.kill()
        each.wait()
        each.stdin.close()
        each.stdout.close()


def test_a_killed_process_is_succeeded(join, process, client):
    add_topic(client, "clicks", b0=4)
    members = [join()]
    others = [process("x"), process("y")]
    until(lambda: len(read_members(client, "g")) == 3 and len(members[0].owned) < 3)
    for other in others:
        other.kill()
    until(lambda: as_computed(client, members, [f"0-{number}" for number in range(4)]))


def test_a_member_that_comes_back_under_its_old_id_waits_for_its_own_dead_session(join, process, client):
    add_topic(client, "clicks", b0=1)
    process("x").kill()
    member = join(consumer_id="x", wait=False)
    until(lambda: member.owned == {tp("0-0"): 0})
    assert client.get(PATHS.owner(tp("0-0")))[0] == b"g_x-0"


@pytest.mark.parametrize("how", ["transactions", "versions"])
def test_a_process_that_was_stopped_past_its_session_cannot_rewind(join, process, client, how):
    add_topic(client, "clicks", b0=1)
    zombie = process("a", how)
    until(lambda: client.exists(PATHS.offset(tp("0-0"))))
    zombie.send_signal(signal.SIGSTOP)
    member = join(wait=False, consumer_id="b")
    until(lambda: tp("0-0") in member.owned)
    member.commit({tp("0-0"): Position(10**12)})
    zombie.send_signal(signal.SIGCONT)
    assert zombie.stdout.readline() == "refused\n"
    assert client.get(PATHS.offset(tp("0-0")))[0] == b"1000000000000"


# What else may go wrong


def test_without_zookeeper_it_does_not_start():
    config = settings(zookeeper_connect_ms=300)
    with pytest.raises(ZooKeeperError, match="^ZooKeeper at 127.0.0.1:1"):
        GroupMember("127.0.0.1:1", "g", CLICKS, config=config, listener=Log()).start()


def test_names_that_cannot_be_nodes():
    for group, consumer_id in (("a/b", None), ("", None), ("g", "x/y")):
        with pytest.raises(ValueError, match="ZooKeeper takes no node"):
            GroupMember("127.0.0.1:1", group, CLICKS, config=settings(), listener=Log(), consumer_id=consumer_id)


def test_a_listener_that_raises_does_not_end_the_member(join, client, caplog):
    add_topic(client, "clicks", b0=1)

    class Raising(Log):
        def on_assigned(self, partitions, generation):
            super().on_assigned(partitions, generation)
            raise RuntimeError("of the application's")

    member = join(log=Raising())
    client.set("/brokers/topics/clicks/0", b"2")
    until(lambda: len(member.owned) == 2)
    assert "of the application's" in caplog.text


def test_a_fault_of_ours_is_said_and_tried_again(join, client, monkeypatch):
    add_topic(client, "clicks", b0=1)
    real, faults = GroupNodes.members, iter([RuntimeError("a fault"), None])

    def members(self):
        if fault := next(faults, None):
            raise fault
        return real(self)

    monkeypatch.setattr(GroupNodes, "members", members)
    member = join()
    assert str(member.log.named("failed")[0][1]) == "a fault"
    assert set(member.owned) == {tp("0-0")}


def test_closing_from_within_a_callback_and_twice(join, client):
    add_topic(client, "clicks", b0=1)

    class Closing(Log):
        def on_assigned(self, partitions, generation):
            super().on_assigned(partitions, generation)
            member.close()

    member = join(log=Closing(), wait=False)
    until(lambda: member.state is State.CLOSED)
    member.close()
    assert member.log.named("revoked") == [("revoked", {tp("0-0")}, True)]
    assert read_members(client, "g") == {}
