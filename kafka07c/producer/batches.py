"""What waits to be sent: batches by partition, in a queue that is bounded by records and bytes.

A *batch* is a run of records of one partition that goes out as one message set. The queue has a *lane* of batches for
each partition and a *backlog* of lanes for each broker, which one sender thread empties. Adding to it costs nothing per
record but a place in a list: whoever has many adds them at once.

Every batch is of an *era*. To flush is to begin a new era: what is of an older one goes out at once and takes no more
records, and a flush is over when nothing of an older era is left untold.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy
from numpy.typing import NDArray

from kafka07c._views import MessageSet
from kafka07c.errors import KafkaError, ProducerClosedError, QueueFullError
from kafka07c.names import TopicPartition
from kafka07c.producer.records import Delivery, State

__all__ = ["Batch", "BatchQueue", "Column", "OnDelivery", "Outcome", "Waiter", "picked_entries"]

OnDelivery = Callable[[Delivery], Any]

#: sets in one request, at most; the wire has an int16 for their number
_MAX_SETS = 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """The final state of a batch."""

    batch: Batch
    state: State
    error: KafkaError | None = None
    offset: int | None = None
    offsets: NDArray[numpy.int64] | None = None  # of each record, where they are not all in one wrapper

    def offset_of(self, i: int) -> int | None:
        """Where record ``i`` is stored, if that is known."""
        return self.offset if self.offsets is None else int(self.offsets[i])


class Column:
    """What ``send_batch`` was given for one partition: told about as one, when the last of its pieces is final."""

    def __init__(self, value: Any, keys: Any, callback: OnDelivery | None, chosen: Sequence[int]):
        self.value = value
        self.keys = keys
        self.callback = callback
        self.chosen = chosen
        self._lock = threading.Lock()
        self._outcomes: list[Outcome] = []
        self._open = len(chosen)

    def settle(self, outcome: Outcome) -> Delivery | None:
        """One piece is final: what is to be told if it was the last."""
        with self._lock:
            self._outcomes.append(outcome)
            self._open -= outcome.batch.count
            if self._open:
                return None
            # a batch knows its column: what is kept here would wait for the garbage collector, payloads and all
            outcomes, self._outcomes = self._outcomes, []
        return self.summary(outcomes)

    def cut_off(self, count: int) -> Delivery | None:
        """The last ``count`` messages were not taken. What is to be told if all before them are final already."""
        with self._lock:
            self.chosen = self.chosen[: len(self.chosen) - count]
            self._open -= count
            if self._open or not self._outcomes:
                return None
            outcomes, self._outcomes = self._outcomes, []
        return self.summary(outcomes)

    def summary(self, outcomes: Sequence[Outcome]) -> Delivery:
        """What there is to say after these: the worst state, with its error; the partition if there is but one."""
        worst = max(outcomes, key=lambda outcome: _BADNESS[outcome.state])
        places = {outcome.batch.partition for outcome in outcomes}
        offsets = [outcome.offset for outcome in outcomes if outcome.offset is not None]
        return Delivery(
            worst.batch.topic,
            places.pop() if len(places) == 1 else None,
            self.value,
            self.keys,
            worst.state,
            len(self.chosen),
            worst.error,
            min(offsets) if offsets and worst.state is State.VERIFIED else None,
            max(outcome.batch.resends for outcome in outcomes),
            self.chosen,
        )


_BADNESS = {State.VERIFIED: 0, State.WRITTEN: 1, State.UNKNOWN: 2, State.FAILED: 3}


class Waiter:
    """Lets a caller wait until ``count`` records were handed to the kernel, or (``final``) have their final state.

    ``outcomes``: what became of batches so far.
    """

    def __init__(self, count: int, *, final: bool):
        self.final = final
        self.count = count
        self.outcomes: list[Outcome] = []
        self._missing = count
        self._lock = threading.Lock()
        self._done = threading.Event()

    def passed(self, batch: Batch) -> None:
        """The kernel has the batch, or it is final; what was told before counts once."""
        with self._lock:
            if not batch.passed:
                batch.passed = True
                self._missing -= batch.count
                if self._missing <= 0:
                    self._done.set()

    def wait(self) -> None:
        """Wait; a record's delivery time-out bounds it."""
        self._done.wait()


