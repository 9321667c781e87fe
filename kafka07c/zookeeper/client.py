"""Connecting to ZooKeeper, and what every use of it needs: clear errors, and parents that are missing."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from posixpath import dirname

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, WriterNotClosedException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import ACL, CREATOR_ALL_ACL, READ_ACL_UNSAFE

from kafka07c.errors import ZooKeeperError

__all__ = [
    "ACLS",
    "CONNECT_TIMEOUT",
    "SESSION_TIMEOUT",
    "Access",
    "connect",
    "disconnect",
    "explained",
    "make_parents",
    "parse_hosts",
    "session",
]

#: seconds to wait for a ZooKeeper server (``zk.connectiontimeout.ms``) and for each of its answers
CONNECT_TIMEOUT = 6.0

#: seconds without a sign of life after which ZooKeeper removes a client's nodes (``zk.sessiontimeout.ms``)
SESSION_TIMEOUT = 6.0

#: who may do what with a node, by names for settings: anybody anything; who made it anything, others nothing, or read
ACLS: Mapping[str, Sequence[ACL] | None] = {
    "open": None,
    "creator": CREATOR_ALL_ACL,
    "creator-read": [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE],
}

# kazoo warns of each attempt to connect; we raise or log what comes of them. Lower this level to see all that it does.
_kazoo_log = logging.getLogger("kafka07c.zookeeper.kazoo")
_kazoo_log.setLevel(logging.ERROR)


@dataclass(frozen=True)
class Access:
    """Where ZooKeeper is and how to be let in; stands wherever an address of ZooKeeper is expected.

    ::

        Cluster(zookeeper=Access("zk1:2281/kafka", auth_data=[("digest", "user:password")], use_ssl=True, ca="ca.pem"))

    All but ``hosts`` are options of kazoo's client and mean what they mean there: ``auth_data`` are schemes and their
    credentials, ``default_acl`` (from ``kazoo.security``; open to all unless given) is set on every node that is
    made, ``use_ssl`` and the others are for TLS, by files in PEM.
    """

    hosts: str
    auth_data: Sequence[tuple[str, str]] = field(default=(), repr=False)
    default_acl: Sequence[ACL] | None = None
    use_ssl: bool = False
    ca: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    keyfile_password: str | None = field(default=None, repr=False)
    verify_certs: bool = True

    def __str__(self) -> str:
        return self.hosts

    def options(self) -> dict[str, object]:
        """The arguments of kazoo's client, but for the hosts."""
        options = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "hosts"}
        return options | {"auth_data": list(self.auth_data), "default_acl": self.default_acl and list(self.default_acl)}


def parse_hosts(hosts: str | Access) -> tuple[str, str]:
    """``"host:port,host:port/chroot"`` as ``(hosts, chroot)``; the chroot is ``""`` or begins with one slash.

    ValueError says what was expected. A host may lack its port (2181 then); IPv6 hosts stand in brackets.
    """
    servers, slash, chroot = str(hosts).strip().partition("/")
    chroot = "/" + chroot.strip("/") if chroot.strip("/") else ""
    names = [name.strip() for name in servers.split(",")]
    if not all(re.fullmatch(r"(\[[^][]+\]|[^][:\s]+)(:[0-9]{1,5})?", name) for name in names) or "//" in chroot:
        raise ValueError(f"{str(hosts)!r} is no ZooKeeper address: expected host:port[,host:port][/chroot]")
    return ",".join(names), chroot


def connect(
    hosts: str | Access,
    timeout: float = CONNECT_TIMEOUT,
    *,
    session_timeout: float = SESSION_TIMEOUT,
    make_chroot: bool = False,
    listener: Callable[[str], None] | None = None,
) -> KazooClient:
    """A started client of the ZooKeeper at ``hosts`` (``"host:port[,host:port][/chroot]"``); ``stop`` and ``close`` it.

    ZooKeeperError when no server answers within ``timeout`` seconds, or the chroot is not there: a misspelt one
    would look like a cluster without brokers. ``make_chroot`` makes it instead. ValueError for a malformed address.
    ``listener`` is told ``"CONNECTED"``, ``"SUSPENDED"`` and ``"LOST"``, from the start; it must only pass it on.
    """
    servers, chroot = parse_hosts(hosts)
    options = hosts.options() if isinstance(hosts, Access) else {}
    client = KazooClient(servers, timeout=session_timeout, logger=_kazoo_log, **options)
    if listener is not None:
        client.add_listener(listener)
    try:
        with explained(hosts, f"connecting (within {timeout:g} s)"):
            client.start(timeout)
            if chroot:
                if make_chroot:
                    make_parents(client, chroot + "/")
                elif client.exists_async(chroot).get(timeout=timeout) is None:
                    raise ZooKeeperError(f"ZooKeeper at {servers} has no {chroot}: make it, or correct the chroot")
                client.chroot = chroot
    except KeyboardInterrupt:
        _leave(client)
        raise
    except BaseException:
        disconnect(client)
        raise
    return client


@contextmanager
def session(hosts: str | Access, timeout: float = CONNECT_TIMEOUT) -> Iterator[KazooClient]:
    """:func:`connect` for the length of a ``with`` block; what fails in the block is a ZooKeeperError."""
    # A server that takes the connection and says nothing holds kazoo up for the session's time-out.
    client = connect(hosts, timeout, session_timeout=min(SESSION_TIMEOUT, timeout))
    try:
        with explained(hosts, "reading"):
            yield client
    except KeyboardInterrupt:
        _leave(client)
        raise
    except BaseException:
        disconnect(client)
        raise
    disconnect(client)


def _leave(client: KazooClient) -> None:
    """End a client without waiting for a server, which may be silent: whoever pressed Ctrl-C wants the prompt."""
    threading.Thread(target=disconnect, args=(client,), name="kafka07c-zookeeper-leave", daemon=True).start()


def disconnect(client: KazooClient) -> None:
    """End a client of :func:`connect`, and with it its session; a call that waits in another thread ends with it."""
    with suppress(WriterNotClosedException):  # a thread that waits for a silent server, and ends with the process
        client.stop()
        client.close()


@contextmanager
def explained(hosts: str | Access, doing: str) -> Iterator[None]:
    """Turn kazoo's errors into a ZooKeeperError that says where, and while doing what."""
    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        found = type(error).__name__ + (f": {error}" if str(error) else "")
        raise ZooKeeperError(f"ZooKeeper at {hosts}: {doing} failed ({found})") from error


def make_parents(client: KazooClient, path: str, data: bytes | None = None) -> None:
    """Make the missing parents of ``path``, persistent and with ``data``: null, as 0.7 makes them, or who made them."""
    parent = dirname(path)
    if parent == "/" or client.exists_async(parent).get(timeout=CONNECT_TIMEOUT) is not None:
        return
    make_parents(client, parent, data)
    try:
        client.create_async(parent, data).get(timeout=CONNECT_TIMEOUT)
    except NodeExistsError:
        pass
