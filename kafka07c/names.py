"""The names of partitions and brokers, and how they are written.

A partition in 0.7 is a broker id *and* a number: every broker has its own partitions ``0 … n-1`` of a topic.
:class:`TopicPartition` is the name of one, everywhere in this library; its short form is ``"B-P"``, as 0.7 writes it
in ZooKeeper.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["BrokerAddress", "TopicPartition", "parse_brokers", "parse_partition"]

#: broker ids and partition numbers are int32 on the wire
_MAX_INT32 = 2**31 - 1

_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")


class TopicPartition(NamedTuple):
    """One partition: ``topic``, the id of the ``broker`` that holds it, and the number ``partition`` on that broker."""

    topic: str
    broker: int
    partition: int

    @property
    def name(self) -> str:
        """``"B-P"``: what 0.7 calls the partition within its topic."""
        return f"{self.broker}-{self.partition}"

    def __str__(self) -> str:
        return f"{self.topic} {self.name}"


class BrokerAddress(NamedTuple):
    """Where broker ``id`` listens; an IPv6 ``host`` has no brackets."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.id}:{self.host}:{self.port}"


def parse_partition(name: str) -> tuple[int, int]:
    """``"0-1"`` as ``(broker, partition)``; ValueError when it is no such name."""
    broker, dash, partition = name.partition("-")
    if not dash:
        raise ValueError(f"{name!r} is no partition: expected broker-partition, such as 0-1")
    try:
        return _number(broker), _number(partition)
    except ValueError:
        raise ValueError(f"{name!r} is no partition: expected broker-partition, such as 0-1") from None


def parse_brokers(text: str) -> dict[int, BrokerAddress]:
    """A static broker list, ``"0:host:port,1:host:port"``, by broker id in ascending order.

    The id ends at the first colon and the port begins after the last one, so that IPv6 addresses need no brackets
    (they may have them). ValueError says what was expected: an empty list, a bad id or port, no host, an id twice.
    """
    brokers: dict[int, BrokerAddress] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        address = _parse_address(item)
        if address.id in brokers:
            raise ValueError(f"broker id {address.id} stands twice in {text!r}: {brokers[address.id]} and {address}")
        brokers[address.id] = address
    if not brokers:
        raise ValueError(f"{text!r} names no broker: expected id:host:port,id:host:port")
    return dict(sorted(brokers.items()))


def _parse_address(item: str) -> BrokerAddress:
    broker, _, rest = item.partition(":")
    host, _, port = rest.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        address = BrokerAddress(_number(broker), host, _number(port))
    except ValueError:
        raise ValueError(f"{item!r} is no broker: expected id:host:port, such as 0:127.0.0.1:9092") from None
    if not host:
        raise ValueError(f"{item!r} names no host: expected id:host:port, such as 0:127.0.0.1:9092")
    if not 0 < address.port < 65536:
        raise ValueError(f"{item!r} has port {address.port}: expected 1 to 65535")
    return address


def _number(text: str) -> int:
    """Plain decimal digits of an int32 that is not negative; ``int()`` alone takes signs, spaces and underscores."""
    if not _NUMBER.fullmatch(text) or int(text) > _MAX_INT32:
        raise ValueError(text)
    return int(text)
