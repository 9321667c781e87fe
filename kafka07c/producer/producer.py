"""The producer: records and whole columns to topics."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import numpy

from kafka07c import metrics as figures
from kafka07c._build import build_message_set
from kafka07c._views import MessageSet
from kafka07c.cluster import Cluster
from kafka07c.config import MAX_REQUEST_BYTES
from kafka07c.errors import KafkaError, MessageTooLargeError, ProducerClosedError, QueueFullError, UnknownTopicError
from kafka07c.errors import ZooKeeperError
from kafka07c.metrics import Metrics
from kafka07c.names import TopicPartition
from kafka07c.producer.batches import Batch, Column, OnDelivery, Outcome, Waiter, picked_entries
from kafka07c.producer.config import ProducerConfig
from kafka07c.producer.dispatcher import Dispatcher
from kafka07c.producer.partitioners import Partitioner
from kafka07c.producer.records import Delivery, ProducerRecord, State
from kafka07c.producer.routing import Route, Router, indexes_of
from kafka07c.producer.staging import Stage
from kafka07c.zookeeper import Access

__all__ = ["Producer"]

_log = logging.getLogger("kafka07c.producer")

#: producers that are open: they are drained when the interpreter ends, also those that nobody holds any more
_open: set[Producer] = set()

#: of a request beside the message sets: the names of topics and so on
_REQUEST_HEAD_BYTES = 64 * 1024

#: seconds until brokers are looked for again when there are none: at first; it doubles
_LOOK_PAUSE = 0.1

_BYTES = {bytes}

T = TypeVar("T")


@atexit.register
def _drain_all() -> None:
    for producer in list(_open):
        producer._drain_at_exit()


class Producer:
    """Sends records to topics.

    ::

        with Producer(zookeeper="zk1:2181/kafka") as producer:
            producer.send("clicks", b"...", key="user-7")
            producer.send_many("clicks", list_of_bytes)

    ``zookeeper`` (``"host:port,…/chroot"``, or an :class:`~kafka07c.zookeeper.Access`): where the brokers are found;
    the producer follows them as they come, go and move. ``brokers`` (``"0:host:port,…"``): a static list in its place;
    as in 0.7 each call goes to one of them at random, which picks the partition itself, and keys do not matter then.

    ``mode``: with ``"async"`` (the default) calls put records into a queue and return; it sends them in batches. When
    the queue is full, calls wait (``queue.enqueueTimeout.ms``: -1 wait, 0 raise QueueFullError, else wait so long, then
    raise). With ``"sync"`` calls return when the kernel has taken the bytes (with ``verify``: when they have been read
    back), with a :class:`Delivery` for each record, and raise when they failed.

    ``codec``: ``"none"``, ``"gzip"`` or ``"snappy"`` for all topics, or a mapping from topic to codec (others: none).
    ``partitioner``: ``callable(key, count) -> index`` over all partitions of a topic by broker and number; by default
    the key's hash decides as in 0.7, and without a key chance, once for each call. ``encoder``: makes the payload
    (bytes) of a value. ``metrics``: a :class:`~kafka07c.metrics.Metrics` to count in. ``options`` are the fields of
    :class:`ProducerConfig`, also in kafka-python's spelling; ``properties`` (a file or a mapping) has them by 0.7's
    names. Nothing is connected before the first record.

    **What became of a record** is told to ``on_delivery`` (the call's own, or else the producer's), exactly once, with
    a :class:`Delivery`. What failed, or is unknown, is told to ``dead_letter`` too. Both are called from one thread of
    the producer's; they may send, and may take their time without holding sending up (but what waits for them is not
    bounded). 0.7 acknowledges nothing, so a record is ``written`` at best: the broker has read it and gone on to the
    next request. In detail:

    - Names and sizes are checked before anything is sent: what a broker would drop in silence is refused here.
    - Behind each write goes a question that the broker answers. What no answer covers yet is written again, in order,
      when the connection ends: **duplicates are possible, losses are not, as far as the broker lives**. A broker that
      dies loses what it has not flushed, answered or not.
    - A set that makes the broker hang up ``num.retries`` + 1 times with nothing else on the connection fails, and
      nothing else with it. With ``num.retries=0`` nothing is ever written twice: what a dying connection may have lost
      fails.
    - A broker that cannot be reached is tried again, its address looked up anew each time, until the oldest record has
      waited ``delivery.timeout.ms``; then that fails. When ZooKeeper says that the broker is gone, what it was to get
      goes to other partitions, unless ``partition=`` said otherwise.
    - Order within a partition is that of the calls (of one thread), repeats aside.
    - ``verify=True`` reads back what was written from the flushed log, and so waits for the broker's flush (by default
      after 500 messages or 3 seconds). What is found, byte for byte, is ``verified``, and its offset known. What is
      surely not there is written again: its connection ended and it is not in what is flushed since, or the flushed
      end has passed it (a broker drops in silence what is above its own ``max.message.size``; that fails in the end).
      What is undecided after ``verify.timeout.ms`` is ``unknown``. It needs a known partition: with a static list of
      brokers, ``partition=``.

    All methods may be called from any thread. A producer belongs to the process that made it: in a forked child every
    call raises ProducerClosedError. :meth:`close`, or leaving the ``with`` block, drains it; so does the interpreter's
    end.
    """

    def __init__(
        self,
        properties: str | Path | Mapping[str, Any] | None = None,
        *,
        zookeeper: str | Access | None = None,
        brokers: str | None = None,
        mode: Literal["async", "sync"] | None = None,
        codec: Any = None,
        partitioner: Partitioner | None = None,
        encoder: Callable[[Any], bytes] | None = None,
        callback_handler: Any = None,
        event_handler: Any = None,
        on_delivery: OnDelivery | None = None,
        dead_letter: OnDelivery | None = None,
        verify: bool | None = None,
        metrics: Metrics | None = None,
        **options: Any,
    ):
        """ValueError for settings that make no sense, for an unknown one with the nearest name that there is."""
        hosts = None if zookeeper is None else str(zookeeper)
        self.config = ProducerConfig.from_properties(
            properties, zookeeper=hosts, brokers=brokers, mode=mode, codec=codec, partitioner=partitioner,
            encoder=encoder, callback_handler=callback_handler, event_handler=event_handler, verify=verify, **options,
        )  # fmt: skip
        config = self.config
        if config.zookeeper is None and config.brokers is None:
            raise ValueError("a producer needs zookeeper= or brokers= to find the brokers")
        self._pid = os.getpid()
        self._closed = False
        self._is_sync = config.mode == "sync"
        self._encoder = config.encoder
        self._on_delivery = None if on_delivery is None else _callback(on_delivery)
        dead_letter = None if dead_letter is None else _callback(dead_letter, "dead_letter")
        self._max_plain = min(config.max_message_bytes, MAX_REQUEST_BYTES - _REQUEST_HEAD_BYTES)
        self._max_compressed = MAX_REQUEST_BYTES - _REQUEST_HEAD_BYTES
        metrics = figures.NONE if metrics is None else metrics
        self._events = metrics.counter(figures.ASYNC_EVENTS)
        self._dropped = metrics.counter(figures.ASYNC_DROPPED)
        if config.brokers is not None:
            self._cluster = Cluster(brokers=config.brokers)
        else:
            self._cluster = Cluster(
                zookeeper if isinstance(zookeeper, Access) else config.zookeeper,
                live=True,
                on_change=self._cluster_changed,
                timeout=config.zookeeper_connect,
                session_timeout=config.zookeeper_session,
            )
        self._router = Router(self._cluster, config.partitioner, verify=config.verify)
        self._dispatcher = Dispatcher(
            config, self._cluster, self._router, dead_letter=dead_letter, metrics=metrics, log=_log
        )
        self._staging: Stage | None = None
        if config.callback_handler is not None or config.event_handler is not None:
            self._staging = self._stage()
        _open.add(self)

    def _stage(self) -> Stage:
        if self._is_sync:
            raise ValueError("handlers are for mode='async' (producer.type): a sync producer has no queue to see")
        return Stage(
            self.config,
            send=lambda record, callback: self._queue_one(
                record.topic, record.value, record.key, record.partition, callback
            ),
            route=lambda record: self._route(record.topic, record.key, record.partition),
            address=self._cluster.address,
            tell=self._dispatcher.tell,
            default=self._on_delivery,
            log=_log,
        )

    @property
    def zookeeper(self) -> str | Access | None:
        """Where the brokers are found, with what lets us in; None with a list of brokers."""
        return self._cluster.zookeeper

    def _cluster_changed(self) -> None:
        self._router.changed()
        self._dispatcher.look_around()

    @classmethod
    def from_properties(cls, path: str | Path | Mapping[str, Any], **options: Any) -> Self:
        """A producer with the settings of a 0.7 ``.properties`` file (or a mapping); ``options`` go before them.

        OSError for a file that cannot be read, ValueError as for :class:`Producer`.
        """
        return cls(path, **options)

    # Sending

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        partition: TopicPartition | str | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery | None:
        """Send one record: its Delivery in sync mode, None in async mode, where it is queued.

        ``value``: bytes, or what the encoder takes. ``partition``: a TopicPartition or ``"broker-partition"``, in place
        of what the key says. Raises, and nothing is sent: InvalidTopicError, MessageTooLargeError, TypeError and
        ValueError for a value, key or partition that is none, UnknownTopicError and ZooKeeperError when there is no
        broker, QueueFullError, ProducerClosedError. In sync mode also the error of a record that failed, and with
        ``verify`` NotVerifiedError; both are told to callbacks as well.
        """
        self._check_open()
        callback = self._on_delivery if on_delivery is None else _callback(on_delivery)
        if self._staging is not None:
            self._stage_one(self._staging, topic, value, key, partition, callback)
            return None
        return self._queue_one(topic, value, key, partition, callback)

    def _queue_one(
        self, topic: str, value: Any, key: Any, partition: TopicPartition | str | None, callback: OnDelivery | None
    ) -> Delivery | None:
        if type(value) is not bytes:
            value = self._payload(value)
        if len(value) > self._max_plain and len(value) > self._limit(topic):
            raise self._too_large(topic, len(value), "the message")
        explicit = partition is not None
        broker, number = self._route(topic, key, partition)
        if self._is_sync:
            batch = Batch(topic, broker, number, explicit)
            batch.append(value, key, callback)
            return self._send_and_wait([batch])[0]
        self._dispatcher.need_sender(broker)
        self._events.inc()
        try:
            self._dispatcher.queue.add(topic, broker, number, explicit, value, key, callback)
        except QueueFullError:
            self._dropped.inc()
            raise
        return None

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        *,
        partition: TopicPartition | str | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> list[Delivery] | None:
        """Send many records of one topic; costs little per record. Their Deliveries in sync mode, in their order.

        ``keys``: one for each value (None among them: no key). Otherwise as :meth:`send`. All are checked before the
        first is sent; but QueueFullError and ProducerClosedError may come after some were queued: ``queued`` and
        ``refused`` of the former say how many, and which were not.
        """
        self._check_open()
        callback = self._on_delivery if on_delivery is None else _callback(on_delivery)
        if self._staging is not None:
            self._stage_many(self._staging, topic, values, keys, partition, callback)
            return None
        payloads = self._payloads(values)
        key_list = self._key_list(keys, len(payloads))
        if not payloads:
            return [] if self._is_sync else None
        limit = self._limit(topic)
        shares = []
        for route, chosen in self._shares(topic, key_list, len(payloads), partition):
            mine = _those(payloads, chosen)
            shares.append((route, chosen, mine, self._cuts(topic, mine, limit)))
        if self._is_sync:
            return self._send_and_wait(list(self._batches(topic, shares, key_list, partition is not None, callback)))
        self._events.inc(len(payloads))
        pieces = [(share, cut) for share in shares for cut in share[3]]
        for at, (((broker, number), chosen, mine, _), (low, high, size)) in enumerate(pieces):
            part = mine if high - low == len(mine) else mine[low:high]
            own = None if key_list is None else _those(key_list, chosen[low:high])
            self._dispatcher.need_sender(broker)
            try:
                self._dispatcher.queue.add_many(topic, broker, number, partition is not None, part, size, own, callback)
            except QueueFullError as error:
                self._no_room(error, len(payloads), [share[1][low:high] for share, (low, high, _) in pieces[at:]])
                raise
        return None

    def send_batch(
        self,
        topic: str,
        column: Any,
        *,
        keys: Any = None,
        offsets: Any = None,
        partition: TopicPartition | str | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> list[Delivery] | None:
        """Send a column of payloads: no Python object is made for any of them.

        ``column``: an Arrow array or chunked array of binary or strings, a two-dimensional numpy array of uint8 (a row
        each), or with ``offsets`` (n + 1 integers) one buffer; the encoder has no part in it. ``keys``: one for each
        payload, in a list or an Arrow column. What goes to one partition is told about by one Delivery, whose ``value`` is the column and whose
        ``count`` says how many messages: once all of it is final, and ``failed`` if any of it failed. Otherwise as
        :meth:`send_many`.
        """
        self._check_open()
        if self._staging is not None:
            raise ValueError("handlers see records, and a column has none: use send_many()")
        callback = self._on_delivery if on_delivery is None else _callback(on_delivery)
        entries = memoryview(build_message_set(column, offsets=offsets))
        messages = MessageSet(entries)
        count = len(messages)
        key_list = self._key_list(keys, count)
        if not count:
            return [] if self._is_sync else None
        limit = self._limit(topic)
        largest = int(messages.lengths.max())
        if largest > limit:
            raise self._too_large(topic, largest, f"payload {int(messages.lengths.argmax())}")
        batches: list[Batch] = []
        for (broker, number), chosen in self._shares(topic, key_list, count, partition):
            own = entries if len(chosen) == count else picked_entries(entries, chosen)
            told = Column(column, keys, callback, chosen)
            batches += self._pieces(topic, broker, number, partition is not None, own, told, key_list, chosen)
        if self._is_sync:
            return self._send_and_wait(batches)
        self._queue_all(batches, count)
        return None

    def flush(self, timeout: float | None = None) -> int:
        """Send what is queued now, and wait until every record sent before has its final state and was told about.

        Waits ``timeout`` seconds at most (None: as long as it takes, which ``delivery.timeout.ms`` bounds). How many
        records are left: 0 when all are done. RuntimeError when called from a callback.
        """
        self._check_process()
        deadline = None if timeout is None else monotonic() + timeout
        self._dispatcher.refuse_callbacks("flush")
        left = 0 if self._staging is None else self._staging.flush(timeout)
        left += self._dispatcher.flush(None if deadline is None else deadline - monotonic())
        return left

    def close(self, timeout: float | None = None) -> None:
        """Send what is queued, wait for it as :meth:`flush` does, and end. Twice does no harm.

        What has no final state after ``timeout`` seconds fails with ProducerClosedError, or is ``unknown`` where it was
        written and not read back yet; both are told about. RuntimeError when called from a callback.
        """
        self._check_process()
        self._dispatcher.refuse_callbacks("close")
        self._closed = True
        _open.discard(self)
        deadline = None if timeout is None else monotonic() + timeout
        if self._staging is not None:
            self._staging.drain(timeout)
        self._dispatcher.close(None if deadline is None else max(0.0, deadline - monotonic()))
        if self._staging is not None:
            self._staging.close()
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Producer of {self._cluster!r}, {self._dispatcher.queue.count} records on their way>"

    def _drain_at_exit(self) -> None:
        if self._pid == os.getpid():
            self.close()

    # To the handlers

    def _stage_one(
        self,
        staging: Stage,
        topic: str,
        value: Any,
        key: Any,
        partition: TopicPartition | str | None,
        callback: OnDelivery | None,
    ) -> None:
        chosen = None
        if partition is not None:
            chosen = TopicPartition(topic, *self._route(topic, None, partition))
        self._events.inc()
        try:
            staging.put(ProducerRecord(topic, value, key, chosen), callback)
        except QueueFullError:
            self._dropped.inc()
            raise

    def _stage_many(
        self,
        staging: Stage,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None,
        partition: TopicPartition | str | None,
        callback: OnDelivery | None,
    ) -> None:
        records = list(values)
        key_list = self._key_list(keys, len(records)) or [None] * len(records)
        for queued, (value, key) in enumerate(zip(records, key_list, strict=True)):
            try:
                self._stage_one(staging, topic, value, key, partition, callback)
            except QueueFullError as error:
                error.queued, error.refused = queued, range(queued, len(records))
                raise

    # What is checked

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            self._check_process()
        if self._closed:
            raise ProducerClosedError("the producer is closed")

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ProducerClosedError(
                f"this producer belongs to process {self._pid}, and this is process {os.getpid()}, a fork of it: "
                "its threads and connections did not come along. Make a producer after forking"
            )

    def _limit(self, topic: str) -> int:
        """Bytes that a payload may have before it is compressed."""
        return self._max_compressed if self.config.codec_of(topic) else self._max_plain

    def _too_large(self, topic: str, size: int, what: str) -> MessageTooLargeError:
        limit = self._limit(topic)
        return MessageTooLargeError(
            f"{what} has {size} bytes; a broker drops what is above max.message.size, {limit}, and says nothing. "
            "Nothing was sent",
            size=size,
            max_message_bytes=limit,
            topic=topic,
        )

    def _payload(self, value: Any) -> bytes:
        if self._encoder is None:
            return self._bytes(value)
        encoded = self._encoder(value)
        if not isinstance(encoded, (bytes, bytearray, memoryview)):
            raise TypeError(f"the encoder made {type(encoded).__name__} of a {type(value).__name__}, not bytes")
        return bytes(encoded)

    def _bytes(self, value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        raise TypeError(f"a value is bytes, not {type(value).__name__}: encode it, or give the producer an encoder=")

    def _payloads(self, values: Iterable[Any]) -> list[Any]:
        """A list of our own; whether they are bytes is looked at when they are cut."""
        if isinstance(values, (bytes, bytearray, memoryview, str)):
            raise TypeError(f"values is one {type(values).__name__}: pass a list, or call send()")
        return list(values) if self._encoder is None else list(map(self._payload, values))

    def _key_list(self, keys: Any, count: int) -> list[Any] | None:
        if keys is None:
            return None
        if isinstance(keys, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"keys is one {type(keys).__name__}: pass a list, one for each value, or call send()")
        found = keys.to_pylist() if hasattr(keys, "to_pylist") else list(keys)
        if len(found) != count:
            raise ValueError(f"{count} values and {len(found)} keys: there has to be one for each (None for none)")
        return found

    # Where it goes

    def _looked_up(self, ask: Callable[[], T]) -> T:
        """What the router says; while there is no broker it is asked again, ``zk.read.num.retries`` times."""
        pause = _LOOK_PAUSE
        for _ in range(self.config.zookeeper_retries):
            try:
                return ask()
            except (UnknownTopicError, ZooKeeperError):
                sleep(pause)
                pause *= 2
        return ask()

    def _route(self, topic: str, key: Any, partition: TopicPartition | str | None) -> Route:
        try:
            return self._router.route(topic, key, partition)
        except (UnknownTopicError, ZooKeeperError):
            return self._looked_up(lambda: self._router.route(topic, key, partition))

    def _shares(
        self, topic: str, keys: list[Any] | None, count: int, partition: TopicPartition | str | None
    ) -> list[tuple[Route, Sequence[int]]]:
        """Which of ``count`` records go where: indexes, ascending, by route."""
        shares = self._looked_up(lambda: self._router.route_many(topic, keys, count, partition))
        return [(share.route, indexes_of(share)) for share in shares]

    # How it is cut

    def _cuts(self, topic: str, payloads: list[Any], limit: int) -> list[tuple[int, int, int]]:
        """(low, high, bytes) of pieces that fit a batch. MessageTooLargeError for a payload above ``limit``.

        What is bytes-like and not bytes is made bytes, in the list. All of this goes a piece at a time, for a long list
        is in no cache: nothing is looked at twice, as long as sizes do not differ much.
        """
        cuts = []
        low, count = 0, len(payloads)
        step = min(self.config.batch_messages, self.config.queue_messages)
        while low < count:
            high = min(low + step, count)
            piece = payloads[low:high]
            if not _BYTES.issuperset(map(type, piece)):
                payloads[low:high] = piece = list(map(self._bytes, piece))
            size = sum(map(len, piece))
            if size > self.config.batch_bytes and high - low > 1:
                step = max(1, min((high - low) // 2, (high - low) * self.config.batch_bytes // size * 15 // 16))
                continue
            if size > limit and (largest := max(map(len, piece))) > limit:
                raise self._too_large(topic, largest, "a message")
            cuts.append((low, high, size))
            low = high
        return cuts

    def _pieces(
        self,
        topic: str,
        broker: int,
        number: int,
        explicit: bool,
        entries: memoryview,
        column: Column,
        keys: list[Any] | None,
        chosen: Sequence[int],
    ) -> Iterator[Batch]:
        """A column's message set as batches, cut between messages."""
        ends = numpy.asarray(MessageSet(entries).next_offsets)
        low = start = 0
        while low < len(ends):
            high = int(numpy.searchsorted(ends, start + self.config.batch_bytes, side="right"))
            high = min(max(high, low + 1), low + self.config.queue_messages, len(ends))
            batch = Batch(topic, broker, number, explicit)
            batch.column, batch.count = column, high - low
            batch.entries = entries[start : int(ends[high - 1])]
            batch.size = len(batch.entries)
            batch.indexes = chosen[low:high]
            batch.keys = None if keys is None else _those(keys, batch.indexes)
            yield batch
            low, start = high, int(ends[high - 1])

    def _batches(
        self,
        topic: str,
        shares: Iterable[tuple[tuple[int, int], Sequence[int], list[bytes], list[tuple[int, int, int]]]],
        keys: list[Any] | None,
        explicit: bool,
        callback: OnDelivery | None,
    ) -> Iterator[Batch]:
        for (broker, number), chosen, mine, cuts in shares:
            for low, high, size in cuts:
                batch = Batch(topic, broker, number, explicit)
                indexes = chosen[low:high]
                own = None if keys is None else _those(keys, indexes)
                batch.extend(mine[low:high], size, own, callback)
                batch.indexes = indexes
                yield batch

    # Into the queue

    def _queue_all(self, batches: Sequence[Batch], count: int) -> None:
        """Queue ``count`` records in their order. Where one batch is not taken, none behind it is."""
        self._events.inc(count)
        for at, batch in enumerate(batches):
            try:
                self._dispatcher.need_sender(batch.broker)
                self._dispatcher.queue.add_batch(batch)
            except KafkaError as error:
                left = batches[at:]
                if batch.column is not None:
                    self._dispatcher.cut_off(batch.column, sum(b.count for b in left if b.column is batch.column))
                if isinstance(error, QueueFullError):
                    self._no_room(error, count, [each.indexes or (0,) for each in left])
                raise

    def _no_room(self, error: QueueFullError, count: int, pieces: Iterable[Sequence[int]]) -> None:
        """Say in the error which of ``count`` records were refused, and count them as dropped."""
        error.refused = sorted(index for indexes in pieces for index in indexes)
        error.queued = count - len(error.refused)
        self._dropped.inc(len(error.refused))

    def _send_and_wait(self, batches: list[Batch]) -> list[Delivery]:
        """Send, wait, and say what became of each record, or column; raise if one failed."""
        waiter = Waiter(sum(batch.count for batch in batches), final=self.config.verify)
        for batch in batches:
            batch.waiter = waiter
        self._queue_all(batches, waiter.count)
        waiter.wait()
        deliveries = _column_deliveries(batches, waiter) if batches[0].column else _deliveries(batches, waiter)
        for delivery in deliveries:
            if delivery.error is not None:
                raise delivery.error
        return deliveries


