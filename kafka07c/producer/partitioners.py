"""Which partition a message goes to: what 0.7's producer does, and other ways.

A partitioner is anything that can be called as 0.7's ``Partitioner.partition(key, numPartitions)`` is:
``partitioner(key, count) -> index``, 0 to ``count - 1``, counted over all partitions of a topic on all brokers, in the
order of broker and number. Source: ``kafka.producer.DefaultPartitioner`` of 0.7.2 (what it does: tests/golden07/partitioner.json).
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Self

import numpy
from numpy.typing import NDArray

__all__ = [
    "DefaultPartitioner",
    "Partitioner",
    "RandomPartitioner",
    "RoundRobinPartitioner",
    "SharedPartitioner",
    "StickyPartitioner",
    "default_partition",
    "default_partitions",
]

Partitioner = Callable[[Any, int], int]

#: the encoding in which a unit is one of this machine's uint16
_UTF_16 = f"utf-16-{sys.byteorder[0]}e"

#: (index, how many messages): the first so many go to one partition, the next to the next run's
Runs = Iterator[tuple[int, int]]


def default_partition(key: Any, count: int) -> int:
    """The index that 0.7's default partitioner picks for ``key`` among ``count`` partitions.

    It is ``abs(hash) % count`` with the hash of Java's strings, over UTF-16 units. A ``bytes`` key is the UTF-8 text
    that it holds. For the few keys whose hash is -2**31 Java's ``abs`` stays negative, and 0.7's producer fails; here
    it is 2**31. TypeError for a key that is no text; ValueError for a count below 1.
    """
    if count < 1:
        raise ValueError(f"a key cannot be put on {count} partitions")
    return _absolute_hash(_text(key)) % count


def default_partitions(keys: Sequence[Any], count: int) -> NDArray[numpy.int64]:
    """:func:`default_partition` of each of ``keys``, with no Python step for each."""
    if count < 1:
        raise ValueError(f"keys cannot be put on {count} partitions")
    texts = list(map(_text, keys))
    joined = "".join(texts)
    units = numpy.frombuffer(joined.encode("utf-16-le", "surrogatepass"), "<u2")
    if len(units) == len(joined):
        lengths = numpy.fromiter(map(len, texts), numpy.int64, len(texts))
    else:  # characters of two units
        lengths = numpy.fromiter(map(_units, texts), numpy.int64, len(texts))
    return _absolutes(_hashes(units.astype(numpy.uint32), lengths)) % count


def _text(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, (bytes, bytearray, memoryview)):
        try:
            return str(key, "utf-8")
        except UnicodeDecodeError:
            raise TypeError(
                f"the key {bytes(key)[:40]!r} is no UTF-8 text, and 0.7's default partitioner knows text alone: "
                "give a partitioner of your own, partitioner=function(key, count)"
            ) from None
    raise TypeError(
        f"0.7's default partitioner knows keys that are text (str, or bytes in UTF-8), not {type(key).__name__}: "
        "make it text, or give a partitioner of your own, partitioner=function(key, count)"
    )


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@lru_cache(maxsize=4096)  # keys come again, and looking one up takes less time than hashing it
def _absolute_hash(text: str) -> int:
    """The absolute value of Java's string hash, which has 32 bits."""
    value = 0
    for unit in text.encode() if text.isascii() else memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H"):
        value = 31 * value + unit & 0xFFFFFFFF
    return value if value < 2**31 else 2**32 - value


def _hashes(units: NDArray[numpy.uint32], lengths: NDArray[numpy.int64]) -> NDArray[numpy.uint32]:
    """Java's string hash of each run of ``lengths`` units: the sum of unit * 31**(units after it), modulo 2**32."""
    hashes = numpy.zeros(len(lengths), numpy.uint32)
    if not len(units):
        return hashes
    ends = numpy.cumsum(lengths)
    powers = numpy.full(int(lengths.max()), 31, numpy.uint32)
    powers[0] = 1
    powers = numpy.multiply.accumulate(powers, dtype=numpy.uint32)
    after = numpy.repeat(ends, lengths) - numpy.arange(1, len(units) + 1)
    filled = lengths > 0  # reduceat gives an empty run its neighbour's first unit
    starts = (ends - lengths)[filled]
    hashes[filled] = numpy.add.reduceat(units * powers[after], starts, dtype=numpy.uint32)
    return hashes


def _absolutes(hashes: NDArray[numpy.uint32]) -> NDArray[numpy.int64]:
    signed = hashes.astype(numpy.int64)
    return numpy.minimum(signed, 2**32 - signed)


