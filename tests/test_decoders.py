"""Decoders by themselves: what they make of payloads, and of bytes that are none of theirs."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import pickle
import random

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from kafka07c import build_message_set
from kafka07c.errors import DecoderError, MissingExtraError
from kafka07c.ranges import open_source
from kafka07c.segments import Log
from kafka07c.spark import decoders
from kafka07c.spark.decoders import (
    AvroDecoder,
    FunctionDecoder,
    JsonDecoder,
    PrefixedDecoder,
    ProtobufDecoder,
    decoded,
    first_messages,
    infer_schema,
    parse_schema,
)


def rows(decoder, payloads: list[bytes]) -> tuple[list, list]:
    """Decoded rows, None for those that did not, and the reasons."""
    decoder = pickle.loads(pickle.dumps(decoder))  # as it goes to a task
    batch, reasons = decoded(decoder, pa.array(payloads, pa.binary()))
    found = [None if reason else row for row, reason in zip(batch.to_pylist(), reasons.to_pylist(), strict=True)]
    return found, reasons.to_pylist()


# --- JSON ---------------------------------------------------------------------------------------------------------

SCHEMA = parse_schema(
    "id: int64\nname: string\nat: timestamp[us]\ntags: list<item: string>\npos: struct<x: double, y: double>"
)


def test_json_objects_are_rows():
    payloads = [
        b'{"id": 1, "name": "J\xc3\xbcrgen", "at": "2012-01-31T12:00:00",'
        b' "tags": ["a", "b"], "pos": {"x": 1, "y": 2.5}}',
        b' {"name":"{\\"}\\n", "other": [1, {"x": null}]}\n',
        b"{}",
    ]
    found, reasons = rows(JsonDecoder(SCHEMA), payloads)
    nothing = dict.fromkeys(SCHEMA.names)
    assert found == [
        {
            "id": 1,
            "name": "Jürgen",
            "at": datetime.datetime(2012, 1, 31, 12),
            "tags": ["a", "b"],
            "pos": {"x": 1, "y": 2.5},
        },
        nothing | {"name": '{"}\n'},
        nothing,
    ]
    assert reasons == [None] * 3


NOT_JSON = [
    (b"", "no JSON"),
    (b"hello", "no JSON"),
    (b'{"id": 1', "no JSON"),
    (b'{"id": 1}{"id": 2}', "no JSON: Extra data"),
    (b'{"id": 1}\n{"id": 2}', "no JSON: Extra data"),
    (b"[1]", "no JSON object, but a list"),
    (b"null", "no JSON object, but null"),
    (b'{"name": "\xff"}', "no JSON: 'utf-8'"),
    (b'{"id": "seven"}', 'field id is text, not int64: "seven"'),
    (b'{"id": 1.5}', "field id is a fraction, not int64: 1.5"),
    (b'{"id": true}', "field id is true or false, not int64"),
    (b'{"id": 99999999999999999999}', "field id is a whole number, not int64: 99999999999999999999"),
    (b'{"id": 9999999999999999999}', "Failed to convert JSON to int64"),
    (b'{"name": 1}', "field name is a whole number, not string"),
    (b'{"pos": {"x": "1"}}', "field pos.x is text, not double"),
    (b'{"tags": ["a", 1]}', "field tags[] is a whole number, not string"),
    (b'{"tags": {}}', "field tags is an object, not list"),
    (b'{"id": 1, "id": 2}', "Column(/id) was specified twice"),
    (b'{"at": "yesterday"}', "Failed to convert JSON to timestamp"),
    (b"[" * 100_000, "no JSON"),
]


@pytest.mark.parametrize(("payload", "reason"), NOT_JSON, ids=[str(payload[:20]) for payload, _ in NOT_JSON])
def test_what_is_no_such_object_is_told_and_its_neighbours_decode(payload, reason):
    found, reasons = rows(JsonDecoder(SCHEMA), [b'{"id": 1}', payload, b'{"id": 2}'])
    assert [row and row["id"] for row in found] == [1, None, 2]
    assert reasons[0] is reasons[2] is None and reason in reasons[1]


def test_pieces_of_objects_do_not_make_one_together():
    """Each pair is JSON if the line feed between payloads is taken for space."""
    for pair in (
        [b'{"id":', b"1}"],
        [b'{"id": 1}{"id": 2}', b""],
        [b'{"tags": ["a"', b',"b"]}'],
        [b'{"name": "x}', b'{"}'],
    ):
        assert rows(JsonDecoder(SCHEMA), [b"{}", *pair, b"{}"])[0][1:3] == [None, None], pair


def test_many_bad_among_many_good_against_pythons_own_json():
    dice = random.Random(5)
    payloads, expected = [], []
    for number in range(5000):
        kind = dice.randrange(40)  # of bad ones both that Python sees and that only Arrow does
        if kind == 0:
            payloads.append(dice.randbytes(dice.randrange(20)))
            expected.append(None)
        elif kind in (1, 2):
            payloads.append((b'{"id": "%d"}', b'{"id": 1, "id": %d}')[kind - 1] % number)
            expected.append(None)
        else:
            name = "".join(dice.choices('ab"\\{}\n\u00fc\U0001f600', k=dice.randrange(9)))
            payloads.append(json.dumps({"id": number, "name": name}, ensure_ascii=dice.random() < 0.5).encode())
            expected.append((number, name))
    found, _ = rows(JsonDecoder(SCHEMA), payloads)
    assert [row and (row["id"], row["name"]) for row in found] == expected


def test_a_schema_is_inferred():
    schema = infer_schema([
        b"not this one",
        b'{"a": 1, "b": "2012-01-31", "c": null, "d": {"x": 1, "none": {}}, "e": [], "f": [1, 2.5]}',
        b'{"a": 2, "d": {"y": true}, "g": 1.5, "h": {}}',
        b'{"a": null, "g": 3}',
    ])  # fmt: skip
    assert schema == parse_schema("""
        a: int64
        b: string
        c: string
        d: struct<x: int64, y: bool>
        e: list<item: string>
        f: list<item: double>
        g: double
    """)
    with pytest.raises(ValueError, match=r"field 'd.x\[\]' is of one kind in some messages and of another in others"):
        infer_schema([b'{"d": {"x": [1]}}', b'{"d": {"x": ["1"]}}'])
    with pytest.raises(ValueError, match="none of the first messages is a JSON object"):
        infer_schema([b"1", b"\xff"])


def test_the_first_messages_come_from_all_partitions(tmp_path):
    for partition in (0, 1):
        with Log(tmp_path / f"clicks-{partition}", writable=True) as log:
            log.append(build_message_set([b"%d %d" % (partition, number) for number in range(100)], "gzip"))
    with open_source(logs=f"0:{tmp_path}") as source:
        found = list(first_messages(source, ["clicks"], 6))
    assert found == [b"%d %d" % (partition, number) for partition in (0, 1) for number in range(3)]


def test_schemas_as_text():
    schema = pa.schema([
        ("a", pa.int64()), ("b c", pa.list_(pa.struct([("x", pa.float32()), ("y", pa.list_(pa.string()))]))),
        ("d", pa.timestamp("ms", "UTC")), ("e", pa.decimal128(10, 2)), ("f", pa.map_(pa.string(), pa.int32())),
        pa.field("g", pa.date32(), nullable=False),
    ])  # fmt: skip
    printed = parse_schema(str(schema))
    assert [(field.name, field.type) for field in printed] == [(field.name, field.type) for field in schema]
    assert parse_schema("# a comment\n\nid int32\nall list<string>") == pa.schema(
        [("id", pa.int32()), ("all", pa.list_(pa.string()))]
    )
    for text, said in (
        ("a: strin", "line 1 .*'strin' is no type"),
        ("a\n", "line 1"),
        ("", "has no columns"),
        ("a: map<int8>", "no type"),
    ):
        with pytest.raises(ValueError, match=said):
            parse_schema(text)
    with pytest.raises(ValueError, match="column a: JSON has no date32"):
        JsonDecoder(parse_schema("a: date32"))


# --- Avro ---------------------------------------------------------------------------------------------------------

AVRO = {
    "type": "record", "name": "ns.Click", "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["OPEN", "CLOSE"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "pos", "type": {"type": "record", "name": "Pos", "fields": [{"name": "x", "type": "double"}]}},
        {"name": "before", "type": ["null", "Pos"]},
    ],
}  # fmt: skip
CLICK = {
    "id": 7, "name": None, "kind": "OPEN", "at": datetime.datetime(2012, 1, 31, 12, tzinfo=datetime.timezone.utc),
    "day": datetime.date(2012, 1, 31), "key": "00000000-0000-0000-0000-000000000007", "price": decimal.Decimal("1.50"),
    "hash": b"1234", "tags": ["a"], "counts": {"a": 1}, "pos": {"x": 1.5}, "before": None,
}  # fmt: skip


def avro(record: dict) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), record)
    return stream.getvalue()


def test_avro_records_are_rows():
    found, reasons = rows(AvroDecoder(json.dumps(AVRO)), [avro(CLICK), avro(CLICK | {"id": -1, "before": {"x": 0.0}})])
    expected = CLICK | {"counts": [("a", 1)]}
    assert found == [expected, expected | {"id": -1, "before": {"x": 0.0}}] and reasons == [None, None]
    found, _ = rows(AvroDecoder(json.dumps(AVRO), skip=5), [b"\0\0\0\0\x07" + avro(CLICK)])
    assert found == [expected]


def test_bytes_that_are_no_such_record():
    good = avro(CLICK)
    dice = random.Random(7)
    bad = [good[:size] for size in range(len(good))] + [good + b"\0"]
    found, reasons = rows(AvroDecoder(json.dumps(AVRO)), [*bad, good])
    assert found[:-1] == [None] * len(bad) and found[-1]["id"] == 7
    assert "1 bytes are left behind the record" in reasons[-2]
    noise = [bytes(dice.choices(good, k=len(good))) for _ in range(300)]
    rows(AvroDecoder(json.dumps(AVRO)), noise)  # whatever comes of it, nothing is raised


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "Expecting property name"),
        ('{"type": "record", "name": "A", "fields": [{"name": "f"}]}', "none: KeyError"),
        ('"string"', "it is no record"),
        (
            '{"type": "record", "name": "A", "fields": [{"name": "f", "type": ["int", "string"]}]}',
            "f is a union of several",
        ),
        ('{"type": "record", "name": "A", "fields": [{"name": "f", "type": ["null", "A"]}]}', r"f holds itself \(A\)"),
        ('{"type": "record", "name": "A", "fields": [{"name": "f", "type": "B"}]}', "f is of an unknown type 'B'"),
    ],
)
def test_an_avro_schema_that_columns_cannot_have(schema, said):
    with pytest.raises(ValueError, match=said):
        AvroDecoder(schema)


# --- Protobuf -----------------------------------------------------------------------------------------------------


def descriptors(**message: str) -> bytes:
    """A descriptor set as protoc writes it, of messages whose fields are given in Protobuf's text format."""
    from google.protobuf import text_format

    file = descriptor_pb2.FileDescriptorProto(name="clicks.proto", package="ns", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.enum_type.add(name="Kind", value=[{"name": "OPEN", "number": 0}, {"name": "CLOSE", "number": 1}])
    for name, fields in message.items():
        text_format.Parse(f'name: "{name}" {fields}', file.message_type.add())
    stamp = descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    return descriptor_pb2.FileDescriptorSet(file=[stamp, file]).SerializeToString()


PROTOBUF = descriptors(
    Pos='field { name: "x" number: 1 type: TYPE_DOUBLE label: LABEL_OPTIONAL }',
    Click="""
        field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
        field { name: "name" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL proto3_optional: true oneof_index: 0 }
        field { name: "kind" number: 3 type: TYPE_ENUM type_name: ".ns.Kind" label: LABEL_OPTIONAL }
        field { name: "at" number: 4 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
        field { name: "tags" number: 5 type: TYPE_STRING label: LABEL_REPEATED }
        field { name: "pos" number: 6 type: TYPE_MESSAGE type_name: ".ns.Pos" label: LABEL_OPTIONAL }
        field { name: "path" number: 7 type: TYPE_MESSAGE type_name: ".ns.Pos" label: LABEL_REPEATED }
        field { name: "counts" number: 8 type: TYPE_MESSAGE type_name: ".ns.Click.CountsEntry" label: LABEL_REPEATED }
        nested_type {
          name: "CountsEntry" options { map_entry: true }
          field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
          field { name: "value" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
        }
        oneof_decl { name: "_name" }
    """,
    Tree='field { name: "child" number: 1 type: TYPE_MESSAGE type_name: ".ns.Tree" label: LABEL_OPTIONAL }',
)


def click_class():
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(PROTOBUF).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("ns.Click"))


