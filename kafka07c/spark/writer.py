"""One task of an ingest: a range of one partition becomes files, of Parquet usually. Runs in Spark's Python workers.

The columns of messages that no decoder takes apart are those of the Spark source without the ones that 0.7 has nothing
for (key, timestamp):
``topic string, broker int32, partition int32, offset int64, index int32, next_offset int64, value binary``.
(topic, broker, partition, offset, index) names a message for ever; ``offset`` is where its stored entry begins.
A decoder's columns stand in the place of ``value``.

Memory stays flat whatever the range's size: message sets are gathered into batches, batches into one row group of each
file that is open, and a row group goes to the file once it is large enough (see ``files``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka07c._arrow import gather
from kafka07c._views import MessageSet
from kafka07c.errors import CorruptMessageError, KafkaError, UndecodableError
from kafka07c.ranges import OnCorrupt, Range, Source
from kafka07c.spark.decoders import Decoder, decoded
from kafka07c.spark.files import OutputFile, ParquetFile
from kafka07c.spark.formats import SegmentFile, open_file
from kafka07c.spark.layout import ERROR, OUR_COLUMNS, RAW, Layout
from kafka07c.spark.manifest import DEAD_LETTERS, CorruptRange, LastEntry, date_folder, encoded
from kafka07c.spark.stages import Stage, as_stage

__all__ = ["DEAD_SCHEMA", "SCHEMA", "RangeResult", "StagedFile", "last_entry", "schema_of", "write_range"]

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
#: of the files with messages that did not decode
DEAD_SCHEMA = SCHEMA.append(pa.field("error", pa.string(), nullable=False))
#: what dates are made of, beside decoded columns; no decoder has such a name
_PAYLOAD = "\0payload"
BATCH_ROWS = 65536
BATCH_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file in the staging folder: ``name`` there, the offsets that it covers, rows, and its size in bytes.

    ``folder``: where it is to lie in the output; ``""``, or with a ``/`` at its end. ``suffix``: how its name is to
    end. ``path``: its place in the output, if it lies there already.
    """

    name: str
    folder: str
    start: int
    end: int
    rows: int
    bytes: int
    suffix: str = ".parquet"
    path: str = ""


