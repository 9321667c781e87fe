"""What there is to read, and reading it: live brokers and archived log directories behind one small interface.

A `Range` is a stretch of one partition, in bytes of its log, as 0.7 counts offsets. A `Source` tells which partitions
there are and how far they reach, cuts ranges where entries are known to begin, and reads a range as message sets.
Spark tasks, ``kafka07c ingest`` and ``kafka07c cat`` all read through this; nothing here knows Spark.

Corruption
    A damaged entry ends the message set that it is in: `MessageSet.error` is a `CorruptMessageError`, and the messages
    before it are in `MessageSet.good()`. With ``on_corrupt="stop"`` that set is the last. With ``"skip"`` reading goes
    on, and ``error.offset`` .. ``error.next_offset`` is then the stretch that was skipped, always filled in: to the end
    of the damaged entry if its length can be believed, else to the next segment's start, else to the range's end.
    An entry above the limit of config.MAX_FETCH_MESSAGE_BYTES counts as damaged.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from kafka07c import config
from kafka07c._views import MessageSet
from kafka07c.cluster import Cluster
from kafka07c.errors import (
    BrokerConnectionError,
    CorruptMessageError,
    LogError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    Place,
    PlacedError,
    ProtocolError,
    UnknownTopicError,
    ZooKeeperError,
)
from kafka07c.names import BrokerAddress, TopicPartition
from kafka07c.protocol import EARLIEST, LATEST, FetchRequest
from kafka07c.segments import Log, find_logs
from kafka07c.segments.files import parse_log_name
from kafka07c.segments.reading import offset_behind
from kafka07c.simple import SimpleConsumer
from kafka07c.zookeeper import Access

__all__ = ["OnCorrupt", "Range", "Source", "open_source", "parse_logs"]

_log = logging.getLogger(__name__)

#: what to do about damage: end there, or leave it out and go on behind it
OnCorrupt = Literal["stop", "skip"]

#: no entry is shorter: a size field, magic 0, a CRC, no payload
_SHORTEST_ENTRY = 9

#: bytes in one piece of a walk
_WALKED_BYTES = 4 * 1024 * 1024

#: seconds between two tries to reach a broker again: at first, and at most
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0


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

    def after(self, offset: int) -> Range:
        """What is left of this range from ``offset`` on; nothing where that is past its end."""
        return replace(self, start=min(offset, self.end))

    def _place(self, offset: int) -> Place:
        return {"topic": self.topic, "broker": self.broker, "partition": self.partition, "offset": offset}


class Source(ABC):
    """Where partitions are read from: live brokers or archived logs. Made by `open_source`. A context manager.

    It opens nothing until asked something, and pickles. For a task elsewhere pickle `only` what it reads.
    """

    #: whether walking costs no more than reading what is there anyway, so that ranges may be cut finer than segments
    walks_cheaply = False

    #: what was given, e.g. ``"zookeeper:127.0.0.1:2181/kafka"``, ``"brokers:0:127.0.0.1:9092"``, ``"logs:0:/archive"``
    name: str

    @abstractmethod
    def topics(self) -> list[str]:
        """All topics, sorted by name. ZooKeeperError for a static list of brokers: 0.7 brokers cannot be asked."""

    @abstractmethod
    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of ``topic``, sorted by broker and partition. UnknownTopicError when there is none.

        Brokers in a static list take any topic for an empty one, so there a topic that they do not have has partitions.
        """

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        """`partitions` of each of the topics, in their order; of archives one look at the folders serves all."""
        return [tp for topic in topics for tp in self.partitions(topic)]

    @abstractmethod
    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        """The earliest offset and the end, both in bytes. The end of a live log is what has been *flushed*."""

    def all_bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """`bounds` of each partition, or what it raises; a broker is asked for hundreds at a time."""
        return {tp: self.bounds(tp) for tp in partitions}

    @abstractmethod
    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each partition's log; those that cannot be asked just now are left out, and logged.

        An end is where an entry ends, unless an archived log has a torn tail. Of brokers all partitions are asked
        at once.
        """

    @abstractmethod
    def offset_before(self, tp: TopicPartition, time_ms: int) -> int | None:
        """The start of the latest segment whose file was last written to at ``time_ms`` (since 1970, UTC) or before.

        The log's end where ``time_ms`` is now or later, None where every segment is younger: as 0.7 answers OFFSETS.
        """

    def boundary(self, tp: TopicPartition, start: int, limit: int) -> int:
        """The last place up to ``limit`` where an entry begins or ends, walking from ``start``, where one begins.

        At least one entry is gone past, however large. Damage ends the walk before it; where it comes first, the
        boundary is the next segment's start, or the log's end. Of live brokers this reads what it walks over.
        """
        position = start
        while position < limit:
            try:
                walked = self._shallow(tp, position, min(_WALKED_BYTES, max(limit - position, _SHORTEST_ENTRY)))
            except MessageTooLargeError:
                break
            if not walked.valid_bytes or (position > start and walked.next_offset > limit):
                break
            position = walked.next_offset
            if walked.error is not None:
                break
        if position > start:
            return position
        return min((offset for offset in self.segment_starts(tp) if offset > start), default=self.bounds(tp)[1])

    @abstractmethod
    def _shallow(self, tp: TopicPartition, offset: int, max_bytes: int) -> MessageSet:
        """The stored entries from ``offset`` on, wrappers closed, one at least where there is one."""

    def glimpse(self, tp: TopicPartition, offset: int, max_bytes: int) -> bytes | memoryview:
        """Up to ``max_bytes`` of a live log from ``offset`` on, as they are, wherever entries begin; none elsewhere."""
        return b""

    @abstractmethod
    def segment_starts(self, tp: TopicPartition) -> list[int]:
        """Where segments start, ascending: places where an entry is known to begin."""

    @abstractmethod
    def offsets_before(self, tp: TopicPartition, time: int, max_offsets: int = 1) -> list[int]:
        """Up to ``max_offsets`` offsets at which reading can begin, descending, as 0.7's OFFSETS request answers.

        ``time`` is LATEST, EARLIEST or ms since 1970 UTC: see SimpleConsumer.get_offsets_before and Log's.
        """

    @abstractmethod
    def only(self, tp: TopicPartition) -> Source:
        """A source of this one partition, small to pickle: a task that reads with it need not ask where things are."""

    def read(
        self,
        wanted: Range,
        *,
        on_corrupt: OnCorrupt = "stop",
        fetch_bytes: int = config.FETCH_BYTES,
        fail_on_data_loss: bool = True,
    ) -> Iterator[MessageSet]:
        """The message sets of ``wanted`` in order, each of about ``fetch_bytes`` of log.

        All entries that start before the range's end, whole, and no other. ``on_corrupt``: see the module's text.
        OffsetOutOfRangeError where the partition does not have all of the range (any more), unless
        ``fail_on_data_loss`` is false: then what is left is read, and a warning logged. A set's memory is its own.
        """
        if on_corrupt not in ("stop", "skip"):
            raise ValueError(f"on_corrupt is {on_corrupt!r}; it has to be 'stop' or 'skip'")
        return self._read(wanted, on_corrupt == "skip", fetch_bytes, fail_on_data_loss) if wanted.size else iter(())

    @abstractmethod
    def _read(self, rest: Range, skip: bool, fetch_bytes: int, fail_on_data_loss: bool) -> Iterator[MessageSet]:
        """`read` of a range that is not empty."""

    def split(self, wanted: Range) -> list[Range]:
        """``wanted`` cut where segments start, in order, nothing left out. An empty range gives an empty list."""
        return wanted.cut_at(self.segment_starts(wanted.tp)) if wanted.size else []

    def split_all(self, ranges: Iterable[Range]) -> list[Range]:
        """`split` of each of the ranges, in their order; a broker is asked for hundreds at a time."""
        return [piece for wanted in ranges for piece in self.split(wanted)]

    def close(self) -> None:
        """Close what is open. The source can be used again afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def open_source(
    *,
    zookeeper: str | Access | None = None,
    brokers: str | None = None,
    logs: str | None = None,
    live: bool = False,
    patience: float = 0.0,
) -> Source:
    """The source that is named by exactly one of the three; ValueError otherwise, or when it does not parse.

    ``zookeeper``: ``host:port,host:port/chroot``. ``brokers``: ``0:host:port,1:host:port``. ``logs``:
    ``0:/path,1:/path``, each path a broker's whole log directory or one partition's, behind the id of its broker.
    ``live``: which partitions there are is kept current, rather than found out once. ``patience``: seconds for which
    reading waits for a broker that has gone, and then goes on where it was.
    """
    named = {"zookeeper": zookeeper, "brokers": brokers, "logs": logs}
    given = [name for name, value in named.items() if value is not None]
    if len(given) != 1:
        said = " and ".join(given) or "none of them"
        raise ValueError(f"a source is named by exactly one of zookeeper, brokers and logs, not by {said}")
    if logs is not None:
        return ArchiveSource(logs, live=live)
    return BrokerSource(zookeeper=zookeeper, brokers=brokers, live=live, patience=patience)


