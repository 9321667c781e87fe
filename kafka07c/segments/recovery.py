"""Recovery of a log's last segment after a crash: what 0.7.2 keeps of it, and a copy of what it does not.

0.7.2 keeps the entries from the segment's start up to the first that is short, smaller than a header or has a wrong
CRC, and truncates the rest, good entries included. It looks at stored entries only: the inside of a wrapper is not
checked, nor the codec. (An unknown magic byte, or a magic-1 entry of size 5, stops a 0.7.2 broker from starting at all;
here they are cut like any other damage.) Source: kafka.message.FileMessageSet.recover.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kafka07c._crc32 import crc32
from kafka07c._views import MessageSet
from kafka07c.segments.files import log_error, sync_directory

__all__ = ["Recovery", "copy_tail", "find_valid_end"]

_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Recovery:
    """What recovery did to the last segment, at ``path``: ``kept_bytes`` of it stay and ``cut_bytes`` are cut off.

    Where something was cut, ``reason`` says why the first entry of it was not kept and ``copy`` is the file that holds
    the cut bytes, beside the segment and ignored by readers and brokers; otherwise both are None.
    """

    path: Path
    kept_bytes: int
    cut_bytes: int = 0
    reason: str | None = None
    copy: Path | None = None


def find_valid_end(fd: int, size: int) -> tuple[int, str | None]:
    """How many of a segment's ``size`` bytes 0.7.2 keeps, and why not the entry behind them (None: all are kept)."""
    position = 0
    while position < size:
        chunk = os.pread(fd, min(_CHUNK_BYTES, size - position), position)
        stored = MessageSet(chunk, shallow=True)
        position += stored.valid_bytes
        if stored.error is None and stored.valid_bytes:
            continue
        # larger than a chunk, or not to our codec's liking: 0.7.2's own rule decides
        length, refusal = _judge(fd, position, size - position)
        if refusal is not None:
            return position, refusal
        position += length
    return position, None


def _judge(fd: int, position: int, left: int) -> tuple[int, str | None]:
    """The length of the entry at ``position``, ``left`` bytes before the segment's end, and why 0.7.2 refuses it."""
    header = os.pread(fd, min(10, left), position)
    if len(header) < 4:
        return 0, f"the segment ends inside a size field, after {len(header)} bytes"
    size = int.from_bytes(header[:4], "big", signed=True)
    length = 4 + size
    if size < 5:
        return 0, f"its size field is {size}, below the size of a header"
    if length > left:
        return 0, f"it is cut: its size field is {size}, and {left - 4} bytes follow"
    magic = header[4]
    if magic > 1:
        return 0, f"its magic byte is {magic}, where 0.7 has 0 or 1"
    if size < 5 + magic:
        return 0, f"its size field is {size}, below the size of a header"
    stored = int.from_bytes(header[5 + magic : 9 + magic], "big")
    actual = _crc_of(fd, position + 9 + magic, position + length)
    if stored != actual:
        return 0, f"its CRC field is {stored:#010x}, its payload has {actual:#010x}"
    return length, None


def _crc_of(fd: int, start: int, end: int) -> int:
    """The CRC-32 of the bytes [``start``, ``end``), a chunk at a time: no memory on the word of a size field."""
    crc = 0
    while start < end and (chunk := os.pread(fd, min(_CHUNK_BYTES, end - start), start)):
        crc = crc32(chunk, crc)
        start += len(chunk)
    return crc


def copy_tail(path: Path, fd: int, start: int, offset: int, now_ms: int) -> Path:
    """Copy the segment's bytes from ``start`` on into a file beside it, and force it to the disk.

    The name is the segment's with ``.cut-<log offset>-<ms since 1970>``; that is no segment's name. A LogError, of a
    full disk say, leaves no such file.
    """
    copy = path.with_name(f"{path.name}.cut-{offset}-{now_ms}")
    try:
        with open(copy, "xb") as file:
            try:
                while data := os.pread(fd, _CHUNK_BYTES, start):
                    file.write(data)
                    start += len(data)
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                os.unlink(copy)
                raise
        sync_directory(path.parent)
    except OSError as error:
        raise log_error("copy what recovery cuts to", copy, error) from error
    return copy
