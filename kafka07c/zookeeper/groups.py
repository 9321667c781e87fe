"""What 0.7 keeps in ZooKeeper about consumer groups: reading it, and keeping a member's part of it.

::

    /consumers/G/ids/ID              ephemeral    what the member wants (see kafka07c.subscription)
    /consumers/G/owners/T/B-P        ephemeral    id of the thread that consumes the partition: ID-0, ID-1, …
    /consumers/G/offsets/T/B-P       persistent   offset, decimal
    /consumers/G/kafka07c/offsets/T/B-P  persistent   ours alone: how many messages of the entry there are handled

``ID`` is ``<group>_<host>-<ms>-<8 hex digits>``, or ``<group>_<consumerid>``. Source: Kafka 0.7.2,
``ZookeeperConsumerConnector`` and ``ZkUtils``; tests compare with recorded nodes. The parents that 0.7 makes are
null; those that we have to make hold the maker's id.

Whose an ephemeral node is, its ``ephemeralOwner`` says and nothing else: data may be that of a dead session of ours,
and an answer to our own create may have been lost on the way.

Two things keep a zombie, a member that does not know yet that it has lost a partition, from writing its offset:

- every write names the version of the offset node that the writer knows, and who takes a partition over first
  rewrites the offset unchanged, so that the version known before is no longer the node's;
- on ZooKeeper 3.4 and later the write goes in one transaction with a check of the owner node and the member's id.
  ZooKeeper 3.3 never answers a transaction, so the server is asked for its version first.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from kafka07c.errors import CommitFailedError, ZooKeeperError
from kafka07c.names import TopicPartition, parse_partition
from kafka07c.positions import Position
from kafka07c.zookeeper.brokers import BROKER_TOPICS, parse_partition_count
from kafka07c.zookeeper.client import (
    CONNECT_TIMEOUT,
    SESSION_TIMEOUT,
    Access,
    connect,
    disconnect,
    explained,
    make_parents,
)

__all__ = [
    "CONSUMERS",
    "GroupNodes",
    "GroupPaths",
    "OffsetStore",
    "Owner",
    "Written",
    "check_name",
    "commit_error",
    "list_groups",
    "make_member_id",
    "read_members",
    "read_offsets",
    "read_owners",
]

CONSUMERS = "/consumers"

_log = logging.getLogger(__name__)

_OFFSET = re.compile(rb"[0-9]{1,19}")
_MAX_INT64 = 2**63 - 1
_VERSION = re.compile(r"version: *([0-9]+)\.([0-9]+)")
_TRANSACTIONS_SINCE = (3, 4)
_TRIES = 4


@dataclass(frozen=True)
class GroupPaths:
    """Where the nodes of one group are."""

    group: str

    @property
    def root(self) -> str:
        return f"{CONSUMERS}/{self.group}"

    @property
    def ids(self) -> str:
        return f"{self.root}/ids"

    @property
    def owners(self) -> str:
        return f"{self.root}/owners"

    @property
    def offsets(self) -> str:
        return f"{self.root}/offsets"

    def member(self, member_id: str) -> str:
        return f"{self.ids}/{member_id}"

    def owner(self, tp: TopicPartition) -> str:
        return f"{self.owners}/{tp.topic}/{tp.name}"

    def offset(self, tp: TopicPartition) -> str:
        return f"{self.offsets}/{tp.topic}/{tp.name}"

    def inner(self, tp: TopicPartition) -> str:
        return f"{self.root}/kafka07c/offsets/{tp.topic}/{tp.name}"

    def owned_at(self, path: str) -> TopicPartition | None:
        """The partition whose owner node is at ``path``; None for any other node."""
        topic, _, name = path.removeprefix(f"{self.owners}/").rpartition("/")
        try:
            return TopicPartition(topic, *parse_partition(name)) if path.startswith(f"{self.owners}/") else None
        except ValueError:
            return None


def check_name(name: str, what: str) -> str:
    """``name`` if a ZooKeeper node can have it; ValueError, saying ``what`` it was to be, if not."""
    if not name or name in (".", "..") or re.search(r"[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]", name):
        raise ValueError(f"{name!r} cannot be a {what}: ZooKeeper takes no node of this name")
    return name


def make_member_id(group: str, consumer_id: str | None = None) -> str:
    """The id of a member, as 0.7 makes it; ``consumer_id`` in place of host, time and eight random hex digits."""
    return f"{group}_{consumer_id or f'{socket.gethostname()}-{time.time_ns() // 1_000_000}-{secrets.token_hex(4)}'}"


# Reading


@dataclass(frozen=True)
class Owner:
    """An owner node: the thread that it names, the session that made it, and its version."""

    thread: str
    session: int
    version: int


def list_groups(client: KazooClient) -> list[str]:
    """The names of all groups, in ascending order."""
    return _children(client, [CONSUMERS])[CONSUMERS]


def read_members(client: KazooClient, group: str) -> dict[str, bytes]:
    """The data of each member's node, by member id; see :meth:`kafka07c.subscription.Subscription.decode`."""
    ids = GroupPaths(group).ids
    return {
        path.rpartition("/")[2]: data or b""
        for path, (data, _stat) in _read(client, [f"{ids}/{name}" for name in _children(client, [ids])[ids]]).items()
    }


