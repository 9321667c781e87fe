"""One segment as message sets: whole entries, about as many bytes as asked for, and what is wrong named where it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafka07c._views import MessageSet
from kafka07c.errors import (
    CorruptMessageError,
    KafkaError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    PartitionPlace,
    PlacedError,
)
from kafka07c.segments.files import Segment, SegmentFile, log_error

__all__ = ["Place", "SegmentReader", "offset_behind", "seam_error"]

_SIZE_BYTES = 4

#: magic 0 and an empty payload
_SMALLEST_SIZE = 5

#: size, magic and attributes
_HEADER_BYTES = 6

#: a window for one entry is never smaller, so that a header that cannot be right is seen by the codec
_FEWEST_BYTES = 16


@dataclass(frozen=True)
class Place:
    """Whose log is read, and how: the limits for one stored entry, wrappers closed (as the arguments of ``Log`` have it)."""

    topic: str
    broker: int | None
    partition: int
    max_inflated_bytes: int
    max_message_bytes: int
    shallow: bool = False

    @property
    def names(self) -> PartitionPlace:
        return {"topic": self.topic, "broker": self.broker, "partition": self.partition}


def seam_error(segment: Segment, following: Segment, place: Place) -> CorruptMessageError | None:
    """None where ``following`` starts where ``segment`` ends, else the gap or the overlap between them."""
    hole = following.start_offset - segment.end_offset
    if hole == 0:
        return None
    if hole > 0:
        reason = (
            f"a gap of {hole} bytes: segment {segment.path.name} ends at {segment.end_offset} "
            f"and the next one starts at {following.start_offset}"
        )
    else:
        reason = (
            f"an overlap of {-hole} bytes: segment {segment.path.name} ends at {segment.end_offset} "
            f"and the next one starts before that, at {following.start_offset}"
        )
    at = min(segment.end_offset, following.start_offset)
    return CorruptMessageError(reason, **place.names, offset=at, next_offset=following.start_offset)


class SegmentReader:
    """Message sets out of one segment; a context manager that holds its file open.

    ``following``: where the next segment starts, None for the last one of the log. What a closed segment has beyond
    that (an overlap) is not read. An entry that its segment cuts short is corruption in a closed segment, and in the
    last one, if its header can be one, the torn tail that a writer is about to finish: sets just end before it.

    OffsetOutOfRangeError when the file has been deleted (retention), LogError when it cannot be read.
    """

    def __init__(self, segment: Segment, following: int | None, place: Place):
        self.segment = segment
        self._following = following
        self._place = place
        self.size = segment.size
        if following is not None:
            self.size = min(self.size, following - segment.start_offset)
        self.file = self._open()

    def _open(self) -> SegmentFile:
        segment = self.segment
        try:
            return SegmentFile(segment.path, closed_segment=self._following is not None)
        except FileNotFoundError:
            raise OffsetOutOfRangeError(
                f"segment {segment.path.name} has been deleted; the log starts later now",
                **self._place.names,
                offset=segment.start_offset,
            ) from None
        except OSError as error:
            raise log_error("open the segment", segment.path, error) from error

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.file.close()

    def sets(self, position: int, stop: int, chunk_bytes: int, *, skip: bool) -> Iterator[MessageSet]:
        """Sets of about ``chunk_bytes`` of the entries that start in [``position``, ``stop``), bytes in the file.

        Ends after a set with an error; with ``skip`` it goes on behind the damage where its length is believed.
        """
        while position < stop:
            messages = self.read(position, min(chunk_bytes, stop - position))
            if messages.error is None:
                if messages.valid_bytes == 0:
                    return
                yield messages
                position += messages.valid_bytes
                continue
            yield messages
            after = offset_behind(messages.error)
            if not skip or after is None:
                return
            position = after - self.segment.start_offset

    def read(self, position: int, count: int) -> MessageSet:
        """A set over about ``count`` bytes from ``position`` on.

        It holds one whole entry at least, however large; or it has an error; or there is only the torn tail, or
        nothing, and it is empty.
        """
        messages = self._set(position, min(count, self.size - position))
        if messages.error is None and messages.valid_bytes == 0:
            messages = self._one_entry(position)
        if messages.error is None and messages.valid_bytes == 0 and position < self.size:
            messages = messages.with_error(self._cut(position))
        if messages.error is not None:
            messages = messages.with_error(self._completed(messages.error))
        return messages

    def _set(self, position: int, count: int) -> MessageSet:
        data = self.file.take(position, count)
        place = self._place
        return MessageSet(
            data,
            self.segment.start_offset + position,
            **place.names,
            max_inflated_bytes=place.max_inflated_bytes,
            shallow=place.shallow,
        )

    def _one_entry(self, position: int) -> MessageSet:
        """The entry at ``position``, which did not fit the window: whole, or an error, or cut by the log's end."""
        left = self.size - position
        size = self._size_field(position)
        if size is not None and size > self._place.max_message_bytes:
            return self._set(position, 0).with_error(self._too_large(position, size))
        if size is None or size > left - _SIZE_BYTES:
            # no memory on the word of a size field that the file cannot keep
            return self._set(position, min(_FEWEST_BYTES, left))
        return self._set(position, min(max(_SIZE_BYTES + size, _FEWEST_BYTES), left))

    def _cut(self, position: int) -> CorruptMessageError | None:
        """For an entry that its segment cuts short: None for a torn tail that a writer can have left."""
        header = self.file.copy(position, min(_HEADER_BYTES, self.size - position))
        if len(header) == _HEADER_BYTES and (header[4] > 1 or (header[4] == 1 and header[5] & 3 == 3)):
            reason = f"magic {header[4]} and attributes {header[5]:#04x} are none of 0.7, and its segment cuts it"
        elif self._following is not None:
            reason = f"it is cut: {self.size - position} bytes after its start its segment ends"
        else:
            return None
        return CorruptMessageError(
            f"corrupt entry: {reason}",
            **self._place.names,
            offset=self.segment.start_offset + position,
            next_offset=self._following,
        )

    def _too_large(self, position: int, size: int) -> PlacedError:
        """For a size field above the limit: a large entry, or damage, also where the segment has less than that."""
        offset = self.segment.start_offset + position
        limit = self._place.max_message_bytes
        if self._entry_begins(position + _SIZE_BYTES + size):
            return MessageTooLargeError(
                f"an entry of {size} bytes is above the limit of {limit}; raise max_message_bytes to read it",
                **self._place.names,
                offset=offset,
                size=size,
                max_message_bytes=limit,
            )
        return CorruptMessageError(
            f"corrupt entry: its size field is {size}, above the limit of {limit}, and no entry begins behind that",
            **self._place.names,
            offset=offset,
        )

    def _completed(self, error: PlacedError) -> PlacedError:
        """``error`` with ``next_offset`` where the codec could not see it: its window ended with the bad entry."""
        if not isinstance(error, CorruptMessageError) or error.next_offset is not None or error.offset is None:
            return error
        position = error.offset - self.segment.start_offset
        size = self._size_field(position)
        if size is None or size < _SMALLEST_SIZE or not self._entry_begins(position + _SIZE_BYTES + size):
            return error
        after = error.offset + _SIZE_BYTES + size
        return CorruptMessageError(error.reason, **self._place.names, offset=error.offset, next_offset=after)

    def _entry_begins(self, position: int) -> bool:
        """Whether a good entry begins at ``position``, or the segment ends there."""
        if position >= self.size:
            return position == self.size
        size = self._size_field(position)
        largest = min(self.size - position - _SIZE_BYTES, self._place.max_message_bytes)
        if size is None or not _SMALLEST_SIZE <= size <= largest:
            return False
        return self._set(position, _SIZE_BYTES + size).valid_bytes > 0

    def _size_field(self, position: int) -> int | None:
        """The size field at ``position``, as it stands there; None where the segment has less than its four bytes."""
        field = self.file.copy(position, min(_SIZE_BYTES, self.size - position))
        return int.from_bytes(field, "big", signed=True) if len(field) == _SIZE_BYTES else None


def offset_behind(error: KafkaError) -> int | None:
    """Where reading can go on behind the entry that ``error`` is about; None when nobody knows."""
    if isinstance(error, MessageTooLargeError) and error.offset is not None and error.size is not None:
        return error.offset + _SIZE_BYTES + error.size  # it is said only where another entry was seen to follow
    return error.next_offset if isinstance(error, CorruptMessageError) else None
