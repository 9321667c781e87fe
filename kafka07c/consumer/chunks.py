"""What lies between fetch threads and a consumer: chunks of messages, in queues bounded by bytes.

Whether something may still get into a queue is decided under the queue's own lock, by the :class:`Feed` that it comes
through. So a feed can be cut from any thread, at once and for good, whatever the thread that fills it is doing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from kafka07c._views import MessageSet
from kafka07c.errors import KafkaError
from kafka07c.names import TopicPartition
from kafka07c.positions import Position

__all__ = ["Chunk", "ChunkQueue", "Feed"]

#: bytes that a chunk counts beside its messages, so that chunks without any are not free
_CHUNK_BYTES = 512


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Messages of one partition, in order, as they came from one fetch.

    ``position``: where the chunk began: the first ``position.index`` messages of its first entry were handled before;
    they are still in ``messages``. None only where no position is known (see ``error``).
    ``generation``: the number that the partition was added with.
    ``messages``: a set, which may be empty, and may end with an error: iterating raises it then.
    ``at_end``: the end of the partition was reached here; said once for each time that it is.
    ``error``: why the partition stops behind these messages, why the broker refuses it for the moment, or what was
    wrong with what was skipped.
    ``skipped``: the offsets (from, to) of the bytes behind these messages that were passed over as damaged.
    """

    tp: TopicPartition
    messages: MessageSet
    generation: int
    position: Position | None
    at_end: bool = False
    error: KafkaError | None = None
    skipped: tuple[int, int] | None = None


class Feed:
    """The way of one partition into a queue. All but the first three attributes is guarded by the queue's lock.

    ``tp``, ``generation``, ``queue``: of which partition, as whose, and where to. ``open``: whether anything may still
    come this way; once False, False for good. ``position``: behind what was put into the queue; None as long as it is
    not known where to begin. ``at_end``: that position was told to be the end. ``stopped``: an error was told that will
    not go away.
    """

    __slots__ = ("at_end", "generation", "open", "position", "queue", "stopped", "tp")

    def __init__(self, tp: TopicPartition, position: Position | None, generation: int, queue: ChunkQueue):
        self.tp = tp
        self.position = position
        self.generation = generation
        self.queue = queue
        self.open = True
        self.at_end = False
        self.stopped = False


class Filler(Protocol):
    """Who puts chunks into queues."""

    def wake(self) -> None:
        """There may be room now."""


@dataclass(frozen=True, slots=True)
class _Entry:
    chunk: Chunk
    feed: Feed
    cost: int


