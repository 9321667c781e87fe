"""MessageSet and Message: every name of their interface, what holds which memory, and who else may touch it."""

from __future__ import annotations

import array
import copy
import gc
import gzip
import mmap
import pickle
import sys
import threading
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy
import pyarrow as pa
import pytest

from agreement import entry, gzipped, iterated, nested, snapped
from kafka07c import MessageSet, build_message_set, crc32
from kafka07c._arrow import gather
from kafka07c._views import Codec
from kafka07c.errors import CorruptMessageError, KafkaError, OffsetOutOfRangeError

LONG = b"longer than what an Arrow view holds itself"
#: plain, empty payload, gzip wrapper with a nested wrapper, empty wrapper, snappy wrapper, magic 0
PAYLOADS = [b"one", b"", b"g0", LONG, b"g2", b"s0" * 40, b"s1", b"old"]
PARTS = [
    entry(b"one"),
    entry(b""),
    gzipped(entry(b"g0") + snapped(entry(LONG)) + entry(b"g2", magic=0)),
    gzipped(b""),
    snapped(entry(b"s0" * 40) + entry(b"s1")),
    entry(b"old", magic=0),
]
DATA = b"".join(PARTS)
BASE = 1000
STARTS = [BASE + sum(map(len, PARTS[:i])) for i in range(len(PARTS) + 1)]
OFFSETS = [STARTS[i] for i in (0, 1, 2, 2, 2, 4, 4, 5)]
NEXT_OFFSETS = [STARTS[i] for i in (1, 2, 2, 2, 3, 4, 5, 6)]
INDEXES = [0, 0, 0, 1, 2, 0, 1, 0]
BAD = entry(b"x", crc=1)


@pytest.fixture
def ms() -> MessageSet:
    return MessageSet(DATA, BASE, topic="clicks", broker=3, partition=1)


@pytest.fixture
def broken() -> MessageSet:
    return MessageSet(DATA + BAD + entry(b"after"), BASE, topic="clicks", broker=3, partition=1)


# a set and its messages


def test_fields_of_the_set(ms):
    assert (ms.base_offset, ms.topic, ms.broker, ms.partition) == (BASE, "clicks", 3, 1)
    assert (ms.valid_bytes, ms.size_bytes, ms.next_offset) == (len(DATA), len(DATA), STARTS[-1])
    assert ms.error is None
    assert len(ms) == 8 and ms
    assert "clicks" in repr(ms) and "8 messages" in repr(ms)


def test_fields_of_a_message(ms):
    message = ms[4]
    assert (message.offset, message.index, message.next_offset) == (STARTS[2], 2, STARTS[3])
    assert (message.topic, message.broker, message.partition) == ("clicks", 3, 1)
    assert (message.magic, message.attributes, message.crc) == (0, 0, crc32(b"g2"))
    assert message.value == b"g2" and type(message.value) is bytes
    assert type(message.payload) is memoryview and message.payload.readonly and message.payload == b"g2"
    assert str(STARTS[2]) in repr(message) and "g2" in repr(message)


def test_codec_is_the_stored_entrys(ms):
    assert [str(m.codec) for m in ms] == ["none", "none", "gzip", "gzip", "gzip", "snappy", "snappy", "none"]
    assert all(type(m.codec) is Codec for m in ms)
    assert ms[2].codec == 1 and ms[5].codec == 2


def test_attributes_are_the_messages_own_byte():
    stored = entry(b"a", attributes=0xFC) + gzipped(entry(b"b", attributes=0x80))
    assert [m.attributes for m in MessageSet(stored)] == [0xFC, 0x80]


def test_unknown_source_is_none():
    message = MessageSet(DATA)[0]
    assert (message.topic, message.broker, message.partition) == (None, None, None)


def test_iteration_indexes_and_slices(ms):
    assert [m.value for m in ms] == PAYLOADS
    assert [m.value for m in ms] == PAYLOADS, "a set can be gone through again"
    assert [ms[i].value for i in range(8)] == PAYLOADS
    assert [ms[i - 8].value for i in range(8)] == PAYLOADS
    assert ms[numpy.int64(3)].value == LONG
    for cut in (slice(2, 5), slice(None, None, -1), slice(-3, 100), slice(5, 2), slice(1, 8, 3)):
        assert type(ms[cut]) is list
        assert [m.value for m in ms[cut]] == PAYLOADS[cut]