class BrokerSource(Source):
    """Live brokers, from ZooKeeper or a static list: a connection to each for questions, and one for each read."""

    def __init__(
        self,
        *,
        zookeeper: str | Access | None = None,
        brokers: str | None = None,
        live: bool = False,
        patience: float = 0.0,
    ):
        self.name = f"zookeeper:{zookeeper}" if zookeeper is not None else f"brokers:{brokers}"
        self._patience = patience
        self._cluster = Cluster(zookeeper=zookeeper, brokers=brokers, live=live)
        self._consumers: dict[int, SimpleConsumer] = {}
        self._walkers: dict[int, SimpleConsumer] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_consumers": {}, "_walkers": {}}

    def topics(self) -> list[str]:
        return sorted(self._cluster.topics)

    def partitions(self, topic: str) -> list[TopicPartition]:
        partitions = self._cluster.partitions(topic)
        if not partitions:
            raise UnknownTopicError(f"no broker of {self.name} has topic {topic!r}")
        return partitions

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        return _bounds(self._consumer(tp.broker), tp)

    def all_bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        bounds: dict[TopicPartition, tuple[int, int]] = {}
        for broker, tps in _by_broker(partitions).items():
            consumer = self._consumer(broker)
            first, last = _ask_all(consumer, tps, EARLIEST), _ask_all(consumer, tps, LATEST)
            bounds |= {tp: _checked_bounds(consumer, tp, first[tp], last[tp]) for tp in tps}
        return {tp: bounds[tp] for tp in partitions}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        ends: dict[TopicPartition, int] = {}
        for broker, tps in _by_broker(partitions).items():
            try:
                answers = _ask_all(self._consumer(broker), tps, LATEST)
                ends |= {tp: found[0] for tp, found in answers.items() if found}
            except (BrokerConnectionError, ZooKeeperError) as error:
                _log.warning("broker %d does not say where %d partitions end: %s", broker, len(tps), error)
                self._forget(broker)
        return ends

    def offset_before(self, tp: TopicPartition, time_ms: int) -> int | None:
        return next(iter(self._consumer(tp.broker).get_offsets_before(tp.topic, tp.partition, time_ms, 1)), None)

    def segment_starts(self, tp: TopicPartition) -> list[int]:
        return _segment_starts(self._consumer(tp.broker), tp)

    def split_all(self, ranges: Iterable[Range]) -> list[Range]:
        wanted = [each for each in ranges if each.size]
        starts: dict[TopicPartition, list[int]] = {}
        for broker, tps in _by_broker(dict.fromkeys(each.tp for each in wanted)).items():
            starts |= _ask_all(self._consumer(broker), tps, LATEST, config.MAX_SEGMENTS)
        return [piece for each in wanted for piece in each.cut_at(starts[each.tp])]

    def _shallow(self, tp: TopicPartition, offset: int, max_bytes: int) -> MessageSet:
        if tp.broker not in self._walkers:
            self._walkers[tp.broker] = self._cluster.connect(tp.broker, shallow=True)
        return self._walkers[tp.broker].fetch(tp.topic, tp.partition, offset, max_bytes)

    def glimpse(self, tp: TopicPartition, offset: int, max_bytes: int) -> bytes | memoryview:
        consumer = self._consumer(tp.broker)
        # a multifetch's parts are given as they came; a fetch would take the first bytes for a size
        consumer.send_multifetch([FetchRequest(tp.topic, tp.partition, offset, max_bytes)])
        [part] = consumer.receive_multifetch()
        return part.data if not part.code else b""

    def offsets_before(self, tp: TopicPartition, time: int, max_offsets: int = 1) -> list[int]:
        return self._consumer(tp.broker).get_offsets_before(tp.topic, tp.partition, time, max_offsets)

    def only(self, tp: TopicPartition) -> Source:
        source = BrokerSource(brokers=str(self._cluster.address(tp.broker)), patience=self._patience)
        source.name = self.name
        return source

    def _read(self, rest: Range, skip: bool, fetch_bytes: int, fail_on_data_loss: bool) -> Iterator[MessageSet]:
        waiting = _Patience(self._patience)
        while rest.size:
            try:
                with _POOL.consumer(self._cluster, rest.broker) as consumer:
                    _send_fetch(consumer, rest, fetch_bytes)
                    while rest.size:
                        part, rest = _next_part(consumer, rest, skip, fail_on_data_loss)
                        waiting.is_over()
                        lost = _sent_ahead(consumer, rest, fetch_bytes)
                        if part is not None:
                            yield part
                        if lost is not None:
                            raise lost
            except BrokerConnectionError as error:
                waiting.wait(error, rest)

    def close(self) -> None:
        for broker in {*self._consumers, *self._walkers}:
            self._forget(broker)
        self._cluster.close()

    def _consumer(self, broker: int) -> SimpleConsumer:
        if broker not in self._consumers:
            self._consumers[broker] = self._cluster.connect(broker)
        return self._consumers[broker]

    def _forget(self, broker: int) -> None:
        """Close what is open to the broker: it may come back under another address."""
        for consumers in (self._consumers, self._walkers):
            if (consumer := consumers.pop(broker, None)) is not None:
                consumer.close()


