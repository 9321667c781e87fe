"""Payloads into columns: JSON, Avro, Protobuf, or a function of the user's own.

A decoder has a ``schema``, the columns that it makes, and ``decode``, which takes an Arrow array of payloads (binary,
no nulls) and gives a record batch of as many rows with that schema, and for each row why it could not be decoded: null
where it could. What a row that could not be decoded has in the columns does not matter. Decoders pickle: each task has
one.
"""

from __future__ import annotations

import importlib
import io
import itertools
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kafka07c.errors import DecoderError, KafkaError, MissingExtraError
from kafka07c.ranges import Range, Source

__all__ = [
    "AvroDecoder", "Decoder", "FunctionDecoder", "JsonDecoder", "PrefixedDecoder", "ProtobufDecoder", "decoded",
    "first_messages", "imported", "infer_schema", "parse_schema", "read_file",
]  # fmt: skip

#: columns, and for each row null or why it was not decoded (or, from a user's function, whether it was not)
Decoded: TypeAlias = "tuple[pa.RecordBatch, pa.Array[Any]]"

#: a reason goes into a column or a message; no more of it than this
_REASON_CHARACTERS = 200


#: so many payloads are tried together before each is looked at, which takes about ten times as long as parsing them
_PIECE = 128


class Decoder(Protocol):
    """See the module."""

    @property
    def schema(self) -> pa.Schema: ...

    def decode(self, values: pa.BinaryArray) -> Decoded: ...


def decoded(decoder: Decoder, values: pa.BinaryArray) -> Decoded:
    """What ``decoder`` makes of ``values``, its rows and types checked, and the reasons as text.

    Raises DecoderError: the decoder raised something, or does not keep to what it has to give.
    """
    try:
        columns, failed = decoder.decode(values)
    except KafkaError:
        raise
    except Exception as error:
        raise DecoderError(f"the decoder raised {type(error).__name__}: {_shortened(error)}") from error
    if columns.num_rows != len(values) or len(failed) != len(values):
        raise DecoderError(
            f"the decoder was given {len(values)} payloads and gave {columns.num_rows} rows, with {len(failed)} marks"
        )
    if not columns.schema.equals(decoder.schema):
        raise DecoderError(f"the decoder gave columns ({_listed(columns.schema)}), not ({_listed(decoder.schema)})")
    if pa.types.is_boolean(failed.type):
        failed = pc.if_else(failed.fill_null(False), pa.scalar("the decoder marked it"), pa.scalar(None, pa.string()))
    return columns, failed.cast(pa.string())


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _shortened(error: object) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _REASON_CHARACTERS else text[: _REASON_CHARACTERS - 1] + "…"


# --- JSON ---------------------------------------------------------------------------------------------------------


