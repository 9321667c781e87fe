"""build_message_set: the bytes that the Scala producer would send, from whatever holds the payloads."""

from __future__ import annotations

import hashlib
import random
import struct
import zlib

import numpy
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
import recorded
from agreement import entry, xerial
from kafka07c import MessageSet, _crc32, build_message_set
from kafka07c._build import wrap_message_set
from kafka07c._views import Codec

PAYLOADS = [b"one", b"", bytes(range(256)), b"thirteen byte", b"\xff" * 1000]
PLAIN = b"".join(entry(p) for p in PAYLOADS)


def test_entries_as_the_format_says():
    assert build_message_set([b"abc"]) == bytes.fromhex("00000009 01 00 352441c2 616263")
    assert build_message_set([b"abc"], magic=0) == bytes.fromhex("00000008 00 352441c2 616263")
    assert build_message_set(PAYLOADS) == PLAIN
    assert build_message_set(PAYLOADS, magic=0) == b"".join(entry(p, magic=0) for p in PAYLOADS)


def is_as_built_by_scala(one: recorded.Recorded) -> bool:
    """Good plain entries of one magic, no attributes: what there is only one way of writing."""
    decoded = oracle.decode(one.data, final=True, shallow=True)
    forms = {(m.codec, m.attributes, m.magic) for m in decoded.messages}
    return decoded.error is None and forms in ({(0, 0, 0)}, {(0, 0, 1)})


PLAIN_RECORDED = [one for one in recorded.everything() if is_as_built_by_scala(one)]


@pytest.mark.parametrize("one", PLAIN_RECORDED, ids=[r.name for r in PLAIN_RECORDED])
def test_bytes_are_those_of_the_scala_producer(one):
    messages = oracle.decode(one.data).messages
    assert build_message_set([m.payload for m in messages], magic=messages[0].magic) == one.data


def test_enough_was_compared_with_the_scala_producer():
    assert len(PLAIN_RECORDED) > 50
    assert {oracle.decode(r.data).messages[0].magic for r in PLAIN_RECORDED} == {0, 1}


@pytest.mark.parametrize("name", ["produce-gzip-5", "produce-snappy-5", "produce-snappy-multiblock"])
def test_wrappers_are_laid_out_as_the_scala_producers(name):
    """Compressed bytes differ from one deflater to the next; all around them is the same."""
    one = next(r for r in recorded.decoded_by_scala() if r.name == name)
    want = oracle.read_header(one.data, 0)
    messages = oracle.decode(one.data).messages
    built = build_message_set([m.payload for m in messages], want.codec)
    got = oracle.read_header(built, 0)
    assert (got.end, got.magic, got.attributes) == (len(built), want.magic, want.attributes)
    inner = [oracle.inflate(h.codec, d[h.payload_start : h.end], oracle.Budget(10**6)) for h, d in
             ((got, built), (want, one.data))]  # fmt: skip
    assert inner[0] == inner[1]
    if want.codec == oracle.SNAPPY:
        assert built[got.payload_start :][:16] == one.data[want.payload_start :][:16] == xerial()


def test_snappy_blocks_are_of_32768_bytes():
    payload = bytes(100_000)
    built = build_message_set([payload], "snappy")
    position, lengths = oracle.read_header(built, 0).payload_start + 16, []
    while position < len(built):
        (size,) = struct.unpack_from(">i", built, position)
        block = built[position + 4 : position + 4 + size]
        lengths.append(len(oracle.inflate_snappy_block(block, oracle.Budget(10**6))))
        position += 4 + size
    assert lengths == [32768, 32768, 32768, 100_010 - 3 * 32768]


