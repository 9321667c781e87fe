"""Sending: one thread for each broker, which alone touches the connection to it.

What a sender does, over and over::

    hear      the answers that have come in, or that the broker has hung up
    take      all batches of the broker, if one of them is ready
    write     them as one PRODUCE or MULTIPRODUCE, and behind it a *barrier*
    wait      for an answer, for a batch, or until the oldest batch is due

0.7 never answers a produce request. But it handles the requests of one connection in order, so the answer to any other
request behind it, an OFFSETS here, says that it has been read and carried out: that is the barrier. What no barrier's
answer covers yet is the *window*. When the connection ends, the window's fate is unknown, and it is written again: one
set at a time, each with a barrier of its own, on a connection that has answered something before. So one set that
makes the broker hang up (a partition that it does not have, say) is found, and fails alone; and what the broker had
carried out already is there twice.

Order within a partition is kept: what is written again goes before all that has not been written.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from kafka07c import metrics as figures
from kafka07c._build import build_message_set, wrap_message_set
from kafka07c._compress import Codec
from kafka07c.connection import Connection, Wakeup
from kafka07c.errors import (
    BrokerConnectionError,
    BrokerTimeoutError,
    KafkaError,
    MessageTooLargeError,
    ProducerClosedError,
    ZooKeeperError,
    error_for_code,
)
from kafka07c.metrics import Metrics
from kafka07c.names import BrokerAddress
from kafka07c.producer.batches import Batch, BatchQueue, Outcome
from kafka07c.producer.records import State
from kafka07c.producer.verifying import Verifier
from kafka07c.protocol import LATEST, MultiProduceRequest, OffsetsRequest, ProduceData, decode_offsets_response

__all__ = ["Host", "SendSettings", "Sender", "closed_error"]

#: bytes of payload in one request, unless one batch has more: what is built for it should still be in the cache when
#: the kernel copies it
_REQUEST_BYTES = 1024 * 1024

#: bytes of a frame that answers an OFFSETS request for one offset, and a bit more (0.7.2 takes no notice of 0)
_ANSWER_BYTES = 64

#: seconds until the next try after something went wrong: at first, and at most
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0

#: bytes of a message before its payload
_HEADER_BYTES = 10


class SendSettings(Protocol):
    """What is used of a ProducerConfig; times are in seconds."""

    @property
    def connect_timeout(self) -> float: ...
    @property
    def socket_timeout(self) -> float: ...
    @property
    def delivery_timeout(self) -> float: ...
    @property
    def retries(self) -> int: ...
    @property
    def max_message_bytes(self) -> int: ...
    @property
    def window_bytes(self) -> int: ...
    @property
    def verify(self) -> bool: ...
    @property
    def verify_timeout(self) -> float: ...


class Host(Protocol):
    """What a sender asks of its producer. Its threads call all of it, and it must not wait for them."""

    def address(self, broker: int) -> BrokerAddress:
        """Where the broker is now; ZooKeeperError when it is not registered."""

    def codec(self, topic: str) -> Codec:
        """How messages of the topic are compressed."""

    def settle(self, outcomes: list[Outcome]) -> None:
        """These batches have their final states."""

    def move(self, batches: list[Batch]) -> list[Batch]:
        """The broker is gone: send these elsewhere. Those are given back for which there is nowhere yet."""


@dataclass(slots=True, eq=False)
class _Written:
    """What one request carried; it is in the window until its barrier is answered.

    ``starts``: partitions whose flushed ends were asked for before it, and not answered yet.
    """

    batches: list[Batch]
    alone: bool
    size: int
    starts: deque[tuple[str, int]] = field(default_factory=deque)
    sent: bool = False  # whether any of it may have gone out
    since: float = field(default_factory=monotonic)


class Sender:
    """The thread that sends to one broker. ``start`` it, ``wake`` it when there is something, ``stop`` it."""

    def __init__(
        self,
        broker: int,
        queue: BatchQueue,
        host: Host,
        settings: SendSettings,
        metrics: Metrics,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger],
    ):
        self.broker = broker
        self._queue = queue
        self._host = host
        self._settings = settings
        self._log = log
        self._produce_time = metrics.timer(figures.PRODUCE_REQUESTS, broker=broker)
        self._wakeup = Wakeup()
        self._connection: Connection | None = None
        self._window: deque[_Written] = deque()
        self._window_bytes = 0
        self._heard = 0.0  # when the last answer came
        self._has_answered = False  # whether any came on this connection
        self._careful: deque[Batch] = deque()  # to be written again, or whose lane is suspect: one at a time
        self._suspects: set[tuple[str, int]] = set()  # lanes of which a set made the broker hang up
        self._pause = 0.0
        self._next_try = 0.0
        self._last_error: KafkaError | None = None
        self._told_of = ""
        self._changed = False
        self._stopping = False
        self._returned: deque[tuple[list[Batch], bool]] = deque()  # what the verifier has not found, and if dropped
        self._searching = False  # nothing is written until it is known what the log has
        self._verifier = (
            Verifier(broker, host.address, settings, settle=self._verified, lost=self._take_back, log=log)
            if settings.verify
            else None
        )
        self._thread = threading.Thread(target=self._run, name=f"kafka07c-producer-{broker}", daemon=True)

    def start(self) -> None:
        """Begin. RuntimeError when the interpreter is about to end and takes no more threads."""
        if self._verifier is not None:
            self._verifier.start()
        self._thread.start()

    def wake(self) -> None:
        """There is something to send, or to look at."""
        self._wakeup.set()

    def look_around(self) -> None:
        """The cluster has changed: this broker may be gone, or elsewhere."""
        self._changed = True
        self._wakeup.set()

    def stop(self) -> None:
        """End soon. What has no final state by then fails."""
        self._stopping = True
        self._wakeup.set()
        if self._verifier is not None:
            self._verifier.stop()
        connection = self._connection
        if connection is not None:
            connection.interrupt()

    def join(self, timeout: float) -> None:
        """Wait for the threads' end, so many seconds at most."""
        deadline = monotonic() + timeout
        self._thread.join(timeout)
        if self._verifier is not None:
            self._verifier.join(max(0.0, deadline - monotonic()))

    def fail_leftovers(self) -> None:
        """Fail what it took from the queue and did not settle; for one who has stopped it."""
        left = [batch for written in list(self._window) for batch in written.batches] + list(self._careful)
        left += [batch for batches, _ in list(self._returned) for batch in batches]
        if self._verifier is not None:
            unwritten, unknown = self._verifier.leftovers()
            left += unwritten
            self._host.settle(unknown)
        self._host.settle([Outcome(batch, State.FAILED, closed_error(batch)) for batch in left])

    # --- the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                try:
                    self._step()
                except KafkaError as error:
                    self._lost(error)
                except Exception as error:
                    self._log.exception("sending to broker %d failed; it goes on with a new connection", self.broker)
                    self._lost(BrokerConnectionError(f"sending to broker {self.broker} failed: {error!r}"))
        finally:
            self._hang_up()
            self._wakeup.close()
            self.fail_leftovers()

    def _step(self) -> None:
        self._hear()
        if self._changed:
            self._changed = False
            self._check_address()
        self._take_returned()
        held = self._changed or self._careful or self._window_bytes >= self._settings.window_bytes
        if self._window and held:
            self._wait(None)
            return
        if not self._careful and not self._searching:
            due = self._queue.due(self.broker)
            if due > monotonic():
                self._wait(due)
                return
        if not self._is_connected():
            return
        if self._searching:
            self._wait(None)
        else:
            self._write_next()

    def _wait(self, until: float | None) -> None:
        """Wait for input, for a wake-up, and ``until`` then at most."""
        limit = float("inf") if until is None else until
        if self._window:
            limit = min(limit, self._answer_due())
        now = monotonic()
        if limit > now:
            self._wakeup.wait(self._connection, None if limit == float("inf") else limit - now)
        if self._window and monotonic() > self._answer_due() and not self._has_input():
            name = "" if self._connection is None else self._connection.name
            raise BrokerTimeoutError(f"broker {name} did not answer within {self._patience:g} s")

    def _answer_due(self) -> float:
        return max(self._window[0].since, self._heard) + self._patience

    @property
    def _patience(self) -> float:
        """Seconds for each operation on the socket: no longer than a record may wait at all."""
        return min(self._settings.socket_timeout, self._settings.delivery_timeout)

    # --- answers

    def _has_input(self) -> bool:
        return self._connection is not None and self._connection.has_input()

    def _hear(self) -> None:
        """Take in all answers that have come. A broker that hung up with nothing open is left in peace."""
        while self._connection is not None and self._connection.has_input():
            if not any(written.sent for written in self._window):
                if self._connection.peer_closed():
                    self._hung_up(self._connection.name)
                return
            code, offsets = decode_offsets_response(self._connection.receive(_ANSWER_BYTES))
            if self._window[0].starts:
                self._start_answered(*self._window[0].starts.popleft(), code, offsets)
            else:
                self._barrier_answered()

    def _hung_up(self, name: str) -> None:
        self._hang_up()
        if self._verifier is not None and self._verifier.is_open:
            raise BrokerConnectionError(f"broker {name} closed the connection before all was read back")

    def _start_answered(self, topic: str, number: int, code: int, offsets: list[int]) -> None:
        self._heard = monotonic()
        self._has_answered = True
        if code or not offsets:
            reason = f"broker {self.broker} does not say where the log ends"
            raise error_for_code(code or -1, reason, topic=topic, broker=self.broker, partition=number)
        if self._verifier is not None:
            self._verifier.started(topic, number, offsets[0])

    def _barrier_answered(self) -> None:
        """Everything up to this barrier has been carried out: an error code in the answer says no less."""
        written = self._window.popleft()
        self._window_bytes -= written.size
        self._heard = monotonic()
        self._has_answered = True
        self._pause = 0.0
        self._told_of = ""
        if not written.batches:
            return
        self._produce_time.observe(self._heard - written.since)
        if written.alone:
            self._suspects.difference_update((batch.topic, batch.number) for batch in written.batches)
        if self._verifier is None:
            self._host.settle([Outcome(batch, State.WRITTEN) for batch in written.batches])
        else:
            self._verifier.confirmed(written.batches)

    # --- connecting

    def _is_connected(self) -> bool:
        """Connect if need be. If that fails: pause, and False."""
        if self._connection is not None:
            return True
        self._expire()
        if monotonic() < self._next_try:
            self._wait(self._next_try)
            return False
        try:
            address = self._host.address(self.broker)
        except ZooKeeperError as error:
            self._failed_try(error)
            self._move()
            return False
        except KafkaError as error:
            self._failed_try(error)
            return False
        connection = Connection(
            address.host, address.port, connect_timeout=self._settings.connect_timeout, timeout=self._patience
        )
        try:
            connection.connect()
        except KafkaError as error:
            self._failed_try(error)
            return False
        self._connection = connection
        return not self._stopping

    def _failed_try(self, error: KafkaError) -> None:
        self._last_error = error
        if str(error) != self._told_of:  # once, not with each try
            self._told_of = str(error)
            self._log.warning("%s; trying again", error)
        self._next_try = monotonic() + self._pause * random.uniform(0.5, 1.0)
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)

    def _expire(self) -> None:
        """Fail what has waited longer than a record may."""
        oldest = monotonic() - self._settings.delivery_timeout
        late = [batch for batch in self._careful if batch.since <= oldest]
        if late:
            self._careful = deque(batch for batch in self._careful if batch.since > oldest)
        late += self._queue.withdraw(self.broker, lambda batch: batch.since <= oldest)
        if not late:
            return
        why = f": {self._last_error}" if self._last_error is not None else ""
        for batch in late:
            seen = "; it may be in the log" if batch.writes else ""
            error = BrokerTimeoutError(
                f"not delivered to broker {self.broker} within {self._settings.delivery_timeout:g} s "
                f"(delivery.timeout.ms){seen}{why}"
            )
            self._host.settle([Outcome(batch, State.FAILED, error)])

    def _check_address(self) -> None:
        """The cluster has changed. What a broker that is gone was to get goes elsewhere; one that has moved is
        followed. While a connection lives, its window waits for its answers."""
        try:
            address = self._host.address(self.broker)
        except ZooKeeperError:
            self._move()
            return
        connection = self._connection
        if connection is not None and (address.host, address.port) != (connection.host, connection.port):
            raise BrokerConnectionError(f"broker {self.broker} is no longer at {connection.name}, but at {address}")

    def _move(self) -> None:
        """Let others send what is not bound to this broker; the window first gets its answers, or comes back."""
        if self._window:
            self._changed = True  # look again
            return
        queued = self._queue.withdraw(self.broker, lambda batch: not batch.explicit)
        moving = [batch for batch in self._careful if not batch.explicit] + queued
        if moving:
            left = set(self._host.move(moving))
            self._careful = deque(batch for batch in self._careful if batch.explicit or batch in left)
            self._queue.put_back(batch for batch in queued if batch in left)
        if self._verifier is not None:
            self._verifier.move(self._host.move)

    # --- writing

    def _write_next(self) -> None:
        if self._careful and not self._has_answered:
            self._probe(self._careful[0].topic)
            return
        if self._careful:
            self._write([self._careful.popleft()], alone=True)
            return
        batches = self._queue.take(self.broker, _REQUEST_BYTES)
        if self._suspects:
            suspect = [batch for batch in batches if (batch.topic, batch.number) in self._suspects]
            self._careful.extend(suspect)
            batches = [batch for batch in batches if (batch.topic, batch.number) not in self._suspects]
        if batches:
            self._write(batches, alone=False)

    def _probe(self, topic: str) -> None:
        """Ask the broker anything. What stands before one that is down, a proxy say, may take connections and reset
        them: a set is to blame for a hang-up only where there was an answer before it."""
        written = _Written([], alone=False, size=0)
        self._window.append(written)
        self._hear_before_writing()
        written.sent = True
        self._connected().send([OffsetsRequest(topic, 0, LATEST, 1).encode()])
        written.since = monotonic()

    def _write(self, batches: list[Batch], *, alone: bool) -> None:
        parts = [part for batch in batches if not batch.final for part in self._stored(batch)]
        if alone and len(parts) > 1:
            self._careful.extendleft(batch for batch, _ in reversed(parts[1:]))
            del parts[1:]
        if not parts:
            return
        sets = [ProduceData(batch.topic, batch.number, data) for batch, data in parts]
        request = sets[0] if len(sets) == 1 else MultiProduceRequest(tuple(sets))
        barrier = OffsetsRequest(sets[-1].topic, max(sets[-1].partition, 0), LATEST, 1)
        written = _Written([batch for batch, _ in parts], alone, sum(batch.size for batch, _ in parts))
        self._window.append(written)  # from here on an error finds it there
        self._window_bytes += written.size
        self._hear_before_writing()
        written.sent = True
        for batch in written.batches:
            batch.writes += 1
        starts = self._expect(written, parts)
        self._connected().send([*starts, *request.buffers(), barrier.encode()])
        written.since = monotonic()
        for batch in written.batches:
            if batch.waiter is not None and not batch.waiter.final:
                batch.waiter.passed(batch)

    def _expect(self, written: _Written, parts: list[tuple[Batch, bytes | memoryview]]) -> list[bytes]:
        """Tell the verifier; the questions that it needs answers to first."""
        starts: list[bytes] = []
        if self._verifier is not None:
            for batch, data in parts:
                if self._verifier.expect(batch, data):
                    written.starts.append((batch.topic, batch.number))
                    starts.append(OffsetsRequest(batch.topic, batch.number, LATEST, 1).encode())
        return starts

    def _hear_before_writing(self) -> None:
        self._hear()
        self._connected()

    def _connected(self) -> Connection:
        if self._connection is None:
            raise BrokerConnectionError(f"broker {self.broker} had closed the connection; nothing was written to it")
        return self._connection

    def _stored(self, batch: Batch) -> list[tuple[Batch, bytes | memoryview]]:
        """The batch as message sets, each of them for a batch; more than one if its wrapper would be too large."""
        try:
            plain = build_message_set(batch.values) if batch.entries is None else batch.entries
            codec = self._host.codec(batch.topic)
            if not codec:
                return [(batch, plain)]
            wrapper = wrap_message_set(plain, codec)
        except (TypeError, ValueError, BufferError, MemoryError) as error:
            reason = KafkaError(f"topic {batch.topic!r}: cannot build a message set: {error}")
            self._host.settle([Outcome(batch, State.FAILED, reason)])
            return []
        size = len(wrapper) - _HEADER_BYTES
        if size <= self._settings.max_message_bytes:
            return [(batch, wrapper)]
        if batch.count == 1:
            self._host.settle([Outcome(batch, State.FAILED, self._too_large(batch, size))])
            return []
        batch.final = True  # its halves are what counts now
        halves = range(batch.count // 2), range(batch.count // 2, batch.count)
        return [part for half in halves for part in self._stored(batch.pick(half, batch.broker, batch.number))]

    def _too_large(self, batch: Batch, size: int) -> MessageTooLargeError:
        limit = self._settings.max_message_bytes
        return MessageTooLargeError(
            f"a message of {batch.size} bytes has {size} bytes compressed; a broker drops what is above "
            f"max.message.size, {limit}, and says nothing. It was not sent",
            size=size,
            max_message_bytes=limit,
            topic=batch.topic,
            broker=self.broker,
            partition=batch.number if batch.number >= 0 else None,
        )

    # --- the end of a connection

    def _lost(self, error: KafkaError) -> None:
        """The connection is of no use any more; what the window has goes out again, or fails."""
        self._hang_up()
        if self._stopping:
            return
        again = [batch for written in self._window for batch in self._survivors(written, error)]
        if self._verifier is not None:
            self._searching = True
            self._verifier.connection_ended()
        self._window.clear()
        self._window_bytes = 0
        self._careful.extendleft(reversed(again))
        self._failed_try(error)

    def _survivors(self, written: _Written, error: KafkaError) -> Iterable[Batch]:
        if not written.sent:
            return written.batches
        hung_up = not isinstance(error, BrokerTimeoutError)
        left = []
        for batch in written.batches:
            batch.alone += written.alone and hung_up
            if self._verifier is None and self._may_go_again(batch, error):
                left.append(batch)
        return left

    def _may_go_again(self, batch: Batch, error: KafkaError) -> bool:
        """If not, it has failed."""
        if self._settings.retries and batch.alone <= self._settings.retries:
            return True
        self._give_up(batch, error)
        return False

    def _give_up(self, batch: Batch, error: KafkaError) -> None:
        if batch.alone:
            self._suspects.add((batch.topic, batch.number))
            how = f"; so it went {batch.alone} times with nothing else on the connection: the broker does not take it"
        else:
            how = "; it is not written again (num.retries)"
        reason = f"topic {batch.topic!r}, partition {batch.number}: {error}{how}. It may be in the log"
        self._host.settle([Outcome(batch, State.FAILED, BrokerConnectionError(reason))])

    # --- what the verifier says, in its thread ...

    def _verified(self, outcomes: list[Outcome]) -> None:
        self._host.settle(outcomes)
        if self._searching:
            self._wakeup.set()

    def _take_back(self, batches: list[Batch], dropped: bool) -> None:
        self._returned.append((batches, dropped))
        self._wakeup.set()

    # ... and what that means

    def _take_returned(self) -> None:
        """Write again what was looked for and is not there."""
        if self._searching and self._verifier is not None and not self._verifier.is_searching:
            self._searching = False
        while self._returned:
            batches, dropped = self._returned.popleft()
            if dropped:
                for batch in batches:
                    self._careful.extend(self._smaller(batch))
            else:
                error = self._last_error or BrokerConnectionError(f"the connection to broker {self.broker} ended")
                again = [batch for batch in batches if self._may_go_again(batch, error)]
                self._careful.extendleft(reversed(again))

    def _smaller(self, batch: Batch) -> list[Batch]:
        """What to write of a batch that the broker took and did not store: 0.7 drops a whole set in silence when one of
        its messages is too large for it, so the others go on in halves."""
        if batch.count > 1 and self._settings.retries:
            batch.final = True  # its halves are what counts now
            halves = range(batch.count // 2), range(batch.count // 2, batch.count)
            return [batch.pick(half, batch.broker, batch.number) for half in halves]
        batch.dropped += 1
        if batch.dropped <= self._settings.retries:
            return [batch]
        reason = (
            f"the broker took {batch.count} messages of {batch.size} bytes {batch.dropped} times, and they are not in "
            "the log: it drops what is above its max.message.size, and so that is probably below ours, "
            f"{self._settings.max_message_bytes}"
        )
        error = MessageTooLargeError(
            reason, size=batch.size, topic=batch.topic, broker=self.broker, partition=batch.number
        )
        self._host.settle([Outcome(batch, State.FAILED, error)])
        return []

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        self._has_answered = False
        if connection is not None:
            connection.close()


def closed_error(batch: Batch) -> ProducerClosedError:
    """Why a batch failed that a closed producer still had."""
    seen = "before the broker was known to have it; it may be in the log" if batch.writes else "before it was sent"
    return ProducerClosedError(f"the producer was closed {seen}")
