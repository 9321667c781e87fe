"""What a run of an ingest did, partition by partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka07c.errors import BrokerConnectionError, CorruptMessageError, UndecodableError, ZooKeeperError
from kafka07c.names import TopicPartition
from kafka07c.spark.manifest import CorruptRange, DataFile, LastEntry, PartitionRun

__all__ = ["IngestReport", "PartitionReport"]


@dataclass(slots=True)
class PartitionReport:
    """What a run did with one partition.

    ``start`` .. ``end``: the offsets taken; ``bytes`` of them were read, damaged ranges left out; ``seconds``: the time
    of its tasks, added up; ``first_offset``, ``last_offset``: of the first and the last message (None: no message).
    ``corrupt``: the ranges skipped. ``undecodable``: messages that did not decode, rows as such or in files of
    ``dead_letters``. ``failure``: why the run did not get to the end that it had set out for; a CorruptMessageError
    when a corrupt entry stopped it, an UndecodableError when a message did that does not decode.
    """

    topic: str
    broker: int
    partition: int
    start: int
    end: int
    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    first_offset: int | None = None
    last_offset: int | None = None
    corrupt: list[CorruptRange] = field(default_factory=list)
    files: list[DataFile] = field(default_factory=list)
    last: LastEntry | None = None
    undecodable: int = 0
    dead_letters: list[DataFile] = field(default_factory=list)
    failure: Exception | None = None

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.broker, self.partition)

    @property
    def stopped_by_corruption(self) -> bool:
        return isinstance(self.failure, CorruptMessageError)

    @property
    def stopped_by_data(self) -> bool:
        """By a corrupt entry, or a message that does not decode: running again changes nothing."""
        return isinstance(self.failure, (CorruptMessageError, UndecodableError))

    @property
    def undecodable_messages(self) -> int:
        """Messages met that did not decode: those that are somewhere, and the one that stopped the partition."""
        return self.undecodable + isinstance(self.failure, UndecodableError)

    @property
    def corrupt_entries(self) -> int:
        """Corrupt entries met: those skipped, and the one that stopped the partition."""
        return len(self.corrupt) + self.stopped_by_corruption

    def to_run(self) -> PartitionRun:
        return PartitionRun(
            topic=self.topic, broker=self.broker, partition=self.partition, start=self.start, end=self.end,
            messages=self.messages, bytes=self.bytes, last=self.last, corrupt=tuple(self.corrupt),
            complete=self.failure is None, reason=None if self.failure is None else str(self.failure),
            files=tuple(self.files), undecodable=self.undecodable, dead_letters=tuple(self.dead_letters),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topic": self.topic, "broker": self.broker, "partition": self.partition,
            "start": self.start, "end": self.end, "messages": self.messages, "bytes": self.bytes,
            "seconds": round(self.seconds, 3), "first_offset": self.first_offset, "last_offset": self.last_offset,
            "corrupt": [{"start": bad.start, "end": bad.end, "reason": bad.reason} for bad in self.corrupt],
            "complete": self.failure is None, "reason": None if self.failure is None else str(self.failure),
            "files": [file.path for file in self.files], "undecodable": self.undecodable_messages,
            "dead_letters": [file.path for file in self.dead_letters],
        }  # fmt: skip


@dataclass(slots=True)
class IngestReport:
    """What a run did. ``manifest`` is its number, None when there was nothing to commit.

    ``seconds``: how long it took by the clock, ``reading_seconds`` of them from the first task's start to the last's
    end (the rest is Spark's start, planning and the commit).
    """

    out: Path | str
    source: str
    manifest: int | None
    seconds: float
    reading_seconds: float
    partitions: list[PartitionReport]

    @property
    def messages(self) -> int:
        return sum(each.messages for each in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.partitions)

    @property
    def corrupt(self) -> bool:
        """A corrupt entry, or a message that does not decode, stopped a partition."""
        return any(each.stopped_by_data for each in self.partitions)

    @property
    def incomplete(self) -> bool:
        """A partition failed for another reason than what is in it: running again may go further."""
        return any(each.failure is not None and not each.stopped_by_data for each in self.partitions)

    @property
    def unreachable(self) -> bool:
        """Nothing was read, because no partition could be reached."""
        return bool(self.partitions) and all(
            isinstance(each.failure, (BrokerConnectionError, ZooKeeperError)) and each.end == each.start
            for each in self.partitions
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "out": str(self.out), "source": self.source, "manifest": self.manifest, "messages": self.messages,
            "bytes": self.bytes, "seconds": round(self.seconds, 3),
            "reading_seconds": round(self.reading_seconds, 3),
            "partitions": [each.to_dict() for each in self.partitions],
        }  # fmt: skip
