"""A TCP proxy that does to connections what networks do: cuts, resets, delays, slices, swallows.

::

    with Proxy("127.0.0.2", 9092) as proxy:
        proxy.script(Plan(reset_at=100), Plan(sliced=50))    # the next connection, and the one after it
        ...                                                  # clients connect to 127.0.0.1:proxy.port
        proxy.hold(); proxy.let_go()                         # nothing comes through any more; and again it does
        proxy.reset()                                        # all that are open now
"""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass

_CHUNK = 65536
_CONNECT_SECONDS = 2.0
_SWALLOW_SECONDS = 0.1


@dataclass(frozen=True)
class Plan:
    """What happens to one connection; nothing, unless something is given. Bytes are those of the answers.

    ``cut_at``: closed after so many bytes. ``reset_at``: the same with an RST. ``sliced``: so many bytes come one by
    one. ``delay``: seconds that each piece of an answer comes late. ``silent``: accepted, read, and never answered.
    ``swallow_at``: of what is asked, so many bytes get through; what comes after them is taken and thrown away for a
    moment, and then comes an RST: the connection has died with bytes unread.
    """

    cut_at: int | None = None
    reset_at: int | None = None
    sliced: int = 0
    delay: float = 0.0
    silent: bool = False
    swallow_at: int | None = None

    @property
    def kind(self) -> str:
        """What it is called in a history."""
        if self.silent:
            return "never answered"
        if self.swallow_at is not None:
            return "swallowed from a byte"
        if self.reset_at is not None:
            return "reset at a byte"
        if self.cut_at is not None:
            return "cut at a byte"
        if self.sliced:
            return "sliced to one byte"
        return "delayed" if self.delay else "nothing"

    @classmethod
    def drawn(cls, random: random.Random, *, swallowing: bool = False) -> Plan:
        """Some fault; small numbers of bytes are the likelier ones, so that size fields and headers are cut too.

        ``swallowing``: often one of what is asked, too.
        """
        byte = int(10 ** random.uniform(0, 5)) - 1
        draws = [
            lambda: cls(cut_at=byte),
            lambda: cls(reset_at=byte),
            lambda: cls(sliced=byte % 2000 + 20),
            lambda: cls(delay=random.uniform(0.01, 0.3)),
            lambda: cls(silent=True),
        ]
        if swallowing:
            draws += 3 * [lambda: cls(swallow_at=byte)]
        return random.choice(draws)()


