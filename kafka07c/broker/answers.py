"""An answer on its way: bytes made here and slices of segment files, sent by the kernel without passing through us."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from kafka07c.errors import LogError

__all__ = ["Answer", "FileSlice"]

#: says that more follows, so that a size field does not travel in a packet of its own; only Linux has it
_MORE_FOLLOWS = getattr(socket, "MSG_MORE", 0)

#: bytes for one sendfile call; Linux sends at most 2 GiB less a page at once
_SENDFILE_BYTES = 1 << 30


@dataclass(frozen=True)
class FileSlice:
    """``count`` bytes of the open file ``fd`` from ``position`` on; whoever made it owns the descriptor."""

    fd: int
    position: int
    count: int


@dataclass
class Answer:
    """What is sent back for one request. ``files`` holds the descriptors open until :meth:`close`.

    ``then_close``: the connection ends after it, as 0.7.2 does where it breaks in the middle of an answer.
    """

    pieces: list[bytes | FileSlice]
    then_close: bool = False
    files: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        self.files.close()

    def send(self, sock: socket.socket, limit: int | None = None) -> None:
        """Send it whole, or its first ``limit`` bytes. OSError where the peer has gone."""
        pieces = [piece for piece in self._cut(limit) if not isinstance(piece, FileSlice) or piece.count]
        for number, piece in enumerate(pieces, 1):
            if isinstance(piece, FileSlice):
                _send_file(sock, piece)
            else:
                sock.sendall(piece, 0 if number == len(pieces) else _MORE_FOLLOWS)

    def _cut(self, limit: int | None) -> Iterator[bytes | FileSlice]:
        left = float("inf") if limit is None else limit
        for piece in self.pieces:
            size = piece.count if isinstance(piece, FileSlice) else len(piece)
            if size > left:
                if isinstance(piece, FileSlice):
                    yield FileSlice(piece.fd, piece.position, left)
                else:
                    yield piece[:left]
                return
            yield piece
            left -= size


def _send_file(sock: socket.socket, piece: FileSlice) -> None:
    position, left = piece.position, piece.count
    while left:
        sent = os.sendfile(sock.fileno(), piece.fd, position, min(left, _SENDFILE_BYTES))
        if not sent:
            raise LogError(f"a segment file ends at {position}, {left} bytes before the end that was announced")
        position += sent
        left -= sent
