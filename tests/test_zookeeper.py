"""Reading and registering brokers, against the real ZooKeeper and the nodes that a real 0.7.2 broker wrote."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from itertools import count

import pytest
from conftest import GOLDEN
from kazoo.client import KazooClient

from kafka07c import zookeeper as zk
from kafka07c.errors import BrokerIdInUseError, ZooKeeperError
from kafka07c.testing import ZooKeeper
from kafka07c.zookeeper import BrokerRegistration, parse_broker, parse_hosts, parse_partition_count, session

pytestmark = pytest.mark.zookeeper

_chroots = count()


@pytest.fixture
def hosts(server):
    """An address with a chroot of the test's own, that does not exist yet."""
    return f"{server.address}/{next(_chroots)}"


def dump(hosts):
    """``{path: (data, ephemeral)}`` of every node."""

    def visit(client, path):
        data, stat = client.get(path)
        yield path, (data, stat.ephemeralOwner != 0)
        for child in client.get_children(path):
            yield from visit(client, f"{path.rstrip('/')}/{child}")

    with session(hosts) as client:
        return dict(visit(client, "/"))


def wait_for(hosts, path, condition=lambda data, stat: True, seconds=30.0):
    deadline = time.monotonic() + seconds
    while True:
        with session(hosts) as client:
            if client.exists(path):
                found = client.get(path)
                if condition(*found):
                    return found
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.02)


def registration(hosts, broker_id=0, port=9092, **options):
    return BrokerRegistration(hosts, broker_id, "127.0.0.1", port, session_timeout=1.0, **options)


# Broker strings


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"127.0.0.1-1795170243129:127.0.0.1:19192", ("127.0.0.1", 19192)),
        (b"host-1-1795170243129:host-1:9092", ("host-1", 9092)),
        (b"fe80::1-1795170243129:fe80::1:9092", ("fe80::1", 9092)),
        (b"::1-1795170243129:::1:9092", ("::1", 9092)),
        (b"fe80::1%br-5-17951702:fe80::1%br-5:9092", ("fe80::1%br-5", 9092)),
        (b"creator:host:9092", ("host", 9092)),
        (b"0:host-7:9092", ("host-7", 9092)),
        (b'{"jmx_port":-1,"timestamp":"1","host":"b1","version":1,"port":9092}', ("b1", 9092)),
        (b'{"host":null,"port":-1,"endpoints":["SSL://b1:1","PLAINTEXT://[::1]:9093"],"version":4}', ("::1", 9093)),
    ],
)
def test_broker_strings(data, where):
    assert parse_broker(data) == where


@pytest.mark.parametrize(
    "data",
    [
        None, b"", b":", b"::", b"host", b"host:9092", b"c-1:host:", b"c-1::9092", b"c-1:host:0", b"c-1:host:65536",
        b"c-1:host:-1", b"c-1:host:+1", b"c-1:host:1_0", b"c-1:host:x", b"c-1:host:\xd9\xa1", b"\xff-1:host:1",
        b"{", b"{}", b'{"host":"b","port":"9092"}', b'{"host":7,"port":9092}', b'{"host":"b","port":true}',
        b'{"endpoints":7}', b'{"endpoints":[7,"SSL://b:1"]}', b'{"port":' + b"9" * 5000 + b"}", b'{"a":' * 100_000,
    ],
)  # fmt: skip
def test_damaged_broker_strings_name_the_path_and_what_was_found(data):
    with pytest.raises(ZooKeeperError, match="^/brokers/ids/7: found b.*, expected") as caught:
        parse_broker(data, "/brokers/ids/7")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("data", [b"-1:" * 300_000, b"-" * 900_000, b"-1" * 400_000 + b":h:"])
def test_a_megabyte_of_nonsense_is_refused_in_one_pass(data):
    with pytest.raises(ZooKeeperError):
        parse_broker(data)


def test_partition_counts():
    assert [parse_partition_count(data) for data in (b"0", b"1", b"12", b"65536")] == [0, 1, 12, 65_536]


