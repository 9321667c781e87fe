"""The consumer against a real ZooKeeper and the embedded broker: every sentence of what it promises about delivery."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest
from group_cluster import PATIENCE, GroupCluster, handling_the_third, until
from kazoo.exceptions import ConnectionLoss

import kafka07c
from kafka07c import metrics as names
from kafka07c.consumer import Consumer
from kafka07c.consumer.commits import Commits
from kafka07c.consumer.coordinator import GroupMember, State
from kafka07c.errors import CommitFailedError, CorruptMessageError, GroupError, NoOffsetError
from kafka07c.metrics import Metrics
from kafka07c.names import TopicPartition
from kafka07c.positions import Position
from kafka07c.testing import ZooKeeper
from kafka07c.zookeeper import connect

pytestmark = pytest.mark.zookeeper


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[GroupCluster]:
    with ZooKeeper(tick_ms=100) as zookeeper:
        with closing(GroupCluster(tmp_path_factory.mktemp("logs"), zookeeper.address)) as cluster:
            yield cluster


def payloads(count: int, prefix: str = "m") -> list[bytes]:
    return [f"{prefix}{i}".encode() for i in range(count)]


def take(consumer: Consumer, count: int) -> list[bytes]:
    return [next(consumer).value for _ in range(count)]


def rest(consumer: Consumer) -> list[bytes]:
    """All that comes until nothing has come for a while: to see that there is no more of it."""
    values = []
    while polled := consumer.poll(300):
        values += [message.value for messages in polled.values() for message in messages]
    return values


def join(*consumers: Consumer) -> None:
    """Wait until all are members and agree on who owns what."""
    for consumer in consumers:
        consumer.poll(0)
    until(lambda: all(consumer._reader.member.state is State.BALANCED for consumer in consumers))


# Ways in


def test_it_is_at_the_top():
    assert kafka07c.Consumer is Consumer
    assert kafka07c.TopicPartition is TopicPartition
    assert {"Whitelist", "Blacklist", "Position", "ConsumerConfig"} <= set(kafka07c.__all__)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_all_messages_of_all_partitions_in_order(cluster, codec):
    topic, group = cluster.new(payloads(50, "a"), payloads(50, "b"), codec=codec)
    with cluster.consumer(topic, group=group, until_end=True) as consumer:
        messages = list(consumer)
    for partition, prefix in enumerate("ab"):
        mine = [message for message in messages if message.partition == partition]
        assert [message.value for message in mine] == payloads(50, prefix)
        assert {(message.topic, message.broker) for message in mine} == {(topic, 0)}
    assert len(messages) == 100


def test_without_a_group_it_reads_everything_and_commits_nothing(cluster):
    topic, _ = cluster.new(payloads(5), payloads(5, "b"))
    for where in ({"zookeeper": cluster.zookeeper}, {"brokers": f"0:127.0.0.1:{cluster.broker.port}"}):
        with Consumer(topic, until_end=True, fetch_backoff_ms=10, **where) as consumer:
            assert sorted(message.value for message in consumer) == sorted(payloads(5) + payloads(5, "b"))
            with pytest.raises(GroupError, match="no group to commit for"):
                consumer.commit()


def test_poll_gives_lists_by_partition_and_no_more_than_asked_for(cluster):
    topic, group = cluster.new(payloads(70), payloads(30, "b"))
    found = {TopicPartition(topic, 0, 0): [], TopicPartition(topic, 0, 1): []}
    with cluster.consumer(topic, group=group, max_poll_records=64) as consumer:
        while sum(map(len, found.values())) < 100:
            polled = consumer.poll(timeout_ms=1000, max_records=16)
            assert 0 <= sum(map(len, polled.values())) <= 16
            for tp, messages in polled.items():
                found[tp] += [message.value for message in messages]
        assert consumer.poll(0) == {}
        consumer.seek(TopicPartition(topic, 0, 0), 0)
        assert len(until(lambda: consumer.poll(100))[TopicPartition(topic, 0, 0)]) == 64
        with pytest.raises(ValueError, match="not 0 ms and 0"):
            consumer.poll(max_records=0)
    assert list(found.values()) == [payloads(70), payloads(30, "b")]


def test_batches_go_to_arrow(cluster):
    topic, group = cluster.new(payloads(100), payloads(100, "b"), codec="gzip")
    with cluster.consumer(topic, group=group, until_end=True) as consumer:
        batches = list(consumer.batches())
    assert sum(map(len, batches)) == 200
    assert {(batch.topic, batch.broker, batch.partition) for batch in batches} == {(topic, 0, 0), (topic, 0, 1)}
    values = [value for batch in batches for value in pa.record_batch(batch).column("value").to_pylist()]
    assert sorted(values) == sorted(payloads(100) + payloads(100, "b"))


def test_batches_after_some_messages_go_on_where_those_stopped(cluster):
    topic, group = cluster.new(payloads(3))
    cluster.send(topic, 0, payloads(5, "w"), "gzip")
    with cluster.consumer(topic, group=group, until_end=True) as consumer:
        assert take(consumer, 1) == [b"m0"]
        values = [value for batch in consumer.batches() for value in batch.payloads()]
        assert values == [b"m1", b"m2", *payloads(5, "w")]
    with cluster.consumer(topic, group=group + "x", until_end=True) as consumer:
        take(consumer, 5)
        assert [value for batch in consumer.batches() for value in batch.payloads()] == payloads(5, "w")[2:]


def test_a_pattern_with_an_exclusion(cluster):
    topic, group = cluster.new(payloads(1))
    cluster.send(f"{topic}.test", 0, [b"not this"])
    cluster.send(f"{topic}.more", 0, [b"more"])
    for where in (group, None):
        consumer = cluster.consumer(group=where, until_end=True)
        consumer.subscribe(pattern=f"{topic}.*", exclude=r".*\.test")
        with consumer:
            assert sorted(message.value for message in consumer) == [b"m0", b"more"]


def test_subscribing_again_replaces(cluster):
    topic, group = cluster.new(payloads(2))
    other, _ = cluster.new(payloads(2, "other"))
    with cluster.consumer(topic, group=group) as consumer:
        assert take(consumer, 2) == payloads(2)
        consumer.subscribe([other])
        assert take(consumer, 2) == payloads(2, "other")
        assert {tp.topic for tp in consumer.assignment} == {other}
        with pytest.raises(RuntimeError, match="subscribed"):
            consumer.assign([TopicPartition(topic, 0, 0)])
        consumer.unsubscribe()
        assert consumer.assignment == set()
        with pytest.raises(RuntimeError, match="nothing to read"):
            consumer.poll()


def test_assigned_partitions_begin_where_told(cluster):
    topic, group = cluster.new(payloads(4), payloads(4, "b"))
    first, second = TopicPartition(topic, 0, 0), TopicPartition(topic, 0, 1)
    third_message = cluster.end(topic, 0) // 2
    with cluster.consumer(until_end=True) as consumer:
        consumer.assign([first])
        assert [message.value for message in consumer] == payloads(4)
        consumer.assign({first: third_message, second: Position(0)})
        assert sorted(message.value for message in consumer) == [b"b0", b"b1", b"b2", b"b3", b"m2", b"m3"]
        consumer.assign({second: kafka07c.EARLIEST, first: None})
        assert sorted(message.value for message in consumer) == payloads(4, "b")  # the first goes on where it is
        assert consumer.assignment == {first, second}
        with pytest.raises(ValueError, match="no place in a log"):
            consumer.seek(first, -5)
    # with a group the offsets are the group's
    with cluster.consumer(group=group) as consumer:
        consumer.assign([first])
        take(consumer, 2)
        consumer.commit()
        assert consumer.committed(first) == Position(third_message)
    assert cluster.offset(group, first) == third_message
    with cluster.consumer(group=group) as consumer:
        consumer.assign([first])
        assert take(consumer, 1) == [b"m2"]


def test_todays_spelling_and_a_properties_file(cluster, tmp_path):
    topic, group = cluster.new(payloads(2))
    path = tmp_path / "consumer.properties"
    path.write_text(f"zk.connect={cluster.zookeeper}\ngroupid={group}\nfetcher.backoff.ms=10\n")
    with Consumer.from_properties(path, topic, auto_offset_reset="latest", consumer_timeout_ms=300) as consumer:
        assert (consumer.config.group, consumer.config.offset_reset) == (group, "latest")
        assert list(consumer) == []
    with pytest.raises(ValueError, match="did you mean 'fetch_bytes'"):
        cluster.consumer(topic, fetch_byte=3)
    with pytest.raises(ValueError, match="zookeeper= or brokers="):
        Consumer(topic)


def test_iteration_ends_after_the_time_out_and_can_go_on(cluster):
    topic, group = cluster.new(payloads(2))
    with cluster.consumer(topic, group=group, consumer_timeout_ms=2000) as consumer:
        assert [message.value for message in consumer] == payloads(2)
        cluster.send(topic, 0, [b"later"])
        assert [message.value for message in consumer] == [b"later"]


# What counts as handled


def test_autocommit_covers_what_was_come_back_for_and_not_the_current_message(cluster):
    topic, group = cluster.new(payloads(10))
    tp = TopicPartition(topic, 0, 0)
    with cluster.consumer(topic, group=group, autocommit_interval_ms=20) as consumer:
        messages = [next(consumer) for _ in range(3)]
        seen = set()
        until(lambda: seen.add(cluster.offset(group, tp)) or cluster.offset(group, tp) == messages[1].next_offset)
        time.sleep(0.1)
        assert cluster.offset(group, tp) == messages[1].next_offset
        assert max(offset or 0 for offset in seen) <= messages[1].next_offset
        next(consumer)
        until(lambda: cluster.offset(group, tp) == messages[2].next_offset)


def test_autocommit_covers_a_poll_once_the_next_one_comes(cluster):
    topic, group = cluster.new(payloads(10))
    tp = TopicPartition(topic, 0, 0)
    with cluster.consumer(topic, group=group, autocommit_interval_ms=20) as consumer:
        [messages] = until(lambda: consumer.poll(1000, max_records=4)).values()
        time.sleep(0.1)
        assert cluster.offset(group, tp) in (None, 0)
        consumer.poll(1000, max_records=4)
        until(lambda: cluster.offset(group, tp) == messages[-1].next_offset)


def test_a_clean_close_commits_all_that_was_handed_out(cluster):
    topic, group = cluster.new(payloads(10))
    with cluster.consumer(topic, group=group) as consumer:
        take(consumer, 4)
    with cluster.consumer(topic, group=group) as consumer:
        assert take(consumer, 6) == payloads(10)[4:]
    assert cluster.offset(group, TopicPartition(topic, 0, 0)) == cluster.end(topic, 0)


def test_leaving_by_an_exception_commits_nothing(cluster):
    topic, group = cluster.new(payloads(10))
    with pytest.raises(ZeroDivisionError):
        with cluster.consumer(topic, group=group) as consumer:
            take(consumer, 4)
            raise ZeroDivisionError
    assert cluster.offset(group, TopicPartition(topic, 0, 0)) in (None, 0)
    with cluster.consumer(topic, group=group) as consumer:
        assert take(consumer, 1) == [b"m0"]


def test_without_autocommit_only_commit_commits_and_covers_the_current_message(cluster):
    topic, group = cluster.new(payloads(10))
    tp = TopicPartition(topic, 0, 0)
    with cluster.consumer(topic, group=group, autocommit=False, autocommit_interval_ms=10) as consumer:
        message = [next(consumer) for _ in range(4)][-1]
        time.sleep(0.1)
        assert cluster.offset(group, tp) in (None, 0)  # 0: written as autooffset.reset found it
        consumer.commit()
        assert cluster.offset(group, tp) == message.next_offset
        assert consumer.committed(tp) == consumer.position(tp) == Position(message.next_offset)
        take(consumer, 3)
    assert cluster.offset(group, tp) == message.next_offset
    with cluster.consumer(topic, group=group, autocommit=False) as consumer:
        assert take(consumer, 1) == [b"m4"]


def test_a_commit_by_hand_is_not_taken_back_by_autocommit(cluster):
    topic, group = cluster.new(payloads(10))
    tp = TopicPartition(topic, 0, 0)
    with cluster.consumer(topic, group=group, autocommit_interval_ms=10) as consumer:
        message = [next(consumer) for _ in range(4)][-1]
        consumer.commit()
        for _ in range(20):
            assert cluster.offset(group, tp) == message.next_offset
            time.sleep(0.005)


def test_committing_positions_of_ones_own(cluster):
    topic, group = cluster.new(payloads(10))
    tp, other = TopicPartition(topic, 0, 0), TopicPartition(topic, 0, 7)
    with cluster.consumer(topic, group=group, autocommit=False) as consumer:
        messages = [next(consumer) for _ in range(4)]
        with pytest.raises(CommitFailedError) as caught:
            consumer.commit({tp: messages[1].next_offset, other: 5})
        assert caught.value.lost == [other]
        assert consumer.committed(tp) == Position(messages[1].next_offset)


def test_a_partition_that_was_lost_is_named_and_the_others_are_committed(cluster):
    topic, group = cluster.new(payloads(5), payloads(5, "b"))
    with cluster.consumer(topic, group=group, autocommit=False) as first:
        take(first, 10)
        with cluster.consumer(topic, group=group, autocommit=False) as second:
            join(first, second)
            until(lambda: len(first.assignment) == len(second.assignment) == 1)
            [kept], [lost] = first.assignment, second.assignment
            with pytest.raises(CommitFailedError, match=str(lost)) as caught:
                first.commit()
            assert caught.value.lost == [lost]
            assert cluster.offset(group, kept) == cluster.end(topic, kept.partition)
            first.commit()  # said once
            assert len(take(second, 5)) == 5  # what was not committed comes again
            second.commit()
            assert cluster.offset(group, lost) == cluster.end(topic, lost.partition)


def test_what_is_given_up_is_committed_by_autocommit_and_goes_on_elsewhere(cluster):
    topic, group = cluster.new(payloads(50), payloads(50, "b"))
    with cluster.consumer(topic, group=group) as first:
        handled = [message.value for message in (next(first) for _ in range(100))]
        assert first.poll(0) == {}
        with cluster.consumer(topic, group=group) as second:
            join(first, second)
            until(lambda: len(first.assignment) == len(second.assignment) == 1)
            assert rest(second) == rest(first) == []
    assert len(set(handled)) == 100


def test_nothing_of_a_partition_is_given_after_it_is_given_up(cluster):
    topic, group = cluster.new(payloads(2000), payloads(2000, "b"))
    with cluster.consumer(topic, group=group, autocommit=False) as first:
        take(first, 1)
        with cluster.consumer(topic, group=group, autocommit=False) as second:
            join(second)
            until(lambda: len(first.assignment) == len(second.assignment) == 1)
            [kept] = first.assignment
            assert {message.partition for message in (next(first) for _ in range(1500))} == {kept.partition}


# Inside a wrapper


def test_a_stop_inside_a_wrapper_commits_its_start_and_skips_what_was_handled(cluster):
    topic, group = cluster.new(payloads(5))
    start = cluster.end(topic, 0)
    cluster.send(topic, 0, payloads(10, "w"), "gzip")
    tp = TopicPartition(topic, 0, 0)
    with cluster.consumer(topic, group=group) as consumer:
        take(consumer, 8)
    assert cluster.offset(group, tp) == start
    with cluster.consumer(topic, group=group) as consumer:
        assert consumer.committed(tp) == Position(start, 3) if consumer.poll(0) else True
        assert take(consumer, 2) == [b"w3", b"w4"]
        assert consumer.position(tp) == Position(start, 5)
        consumer.commit()
        assert consumer.committed(tp) == Position(start, 5)
    assert cluster.offset(group, tp) == start


def test_what_a_jvm_member_wrote_meanwhile_makes_the_inner_place_void(cluster):
    topic, group = cluster.new(payloads(10, "w"), codec="gzip")
    tp = TopicPartition(topic, 0, 0)
    with cluster.consumer(topic, group=group) as consumer:
        take(consumer, 3)
    cluster.set_offset(group, tp, 0)  # the same value, another version: all of it comes again
    with cluster.consumer(topic, group=group) as consumer:
        assert take(consumer, 1) == [b"w0"]


def test_the_same_process_skips_what_it_has_handled_without_our_extra_node(cluster):
    topic, group = cluster.new(payloads(10, "w"), codec="gzip")
    tp = TopicPartition(topic, 0, 0)
    with cluster.consumer(topic, group=group, autocommit=False) as consumer:
        take(consumer, 4)
        next(consumer)
        steal(cluster, group, tp, consumer)
        # four came back, the fifth did not: it comes again
        assert take(consumer, 1) == [b"w4"]


def steal(cluster: GroupCluster, group: str, tp: TopicPartition, consumer: Consumer) -> None:
    """Somebody takes the owner node away and gives it back."""
    path = f"/consumers/{group}/owners/{tp.topic}/{tp.name}"
    thief = connect(cluster.zookeeper)
    try:
        thief.delete(path)
        thief.create(path, b"thief-0", ephemeral=True)
        until(lambda: tp not in consumer.assignment)
    finally:
        thief.stop()
        thief.close()
    until(lambda: tp in consumer.assignment)


# Offsets that others change, and resets


def test_an_offset_that_somebody_changed_is_adopted_by_commit(cluster):
    topic, group = cluster.new(payloads(10))
    tp = TopicPartition(topic, 0, 0)
    third = 2 * cluster.end(topic, 0) // 10
    with cluster.consumer(topic, group=group, autocommit=False) as consumer:
        take(consumer, 6)
        consumer.commit()
        take(consumer, 1)
        cluster.set_offset(group, tp, third)
        with pytest.raises(CommitFailedError) as caught:
            consumer.commit()
        assert (caught.value.moved, caught.value.lost) == ({tp: Position(third)}, [])
        assert cluster.offset(group, tp) == third
        assert take(consumer, 2) == [b"m2", b"m3"]
        consumer.commit()
        assert cluster.offset(group, tp) == 2 * third


def test_an_offset_that_somebody_changed_is_adopted_by_autocommit(cluster, caplog):
    topic, group = cluster.new(payloads(10))
    tp = TopicPartition(topic, 0, 0)
    third = 2 * cluster.end(topic, 0) // 10
    with cluster.consumer(topic, group=group, autocommit_interval_ms=20) as consumer:
        take(consumer, 4)
        until(lambda: cluster.offset(group, tp))
        cluster.set_offset(group, tp, third)
        take(consumer, 5)
        until(lambda: consumer.position(tp) == Position(third))
        assert take(consumer, 1) == [b"m2"]
    assert f"group {group}: {tp}: somebody else changed the offset: goes on at offset {third}" in caplog.text


def test_a_deleted_offset_begins_anew(cluster):
    topic, group = cluster.new(payloads(10))
    tp = TopicPartition(topic, 0, 0)
    with cluster.consumer(topic, group=group, autocommit=False) as consumer:
        take(consumer, 6)
        consumer.commit()
        take(consumer, 1)
        cluster.nodes.delete(f"/consumers/{group}/offsets/{topic}/{tp.name}")
        with pytest.raises(CommitFailedError) as caught:
            consumer.commit()
        assert caught.value.moved == {tp: None}
        assert take(consumer, 1) == [b"m0"]


@pytest.mark.parametrize(("reset", "first"), [("smallest", b"m0"), ("largest", b"new")])
def test_an_offset_out_of_range_is_reset_and_written_at_once(cluster, reset, first):
    topic, group = cluster.new(payloads(10))
    tp = TopicPartition(topic, 0, 0)
    cluster.set_offset(group, tp, 10**6)
    goes_on = {"smallest": 0, "largest": cluster.end(topic, 0)}[reset]
    properties = {"autooffset.reset": reset, "autocommit.enable": "false"}
    with cluster.consumer(topic, group=group, properties=properties) as consumer:
        consumer.poll(0)
        until(lambda: cluster.offset(group, tp) == goes_on)
        cluster.send(topic, 0, [b"new"])
        assert take(consumer, 1) == [first]


def test_a_reset_that_is_written_late_takes_nothing_back(cluster, monkeypatch):
    # seen under load: no offset yet, so 0 was to be written at once, and was after the first messages were committed
    topic, group = cluster.new(payloads(10))
    late, written = threading.Event(), threading.Event()
    write_resets = Commits._write_resets

    def write_late(commits):
        late.wait(PATIENCE)
        write_resets(commits)
        written.set()

    monkeypatch.setattr(Commits, "_write_resets", write_late)
    with cluster.consumer(topic, group=group, enable_auto_commit=False) as consumer:
        take(consumer, 4)
        consumer.commit()
        tp = TopicPartition(topic, 0, 0)
        committed = cluster.offset(group, tp)
        late.set()
        assert written.wait(PATIENCE)
        assert cluster.offset(group, tp) == committed > 0


def test_a_reset_that_could_not_be_written_is_written_later(cluster, monkeypatch):
    topic, group = cluster.new(payloads(10))
    tp, failed = TopicPartition(topic, 0, 0), threading.Event()
    commit = GroupMember.commit

    def fail_once(member, positions, generation=None):
        if tp in positions and not failed.is_set():
            failed.set()
            raise CommitFailedError("ZooKeeper did not take it", lost=[tp])
        commit(member, positions, generation)

    monkeypatch.setattr(GroupMember, "commit", fail_once)
    settings = {"offset_reset": "largest", "enable_auto_commit": False, "autocommit_interval_ms": 50}
    with cluster.consumer(topic, group=group, **settings) as consumer:
        consumer.poll(0)
        until(lambda: cluster.offset(group, tp) == cluster.end(topic, 0))
        assert failed.is_set()


def test_a_reset_that_was_refused_for_somebody_elses_offset_is_not_tried_again(cluster, monkeypatch):
    topic, group = cluster.new(payloads(10))
    tp = TopicPartition(topic, 0, 0)
    cluster.set_offset(group, tp, 10**6)
    commit, refused = GroupMember.commit, threading.Event()

    def after_the_operator(member, positions, generation=None):
        if tp in positions and not refused.is_set():
            cluster.set_offset(group, tp, 0)
            refused.set()
        commit(member, positions, generation)

    monkeypatch.setattr(GroupMember, "commit", after_the_operator)
    settings = {"offset_reset": "largest", "enable_auto_commit": False, "autocommit_interval_ms": 50}
    with cluster.consumer(topic, group=group, **settings) as consumer:
        assert take(consumer, 10) == payloads(10)
        assert cluster.offset(group, tp) == 0


def test_what_was_looked_up_as_a_member_is_not_written_after_leaving(cluster, monkeypatch):
    topic, group = cluster.new(payloads(10))
    tp = TopicPartition(topic, 0, 0)
    write = Commits._write

    def leave_first(commits, todo, *, by_hand):
        if by_hand:  # not the thread that writes resets
            consumer.unsubscribe()
            cluster.set_offset(group, tp, 4711)  # somebody who has it now, and is further
        write(commits, todo, by_hand=by_hand)

    with cluster.consumer(topic, group=group, enable_auto_commit=False) as consumer:
        take(consumer, 4)
        monkeypatch.setattr(Commits, "_write", leave_first)
        with pytest.raises(CommitFailedError) as caught:
            consumer.commit()
        assert tp in caught.value.lost  # the other partition too, if its first offset was not written yet
        assert cluster.offset(group, tp) == 4711


def test_no_offset_and_the_setting_to_make_an_error_of_it(cluster):
    topic, group = cluster.new(payloads(2), payloads(2, "b"))
    first, second = TopicPartition(topic, 0, 0), TopicPartition(topic, 0, 1)
    cluster.set_offset(group, second, 0)
    with cluster.consumer(topic, group=group, offset_reset="error") as consumer:
        values = []
        with pytest.raises(NoOffsetError, match=f"topic '{topic}', broker 0, partition 0"):
            while True:
                values += [message.value for messages in consumer.poll(500).values() for message in messages]
        assert values + take(consumer, 2 - len(values)) == payloads(2, "b")
        assert isinstance(consumer.errors[first], NoOffsetError)
        consumer.seek(first, 0)
        assert take(consumer, 2) == payloads(2)
        assert consumer.errors == {}
    with pytest.raises(ValueError):
        cluster.consumer(topic, offset_reset="nowhere")


# Where it is


def test_seeking_before_the_first_poll(cluster):
    topic, group = cluster.new(payloads(10))
    tp = TopicPartition(topic, 0, 0)
    eighth = cluster.end(topic, 0) // 10 * 8
    for consumer in (cluster.consumer(topic, group=group, autocommit=False), cluster.consumer()):
        with consumer:
            if consumer.config.group is None:
                consumer.assign([tp])
            consumer.seek(tp, eighth)
            assert consumer.position(tp) == Position(eighth)
            assert take(consumer, 2) == [b"m8", b"m9"]
            consumer.seek(tp, kafka07c.EARLIEST)
            assert take(consumer, 1) == [b"m0"]
            consumer.seek(tp, Position(eighth))
            assert take(consumer, 1) == [b"m8"]
            assert consumer.end_offsets([tp]) == {tp: cluster.end(topic, 0)}
            assert consumer.beginning_offsets([tp]) == {tp: 0}
    assert cluster.offset(group, tp) is None  # a seek commits nothing


def test_seeking_in_on_assign(cluster):
    topic, group = cluster.new(payloads(10))
    eighth = cluster.end(topic, 0) // 10 * 8

    def on_assign(partitions: set[TopicPartition]) -> None:
        assert partitions == {TopicPartition(topic, 0, 0), TopicPartition(topic, 0, 1)}
        consumer.seek(TopicPartition(topic, 0, 0), eighth)

    consumer = cluster.consumer(topic, group=group, on_assign=on_assign, until_end=True)
    with consumer:
        assert [message.value for message in consumer] == [b"m8", b"m9"]


def test_a_pause_stops_one_partition_and_loses_nothing(cluster):
    topic, group = cluster.new(payloads(100), payloads(100, "b"))
    first, second = TopicPartition(topic, 0, 0), TopicPartition(topic, 0, 1)
    with cluster.consumer(topic, group=group) as consumer:
        values = [next(consumer)]
        paused = first if values[0].partition == 0 else second
        consumer.pause(paused)
        assert consumer.paused == {paused}
        assert {value[:1] for value in take(consumer, 100)} == {b"m", b"b"} - {values[0].value[:1]}
        assert rest(consumer) == []
        consumer.resume(paused)
        assert take(consumer, 99) == payloads(100, chr(values[0].value[0]))[1:]
        assert rest(consumer) == []
        with pytest.raises(GroupError, match="is not ours; ours: "):
            consumer.pause(TopicPartition("other", 0, 0))


def test_the_end_is_told_once_for_each_arrival(cluster):
    topic, group = cluster.new(payloads(3))
    tp, ends = TopicPartition(topic, 0, 0), []
    end = Position(cluster.end(topic, 0))
    with cluster.consumer(topic, group=group, on_partition_end=lambda *event: ends.append(event)) as consumer:
        assert take(consumer, 3) == payloads(3)
        until(lambda: consumer.poll(10) == {} and len(ends) == 2)
        assert sorted(ends) == [(tp, end), (TopicPartition(topic, 0, 1), Position(0))]
        assert consumer.at_end
        assert rest(consumer) == [] and len(ends) == 2
        later = Position(cluster.send(topic, 0, [b"later"]))
        assert take(consumer, 1) == [b"later"]
        until(lambda: consumer.poll(10) == {} and len(ends) > 2)
        assert ends[2:] == [(tp, later)]


# Errors of one partition


@pytest.fixture
def damaged(cluster) -> tuple[str, str, int, int]:
    """A topic and a group; message 5 of 10 of partition 0 has a bad checksum; where that begins and ends."""
    topic, group = cluster.new(payloads(10), payloads(10, "b"))
    each = cluster.end(topic, 0) // 10
    with cluster.segment(topic, 0).open("r+b") as segment:
        segment.seek(6 * each - 1)
        segment.write(b"!")
    return topic, group, 5 * each, 6 * each


def gather(consumer: Consumer) -> tuple[list[bytes], list[Exception]]:
    values, errors = [], []
    while True:
        try:
            for message in consumer:
                values.append(message.value)
            return values, errors
        except CorruptMessageError as error:
            errors.append(error)


def test_damage_is_raised_once_after_the_good_messages_and_the_others_go_on(cluster, damaged):
    topic, group, start, end = damaged
    tp = TopicPartition(topic, 0, 0)
    with cluster.consumer(topic, group=group, consumer_timeout_ms=2000) as consumer:
        values, errors = gather(consumer)
        assert sorted(values) == sorted(payloads(5) + payloads(10, "b"))
        assert [(error.topic, error.partition, error.offset) for error in errors] == [(topic, 0, start)]
        assert list(consumer.errors) == [tp]
        consumer.seek(tp, end)
        assert gather(consumer) == (payloads(10)[6:], [])
    with cluster.consumer(topic, group=group + "x", consumer_timeout_ms=2000) as consumer:
        with pytest.raises(CorruptMessageError):
            for _ in range(20):
                consumer.poll(500)
        with pytest.raises(CorruptMessageError):
            consumer.seek(tp, 0)
            for _ in consumer.batches():
                pass
    assert cluster.offset(group + "x", tp) == start  # never past what could not be read


def test_damage_stops_its_partition_alone(cluster, damaged):
    topic, group, start, _ = damaged
    told = []
    with cluster.consumer(
        topic, group=group, on_corrupt="stop", on_error=lambda *event: told.append(event), consumer_timeout_ms=2000
    ) as consumer:
        values, errors = gather(consumer)
        assert (sorted(values), errors) == (sorted(payloads(5) + payloads(10, "b")), [])
        [(tp, error, skipped)] = told
        assert (tp, error.offset, skipped) == (TopicPartition(topic, 0, 0), start, None)
        assert consumer.errors == {tp: error}
    assert cluster.offset(group, tp) == start


def test_damage_is_skipped_and_the_range_reported(cluster, damaged, caplog):
    topic, group, start, end = damaged
    told = []
    with cluster.consumer(
        topic, group=group, on_corrupt="skip", on_error=lambda *event: told.append(event), until_end=True
    ) as consumer:
        values, errors = gather(consumer)
        assert (sorted(values), errors) == (sorted(payloads(10)[:5] + payloads(10)[6:] + payloads(10, "b")), [])
        [(tp, error, skipped)] = told
        assert (tp, error.offset, skipped) == (TopicPartition(topic, 0, 0), start, (start, end))
    assert cluster.offset(group, tp) == cluster.end(topic, 0)
    assert f"group {group}: {tp}: skipped offsets {start} to {end}" in caplog.text


# Giving up partitions


def test_on_revoke_can_commit(cluster):
    topic, group = cluster.new(payloads(5), payloads(5, "b"))
    told = []

    def on_revoke(partitions: set[TopicPartition], can_commit: bool) -> None:
        first.commit()
        told.append((partitions, can_commit))

    first = cluster.consumer(topic, group=group, autocommit=False, on_revoke=on_revoke)
    with first, cluster.consumer(topic, group=group, autocommit=False) as second:
        take(first, 10)
        join(second)
        until(lambda: len(first.assignment) == len(second.assignment) == 1)
        [given] = second.assignment
        assert told == [({given}, True)]
        assert cluster.offset(group, given) == cluster.end(topic, given.partition)
        assert rest(second) == []
        first.commit()


def test_a_slow_on_revoke_delays_nobody_and_can_no_longer_commit(cluster):
    topic, group = cluster.new(payloads(5), payloads(5, "b"))
    go_on, found = threading.Event(), []

    def on_revoke(partitions: set[TopicPartition], can_commit: bool) -> None:
        assert go_on.wait(PATIENCE)
        try:
            first.commit()
        except CommitFailedError as error:
            found.append((partitions, error.lost))

    first = cluster.consumer(topic, group=group, autocommit=False, on_revoke=on_revoke)
    try:
        with cluster.consumer(topic, group=group, autocommit=False) as second:
            take(first, 10)
            second.poll(0)
            until(lambda: second.assignment)  # while the callback still waits
            [given] = second.assignment
            go_on.set()
            until(lambda: found)
            assert found == [({given}, [given])]
    finally:
        go_on.set()
        first.close()


def test_a_callback_that_fails_is_logged_and_harms_nothing(cluster, caplog):
    topic, group = cluster.new(payloads(5))

    def fail(*_event) -> None:
        raise ZeroDivisionError

    with cluster.consumer(topic, group=group, on_assign=fail, on_revoke=fail, until_end=True) as consumer:
        assert [message.value for message in consumer] == payloads(5)
    assert cluster.offset(group, TopicPartition(topic, 0, 0)) == cluster.end(topic, 0)
    assert caplog.text.count("a callback failed") == 2


# ZooKeeper goes away


def test_a_lost_connection_stops_delivery_and_a_lost_session_drops_what_is_queued(tmp_path):
    with ZooKeeper(tick_ms=100) as zookeeper, closing(GroupCluster(tmp_path, zookeeper.address)) as cluster:
        topic, group = cluster.new(payloads(1000))
        tp, told = TopicPartition(topic, 0, 0), []
        with cluster.consumer(
            topic, group=group, autocommit=False, zookeeper_session_ms=12_000,
            on_revoke=lambda *event: told.append(event),
        ) as consumer:  # fmt: skip
            assert take(consumer, 10) == payloads(10)
            consumer.commit()
            zookeeper.kill()
            until(lambda: consumer._reader.waiting)
            assert consumer.poll(200) == {}  # though 990 of them are here
            with pytest.raises(CommitFailedError):
                consumer.commit({tp: 0})
            zookeeper.restart()
            assert take(consumer, 10) == payloads(1000)[10:20]  # the same session: it goes on
            assert told == []
            consumer.commit()

            expire(zookeeper, consumer)
            until(lambda: told)
            assert told[0] == ({tp, TopicPartition(topic, 0, 1)}, False)
            until(lambda: tp in consumer.assignment)
            assert take(consumer, 10) == payloads(1000)[20:30]  # from ZooKeeper's offset
            consumer.commit()
            assert consumer.committed(tp) == consumer.position(tp)


def expire(zookeeper: ZooKeeper, consumer: Consumer) -> None:
    """End the member's session, as ZooKeeper does after its time-out: whoever has its id and password may."""
    from kazoo.client import KazooClient

    double = KazooClient(zookeeper.address, client_id=consumer._reader.member._nodes._client.client_id)
    double.start()
    double.stop()
    double.close()