def test_gzip_of_one_member_with_nothing_in_its_header():
    built = build_message_set(PAYLOADS, "gzip")
    compressed = built[10:]
    assert compressed[:4] == b"\x1f\x8b\x08\x00", "no file name, no time, no comment"
    member = zlib.decompressobj(31)
    assert member.decompress(compressed) == PLAIN and member.eof and not member.unused_data


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
@pytest.mark.parametrize("payloads", [PAYLOADS, [b""], [b"x"] * 5000, [bytes(70_000), b"", bytes(70_000)]])
def test_round_trip(codec, payloads):
    built = build_message_set(payloads, codec)
    assert type(built) is bytes
    message_set = MessageSet(built, final=True)
    assert message_set.payloads() == payloads
    assert {str(m.codec) for m in message_set} == {codec}
    assert (message_set.valid_bytes, message_set.error) == (len(built), None)
    decoded = oracle.decode(built, final=True)
    assert [m.payload for m in decoded.messages] == payloads and decoded.error is None
    assert len(MessageSet(built, shallow=True)) == (len(payloads) if codec == "none" else 1)


@given(st.lists(st.binary(max_size=300), max_size=20), st.sampled_from([(c, 1) for c in Codec] + [(Codec.NONE, 0)]))
@settings(max_examples=100, deadline=None)
def test_any_payloads_come_back(payloads, form):
    codec, magic = form
    built = build_message_set(payloads, codec, magic=magic)
    assert MessageSet(built, final=True).payloads() == payloads
    decoded = oracle.decode(built, final=True)
    assert decoded.error is None
    assert [(m.payload, m.magic) for m in decoded.messages] == [(p, magic) for p in payloads]


def test_no_payloads():
    columns = [pa.array([], pa.binary()), pa.chunked_array([], pa.binary()), numpy.zeros((0, 3), "u1")]
    for nothing in ([], (), iter(()), *columns):
        for codec in ("none", "gzip", "snappy"):
            assert build_message_set(nothing, codec) == b""
    assert build_message_set(b"", offsets=[0]) == b""


@pytest.fixture(params=_crc32.kernels())
def kernel(request):
    before = _crc32.kernel()
    _crc32.select_kernel(request.param)
    yield request.param
    _crc32.select_kernel(before)


@pytest.mark.parametrize("magic", [0, 1])
def test_every_length_and_every_kernel(kernel, magic):
    """One after the other, in any order, and the last ones at the end of the memory."""
    rng = random.Random(magic)
    payloads = [rng.randbytes(length) for length in [*range(700), 1500, 3000, 70_000, *range(140, -1, -1)]]
    want = b"".join(entry(payload, magic=magic) for payload in payloads)
    assert build_message_set(payloads, magic=magic) == want
    places = numpy.cumsum([0, *map(len, payloads)])
    assert build_message_set(b"".join(payloads), magic=magic, offsets=places) == want
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        assert build_message_set(pa.array(payloads, kind), magic=magic) == want
    rng.shuffle(payloads)
    assert build_message_set(payloads, magic=magic) == b"".join(entry(payload, magic=magic) for payload in payloads)


@pytest.mark.parametrize("count", range(1, 10))
def test_any_number_of_any_size(kernel, count):
    for length in (0, 1, 10, 64, 65, 128, 129, 900):
        payloads = [bytes([i]) * length for i in range(count)]
        assert build_message_set(payloads) == b"".join(map(entry, payloads))
        assert build_message_set(map(bytearray, payloads)) == b"".join(map(entry, payloads))


# from objects


@pytest.mark.parametrize(
    "payloads",
    [
        PAYLOADS,
        tuple(PAYLOADS),
        (p for p in PAYLOADS),
        {p: None for p in PAYLOADS},
        [bytearray(p) for p in PAYLOADS],
        [memoryview(b"-" + p)[1:] for p in PAYLOADS],
        [numpy.frombuffer(p, numpy.uint8) for p in PAYLOADS],
        [pa.py_buffer(p) for p in PAYLOADS],
        numpy.array(PAYLOADS, object),
        pa.array(PAYLOADS).to_numpy(zero_copy_only=False),
    ],
    ids=["list", "tuple", "generator", "dict", "bytearrays", "views", "arrays", "buffers", "objects", "from arrow"],
)
def test_any_iterable_of_buffers(payloads):
    assert build_message_set(payloads) == PLAIN


def test_messages_of_a_set_can_be_sent_on():
    assert build_message_set(m.payload for m in MessageSet(PLAIN)) == PLAIN


def test_a_generators_error_comes_through():
    def payloads():
        yield b"a"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        build_message_set(payloads())