@pytest.mark.parametrize("data", [None, b"", b"-1", b"+1", b" 1", b"1\n", b"1_0", b"x", b"65537", b"9" * 5000, b"\xff"])
def test_damaged_partition_counts(data):
    with pytest.raises(ZooKeeperError, match="^/brokers/topics/t/0: found b.*, expected"):
        parse_partition_count(data, "/brokers/topics/t/0")


@pytest.mark.parametrize(
    ("hosts", "parts"),
    [
        ("h:1", ("h:1", "")),
        ("h", ("h", "")),
        ("a:1, b:2/x", ("a:1,b:2", "/x")),
        ("a:1/x/y/", ("a:1", "/x/y")),
        ("a:1/", ("a:1", "")),
        ("[::1]:2181/x", ("[::1]:2181", "/x")),
    ],
)
def test_addresses(hosts, parts):
    assert parse_hosts(hosts) == parts


@pytest.mark.parametrize("hosts", ["", "/x", "a:1,", "a:b", "a:1:2", "::1", "a b:1", "a:1/x//y"])
def test_malformed_addresses(hosts):
    with pytest.raises(ValueError, match=r"expected host:port\[,host:port\]\[/chroot\]"):
        zk.connect(hosts)


# Connecting


def test_nobody_there(caplog):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ZooKeeperError, match=f"^ZooKeeper at {address}/x: connecting .within 0.3 s. failed"):
            with session(f"{address}/x", timeout=0.3):
                pass
    with pytest.raises(ZooKeeperError, match=f"ZooKeeper at {address}"):
        zk.connect(address, timeout=0.3)
    assert not caplog.records  # the error says it all


def test_a_chroot_that_is_not_there(server):
    with pytest.raises(ZooKeeperError, match=f"^ZooKeeper at {server.address} has no /no/such:"):
        zk.connect(f"{server.address}/no/such")
    assert not [path for path in dump(server.address) if path.startswith("/no")]


def test_a_server_that_ends_in_the_middle():
    with ZooKeeper() as server, session(server.address, 0.5) as client:
        server.kill()
        with pytest.raises(ZooKeeperError, match=f"^ZooKeeper at {server.address}: reading failed"):
            with zk.explained(server.address, "reading"):
                zk.read_snapshot(client, timeout=0.5)


# Reading


def load(hosts, nodes):
    """Write recorded nodes under a chroot. All are persistent: who holds them does not matter to a reader."""
    client = zk.connect(hosts, make_chroot=True)
    for node in sorted(nodes, key=lambda node: node["path"]):
        if node["path"] != "/":
            data = base64.b64decode(node["data_base64"])
            client.create(node["path"], data if node["data"] is not None else None)
    client.stop()
    client.close()


@pytest.mark.parametrize("path", sorted((GOLDEN / "zk").glob("*.json")), ids=lambda path: path.stem)
def test_recorded_nodes(hosts, path):
    nodes = json.loads(path.read_text())
    load(hosts, nodes)
    with session(hosts) as client:
        snapshot = zk.read_snapshot(client)
    assert snapshot.brokers == {0: ("127.0.0.1", 19192), 1: ("127.0.0.1", 19193)}
    assert snapshot.errors == {}
    expected = {}
    for node in nodes:
        if match := re.fullmatch(r"/brokers/topics/([^/]*)(?:/([0-9]+))?", node["path"]):
            counts = expected.setdefault(match[1], {})
            if match[2]:
                counts[int(match[2])] = int(node["data"])
    assert snapshot.topics == expected
    assert list(snapshot.topics) == sorted(expected)
    assert snapshot.topics["tópic-☃"] == {0: 2}


def test_no_broker_has_ever_been_there(server):
    with session(server.address) as client:
        client.create("/empty")
    with session(f"{server.address}/empty") as client:
        assert zk.read_snapshot(client) == zk.Snapshot()


