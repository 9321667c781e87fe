"""What 0.7 keeps in ZooKeeper about consumer groups, and reading it.

::

    /consumers/G/ids/ID              ephemeral    what the member wants (see kafka07c.subscription)
    /consumers/G/owners/T/B-P        ephemeral    id of the thread that consumes the partition: ID-0, ID-1, …
    /consumers/G/offsets/T/B-P       persistent   offset, decimal
    /consumers/G/kafka07c/offsets/T/B-P  persistent   ours alone: how many messages of the entry there are handled

``ID`` is ``<group>_<host>-<ms>-<8 hex digits>``, or ``<group>_<consumerid>``. Source: Kafka 0.7.2,
``ZookeeperConsumerConnector`` and ``ZkUtils``; tests compare with recorded nodes. The parents that 0.7 makes are
null; those that we have to make hold the maker's id.

Offsets are written in :mod:`kafka07c.zookeeper.offsets`, a member's nodes in :mod:`kafka07c.zookeeper.members`.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from kafka07c.names import TopicPartition, parse_partition
from kafka07c.positions import Position
from kafka07c.zookeeper.client import CONNECT_TIMEOUT

__all__ = [
    "CONSUMERS",
    "GroupPaths",
    "Owner",
    "check_name",
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

#: how often something is tried again that others' changes came in the way of
TRIES = 4


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
    return children_of(client, [CONSUMERS])[CONSUMERS]


def read_members(client: KazooClient, group: str) -> dict[str, bytes]:
    """The data of each member's node, by member id; see :meth:`kafka07c.subscription.Subscription.decode`."""
    ids = GroupPaths(group).ids
    return {
        path.rpartition("/")[2]: data or b""
        for path, (data, _stat) in read_nodes(client, [f"{ids}/{name}" for name in children_of(client, [ids])[ids]]).items()
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
    inner = read_nodes(client, [paths.inner(tp) for tp in offsets])
    positions = {}
    for tp, (data, stat) in offsets.items():
        position = position_of(paths.offset(tp), data, stat, *inner.get(paths.inner(tp), ()))
        if position is not None:
            positions[tp] = position
    return positions


def _read_tree(client: KazooClient, root: str) -> dict[TopicPartition, tuple[bytes | None, ZnodeStat]]:
    topics = children_of(client, [root])[root]
    by_topic = children_of(client, [f"{root}/{topic}" for topic in topics])
    found = {}
    for topic in topics:
        for name in by_topic[f"{root}/{topic}"]:
            try:
                found[TopicPartition(topic, *parse_partition(name))] = f"{root}/{topic}/{name}"
            except ValueError as error:
                _log.warning("%s/%s: %s", root, topic, error)
    nodes = read_nodes(client, found.values())
    return {tp: nodes[path] for tp, path in sorted(found.items()) if path in nodes}


#: is told what happened to a node that was read, on a thread of kazoo's
Watch = Callable[[WatchedEvent], None]


def children_of(client: KazooClient, paths: Iterable[str], watch: Watch | None = None) -> dict[str, list[str]]:
    answers = answers_of({path: client.get_children_async(path, watch) for path in paths})
    return {path: sorted(children) if isinstance(children, list) else [] for path, children in answers.items()}


def read_nodes(
    client: KazooClient, paths: Iterable[str], watch: Watch | None = None
) -> dict[str, tuple[bytes | None, ZnodeStat]]:
    """Data and stat of the nodes that are there."""
    answers = answers_of({path: client.get_async(path, watch) for path in paths})
    return {path: answer for path, answer in answers.items() if not isinstance(answer, NoNodeError)}


EXPECTED = (NoNodeError, NodeExistsError, BadVersionError)


def answers_of(questions: Mapping[Any, IAsyncResult], expected: tuple[type[Exception], ...] = EXPECTED) -> dict[Any, Any]:
    """What each question that is on its way got: an answer, or one of the ``expected`` errors. Others are raised."""
    answers, deadline = {}, time.monotonic() + CONNECT_TIMEOUT
    for key, question in questions.items():
        try:
            answers[key] = answer_of(question, deadline)
        except expected as error:
            answers[key] = error
    return answers


def answer_of(question: IAsyncResult, deadline: float) -> Any:
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
            raise GuardError(f"check {number} of the transaction failed") from error
        raise error
    return answer[-1]


class GuardError(KazooException):  # type: ignore[misc]  # kazoo has no types
    """A node that has to be ours for a write to be allowed is not there, or is not the one that we know."""


def position_of(
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


def owner_of(data: bytes | None, stat: ZnodeStat) -> Owner:
    return Owner((data or b"").decode(errors="replace"), stat.ephemeralOwner, stat.version)
