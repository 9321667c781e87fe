"""Cluster and the names of partitions, against the real ZooKeeper and embedded brokers."""

from __future__ import annotations

import pickle
from contextlib import ExitStack

import pytest

from kafka07c import cluster as cluster_module
from kafka07c.broker import Broker
from kafka07c.cluster import Cluster, probe_partitions
from kafka07c.names import BrokerAddress, TopicPartition, parse_brokers, parse_partition
from kafka07c.errors import BrokerConnectionError, InvalidTopicError, ZooKeeperError
from kafka07c.simple import SimpleConsumer
from kafka07c.testing import ZooKeeper, free_ports
from kafka07c.zookeeper import connect

# Names


def test_topic_partition():
    tp = TopicPartition("my-clicks", 0, 1)
    assert (str(tp), tp.name) == ("my-clicks 0-1", "0-1")
    assert tp == ("my-clicks", 0, 1) and pickle.loads(pickle.dumps(tp)) == tp
    assert sorted([TopicPartition("t", 10, 0), TopicPartition("t", 2, 1), TopicPartition("t", 2, 0)])[0].name == "2-0"


def test_parse_partition():
    assert parse_partition("0-1") == (0, 1)
    assert parse_partition("2147483647-10") == (2147483647, 10)


@pytest.mark.parametrize(
    "name", ["", "0", "-", "0-", "-1", "0--1", "a-b", "0-1-2", " 0-1", "0-1\n", "01-1", "0-2147483648"]
)
def test_no_partition(name):
    with pytest.raises(ValueError, match="expected broker-partition, such as 0-1"):
        parse_partition(name)


def test_parse_brokers():
    assert parse_brokers("1:b:2, 0:::1:9092,10:[fe80::1]:1,") == {
        0: BrokerAddress(0, "::1", 9092), 1: BrokerAddress(1, "b", 2), 10: BrokerAddress(10, "fe80::1", 1),
    }  # fmt: skip
    assert list(parse_brokers("10:a:1,9:a:2")) == [9, 10]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names no broker: expected id:host:port,id:host:port"),
        (" , ", "names no broker"),
        ("localhost:9092", "'localhost:9092' is no broker: expected id:host:port"),
        ("0:localhost", "is no broker"),
        ("-1:h:1", "is no broker"),
        ("0:h:x", "is no broker"),
        ("0::9092", "'0::9092' names no host"),
        ("0:h:0", "has port 0: expected 1 to 65535"),
        ("0:h:65536", "has port 65536"),
        ("0:a:1,0:b:2", "broker id 0 stands twice in '0:a:1,0:b:2'"),
    ],
)
def test_malformed_brokers(text, reason):
    with pytest.raises(ValueError, match=reason):
        Cluster(brokers=text)


# ZooKeeper


@pytest.fixture(scope="module")
def zookeeper():
    with ZooKeeper() as server:
        yield server.address


@pytest.mark.zookeeper
def test_a_snapshot_until_it_is_refreshed(zookeeper):
    client = connect(f"{zookeeper}/kept/here", make_chroot=True)
    client.create("/brokers/ids/1", b"h-1:h:9091", makepath=True)
    client.create("/brokers/topics/clicks/1", b"2", makepath=True)
    with Cluster(zookeeper=f"{zookeeper}/kept/here") as cluster:
        assert cluster.topics == {"clicks": {1: 2}}
        client.create("/brokers/ids/0", b"h-1:fe80::1:9090", makepath=True)
        client.create("/brokers/topics/clicks/0", b"1", makepath=True)
        client.create("/brokers/topics/clicks/10", b"1", makepath=True)
        assert cluster.partitions("clicks") == [("clicks", 1, 0), ("clicks", 1, 1)]
        with pytest.raises(ZooKeeperError, match="broker 0 is not registered in ZooKeeper at .*/kept/here; there: 1$"):
            cluster.address(0)
        cluster.refresh()
        assert [str(tp) for tp in cluster.partitions("clicks")] == [
            "clicks 0-0", "clicks 1-0", "clicks 1-1", "clicks 10-0",
        ]  # fmt: skip
        assert cluster.brokers == {0: (0, "fe80::1", 9090), 1: (1, "h", 9091)}
        assert cluster.address(0) == BrokerAddress(0, "fe80::1", 9090)
        assert cluster.partitions("unknown") == []
        with pytest.raises(ZooKeeperError, match="broker 10 is not registered"):
            cluster.connect(10)
    client.stop()
    client.close()