class JsonDecoder:
    """One JSON object in each payload, in UTF-8. A field that is not there is null, one without a column is ignored."""

    def __init__(self, schema: pa.Schema):
        self.schema = schema
        for field in schema:
            _check_json_type(field.name, field.type)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """All at once if they can be; else by pieces, and of those that cannot either, each payload is looked at."""
        if (rows := self._parsed(values)) is not None:
            return rows, pa.nulls(len(values), pa.string())
        parts: list[pa.RecordBatch] = []
        reasons: list[str | None] = []
        for start in range(0, len(values), _PIECE):
            piece = values[start : start + _PIECE]
            if (rows := self._parsed(piece)) is not None:
                parts.append(rows)
                reasons += [None] * len(piece)
            else:
                parts.append(self._one_by_one(piece, reasons))
        table = pa.Table.from_batches(parts, self.schema).combine_chunks()
        return table.to_batches()[0], pa.array(reasons, pa.string())

    def _one_by_one(self, values: pa.BinaryArray, reasons: list[str | None]) -> pa.RecordBatch:
        """What is no such object is set aside, and the others parsed together; adds to ``reasons``."""
        row = pa.struct(list(self.schema))
        found = [_unfit(value, row) for value in values.to_pylist()]
        good = [number for number, reason in enumerate(found) if reason is None]
        rows = pa.Table.from_batches(self._halves(values.take(pa.array(good, pa.int64())), good, found), self.schema)
        places = iter(range(len(good)))
        there = set(good)
        indices = pa.array([next(places) if number in there else None for number in range(len(values))], pa.int64())
        batches = rows.combine_chunks().to_batches()
        reasons += found
        return (batches[0] if batches else self._nulls(1)).take(indices)

    def _halves(self, values: pa.BinaryArray, rows: list[int], reasons: list[str | None]) -> Iterator[pa.RecordBatch]:
        """``values``, which are those of ``rows``; what only Arrow finds to be wrong is found by halves: a null."""
        if not rows:
            return
        try:
            yield self._parse(values)
        except (pa.ArrowException, ValueError) as error:
            if len(rows) == 1:
                reasons[rows[0]] = _shortened(error).removeprefix("JSON parse error: ")
                yield self._nulls(1)
                return
            middle = len(rows) // 2
            yield from self._halves(values[:middle], rows[:middle], reasons)
            yield from self._halves(values[middle:], rows[middle:], reasons)

    def _parsed(self, values: pa.BinaryArray) -> pa.RecordBatch | None:
        """The rows, or None if not each payload has one."""
        if not len(values):
            return self._nulls(0)
        try:
            return self._parse(values)
        except (pa.ArrowException, ValueError):
            return None

    def _parse(self, values: pa.BinaryArray) -> pa.RecordBatch:
        values.cast(pa.string())  # nobody else looks whether it is UTF-8
        # Every payload begins and ends with a brace: so no object goes on into the next payload (a line feed cannot be
        # inside a string, and between } and { is no place inside an object), and each has one object at least.
        if not pc.all(pc.match_substring_regex(values, r"(?s)\A[ \t\r\n]*\{.*\}[ \t\r\n]*\z")).as_py():
            raise ValueError("no JSON object")
        lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values), b"\n")[0]
        data = lines.as_buffer()
        table = pyarrow.json.read_json(
            pa.BufferReader(data),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=data.size + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=self.schema, unexpected_field_behavior="ignore"),
        )
        if table.num_rows != len(values):
            raise ValueError("more than one JSON object")
        # a nullable column may hold what its declared child types do not say: the schema is put right here
        return table.cast(self.schema).combine_chunks().to_batches()[0]

    def _nulls(self, count: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.nulls(count, field.type) for field in self.schema], schema=self.schema)


def _unfit(value: bytes, row: Any) -> str | None:
    """Why a payload is no JSON object of these columns, as far as can be seen without Arrow; None: it may be one."""
    try:
        found = json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        return f"no JSON: {_shortened(error)}"
    if not isinstance(found, dict):
        return f"no JSON object, but {_KINDS.get(type(found), 'null')}"
    return _misfit(found, row, "")


_KINDS = {
    str: "text", bool: "true or false", int: "a whole number", float: "a fraction", list: "a list", dict: "an object",
}  # fmt: skip


