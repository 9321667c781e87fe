"""What 0.7 keeps in ZooKeeper about brokers: reading it, and registering a broker of our own.

::

    /brokers/ids/N          ephemeral   creator:host:port, creator = host-<ms since the epoch>
    /brokers/topics/T/N     ephemeral   number of partitions of T on broker N, decimal

The parents are persistent and empty (null, as 0.7 makes them). Source: Kafka 0.7.2, ``kafka.utils.ZkUtils``,
``kafka.server.KafkaZooKeeper``; tests compare with nodes recorded from a real broker. A broker string is split from
the right, because the host may be an IPv6 address with colons; JSON is what later brokers write there.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from kazoo.client import KazooClient
from kazoo.exceptions import BadArgumentsError, BadVersionError, NodeExistsError, NoNodeError
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import ZnodeStat

from kafka07c.errors import BrokerIdInUseError, ZooKeeperError
from kafka07c.zookeeper.client import (
    CONNECT_TIMEOUT,
    SESSION_TIMEOUT,
    Access,
    connect,
    disconnect,
    explained,
    make_parents,
    parse_hosts,
)

__all__ = [
    "BROKER_IDS",
    "BROKER_TOPICS",
    "MAX_PARTITIONS",
    "BrokerRegistration",
    "Snapshot",
    "parse_broker",
    "parse_partition_count",
    "read_snapshot",
]

BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"

#: a node that announces more partitions than this is taken for damaged
MAX_PARTITIONS = 65_536

_log = logging.getLogger(__name__)

_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_COUNT = re.compile(r"[0-9]{1,10}")
_CREATOR_END = re.compile(r"-[0-9]+:")
_PORT = re.compile(r"[0-9]{1,5}")
_SHOWN_BYTES = 80


# Reading


@dataclass(frozen=True)
class Snapshot:
    """What ZooKeeper said about brokers and topics at one time; all in ascending order.

    ``errors`` has one ZooKeeperError for each node that makes no sense, by path; such a node is in nothing else.
    """

    brokers: dict[int, tuple[str, int]] = field(default_factory=dict)
    topics: dict[str, dict[int, int]] = field(default_factory=dict)
    errors: dict[str, ZooKeeperError] = field(default_factory=dict)


def read_snapshot(client: KazooClient, timeout: float = CONNECT_TIMEOUT) -> Snapshot:
    """The brokers, and the partition counts of every topic, as they are registered now.

    All questions of one kind are sent before the first answer is awaited. A node that vanishes in between is left
    out, as is all that is below ``/brokers`` when no broker has ever registered.
    """
    ids = _children(client, [BROKER_IDS], timeout)[BROKER_IDS]
    topics = _children(client, [BROKER_TOPICS], timeout)[BROKER_TOPICS]
    by_topic = _children(client, [f"{BROKER_TOPICS}/{topic}" for topic in topics], timeout)
    paths = [f"{BROKER_IDS}/{broker}" for broker in ids]
    paths += [f"{parent}/{broker}" for parent, brokers in by_topic.items() for broker in brokers]
    data = answers({path: client.get_async(path) for path in paths}, timeout)
    return understand(topics, {path: value for path, (value, _stat) in data.items()})


def understand(topics: Iterable[str], data: Mapping[str, bytes | None]) -> Snapshot:
    """The snapshot of nodes that have been read: the topics there are, and the data below both parents by path."""
    snapshot = Snapshot(topics={topic: {} for topic in sorted(topics)})
    for path, value in data.items():
        parent, _, name = path.rpartition("/")
        try:
            broker = _broker_id(path, name)
            if parent == BROKER_IDS:
                snapshot.brokers[broker] = parse_broker(value, path)
            else:
                snapshot.topics[parent.removeprefix(f"{BROKER_TOPICS}/")][broker] = parse_partition_count(value, path)
        except ZooKeeperError as error:
            snapshot.errors[path] = error
    return Snapshot(
        dict(sorted(snapshot.brokers.items())),
        {topic: dict(sorted(counts.items())) for topic, counts in snapshot.topics.items()},
        dict(sorted(snapshot.errors.items())),
    )


def _children(client: KazooClient, paths: list[str], timeout: float) -> dict[str, list[str]]:
    found = answers({path: client.get_children_async(path) for path in paths}, timeout)
    return {path: sorted(found.get(path, ())) for path in paths}


def answers(questions: Mapping[str, IAsyncResult], timeout: float) -> dict[str, Any]:
    """What each question got, without those about nodes that are not there."""
    answers = {}
    for path, question in questions.items():
        try:
            answers[path] = question.get(timeout=timeout)
        except NoNodeError:
            pass
    return answers


def parse_broker(data: bytes | None, path: str = BROKER_IDS) -> tuple[str, int]:
    """``(host, port)`` from a broker's node: 0.7's ``creator:host:port``, or JSON as later brokers write it.

    The port stands after the last colon, the creator ends in ``-<ms>`` and a colon, and what is between is the host.
    ZooKeeperError names ``path`` and what was found.
    """
    text = _text(data, path)
    host, port = _json_address(text) if text.lstrip().startswith("{") else _plain_address(text)
    if not host or not 0 < port < 65536:
        raise ZooKeeperError(f"{path}: found {_shown(data)}, expected creator:host:port")
    return host.strip("[]"), port


def _plain_address(text: str) -> tuple[str, int]:
    rest, _, port = text.rpartition(":")
    creator_end = _CREATOR_END.search(rest)
    # A creator without milliseconds is nobody's but a test's; 0.7 itself splits at each colon and would take it.
    host = rest[creator_end.end() :] if creator_end else rest.partition(":")[2]
    return (host, int(port)) if _PORT.fullmatch(port) else ("", 0)


def _json_address(text: str) -> tuple[str, int]:
    """Host and port of 0.8 and later: ``{"host": …, "port": …}``, or else its first endpoint without encryption."""
    try:
        node = json.loads(text)
    except (ValueError, RecursionError):
        return "", 0
    host, port = node.get("host"), node.get("port")
    if host and isinstance(host, str) and type(port) is int:
        return host, port
    endpoints = node.get("endpoints")
    for endpoint in endpoints if isinstance(endpoints, list) else ():
        match = re.fullmatch(r"PLAINTEXT://(.+):([0-9]{1,5})", endpoint) if isinstance(endpoint, str) else None
        if match:
            return match[1], int(match[2])
    return "", 0


def parse_partition_count(data: bytes | None, path: str = BROKER_TOPICS) -> int:
    """The number of partitions in a topic's node of one broker; ZooKeeperError names ``path`` and what was found."""
    text = _text(data, path)
    if not _COUNT.fullmatch(text) or int(text) > MAX_PARTITIONS:
        raise ZooKeeperError(f"{path}: found {_shown(data)}, expected a number of partitions up to {MAX_PARTITIONS}")
    return int(text)


