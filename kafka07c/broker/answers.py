"""An answer on its way: bytes made here, and slices of logs that the kernel sends without their passing through us."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kafka07c.errors import LogError
from kafka07c.segments import Log, LogSlice

__all__ = ["Answer", "FileSlice"]

#: says that more follows, so that a size field does not travel in a packet of its own; only Linux has it
_MORE_FOLLOWS = getattr(socket, "MSG_MORE", 0)

#: bytes for one sendfile call; Linux sends at most 2 GiB less a page at once
_SENDFILE_BYTES = 1 << 30


@dataclass(frozen=True)
class FileSlice:
    """``count`` flushed bytes of ``log`` from ``offset`` on, all of one segment.

    The file is opened when its turn to be sent has come, so that an answer of thousands of parts holds one descriptor.
    Should retention delete the segment before that, the connection ends in the middle of the answer, as in 0.7.2.
    """

    log: Log
    offset: int
    count: int

    def send(self, sock: socket.socket) -> None:
        with self.log.slice(self.offset, self.count) as opened:
            if opened.count != self.count:
                raise LogError(f"{self.log} has {opened.count} bytes at {self.offset}, where it had {self.count}")
            _send_file(sock, opened)


@dataclass(frozen=True)
class Answer:
    """What is sent back for one request. ``then_close``: the connection ends after it, as 0.7.2 does where it breaks in
    the middle of an answer."""

    pieces: list[bytes | FileSlice]
    then_close: bool = False

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(piece.count if isinstance(piece, FileSlice) else len(piece) for piece in self.pieces)

    def send(self, sock: socket.socket, limit: int | None = None) -> None:
        """Send it whole, or its first ``limit`` bytes. OSError where the peer has gone."""
        pieces = self.pieces if limit is None else list(self._cut(limit))
        for number, piece in enumerate(pieces, 1):
            if isinstance(piece, FileSlice):
                piece.send(sock)
            else:
                sock.sendall(piece, 0 if number == len(pieces) else _MORE_FOLLOWS)

    def _cut(self, limit: int) -> Iterator[bytes | FileSlice]:
        for piece in self.pieces:
            if not limit:
                return
            if isinstance(piece, FileSlice):
                piece = replace(piece, count=min(piece.count, limit))
                limit -= piece.count
            else:
                piece = piece[:limit]
                limit -= len(piece)
            yield piece


def _send_file(sock: socket.socket, piece: LogSlice) -> None:
    position, left = piece.position, piece.count
    while left:
        sent = os.sendfile(sock.fileno(), piece.fd, position, min(left, _SENDFILE_BYTES))
        if not sent:
            raise LogError(f"a segment file ends at {position}, {left} bytes before the end that was announced")
        position += sent
        left -= sent