@pytest.mark.parametrize("place", [8, -9, 10**30, -(10**30)])
def test_no_such_message(ms, place):
    with pytest.raises(IndexError):
        ms[place]


@pytest.mark.parametrize("place", ["0", 1.0, None])
def test_no_such_kind_of_index(ms, place):
    with pytest.raises(TypeError):
        ms[place]


def test_iterators_go_each_their_own_way(ms):
    first, second = iter(ms), iter(ms)
    assert next(first).value == b"one" and next(first).value == b""
    assert next(second).value == b"one"
    assert len(list(first)) == 6 and next(first, None) is None


def test_columns(ms):
    assert (ms.offsets.tolist(), ms.next_offsets.tolist()) == (OFFSETS, NEXT_OFFSETS)
    assert (ms.indexes.tolist(), ms.lengths.tolist()) == (INDEXES, [len(p) for p in PAYLOADS])
    assert ms.payloads() == PAYLOADS
    assert {type(p) for p in ms.payloads()} == {bytes}


PLAIN = entry(b"one") + entry(b"") + entry(LONG)


@pytest.mark.parametrize("data", [PLAIN, DATA, b""], ids=["plain", "wrappers", "empty"])
@pytest.mark.parametrize(
    "name, dtype", [("offsets", "int64"), ("next_offsets", "int64"), ("indexes", "int32"), ("lengths", "int32")]
)
def test_column_arrays_are_read_only_and_of_one_kind(data, name, dtype):
    message_set = MessageSet(data)
    column = getattr(message_set, name)
    assert type(column) is numpy.ndarray and column.dtype == dtype and column.shape == (len(message_set),)
    assert column.flags.c_contiguous and column.flags.aligned and not column.flags.writeable
    with pytest.raises(ValueError):
        column[:] = 0
    if len(message_set):
        with pytest.raises(ValueError):
            column.flags.writeable = True


@pytest.mark.parametrize("data", [PLAIN, DATA], ids=["plain", "wrappers"])
@pytest.mark.parametrize("name", ["offsets", "next_offsets", "lengths"])
def test_columns_are_the_cores_own_memory(data, name):
    message_set = MessageSet(data)
    assert numpy.shares_memory(getattr(message_set, name), getattr(message_set, name))
    assert numpy.shares_memory(getattr(message_set, name), getattr(message_set.good(), name))


def test_nothing_can_be_set(ms):
    for thing, names in [(ms, ("topic", "error", "valid_bytes", "new")), (ms[0], ("offset", "new"))]:
        for name in names:
            with pytest.raises(AttributeError):
                setattr(thing, name, 1)
    with pytest.raises(TypeError):
        ms[0].payload[0] = 0


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0", DATA[:3]])
def test_sets_without_messages(data):
    message_set = MessageSet(data, BASE)
    assert len(message_set) == 0 and not message_set and list(message_set) == [] and message_set.payloads() == []
    assert (message_set.valid_bytes, message_set.next_offset, message_set.error) == (0, BASE, None)
    assert message_set.size_bytes == len(data) and message_set.data == data
    assert pa.record_batch(message_set).num_rows == 0
    assert pa.record_batch(message_set.binary_view()).num_rows == 0
    with pytest.raises(IndexError):
        message_set[0]


@pytest.mark.parametrize("wrap", [gzipped, snapped, lambda inner: gzipped(snapped(inner) * 2)])
def test_empty_wrappers_count_as_good_entries(wrap):
    stored = wrap(b"")
    message_set = MessageSet(stored * 3, BASE, final=True)
    assert (len(message_set), message_set.valid_bytes, message_set.error) == (0, 3 * len(stored), None)
    assert message_set.next_offset == BASE + 3 * len(stored)


def test_the_last_message_before_an_empty_inner_wrapper_is_the_wrappers_last():
    stored = gzipped(entry(b"a") + entry(b"b") + gzipped(b""))
    assert MessageSet(stored).next_offsets.tolist() == [0, len(stored)]