def read_owners(client: KazooClient, group: str) -> dict[TopicPartition, Owner]:
    """All owner nodes of a group."""
    return {
        tp: Owner((data or b"").decode(errors="replace"), stat.ephemeralOwner, stat.version)
        for tp, (data, stat) in _read_tree(client, GroupPaths(group).owners).items()
    }


def read_offsets(client: KazooClient, group: str) -> dict[TopicPartition, Position]:
    """All committed positions of a group; what is no offset is logged and left out."""
    paths = GroupPaths(group)
    offsets = _read_tree(client, paths.offsets)
    inner = _read(client, [paths.inner(tp) for tp in offsets])
    positions = {}
    for tp, (data, stat) in offsets.items():
        position = _position(paths.offset(tp), data, stat, *inner.get(paths.inner(tp), ()))
        if position is not None:
            positions[tp] = position
    return positions


def _read_tree(client: KazooClient, root: str) -> dict[TopicPartition, tuple[bytes | None, ZnodeStat]]:
    topics = _children(client, [root])[root]
    by_topic = _children(client, [f"{root}/{topic}" for topic in topics])
    found = {}
    for topic in topics:
        for name in by_topic[f"{root}/{topic}"]:
            try:
                found[TopicPartition(topic, *parse_partition(name))] = f"{root}/{topic}/{name}"
            except ValueError as error:
                _log.warning("%s/%s: %s", root, topic, error)
    nodes = _read(client, found.values())
    return {tp: nodes[path] for tp, path in sorted(found.items()) if path in nodes}


#: is told what happened to a node that was read, on a thread of kazoo's
Watch = Callable[[WatchedEvent], None]


def _children(client: KazooClient, paths: Iterable[str], watch: Watch | None = None) -> dict[str, list[str]]:
    answers = _answers({path: client.get_children_async(path, watch) for path in paths})
    return {path: sorted(children) if isinstance(children, list) else [] for path, children in answers.items()}


def _read(
    client: KazooClient, paths: Iterable[str], watch: Watch | None = None
) -> dict[str, tuple[bytes | None, ZnodeStat]]:
    """Data and stat of the nodes that are there."""
    answers = _answers({path: client.get_async(path, watch) for path in paths})
    return {path: answer for path, answer in answers.items() if not isinstance(answer, NoNodeError)}


_EXPECTED = (NoNodeError, NodeExistsError, BadVersionError)


def _answers(questions: Mapping[Any, IAsyncResult], expected: tuple[type[Exception], ...] = _EXPECTED) -> dict[Any, Any]:
    """What each question that is on its way got: an answer, or one of the ``expected`` errors. Others are raised."""
    answers, deadline = {}, time.monotonic() + CONNECT_TIMEOUT
    for key, question in questions.items():
        try:
            answers[key] = _answer(question, deadline)
        except expected as error:
            answers[key] = error
    return answers


def _answer(question: IAsyncResult, deadline: float) -> Any:
    return _first_error(question.get(timeout=max(0.0, deadline - time.monotonic())))


def _first_error(answer: Any) -> Any:
    """The answer itself; of a transaction the result of its last operation, or the error that made it fail."""
    if not isinstance(answer, list) or not answer or isinstance(answer[0], str):
        return answer
    errors = [
        (number, result)
        for number, result in enumerate(answer)
        if isinstance(result, Exception) and not isinstance(result, (RolledBackError, RuntimeInconsistency))
    ]
    for number, error in errors:
        if number < len(answer) - 1:
            raise _GuardError(f"check {number} of the transaction failed") from error
        raise error
    return answer[-1]


