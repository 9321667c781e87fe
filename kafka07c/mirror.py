"""A mirror: topics of one cluster written to another, or to the same one under other names; at least once, in order.

It is a consumer group in the source's ZooKeeper and a producer for the target. Message sets go through as columns, so
nothing is made per message; compressed ones are inflated on the way, and batches compressed anew as asked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from kafka07c import metrics as figures
from kafka07c._views import MessageSet
from kafka07c.cluster import Cluster
from kafka07c.consumer import Consumer, MessageStream
from kafka07c.errors import CommitFailedError, GroupError, KafkaError, MirrorError, UnknownTopicError
from kafka07c.metrics import Metrics
from kafka07c.names import TopicPartition
from kafka07c.positions import Position
from kafka07c.producer import Delivery, Producer, default_partition
from kafka07c.simple import SyncProducer
from kafka07c.subscription import Blacklist, Whitelist
from kafka07c.zookeeper import Access

__all__ = ["Mirror", "MirrorProgress"]

_log = logging.getLogger(__name__)

#: seconds that a partition which is taken away may still wait for its last writes; it has to be let go after one
_REVOKE_SECONDS = 0.7

#: seconds that brokers have to register a topic which was just made
_NEW_TOPIC_SECONDS = 10.0

#: milliseconds after which a stream without messages looks whether it should end
_LOOK_MS = 100

#: seconds that the other batches on their way have after one has failed
_DRAIN_AFTER_FAILURE = 30.0


@dataclass(frozen=True, slots=True)
class MirrorProgress:
    """How far a mirror is.

    ``messages``, ``bytes`` (of payloads): what is written to the target, and verified where that was asked for.
    ``on_their_way``: messages that were read and have no final state yet. ``lag``: bytes of the source's logs that are
    yet to be read, of the partitions that are this mirror's; None where a broker does not say. ``seconds``: since the
    start. ``partitions``: where what was read of each source partition went.
    """

    messages: int
    bytes: int
    on_their_way: int
    lag: int | None
    seconds: float
    partitions: dict[TopicPartition, TopicPartition]


@dataclass(slots=True, eq=False)
class _Sent:
    """A batch on its way to the target; ``end``: where the source goes on after it."""

    end: Position
    first: int
    count: int
    size: int
    written: bool = False


@dataclass(slots=True, eq=False)
class _Track:
    """One source partition, for as long as it is ours."""

    target: TopicPartition
    sent: deque[_Sent] = field(default_factory=deque)  # in the order of the log
    handed: Position | None = None  # where the consumer goes on after what was taken last
    written: Position | None = None  # up to here all is in the target
    uncommitted: bool = False  # whether that is yet to be committed


class Mirror:
    """Writes the topics of one cluster to another.

    ::

        mirror = Mirror(
            ["clicks", "orders"], zookeeper="zk1:2181/kafka", group="mirror", producer=Producer(zookeeper="zk2:2181")
        )
        mirror.run()        # until stop() is called, from another thread or a signal handler

    ``topics``: names; or ``pattern``, a Java regex that the whole name of a topic has to match, without those that
    ``exclude`` matches; or ``exclude`` alone: all others. ``zookeeper`` or ``brokers``: the source. ``group``: shares
    the partitions with other mirrors of the same group, and keeps the offsets; without one all is read from
    ``offset_reset`` on at each start, and nothing is committed. ``streams``: threads that read, with a group.
    ``producer``: for the target; it stays open. ``rename``: the target's topic for each of the source's, a mapping or a
    function; the same name where it gives none. ``until_end``: end when all partitions are read to their ends;
    ``count``: after so many messages. ``options`` are the consumer's.

    **At least once.** An offset is committed only after all before it is final in the target: ``written``, or
    ``verified`` with such a producer. When a batch fails, or is unknown, the mirror stops: what was written before it
    is committed, what comes after it is not, and :meth:`run` raises MirrorError. What was written and not yet committed
    when a mirror ends otherwise is written again by the next one.

    **Order.** Messages of 0.7 have no key, so the target partition is chosen by source partition, once for as long as
    the mirror runs: the partition of the same name where the target has it, else that which the name (``"0-1"``) as a
    key has by ``partitioner`` (0.7's default one). So each source partition keeps its order, repeats aside, also over
    restarts as long as the target's partitions stay what they are. A topic that the target does not have is made first,
    by an empty message set, as 0.7 does it.

    A damaged partition of the source stops at the damage, while others go on (:attr:`errors`);
    ``on_corrupt="skip"`` goes on behind it.
    """

    def __init__(
        self,
        topics: Iterable[str] = (),
        *,
        producer: Producer,
        pattern: str | None = None,
        exclude: str | None = None,
        zookeeper: Any = None,
        brokers: str | None = None,
        group: str | None = None,
        streams: int = 1,
        rename: Mapping[str, str] | Callable[[str], str | None] | None = None,
        partitioner: Callable[[str, int], int] = default_partition,
        until_end: bool = False,
        count: int | None = None,
        commit_interval: float = 1.0,
        metrics: Metrics | None = None,
        **options: Any,
    ):
        """``commit_interval``: in seconds. ValueError for what makes no sense."""
        self._names = [topics] if isinstance(topics, str) else list(topics)
        self._filter = _filter_of(self._names, pattern, exclude)
        if streams < 1 or (streams > 1 and group is None):
            raise ValueError(f"{streams} streams: it is 1, or more with a group")
        if count is not None and count < 1:
            raise ValueError(f"{count} messages are nothing to mirror")
        self._producer = producer
        self._group = group
        self._streams = streams
        self._until_end = until_end
        self._left = count
        self._commit_interval = commit_interval
        self._metrics = Metrics() if metrics is None else metrics
        self._consumer = Consumer(
            zookeeper=zookeeper,
            brokers=brokers,
            group=group,
            on_revoke=self._on_revoke,
            until_end=until_end,
            metrics=self._metrics,
            **{"on_corrupt": "stop", **options, "autocommit": False, "consumer_timeout_ms": _LOOK_MS},
        )
        access = zookeeper if isinstance(zookeeper, Access) else self._consumer.config.zookeeper
        self._source = Cluster(brokers=brokers) if brokers is not None else Cluster(access)
        self._places = _Places(_cluster_of(producer), self._source, self._filter, _function(rename), partitioner)
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)
        self._committing = threading.Lock()
        self._tracks: dict[TopicPartition, _Track] = {}
        self._wake: SimpleQueue[None] = SimpleQueue()  # its put() is safe in a signal handler
        self._stopping = False
        self._error: BaseException | None = None
        self._errors: dict[TopicPartition, KafkaError] = {}
        self._messages = 0
        self._bytes = 0
        self._on_their_way = 0
        self._begun = time.monotonic()
        self._ended: MirrorProgress | None = None

    def stop(self) -> None:
        """Read no more: :meth:`run` waits for what is on its way, commits, and returns. Safe in a signal handler."""
        self._stopping = True
        self._wake.put(None)

    @property
    def progress(self) -> MirrorProgress:
        """How far it is, or was when it ended. May ask the source's brokers."""
        if self._ended is not None:
            return self._ended
        lags = [each.value for each in self._metrics.collect() if each.name == figures.OFFSET_LAG]
        with self._lock:
            return MirrorProgress(
                self._messages, self._bytes, self._on_their_way, int(sum(lags)) if lags else None,
                time.monotonic() - self._begun, dict(self._places.chosen),
            )  # fmt: skip

    @property
    def errors(self) -> dict[TopicPartition, KafkaError]:
        """The source partitions that are stopped by an error, each with it."""
        return self._errors if self._ended is not None else self._consumer.errors

    def run(
        self, on_progress: Callable[[MirrorProgress], object] | None = None, interval: float = 10.0
    ) -> MirrorProgress:
        """Mirror until :meth:`stop`, or the end that was asked for. Once only.

        ``on_progress`` is called every ``interval`` seconds. MirrorError for a batch that could not be written (or not
        be verified); ZooKeeperError, UnknownTopicError and so on as the consumer and the producer raise them. Before it
        raises or returns, all that is in the target for certain is committed; not so after a KeyboardInterrupt.
        """
        self._begun = time.monotonic()
        try:
            readers = [
                threading.Thread(target=self._read, args=(stream,), name=f"kafka07c-mirror-{number}", daemon=True)
                for number, stream in enumerate(self._open_streams())
            ]
            for reader in readers:
                reader.start()
            self._look_after(readers, on_progress, interval)
            self._finish()
        finally:
            self._stopping = True
            self._errors = self._consumer.errors
            self._ended = self.progress
            self._consumer.close()
            self._source.close()
            self._places.close()
        return self._ended

    # The main thread

    def _open_streams(self) -> list[Consumer | MessageStream]:
        if self._group is not None:
            return [*self._consumer.create_message_streams_by_filter(self._filter, self._streams)]
        topics = self._names or [topic for topic in self._source.topics if self._filter.matches(topic)]
        partitions = {topic: self._source.partitions(topic) for topic in topics}
        if unknown := [topic for topic, there in partitions.items() if not there]:
            raise UnknownTopicError(f"no broker has a topic {', '.join(map(repr, unknown))}")
        self._consumer.assign([tp for there in partitions.values() for tp in there])
        return [self._consumer]

    def _look_after(
        self,
        readers: list[threading.Thread],
        on_progress: Callable[[MirrorProgress], object] | None,
        interval: float,
    ) -> None:
        """Commit and report now and then, until no one reads any more."""
        commit_due = time.monotonic() + self._commit_interval
        report_due = time.monotonic() + interval
        while any(reader.is_alive() for reader in readers):
            due = commit_due if on_progress is None else min(commit_due, report_due)
            with suppress(Empty):
                self._wake.get(timeout=max(0.0, due - time.monotonic()))
            if time.monotonic() >= commit_due:
                try:
                    self._commit()
                except KafkaError as error:
                    _log.warning("offsets are not committed, to be tried again: %s", error)
                commit_due = time.monotonic() + self._commit_interval
            if on_progress is not None and time.monotonic() >= report_due:
                on_progress(self.progress)
                report_due = time.monotonic() + interval

    def _finish(self) -> None:
        """Wait for what is on its way, commit it, raise what stopped the mirror."""
        self._producer.flush(None if self._error is None else _DRAIN_AFTER_FAILURE)
        try:
            self._commit()
        except KafkaError as error:
            self._error = self._error or error
        if self._error is not None:
            raise self._error

    # The threads that read

    def _read(self, stream: Consumer | MessageStream) -> None:
        try:
            while not self._stopping:
                for batch in stream.batches():
                    self._forward(batch)
                    if self._stopping:
                        break
                if self._until_end and self._consumer.at_end:
                    break
        except BaseException as error:
            self._fail(error)
        finally:
            self._wake.put(None)

    def _forward(self, batch: MessageSet) -> None:
        tp = _partition_of(batch)
        target = self._places.of(tp)
        try:
            position = self._consumer.position(tp)
        except GroupError:
            return  # it has just been taken away: its new owner begins with this batch
        with self._lock:
            if self._error is not None:
                return
            count = len(batch) if self._left is None else min(len(batch), self._left)
            if self._left is not None:
                self._left -= count
                self._stopping |= not self._left
            if not count or position is None:
                return
            end = position if count == len(batch) else _after(batch, count)
            sent = _Sent(end, batch.base_offset, count, int(batch.lengths[:count].sum(dtype="int64")))
            track = self._tracks.get(tp)
            if track is None or (track.handed is not None and batch.base_offset < track.handed.offset):
                # ours from now on; or somebody has set it back, and what was read before that has no say any more
                track = self._tracks[tp] = _Track(target)
            track.sent.append(sent)
            track.handed = position
            self._on_their_way += count
        try:
            self._send(batch, count, target, partial(self._on_delivery, tp, track, sent))
        except KafkaError as error:
            raise MirrorError(f"{tp} cannot go on from offset {sent.first} to {target}: {error}") from error

    def _send(
        self, batch: MessageSet, count: int, target: TopicPartition, settled: Callable[[Delivery], object]
    ) -> None:
        column: Any = batch.binary_view()
        offsets = None
        if count < len(batch):
            column = b"".join(batch.payloads()[:count])
            offsets = [0, *batch.lengths[:count].cumsum(dtype="int64").tolist()]
        self._producer.send_batch(target.topic, column, offsets=offsets, partition=target, on_delivery=settled)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error
        self.stop()

    # The producer's callback thread

    def _on_delivery(self, tp: TopicPartition, track: _Track, sent: _Sent, delivery: Delivery) -> None:
        with self._settled:
            self._on_their_way -= sent.count
            if delivery.ok:
                self._messages += sent.count
                self._bytes += sent.size
                sent.written = True
                while track.sent and track.sent[0].written:
                    track.written = track.sent.popleft().end
                    track.uncommitted = True
            self._settled.notify_all()
        if not delivery.ok:
            what = "could not be written" if delivery.state == "failed" else "may or may not have been written"
            self._fail(
                MirrorError(
                    f"{sent.count} messages of {tp} from offset {sent.first} on {what} to {track.target}: "
                    f"{delivery.error}"
                )
            )

    # Committing

    def _commit(self) -> None:
        """Commit what is written. What somebody else has moved, or is no longer ours, is left alone."""
        if self._group is None:
            return
        with self._committing:
            with self._lock:
                found = {tp: (track, track.handed) for tp, track in self._tracks.items() if track.uncommitted}
            # where it goes on elsewhere than behind what was taken last, somebody has moved it
            self._write({tp: track for tp, (track, handed) in found.items() if self._at(tp) == handed})

    def _at(self, tp: TopicPartition) -> Position | None:
        try:
            return self._consumer.position(tp)
        except GroupError:
            return None

    def _write(self, tracks: dict[TopicPartition, _Track]) -> None:
        with self._lock:
            positions = {tp: track.written for tp, track in tracks.items() if track.written is not None}
        gone: set[TopicPartition] = set()
        try:
            if positions:
                self._consumer.commit(positions)
        except CommitFailedError as error:
            _log.warning("%s", error)
            gone = {*error.lost, *error.moved}
        with self._lock:
            for tp, position in positions.items():
                track = tracks[tp]
                track.uncommitted = track.written != position
                if tp in gone and self._tracks.get(tp) is track:
                    del self._tracks[tp]  # what is on its way is no longer ours to commit

    def _on_revoke(self, partitions: set[TopicPartition], can_commit: bool) -> None:
        """Give what is on its way a moment to be written, commit it, and forget the partitions."""
        deadline = time.monotonic() + _REVOKE_SECONDS
        with self._settled:
            tracks = {tp: self._tracks[tp] for tp in partitions if tp in self._tracks}
            while can_commit and self._error is None and any(track.sent for track in tracks.values()):
                if not self._settled.wait(max(0.0, deadline - time.monotonic())):
                    break
            for tp in partitions:
                self._tracks.pop(tp, None)
        if can_commit:
            with suppress(KafkaError):  # its new owner writes again what is not committed
                self._write({tp: track for tp, track in tracks.items() if track.uncommitted})


def _filter_of(topics: list[str], pattern: str | None, exclude: str | None) -> Whitelist | Blacklist:
    if topics and (pattern is not None or exclude is not None):
        raise ValueError("mirror topics, or those that pattern= and exclude= say, not both")
    if topics:
        if odd := [topic for topic in topics if not topic.replace("-", "").replace(".", "").replace("_", "").isalnum()]:
            raise ValueError(f"topic {odd[0]!r} cannot stand in a list: give a pattern that matches it")
        return Whitelist("|".join(topic.replace(".", r"\.") for topic in topics))
    if pattern is not None:
        chosen = Whitelist(pattern)
        return chosen if exclude is None else chosen.without(exclude)
    if exclude is None:
        raise ValueError("nothing to mirror: give topics, pattern= or exclude=")
    return Blacklist(exclude)


def _function(rename: Mapping[str, str] | Callable[[str], str | None] | None) -> Callable[[str], str | None]:
    if rename is None:
        return lambda topic: None
    return rename.get if isinstance(rename, Mapping) else rename


def _partition_of(batch: MessageSet) -> TopicPartition:
    assert batch.topic is not None and batch.broker is not None and batch.partition is not None  # as consumers have it
    return TopicPartition(batch.topic, batch.broker, batch.partition)


def _after(batch: MessageSet, count: int) -> Position:
    """Where to go on after the first ``count`` messages."""
    last = batch[count - 1]
    return Position(last.next_offset, last.index + 1 if last.next_offset == last.offset else 0)


def _cluster_of(producer: Producer) -> Cluster:
    brokers = producer.config.brokers
    return Cluster(brokers=brokers) if brokers is not None else Cluster(producer.zookeeper)


class _Places:
    """Which target partition each source partition goes to."""

    def __init__(
        self,
        cluster: Cluster,
        source: Cluster,
        wanted: Whitelist | Blacklist,
        rename: Callable[[str], str | None],
        partitioner: Callable[[str, int], int],
    ):
        self.chosen: dict[TopicPartition, TopicPartition] = {}
        self._source = source
        self._cluster = cluster
        self._wanted = wanted
        self._rename = rename
        self._partitioner = partitioner
        self._lock = threading.Lock()
        self._topics: dict[str, list[TopicPartition]] = {}

    def of(self, tp: TopicPartition) -> TopicPartition:
        """The target's partition for a source partition; the same one each time."""
        found = self.chosen.get(tp)
        if found is None:
            with self._lock:
                found = self.chosen[tp] = self._choose(tp)
        return found

    def close(self) -> None:
        """Ask no more."""
        self._cluster.close()

    def _choose(self, tp: TopicPartition) -> TopicPartition:
        topic = self._rename(tp.topic) or tp.topic
        if topic not in self._topics:
            self._check_loop(tp.topic, topic)
            self._topics[topic] = self._partitions(topic)
        partitions = self._topics[topic]
        for target in partitions:
            if target.name == tp.name:
                return target
        return partitions[self._partitioner(tp.name, len(partitions))]

    def _check_loop(self, topic: str, target: str) -> None:
        if self._wanted.matches(target):
            theirs = {address[1:] for address in self._cluster.brokers.values()}
            if any(address[1:] in theirs for address in self._source.brokers.values()):
                raise MirrorError(
                    f"topic {topic!r} would go to {target!r} of the same cluster, which this mirror reads: a loop. "
                    "Rename it to what it does not read"
                )

    def _partitions(self, topic: str) -> list[TopicPartition]:
        self._cluster.refresh()
        partitions = self._cluster.partitions(topic)
        if not partitions:
            self._make(topic)
            partitions = self._cluster.partitions(topic)
        if not partitions:
            raise MirrorError(f"the target has no topic {topic!r}, and none came within {_NEW_TOPIC_SECONDS:g} s")
        return partitions

    def _make(self, topic: str) -> None:
        """An empty message set makes a topic on its broker; ZooKeeper lists it a moment later."""
        brokers = self._cluster.brokers
        for address in brokers.values():
            with SyncProducer(address.host, address.port) as producer:
                producer.send(topic, 0, [])
        deadline = time.monotonic() + _NEW_TOPIC_SECONDS
        while len(self._cluster.topics.get(topic, {})) < len(brokers) and time.monotonic() < deadline:
            time.sleep(0.05)
            self._cluster.refresh()