def test_one_damaged_node_hides_no_other(hosts):
    client = zk.connect(hosts, make_chroot=True)
    for path, data in {
        "/brokers/ids/10": b"c-1:h:10", "/brokers/ids/9": b"c-1:h:9", "/brokers/ids/2": b"\xff",
        "/brokers/ids/01": b"c-1:h:1", "/brokers/ids/9999999999": b"c-1:h:1", "/brokers/topics/t/9": b"3",
        "/brokers/topics/t/10": b"none", "/brokers/topics/none": b"",
    }.items():  # fmt: skip
        client.create(path, data, makepath=True)
    snapshot = zk.read_snapshot(client)
    client.stop()
    assert list(snapshot.brokers.items()) == [(9, ("h", 9)), (10, ("h", 10))]
    assert snapshot.topics == {"none": {}, "t": {9: 3}}
    assert list(snapshot.errors) == [
        "/brokers/ids/01", "/brokers/ids/2", "/brokers/ids/9999999999", "/brokers/topics/t/10",
    ]  # fmt: skip


# Registering


def test_the_nodes_are_those_of_a_real_broker(hosts):
    recorded = json.loads((GOLDEN / "zk" / "1-brokers-only.json").read_text())
    recorded = {n["path"]: (None if n["data"] is None else n["data"].encode(), n["ephemeral"]) for n in recorded}
    topics = {path.split("/")[3] for path in recorded if path.startswith("/brokers/topics/")}
    before = time.time_ns() // 1_000_000
    with registration(hosts, 0, 19192) as first, registration(hosts, 1, 19193):
        for topic in topics:
            first.add_topic(topic, 2)
        wait_for(hosts, f"/brokers/topics/{topic}/0")
        nodes = dump(hosts)
        created = {}
        for path in ("/brokers/ids/0", "/brokers/ids/1"):
            match = re.fullmatch(rb"127\.0\.0\.1-(\d{13}):127\.0\.0\.1:1919[23]", nodes[path][0])
            assert before <= int(match[1]) <= time.time_ns() // 1_000_000
            created[path] = nodes.pop(path)
            assert re.sub(rb"-\d{13}:", b"", recorded.pop(path)[0]) == re.sub(rb"-\d{13}:", b"", created[path][0])
            assert created[path][1]
        # The root's data is ZooKeeper's own; ours is a chroot.
        assert nodes.pop("/") == (None, False) and recorded.pop("/") == (b"", False)
        assert nodes == recorded
    assert not [path for path, (_, ephemeral) in dump(hosts).items() if ephemeral]


def test_topics_may_come_early_and_may_change(hosts):
    with pytest.raises(ValueError, match="expected host:port"):
        BrokerRegistration("", 0, "h", 1)
    early = registration(hosts)
    early.add_topic("clicks", 3)
    with early:
        assert dump(hosts)["/brokers/topics/clicks/0"] == (b"3", True)
        early.add_topic("clicks", 3)
        early.add_topic("clicks", 5)
        wait_for(hosts, "/brokers/topics/clicks/0", lambda data, stat: data == b"5")
        assert early.error is None


@pytest.mark.parametrize("name", ["a\x01b", "\U0001f600", "\ufffd"])
def test_a_topic_that_zookeeper_cannot_name_keeps_no_other_away(hosts, name, caplog):
    with registration(hosts) as ours:
        ours.add_topic(name, 2)
        ours.add_topic("clicks", 2)
        wait_for(hosts, "/brokers/topics/clicks/0")
        assert ours.error is None
    assert [record.getMessage() for record in caplog.records] == [
        f"topic {name!r} cannot be registered: ZooKeeper takes no node of this name"
    ]


def test_a_second_broker_of_the_same_id_is_told_who_holds_it(hosts):
    with registration(hosts, 3, 9092) as first:
        second = registration(hosts, 3, 9093)
        with pytest.raises(BrokerIdInUseError, match="broker id 3 is in use: .*127.0.0.1:9092.* session 0x[0-9a-f]+"):
            second.start()
        second.close()
        assert first.error is None
        assert dump(hosts)["/brokers/ids/3"][0].endswith(b":9092")


