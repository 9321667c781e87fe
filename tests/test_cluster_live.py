"""A live Cluster against the real ZooKeeper: whatever changes there is answered, and told, without being asked for."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl

from kafka07c import Consumer, SyncProducer
from kafka07c.broker import Broker
from kafka07c.cluster import Cluster
from kafka07c.names import BrokerAddress, TopicPartition
from kafka07c.errors import ZooKeeperError
from kafka07c.protocol import EARLIEST
from kafka07c.testing import ZooKeeper
from kafka07c.zookeeper import Access, BrokerRegistration, connect
from kafka07c.zookeeper.watching import BrokerWatch

pytestmark = pytest.mark.zookeeper

CERTIFICATES = Path(__file__).parent / "certificates"


class Watched:
    """A live cluster, and waiting until its answer is another."""

    def __init__(self, zookeeper, **options):
        self._changed = threading.Condition()
        self.changes = 0
        self.cluster = Cluster(zookeeper=zookeeper, live=True, on_change=self._on_change, **options)

    def _on_change(self):
        with self._changed:
            self.changes += 1
            self._changed.notify_all()

    def wait(self, condition):
        """Until ``condition(cluster)``; looked at only after the cluster has said that it changed."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.cluster), 30.0), (
                self.cluster.brokers, self.cluster.topics, self.cluster.errors,
            )  # fmt: skip

    def __enter__(self):
        self.cluster.brokers
        return self

    def __exit__(self, *exc_info):
        self.cluster.close()


def test_everything_from_the_first_broker_to_the_last(hosts, client):
    with Watched(hosts) as watched:
        assert (watched.cluster.brokers, watched.cluster.topics) == ({}, {})
        client.create("/brokers/ids/0", b"h-1:h:9092", makepath=True)
        watched.wait(lambda cluster: cluster.brokers == {0: BrokerAddress(0, "h", 9092)})
        client.create("/brokers/topics/t/0", b"2", makepath=True)
        watched.wait(lambda cluster: cluster.partitions("t") == [TopicPartition("t", 0, 0), TopicPartition("t", 0, 1)])
        client.create("/brokers/topics/t/10", b"1")
        client.create("/brokers/topics/u/0", b"1", makepath=True)
        watched.wait(lambda cluster: cluster.topics == {"t": {0: 2, 10: 1}, "u": {0: 1}})
        client.delete("/brokers/topics/t/0")
        watched.wait(lambda cluster: cluster.topics == {"t": {10: 1}, "u": {0: 1}})
        client.delete("/brokers/topics/t", recursive=True)
        watched.wait(lambda cluster: cluster.topics == {"u": {0: 1}})
        client.create("/brokers/topics/t/1", b"3", makepath=True)
        watched.wait(lambda cluster: cluster.topics == {"t": {1: 3}, "u": {0: 1}})
        client.delete("/brokers", recursive=True)
        watched.wait(lambda cluster: (cluster.brokers, cluster.topics) == ({}, {}))
        client.create("/brokers/ids/0", b"h-1:h:9092", makepath=True)
        client.create("/brokers/topics/t/0", b"1", makepath=True)
        watched.wait(lambda cluster: cluster.brokers and cluster.topics == {"t": {0: 1}})


def test_data_that_changes_under_unchanged_children(hosts, client):
    client.create("/brokers/ids/0", b"h-1:h:9092", makepath=True)
    client.create("/brokers/topics/t/0", b"1", makepath=True)
    with Watched(hosts) as watched:
        for partitions in (2, 3, 4):  # each change has to set the next watch
            client.set("/brokers/topics/t/0", b"%d" % partitions)
            watched.wait(lambda cluster: cluster.topics == {"t": {0: partitions}})
        client.set("/brokers/ids/0", b"h-1:::1:9093")
        watched.wait(lambda cluster: cluster.address(0) == BrokerAddress(0, "::1", 9093))
        client.set("/brokers/ids/0", b'{"host": "h2", "port": 9094}')
        watched.wait(lambda cluster: cluster.address(0) == BrokerAddress(0, "h2", 9094))