def test_nested_wrappers_are_flattened():
    inner = entry(b"a") + gzipped(entry(b"b") + snapped(entry(b"c") + entry(b"d")) + entry(b"e")) + entry(b"f")
    stored = snapped(inner)
    message_set = MessageSet(entry(b"-") + stored, BASE)
    assert message_set.payloads() == [b"-", b"a", b"b", b"c", b"d", b"e", b"f"]
    assert message_set.indexes.tolist() == [0, 0, 1, 2, 3, 4, 5]
    assert message_set.offsets.tolist() == [BASE] + [BASE + 11] * 6
    assert message_set.next_offsets.tolist() == [BASE + 11] * 6 + [BASE + 11 + len(stored)]


def test_names_of_messages_are_unique(ms):
    """(offset, index) names one message; fetching again from any next_offset gives the same names."""
    names = [(m.offset, m.index) for m in ms]
    assert len(set(names)) == len(names)
    by_name = {(m.offset, m.index): m.value for m in ms}
    for start in sorted({m.next_offset for m in ms}):
        for m in MessageSet(DATA[start - BASE :], start):
            assert by_name[m.offset, m.index] == m.value


def test_shallow_leaves_wrappers_closed(ms):
    stored = MessageSet(DATA, BASE, shallow=True)
    assert [(m.offset, m.next_offset) for m in stored] == list(zip(STARTS, STARTS[1:]))
    assert [m.index for m in stored] == [0] * 6
    assert [m.attributes for m in stored] == [0, 0, 1, 1, 2, 0]
    assert gzip.decompress(stored[3].payload) == b""
    assert stored.valid_bytes == ms.valid_bytes
    wrapper = entry(b"no gzip at all", 1)
    assert MessageSet(wrapper, shallow=True, final=True).error is None


# arguments


@pytest.mark.parametrize("data", ["text", None, [1, 2], 5, object()])
def test_what_is_no_buffer(data):
    with pytest.raises(TypeError, match="bytes-like"):
        MessageSet(data)


@pytest.mark.parametrize(
    "data",
    [
        memoryview(DATA)[::2],
        numpy.frombuffer(DATA, numpy.uint8)[::-1],
        numpy.asfortranarray(numpy.zeros((4, 4), numpy.uint8)),
    ],
    ids=["stride", "reversed", "fortran"],
)
def test_buffers_that_are_not_contiguous_are_refused(data):
    with pytest.raises(BufferError, match="contiguous"):
        MessageSet(data)


@pytest.mark.parametrize(
    "options, error",
    [
        ({"base_offset": -1}, ValueError),
        ({"base_offset": 2**63 - len(DATA)}, (ValueError, OverflowError)),
        ({"base_offset": 2**64}, (ValueError, OverflowError)),
        ({"base_offset": "0"}, TypeError),
        ({"max_inflated_bytes": -1}, ValueError),
        ({"max_inflated_bytes": "1"}, TypeError),
        ({"nonsense": 1}, TypeError),
    ],
)
def test_arguments_that_make_no_sense(options, error):
    with pytest.raises(error, match=next(iter(options))):
        MessageSet(DATA, **options)


@pytest.mark.parametrize("offset", ["a", 1.5, None])
def test_an_argument_of_the_wrong_type_is_named(offset):
    with pytest.raises(TypeError, match=f"base_offset is {offset!r}, {type(offset).__name__}; it must be an int"):
        MessageSet(DATA, offset)


@pytest.mark.parametrize("bound", [2**31, 2**62, 2**63 - 1, 2**70])
def test_a_bound_as_large_as_one_likes(bound):
    assert MessageSet(DATA, max_inflated_bytes=bound).payloads() == PAYLOADS


def test_the_largest_base_offset():
    base = 2**63 - 1 - len(DATA)
    message_set = MessageSet(DATA, base)
    assert message_set.next_offset == message_set[-1].next_offset == message_set.next_offsets[-1] == 2**63 - 1


# errors


