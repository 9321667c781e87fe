"""Cuts a stream of bytes into frames. Knows no socket: it is told about bytes and gives frames.

Every request and response of 0.7.2 is ``int32 size | frame``, big-endian; a frame begins with a request's type or a
response's error. Source: ``kafka.network.BoundedByteBufferReceive``, to which too a size of 0 or less is an error.

Two ways to tell it:

- ``buffer()`` and ``advance(n)``: the bytes go straight to where they stay, as ``recv_into`` wants it, and never past
  the end of the frame; what follows stays in the socket;
- ``feed(data)``: for whoever has the bytes already; gives all frames that they complete.

Memory: a frame's buffer is made for that frame alone and belongs to whoever gets the frame. A size is checked before
anything is allocated for it, and at most ``eager_bytes`` are allocated on a size field's word; beyond that the buffer
doubles as bytes really arrive.
"""

from __future__ import annotations

from struct import Struct

import numpy as np

from kafka07c.errors import ProtocolError

__all__ = ["EAGER_BYTES", "FrameDecoder"]

#: bytes allocated for a frame before any of it has arrived
EAGER_BYTES = 64 * 1024

_SIZE = Struct(">i")


class FrameDecoder:
    """One direction of a connection, frame by frame.

    ``max_frame_bytes``: a size field above it is a ProtocolError (with the default of ``kafka07c.config`` that is
    ``max.socket.request.bytes``). ``eager_bytes``: what may be allocated at once; a client that knows how much it
    asked for says so, and then each frame is one allocation and no copy.

    After a ProtocolError the stream has lost its place: there is nothing to do but to close the connection.
    """

    def __init__(self, max_frame_bytes: int, eager_bytes: int = EAGER_BYTES):
        self.max_frame_bytes = max_frame_bytes
        self._eager_bytes = eager_bytes
        self._size_field = memoryview(bytearray(_SIZE.size))
        self._begin()

    def _begin(self) -> None:
        self._frame_bytes: int | None = None  # None while the size field is being read
        self._target = self._size_field
        self._filled = 0

    @property
    def pending(self) -> int:
        """Bytes taken of a frame that is not complete, its size field included. 0: the stream may end here."""
        return self._filled if self._frame_bytes is None else _SIZE.size + self._filled

    @property
    def missing(self) -> int:
        """Bytes that the frame under way lacks, as far as is known: of its size field while that is not whole."""
        return (_SIZE.size if self._frame_bytes is None else self._frame_bytes) - self._filled

    def buffer(self) -> memoryview:
        """Where the next bytes belong: writable, never empty, and never longer than what the frame lacks."""
        return self._target[self._filled :]

    def advance(self, count: int) -> memoryview | None:
        """``count`` bytes have been written to ``buffer()``. The frame, if that completed it, else None.

        Raises ProtocolError as soon as a size field is whole that is 0, negative or above ``max_frame_bytes``.
        """
        self._filled += count
        if self._filled < len(self._target):
            return None
        if self._frame_bytes is None:
            self._frame_bytes = self._checked_size()
            self._target = _allocate(min(self._frame_bytes, self._eager_bytes))
            self._filled = 0
            return None
        if self._filled < self._frame_bytes:
            self._grow(self._frame_bytes)
            return None
        frame = self._target.toreadonly()
        self._begin()
        return frame

    def feed(self, data: bytes | bytearray | memoryview) -> list[memoryview]:
        """The frames that ``data`` completes, in order: none, one or several."""
        frames = []
        view = memoryview(data)
        while view:
            target = self.buffer()
            count = min(len(view), len(target))
            target[:count] = view[:count]
            view = view[count:]
            frame = self.advance(count)
            if frame is not None:
                frames.append(frame)
        return frames

    def _checked_size(self) -> int:
        size: int
        (size,) = _SIZE.unpack(self._size_field)
        if size <= 0:
            raise ProtocolError(f"a frame announces a size of {size} bytes: the peer does not speak Kafka 0.7")
        if size > self.max_frame_bytes:
            raise ProtocolError(f"a frame announces {size} bytes, and at most {self.max_frame_bytes} can be right here")
        return size

    def _grow(self, frame_bytes: int) -> None:
        larger = _allocate(min(frame_bytes, 2 * len(self._target)))
        larger[: self._filled] = self._target
        self._target = larger


def _allocate(size: int) -> memoryview:
    # numpy does not write zeros first, as bytearray does: at the speed of a local socket that is a third of the time.
    return np.empty(size, np.uint8).data
