"""Servers for tests of the wire: one that does exactly what a test says, and one that answers from logs in memory.

Real sockets on 127.0.0.1. What a script raises in its thread is raised again when the server is left.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

from kafka07c.protocol import (
    FetchRequest,
    MultiFetchRequest,
    OffsetsRequest,
    Request,
    decode_request,
    encode_fetch_response,
    encode_multifetch_response,
    encode_offsets_response,
)

#: seconds after which a client that does nothing has failed the test
PATIENCE = 30.0


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket):
        self.socket = sock

    def read(self, count: int) -> bytes:
        """Exactly ``count`` bytes; EOFError if the client closes before."""
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError(f"the client closed after {len(data)} of {count} bytes")
            data += more
        return data

    def read_raw(self) -> bytes:
        """One whole request with its size field, or b"" if the client has closed."""
        try:
            size = self.read(4)
        except EOFError:
            return b""
        return size + self.read(struct.unpack(">i", size)[0])

    def request(self) -> Request | None:
        """The next request, or None if the client has closed."""
        raw = self.read_raw()
        return decode_request(raw[4:]) if raw else None

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reset(self) -> None:
        """End the connection with an RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


Script = Callable[[Peer], None]


class ScriptedServer:
    """The first connection is served by the first script, and so on; each is closed when its script returns.

    With ``port`` it listens there. A connection without a script is closed at once. ``connections`` counts all.
    """

    def __init__(self, script: Script, *scripts: Script, port: int = 0, host: str = "127.0.0.1"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family)
        self.port = self._listener.getsockname()[1]
        self.connections = 0
        self._scripts = [script, *scripts]
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._all_begun = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.settimeout(PATIENCE)
            self.connections += 1
            script = self._scripts.pop(0) if self._scripts else lambda peer: None
            if not self._scripts:
                self._all_begun.set()
            thread = threading.Thread(target=self._run, args=(script, sock), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, script: Script, sock: socket.socket) -> None:
        with sock:
            try:
                script(Peer(sock))
            except (ConnectionResetError, BrokenPipeError):
                pass  # the client went away first
            except BaseException as error:
                self._errors.append(error)

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(self, kind, error, trace) -> None:
        # A client may be done before its connection is accepted.
        all_begun = error is not None or self._all_begun.wait(PATIENCE)
        # close() alone does not wake a thread that sits in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)
        if self._errors and error is None:
            raise self._errors[0]
        assert all_begun, f"no connection came for {len(self._scripts)} of the scripts"


class Logs:
    """Partitions in memory, read as 0.7.2 reads its files: ``{(topic, partition): [segment bytes, ...]}``.

    ``serve`` is a script for any number of connections, and ``asked`` the requests of all, in order.
    """

    def __init__(self, partitions: dict[tuple[str, int], list[bytes]], start: int = 0):
        self.partitions = partitions
        self.start = start
        self.asked: list[Request] = []

    def serve(self, peer: Peer) -> None:
        while (request := peer.request()) is not None:
            self.asked.append(request)
            peer.send(self.answer(request))

    def answer(self, request: Request) -> bytes:
        if isinstance(request, FetchRequest):
            code, data = self._read(request)
            return encode_fetch_response(data, code)
        if isinstance(request, MultiFetchRequest):
            return encode_multifetch_response(self._read(part) for part in request.requests)
        if isinstance(request, OffsetsRequest) and request.time == -1:
            return encode_offsets_response(self._boundaries(request)[: request.max_offsets])
        raise AssertionError(f"unexpected {request}")

    def _boundaries(self, request: FetchRequest | OffsetsRequest) -> list[int]:
        ends = [self.start]
        for segment in self.partitions[request.topic, request.partition]:
            ends.append(ends[-1] + len(segment))
        return ends[::-1]

    def _read(self, request: FetchRequest) -> tuple[int, bytes]:
        if request.partition < 0 or (request.topic, request.partition) not in self.partitions:
            return 3, b""
        end = self._boundaries(request)[0]
        if not self.start <= request.offset <= end:
            return 1, b""
        start = self.start
        for segment in self.partitions[request.topic, request.partition]:
            if start <= request.offset < start + len(segment):
                return 0, segment[request.offset - start :][: request.max_bytes]
            start += len(segment)
        return 0, b""