@pytest.mark.parametrize(
    "payloads, error, says",
    [
        ([b"a", "text"], TypeError, "payload 1 is str"),
        ([numpy.str_("text")], TypeError, "str"),
        ([5], TypeError, "payload 0 is int"),
        ([b"a", None], ValueError, "payload 1 is None"),
        (b"one", TypeError, "list"),
        (bytearray(b"one"), TypeError, "list"),
        (memoryview(b"one"), TypeError, "payload"),
        ("text", TypeError, "list"),
        (5, TypeError, "iterable"),
        (None, TypeError, "iterable"),
        ([memoryview(b"abcdef")[::2]], (BufferError, ValueError), "contiguous"),
        (numpy.array(["text"]), TypeError, "payload"),
        (numpy.zeros(3, numpy.uint8), TypeError, "offsets"),
        (numpy.arange(3), TypeError, "offsets"),
    ],
)
def test_what_is_no_list_of_bytes(payloads, error, says):
    with pytest.raises(error, match=says):
        build_message_set(payloads)


# from numpy


def test_rows_of_a_matrix():
    matrix = numpy.arange(24, dtype=numpy.uint8).reshape(4, 6)
    want = build_message_set([row.tobytes() for row in matrix])
    assert build_message_set(matrix) == want
    assert build_message_set(numpy.asfortranarray(matrix)) == want
    assert build_message_set(matrix[::-2, 1:]) == build_message_set([r.tobytes() for r in matrix[::-2, 1:]])
    assert build_message_set(matrix[:, :0]) == build_message_set([b""] * 4)


def test_fixed_width_bytes_of_numpy():
    assert build_message_set(numpy.array([b"ab", b"c", b"def"])) == build_message_set([b"ab", b"c", b"def"])


BUFFER = b"".join(PAYLOADS)
PLACES = numpy.cumsum([0, *map(len, PAYLOADS)])


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint64", "uint16", ">i8"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_one_buffer_with_offsets(dtype, codec):
    for buffer in (BUFFER, bytearray(BUFFER), numpy.frombuffer(BUFFER, numpy.uint8), pa.py_buffer(BUFFER)):
        built = build_message_set(buffer, codec, offsets=PLACES.astype(dtype))
        assert MessageSet(built, final=True).payloads() == PAYLOADS


def test_offsets_may_leave_out_what_is_before_and_after():
    assert build_message_set(b"abcdef", offsets=[1, 3, 3, 5]) == build_message_set([b"bc", b"", b"de"])
    assert build_message_set(b"abcdef", offsets=pa.array([1, 3])) == build_message_set([b"bc"])
    assert build_message_set(b"abcdef", offsets=numpy.array([1, 9, 3, 9])[::2], magic=0) == entry(b"bc", magic=0)


@pytest.mark.parametrize(
    "offsets",
    [[0, 7], [-1, 3], [3, 2], [0, 4, 2], [], [[0, 1]], [0.0, 1.0], [0, 2**63], [2**63, 2**63], [0, 2**70], [7], ["0"]],
)
def test_offsets_that_lie(offsets):
    with pytest.raises((ValueError, OverflowError), match="offsets"):
        build_message_set(b"abcdef", offsets=offsets)


# from Arrow

TEXTS = ["one", "", "é☃", "thirteen byte", "x" * 1000]
BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]
STRING_TYPES = [pa.string(), pa.large_string(), pa.string_view()]


@pytest.mark.parametrize("kind", BINARY_TYPES, ids=str)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_arrow_binary(kind, codec):
    built = build_message_set(pa.array(PAYLOADS, kind), codec)
    assert MessageSet(built, final=True).payloads() == PAYLOADS
    if codec == "none":
        assert built == PLAIN


@pytest.mark.parametrize("kind", STRING_TYPES, ids=str)
def test_arrow_strings_go_as_utf8(kind):
    assert build_message_set(pa.array(TEXTS, kind)) == build_message_set([t.encode() for t in TEXTS])


