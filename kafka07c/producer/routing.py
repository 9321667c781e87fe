"""Where a message goes: from topic, key and the caller's own choice to a broker and a partition on it."""

from __future__ import annotations

import operator
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy
from numpy.typing import NDArray

from kafka07c.cluster import Cluster
from kafka07c.errors import InvalidTopicError, UnknownTopicError
from kafka07c.names import TopicPartition, parse_partition
from kafka07c.producer.partitioners import DefaultPartitioner, Partitioner, SharedPartitioner
from kafka07c.protocol import RANDOM_PARTITION, check_partition, check_topic

__all__ = ["Route", "Router", "Share", "indexes_of", "picked"]

T = TypeVar("T")


class Route(NamedTuple):
    """Where messages go: the ``broker`` of this id, and the number of the ``partition`` there; -1: the broker picks."""

    broker: int
    partition: int


class Share(NamedTuple):
    """Which of many messages go the same way: a slice of them, or the indices of some, ascending."""

    route: Route
    which: slice | NDArray[numpy.int64]


def picked(values: Sequence[T], which: slice | NDArray[numpy.int64]) -> Sequence[T]:
    """Those of ``values`` that a share is about, in order."""
    if isinstance(which, slice):
        return values[which]
    return [values[index] for index in which.tolist()]


def indexes_of(share: Share) -> Sequence[int]:
    """What a share is about, ascending; what is in one piece as a range."""
    which = share.which
    if isinstance(which, slice):
        return range(which.start, which.stop)
    indexes: list[int] = which.tolist()
    return indexes


@dataclass(slots=True)
class _Topic:
    routes: list[Route]
    partitioner: Partitioner