class Batch:
    """Records of one partition that go out as one message set: a list of payloads, or a piece of a column.

    ``number`` is the partition on its broker, -1 where the broker picks it. ``explicit``: the caller chose it, so that
    it is not routed elsewhere. ``callbacks`` has (index of the first record, callback) for each run of records with the
    same one. ``since``: when the first record came, by the monotonic clock. ``indexes``: where the records stood in the
    caller's list, for those who wait for all of it.
    """

    __slots__ = (
        "alone", "broker", "callbacks", "column", "count", "dropped", "entries", "era", "explicit", "final", "indexes",
        "keys", "number", "passed", "sealed", "since", "size", "topic", "values", "waiter", "writes",
    )  # fmt: skip

    def __init__(self, topic: str, broker: int, number: int, explicit: bool):
        self.topic = topic
        self.broker = broker
        self.number = number
        self.explicit = explicit
        self.values: list[bytes] = []
        self.keys: list[Any] | None = None
        self.callbacks: list[tuple[int, OnDelivery | None]] = []
        self.count = 0
        self.size = 0  # bytes of the payloads
        self.entries: memoryview | None = None  # a column's messages, as a plain message set
        self.column: Column | None = None
        self.waiter: Waiter | None = None
        self.indexes: Sequence[int] | None = None
        self.era = 0
        self.since = 0.0
        self.sealed = False  # takes no more records, and goes out as soon as it can
        self.writes = 0  # how often it was handed to the kernel, or part of it
        self.alone = 0  # how often its connection ended while nothing else was on it
        self.dropped = 0  # how often the broker took it and did not store it
        self.passed = False
        self.final = False

    @property
    def partition(self) -> TopicPartition | None:
        """The partition's name; None where the broker picks it."""
        return None if self.number < 0 else TopicPartition(self.topic, self.broker, self.number)

    @property
    def resends(self) -> int:
        """How often it was written again."""
        return max(0, self.writes - 1)

    def append(self, value: bytes, key: Any, callback: OnDelivery | None) -> None:
        """One record more."""
        if key is not None or self.keys is not None:
            self._keys().append(key)
        if not self.callbacks or self.callbacks[-1][1] is not callback:
            self.callbacks.append((self.count, callback))
        self.values.append(value)
        self.count += 1
        self.size += len(value)

    def extend(self, values: list[bytes], size: int, keys: Sequence[Any] | None, callback: OnDelivery | None) -> None:
        """``size`` bytes of records more, all with one callback. The list becomes ours."""
        if keys is not None:
            self._keys().extend(keys)
        elif self.keys is not None:
            self.keys.extend([None] * len(values))
        if not self.callbacks or self.callbacks[-1][1] is not callback:
            self.callbacks.append((self.count, callback))
        if self.values:
            self.values.extend(values)
        else:
            self.values = values
        self.count += len(values)
        self.size += size

    def _keys(self) -> list[Any]:
        if self.keys is None:
            self.keys = [None] * self.count
        return self.keys

    def pick(self, chosen: Sequence[int], broker: int, number: int) -> Batch:
        """The records of these indexes (ascending) as a batch of another partition. Their state goes with them."""
        new = Batch(self.topic, broker, number, self.explicit)
        new.era, new.since, new.sealed, new.writes = self.era, self.since, True, self.writes
        new.waiter, new.column, new.passed = self.waiter, self.column, self.passed
        new.count = len(chosen)
        new.indexes = None if self.indexes is None else [self.indexes[i] for i in chosen]
        new.keys = None if self.keys is None else [self.keys[i] for i in chosen]
        if self.entries is not None:
            new.entries = picked_entries(self.entries, chosen)
            new.size = len(new.entries)
            return new
        new.values = [self.values[i] for i in chosen]
        new.size = sum(map(len, new.values))
        at = 0
        for _, last, callback in self.runs():
            until = bisect_left(chosen, last, at)
            if until > at:
                new.callbacks.append((at, callback))
            at = until
        return new

    def runs(self) -> Iterator[tuple[int, int, OnDelivery | None]]:
        """(first, last + 1, callback) of each run of records with one callback."""
        for i, (first, callback) in enumerate(self.callbacks):
            yield first, self.callbacks[i + 1][0] if i + 1 < len(self.callbacks) else self.count, callback

    def delivery(self, i: int, outcome: Outcome) -> Delivery:
        """What is to be told about record ``i``."""
        key = None if self.keys is None else self.keys[i]
        state, error, offset = outcome.state, outcome.error, outcome.offset_of(i)
        return Delivery(self.topic, self.partition, self.values[i], key, state, 1, error, offset, self.resends)


