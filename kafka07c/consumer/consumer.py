"""The consumer: messages of topics as a member of a group, or of partitions as told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self, overload

from kafka07c._views import Message, MessageSet
from kafka07c.cluster import Cluster
from kafka07c.consumer.chunks import ChunkQueue
from kafka07c.consumer.config import ConsumerConfig
from kafka07c.consumer.reader import Events, Reader
from kafka07c.consumer.streams import MessageStream
from kafka07c.errors import KafkaError
from kafka07c.metrics import Metrics
from kafka07c.names import TopicPartition
from kafka07c.positions import Position
from kafka07c.protocol import EARLIEST, LATEST
from kafka07c.subscription import Subscription, TopicFilter
from kafka07c.zookeeper import Access

__all__ = ["Consumer"]


class Consumer:
    """Reads topics, alone or in a group.

    ::

        with Consumer("clicks", zookeeper="zk1:2181/kafka", group="reports") as consumer:
            for message in consumer:
                handle(message.topic, message.value)

    ``topics``: subscribe to these, as :meth:`subscribe` does. ``zookeeper`` (``"host:port,…/chroot"``, or an
    :class:`~kafka07c.zookeeper.Access`): where the cluster and the group are. ``brokers`` (``"0:host:port,…"``): the
    cluster, for those who have no ZooKeeper. ``group``: the group whose members share the partitions; without one the
    consumer reads all partitions of its topics by itself and commits nothing. ``options`` are the fields of
    :class:`~kafka07c.consumer.ConsumerConfig`, also in kafka-python's spelling; ``properties`` has them by their 0.7
    names. ``metrics``: a :class:`~kafka07c.metrics.Metrics` to count in. Nothing is connected, and no group joined,
    before the first message is asked for.

    A consumer, or a stream of it, is for one thread; :meth:`close`, :meth:`commit` and the questions may come from
    others.

    **Delivery is at least once.** In detail:

    - A message counts as handled once the application comes back for more: with the next message, :meth:`poll` or
      batch. By itself (``autocommit.enable``, the default) the consumer commits only that: every
      ``autocommit.interval.ms``, and when it gives partitions up. What was handled since then comes again when the
      process dies.
    - With autocommit on, :meth:`close`, and so leaving the ``with`` block, commits all that was handed out, the last
      message included. Leaving the block by an exception commits nothing: the message that failed comes again.
    - With autocommit off only :meth:`commit` ever commits. It covers everything handed out, the current message
      included. (One thing is always written at once: that an offset was out of the log, and was reset as
      ``autooffset.reset`` says.)
    - A partition that was lost meanwhile cannot be committed: :meth:`commit` commits the others and raises
      CommitFailedError, which names it. Its new owner goes on from what was committed last.
    - Offsets are where stored entries start. After a stop in the middle of a compressed wrapper the wrapper's start is
      committed; a :class:`~kafka07c.positions.Position` also says how many of its messages were handled. These are not
      given again by this process, nor by other processes that use this library; JVM members give all of it again.
    - An offset that somebody else has changed meanwhile, an operator say, is never overwritten: the consumer goes on
      there. It looks every ``autocommit.interval.ms``, and finds out when it commits: :meth:`commit` raises
      CommitFailedError with the new position in ``moved``, otherwise it is logged.
    - While ZooKeeper cannot be reached nothing is handed out and nothing committed. If the session ends before it is
      back, what is queued is dropped, and the partitions go to other members.
    - One bad partition never stops the others. ``on_corrupt="raise"`` (the default) raises its error once, after the
      good messages before it, and leaves it there until :meth:`seek`; ``"stop"`` leaves it there without raising;
      ``"skip"`` goes on behind the damage: at the next entry where the damaged one's length is believed, else at the
      next segment. What a broker refuses for the moment (it does not have the partition, say) is tried again. See
      :attr:`errors` and ``on_error``.

    **Callbacks.** ``on_assign(partitions)`` and ``on_revoke(partitions, can_commit)`` come from a thread of the
    consumer's own. Reading begins after ``on_assign`` returns, so it may :meth:`seek`. During ``on_revoke``, if
    ``can_commit``, :meth:`commit` still covers the partitions; nothing more of them is handed out, but the
    application may still be handling what it has: commit positions of your own if so. Whatever it does, the
    partitions are released after a second, for others wait; from then on :meth:`commit` raises for them.
    ``on_partition_end(tp, position)`` is called once for each time that a partition's end is reached, ``on_error(tp,
    error, skipped)`` for errors that are not raised, with the offsets (from, to) that were skipped or None: both in
    the thread that reads, when it comes back for more.

    ``until_end=True`` reads each partition up to its end, as it is when it is reached, and then ends.
    """

    def __init__(
        self,
        *topics: str,
        zookeeper: str | Access | None = None,
        brokers: str | None = None,
        group: str | None = None,
        properties: str | Path | Mapping[str, Any] | None = None,
        on_assign: Callable[[set[TopicPartition]], Any] | None = None,
        on_revoke: Callable[[set[TopicPartition], bool], Any] | None = None,
        on_error: Callable[[TopicPartition, KafkaError, tuple[int, int] | None], Any] | None = None,
        on_partition_end: Callable[[TopicPartition, Position], Any] | None = None,
        until_end: bool = False,
        metrics: Metrics | None = None,
        **options: Any,
    ):
        """ValueError for settings that make no sense, for an unknown one with the nearest name that there is."""
        hosts = None if zookeeper is None else str(zookeeper)
        self.config = ConsumerConfig.from_properties(properties, zookeeper=hosts, group=group, **options)
        if self.config.zookeeper is None and brokers is None:
            raise ValueError("a consumer needs zookeeper= or brokers= to find the brokers")
        access = zookeeper if isinstance(zookeeper, Access) else self.config.zookeeper
        self._cluster = (
            Cluster(brokers=brokers)
            if brokers is not None
            else Cluster(
                access,
                live=True,
                timeout=self.config.zookeeper_connect,
                session_timeout=self.config.zookeeper_session,
            )
        )
        self._reader = Reader(
            self.config,
            self._cluster,
            zookeeper=access,
            events=Events(on_assign, on_revoke, on_error, on_partition_end),
            metrics=metrics,
            until_end=until_end,
        )
        self._stream = MessageStream(self._reader)
        self._streams: list[MessageStream] = []
        self._subscription: Subscription | None = None
        self._started = False
        if topics:
            self.subscribe(topics)

    @classmethod
    def from_properties(cls, path: str | Path | Mapping[str, Any], *topics: str, **options: Any) -> Self:
        """A consumer with the settings of a 0.7 ``.properties`` file (or a mapping); ``options`` go before them.

        OSError for a file that cannot be read, ValueError as for :class:`Consumer`.
        """
        return cls(*topics, properties=path, **options)

    # What is read

    def subscribe(
        self, topics: Iterable[str] = (), *, pattern: str | None = None, exclude: str | None = None
    ) -> None:
        """Read these topics, or all whose whole name matches the Java regex ``pattern`` and not ``exclude``.

        In place of what was read before. With a pattern topics that appear later are read too, in a group. ValueError
        for a regex that a JVM member of the group would read in another way, RuntimeError after :meth:`assign`.
        """
        if isinstance(topics, str):
            topics = [topics]
        names = list(topics)
        if bool(names) == (pattern is not None):
            raise ValueError("subscribe to topics or to a pattern, one of them")
        if exclude is not None and pattern is None:
            raise ValueError("exclude= goes with pattern=")
        if pattern is not None:
            subscription = Subscription.whitelist(pattern, exclude=exclude)
        else:
            subscription = Subscription.topics(dict.fromkeys(names, 1))
        self._check_open()
        self.unsubscribe()
        self._subscription = subscription

    def unsubscribe(self) -> None:
        """Read nothing: leave the group, or drop what was assigned. With autocommit on what came back is committed."""
        self._check_open()
        if self._streams:
            raise RuntimeError("the streams' topics are fixed: make another consumer")
        self._reader.leave()
        self._subscription = None
        self._started = False

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | Position | None]) -> None:
        """Read exactly these partitions, whoever else may. With a group their offsets are its, and may be committed.

        From the offset given (bytes in the log, where an entry starts), else from the committed one, else as
        ``autooffset.reset`` says. Partitions that are read already go on where they are unless an offset is given.
        RuntimeError after :meth:`subscribe`, ZooKeeperError when the offsets cannot be read.
        """
        self._check_open()
        if self._subscription is not None:
            raise RuntimeError("subscribed: the group assigns partitions; unsubscribe first, or seek")
        given = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
        positions = {tp: self._resolved(tp, where) for tp, where in given.items()}
        reader = self._reader
        there = reader.partitions
        reader.drop(there - positions.keys())
        for tp in there & positions.keys():
            if positions[tp] is not None:
                reader.seek(tp, positions[tp])
        reader.assign({tp: positions[tp] for tp in positions if tp not in there}, self._stream.queue)
        self._started = True

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return self._reader.partitions

    # Messages

    def __iter__(self) -> Iterator[Message]:
        """Messages, for as long as the consumer is open; see :class:`~kafka07c.consumer.streams.MessageStream`."""
        self._start()
        return iter(self._stream)

    def __next__(self) -> Message:
        self._start()
        return next(self._stream)

    def batches(self) -> Iterator[MessageSet]:
        """Whole message sets, each of one partition: ``pyarrow.record_batch(batch)``. Nothing is done per message.

        See :meth:`MessageStream.batches <kafka07c.consumer.streams.MessageStream.batches>`.
        """
        self._start()
        return self._stream.batches()

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[TopicPartition, list[Message]]:
        """Messages that are here, ``max_records`` (``max.poll.records``) at most; waits ``timeout_ms`` for the first.

        Everything that the last poll gave counts as handled. Raises the errors of partitions as iterating does.
        """
        if max_records is None:
            max_records = self.config.max_poll_records
        if max_records < 1 or timeout_ms < 0:
            raise ValueError(f"poll takes 0 ms and 1 message or more, not {timeout_ms} ms and {max_records}")
        self._start()
        return self._stream.poll(timeout_ms / 1000, max_records)

    @property
    def at_end(self) -> bool:
        """Whether every partition has been read to its end, or is stopped by an error; False before it began."""
        return (self._started or bool(self._streams)) and self._reader.at_end

    @property
    def errors(self) -> dict[TopicPartition, KafkaError]:
        """The partitions that are stopped by an error, or refused by their broker, each with it. ``seek`` goes on."""
        return self._reader.errors

    # Where it is

    def position(self, tp: TopicPartition) -> Position | None:
        """Where the partition goes on: after all that was handed out of it.

        None as long as that is not known: no offset is committed, and the broker has not been asked yet. GroupError
        for a partition that is not read.
        """
        return self._reader.position(tp)

    def seek(self, tp: TopicPartition, position: int | Position | None) -> None:
        """Go on from ``position`` (where an entry starts; None: as ``autooffset.reset`` says).

        Also before the first poll, and for a partition that the group has yet to give us: it begins there then.
        Nothing is committed by it. :data:`~kafka07c.EARLIEST` and :data:`~kafka07c.LATEST` ask the broker.
        """
        self._reader.seek(tp, self._resolved(tp, position))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each partition's log begins now; BrokerConnectionError when a broker cannot be reached."""
        return self._reader.log_ends.ask(partitions, EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the flushed part of each log ends now; BrokerConnectionError when a broker cannot be reached."""
        return self._reader.log_ends.ask(partitions, LATEST)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until :meth:`resume`. GroupError for one that is not read."""
        self._reader.pause(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions, from where they were. GroupError for one that is not read."""
        self._reader.pause(partitions, False)

    @property
    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._reader.paused

    # Committing

    def commit(self, positions: Mapping[TopicPartition, int | Position] | None = None) -> None:
        """Commit everything that was handed out, the current message included; or these positions.

        CommitFailedError for partitions that are no longer ours (``lost``) and those whose offset somebody else changed
        (``moved``), after the others were committed; GroupError without a group, ZooKeeperError when ZooKeeper cannot
        be reached.
        """
        given = None if positions is None else {tp: _position(where) for tp, where in positions.items()}
        self._reader.commits.commit(given)

    def committed(self, tp: TopicPartition) -> Position | None:
        """What the group has committed of a partition, read from ZooKeeper; None: nothing.

        GroupError without a group, or once it is closed; ZooKeeperError when ZooKeeper cannot be reached.
        """
        return self._reader.commits.committed([tp])[tp]

    # As 0.7 has it

    def create_message_streams(self, topic_threads: Mapping[str, int]) -> dict[str, list[MessageStream]]:
        """Join the group and give so many streams for each topic, one for each thread of the application.

        Each partition is on one stream, and a topic's partitions are spread over its streams. RuntimeError when the
        consumer reads something already, GroupError without a group, ZooKeeperError when ZooKeeper cannot be reached.
        """
        subscription = Subscription.topics(topic_threads)
        streams = {topic: self._new_streams(count) for topic, count in topic_threads.items()}
        everything = [stream for each in streams.values() for stream in each]
        self._open_streams(everything, subscription, lambda tp, thread: streams[tp.topic][thread].queue)
        return streams

    def create_message_streams_by_filter(self, topic_filter: TopicFilter, threads: int = 1) -> list[MessageStream]:
        """Join the group and give so many streams for all topics that a ``Whitelist`` or ``Blacklist`` lets through.

        The partitions of all topics are spread over the streams. Errors as for :meth:`create_message_streams`.
        """
        subscription = Subscription.filtered(topic_filter, threads)
        streams = self._new_streams(threads)
        self._open_streams(streams, subscription, lambda tp, thread: streams[thread].queue)
        return streams

    def commit_offsets(self) -> None:
        """Commit for the streams: all that the calling thread was handed, and of others what they came back for.

        What another thread is just handling does not count as handled. Errors as for :meth:`commit`.
        """
        if not self._streams:
            return self.commit()
        this_threads = {stream.queue for stream in self._streams if stream.is_this_threads}
        self._reader.commits.commit(of=this_threads.__contains__)

    def shutdown(self) -> None:
        """:meth:`close`, as 0.7 calls it: the streams end, and what their threads came back for is committed."""
        self.close()

    # The end

    def close(self) -> None:
        """Leave the group and end everything. With autocommit on, all that was handed out is committed first.

        (What another thread is just handling does not count: it may yet fail.) Nothing is raised for offsets that
        cannot be committed: that is logged, and the messages come again. Twice does no harm.
        """
        self._close(commit=True)

    def _close(self, *, commit: bool) -> None:
        this_threads = {stream.queue for stream in (self._stream, *self._streams) if stream.is_this_threads}
        try:
            self._reader.close(commit=commit, of=this_threads.__contains__)
        finally:
            for stream in (self._stream, *self._streams):
                stream.queue.close()
            self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        self._close(commit=kind is None)

    # How it begins

    def _start(self) -> None:
        """Join the group, or take all partitions, the first time that messages are asked for."""
        if self._streams:
            raise RuntimeError("the messages come from the streams that were made")
        if self._started or self._reader.closed:
            return
        subscription = self._subscription
        if subscription is None:
            raise RuntimeError("nothing to read: subscribe to topics, or assign partitions")
        self._started = True
        try:
            if self.config.group is not None:
                self._reader.join(subscription, lambda tp, thread: self._stream.queue)
            else:
                self._reader.assign(dict.fromkeys(self._all_partitions(subscription)), self._stream.queue)
        except BaseException:
            self._started = False
            raise

    def _all_partitions(self, subscription: Subscription) -> list[TopicPartition]:
        topics = self._cluster.topics if subscription.is_filter else subscription.topic_threads
        return [tp for topic in topics if subscription.matches(topic) for tp in self._cluster.partitions(topic)]

    def _new_streams(self, count: int) -> list[MessageStream]:
        return [MessageStream(self._reader) for _ in range(count)]

    def _open_streams(
        self,
        streams: list[MessageStream],
        subscription: Subscription,
        queue_of: Callable[[TopicPartition, int], ChunkQueue],
    ) -> None:
        self._check_open()
        if self._started or self._subscription is not None or self._streams:
            raise RuntimeError("the consumer reads something already: make another one for other streams")
        self._reader.join(subscription, queue_of)
        self._streams = streams

    def _resolved(self, tp: TopicPartition, where: int | Position | None) -> Position | None:
        return Position(self._reader.log_ends.ask([tp], where)[tp]) if where in (EARLIEST, LATEST) else _position(where)

    def _check_open(self) -> None:
        if self._reader.closed:
            raise RuntimeError("the consumer is closed")


@overload
def _position(where: int | Position) -> Position: ...
@overload
def _position(where: None) -> None: ...
@overload
def _position(where: int | Position | None) -> Position | None: ...
def _position(where: int | Position | None) -> Position | None:
    if where is None or isinstance(where, Position):
        position = where
    else:
        position = Position(where)
    if position is not None and (position.offset < 0 or position.index < 0):
        raise ValueError(f"{position} is no place in a log: offsets and indexes begin at 0")
    return position
