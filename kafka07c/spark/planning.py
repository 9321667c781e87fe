"""What a query's options mean for what is there now: the ranges that its tasks will read."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kafka07c.errors import OffsetOutOfRangeError, UnknownTopicError
from kafka07c.names import TopicPartition
from kafka07c.protocol import EARLIEST, LATEST
from kafka07c.ranges import Range, Source
from kafka07c.spark.options import Assign, Offsets, OptionError, ReadOptions, Subscribe, SubscribePattern, Times

__all__ = ["check_named", "partitions_of", "plan", "split", "starting_offset"]

#: a range is not cut finer than this by walking: a task costs some milliseconds too
_WORTH_A_TASK = 16 * 1024 * 1024


def plan(options: ReadOptions, source: Source) -> list[Range]:
    """The ranges to read, in order; none for what is empty.

    They are cut where segments start, and in archives also where a walk has found that entries begin, so that there is
    work for ``minPartitions`` tasks (without that option: for all cores). "latest" becomes the end that each log has
    now.

    Raises UnknownTopicError for a topic or partition that is not there, OffsetOutOfRangeError where the log does not
    have what is asked for (see ``failOnDataLoss``), and OptionError for offsets that do not fit the partitions, or that
    end before they start.
    """
    partitions = partitions_of(options.subscription, source)
    check_named("starting", options.starting, partitions)
    check_named("ending", options.ending, partitions)
    bounds = source.all_bounds(partitions)
    return split(source, [_range(tp, options, source, bounds[tp]) for tp in partitions], options.min_partitions)


def partitions_of(subscription: Subscribe | SubscribePattern | Assign, source: Source) -> list[TopicPartition]:
    """The partitions subscribed to that there are now. UnknownTopicError for one that is named and is not there."""
    if isinstance(subscription, Assign):
        return _assigned(subscription.partitions, source)
    if isinstance(subscription, Subscribe):
        topics: Iterable[str] = subscription.topics
    else:
        topics = [topic for topic in source.topics() if subscription.pattern.fullmatch(topic)]
    return source.partitions_of(topics)


def _assigned(wanted: tuple[TopicPartition, ...], source: Source) -> list[TopicPartition]:
    there = set(source.partitions_of({tp.topic for tp in wanted}))
    missing = [str(tp) for tp in wanted if tp not in there]
    if missing:
        raise UnknownTopicError(f"option assign names what {source.name} does not have: {', '.join(missing)}")
    return list(wanted)


def check_named(which: str, places: Offsets | Times, partitions: list[TopicPartition]) -> None:
    """As in Spark's Kafka source, offsets given one by one have to be given for all partitions: OptionError."""
    if places.by_partition is None:
        return
    option = f"{which}Offsets" if isinstance(places, Offsets) else f"{which}OffsetsByTimestamp"
    read, named = set(partitions), set(places.by_partition)
    if read - named:
        missing = ", ".join(map(str, sorted(read - named)))
        hint = "give -2 for earliest, -1 for latest" if isinstance(places, Offsets) else "give one for each"
        raise OptionError(f"option {option} has no offset for {missing}: {hint}")
    if named - read:
        unknown = ", ".join(map(str, sorted(named - read)))
        raise OptionError(f"option {option} has offsets for what this query does not read: {unknown}")


def starting_offset(tp: TopicPartition, options: ReadOptions, source: Source, bounds: tuple[int, int]) -> int:
    """Where a query begins in a partition whose log has these ``bounds``; a number given is taken as it is.

    A time gives the start of the segment that was last written to at that time or before: nothing later is missed.
    OffsetOutOfRangeError when all of the log is older and ``startingOffsetsByTimestampStrategy`` says error.
    """
    if isinstance(options.starting, Offsets):
        first = options.starting.of(tp)
        return {EARLIEST: bounds[0], LATEST: bounds[1]}.get(first, first)
    time_ms = options.starting.of(tp)
    offset = source.offset_before(tp, time_ms)
    if offset is None:
        return bounds[0]
    if offset == bounds[1] and not options.latest_if_none:
        raise OffsetOutOfRangeError(
            f"nothing here is from {time_ms} ms since 1970 or later; with startingOffsetsByTimestampStrategy=latest "
            "the query begins at the end then",
            topic=tp.topic, broker=tp.broker, partition=tp.partition, offset=offset,
        )  # fmt: skip
    return max(bounds[0], offset)


def _ending_offset(tp: TopicPartition, ending: Offsets | Times, source: Source, bounds: tuple[int, int]) -> int:
    if isinstance(ending, Offsets):
        last = ending.of(tp)
        return bounds[1] if last == LATEST else last
    offset = source.offset_before(tp, ending.of(tp))
    if offset is None:
        return bounds[0]
    return min((start for start in source.segment_starts(tp) if start > offset), default=bounds[1])


def _range(tp: TopicPartition, options: ReadOptions, source: Source, bounds: tuple[int, int]) -> Range:
    start = starting_offset(tp, options, source, bounds)
    end = _ending_offset(tp, options.ending, source, bounds)
    if start > end:
        from_earliest = options.starting == Offsets(EARLIEST) or start == bounds[0]
        if not from_earliest and end != bounds[1]:
            raise OptionError(f"{tp}: startingOffsets has {start}, which is after {end} in endingOffsets")
        # The log begins after the end that was asked for, or ends before the start: a loss, which within() judges.
        start = end = end if from_earliest else start
    return Range(*tp, start, end).within(bounds, fail_on_data_loss=options.fail_on_data_loss)


def split(source: Source, ranges: Iterable[Range], min_partitions: int | None = None) -> list[Range]:
    """The ranges cut where entries are proved to begin: see :func:`plan`."""
    pieces = source.split_all(ranges)
    wanted = min_partitions or os.cpu_count() or 1
    if not source.walks_cheaply or len(pieces) >= wanted:
        return pieces
    size = max(sum(piece.size for piece in pieces) / wanted, 1 if min_partitions else _WORTH_A_TASK)
    return [part for piece in pieces for part in _walked(source, piece, round(piece.size / size))]


def _walked(source: Source, piece: Range, parts: int) -> list[Range]:
    """About so many parts of equal size."""
    cuts = [piece.start]
    for number in range(1, parts):
        limit = piece.start + piece.size * number // parts
        if limit > cuts[-1]:
            cuts.append(source.boundary(piece.tp, cuts[-1], limit))
    return piece.cut_at(cuts)
