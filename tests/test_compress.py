"""gzip and snappy as 0.7's clients write them, as they might write them, and as an attacker would."""

from __future__ import annotations

import gzip
import os
import random
import struct
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import cramjam
import pytest

import oracle
from agreement import assert_agrees, entry, gzipped, kind_of, raw_snappy, snapped, varint, xerial
from kafka07c import MessageSet, _compress, config
from kafka07c._compress import InflateError, deflate, inflate

GZIP, SNAPPY = oracle.GZIP, oracle.SNAPPY
TEXT = b"the quick brown fox jumps over the lazy dog; " * 50
NOISE = random.Random(7).randbytes(100_000)


@pytest.fixture(params=["isal", "zlib"])
def backend(request, monkeypatch):
    """gzip by isal, and by the standard library as where isal has no wheel: what is accepted must not differ."""
    if request.param == "zlib":
        monkeypatch.setattr(_compress, "_gzip", zlib)
    else:
        isal_zlib = pytest.importorskip("isal.isal_zlib", reason="isal has no wheel for this platform")
        assert _compress._gzip is isal_zlib
    return request.param


def opened(codec, data, bound=1 << 20):
    return bytes(inflate(codec, data, bound))


def test_isal_is_optional():
    code = "import sys; sys.modules['isal'] = None; from kafka07c import _compress as c; assert c._gzip is c.zlib"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    "data", [b"", b"x", TEXT, NOISE, bytes(200_000)], ids=["empty", "byte", "text", "noise", "zeros"]
)
@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_there_and_back(backend, codec, data):
    compressed = deflate(codec, data)
    assert type(compressed) is bytes
    assert opened(codec, compressed) == data
    assert oracle.inflate(codec, compressed, oracle.Budget(1 << 20)) == data
    if codec == GZIP:
        assert gzip.decompress(compressed) == data


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
@pytest.mark.parametrize("make", [bytes, bytearray, memoryview], ids=["bytes", "bytearray", "memoryview"])
def test_any_buffer(codec, make):
    assert opened(codec, make(deflate(codec, make(TEXT)))) == TEXT


# gzip


def member(data, level=6):
    return gzip.compress(data, level, mtime=0)


@pytest.mark.parametrize("level", [0, 1, 9])
def test_gzip_of_any_level(backend, level):
    assert opened(GZIP, member(TEXT, level)) == TEXT


def test_gzip_with_several_members(backend):
    members = [member(p) for p in (b"", b"one", TEXT, b"", NOISE, b"last")]
    assert opened(GZIP, b"".join(members)) == b"one" + TEXT + NOISE + b"last"


def with_header(flags: int, fields: bytes, data=TEXT) -> bytes:
    plain = member(data)
    return plain[:3] + bytes([flags]) + plain[4:10] + fields + plain[10:]


def header_crc(flags: int, fields: bytes) -> bytes:
    head = member(TEXT)[:3] + bytes([flags]) + member(TEXT)[4:10] + fields
    return struct.pack("<H", zlib.crc32(head) & 0xFFFF)


FIELDS = {
    "text": (1, b""),
    "name": (8, b"name\0"),
    "comment": (16, b"some comment\0"),
    "extra": (4, b"\x05\0extra"),
    "header crc": (2, header_crc(2, b"")),
    "all": (31, b"\x02\0xxname\0comment\0" + header_crc(31, b"\x02\0xxname\0comment\0")),
}


@pytest.mark.parametrize("flags, fields", FIELDS.values(), ids=FIELDS.keys())
def test_gzip_headers(backend, flags, fields):
    assert opened(GZIP, with_header(flags, fields)) == TEXT
    assert opened(GZIP, member(b"first") + with_header(flags, fields)) == b"first" + TEXT


@pytest.mark.parametrize("ignored", [b"\0", b"\0" * 512, b"\x1f", b"\x8b\x1f", b"junk" * 10, b"\0" + member(TEXT)])
def test_gzip_ignores_what_begins_no_member(backend, ignored):
    assert opened(GZIP, member(TEXT) + ignored) == TEXT


