"""``archive()``: a stream of topics into an output folder of Parquet files, exactly once.

The stream carries ranges only: which offsets of which partition a batch is to have. For each batch tasks read their
ranges and write Parquet themselves, as those of a batch ingest do (see ``writer``), and the driver commits them with
one manifest (see ``manifest``). A partition goes on where the manifests end, whatever Spark's checkpoint says: a batch
that is run again after a crash finds there what it has done already, and does the rest.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from kafka07c.errors import BrokerConnectionError, CorruptMessageError, KafkaError, UndecodableError, ZooKeeperError
from kafka07c.names import TopicPartition
from kafka07c.ranges import OnCorrupt, Range, Source
from kafka07c.spark import ingest, options
from kafka07c.spark.layout import DEFAULT_LAYOUT, Layout
from kafka07c.spark.manifest import Output
from kafka07c.spark.planning import split
from kafka07c.spark.reader import shortly
from kafka07c.spark.remote import Out, RemoteOutput, open_output
from kafka07c.spark.report import PartitionReport
from kafka07c.spark.sessions import refuse_connect
from kafka07c.spark.stream import Kafka07StreamReader, offsets_from_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["BatchReport", "Kafka07RangesSource", "archive", "follow"]

_log = logging.getLogger(__name__)

_RANGES = StructType(
    [
        StructField("topic", StringType()),
        StructField("broker", IntegerType()),
        StructField("partition", IntegerType()),
        StructField("start", LongType()),
        StructField("end", LongType()),
    ]
)
_ARROW_RANGES = pa.schema(
    [
        ("topic", pa.string()),
        ("broker", pa.int32()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
    ]
)

#: a batch of which something could not be read is tried so often before the query fails, with growing pauses
_TRIES = 6
_FIRST_PAUSE = 1.0

#: seconds between two looks at whether to stop
_LOOK = 0.5


class Kafka07RangesSource(DataSource):
    """The ranges of each batch as rows; a partition new to the query comes with an empty one where it begins."""

    @classmethod
    def name(cls) -> str:
        return "kafka07-ranges"

    @shortly
    def schema(self) -> StructType:
        options.columns(self.options)
        return _RANGES

    @shortly
    def streamReader(self, schema: StructType) -> _RangesReader:  # noqa: N802 - Spark's name
        return _RangesReader(options.parse(self.options, streaming=True))


class _RangesReader(Kafka07StreamReader):
    @shortly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        before, after = offsets_from_json(start), offsets_from_json(end)
        rows = [(*tp, min(before.get(tp, offset), offset), offset) for tp, offset in sorted(after.items())]
        return [InputPartition(rows)] if rows else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        columns = zip(*partition.value, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW_RANGES, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW_RANGES)


def archive(
    read: Mapping[str, str],
    out: Out,
    *,
    spark: SparkSession | None = None,
    trigger: Mapping[str, Any] | None = None,
    on_corrupt: OnCorrupt = "stop",
    layout: Layout = DEFAULT_LAYOUT,
    checkpoint: str | os.PathLike[str] | None = None,
    query_name: str | None = None,
    on_batch: Callable[[BatchReport], object] | None = None,
) -> StreamingQuery:
    """Starts a query that keeps ``out`` up to date with the topics, and gives it back: it is Spark's own.

    ``read``: the options of ``readStream.format("kafka07")``, such as ``{"kafka07.zookeeper": …, "subscribe": …}``;
    it begins at the earliest offset unless they say otherwise, and where ``out`` ends if that holds something already.
    ``trigger``: arguments of Spark's ``trigger``, ``{"processingTime": "1 minute"}`` or ``{"availableNow": True}``, say
    (none: one batch after the other). ``on_corrupt``, ``layout``: as for `ingest`. ``checkpoint``: Spark's
    checkpoint, inside ``out`` unless given; only with it do ``maxBytesPerTrigger`` and the like go on where they were.

    ``on_batch`` is called with a BatchReport after each commit.

    Each message is in the files exactly once, whatever process is killed when. A batch that cannot be read to its end
    is tried a few times; then what there is is committed and the query fails; started again it goes on from there.

    Raises ManifestError (``out`` is locked, or holds something else), SourceChangedError (it was read from another
    source), ValueError (OptionError among them) for wrong arguments. ``out`` stays locked while the query is active.
    """
    batches = _begin(read, out, spark, on_corrupt, layout, on_batch)
    return batches.start(trigger, checkpoint, query_name)


def follow(
    read: Mapping[str, str],
    out: Out,
    *,
    interval: float,
    is_stopped: Callable[[], bool],
    spark: SparkSession | None = None,
    on_corrupt: OnCorrupt = "stop",
    layout: Layout = DEFAULT_LAYOUT,
    on_batch: Callable[[BatchReport], object] | None = None,
) -> None:
    """`archive` with a batch each ``interval`` seconds, until ``is_stopped()``.

    What makes the query fail is raised as it is, without Spark's wrapping.
    """
    batches = _begin(read, out, spark, on_corrupt, layout, on_batch)
    query = batches.start({"processingTime": f"{round(interval * 1000)} milliseconds"}, None, None)
    try:
        while query.isActive and not is_stopped():
            time.sleep(_LOOK)
        failure = query.exception()
    finally:
        query.stop()
        batches.ended.wait()
    if failure is not None:
        raise batches.failure or KafkaError(str(failure).split("\n")[0])


def _begin(
    read: Mapping[str, str],
    out: Out,
    spark: SparkSession | None,
    on_corrupt: OnCorrupt,
    layout: Layout,
    on_batch: Callable[[BatchReport], object] | None,
) -> _Batches:
    if on_corrupt not in ("stop", "skip"):
        raise ValueError(f"on_corrupt is stop or skip, not {on_corrupt!r}")
    read = {"startingOffsets": "earliest"} | dict(read)
    parsed = options.parse(read, streaming=True)
    topics = parsed.subscription.topics if isinstance(parsed.subscription, options.Subscribe) else ()
    ingest.check_layout(out, topics, on_corrupt, layout)
    source = parsed.open_source(live=True)
    if spark is None:
        import kafka07c.spark

        spark = kafka07c.spark.session(app="kafka07c archive")
    refuse_connect(spark, "archive()")
    spark.dataSource.register(Kafka07RangesSource)
    output = open_output(out)
    try:
        output.check_same(layout.to, ingest.columns_of(layout), output.path)
    except BaseException:
        output.close()
        raise
    return _Batches(spark, read, source, output, on_corrupt, layout, on_batch)


@dataclass(frozen=True)
class BatchReport:
    """One commit of a stream: ``batch_id`` as Spark counts, what came of each partition, seconds that it took.

    ``lag``: bytes of log that there are behind what is committed now; None where nobody says.
    """

    batch_id: int
    partitions: Sequence[PartitionReport]
    seconds: float
    lag: int | None

    @property
    def messages(self) -> int:
        """Messages committed."""
        return sum(each.messages for each in self.partitions)

    @property
    def bytes(self) -> int:
        """Bytes of log read."""
        return sum(each.bytes for each in self.partitions)

    @property
    def files(self) -> int:
        """Files committed."""
        return sum(len(each.files) for each in self.partitions)


class _Batches:
    """Takes one batch after the other into the output."""

    def __init__(
        self,
        spark: SparkSession,
        read: Mapping[str, str],
        source: Source,
        output: Output | RemoteOutput,
        on_corrupt: OnCorrupt,
        layout: Layout,
        on_batch: Callable[[BatchReport], object] | None,
    ):
        self._spark = spark
        self._read = read
        self._source = source
        self._output = output
        self._on_corrupt: OnCorrupt = on_corrupt
        self._layout = layout
        self._on_batch = on_batch
        self._checked: set[TopicPartition] = set()
        #: why the last batch was given up
        self.failure: Exception | None = None
        #: set once the query has ended, and the output is free again
        self.ended = threading.Event()

    def start(
        self, trigger: Mapping[str, Any] | None, checkpoint: str | os.PathLike[str] | None, name: str | None
    ) -> StreamingQuery:
        """Start the query; the output is closed when it ends."""
        checkpoint = checkpoint or self._checkpoint()
        try:
            writer = (
                self._spark.readStream.format("kafka07-ranges")
                .options(**self._read)
                .load()
                .writeStream.foreachBatch(self.take)
                .option("checkpointLocation", str(checkpoint))
            )
            if name is not None:
                writer = writer.queryName(name)
            query = (writer.trigger(**trigger) if trigger else writer).start()
        except BaseException:
            self._close()
            raise
        threading.Thread(target=self._close_behind, args=(query,), name="kafka07c-archive", daemon=True).start()
        return query

    def _checkpoint(self) -> str:
        """The one inside the output; emptied if it has no batch, for Spark does not take one with leftovers in it."""
        checkpoint = str(self._output.checkpoint)
        if isinstance(self._output, Output) and not any(Path(checkpoint, "offsets").glob("[0-9]*")):
            shutil.rmtree(checkpoint, ignore_errors=True)
        return checkpoint

    def _close_behind(self, query: StreamingQuery) -> None:
        try:
            query.awaitTermination()
        except Exception:
            pass  # whoever waits for the query is told
        finally:
            self._close()

    def _close(self) -> None:
        self._output.close()
        self._source.close()
        self.ended.set()

    def take(self, frame: DataFrame, batch_id: int) -> None:
        """One batch: what ``frame`` names and the manifests do not have yet."""
        try:
            self._take(frame, batch_id)
        except Exception as error:
            self.failure = error
            raise

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        wanted = [Range(row.topic, row.broker, row.partition, row.start, row.end) for row in frame.collect()]
        pause = _FIRST_PAUSE
        for tries_left in reversed(range(_TRIES)):
            failures = self._try(wanted, batch_id)
            # trying again does not change what is in the log
            data = (CorruptMessageError, UndecodableError)
            stopped = next((failure for failure in failures if isinstance(failure, data)), None)
            if stopped is not None or (failures and not tries_left):
                raise stopped or failures[0]
            if not failures:
                return
            _log.warning("batch %d: %s; trying again in %.0f s", batch_id, failures[0], pause)
            time.sleep(pause)
            pause *= 2

    def _try(self, wanted: list[Range], batch_id: int) -> list[Exception]:
        """Reads what is not there yet, and commits what of it fits; why the rest does not."""
        began = time.monotonic()
        try:
            plans = self._plans(wanted)
        except (BrokerConnectionError, ZooKeeperError) as error:  # such as a broker that is being started again
            self._source.close()  # its address is looked up anew
            return [error]
        stage: Any = self._output.stage()
        ingest.run_plans(self._spark, self._source, plans, stage, self._on_corrupt, self._layout)
        new = [p.report for p in plans if p.report.end > p.report.start or p.report.tp not in self._output.positions]
        if new:
            ingest.commit(self._output, stage, self._source, self._on_corrupt, self._layout, new)
            if self._on_batch is not None:
                self._on_batch(BatchReport(batch_id, new, time.monotonic() - began, self._lag(wanted)))
        else:
            self._output.discard(stage)
        return [plan.report.failure for plan in plans if plan.report.failure is not None]

    def _lag(self, wanted: list[Range]) -> int | None:
        try:
            ends = self._source.ends([each.tp for each in wanted])
        except KafkaError:
            return None
        return sum(max(0, end - self._output.positions[tp].end) for tp, end in ends.items())

    def _plans(self, wanted: list[Range]) -> list[ingest.Plan]:
        plans = {each.tp: plan for each in wanted if (plan := self._plan(each)) is not None}
        whole = [piece for plan in plans.values() for piece in plan.ranges]
        for plan in plans.values():
            plan.ranges = []
        for piece in split(self._source, whole):  # all at once: a question to a broker for each would take long
            plans[piece.tp].ranges.append(piece)
        return list(plans.values())

    def _plan(self, wanted: Range) -> ingest.Plan | None:
        """All that is wanted of a partition, in one piece; None where it is there already."""
        position = self._output.positions.get(wanted.tp)
        start = wanted.start if position is None else position.end
        if position is not None and wanted.tp not in self._checked:
            ingest.check_unchanged(self._source, wanted.tp, position, *self._source.bounds(wanted.tp))
        self._checked.add(wanted.tp)
        if position is not None and wanted.end <= start:
            return None
        report = PartitionReport(*wanted.tp, start=start, end=start)
        return ingest.Plan(report, [Range(*wanted.tp, start, max(start, wanted.end))])
