"""Bytes as damage, a cut or an attacker would make them: the core reads them as the oracle does, and nothing past them.

All data is read between two guard pages, so that a single byte read outside of it would end the run.
"""

from __future__ import annotations

import random
import struct
import threading
import zlib
from bisect import bisect_right

import cramjam
import pyarrow as pa
import pytest
from guarded import Guarded
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
import recorded
from agreement import assert_agrees, entry, gzipped, iterated, kind_of, nested, raw_snappy, snapped, xerial
from kafka07c import MessageSet, _crc32, build_message_set, config, crc32
from kafka07c._compress import InflateError, deflate, inflate

GUARDED = Guarded(64 * 1024)
GOOD = entry(b"good")
#: every form once: plain, empty, magic 0, gzip, xerial and raw snappy, nested, an empty wrapper
FORMS = [
    entry(b"plain"),
    entry(b""),
    entry(b"old", magic=0),
    gzipped(entry(b"g0") + entry(b"g1")),
    snapped(entry(b"s0") + entry(b"s1")),
    entry(raw_snappy(entry(b"raw")), oracle.SNAPPY),
    gzipped(entry(b"n0") + snapped(entry(b"n1") + gzipped(entry(b"n2"))) + entry(b"n3")),
    gzipped(b""),
]
SMALL = b"".join(FORMS)


def agree_between_guards(data: bytes, base_offset: int = 0, **options) -> None:
    for place in (GUARDED.at_start, GUARDED.at_end):
        assert_agrees(place(data), base_offset, **options)


def flips(data: bytes):
    """``data`` with each of its bits flipped, one at a time."""
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


# cuts


def whole_entries(data: bytes) -> list[int]:
    """Where the good entries of a set end, 0 in front."""
    return [0, *(m.next_offset for m in oracle.decode(data, shallow=True).messages)]


GOOD_SETS = [one for one in recorded.everything() if one.data and oracle.decode(one.data, final=True).error is None]


@pytest.mark.parametrize("one", GOOD_SETS, ids=[one.name for one in GOOD_SETS])
def test_every_prefix_of_every_good_recorded_set(one):
    """Whole entries are read and the rest is left; with ``final`` the rest is corruption."""
    ends = whole_entries(one.data)
    messages = oracle.decode(one.data, one.base_offset).messages
    names = [(m.offset, m.index, m.next_offset) for m in messages]
    counts = [sum(m.offset - one.base_offset < end for m in messages) for end in ends]
    for cut in range(len(one.data) + 1):
        data = GUARDED.at_end(one.data[:cut])
        good = bisect_right(ends, cut) - 1
        end, count = ends[good], counts[good]
        got = MessageSet(data, one.base_offset)
        assert (len(got), got.valid_bytes, got.error) == (count, end, None)
        if len(one.data) < 1000 or cut in (end, end + 1, end + 4, end + 9):
            assert [(m.offset, m.index, m.next_offset) for m in got] == names[:count]
            last = MessageSet(data, one.base_offset, final=True)
            assert (len(last), last.valid_bytes) == (count, end)
            if cut == end:
                assert last.error is None
            else:
                assert (last.error.offset, last.error.next_offset) == (one.base_offset + end, None)
                assert kind_of(last.error) == oracle.CUT


@pytest.mark.parametrize("final", [False, True])
def test_every_prefix_of_every_damaged_recorded_set(final):
    for one in recorded.everything():
        if one in GOOD_SETS:
            continue
        for cut in range(len(one.data) + 1):
            assert_agrees(GUARDED.at_end(one.data[:cut]), one.base_offset, final=final)


@pytest.mark.parametrize("final", [False, True])
def test_every_prefix_of_every_form(final):
    for cut in range(len(SMALL) + 1):
        agree_between_guards(SMALL[:cut], 10**12, final=final)


