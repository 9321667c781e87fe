"""``spark.readStream.format("kafka07")``: what there is since the last batch, in ranges that tasks read.

**Offsets** are JSON in the checkpoint, as Spark's Kafka source has it: ``{"clicks": {"0-0": 4711, "0-1": 815}}``.

**Where a query begins is kept.** Spark asks for the initial offsets again when the first batch failed, and "latest" has
moved by then. So ``initialOffset`` is always ``{}``, and where to begin is what the first batch *ends* at: Spark writes
that down before it runs the batch, which is empty. In the same way a partition that comes later joins with its earliest
offset, and is read from the batch after that.

**Limits.** Differences of offsets are bytes, not rows. A batch with a limit ends where an entry ends, which is found by
walking over it; of live brokers that means to read it twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from kafka07c.errors import BrokerConnectionError, OffsetOutOfRangeError, UnknownTopicError, ZooKeeperError
from kafka07c.names import TopicPartition, parse_partition
from kafka07c.ranges import Range, Source
from kafka07c.spark.options import BROKER_PATIENCE, ReadOptions
from kafka07c.spark.planning import check_named, partitions_of, split, starting_offset
from kafka07c.spark.reader import read_task, shortly

__all__ = ["Kafka07StreamReader", "RefusedStreamReader", "offsets_from_json", "offsets_to_json"]

_log = logging.getLogger(__name__)

Ends = dict[TopicPartition, int]
_R = TypeVar("_R")

#: seconds between two tries to reach a broker
_PAUSE = 1.0


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """As the checkpoint has them: ``{topic: {"broker-partition": offset}}``, sorted."""
    document: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        document.setdefault(tp.topic, {})[tp.name] = offsets[tp]
    return document


def offsets_from_json(document: Mapping[str, Mapping[str, int]]) -> Ends:
    """The way back; ValueError for what is no such document."""
    return {
        TopicPartition(topic, *parse_partition(name)): offset
        for topic, partitions in document.items()
        for name, offset in partitions.items()
    }


class Kafka07StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's stream. Spark keeps one of it, in a process of its own, that plans; tasks read with others.

    A broker that cannot be reached holds up its own partitions only: they stay where they are until it is back.
    """

    def __init__(self, options: ReadOptions):
        self._options = options
        self._opened: Source | None = None
        self._target: Ends | None = None  # of Trigger.AvailableNow
        self._last_data = time.monotonic()
        self._nothing_there = False

    # what Spark asks

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {}

    @shortly
    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        before = offsets_from_json(start or {})
        partitions = self._partitions()
        if not before:
            return offsets_to_json(self._first_offsets(partitions))
        ends = self._ends(partitions, before)
        if self._target is not None:
            ends = {tp: min(end, self._target[tp]) for tp, end in ends.items() if tp in self._target}
        elif self._waits_for_more(before, ends):
            return start or {}
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return offsets_to_json(before | self._limited(before, ends, max_bytes))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    @shortly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._source.ends(self._partitions())

    @shortly
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return offsets_to_json(self._source.ends(self._partitions())) or None

    @shortly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        # The batch stands already: a broker that has gone since then is waited for.
        return _patiently(lambda: self._tasks(offsets_from_json(start), offsets_from_json(end)), self._source.close)

    def _tasks(self, before: Ends, after: Ends) -> list[InputPartition]:
        ranges = [self._range(tp, before[tp], offset) for tp, offset in after.items() if tp in before]
        ranges = split(self._source, [each for each in ranges if each.size], self._options.min_partitions)
        sources = {tp: self._source.only(tp) for tp in {each.tp for each in ranges}}
        return [InputPartition((sources[each.tp], each)) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint has the offsets."""

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # what is there

    @property
    def _source(self) -> Source:
        if self._opened is None:
            self._opened = self._options.open_source(live=True)
        return self._opened

    def _partitions(self) -> list[TopicPartition]:
        """Those subscribed to that there are now; none of a topic that is not there (any more, or just now)."""
        try:
            return partitions_of(self._options.subscription, self._source)
        except UnknownTopicError as error:
            if not self._nothing_there:
                _log.warning("%s; waiting for it", error)
            self._nothing_there = True
            return []

    def _first_offsets(self, partitions: list[TopicPartition]) -> Ends:
        if self._nothing_there and partitions:  # they have come since the query began: all of them is new
            return {tp: start for tp, (start, _) in self._source.all_bounds(partitions).items()}
        if not partitions:
            self._nothing_there = True
            return {}
        check_named("starting", self._options.starting, partitions)
        return {tp: self._first_offset(tp, bounds) for tp, bounds in self._source.all_bounds(partitions).items()}

    def _first_offset(self, tp: TopicPartition, bounds: tuple[int, int]) -> int:
        start = starting_offset(tp, self._options, self._source, bounds)
        return Range(*tp, start, start).within(bounds, fail_on_data_loss=self._options.fail_on_data_loss).start

    def _ends(self, partitions: list[TopicPartition], before: Ends) -> Ends:
        there = self._source.ends(partitions)
        try:
            new = self._source.all_bounds([tp for tp in there if tp not in before])
        except (BrokerConnectionError, ZooKeeperError) as error:
            _log.warning("new partitions join later: %s", error)
            new = {}
            there = {tp: end for tp, end in there.items() if tp in before}
        ends = {}
        for tp, end in there.items():
            if tp in new:
                ends[tp] = new[tp][0]
            elif end < before[tp]:
                ends[tp] = self._judge_loss(tp, before[tp], end)
            else:
                ends[tp] = end
        return ends

    def _judge_loss(self, tp: TopicPartition, start: int, end: int) -> int:
        loss = f"the log ends at {end}, but the query has read it up to {start}: it was cut, or is another log"
        if self._options.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"{loss}; failOnDataLoss=false goes on from there",
                topic=tp.topic, broker=tp.broker, partition=tp.partition, offset=start,
            )  # fmt: skip
        _log.warning("%s: %s; going on from %d", tp, loss, end)
        return end

    # how much of it

    def _waits_for_more(self, before: Ends, ends: Ends) -> bool:
        """Whether there is too little for a batch, and it may still wait (``minOffsetsPerTrigger``)."""
        least = self._options.min_bytes_per_trigger
        there = sum(max(end - before.get(tp, end), 0) for tp, end in ends.items())
        if least is None or not there:
            return False
        now = time.monotonic()
        if there < least and now - self._last_data < self._options.max_trigger_delay:
            return True
        self._last_data = now
        return False

    def _limited(self, before: Ends, ends: Ends, max_bytes: int | None) -> Ends:
        """The ends of a batch of about ``max_bytes``, shared out by how much each partition has."""
        there = sum(max(end - before.get(tp, end), 0) for tp, end in ends.items())
        if max_bytes is None or there <= max_bytes:
            return ends
        return {tp: self._share(tp, before.get(tp, end), end, max_bytes / there) for tp, end in ends.items()}

    def _share(self, tp: TopicPartition, start: int, end: int, part: float) -> int:
        if end <= start:
            return end
        limit = start + max(1, int((end - start) * part))
        try:
            return min(end, self._source.boundary(tp, start, limit))
        except (BrokerConnectionError, ZooKeeperError) as error:
            _log.warning("%s stays at %d in this batch: %s", tp, start, error)
            return start
        except OffsetOutOfRangeError:
            return end  # it begins later by now: the batch's own reading says so

    def _range(self, tp: TopicPartition, start: int, end: int) -> Range:
        if start <= end:
            return Range(*tp, start, end)
        return Range(*tp, end, end)  # latestOffset has judged that loss


class RefusedStreamReader(DataSourceStreamReader):
    """Raises ``error`` when Spark asks for the first time.

    Raised where the reader is made, Spark's runner stumbles over its own clean-up, and tells of that too.
    """

    def __init__(self, error: Exception):
        self._error = error

    @shortly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        raise self._error

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        return self.initialOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


def _patiently(ask: Callable[[], _R], forget: Callable[[], None]) -> _R:
    """What ``ask`` gives; tried again for BROKER_PATIENCE while brokers or ZooKeeper do not answer.

    ``forget`` is called before each further try, so that addresses are looked up anew.
    """
    until = time.monotonic() + BROKER_PATIENCE
    while True:
        try:
            return ask()
        except (BrokerConnectionError, ZooKeeperError) as error:
            if time.monotonic() > until:
                raise
            _log.warning("%s; trying again", error)
            forget()
            time.sleep(_PAUSE)