ONE = member(b"payload")
BAD_GZIP = {
    "empty": b"",
    "one byte": b"\x1f",
    "not gzip": b"not gzip at all",
    "zlib": zlib.compress(b"payload"),
    "raw deflate": zlib.compress(b"payload")[2:-4],
    "wrong method": ONE[:2] + b"\x07" + ONE[3:],
    "reserved flag 5": ONE[:3] + b"\x20" + ONE[4:],
    "reserved flag 6": ONE[:3] + b"\x40" + ONE[4:],
    "reserved flag 7": ONE[:3] + b"\x80" + ONE[4:],
    "wrong header crc": with_header(2, b"\0\0"),
    "name without end": ONE[:3] + b"\x08" + ONE[4:10] + b"endless name",
    "extra past the end": ONE[:3] + b"\x04" + ONE[4:10] + b"\xff\xff" + ONE[10:],
    "bad block type": ONE[:10] + b"\x07" + ONE[11:],
    "wrong crc": ONE[:-8] + bytes([ONE[-8] ^ 1]) + ONE[-7:],
    "wrong length": ONE[:-4] + bytes([ONE[-4] ^ 1]) + ONE[-3:],
    "second member cut": ONE + ONE[:-1],
    "second member only its magic": ONE + b"\x1f\x8b",
    "second member with a reserved flag": ONE + ONE[:3] + b"\x20" + ONE[4:],
    "second member garbage": ONE + b"\x1f\x8b\x08\x00garbage!garbage!",
    "third member with a wrong crc": ONE + ONE + ONE[:-8] + bytes(8),
}


@pytest.mark.parametrize("data", BAD_GZIP.values(), ids=BAD_GZIP.keys())
def test_bad_gzip(backend, data):
    with pytest.raises(InflateError, match="gzip"):
        opened(GZIP, data)
    assert assert_agrees(entry(data, GZIP) + entry(b"z")).error.kind == oracle.INFLATE


def test_gzip_cut_anywhere(backend):
    data = member(b"one") + member(TEXT)
    boundary = len(member(b"one"))
    for cut in range(len(data)):
        if cut in (boundary, boundary + 1):  # nothing, or a first byte that begins no member
            assert opened(GZIP, data[:cut]) == b"one"
            continue
        with pytest.raises(InflateError):
            opened(GZIP, data[:cut])