def test_what_was_cut_is_read_by_going_on_where_it_ended():
    """Fetches of any size, each from the next_offset of the one before, give every message once and in order."""
    want = MessageSet(SMALL)
    largest = max(map(len, FORMS))
    for size in range(largest, len(SMALL) + 1):
        position, messages = 0, []
        while position < len(SMALL):
            part = MessageSet(SMALL[position : position + size], position)
            messages += [(m.offset, m.index, m.next_offset, m.value) for m in part]
            assert part.next_offset > position
            position = part.next_offset
        assert messages == [(m.offset, m.index, m.next_offset, m.value) for m in want]


def test_cuts_inside_wrappers_are_corruption():
    inner = entry(b"first") + entry(b"second")
    for cut in range(len(inner)):
        stored = gzipped(inner[:cut])
        want = assert_agrees(GOOD + stored + GOOD)
        if cut in (0, len(entry(b"first"))):
            assert want.error is None
        else:
            assert want.error == oracle.Error(len(GOOD), len(GOOD + stored), oracle.CUT)
            assert len(want.messages) == 1 + (cut > len(entry(b"first")))


# flipped bits


@pytest.fixture(params=_crc32.kernels())
def kernel(request):
    """Each of the CRC kernels that this processor can run."""
    before = _crc32.kernel()
    _crc32.select_kernel(request.param)
    yield request.param
    _crc32.select_kernel(before)


@pytest.mark.parametrize("final", [False, True])
def test_every_bit_flipped(kernel, final):
    for flipped in flips(SMALL):
        assert_agrees(GUARDED.at_end(flipped), final=final, exact_inflate_kind=False)


@pytest.mark.parametrize("form", FORMS[3:7], ids=["gzip", "snappy", "raw snappy", "nested"])
def test_every_bit_of_compressed_bytes_flipped_under_a_right_crc(form):
    header = oracle.read_header(form, 0)
    for flipped in flips(form[header.payload_start :]):
        assert_agrees(GUARDED.at_end(entry(flipped, header.codec) + GOOD), exact_inflate_kind=False)


@pytest.mark.parametrize("wrap", [gzipped, snapped, lambda inner: gzipped(entry(b"a") + snapped(inner) + entry(b"z"))])
def test_every_bit_of_what_is_inside_a_wrapper_flipped(wrap):
    for flipped in flips(SMALL):
        assert_agrees(GUARDED.at_end(GOOD + wrap(flipped) + GOOD), exact_inflate_kind=False)


def test_flips_that_cannot_be_seen():
    """Attributes and magic are outside the CRC. What is lost by that is known, and no more than that."""

    def unseen(stored: bytes) -> list[int]:
        sets = [MessageSet(flipped + GOOD, final=True) for flipped in flips(stored)]
        return [bit for bit, message_set in enumerate(sets) if message_set.error is None]

    reserved = [5 * 8 + bit for bit in range(2, 8)]
    codec = 5 * 8
    plain, wrapper = entry(b"payload"), gzipped(entry(b"payload"))
    assert unseen(plain) == reserved
    assert unseen(wrapper) == [codec, *reserved]
    for bit in reserved:
        assert MessageSet(list(flips(plain))[bit]).payloads() == [b"payload"]
        assert MessageSet(list(flips(wrapper))[bit]).payloads() == [b"payload"]
    assert MessageSet(list(flips(wrapper))[codec]).payloads() == [wrapper[10:]], "the compressed bytes as a message"


# lengths that lie

SIZES = [-(2**31), -1, 0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255, 2**16, 2**24, 2**31 - 1]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", FORMS[:4], ids=["plain", "empty", "magic 0", "gzip"])
@pytest.mark.parametrize("final", [False, True])
def test_sizes_that_lie(size, form, final):
    lying = struct.pack(">i", size) + form[4:]
    for data in (lying, GOOD + lying, lying + GOOD, GOOD + lying + GOOD + GOOD):
        agree_between_guards(data, 77, final=final)
        assert_agrees(gzipped(data) + GOOD, final=final)


