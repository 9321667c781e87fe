"""Fetching for a consumer: one thread for each broker, which asks for all its partitions and fills their queues.

What a fetch thread does, over and over::

    send      one MULTIFETCH for partitions that are ready and whose queues have room; up to two are on their way
    receive   the earlier answer
    deal      part by part: decode, queue, and say when the partition is to be asked for again

Every partition is in one place at a time: *ready* (in the lane of its queue), *timed* (at its end, or refused: until
its time has come), *on its way*, or nowhere (paused, or stopped by an error). Turns are taken: over queues, and within
a queue from first to last, one fetch each. All of this costs per fetch and partition, nothing per message.

An answer is believed only where it begins at the position that its partition has by now. That alone makes it safe to
ask ahead, to seek, and to ask again after anything went wrong.

What goes wrong with a partition stays with it: the broker's refusals, damage, offsets that are out of range. What goes
wrong with a connection, or by a mistake in here, stays with the broker: the thread hangs up, waits a little, asks
for the broker's address anew and goes on from where the queues are.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from time import monotonic
from typing import Any, Protocol

from kafka07c import config as limits
from kafka07c import metrics as figures
from kafka07c._views import MessageSet
from kafka07c.consumer.chunks import Chunk, ChunkQueue, Feed
from kafka07c.errors import (
    BrokerConnectionError,
    BrokerError,
    CorruptMessageError,
    KafkaError,
    MessageTooLargeError,
    NoOffsetError,
    OffsetOutOfRangeError,
    PlacedError,
    ProtocolError,
)
from kafka07c.metrics import Metrics
from kafka07c.names import BrokerAddress, TopicPartition
from kafka07c.positions import Position
from kafka07c.protocol import EARLIEST, LATEST, FetchRequest, check_topic
from kafka07c.simple import FetchedPart, SimpleConsumer

__all__ = ["FetchSettings", "Fetchers"]

_log = logging.getLogger(__name__)

#: far past the end of any log: asked for where no offset is known, to learn whether the partition is there at all
#: (an OFFSETS request for one that is not there would cost the connection)
_NOWHERE = 2**62

#: what fetch sizes go from and to: a size field, and what an answer's int32 size can hold in any case
_MIN_FETCH_BYTES = 4
_MAX_FETCH_BYTES = 2**30

#: bytes that one request asks for, unless a single partition asks for more
_ANSWER_BYTES = 4 * 1024 * 1024

#: the least that is asked of a partition when many share a request
_LEAST_BYTES = 4096

#: bytes of one request: what is sent while the broker still answers the last one has to fit the sockets' buffers
_REQUEST_BYTES = 32 * 1024

#: bytes of one part of a MULTIFETCH beside its topic
_PART_BYTES = 18

#: requests on their way at a time
_AHEAD = 2

#: a part of an answer is copied when the answer is more than so many times larger, rather than keep all of it alive
_SMALL_PART = 8

#: partitions at their end that one thread asks for in a second, at most: about a tenth of a core
_IDLE_ASKS = 10_000

#: seconds by which a timed partition may be early, so that those whose time comes together are asked together
_TOGETHER = 0.002

#: seconds until the next try after something went wrong: at first, and at most
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0

#: entries in a row above the cap that are passed over to find the next good one
_MAX_TOO_LARGE = 1000

#: seconds that close() waits for the threads, all together
_CLOSE_WAIT = 1.0


class FetchSettings(Protocol):
    """What is used of a ConsumerConfig."""

    @property
    def fetch_bytes(self) -> int: ...
    @property
    def max_fetch_bytes(self) -> int: ...
    @property
    def fetch_backoff(self) -> float: ...
    @property
    def socket_timeout(self) -> float: ...
    @property
    def offset_reset(self) -> str: ...
    @property
    def on_corrupt(self) -> str: ...
    @property
    def shallow(self) -> bool: ...


class _Partition(Feed):
    """A partition as its fetch thread sees it. ``scheduled`` and ``paused`` are guarded by the thread's condition."""

    __slots__ = ("ask_bytes", "failures", "offset", "paused", "scheduled")

    def __init__(self, tp: TopicPartition, position: Position | None, generation: int, queue: ChunkQueue):
        super().__init__(tp, position, generation, queue)
        self.paused = False
        self.scheduled = False  # whether it is ready or timed
        self.failures = 0  # in a row
        self.ask_bytes = 0  # 0: no more than its share
        self.offset = self.start  # to be asked for next: may be ahead of what is queued

    @property
    def start(self) -> int:
        """Where it goes on, by what is queued."""
        return _NOWHERE if self.position is None else self.position.offset

    def successor(self, position: Position | None, generation: int) -> _Partition:
        """The same partition from elsewhere; this one has been cut. Paused or not, as before."""
        new = _Partition(self.tp, position, generation, self.queue)
        new.paused = self.paused
        return new

    @property
    def place(self) -> dict[str, Any]:
        """For errors: topic, broker, partition, and where it is."""
        offset = None if self.position is None else self.position.offset
        return self.tp._asdict() | {"offset": offset}