class ArchiveSource(Source):
    """Log directories on disk, read-only. A task that reads has to find them under the same paths."""

    walks_cheaply = True

    def __init__(self, logs: str, *, live: bool = False):
        self._live = live
        self._roots = parse_logs(logs)
        self.name = "logs:" + ",".join(f"{broker}:{path}" for broker, path in self._roots)
        self._found: dict[TopicPartition, Path] | None = None

    def topics(self) -> list[str]:
        self._look_again()
        return sorted({tp.topic for tp in self._directories()})

    def partitions(self, topic: str) -> list[TopicPartition]:
        return self.partitions_of([topic])

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        self._look_again()
        there: dict[str, list[TopicPartition]] = {}
        for tp in sorted(self._directories()):
            there.setdefault(tp.topic, []).append(tp)
        found: list[TopicPartition] = []
        for topic in topics:
            if topic not in there:
                raise UnknownTopicError(f"{self.name} has no topic {topic!r}; there: {', '.join(there)}")
            found += there[topic]
        return found

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        with self._open(tp) as log:
            return log.start_offset, log.end_offset

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.bounds(tp)[1] for tp in partitions}

    def offset_before(self, tp: TopicPartition, time_ms: int) -> int | None:
        with self._open(tp) as log:
            return next(iter(log.get_offsets_before(time_ms, 1)), None)

    def segment_starts(self, tp: TopicPartition) -> list[int]:
        with self._open(tp) as log:
            return _starts(log)

    def _shallow(self, tp: TopicPartition, offset: int, max_bytes: int) -> MessageSet:
        with Log(self._directory(tp), broker=tp.broker, shallow=True) as log:
            return log.read(offset, max_bytes)

    def offsets_before(self, tp: TopicPartition, time: int, max_offsets: int = 1) -> list[int]:
        with self._open(tp) as log:
            return log.get_offsets_before(time, max_offsets)

    def only(self, tp: TopicPartition) -> Source:
        source = ArchiveSource.__new__(ArchiveSource)
        source.name = self.name
        source._live = False
        source._roots = [(tp.broker, self._directory(tp))]
        source._found = {tp: self._directory(tp)}
        return source

    def _read(self, rest: Range, skip: bool, fetch_bytes: int, fail_on_data_loss: bool) -> Iterator[MessageSet]:
        policy: OnCorrupt = "skip" if skip else "stop"
        with self._open(rest.tp) as log:
            while rest.size:
                bounds = log.start_offset, log.end_offset
                rest = rest.within(bounds, fail_on_data_loss=fail_on_data_loss)
                try:
                    for part in log.scan(rest.start, rest.end, on_corrupt=policy, chunk_bytes=fetch_bytes):
                        if part.error is None:
                            rest = rest.after(part.next_offset)
                        else:
                            part, rest = _after_damage(part, part.error, rest, skip, lambda: _starts(log))
                        yield part
                    return
                except OffsetOutOfRangeError:
                    if fail_on_data_loss or log.start_offset == bounds[0]:
                        raise
                    # A segment was deleted before its turn came: look again at what there is.

    def _open(self, tp: TopicPartition) -> Log:
        return Log(self._directory(tp), broker=tp.broker)

    def _directory(self, tp: TopicPartition) -> Path:
        try:
            return self._directories()[tp]
        except KeyError:
            raise UnknownTopicError(f"{self.name} has no partition {tp}") from None

    def _look_again(self) -> None:
        if self._live:
            self._found = None

    def _directories(self) -> dict[TopicPartition, Path]:
        if self._found is None:
            self._found = _find_directories(self._roots)
        return self._found