@pytest.mark.parametrize(
    "size, after",
    [(4, b"")] + [(size, bytes([magic])) for size in range(-1, 6) for magic in (0, 1) if size < 5 + magic],
)
def test_a_size_below_the_headers_is_seen_at_once_and_never_believed(size, after):
    """Even if the data ends before what it says, and even if a good entry, or the log's end, lies where it points."""
    lying = GOOD + struct.pack(">i", size) + after
    pointed_at = lying[: len(GOOD) + 4 + max(size, 0)].ljust(len(GOOD) + 4 + max(size, 0), b"\0")
    for data in (lying, lying + GOOD, lying + bytes(20), pointed_at, pointed_at + GOOD):
        for final in (False, True):
            message_set = MessageSet(data, final=final)
            assert len(message_set) == 1
            assert (message_set.error.offset, message_set.error.next_offset) == (len(GOOD), None)
            assert kind_of(message_set.error) == oracle.SIZE


def test_a_size_of_5_is_one_only_without_attributes():
    assert MessageSet(entry(b"", magic=0), final=True).payloads() == [b""]
    cut = struct.pack(">i", 5)
    assert MessageSet(cut).error is None and MessageSet(cut + b"\0").error is None
    assert kind_of(MessageSet(cut + b"\1").error) == oracle.SIZE


def test_fewer_bytes_than_a_size_field_are_a_cut_tail():
    for tail in (b"", b"\xff", b"\xff\xff\xff", b"\0\0\0"):
        assert MessageSet(GOOD + tail).error is None
        assert MessageSet(GOOD + tail).valid_bytes == len(GOOD)


def test_a_size_past_the_data_is_a_cut_whatever_else_is_wrong():
    """Too little is there to tell; ``final`` says that nothing more will come."""
    enormous = struct.pack(">i", 2**31 - 1) + bytes(99)
    for tail in (entry(b"xyz", magic=2)[:-1], entry(b"xyz", attributes=3)[:-1], enormous):
        assert MessageSet(GOOD + tail).error is None
        assert kind_of(MessageSet(GOOD + tail, final=True).error) == oracle.CUT


BOUND = 200_000
BAD_ENTRIES = {
    oracle.MAGIC: entry(b"bad", magic=2),
    oracle.CODEC: entry(b"bad", attributes=7),
    oracle.CRC: entry(b"bad", crc=1),
    oracle.INFLATE: entry(b"bad", oracle.GZIP),
    oracle.CUT: gzipped(GOOD[:-1]),
    oracle.NESTING: nested(GOOD, 65),
    oracle.BOUND: gzipped(entry(bytes(BOUND))),
}


@pytest.mark.parametrize("kind, bad", BAD_ENTRIES.items(), ids=BAD_ENTRIES.keys())
def test_where_the_end_of_a_bad_entry_is_believed(kind, bad):
    """Where a good entry begins there, good through and through, or the log ends there."""

    def believed(after: bytes, **options) -> bool:
        data = GOOD + bad + after
        want = assert_agrees(data, 500, max_inflated_bytes=BOUND, **options)
        assert (want.error.offset, want.error.kind) == (500 + len(GOOD), kind)
        assert want.error.next_offset in (None, 500 + len(GOOD + bad))
        return want.error.next_offset is not None

    for good in (*FORMS, GOOD + b"\0\0", GOOD + bad):
        assert believed(good)
    for other_bad in BAD_ENTRIES.values():
        assert not believed(other_bad + GOOD)
    for cut in (GOOD[:3], GOOD[:4], GOOD[:-1], bytes(50), b"\xff" * 50):
        assert not believed(cut)
        assert not believed(cut, final=True)
    assert believed(b"", final=True)
    assert not believed(b"")


@pytest.mark.parametrize("kind, bad", BAD_ENTRIES.items(), ids=BAD_ENTRIES.keys())
def test_what_is_wrong_is_said_and_where(kind, bad):
    data = GOOD + bad + GOOD
    message_set = MessageSet(data, 500, topic="clicks", broker=2, partition=1, max_inflated_bytes=BOUND)
    messages, error = iterated(message_set)
    assert [m.value for m in messages] == [b"good"]
    assert kind_of(error) == kind and error.offset == 500 + len(GOOD)
    for word in ("clicks", "partition 1", str(500 + len(GOOD))):
        assert word in str(error)


