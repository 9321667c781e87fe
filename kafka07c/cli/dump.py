"""``kafka07c dump``: what segment files hold, entry by entry, in the lines of 0.7's DumpLogSegments.

It reads files, not logs: any file whose name begins with the offset of its first byte will do. Entries are shown as
they are stored (a wrapper is one entry); ``--deep`` opens the wrappers. As the real tool does, it goes on behind an
entry with a bad CRC (``isvalid: false``), but says so on stderr and ends with exit code 4. Where the real tool stops
without a word (a size that cannot be) or dies (an unknown codec), this one names the offset.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafka07c._compress import Codec
from kafka07c._views import Message, MessageSet
from kafka07c.cli.arguments import Commands, add_command
from kafka07c.cli.exit_codes import CORRUPT, OK, UsageError
from kafka07c.cli.output import json_line, note, payload_fields
from kafka07c.config import MAX_REQUEST_BYTES
from kafka07c.errors import KafkaError
from kafka07c.segments.files import SegmentFile

__all__ = ["add_parser", "run"]

_EXAMPLE = """\
  kafka07c dump --no-payload /kafka-logs/clicks-0/00000000000000000000.kafka
  kafka07c dump --deep --json /kafka-logs/clicks-0/*.kafka
"""

_WINDOW = 1 << 20
_SIZE_BYTES = 4
#: bytes after the size field and before the payload, by magic: magic, [attributes], CRC
_HEADER_BYTES = {0: 5, 1: 6}
_CODECS: dict[int, str] = {Codec.NONE: "NoCompressionCodec", Codec.GZIP: "GZIPCompressionCodec", Codec.SNAPPY: "SnappyCompressionCodec"}


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "dump",
        run,
        help="the entries of log segment files",
        description="Prints what log segment files hold, in the lines of 0.7's DumpLogSegments.\n"
        "Exit code 4 if an entry is corrupt.",
        example=_EXAMPLE,
        fields="entry, and with --deep per message in it: file, offset, next_offset, valid, codec (none, gzip, snappy; a "
        "number where 0.7 has no such), magic, crc, payload_size, index (of a message in its entry), payload, or "
        "payload_base64 where it is no UTF-8",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a segment file, <start offset>.kafka")
    parser.add_argument("--no-payload", "-noprint", action="store_true", help="leave the payloads out")
    parser.add_argument("--deep", action="store_true", help="show the messages in compressed entries, too")
    parser.add_argument("--json", action="store_true", help="one JSON object per entry or message")


def run(args: argparse.Namespace) -> int:
    starts = [_start_offset(path) for path in args.files]
    show = _Json(args.no_payload) if args.json else _Text(args.no_payload)
    errors = sum([_dump(path, start, show, args.deep) for path, start in zip(args.files, starts, strict=True)])
    return CORRUPT if errors else OK


def _start_offset(path: Path) -> int:
    match = re.match(r"(\d{1,20})\.", path.name)
    if match is None or int(match[1]) >= 1 << 63:
        raise UsageError(f"{path} is no segment file: the name has to begin with its first offset and a dot")
    if not path.is_file():
        raise UsageError(f"{path} is no file" if path.exists() else f"{path}: No such file or directory")
    return int(match[1])


def _dump(path: Path, start: int, show: _Text | _Json, deep: bool) -> int:
    """Prints one file; the number of errors in it."""
    errors = 0

    def tell(error: object) -> None:
        # what is on stdout comes before it, where both are one terminal
        sys.stdout.flush()
        note(f"kafka07c dump: {path}: {error}")

    # copied, not mapped: the file may be one that a broker is about to cut
    with SegmentFile(path, closed_segment=False) as file:
        size = os.path.getsize(path)
        show.begin(path, start)
        tail = start
        for entry in _entries(file, size, start):
            show.entry(entry)
            tail = entry.next_offset
            error = entry.error
            if deep and error is None and entry.codec != Codec.NONE:
                messages = MessageSet(entry.stored, entry.offset, final=True)
                for message in messages.good():
                    show.inner(message)
                error = messages.error
            if error is not None:
                tell(error)
                errors += 1
        show.end(tail)
        if left := start + size - tail:
            reason = _rest_error(file.take(tail - start, min(left, _WINDOW)), tail, left)
            tell(reason or f"offset {tail}: the file ends with {left} bytes of an entry that does not end in it")
            errors += reason is not None
    return errors


@dataclass(frozen=True, slots=True)
class _Entry:
    """A stored entry, ``stored`` its bytes; ``error`` says what is wrong with it if something is."""

    offset: int
    stored: memoryview | bytes
    error: KafkaError | None = None

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.stored)

    @property
    def magic(self) -> int:
        return self.stored[_SIZE_BYTES]

    @property
    def codec(self) -> int:
        return self.stored[_SIZE_BYTES + 1] & 3 if self.magic else 0

    @property
    def crc(self) -> int:
        end = len(self.stored) - len(self.payload)
        return int.from_bytes(self.stored[end - 4 : end], "big")

    @property
    def payload(self) -> memoryview | bytes:
        return self.stored[_SIZE_BYTES + _HEADER_BYTES.get(self.magic, _HEADER_BYTES[1]) :]


def _entries(file: SegmentFile, size: int, start: int) -> Iterator[_Entry]:
    """The stored entries of a file as far as their sizes can be believed. In memory: one window, or one large entry."""
    position = 0
    while position < size:
        window = MessageSet(file.take(position, _WINDOW), start + position, shallow=True)
        for message in window.good():
            begin = message.offset - window.base_offset
            yield _Entry(message.offset, window.data[begin : message.next_offset - window.base_offset])
        position += window.valid_bytes
        if window.error is None and window.valid_bytes:
            continue
        # what is here is damaged, or larger than the window, or cut by the file's end
        field = file.take(position, _SIZE_BYTES)
        length = int.from_bytes(field, "big", signed=True)
        if len(field) < _SIZE_BYTES or not _HEADER_BYTES[1] <= length <= min(size - position, MAX_REQUEST_BYTES):
            return
        stored = file.take(position, _SIZE_BYTES + length)
        if len(stored) < _SIZE_BYTES + length:
            return
        yield _Entry(start + position, stored, MessageSet(stored, start + position, shallow=True, final=True).error)
        position += len(stored)


def _rest_error(data: memoryview | bytes, offset: int, left: int) -> object | None:
    """What is wrong with the last ``left`` bytes of a file, which begin with ``data``; None if they are a cut entry."""
    length = int.from_bytes(data[:_SIZE_BYTES], "big", signed=True)
    if MAX_REQUEST_BYTES < length <= left - _SIZE_BYTES:
        return f"offset {offset}: corrupt entry: its size field is {length}, more than a broker takes"
    return MessageSet(data, offset, shallow=True).error


class _Text:
    """The lines of DumpLogSegments; ``index`` in those of ``--deep`` is ours."""

    def __init__(self, no_payload: bool):
        self._no_payload = no_payload
        self._write = sys.stdout.buffer.write
        sys.stdout.flush()

    def begin(self, path: Path, start: int) -> None:
        self._write(b"Dumping %b\nStarting offset: %d\n" % (os.fsencode(path), start))

    def entry(self, entry: _Entry) -> None:
        valid = "true" if entry.error is None else "false"
        codec = _CODECS.get(entry.codec, f"unknown codec {entry.codec}")
        self._line(f"offset: {entry.offset} isvalid: {valid}", entry.payload, entry.magic, codec)

    def inner(self, message: Message) -> None:
        attributes = f"offset: {message.offset} index: {message.index} isvalid: true"
        self._line(attributes, message.payload, message.magic, _CODECS[Codec(message.attributes & 3)])

    def end(self, tail: int) -> None:
        self._write(b"tail of the log is at offset: %d\n" % tail)

    def _line(self, begin: str, payload: memoryview | bytes, magic: int, codec: str) -> None:
        self._write(f"{begin} payloadsize: {len(payload)} magic: {magic} compresscodec: {codec}\n".encode())
        if not self._no_payload:
            self._write(b"payload:\t%b\n" % bytes(payload).decode("utf-8", "replace").encode())


class _Json:
    """One object per entry, and per message in it; ``codec`` is that of the stored entry, a number where 0.7 has no such."""

    def __init__(self, no_payload: bool):
        self._no_payload = no_payload

    def begin(self, path: Path, start: int) -> None:
        self._file = os.fspath(path)

    def entry(self, entry: _Entry) -> None:
        codec = str(Codec(entry.codec)) if entry.codec in _CODECS else entry.codec
        self._line(entry, {"next_offset": entry.next_offset, "valid": entry.error is None, "codec": codec})

    def inner(self, message: Message) -> None:
        self._line(message, {"index": message.index, "next_offset": message.next_offset, "valid": True})

    def end(self, tail: int) -> None:
        pass

    def _line(self, entry: _Entry | Message, fields: dict[str, object]) -> None:
        place = {"file": self._file, "offset": entry.offset}
        fields |= {"magic": entry.magic, "crc": entry.crc, "payload_size": len(entry.payload)}
        payload = {} if self._no_payload else payload_fields(bytes(entry.payload))
        print(json_line(place | fields | payload))