def picked_entries(entries: memoryview, chosen: Sequence[int]) -> memoryview:
    """The messages of these indexes out of a plain message set; what is in one piece is not copied."""
    ends = MessageSet(entries).next_offsets
    if len(chosen) == chosen[-1] - chosen[0] + 1:
        return entries[int(ends[chosen[0] - 1]) if chosen[0] else 0 : int(ends[chosen[-1]])]
    return memoryview(b"".join(entries[int(ends[i - 1]) if i else 0 : int(ends[i])] for i in chosen))


class _Backlog:
    """A broker's lanes. ``wakes_at``: when its sender will look by itself; -inf while it is awake."""

    __slots__ = ("lanes", "wake", "wakes_at")

    def __init__(self, wake: Callable[[], None]):
        self.lanes: dict[tuple[str, int], deque[Batch]] = {}
        self.wake = wake
        self.wakes_at = _NEVER


def _insert(backlog: _Backlog, batch: Batch) -> None:
    """Put a batch where it belongs in its lane, by the time of its first record."""
    lane = backlog.lanes.setdefault((batch.topic, batch.number), deque())
    at = len(lane)
    while at and lane[at - 1].since > batch.since:
        at -= 1
    lane.insert(at, batch)


_NEVER = float("inf")
_AWAKE = float("-inf")


