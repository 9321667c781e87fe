"""What stands between a producer's callers and its senders: routes, the queue, a sender for each broker, callbacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any

from kafka07c import metrics as figures
from kafka07c._compress import Codec
from kafka07c.callbacks import Callbacks
from kafka07c.cluster import Cluster
from kafka07c.errors import KafkaError, ProducerClosedError
from kafka07c.metrics import Metrics
from kafka07c.names import BrokerAddress
from kafka07c.producer.batches import Batch, BatchQueue, Column, OnDelivery, Outcome
from kafka07c.producer.config import ProducerConfig
from kafka07c.producer.records import Delivery, State
from kafka07c.producer.routing import Router, indexes_of
from kafka07c.producer.sender import Sender, closed_error

__all__ = ["Dispatcher"]

#: seconds that close() waits for threads that are busy with a broker, all together
_CLOSE_WAIT = 1.0


class Dispatcher:
    """Takes batches, has them sent, and tells what became of them. Every record is told about exactly once.

    ``dead_letter``: called for what failed or is unknown.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        router: Router,
        *,
        dead_letter: OnDelivery | None,
        metrics: Metrics,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger],
    ):
        self._config = config
        self._cluster = cluster
        self._router = router
        self._dead_letter = dead_letter
        self._metrics = metrics
        self._log = log
        self._callbacks = Callbacks(log)
        self._has_told_aside = False  # a flush waits for the callbacks' thread too
        self._lock = threading.Lock()
        self._senders: dict[int, Sender] = {}
        self._closed = False
        self.queue = BatchQueue(
            max_count=config.queue_messages,
            max_bytes=config.queue_bytes,
            enqueue_timeout=config.enqueue_timeout,
            batch_count=config.batch_messages,
            batch_bytes=config.batch_bytes,
            linger=config.queue_time,
        )
        self._withdraw_figures = (
            metrics.gauge(figures.ASYNC_QUEUE_SIZE).add(lambda: self.queue.count),
            metrics.gauge(figures.PRODUCER_QUEUED_BYTES).add(lambda: self.queue.size),
        )

    # For callers

    def need_sender(self, broker: int) -> None:
        """There is a sender for the broker from now on. ProducerClosedError after :meth:`close`."""
        if broker not in self._senders:
            with self._lock:
                if broker not in self._senders:
                    self._begin(broker)

    def _begin(self, broker: int) -> None:
        if self._closed:
            raise ProducerClosedError("the producer is closed")
        if not self._senders:
            self._callbacks.start()  # while threads can still be started
        sender = Sender(broker, self.queue, self, self._config, self._metrics, self._log)
        self.queue.attach(broker, sender.wake)
        try:
            sender.start()
        except RuntimeError as error:
            raise ProducerClosedError(f"the interpreter is about to end: {error}") from error
        self._senders[broker] = sender

    def flush(self, timeout: float | None) -> int:
        """See :meth:`Producer.flush`."""
        self.refuse_callbacks("flush")
        deadline = None if timeout is None else monotonic() + timeout
        left = self.queue.flush(timeout)
        if self._has_told_aside:
            wait = threading.TIMEOUT_MAX if deadline is None else max(deadline - monotonic(), 0.0)
            self._callbacks.call(lambda: None, wait=wait)
        return left

    def refuse_callbacks(self, what: str) -> None:
        """RuntimeError in the callbacks' thread, for which one would wait in vain."""
        if self._callbacks.is_mine:
            raise RuntimeError(f"{what}() waits for callbacks, and so cannot be called from one")

    def look_around(self) -> None:
        """The cluster has changed. Any thread; returns at once."""
        for sender in list(self._senders.values()):
            sender.look_around()

    def close(self, timeout: float | None) -> None:
        """Drain for ``timeout`` seconds at most, fail what is left, end the threads."""
        self.refuse_callbacks("close")
        deadline = None if timeout is None else monotonic() + timeout
        self.queue.close()
        self.queue.flush(timeout)
        with self._lock:
            self._closed = True
            senders = list(self._senders.values())
        for sender in senders:
            sender.stop()
        patience = monotonic() + _CLOSE_WAIT
        for sender in senders:
            sender.join(max(0.0, patience - monotonic()))
            sender.fail_leftovers()
            left = self.queue.withdraw(sender.broker, lambda batch: True)
            self.settle([Outcome(batch, State.FAILED, closed_error(batch)) for batch in left])
        self._callbacks.close()
        # callbacks of what has just failed: a second is time enough for those that do not block
        self.queue.flush(None if deadline is None else max(_CLOSE_WAIT, deadline - monotonic()))
        for withdraw in self._withdraw_figures:
            withdraw()

    # For senders

    def address(self, broker: int) -> BrokerAddress:
        """Where the broker is now; ZooKeeperError when it is not registered."""
        return self._cluster.address(broker)

    def codec(self, topic: str) -> Codec:
        """How messages of the topic are compressed."""
        return self._config.codec_of(topic)

    def move(self, batches: list[Batch]) -> list[Batch]:
        """Send these elsewhere, as their keys say now; those for which there is nowhere yet are given back."""
        moved: list[Batch] = []
        left: list[Batch] = []
        for batch in batches:
            try:
                pieces = self._rerouted(batch)
                for piece in pieces:
                    self.need_sender(piece.broker)
            except KafkaError:
                left.append(batch)
            except Exception as error:  # a partitioner that does not know the partitions as they are now
                self._log.warning("records of topic %r cannot go elsewhere: %r", batch.topic, error)
                left.append(batch)
            else:
                batch.final = True  # its pieces are what counts now
                moved += pieces
        self.queue.restore(moved)
        return left

    def _rerouted(self, batch: Batch) -> list[Batch]:
        shares = self._router.route_many(batch.topic, batch.keys, batch.count)
        return [batch.pick(indexes_of(share), *share.route) for share in shares]

    def settle(self, outcomes: list[Outcome]) -> None:
        """These batches have their final states: free their room, and let everybody hear who wants to."""
        heard = []
        for outcome in outcomes:
            batch = outcome.batch
            if not self.queue.settle(batch):
                continue
            self._count(outcome)
            if batch.waiter is not None:
                batch.waiter.outcomes.append(outcome)
                batch.waiter.passed(batch)
            if self._is_heard(outcome):
                heard.append(outcome)
            else:
                self.queue.told(batch)
        if heard:
            self._callbacks.call(self._tell, heard)

    def _count(self, outcome: Outcome) -> None:
        batch = outcome.batch
        self._metrics.counter(_COUNTERS[outcome.state], topic=batch.topic).inc(batch.count)
        if batch.resends:
            self._metrics.counter(figures.PRODUCER_RESENDS, topic=batch.topic).inc(batch.resends * batch.count)
        if outcome.state is State.FAILED:
            self._log.warning("%d records of topic %r failed: %s", batch.count, batch.topic, outcome.error)

    def _is_heard(self, outcome: Outcome) -> bool:
        batch = outcome.batch
        if batch.column is not None:
            return True
        if self._dead_letter is not None and outcome.state in (State.FAILED, State.UNKNOWN):
            return True
        return any(callback is not None for _, callback in batch.callbacks)

    def tell(self, delivery: Delivery, callback: OnDelivery | None) -> None:
        """Tell about a record that never was in a batch: it was the handlers'."""
        self._metrics.counter(_COUNTERS[delivery.state], topic=delivery.topic).inc()
        self._tell_aside(delivery, callback)

    def cut_off(self, column: Column, count: int) -> None:
        """The last ``count`` messages of a column found no room: tell about those before, if it is time."""
        delivery = column.cut_off(count)
        if delivery is not None:
            self._tell_aside(delivery, column.callback)

    def _tell_aside(self, delivery: Delivery, callback: OnDelivery | None) -> None:
        """Tell what no batch in the queue stands for."""
        self._has_told_aside = True
        self._callbacks.call(self._call, callback, delivery)
        if not delivery.ok:
            self._callbacks.call(self._call, self._dead_letter, delivery)

    # In the callbacks' thread

    def _tell(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            try:
                for delivery, callback in _deliveries(outcome):
                    self._call(callback, delivery)
                    if not delivery.ok:
                        self._call(self._dead_letter, delivery)
            finally:
                self.queue.told(outcome.batch)

    def _call(self, function: OnDelivery | None, delivery: Delivery) -> None:
        if function is None:
            return
        try:
            function(delivery)
        except BaseException:  # SystemExit would end the thread, and with it all callbacks
            self._log.exception("a callback failed for a record of topic %r", delivery.topic)


def _deliveries(outcome: Outcome) -> Iterable[tuple[Delivery, Callable[[Delivery], Any] | None]]:
    """What is to be told about a batch, and to whom."""
    batch = outcome.batch
    if batch.column is not None:
        delivery = batch.column.settle(outcome)
        if delivery is not None:
            yield delivery, batch.column.callback
        return
    for first, last, callback in batch.runs():
        for i in range(first, last):
            yield batch.delivery(i, outcome), callback


_COUNTERS = {
    State.WRITTEN: figures.PRODUCER_WRITTEN,
    State.VERIFIED: figures.PRODUCER_VERIFIED,
    State.FAILED: figures.PRODUCER_FAILED,
    State.UNKNOWN: figures.PRODUCER_UNKNOWN,
}