def test_protobuf_messages_are_rows():
    full = click_class()(id=7, name="", kind=1, tags=["a", "b"], counts={"a": 1})
    full.at.seconds, full.at.nanos = 1_328_011_200, 5000
    full.pos.x = 1.5
    full.path.add(x=2.5)
    unknown = click_class()(kind=9)
    decoder = ProtobufDecoder("ns.Click", PROTOBUF)
    found, reasons = rows(decoder, [full.SerializeToString(), b"", unknown.SerializeToString()])
    at = datetime.datetime(2012, 1, 31, 12, microsecond=5, tzinfo=datetime.timezone.utc)
    empty = {"id": 0, "name": None, "kind": "OPEN", "at": None, "tags": [], "pos": None, "path": [], "counts": []}
    assert found == [
        {
            "id": 7, "name": "", "kind": "CLOSE", "at": at, "tags": ["a", "b"], "pos": {"x": 1.5},
            "path": [{"x": 2.5}], "counts": [("a", 1)],
        },
        empty,
        empty | {"kind": "9"},
    ]  # fmt: skip
    assert reasons == [None] * 3
    found, reasons = rows(decoder, [b"\xff", full.SerializeToString()[:-1], b""])
    assert found == [None, None, empty] and "DecodeError" in reasons[0]
    assert rows(ProtobufDecoder("ns.Click", PROTOBUF, skip=2), [b"xx"])[0] == [empty]