class Router:
    """Chooses where messages go, in a cluster as it is at the moment; from any thread.

    All partitions of a topic count, on all brokers, in the order of broker and number, as in 0.7; ``partitioner`` picks
    one of them. A topic that no broker has yet has partition 0 of every broker, until it shows up. With a static list
    of brokers chance picks one, and the broker picks the partition: keys and the partitioner have no part in it.

    What a topic has is asked once, and again after :meth:`changed`: give that to the live cluster as ``on_change``.
    ``verify``: what is sent is to be read back, so it is a ValueError to leave the partition to the broker.
    """

    def __init__(self, cluster: Cluster, partitioner: Partitioner | None = None, *, verify: bool = False):
        self._cluster = cluster
        self._partitioner = DefaultPartitioner() if partitioner is None else partitioner
        self._static = cluster.zookeeper is None
        self._verify = verify
        self._topics: dict[str, _Topic] = {}
        self._partitioners: dict[str, Partitioner] = {}
        self._given: dict[str, dict[Any, Route]] = {}

    def changed(self) -> None:
        """The cluster has changed. Never waits."""
        # new ones, so that what is just being asked for lands in the old ones
        self._topics = {}
        self._given = {}

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Where messages of the topic may go, as :meth:`route` counts; with a static list, to partition -1 of each.

        InvalidTopicError for a name that no broker takes, UnknownTopicError while there is no broker at all,
        ZooKeeperError when ZooKeeper cannot be reached or has damaged nodes of this topic.
        """
        return [TopicPartition(topic, *route) for route in self._topic(topic).routes]

    def route(self, topic: str, key: Any = None, partition: TopicPartition | str | None = None) -> Route:
        """Where a message goes. ``partition``: the caller's own choice, a TopicPartition or ``"broker-partition"``.

        A partition on a broker that is not there at the moment is taken: it may come back. Raises what
        :meth:`partitions` does, what the partitioner does (TypeError for a key that the default one cannot hash), and
        ValueError for an index that is none. For ``partition``: InvalidTopicError when its broker has the topic but no
        such partition; ValueError for one of another topic; TypeError for a bare number, for every broker has one.
        """
        if partition is not None:
            return self._chosen(topic, partition)
        found = self._topics.get(topic) or self._topic(topic)
        if self._static:
            return found.routes[int(random.random() * len(found.routes))]
        return found.routes[_index(found.partitioner(key, len(found.routes)), len(found.routes))]

    def route_many(
        self,
        topic: str,
        keys: Sequence[Any] | None,
        count: int,
        partition: TopicPartition | str | None = None,
    ) -> list[Share]:
        """Where ``count`` messages go, ``keys`` being theirs or None: shares that cover each once, in order.

        Messages without keys are few runs; with keys there are up to as many shares as the topic has partitions. Raises
        what :meth:`route` does, and ValueError when there are not as many keys as messages.
        """
        if keys is not None and len(keys) != count:
            raise ValueError(f"{count} messages have {len(keys)} keys: give each one, or None for those without")
        if partition is not None:
            return [Share(self._chosen(topic, partition), slice(0, count))]
        found = self._topics.get(topic) or self._topic(topic)
        if self._static:
            return [Share(self.route(topic), slice(0, count))]
        if keys is None and isinstance(found.partitioner, SharedPartitioner):
            return list(_runs(found.partitioner, found.routes, count))
        return _shares(_indices(found.partitioner, keys or [None] * count, len(found.routes)), found.routes)

    def _topic(self, topic: str) -> _Topic:
        topics = self._topics
        found = topics.get(topic)
        if found is None:
            found = _Topic(self._routes(topic), self._partitioner_of(topic))
            topics[topic] = found
        return found

    def _routes(self, topic: str) -> list[Route]:
        _check_topic(topic)
        if self._static and self._verify:
            raise ValueError(
                "verify=True reads back what was written, but with a static list of brokers the broker picks the "
                "partition and does not say which: give partition=, or zookeeper= in place of the list"
            )
        if self._static:
            return [Route(broker, RANDOM_PARTITION) for broker in self._cluster.brokers]
        routes = [Route(tp.broker, tp.partition) for tp in self._cluster.partitions(topic)]
        routes = routes or [Route(broker, 0) for broker in self._cluster.brokers]
        if not routes:
            raise UnknownTopicError(
                f"topic {topic!r} can go nowhere: no broker is registered in ZooKeeper at {self._cluster.zookeeper}"
            )
        return routes

    def _partitioner_of(self, topic: str) -> Partitioner:
        given = self._partitioner
        if not isinstance(given, SharedPartitioner):
            return given
        return self._partitioners.setdefault(topic, given.for_topic())

    def _chosen(self, topic: str, partition: TopicPartition | str) -> Route:
        given = self._given
        try:
            return given[topic][partition]
        except (KeyError, TypeError):  # the latter where it cannot be hashed
            pass
        _check_topic(topic)
        route = _checked_route(topic, partition)
        if self._verify and route.partition < 0:
            raise ValueError("verify=True needs a known partition; with -1 the broker picks one and does not say which")
        self._check_there(topic, route)
        given.setdefault(topic, {})[partition] = route
        return route

    def _check_there(self, topic: str, route: Route) -> None:
        """A broker hangs up on a partition that it does not have, and with it on what is behind."""
        if self._static:
            self._cluster.address(route.broker)  # ZooKeeperError: a list does not change
            return
        counts = self._cluster.topics.get(topic, {})
        count = counts.get(route.broker)
        if count is not None and route.partition >= count:
            raise InvalidTopicError(
                f"topic {topic!r} has no partition {route.partition} on broker {route.broker}: that one has "
                f"{count}, 0 to {count - 1}"
            )


def _check_topic(topic: str) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"a topic is a str, not {type(topic).__name__}")
    check_topic(topic)


def _checked_route(topic: str, partition: TopicPartition | str) -> Route:
    if isinstance(partition, str):
        return Route(*parse_partition(partition))
    if not isinstance(partition, TopicPartition):
        raise TypeError(
            f"partition is {partition!r}: in 0.7 every broker has its own partitions 0 and up, so give the broker too, "
            'as TopicPartition(topic, broker, partition) or "broker-partition"'
        )
    if partition.topic != topic:
        raise ValueError(f"a message for topic {topic!r} cannot go to a partition of topic {partition.topic!r}")
    if not 0 <= partition.broker < 2**31:
        raise InvalidTopicError(f"broker {partition.broker} of topic {topic!r} is none: their ids are 0 and up")
    return Route(partition.broker, check_partition(partition.partition))


def _index(index: Any, count: int) -> int:
    try:
        found = operator.index(index)
    except TypeError:
        raise _no_index(index, count) from None
    if not 0 <= found < count:
        raise _no_index(index, count)
    return found


def _no_index(index: Any, count: int) -> ValueError:
    return ValueError(f"the partitioner gave {index!r}; for {count} partitions it has to be from 0 to {count - 1}")


def _runs(partitioner: SharedPartitioner, routes: list[Route], count: int) -> Iterator[Share]:
    at = 0
    for index, many in partitioner.runs(count, len(routes)):
        yield Share(routes[_index(index, len(routes))], slice(at, at + many))
        at += many
    if at != count:
        raise ValueError(f"the partitioner's runs are for {at} messages, where there are {count}")


def _indices(partitioner: Partitioner, keys: Sequence[Any], count: int) -> NDArray[numpy.int64]:
    if isinstance(partitioner, SharedPartitioner):
        indices = partitioner.of_keys(keys, count)
        for index in (indices.min(initial=0), indices.max(initial=0)):
            _index(int(index), count)
        return indices
    return numpy.fromiter((_index(partitioner(key, count), count) for key in keys), numpy.int64, len(keys))


def _shares(indices: NDArray[numpy.int64], routes: list[Route]) -> list[Share]:
    """The messages of each partition together, in their order."""
    order = numpy.argsort(indices, kind="stable")
    ends = numpy.flatnonzero(numpy.diff(indices[order])) + 1
    return [Share(routes[indices[which[0]]], which) for which in numpy.split(order, ends) if len(which)]