def test_error_names_the_place_and_what_was_found(broken):
    error = broken.error
    assert isinstance(error, CorruptMessageError)
    assert (error.topic, error.broker, error.partition, error.offset) == ("clicks", 3, 1, STARTS[-1])
    assert error.next_offset == STARTS[-1] + len(BAD)
    assert "clicks" in str(error) and "partition 1" in str(error) and str(STARTS[-1]) in str(error)
    assert "0x00000001" in str(error), "the CRC that was found"


def test_iterating_gives_the_good_messages_then_raises(broken):
    messages, error = iterated(broken)
    assert [m.value for m in messages] == PAYLOADS
    assert (type(error), error.offset, str(error)) == (CorruptMessageError, STARTS[-1], str(broken.error))


def test_len_index_and_slices_cover_the_good_messages(broken):
    assert len(broken) == 8 and broken[-1].value == b"old" and len(broken[:]) == 8
    assert (broken.valid_bytes, broken.next_offset) == (len(DATA), STARTS[-1])


@pytest.mark.parametrize(
    "take",
    [
        lambda ms: ms.offsets,
        lambda ms: ms.next_offsets,
        lambda ms: ms.indexes,
        lambda ms: ms.lengths,
        lambda ms: ms.payloads(),
        lambda ms: pa.record_batch(ms),
        lambda ms: pa.record_batch(ms.binary_view()),
        lambda ms: gather([MessageSet(DATA), ms]),
        lambda ms: list(ms),
    ],
)
def test_nobody_takes_half_for_the_whole(broken, take):
    with pytest.raises(CorruptMessageError) as caught:
        take(broken)
    assert (caught.value.offset, caught.value.topic) == (STARTS[-1], "clicks")
    take(broken.good())


def test_a_set_with_no_good_message_raises_as_well():
    message_set = MessageSet(BAD)
    assert len(message_set) == 0
    for take in (list, pa.record_batch, MessageSet.payloads, lambda m: m.offsets):
        with pytest.raises(CorruptMessageError):
            take(message_set)


def test_good_is_the_set_before_the_error(broken):
    good = broken.good()
    assert type(good) is MessageSet and good.error is None
    assert good.payloads() == [m.value for m in good] == PAYLOADS
    assert (good.offsets.tolist(), good.next_offsets.tolist()) == (OFFSETS, NEXT_OFFSETS)
    assert (good.valid_bytes, good.next_offset) == (broken.valid_bytes, broken.next_offset)
    assert (good.topic, good.broker, good.partition, good.base_offset) == ("clicks", 3, 1, BASE)
    assert pa.record_batch(good).num_rows == 8
    assert broken.error is not None, "the set itself stays as it is"


def test_good_of_a_good_set(ms):
    assert ms.good().payloads() == PAYLOADS and ms.good().error is None


def test_messages_before_a_bad_inner_one_all_point_at_the_wrapper():
    stored = gzipped(entry(b"a") + snapped(entry(b"b") + BAD) + entry(b"c"))
    message_set = MessageSet(entry(b"-") + stored + entry(b"z"), BASE)
    assert message_set.good().payloads() == [b"-", b"a", b"b"]
    assert message_set.good().offsets.tolist() == [BASE, BASE + 11, BASE + 11]
    assert message_set.good().next_offsets.tolist() == [BASE + 11] * 3
    assert (message_set.valid_bytes, message_set.error.offset) == (11, BASE + 11)
    assert message_set.error.next_offset == BASE + 11 + len(stored)


def test_with_error_ends_a_set_with_any_error(ms):
    refusal = OffsetOutOfRangeError("no such offset", topic="clicks", offset=7)
    ended = ms.with_error(refusal)
    assert ended.error is refusal and ms.error is None
    given = []
    with pytest.raises(OffsetOutOfRangeError, match="no such offset") as caught:
        for message in ended:
            given.append(message.value)
    assert given == PAYLOADS and caught.value.offset == 7
    with pytest.raises(OffsetOutOfRangeError):
        ended.offsets
    assert ended.good().payloads() == PAYLOADS
    assert (ended.valid_bytes, ended.next_offset, ended.topic) == (ms.valid_bytes, ms.next_offset, "clicks")
    assert numpy.shares_memory(ended.good().offsets, ms.offsets)


