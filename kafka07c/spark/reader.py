"""Reading ranges as the Arrow record batches that Spark takes as they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafka07c._arrow import gather
from kafka07c._views import MessageSet
from kafka07c.errors import KafkaError
from kafka07c.names import TopicPartition
from kafka07c.ranges import Range, Source
from kafka07c.spark.options import OptionError, ReadOptions
from kafka07c.spark.planning import plan

__all__ = ["ARROW_SCHEMA", "Kafka07Reader", "record_batches"]

#: bytes per fetch: of messages of 139 bytes one fetch makes one batch, of 27 thousand rows. Measured with those, in
#: million rows a second and core up to Arrow's IPC form: 12.5 at 1 MiB, 13.5 at 2, 14.3 at 4, 10 at 8
FETCH_BYTES = 4 * 1024 * 1024

#: rows per record batch, but for the last of a range and for messages so large that MAX_BATCH_BYTES comes first
MIN_BATCH_ROWS = 16 * 1024
MAX_BATCH_ROWS = 64 * 1024

#: payload bytes after which a batch is full whatever its rows: bounds a task's memory
MAX_BATCH_BYTES = 32 * 1024 * 1024

#: exactly the Arrow form of the Spark schema: Spark refuses anything else, and looks at the first batch only
ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("broker", pa.int32()),
        ("index", pa.int32()),
        ("next_offset", pa.int64()),
    ]
)

#: the columns that the core makes; all others are the same in every row of a partition
_READ_COLUMNS = frozenset({"value", "offset", "index", "next_offset"})

_Method = TypeVar("_Method", bound=Callable)


def shortly(method: _Method) -> _Method:
    """Errors that tell the user something leave ``method`` without the trace of where they came from.

    Spark puts the whole Python traceback into the text of its own exception, above the one line that matters.
    """

    @functools.wraps(method)
    def call(*args, **kwargs):
        try:
            return method(*args, **kwargs)
        except (KafkaError, OptionError) as error:
            raise error.with_traceback(None) from None

    return call


class Kafka07Reader(DataSourceReader):
    """Plans the ranges in one process and reads each in another. Its constructor opens nothing."""

    def __init__(self, options: ReadOptions):
        self._options = options

    @shortly
    def partitions(self) -> list[InputPartition]:
        with self._options.open_source() as source:
            ranges = plan(self._options, source)
            # Each task gets the little of the source that it needs: no task asks ZooKeeper again.
            tasks = [InputPartition((source.only(wanted.tp), wanted)) for wanted in ranges]
        # Of an empty list Spark would make this one itself.
        return tasks or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        source, wanted = partition.value
        try:
            with source:
                yield from record_batches(source, wanted, fail_on_data_loss=self._options.fail_on_data_loss)
        except KafkaError as error:
            raise error.with_traceback(None) from None


def record_batches(source: Source, wanted: Range, *, fail_on_data_loss: bool = True) -> Iterator[pa.RecordBatch]:
    """The messages of ``wanted`` as batches of ARROW_SCHEMA, each with memory of its own.

    CorruptMessageError at a damaged entry, after the batches before it.
    """
    fixed = _FixedColumns(wanted.tp)
    sets = source.read(wanted, fetch_bytes=FETCH_BYTES, fail_on_data_loss=fail_on_data_loss)
    for batch in _gathered(sets):
        pieces = -(-batch.num_rows // MAX_BATCH_ROWS)
        rows = -(-batch.num_rows // pieces)
        for start in range(0, batch.num_rows, rows):
            yield fixed.beside(batch.slice(start, rows))


def _gathered(sets: Iterable[MessageSet]) -> Iterator[pa.RecordBatch]:
    """The columns of several message sets at a time, MIN_BATCH_ROWS or more where there are so many."""
    waiting, rows, size = [], 0, 0
    for part in sets:
        if part.error is not None:
            raise part.error
        if not len(part):
            continue
        waiting.append(part)
        rows += len(part)
        size += int(part.lengths.sum())
        if rows >= MIN_BATCH_ROWS or size >= MAX_BATCH_BYTES:
            yield pa.record_batch(gather(waiting))
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.record_batch(gather(waiting))


class _FixedColumns:
    """The columns that are the same in every row of a partition, made once and sliced for each batch."""

    def __init__(self, tp: TopicPartition):
        fixed = {"topic": tp.topic, "broker": tp.broker, "partition": tp.partition}
        self._columns = {
            field.name: pa.repeat(pa.scalar(fixed.get(field.name), field.type), MAX_BATCH_ROWS)
            for field in ARROW_SCHEMA
            if field.name not in _READ_COLUMNS
        }

    def beside(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """``batch`` (offset, index, next_offset, value; MAX_BATCH_ROWS at most) with the other columns around it."""
        columns = [
            batch.column(name) if name in _READ_COLUMNS else self._columns[name].slice(0, batch.num_rows)
            for name in ARROW_SCHEMA.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)
