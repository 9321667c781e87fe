"""A client that knows nothing but bytes: what tests of the broker talk to it with."""

from __future__ import annotations

import socket
import struct

from kafka07c.protocol import LATEST, OffsetsRequest, decode_offsets_response

#: seconds after which a broker that says nothing has failed the test
PATIENCE = 30.0


class Wire:
    """One connection to a broker on 127.0.0.1."""

    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc_info) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_to_closing(self, data: bytes) -> None:
        """Send to a broker that may close in the middle of it."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def read(self, count: int) -> bytes:
        """Exactly ``count`` bytes; EOFError if the broker closes before."""
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError(f"closed after {len(data)} of {count} bytes")
            data += more
        return data

    def read_response(self) -> bytes:
        """One whole response, with its size field."""
        size = self.read(4)
        return size + self.read(struct.unpack(">i", size)[0])

    def read_to_end(self) -> bytes:
        """All that comes until the broker closes."""
        data = b""
        try:
            while more := self.socket.recv(1 << 16):
                data += more
        except ConnectionResetError:
            pass  # it closed with bytes of ours unread
        return data

    def ask(self, request) -> bytes:
        self.send(request.encode())
        return self.read_response()

    def offsets(self, topic: str, partition: int, time: int = LATEST, max_offsets: int = 100) -> list[int]:
        response = self.ask(OffsetsRequest(topic, partition, time, max_offsets))
        error, offsets = decode_offsets_response(memoryview(response)[4:])
        assert error == 0
        return offsets


def log_end(port: int, topic: str, partition: int) -> int:
    with Wire(port) as wire:
        return wire.offsets(topic, partition, LATEST, 1)[0]