def test_with_error_on_an_empty_set():
    refused = MessageSet(b"", 5, topic="t").with_error(KafkaError("refused"))
    assert (len(refused), refused.base_offset, refused.next_offset) == (0, 5, 5)
    with pytest.raises(KafkaError, match="refused"):
        list(refused)


def test_raising_again_and_again_gathers_nothing(broken):
    """The same exception raised twice would grow its traceback, and keep the frames of whoever caught it alive."""
    depths = set()
    for _ in range(5):
        try:
            broken.payloads()
        except CorruptMessageError as error:
            depths.add(len(traceback.extract_tb(error.__traceback__)))
    assert len(depths) == 1
    assert broken.error.__traceback__ is None


def test_errors_pickle_and_sets_do_not(ms, broken):
    error = pickle.loads(pickle.dumps(broken.error))
    assert str(error) == str(broken.error)
    assert (error.offset, error.next_offset) == (broken.error.offset, broken.error.next_offset)
    for thing, name in [(ms, "MessageSet"), (ms[0], "Message")]:
        with pytest.raises(TypeError, match=name):
            pickle.dumps(thing)
        with pytest.raises(TypeError, match=name):
            copy.copy(thing)


# buffers, and how long they live


def mapped(data: bytes):
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memory


BUFFERS = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "memoryview of bytearray": lambda data: memoryview(bytearray(data)),
    "slice of a memoryview": lambda data: memoryview(b"xyz" + data + b"xyz")[3:-3],
    "signed memoryview": lambda data: memoryview(data).cast("b"),
    "mmap": mapped,
    "numpy": lambda data: numpy.frombuffer(data, numpy.uint8),
    "numpy slice": lambda data: numpy.frombuffer(b"xyz" + data + b"xyz", numpy.uint8)[3:-3],
    "numpy int8": lambda data: numpy.frombuffer(data, numpy.int8).copy(),
    "array": lambda data: array.array("B", data),
    "arrow": pa.py_buffer,
}


@pytest.mark.parametrize("make", BUFFERS.values(), ids=BUFFERS.keys())
def test_any_buffer(make):
    buffer = make(DATA)
    message_set = MessageSet(buffer, BASE)
    assert message_set.payloads() == PAYLOADS
    assert message_set.offsets.tolist() == OFFSETS
    assert message_set.data.readonly and message_set.data == DATA and message_set.data.nbytes == len(DATA)
    del buffer
    gc.collect()
    assert [bytes(m.payload) for m in message_set] == PAYLOADS


def test_wider_items_are_taken_as_bytes():
    data = entry(b"abcdef")
    assert len(data) % 8 == 0
    for typed in (numpy.frombuffer(data, numpy.int64), numpy.frombuffer(data, numpy.uint8).reshape(2, -1)):
        message_set = MessageSet(typed)
        assert (message_set.payloads(), message_set.size_bytes) == ([b"abcdef"], len(data))


def test_nothing_is_copied():
    memory = numpy.frombuffer(bytearray(PLAIN), numpy.uint8)
    message_set = MessageSet(memory)
    view = numpy.frombuffer(message_set[2].payload, numpy.uint8)
    assert numpy.shares_memory(view, memory)
    assert numpy.shares_memory(numpy.frombuffer(message_set.data, numpy.uint8), memory)


def test_payloads_of_a_wrapper_share_its_inflated_memory():
    stored = MessageSet(gzipped(entry(b"first payload") + entry(b"second payload")))
    first, second = (numpy.frombuffer(m.payload, numpy.uint8).__array_interface__["data"][0] for m in stored)
    assert second - first == len(b"first payload") + 10


def junk():
    """Something for freed memory to be overwritten with."""
    return [bytes([i % 256]) * len(DATA) for i in range(2000)]


@pytest.mark.parametrize("i", range(8))
def test_payload_views_keep_the_memory(i):
    view = MessageSet(bytes(bytearray(DATA)), BASE)[i].payload
    gc.collect()
    kept = junk()
    assert view == PAYLOADS[i] and kept