def _misfit(value: Any, kind: Any, path: str) -> str | None:
    """What in ``value`` is of another kind than its column."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        for number in range(kind.num_fields):
            field = kind.field(number)
            if (reason := _misfit(value.get(field.name), field.type, f"{path}.{field.name}".lstrip("."))) is not None:
                return reason
        return None
    if pa.types.is_list(kind) and isinstance(value, list):
        return next((found for each in value if (found := _misfit(each, kind.value_type, f"{path}[]"))), None)
    wanted = _wanted(kind)
    if type(value) in wanted and not (type(value) is int and pa.types.is_integer(kind) and value.bit_length() > 64):
        return None
    shown = _shortened(json.dumps(value, ensure_ascii=False))
    return f"field {path} is {_KINDS[type(value)]}, not {kind}: {shown}"


def _wanted(kind: Any) -> tuple[type, ...]:
    """The kinds of JSON that Arrow reads into a column of a type."""
    if pa.types.is_integer(kind):
        return (int,)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return (int, float)
    if pa.types.is_boolean(kind):
        return (bool,)
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return ()
    return (str,)


def _check_json_type(name: str, kind: Any) -> None:
    if pa.types.is_map(kind) or pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        raise ValueError(
            f"column {name}: JSON has no {kind}; take string, or timestamp[us] for ISO 8601, or a decoder of your own"
        )
    for number in range(kind.num_fields):
        _check_json_type(name, kind.field(number).type)


def infer_schema(payloads: Iterable[bytes]) -> pa.Schema:
    """The columns that these JSON objects have; what is none is passed over.

    Whole numbers are int64, with others among them float64; text is string, dates as well; what is null only is string,
    and an empty object is left out. ValueError: no object among them, or a field that is of one kind here, of another
    there.
    """
    merged: dict[str, Any] = {}
    count = 0
    for payload in payloads:
        if _unfit(payload, _NO_COLUMNS) is None:
            merged = _merged(merged, json.loads(payload), "")
            count += 1
    if not count:
        raise ValueError("none of the first messages is a JSON object: is --decoder json right?")
    fields = [(name, kind) for name, found in merged.items() if (kind := _arrow_type(found)) is not None]
    return pa.schema(fields)


_NO_COLUMNS = pa.struct([])


def _merged(known: Any, value: Any, path: str) -> Any:
    """A kind is None (null only), "bool", "int64", "float64", "string", [kind] or {name: kind}."""
    if value is None:
        return known
    if isinstance(value, dict):
        if not (known is None or isinstance(known, dict)):
            raise _two_kinds(path)
        result = dict(known or {})
        for name, inner in value.items():
            result[name] = _merged(result.get(name), inner, f"{path}.{name}".lstrip("."))
        return result
    if isinstance(value, list):
        if not (known is None or isinstance(known, list)):
            raise _two_kinds(path)
        element = known[0] if known else None
        for inner in value:
            element = _merged(element, inner, f"{path}[]")
        return [element]
    kind = {bool: "bool", int: "int64", float: "float64", str: "string"}[type(value)]
    if known in (None, kind):
        return kind
    if (known, kind) in (("int64", "float64"), ("float64", "int64")):
        return "float64"
    raise _two_kinds(path)


def _two_kinds(path: str) -> ValueError:
    return ValueError(
        f"field {path!r} is of one kind in some messages and of another in others, which no column can be:"
        " leave it out of a --schema, or write a decoder of your own"
    )


def _arrow_type(kind: Any) -> Any:
    if isinstance(kind, dict):
        fields = [(name, inner) for name, each in kind.items() if (inner := _arrow_type(each)) is not None]
        return pa.struct(fields) if fields else None
    if isinstance(kind, list):
        element = _arrow_type(kind[0])
        return pa.list_(pa.string() if element is None else element)
    return pa.string() if kind is None else pa.type_for_alias(kind)


def first_messages(source: Source, topics: Iterable[str], count: int) -> Iterator[bytes]:
    """The first payloads of each partition of ``topics``, up to ``count`` in all, shared out among the partitions."""
    partitions = [tp for topic in dict.fromkeys(topics) for tp in source.partitions(topic)]
    share = max(1, count // max(1, len(partitions)))
    for tp in partitions:
        wanted = Range(*tp, *source.bounds(tp))
        payloads = (
            bytes(message.payload) for each in source.read(wanted, fetch_bytes=1 << 20) for message in each.good()
        )
        yield from itertools.islice(payloads, share)


# --- a schema as text ---------------------------------------------------------------------------------------------

_SIMPLE = {
    "double": pa.float64(), "float": pa.float32(), "halffloat": pa.float16(), "date32[day]": pa.date32(),
    "date64[ms]": pa.date64(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "text": pa.string(),
}  # fmt: skip


def parse_schema(text: str) -> pa.Schema:
    """Columns, one in a line: ``name: type``, types as Arrow writes them, which is how pyarrow prints a schema.

    ``list<item: string>``, ``struct<a: int64, b: string>`` and ``map<string, int64>`` nest; ``list<string>`` will do as
    well. Passed over are empty lines, indented ones, those that begin with ``#``, "not null", and all from ``--`` on.
    ValueError names the line that is not understood.
    """
    fields = []
    for number, line in enumerate(textwrap.dedent(text).splitlines(), 1):
        if line.startswith("--"):
            break
        if not line.strip() or line.startswith((" ", "\t", "#")):
            continue
        name, colon, kind = line.partition(":")
        if not colon:
            name, _, kind = line.partition(" ")
        try:
            fields.append(pa.field(name.strip().strip('"'), _parse_type(kind)))
        except (ValueError, pa.ArrowException) as error:
            raise ValueError(f"line {number} of the schema, {line.strip()!r}: {error}; expected name: type") from None
    if not fields:
        raise ValueError("the schema has no columns")
    return pa.schema(fields)


def _parse_type(text: str) -> Any:
    text = text.strip().removesuffix(" not null")
    if text in _SIMPLE:
        return _SIMPLE[text]
    if match := re.fullmatch(r"(list|struct|map)<(.*)>", text, re.S):
        parts = _split(match[2])
        if match[1] == "struct":
            return pa.struct([(name.strip(), _parse_type(kind)) for name, _, kind in (p.partition(":") for p in parts)])
        if match[1] == "map" and len(parts) == 2:
            return pa.map_(*(_parse_type(part) for part in parts))
        if match[1] == "list" and len(parts) == 1:
            return pa.list_(_parse_type(re.sub(r"\A\w+:", "", parts[0])))
        raise ValueError(f"{text!r} is no type of Arrow")
    if match := re.fullmatch(r"timestamp\[(s|ms|us|ns)(?:, *tz=([^]]+))?\]", text):
        return pa.timestamp(match[1], match[2])
    if match := re.fullmatch(r"decimal128\((\d+), *(-?\d+)\)", text):
        return pa.decimal128(int(match[1]), int(match[2]))
    try:
        return pa.type_for_alias(text)
    except ValueError:
        raise ValueError(f"{text!r} is no type of Arrow") from None


def _split(text: str) -> list[str]:
    """At commas that are not inside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<([") - (character in ">)]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