# Figures, lines, ends


def test_figures(cluster):
    topic, group = cluster.new(payloads(10), payloads(5, "b"))
    metrics = Metrics()
    with cluster.consumer(topic, group=group, until_end=True, metrics=metrics) as consumer:
        assert len(list(consumer)) == 15
        shown = metrics.snapshot()
        place = f"{{broker=0,group={group},partition=0,topic={topic}}}"
        assert shown[f"{names.MESSAGES}{{topic={topic}}}"] == shown[names.ALL_MESSAGES] == 15
        assert shown[f"{names.BYTES}{{topic={topic}}}"] == shown[names.ALL_BYTES] == 30
        assert shown[f"{names.PART_OWNER}{place}"] == 1
        assert shown[f"{names.CONSUMED_OFFSET}{place}"] == cluster.end(topic, 0)
        assert shown[f"{names.LATEST_OFFSET}{place}"] == cluster.end(topic, 0)
        assert shown[f"{names.OFFSET_LAG}{place}"] == 0
        cluster.send(topic, 0, [b"one more"])
        until(lambda: metrics.snapshot()[f"{names.OFFSET_LAG}{place}"] == 10 + len(b"one more"))
        assert shown[f"{names.CONSUMER_GROUP}{{group={group}}}"] == 1
        assert shown[f"{names.REBALANCES}{{group={group}}}"] == 1
        consumer.commit()
        assert metrics.snapshot()[f"{names.COMMITS}{{group={group}}}"] >= 1
    assert f"{names.PART_OWNER}{place}" not in metrics.snapshot()