@pytest.mark.zookeeper
def test_damaged_nodes_are_raised_where_they_are_needed(zookeeper, caplog):
    client = connect(f"{zookeeper}/damaged", make_chroot=True)
    client.create("/brokers/ids/0", b"h-1:h:9090", makepath=True)
    client.create("/brokers/ids/1", b"nonsense", makepath=True)
    client.create("/brokers/topics/good/0", b"1", makepath=True)
    client.create("/brokers/topics/bad/0", b"one", makepath=True)
    client.create("/brokers/topics/bad/1", b"1", makepath=True)
    client.stop()
    client.close()
    cluster = Cluster(zookeeper=f"{zookeeper}/damaged")
    assert list(cluster.brokers) == [0]
    assert cluster.topics == {"bad": {1: 1}, "good": {0: 1}}
    assert cluster.partitions("good") == [("good", 0, 0)]
    with pytest.raises(ZooKeeperError, match="^/brokers/ids/1: found b'nonsense', expected"):
        cluster.address(1)
    with pytest.raises(ZooKeeperError, match="^/brokers/topics/bad/0: found b'one', expected"):
        cluster.partitions("bad")
    assert list(cluster.errors) == ["/brokers/ids/1", "/brokers/topics/bad/0"]
    warned = [record.getMessage() for record in caplog.records if record.name == cluster_module.__name__]
    assert [text.partition(":")[0] for text in warned] == ["/brokers/ids/1", "/brokers/topics/bad/0"]


def test_which_way_in():
    for arguments in ({}, {"zookeeper": "h:1", "brokers": "0:h:1"}):
        with pytest.raises(ValueError, match="zookeeper= or by brokers=, one of them"):
            Cluster(**arguments)
    with pytest.raises(ValueError, match="no ZooKeeper address"):
        Cluster(zookeeper="h:1:2:3")


@pytest.mark.zookeeper
def test_brokers_that_register_themselves(zookeeper, tmp_path):
    address = f"{zookeeper}/live"
    with ExitStack() as stack:
        for broker_id in (0, 1):
            broker = Broker(tmp_path / str(broker_id), broker_id=broker_id, partitions=2, zookeeper=address)
            stack.enter_context(broker)
        cluster = Cluster(zookeeper=address)
        assert list(cluster.brokers) == [0, 1]
        assert cluster.address(1).port == broker.port
        with cluster.connect(1) as consumer:
            assert len(consumer.fetch("clicks", 1, 0)) == 0


# A static list


@pytest.mark.parametrize("partitions", [1, 2, 15, 16, 17, 64, 1000])
def test_partitions_are_counted_by_asking(tmp_path, partitions):
    with Broker(tmp_path, partitions=partitions) as broker, SimpleConsumer(broker.host, broker.port) as consumer:
        assert probe_partitions(consumer, "clicks") == partitions
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


class Counted(SimpleConsumer):
    round_trips = 0

    def multifetch(self, requests, *args, **kwargs):
        self.round_trips += 1
        assert len(requests) <= 32
        return super().multifetch(requests, *args, **kwargs)


@pytest.mark.parametrize(
    ("partitions", "round_trips"), [(1, 1), (15, 1), (16, 1), (40, 2), (63, 2), (5000, 4), (65_535, 4), (200_000, 4)]
)
def test_counting_takes_few_round_trips(tmp_path, partitions, round_trips):
    with Broker(tmp_path, partitions=partitions) as broker, Counted(broker.host, broker.port) as consumer:
        assert probe_partitions(consumer, "clicks") == min(partitions, 65_536)
        assert consumer.round_trips <= round_trips


def test_a_static_list(tmp_path):
    properties = {"topic.partition.count.map": "clicks:3"}
    with (
        Broker(tmp_path / "0", broker_id=0, partitions=1, properties=properties) as first,
        Broker(tmp_path / "7", broker_id=7, partitions=2) as second,
    ):
        with Cluster(brokers=f"7:127.0.0.1:{second.port},0:127.0.0.1:{first.port}") as cluster:
            assert [tp.name for tp in cluster.partitions("clicks")] == ["0-0", "0-1", "0-2", "7-0", "7-1"]
            assert [tp.name for tp in cluster.partitions("views")] == ["0-0", "7-0", "7-1"]
            assert list(cluster.brokers) == [0, 7]
            assert cluster.address(7) == (7, "127.0.0.1", second.port)
            with pytest.raises(ZooKeeperError, match="a static list of brokers knows no topics"):
                cluster.topics
            with pytest.raises(ZooKeeperError, match="broker 1 is not registered in the list of brokers; there: 0, 7"):
                cluster.address(1)
            with pytest.raises(InvalidTopicError):
                cluster.partitions("no/topic")
            with cluster.connect(7) as consumer:
                assert consumer.fetch("clicks", 0, 0).broker == 7


def test_a_listed_broker_that_is_away():
    (port,) = free_ports(1)
    with pytest.raises(BrokerConnectionError, match=f"127.0.0.1:{port}"):
        Cluster(brokers=f"0:127.0.0.1:{port}").partitions("clicks")
