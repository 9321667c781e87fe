"""What streaming queries do, as figures: in the registry, and under the names, that a consumer counts with."""

from __future__ import annotations

import json
import logging
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from kafka07c import metrics as names
from kafka07c.metrics import Metrics
from kafka07c.names import TopicPartition
from kafka07c.spark.stream import offsets_from_json

__all__ = ["MetricsListener", "add_metrics", "offsets_of"]

_log = logging.getLogger(__name__)

#: what a partition's figures are called
_OF_PARTITION = (names.CONSUMED_OFFSET, names.LATEST_OFFSET, names.OFFSET_LAG)


def add_metrics(spark: SparkSession, metrics: Metrics) -> MetricsListener:
    """Count what the session's streaming queries do in ``metrics``, from now on; give the listener to
    ``spark.streams.removeListener`` to end it.

    ``StreamingQuery.Rows``, ``.Batches``, ``.RowsPerSecond``, ``.BatchMs`` by ``query`` (its name, else its id); and
    for each partition that a ``kafka07`` stream reads the consumers' ``ConsumerStats.ConsumedOffset``,
    ``.LatestOffset`` and ``.OffsetLag``, in bytes of the log, with the query in the place of the ``group``.
    """
    listener = MetricsListener(metrics)
    spark.streams.addListener(listener)
    return listener


def offsets_of(progress: StreamingQueryProgress) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where a query is in each partition, and where the partitions' logs ended when it was asked last.

    What other sources say of themselves is left out.
    """
    done: dict[TopicPartition, int] = {}
    latest: dict[TopicPartition, int] = {}
    for source in progress.sources:
        done |= _parsed(source.endOffset)
        latest |= _parsed(source.latestOffset)
    return done, latest


def _parsed(text: Any) -> dict[TopicPartition, int]:
    try:
        return offsets_from_json(json.loads(text) or {})
    except (ValueError, TypeError, AttributeError):
        return {}  # another source's, in a form of its own


class MetricsListener(StreamingQueryListener):
    """Spark calls it from a thread of its own."""

    def __init__(self, metrics: Metrics):
        self._metrics = metrics
        self._names: dict[str, str] = {}
        self._partitions: dict[str, set[TopicPartition]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        try:
            self._count(event.progress)
        except Exception:  # Spark would hide it, and never call again
            _log.exception("a query's progress could not be counted")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing new: the figures stay."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        query = self._names.pop(str(event.id), str(event.id))
        for tp in self._partitions.pop(query, ()):
            for name in _OF_PARTITION:
                self._metrics.remove(name, group=query, topic=tp.topic, broker=tp.broker, partition=tp.partition)

    def _count(self, progress: StreamingQueryProgress) -> None:
        query = progress.name or str(progress.id)
        self._metrics.counter("StreamingQuery.Batches", query=query).inc()
        self._metrics.counter("StreamingQuery.Rows", query=query).inc(progress.numInputRows)
        self._metrics.gauge("StreamingQuery.RowsPerSecond", query=query).set(progress.processedRowsPerSecond)
        self._metrics.gauge("StreamingQuery.BatchMs", query=query).set(progress.batchDuration)
        done, latest = offsets_of(progress)
        for tp, offset in done.items():
            end = max(latest.get(tp, offset), offset)
            labels = {"group": query, "topic": tp.topic, "broker": tp.broker, "partition": tp.partition}
            for name, value in zip(_OF_PARTITION, (offset, end, end - offset), strict=True):
                self._metrics.gauge(name, **labels).set(value)
        self._partitions.setdefault(query, set()).update(done)
