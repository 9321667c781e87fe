"""The codecs of 0.7: by number, with a bound on what comes out.

gzip: one or several members (RFC 1952). What follows a whole member and does not begin another is ignored, as
``java.util.zip.GZIPInputStream`` does, which is what every 0.7 broker and JVM client read with.

snappy: xerial framing, ``82 "SNAPPY" 00 | int32 version | int32 compatible | (int32 length | raw block)*``, the lengths
big-endian, blocks of 32768 bytes before compression. The versions are not looked at (some writers have them in
little endian). Without that header the bytes are one raw block.
"""

import enum
import sys
import zlib

import cramjam

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp, memcpy

from kafka07c._memory cimport Block, address, read_only_view
from kafka07c._wire cimport load_int32, store_int32

try:
    from isal import isal_zlib as _gzip
except ImportError:  # no wheel for this platform: the standard library's is slower and gives the same
    _gzip = zlib

_GZIP_ERRORS = (zlib.error, _gzip.error)
_GZIP_WBITS = 31
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_RESERVED_FLAGS = 0xE0
_NEXT_MEMBER_BYTES = 4096
cdef bytes XERIAL_MAGIC = b"\x82SNAPPY\x00"
cdef bytes XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
cdef enum:
    XERIAL_HEADER_BYTES = 16
    XERIAL_BLOCK_BYTES = 32768
    # a snappy element of 3 bytes gives at most 64, so no true block grows more than this
    SNAPPY_MOST = 32


class Codec(enum.IntEnum):
    """How a stored entry is compressed: the low two bits of its attributes. ``str()`` gives the name."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2

    def __str__(self):
        return self.name.lower()


def codec_of(codec):
    """The :class:`Codec` for a name, a number or a Codec. Raises ValueError for any other."""
    try:
        return Codec[codec.upper()] if isinstance(codec, str) else Codec(codec)
    except (KeyError, ValueError):
        raise ValueError(f"codec {codec!r} is none of none, gzip, snappy (0, 1, 2)") from None


class InflateError(Exception):
    """Compressed bytes do not inflate, or to more than the bound; the caller says where they stand."""


def gzip_backend():
    """What gzip is done with: "isal", or "zlib" where isal cannot be imported."""
    return "zlib" if _gzip is zlib else "isal"


def inflate(codec, data, max_bytes):
    """What ``data`` inflates to, as a read-only memoryview that owns its memory.

    Raises :class:`InflateError` when the bytes are damaged, cut, or give more than ``max_bytes``; memory taken stays
    near ``max_bytes`` whatever they announce.
    """
    if codec == 1:
        return memoryview(_inflate_gzip(data, max_bytes))
    return _inflate_snappy(read_only_view(data), max_bytes)


def deflate(codec, data):
    """``data`` compressed as 0.7's own clients do it, as bytes."""
    if codec == 1:
        deflater = _gzip.compressobj(wbits=_GZIP_WBITS)
        return deflater.compress(data) + deflater.flush()
    return _deflate_snappy(data)


def _inflate_gzip(data, max_bytes):
    """The first member, nearly always the only one, is given all the data at once; later ones get it in small pieces,
    as each member copies what it was given and did not need: thousands of tiny ones would copy the rest each time."""
    view = memoryview(data)
    pieces = []
    left = min(max_bytes, sys.maxsize - 1)
    pos, step = 0, len(view)
    while True:
        _check_gzip_flags(view[pos:pos + 4])
        inflater = _gzip.decompressobj(wbits=_GZIP_WBITS)
        while not inflater.eof:
            given = view[pos:pos + step]
            if not given:
                raise InflateError("gzip data ends before it is whole")
            try:
                piece = inflater.decompress(given, left + 1)
            except _GZIP_ERRORS as error:
                raise InflateError(f"gzip data does not inflate ({error})") from None
            left -= len(piece)
            if left < 0:
                raise InflateError(f"gzip data inflates to more than {max_bytes} bytes")
            pieces.append(piece)
            pos += len(given) - len(inflater.unused_data)
            step *= 2
        if view[pos:pos + 2] != _GZIP_MAGIC:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        step = _NEXT_MEMBER_BYTES


def _check_gzip_flags(head):
    """RFC 1952 wants reserved flags refused, as they may stand for fields unknown; zlib does so and isal does not."""
    if len(head) == 4 and head[3] & _GZIP_RESERVED_FLAGS:
        raise InflateError(f"gzip data has reserved flags ({head[3]:#04x})")


cdef object _inflate_snappy(object data, int64_t max_bytes):
    """Goes over the blocks twice, and keeps no list of them: a block of 5 bytes would take 27 times as much there."""
    cdef int64_t total = 0, filled = 0
    cdef Py_ssize_t count = 0
    for block, length in _snappy_blocks(data, max_bytes):
        total += length
        count += 1
    if count == 1:
        return memoryview(_snappy_block(block, length))
    cdef Block out = Block.allocate(total)
    for block, length in _snappy_blocks(data, max_bytes):
        piece = memoryview(_snappy_block(block, length))
        memcpy(out.data + filled, address(piece), length)
        filled += length
    return memoryview(out)


def _snappy_block(data, length):
    try:
        block = cramjam.snappy.decompress_raw(data, length)
    except cramjam.DecompressionError as error:
        raise InflateError(f"snappy data does not inflate ({error})") from None
    if len(block) != length:
        raise InflateError(f"a snappy block announces {length} bytes and gives {len(block)}")
    return block


def _snappy_blocks(data, int64_t max_bytes):
    """Each raw block in turn and what it inflates to: all of that checked, nothing inflated yet."""
    cdef const unsigned char *bytes_ = address(data)
    cdef int64_t size = len(data), pos = XERIAL_HEADER_BYTES, total = 0
    cdef int32_t length
    if not _has_xerial_header(bytes_, size):
        yield data, _snappy_length(data, 0, max_bytes)
        return
    while pos < size:
        if _has_xerial_header(bytes_ + pos, size - pos):  # streams one after the other
            pos += XERIAL_HEADER_BYTES
            continue
        if size - pos < 4:
            raise InflateError("snappy data ends inside the length of a block")
        length = load_int32(bytes_ + pos)
        pos += 4
        if not 0 <= length <= size - pos:
            raise InflateError(f"a snappy block announces {length} bytes where {size - pos} are left")
        block = data[pos:pos + length]
        inflated = _snappy_length(block, total, max_bytes)
        yield block, inflated
        total += inflated
        pos += length


cdef bint _has_xerial_header(const unsigned char *data, int64_t size) noexcept:
    return size >= XERIAL_HEADER_BYTES and memcmp(data, <const char *> XERIAL_MAGIC, 8) == 0


def _snappy_length(block, before, max_bytes):
    """What a raw block announces, once that is possible for its size and, with the ``before``, within the bound."""
    try:
        length = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise InflateError(f"snappy data does not inflate ({error})") from None
    if before + length > max_bytes:
        raise InflateError(f"snappy data inflates to {before + length} bytes or more, where {max_bytes} are allowed")
    if length > SNAPPY_MOST * len(block):
        raise InflateError(f"a snappy block of {len(block)} bytes cannot inflate to the {length} that it announces")
    return length


cdef bytes _deflate_snappy(object data):
    cdef bytearray out = bytearray(XERIAL_HEADER)
    cdef unsigned char length[4]
    view = memoryview(data)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start:start + XERIAL_BLOCK_BYTES])
        store_int32(length, len(block))
        out += length[:4]
        out += block
    return bytes(out)
