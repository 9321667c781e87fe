"""A slow, plain decoder of 0.7 message sets, written from the format alone and sharing no code with the package.

It is what the tests hold the compiled core to, so it favours being plainly right over all else: one entry after the
other, one exception for all damage, the CRC of zlib, a snappy decoder that can be read in a minute.

Sources: kafka.message.Message, MessageSet and CompressionUtils of 0.7.2 for the layout; the snappy format description
for the blocks; RFC 1952 for gzip, with java.util.zip.GZIPInputStream's way of treating what follows a member.

Functions raise CutTail or Damage; only ``decode`` turns them into results. The recursion goes MAX_NESTING deep at most.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

NONE, GZIP, SNAPPY = 0, 1, 2

#: wrappers inside wrappers that are opened; the stored wrapper is the first
MAX_NESTING = 64
MAX_INFLATED_BYTES = 128 * 1024 * 1024

XERIAL_MAGIC = bytes([0x82]) + b"SNAPPY" + bytes([0])
XERIAL_HEADER = len(XERIAL_MAGIC) + 8

# what can be wrong with an entry
SIZE, MAGIC, CODEC, CRC, INFLATE, BOUND, NESTING, CUT = "size magic codec crc inflate bound nesting cut".split()


class Damage(Exception):
    """An entry is bad; ``kind`` is one of the words above."""

    def __init__(self, kind: str):
        super().__init__(kind)
        self.kind = kind


class CutTail(Exception):
    """The data ends inside an entry that has shown nothing wrong so far."""


@dataclass(frozen=True)
class Header:
    """The fields of one stored entry; ``start`` and ``end`` are positions in the data, the payload ends at ``end``."""

    start: int
    end: int
    magic: int
    attributes: int
    crc: int
    payload_start: int

    @property
    def codec(self) -> int:
        return self.attributes & 3


@dataclass(frozen=True)
class Message:
    offset: int
    index: int
    next_offset: int
    codec: int
    attributes: int
    magic: int
    crc: int
    payload: bytes


@dataclass(frozen=True)
class Error:
    """``offset`` of the bad entry, ``next_offset`` after it where its length is believed (else None), what is wrong."""

    offset: int
    next_offset: int | None
    kind: str


@dataclass(frozen=True)
class Decoded:
    messages: list[Message]
    valid_bytes: int
    next_offset: int
    error: Error | None


def decode(
    data: bytes,
    base_offset: int = 0,
    *,
    final: bool = False,
    max_inflated_bytes: int = MAX_INFLATED_BYTES,
    shallow: bool = False,
) -> Decoded:
    """All that ``data`` holds, up to its first bad entry or its cut tail."""
    messages: list[Message] = []
    error = None
    position = 0
    while position < len(data):
        found: list[Inner] = []
        try:
            header = read_entry(data, position, found, Budget(max_inflated_bytes), shallow)
        except CutTail:
            if final:
                error = Error(base_offset + position, None, CUT)
            break
        except Damage as damage:
            start = base_offset + position
            if found:  # a wrapper whose inside is bad from some message on
                messages += placed(found, read_header(data, position).codec, start, start)
            believed = believed_end(data, position, final, max_inflated_bytes, shallow)
            error = Error(start, None if believed is None else base_offset + believed, damage.kind)
            break
        messages += placed(found, header.codec, base_offset + position, base_offset + header.end)
        position = header.end
    return Decoded(messages, position, base_offset + position, error)


@dataclass(frozen=True)
class Inner:
    """A message before it is known where its stored entry lies."""

    attributes: int
    magic: int
    crc: int
    payload: bytes


def placed(found: list[Inner], codec: int, start: int, end: int) -> list[Message]:
    """Messages of one stored entry: all but the last are followed by the entry's start, the last by its end."""
    last = len(found) - 1
    return [
        Message(start, i, end if i == last else start, codec, m.attributes, m.magic, m.crc, m.payload)
        for i, m in enumerate(found)
    ]


def believed_end(data: bytes, position: int, final: bool, max_inflated_bytes: int, shallow: bool) -> int | None:
    """Where the bad entry at ``position`` ends, if a good entry begins there or the log ends there."""
    try:
        end = read_size(data, position)
    except (Damage, CutTail):
        return None
    if end == len(data):
        return end if final else None
    try:
        read_entry(data, end, [], Budget(max_inflated_bytes), shallow)
    except (Damage, CutTail):
        return None
    return end


class Budget:
    """Bytes that one stored entry may still inflate to, all levels together."""

    def __init__(self, left: int):
        self.left = left

    def take(self, count: int) -> None:
        if count > self.left:
            raise Damage(BOUND)
        self.left -= count


