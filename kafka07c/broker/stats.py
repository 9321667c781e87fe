"""What a broker counts, by the names of 0.7.2's MBeans (:mod:`kafka07c.metrics` says how those become names here).

A topic has figures of its own from its first log on, so that names that clients make up take no memory. In 0.7.2 the
rates and times of ``SocketServerStats`` and ``LogFlushStats`` are those of the last ten minutes, and the ``Total…Ms``
of the former are nanoseconds; here all are since the start, and milliseconds are milliseconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kafka07c.errors import LogError
from kafka07c.metrics import Counter, Metrics, Timer
from kafka07c.segments import Log

__all__ = ["BrokerStats", "TopicStats"]

#: bytes and messages of sets that were appended, bytes fetched, requests (of MULTIFETCH and MULTIPRODUCE: their parts)
#: that failed; by ``topic``, and of all topics
TOPIC = "BrokerTopicStat"
ALL_TOPICS = "BrokerAllTopicStat"
#: how long requests took to be carried out (timers), and bytes of all connections
PRODUCE_REQUESTS = "SocketServerStats.ProduceRequests"
FETCH_REQUESTS = "SocketServerStats.FetchRequests"
BYTES_READ = "SocketServerStats.TotalBytesRead"
BYTES_WRITTEN = "SocketServerStats.TotalBytesWritten"
BYTES_READ_RATE = "SocketServerStats.BytesReadPerSecond"
BYTES_WRITTEN_RATE = "SocketServerStats.BytesWrittenPerSecond"
#: a timer
FLUSHES = "LogFlushStats.Flushes"
#: by ``topic`` and ``partition``: flushed bytes that the log has, its segments, the offset where what is flushed ends,
#: and the messages appended since the start
LOG_SIZE = "logs.Size"
LOG_SEGMENTS = "logs.NumberOfSegments"
LOG_OFFSET = "logs.CurrentOffset"
LOG_APPENDED = "logs.NumAppendedMessages"


class TopicStats:
    """The counters of a topic (or none of its own), each together with that of all topics."""

    def __init__(self, metrics: Metrics, topic: str | None) -> None:
        owners: list[tuple[str, dict[str, str]]] = [(ALL_TOPICS, {})]
        if topic is not None:
            owners.append((TOPIC, {"topic": topic}))

        def both(what: str) -> tuple[Counter, ...]:
            return tuple(metrics.counter(f"{name}.{what}", **labels) for name, labels in owners)

        self._messages_in = both("MessagesIn")
        self._bytes_in = both("BytesIn")
        self._bytes_out = both("BytesOut")
        self._failed_produce = both("FailedProduceRequest")
        self._failed_fetch = both("FailedFetchRequest")

    def appended(self, messages: int) -> None:
        """So many messages, those in wrappers one by one."""
        _add(self._messages_in, messages)

    def produced(self, count: int) -> None:
        """A set of so many bytes was appended."""
        _add(self._bytes_in, count)

    def fetched(self, count: int) -> None:
        """So many bytes go out."""
        _add(self._bytes_out, count)

    def produce_failed(self) -> None:
        _add(self._failed_produce, 1)

    def fetch_failed(self) -> None:
        _add(self._failed_fetch, 1)


def _add(counters: tuple[Counter, ...], count: int) -> None:
    for counter in counters:
        counter.inc(count)


class BrokerStats:
    """All that one broker counts. Safe to use from any thread."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._topics: dict[str, TopicStats] = {}
        self._others = TopicStats(metrics, None)
        self.produce_requests: Timer = metrics.timer(PRODUCE_REQUESTS)
        self.fetch_requests: Timer = metrics.timer(FETCH_REQUESTS)
        self.flushes: Timer = metrics.timer(FLUSHES)
        self.bytes_read: Counter = metrics.counter(BYTES_READ)
        self.bytes_written: Counter = metrics.counter(BYTES_WRITTEN)
        metrics.gauge(BYTES_READ_RATE).set(_rate(self.bytes_read, clock))
        metrics.gauge(BYTES_WRITTEN_RATE).set(_rate(self.bytes_written, clock))

    def topic(self, topic: str) -> TopicStats:
        """The counters of a topic; of one without a log those of all topics."""
        return self._topics.get(topic, self._others)

    def appending(self, topic: str, partition: int) -> Callable[[int], None]:
        """For a log that is about to be opened: what to call with the number of messages of each append."""
        with self._lock:
            stats = self._topics.setdefault(topic, TopicStats(self._metrics, topic))
        total = self._metrics.counter(LOG_APPENDED, topic=topic, partition=partition)

        def appended(messages: int) -> None:
            total.inc(messages)
            stats.appended(messages)

        return appended

    def show(self, log: Log) -> None:
        """Show a log as it is at each look, until it is closed."""
        figures: dict[str, Callable[[], float]] = {
            LOG_SIZE: lambda: sum(segment.size for segment in log.segments),
            LOG_SEGMENTS: lambda: len(log.segments),
            LOG_OFFSET: lambda: log.flushed_offset,
        }
        for name, figure in figures.items():
            self._metrics.gauge(name, topic=log.topic, partition=log.partition).set(_while_open(figure))


def _while_open(figure: Callable[[], float]) -> Callable[[], float | None]:
    def ask() -> float | None:
        try:
            return figure()
        except LogError:
            return None

    return ask


def _rate(counter: Counter, clock: Callable[[], float]) -> Callable[[], float]:
    began = clock()
    return lambda: counter.value / max(clock() - began, 1e-9)