def test_lines_carry_group_topic_and_partition(cluster, caplog):
    caplog.set_level(logging.INFO, "kafka07c.consumer")
    topic, group = cluster.new(payloads(2))
    tp = TopicPartition(topic, 0, 0)
    with cluster.consumer(topic, group=group, autocommit=False) as consumer:
        take(consumer, 1)
        consumer.commit()
        take(consumer, 1)
        cluster.set_offset(group, tp, 0)
        with pytest.raises(CommitFailedError):
            consumer.commit()
    [record] = [record for record in caplog.records if "somebody else" in record.getMessage()]
    assert (record.group, record.topic, record.partition) == (group, topic, "0-0")
    assert all(record.group == group for record in caplog.records if record.name == "kafka07c.consumer")


def test_what_keeps_failing_is_logged_once_and_counted_each_time(cluster, caplog):
    topic, group = cluster.new(payloads(1))
    cluster.nodes.create(f"/consumers/{group}/owners/{topic}/0-0", b"somebody-0", ephemeral=True, makepath=True)
    metrics = Metrics()
    settings = {"rebalance_backoff_ms": 20, "rebalance_retries": 1, "metrics": metrics}
    with cluster.consumer(topic, group=group, **settings) as consumer:
        consumer.poll(0)
        until(lambda: metrics.counter(names.FAILED_REBALANCES, group=group).value >= 3)
    assert len([record for record in caplog.records if "in the way" in record.getMessage()]) == 1