def test_messages_iterators_and_columns_keep_the_set():
    message = MessageSet(bytes(bytearray(DATA)), BASE)[4]
    rest = iter(MessageSet(bytes(bytearray(DATA)), BASE))
    offsets = MessageSet(bytes(bytearray(DATA)), BASE).offsets
    indexes = MessageSet(bytes(bytearray(DATA)), BASE).indexes
    gc.collect()
    kept = junk()
    assert message.value == b"g2" and [m.value for m in rest] == PAYLOADS and kept
    assert offsets.tolist() == OFFSETS and indexes.tolist() == INDEXES


def test_a_bytearray_is_held_as_long_as_anything_of_it_is_out():
    memory = bytearray(DATA)
    message_set = MessageSet(memory)
    payload = message_set[0].payload
    for thing in ("message_set", "payload"):
        with pytest.raises(BufferError):
            memory.append(0)
        if thing == "message_set":
            del message_set
    assert payload == b"one"
    del payload
    memory.append(0)


def test_releasing_a_view_takes_nothing_from_the_others():
    message_set = MessageSet(bytearray(DATA))
    with message_set.data as data:
        assert data == DATA
    first, again = message_set[3].payload, message_set[3].payload
    first.release()
    assert again == LONG and message_set.payloads() == PAYLOADS


def test_a_view_that_its_owner_releases_is_held():
    owner = memoryview(bytearray(DATA))
    message_set = MessageSet(owner)
    owner.release()
    assert message_set.payloads() == PAYLOADS


def test_an_mmap_does_not_close_under_the_set():
    memory = mapped(DATA)
    message_set = MessageSet(memory)
    with pytest.raises(BufferError):
        memory.close()
    assert message_set.payloads() == PAYLOADS
    del message_set
    memory.close()


class Owner(bytearray):
    """A buffer that can be watched."""


@pytest.mark.parametrize(
    "take",
    [
        lambda ms: list(ms),
        lambda ms: [m.payload for m in ms],
        lambda ms: (ms.offsets, ms.indexes, ms.data),
        lambda ms: ms.__arrow_c_array__(),
        lambda ms: ms.binary_view().__arrow_c_array__(),
        lambda ms: pa.record_batch(ms.binary_view()),
        lambda ms: (ms.good(), ms.with_error(KafkaError("x")), gather([ms, ms])),
    ],
)
def test_the_buffer_goes_with_what_was_taken_of_it(take):
    memory = Owner(DATA)
    gone = weakref.ref(memory)
    taken = take(MessageSet(memory))
    del memory, taken
    gc.collect()
    assert gone() is None


def test_error_sets_do_not_hold_on_to_memory():
    memory = Owner(DATA + BAD)
    gone = weakref.ref(memory)
    message_set = MessageSet(memory)
    error = message_set.error
    try:
        list(message_set)
    except CorruptMessageError as caught:
        error = caught.with_traceback(None)
    del memory, message_set
    gc.collect()
    assert gone() is None and error.offset == len(DATA)


# Arrow

SCHEMA = pa.schema(
    [("offset", pa.int64()), ("index", pa.int32()), ("next_offset", pa.int64()), ("value", pa.binary())]
)
VIEW_SCHEMA = SCHEMA.set(3, pa.field("value", pa.binary_view()))
ROWS = {"offset": OFFSETS, "index": INDEXES, "next_offset": NEXT_OFFSETS, "value": PAYLOADS}


def test_record_batch(ms):
    batch = pa.record_batch(ms)
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    assert batch.to_pydict() == ROWS
    assert batch.column("value").null_count == 0


def test_record_batch_of_views(ms):
    batch = pa.record_batch(ms.binary_view())
    batch.validate(full=True)
    assert batch.schema == VIEW_SCHEMA
    assert batch.to_pydict() == ROWS


def test_a_consumer_may_ask_for_a_schema(ms):
    for schema in (SCHEMA, VIEW_SCHEMA):
        batch = pa.record_batch(ms, schema=schema)
        assert batch.schema == schema and batch.to_pydict() == ROWS


