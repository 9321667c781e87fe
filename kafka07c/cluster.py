"""Which brokers there are, where they listen, and which partitions of which topics they hold.

:class:`Cluster` answers from a snapshot, out of ZooKeeper or from a list of brokers; a live one is kept current.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafka07c import zookeeper as zk
from kafka07c.errors import OffsetOutOfRangeError, WrongPartitionError, ZooKeeperError
from kafka07c.names import BrokerAddress, TopicPartition, parse_brokers
from kafka07c.protocol import FetchRequest, check_topic
from kafka07c.simple import SimpleConsumer
from kafka07c.zookeeper.watching import BrokerWatch

__all__ = ["Cluster"]

_log = logging.getLogger(__name__)

class Cluster:
    """The brokers of a cluster, its topics and partitions: a snapshot, or kept current.

    ::

        with Cluster(zookeeper="zk1:2181,zk2:2181/kafka") as cluster:
            for tp in cluster.partitions("clicks"):
                consumer = cluster.connect(tp.broker)

    Give either ``zookeeper`` (``"host:port[,host:port][/chroot]"``) or ``brokers`` (``"0:host:port,1:host:port"``, for
    those who have no ZooKeeper); ValueError for both, neither, or a malformed one. Nothing is connected until
    something is asked; the first question takes the snapshot and :meth:`refresh` takes it anew. ZooKeeperError when
    ZooKeeper cannot be reached.

    A node in ZooKeeper that makes no sense hides nothing else: it is logged, stands in :attr:`errors`, is left out of
    :attr:`brokers` and :attr:`topics`, and is raised by :meth:`address` and :meth:`partitions` when the answer would
    need it.

    With ``live=True`` the first question opens a session with ZooKeeper that lasts until :meth:`close`, and from then
    on every answer is what ZooKeeper's watches last told: brokers, topics, partition counts and addresses that come,
    go and change. ``on_change`` is called with nothing after each change, from a thread of the cluster's own; do no
    more there than waking your own, and ask then. While ZooKeeper cannot be reached the last answers stay. (A static
    list has nothing to follow: ``live`` changes nothing there.)

    Otherwise no session or connection is held in between. An object may be kept for long, and used from several
    threads.
    """

    def __init__(
        self,
        zookeeper: str | zk.Access | None = None,
        brokers: str | None = None,
        *,
        live: bool = False,
        on_change: Callable[[], None] | None = None,
        timeout: float = zk.CONNECT_TIMEOUT,
        session_timeout: float = zk.SESSION_TIMEOUT,
    ):
        """``timeout`` is in seconds: for ZooKeeper to be reached, and for each of its answers; ``session_timeout``
        too: how long a live cluster may be out of touch before ZooKeeper ends its session (it opens another one).
        """
        if (zookeeper is None) == (brokers is None):
            raise ValueError("a cluster is named by zookeeper= or by brokers=, one of them")
        if zookeeper is not None:
            zk.parse_hosts(zookeeper)
        self.zookeeper = zookeeper
        self._live = live
        self._on_change = on_change
        self._timeout = timeout
        self._session_timeout = session_timeout
        self._lock = threading.Lock()
        self._taken: zk.Snapshot | None = None
        self._watch: BrokerWatch | None = None
        self._listed = parse_brokers(brokers) if brokers is not None else None
        self._counts: dict[str, dict[int, int]] = {}  # a static list's topics, as far as they were asked for

    def __getstate__(self) -> dict[str, Any]:
        """For pickling: a snapshot goes along, a session does not."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_watch")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock(), _watch=None)

    def __repr__(self) -> str:
        if self._listed is None:
            return f"Cluster(zookeeper={str(self.zookeeper)!r})"
        return f"Cluster(brokers={','.join(map(str, self._listed.values()))!r})"

    @property
    def _snapshot(self) -> zk.Snapshot:
        with self._lock:  # so that threads that ask at once take one snapshot, or open one session
            if self._watch is not None:
                return self._watch.snapshot
            if self._taken is None:
                return self._take()
            return self._taken

    def _take(self) -> zk.Snapshot:
        if self._listed is not None:
            self._taken = zk.Snapshot({address.id: (address.host, address.port) for address in self._listed.values()})
            return self._taken
        assert self.zookeeper is not None  # there is one of the two
        if self._live:
            self._watch = BrokerWatch(
                self.zookeeper, self._on_change, timeout=self._timeout, session_timeout=self._session_timeout
            ).start()
            return self._watch.snapshot
        with zk.session(self.zookeeper, self._timeout) as client:
            self._taken = zk.read_snapshot(client, self._timeout)
        for error in self._taken.errors.values():
            _log.warning("%s", error)
        return self._taken

    @property
    def brokers(self) -> dict[int, BrokerAddress]:
        """Where each broker listens, by id in ascending order."""
        return {broker: BrokerAddress(broker, *where) for broker, where in self._snapshot.brokers.items()}

    @property
    def topics(self) -> dict[str, dict[int, int]]:
        """The number of partitions that each broker has of each topic: ``{topic: {broker id: count}}``, sorted.

        ZooKeeperError with a static list of brokers: a 0.7 broker cannot be asked for its topics.
        """
        if self._listed is not None:
            raise ZooKeeperError("a static list of brokers knows no topics: 0.7 brokers keep them in ZooKeeper alone")
        return {topic: dict(counts) for topic, counts in self._snapshot.topics.items()}

    @property
    def errors(self) -> dict[str, ZooKeeperError]:
        """The nodes that make no sense, by path, in ascending order."""
        return dict(self._snapshot.errors)

    def address(self, broker: int) -> BrokerAddress:
        """Where the broker of this id listens; ZooKeeperError when it is not registered, or its node is damaged."""
        try:
            return BrokerAddress(broker, *self._snapshot.brokers[broker])
        except KeyError:
            pass
        if error := self._snapshot.errors.get(f"{zk.BROKER_IDS}/{broker}"):
            raise error
        known = ", ".join(map(str, self._snapshot.brokers)) or "none"
        where = f"in ZooKeeper at {self.zookeeper}" if self._listed is None else "in the list of brokers"
        raise ZooKeeperError(f"broker {broker} is not registered {where}; there: {known}")

    def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of the topic on all brokers, by broker and number; empty when no broker has the topic.

        From a static list each broker is asked, once until :meth:`refresh`, which numbers it takes (see
        :func:`probe_partitions`). 0.7 brokers take fetches of topics that they have never heard of, so every name has
        partitions then; BrokerConnectionError when one of the brokers cannot be reached. InvalidTopicError for a name
        that no broker takes.
        """
        check_topic(topic)
        if self._listed is not None:
            if topic not in self._counts:
                self._counts[topic] = {broker: self._probe(broker, topic) for broker in self._listed}
            counts = self._counts[topic]
        else:
            for path, error in self._snapshot.errors.items():
                if path.rpartition("/")[0] == f"{zk.BROKER_TOPICS}/{topic}":
                    raise error
            counts = self._snapshot.topics.get(topic, {})
        return [TopicPartition(topic, broker, number) for broker, count in counts.items() for number in range(count)]

    def _probe(self, broker: int, topic: str) -> int:
        with self.connect(broker) as consumer:
            return probe_partitions(consumer, topic)

    def connect(self, broker: int, **options: Any) -> SimpleConsumer:
        """A new :class:`~kafka07c.simple.SimpleConsumer` for the broker; ``options`` are its own. Close it."""
        address = self.address(broker)
        return SimpleConsumer(address.host, address.port, broker=broker, **options)

    def refresh(self) -> None:
        """Take the snapshot anew; a live one, too, is read as ZooKeeper has it now, over a new session."""
        self.close()
        self._snapshot

    def close(self) -> None:
        """Forget the snapshot, and stop following ZooKeeper; the next question would begin anew."""
        with self._lock:
            watch, self._watch, self._taken = self._watch, None, None
            self._counts = {}
        if watch is not None:
            watch.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


#: far past the end of any log: a fetch from there brings an answer and no data
_NOWHERE = 2**62

_PROBES = 32


def probe_partitions(consumer: SimpleConsumer, topic: str) -> int:
    """How many partitions of ``topic`` the broker has, found by asking it.

    Numbers ``0 … n-1`` exist, and a fetch from any other is refused as wrong partition (code 3). Each round is one
    MULTIFETCH of up to 32 numbers, which creates nothing on the broker: the first 16 and powers of two, then evenly
    spaced ones between the last that exists and the first that does not. Up to 15 partitions take one round trip, up
    to 63 two, the 65536 at which the search ends four.
    """
    low, high = -1, zk.MAX_PARTITIONS  # low exists, high does not
    numbers: Sequence[int] = [*range(_PROBES // 2), *(2**k for k in range(4, 16))]
    while numbers:
        for number, there in zip(numbers, _exist(consumer, topic, numbers)):
            if there:
                low = max(low, number)
            else:
                high = min(high, number)
        unknown = high - low - 1
        numbers = range(low + 1, high, max(1, -(-unknown // _PROBES)))
    return high


def _exist(consumer: SimpleConsumer, topic: str, numbers: Iterable[int]) -> list[bool]:
    parts = consumer.multifetch([FetchRequest(topic, number, _NOWHERE, 4) for number in numbers])
    for part in parts:
        if part.error is not None and not isinstance(part.error, (OffsetOutOfRangeError, WrongPartitionError)):
            raise part.error
    return [not isinstance(part.error, WrongPartitionError) for part in parts]