def test_precedence():
    """Size, magic, codec, CRC, then what is inside."""
    wrong_all = struct.pack(">i", 5) + entry(b"xx", attributes=3, magic=2, crc=1)[4:]
    order = [
        (oracle.MAGIC, entry(b"xx", attributes=3, magic=2, crc=1)),
        (oracle.CODEC, entry(b"xx", attributes=3, crc=1)),
        (oracle.CRC, entry(b"xx", oracle.GZIP, crc=1)),
        (oracle.INFLATE, entry(b"xx", oracle.GZIP)),
    ]
    for kind, bad in order:
        assert assert_agrees(bad + GOOD).error.kind == kind
    assert assert_agrees(struct.pack(">i", 5) + b"\x01" + wrong_all[5:]).error.kind == oracle.SIZE


# nesting


@pytest.mark.parametrize("levels", [1, 2, 63, 64])
def test_nesting_within_the_bound(levels):
    stored = nested(entry(b"deep"), levels)
    message_set = MessageSet(stored, 7, final=True)
    assert message_set.payloads() == [b"deep"]
    assert (message_set.offsets[0], message_set.next_offsets[0]) == (7, 7 + len(stored))


@pytest.mark.parametrize("levels", [65, 66, 100, 1000])
def test_nesting_past_the_bound(levels):
    assert config.MAX_NESTING == 64
    stored = GOOD + nested(entry(b"deep"), levels) + GOOD
    want = assert_agrees(stored)
    assert want.error == oracle.Error(len(GOOD), len(stored) - len(GOOD), oracle.NESTING)
    assert len(want.messages) == 1


def test_messages_around_a_nest_too_deep_are_read_up_to_it():
    inner = entry(b"before") + nested(entry(b"deep"), 64) + entry(b"after")
    want = assert_agrees(gzipped(inner))
    assert [m.payload for m in want.messages] == [b"before"] and want.error.kind == oracle.NESTING


def test_wrappers_inside_one_entry_are_counted():
    one = gzipped(entry(b"x"))
    full = gzipped(one * config.MAX_INNER_WRAPPERS)
    assert len(MessageSet(full * 2, final=True).payloads()) == 2 * config.MAX_INNER_WRAPPERS  # for each entry anew
    message_set = MessageSet(full + gzipped(one * (config.MAX_INNER_WRAPPERS + 1)) + full)
    assert len(message_set) == 2 * config.MAX_INNER_WRAPPERS
    assert message_set.error.offset == len(full) and "wrappers inside one entry" in message_set.error.reason


def test_many_nests_side_by_side():
    stored = gzipped(nested(entry(b"x"), 50) * 20 + entry(b"end"))
    assert MessageSet(stored).payloads() == [b"x"] * 20 + [b"end"]


# zeros, ones, garbage


@pytest.mark.parametrize("byte", [0, 1, 0x7F, 0x80, 0xFF])
def test_one_byte_over_and_over(byte):
    for count in [*range(40), 1000, 60_000]:
        for final in (False, True):
            agree_between_guards(bytes([byte]) * count, final=final)
            agree_between_guards(GOOD + bytes([byte]) * count, final=final)


def test_random_garbage():
    randomness = random.Random(20121121)
    for _ in range(3000):
        agree_between_guards(randomness.randbytes(randomness.randrange(60)), final=randomness.random() < 0.5)


def test_random_garbage_that_looks_like_entries(kernel):
    """Sizes that fit, magic and attributes that exist: so that more than the first check is reached."""
    randomness = random.Random(491)
    for _ in range(3000):
        data = b""
        for _ in range(randomness.randrange(1, 5)):
            payload = randomness.randbytes(randomness.randrange(30))
            magic, codec = randomness.choice([(1, 0), (1, 0), (1, 1), (1, 2), (1, 3), (0, 0), (2, 0)])
            data += entry(payload, codec, magic=magic, crc=randomness.choice([None, None, None, 0]))
        agree_between_guards(data[: randomness.choice([None, None, -1, -5])], final=randomness.random() < 0.5)


