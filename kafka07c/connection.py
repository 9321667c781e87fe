"""One TCP connection to a broker, and questions and answers over it. The only client file that imports socket.

Rules that the rest relies on:

- every operation on the socket has a time-out;
- after any error, an interrupt included, the connection is closed: with answers told apart by their order alone, a
  stream that lost its place cannot be used again;
- a frame's bytes are read once, from the kernel into the buffer that the caller keeps.
"""

from __future__ import annotations

import random
import select
import socket
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from time import monotonic, sleep

from kafka07c import config
from kafka07c.errors import BrokerConnectionError, BrokerTimeoutError, ProtocolError
from kafka07c.framing import FrameDecoder

__all__ = ["Connection", "Dialogue", "Question", "Wakeup"]

#: seconds between tries to reconnect: the first pause, and the longest
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0

#: a frame of up to this size is one allocation; a larger one grows as it arrives
_EAGER_BYTES = 16 * 1024 * 1024

#: buffers in one sendmsg; Linux takes 1024
_MAX_BUFFERS = 512


class Connection:
    """A connection to the broker at ``host``:``port``, made by ``connect()`` and again after it was lost.

    ``host``: a name, an IPv4 or an IPv6 address (with or without brackets). ``connect_timeout``: seconds for each
    address that a name has, and for all tries of a reconnect together. ``timeout``: seconds for each send or receive
    on the socket, so a slow peer has that long for every next piece.

    Errors name host and port: BrokerConnectionError when the peer cannot be reached or the connection ended,
    BrokerTimeoutError (one of those) when it took too long, ProtocolError when it sent what cannot be 0.7.

    Not safe to use from several threads at once.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        connect_timeout: float = config.CONNECT_TIMEOUT,
        timeout: float = config.SOCKET_TIMEOUT,
    ):
        if not isinstance(host, str) or not isinstance(port, int):
            raise TypeError(f"a broker is named by host and port, text and a whole number, not {host!r} and {port!r}")
        if not host:
            raise ValueError("a broker's host name cannot be empty")
        if not 0 < port < 65536:
            raise ValueError(f"port {port} of broker host {host} is not between 1 and 65535")
        if connect_timeout <= 0 or timeout <= 0:
            raise ValueError(f"time-outs are seconds above 0, not {connect_timeout} and {timeout}")
        self.host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        self.port = port
        self.connect_timeout = connect_timeout
        self.timeout = timeout
        self._socket: socket.socket | None = None
        self._was_connected = False

    @property
    def name(self) -> str:
        """``host:port``, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_open(self) -> bool:
        """Whether there is a connection as far as this side knows; ``peer_closed()`` looks closer."""
        return self._socket is not None

    def connect(self) -> None:
        """Connect anew. The first time, one try: a wrong address is told at once.

        Later, when a connection has been lost, tries go on until ``connect_timeout`` is over, with pauses that double
        from 0.05 to 1 second (jittered, so that many clients of a broker that comes back do not come all at once).
        """
        self.close()
        deadline = monotonic() + (self.connect_timeout if self._was_connected else 0)
        longest = _FIRST_PAUSE
        while True:
            try:
                self._socket = self._opened()
                self._was_connected = True
                return
            except BrokerConnectionError:
                pause = longest * random.uniform(0.5, 1.0)
                if monotonic() + pause > deadline:
                    raise
            sleep(pause)
            longest = min(2 * longest, _LONGEST_PAUSE)

    def _opened(self) -> socket.socket:
        with self._errors("cannot be reached", "did not take a connection", self.connect_timeout):
            opened = socket.create_connection((self.host, self.port), self.connect_timeout)
        opened.settimeout(self.timeout)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return opened

    def send(self, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        """Hand all of ``buffers``, in order, to the kernel. That the peer read any of it is not said."""
        views = [memoryview(buffer) for buffer in buffers if len(buffer)]
        with self._errors("broke off while it was sent a request", "did not take a request", self.timeout):
            at = 0
            while at < len(views):
                sent = self._live_socket().sendmsg(islice(views, at, at + _MAX_BUFFERS))
                while at < len(views) and sent >= len(views[at]):
                    sent -= len(views[at])
                    at += 1
                if sent:
                    views[at] = views[at][sent:]

    def receive(self, max_frame_bytes: int) -> memoryview:
        """The next frame: what follows its size field. Read-only, over memory that is the caller's alone.

        A size field that is not between 1 and ``max_frame_bytes`` is a ProtocolError before memory is taken for it.
        """
        decoder = FrameDecoder(max_frame_bytes, _EAGER_BYTES)
        with self._errors("broke off before it had answered", "did not answer", self.timeout):
            frame = None
            while frame is None:
                count = self._live_socket().recv_into(decoder.buffer())
                if not count:
                    raise BrokerConnectionError(self._ended(decoder))
                frame = decoder.advance(count)
        return frame

    def _ended(self, decoder: FrameDecoder) -> str:
        if not decoder.pending:
            return f"broker {self.name} closed the connection instead of answering, as 0.7 does to what it refuses"
        return (
            f"broker {self.name} closed the connection after {decoder.pending} bytes of an answer, "
            f"with at least {decoder.missing} missing"
        )

    def peer_closed(self) -> bool:
        """Whether the peer has closed the connection, as far as the kernel knows by now. Never waits.

        For a connection on which nothing is due: a peer that sends something there is a ProtocolError.
        """
        live = self._live_socket()
        live.settimeout(0)
        try:
            unexpected = live.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            live.settimeout(self.timeout)
        if unexpected:
            self.close()
            raise ProtocolError(f"broker {self.name} sent something unasked: it does not speak Kafka 0.7")
        return True

    def has_input(self) -> bool:
        """Whether an answer, or the connection's end, has come in: ``receive()`` will not wait for it to begin."""
        return _wait([self._live_socket()], 0.0)

    def close(self) -> None:
        """Close, if open."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def interrupt(self) -> None:
        """End the connection from any thread: whoever waits on it in another one wakes with an error. Never waits.

        Not while it is being made: that takes its time-out.
        """
        live = self._socket
        if live is not None:
            with suppress(OSError):  # it has ended already
                live.shutdown(socket.SHUT_RDWR)

    def _live_socket(self) -> socket.socket:
        if self._socket is None:
            raise BrokerConnectionError(f"broker {self.name} is not connected")
        return self._socket

    @contextmanager
    def _errors(self, failed: str, late: str, seconds: float) -> Iterator[None]:
        """Errors of the socket as errors of ours; after any at all the connection is closed."""
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise BrokerTimeoutError(f"broker {self.name} {late} within {seconds:g} s") from error
        except ProtocolError as error:
            self.close()
            raise ProtocolError(f"broker {self.name}: {error}") from error
        except (OSError, UnicodeError) as error:  # the latter from a host name that cannot be one
            self.close()
            reason = getattr(error, "strerror", None) or str(error)
            raise BrokerConnectionError(f"broker {self.name} {failed}: {reason}") from error
        except BaseException:
            self.close()
            raise


class Wakeup:
    """Lets one thread wait for input on a connection, and any other thread end the wait."""

    def __init__(self) -> None:
        self._inner, self._outer = socket.socketpair()
        self._inner.setblocking(False)
        self._outer.setblocking(False)

    def set(self) -> None:
        """End the wait that is under way, or else the next one. From any thread; never waits."""
        with suppress(OSError):  # full: it is set; closed: nobody waits
            self._outer.send(b"\0")

    def wait(self, connection: Connection | None, timeout: float | None) -> None:
        """Wait until it is set, the connection (if open) has input, or ``timeout`` seconds (or None) are over."""
        sockets = [self._inner]
        if connection is not None and connection._socket is not None:
            sockets.append(connection._socket)
        _wait(sockets, timeout)
        with suppress(BlockingIOError):
            self._inner.recv(4096)

    def close(self) -> None:
        """Close; nothing may wait on it any more."""
        self._inner.close()
        self._outer.close()


def _wait(sockets: Iterable[socket.socket], timeout: float | None) -> bool:
    """Whether one of the sockets has input, or has ended, within ``timeout`` seconds."""
    poll = select.poll()
    for each in sockets:
        poll.register(each, select.POLLIN)
    return bool(poll.poll(None if timeout is None else max(0.0, timeout) * 1000))


class Question:
    """A request that is to be answered: the frame of its answer, or why there will be none."""

    __slots__ = ("encoded", "frame", "lost", "max_frame_bytes")

    def __init__(self, encoded: bytes, max_frame_bytes: int):
        self.encoded = encoded
        self.max_frame_bytes = max_frame_bytes
        self.frame: memoryview | None = None
        self.lost: str | None = None


class Dialogue:
    """Questions and answers over one connection, with any number of questions under way.

    Answers come in the order of the questions: to wait for one is to take in those before it, which are kept. A
    question only reads, so when the connection ends, all that are under way are asked once more over a new one. When
    that ends too, or an answer is late, or is no 0.7 frame, the dialogue gives up: all that are under way are lost.
    Without ``reconnect`` it gives up when a connection ends for the first time.

    Not safe to use from several threads at once.
    """

    def __init__(self, connection: Connection, *, reconnect: bool = True):
        self.connection = connection
        self._reconnect = reconnect
        self._under_way: deque[Question] = deque()

    def ask(self, encoded: bytes, max_frame_bytes: int) -> Question:
        """Send a request that a frame of at most ``max_frame_bytes`` will answer. Does not wait for the answer."""
        question = Question(encoded, max_frame_bytes)
        self._under_way.append(question)
        if not self.connection.is_open:
            self._ask_all()
            return question
        try:
            self.connection.send([encoded])
        except BaseException as error:
            if not self._may_ask_again(error):
                self.give_up(error)
                raise
        return question

    def answer(self, question: Question) -> memoryview:
        """The frame that answers ``question``; waits for it. Connection's errors if it is lost."""
        asked_again = False
        while question.frame is None:
            if question.lost is not None:
                raise BrokerConnectionError(f"a question to broker {self.connection.name} was lost: {question.lost}")
            if not self.connection.is_open:
                asked_again = True
                self._ask_all()
            try:
                self._under_way[0].frame = self.connection.receive(self._under_way[0].max_frame_bytes)
            except BaseException as error:
                if asked_again or not self._may_ask_again(error):
                    self.give_up(error)
                    raise
            else:
                self._under_way.popleft()
        return question.frame

    def give_up(self, error: BaseException | str) -> None:
        """Close the connection; the questions under way are lost, and ``error`` is why."""
        self.connection.close()
        for question in self._under_way:
            question.lost = str(error) or type(error).__name__
        self._under_way.clear()

    def _may_ask_again(self, error: BaseException) -> bool:
        lost = isinstance(error, BrokerConnectionError) and not isinstance(error, BrokerTimeoutError)
        return self._reconnect and lost

    def _ask_all(self) -> None:
        try:
            self.connection.connect()
            self.connection.send(question.encoded for question in self._under_way)
        except BaseException as error:
            self.give_up(error)
            raise
