"""One member's session with ZooKeeper, and its nodes.

Whose an ephemeral node is, its ``ephemeralOwner`` says and nothing else: data may be that of a dead session of ours,
and an answer to our own create may have been lost on the way.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from kazoo.exceptions import ConnectionLoss, KazooException, NoNodeError, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import WatchedEvent

from kafka07c.errors import ZooKeeperError
from kafka07c.names import TopicPartition, parse_partition
from kafka07c.positions import Position
from kafka07c.zookeeper.brokers import BROKER_TOPICS, parse_partition_count
from kafka07c.zookeeper.client import CONNECT_TIMEOUT, Access, connect, disconnect, explained, make_parents
from kafka07c.zookeeper.groups import TRIES, GroupPaths, Owner, answers_of, children_of, owner_of, read_nodes
from kafka07c.zookeeper.offsets import Offsets, Written

__all__ = ["GroupNodes"]

_log = logging.getLogger(__name__)

_VERSION = re.compile(r"version: *([0-9]+)\.([0-9]+)")
_TRANSACTIONS_SINCE = (3, 4)


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
        self._offsets = Offsets(self._client, self.paths, member_id)
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
            for _ in range(TRIES):
                create = self._client.create_async(path, data, ephemeral=True)
                look = self._client.get_async(path, self._watch)
                missing = isinstance(answers_of({0: create})[0], NoNodeError)
                found = answers_of({0: look})[0]
                if missing:
                    make_parents(self._client, path, self.member_id.encode())
                elif not isinstance(found, NoNodeError):
                    held, stat = found
                    if stat.ephemeralOwner != self.session:
                        return int(stat.ephemeralOwner)
                    if held != data:
                        answers_of({0: self._client.set_async(path, data)})
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
            names = children_of(self._client, [ids], self._watch)[ids]
            nodes = read_nodes(self._client, [self.paths.member(name) for name in names])
            return {path.rpartition("/")[2]: data or b"" for path, (data, _stat) in nodes.items()}

    def topics(self) -> list[str]:
        """All topics that there are. Watched."""
        with self._explained("reading the topics"):
            self._exists([BROKER_TOPICS])
            return children_of(self._client, [BROKER_TOPICS], self._watch)[BROKER_TOPICS]

    def partitions(self, topics: Iterable[str]) -> dict[str, list[TopicPartition]]:
        """The partitions of each of the topics, none for one that no broker has. Watched, numbers included."""
        with self._explained("reading the partitions"):
            parents = {f"{BROKER_TOPICS}/{topic}": topic for topic in topics}
            self._exists(parents)
            brokers = children_of(self._client, parents, self._watch)
            nodes = read_nodes(self._client, [f"{path}/{name}" for path in parents for name in brokers[path]], self._watch)
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
        answers_of({path: self._client.exists_async(path, self._watch) for path in paths})

    # Ownership

    def owners(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Owner | None]:
        """Who owns each of the partitions. Watched, where somebody does."""
        with self._explained("reading the owners"):
            answers = answers_of({tp: self._client.get_async(self.paths.owner(tp), self._watch) for tp in partitions})
        return {tp: None if isinstance(answer, NoNodeError) else owner_of(*answer) for tp, answer in answers.items()}

    def claim(self, threads: Mapping[TopicPartition, str]) -> dict[TopicPartition, Owner]:
        """Make partitions ours, each for the thread given.

        Gives those that somebody else owns, with the owner, who is watched; the others are ours.
        """
        taken: dict[TopicPartition, Owner] = {}
        todo = dict(threads)
        with self._explained("claiming partitions"):
            for _ in range(TRIES):
                creates = {tp: self._create_owner(tp, thread) for tp, thread in todo.items()}
                looks = {tp: self._client.get_async(self.paths.owner(tp), self._watch) for tp in todo}
                orphans = {
                    tp.topic: tp for tp, made in answers_of(creates).items() if isinstance(made, NoNodeError)
                }
                for tp in orphans.values():
                    make_parents(self._client, self.paths.owner(tp), self.member_id.encode())
                for tp, found in answers_of(looks).items():
                    if isinstance(found, NoNodeError):
                        continue
                    owner = owner_of(*found)
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
            nodes = read_nodes(self._client, map(self.paths.owner, partitions))
            ours = {path: stat.version for path, (_data, stat) in nodes.items() if stat.ephemeralOwner == self.session}
            answers_of({path: self._delete_owner(path, version) for path, version in ours.items()})

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