def test_a_closed_consumer_gives_nothing_and_closing_twice_does_no_harm(cluster):
    topic, group = cluster.new(payloads(5))
    consumer = cluster.consumer(topic, group=group)
    take(consumer, 2)
    consumer.close()
    consumer.close()
    assert list(consumer) == []
    assert consumer.poll(10) == {}
    for call in (lambda: consumer.subscribe([topic]), lambda: consumer.assign([])):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    with pytest.raises(GroupError, match="closed"):
        consumer.committed(TopicPartition(topic, 0, 0))  # it would take another session, which nobody would end
    assert cluster.nodes.get_children(f"/consumers/{group}/ids") == []
    assert cluster.nodes.get_children(f"/consumers/{group}/owners/{topic}") == []


def test_it_ends_when_another_thread_closes_it(cluster):
    topic, group = cluster.new(payloads(5))
    consumer = cluster.consumer(topic, group=group)
    values = []
    thread = threading.Thread(target=lambda: values.extend(message.value for message in consumer))
    thread.start()
    until(lambda: len(values) == 5)
    consumer.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_closing_does_not_commit_what_another_thread_is_handling(cluster):
    topic, group = cluster.new(payloads(5))
    tp = TopicPartition(topic, 0, 0)
    consumer = cluster.consumer(topic, group=group)
    with handling_the_third(consumer) as offsets:
        consumer.close()
        assert cluster.offset(group, tp) == offsets[1]