class BatchQueue:
    """The queue. All of it may be used from any thread; one lock guards it, and nothing waits while holding it.

    ``max_count`` and ``max_bytes`` bound the records that have no final state yet, wherever they are; a record that is
    larger than ``max_bytes`` by itself has to wait until it is the only one. ``enqueue_timeout``: seconds that adding
    waits for room; None: for ever. A batch is ready with ``batch_count`` records or ``batch_bytes`` bytes, or
    ``linger`` seconds after its first record, or when the queue is full, or in a flush.
    """

    def __init__(
        self,
        *,
        max_count: int,
        max_bytes: int,
        enqueue_timeout: float | None,
        batch_count: int,
        batch_bytes: int,
        linger: float,
    ):
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._enqueue_timeout = enqueue_timeout
        self._batch_count = batch_count
        self._batch_bytes = batch_bytes
        self._linger = linger
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._told = threading.Condition(self._lock)
        self._backlogs: dict[int, _Backlog] = {}
        self._era = 0
        self._count = 0
        self._bytes = 0
        self._waiting = 0
        self._untold: dict[int, int] = {0: 0}
        self._closed = False

    @property
    def count(self) -> int:
        """Records without a final state."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes of their payloads."""
        return self._bytes

    # Adding

    def attach(self, broker: int, wake: Callable[[], None]) -> None:
        """From now on there may be batches for ``broker``; ``wake`` is called when its sender should look."""
        with self._lock:
            self._backlogs[broker] = _Backlog(wake)

    def add(
        self, topic: str, broker: int, number: int, explicit: bool, value: bytes, key: Any, callback: OnDelivery | None
    ) -> None:
        """One record. QueueFullError, ProducerClosedError: it was not taken."""
        size = len(value)
        with self._lock:
            if self._closed or self._count >= self._max_count or self._bytes + size > self._max_bytes:
                self._make_room(1, size, self._enqueue_timeout)
            self._count += 1
            self._bytes += size
            self._untold[self._era] += 1
            backlog = self._backlogs[broker]
            batch = self._open_batch(backlog, topic, broker, number, explicit, 1, size)
            batch.append(value, key, callback)
            wake = self._must_wake(backlog, batch)
        if wake:
            backlog.wake()

    def add_many(
        self,
        topic: str,
        broker: int,
        number: int,
        explicit: bool,
        values: list[bytes],
        size: int,
        keys: Sequence[Any] | None,
        callback: OnDelivery | None,
    ) -> None:
        """Records of one partition, ``size`` bytes in all, that fit one batch; all or none is taken, with the list."""
        count = len(values)
        with self._lock:
            self._take_room(count, size)
            backlog = self._backlogs[broker]
            batch = self._open_batch(backlog, topic, broker, number, explicit, count, size)
            batch.extend(values, size, keys, callback)
            wake = self._must_wake(backlog, batch)
        if wake:
            backlog.wake()

    def add_batch(self, batch: Batch) -> None:
        """A batch that takes no more records, and goes out at once."""
        with self._lock:
            self._take_room(batch.count, batch.size)
            batch.era, batch.since, batch.sealed = self._era, monotonic(), True
            backlog = self._backlogs[batch.broker]
            self._append(backlog, batch)
            wake = self._must_wake(backlog, batch)
        if wake:
            backlog.wake()

    def restore(self, batches: Iterable[Batch]) -> None:
        """Batches that were taken before: in their (new) lanes before what came later. They never left the count."""
        with self._lock:
            backlogs = set()
            for batch in batches:
                batch.sealed = True
                backlog = self._backlogs[batch.broker]
                _insert(backlog, batch)
                if self._must_wake(backlog, batch):
                    backlogs.add(backlog)
        for backlog in backlogs:
            backlog.wake()

    def _take_room(self, count: int, size: int) -> None:
        if self._closed or self._count + count > self._max_count or self._bytes + size > self._max_bytes:
            self._make_room(count, size, self._enqueue_timeout)
        self._count += count
        self._bytes += size
        self._untold[self._era] += count

    def _make_room(self, count: int, size: int, timeout: float | None) -> None:
        """Wait until there is room; what is alone always has it. The lock is held, and let go while waiting."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            if self._closed:
                raise ProducerClosedError("the producer is closed")
            if not self._count or (self._count + count <= self._max_count and self._bytes + size <= self._max_bytes):
                return
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                raise QueueFullError(self._full(timeout))
            self._waiting += 1  # from here on everything is due
            try:
                self._wake_all()
                self._room.wait(left)
            finally:
                self._waiting -= 1

    def _full(self, timeout: float | None) -> str:
        return (
            f"the queue is full: {self._count} records of {self._max_count} (queue.size), {self._bytes} bytes of "
            f"{self._max_bytes} (queue.bytes.max)"
            + (f"; waited {timeout:g} s for room (queue.enqueueTimeout.ms)" if timeout else "")
        )

    def _open_batch(
        self, backlog: _Backlog, topic: str, broker: int, number: int, explicit: bool, count: int, size: int
    ) -> Batch:
        lane = backlog.lanes.get((topic, number))
        if lane is None:
            lane = backlog.lanes[topic, number] = deque()
        if lane:
            batch = lane[-1]
            if (
                not batch.sealed
                and batch.era == self._era
                and batch.explicit is explicit
                and batch.count + count <= self._batch_count
                and batch.size + size <= self._batch_bytes
            ):
                return batch
            batch.sealed = True
        batch = Batch(topic, broker, number, explicit)
        batch.era, batch.since = self._era, monotonic()
        lane.append(batch)
        return batch

    def _append(self, backlog: _Backlog, batch: Batch) -> None:
        lane = backlog.lanes.setdefault((batch.topic, batch.number), deque())
        if lane:
            lane[-1].sealed = True
        lane.append(batch)

    def _must_wake(self, backlog: _Backlog, batch: Batch) -> bool:
        if batch.count >= self._batch_count or batch.size >= self._batch_bytes:
            batch.sealed = True
        if backlog.wakes_at > self._due(batch):
            backlog.wakes_at = _AWAKE
            return True
        return False

    def _due(self, batch: Batch) -> float:
        return 0.0 if batch.sealed or self._waiting or batch.era < self._era else batch.since + self._linger

    # Taking

    def due(self, broker: int) -> float:
        """When something of the broker's is ready (monotonic clock; inf: nothing waits). Its sender is woken before
        then if something is ready earlier."""
        with self._lock:
            backlog = self._backlogs[broker]
            backlog.wakes_at = min((self._due(lane[0]) for lane in backlog.lanes.values()), default=_NEVER)
            return backlog.wakes_at

    def take(self, broker: int, max_bytes: int) -> list[Batch]:
        """Batches of the broker, the oldest lanes first, of ``max_bytes`` together unless the first alone has more."""
        with self._lock:
            lanes = self._backlogs[broker].lanes
            taken: list[Batch] = []
            size = 0
            now = monotonic()
            for name in sorted(lanes, key=lambda name: (self._due(lanes[name][0]) > now, lanes[name][0].since)):
                lane = lanes[name]
                while lane and (not taken or size + lane[0].size <= max_bytes) and len(taken) < _MAX_SETS:
                    batch = lane.popleft()
                    batch.sealed = True
                    size += batch.size
                    taken.append(batch)
                if not lane:
                    del lanes[name]
            return taken

    def withdraw(self, broker: int, wanted: Callable[[Batch], bool]) -> list[Batch]:
        """Those of the broker's batches that are wanted, in the order of their lanes; they leave it."""
        with self._lock:
            backlog = self._backlogs[broker]
            found: list[Batch] = []
            for name, lane in list(backlog.lanes.items()):
                hits = [batch for batch in lane if wanted(batch)]
                if not hits:
                    continue
                for batch in hits:
                    batch.sealed = True
                found += hits
                left = deque(batch for batch in lane if batch not in set(hits))
                if left:
                    backlog.lanes[name] = left
                else:
                    del backlog.lanes[name]
            return found

    def put_back(self, batches: Iterable[Batch]) -> None:
        """Batches that were withdrawn: back to where they were in their lanes, by the time of their first records."""
        with self._lock:
            for batch in batches:
                _insert(self._backlogs[batch.broker], batch)

    # The end of records

    def settle(self, batch: Batch) -> bool:
        """The batch has its final state: its room is free. False if it had one already."""
        with self._lock:
            if batch.final:
                return False
            batch.final = True
            self._count -= batch.count
            self._bytes -= batch.size
            if self._waiting:
                self._room.notify_all()
            return True

    def told(self, batch: Batch) -> None:
        """Everybody who is to hear of the batch's final state has."""
        with self._lock:
            left = self._untold[batch.era] - batch.count
            self._untold[batch.era] = left
            if not left and batch.era != self._era:
                del self._untold[batch.era]
                self._told.notify_all()

    def flush(self, timeout: float | None) -> int:
        """Send what is there, and wait until all of it has been told about; how many records are left."""
        deadline = None if timeout is None else monotonic() + timeout
        with self._lock:
            self._begin_era()
            era = self._era
            while left := sum(count for of, count in self._untold.items() if of < era):
                remaining = None if deadline is None else deadline - monotonic()
                if remaining is not None and remaining <= 0:
                    break
                self._told.wait(remaining)
            return left

    def close(self) -> None:
        """Take no more records; who waits for room hears it."""
        with self._lock:
            self._closed = True
            self._room.notify_all()

    def _begin_era(self) -> None:
        if not self._untold[self._era]:
            del self._untold[self._era]
        self._era += 1
        self._untold[self._era] = 0
        self._wake_all()

    def _wake_all(self) -> None:
        for backlog in self._backlogs.values():
            if backlog.lanes and backlog.wakes_at > 0.0:
                backlog.wakes_at = _AWAKE
                backlog.wake()  # a byte into a socket pair: it does not wait