class Fetchers:
    """Fetches partitions from their brokers into queues, for as long as it is open.

    ``address``: where a broker is now, asked before each connection is made; None when nobody knows. ``config``: see
    :class:`FetchSettings`. ``on_reset``: called from a fetch thread with a partition, the position that
    ``autooffset.reset`` gave it because it had none, or one outside of the log, and the generation that it was added
    with. ``log``: where to say what happens.

    Nothing here raises for what a broker does: that is in the chunks, or logged and tried again. All methods may be
    called from any thread, and return without waiting for a fetch thread or a broker.
    """

    def __init__(
        self,
        address: Callable[[int], BrokerAddress | None],
        *,
        config: FetchSettings,
        on_reset: Callable[[TopicPartition, Position, int], None] | None = None,
        metrics: Metrics | None = None,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger] = _log,
    ):
        for name in ("fetch_bytes", "max_fetch_bytes"):
            if not _MIN_FETCH_BYTES <= getattr(config, name) <= _MAX_FETCH_BYTES:
                raise ValueError(
                    f"{name} is {getattr(config, name)}; it goes from {_MIN_FETCH_BYTES} to {_MAX_FETCH_BYTES}"
                )
        self._address = address
        self._config = config
        self._on_reset = on_reset
        self._metrics = figures.NONE if metrics is None else metrics
        self._logger = log
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._fetchers: dict[int, _BrokerFetcher] = {}
        self._closed = False

    def add(self, tp: TopicPartition, position: Position | None, generation: int, queue: ChunkQueue) -> None:
        """Fetch ``tp`` from ``position`` on into ``queue``; None: from where ``autooffset.reset`` says.

        A partition that is fetched already is as if removed before. ``generation`` stands in each of its chunks.
        ValueError (InvalidTopicError is one) for what no request can say, RuntimeError after ``close``.
        """
        _check(tp, position)
        with self._lock:
            if self._closed:
                raise RuntimeError("the fetchers are closed")
            old = self._partitions.get(tp)
            if old is not None:
                old.queue.cut([old])
            self._begin(_Partition(tp, position, generation, queue), is_new=old is None)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these partitions; those that are not fetched are passed over.

        When this returns nothing of them gets into any queue any more, and what was queued is gone.
        """
        with self._lock:
            removed = [self._partitions.pop(tp) for tp in set(partitions) if tp in self._partitions]
            _cut(removed)
            for partition in removed:
                self._forget(partition.tp.broker)

    def seek(self, tp: TopicPartition, position: Position | None, generation: int) -> None:
        """Go on from ``position`` (None: as ``autooffset.reset`` says); what was queued is gone.

        When this returns no chunk from before gets into the queue. A partition that an error has stopped goes on, one
        that is paused stays so. KeyError when it is not fetched.
        """
        _check(tp, position)
        with self._lock:
            old = self._partitions[tp]
            old.queue.cut([old])
            self._begin(old.successor(position, generation))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch no more of these partitions until ``resume``; those that are not fetched are passed over.

        When this returns nothing of them is in the queue or gets there. What was queued is fetched again later, so
        that it takes no room from others.
        """
        with self._lock:
            known = [self._partitions[tp] for tp in set(partitions) if tp in self._partitions]
            running = [partition for partition in known if not partition.paused]
            _cut(running)
            for old in running:
                new = old.successor(old.position, old.generation)
                new.paused = True
                new.stopped = old.stopped
                new.at_end = old.at_end
                self._partitions[old.tp] = new

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch paused partitions again, from where the consumer is."""
        with self._lock:
            for tp in set(partitions):
                partition = self._partitions.get(tp)
                if partition is not None and partition.paused:
                    partition.paused = False
                    self._begin(partition)

    @property
    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        with self._lock:
            return {tp for tp, partition in self._partitions.items() if partition.paused}

    def close(self) -> None:
        """Remove all partitions and end the threads.

        A thread that cannot be woken, because it is about to connect, say, is left to end by itself.
        """
        with self._lock:
            self._closed = True
            _cut(self._partitions.values())
            self._partitions.clear()
            fetchers = list(self._fetchers.values())
            self._fetchers.clear()
        for fetcher in fetchers:
            fetcher.stop()
        deadline = monotonic() + _CLOSE_WAIT
        for fetcher in fetchers:
            fetcher.join(max(0.0, deadline - monotonic()))

    def __enter__(self) -> Fetchers:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _begin(self, partition: _Partition, *, is_new: bool = False) -> None:
        broker = partition.tp.broker
        fetcher = self._fetchers.get(broker)
        if fetcher is None:
            fetcher = self._fetchers[broker] = _BrokerFetcher(
                broker, self._address, self._config, self._on_reset, self._metrics, self._logger
            )
        self._partitions[partition.tp] = partition
        fetcher.partitions += is_new
        if not partition.paused and not partition.stopped:
            fetcher.schedule(partition)

    def _forget(self, broker: int) -> None:
        fetcher = self._fetchers[broker]
        fetcher.partitions -= 1
        if not fetcher.partitions:
            del self._fetchers[broker]
            fetcher.stop()


@dataclass
class _Sent:
    """A request on its way: its partitions in the order of its parts, and what was reserved for it."""

    partitions: list[_Partition] = field(default_factory=list)
    reserved: list[tuple[ChunkQueue, int]] = field(default_factory=list)
    ahead: set[_Partition] = field(default_factory=set)  # those asked for again before they were dealt with
    at: float = field(default_factory=monotonic)


class _BrokerFetcher:
    """The thread that fetches from one broker. A filler of queues."""

    def __init__(
        self,
        broker: int,
        address: Callable[[int], BrokerAddress | None],
        config: FetchSettings,
        on_reset: Callable[[TopicPartition, Position, int], None] | None,
        metrics: Metrics,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger],
    ):
        self.partitions = 0  # how many are fetched from here; for Fetchers to count
        self._broker = broker
        self._address = address
        self._config = config
        self._on_reset = on_reset
        self._log = log
        self._fetch_time = metrics.timer(figures.FETCH_REQUESTS, broker=broker)
        self._fetched_bytes = metrics.counter(figures.FETCHED_BYTES, broker=broker)
        self._consumer: SimpleConsumer | None = None
        self._in_flight: deque[_Sent] = deque()
        self._answered = False  # whether the broker has answered since the last failure
        # guarded by the condition:
        self._changed = threading.Condition(threading.Lock())
        self._lanes: dict[ChunkQueue, deque[_Partition]] = {}
        self._timed: list[tuple[float, int, _Partition]] = []
        self._numbers = count()
        self._woken = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"kafka07c-fetch-{broker}", daemon=True)
        self._thread.start()

    # --- from any thread

    def schedule(self, partition: _Partition) -> None:
        """Ask for it as soon as its turn comes."""
        with self._changed:
            self._make_ready(partition)
            self._woken = True
            self._changed.notify()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify()

    def stop(self) -> None:
        """End soon; nothing that this thread does from now on matters."""
        self._stopped = True
        self.wake()
        consumer = self._consumer
        if consumer is not None:
            consumer.interrupt()

    def join(self, timeout: float) -> None:
        if self._thread is not threading.current_thread():  # on_reset may close everything
            self._thread.join(timeout)

    # --- the thread

    def _run(self) -> None:
        failures = 0
        while not self._stopped:
            self._answered = False
            try:
                self._converse()
            except Exception as error:
                failures = 1 if self._answered else failures + 1
                if not self._stopped:
                    self._report(error, failures)
            finally:
                self._hang_up()
            self._rest(_pause(failures))

    def _report(self, error: Exception, failures: int) -> None:
        if not isinstance(error, (KafkaError, OSError)):
            self._log.exception("the fetch thread of broker %d failed and starts again", self._broker)
        elif failures == 1:
            self._log.warning("fetching from broker %d: %s; trying again until it works", self._broker, error)
        else:
            self._log.debug("fetching from broker %d, try %d: %s", self._broker, failures, error)

    def _converse(self) -> None:
        """Ask and deal until stopped; whatever is wrong with the connection is raised."""
        self._consumer = self._connect()
        while not self._stopped:
            self._send_ahead(_AHEAD)
            if not self._in_flight:
                self._sleep()
                continue
            sent = self._in_flight[0]
            parts = self._connection.receive_multifetch()
            self._fetch_time.observe(monotonic() - sent.at)
            self._answered = True
            self._look_ahead(sent, parts)
            self._send_ahead(_AHEAD + 1)
            self._deal(sent, parts)
            self._in_flight.popleft()
            self._release(sent)

    @property
    def _connection(self) -> SimpleConsumer:
        assert self._consumer is not None  # the thread itself makes it, and hangs up
        return self._consumer

    def _connect(self) -> SimpleConsumer:
        address = self._address(self._broker)
        if address is None:
            raise BrokerConnectionError(f"broker {self._broker} is not registered")
        return SimpleConsumer(
            address.host,
            address.port,
            broker=self._broker,
            connect_timeout=min(limits.CONNECT_TIMEOUT, self._config.socket_timeout),
            timeout=self._config.socket_timeout,
            shallow=self._config.shallow,
            reconnect=False,
        )

    def _hang_up(self) -> None:
        """Forget the connection; what was on its way is asked for again, from where the queues are."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
        while self._in_flight:
            sent = self._in_flight.popleft()
            for partition in sent.partitions:
                partition.offset = partition.start
                self._soon(partition)
            self._release(sent)

    def _release(self, sent: _Sent) -> None:
        for queue, size in sent.reserved:
            queue.release(self, size)

    # --- when to ask for what

    def _soon(self, partition: _Partition) -> None:
        with self._changed:
            self._make_ready(partition)

    def _later(self, partition: _Partition, pause: float) -> None:
        with self._changed:
            if not partition.scheduled:
                partition.scheduled = True
                heappush(self._timed, (monotonic() + pause, next(self._numbers), partition))

    def _make_ready(self, partition: _Partition) -> None:
        if not partition.scheduled:
            partition.scheduled = True
            self._lanes.setdefault(partition.queue, deque()).append(partition)

    def _sleep(self) -> None:
        """Until a timed partition's time has come, or somebody changes something."""
        with self._changed:
            if not self._woken and not self._stopped:
                self._changed.wait(max(0.0, self._timed[0][0] - monotonic()) if self._timed else None)
            self._woken = False

    def _rest(self, seconds: float) -> None:
        """For so long, whatever changes."""
        deadline = monotonic() + seconds
        with self._changed:
            while not self._stopped and (left := deadline - monotonic()) > 0:
                self._changed.wait(left)

    def _send_ahead(self, most: int) -> None:
        while len(self._in_flight) < most and not self._stopped:
            sent = _Sent()
            self._in_flight.append(sent)  # at once, so that nothing of it is forgotten whatever goes wrong
            requests = self._choose(sent, is_first=len(self._in_flight) == 1)
            if not requests:
                self._in_flight.pop()
                return
            self._connection.send_multifetch(requests, max_message_bytes=self._config.max_fetch_bytes)

    def _choose(self, sent: _Sent, *, is_first: bool) -> list[FetchRequest]:
        """Put together a request: from each queue with room in turn, the partition that has waited longest."""
        requests: list[FetchRequest] = []
        answer_bytes, request_bytes, busy = _ANSWER_BYTES, _REQUEST_BYTES, 0
        with self._changed:
            self._take_timed()
            lanes = deque(self._lanes.items())
            while lanes:
                queue, lane = lanes.popleft()
                partition = lane[0]
                if partition.open and not partition.stopped:
                    ask, part_bytes = self._ask_bytes(partition), _PART_BYTES + len(partition.tp.topic.encode())
                    # What has data is spread over two requests, so that one is answered while the other is dealt with.
                    keep = is_first and busy and not partition.at_end
                    if requests and (keep or ask > answer_bytes or part_bytes > request_bytes):
                        break
                    if not queue.reserve(self, ask):
                        continue
                    answer_bytes -= ask
                    request_bytes -= part_bytes
                    busy += not partition.at_end
                    sent.partitions.append(partition)
                    sent.reserved.append((queue, ask))
                    requests.append(FetchRequest(partition.tp.topic, partition.tp.partition, partition.offset, ask))
                lane.popleft()
                partition.scheduled = False
                del self._lanes[queue]
                if lane:
                    self._lanes[queue] = lane  # behind the others, also for the next request
                    lanes.append((queue, lane))
        return requests

    def _take_timed(self) -> None:
        due = monotonic() + _TOGETHER
        while self._timed and self._timed[0][0] <= due:
            partition = heappop(self._timed)[2]
            partition.scheduled = False
            self._make_ready(partition)

    def _ask_bytes(self, partition: _Partition) -> int:
        """What has more than fits its share of a request gets a fetch of its own size."""
        share = max(_LEAST_BYTES, _ANSWER_BYTES // max(1, self.partitions))
        return partition.ask_bytes or min(share, self._config.fetch_bytes)

    # --- what to do with an answer

    def _look_ahead(self, sent: _Sent, parts: list[FetchedPart]) -> None:
        """Make partitions ready again whose part will take long to inflate: where they go on can be seen at once."""
        for partition, part in zip(sent.partitions, parts, strict=True):
            following = None if self._config.shallow else _end_of_wrappers(part)
            expected = partition.open and part.request.offset == partition.start
            if following is not None and expected and not partition.failures:
                partition.offset = following
                sent.ahead.add(partition)
                self._soon(partition)

    def _deal(self, sent: _Sent, parts: list[FetchedPart]) -> None:
        answer_bytes = sum(len(part.data) for part in parts)
        self._fetched_bytes.inc(answer_bytes)
        for partition, part in zip(sent.partitions, parts, strict=True):
            copy = len(part.data) * _SMALL_PART < answer_bytes
            pause = _pause(partition.failures + 1)
            try:
                pause = self._dealt(partition, part, copy)
            except (BrokerConnectionError, ProtocolError):
                partition.failures += 1  # it may be this partition that the broker hangs up on: others go first
                raise
            except Exception:
                partition.failures += 1
                self._log.exception("%s: the answer to a fetch cannot be handled; it is asked for again", partition.tp)
            finally:
                self._again(sent, partition, pause)

    def _again(self, sent: _Sent, partition: _Partition, pause: float) -> None:
        partition.offset = partition.start
        if partition in sent.ahead:
            return  # it is ready or on its way already
        if pause:
            self._later(partition, pause)
        else:
            self._soon(partition)

    def _dealt(self, partition: _Partition, part: FetchedPart, copy: bool) -> float:
        """Queue what came. Gives the seconds until the partition is to be asked for again."""
        if not partition.open or partition.stopped or part.request.offset != partition.start:
            return 0.0  # it was asked ahead, or from before a reset
        nothing = not part.code and not part.data
        if nothing and partition.position is not None:
            return self._at_end(partition)
        messages = part.messages(copy=copy)
        error = messages.error
        if isinstance(error, OffsetOutOfRangeError):
            return self._reset(partition)
        if isinstance(error, BrokerError):
            return self._refused(partition, messages)
        if partition.position is None:
            return self._reset(partition)
        if isinstance(error, (CorruptMessageError, MessageTooLargeError)):
            return self._damaged(partition, messages, error)
        return self._good(partition, part, messages)

    def _good(self, partition: _Partition, part: FetchedPart, messages: MessageSet) -> float:
        partition.failures = 0
        has_more = len(part.data) == part.request.max_bytes or messages.size_bytes > part.request.max_bytes
        partition.ask_bytes = max(self._config.fetch_bytes, _first_entry_bytes(messages)) if has_more else 0
        self._put(partition, messages, messages.next_offset)
        return 0.0

    def _at_end(self, partition: _Partition) -> float:
        partition.failures = 0
        partition.ask_bytes = 0
        if not partition.at_end:
            self._put(partition, self._empty(partition), partition.start, at_end=True)
        return max(self._config.fetch_backoff, self.partitions / _IDLE_ASKS)

    def _put(
        self, partition: _Partition, messages: MessageSet, following: int | None, *, stop: bool = False, **more: Any
    ) -> None:
        chunk = Chunk(partition.tp, messages, partition.generation, partition.position, **more)
        if following is None or following == partition.start:
            position = partition.position  # inside an entry, if it was
        else:
            position = Position(following)
        partition.queue.put(partition, chunk, position, stop=stop)

    def _empty(self, partition: _Partition, error: PlacedError | None = None) -> MessageSet:
        offset = 0 if partition.position is None else max(partition.position.offset, 0)
        return MessageSet(b"", offset, **partition.tp._asdict()).with_error(error)

    # --- what is wrong with one partition

    def _reset(self, partition: _Partition) -> float:
        """Go on where ``autooffset.reset`` says, for want of an offset or because it is outside of the log."""
        known = partition.position is not None
        lacks = f"offset {partition.start} is outside of the log" if known else "there is no offset"
        if self._config.offset_reset == "error":
            self._log.error("%s: %s, and autooffset.reset is error: stopped", partition.tp, lacks)
            reason = f"{lacks}, and autooffset.reset is error: seek to where to go on"
            self._stop_partition(partition, self._empty(partition, NoOffsetError(reason, **partition.place)))
            return 0.0
        time = EARLIEST if self._config.offset_reset == "earliest" else LATEST
        found = self._connection.get_offsets_before(partition.tp.topic, partition.tp.partition, time, 1)
        if not found or found[0] < 0:
            raise ProtocolError(f"{partition.tp}: the broker says that its log begins or ends at {found}")
        position = Position(found[0])
        if partition.queue.move(partition, position):
            self._log.warning("%s: %s; goes on at its %s, %d", partition.tp, lacks, self._config.offset_reset, found[0])
            self._tell_reset(partition, position)
        partition.failures += 1
        return 0.0 if partition.failures == 1 else _pause(partition.failures)

    def _tell_reset(self, partition: _Partition, position: Position) -> None:
        if self._on_reset is None:
            return
        try:
            self._on_reset(partition.tp, position, partition.generation)
        except Exception:
            self._log.exception("%s: its new position %d could not be told", partition.tp, position.offset)

    def _refused(self, partition: _Partition, messages: MessageSet) -> float:
        """Said once, and tried again for as long as it takes: a broker may recover, or get the partition."""
        partition.failures += 1
        if partition.failures == 1:
            self._log.warning("%s; trying again until it works", messages.error)
            if self._config.on_corrupt == "raise":
                self._put(partition, messages, None, error=messages.error)
        return _pause(partition.failures)

    def _damaged(
        self, partition: _Partition, messages: MessageSet, error: CorruptMessageError | MessageTooLargeError
    ) -> float:
        if self._config.on_corrupt != "skip":
            self._log.error("%s: stopped", error)
            self._stop_partition(partition, messages)
            return 0.0
        begin = messages.next_offset if error.offset is None else error.offset
        following = self._behind(partition.tp, error, begin)
        if following is None:
            # the log ended here a moment ago: what follows will tell
            partition.failures += 1
            return _pause(partition.failures)
        partition.failures = 0
        self._log.error("%s; skipped to %d", error, following)
        self._put(partition, messages.good(), following, error=error, skipped=(begin, following))
        return 0.0

    def _stop_partition(self, partition: _Partition, messages: MessageSet) -> None:
        error = messages.error
        if self._config.on_corrupt == "stop" and not isinstance(error, NoOffsetError):
            messages = messages.good()
        following = messages.next_offset if messages.valid_bytes else None
        self._put(partition, messages, following, stop=True, error=error)

    def _behind(self, tp: TopicPartition, error: CorruptMessageError | MessageTooLargeError, begin: int) -> int | None:
        """Where to go on behind a bad entry at ``begin``: at its end where that is believed, else at the next segment.

        In the last segment that is the end of what is flushed. Never at bytes that were found by searching.
        """
        starts = self._connection.get_offsets_before(tp.topic, tp.partition, LATEST, limits.MAX_SEGMENTS)
        boundary = min((offset for offset in starts if offset > begin), default=None)
        if isinstance(error, MessageTooLargeError) and boundary is not None:
            return self._behind_large(tp, error, begin, boundary)
        believed = error.next_offset if isinstance(error, CorruptMessageError) else None
        return boundary if believed is None else believed

    def _behind_large(self, tp: TopicPartition, error: MessageTooLargeError, offset: int, boundary: int) -> int:
        """The end of an entry above the cap, or of several in a row, if a good one follows; else ``boundary``.

        No entry goes across that: it is where the next segment begins.
        """
        for _ in range(_MAX_TOO_LARGE):
            if error.size is None:
                return boundary
            offset += 4 + error.size
            if offset >= boundary:
                return boundary
            try:
                following = self._connection.fetch(
                    tp.topic,
                    tp.partition,
                    offset,
                    self._config.fetch_bytes,
                    max_message_bytes=self._config.max_fetch_bytes,
                )
                return offset if following.valid_bytes else boundary
            except MessageTooLargeError as next_error:
                error = next_error
            except BrokerError:
                return boundary
        return boundary


def _check(tp: TopicPartition, position: Position | None) -> None:
    """Raise for what no request can say: in a request, it would be in the way of all others."""
    check_topic(tp.topic)
    FetchRequest(tp.topic, tp.partition, _NOWHERE if position is None else position.offset).encode()


def _cut(partitions: Iterable[_Partition]) -> None:
    by_queue: dict[ChunkQueue, list[_Partition]] = {}
    for partition in partitions:
        by_queue.setdefault(partition.queue, []).append(partition)
    for queue, feeds in by_queue.items():
        queue.cut(feeds)


def _pause(failures: int) -> float:
    """Seconds until the next try; all around the same time would be a stampede."""
    return min(_FIRST_PAUSE * 2.0 ** min(failures - 1, 10), _LONGEST_PAUSE) * random.uniform(0.5, 1.0)


def _first_entry_bytes(messages: MessageSet) -> int:
    return int(messages.next_offsets[0]) - messages.base_offset if len(messages) else 0


def _end_of_wrappers(part: FetchedPart) -> int | None:
    """Where the whole entries of a part end, if they are compressed; None where it is no work to find out in full."""
    if part.code or len(part.data) < 6 or part.data[4] != 1 or not part.data[5] & 3:
        return None
    stored = MessageSet(part.data, part.request.offset, shallow=True)
    return stored.next_offset if stored.valid_bytes and stored.error is None else None
