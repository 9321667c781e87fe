"""What a query's options mean for what is there now: the ranges that its tasks will read."""

from __future__ import annotations

from kafka07c.errors import UnknownTopicError
from kafka07c.names import TopicPartition
from kafka07c.protocol import EARLIEST, LATEST
from kafka07c.ranges import Range, Source
from kafka07c.spark.options import Assign, Offsets, OptionError, ReadOptions, Subscribe, SubscribePattern

__all__ = ["plan"]


def plan(options: ReadOptions, source: Source) -> list[Range]:
    """The ranges to read, one for each partition and segment, in order; none for what is empty.

    "latest" becomes the end that each log has now. Raises UnknownTopicError for a topic or partition that is not there,
    OffsetOutOfRangeError where the log does not have what is asked for (see ``failOnDataLoss``), and OptionError for
    offsets that do not fit the partitions, or that end before they start.
    """
    partitions = _partitions(options.subscription, source)
    _check_named("startingOffsets", options.starting, partitions)
    _check_named("endingOffsets", options.ending, partitions)
    ranges = []
    for tp in partitions:
        ranges += source.split(_range(tp, options, source.bounds(tp)))
    return ranges


def _partitions(subscription: Subscribe | SubscribePattern | Assign, source: Source) -> list[TopicPartition]:
    if isinstance(subscription, Assign):
        return _assigned(subscription.partitions, source)
    if isinstance(subscription, Subscribe):
        topics = subscription.topics
    else:
        topics = [topic for topic in source.topics() if subscription.pattern.fullmatch(topic)]
    return [tp for topic in topics for tp in source.partitions(topic)]


def _assigned(wanted: tuple[TopicPartition, ...], source: Source) -> list[TopicPartition]:
    there = {tp for topic in {tp.topic for tp in wanted} for tp in source.partitions(topic)}
    missing = [str(tp) for tp in wanted if tp not in there]
    if missing:
        raise UnknownTopicError(f"option assign names what {source.name} does not have: {', '.join(missing)}")
    return list(wanted)


def _check_named(option: str, offsets: Offsets, partitions: list[TopicPartition]) -> None:
    """As in Spark's Kafka source, offsets given one by one have to be given for all partitions."""
    if offsets.by_partition is None:
        return
    read, named = set(partitions), set(offsets.by_partition)
    if read - named:
        missing = ", ".join(map(str, sorted(read - named)))
        raise OptionError(f"option {option} has no offset for {missing}: give -2 for earliest, -1 for latest")
    if named - read:
        unknown = ", ".join(map(str, sorted(named - read)))
        raise OptionError(f"option {option} has offsets for what this query does not read: {unknown}")


def _range(tp: TopicPartition, options: ReadOptions, bounds: tuple[int, int]) -> Range:
    first, last = options.starting.of(tp), options.ending.of(tp)
    start = bounds[0] if first == EARLIEST else first
    end = bounds[1] if last == LATEST else last
    if start > end:
        if first != EARLIEST and last != LATEST:
            raise OptionError(f"{tp}: startingOffsets has {start}, which is after {end} in endingOffsets")
        # The log begins after the end that was asked for, or ends before the start: a loss, which within() judges.
        start = end = end if first == EARLIEST else start
    return Range(*tp, start, end).within(bounds, fail_on_data_loss=options.fail_on_data_loss)