def _callback(function: OnDelivery, name: str = "on_delivery") -> OnDelivery:
    if not callable(function):
        raise TypeError(f"{name} must be a function (delivery), but is {function!r}")
    return function


def _those(values: list[T], chosen: Sequence[int]) -> list[T]:
    """The values of these indexes."""
    if isinstance(chosen, range):
        return values if len(chosen) == len(values) else values[chosen.start : chosen.stop]
    return [values[i] for i in chosen]


def _deliveries(batches: list[Batch], waiter: Waiter) -> list[Delivery]:
    """One for each record, in the order of the caller's list. What has no final state is written."""
    found: dict[int, Delivery] = {}
    for outcome in [*(Outcome(batch, State.WRITTEN) for batch in batches), *waiter.outcomes]:
        for i, index in enumerate(outcome.batch.indexes or (0,)):
            found[index] = outcome.batch.delivery(i, outcome)
    return [found[index] for index in sorted(found)]


def _column_deliveries(batches: list[Batch], waiter: Waiter) -> list[Delivery]:
    """One for each column. What has no final state is written."""
    told: dict[Column, list[Outcome]] = {}
    written = [] if waiter.final else [Outcome(batch, State.WRITTEN) for batch in batches]
    for outcome in [*written, *waiter.outcomes]:
        if outcome.batch.column is not None:
            told.setdefault(outcome.batch.column, []).append(outcome)
    return [column.summary(outcomes) for column, outcomes in told.items()]