# Hypothesis: trees of entries, good and bad, then mutations of the whole

RIGHT_OR_WRONG_CRC = [None] * 40 + [0, 0xFFFFFFFF]
leaves = st.builds(
    entry,
    st.binary(max_size=40),
    attributes=st.sampled_from([0] * 40 + [4, 0xF8, 3]),
    magic=st.sampled_from([1] * 30 + [0] * 10 + [2]),
    crc=st.sampled_from(RIGHT_OR_WRONG_CRC),
)


def split(data: bytes, place: float) -> tuple[bytes, bytes]:
    middle = int(len(data) * place)
    return data[:middle], data[middle:]


def in_two(compress, join):
    return lambda inner, place: join(*map(compress, split(inner, place)))


def real_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


COMPRESSIONS = [
    (oracle.GZIP, lambda inner, place: deflate(oracle.GZIP, inner)),
    (oracle.GZIP, in_two(lambda part: deflate(oracle.GZIP, part), lambda a, b: a + b)),
    (oracle.GZIP, lambda inner, place: deflate(oracle.GZIP, inner) + b"trailing"),
    (oracle.SNAPPY, lambda inner, place: deflate(oracle.SNAPPY, inner)),
    (oracle.SNAPPY, lambda inner, place: real_snappy(inner)),
    (oracle.SNAPPY, in_two(real_snappy, lambda a, b: xerial(a, b, order="<"))),
    (oracle.SNAPPY, in_two(raw_snappy, lambda a, b: xerial(a, b))),
]


@st.composite
def wrappers(draw, entries):
    inner = b"".join(draw(st.lists(entries, max_size=4))) + draw(st.sampled_from([b""] * 30 + [b"\0\0", GOOD[:-1]]))
    codec, compress = draw(st.sampled_from(COMPRESSIONS))
    compressed = compress(inner, draw(st.floats(0, 1)))
    if draw(st.sampled_from([False] * 15 + [True])):
        compressed = draw(mutated(compressed))
    attributes = draw(st.sampled_from([codec] * 30 + [codec | 0xF8, codec ^ 3]))
    return entry(compressed, attributes=attributes, crc=draw(st.sampled_from(RIGHT_OR_WRONG_CRC)))