# --- Avro ---------------------------------------------------------------------------------------------------------


class AvroDecoder:
    """One Avro record in each payload, without a header, as ``schema`` (the JSON of the writer's) describes it.

    ``skip``: so many bytes before the record are passed over, such as a schema's number.
    ValueError for a schema that is none, or has what no column can be. MissingExtraError: fastavro is not installed.
    """

    def __init__(self, schema: str, *, skip: int = 0):
        self._text = schema
        self._skip = skip
        self._prepare()

    def _prepare(self) -> None:
        fastavro = _extra("fastavro", "avro")
        try:
            parsed = json.loads(self._text)
            names: dict[str, Any] = {}
            row = _avro_type(parsed, names, "", ())
            # uuid is text in Arrow, and fastavro would make an object of it
            self._parsed = fastavro.parse_schema(_without_uuid(parsed))
        except ValueError as error:
            raise ValueError(f"the Avro schema: {error}") from None
        except (fastavro.schema.SchemaParseException, KeyError, TypeError) as error:
            raise ValueError(f"the Avro schema is none: {type(error).__name__}: {_shortened(error)}") from None
        if not pa.types.is_struct(row):
            raise ValueError("the Avro schema: it is no record")
        self.schema = pa.schema(list(row))
        self._row = row
        self._read = fastavro.schemaless_reader

    def __reduce__(self) -> tuple[Any, ...]:
        return _avro_decoder, (self._text, self._skip)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        return _row_wise(values, self._record, self._row)

    def _record(self, value: bytes) -> Any:
        stream = io.BytesIO(value)
        stream.seek(self._skip)
        record = self._read(stream, self._parsed, None)
        if (left := len(value) - stream.tell()) > 0:
            raise ValueError(f"{left} bytes are left behind the record: written with another schema?")
        return record