def read_entry(data: bytes, start: int, found: list[Inner], budget: Budget, shallow: bool, level: int = 0) -> Header:
    """Reads and checks the entry at ``start``, and all that is in it; the messages go to ``found`` as they are met."""
    header = read_header(data, start)
    payload = data[header.payload_start : header.end]
    if header.codec == 3:
        raise Damage(CODEC)
    if zlib.crc32(payload) != header.crc:
        raise Damage(CRC)
    if shallow or header.codec == NONE:
        found.append(Inner(header.attributes, header.magic, header.crc, payload))
    else:
        read_wrapper(payload, header.codec, found, budget, level + 1)
    return header


def read_wrapper(payload: bytes, codec: int, found: list[Inner], budget: Budget, level: int) -> None:
    if level > MAX_NESTING:
        raise Damage(NESTING)
    inflated = inflate(codec, payload, budget)
    position = 0
    while position < len(inflated):
        try:
            position = read_entry(inflated, position, found, budget, False, level).end
        except CutTail:
            raise Damage(CUT) from None


def read_size(data: bytes, start: int) -> int:
    """Where the entry at ``start`` ends."""
    if len(data) - start < 4:
        raise CutTail
    (size,) = struct.unpack_from(">i", data, start)
    magic_seen = data[start + 4] if len(data) - start > 4 else None
    if size < (6 if magic_seen == 1 else 5):
        raise Damage(SIZE)
    if start + 4 + size > len(data):
        raise CutTail
    return start + 4 + size


def read_header(data: bytes, start: int) -> Header:
    end = read_size(data, start)
    magic = data[start + 4]
    if magic == 0:
        attributes, crc_start = 0, start + 5
    elif magic == 1:
        attributes, crc_start = data[start + 5], start + 6
    else:
        raise Damage(MAGIC)
    (crc,) = struct.unpack_from(">I", data, crc_start)
    return Header(start, end, magic, attributes, crc, crc_start + 4)


def inflate(codec: int, payload: bytes, budget: Budget) -> bytes:
    return inflate_gzip(payload, budget) if codec == GZIP else inflate_snappy(payload, budget)


def inflate_gzip(payload: bytes, budget: Budget) -> bytes:
    """All members; bytes after a whole member that do not begin another one are ignored."""
    out = b""
    rest = payload
    while True:
        member = zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(rest, budget.left + 1)
        except zlib.error:
            raise Damage(INFLATE) from None
        budget.take(len(part))
        if not member.eof:
            raise Damage(INFLATE)
        out += part
        rest = member.unused_data
        if rest[:2] != b"\x1f\x8b":
            return out


def inflate_snappy(payload: bytes, budget: Budget) -> bytes:
    if not payload.startswith(XERIAL_MAGIC) or len(payload) < XERIAL_HEADER:
        return inflate_snappy_block(payload, budget)
    out = b""
    position = 0
    while position < len(payload):
        # The versions come in either byte order, so they tell nothing. A header may begin another stream further on.
        if len(payload) - position >= XERIAL_HEADER and payload.startswith(XERIAL_MAGIC, position):
            position += XERIAL_HEADER
            continue
        if len(payload) - position < 4:
            raise Damage(INFLATE)
        (length,) = struct.unpack_from(">i", payload, position)
        position += 4
        if length < 0 or length > len(payload) - position:
            raise Damage(INFLATE)
        out += inflate_snappy_block(payload[position : position + length], budget)
        position += length
    return out


def inflate_snappy_block(block: bytes, budget: Budget) -> bytes:
    """One raw snappy block: the length as a varint, then literals and copies that give exactly so many bytes."""
    try:
        announced, position = read_varint(block)
        budget.take(announced)
        out = bytearray()
        while position < len(block):
            tag = block[position]
            position += 1
            if tag & 3 == 0:
                length = tag >> 2
                if length >= 60:
                    width = length - 59
                    length = little_endian(block, position, width)
                    position += width
                length += 1
                if length > len(block) - position:
                    raise Damage(INFLATE)
                out += block[position : position + length]
                position += length
            else:
                if tag & 3 == 1:
                    length = (tag >> 2 & 7) + 4
                    distance = tag >> 5 << 8 | little_endian(block, position, 1)
                    position += 1
                else:
                    width = 2 if tag & 3 == 2 else 4
                    length = (tag >> 2) + 1
                    distance = little_endian(block, position, width)
                    position += width
                if distance == 0 or distance > len(out):
                    raise Damage(INFLATE)
                for _ in range(length):
                    out.append(out[-distance])
            if len(out) > announced:
                raise Damage(INFLATE)
    except IndexError:
        raise Damage(INFLATE) from None
    if len(out) != announced:
        raise Damage(INFLATE)
    return bytes(out)


def read_varint(block: bytes) -> tuple[int, int]:
    """A little-endian base-128 number of at most 32 bits, and the position after it."""
    value = 0
    for i in range(5):
        value |= (block[i] & 0x7F) << 7 * i
        if block[i] < 0x80:
            if value >> 32:
                raise Damage(INFLATE)
            return value, i + 1
    raise Damage(INFLATE)


def little_endian(block: bytes, position: int, width: int) -> int:
    if position + width > len(block):
        raise IndexError
    return int.from_bytes(block[position : position + width], "little")
