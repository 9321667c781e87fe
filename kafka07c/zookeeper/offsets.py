"""A group's offsets in ZooKeeper: written by who knows what they were, and never over somebody else's.

Two things keep a zombie, a member that does not know yet that it has lost a partition, from writing its offset:

- every write names the version of the offset node that the writer knows, and who takes a partition over first
  rewrites the offset unchanged, so that the version known before is no longer the node's;
- on ZooKeeper 3.4 and later the write goes in one transaction with a check of the owner node and the member's id.
  ZooKeeper 3.3 never answers a transaction, so the server is asked for its version first.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import ZnodeStat

from kafka07c.errors import CommitFailedError
from kafka07c.names import TopicPartition
from kafka07c.positions import Position
from kafka07c.zookeeper.client import (
    CONNECT_TIMEOUT,
    SESSION_TIMEOUT,
    Access,
    connect,
    disconnect,
    explained,
    make_parents,
)
from kafka07c.zookeeper.groups import (
    EXPECTED,
    TRIES,
    GroupPaths,
    GuardError,
    answer_of,
    answers_of,
    check_name,
    make_member_id,
    position_of,
    read_nodes,
)

__all__ = ["OffsetStore", "Offsets", "Written", "commit_error"]

_log = logging.getLogger(__name__)

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


class Offsets:
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
        for _ in range(TRIES):
            nodes, positions = self._look_up(todo)
            self._known |= nodes
            rewrites = {
                tp: self._client.set_async(self._paths.offset(tp), node.data or b"", node.version)
                for tp, node in nodes.items()
                if node.version is not None
            }
            answers = answers_of(rewrites)
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
        for _ in range(TRIES):
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
                answer = answer_of(question, deadline)
            except GuardError:
                written.refused.add(tp)
            except EXPECTED:
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
        inner = read_nodes(self._client, map(self._paths.inner, partitions))
        nodes: dict[TopicPartition, _Known] = {}
        positions: dict[TopicPartition, Position | None] = {}
        for tp, answer in answers_of(offsets).items():
            if isinstance(answer, NoNodeError):
                nodes[tp], positions[tp] = _Known(None, None), None
            else:
                path = self._paths.offset(tp)
                nodes[tp] = _Known(answer[1].version, answer[0] or b"")
                positions[tp] = position_of(path, *answer, *inner.get(self._paths.inner(tp), ()))
        return nodes, positions

    def _write_inner(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Note how far we are inside an entry, as long as the offset node is the one that we wrote.

        It comes after the offset and may fail: then some messages come twice.
        """
        inner = {tp: _inner_data(each, self._known[tp].version) for tp, each in positions.items() if each.index > 0}
        try:
            answers = answers_of({tp: self._client.set_async(self._paths.inner(tp), inner[tp]) for tp in inner})
            for tp, answer in answers.items():
                if isinstance(answer, NoNodeError):
                    make_parents(self._client, self._paths.inner(tp), self._creator)
                    self._client.create_async(self._paths.inner(tp), inner[tp]).get(timeout=CONNECT_TIMEOUT)
        except (KazooException, KazooTimeoutError) as error:
            _log.info("group %s: positions inside of entries were not noted (%s)", self._paths.group, error)


def _offset_data(position: Position) -> bytes:
    return str(position.offset).encode()


def _inner_data(position: Position, version: int | None) -> bytes:
    return json.dumps({"offset": position.offset, "version": version, "index": position.index}).encode()


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
        self._offsets: Offsets | None = None

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

    def _opened(self) -> Offsets:
        if self._offsets is None:
            self._client = connect(self._hosts, self._connect_timeout, session_timeout=self._session_timeout)
            self._offsets = Offsets(self._client, GroupPaths(self.group), make_member_id(self.group))
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
