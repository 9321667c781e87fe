"""One task of an ingest: a range of one partition becomes staged Parquet files. Runs in Spark's Python workers.

The columns are those of the Spark source without the ones that 0.7 has nothing for (key, timestamp):
``topic string, broker int32, partition int32, offset int64, index int32, next_offset int64, value binary``.
(topic, broker, partition, offset, index) names a message for ever; ``offset`` is where its stored entry begins.

Memory stays flat whatever the range's size: message sets are gathered into batches, batches into one row group of each
file that is open, and a row group goes to the file once it is large enough (see ``files``).
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from kafka07c._arrow import gather
from kafka07c._views import MessageSet
from kafka07c.errors import CorruptMessageError, KafkaError
from kafka07c.ranges import OnCorrupt, Range, Source
from kafka07c.spark.files import ParquetFile
from kafka07c.spark.layout import Layout
from kafka07c.spark.manifest import CorruptRange, LastEntry, date_folder, encoded

__all__ = ["SCHEMA", "RangeResult", "StagedFile", "last_entry", "write_range"]

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
BATCH_ROWS = 65536
BATCH_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file in the staging folder: ``name`` there, the offsets that it covers, rows, and its size in bytes.

    ``folder``: where it is to lie in the output; ``""``, or with a ``/`` at its end.
    """

    name: str
    folder: str
    start: int
    end: int
    rows: int
    bytes: int


@dataclass(slots=True)
class RangeResult:
    """What a task did with its range; pickled back to the driver.

    ``end`` is the offset after the last entry that was taken, or left out as ``corrupt``. ``files`` are in the staging
    folder; none when there were no rows. ``stopped``: the corrupt entry at ``end`` that ended the range. ``failure``:
    the task gave up, and nothing of it counts.
    """

    range: Range
    end: int
    messages: int = 0
    bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    last: LastEntry | None = None
    corrupt: list[CorruptRange] = field(default_factory=list)
    files: list[StagedFile] = field(default_factory=list)
    seconds: float = 0.0
    stopped: CorruptMessageError | None = None
    failure: Exception | None = None


def write_range(
    source: Source, range: Range, stage: Path, slot: int, *, on_corrupt: OnCorrupt, layout: Layout
) -> RangeResult:
    """Reads ``range`` and writes its messages to files in ``stage``, fsynced when this returns.

    After each message set the bytes read so far are put into ``slot`` of the stage's progress file.
    Errors of the source and of the file system are not raised, they are the result's ``failure``.
    """
    began = time.perf_counter()
    writer = _Writer(stage, range, layout)
    result = RangeResult(range, range.start)
    try:
        try:
            with Progress(stage) as progress:
                for each in source.read(range, on_corrupt=on_corrupt):
                    _take(each, writer, result, on_corrupt)
                    progress.put(slot, result.end - range.start)
            result.files = writer.finish(result.end)
        finally:
            source.close()
    except (KafkaError, OSError, OverflowError, pa.ArrowException) as error:
        writer.discard()
        return RangeResult(range, range.start, failure=error, seconds=time.perf_counter() - began)
    result.bytes = result.end - range.start - sum(bad.end - bad.start for bad in result.corrupt)
    result.messages = sum(file.rows for file in result.files)
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
    """Message sets in, files out: one at a time for each folder, and no file without rows."""

    def __init__(self, stage: Path, range: Range, layout: Layout):
        self._stage = stage
        self._range = range
        self._layout = layout
        self._topic_folder = f"topic={encoded(range.topic)}/" if layout.by_topic else ""
        self._schema = SCHEMA.remove(SCHEMA.get_field_index("topic")) if layout.by_topic else SCHEMA
        self._open: dict[str, ParquetFile] = {}
        self._done: list[StagedFile] = []
        self._sets: list[MessageSet] = []
        self._set_rows = self._set_bytes = 0
        self._start = self._end = range.start  # of the sets that wait

    def add(self, each: MessageSet) -> None:
        """Take the messages of a set."""
        self._sets.append(each)
        self._set_rows += len(each)
        self._set_bytes += int(each.lengths.sum(dtype=np.int64))
        self._end = each.next_offset
        if self._set_rows >= BATCH_ROWS or self._set_bytes >= BATCH_BYTES:
            self._gather(self._end)

    def finish(self, end: int) -> list[StagedFile]:
        """Write the rest; the files, in the order of what they cover. ``end``: where the range was read to."""
        if self._sets:
            self._gather(end)
        for folder in list(self._open):
            self._close(folder, end)
        return sorted(self._done, key=lambda file: (file.start, file.folder))

    def discard(self) -> None:
        """Give up."""
        self._sets = []
        for file in self._open.values():
            file.discard()
        for done in self._done:
            (self._stage / done.name).unlink(missing_ok=True)

    def _gather(self, end: int) -> None:
        rows = self._rows(pa.record_batch(gather(self._sets)))
        self._sets, self._set_rows, self._set_bytes = [], 0, 0
        for folder, part in self._by_folder(rows):
            file = self._open.get(folder)
            if file is None:
                path = self._stage / f"{uuid.uuid4().hex}.staged"
                file = ParquetFile(path, self._schema, self._layout.compression, self._start)
                self._open[folder] = file
            file.add(part)
            if file.size >= self._layout.target_bytes:
                self._close(folder, end)
        self._start = end

    def _rows(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """``columns`` (offset, index, next_offset, value) with the columns that name the partition."""
        count = columns.num_rows
        made = {
            "topic": lambda: pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [self._range.topic]),
            "broker": lambda: pa.array(np.full(count, self._range.broker, np.int32)),
            "partition": lambda: pa.array(np.full(count, self._range.partition, np.int32)),
        }
        arrays = [made[name]() if name in made else columns.column(name) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _by_folder(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._layout.date is None:
            yield self._topic_folder, rows
            return
        dates = self._layout.date(rows.column("value")).cast(pa.string()).dictionary_encode()
        names = [*dates.dictionary.to_pylist(), None]
        codes = dates.indices.fill_null(len(names) - 1).to_numpy()
        for code in np.unique(codes).tolist():
            folder = f"{self._topic_folder}date={date_folder(names[code])}/"
            yield folder, rows.take(pa.array(np.flatnonzero(codes == code)))

    def _close(self, folder: str, end: int) -> None:
        """``end``: what the file covers ends where the next one of its folder begins, or the range."""
        file = self._open.pop(folder)
        size = file.finish()
        self._done.append(StagedFile(file.path.name, folder, file.start, end, file.rows, size))


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