@pytest.mark.parametrize("kind", [*BINARY_TYPES, pa.binary(4)], ids=str)
@pytest.mark.parametrize("cut", [slice(1, 4), slice(3, 3), slice(2, None), slice(8, None)], ids=str)
def test_slices_of_arrow_arrays(kind, cut):
    payloads = [b"%04d" % i for i in range(9)]
    column = pa.array(payloads, kind)
    start, stop, _ = cut.indices(9)
    assert build_message_set(column.slice(start, stop - start)) == build_message_set(payloads[cut])


@pytest.mark.parametrize("kind", BINARY_TYPES, ids=str)
def test_chunked_arrow(kind):
    column = pa.chunked_array([pa.array(PAYLOADS[:2], kind), pa.array([], kind), pa.array(PAYLOADS, kind).slice(2)])
    assert build_message_set(column) == PLAIN
    assert MessageSet(build_message_set(column, "gzip")).payloads() == PAYLOADS
    assert len(MessageSet(build_message_set(column, "gzip"), shallow=True)) == 1, "one wrapper holds all chunks"


def test_views_over_several_buffers():
    parts = [pa.array([b"a" * 20, b"b" * 30], pa.binary_view()), pa.array([b"c" * 40, b"short"], pa.binary_view())]
    whole = pa.concat_arrays(parts)
    assert build_message_set(whole) == build_message_set([b"a" * 20, b"b" * 30, b"c" * 40, b"short"])


def test_what_was_read_can_be_built_again():
    batch = pa.record_batch(MessageSet(PLAIN))
    assert build_message_set(batch.column("value")) == PLAIN
    views = pa.record_batch(MessageSet(PLAIN).binary_view())
    assert build_message_set(views.column("value")) == PLAIN


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_message_set_is_sent_on_without_objects(codec):
    for messages in (MessageSet(PLAIN), MessageSet(build_message_set(PAYLOADS, "snappy")), MessageSet(PLAIN).skip(2)):
        want = build_message_set(messages.payloads(), codec)
        assert build_message_set(messages.binary_view(), codec) == want
        assert build_message_set(pa.table(messages), codec) == want


@pytest.mark.parametrize("kind", [*BINARY_TYPES, *STRING_TYPES], ids=str)
def test_the_column_of_a_struct(kind):
    texts = [f"{i} of them, of some length" for i in range(9)]
    values = pa.array(["before", *texts, "after"], kind).slice(1, 9)
    batch = pa.record_batch({"number": list(range(9)), "value": values, "values": pa.array(["x"] * 9)})
    want = build_message_set([text.encode() for text in texts])
    assert build_message_set(batch) == want
    assert build_message_set(pa.table(batch)) == want
    assert build_message_set(batch.to_struct_array().slice(2, 5)) == build_message_set([t.encode() for t in texts[2:7]])


def test_nulls_in_a_struct_are_refused():
    with pytest.raises(ValueError, match="payload 1 is null"):
        build_message_set(pa.record_batch({"value": [b"a", None]}))
    struct = pa.array([{"value": b"a"}, {"value": b"b"}, None, {"value": None}])
    assert build_message_set(struct.slice(0, 2)) == build_message_set([b"a", b"b"])
    with pytest.raises(ValueError, match="payload 1 is null"):
        build_message_set(struct.slice(1, 2))
    with pytest.raises(ValueError, match="payload 0 is null"):
        build_message_set(struct.slice(3, 1))


@pytest.mark.parametrize("kind", [*BINARY_TYPES, *STRING_TYPES, pa.binary(1)], ids=str)
def test_nulls_are_refused(kind):
    column = pa.array(["a", None, "b"], kind)
    with pytest.raises(ValueError, match="payload 1 is null"):
        build_message_set(column)
    with pytest.raises(ValueError, match="null"):
        build_message_set(pa.chunked_array([column.slice(0, 1), column]))
    with pytest.raises(ValueError, match="payload 0 is null"):
        build_message_set(column.slice(1))
    without = build_message_set(column.slice(2))
    assert MessageSet(without).payloads() == [b"b"], "nulls outside the slice are nobody's business"


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2]),
        pa.array([[b"a"]]),
        pa.array([b"a"]).dictionary_encode(),
        pa.array([None]),
        pa.record_batch({"payload": [b"a"]}),
        pa.table({"payload": [b"a"]}),
        pa.table({"value": [1]}),
    ],
    ids=["int64", "list", "dictionary", "null", "record batch", "table", "table of int64"],
)
def test_arrow_columns_of_other_kinds(column):
    with pytest.raises(TypeError, match="Arrow"):
        build_message_set(column)


