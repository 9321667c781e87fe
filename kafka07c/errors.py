"""The errors of the library, and how broker error codes map to them. (A few more belong to Spark and the commands alone.)

::

    KafkaError
     ├── CorruptMessageError          stored or fetched bytes are damaged
     ├── MessageTooLargeError         a message above a limit of the caller's or the broker's
     ├── BrokerError                  the broker answered with an error code (``.code``)
     │    ├── UnknownError            -1
     │    ├── OffsetOutOfRangeError    1   (also raised for a log on disk)
     │    ├── InvalidMessageError      2
     │    ├── WrongPartitionError      3
     │    └── InvalidFetchSizeError    4
     ├── ProtocolError                a peer sent bytes that are no 0.7 frame, request or response
     ├── BrokerConnectionError        a broker cannot be reached, or the connection ended
     │    └── BrokerTimeoutError      ... or did not answer in time
     ├── InvalidTopicError            a topic name or partition that a broker would refuse (also a ValueError)
     ├── ZooKeeperError               ZooKeeper cannot be reached, or holds what makes no sense
     │    └── BrokerIdInUseError      another broker is registered under this id
     ├── GroupError                   a consumer group cannot be joined, or is not balanced at the moment
     ├── CommitFailedError            offsets of some partitions were not committed (``.lost``, ``.moved``)
     ├── NoOffsetError                nothing says where to begin in a partition, and the settings say not to guess
     ├── QueueFullError               a producer's queue has no room for a record
     ├── ProducerClosedError          a producer was closed before a record was written, or belongs to another process
     ├── NotVerifiedError             reading back did not settle whether a record is in the log
     ├── MirrorError                  a mirror cannot go on: a batch that is not in the target for certain, or a loop
     ├── UndecodableError             a message is not what a decoder expects
     ├── DecoderError                 a decoder itself does not do what it has to
     ├── LogError                     a directory is no usable log, or cannot be written
     ├── UnknownTopicError            no broker and no archive given knows this topic
     ├── SourceChangedError           what was read before is no longer there, or is other bytes
     ├── ManifestError                an output folder's manifest or lock says no
     │    └── OutputFolderError       ... or it is none: a file, or a folder with files of others
     └── MissingExtraError            an optional package is missing (also an ImportError)

Errors about a place in a log are PlacedErrors, and carry ``topic``, ``broker``, ``partition`` and ``offset`` (None
where unknown).
All of them pickle, so that they cross process borders whole.

Codes: Kafka 0.7.2, ``kafka.common.ErrorMapping``. Codes 2 and 4 were never seen coming from a broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

if TYPE_CHECKING:
    from kafka07c.names import TopicPartition
    from kafka07c.positions import Position

__all__ = [
    "BrokerConnectionError",
    "BrokerError",
    "BrokerIdInUseError",
    "BrokerTimeoutError",
    "CommitFailedError",
    "CorruptMessageError",
    "DecoderError",
    "GroupError",
    "InvalidFetchSizeError",
    "InvalidMessageError",
    "InvalidTopicError",
    "KafkaError",
    "LogError",
    "ManifestError",
    "MessageTooLargeError",
    "MirrorError",
    "MissingExtraError",
    "NoOffsetError",
    "NotVerifiedError",
    "OffsetOutOfRangeError",
    "OutputFolderError",
    "PlacedError",
    "ProducerClosedError",
    "ProtocolError",
    "QueueFullError",
    "SourceChangedError",
    "UndecodableError",
    "UnknownError",
    "UnknownTopicError",
    "WrongPartitionError",
    "ZooKeeperError",
    "error_for_code",
]


class KafkaError(Exception):
    """The base of all errors of this library."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


class PartitionPlace(TypedDict, total=False):
    """What of a partition is known, as arguments."""

    topic: str | None
    broker: int | None
    partition: int | None


class Place(PartitionPlace, total=False):
    """What of an error's place in a log is known, as arguments."""

    offset: int | None


def _rebuild(cls: type[KafkaError], args: tuple[Any, ...], state: dict[str, Any]) -> KafkaError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class PlacedError(KafkaError):
    """An error at a place in a log. ``str()`` begins with the place, as far as it is known.

    ``reason`` is the text without the place; ``topic``, ``broker``, ``partition``, ``offset`` are None where unknown.
    """

    def __init__(
        self,
        reason: str,
        *,
        topic: str | None = None,
        broker: int | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ):
        super().__init__(reason)
        self.reason = reason
        self.topic = topic
        self.broker = broker
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        place = []
        if self.topic is not None:
            place.append(f"topic {self.topic!r}")
        if self.broker is not None:
            place.append(f"broker {self.broker}")
        if self.partition is not None:
            place.append(f"partition {self.partition}")
        if self.offset is not None:
            place.append(f"offset {self.offset}")
        return f"{', '.join(place)}: {self.reason}" if place else self.reason


class CorruptMessageError(PlacedError):
    """The entry at ``offset`` is damaged: bad size, CRC, magic, codec or compressed data, or a gap in a log.

    ``next_offset`` is the offset after the damaged entry where its length can be believed (a good entry, or the log's
    end, begins there), else None. Messages before ``offset`` are good.
    """

    def __init__(self, reason: str, *, next_offset: int | None = None, **place: Unpack[Place]):
        super().__init__(reason, **place)
        self.next_offset = next_offset


