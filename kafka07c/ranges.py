"""What there is to read, and reading it: live brokers and archived log directories behind one small interface.

A `Range` is a stretch of one partition, in bytes of its log, as 0.7 counts offsets. A `Source` tells which partitions
there are and how far they reach, cuts ranges where entries are known to begin, and reads a range as message sets.
Spark tasks, ``kafka07c ingest`` and ``kafka07c cat`` all read through this; nothing here knows Spark.

Corruption
    A damaged entry ends the message set that it is in: `MessageSet.error` is a `CorruptMessageError`, and the messages
    before it are in `MessageSet.good()`. With ``on_corrupt="stop"`` that set is the last. With ``"skip"`` reading goes
    on, and ``error.offset`` .. ``error.next_offset`` is then always the stretch that was skipped: behind the damaged
    entry where its length can be believed, else at the next segment's start, else at the range's end.
"""

from __future__ import annotations

import logging
import os
import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kafka07c import config
from kafka07c._views import MessageSet
from kafka07c.cluster import BrokerAddress, Cluster, TopicPartition
from kafka07c.errors import (
    CorruptMessageError,
    LogError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from kafka07c.protocol import EARLIEST, LATEST
from kafka07c.segments import Log, find_logs
from kafka07c.simple import SimpleConsumer

__all__ = ["Range", "Source", "open_source"]

_log = logging.getLogger(__name__)

#: no entry is shorter: a size field, magic 0, a CRC, no payload
_SHORTEST_ENTRY = 9

#: segment starts asked for; a partition with more is still read whole, its oldest segments as one range
_MAX_SEGMENTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Range:
    """The entries of one partition that *start* in ``[start, end)``, offsets in bytes of its log. Pickles."""

    topic: str
    broker: int
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"a range starts at 0 or later and ends no earlier than it starts, not {self}")

    def __str__(self) -> str:
        return f"{self.tp} from {self.start} to {self.end}"

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.broker, self.partition)

    @property
    def size(self) -> int:
        """Bytes of log."""
        return self.end - self.start

    def cut_at(self, offsets: list[int]) -> list[Range]:
        """This range cut at those of ``offsets`` that lie inside it; an empty range gives an empty list."""
        if not self.size:
            return []
        cuts = sorted({self.start, *(offset for offset in offsets if self.start < offset < self.end)})
        return [replace(self, start=start, end=end) for start, end in zip(cuts, [*cuts[1:], self.end])]

    def within(self, bounds: tuple[int, int], *, fail_on_data_loss: bool = True) -> Range:
        """This range if the partition still has all of it, ``bounds`` being its earliest and latest offset.

        Otherwise OffsetOutOfRangeError, or without ``fail_on_data_loss`` what is left of it, and a logged warning.
        """
        earliest, latest = bounds
        if earliest <= self.start and self.end <= latest:
            return self
        start = min(max(self.start, earliest), latest)
        loss = (
            f"offsets {self.start} to {self.end} are wanted, the partition has {earliest} to {latest}: "
            "retention has deleted the rest, or the log was cut or replaced"
        )
        if fail_on_data_loss:
            offset = self.start if start != self.start else self.end
            raise OffsetOutOfRangeError(loss, **self._place(offset))
        _log.warning("%s: %s; going on with what is there", self.tp, loss)
        return replace(self, start=start, end=min(max(self.end, start), latest))

    def _place(self, offset: int) -> dict:
        return {"topic": self.topic, "broker": self.broker, "partition": self.partition, "offset": offset}