class SharedPartitioner:
    """The base of the partitioners here: each can share out many messages at once, and keeps its state by topic.

    May be called from any thread. A subclass of your own gives :meth:`choose`; that is enough.
    """

    def __call__(self, key: Any, count: int) -> int:
        """The index for one message."""
        return self.choose(count) if key is None else self.of_key(key, count)

    def choose(self, count: int) -> int:
        """The index for a message without a key."""
        raise NotImplementedError

    def of_key(self, key: Any, count: int) -> int:
        """The index for a message with a key: that of 0.7's default partitioner."""
        return default_partition(key, count)

    def of_keys(self, keys: Sequence[Any], count: int) -> NDArray[numpy.int64]:
        """The index for each of ``keys``. All that are None get one index between them."""
        if None not in keys:
            return default_partitions(keys, count)
        without = numpy.fromiter((key is None for key in keys), bool, len(keys))
        indices = numpy.full(len(keys), self.choose(count), numpy.int64)
        indices[~without] = default_partitions([key for key in keys if key is not None], count)
        return indices

    def runs(self, messages: int, count: int) -> Runs:
        """How ``messages`` without keys are shared out: (index, how many) of one run after the other."""
        yield self.choose(count), messages

    def for_topic(self) -> Self:
        """Another one like this, for one topic: its state is not mixed with that of other topics."""
        return self


class DefaultPartitioner(SharedPartitioner):
    """What 0.7 does: the key's hash decides; without a key, chance.

    Chance decides once for each call: ``send_many`` and ``send_batch`` put all messages without a key on one partition,
    as 0.7 does with the messages of one send.
    """

    def choose(self, count: int) -> int:
        """Any, each as likely."""
        return int(random.random() * count)


class RandomPartitioner(DefaultPartitioner):
    """Chance decides, once for each call, whatever the key is."""

    def of_key(self, key: Any, count: int) -> int:
        """Any, each as likely."""
        return self.choose(count)

    def of_keys(self, keys: Sequence[Any], count: int) -> NDArray[numpy.int64]:
        """One for all."""
        return numpy.full(len(keys), self.choose(count), numpy.int64)


class RoundRobinPartitioner(SharedPartitioner):
    """One partition after the other, in each topic by itself, whatever the key is.

    Many messages at once are cut into as many runs as there are partitions: each gets as many as if they had come one
    by one, but in one piece.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0

    def choose(self, count: int) -> int:
        """The one after the last."""
        return self._take(1) % count

    def of_key(self, key: Any, count: int) -> int:
        """The one after the last."""
        return self.choose(count)

    def of_keys(self, keys: Sequence[Any], count: int) -> NDArray[numpy.int64]:
        """One after the other, beginning after the last."""
        return (self._take(len(keys)) + numpy.arange(len(keys))) % count

    def runs(self, messages: int, count: int) -> Runs:
        """Equal shares, beginning after the last; those that come first get what does not divide."""
        first = self._take(messages)
        each, more = divmod(messages, count)
        for turn in range(min(count, messages)):
            yield (first + turn) % count, each + (turn < more)

    def for_topic(self) -> Self:
        """Another one, at the beginning."""
        return type(self)()

    def _take(self, turns: int) -> int:
        with self._lock:
            first = self._next
            self._next += turns
            return first


class StickyPartitioner(SharedPartitioner):
    """The key's hash decides; messages without one stay with a partition for a while, so that batches get full.

    After ``messages`` messages, or ``seconds``, chance moves them on to another.
    """

    def __init__(self, messages: int = 10_000, seconds: float = 1.0):
        if messages < 1 or seconds <= 0:
            raise ValueError(f"a sticky partitioner stays for some messages and time, not for {messages}, {seconds} s")
        self.messages = messages
        self.seconds = seconds
        self._lock = threading.Lock()
        self._index = -1
        self._left = 0
        self._until = 0.0

    def choose(self, count: int) -> int:
        """Where we are, or the next after a while."""
        return self._stay(1, count)

    def runs(self, messages: int, count: int) -> Runs:
        """All to where we are: a call is not cut."""
        yield self._stay(messages, count), messages

    def for_topic(self) -> Self:
        """Another one, that is nowhere yet."""
        return type(self)(self.messages, self.seconds)

    def _stay(self, messages: int, count: int) -> int:
        with self._lock:
            if self._left <= 0 or self._index >= count or time.monotonic() >= self._until:
                self._move(count)
            self._left -= messages
            return self._index

    def _move(self, count: int) -> None:
        others = count - (0 <= self._index < count)
        if others:
            step = int(random.random() * others)
            self._index = step + (0 <= self._index <= step)
        self._left = self.messages
        self._until = time.monotonic() + self.seconds