class MessageTooLargeError(PlacedError):
    """A message of ``size`` bytes is above the limit ``max_message_bytes``.

    ``size`` is the value of the message's size field when reading, the stored payload's length when producing.
    """

    def __init__(
        self, reason: str, *, size: int | None = None, max_message_bytes: int | None = None, **place: Unpack[Place]
    ):
        super().__init__(reason, **place)
        self.size = size
        self.max_message_bytes = max_message_bytes


class BrokerError(PlacedError):
    """A broker answered with an error code; ``code`` is the number on the wire (int16)."""

    code: int = -1

    def __init__(self, reason: str, *, code: int | None = None, **place: Unpack[Place]):
        super().__init__(reason, **place)
        if code is not None:
            self.code = code


class UnknownError(BrokerError):
    """Code -1: the broker failed in a way that it does not name; an illegal topic name does this."""

    code = -1


class OffsetOutOfRangeError(BrokerError):
    """Code 1: the offset is before the log's start, or past what has been flushed."""

    code = 1


class InvalidMessageError(BrokerError):
    """Code 2: an invalid message."""

    code = 2


class WrongPartitionError(BrokerError):
    """Code 3: the broker has no partition of this number for the topic."""

    code = 3


class InvalidFetchSizeError(BrokerError):
    """Code 4: an invalid fetch size."""

    code = 4


class ProtocolError(KafkaError):
    """A peer sent bytes that make no 0.7 frame, request or response: a wrong port, another version, or damage."""


class BrokerConnectionError(KafkaError):
    """A broker cannot be reached, or the connection to it ended; the text names host and port."""


class BrokerTimeoutError(BrokerConnectionError):
    """A broker did not connect, take or answer within the time-out."""


class InvalidTopicError(KafkaError, ValueError):
    """A topic name or a partition number that a 0.7 broker answers by closing the connection."""


class ZooKeeperError(KafkaError):
    """ZooKeeper cannot be reached, or a node in it holds what 0.7 does not write there; the text names the path."""


class BrokerIdInUseError(ZooKeeperError):
    """Another broker is registered in ZooKeeper under this id; the text says who."""


class GroupError(KafkaError):
    """A consumer group cannot be joined as asked, or its partitions cannot be shared out at the moment."""


class CommitFailedError(KafkaError):
    """The offsets of some partitions were not committed; those of all others were.

    ``lost`` has the partitions that are no longer ours, or cannot be committed now because ZooKeeper is not connected.
    ``moved`` has those whose offset somebody else changed meanwhile, each with the position that now holds (None: the
    offset was deleted, so that the partition begins anew as ``autooffset.reset`` says). Nothing of theirs was
    overwritten; the consumer goes on from the new position.
    """

    def __init__(
        self,
        reason: str,
        *,
        lost: Iterable[TopicPartition] = (),
        moved: Mapping[TopicPartition, Position | None] = {},
    ):
        super().__init__(reason)
        self.lost = sorted(lost)
        self.moved = dict(moved)


class NoOffsetError(PlacedError):
    """No offset is known for a partition, or the broker no longer has it, and ``autooffset.reset`` is ``error``."""


class QueueFullError(KafkaError):
    """A producer's queue has no room, and its settings say not to wait, or not any longer.

    ``queued``: how many records of the call went into the queue before; they are sent. ``refused``: for a call with
    many, which did not, by their places in it; with keys these need not be the last.
    """

    def __init__(self, reason: str, *, queued: int = 0):
        super().__init__(reason)
        self.queued = queued
        self.refused: Sequence[int] = (0,)


class ProducerClosedError(KafkaError):
    """The producer is closed, was closed before the record was written, or was made by the parent of this process."""


class NotVerifiedError(PlacedError):
    """A record was written, and reading back did not settle in time whether it is in the log: its state is unknown."""


class MirrorError(KafkaError):
    """A mirror cannot go on: a batch was not written (or not verified), or the target has no place for a topic."""


class UndecodableError(PlacedError):
    """A message, good as 0.7 stores it, does not hold what a decoder expects: ``offset`` is that of its entry."""


class DecoderError(KafkaError):
    """A decoder raised something, or did not give what it has to: rows for payloads, of its own schema."""


class LogError(KafkaError):
    """A directory is no 0.7 log, or it cannot be opened, read or written as asked."""


class UnknownTopicError(KafkaError):
    """No broker and no archive that was given knows the topic."""


class SourceChangedError(PlacedError):
    """What was read before is gone, or other bytes are in its place: another cluster, or a rewritten log."""


class ManifestError(KafkaError):
    """The manifest or the lock of an output folder does not allow what was asked."""


class OutputFolderError(ManifestError):
    """What was given as an output folder is none: a file, or a folder with files that no ingest wrote."""


class MissingExtraError(KafkaError, ImportError):
    """An optional package is not installed; the text says which extra to install."""


_BY_CODE: dict[int, type[BrokerError]] = {
    cls.code: cls
    for cls in (UnknownError, OffsetOutOfRangeError, InvalidMessageError, WrongPartitionError, InvalidFetchSizeError)
}


def error_for_code(code: int, reason: str, **place: Unpack[Place]) -> BrokerError:
    """The exception for a broker's error ``code`` (not 0); a code that 0.7 does not have gives a plain BrokerError."""
    return _BY_CODE.get(code, BrokerError)(reason, code=code, **place)
