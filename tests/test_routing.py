"""Where messages go: by keys, by chance, as told; in a cluster that changes, in a new topic, in a static list."""

from __future__ import annotations

import json
import threading

import numpy
import pytest

from kafka07c.cluster import Cluster
from kafka07c.errors import InvalidTopicError, UnknownTopicError, ZooKeeperError
from kafka07c.names import TopicPartition
from kafka07c.producer.partitioners import RoundRobinPartitioner, SharedPartitioner
from kafka07c.producer.routing import Route, Router, indexes_of, picked


class Routed:
    """A router over a live cluster, and waiting until it answers something."""

    def __init__(self, hosts, partitioner=None):
        self._changed = threading.Condition()
        self.cluster = Cluster(zookeeper=hosts, live=True, on_change=self._on_change)
        self.router = Router(self.cluster, partitioner)

    def _on_change(self):
        self.router.changed()
        with self._changed:
            self._changed.notify_all()

    def wait(self, condition):
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.router), 30.0)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.cluster.close()


def brokers(client, *ids):
    for broker in ids:
        client.create(f"/brokers/ids/{broker}", b"h-1:h:9092", makepath=True)


def topic(client, name, **counts):
    for broker, partitions in counts.items():
        client.create(f"/brokers/topics/{name}/{broker[1:]}", b"%d" % partitions, makepath=True)


def routes(shares, messages):
    """The route of each message; each has to be in one share."""
    found = [None] * messages
    for share in shares:
        for index in indexes_of(share):
            assert found[index] is None
            found[index] = share.route
    return found


@pytest.mark.zookeeper
def test_keys_go_where_the_scala_producer_puts_them(golden, hosts, client):
    # by number, unlike a consumer's assignment: 10 comes after 2
    brokers(client, 0, 2, 10)
    topic(client, "t", b0=3, b2=2, b10=2)
    order = [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1), (10, 0), (10, 1)]
    recorded = json.loads(golden.bytes("partitioner.json"))
    keys = [each["key"] for each in recorded]
    with Routed(hosts) as routed:
        expected = [order[abs(each["partition_of"]["7"])] for each in recorded]
        assert [routed.router.route("t", key) for key in keys] == expected
        assert routes(routed.router.route_many("t", keys, len(keys)), len(keys)) == expected
        assert [tp[1:] for tp in routed.router.partitions("t")] == order


@pytest.mark.zookeeper
def test_a_new_topic_goes_to_partition_0_of_every_broker_until_it_shows_up(hosts, client):
    brokers(client, 3, 4)
    with Routed(hosts) as routed:
        assert {routed.router.route("new") for _ in range(200)} == {(3, 0), (4, 0)}
        assert routed.router.route("new", "a") == (4, 0), "97 % 2"
        topic(client, "new", b3=2, b4=2)
        routed.wait(lambda router: len(router.partitions("new")) == 4)
        assert {routed.router.route("new") for _ in range(400)} == {(3, 0), (3, 1), (4, 0), (4, 1)}
        client.set("/brokers/topics/new/4", b"3")
        routed.wait(lambda router: router.route("new", "b") == (4, 1))  # 98 % 5
        client.delete("/brokers/topics/new/3")
        routed.wait(lambda router: router.partitions("new") == [TopicPartition("new", 4, n) for n in range(3)])


@pytest.mark.zookeeper
def test_no_broker_at_all_and_then_one(hosts, client):
    with Routed(hosts) as routed:
        with pytest.raises(UnknownTopicError, match="topic 't' can go nowhere: no broker is registered in ZooKeeper"):
            routed.router.route("t")
        with pytest.raises(UnknownTopicError):
            routed.router.route_many("t", None, 5)
        assert routed.router.route("t", partition="7-1") == (7, 1), "that broker may come"
        brokers(client, 0)
        routed.wait(lambda router: router._cluster.brokers)
        assert routed.router.route("t") == (0, 0)