def test_every_bit_of_a_gzip_member_flipped(backend):
    """Both backends, the oracle's zlib, and the CRC of the entry made right each time."""
    for bit in range(len(ONE) * 8):
        flipped = bytearray(ONE)
        flipped[bit // 8] ^= 1 << bit % 8
        assert_agrees(entry(bytes(flipped), GZIP) + entry(b"z"))


class CountingBackend:
    """zlib, counting the bytes that go in."""

    def __init__(self):
        self.fed = 0
        self.error = zlib.error

    def decompressobj(self, wbits):
        backend, inner = self, zlib.decompressobj(wbits)

        class Counting:
            def decompress(self, data, *bound):
                backend.fed += len(data)
                return inner.decompress(data, *bound)

            def __getattr__(self, name):
                return getattr(inner, name)

        return Counting()


def test_many_gzip_members_take_time_in_proportion(monkeypatch):
    """Half a megabyte of empty members: what is left over must not be copied anew for each of them."""
    counting = CountingBackend()
    monkeypatch.setattr(_compress, "_gzip", counting)
    data = member(b"") * 25_000 + member(TEXT)
    assert opened(GZIP, data) == TEXT
    held = 1 << 16
    assert counting.fed < 25_001 * held / 4, "each member was given far more than a piece of the rest"


# snappy


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_xerial_framing(order, count):
    blocks = [raw_snappy(b"%d" % i * 100) for i in range(count)]
    want = b"".join(b"%d" % i * 100 for i in range(count))
    assert opened(SNAPPY, xerial(*blocks, order=order)) == want
    stored = entry(xerial(*[raw_snappy(entry(b"a%d" % i)) for i in range(count)], order=order), SNAPPY)
    assert MessageSet(stored).payloads() == [b"a%d" % i for i in range(count)]


def test_entries_may_straddle_snappy_blocks():
    inner = b"".join(entry(b"%d" % i * 20) for i in range(20))
    pieces = [raw_snappy(inner[i : i + 7]) for i in range(0, len(inner), 7)]
    assert MessageSet(entry(xerial(*pieces), SNAPPY)).payloads() == [b"%d" % i * 20 for i in range(20)]


@pytest.mark.parametrize("data", [b"x", TEXT, NOISE, bytes(100_000)], ids=["byte", "text", "noise", "zeros"])
def test_blocks_of_a_real_compressor(data):
    block = bytes(cramjam.snappy.compress_raw(data))
    assert opened(SNAPPY, block) == data, "one raw block with no header"
    assert opened(SNAPPY, xerial(block, block)) == data + data
    assert oracle.inflate_snappy_block(block, oracle.Budget(1 << 20)) == data


def test_blocks_may_be_larger_than_usual():
    """32768 bytes are what snappy-java writes; nothing in the format says so."""
    block = bytes(cramjam.snappy.compress_raw(TEXT * 100))
    assert opened(SNAPPY, xerial(block)) == TEXT * 100


BLOCK = raw_snappy(b"payload")
BAD_SNAPPY = {
    "empty": b"",
    "header cut": xerial()[:15],
    "header cut in its magic": xerial()[:5],
    "length cut": xerial(BLOCK) + b"\0\0\0",
    "block cut": xerial(BLOCK)[:-1],
    "block longer than the data": xerial() + struct.pack(">i", 100) + BLOCK,
    "negative block length": xerial() + struct.pack(">i", -1) + BLOCK,
    "smallest block length": xerial() + b"\x80\0\0\0" + BLOCK,
    "little-endian block length": xerial() + struct.pack("<i", len(BLOCK)) + BLOCK,
    "empty block": xerial(b""),
    "announces too much": raw_snappy(b"payload", announced=8),
    "announces too little": raw_snappy(b"payload", announced=6),
    "second block bad": xerial(BLOCK, BLOCK[:-1]),
    "bytes after a raw block": BLOCK + b"\0",
    "copy from before the start": b"\x08\x00a\x1a\x02\x00",
    "copy from nowhere": b"\x08\x00a\x1a\x00\x00",
    "literal past the end": b"\x08\xf0\xff",
    "varint without end": b"\x80\x80\x80",
    "varint of six bytes": varint(1 << 35) + b"\0a",
    "gzip": member(b"payload"),
}


@pytest.mark.parametrize("data", BAD_SNAPPY.values(), ids=BAD_SNAPPY.keys())
def test_bad_snappy(data):
    with pytest.raises(InflateError, match="snappy"):
        opened(SNAPPY, data)
    assert assert_agrees(entry(data, SNAPPY) + entry(b"z")).error.kind == oracle.INFLATE


def test_snappy_cut_anywhere():
    data = xerial(BLOCK, bytes(cramjam.snappy.compress_raw(TEXT)))
    whole = {16: b"", 20 + len(BLOCK): b"payload"}
    for cut in range(len(data)):
        if cut in whole:
            assert opened(SNAPPY, data[:cut]) == whole[cut]
            continue
        with pytest.raises(InflateError):
            opened(SNAPPY, data[:cut])


def test_every_bit_of_a_snappy_block_flipped():
    block = bytes(cramjam.snappy.compress_raw(entry(b"abcabcabcabc" * 3) + entry(b"abc")))
    for data in (block, xerial(block)):
        for bit in range(len(data) * 8):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            assert_agrees(entry(bytes(flipped), SNAPPY) + entry(b"z"), exact_inflate_kind=False)


# the bound


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_the_bound_is_exact(backend, codec):
    for data in (deflate(codec, TEXT), deflate(codec, NOISE)):
        whole = len(opened(codec, data))
        assert len(opened(codec, data, whole)) == whole
        for bound in (0, 1, whole - 1):
            with pytest.raises(InflateError, match=str(bound)):
                opened(codec, data, bound)
    assert opened(codec, deflate(codec, b""), 0) == b""


def test_the_bound_covers_all_members_and_blocks(backend):
    assert len(opened(GZIP, member(TEXT) * 3, 3 * len(TEXT))) == 3 * len(TEXT)
    assert len(opened(SNAPPY, xerial(raw_snappy(TEXT), raw_snappy(TEXT)), 2 * len(TEXT))) == 2 * len(TEXT)
    for codec, data in ((GZIP, member(TEXT) * 3), (SNAPPY, xerial(raw_snappy(TEXT), raw_snappy(TEXT)))):
        with pytest.raises(InflateError):
            opened(codec, data, 2 * len(TEXT) - 1)


@pytest.mark.parametrize("wrap", [gzipped, snapped], ids=["gzip", "snappy"])
def test_the_bound_is_per_stored_entry(wrap):
    """Many wrappers, each just within it: that is no bomb, and all of them are read."""
    inner = entry(bytes(990))
    message_set = MessageSet(wrap(inner) * 200, max_inflated_bytes=len(inner), final=True)
    assert len(message_set) == 200 and message_set.error is None
    one_less = MessageSet(wrap(inner) * 200, max_inflated_bytes=len(inner) - 1)
    assert (len(one_less), one_less.error.offset) == (0, 0)
    assert kind_of(one_less.error) == oracle.BOUND


@pytest.mark.parametrize("wrap", [gzipped, snapped], ids=["gzip", "snappy"])
def test_the_bound_covers_all_levels_of_one_entry(wrap):
    inner = wrap(entry(bytes(500))) + wrap(entry(bytes(500)))
    needed = len(inner) + 2 * 510
    for stored in (wrap(inner), entry(b"a") + wrap(inner) + wrap(inner)):
        assert assert_agrees(stored, max_inflated_bytes=needed).error is None
        want = assert_agrees(stored, max_inflated_bytes=needed - 1)
        assert want.error.kind == oracle.BOUND
        assert want.messages[-1].payload == bytes(500), "the first of the two inner wrappers was whole"


def test_the_default_bound():
    zeros = entry(bytes(config.MAX_INFLATED_BYTES))
    stored = gzipped_fast(zeros)
    assert kind_of(MessageSet(stored).error) == oracle.BOUND
    assert len(MessageSet(stored, max_inflated_bytes=len(zeros))) == 1


def gzipped_fast(inner: bytes) -> bytes:
    return entry(deflate(GZIP, inner), GZIP)


BOMBS = """
    import resource, struct, sys
    sys.path.insert(0, {tests!r})
    from agreement import entry, gzipped, nested, raw_snappy, varint, xerial
    from kafka07c import MessageSet
    from kafka07c._compress import deflate

    MB = 1 << 20
    BOUND = 8 * MB
    piece = deflate(1, bytes(16 * MB))
    bombs = [
        entry(piece * 64, 1),                                    # gzip, a gigabyte in 64 members
        entry(deflate(1, bytes(200 * MB)), 1),                   # gzip, one member
        gzipped(entry(deflate(1, entry(bytes(200 * MB))), 1)),   # in a wrapper of its own
        nested(entry(piece * 64, 1), 20),                        # and deep down
        gzipped(entry(deflate(1, bytes(6 * MB)), 1) * 100),      # many, the first of them within the bound
        entry(raw_snappy(b"x", announced=0xFFFFFFFF), 2),        # snappy that says 4 GB
        entry(raw_snappy(b"x", announced=200 * MB), 2),
        entry(raw_snappy(b"x", announced=BOUND), 2),             # within the bound, and not possible
        entry(xerial(*[raw_snappy(b"x" * 60, announced=1200)] * 100_000), 2),   # many small lies
        entry(xerial(varint(200 * MB) + (b"\\x00x" + b"\\xfe\\x01\\x00" * 60) * 50_000), 2),   # true, and too large
        entry(xerial(*[raw_snappy(b"x")] * 500_000), 2),         # within the bound, in blocks of one byte
        gzipped(gzipped(b"") * 200_000),                         # within the bound, wrappers with nothing in them
        gzipped(gzipped(entry(b"")) * 150_000),                  # and with next to nothing
        gzipped(struct.pack(">i", 0x7FFFFFFF) + b"\\x01\\x00" * 100),    # an inner size that lies
    ]
    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    good = entry(b"good")
    MessageSet(gzipped(good), max_inflated_bytes=BOUND)
    before = peak()
    for i, bomb in enumerate(bombs):
        data = good + bomb + good
        held = len(data)
        message_set = MessageSet(data, max_inflated_bytes=BOUND)
        assert [m.offset for m in message_set[:1]] == [0], i
        assert message_set.error is not None and message_set.error.offset == len(good), i
        assert message_set.error.next_offset == len(good) + len(bomb), i
        del data, message_set
    print(peak() - before)
"""


def test_bombs_take_no_memory():
    """A process of its own, whose peak says what was taken: not much more than the bound, whatever was announced."""
    code = textwrap.dedent(BOMBS).format(tests=str(Path(__file__).parent))
    one_arena = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=one_arena)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40 << 20
