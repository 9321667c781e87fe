"""The files of an output that are not Parquet: Arrow IPC, CSV, JSON lines, and 0.7's own segments."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from kafka07c._views import MessageSet
from kafka07c.errors import LogError
from kafka07c.spark.files import OutputFile, ParquetFile
from kafka07c.spark.layout import Layout
from kafka07c.spark.stages import Target

__all__ = ["ArrowFile", "CsvFile", "JsonFile", "SegmentFile", "json_texts", "open_file"]


def open_file(layout: Layout, target: Target, start: int, schema: pa.Schema) -> OutputFile:
    """A file of rows of ``schema``, as ``layout`` wants them."""
    if layout.to == "parquet":
        return ParquetFile(target, start, schema, layout.codec)
    made = {"arrow": ArrowFile, "csv": CsvFile, "json": JsonFile}[layout.to]
    return made(target, start, schema, layout.codec)


class ArrowFile(OutputFile):
    """Arrow's IPC file format (Feather, version 2), a record batch for each batch of rows. No dictionaries."""

    def __init__(self, target: Target, start: int, schema: pa.Schema, compression: str):
        super().__init__(target, start)
        self._schema = plain(schema)
        options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
        self._writer = pa.ipc.new_file(target.stream, self._schema, options=options)

    def _add(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch.cast(self._schema))

    def _end(self) -> None:
        self._writer.close()


def plain(schema: pa.Schema) -> pa.Schema:
    """The schema without dictionaries."""
    kinds = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in schema]
    return pa.schema([field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)])


class _TextFile(OutputFile):
    """``stream`` is compressed on its way to the target's."""

    def __init__(self, target: Target, start: int, schema: pa.Schema, compression: str):
        super().__init__(target, start)
        self.stream = target.stream if compression == "none" else pa.CompressedOutputStream(target.stream, compression)

    def _end(self) -> None:
        self.stream.close()


class CsvFile(_TextFile):
    """CSV as in RFC 4180, with a head; text is quoted, null is nothing. A binary column X is the columns X, text, and
    X_base64, for bytes that are no UTF-8.
    """

    def __init__(self, target: Target, start: int, schema: pa.Schema, compression: str):
        super().__init__(target, start, schema, compression)
        names = [name for field in schema for name in _columns_of(field)]
        if len(set(names)) != len(names):
            raise ValueError(f"two columns of one name in {', '.join(names)}")
        self._writer: pyarrow.csv.CSVWriter | None = None

    def _add(self, batch: pa.RecordBatch) -> None:
        rows = _with_text(batch)
        if self._writer is None:
            self._writer = pyarrow.csv.CSVWriter(self.stream, rows.schema)
        self._writer.write_batch(rows)

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
        super()._end()


def _columns_of(field: pa.Field) -> list[str]:
    return [field.name, f"{field.name}_base64"] if _is_binary(field.type) else [field.name]


def _is_binary(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_large_binary(kind))


def _with_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if _is_binary(column.type):
            columns[name], columns[f"{name}_base64"] = _text_and_base64(column)
        else:
            columns[name] = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    return pa.RecordBatch.from_pydict(columns)


def _text_and_base64(values: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """UTF-8 as text, other bytes as base64: of each row one is null, or both."""
    try:
        return values.cast(pa.binary()).cast(pa.string()), pa.nulls(len(values), pa.string())
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    others: list[str | None] = []
    for value in values.to_pylist():
        text, other = None, None
        if value is not None:
            try:
                text = value.decode()
            except UnicodeDecodeError:
                other = base64.b64encode(value).decode()
        texts.append(text)
        others.append(other)
    return pa.array(texts, pa.string()), pa.array(others, pa.string())


class JsonFile(_TextFile):
    """An object in each line. A binary column X is "X", text, or "X_base64" for bytes that are no UTF-8."""

    def _add(self, batch: pa.RecordBatch) -> None:
        parts: list[Any] = []
        for number, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
            opening = "," if number else "{"
            if _is_binary(column.type):
                text, other = _text_and_base64(column)
                named = _member(opening, name, json_texts(text))
                if other.null_count == len(other):
                    parts.append(named)
                else:
                    parts.append(
                        pc.if_else(other.is_valid(), _member(opening, f"{name}_base64", json_texts(other)), named)
                    )
            else:
                parts.append(_member(opening, name, json_texts(column)))
        lines = pc.binary_join_element_wise(*parts, "}\n", "")
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "")[0]
        self.stream.write(joined.as_buffer())


def _member(opening: str, name: str, texts: pa.Array[Any]) -> pa.Array[Any]:
    return pc.binary_join_element_wise(opening + json.dumps(name, ensure_ascii=False) + ":", texts, "")


def json_texts(column: pa.Array[Any]) -> pa.Array[Any]:
    """Each value as JSON, null as ``null``. NaN and infinities are null, times are text as in ISO 8601."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        texts = json_texts(column.dictionary).take(column.indices)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = _quoted(column.cast(pa.string()))
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        texts = column.cast(pa.string())
    else:
        texts = pa.array([_json(value) for value in column.to_pylist()], pa.string())
    return texts.fill_null("null")


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        return pa.array(
            [None if text is None else json.dumps(text, ensure_ascii=False) for text in texts.to_pylist()], pa.string()
        )
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return pc.binary_join_element_wise('"', escaped, '"', "")


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(_plain_value(value), ensure_ascii=False)


def _plain_value(value: Any) -> Any:
    """What ``json`` can write."""
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _plain_value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain_value(inner) for inner in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if value is None or isinstance(value, (str, int)):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


class SegmentFile(OutputFile):
    """A log's segment: stored entries as they are."""

    def __init__(self, target: Target, start: int):
        super().__init__(target, start)
        self.end = start

    def append(self, each: MessageSet) -> None:
        """Take the whole entries of a set that has no error, and that begins where the last one ended."""
        if each.base_offset != self.end:
            raise LogError(f"a segment that ends at {self.end} cannot go on at {each.base_offset}")
        self.target.stream.write(each.data[: each.valid_bytes])
        self.rows += len(each)
        self.end = each.next_offset

    def _add(self, batch: pa.RecordBatch) -> None:
        raise TypeError("a segment takes message sets")