class Proxy:
    """Listens on ``host``:``port`` (a free one for 0) and passes on to ``target_host``:``target_port``.

    ``on_fault(plan)`` is called as soon as a plan has done what it is for: not for one whose connection ended earlier.
    """

    def __init__(
        self, target_host: str, target_port: int, *, host: str = "127.0.0.1", port: int = 0, on_fault=lambda plan: None
    ):
        self.target = (target_host, target_port)
        self.connections = 0
        self._on_fault = on_fault
        self._listener = socket.create_server((host, port))
        self.port = self._listener.getsockname()[1]
        self._plans: deque[Plan] = deque()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._closing = False
        self._acceptor = threading.Thread(target=self._accept, name=f"proxy-{self.port}", daemon=True)
        self._acceptor.start()

    def script(self, *plans: Plan) -> None:
        """What happens to the next connections, one after the other; after those nothing happens."""
        self._plans.extend(plans)

    def forget_plans(self) -> None:
        """Nothing happens to connections to come."""
        self._plans.clear()

    def hold(self) -> None:
        """Let nothing through, in neither direction; connections stay open, and new ones are accepted."""
        self._flowing.clear()

    def let_go(self) -> None:
        """Let everything through again, what was held first."""
        self._flowing.set()

    def reset(self) -> int:
        """End all open connections with an RST; how many there were."""
        with self._lock:
            ending = list(self._open)
        for sock in ending:
            _end_with_rst(sock)  # all first: the end of one side makes the threads close the other
        for sock in ending:
            _reset(sock)
        return len(ending) // 2

    def close(self) -> None:
        self._closing = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        self.reset()
        self._flowing.set()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            plan = self._plans.popleft() if self._plans else Plan()
            threading.Thread(target=self._serve, args=(client, plan), daemon=True).start()

    def _serve(self, client: socket.socket, plan: Plan) -> None:
        with client:
            self._keep(client)
            try:
                if plan.silent:
                    self._on_fault(plan)
                    while client.recv(_CHUNK):
                        pass
                    return
                with socket.create_connection(self.target, _CONNECT_SECONDS) as server:
                    server.settimeout(None)
                    self._keep(server)
                    for sock in (client, server):
                        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    asking = threading.Thread(target=self._ask, args=(client, server, plan), daemon=True)
                    asking.start()
                    self._answer(server, client, plan)
                    asking.join()
                    self._forget(server)
            except OSError:
                pass  # either end went away: so does the other
            finally:
                self._forget(client)

    def _keep(self, sock: socket.socket) -> None:
        with self._lock:
            self._open.add(sock)
        if self._closing:
            _reset(sock)

    def _forget(self, sock: socket.socket) -> None:
        with self._lock:
            self._open.discard(sock)

    def _ask(self, client: socket.socket, server: socket.socket, plan: Plan) -> None:
        left = plan.swallow_at
        try:
            while data := client.recv(_CHUNK):
                self._flowing.wait()
                if left is not None and len(data) >= left:
                    server.sendall(data[:left])
                    self._swallow(client, server, plan)
                    return
                server.sendall(data)
                left = None if left is None else left - len(data)
            server.shutdown(socket.SHUT_WR)
        except (OSError, ValueError):  # the latter where select() is given one that was closed meanwhile
            _reset(server)

    def _swallow(self, client: socket.socket, server: socket.socket, plan: Plan) -> None:
        deadline = time.monotonic() + _SWALLOW_SECONDS
        while (left := deadline - time.monotonic()) > 0 and select.select([client], [], [], left)[0]:
            if not client.recv(_CHUNK):
                break
        self._on_fault(plan)
        for sock in (client, server):
            _end_with_rst(sock)
        for sock in (client, server):
            _reset(sock)

    def _answer(self, server: socket.socket, client: socket.socket, plan: Plan) -> None:
        answer = _Answer(client, plan, lambda: self._on_fault(plan))
        try:
            while data := server.recv(_CHUNK):
                self._flowing.wait()
                if not answer.pass_on(data):
                    break
        finally:
            _shut(server)
            _shut(client, socket.SHUT_RD)  # closing sends the FIN, or the RST


class _Answer:
    """The answers of one connection, and what its plan makes of them."""

    def __init__(self, client: socket.socket, plan: Plan, on_fault):
        self._client = client
        self._plan = plan
        self._on_fault = on_fault
        self._sent = 0
        self._told = False

    def pass_on(self, data: bytes) -> bool:
        """Send ``data`` as planned; False when that was all."""
        plan = self._plan
        if plan.delay:
            self._tell()
            time.sleep(plan.delay)
        end = next((at for at in (plan.cut_at, plan.reset_at) if at is not None), None)
        left = len(data) if end is None else min(len(data), end - self._sent)
        slices = max(0, min(left, plan.sliced - self._sent))
        for position in range(slices):
            self._tell()
            self._client.sendall(data[position : position + 1])
        self._client.sendall(data[slices:left])
        self._sent += left
        if end is None or self._sent < end:
            return True
        self._tell()
        if plan.reset_at is not None:
            _reset(self._client)
        return False

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._on_fault()


def _reset(sock: socket.socket) -> None:
    """End a connection with an RST, whoever else is reading from it."""
    try:
        _end_with_rst(sock)
        _shut(sock, socket.SHUT_RD)  # that of the writing side would send a FIN first
        sock.close()
    except OSError:
        pass


def _end_with_rst(sock: socket.socket) -> None:
    """Whoever closes it sends an RST."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass


def _shut(sock: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    try:
        sock.shutdown(how)  # wakes the thread that sits in recv(); close() does not
    except OSError:
        pass