def test_a_node_removed_and_made_again_at_once(hosts, client):
    client.create("/brokers/ids/0", b"h-1:h:9092", makepath=True)
    client.create("/brokers/topics/t/0", b"1", makepath=True)
    with Watched(hosts) as watched:
        for port in range(1, 40):
            change = client.transaction()
            change.delete("/brokers/ids/0")
            change.delete("/brokers/topics/t/0")
            change.create("/brokers/ids/0", b"h-1:h:%d" % port)
            change.create("/brokers/topics/t/0", b"%d" % port)
            change.commit()
        watched.wait(lambda cluster: cluster.address(0).port == 39 and cluster.topics == {"t": {0: 39}})
        client.set("/brokers/topics/t/0", b"40")
        watched.wait(lambda cluster: cluster.topics == {"t": {0: 40}})


def test_a_node_that_was_gone_when_read_and_is_back_when_its_parent_is(hosts, client):
    client.create("/brokers/ids/0", b"h-1:h:9092", makepath=True)
    watch = BrokerWatch(hosts)
    watch._client = client
    assert watch._read_everything()
    client.delete("/brokers/ids/0")
    assert watch._read(["/brokers/ids/0"]) and watch.snapshot.brokers == {}
    client.create("/brokers/ids/0", b"h-1:h:9093")
    assert watch._read(["/brokers/ids"]) and watch.snapshot.brokers == {0: ("h", 9093)}


def test_a_storm_of_changes_ends_with_the_truth(hosts, client):
    with Watched(hosts) as watched:
        for number in range(60):
            client.ensure_path(f"/brokers/topics/t{number}")
            client.create_async(f"/brokers/topics/t{number}/0", b"1")
            client.create_async(f"/brokers/topics/t{number}/1", b"1")
            if number >= 3:
                client.delete(f"/brokers/topics/t{number - 3}", recursive=True)
        watched.wait(lambda cluster: cluster.topics == {f"t{number}": {0: 1, 1: 1} for number in (57, 58, 59)})


def test_a_damaged_node_is_told_and_hides_nothing_else(hosts, client):
    client.create("/brokers/ids/0", b"h-1:h:9092", makepath=True)
    with Watched(hosts) as watched:
        client.create("/brokers/ids/1", b"nonsense")
        watched.wait(lambda cluster: list(cluster.errors) == ["/brokers/ids/1"])
        assert list(watched.cluster.brokers) == [0]
        client.set("/brokers/ids/1", b"h-1:h:9093")
        watched.wait(lambda cluster: not cluster.errors and list(cluster.brokers) == [0, 1])


def test_what_changes_nothing_is_not_told(hosts, client):
    client.create("/brokers/ids/0", b"h-1:h:9092", makepath=True)
    with Watched(hosts) as watched:
        client.set("/brokers/ids/0", b"other-2:h:9092")  # the same address
        client.create("/brokers/ids/1", b"h-1:h:9093")
        watched.wait(lambda cluster: len(cluster.brokers) == 2)
        assert watched.changes == 1


def test_a_callback_that_raises_ends_nothing(hosts, client, caplog):
    told = threading.Event()

    def on_change():
        told.set()
        raise RuntimeError("on purpose")

    with Cluster(zookeeper=hosts, live=True, on_change=on_change) as cluster:
        assert cluster.brokers == {}
        for number in range(2):
            client.create(f"/brokers/ids/{number}", b"h-1:h:9092", makepath=True)
            assert told.wait(30.0)
            told.clear()
        assert len(cluster.brokers) == 2
    assert "on purpose" in caplog.text


def test_a_callback_may_close_the_cluster(hosts, client):
    closed = threading.Event()

    def on_change():
        cluster.close()
        closed.set()

    cluster = Cluster(zookeeper=hosts, live=True, on_change=on_change)
    assert cluster.brokers == {}
    client.create("/brokers/ids/0", b"h-1:h:9092", makepath=True)
    assert closed.wait(30.0)


