"""One task of an ingest: a range of one partition becomes one staged Parquet file. Runs in Spark's Python workers.

The columns are those of the Spark source without the ones that 0.7 has nothing for (key, timestamp):
``topic string, broker int32, partition int32, offset int64, index int32, next_offset int64, value binary``.
(topic, broker, partition, offset, index) names a message for ever; ``offset`` is where its stored entry begins.

Memory stays flat whatever the range's size: message sets are gathered into batches, batches into one row group, and a
row group goes to the file once it holds ROW_GROUP_BYTES of values or ROW_GROUP_ROWS rows.
"""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafka07c._arrow import gather
from kafka07c._views import MessageSet
from kafka07c.errors import CorruptMessageError, KafkaError
from kafka07c.ranges import OnCorrupt, Range, Source
from kafka07c.spark.manifest import CorruptRange, LastEntry

__all__ = ["COMPRESSIONS", "SCHEMA", "RangeResult", "last_entry", "write_range"]

SCHEMA = pa.schema(
    [
        # a dictionary in memory only: the files say string (store_schema=False)
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("broker", pa.int32(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("index", pa.int32(), nullable=False),
        pa.field("next_offset", pa.int64(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")

BATCH_ROWS = 65536
BATCH_BYTES = 8 << 20
ROW_GROUP_ROWS = 262144
ROW_GROUP_BYTES = 32 << 20

# Measured on 600 000 events of 125 B: offsets as deltas save a quarter of the file and a tenth of the time; a
# dictionary for values costs a third of the time and gains nothing. Statistics of values help nobody. zstd instead of
# snappy makes files smaller by a third, and takes a fifth longer.
_ENCODINGS = {"offset": "DELTA_BINARY_PACKED", "next_offset": "DELTA_BINARY_PACKED"}
_DICTIONARIES = ["topic", "broker", "partition", "index"]
_STATISTICS = [name for name in SCHEMA.names if name != "value"]


@dataclass(slots=True)
class RangeResult:
    """What a task did with its range; pickled back to the driver.

    ``end`` is the offset after the last entry that was taken, or left out as ``corrupt``. ``staged`` is the file's name
    in the staging folder, None when there were no rows. ``stopped``: the corrupt entry at ``end`` that ended the range.
    ``failure``: the task gave up, and nothing of it counts.
    """

    range: Range
    end: int
    messages: int = 0
    bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    last: LastEntry | None = None
    corrupt: list[CorruptRange] = field(default_factory=list)
    staged: str | None = None
    file_bytes: int = 0
    seconds: float = 0.0
    stopped: CorruptMessageError | None = None
    failure: Exception | None = None


def write_range(
    source: Source, range: Range, stage: Path, slot: int, *, on_corrupt: OnCorrupt, compression: str
) -> RangeResult:
    """Reads ``range`` and writes its messages to a file in ``stage``, fsynced when this returns.

    After each message set the bytes read so far are put into ``slot`` of the stage's progress file.
    Errors of the source and of the file system are not raised, they are the result's ``failure``.
    """
    began = time.perf_counter()
    name = f"{uuid.uuid4().hex}.staged"
    writer = _Writer(stage / name, range, compression)
    result = RangeResult(range, range.start)
    try:
        try:
            with Progress(stage) as progress:
                for each in source.read(range, on_corrupt=on_corrupt):
                    _take(each, writer, result, on_corrupt)
                    progress.put(slot, result.end - range.start)
            writer.finish()
        finally:
            source.close()
    except (KafkaError, OSError, OverflowError, pa.ArrowException) as error:
        writer.discard()
        return RangeResult(range, range.start, failure=error, seconds=time.perf_counter() - began)
    result.bytes = result.end - range.start - sum(bad.end - bad.start for bad in result.corrupt)
    if writer.rows:
        result.messages, result.staged, result.file_bytes = writer.rows, name, (stage / name).stat().st_size
    result.seconds = time.perf_counter() - began
    return result


def _take(each: MessageSet, writer: _Writer, result: RangeResult, on_corrupt: OnCorrupt) -> None:
    error, good = each.error, each.good()
    result.end = good.next_offset
    result.last = last_entry(good) or result.last
    if error is not None:
        if not isinstance(error, CorruptMessageError):
            raise error
        if on_corrupt == "stop":
            # Whole entries only: the good messages at the beginning of a damaged wrapper stay out, because a run that
            # goes on here begins with that wrapper.
            good = MessageSet(good.data[: good.valid_bytes], good.base_offset)
            result.stopped = error
        else:
            # reading with "skip" says where it goes on
            assert error.offset is not None and error.next_offset is not None
            result.end = error.next_offset
            result.corrupt.append(CorruptRange(error.offset, error.next_offset, error.reason))
    if len(good):
        if result.first_offset is None:
            result.first_offset = int(good.offsets[0])
        result.last_offset = int(good.offsets[-1])
        writer.add(good)


def last_entry(good: MessageSet) -> LastEntry | None:
    """The last whole entry, as it is stored, of a set without an error; None if there is none.

    Only the bytes from the last message's entry on are walked again (empty wrappers, without messages, may follow it).
    """
    if not good.valid_bytes:
        return None
    begin = 0
    # a damaged wrapper's first messages come after the whole entries
    whole = int(np.searchsorted(good.offsets, good.next_offset))
    if whole:
        begin = int(good.offsets[whole - 1]) - good.base_offset
    stored = MessageSet(good.data[begin : good.valid_bytes], good.base_offset + begin, shallow=True)[-1]
    return LastEntry(stored.offset, stored.next_offset, stored.crc)


class _Writer:
    """Message sets in, one Parquet file out; no file as long as there are no rows."""

    def __init__(self, path: Path, range: Range, compression: str):
        self.path = path
        self.rows = 0
        self._range = range
        self._compression = compression
        self._file: pq.ParquetWriter | None = None
        self._sets: list[MessageSet] = []
        self._set_rows = self._set_bytes = 0
        self._batches: list[pa.RecordBatch] = []
        self._group_rows = self._group_bytes = 0

    def add(self, each: MessageSet) -> None:
        self._sets.append(each)
        self._set_rows += len(each)
        self._set_bytes += int(each.lengths.sum(dtype=np.int64))
        if self._set_rows >= BATCH_ROWS or self._set_bytes >= BATCH_BYTES:
            self._gather()
            if self._group_rows >= ROW_GROUP_ROWS or self._group_bytes >= ROW_GROUP_BYTES:
                self._write()

    def finish(self) -> None:
        """Writes the rest, and sees to it that the file is on disk."""
        if self._sets:
            self._gather()
        if self._batches:
            self._write()
        if self._file is not None:
            self._file.close()
            self._file = None
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def discard(self) -> None:
        """Gives up: on a full disk the file's room may be wanted at once."""
        file, self._file = self._file, None
        self._sets, self._batches = [], []
        if file is not None:
            try:
                file.close()
            except (OSError, pa.ArrowException):
                pass  # it could not write before either
        self.path.unlink(missing_ok=True)

    def _gather(self) -> None:
        columns = pa.record_batch(gather(self._sets))
        count = columns.num_rows
        topic = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [self._range.topic])
        broker = pa.array(np.full(count, self._range.broker, np.int32))
        partition = pa.array(np.full(count, self._range.partition, np.int32))
        self._batches.append(
            pa.RecordBatch.from_arrays(
                [topic, broker, partition, *(columns.column(name) for name in SCHEMA.names[3:])], schema=SCHEMA
            )
        )
        self._group_rows += count
        self._group_bytes += self._set_bytes
        self._sets, self._set_rows, self._set_bytes = [], 0, 0

    def _write(self) -> None:
        if self._file is None:
            self._file = pq.ParquetWriter(
                self.path, SCHEMA, compression=self._compression, store_schema=False,
                use_dictionary=_DICTIONARIES, column_encoding=_ENCODINGS, write_statistics=_STATISTICS,
            )  # fmt: skip
        self._file.write_table(pa.Table.from_batches(self._batches), row_group_size=self._group_rows)
        self.rows += self._group_rows
        self._batches, self._group_rows, self._group_bytes = [], 0, 0


class Progress:
    """How far each task is, in a file that all tasks and the driver see: 8 bytes per slot, bytes of log read."""

    def __init__(self, stage: Path):
        self._descriptor = os.open(stage / "progress", os.O_RDWR | os.O_CREAT, 0o666)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._descriptor)

    def put(self, slot: int, bytes_done: int) -> None:
        os.pwrite(self._descriptor, bytes_done.to_bytes(8, "little"), slot * 8)

    def total(self) -> int:
        """The sum over all slots. A slot that was never written counts as 0."""
        data = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)
        return int(np.frombuffer(data[: len(data) // 8 * 8], "<i8").sum())
