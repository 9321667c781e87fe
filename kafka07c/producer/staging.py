"""The way of records through the application's handlers, as 0.7's async producer has it. Only with handlers.

Each record is a :class:`ProducerRecord` until it has passed them: it waits in a queue of its own, comes out of it in
batches, and then goes on as any other, or is the event handler's.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, Self

from kafka07c.errors import KafkaError, ProducerClosedError, QueueFullError
from kafka07c.names import BrokerAddress, TopicPartition
from kafka07c.producer.batches import OnDelivery
from kafka07c.producer.config import ProducerConfig
from kafka07c.producer.handlers import CallbackHandler, DefaultEncoder, EventHandler
from kafka07c.producer.records import Delivery, ProducerRecord, State
from kafka07c.producer.routing import Route
from kafka07c.simple import SyncProducer

__all__ = ["Stage"]

#: a record, and who is to hear of it
_Staged = tuple[ProducerRecord, OnDelivery | None]


class _Kept(weakref.ref[ProducerRecord]):
    """A record that a handler has been given and has not given on, for as long as it holds it.

    ``copy``: what it was. ``callbacks``: who is to hear of it, once for each time that it was given.
    """

    __slots__ = ("callbacks", "copy", "key")

    callbacks: deque[OnDelivery | None]
    copy: ProducerRecord
    key: int

    def __new__(cls, record: ProducerRecord, gone: Callable[[_Kept], object]) -> Self:
        kept = super().__new__(cls, record, gone)
        kept.key, kept.copy, kept.callbacks = id(record), replace(record), deque()
        return kept


class Stage:
    """The handlers, the queue before them, and the thread that calls them. One producer's.

    ``send``: takes a record that has passed the handlers, and blocks while there is no room. ``route``: where a record
    goes. ``address``: where a broker is. ``tell``: tells what became of a record that never got to ``send``.
    ``default``: who hears of records that the handlers made. What a handler keeps is the record's own object, by which
    it is known when it comes back; what no handler holds any more, or what has not come back at the end, fails.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        send: Callable[[ProducerRecord, OnDelivery | None], Any],
        route: Callable[[ProducerRecord], Route],
        address: Callable[[int], BrokerAddress],
        tell: Callable[[Delivery, OnDelivery | None], None],
        default: OnDelivery | None,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger],
    ):
        self._config = config
        self._send = send
        self._route = route
        self._address = address
        self._tell = tell
        self._default = default
        self._log = log
        self._callbacks = CallbackHandler() if config.callback_handler is None else config.callback_handler
        self._events: EventHandler | None = config.event_handler
        self._encoder = DefaultEncoder() if config.encoder is None else config.encoder
        self._producers: dict[int, SyncProducer] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._queue: deque[_Staged] = deque()
        self._since = 0.0  # when the first of the queue came
        self._busy = 0  # taken out of the queue, and not through yet
        self._hurried = 0  # flushes that wait
        self._closing = False
        self._stopping = False
        # what a handler was given and has not given on, by the record's identity; the same may be given twice
        self._kept: dict[int, _Kept] = {}
        self._gone: deque[_Kept] = deque()  # what no handler holds any more, and so will not give on
        self._thread: threading.Thread | None = None
        if config.callback_handler is not None:
            config.callback_handler.init(config.callback_handler_properties or {})
        if config.event_handler is not None:
            config.event_handler.init(config.event_handler_properties or {})

    def put(self, record: ProducerRecord, callback: OnDelivery | None) -> None:
        """A record, as ``send`` was given it. What ``before_enqueue`` raises; QueueFullError, ProducerClosedError."""
        (record,) = _records([self._callbacks.before_enqueue(record)])
        try:
            self._enqueue((record, callback))
        except KafkaError:
            self._callbacks.after_enqueue(record, False)
            raise
        self._callbacks.after_enqueue(record, True)

    def flush(self, timeout: float | None) -> int:
        """Let what is queued through the handlers, for ``timeout`` seconds at most; how many are left."""
        with self._lock:
            self._hurried += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: not self._queue and not self._busy, timeout)
            finally:
                self._hurried -= 1
            return len(self._queue) + self._busy

    def drain(self, timeout: float | None) -> None:
        """Let everything through, the handlers' last batch too; then nothing more is taken. What is left fails."""
        with self._lock:
            self._closing = True
            self._changed.notify_all()
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        else:
            self._finish()
        with self._lock:
            self._stopping = True
            kept = [*self._kept.values(), *self._gone]
            left = [*self._queue, *((each.copy, callback) for each in kept for callback in each.callbacks)]
            self._gone.clear()
            self._queue.clear()
            self._kept.clear()
        for record, callback in left:
            self._fail(record, callback, ProducerClosedError("the producer was closed before the handlers gave it on"))

    def close(self) -> None:
        """The last call: the handlers' ends."""
        for handler in (self._config.callback_handler, self._config.event_handler):
            if handler is not None:
                self._guarded(handler.close)
        for producer in self._producers.values():
            producer.close()

    # --- the queue

    def _enqueue(self, staged: _Staged) -> None:
        timeout = self._config.enqueue_timeout
        limit = self._config.queue_messages
        with self._lock:
            if not self._changed.wait_for(lambda: self._closing or len(self._queue) < limit, timeout):
                raise QueueFullError(f"the queue is full: {limit} records (queue.size) wait for the handlers")
            if self._closing:
                raise ProducerClosedError("the producer is closed")
            if not self._queue:
                self._since = monotonic()
                self._changed.notify_all()
            self._queue.append(staged)
            if len(self._queue) == self._config.batch_messages:
                self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kafka07c-producer-handlers", daemon=True)
                self._thread.start()

    def _take(self) -> list[_Staged]:
        """The next batch, when it is due; none at the end."""
        with self._lock:
            while True:
                full = len(self._queue) >= self._config.batch_messages or self._hurried or self._closing
                due = self._since + self._config.queue_time
                if self._queue and (full or monotonic() >= due):
                    break
                if self._closing:
                    return []
                self._changed.wait(due - monotonic() if self._queue else None)
            taken = [self._queue.popleft() for _ in range(min(len(self._queue), self._config.batch_messages))]
            self._since = monotonic()
            self._busy = len(taken)
            self._changed.notify_all()
            return taken

    # --- the thread

    def _run(self) -> None:
        while taken := self._take():
            try:
                self._pass(taken)
            except Exception:
                self._log.exception("handlers failed")
            taken.clear()  # the last who hold them, but for a handler that does
            self._fail_gone()
            with self._lock:
                self._busy = 0
                self._changed.notify_all()
        self._finish()

    def _finish(self) -> None:
        try:
            last = _records(self._callbacks.last_batch_before_close())
        except Exception:
            self._log.exception("last_batch_before_close() failed")
            return
        self._go_on([(record, self._claim(record)) for record in last])

    def _pass(self, taken: Sequence[_Staged]) -> None:
        out: list[_Staged] = []
        for record, callback in taken:
            out += self._dequeued(record, callback)
        if not out:
            return
        given = [record for record, _ in out]
        try:
            records = _records(self._callbacks.before_sending_data(given))
        except Exception as error:
            for record, callback in out:
                self._fail(record, callback, _handler_error("before_sending_data", error))
            return
        self._keep(out)
        if len(records) == len(out):  # each in the place of another, if it is not the same
            self._go_on([(new, self._replaced(new, old)) for new, old in zip(records, given, strict=True)])
        else:
            self._go_on([(record, self._claim(record)) for record in records])

    def _dequeued(self, record: ProducerRecord, callback: OnDelivery | None) -> list[_Staged]:
        try:
            records = _records(self._callbacks.after_dequeuing_existing_data(record))
        except Exception as error:
            self._fail(record, callback, _handler_error("after_dequeuing_existing_data", error))
            return []
        self._keep([(record, callback)])
        staged: list[_Staged] = []
        same = any(each is record for each in records)
        for each in records:
            if same or self._found(record) is None:
                staged.append((each, self._claim(each)))
            else:  # it is in the place of the one that came out
                staged.append((each, self._replaced(each, record)))
        return staged

    def _keep(self, staged: Iterable[_Staged]) -> None:
        with self._lock:
            for record, callback in staged:
                kept = self._found(record)
                if kept is None:
                    kept = self._kept[id(record)] = _Kept(record, self._gone.append)
                kept.callbacks.append(callback)

    def _found(self, record: ProducerRecord) -> _Kept | None:
        kept = self._kept.get(id(record))
        return kept if kept is not None and kept() is record else None  # another one may have had its place before

    def _claim(self, record: ProducerRecord) -> OnDelivery | None:
        """Who is to hear of a record: whoever was when the handler got it."""
        with self._lock:
            return self._unkept(self._found(record))

    def _replaced(self, new: ProducerRecord, old: ProducerRecord) -> OnDelivery | None:
        """Who is to hear of a record that came in the place of another."""
        with self._lock:
            return self._unkept(self._found(new) or self._found(old))

    def _unkept(self, kept: _Kept | None) -> OnDelivery | None:
        if kept is None:
            return self._default
        callback = kept.callbacks.popleft()
        if not kept.callbacks:
            del self._kept[kept.key]
        return callback

    def _fail_gone(self) -> None:
        """Tell what became of those that a handler was given and has dropped."""
        while self._gone:
            with self._lock:
                kept = self._gone.popleft()
                if self._kept.get(kept.key) is kept:
                    del self._kept[kept.key]
            for callback in kept.callbacks:
                self._fail(kept.copy, callback, KafkaError("a handler has dropped the record"))

    # --- beyond the callback handler

    def _go_on(self, staged: list[_Staged]) -> None:
        if self._events is not None:
            self._handle(self._events, staged)
            return
        for record, callback in staged:
            try:
                self._send_waiting(record, callback)
            except Exception as error:
                self._fail(record, callback, error)

    def _send_waiting(self, record: ProducerRecord, callback: OnDelivery | None) -> None:
        """The caller was promised room when it was taken here, so the queue behind is waited for."""
        while True:
            try:
                self._send(record, callback)
                return
            except QueueFullError:
                with self._lock:
                    if self._stopping:
                        raise
                    self._changed.wait(0.005)

    def _handle(self, events: EventHandler, staged: list[_Staged]) -> None:
        """Give the event handler what goes to each broker, and believe it."""
        by_broker: dict[int, list[_Staged]] = {}
        for record, callback in staged:
            try:
                broker, number = self._route(record)
            except Exception as error:
                self._fail(record, callback, error)
                continue
            routed = record if number < 0 else replace(record, partition=TopicPartition(record.topic, broker, number))
            by_broker.setdefault(broker, []).append((routed, callback))
        for broker, share in by_broker.items():
            failed = self._try_handle(events, broker, [record for record, _ in share])
            for record, callback in share:
                if failed is not None:
                    self._fail(record, callback, failed)
                else:
                    self._tell(_delivery(record, State.WRITTEN), callback)

    def _try_handle(self, events: EventHandler, broker: int, records: list[ProducerRecord]) -> KafkaError | None:
        try:
            events.handle(records, self._producer(broker), self._encoder)
        except KafkaError as error:
            return error
        except Exception as error:
            return _handler_error("handle", error)
        return None

    def _producer(self, broker: int) -> SyncProducer:
        address = self._address(broker)
        producer = self._producers.get(broker)
        if producer is None or (producer.host, producer.port) != (address.host, address.port):
            if producer is not None:
                producer.close()
            producer = self._producers[broker] = SyncProducer(
                address.host,
                address.port,
                max_message_bytes=self._config.max_message_bytes,
                connect_timeout=self._config.connect_timeout,
                timeout=self._config.socket_timeout,
            )
        return producer

    def _fail(self, record: ProducerRecord, callback: OnDelivery | None, error: Exception) -> None:
        reason = error if isinstance(error, KafkaError) else KafkaError(f"topic {record.topic!r}: {error}")
        self._log.warning("a record of topic %r failed: %s", record.topic, reason)
        self._tell(_delivery(record, State.FAILED, reason), callback)

    def _guarded(self, function: Callable[[], Any]) -> None:
        try:
            function()
        except Exception:
            self._log.exception("a handler's close() failed")


def _records(given: Iterable[ProducerRecord]) -> list[ProducerRecord]:
    """What a handler gave, as a list; TypeError where it is something else."""
    records = list(given)
    for record in records:
        if not isinstance(record, ProducerRecord):
            raise TypeError(f"a handler gives ProducerRecords, not {type(record).__name__}")
    return records


def _delivery(record: ProducerRecord, state: State, error: KafkaError | None = None) -> Delivery:
    return Delivery(record.topic, record.partition, record.value, record.key, state, error=error)


def _handler_error(method: str, error: Exception) -> KafkaError:
    return KafkaError(f"the handler's {method}() failed: {type(error).__name__}: {error}")
