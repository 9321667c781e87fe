"""What is counted and timed, behind one small interface.

::

    metrics = Metrics()
    consumer = Consumer("clicks", zookeeper="zk1:2181", group="reports", metrics=metrics)
    metrics.snapshot()["ConsumerTopicStat.MessagesPerTopic{topic=clicks}"]

Whoever counts takes a registry as an optional argument; ``None`` means :data:`NONE`, which keeps nothing and costs
nothing worth measuring. Everything here may be used from any thread.

The names are those that a 0.7.2 consumer and producer show over JMX: the MBean without its ``kafka.`` and the
attribute (classes ``kafka.consumer.ConsumerTopicStat``, ``ConsumerStats``, ``SimpleConsumerStats``,
``kafka.producer.SyncProducerStats``, ``kafka.producer.async.AsyncProducerStats``, ``AsyncProducerQueueSizeStats``), and
what stands in an MBean's name or is an operation's argument there is a label here. Names "not in 0.7" are ours.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self, TypeVar

__all__ = ["NONE", "Counter", "Gauge", "Metrics", "Sample", "Timer"]

_log = logging.getLogger(__name__)

#: messages and payload bytes handed out, by ``topic``, and of all topics
MESSAGES = "ConsumerTopicStat.MessagesPerTopic"
BYTES = "ConsumerTopicStat.BytesPerTopic"
ALL_MESSAGES = "ConsumerAllTopicStat.MessagesPerTopic"
ALL_BYTES = "ConsumerAllTopicStat.BytesPerTopic"
#: 1 for each partition (``group, topic, broker, partition``) that is ours, and for the ``group`` that we are in
PART_OWNER = "ConsumerStats.PartOwnerStats"
CONSUMER_GROUP = "ConsumerStats.ConsumerGroup"
#: per ``group, topic, broker, partition``, in bytes of the log: handed out, the log's end, and what is between them
CONSUMED_OFFSET = "ConsumerStats.ConsumedOffset"
LATEST_OFFSET = "ConsumerStats.LatestOffset"
OFFSET_LAG = "ConsumerStats.OffsetLag"
#: the time of each fetch (a timer), and the bytes fetched; by ``broker``
FETCH_REQUESTS = "SimpleConsumerStats.FetchRequests"
FETCHED_BYTES = "SimpleConsumerStats.ConsumerThroughput"

#: not in 0.7, by ``group``: rebalances that changed something, tries that failed, the group's generation as this member
#: counts it, and seconds that a partition of this member's share has not been its own
REBALANCES = "ConsumerStats.Rebalances"
FAILED_REBALANCES = "ConsumerStats.FailedRebalances"
GENERATION = "ConsumerStats.Generation"
SECONDS_WITHOUT_OWNER = "ConsumerStats.SecondsWithoutOwner"
#: not in 0.7, by ``group``: commits, those that were refused, offsets reset by ``autooffset.reset``, and errors of
#: partitions
COMMITS = "ConsumerStats.Commits"
FAILED_COMMITS = "ConsumerStats.FailedCommits"
RESETS = "ConsumerStats.OffsetResets"
PARTITION_ERRORS = "ConsumerStats.PartitionErrors"
#: not in 0.7: bytes that wait in the queues
QUEUED_BYTES = "ConsumerStats.QueuedBytes"

#: a producer: the time of each produce request until the broker is known to have it (a timer), by ``broker``
PRODUCE_REQUESTS = "KafkaProducerStats.ProduceRequests"
#: records that were to be queued, those that found no room, and those that have no final state yet
ASYNC_EVENTS = "AsyncProducerStats.AsyncProducerEvents"
ASYNC_DROPPED = "AsyncProducerStats.AsyncProducerDroppedEvents"
ASYNC_QUEUE_SIZE = "AsyncProducerQueueSizeStats.AsyncProducerQueueSize"
#: not in 0.7: bytes of the payloads of records that have no final state yet
PRODUCER_QUEUED_BYTES = "KafkaProducerStats.QueuedBytes"
#: not in 0.7, by ``topic``, in records: those of each final state, and how many were written again
PRODUCER_WRITTEN = "KafkaProducerStats.Written"
PRODUCER_VERIFIED = "KafkaProducerStats.Verified"
PRODUCER_FAILED = "KafkaProducerStats.Failed"
PRODUCER_UNKNOWN = "KafkaProducerStats.Unknown"
PRODUCER_RESENDS = "KafkaProducerStats.Resends"


class Sample(NamedTuple):
    """One figure: ``kind`` (``counter`` or ``gauge``), ``name``, ``labels`` (name and value pairs) and ``value``."""

    kind: str
    name: str
    labels: tuple[tuple[str, str], ...]
    value: float

    @property
    def key(self) -> str:
        """``name{label=value,…}``; the name alone where there are no labels."""
        labels = ",".join(f"{name}={value}" for name, value in self.labels)
        return f"{self.name}{{{labels}}}" if labels else self.name


class Counter:
    """A number that only grows."""

    def __init__(self) -> None:
        self._value: int | float = 0
        self._lock = threading.Lock()

    def inc(self, n: int | float = 1) -> None:
        """Add ``n``."""
        with self._lock:
            self._value += n

    @property
    def value(self) -> int | float:
        """The sum so far."""
        return self._value

    def _samples(self, name: str, labels: tuple[tuple[str, str], ...]) -> Iterator[Sample]:
        yield Sample("counter", name, labels, self._value)


#: for the parts of all gauges, which seldom change
_parts_lock = threading.Lock()


class Gauge:
    """A number that goes up and down: the last one that was set, or what a function gives whenever it is asked for.

    What several have under one name, such as the queues of two producers, is a sum: see :meth:`add`.
    """

    def __init__(self) -> None:
        self._value: float | Callable[[], float | None] | None = None
        self._parts: tuple[Callable[[], float], ...] = ()

    def set(self, value: int | float | Callable[[], float | None]) -> None:
        """The number, or a function that gives it (None: there is none at the moment)."""
        self._value = value

    def add(self, part: Callable[[], float]) -> Callable[[], None]:
        """From now on the number is a sum, and what ``part`` gives is in it, until what this returns is called."""
        with _parts_lock:
            self._parts = (*self._parts, part)
            self._value = self._sum

        def withdraw() -> None:
            with _parts_lock:
                self._parts = tuple(one for one in self._parts if one is not part)

        return withdraw

    def _sum(self) -> float:
        return sum(part() for part in self._parts)

    @property
    def value(self) -> float | None:
        """The number; None where none was ever set, or there is none at the moment."""
        return self._value() if callable(self._value) else self._value

    def _samples(self, name: str, labels: tuple[tuple[str, str], ...]) -> Iterator[Sample]:
        value = self.value
        if value is not None:
            yield Sample("gauge", name, labels, value)


class Timer:
    """How often something was done, and how long it took; use it as a context manager, or tell it by :meth:`observe`.

    It gives the figures that 0.7's ``SnapshotStats`` give, under the names that its MBeans have: for
    ``SocketServerStats.FetchRequests`` these are ``NumFetchRequests``, ``AvgFetchRequestMs``, ``MaxFetchRequestMs``,
    ``TotalFetchRequestMs`` and ``FetchRequestsPerSecond``. Averages are over all the time since the timer was made.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._made = clock()
        self._lock = threading.Lock()
        self._running = threading.local()
        self.count = 0
        self.seconds = 0.0
        self.longest = 0.0

    def observe(self, seconds: float) -> None:
        """It took ``seconds``."""
        with self._lock:
            self.count += 1
            self.seconds += seconds
            self.longest = max(self.longest, seconds)

    def __enter__(self) -> Self:
        self._running.since = self._clock()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.observe(self._clock() - self._running.since)

    def _samples(self, name: str, labels: tuple[tuple[str, str], ...]) -> Iterator[Sample]:
        owner, _, what = name.rpartition(".")
        owner, one = owner and owner + ".", what.removesuffix("es" if what.endswith("shes") else "s")
        age = self._clock() - self._made
        yield Sample("counter", f"{owner}Num{what}", labels, self.count)
        yield Sample("gauge", f"{owner}Avg{one}Ms", labels, 1000 * self.seconds / self.count if self.count else 0.0)
        yield Sample("gauge", f"{owner}Max{one}Ms", labels, 1000 * self.longest)
        yield Sample("counter", f"{owner}Total{one}Ms", labels, 1000 * self.seconds)
        yield Sample("gauge", f"{owner}{what}PerSecond", labels, self.count / age if age else 0.0)


