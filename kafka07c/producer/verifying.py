"""Reading back what was written: the only way to know that a 0.7 broker has it.

A set of messages is looked for as the whole stored entries that were written, byte for byte and in one piece, in what
the broker has flushed since before the write. What another producer writes stands between sets, never inside one, for a
broker appends a set in one go; each stretch of the log counts for one set.

A set that is not found is *lost* only when that is sure: when its connection ended, and it is not in what is flushed
after that; or when the flushed end has passed it. A flush covers all that was appended before it. So once the broker is
known to have carried out the write, any end of the flushed log that is seen then, and a later one that is further on,
have it between them or before them, if it is there at all. What is neither found nor lost in time stays unknown.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

import numpy
from numpy.typing import NDArray

from kafka07c._views import MessageSet
from kafka07c.errors import BrokerError, KafkaError, NotVerifiedError, OffsetOutOfRangeError, PlacedError
from kafka07c.names import BrokerAddress
from kafka07c.producer.batches import Batch, Outcome
from kafka07c.producer.records import State
from kafka07c.protocol import EARLIEST, LATEST, FetchRequest
from kafka07c.simple import SimpleConsumer

__all__ = ["Verifier", "VerifySettings"]

#: partitions that are asked for in one multifetch
_LANES_AT_ONCE = 8

#: seconds until the log is looked at again that had nothing new: at first, and at most
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.25

#: bytes before a payload (magic 1), where the CRC is in them
_HEADER_BYTES = 10
_CRC_AT = 6
_ATTRIBUTES_AT = 5


class VerifySettings(Protocol):
    """What is used of a ProducerConfig; times are in seconds."""

    @property
    def connect_timeout(self) -> float: ...
    @property
    def socket_timeout(self) -> float: ...
    @property
    def delivery_timeout(self) -> float: ...
    @property
    def verify_timeout(self) -> float: ...


@dataclass(slots=True, eq=False)
class _Expected:
    """A set that was written, or is just being written, and has not been found yet."""

    batch: Batch
    data: bytes | memoryview
    crc: int  # of its first entry
    confirmed: bool = False  # the broker has carried out the write
    orphaned: bool = False  # the connection ended
    deadline: float = float("inf")
    end: int | None = None  # an end of the flushed log that was seen once it was confirmed
    doubtful: bool = False  # some of the log went unread since it was written


class _Tail:
    """What was read of a partition's log, from a stored entry on, and may be the beginning of a set."""

    def __init__(self, offset: int):
        self._begin = offset
        self._data = b""
        self._starts = numpy.empty(0, numpy.int64)

    @property
    def end(self) -> int:
        """The offset up to which the log was read."""
        return self._begin + len(self._data)

    def add(self, data: bytes, starts: NDArray[numpy.int64]) -> None:
        """What follows: whole entries, and the offset of each."""
        self._data = self._data + data if self._data else data
        self._starts = numpy.concatenate((self._starts, starts))

    def find(self, expected: Iterable[_Expected], *, at_end: bool) -> list[tuple[_Expected, int]]:
        """Which of those expected are in it, and at which offset; earlier ones first where two could be.

        What can be no part of a set that is expected is forgotten. ``at_end``: that is everything, for the broker
        flushes whole sets, and what has begun would have ended.
        """
        if not self._data:
            return []
        by_crc: dict[int, list[_Expected]] = {}
        for each in expected:
            by_crc.setdefault(each.crc, []).append(each)
        found = []
        at, keep = 0, len(self._data)
        for start, crc in self._candidates(by_crc):
            if start < at:
                continue
            here = by_crc[crc]
            hit = next((each for each in here if self._is_at(each, start, at_end)), None)
            if hit is None:
                continue
            if len(hit.data) > len(self._data) - start:
                keep = start
                break
            here.remove(hit)
            found.append((hit, self._begin + start))
            at = start + len(hit.data)
        self._forget(keep)
        return found

    def _is_at(self, each: _Expected, start: int, at_end: bool) -> bool:
        """Whether the set is there, or as far as was read (not so at the end)."""
        if len(each.data) <= len(self._data) - start:
            return self._data.startswith(each.data, start)
        return not at_end and self._data.endswith(each.data[: len(self._data) - start])

    def _candidates(self, crcs: Collection[int]) -> list[tuple[int, int]]:
        """(place, CRC) of the entries with one of these CRCs."""
        starts = self._starts - self._begin
        starts = starts[starts + _HEADER_BYTES <= len(self._data)]
        if not crcs or not len(starts):
            return []
        octets = numpy.frombuffer(self._data, numpy.uint8)
        found = numpy.zeros(len(starts), numpy.int64)
        for i in range(_CRC_AT, _HEADER_BYTES):
            found = found << 8 | octets[starts + i]
        hits = numpy.isin(found, numpy.fromiter(crcs, numpy.int64, len(crcs)))
        return list(zip(starts[hits].tolist(), found[hits].tolist(), strict=True))

    def _forget(self, count: int) -> None:
        self._data = self._data[count:]
        self._begin += count
        self._starts = self._starts[self._starts >= self._begin]