def test_plain_sets_to_arrow():
    batch = pa.record_batch(MessageSet(PLAIN, 5))
    assert batch.to_pydict() == {
        "offset": [5, 18, 28],
        "index": [0, 0, 0],
        "next_offset": [18, 28, 5 + len(PLAIN)],
        "value": [b"one", b"", LONG],
    }
    assert pa.record_batch(MessageSet(PLAIN, 5).binary_view()).to_pydict() == batch.to_pydict()


def test_offsets_reach_arrow_without_a_copy():
    message_set = MessageSet(PLAIN)
    batch = pa.record_batch(message_set)
    assert batch.column("offset").buffers()[1].address == message_set.offsets.__array_interface__["data"][0]


def test_binary_views_lie_over_the_fetched_bytes():
    memory = numpy.frombuffer(bytearray(PLAIN), numpy.uint8)
    start = memory.__array_interface__["data"][0]
    batch = pa.record_batch(MessageSet(memory).binary_view())
    data_buffers = batch.column("value").buffers()[2:]
    assert [(b.address, b.size) for b in data_buffers] == [(start, len(PLAIN))]
    memory[-1] ^= 0xFF
    assert batch.column("value")[2].as_py() == LONG[:-1] + bytes([LONG[-1] ^ 0xFF]), "no copy was made"


def test_arrow_outlives_the_set():
    batches = [pa.record_batch(MessageSet(bytes(bytearray(DATA)), BASE)) for _ in range(2)]
    batches += [pa.record_batch(MessageSet(bytes(bytearray(DATA)), BASE).binary_view())]
    gc.collect()
    kept = junk()
    assert [b.to_pydict() for b in batches] == [ROWS] * 3 and kept


def test_arrow_slices_and_tables(ms):
    assert pa.record_batch(ms).slice(3, 2).column("value").to_pylist() == PAYLOADS[3:5]
    table = pa.Table.from_batches([pa.record_batch(ms), pa.record_batch(MessageSet(PLAIN))])
    assert table.num_rows == 11
    assert pa.schema(ms) == SCHEMA


def test_capsules_that_nobody_takes_are_released():
    memory = bytearray(DATA)
    message_set = MessageSet(memory)
    for export in (message_set, message_set.binary_view(), gather([message_set, message_set])):
        for _ in range(100):
            export.__arrow_c_array__()
            export.__arrow_c_schema__()
    del message_set, export
    gc.collect()
    memory.clear()  # a BufferError if any export were left


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_nothing_leaks():
    """Some thousand sets, exports and errors of 100 KB each: a leak of any of them would be hundreds of megabytes."""
    data = build_message_set([bytes(1000)] * 50) + build_message_set([bytes(1000)] * 50, "gzip") + BAD

    def use():
        message_set = MessageSet(bytearray(data))
        good = message_set.good()
        pa.record_batch(good)
        pa.record_batch(good.binary_view())
        good.__arrow_c_array__()
        pa.record_batch(gather([good, good]))
        good.payloads(), good.offsets, iterated(message_set)

    for _ in range(100):
        use()
    before = resident_bytes()
    for _ in range(1000):
        use()
    assert resident_bytes() - before < 20_000_000


# gather


def test_gather_puts_sets_one_behind_the_other(ms):
    gathered = gather([ms, MessageSet(b""), MessageSet(PLAIN, 9), ms])
    assert len(gathered) == 8 + 3 + 8
    batch = pa.record_batch(gathered)
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    middle = pa.record_batch(MessageSet(PLAIN, 9)).to_pydict()
    assert batch.to_pydict() == {name: column + middle[name] + column for name, column in ROWS.items()}


def test_gather_takes_any_iterable_and_as_often_as_wanted(ms):
    gathered = gather(each for each in (ms, ms))
    assert pa.record_batch(gathered) == pa.record_batch(gathered)
    assert pa.record_batch(gather([])).schema == SCHEMA and len(gather([])) == 0
    assert pa.record_batch(gather([ms])).to_pydict() == ROWS


def test_gathered_values_outlive_the_sets():
    batch = pa.record_batch(gather(MessageSet(bytes(bytearray(DATA)), BASE) for _ in range(3)))
    gc.collect()
    kept = junk()
    assert batch.column("value").to_pylist() == PAYLOADS * 3 and kept