class _GuardError(KazooException):  # type: ignore[misc]  # kazoo has no types
    """A node that has to be ours for a write to be allowed is not there, or is not the one that we know."""


def _position(
    path: str, data: bytes | None, stat: ZnodeStat, inner: bytes | None = None, *_: object
) -> Position | None:
    """The position in an offset node, with the index of our own node if that still belongs to it."""
    data = data or b""
    if not _OFFSET.fullmatch(data) or int(data) > _MAX_INT64:
        _log.error("%s holds %r, which is no offset: taken as if there were none", path, data[:80])
        return None
    offset = int(data)
    return Position(offset, _inner_index(inner, offset, stat.version))


def _inner_index(data: bytes | None, offset: int, version: int) -> int:
    try:
        node = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return 0
    if not isinstance(node, dict) or node.get("offset") != offset or node.get("version") != version:
        return 0
    index = node.get("index")
    return index if type(index) is int and 0 < index < 2**31 else 0


def _inner_data(position: Position, version: int | None) -> bytes:
    return json.dumps({"offset": position.offset, "version": version, "index": position.index}).encode()


# Offsets

#: the nodes (path, version) that have to be there for a partition's offset to be written
Guards = Callable[[TopicPartition], list[tuple[str, int]]]
IsOurs = Callable[[TopicPartition], bool]


@dataclass
class _Known:
    """What we know of an offset node; ``version`` None: it is not there."""

    version: int | None
    data: bytes | None
    #: what we tried to write since, so that it is known again when the answer was lost on the way
    tried: set[bytes] = field(default_factory=set)


@dataclass
class Written:
    """What became of writing offsets: ``moved`` are those that somebody else changed (None: deleted), ``refused``
    those whose owner is no longer we, ``failed`` those of which nothing is known."""

    moved: dict[TopicPartition, Position | None] = field(default_factory=dict)
    refused: set[TopicPartition] = field(default_factory=set)
    failed: dict[TopicPartition, Exception] = field(default_factory=dict)


