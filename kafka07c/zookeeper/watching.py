"""Brokers, topics and partition counts, kept current by watches.

A watch of ZooKeeper's fires once, and says only that something has changed at a path; so each reading sets the next
watch, and what changed is read. Watched are the children of ``/brokers/ids``, of ``/brokers/topics`` and of every
topic in it, and the *data* of all nodes below those: a partition count that is raised, and a broker that comes back
under another address, change no children.

kazoo's watches and listeners only note the path and wake a thread, which does all the reading.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from kazoo.protocol.states import KazooState, WatchedEvent

from kafka07c.errors import ZooKeeperError
from kafka07c.zookeeper.brokers import BROKER_IDS, BROKER_TOPICS, Snapshot, answers, understand
from kafka07c.zookeeper.client import CONNECT_TIMEOUT, SESSION_TIMEOUT, Access, connect, disconnect, explained

__all__ = ["BrokerWatch"]

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0


class BrokerWatch:
    """A :class:`~kafka07c.zookeeper.brokers.Snapshot` that follows ZooKeeper for as long as it is open.

    ::

        with BrokerWatch("127.0.0.1:2181/kafka", on_change) as watch:
            watch.snapshot

    :meth:`start` connects and returns when everything has been read once; ZooKeeperError when that does not succeed.
    From then on a thread of its own keeps :attr:`snapshot` current and calls ``on_change`` after each change of it,
    with nothing; what that raises is logged. While ZooKeeper cannot be reached the last snapshot stays, and
    :attr:`error` says why; afterwards, with the same session or a new one, everything is read anew.
    """

    def __init__(
        self,
        zookeeper: str | Access,
        on_change: Callable[[], None] | None = None,
        *,
        timeout: float = CONNECT_TIMEOUT,
        session_timeout: float = SESSION_TIMEOUT,
    ):
        """Nothing is connected yet. ``timeout`` is in seconds: for the connection and for each answer."""
        self.snapshot = Snapshot()
        self.error: ZooKeeperError | None = None
        self._zookeeper = zookeeper
        self._on_change = on_change
        self._timeout = timeout
        self._session_timeout = session_timeout
        self._thread = threading.Thread(target=self._keep, name=f"watch of {zookeeper}", daemon=True)

        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._changed: set[str] = set()  # paths whose watch has fired
        self._everything = False  # all watches may be gone

        # what was read last: the thread's own
        self._children: dict[str, set[str]] = {}
        self._data: dict[str, bytes | None] = {}

    def start(self) -> BrokerWatch:
        """Connect, read everything and begin to follow."""
        self._client = connect(self._zookeeper, self._timeout, session_timeout=self._session_timeout)
        try:
            with explained(self._zookeeper, "reading"):
                self._read_everything()
        except BaseException:
            disconnect(self._client)
            raise
        self._client.add_listener(self._on_state)
        if not self._client.connected:  # lost before anybody listened
            self._on_state(KazooState.SUSPENDED)
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop following and end the session. Twice does no harm; the snapshot stays as it is."""
        if self._closing or self._thread.ident is None:
            return
        self._closing = True
        self._wake.set()
        self._client.remove_listener(self._on_state)
        disconnect(self._client)
        if threading.current_thread() is not self._thread:  # it may be on_change that closes
            self._thread.join()

    def __enter__(self) -> BrokerWatch:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # in kazoo's threads

    def _on_state(self, state: str) -> None:
        with self._lock:
            self._everything = True
        self._wake.set()

    def _on_event(self, event: WatchedEvent) -> None:
        with self._lock:
            if event.path is None:  # the connection's end, told to every watch
                self._everything = True
            else:
                self._changed.add(event.path)
        self._wake.set()

    # in our own

    def _keep(self) -> None:
        retry_seconds = None
        while True:
            self._wake.wait(retry_seconds)
            self._wake.clear()
            if self._closing:
                return
            with self._lock:
                changed, everything = self._changed, self._everything
                self._changed, self._everything = set(), False
            try:
                if not self._client.connected:
                    raise ZooKeeperError(f"ZooKeeper at {self._zookeeper}: the connection is lost")
                with explained(self._zookeeper, "reading"):
                    is_new = self._read_everything() if everything else self._read(changed)
            except ZooKeeperError as error:
                self._failed(error)
                retry_seconds = _RETRY_SECONDS
            else:
                self.error, retry_seconds = None, None
                if is_new:
                    self._tell()

    def _failed(self, error: ZooKeeperError) -> None:
        with self._lock:
            self._everything = True  # some of what was asked may have been answered, with its watch set
        if not self._closing and str(error) != str(self.error):  # else it would be said every second
            _log.warning("%s; trying again", error)
        self.error = error

    def _tell(self) -> None:
        if self._on_change is None:
            return
        try:
            self._on_change()
        except Exception:
            _log.exception("ZooKeeper at %s: what was to be done after a change failed", self._zookeeper)

    def _read_everything(self) -> bool:
        self._children, self._data = {}, {}
        return self._read([BROKER_IDS, BROKER_TOPICS])

    def _read(self, changed: Iterable[str]) -> bool:
        """Read what has changed, and what is new because of it; whether the snapshot is another one now."""
        parents = {path for path in changed if path in (BROKER_IDS, BROKER_TOPICS)}
        below = set(changed) - parents
        nodes = {path for path in below if _is_node(path)}
        topics = below - nodes
        nodes |= self._read_children(parents & {BROKER_IDS})
        topics |= self._read_children(parents & {BROKER_TOPICS})
        nodes |= self._read_children(filter(self._is_known, topics))
        self._read_data(filter(self._is_known, nodes))

        snapshot = understand(self._children.get(BROKER_TOPICS, ()), self._data)
        if _same(snapshot, self.snapshot):
            return False
        for path, error in snapshot.errors.items():
            if str(error) != str(self.snapshot.errors.get(path)):
                _log.warning("%s", error)
        self.snapshot = snapshot
        return True

    def _read_children(self, parents: Iterable[str]) -> set[str]:
        """Read the children of these nodes; the paths of those that were not there before."""
        questions = {path: self._client.get_children_async(path, watch=self._on_event) for path in parents}
        found = answers(questions, self._timeout)
        fresh: set[str] = set()
        for parent in questions:
            before = self._children.pop(parent, set())
            if parent in found:
                self._children[parent] = set(found[parent])
                fresh.update(f"{parent}/{name}" for name in self._children[parent] - before)
            elif parent in (BROKER_IDS, BROKER_TOPICS):
                self._await(parent)
            for name in before - self._children.get(parent, set()):
                self._forget(f"{parent}/{name}")
        return fresh

    def _is_known(self, path: str) -> bool:
        """Whether the parent has it; if not and it comes back, it is new there."""
        parent, _, name = path.rpartition("/")
        return name in self._children.get(parent, ())

    def _await(self, path: str) -> None:
        """Have it told when a node that is not there appears; no broker has ever registered then."""
        if self._client.exists_async(path, watch=self._on_event).get(timeout=self._timeout) is not None:
            self._on_event(WatchedEvent(None, None, path))  # it has just appeared

    def _forget(self, path: str) -> None:
        self._data.pop(path, None)
        for name in self._children.pop(path, ()):
            self._data.pop(f"{path}/{name}", None)

    def _read_data(self, paths: Iterable[str]) -> None:
        questions = {path: self._client.get_async(path, watch=self._on_event) for path in paths}
        found = answers(questions, self._timeout)
        for path in questions:
            if path in found:
                self._data[path] = found[path][0]
            else:  # gone; should it be back before its parent's children are read, it has to count as new there
                self._data.pop(path, None)
                parent, _, name = path.rpartition("/")
                self._children[parent].discard(name)


def _is_node(path: str) -> bool:
    """Whether the path is one of a node with data: a broker's address or its partition count of a topic."""
    return path.startswith(f"{BROKER_IDS}/") or path.count("/") > BROKER_TOPICS.count("/") + 1


def _same(one: Snapshot, other: Snapshot) -> bool:
    return (one.brokers, one.topics) == (other.brokers, other.topics) and (
        {path: str(error) for path, error in one.errors.items()}
        == {path: str(error) for path, error in other.errors.items()}
    )