@pytest.mark.parametrize("autocommit", [True, False])
def test_an_idle_consumer_finds_a_changed_offset_by_itself(cluster, autocommit):
    topic, group = cluster.new(payloads(10))
    tp = TopicPartition(topic, 0, 0)
    with cluster.consumer(topic, group=group, autocommit=autocommit, autocommit_interval_ms=50) as consumer:
        assert take(consumer, 10) == payloads(10)
        consumer.commit()
        cluster.set_offset(group, tp, cluster.end(topic, 0) // 2)
        assert take(consumer, 5) == payloads(10)[5:]
        assert cluster.offset(group, tp) == cluster.end(topic, 0) // 2 or autocommit
        consumer.commit()
        assert cluster.offset(group, tp) == cluster.end(topic, 0)


def test_a_commit_whose_answer_was_lost_is_not_taken_back(cluster, monkeypatch):
    # seen when connections to ZooKeeper were reset: the offset was written, and then the one before it once more
    topic, group = cluster.new(payloads(10))
    tp = TopicPartition(topic, 0, 0)
    with cluster.consumer(topic, group=group, enable_auto_commit=False) as consumer:
        take(consumer, 4)
        consumer.commit()
        take(consumer, 3)
        member = consumer._reader.member
        submit = member._nodes._offsets._submit

        def lose_the_answer(*arguments):
            submit(*arguments).get(timeout=PATIENCE)
            lost = member._nodes._client.handler.async_result()
            lost.set_exception(ConnectionLoss())
            return lost

        with monkeypatch.context() as patched:
            patched.setattr(member._nodes._offsets, "_submit", lose_the_answer)
            with pytest.raises(CommitFailedError):
                consumer.commit()
        written = cluster.offset(group, tp)
        consumer._reader.commits._adopt_changes()
        assert cluster.offset(group, tp) == written
        assert take(consumer, 3) == payloads(10)[7:]
        consumer.commit()
        assert cluster.offset(group, tp) == cluster.end(topic, 0) > written


def test_a_group_name_with_a_percent_sign_is_logged(cluster, caplog):
    caplog.set_level(logging.INFO, "kafka07c.consumer")
    topic, _ = cluster.new(payloads(1))
    with cluster.consumer(topic, group=f"100%{topic}%d", until_end=True) as consumer:
        assert len(list(consumer)) == 1
    assert f"group 100%{topic}%d: ours from now on: {topic} 0-0, {topic} 0-1" in caplog.messages