@pytest.mark.parametrize("kind, width", [(pa.binary(), 4), (pa.large_binary(), 8)], ids=str)
def test_an_arrow_column_whose_offsets_go_backwards(kind, width):
    places = numpy.array([0, 5, 3, 6], f"<i{width}")
    column = pa.Array.from_buffers(kind, 3, [None, pa.py_buffer(places), pa.py_buffer(b"abcdef")])
    with pytest.raises(ValueError, match="payload 1 has -2 bytes: the Arrow column is damaged"):
        build_message_set(column)


def test_arrow_capsules_are_released():
    payloads = pa.array([b"x" * 100] * 1000)
    before = pa.total_allocated_bytes()
    for _ in range(50):
        build_message_set(payloads)
        build_message_set(pa.chunked_array([payloads, payloads]))
        with pytest.raises(TypeError):
            build_message_set(pa.table({"payload": payloads}))
        build_message_set(pa.table({"value": payloads}))
    assert pa.total_allocated_bytes() == before


# wrappers around what is built already


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda b: numpy.frombuffer(b, "u1")])
def test_a_wrapper_around_a_set(codec, kind):
    wrapper = wrap_message_set(kind(PLAIN), codec)
    assert type(wrapper) is bytes
    assert wrapper == build_message_set(PAYLOADS, codec)
    assert oracle.decode(wrapper, final=True).error is None
    assert [m.payload for m in oracle.decode(wrapper).messages] == PAYLOADS


def test_a_wrapper_around_a_part_of_a_set():
    second, fourth = MessageSet(PLAIN).offsets[[1, 3]]
    wrapper = wrap_message_set(memoryview(PLAIN)[second:fourth], "snappy")
    assert MessageSet(wrapper).payloads() == PAYLOADS[1:3]


def test_no_codec_is_no_wrapper():
    assert wrap_message_set(PLAIN, "none") is PLAIN
    assert wrap_message_set(memoryview(PLAIN)[4:], 0) == PLAIN[4:]
    for codec in ("none", "gzip", "snappy"):
        assert wrap_message_set(bytearray(), codec) == b""


@pytest.mark.parametrize(
    ("plain", "codec", "error", "says"),
    [
        (PLAIN, "lz4", ValueError, "codec"),
        ("text", "gzip", TypeError, "bytes-like"),
        ([b"a"], "gzip", TypeError, "bytes-like"),
        (memoryview(PLAIN)[::2], "gzip", BufferError, "contiguous"),
    ],
)
def test_what_cannot_be_wrapped(plain, codec, error, says):
    with pytest.raises(error, match=says):
        wrap_message_set(plain, codec)


# arguments


@pytest.mark.parametrize("codec", ["lz4", "", 3, -1, 256, None, b"gzip", 1.5])
def test_no_such_codec(codec):
    with pytest.raises(ValueError, match="codec"):
        build_message_set([b"a"], codec)


@pytest.mark.parametrize("same", [("gzip", 1, Codec.GZIP), ("snappy", 2, Codec.SNAPPY), ("none", 0, Codec.NONE)])
def test_names_of_codecs(same):
    assert len({build_message_set(PAYLOADS, codec) for codec in same}) == 1


@pytest.mark.parametrize(
    "options", [{"magic": 2}, {"magic": -1}, {"magic": 0, "codec": "gzip"}, {"magic": 0, "codec": 2}]
)
def test_magic_that_cannot_be(options):
    with pytest.raises(ValueError, match="magic"):
        build_message_set([b"a"], **options)


def test_payloads_are_left_as_they_are():
    memory = bytearray(b"payload")
    digest = hashlib.sha1(memory).digest()
    built = build_message_set([memory, memory], "snappy")
    memory.append(1)  # nothing holds it
    assert hashlib.sha1(memory[:-1]).digest() == digest
    assert MessageSet(built).payloads() == [b"payload"] * 2
