"""What goes into a producer, and what is told about it in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kafka07c.errors import KafkaError
from kafka07c.names import TopicPartition

__all__ = ["Delivery", "ProducerRecord", "State"]


class State(StrEnum):
    """What became of a record. 0.7 acknowledges nothing, so there is no "acknowledged".

    ``WRITTEN``: the broker has read it from the connection and, as far as can be told, appended it. ``VERIFIED``: it
    was read back from the broker's flushed log. ``FAILED``: it was not written, or nobody can be found who wrote it;
    ``error`` says why. ``UNKNOWN``: it was written, and reading back did not settle in time whether it is there.
    """

    WRITTEN = "written"
    VERIFIED = "verified"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ProducerRecord:
    """A record as handlers see it, and may replace it: before ``value`` is encoded, before a partition is chosen."""

    topic: str
    value: Any
    key: Any = None
    partition: TopicPartition | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a record (of a whole batch, for ``send_batch``): what callbacks get, once for each.

    ``partition``: where it went; None where that is not known (with a static list of brokers the broker picks one) or
    none was chosen. ``value``: the payload, bytes-like (for ``send_batch`` the column as it was given). ``count``: how
    many messages it stands for. ``indexes``: for ``send_batch``, which of the column's messages these are, ascending
    (with keys a column is told about in parts, one for each partition). ``error``: why, for ``failed`` and ``unknown``.
    ``offset``: for ``verified`` alone, where the stored entry starts (for a compressed batch: its wrapper).
    ``resends``: how often it was written again; each time may have made a duplicate.
    """

    topic: str
    partition: TopicPartition | None
    value: Any
    key: Any
    state: State
    count: int = 1
    error: KafkaError | None = None
    offset: int | None = None
    resends: int = 0
    indexes: Sequence[int] | None = None

    @property
    def ok(self) -> bool:
        """Whether it is written, or verified."""
        return self.state is State.WRITTEN or self.state is State.VERIFIED