@st.composite
def mutated(draw, data):
    """``data`` with a few bytes changed, put in, or taken out."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(out)))
        match draw(st.sampled_from(["flip", "put", "take", "number", "cut"])):
            case "flip" if place < len(out):
                out[place] ^= 1 << draw(st.integers(0, 7))
            case "put":
                out[place:place] = draw(st.binary(min_size=1, max_size=8))
            case "take":
                del out[place : place + draw(st.integers(1, 8))]
            case "number":
                out[place : place + 4] = struct.pack(">i", draw(st.sampled_from(SIZES)))
            case "cut":
                del out[place:]
    return bytes(out)


trees = st.recursive(leaves, wrappers, max_leaves=12)
sets = st.lists(trees, max_size=8).map(b"".join)
offsets = st.sampled_from([0, 1, 4711, 2**40])
bounds = st.sampled_from([0, 30, 100, 300] + [10**6] * 20)


@given(sets, offsets, bounds, st.booleans(), st.booleans())
@settings(max_examples=350, deadline=None)
def test_trees_of_entries(data, base_offset, bound, final, shallow):
    options = {"final": final, "shallow": shallow, "max_inflated_bytes": bound}
    assert_agrees(GUARDED.at_end(data), base_offset, exact_inflate_kind=False, **options)


@given(sets.flatmap(mutated), offsets, bounds, st.booleans(), st.booleans())
@settings(max_examples=350, deadline=None)
def test_mutations_of_trees(data, base_offset, bound, final, shallow):
    options = {"final": final, "shallow": shallow, "max_inflated_bytes": bound}
    assert_agrees(GUARDED.at_end(data), base_offset, exact_inflate_kind=False, **options)


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_bytes(data, final):
    agree_between_guards(data, final=final)


SMALL_RECORDED = [one.data for one in recorded.everything() if 0 < len(one.data) < 500]


@given(st.sampled_from(SMALL_RECORDED).flatmap(mutated), st.booleans())
@settings(max_examples=300, deadline=None)
def test_mutations_of_recorded_sets(data, final):
    agree_between_guards(data, final=final, exact_inflate_kind=False)


@given(st.sampled_from(COMPRESSIONS), sets, st.floats(0, 1), st.data())
@settings(max_examples=300, deadline=None)
def test_mutations_of_compressed_bytes(form, inner, place, data):
    """What inflates does so to the same bytes, and what does not fails, at the same bound."""
    codec, compress = form
    compressed = data.draw(mutated(compress(inner, place)))
    bound = data.draw(bounds)
    try:
        want = oracle.inflate(codec, compressed, oracle.Budget(bound))
    except oracle.Damage:
        want = None
    try:
        got = bytes(inflate(codec, GUARDED.at_end(compressed), bound))
    except InflateError:
        got = None
    assert got == want


# reading no further than the buffer


def test_bytes_that_change_under_the_set_break_nothing():
    """Values change, and a codec may be one that does not exist; nothing is read from elsewhere."""
    for byte in (0, 3, 0x7F, 0xFF):
        memory = GUARDED.at_end(SMALL)
        message_set = MessageSet(memory)
        lengths = message_set.lengths.tolist()
        memory[:] = bytes([byte]) * len(memory)
        for message in message_set:
            try:
                assert message.codec in (0, 1, 2)
            except IndexError:
                assert byte & 3 == 3
            assert 0 <= message.attributes <= 0xFF and message.magic in (0, 1) and 0 <= message.crc < 2**32
            assert len(message.value) == len(message.payload)
        assert [len(value) for value in message_set.payloads()] == lengths
        for arrow in (message_set, message_set.binary_view()):
            assert pa.record_batch(arrow).num_rows == len(lengths)


def test_payloads_at_the_edge_of_memory():
    """Values, columns, Arrow and building of messages that end where the memory ends."""
    payloads = [bytes(range(n)) for n in range(0, 200, 7)]
    for data in (build_message_set(payloads), build_message_set(payloads, magic=0)):
        message_set = MessageSet(GUARDED.at_end(data))
        assert message_set.payloads() == [bytes(m.payload) for m in message_set] == payloads
        assert build_message_set(m.payload for m in message_set) == build_message_set(payloads)
    for n in range(300):
        payload = bytes(n)
        assert crc32(GUARDED.at_end(payload)) == zlib.crc32(payload)
        assert build_message_set([GUARDED.at_end(payload)]) == entry(payload)
        assert build_message_set(GUARDED.at_end(payload), offsets=[0, n]) == entry(payload)


def test_bytes_that_change_while_they_are_read():
    """Another thread writes to the buffer all the time: whatever is found, nothing outside the buffer is read."""
    good = gzipped(entry(b"a" * 40) * 5) + entry(b"b" * 30) + entry(b"c", magic=0)
    data = bytearray(good * 200)
    stop = threading.Event()

    def scribble():
        rng = random.Random(7)
        while not stop.is_set():
            at = rng.randrange(len(data))
            data[at] = rng.choice((0, 1, 2, 0x7F, 0xFF))
            at = rng.randrange(200) * len(good)
            data[at : at + len(good)] = good

    writer = threading.Thread(target=scribble)
    writer.start()
    try:
        for _ in range(300):
            ms = MessageSet(data)
            for message in ms.good():
                assert len(message.value) == len(message) and message.magic in (0, 1)
    finally:
        stop.set()
        writer.join()