class _Offsets:
    """The offset nodes of one group, written by the version that is known and never over somebody else's value.

    Not thread-safe; its methods raise kazoo's errors.
    """

    def __init__(self, client: KazooClient, paths: GroupPaths, creator: str):
        self._client = client
        self._paths = paths
        self._creator = creator.encode()
        self._known: dict[TopicPartition, _Known] = {}

    def know(self, partitions: Iterable[TopicPartition]) -> None:
        """See to it that the versions are known."""
        self.read([tp for tp in partitions if tp not in self._known])

    def read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """The committed positions; the versions are remembered of those that were not known before."""
        nodes, positions = self._look_up(partitions)
        for tp, node in nodes.items():
            self._known.setdefault(tp, node)
        return positions

    def take_over(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """The committed positions of partitions that have just become ours, each rewritten unchanged.

        From then on nobody can write who knew the version before.
        """
        todo, taken = set(partitions), dict[TopicPartition, Position | None]()
        for _ in range(_TRIES):
            nodes, positions = self._look_up(todo)
            self._known |= nodes
            rewrites = {
                tp: self._client.set_async(self._paths.offset(tp), node.data or b"", node.version)
                for tp, node in nodes.items()
                if node.version is not None
            }
            answers = _answers(rewrites)
            moved = {tp for tp, answer in answers.items() if isinstance(answer, Exception)}
            for tp in answers.keys() - moved:
                self._known[tp].version = answers[tp].version
            taken |= {tp: position for tp, position in positions.items() if tp not in moved}
            todo = moved
            if not todo:
                break
        else:
            raise BadVersionError(f"{', '.join(map(str, sorted(todo)))}: the offset is being written all the time")
        self._write_inner({tp: position for tp, position in taken.items() if position is not None})
        return taken

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._known.pop(tp, None)

    def write(
        self,
        positions: Mapping[TopicPartition, Position],
        guards: Guards | None = None,
        is_ours: IsOurs = lambda tp: True,
    ) -> Written:
        """Write positions of partitions that are known: by :meth:`know`, :meth:`read` or :meth:`take_over`.

        ``guards`` are checked in the same transaction; None: no transaction. ``is_ours`` is asked about a conflict.
        """
        written, todo = Written(), dict(positions)
        for _ in range(_TRIES):
            if not todo:
                break
            todo = self._try_to_write(todo, written, guards, is_ours)
        written.failed |= {tp: BadVersionError("the offset is being written all the time") for tp in todo}
        done = positions.keys() - written.moved.keys() - written.refused - written.failed.keys()
        self._write_inner({tp: positions[tp] for tp in done})
        return written

    def _try_to_write(
        self, positions: Mapping[TopicPartition, Position], written: Written, guards: Guards | None, is_ours: IsOurs
    ) -> dict[TopicPartition, Position]:
        """Those that have to be tried again, after a conflict that was none of substance."""
        again, deadline = {}, time.monotonic() + CONNECT_TIMEOUT
        for tp, question in [(tp, self._submit(tp, positions[tp], guards)) for tp in positions]:
            try:
                answer = _answer(question, deadline)
            except _GuardError:
                written.refused.add(tp)
            except _EXPECTED:
                again[tp] = positions[tp]
            except (KazooException, KazooTimeoutError) as error:
                written.failed[tp] = error
            else:
                version = answer.version if isinstance(answer, ZnodeStat) else 0
                self._known[tp] = _Known(version, _offset_data(positions[tp]))
        try:
            if again:  # the server that we ask may be behind the one that refused
                self._client.sync_async(self._paths.root).get(timeout=CONNECT_TIMEOUT)
            return {tp: again[tp] for tp in again if self._may_try_again(tp, written, is_ours)}
        except (KazooException, KazooTimeoutError) as error:
            written.failed |= {tp: error for tp in again.keys() - written.moved.keys() - written.refused}
            return {}

    def _submit(self, tp: TopicPartition, position: Position, guards: Guards | None) -> IAsyncResult:
        known, path, data = self._known[tp], self._paths.offset(tp), _offset_data(position)
        known.tried.add(data)
        if guards is None:
            if known.version is None:
                return self._client.create_async(path, data)
            return self._client.set_async(path, data, known.version)
        transaction = self._client.transaction()
        for guard in guards(tp):
            transaction.check(*guard)
        if known.version is None:
            transaction.create(path, data)
        else:
            transaction.set_data(path, data, known.version)
        return transaction.commit_async()

    def _may_try_again(self, tp: TopicPartition, written: Written, is_ours: IsOurs) -> bool:
        """After a conflict: whose it is. True when nobody else's value would be overwritten by trying again."""
        if not is_ours(tp):
            written.refused.add(tp)
            return False
        before = self._known[tp]
        nodes, positions = self._look_up([tp])
        now = self._known[tp] = nodes[tp]
        if now.version is None and before.version is None:
            make_parents(self._client, self._paths.offset(tp), self._creator)
            return True
        if now.version is not None and now.data in {before.data, *before.tried}:
            return True
        written.moved[tp] = positions[tp]
        return False

    def _look_up(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, _Known], dict[TopicPartition, Position | None]]:
        """What is in ZooKeeper now: ``({tp: _Known}, {tp: position or None})``."""
        partitions = list(partitions)
        offsets = {tp: self._client.get_async(self._paths.offset(tp)) for tp in partitions}
        inner = _read(self._client, map(self._paths.inner, partitions))
        nodes: dict[TopicPartition, _Known] = {}
        positions: dict[TopicPartition, Position | None] = {}
        for tp, answer in _answers(offsets).items():
            if isinstance(answer, NoNodeError):
                nodes[tp], positions[tp] = _Known(None, None), None
            else:
                path = self._paths.offset(tp)
                nodes[tp] = _Known(answer[1].version, answer[0] or b"")
                positions[tp] = _position(path, *answer, *inner.get(self._paths.inner(tp), ()))
        return nodes, positions

    def _write_inner(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Note how far we are inside an entry, as long as the offset node is the one that we wrote.

        It comes after the offset and may fail: then some messages come twice.
        """
        inner = {tp: _inner_data(each, self._known[tp].version) for tp, each in positions.items() if each.index > 0}
        try:
            answers = _answers({tp: self._client.set_async(self._paths.inner(tp), inner[tp]) for tp in inner})
            for tp, answer in answers.items():
                if isinstance(answer, NoNodeError):
                    make_parents(self._client, self._paths.inner(tp), self._creator)
                    self._client.create_async(self._paths.inner(tp), inner[tp]).get(timeout=CONNECT_TIMEOUT)
        except (KazooException, KazooTimeoutError) as error:
            _log.info("group %s: positions inside of entries were not noted (%s)", self._paths.group, error)


def _offset_data(position: Position) -> bytes:
    return str(position.offset).encode()


class OffsetStore:
    """The committed positions of a group, for those who own nothing: manual assignment, and tools.

    ::

        with OffsetStore("zk1:2181/kafka", "billing") as store:
            position = store.committed([tp])[tp]
            store.commit({tp: Position(4711)})

    Connects when something is asked first. An offset that somebody else changed after it was seen here first is not
    overwritten. May be used from several threads. ZooKeeperError when ZooKeeper cannot be reached.
    """

    def __init__(
        self,
        zookeeper: str | Access,
        group: str,
        *,
        session_timeout: float = SESSION_TIMEOUT,
        connect_timeout: float = CONNECT_TIMEOUT,
    ):
        """The time-outs are in seconds."""
        self.group = check_name(group, "group")
        self._hosts = zookeeper
        self._session_timeout = session_timeout
        self._connect_timeout = connect_timeout
        self._lock = threading.Lock()
        self._client: KazooClient | None = None
        self._offsets: _Offsets | None = None

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """The committed position of each partition, None where there is none."""
        with self._lock, explained(self._hosts, f"reading offsets of group {self.group}"):
            return self._opened().read(partitions)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Write positions. CommitFailedError when there are some that somebody else changed meanwhile: those stay as
        they are, the others are written."""
        with self._lock, explained(self._hosts, f"committing offsets of group {self.group}"):
            offsets = self._opened()
            offsets.know(positions)
            written = offsets.write(positions)
        if written.moved or written.failed:
            raise commit_error(self.group, written)

    def _opened(self) -> _Offsets:
        if self._offsets is None:
            self._client = connect(self._hosts, self._connect_timeout, session_timeout=self._session_timeout)
            self._offsets = _Offsets(self._client, GroupPaths(self.group), make_member_id(self.group))
        return self._offsets

    def close(self) -> None:
        """End the session with ZooKeeper. Twice does no harm."""
        with self._lock:
            client, self._client, self._offsets = self._client, None, None
        if client is not None:
            disconnect(client)

    def __enter__(self) -> OffsetStore:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def commit_error(group: str, written: Written, disowned: Iterable[TopicPartition] = ()) -> CommitFailedError:
    """What to raise for partitions that were not committed; ``disowned`` are those that were not even tried."""
    lost = sorted({*disowned, *written.refused, *written.failed})
    reasons = []
    if gone := sorted({*disowned, *written.refused}):
        reasons.append(f"no longer ours: {', '.join(map(str, gone))}")
    if written.failed:
        found = "; ".join(f"{tp}: {type(error).__name__} {error}".rstrip() for tp, error in written.failed.items())
        reasons.append(f"ZooKeeper did not take {found}")
    if written.moved:
        new = (f"{tp} to {position.offset if position else 'none'}" for tp, position in sorted(written.moved.items()))
        reasons.append(f"changed by somebody else: {', '.join(new)}")
    return CommitFailedError(f"group {group}: not committed: {'; '.join(reasons)}", lost=lost, moved=written.moved)


# A member


class GroupNodes:
    """One member's session with ZooKeeper, and its nodes.

    ``on_state`` is told kazoo's connection states, ``on_change`` the path of a node that was read here and has
    changed since; both are called on kazoo's threads and must only pass it on. All methods raise ZooKeeperError.
    """

    def __init__(
        self,
        hosts: str | Access,
        group: str,
        member_id: str,
        *,
        session_timeout: float,
        connect_timeout: float,
        on_state: Callable[[str], None],
        on_change: Callable[[str], None],
    ):
        """Connects; ZooKeeperError when that fails."""
        self.hosts = hosts
        self.paths = GroupPaths(group)
        self.member_id = member_id
        self.session_timeout = session_timeout
        #: the session that our nodes have to belong to; 0 until :meth:`register`
        self.session = 0
        self._on_change = on_change
        self._transactions = False
        self._client = connect(hosts, connect_timeout, session_timeout=session_timeout, listener=on_state)
        self._offsets = _Offsets(self._client, self.paths, member_id)
        self._owner_versions: dict[TopicPartition, int] = {}

    def close(self) -> None:
        """End the session, which removes id and owner nodes at once, if ZooKeeper can be reached."""
        disconnect(self._client)

    def _watch(self, event: WatchedEvent) -> None:
        if event.path is not None:  # None: the connection is lost, which on_state is told
            self._on_change(event.path)

    # Membership

    def register(self, data: bytes) -> int | None:
        """Put our id there. None when it is ours; else the session whose node is in the way (it is watched)."""
        with self._explained("registering"):
            session, self._transactions = self._client.client_id[0], self._has_transactions()
            if self.session not in (0, session):
                raise SessionExpiredError("the session has ended")  # which on_state says, too
            self.session = session
            path = self.paths.member(self.member_id)
            for _ in range(_TRIES):
                create = self._client.create_async(path, data, ephemeral=True)
                look = self._client.get_async(path, self._watch)
                missing = isinstance(_answers({0: create})[0], NoNodeError)
                found = _answers({0: look})[0]
                if missing:
                    make_parents(self._client, path, self.member_id.encode())
                elif not isinstance(found, NoNodeError):
                    held, stat = found
                    if stat.ephemeralOwner != self.session:
                        return int(stat.ephemeralOwner)
                    if held != data:
                        _answers({0: self._client.set_async(path, data)})
                    return None
            raise NoNodeError(f"{path} is being deleted all the time")

    def end_session(self) -> None:
        """The session is over: the next :meth:`register` is in a new one."""
        self.session = 0
        self._transactions = False

    def is_registered(self) -> bool:
        """Whether our id is there, in the session that we registered in."""
        with self._explained("looking after the id"):
            path = self.paths.member(self.member_id)
            stat = self._client.exists_async(path, self._watch).get(timeout=CONNECT_TIMEOUT)
            return stat is not None and stat.ephemeralOwner == self.session

    def _has_transactions(self) -> bool:
        """Whether the server takes ``multi``; no, too, when it does not say its version."""
        try:
            match = _VERSION.search(self._client.command(b"srvr"))
        except (KazooException, KazooTimeoutError, OSError, AttributeError):  # the last: kazoo has no socket just now
            return False
        return match is not None and (int(match[1]), int(match[2])) >= _TRANSACTIONS_SINCE

    # What the assignment is made of, watched

    def members(self) -> dict[str, bytes]:
        """The data of each member's node. Watched: members that come and go."""
        with self._explained("reading the members"):
            ids = self.paths.ids
            names = _children(self._client, [ids], self._watch)[ids]
            nodes = _read(self._client, [self.paths.member(name) for name in names])
            return {path.rpartition("/")[2]: data or b"" for path, (data, _stat) in nodes.items()}

    def topics(self) -> list[str]:
        """All topics that there are. Watched."""
        with self._explained("reading the topics"):
            self._exists([BROKER_TOPICS])
            return _children(self._client, [BROKER_TOPICS], self._watch)[BROKER_TOPICS]

    def partitions(self, topics: Iterable[str]) -> dict[str, list[TopicPartition]]:
        """The partitions of each of the topics, none for one that no broker has. Watched, numbers included."""
        with self._explained("reading the partitions"):
            parents = {f"{BROKER_TOPICS}/{topic}": topic for topic in topics}
            self._exists(parents)
            brokers = _children(self._client, parents, self._watch)
            nodes = _read(self._client, [f"{path}/{name}" for path in parents for name in brokers[path]], self._watch)
        found: dict[str, list[TopicPartition]] = {topic: [] for topic in parents.values()}
        for path, (data, _stat) in nodes.items():
            parent, _, name = path.rpartition("/")
            try:
                broker, count = parse_partition(f"{name}-0")[0], parse_partition_count(data, path)
            except (ValueError, ZooKeeperError) as error:
                _log.error("group %s: left out: %s", self.paths.group, error)
                continue
            found[parents[parent]] += [TopicPartition(parents[parent], broker, number) for number in range(count)]
        return found

    def _exists(self, paths: Iterable[str]) -> None:
        """Watch nodes that may not be there yet: their children cannot be watched then."""
        _answers({path: self._client.exists_async(path, self._watch) for path in paths})

    # Ownership

    def owners(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Owner | None]:
        """Who owns each of the partitions. Watched, where somebody does."""
        with self._explained("reading the owners"):
            answers = _answers({tp: self._client.get_async(self.paths.owner(tp), self._watch) for tp in partitions})
        return {tp: None if isinstance(answer, NoNodeError) else _owner(*answer) for tp, answer in answers.items()}

    def claim(self, threads: Mapping[TopicPartition, str]) -> dict[TopicPartition, Owner]:
        """Make partitions ours, each for the thread given.

        Gives those that somebody else owns, with the owner, who is watched; the others are ours.
        """
        taken: dict[TopicPartition, Owner] = {}
        todo = dict(threads)
        with self._explained("claiming partitions"):
            for _ in range(_TRIES):
                creates = {tp: self._create_owner(tp, thread) for tp, thread in todo.items()}
                looks = {tp: self._client.get_async(self.paths.owner(tp), self._watch) for tp in todo}
                orphans = {
                    tp.topic: tp for tp, made in _answers(creates).items() if isinstance(made, NoNodeError)
                }
                for tp in orphans.values():
                    make_parents(self._client, self.paths.owner(tp), self.member_id.encode())
                for tp, found in _answers(looks).items():
                    if isinstance(found, NoNodeError):
                        continue
                    owner = _owner(*found)
                    thread = todo.pop(tp)
                    if owner.session != self.session:
                        taken[tp] = owner
                    else:
                        self._owner_versions[tp] = self._named(tp, owner, thread)
                if not todo:
                    return taken
            raise NoNodeError(f"{', '.join(map(str, sorted(todo)))}: owner nodes are being deleted all the time")

    def _create_owner(self, tp: TopicPartition, thread: str) -> IAsyncResult:
        path = self.paths.owner(tp)
        if not self._transactions:
            return self._client.create_async(path, thread.encode(), ephemeral=True)
        transaction = self._client.transaction()
        transaction.check(*self._id_guard)
        transaction.create(path, thread.encode(), ephemeral=True)
        return transaction.commit_async()

    def _named(self, tp: TopicPartition, owner: Owner, thread: str) -> int:
        """The version of an owner node of ours once it names ``thread``."""
        if owner.thread == thread:
            return owner.version
        path = self.paths.owner(tp)
        stat = self._client.set_async(path, thread.encode(), owner.version).get(timeout=CONNECT_TIMEOUT)
        return int(stat.version)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete the owner nodes of those partitions that are ours; others' stay."""
        with self._explained("releasing partitions"):
            partitions = list(partitions)
            self.forget(partitions)
            nodes = _read(self._client, map(self.paths.owner, partitions))
            ours = {path: stat.version for path, (_data, stat) in nodes.items() if stat.ephemeralOwner == self.session}
            _answers({path: self._delete_owner(path, version) for path, version in ours.items()})

    def _delete_owner(self, path: str, version: int) -> IAsyncResult:
        if not self._transactions:
            return self._client.delete_async(path, version)
        transaction = self._client.transaction()
        transaction.check(*self._id_guard)
        transaction.delete(path, version)
        return transaction.commit_async()

    @property
    def _id_guard(self) -> tuple[str, int]:
        # An id node is there only as long as its session lives; in a later session it is we who put it there anew,
        # after all that was owned is forgotten.
        return self.paths.member(self.member_id), -1

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what is known of partitions that are no longer ours."""
        partitions = list(partitions)
        for tp in partitions:
            self._owner_versions.pop(tp, None)
        self._offsets.forget(partitions)

    # Offsets

    def take_over(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """Where to go on in partitions that have just become ours; nobody else can commit there from now on."""
        with self._explained("taking over offsets"):
            return self._offsets.take_over(partitions)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """The committed positions, of any partitions."""
        with self._explained("reading offsets"):
            return self._offsets.read(partitions)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> Written:
        """Write the positions of partitions that were taken over."""
        with self._explained("committing offsets"):
            return self._offsets.write(positions, self._guards if self._transactions else None, self._is_owner)

    def _guards(self, tp: TopicPartition) -> list[tuple[str, int]]:
        return [self._id_guard, (self.paths.owner(tp), self._owner_versions[tp])]

    def _is_owner(self, tp: TopicPartition) -> bool:
        stat = self._client.exists_async(self.paths.owner(tp)).get(timeout=CONNECT_TIMEOUT)
        return stat is not None and stat.ephemeralOwner == self.session

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        with explained(self.hosts, f"group {self.paths.group}: {doing}"):
            if not self._client.connected:
                raise ConnectionLoss  # kazoo would keep the question until it is connected, or the session over
            yield


def _owner(data: bytes | None, stat: ZnodeStat) -> Owner:
    return Owner((data or b"").decode(errors="replace"), stat.ephemeralOwner, stat.version)
