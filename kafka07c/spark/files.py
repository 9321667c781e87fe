"""One file of an output: rows in, bytes on disk. This one is Parquet; ``formats`` has the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafka07c.spark.stages import Target

__all__ = ["OutputFile", "ParquetFile"]

ROW_GROUP_ROWS = 262144
ROW_GROUP_BYTES = 32 << 20

# Measured on 600 000 events of 125 B: offsets as deltas save a quarter of the file and a tenth of the time; a
# dictionary for values costs a third of the time and gains nothing. Statistics of values help nobody. zstd instead of
# snappy makes files smaller by a third, and takes a fifth longer.
_ENCODINGS = {"offset": "DELTA_BINARY_PACKED", "next_offset": "DELTA_BINARY_PACKED"}
_DICTIONARIES = ("topic", "broker", "partition", "index")
_PAYLOADS = ("value", "_raw", "_error")

#: a decoded column gets a dictionary if its first row group has, in so many rows, a value eight times on average
_SAMPLE_ROWS = 65536
_REPEATS = 8


class OutputFile:
    """A file that is being written to ``target``. It has taken ``rows`` so far, which begin at offset ``start``."""

    def __init__(self, target: Target, start: int):
        self.target = target
        self.start = start
        self.rows = 0

    @property
    def size(self) -> int:
        """Bytes written so far; what waits to be written does not count."""
        return int(self.target.stream.tell())

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        self.rows += batch.num_rows
        self._add(batch)

    def _add(self, batch: pa.RecordBatch) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        """Write the rest, and close all but the stream."""

    def finish(self) -> int:
        """Write the rest, and see to it that the file is there for good; its size in bytes."""
        self._end()
        self.target.stream.close()
        return self.target.settle()

    def discard(self) -> None:
        """Give up: on a full disk the file's room may be wanted at once."""
        _quietly(self._end)
        _quietly(self.target.stream.close)
        self.target.discard()


class ParquetFile(OutputFile):
    """Rows wait for their row group. What gets a dictionary is decided by the first one."""

    def __init__(self, target: Target, start: int, schema: pa.Schema, compression: str):
        super().__init__(target, start)
        self._schema = schema
        self._compression = compression
        self._writer: pq.ParquetWriter | None = None
        self._batches: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0

    def _add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        table = pa.Table.from_batches(self._batches, self._schema)
        if self._writer is None:
            self._writer = self._open(table)
        self._batches = []
        self._writer.write_table(table, row_group_size=self._waiting_rows)
        self._waiting_rows = self._waiting_bytes = 0

    def _open(self, table: pa.Table) -> pq.ParquetWriter:
        names = self._schema.names
        return pq.ParquetWriter(
            self.target.stream, self._schema, compression=self._compression, store_schema=False,
            use_dictionary=[name for name in names if name in _DICTIONARIES or _pays(name, table)],
            column_encoding={name: encoding for name, encoding in _ENCODINGS.items() if name in names},
            write_statistics=[name for name in names if name not in _PAYLOADS],
        )  # fmt: skip

    def _end(self) -> None:
        if self._batches:
            self._write()
        if self._writer is not None:
            self._writer.close()

    def discard(self) -> None:
        self._batches = []
        super().discard()


def _pays(name: str, table: pa.Table) -> bool:
    """A dictionary makes this column smaller."""
    kind = table.schema.field(name).type
    if name in _PAYLOADS or not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return False
    sample = table.column(name)[:_SAMPLE_ROWS]
    return bool(pc.count_distinct(sample).as_py() * _REPEATS <= len(sample))


def _quietly(close: Callable[[], Any]) -> None:
    try:
        close()
    except (OSError, pa.ArrowException, ValueError):
        pass  # it could not write before either