@pytest.mark.zookeeper
def test_nothing_is_asked_again_until_the_cluster_changes(hosts, client):
    brokers(client, 0)
    topic(client, "t", b0=2)
    with Routed(hosts) as routed:
        routed.router.route("t")
        routed.router.route("t", partition="0-1")
    routed.cluster = None
    router = routed.router
    router._cluster = None  # whatever asks it now fails
    for _ in range(10):
        assert router.route("t") in [(0, 0), (0, 1)]
        assert router.route("t", partition="0-1") == (0, 1)
        assert sum(map(len, (indexes_of(share) for share in router.route_many("t", None, 100)))) == 100
    router.changed()
    with pytest.raises(AttributeError):
        router.route("t")
    with pytest.raises(AttributeError):
        router.route("t", partition="0-1")


@pytest.mark.zookeeper
def test_partitions_as_told(hosts, client):
    brokers(client, 0, 1)
    topic(client, "t", b0=2)
    with Routed(hosts) as routed:
        route = routed.router.route
        for _ in range(2):  # the second time from what is kept
            assert route("t", "any", "0-1") == route("t", partition=TopicPartition("t", 0, 1)) == (0, 1)
            [share] = routed.router.route_many("t", ["a", None], 2, "0-1")
            assert (share.route, list(indexes_of(share))) == (Route(0, 1), [0, 1])
        assert route("t", partition="1-5") == (1, 5), "broker 1 does not have the topic yet"
        assert route("t", partition="8-0") == (8, 0), "it may come back"
        assert route("t", partition=TopicPartition("t", 0, -1)) == (0, -1), "the broker picks"
        for partition in ("0-2", TopicPartition("t", 0, 2)):
            with pytest.raises(InvalidTopicError, match="no partition 2 on broker 0: that one has 2, 0 to 1"):
                route("t", partition=partition)
        with pytest.raises(InvalidTopicError, match="partition -2 is none"):
            route("t", partition=TopicPartition("t", 0, -2))
        with pytest.raises(InvalidTopicError, match="broker -1 of topic 't' is none"):
            route("t", partition=TopicPartition("t", -1, 0))
        with pytest.raises(ValueError, match="topic 't' cannot go to a partition of topic 'u'"):
            route("t", partition=TopicPartition("u", 0, 0))
        with pytest.raises(ValueError, match="'1' is no partition: expected broker-partition"):
            route("t", partition="1")
        for partition in (0, True, (0, 1), [0]):
            with pytest.raises(TypeError, match="every broker has its own partitions.*so give the broker too"):
                route("t", partition=partition)


@pytest.mark.zookeeper
def test_a_damaged_count_is_told_and_hides_no_other_topic(hosts, client):
    brokers(client, 0)
    topic(client, "good", b0=1)
    client.create("/brokers/topics/bad/0", b"many", makepath=True)
    with Routed(hosts) as routed:
        assert routed.router.route("good") == (0, 0)
        with pytest.raises(ZooKeeperError, match="/brokers/topics/bad/0"):
            routed.router.route("bad")


@pytest.mark.zookeeper
def test_many_messages(hosts, client):
    brokers(client, 0, 1)
    topic(client, "t", b0=1, b1=2)
    with Routed(hosts) as routed:
        [share] = routed.router.route_many("t", None, 1000)
        assert share.which == slice(0, 1000)
        [share] = routed.router.route_many("t", [None] * 9, 9)
        assert list(indexes_of(share)) == list(range(9))
        keys = ["a", None, "b", "key", "a", "key1"] * 50
        shares = routed.router.route_many("t", keys, len(keys))
        chosen = routes(shares, len(keys))
        assert len(shares) <= 3
        for index, key in enumerate(keys):
            if key is not None:
                assert chosen[index] == routed.router.route("t", key)
        assert len(set(chosen[1::6])) == 1
        for share in shares:
            assert picked(keys, share.which) == [keys[index] for index in indexes_of(share)]
            assert list(indexes_of(share)) == sorted(indexes_of(share))
        assert routed.router.route_many("t", [], 0) == []
        with pytest.raises(ValueError, match="3 messages have 2 keys"):
            routed.router.route_many("t", ["a", "b"], 3)
        with pytest.raises(TypeError, match="not int"):
            routed.router.route_many("t", ["a", 5], 2)