class Source(ABC):
    """Where partitions are read from: live brokers or archived logs. Made by `open_source`.

    It opens nothing until asked something. It pickles, so that a task elsewhere can read with it; what it has learnt
    by then (brokers' addresses, log directories) goes along and is not asked for again. A context manager.
    """

    #: what was given, e.g. ``"zookeeper:127.0.0.1:2181/kafka"``, ``"brokers:0:127.0.0.1:9092"``, ``"logs:0:/archive"``
    name: str

    @abstractmethod
    def topics(self) -> list[str]:
        """All topics, sorted by name. Brokers in a static list cannot tell: that raises KafkaError saying so."""

    @abstractmethod
    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of ``topic``, sorted by broker and partition. UnknownTopicError when there is none."""

    @abstractmethod
    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        """The earliest offset and the end, both in bytes. The end of a live log is what has been *flushed*."""

    @abstractmethod
    def segment_starts(self, tp: TopicPartition) -> list[int]:
        """Where segments start, ascending: places where an entry is known to begin."""

    @abstractmethod
    def read(
        self,
        range: Range,
        *,
        on_corrupt: str = "stop",
        fetch_bytes: int = config.FETCH_BYTES,
        fail_on_data_loss: bool = True,
    ) -> Iterator[MessageSet]:
        """The message sets of ``range`` in order, each about ``fetch_bytes`` long, none with an entry past its end.

        An entry that starts before the range's end comes whole. See the module's text on ``on_corrupt`` "stop" and
        "skip". OffsetOutOfRangeError where the partition does not have all of the range (any more), unless
        ``fail_on_data_loss`` is false: then what is left is read and a warning logged. Each set owns its memory.
        """

    def close(self) -> None:
        """Close what is open. The source can be used again afterwards."""

    def split(self, range: Range) -> list[Range]:
        """``range`` cut where segments start, in order, nothing left out. An empty range gives an empty list."""
        return range.cut_at(self.segment_starts(range.tp)) if range.size else []

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def open_source(
    *, zookeeper: str | None = None, brokers: str | None = None, logs: str | None = None
) -> Source:
    """The source that is named by exactly one of the three; ValueError otherwise, or when it does not parse.

    ``zookeeper``: ``host:port,host:port/chroot``. ``brokers``: ``0:host:port,1:host:port``. ``logs``:
    ``0:/path,1:/path``, each path a broker's whole log directory or one partition's, behind the id of its broker.
    """
    given = {"zookeeper": zookeeper, "brokers": brokers, "logs": logs}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) != 1:
        raise ValueError(f"give exactly one of zookeeper, brokers and logs, not {' and '.join(given) or 'none of them'}")
    if logs is not None:
        return ArchiveSource(logs)
    return BrokerSource(zookeeper=zookeeper, brokers=brokers)


class BrokerSource(Source):
    """Live brokers, from ZooKeeper or a static list. One connection per broker for questions, one more per read."""

    def __init__(self, *, zookeeper: str | None = None, brokers: str | None = None):
        self.name = f"zookeeper:{zookeeper}" if zookeeper is not None else f"brokers:{brokers}"
        self._given = {"zookeeper": zookeeper} if zookeeper is not None else {"brokers": brokers}
        self._addresses: dict[int, BrokerAddress] = parse_brokers(brokers) if brokers is not None else {}
        self._cluster: Cluster | None = None
        self._consumers: dict[int, SimpleConsumer] = {}

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_cluster": None, "_consumers": {}}

    def topics(self) -> list[str]:
        return sorted(self._connected().topics)

    def partitions(self, topic: str) -> list[TopicPartition]:
        partitions = self._connected().partitions(topic)
        if not partitions:
            raise UnknownTopicError(f"topic {topic!r}: no broker of {self.name} has it")
        return partitions

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        return _bounds(self._consumer(tp.broker), tp)

    def segment_starts(self, tp: TopicPartition) -> list[int]:
        return _segment_starts(self._consumer(tp.broker), tp)

    def read(
        self,
        range: Range,
        *,
        on_corrupt: str = "stop",
        fetch_bytes: int = config.FETCH_BYTES,
        fail_on_data_loss: bool = True,
    ) -> Iterator[MessageSet]:
        _check_policy(on_corrupt)
        return self._read(range, on_corrupt == "skip", fetch_bytes, fail_on_data_loss)

    def _read(self, rest: Range, skip: bool, fetch_bytes: int, fail_on_data_loss: bool) -> Iterator[MessageSet]:
        if not rest.size:
            return
        with self._connect(rest.broker) as consumer:
            while rest.size:
                try:
                    part = _fetch(consumer, rest, fetch_bytes)
                except OffsetOutOfRangeError:
                    left = rest.within(_bounds(consumer, rest.tp), fail_on_data_loss=fail_on_data_loss)
                    if left == rest:
                        raise
                    rest = left
                    continue
                if part.error is None and not part.valid_bytes:
                    ...
                yield part

    def close(self) -> None:
        consumers, self._consumers = self._consumers, {}
        cluster, self._cluster = self._cluster, None
        for consumer in consumers.values():
            consumer.close()
        if cluster is not None:
            cluster.close()

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(**self._given)
            self._addresses = dict(self._cluster.brokers)
        return self._cluster

    def _consumer(self, broker: int) -> SimpleConsumer:
        if broker not in self._consumers:
            self._consumers[broker] = self._connect(broker)
        return self._consumers[broker]

    def _connect(self, broker: int) -> SimpleConsumer:
        """A connection of the caller's own. Known addresses are used as they are: tasks need no ZooKeeper."""
        if broker not in self._addresses:
            self._connected().address(broker)
        address = self._addresses[broker]
        return SimpleConsumer(address.host, address.port, broker=broker)


class ArchiveSource(Source):
    """Log directories on disk, read-only. The paths have to be there wherever a task reads."""

    def __init__(self, logs: str):
        self._roots = _parse_logs(logs)
        self.name = "logs:" + ",".join(f"{broker}:{path}" for broker, path in self._roots)
        self._directories: dict[TopicPartition, Path] = {}
