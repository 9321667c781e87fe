"""The oracle itself: held to the recordings, and to a few cases small enough to check by eye."""

from __future__ import annotations

import gzip

import pytest

import oracle
import recorded
from agreement import entry, gzipped, nested, raw_snappy, snapped, varint, xerial


def ids(sets):
    return [s.name for s in sets]


@pytest.mark.parametrize("one", recorded.decoded_by_scala(), ids=ids(recorded.decoded_by_scala()))
def test_reads_what_the_scala_classes_read(one):
    decoded = oracle.decode(one.data, one.base_offset)
    want = recorded.expected_outcome(one)
    kind = decoded.error.kind if decoded.error else None
    assert (len(decoded.messages), decoded.valid_bytes, kind) == (want.messages, want.valid_bytes, want.kind)
    recorded.check_messages(one, decoded.messages)


def test_the_recordings_are_all_there():
    """The lists above are taken from the manifest: they must not come out short."""
    assert len(recorded.decoded_by_scala()) == 175
    assert len(recorded.undecoded()) == 2
    assert len(recorded.files()) == 50
    assert len(recorded.transcripts()) == 41


def test_named_differences_are_those_that_the_manifest_has():
    ends_badly = {r.name for r in recorded.decoded_by_scala() if any(k.endswith("_error") for k in r.scala)}
    assert ends_badly == recorded.CUT_AT_FIRST_ENTRY | set(recorded.DAMAGED)


def test_codec_is_the_stored_entrys_and_attributes_are_the_messages_own():
    stored = gzipped(entry(b"a", attributes=0xF8) + snapped(entry(b"b", magic=0)))
    end = len(stored)
    want = [
        oracle.Message(0, 0, 0, oracle.GZIP, 0xF8, 1, 0xE8B7BE43, b"a"),
        oracle.Message(0, 1, end, oracle.GZIP, 0, 0, 0x71BEEFF9, b"b"),
    ]
    assert oracle.decode(stored).messages == want


def test_messages_before_the_bad_one_of_a_wrapper_are_read():
    good = entry(b"a")
    bad = gzipped(good + gzipped(good + entry(b"b", crc=1) + good))
    decoded = oracle.decode(good + bad + good, 100)
    names = [(m.offset, m.index, m.next_offset) for m in decoded.messages]
    assert names == [(100, 0, 111), (111, 0, 111), (111, 1, 111)]
    assert decoded.error == oracle.Error(111, 111 + len(bad), oracle.CRC)
    assert (decoded.valid_bytes, decoded.next_offset) == (11, 111)


@pytest.mark.parametrize("final, believed", [(False, None), (True, 22)])
def test_the_end_of_a_bad_last_entry_is_believed_at_the_logs_end_only(final, believed):
    data = entry(b"a") + entry(b"b", crc=1)
    assert oracle.decode(data, final=final).error == oracle.Error(11, believed, oracle.CRC)


def test_levels_of_nesting():
    assert len(oracle.decode(nested(entry(b"a"), 64)).messages) == 1
    assert oracle.decode(nested(entry(b"a"), 65)).error.kind == oracle.NESTING


def test_budget_covers_all_levels_of_one_entry():
    inner = entry(bytes(100))
    stored = gzipped(gzipped(inner))
    whole = len(gzipped(inner)) + len(inner)
    assert oracle.decode(stored * 3, max_inflated_bytes=whole).error is None
    assert oracle.decode(stored, max_inflated_bytes=whole - 1).error.kind == oracle.BOUND


def test_gzip_members_and_what_follows_them():
    a, b = (gzip.compress(entry(x), mtime=0) for x in (b"a", b"b"))
    assert oracle.inflate_gzip(a + b, oracle.Budget(100)) == entry(b"a") + entry(b"b")
    for ignored in (b"\0", b"\x1f", b"\x8b\x1f", b"\0" + b):
        assert oracle.inflate_gzip(a + ignored, oracle.Budget(100)) == entry(b"a")
    for bad in (b"", a[:-1], a + b[:-1], a + b"\x1f\x8b", b"\0" + a):
        with pytest.raises(oracle.Damage):
            oracle.inflate_gzip(bad, oracle.Budget(100))


def snappy(block, left=1000):
    return oracle.inflate_snappy(block, oracle.Budget(left))


def test_snappy_elements():
    assert snappy(b"\x00") == b""
    assert snappy(b"\x03\x08abc") == b"abc"
    assert snappy(b"\x06\x08abc" + b"\x0a\x03\x00") == b"abcabc"  # 3 bytes from 3 back, two-byte distance
    assert snappy(b"\x08\x00a" + bytes([0b000_011_01, 1])) == b"a" * 8  # 7 bytes from 1 back: they overlap
    assert snappy(b"\x05\x00a" + b"\x0f\x01\x00\x00\x00") == b"a" * 5  # four-byte distance
    for width in (1, 2, 3, 4):
        data = bytes(range(256)) * 2 if width > 1 else bytes(200)
        literal = bytes([59 + width << 2]) + (len(data) - 1).to_bytes(width, "little") + data
        assert snappy(varint(len(data)) + literal) == data


@pytest.mark.parametrize(
    "block",
    [b"", b"\x03", b"\x03\x08ab", b"\x02\x08abc", b"\x04\x08abc", b"\x04\x00a\x0a\x02\x00", b"\x04\x00a\x0a\x00\x00",
     b"\x04\x00a\x0a\x01", b"\x80", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00", b"\x10\xf0"],
)  # fmt: skip
def test_damaged_snappy_blocks(block):
    with pytest.raises(oracle.Damage):
        snappy(block, left=1 << 40)


def test_xerial_framing():
    one, two = raw_snappy(b"one"), raw_snappy(b"two" * 30)
    for order in "<>":
        assert snappy(xerial(one, two, order=order)) == b"one" + b"two" * 30
    assert snappy(xerial()) == b""
    for bad in (xerial(one)[:-1], xerial(one) + b"\0\0\0", xerial(b""), xerial() + b"\xff\xff\xff\xff", xerial()[:15]):
        with pytest.raises(oracle.Damage):
            snappy(bad)
