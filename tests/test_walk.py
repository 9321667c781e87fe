"""The walk over plain entries: every kernel against a plain Python walk, between guard pages."""

from __future__ import annotations

import random
import struct
import zlib
from bisect import bisect_right
from dataclasses import dataclass, field

import pytest
from guarded import Guarded

from kafka07c import MessageSet, _crc32
from kafka07c.errors import CorruptMessageError

#: the reasons of the plain walk, and what the error says of each
WORDS = {"size": "size field", "magic": "magic byte", "codec": "codec 3", "crc": "CRC field"}


@pytest.fixture(params=_crc32.kernels())
def kernel(request):
    before = _crc32.kernel()
    _crc32.select_kernel(request.param)
    yield request.param
    _crc32.select_kernel(before)


@pytest.fixture(scope="module")
def memory():
    return Guarded(300_000)


def entry(payload: bytes, magic: int = 1, attributes: int = 0) -> bytes:
    header = bytes([magic, attributes] if magic else [magic])
    body = header + struct.pack(">I", zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


@dataclass
class Walked:
    """What lies in a message set whose wrappers stay closed."""

    offsets: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    end: int = 0
    damage: str | None = None


def plain_walk(data: bytes) -> Walked:
    found = Walked()
    while (left := len(data) - found.end) >= 4:
        (size,) = struct.unpack_from(">i", data, found.end)
        magic = data[found.end + 4] if left > 4 else None
        if size < (6 if magic == 1 else 5):
            found.damage = "size"
        elif size > left - 4:
            break
        elif magic > 1:
            found.damage = "magic"
        elif magic == 1 and data[found.end + 5] & 3 == 3:
            found.damage = "codec"
        else:
            start, end = found.end + 9 + magic, found.end + 4 + size
            if zlib.crc32(data[start:end]) != struct.unpack_from(">I", data, start - 4)[0]:
                found.damage = "crc"
            else:
                found.offsets.append(found.end)
                found.lengths.append(end - start)
                found.end = end
        if found.damage:
            break
    return found


def check(view: memoryview, expected: Walked, base: int = 0) -> None:
    found = MessageSet(view, base, shallow=True)
    good = found.good()
    assert good.valid_bytes == expected.end
    assert good.offsets.tolist() == [base + offset for offset in expected.offsets]
    assert good.next_offsets.tolist() == [base + end for end in [*expected.offsets, expected.end][1:]]
    assert good.lengths.tolist() == expected.lengths
    if expected.damage is None:
        assert found.error is None
    else:
        assert type(found.error) is CorruptMessageError
        assert found.error.offset == base + expected.end
        assert WORDS[expected.damage] in str(found.error)


def check_everywhere(memory: Guarded, data: bytes, base: int = 0) -> None:
    expected = plain_walk(data)
    check(memory.at_start(data), expected, base)
    check(memory.at_end(data), expected, base)


def random_set(rng: random.Random) -> bytearray:
    longest = rng.choice([1, 5, 20, 70, 140, 400, 3000])
    magics = rng.choice([[1], [1], [0], [0, 1]])
    data = bytearray()
    for _ in range(rng.choice([0, 1, 3, 4, 5, 8, rng.randrange(60)])):
        magic = rng.choice(magics)
        attributes = rng.choice([0, 0, 0, 0, 4, 0xFC, 1, 2]) if magic else 0
        data += entry(rng.randbytes(rng.randrange(longest)), magic, attributes)
    return data


def damage(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.randrange(3)):
        if not data:
            return
        place = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[place] ^= 1 << rng.randrange(8)
            case 1:
                data[place : place + 4] = struct.pack(">i", rng.choice([-1, 0, 4, 5, 6, 2**31 - 1, -(2**31)]))
            case 2:
                del data[place:]
            case 3:
                start = rng.choice(plain_walk(bytes(data)).offsets or [0])
                data[start : start + 6] = bytes([0, 0, 0, rng.randrange(12), rng.randrange(3), rng.randrange(4)])


def test_random_sets(kernel, memory):
    rng = random.Random(7)
    damaged = 0
    for _ in range(1500):
        data = random_set(rng)
        damage(rng, data)
        damaged += plain_walk(bytes(data)).damage is not None
        check_everywhere(memory, bytes(data), rng.choice([0, 1, 2**40, 2**63 - 1 - len(data)]))
    assert damaged > 300


def test_noise(kernel, memory):
    rng = random.Random(8)
    for _ in range(1000):
        check_everywhere(memory, bytes(rng.choices([0, 0, 0, 1, 5, 6, 10, 255], k=rng.randrange(60))))


def test_every_prefix(kernel, memory):
    rng = random.Random(9)
    data = b"".join(entry(rng.randbytes(length), length % 2) for length in [*range(12), 63, 64, 65, 127, 128, 129, 300])
    whole = plain_walk(data)
    ends = [*whole.offsets[1:], whole.end]
    assert whole.end == len(data)
    for cut in range(len(data) + 1):
        count = bisect_right(ends, cut)
        expected = Walked(whole.offsets[:count], whole.lengths[:count], ends[count - 1] if count else 0)
        check(memory.at_end(data[:cut]), expected)


def test_every_bit_flipped(kernel, memory):
    data = bytearray(b"".join([entry(b""), entry(b"abc"), entry(b"0123456789", 0), entry(b"x" * 70), entry(b"end")]))
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        check(memory.at_end(data), plain_walk(bytes(data)))
        data[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("magic", [0, 1])
def test_every_length_and_a_bad_bit_in_each(kernel, memory, magic):
    rng = random.Random(10)
    before, after = entry(b"before"), entry(b"after")
    for length in range(400):
        good = entry(rng.randbytes(length), magic)
        check(memory.at_start(good), plain_walk(good))
        data = bytearray(before + good + after)
        place = len(before) + 5 + magic + rng.randrange(4 + length)  # in the CRC field or the payload
        data[place] ^= 1 << rng.randrange(8)
        expected = Walked([0], [6], len(before), "crc")
        assert plain_walk(bytes(data)) == expected
        check(memory.at_end(data), expected)


def test_a_bad_message_at_every_place(kernel, memory):
    """However many messages a kernel checks together, the first bad one ends the set."""
    for count in range(1, 14):
        entries = [entry(b"message %d" % i) for i in range(count)]
        for first in range(count):
            for second in {first, count - 1}:
                bad = [bytearray(e) for e in entries]
                for place in {first, second}:
                    bad[place][-1] ^= 0x10
                data = b"".join(bad)
                assert len(plain_walk(data).offsets) == first
                check(memory.at_end(data), plain_walk(data))


def test_two_errors_that_would_cancel_in_a_sum(kernel, memory):
    """An exact CRC for each message: the same flip in two messages and in both CRC fields is two errors."""
    data = bytearray(entry(b"a" * 100) + entry(b"a" * 100) + entry(b"a" * 100) + entry(b"a" * 100))
    for start in (0, 110):
        data[start + 50] ^= 1
    check(memory.at_end(data), Walked([], [], 0, "crc"))


def test_columns_that_grow(kernel, memory):
    """The first entry says nothing about how many follow."""
    data = entry(b"x" * 50_000) + b"".join(entry(b"%d" % i) for i in range(10_000)) + entry(b"y" * 40_000) + b"\0\0"
    check_everywhere(memory, data)
    assert len(MessageSet(data)) == 10_002


def test_a_size_is_judged_as_soon_as_it_can_be(kernel, memory):
    cases = {
        b"\0\0\0": None,
        b"\0\0\0\4": "size",
        b"\xff\xff\xff\xff": "size",
        b"\x80\0\0\0\1": "size",
        b"\0\0\0\5": None,
        b"\0\0\0\5\0": None,
        b"\0\0\0\5\1": "size",
        b"\0\0\0\5\2": None,
        b"\0\0\0\5\2\0\0\0\0": "magic",
        b"\0\0\0\6\1\3": None,
        b"\0\0\0\6\1\3\0\0\0\0": "codec",
        b"\x7f\xff\xff\xff\7\7\7\7\7\7\7\7": None,
        entry(b"", 0): None,
        entry(b"") + b"\0\0\0\0": "size",
    }
    for data, damaged in cases.items():
        assert plain_walk(data).damage == damaged, data
        check_everywhere(memory, data)


def test_every_magic_and_attributes_byte(kernel, memory):
    """Codec 0 is a message, 1 and 2 a wrapper to be opened (here of what does not inflate), 3 is none."""
    data = bytearray(entry(b"one") + entry(b"payload") + entry(b"three"))
    second = len(entry(b"one"))
    for attributes in range(256):
        data[second + 5] = attributes
        found = MessageSet(memory.at_end(data))
        if attributes & 3 == 0:
            assert found.payloads() == [b"one", b"payload", b"three"]
            assert [m.attributes for m in found] == [0, attributes, 0]
        else:
            assert found.good().payloads() == [b"one"]
            assert found.error.offset == second
            assert ("codec 3" in str(found.error)) == (attributes & 3 == 3)
            assert "CRC" not in str(found.error)
    data[second + 5] = 0
    for magic in range(2, 256):
        data[second + 4] = magic
        check(memory.at_end(data), Walked([0], [3], second, "magic"))