# --- live brokers


class _Pool:
    """Connections of this process that no one reads from just now: Spark's workers go from task to task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[tuple[int, BrokerAddress], list[SimpleConsumer]] = {}

    @contextmanager
    def consumer(self, cluster: Cluster, broker: int) -> Iterator[SimpleConsumer]:
        """A connection to the broker for one reader; not kept if it broke, or with an answer still on its way."""
        address = cluster.address(broker)
        key = os.getpid(), address  # a forked child has no business on its parent's connections
        with self._lock:
            idle = self._idle.get(key, [])
            consumer = idle.pop() if idle else SimpleConsumer(address.host, address.port, broker=broker)
        whole = False
        try:
            yield consumer
            whole = not consumer.pending
        finally:
            if whole:
                with self._lock:
                    self._idle.setdefault(key, []).append(consumer)
            else:
                consumer.close()


_POOL = _Pool()


class _Patience:
    """Waits between tries to reach a broker again, for so many seconds in all since it was last there."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self.is_over()

    def is_over(self) -> None:
        """The broker is there."""
        self._since: float | None = None
        self._pause = _FIRST_PAUSE

    def wait(self, error: BrokerConnectionError, rest: Range) -> None:
        """Wait a little, or raise when it was long enough."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= self._seconds:
            if not self._seconds:
                raise error
            raise BrokerConnectionError(f"{error}; reading {rest} was tried again for {self._seconds:g} s") from None
        _log.warning("%s; reading %s is tried again", error, rest)
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def _bounds(consumer: SimpleConsumer, tp: TopicPartition) -> tuple[int, int]:
    first = consumer.get_offsets_before(tp.topic, tp.partition, EARLIEST, 1)
    last = consumer.get_offsets_before(tp.topic, tp.partition, LATEST, 1)
    return _checked_bounds(consumer, tp, first, last)


def _checked_bounds(consumer: SimpleConsumer, tp: TopicPartition, first: list[int], last: list[int]) -> tuple[int, int]:
    if not (first and last and 0 <= first[0] <= last[0]):
        raise ProtocolError(f"{tp}: broker {consumer.host}:{consumer.port} says its log goes from {first} to {last}")
    return first[0], last[0]


def _by_broker(partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
    by_broker: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        by_broker.setdefault(tp.broker, []).append(tp)
    return by_broker


def _ask_all(
    consumer: SimpleConsumer, tps: list[TopicPartition], time: int, max_offsets: int = 1
) -> dict[TopicPartition, list[int]]:
    """What OFFSETS answers for each of the partitions of one broker."""
    questions = [(tp.topic, tp.partition) for tp in tps]
    answers = consumer.get_offsets_before_many(questions, time, max_offsets)
    return dict(zip(tps, answers, strict=True))


def _segment_starts(consumer: SimpleConsumer, tp: TopicPartition) -> list[int]:
    """OFFSETS with LATEST: the end, where it is no segment's start, and the segments' starts; all are boundaries.

    Of a partition with more than the limit the oldest segments are one range.
    """
    return sorted(consumer.get_offsets_before(tp.topic, tp.partition, LATEST, config.MAX_SEGMENTS))


def _send_fetch(consumer: SimpleConsumer, rest: Range, fetch_bytes: int) -> None:
    # Never past the range's end, but always enough for the shortest entry. For a longer one the fetch grows, and then
    # by just that entry: so no entry of the answer starts past the end.
    max_bytes = min(fetch_bytes, max(rest.size, _SHORTEST_ENTRY))
    consumer.send_fetch(rest.topic, rest.partition, rest.start, max_bytes)


def _sent_ahead(consumer: SimpleConsumer, rest: Range, fetch_bytes: int) -> BrokerConnectionError | None:
    """Ask for what comes next while the caller works on what is there; the error if that could not be asked."""
    if rest.size:
        try:
            _send_fetch(consumer, rest, fetch_bytes)
        except BrokerConnectionError as error:
            return error
    return None


def _next_part(
    consumer: SimpleConsumer, rest: Range, skip: bool, fail_on_data_loss: bool
) -> tuple[MessageSet | None, Range]:
    """The answer to the fetch of ``rest`` that is on its way, and what is left to read behind it."""
    part = _receive(consumer, rest)
    if part.error is None and part.valid_bytes:
        return part, rest.after(part.next_offset)
    if part.error is None:
        earliest, latest = bounds = _bounds(consumer, rest.tp)
        left = rest.within(bounds, fail_on_data_loss=fail_on_data_loss)
        if left == rest:
            raise ProtocolError(f"{rest.tp}: the log goes from {earliest} to {latest}, but has nothing at {rest.start}")
        return None, left
    return _after_damage(part, part.error, rest, skip, lambda: _segment_starts(consumer, rest.tp))


def _receive(consumer: SimpleConsumer, rest: Range) -> MessageSet:
    """An empty set where the broker has nothing at that offset, in whichever way it says so."""
    nothing = MessageSet(b"", rest.start, topic=rest.topic, broker=rest.broker, partition=rest.partition)
    try:
        return consumer.receive()
    except OffsetOutOfRangeError:
        return nothing
    except MessageTooLargeError as error:
        return nothing.with_error(_corruption(error, None))


# --- archived logs


def parse_logs(text: str) -> list[tuple[int, Path]]:
    """``0:/path,1:/path``; a comma inside a path is fine as long as no ``number:`` follows it."""
    roots = []
    for item in re.split(r",(?=\s*\d+:)", text):
        match = re.fullmatch(r"\s*(\d{1,10}):(.+?)\s*", item)
        if match is None:
            raise ValueError(f"{item!r} is no log directory of a broker: expected id:/path, such as 0:/var/kafka-logs")
        roots.append((int(match[1]), Path(os.path.abspath(match[2]))))
    return roots


def _find_directories(roots: list[tuple[int, Path]]) -> dict[TopicPartition, Path]:
    found: dict[TopicPartition, Path] = {}
    for broker, root in roots:
        directories = find_logs(root)
        if not directories:
            raise LogError(f"no logs in {str(root)!r}: no directory there is named topic-partition, such as clicks-0")
        for directory in directories:
            name = parse_log_name(directory.name)
            assert name is not None  # no others are found
            tp = TopicPartition(name[0], broker, name[1])
            if found.setdefault(tp, directory) != directory:
                raise LogError(f"two directories are given for {tp}: {str(found[tp])!r} and {str(directory)!r}")
    return found


def _starts(log: Log) -> list[int]:
    return [segment.start_offset for segment in log.segments]


# --- damage


def _after_damage(
    part: MessageSet, error: PlacedError, rest: Range, skip: bool, segment_starts: Callable[[], list[int]]
) -> tuple[MessageSet, Range]:
    """``part``, which ends with ``error``, and what is left to read: with ``skip`` what is behind the damage.

    The error of the part that is returned tells then where that is. Without ``skip`` nothing is left.
    """
    next_offset = offset_behind(error)
    if not skip:
        return part.with_error(_corruption(error, next_offset)), rest.after(rest.end)
    if next_offset is None:
        begin = part.next_offset if error.offset is None else error.offset
        next_offset = min((start for start in segment_starts() if begin < start < rest.end), default=rest.end)
    return part.with_error(_corruption(error, next_offset)), rest.after(next_offset)


def _corruption(error: PlacedError, next_offset: int | None) -> CorruptMessageError:
    if isinstance(error, CorruptMessageError) and error.next_offset == next_offset:
        return error
    return CorruptMessageError(
        error.reason, next_offset=next_offset,
        topic=error.topic, broker=error.broker, partition=error.partition, offset=error.offset,
    )  # fmt: skip