def test_brokers_of_our_own_come_and_go(hosts, tmp_path):
    with Watched(hosts) as watched:
        for partitions in (1, 2):
            with Broker(tmp_path, 3, 0, partitions, hosts) as broker:
                watched.wait(lambda cluster: cluster.brokers.get(3) == BrokerAddress(3, "127.0.0.1", broker.port))
                with watched.cluster.connect(3) as consumer:
                    assert consumer.get_offsets_before("t", 0, EARLIEST) == [0]
            watched.wait(lambda cluster: 3 not in cluster.brokers)


def test_a_broker_that_is_back_under_another_address(hosts):
    with Watched(hosts) as watched:
        for port in (9092, 9093):
            with BrokerRegistration(hosts, 0, "127.0.0.1", port) as registration:
                registration.add_topic("t", port - 9090)
                watched.wait(lambda cluster: 0 in cluster.brokers and cluster.address(0).port == port)
                watched.wait(lambda cluster: len(cluster.partitions("t")) == port - 9090)


# Connections and sessions


def test_what_changed_while_the_server_was_down_is_found_out(hosts, client):
    own = ZooKeeper(tick_ms=100)
    with own, Watched(own.address) as watched:
        outsider = connect(own.address)
        outsider.create("/brokers/ids/0", b"h-1:h:9092", makepath=True)
        watched.wait(lambda cluster: len(cluster.brokers) == 1)
        own.kill()
        assert len(watched.cluster.brokers) == 1  # the last answer stays
        own.restart()
        outsider.retry(outsider.create, "/brokers/ids/1", b"h-1:h:9093")
        watched.wait(lambda cluster: len(cluster.brokers) == 2)
        outsider.retry(outsider.set, "/brokers/ids/1", b"h-1:h:9094")
        watched.wait(lambda cluster: cluster.address(1).port == 9094)
        outsider.stop()
        outsider.close()


def test_a_session_that_has_expired(server, hosts, client):
    with Watched(hosts) as watched:
        kazoo = watched.cluster._watch._client
        # Somebody else ends our session: what a server does that has not heard of us for too long.
        thief = KazooClient(server.address, client_id=kazoo.client_id)
        thief.start()
        thief.stop()
        thief.close()
        client.create("/brokers/ids/0", b"h-1:h:9092", makepath=True)
        watched.wait(lambda cluster: len(cluster.brokers) == 1)
        client.set("/brokers/ids/0", b"h-1:h:9093")
        watched.wait(lambda cluster: cluster.address(0).port == 9093)


def test_closed_it_holds_no_session_and_begins_anew_when_asked(hosts, client):
    before = threading.active_count()
    cluster = Cluster(zookeeper=hosts, live=True)
    assert cluster.brokers == {} and threading.active_count() > before
    cluster.close()
    cluster.close()
    assert threading.active_count() == before
    client.create("/brokers/ids/0", b"h-1:h:9092", makepath=True)
    assert len(cluster.brokers) == 1
    cluster.refresh()
    assert len(cluster.brokers) == 1
    cluster.close()