def _avro_decoder(schema: str, skip: int) -> AvroDecoder:
    return AvroDecoder(schema, skip=skip)


_AVRO_TYPES = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
_AVRO_LOGICAL = {
    ("int", "date"): pa.date32(), ("int", "time-millis"): pa.time32("ms"), ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"), ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"), ("long", "local-timestamp-micros"): pa.timestamp("us"),
}  # fmt: skip


def _avro_type(schema: Any, names: dict[str, Any], path: str, inside: tuple[str, ...]) -> Any:
    """The Arrow type of an Avro schema; ``names``: the named ones so far, ``inside``: those that it is part of."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise ValueError(f"{path or 'it'} is a union of several types, which no column can be: write a decoder")
        return _avro_type(others[0], names, path, inside)
    if isinstance(schema, str):
        if schema in inside or schema.rpartition(".")[2] in inside:
            raise ValueError(f"{path} holds itself ({schema}), which no column can")
        known = _AVRO_TYPES.get(schema, names.get(schema, names.get(schema.rpartition(".")[2])))
        if known is None:
            raise ValueError(f"{path or 'it'} is of an unknown type {schema!r}")
        return known
    kind = schema["type"]
    if isinstance(kind, (dict, list)):
        return _avro_type(kind, names, path, inside)
    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _named(schema, pa.decimal128(schema["precision"], schema.get("scale", 0)), names)
    if (kind, logical) in _AVRO_LOGICAL:
        return _AVRO_LOGICAL[kind, logical]
    if kind in ("record", "error"):
        fields = [
            (
                each["name"],
                _avro_type(each["type"], names, f"{path}.{each['name']}".lstrip("."), (*inside, schema["name"])),
            )
            for each in schema["fields"]
        ]
        return _named(schema, pa.struct(fields), names)
    if kind == "enum":
        return _named(schema, pa.string(), names)
    if kind == "fixed":
        return _named(schema, pa.binary(schema["size"]), names)
    if kind == "array":
        return pa.list_(_avro_type(schema["items"], names, f"{path}[]", inside))
    if kind == "map":
        return pa.map_(pa.string(), _avro_type(schema["values"], names, f"{path}{{}}", inside))
    return _avro_type(kind, names, path, inside)


def _named(schema: dict[str, Any], found: Any, names: dict[str, Any]) -> Any:
    if "name" in schema:
        names[schema["name"]] = names[schema["name"].rpartition(".")[2]] = found
    return found


def _without_uuid(schema: Any) -> Any:
    if isinstance(schema, dict):
        inner = {key: _without_uuid(value) for key, value in schema.items()}
        return {key: value for key, value in inner.items() if (key, value) != ("logicalType", "uuid")}
    return [_without_uuid(each) for each in schema] if isinstance(schema, list) else schema


# --- Protobuf -----------------------------------------------------------------------------------------------------


class ProtobufDecoder:
    """One Protobuf message in each payload.

    ``message``: its full name in ``descriptors``, a file descriptor set (``protoc --include_imports
    --descriptor_set_out``); without that ``MODULE:NAME`` of a class that protoc has made. An enum is text, a field that
    knows whether it is there is null if it is not, google.protobuf.Timestamp is a timestamp. ``skip``: so many bytes
    before the message are passed over.

    ValueError: no such message, or one that holds itself. MissingExtraError: protobuf is not installed.
    """

    def __init__(self, message: str, descriptors: bytes | None = None, *, skip: int = 0):
        self._name = message
        self._descriptors = descriptors
        self._skip = skip
        _extra("google.protobuf", "protobuf")
        self._class = self._find()
        fields = _protobuf_fields(self._class.DESCRIPTOR, ())
        self.schema = pa.schema([(name, kind) for name, kind, _ in fields])
        self._row = pa.struct(list(self.schema))
        self._record = _protobuf_reader(fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return _protobuf_decoder, (self._name, self._descriptors, self._skip)

    def _find(self) -> Any:
        if self._descriptors is None:
            found = imported(self._name)
            if not hasattr(found, "DESCRIPTOR"):
                raise ValueError(f"{self._name} is no message that protoc has made")
            return found
        parts = ("descriptor_pb2", "descriptor_pool", "message", "message_factory")
        descriptor_pb2, descriptor_pool, message, message_factory = (
            importlib.import_module(f"google.protobuf.{part}") for part in parts
        )
        pool = descriptor_pool.DescriptorPool()
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(self._descriptors).file
            for file in files:
                pool.Add(file)
            return message_factory.GetMessageClass(pool.FindMessageTypeByName(self._name))
        except (message.DecodeError, TypeError, KeyError) as error:
            what = _shortened(error)
            raise ValueError(f"no message {self._name!r} in the file descriptor set: {what}") from None

    def decode(self, values: pa.BinaryArray) -> Decoded:
        return _row_wise(values, self._read, self._row)

    def _read(self, value: bytes) -> Any:
        # a new object for each: one that is used again keeps all memory that it ever took (protobuf's issue 24257)
        message = self._class.FromString(value[self._skip :] if self._skip else value)
        if not message.IsInitialized():
            raise ValueError(f"required and not there: {', '.join(message.FindInitializationErrors())}")
        return self._record(message)


def _protobuf_decoder(message: str, descriptors: bytes | None, skip: int) -> ProtobufDecoder:
    return ProtobufDecoder(message, descriptors, skip=skip)


_PROTOBUF_TYPES = {
    1: pa.float64(), 2: pa.float32(), 3: pa.int64(), 4: pa.uint64(), 5: pa.int32(), 6: pa.uint64(), 7: pa.uint32(),
    8: pa.bool_(), 9: pa.string(), 12: pa.binary(), 13: pa.uint32(), 14: pa.string(), 15: pa.int32(), 16: pa.int64(),
    17: pa.int32(), 18: pa.int64(),
}  # fmt: skip
_GROUP, _MESSAGE, _ENUM = 10, 11, 14

#: name, Arrow type, and what takes the value for it out of a message
_Field: TypeAlias = "tuple[str, Any, Callable[[Any], Any]]"


def _protobuf_fields(descriptor: Any, inside: tuple[str, ...]) -> list[_Field]:
    if descriptor.full_name in inside:
        raise ValueError(f"message {descriptor.full_name} holds itself, which no column can")
    return [_protobuf_field(field, (*inside, descriptor.full_name)) for field in descriptor.fields]


def _protobuf_field(field: Any, inside: tuple[str, ...]) -> _Field:
    name = field.name
    if field.type == _MESSAGE and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        kind, convert = _protobuf_value(value, inside)
        # reading an absent key of a message map would make it: items() does not
        return (
            name,
            pa.map_(_PROTOBUF_TYPES[key.type], kind),
            lambda message: [(each, convert(found)) for each, found in getattr(message, name).items()],
        )
    kind, convert = _protobuf_value(field, inside)
    if _is_repeated(field):
        return name, pa.list_(kind), lambda message: [convert(each) for each in getattr(message, name)]
    if field.has_presence:
        return name, kind, lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return name, kind, lambda message: convert(getattr(message, name))


def _is_repeated(field: Any) -> bool:
    found = getattr(field, "is_repeated", None)  # newer ones have no label
    return bool(field.label == 3) if found is None else bool(found)


def _protobuf_value(field: Any, inside: tuple[str, ...]) -> tuple[Any, Callable[[Any], Any]]:
    if field.type == _ENUM:
        names = field.enum_type.values_by_number
        return pa.string(), lambda number: names[number].name if number in names else str(number)
    if field.type not in (_MESSAGE, _GROUP):
        return _PROTOBUF_TYPES[field.type], _as_it_is
    if field.message_type.full_name == "google.protobuf.Timestamp":
        return pa.timestamp("us", "UTC"), lambda stamp: stamp.seconds * 1_000_000 + stamp.nanos // 1000
    fields = _protobuf_fields(field.message_type, inside)
    return pa.struct([(name, kind) for name, kind, _ in fields]), _protobuf_reader(fields)


def _as_it_is(value: Any) -> Any:
    return value


def _protobuf_reader(fields: list[_Field]) -> Callable[[Any], dict[str, Any]]:
    return lambda message: {name: take(message) for name, _, take in fields}


# --- others -------------------------------------------------------------------------------------------------------


class FunctionDecoder:
    """A function of the user's: a BinaryArray in, a RecordBatch or StructArray out, which may come in a tuple with a
    mask of the rows that did not decode (true), or with reasons (text, null where it did). A struct that is null
    did not decode either. Its columns are those that it gives for no payloads at all.
    """

    def __init__(self, function: Callable[[pa.BinaryArray], Any], name: str = "the decoder"):
        self._function = function
        self._name = name
        try:
            batch, _ = self.decode(pa.array([], pa.binary()))
        except KafkaError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {_shortened(error)}"
            raise DecoderError(f"{name} has to give its columns for no payloads too, and raised {what}") from error
        self.schema = batch.schema

    def decode(self, values: pa.BinaryArray) -> Decoded:
        given = self._function(values)
        columns, failed = given if isinstance(given, tuple) else (given, None)
        if isinstance(columns, pa.ChunkedArray):
            columns = columns.combine_chunks()
        if isinstance(columns, pa.StructArray):
            failed = columns.is_null() if failed is None else failed
            columns = pa.RecordBatch.from_struct_array(columns)
        if not isinstance(columns, pa.RecordBatch):
            found = type(columns).__name__
            raise DecoderError(f"{self._name} gave a {found}; it has to be a pyarrow RecordBatch or StructArray")
        return columns, pa.nulls(len(values), pa.string()) if failed is None else failed


class PrefixedDecoder:
    """Another decoder, its columns with ``prefix`` before their names."""

    def __init__(self, decoder: Decoder, prefix: str):
        self._decoder = decoder
        self._prefix = prefix

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([field.with_name(self._prefix + field.name) for field in self._decoder.schema])

    def decode(self, values: pa.BinaryArray) -> Decoded:
        columns, failed = self._decoder.decode(values)
        return columns.rename_columns([self._prefix + name for name in columns.schema.names]), failed


def _row_wise(values: pa.BinaryArray, read: Callable[[bytes], Any], row: Any) -> Decoded:
    """Each payload by ``read``, which makes a dict or raises; then Arrow makes columns of all of them."""
    records: list[Any] = []
    reasons: list[str | None] = []
    for value in values.to_pylist():
        try:
            records.append(read(value))
            reasons.append(None)
        except Exception as error:  # a payload of any bytes: the libraries raise what they like, and TypeError too
            records.append(None)
            reasons.append(f"{type(error).__name__}: {_shortened(error)}")
    try:
        rows = pa.array(records, row)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        rows = pa.array([_fitting(record, row, reasons, at) for at, record in enumerate(records)], row)
    # a row that was not decoded is a null struct; its columns are null then
    columns = [pc.struct_field(rows, [number]) for number in range(row.num_fields)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(row))), pa.array(reasons, pa.string())


def _fitting(record: Any, row: Any, reasons: list[str | None], at: int) -> Any:
    try:
        pa.array([record], row)
        return record
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reasons[at] = f"{type(error).__name__}: {_shortened(error)}"
        return None


def _extra(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise MissingExtraError(f"{module} is not installed: pip install 'kafka07c[{extra}]'") from None


def imported(path: str) -> Any:
    """What ``MODULE:NAME`` names; modules in the current folder are found too, here and by Spark's workers here.

    ValueError says what is wrong.
    """
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise ValueError(f"{path}: expected MODULE:NAME")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    paths = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, here])
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{path}: {error}") from None


def read_file(path: str | os.PathLike[str]) -> bytes:
    """A schema's or a descriptor set's file; ValueError if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