def _broker_id(path: str, name: str) -> int:
    if not _ID.fullmatch(name) or int(name) >= 2**31:
        raise ZooKeeperError(f"{path}: found {name!r}, expected a broker id")
    return int(name)


def _text(data: bytes | None, path: str) -> str:
    try:
        return (data or b"").decode()
    except UnicodeDecodeError:
        raise ZooKeeperError(f"{path}: found {_shown(data)}, expected UTF-8") from None


def _shown(data: bytes | None) -> str:
    data = data or b""
    return repr(data[:_SHOWN_BYTES]) + (f" and {len(data) - _SHOWN_BYTES} bytes more" * (len(data) > _SHOWN_BYTES))


# Writing


def _stale_seconds(session_timeout: float) -> float:
    """How long a dead session's nodes can stay. Its time-out is not known, ours is the best guess; ZooKeeper makes
    it at least two of its ticks and ends it on the next one, and a tick is 2 s unless set otherwise.
    """
    return 1.5 * max(session_timeout, 4.0) + 2.0


class BrokerRegistration:
    """A broker's ephemeral nodes in ZooKeeper, kept there for as long as it is open.

    ::

        with BrokerRegistration("127.0.0.1:2181/kafka", 0, "127.0.0.1", 9092) as registration:
            registration.add_topic("clicks", 3)

    :meth:`start` connects and registers the broker id, and returns when the node is there. From then on a thread of
    its own does all the work: :meth:`add_topic` only notes the topic and returns at once (it may be called before
    :meth:`start`, too, and from any thread), and a lost session is registered anew, id and topics.

    The id's node may be there already. If it holds another address, somebody else has the id: BrokerIdInUseError at
    once, naming address and session. If it holds our own address, it is what a broker that crashed here has left,
    and it is waited for: ZooKeeper removes it when its session times out; if it is still there after that,
    BrokerIdInUseError. What is found out later, by the thread, is logged, tried again every second, and stands in
    :attr:`error` meanwhile.

    A chroot that is missing is made. :meth:`close` ends the session, which removes the nodes at once.
    """

    def __init__(
        self,
        zookeeper_hosts: str | Access,
        broker_id: int,
        host: str,
        port: int,
        *,
        session_timeout: float = SESSION_TIMEOUT,
        connect_timeout: float = CONNECT_TIMEOUT,
    ):
        """Nothing is connected yet. The time-outs are in seconds; ValueError for a malformed address."""
        parse_hosts(zookeeper_hosts)
        self.zookeeper_hosts = zookeeper_hosts
        self.broker_id = broker_id
        self.host = host
        self.port = port
        self.session_timeout = session_timeout
        self.connect_timeout = connect_timeout
        #: why the nodes are not as they should be, or None
        self.error: ZooKeeperError | None = None
        self._topics: dict[str, int] = {}
        self._lock = threading.Lock()  # for _topics
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._client: Any = None  # a KazooClient from start() on
        self._thread: threading.Thread | None = None
        # Paths and data that are known to be in ZooKeeper, in the session of this id; touched by one thread at a time.
        self._written: dict[str, bytes] = {}
        self._session_id: int | None = None

    def start(self) -> BrokerRegistration:
        """Connect and register. ZooKeeperError when ZooKeeper cannot be reached, BrokerIdInUseError as said above."""
        self._client = connect(
            self.zookeeper_hosts, self.connect_timeout, session_timeout=self.session_timeout, make_chroot=True
        )
        try:
            self._client.add_listener(self._on_state)
            with explained(self.zookeeper_hosts, f"registering broker {self.broker_id}"):
                self._bring_up_to_date()
        except BaseException:
            disconnect(self._client)
            raise
        self._thread = threading.Thread(target=self._keep, name=f"registration-of-broker-{self.broker_id}", daemon=True)
        self._thread.start()
        return self

    def add_topic(self, topic: str, partitions: int) -> None:
        """Register that this broker has ``partitions`` partitions of ``topic``; a new number replaces the old one.

        A name that ZooKeeper takes no node of (control characters, emoji) is logged and left out.
        """
        with self._lock:
            self._topics[topic] = partitions
        self._wake.set()

    def close(self) -> None:
        """End the session; the nodes are gone when this returns, if ZooKeeper can be reached. Twice does no harm."""
        self._closing.set()
        self._wake.set()
        if self._client is not None:
            disconnect(self._client)  # which ends a call that the thread may be waiting in
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> BrokerRegistration:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _on_state(self, state: str) -> None:
        self._wake.set()

    def _keep(self) -> None:
        """The thread: after every change of the session or the topics, see to it that all nodes are there."""
        retry_seconds = None
        while True:
            self._wake.wait(retry_seconds)
            self._wake.clear()
            if self._closing.is_set():
                return
            try:
                if not self._client.connected:
                    raise ZooKeeperError(f"ZooKeeper at {self.zookeeper_hosts}: the connection is lost")
                with explained(self.zookeeper_hosts, f"registering broker {self.broker_id}"):
                    self._bring_up_to_date()
            except ZooKeeperError as error:
                if not self._closing.is_set():
                    if str(error) != str(self.error):  # else it would be said every second
                        _log.warning("%s; trying again", error)
                    self.error, retry_seconds = error, 1.0
            else:
                self.error, retry_seconds = None, None

    def _bring_up_to_date(self) -> None:
        session_id = self._client.client_id[0]
        if session_id != self._session_id:
            # An ephemeral node lives exactly as long as its session: within one, what was written is there.
            self._written.clear()
            self._session_id = session_id
        id_path = f"{BROKER_IDS}/{self.broker_id}"
        if id_path not in self._written:
            creator = f"{self.host}-{time.time_ns() // 1_000_000}"
            self._claim(id_path, f"{creator}:{self.host}:{self.port}".encode(), self._may_be_ours)
        with self._lock:
            topics = dict(self._topics)
        for topic, partitions in topics.items():
            path, data = f"{BROKER_TOPICS}/{topic}/{self.broker_id}", str(partitions).encode()
            if self._written.get(path) != data:
                self._claim_topic(topic, path, data)

    def _claim_topic(self, topic: str, path: str, data: bytes) -> None:
        try:
            # We hold the id, so whatever is there under it belongs to a session that is about to end.
            self._claim(path, data, lambda held: True)
        except BadArgumentsError:
            # Control characters, and what is outside Unicode's first plane: legal in 0.7's topic names, not here. It
            # must not keep the topics after it from being registered.
            _log.warning("topic %r cannot be registered: ZooKeeper takes no node of this name", topic)
            self._written[path] = data

    def _may_be_ours(self, held: bytes) -> bool:
        try:
            return parse_broker(held) == (self.host, self.port)
        except ZooKeeperError:
            return False

    def _claim(self, path: str, data: bytes, is_stale: Callable[[bytes], bool]) -> None:
        """Make the node ``path`` ours, with ``data``; what a dead session has left there is waited for."""
        deadline = time.monotonic() + _stale_seconds(self.session_timeout)
        waiting = False
        while True:
            holder = self._create(path, data)
            if holder is None:
                self._written[path] = data
                return
            held, stat = holder
            if not is_stale(held) or time.monotonic() > deadline or self._closing.is_set():
                raise BrokerIdInUseError(
                    f"broker id {self.broker_id} is in use: {path} in ZooKeeper at {self.zookeeper_hosts} holds "
                    f"{_shown(held)} of session {stat.ephemeralOwner:#x}; stop that broker, or use another id"
                )
            if not waiting:
                waiting = True
                _log.info("%s is still held by session %#x: waiting for it to end", path, stat.ephemeralOwner)
            self._closing.wait(0.1)

    def _create(self, path: str, data: bytes) -> tuple[bytes, ZnodeStat] | None:
        """None when the node is there, ours, with ``data``; else the data and the stat of the one that is in the way.

        Whose a node is its ``ephemeralOwner`` says: the answer to our own create may have been lost on the way.
        """
        client, wait = self._client, CONNECT_TIMEOUT
        try:
            client.create_async(path, data, ephemeral=True).get(timeout=wait)
            return None
        except NoNodeError:
            make_parents(client, path)
            return self._create(path, data)
        except NodeExistsError:
            pass
        try:
            held, stat = client.get_async(path).get(timeout=wait)
            if stat.ephemeralOwner != client.client_id[0]:
                return held or b"", stat
            if held != data:
                client.set_async(path, data, stat.version).get(timeout=wait)
            return None
        except (NoNodeError, BadVersionError):  # it has just gone, or somebody wrote to it: from the start
            return self._create(path, data)
