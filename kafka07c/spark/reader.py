"""Reading ranges as the Arrow record batches that Spark takes as they are."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafka07c._arrow import gather
from kafka07c._views import MessageSet
from kafka07c.errors import CorruptMessageError, KafkaError
from kafka07c.names import TopicPartition
from kafka07c.ranges import Range, Source
from kafka07c.spark.options import COLUMNS, CORRUPT, HEADERS, Mode, OptionError, ReadOptions
from kafka07c.spark.planning import plan

__all__ = ["Kafka07Reader", "arrow_schema", "read_task", "record_batches"]

_log = logging.getLogger(__name__)

#: bytes per fetch: of messages of 139 bytes one fetch makes one batch, of 27 thousand rows. Measured with those, in
#: million rows a second and core up to Arrow's IPC form: 12.5 at 1 MiB, 13.5 at 2, 14.3 at 4, 10 at 8
FETCH_BYTES = 4 * 1024 * 1024

#: rows per record batch, but for the last of a range and for messages so large that MAX_BATCH_BYTES comes first
MIN_BATCH_ROWS = 16 * 1024
MAX_BATCH_ROWS = 64 * 1024

#: payload bytes after which a batch is full whatever its rows: bounds a task's memory
MAX_BATCH_BYTES = 32 * 1024 * 1024

#: exactly the Arrow forms of the Spark types: Spark refuses anything else, and looks at the first batch only
_ARROW_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "broker": pa.int32(),
    "index": pa.int32(),
    "next_offset": pa.int64(),
    HEADERS: pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    CORRUPT: pa.string(),
}

#: the columns that the core makes; all others are the same in every row of a partition
_READ_COLUMNS = frozenset({"value", "offset", "index", "next_offset"})

_P = ParamSpec("_P")
_R = TypeVar("_R")


def shortly(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Errors that tell the user something leave ``method`` without the trace of where they came from.

    Spark puts the whole Python traceback into the text of its own exception, above the one line that matters.
    """

    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(*args, **kwargs)
        except (KafkaError, OptionError) as error:
            raise error.with_traceback(None) from None

    return call


def arrow_schema(columns: Iterable[str] = COLUMNS) -> pa.Schema:
    """The schema of the batches that have these columns."""
    return pa.schema([(name, _ARROW_TYPES[name]) for name in columns])


class Kafka07Reader(DataSourceReader):
    """Plans the ranges in one process and reads each in another. Its constructor opens nothing."""

    def __init__(self, options: ReadOptions):
        self._options = options

    @shortly
    def partitions(self) -> list[InputPartition]:
        with self._options.open_source() as source:
            ranges = plan(self._options, source)
            # Each task gets the little of the source that it needs: no task asks ZooKeeper again.
            sources = {tp: source.only(tp) for tp in {wanted.tp for wanted in ranges}}
            tasks = [InputPartition((sources[wanted.tp], wanted)) for wanted in ranges]
        # Of an empty list Spark would make this one itself.
        return tasks or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition)


def read_task(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """What one task reads: ``partition`` has the source and the range, or None for nothing."""
    if partition.value is None:
        return
    source, wanted = partition.value
    try:
        with source:
            yield from record_batches(
                source, wanted,
                columns=options.columns, mode=options.mode, fail_on_data_loss=options.fail_on_data_loss,
            )  # fmt: skip
    except KafkaError as error:
        raise error.with_traceback(None) from None


def record_batches(
    source: Source,
    wanted: Range,
    *,
    columns: Sequence[str] = COLUMNS,
    mode: Mode = Mode.FAILFAST,
    fail_on_data_loss: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The messages of ``wanted`` as batches of ``arrow_schema(columns)``, each with memory of its own.

    A damaged entry: with FAILFAST a CorruptMessageError after the batches before it; with DROPMALFORMED it is left out,
    and a warning is logged with how much; with PERMISSIVE it is a row without a value, whose ``_corrupt`` says what is
    wrong with the bytes from its ``offset`` to its ``next_offset``.
    """
    rows = _Rows(wanted.tp, columns)
    policy: Literal["stop", "skip"] = "stop" if mode is Mode.FAILFAST else "skip"
    sets = source.read(wanted, on_corrupt=policy, fetch_bytes=FETCH_BYTES, fail_on_data_loss=fail_on_data_loss)
    dropped: list[CorruptMessageError] = []
    for found in _gathered(sets):
        if isinstance(found, pa.RecordBatch):
            yield from rows.cut(found)
        elif mode is Mode.FAILFAST:
            raise found
        elif mode is Mode.PERMISSIVE:
            yield rows.corrupt(found)
        else:
            dropped.append(found)
    if dropped:
        count = sum((error.next_offset or 0) - (error.offset or 0) for error in dropped)
        text = "%s: %d damaged stretches of %d bytes dropped; the first: %s"
        _log.warning(text, wanted, len(dropped), count, dropped[0])


def _gathered(sets: Iterable[MessageSet]) -> Iterator[pa.RecordBatch | CorruptMessageError]:
    """The columns of several sets at a time, MIN_BATCH_ROWS or more where there are so many; errors in between."""
    waiting: list[MessageSet] = []
    rows = size = 0
    for part in sets:
        good = part if part.error is None else part.good()
        if len(good):
            waiting.append(good)
            rows += len(good)
            size += int(good.lengths.sum())
        if waiting and (rows >= MIN_BATCH_ROWS or size >= MAX_BATCH_BYTES or part.error is not None):
            yield pa.record_batch(gather(waiting))
            waiting, rows, size = [], 0, 0
        if part.error is not None:
            yield part.error
    if waiting:
        yield pa.record_batch(gather(waiting))


class _Rows:
    """The rows of a partition. What is the same in all of them is made once and sliced for each batch."""

    def __init__(self, tp: TopicPartition, columns: Sequence[str]):
        self._schema = arrow_schema(columns)
        fixed = {"topic": tp.topic, "broker": tp.broker, "partition": tp.partition}
        self._fixed = {
            field.name: pa.repeat(pa.scalar(fixed.get(field.name), field.type), MAX_BATCH_ROWS)
            for field in self._schema
            if field.name not in _READ_COLUMNS
        }

    def cut(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """``batch`` (offset, index, next_offset, value) with the columns wanted, in pieces of up to MAX_BATCH_ROWS."""
        pieces = -(-batch.num_rows // MAX_BATCH_ROWS)
        rows = -(-batch.num_rows // pieces)
        for start in range(0, batch.num_rows, rows):
            yield self._beside(batch.slice(start, rows))

    def _beside(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            batch.column(name) if name in _READ_COLUMNS else self._fixed[name].slice(0, batch.num_rows)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def corrupt(self, error: CorruptMessageError) -> pa.RecordBatch:
        """One row for a damaged stretch of the log."""
        said = {"offset": error.offset, "index": 0, "next_offset": error.next_offset, CORRUPT: error.reason}
        columns = [
            pa.array([said.get(field.name)], field.type)
            if field.name in said or field.name in _READ_COLUMNS
            else self._fixed[field.name].slice(0, 1)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
