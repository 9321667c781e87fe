"""Connections: one thread takes them, and one thread for each serves it, so that a slow reader holds up nobody else.

What goes over a connection is not known here: ``serve(sock)`` is called with each, and it ends when that returns.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Any

from kafka07c.errors import KafkaError, ProtocolError

__all__ = ["Server"]

logger = logging.getLogger("kafka07c.broker")

#: connections that wait to be taken
_BACKLOG = 128

#: seconds until the next try after taking a connection failed (out of descriptors, say)
_ACCEPT_PAUSE = 0.1


class Server:
    """Listens from the moment it is made; serves from :meth:`start` to :meth:`stop`.

    ``serve(sock)`` serves one connection until it ends; whatever it raises ends that connection only. A connection
    above ``max_connections`` is closed at once. Raises OSError where host and port cannot be bound.
    """

    def __init__(
        self,
        host: str,
        port: int,
        serve: Callable[[socket.socket], None],
        *,
        max_connections: int,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
    ):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)
        if receive_buffer_bytes is not None:
            # taken over by each accepted connection, and has to be set before it for the TCP window to follow
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.port: int = self._listener.getsockname()[1]
        self._serve = serve
        self._max_connections = max_connections
        self._send_buffer_bytes = send_buffer_bytes
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._acceptor = threading.Thread(target=self._accept_all, name=f"kafka07c-accept-{self.port}", daemon=True)
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._stopping = threading.Event()

    def start(self) -> None:
        self._acceptor.start()

    @property
    def connections(self) -> int:
        """How many connections are open."""
        with self._lock:
            return len(self._connections)

    def close_connections(self) -> list[threading.Thread]:
        """Close every connection now; new ones are welcome. Gives their threads, which are about to end."""
        with self._lock:
            for sock in self._connections:
                _shut(sock)
            return list(self._connections.values())

    def stop(self) -> None:
        """Stop listening, close every connection and wait until all threads have ended."""
        self._stopping.set()
        self._wake_writer.send(b"x")
        if self._acceptor.ident is not None:
            self._acceptor.join()
        self._listener.close()
        for thread in self.close_connections():
            thread.join()
        self._wake_reader.close()
        self._wake_writer.close()

    def _accept_all(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake_reader, selectors.EVENT_READ)
            while not self._stopping.is_set():
                selector.select()
                if not self._stopping.is_set():
                    self._accept_one()

    def _accept_one(self) -> None:
        try:
            sock, peer = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            logger.error("cannot take a connection: %s", error)
            self._stopping.wait(_ACCEPT_PAUSE)
            return
        name = _peer_name(peer)
        with self._lock:
            if len(self._connections) >= self._max_connections:
                sock.close()
                logger.warning("closed the connection of %s: %d are open already", name, self._max_connections)
                return
            thread = threading.Thread(
                target=self._run, args=(sock, name), name=f"kafka07c-{self.port}-{name}", daemon=True
            )
            self._connections[sock] = thread
            try:
                # with the lock held, so that whoever finds the thread in the table can join it
                thread.start()
            except RuntimeError as error:
                del self._connections[sock]
                sock.close()
                logger.error("closed the connection of %s: %s", name, error)

    def _run(self, sock: socket.socket, name: str) -> None:
        try:
            sock.setblocking(True)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # a peer that has vanished without a word does not keep its place for ever
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._send_buffer_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
            self._serve(sock)
        except ProtocolError as error:
            logger.info("closing the connection of %s: %s", name, error)
        except KafkaError as error:
            logger.warning("closing the connection of %s: %s", name, error)
        except OSError as error:
            # of the socket: what a disk has to say comes as a LogError
            logger.debug("the connection of %s ended: %s", name, error)
        except Exception:
            # whatever one request brings up, the broker goes on for the others
            logger.exception("closing the connection of %s because of an error", name)
        finally:
            with self._lock:
                del self._connections[sock]
            sock.close()


def _shut(sock: socket.socket) -> None:
    """End a connection so that the thread that reads or writes it wakes up; closing alone would not wake it."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # its peer was quicker


def _peer_name(peer: tuple[Any, ...]) -> str:
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