#: a name and its labels
_Place = tuple[str, tuple[tuple[str, str], ...]]

_M = TypeVar("_M", Counter, Gauge, Timer)


class Metrics:
    """A registry: the same name with the same labels is the same counter, gauge or timer for everybody."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[_Place, Counter | Gauge | Timer] = {}
        self._told_of: set[_Place] = set()

    def counter(self, name: str, **labels: object) -> Counter:
        """The counter of this name and these labels; TypeError when there is something else under them."""
        return self._get(Counter, name, labels)

    def gauge(self, name: str, **labels: object) -> Gauge:
        """The gauge of this name and these labels; TypeError when there is something else under them."""
        return self._get(Gauge, name, labels)

    def timer(self, name: str, **labels: object) -> Timer:
        """The timer of this name and these labels; TypeError when there is something else under them."""
        return self._get(Timer, name, labels)

    def remove(self, name: str, **labels: object) -> None:
        """Forget what has this name and these labels, such as a partition that is no longer ours."""
        with self._lock:
            self._all.pop((name, _key(labels)), None)

    def collect(self) -> list[Sample]:
        """All figures as they are now, by name and labels. One whose function raises is left out, and logged once."""
        with self._lock:
            everything = list(self._all.items())
        # outside of the lock: a gauge's function may count something itself
        return sorted(sample for place, metric in everything for sample in self._sampled(place, metric))

    def _sampled(self, place: _Place, metric: Counter | Gauge | Timer) -> list[Sample]:
        try:
            return list(metric._samples(*place))
        except Exception:
            if place not in self._told_of:
                self._told_of.add(place)
                _log.exception("the figure %s is left out: its function failed", Sample("gauge", *place, 0).key)
            return []

    def snapshot(self) -> dict[str, float]:
        """All figures as they are now: ``{"name{label=value,…}": number}``."""
        return {sample.key: sample.value for sample in self.collect()}

    def _get(self, kind: type[_M], name: str, labels: dict[str, object]) -> _M:
        with self._lock:
            found = self._all.setdefault((name, _key(labels)), kind())
        if type(found) is not kind:
            raise TypeError(f"{name} is a {type(found).__name__.lower()}, not a {kind.__name__.lower()}")
        return found


def _key(labels: dict[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in sorted(labels.items()))


class _Nothing:
    """A counter, gauge and timer that keeps nothing."""

    def inc(self, n: int | float = 1) -> None:
        pass

    def set(self, value: object) -> None:
        pass

    def add(self, part: object) -> Callable[[], None]:
        return lambda: None

    def observe(self, seconds: float) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


class _NoMetrics(Metrics):
    """A registry that keeps nothing."""

    _nothing: Any = _Nothing()  # stands for whichever of the three is asked for

    def _get(self, kind: type[_M], name: str, labels: dict[str, object]) -> _M:
        nothing: _M = self._nothing
        return nothing


#: the registry of those who want no figures
NONE: Metrics = _NoMetrics()