def test_protobuf_classes_by_their_module():
    decoder = ProtobufDecoder("google.protobuf.duration_pb2:Duration")
    assert decoder.schema == parse_schema("seconds: int64\nnanos: int32")
    assert rows(decoder, [b"\x08\x05"])[0] == [{"seconds": 5, "nanos": 0}]


def test_messages_that_columns_cannot_have():
    for name, data, said in (
        ("ns.Tree", PROTOBUF, "message ns.Tree holds itself"),
        ("ns.Clicks", PROTOBUF, "no message 'ns.Clicks' in the file descriptor set"),
        ("ns.Click", b"\xff\xff", "no message 'ns.Click' in the file descriptor set"),
        ("json:loads", None, "json:loads is no message"),
        ("nowhere:Message", None, "No module named 'nowhere'"),
        ("nowhere", None, "expected MODULE:NAME"),
    ):
        with pytest.raises(ValueError, match=said):
            ProtobufDecoder(name, data)


# --- the user's own ---------------------------------------------------------------------------------------------------


def lengths(values: pa.BinaryArray) -> pa.RecordBatch:
    import pyarrow.compute as pc

    return pa.record_batch({"length": pc.binary_length(values)})


def lengths_of_long_ones(values: pa.BinaryArray):
    import pyarrow.compute as pc

    return lengths(values), pc.less(pc.binary_length(values), 3)