def test_gather_raises_the_error_of_a_set(ms):
    with pytest.raises(OffsetOutOfRangeError, match="gone"):
        gather([ms, ms.with_error(OffsetOutOfRangeError("gone"))])


# threads


def test_threads_scan_the_same_bytes_at_once():
    """Large enough that the pass gives up the GIL."""
    payloads = [b"%06d" % i * 30 for i in range(3000)]
    data = build_message_set(payloads) + build_message_set(payloads, "gzip") + build_message_set(payloads, "snappy")
    start = threading.Barrier(6)

    def scan(i):
        start.wait()
        message_set = MessageSet(data, i)
        return message_set.payloads() == payloads * 3, message_set.offsets[0], message_set.valid_bytes

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(scan, range(6))) == [(True, i, len(data)) for i in range(6)]


def test_threads_read_one_set_at_once(ms):
    start = threading.Barrier(6)

    def read(_):
        start.wait()
        for _ in range(50):
            assert pa.record_batch(ms).to_pydict() == ROWS
            assert [m.value for m in ms] == PAYLOADS and ms.offsets.tolist() == OFFSETS
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(read, range(6)))


def test_deep_nesting_needs_no_stack():
    results = []
    threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=lambda: results.append(MessageSet(nested(entry(b"deep"), 64)).payloads()))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(0)
    assert results == [[b"deep"]]


def test_skip_leaves_the_first_messages_out():
    plain = build_message_set([b"one", b"two", b"three"])
    data = plain + build_message_set([b"a", b"b", b"c"], "gzip") + build_message_set([b"old"], magic=0)
    ms = MessageSet(data, 1000, topic="clicks", broker=1, partition=2)
    rows = [(m.offset, m.index, m.next_offset, m.value, m.codec, m.magic, m.attributes, m.crc) for m in ms]
    for whole in (ms, MessageSet(plain, 1000)):
        for count in range(len(whole) + 1):
            rest = whole.skip(count)
            assert [
                (m.offset, m.index, m.next_offset, m.value, m.codec, m.magic, m.attributes, m.crc) for m in rest
            ] == rows[count : len(whole)]
            assert rest.offsets.tolist() == [row[0] for row in rows[count : len(whole)]]
            assert rest.payloads() == [bytes(m.payload) for m in rest]
            assert pa.record_batch(rest).equals(pa.record_batch(whole).slice(count))
            assert pa.record_batch(rest.binary_view())["value"].to_pylist() == rest.payloads()
            assert (rest.valid_bytes, rest.next_offset) == (whole.valid_bytes, whole.next_offset)
    assert (ms.skip(1).topic, ms.skip(1).broker, ms.skip(1).partition) == ("clicks", 1, 2)
    assert ms.skip(2).skip(3).payloads() == [b"c", b"old"]
    for count in (-1, len(ms) + 1):
        with pytest.raises(ValueError, match="to skip in a set of 7"):
            ms.skip(count)


def test_skip_keeps_the_error():
    ms = MessageSet(build_message_set([b"one", b"two"]) + b"\0\0\0\0")
    rest = ms.skip(1)
    assert rest.error is ms.error
    assert rest.good().payloads() == [b"two"]
    with pytest.raises(CorruptMessageError):
        list(rest)


def test_threads_that_share_an_iterator():
    """Each message comes, and none from outside the set."""
    count = 20_000
    shared = iter(MessageSet(build_message_set([b"%d" % i for i in range(count)])))
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: [message.value for message in shared], range(8)))
    assert {value for part in parts for value in part} == {b"%d" % i for i in range(count)}


def test_threads_that_share_an_arrow_export():
    """The values are gathered when the first of them asks for binary."""
    wanted = [b"%d" % i for i in range(5000)]
    for _ in range(20):
        export = MessageSet(build_message_set(wanted)).binary_view()
        schema = pa.schema(MessageSet(b""))
        with ThreadPoolExecutor(8) as pool:
            batches = list(pool.map(lambda _: pa.record_batch(export, schema), range(8)))
        assert all(batch.column("value").to_pylist() == wanted for batch in batches)
