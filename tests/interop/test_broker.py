"""Our broker in the place of a real one, in a ZooKeeper of 0.7's time, under the Scala console tools."""

from __future__ import annotations

import re

import pytest
from interop.scala07 import ConsoleConsumer, ConsoleProducer, wait_until
from interop.test_wire import CODECS, lines, wait_for_messages
from kazoo.client import KazooClient

from kafka07c.broker import Broker
from kafka07c.cluster import Cluster
from kafka07c.errors import BrokerIdInUseError
from kafka07c.simple import SimpleConsumer, SyncProducer
from kafka07c.zookeeper import BrokerRegistration, session

PROPERTIES = {"log.flush.interval": 1}


@pytest.fixture
def broker(tmp_path, zookeeper):
    with Broker(tmp_path / "ours", partitions=1, zookeeper=zookeeper, properties=PROPERTIES) as broker:
        yield broker


def nodes(zookeeper):
    """Paths, data without what differs from run to run, and who is ephemeral."""

    def visit(client, path):
        data, stat = client.get(path)
        text = None if data is None else re.sub(rb"-\d{13}:|:\d+$", b"", data)
        yield path, text, stat.ephemeralOwner != 0
        for child in client.get_children(path):
            yield from visit(client, f"{path.rstrip('/')}/{child}")

    with session(zookeeper) as client:
        return sorted(visit(client, "/"))


def test_it_is_a_zookeeper_of_that_time(old_zookeeper):
    assert old_zookeeper.version.startswith("3.3.")


def test_the_scala_producer_finds_our_broker(broker, zookeeper, jvm):
    text = [f"line {n} äöü ☃".encode() for n in range(500)]
    with ConsoleProducer(jvm, zookeeper, "clicks") as console, SimpleConsumer(broker.host, broker.port) as consumer:
        console.send(text)
        assert [message.value for message in wait_for_messages(consumer, "clicks", len(text))] == text
    assert Cluster(zookeeper=zookeeper).topics == {"clicks": {0: 1}}


def test_the_scala_consumer_finds_our_broker(broker, zookeeper, jvm):
    sent = []
    with SyncProducer(broker.host, broker.port) as producer:
        for number in range(9):
            payloads = lines(number, 50)
            producer.send("clicks", 0, payloads, CODECS[number % 3])
            sent += payloads
        producer.send("clicks", 0, [b"so far"])
        wait_until(lambda: Cluster(zookeeper=zookeeper).partitions("clicks"), "the topic")
        with ConsoleConsumer(jvm, zookeeper, "clicks") as console:
            printed = console.until(b"so far")
            assert printed == b"".join(payload + b"\n" for payload in [*sent, b"so far"])
            producer.send("clicks", 0, [b"later"], "snappy")
            assert console.until(b"later") == printed + b"later\n"


def test_a_mixed_cluster(broker, real_broker, zookeeper, jvm):
    with real_broker(zookeeper, broker_id=1) as real, ConsoleConsumer(jvm, zookeeper, "clicks") as console:
        for each in (broker, real):
            with SyncProducer(each.host, each.port) as producer:
                producer.send("clicks", 0, [b"from %d" % each.port, b"the end"])
        printed = console.until(b"the end", times=2)
    assert sorted(printed.splitlines()) == sorted(
        [b"from %d" % broker.port, b"from %d" % real.port, b"the end", b"the end"]
    )
    cluster = Cluster(zookeeper=zookeeper)
    assert [tp.name for tp in cluster.partitions("clicks")] == ["0-0", "1-0"]


def test_both_register_the_same_nodes(real_broker, old_zookeeper, tmp_path):
    found = []
    for number, make in enumerate(
        [
            lambda address: real_broker(address, num_partitions=2),
            lambda address: Broker(tmp_path / "ours", partitions=2, zookeeper=address, properties=PROPERTIES),
        ]
    ):
        address = old_zookeeper.make_chroot(f"same-{number}")
        with make(address) as broker, SyncProducer(broker.host, broker.port) as producer:
            producer.send("clicks", 0, [b"x"])
            wait_until(lambda: Cluster(zookeeper=address).partitions("clicks"), "the topic")
            found.append(nodes(address))
    assert found[0] == found[1]


def test_one_id_for_two(broker, real_broker, zookeeper):
    with pytest.raises(AssertionError, match="already registered on the path /brokers/ids/0"):
        real_broker(zookeeper).start()
    broker.stop()
    with real_broker(zookeeper) as real:
        with pytest.raises(BrokerIdInUseError, match=f"broker id 0 is in use: .*127.0.0.1:{real.port}"):
            broker.start()
        with pytest.raises(BrokerIdInUseError):
            BrokerRegistration(zookeeper, 0, "127.0.0.1", broker.port).start()
        real.stop()
        broker.start()


def test_a_lost_session_is_registered_anew_in_that_zookeeper(broker, old_zookeeper, zookeeper):
    with SyncProducer(broker.host, broker.port) as producer:
        producer.send("clicks", 0, [b"x"])

    def owners():
        with session(zookeeper) as client:
            paths = ["/brokers/ids/0", "/brokers/topics/clicks/0"]
            stats = [client.exists(path) for path in paths]
            return {stat.ephemeralOwner for stat in stats} if all(stats) else None

    (before,) = wait_until(owners, "the nodes")
    client_id = broker._running.registration._client.client_id
    thief = KazooClient(old_zookeeper.address, client_id=client_id)  # takes over the session, to end it
    thief.start()
    thief.stop()
    thief.close()
    wait_until(lambda: (found := owners()) and before not in found and len(found) == 1, "the nodes of a new session")