def as_struct(values: pa.BinaryArray) -> pa.StructArray:
    return pa.array(
        [{"first": value[:1]} if value else None for value in values.to_pylist()], pa.struct([("first", pa.binary())])
    )


def test_functions():
    assert rows(FunctionDecoder(lengths), [b"abc", b""]) == ([{"length": 3}, {"length": 0}], [None, None])
    found, reasons = rows(FunctionDecoder(lengths_of_long_ones), [b"abc", b""])
    assert found == [{"length": 3}, None] and reasons == [None, "the decoder marked it"]
    assert rows(FunctionDecoder(as_struct), [b"abc", b""])[0] == [{"first": b"a"}, None]
    prefixed = PrefixedDecoder(FunctionDecoder(lengths), "it_")
    assert rows(prefixed, [b"abc"])[0] == [{"it_length": 3}]


def too_few(values: pa.BinaryArray) -> pa.RecordBatch:
    return lengths(values[:-1])


def other_columns(values: pa.BinaryArray) -> pa.RecordBatch:
    return pa.record_batch({"length" if not len(values) else "size": pa.nulls(len(values))})


def raising(values: pa.BinaryArray) -> pa.RecordBatch:
    if len(values):
        raise RuntimeError("out of\ncheese")
    return lengths(values)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (too_few, "was given 2 payloads and gave 1 rows"),
        (other_columns, r"gave columns \(size null\), not \(length null\)"),
        (raising, "raised RuntimeError: out of cheese"),
    ],
)
def test_functions_that_do_not_keep_to_it(function, said):
    with pytest.raises(DecoderError, match=said):
        decoded(FunctionDecoder(function), pa.array([b"a", b"b"]))


def test_a_function_that_gives_something_else():
    with pytest.raises(DecoderError, match="gave a list; it has to be a pyarrow RecordBatch or StructArray"):
        FunctionDecoder(lambda values: values.to_pylist())


def test_what_to_install_is_said(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(decoders.importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"pip install 'kafka07c\[avro\]'"):
        AvroDecoder(json.dumps(AVRO))
    with pytest.raises(MissingExtraError, match=r"pip install 'kafka07c\[protobuf\]'"):
        ProtobufDecoder("ns.Click", PROTOBUF)