@dataclass(slots=True)
class RangeResult:
    """What a task did with its range; pickled back to the driver.

    ``end`` is the offset after the last entry that was taken, or left out as ``corrupt``. ``files`` are in the staging
    folder; none when there were no rows. ``stopped``: what is at ``end`` and ended the range, a corrupt entry or a
    message that does not decode. ``undecodable``: messages that did not decode, and are in ``files`` as such or in
    ``dead_letters``. ``failure``: the task gave up, and nothing of it counts.
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
    undecodable: int = 0
    dead_letters: list[StagedFile] = field(default_factory=list)
    seconds: float = 0.0
    stopped: CorruptMessageError | UndecodableError | None = None
    failure: Exception | None = None

    @property
    def lands_on(self) -> int | None:
        """Where the last entry that was walked over ends; None: the range was not read to its end."""
        if self.failure is not None or self.stopped is not None:
            return None
        # not ``end``: going on behind damage, reading may have leapt there
        return self.range.start if self.last is None else self.last.next_offset


def write_range(
    source: Source, range: Range, stage: Stage | Path, slot: int, *, on_corrupt: OnCorrupt, layout: Layout
) -> RangeResult:
    """Reads ``range`` and writes its messages to files in ``stage``, fsynced when this returns.

    After each message set the bytes read so far are put into ``slot`` of the stage's progress file.
    Errors of the source and of the file system are not raised, they are the result's ``failure``.
    """
    began = time.perf_counter()
    stage = as_stage(stage)
    writer = _Segments(stage, range, layout) if layout.to == "kafka07" else _Rows(stage, range, layout)
    result = RangeResult(range, range.start)
    try:
        try:
            with stage.progress() as progress:
                for each in source.read(range, on_corrupt=on_corrupt):
                    _take(each, writer, result, on_corrupt)
                    progress.put(slot, result.end - range.start)
                    if writer.stopped is not None:
                        break
            files = writer.finish(result.end)
        finally:
            source.close()
    except (KafkaError, OSError, OverflowError, ValueError, pa.ArrowException) as error:
        writer.discard()
        return RangeResult(range, range.start, failure=error, seconds=time.perf_counter() - began)
    if writer.stopped is not None:
        _end_at(writer.stopped, result)
    result.files = [file for file in files if file.folder != DEAD_LETTERS]
    result.dead_letters = [file for file in files if file.folder == DEAD_LETTERS]
    result.undecodable = writer.undecodable
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
    if good.valid_bytes or len(good):
        writer.add(good)


def _end_at(stop: _Stop, result: RangeResult) -> None:
    """The range ends before the entry of a message that does not decode, which earlier sets may have gone past."""
    result.stopped = stop.error
    result.end = stop.offset
    result.last = stop.last
    result.last_offset = stop.last_offset
    result.corrupt = [bad for bad in result.corrupt if bad.end <= stop.offset]


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


@dataclass(slots=True)
class _Stop:
    """Where a message does not decode: the offset of its entry, and what came before it."""

    error: UndecodableError
    offset: int
    last: LastEntry | None
    last_offset: int | None


class _Writer:
    """Message sets in, files out."""

    def __init__(self, stage: Stage, range: Range, layout: Layout):
        self._stage = stage
        self._range = range
        self._layout = layout
        self._open: dict[str, OutputFile] = {}
        self._done: list[tuple[OutputFile, StagedFile]] = []
        #: a message that ended the range
        self.stopped: _Stop | None = None
        #: messages that did not decode, and are somewhere
        self.undecodable = 0

    def add(self, each: MessageSet) -> None:
        """Take the messages of a set."""
        raise NotImplementedError

    def finish(self, end: int) -> list[StagedFile]:
        """Write the rest; the files, in the order of what they cover. ``end``: where the range was read to."""
        for folder in list(self._open):
            self._close(folder, end)
        return sorted((staged for _, staged in self._done), key=lambda file: (file.start, file.folder))

    def discard(self) -> None:
        """Give up."""
        for file in self._open.values():
            file.discard()
        for file, _ in self._done:
            self._stage.remove(file.target)

    def _close(self, folder: str, end: int) -> None:
        """``end``: what the file covers ends where the next one of its folder begins, or the range."""
        file = self._open.pop(folder)
        size = file.finish()
        suffix = ".parquet" if folder == DEAD_LETTERS else self._layout.suffix
        target = file.target
        staged = StagedFile(target.name, folder, file.start, end, file.rows, size, suffix, target.path)
        self._done.append((file, staged))


class _Segments(_Writer):
    """0.7's own files. A range's first one begins with the range, and so does each after the target size."""

    def add(self, each: MessageSet) -> None:
        file = self._open.get("")
        if file is None:
            file = SegmentFile(self._stage.create(self._range.tp, each.base_offset, "", ".kafka"), each.base_offset)
            self._open[""] = file
        assert isinstance(file, SegmentFile)
        file.append(each)
        if file.size >= self._layout.target_bytes:
            self._close("", each.next_offset)


class _Rows(_Writer):
    """Files of rows: one at a time for each folder, and no file without rows."""

    def __init__(self, stage: Stage, range: Range, layout: Layout):
        super().__init__(stage, range, layout)
        self._topic_folder = f"topic={encoded(range.topic)}/" if layout.by_topic else ""
        self._schema = schema_of(layout)
        self._sets: list[MessageSet] = []
        self._set_rows = self._set_bytes = 0
        self._start = range.start  # of the sets that wait
        self._last: LastEntry | None = None  # before those
        self._last_offset: int | None = None

    def add(self, each: MessageSet) -> None:
        if not len(each):
            return
        self._sets.append(each)
        self._set_rows += len(each)
        self._set_bytes += int(each.lengths.sum(dtype=np.int64))
        if self._set_rows >= BATCH_ROWS or self._set_bytes >= BATCH_BYTES:
            self._gather(each.next_offset)

    def finish(self, end: int) -> list[StagedFile]:
        if self._sets and self.stopped is None:
            self._gather(end)
        return super().finish(end if self.stopped is None else self.stopped.offset)

    def discard(self) -> None:
        self._sets = []
        super().discard()

    def _gather(self, end: int) -> None:
        columns = pa.record_batch(gather(self._sets))
        parts = [("", columns)] if self._layout.decoder is None else self._decoded(columns, self._layout.decoder)
        if self.stopped is not None:
            end = self.stopped.offset
        elif self._layout.decoder is not None:
            self._last, self._last_offset = self._last_before(end), int(columns.column("offset")[-1].as_py())
        self._sets, self._set_rows, self._set_bytes = [], 0, 0
        for folder, part in parts:
            if folder == DEAD_LETTERS:
                self._write(folder, self._rows(part, DEAD_SCHEMA), end)
            else:
                for name, rows in self._by_folder(part):
                    self._write(name, rows, end)
        self._start = end

    def _write(self, folder: str, rows: pa.RecordBatch, end: int) -> None:
        if not rows.num_rows:
            return
        file = self._open.get(folder)
        if file is None:
            file = self._open[folder] = self._begin(folder)
        file.add(rows)
        if file.size >= self._layout.target_bytes:
            self._close(folder, end)

    def _begin(self, folder: str) -> OutputFile:
        if folder == DEAD_LETTERS:
            target = self._stage.create(self._range.tp, self._start, folder, ".parquet")
            return ParquetFile(target, self._start, DEAD_SCHEMA, "snappy")
        target = self._stage.create(self._range.tp, self._start, folder, self._layout.suffix)
        return open_file(self._layout, target, self._start, self._schema)

    def _decoded(self, columns: pa.RecordBatch, decoder: Decoder) -> list[tuple[str, pa.RecordBatch]]:
        """``columns`` with the decoder's in the place of ``value``, and what did not decode as the layout wants it."""
        values = columns.column("value")
        made, reasons = decoded(decoder, values)
        places = columns.select([name for name in columns.schema.names if name in OUR_COLUMNS])
        if self._layout.date is not None:
            places = places.append_column(_PAYLOAD, values)
        bad = reasons.is_valid()
        count = int(pc.sum(bad).as_py() or 0)
        policy = self._layout.on_undecodable
        if policy == "keep":
            made = _with_reasons(made, values, reasons, bad)
        rows = _beside(places, made)
        if not count:
            return [("", rows)]
        if policy == "fail":
            return [("", rows.slice(0, self._stop_before(columns, reasons, pc.index(bad, True).as_py())))]
        self.undecodable += count
        if policy == "keep":
            return [("", rows)]
        letters = columns.append_column("error", reasons).filter(bad)
        return [("", rows.filter(pc.invert(bad))), (DEAD_LETTERS, letters)]

    def _stop_before(self, columns: pa.RecordBatch, reasons: pa.StringArray, row: int) -> int:
        """Ends the range before the entry of ``row``; how many rows there are before that."""
        offsets = columns.column("offset").to_numpy()
        offset = int(offsets[row])
        count = int(np.searchsorted(offsets, offset))
        tp = self._range.tp
        error = UndecodableError(
            f"message {columns.column('index')[row].as_py()} of the entry here does not decode: {reasons[row].as_py()}",
            topic=tp.topic, broker=tp.broker, partition=tp.partition, offset=offset,
        )  # fmt: skip
        last_offset = int(offsets[count - 1]) if count else self._last_offset
        self.stopped = _Stop(error, offset, self._last_before(offset), last_offset)
        return count

    def _last_before(self, offset: int) -> LastEntry | None:
        """The last whole entry that ends at ``offset`` or before, of the sets that wait, or of those before them."""
        for each in reversed(self._sets):
            size = min(each.valid_bytes, offset - each.base_offset)
            if size > 0 and (last := last_entry(MessageSet(each.data[:size], each.base_offset))) is not None:
                return last
        return self._last

    def _rows(self, columns: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """``columns`` with those that name the partition."""
        count = columns.num_rows
        made = {
            "topic": lambda: pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [self._range.topic]),
            "broker": lambda: pa.array(np.full(count, self._range.broker, np.int32)),
            "partition": lambda: pa.array(np.full(count, self._range.partition, np.int32)),
        }
        arrays = [made[name]() if name in made else columns.column(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _by_folder(self, columns: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        rows = self._rows(columns, self._schema)
        if not self._layout.by_date:
            yield self._topic_folder, rows
            return
        dates = self._dates(columns).cast(pa.string()).dictionary_encode()
        names = [*dates.dictionary.to_pylist(), None]
        codes = dates.indices.fill_null(len(names) - 1).to_numpy()
        for code in np.unique(codes).tolist():
            folder = f"{self._topic_folder}date={date_folder(names[code])}/"
            yield folder, rows.take(pa.array(np.flatnonzero(codes == code)))

    def _dates(self, columns: pa.RecordBatch) -> pa.Array:
        if self._layout.date_column is not None:
            column = columns.column(self._layout.date_column)
            return column if pa.types.is_string(column.type) else column.cast(pa.date32())
        assert self._layout.date is not None
        return self._layout.date(columns.column("value" if self._layout.decoder is None else _PAYLOAD))


def schema_of(layout: Layout) -> pa.Schema:
    """The columns of the files."""
    fields = [SCHEMA.field(name) for name in OUR_COLUMNS if not (layout.by_topic and name == "topic")]
    if layout.decoder is None:
        return pa.schema([*fields, SCHEMA.field("value")])
    made = [made.with_nullable(True) for made in layout.decoder.schema]
    if layout.on_undecodable == "keep":
        made += [pa.field(RAW, pa.binary()), pa.field(ERROR, pa.string())]
    return pa.schema([*fields, *made])


def _beside(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    fields = [*one.schema, *other.schema]
    return pa.RecordBatch.from_arrays([*one.columns, *other.columns], schema=pa.schema(fields))


def _with_reasons(
    made: pa.RecordBatch, values: pa.BinaryArray, reasons: pa.StringArray, bad: pa.BooleanArray
) -> pa.RecordBatch:
    """Nulls where a row did not decode, and there its payload and the reason."""
    arrays = [pc.if_else(bad, pa.nulls(len(bad), each.type), each) for each in made.columns]
    arrays += [pc.if_else(bad, values, pa.scalar(None, pa.binary())), reasons]
    names = [*made.schema.names, RAW, ERROR]
    return pa.RecordBatch.from_arrays(arrays, names)