def test_threads_that_ask_at_once_open_one_session(hosts):
    before = threading.active_count()
    with Cluster(zookeeper=hosts, live=True) as cluster:
        askers = [threading.Thread(target=lambda: cluster.brokers) for _ in range(8)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        assert sum(thread.name.startswith("watch of") for thread in threading.enumerate()) == 1
    assert threading.active_count() == before


def test_nobody_there(server):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        cluster = Cluster(zookeeper=f"127.0.0.1:{taken.getsockname()[1]}", live=True, timeout=0.3)
        with pytest.raises(ZooKeeperError, match="connecting"):
            cluster.brokers
    with pytest.raises(ZooKeeperError, match="has no /nowhere"):
        Cluster(zookeeper=f"{server.address}/nowhere", live=True).brokers


def test_a_static_list_has_nothing_to_follow():
    with Cluster(brokers="0:h:1", live=True) as cluster:
        assert cluster.brokers == {0: BrokerAddress(0, "h", 1)}


def test_without_live_nothing_changes_by_itself(hosts, client):
    with Cluster(zookeeper=hosts) as cluster:
        assert cluster.brokers == {}
        client.create("/brokers/ids/0", b"h-1:h:9092", makepath=True)
        assert cluster.brokers == {}
        cluster.refresh()
        assert len(cluster.brokers) == 1


# Being let in

_DIGEST = [("digest", "kafka:secret")]


def test_digest_credentials_and_acls(hosts):
    acl = [make_digest_acl("kafka", "secret", all=True)]
    access = Access(hosts, auth_data=_DIGEST, default_acl=acl)
    with BrokerRegistration(access, 0, "127.0.0.1", 9092) as registration:
        registration.add_topic("t", 1)
        with Watched(access) as watched:
            watched.wait(lambda cluster: cluster.brokers and cluster.topics == {"t": {0: 1}})
            registration.add_topic("t", 2)
            watched.wait(lambda cluster: cluster.topics == {"t": {0: 2}})
        with Cluster(zookeeper=hosts) as stranger, pytest.raises(ZooKeeperError, match="NoAuth"):
            stranger.brokers
        outsider = connect(hosts)
        with pytest.raises(NoAuthError):
            outsider.get("/brokers/ids/0")
        outsider.stop()
        outsider.close()


def test_a_member_of_a_group_with_credentials(hosts, tmp_path):
    access = Access(hosts, auth_data=_DIGEST, default_acl=[make_digest_acl("kafka", "secret", all=True)])
    with (
        Broker(tmp_path, 0, properties={"log.flush.interval": 1}) as broker,
        BrokerRegistration(access, 0, broker.host, broker.port) as registration,
        SyncProducer(broker.host, broker.port) as producer,
    ):
        producer.send("t", 0, [b"one", b"two"])
        registration.add_topic("t", 1)
        with Watched(access) as watched:
            watched.wait(lambda cluster: cluster.topics == {"t": {0: 1}})
        with Consumer("t", zookeeper=access, group="g", until_end=True) as consumer:
            assert [message.value for message in consumer] == [b"one", b"two"]
    outsider = connect(hosts)
    with pytest.raises(NoAuthError):
        outsider.get("/consumers/g/offsets/t/0-0")
    outsider.stop()
    outsider.close()
    insider = connect(access)
    assert insider.get("/consumers/g/offsets/t/0-0")[0] == b"26"
    insider.stop()
    insider.close()


def test_secrets_are_not_shown():
    access = Access("h:1/x", auth_data=_DIGEST, keyfile_password="secret")
    shown = repr(access) + str(access) + repr(Cluster(zookeeper=access))
    assert "secret" not in shown and "h:1/x" in shown


class TlsFront:
    """A TLS server on 127.0.0.1 that passes everything on to another port."""

    def __init__(self, port):
        self._port = port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(CERTIFICATES / "localhost.pem", CERTIFICATES / "localhost.key")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
                secure = self._context.wrap_socket(sock, server_side=True)
            except ssl.SSLError:
                continue  # the client does not trust us
            except OSError:
                return
            plain = socket.create_connection(("127.0.0.1", self._port))
            for source, target in ((secure, plain), (plain, secure)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        for sock in (source, target):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self._listener.close()


def test_tls(server, hosts, client):
    port = int(server.address.rpartition(":")[2])
    front = TlsFront(port)
    try:
        secure = hosts.replace(server.address, f"127.0.0.1:{front.port}")
        client.create("/brokers/ids/0", b"h-1:h:9092", makepath=True)
        with Watched(Access(secure, use_ssl=True, ca=str(CERTIFICATES / "localhost.pem"))) as watched:
            client.set("/brokers/ids/0", b"h-1:h:9093")
            watched.wait(lambda cluster: cluster.address(0).port == 9093)
        untrusting = Cluster(zookeeper=Access(secure, use_ssl=True), timeout=1.0)
        with pytest.raises(ZooKeeperError, match="connecting"):
            untrusting.brokers
    finally:
        front.close()
