"""Message sets made by hand, and the comparison of the compiled core with the oracle."""

from __future__ import annotations

import gzip
import re
import struct
import zlib

import oracle
from kafka07c import MessageSet
from kafka07c.errors import CorruptMessageError

#: what the core's errors say, in the oracle's words; the first that fits
_KINDS = (
    (oracle.SIZE, r"size field is -?\d+, below"),
    (oracle.MAGIC, r"magic byte is"),
    (oracle.CODEC, r"names codec 3"),
    (oracle.CRC, r"CRC field is"),
    (oracle.NESTING, r"nested more than"),
    (oracle.CUT, r"it is cut"),
    (oracle.BOUND, r"(gzip|snappy) data inflates to"),
    (oracle.INFLATE, r"gzip|snappy"),
)


def kind_of(error: CorruptMessageError) -> str:
    return next(kind for kind, pattern in _KINDS if re.search(pattern, error.reason))


def entry(
    payload: bytes, codec: int = 0, *, attributes: int | None = None, magic: int = 1, crc: int | None = None
) -> bytes:
    """One stored entry, with whatever is given in place of the right attributes, magic and CRC."""
    head = bytes([magic]) + (b"" if magic == 0 else bytes([codec if attributes is None else attributes]))
    body = head + struct.pack(">I", zlib.crc32(payload) if crc is None else crc) + payload
    return struct.pack(">i", len(body)) + body


def gzipped(inner: bytes) -> bytes:
    return entry(gzip.compress(inner, mtime=0), oracle.GZIP)


def snapped(inner: bytes) -> bytes:
    return entry(xerial(raw_snappy(inner)), oracle.SNAPPY)


def nested(inner: bytes, levels: int) -> bytes:
    for _ in range(levels):
        inner = gzipped(inner)
    return inner


def xerial(*blocks: bytes, order: str = ">") -> bytes:
    """Xerial framing around raw blocks, with the version fields in the given byte order."""
    framed = [struct.pack(">i", len(block)) + block for block in blocks]
    return oracle.XERIAL_MAGIC + struct.pack(f"{order}ii", 1, 1) + b"".join(framed)


def raw_snappy(data: bytes, announced: int | None = None) -> bytes:
    """A raw block of literals only, with the length that it ``announced``, or its true one."""
    out = bytearray(varint(len(data) if announced is None else announced))
    for start in range(0, len(data), 60):
        literal = data[start : start + 60]
        out += bytes([len(literal) - 1 << 2]) + literal
    return bytes(out)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def as_oracle(message) -> oracle.Message:
    """A message of the core's in the oracle's form."""
    return oracle.Message(
        message.offset,
        message.index,
        message.next_offset,
        int(message.codec),
        message.attributes,
        message.magic,
        message.crc,
        bytes(message.payload),
    )


def iterated(message_set: MessageSet) -> tuple[list, Exception | None]:
    """What iterating gives, and the error that it ends with."""
    messages = []
    try:
        for message in message_set:
            messages.append(message)
    except CorruptMessageError as error:
        return messages, error
    return messages, None


def assert_agrees(data: bytes, base_offset: int = 0, *, exact_inflate_kind: bool = True, **options) -> oracle.Decoded:
    """Fails unless the core reads ``data`` just as the oracle does; gives what that is.

    When a wrapper is both damaged and too large, it is a matter of order which of the two is noticed: with
    ``exact_inflate_kind`` False either will do.
    """
    want = oracle.decode(bytes(data), base_offset, **options)
    got = MessageSet(data, base_offset, **options)
    messages, raised = iterated(got)
    assert [as_oracle(m) for m in messages] == want.messages
    assert len(got) == len(want.messages)
    assert (got.valid_bytes, got.next_offset) == (want.valid_bytes, want.next_offset)
    good = got.good()
    assert good.error is None
    assert good.offsets.tolist() == [m.offset for m in want.messages]
    assert good.indexes.tolist() == [m.index for m in want.messages]
    assert good.next_offsets.tolist() == [m.next_offset for m in want.messages]
    assert good.lengths.tolist() == [len(m.payload) for m in want.messages]
    assert good.payloads() == [m.payload for m in want.messages]
    if want.error is None:
        assert got.error is None and raised is None
        return want
    assert (got.error.offset, got.error.next_offset) == (want.error.offset, want.error.next_offset)
    assert (raised.offset, raised.next_offset, raised.reason) == (
        got.error.offset,
        got.error.next_offset,
        got.error.reason,
    )
    either = (oracle.INFLATE, oracle.BOUND)
    if exact_inflate_kind or want.error.kind not in either:
        assert kind_of(got.error) == want.error.kind
    else:
        assert kind_of(got.error) in either
    return want