class ChunkQueue:
    """Chunks in the order in which they came, ``max_bytes`` of them at most.

    What counts are the bytes of the messages, inflated where they are compressed, not the number of chunks. Fillers
    reserve room before they ask a broker for anything, so that nothing has to wait that is already here. Two things go
    above the bound: a filler that has nothing under way may ask for one fetch as long as the queue is not full (so a
    chunk that is larger than the bound does get in, and a broker that hangs on to its reservation holds up no other);
    and an answer that becomes larger than what was asked for, by inflating or by one large message.

    All methods may be called from any thread.
    """

    def __init__(self, max_bytes: int):
        if max_bytes < 1:
            raise ValueError(f"a queue of {max_bytes} bytes can hold nothing")
        self.max_bytes = max_bytes
        self._entries: deque[_Entry] = deque()
        self._bytes = 0
        self._reserved: dict[Filler, int] = {}
        self._hungry: set[Filler] = set()
        self._closed = False
        self._changed = threading.Condition(threading.Lock())

    # --- the consumer's end

    def get(self, timeout: float | None = None) -> Chunk | None:
        """The earliest chunk; waits up to ``timeout`` seconds (None: for ever). None if none came, or when closed."""
        deadline = None if timeout is None else monotonic() + timeout
        with self._changed:
            while not self._entries:
                left = None if deadline is None else deadline - monotonic()
                if self._closed or (left is not None and left <= 0):
                    return None
                self._changed.wait(left)
            entry = self._entries.popleft()
            self._bytes -= entry.cost
            hungry = self._take_hungry()
        _wake(hungry)
        return entry.chunk

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what is queued of these partitions.

        For partitions that are no longer fetched: of one that is, the next chunk would follow on a gap.
        """
        gone = set(partitions)
        self._discard(lambda entry: entry.chunk.tp in gone)

    def close(self) -> None:
        """Forget all chunks and take no more; whoever waits in ``get`` gets None."""
        with self._changed:
            self._closed = True
            self._entries.clear()
            self._bytes = 0
            hungry = self._take_hungry()
            self._changed.notify_all()
        _wake(hungry)

    @property
    def bytes_queued(self) -> int:
        """Bytes of the messages in the queue, and a little for each chunk."""
        return self._bytes

    @property
    def chunks_queued(self) -> int:
        return len(self._entries)

    # --- the fillers' end

    def put(self, feed: Feed, chunk: Chunk, following: Position | None, *, stop: bool = False) -> bool:
        """Append a chunk that came through ``feed``, which goes on at ``following``; False if it was cut meanwhile.

        ``stop``: it goes on nowhere.
        """
        cost = _CHUNK_BYTES + _message_bytes(chunk.messages)
        with self._changed:
            if self._closed or not feed.open:
                return False
            feed.position = following
            feed.at_end = chunk.at_end
            feed.stopped = stop
            self._entries.append(_Entry(chunk, feed, cost))
            self._bytes += cost
            self._changed.notify()
        return True

    def move(self, feed: Feed, position: Position) -> bool:
        """Let ``feed`` go on at ``position``; False if it was cut meanwhile."""
        with self._changed:
            if self._closed or not feed.open:
                return False
            feed.position = position
            feed.at_end = False
        return True

    def cut(self, feeds: Collection[Feed]) -> None:
        """Close these feeds of this queue and forget what is queued of them.

        When this returns nothing comes through them any more, and the ``position`` of each is behind what ``get`` gave.
        """
        cut = set(feeds)
        with self._changed:
            for feed in cut:
                feed.open = False
        for entry in reversed(self._discard(lambda entry: entry.feed in cut)):
            entry.feed.position = entry.chunk.position
            entry.feed.at_end = entry.feed.stopped = False

    def reserve(self, filler: Filler, size: int) -> bool:
        """Room for ``size`` bytes that ``filler`` is about to ask for. If there is none now, it is woken when there is.
        """
        with self._changed:
            if self._closed:
                return False
            reserved = self._reserved.get(filler, 0)
            free = self.max_bytes - self._bytes - sum(self._reserved.values())
            if size <= free or (not reserved and self._bytes < self.max_bytes):
                self._reserved[filler] = reserved + size
                return True
            self._hungry.add(filler)
        return False

    def release(self, filler: Filler, size: int) -> None:
        """Give back what was reserved: the answer is queued, or will not come."""
        with self._changed:
            left = self._reserved.pop(filler) - size
            if left:
                self._reserved[filler] = left
            hungry = self._take_hungry()
        _wake(hungry)

    def _discard(self, gone: Callable[[_Entry], bool]) -> list[_Entry]:
        with self._changed:
            discarded = [entry for entry in self._entries if gone(entry)]
            if discarded:
                self._entries = deque(entry for entry in self._entries if not gone(entry))
                self._bytes -= sum(entry.cost for entry in discarded)
            hungry = self._take_hungry()
        _wake(hungry)
        return discarded

    def _take_hungry(self) -> Collection[Filler]:
        hungry, self._hungry = self._hungry, set()
        return hungry


def _wake(fillers: Collection[Filler]) -> None:
    # without the queue's lock: a filler takes its own, and may hold that while it reserves
    for filler in fillers:
        filler.wake()


def _message_bytes(messages: MessageSet) -> int:
    return max(messages.size_bytes, int(messages.good().lengths.sum(dtype="int64")))