@pytest.mark.zookeeper
def test_round_robin_is_by_topic(hosts, client):
    brokers(client, 0)
    topic(client, "t", b0=2)
    topic(client, "u", b0=2)
    with Routed(hosts, RoundRobinPartitioner()) as routed:
        sent = [(routed.router.route("t")[1], routed.router.route("u")[1]) for _ in range(4)]
        assert sent == [(0, 0), (1, 1), (0, 0), (1, 1)]
        assert [share.which for share in routed.router.route_many("t", None, 5)] == [slice(0, 3), slice(3, 5)]
        assert routed.router.route("t") == (0, 1)


@pytest.mark.zookeeper
def test_partitioners_of_ones_own(hosts, client):
    brokers(client, 0)
    topic(client, "t", b0=4)
    asked = []

    def partitioner(key, partitions):
        asked.append((key, partitions))
        return numpy.int32(3) if key is None else key

    with Routed(hosts, partitioner) as routed:
        assert [routed.router.route("t", 1), routed.router.route("t")] == [(0, 1), (0, 3)]
        assert routes(routed.router.route_many("t", None, 2), 2) == [(0, 3), (0, 3)]
        assert routes(routed.router.route_many("t", [2, None, 0], 3), 3) == [(0, 2), (0, 3), (0, 0)]
        assert asked == [(1, 4), (None, 4), (None, 4), (None, 4), (2, 4), (None, 4), (0, 4)]
        for wrong in (4, -1, "x", 1.5):
            message = f"the partitioner gave {wrong!r}; for 4 partitions it has to be from 0 to 3"
            with pytest.raises(ValueError, match=message):
                routed.router.route("t", wrong)
            with pytest.raises(ValueError, match=message):
                routed.router.route_many("t", [0, wrong], 2)


@pytest.mark.zookeeper
def test_shared_partitioners_of_ones_own_that_are_wrong(hosts, client):
    class Wrong(SharedPartitioner):
        def choose(self, partitions):
            return partitions

        def of_keys(self, keys, partitions):
            return numpy.full(len(keys), -1)

        def runs(self, messages, partitions):
            yield 0, messages - 1

    brokers(client, 0)
    with Routed(hosts, Wrong()) as routed:
        with pytest.raises(ValueError, match="the partitioner gave 1; for 1 partitions"):
            routed.router.route("t")
        with pytest.raises(ValueError, match="the partitioner gave -1;"):
            routed.router.route_many("t", ["a"], 1)
        with pytest.raises(ValueError, match="the partitioner's runs are for 4 messages, where there are 5"):
            routed.router.route_many("t", None, 5)


def test_a_static_list_leaves_the_partition_to_a_random_broker():
    def never(key, partitions):
        raise AssertionError("the key has no part in it")

    router = Router(Cluster(brokers="0:h:1,5:h:2"), never)
    assert {router.route("t", "same") for _ in range(200)} == {(0, -1), (5, -1)}
    seen = set()
    for _ in range(200):
        [share] = router.route_many("t", ["a", "b"], 2)
        seen.add(share.route)
        assert list(indexes_of(share)) == [0, 1]
    assert seen == {(0, -1), (5, -1)}
    assert router.partitions("t") == [TopicPartition("t", 0, -1), TopicPartition("t", 5, -1)]


def test_a_static_list_and_a_partition_as_told():
    router = Router(Cluster(brokers="0:h:1,5:h:2"))
    assert router.route("t", partition="5-3") == (5, 3)
    with pytest.raises(ZooKeeperError, match="broker 6 is not registered in the list of brokers; there: 0, 5"):
        router.route("t", partition="6-0")


@pytest.mark.parametrize("partition", [None, "0-0"])
def test_topics_that_are_none(partition):
    router = Router(Cluster(brokers="0:h:1"))
    for name in ("", "..", "a/b", "x" * 256):
        with pytest.raises(InvalidTopicError):
            router.route(name, partition=partition)
        with pytest.raises(InvalidTopicError):
            router.route_many(name, None, 1, partition)
    with pytest.raises(TypeError, match="a topic is a str, not bytes"):
        router.route(b"t", partition=partition)