class _Lane:
    """One partition: the sets that are expected in it, in the order in which they were written."""

    def __init__(self, topic: str, number: int):
        self.topic = topic
        self.number = number
        self.expected: dict[Batch, _Expected] = {}
        self.tail: _Tail | None = None
        self.awaits_start = False
        self.told_of = ""


class Verifier:
    """Reads back what one sender writes to one broker, over a connection of its own, in a thread of its own.

    ``settle`` gets the outcomes, ``verified`` and ``unknown``. ``lost`` gets what is not in the log, in the order of
    writing, and whether it is the broker that ``dropped`` it; it is no longer expected. Both are called from this
    thread, and must not wait. All else here is for the sender, and does not wait either.
    """

    def __init__(
        self,
        broker: int,
        address: Callable[[int], BrokerAddress],
        settings: VerifySettings,
        *,
        settle: Callable[[list[Outcome]], None],
        lost: Callable[[list[Batch], bool], None],
        log: logging.Logger | logging.LoggerAdapter[logging.Logger],
    ):
        self._broker = broker
        self._address = address
        self._settings = settings
        self._settle = settle
        self._lost = lost
        self._log = log
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._consumer: SimpleConsumer | None = None
        self._pause = 0.0
        self._told_of = ""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"kafka07c-verifier-{broker}", daemon=True)

    def start(self) -> None:
        """Begin. RuntimeError when the interpreter is about to end and takes no more threads."""
        self._thread.start()

    def expect(self, batch: Batch, data: bytes | memoryview) -> bool:
        """The set ``data`` is about to be written for the batch.

        True: before that, the connection has to be asked for the partition's flushed end; see :meth:`started`.
        """
        with self._lock:
            lane = self._lanes.get((batch.topic, batch.number))
            if lane is None:
                lane = self._lanes[batch.topic, batch.number] = _Lane(batch.topic, batch.number)
            starts = not lane.expected
            lane.awaits_start = lane.awaits_start or starts
            lane.expected[batch] = _Expected(batch, data, int.from_bytes(data[_CRC_AT:_HEADER_BYTES], "big"))
            return starts

    def started(self, topic: str, number: int, end: int) -> None:
        """The partition's flushed end was ``end`` before what is expected there was written."""
        with self._lock:
            lane = self._lanes[topic, number]
            if lane.awaits_start:
                lane.awaits_start = False
                lane.tail = _Tail(end)
                self._changed.notify()

    def confirmed(self, batches: Iterable[Batch]) -> None:
        """The broker has carried out these writes."""
        deadline = monotonic() + self._settings.verify_timeout
        with self._lock:
            for batch in batches:
                each = self._lanes[batch.topic, batch.number].expected.get(batch)
                if each is not None:
                    each.confirmed = True
                    each.deadline = deadline
            if self._pause > _FIRST_PAUSE:
                self._changed.notify()

    def connection_ended(self) -> None:
        """Nothing that is expected now has to be there. What is not, is given to ``lost``."""
        with self._lock:
            for lane in self._lanes.values():
                lane.awaits_start = False  # where it was read up to before holds, if it was ever read
                for each in lane.expected.values():
                    each.orphaned = True
            self._changed.notify()

    @property
    def is_open(self) -> bool:
        """Whether anything is expected."""
        with self._lock:
            return any(lane.expected for lane in self._lanes.values())

    @property
    def is_searching(self) -> bool:
        """Whether it is still open if what was written before the connection ended is there."""
        with self._lock:
            return any(each.orphaned for lane in self._lanes.values() for each in lane.expected.values())

    def move(self, move: Callable[[list[Batch]], list[Batch]]) -> None:
        """The broker is gone: what nobody can look for any more is given to ``move``, but for what it gives back."""
        with self._lock:
            orphans = [
                each.batch
                for lane in self._lanes.values()
                for each in lane.expected.values()
                if each.orphaned and not each.batch.explicit
            ]
            if orphans:
                for batch in set(orphans).difference(move(orphans)):
                    del self._lanes[batch.topic, batch.number].expected[batch]

    def stop(self) -> None:
        """End soon."""
        with self._lock:
            self._stopping = True
            self._changed.notify()
            if self._consumer is not None:
                self._consumer.interrupt()

    def join(self, timeout: float) -> None:
        """Wait for the thread's end, so many seconds at most."""
        self._thread.join(timeout)

    def leftovers(self) -> tuple[list[Batch], list[Outcome]]:
        """What is still expected; for one who has stopped it. Of what the broker has carried out nobody knows more."""
        with self._lock:
            left = [each for lane in self._lanes.values() for each in lane.expected.values()]
        unknown = [
            Outcome(each.batch, State.UNKNOWN, self._not_verified(each.batch, "when the producer was closed"))
            for each in left
            if each.confirmed
        ]
        return [each.batch for each in left if not each.confirmed], unknown

    # --- the thread

    def _run(self) -> None:
        try:
            while self._wait():
                found_some = self._look()
                self._expire()
                with self._lock:
                    self._pause = 0.0 if found_some else min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
        finally:
            self._hang_up()

    def _wait(self) -> bool:
        """Until it is time to look at the log. False: it is time to end."""
        with self._lock:
            while not self._stopping and not any(lane.expected for lane in self._lanes.values()):
                self._pause = 0.0
                self._changed.wait()
            if self._pause and not self._stopping and self._changed.wait(self._pause):
                self._pause = 0.0
            return not self._stopping

    def _look(self) -> bool:
        """Read on in all partitions where something is expected; whether there was anything new."""
        with self._lock:
            lanes = [lane for lane in self._lanes.values() if lane.expected and not lane.awaits_start]
        try:
            some = [self._look_at(lanes[i : i + _LANES_AT_ONCE]) for i in range(0, len(lanes), _LANES_AT_ONCE)]
        except KafkaError as error:
            self._hang_up()
            if str(error) != self._told_of and not self._stopping:  # once, not with each try
                self._told_of = str(error)
                self._log.warning("what was written to broker %d cannot be read back now: %s", self._broker, error)
            return False
        except Exception:
            self._hang_up()
            self._log.exception("reading back from broker %d failed; it goes on with a new connection", self._broker)
            return False
        self._told_of = ""
        return any(some)

    def _look_at(self, lanes: list[_Lane]) -> bool:
        consumer = self._connected()
        some = False
        reading: list[tuple[_Lane, _Tail, list[_Expected]]] = []
        with self._lock:
            for lane in lanes:
                # what was confirmed, or orphaned, before the answer comes
                ready = [each for each in lane.expected.values() if each.confirmed or each.orphaned]
                if lane.tail is not None:
                    reading.append((lane, lane.tail, ready))
                elif orphans := [each for each in ready if each.orphaned]:
                    some = True  # the first write, and the connection ended before it was known where that would be
                    self._lose(lane, orphans)
        if reading:
            requests = [FetchRequest(lane.topic, lane.number, tail.end) for lane, tail, _ in reading]
            for (lane, tail, ready), messages in zip(reading, consumer.multifetch(requests), strict=True):
                some = self._read(consumer, lane, tail, ready, messages) or some
        return some

    def _connected(self) -> SimpleConsumer:
        if self._consumer is None:
            address = self._address(self._broker)
            consumer = SimpleConsumer(
                address.host,
                address.port,
                broker=self._broker,
                connect_timeout=self._settings.connect_timeout,
                timeout=min(self._settings.socket_timeout, self._settings.verify_timeout),
                shallow=True,
                reconnect=False,  # the address is looked up anew
            )
            with self._lock:
                self._consumer = consumer
        return self._consumer

    def _hang_up(self) -> None:
        with self._lock:
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    # --- what an answer says

    def _read(
        self, consumer: SimpleConsumer, lane: _Lane, tail: _Tail, ready: list[_Expected], messages: MessageSet
    ) -> bool:
        """Whether it was anything new."""
        error = messages.error
        if messages.valid_bytes:
            tail.add(bytes(messages.data[: messages.valid_bytes]), messages.offsets)
            self._find(lane, tail, at_end=False)
        if isinstance(error, OffsetOutOfRangeError):
            return self._relocate(consumer, lane, tail)
        if error is not None:
            return self._refused(lane, tail, ready, error)
        if messages.valid_bytes:
            return True
        lane.told_of = ""
        self._find(lane, tail, at_end=True)
        self._end_seen(lane, ready, tail.end)
        return False

    def _find(self, lane: _Lane, tail: _Tail, *, at_end: bool) -> None:
        with self._lock:
            found = tail.find(lane.expected.values(), at_end=at_end)
            for each, _ in found:
                del lane.expected[each.batch]
        if found:
            self._settle([_verified(each, offset) for each, offset in found])

    def _end_seen(self, lane: _Lane, ready: list[_Expected], end: int) -> None:
        """All that is flushed, up to ``end``, has been read since these were ready: what does that say of the rest?"""
        orphaned, passed = [], []
        with self._lock:
            for each in ready:
                if each.batch not in lane.expected:
                    continue
                if each.orphaned:
                    orphaned.append(each)
                elif each.end is None:
                    each.end = end
                elif end > each.end and not each.doubtful:
                    passed.append(each)
            self._lose(lane, orphaned)
            self._lose(lane, passed, dropped=True)

    def _lose(self, lane: _Lane, lost: list[_Expected], *, dropped: bool = False) -> None:
        """These are not there. The lock is held."""
        for each in lost:
            del lane.expected[each.batch]
        if lost:
            self._lost([each.batch for each in lost], dropped)

    def _refused(self, lane: _Lane, tail: _Tail, ready: list[_Expected], error: PlacedError) -> bool:
        """The broker does not give the log, or what it gives is damaged. Behind damage it goes on, if it can."""
        following = getattr(error, "next_offset", None)
        if following is not None and not isinstance(error, BrokerError):
            self._go_on(lane, tail, following)
            return True
        if str(error) != lane.told_of:
            lane.told_of = str(error)
            self._log.warning("what was written cannot be read back: %s", error)
        with self._lock:
            self._lose(lane, [each for each in ready if each.orphaned and each.batch in lane.expected])
        return False

    def _relocate(self, consumer: SimpleConsumer, lane: _Lane, tail: _Tail) -> bool:
        """The log was cut, or its beginning deleted: go on at its end, or where it begins now."""
        end = consumer.get_offsets_before(lane.topic, lane.number, LATEST)[0]
        begin = consumer.get_offsets_before(lane.topic, lane.number, EARLIEST)[0]
        if tail.end > end:
            self._go_on(lane, tail, end)
        elif tail.end < begin:
            self._go_on(lane, tail, begin)
            with self._lock:
                for each in lane.expected.values():
                    each.doubtful = True  # it may have been in what was deleted
        return True

    def _go_on(self, lane: _Lane, tail: _Tail, offset: int) -> None:
        with self._lock:
            if lane.tail is tail:
                lane.tail = _Tail(offset)

    # --- time

    def _expire(self) -> None:
        now = monotonic()
        late = []
        with self._lock:
            for lane in self._lanes.values():
                gone = [each for each in lane.expected.values() if self._deadline(each) <= now]
                for each in gone:
                    del lane.expected[each.batch]
                late += gone
        if late:
            when = f"after {self._settings.verify_timeout:g} s (verify.timeout.ms)"
            self._settle([Outcome(each.batch, State.UNKNOWN, self._not_verified(each.batch, when)) for each in late])

    def _deadline(self, each: _Expected) -> float:
        if not each.orphaned:
            return each.deadline
        until = each.batch.since + self._settings.delivery_timeout
        return max(until, each.deadline) if each.confirmed else until

    def _not_verified(self, batch: Batch, when: str) -> NotVerifiedError:
        why = f": {self._told_of}" if self._told_of else ""
        return NotVerifiedError(
            f"it was written, and is neither found in the flushed log nor known to be missing {when}{why}",
            topic=batch.topic,
            broker=self._broker,
            partition=batch.number,
        )


def _verified(each: _Expected, offset: int) -> Outcome:
    if each.batch.column is not None or each.data[_ATTRIBUTES_AT] & 3:
        return Outcome(each.batch, State.VERIFIED, offset=offset)
    return Outcome(each.batch, State.VERIFIED, offset=offset, offsets=MessageSet(each.data, offset).offsets)