def test_a_node_of_somebody_alive_with_our_address_is_an_error_in_the_end(hosts, monkeypatch):
    monkeypatch.setattr(zk.brokers, "_stale_seconds", lambda session_timeout: 0.5)
    with registration(hosts), pytest.raises(BrokerIdInUseError, match="is in use"):
        registration(hosts).start()


def test_the_node_that_a_crash_left_is_waited_out(hosts):
    program = (
        "import sys; from kafka07c.zookeeper import BrokerRegistration\n"
        f"r = BrokerRegistration({hosts!r}, 0, '127.0.0.1', 9092, session_timeout=1.0)\n"
        "r.add_topic('clicks', 2); r.start(); print('registered', flush=True); sys.stdin.read()"
    )
    crashing = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert crashing.stdout.readline() == "registered\n"
    left = dump(hosts)["/brokers/ids/0"]
    os.kill(crashing.pid, signal.SIGKILL)
    crashing.communicate()
    assert dump(hosts)["/brokers/ids/0"] == left
    again = registration(hosts)
    again.add_topic("clicks", 4)
    with again:
        nodes = dump(hosts)
        assert nodes["/brokers/ids/0"] != left
        assert nodes["/brokers/topics/clicks/0"] == (b"4", True)


def expire(hosts, registration):
    """End the session from outside: another client takes it over, and closes it."""
    thief = KazooClient(zk.parse_hosts(hosts)[0], client_id=registration._client.client_id)
    thief.start()
    thief.stop()
    thief.close()


def test_a_lost_session_is_registered_anew(hosts):
    with registration(hosts) as ours:
        ours.add_topic("clicks", 2)
        ours.add_topic("views", 1)
        _, before = wait_for(hosts, "/brokers/topics/views/0")
        for _ in range(2):
            expire(hosts, ours)
            _, after = wait_for(
                hosts, "/brokers/topics/views/0", lambda _, stat: stat.ephemeralOwner != before.ephemeralOwner
            )
            before = after
        nodes = dump(hosts)
        assert nodes["/brokers/topics/clicks/0"] == (b"2", True)
        assert parse_broker(nodes["/brokers/ids/0"][0]) == ("127.0.0.1", 9092)


def test_an_id_that_somebody_took_while_the_session_was_lost(hosts):
    with registration(hosts, 0, 9092) as ours:
        ours.add_topic("clicks", 2)
        wait_for(hosts, "/brokers/topics/clicks/0")
        ours._client.remove_listener(ours._on_state)  # so that the other one is surely the first
        expire(hosts, ours)
        with registration(hosts, 0, 9093):
            ours._wake.set()
            deadline = time.monotonic() + 30
            while not isinstance(ours.error, BrokerIdInUseError):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert dump(hosts)["/brokers/ids/0"][0].endswith(b":9093")
        # It goes on trying, and has the id back when the other one leaves.
        wait_for(hosts, "/brokers/ids/0", lambda data, _: data.endswith(b":9092"))
        wait_for(hosts, "/brokers/topics/clicks/0")


def test_a_server_that_restarts():
    with ZooKeeper(tick_ms=100) as server, registration(server.address) as ours:
        server.kill()
        ours.add_topic("clicks", 2)  # returns at once, ZooKeeper or not
        server.restart()
        wait_for(server.address, "/brokers/topics/clicks/0")
        wait_for(server.address, "/brokers/ids/0")


def test_closing_while_zookeeper_is_away():
    with ZooKeeper() as server:
        ours = registration(server.address).start()
        server.kill()
        ours.add_topic("clicks", 2)
        started = time.monotonic()
        ours.close()
        ours.close()
        assert time.monotonic() - started < 20
        assert not ours._thread.is_alive()


def test_no_server_to_register_with():
    with ZooKeeper() as server:
        address = server.address
    with pytest.raises(ZooKeeperError, match=f"ZooKeeper at {address}: connecting"):
        registration(address, connect_timeout=0.5).start()
