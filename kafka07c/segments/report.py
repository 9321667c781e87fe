"""What is in a log and what is wrong with it: the report of ``Log.verify``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy

from kafka07c._compress import Codec
from kafka07c._views import MessageSet
from kafka07c.segments.files import Segment
from kafka07c.segments.reading import Place, SegmentReader, offset_behind, seam_error

__all__ = ["CorruptRange", "LogReport", "SegmentReport", "verify"]

_CHUNK_BYTES = 1024 * 1024

#: how payloads begin that somebody has compressed: a gzip member with deflate, and xerial's snappy stream
_COMPRESSED_STARTS = (b"\x1f\x8b\x08", b"\x82SNAPPY\x00")


@dataclass(frozen=True)
class CorruptRange:
    """Offsets [``start``, ``end``) that no reader gets, and why. Where nobody knows the end it is the segment's."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True)
class SegmentReport:
    """One segment: its first offset, its bytes in the file, stored entries, messages, and number of corrupt ranges."""

    start_offset: int
    bytes: int
    entries: int
    messages: int
    corrupt: int


@dataclass(frozen=True)
class LogReport:
    """What ``Log.verify`` found. Offsets are byte positions in the log; ranges are [start, end).

    ``entries`` are those stored and good, ``messages`` what is in them, ``wrappers`` how many of the entries are
    compressed, by codec. ``gaps`` and ``overlaps`` lie between segments. ``torn_tail`` is what the last segment has
    after its last whole entry: a writer at work, or one that died. ``lookalikes`` counts uncompressed entries whose
    payload begins like gzip or xerial snappy: a producer may have sent such payloads, or the attributes byte, which no
    CRC covers, is damaged. ``others`` names what lies in the directory and is no segment.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    bytes: int
    entries: int
    messages: int
    segments: tuple[SegmentReport, ...]
    corrupt: tuple[CorruptRange, ...]
    gaps: tuple[tuple[int, int], ...]
    overlaps: tuple[tuple[int, int], ...]
    torn_tail: tuple[int, int] | None
    wrappers: dict[str, int]
    lookalikes: int
    others: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """No corrupt range, no gap, no overlap. A torn tail and lookalikes may be in order, and do not count."""
        return not (self.corrupt or self.gaps or self.overlaps)


def verify(place: Place, segments: Iterable[tuple[Segment, Segment | None]], others: tuple[str, ...]) -> LogReport:
    """Read ``segments`` (each with the one that follows it) to the end and report."""
    count = _Count(place)
    for segment, following in segments:
        count.take(segment, following)
    return count.report(others)


class _Count:
    """What has been found so far."""

    def __init__(self, place: Place):
        self._place = place
        self._segments: list[SegmentReport] = []
        self._corrupt: list[CorruptRange] = []
        self._gaps: list[tuple[int, int]] = []
        self._overlaps: list[tuple[int, int]] = []
        self._torn_tail: tuple[int, int] | None = None
        self._codecs = numpy.zeros(len(Codec), "int64")
        self._lookalikes = 0
        self._end_offset = 0

    def take(self, segment: Segment, following: Segment | None) -> None:
        entries = messages = 0
        corrupt_before = len(self._corrupt)
        reached = segment.start_offset
        with SegmentReader(segment, None if following is None else following.start_offset, self._place) as reader:
            readable_end = segment.start_offset + reader.size
            for found in reader.sets(0, reader.size, _CHUNK_BYTES, skip=True):
                entries += self._take_entries(found)
                messages += len(found)
                reached = found.next_offset
                error = found.error
                if error is not None:
                    reached = offset_behind(error) or readable_end
                    start = found.next_offset if error.offset is None else error.offset
                    self._corrupt.append(CorruptRange(start, reached, error.reason))
        if reached < readable_end:
            self._torn_tail = (reached, readable_end)
        self._take_seam(segment, following)
        corrupt = len(self._corrupt) - corrupt_before
        self._segments.append(SegmentReport(segment.start_offset, segment.size, entries, messages, corrupt))
        self._end_offset = segment.end_offset

    def _take_seam(self, segment: Segment, following: Segment | None) -> None:
        if following is None or seam_error(segment, following, self._place) is None:
            return
        if segment.end_offset < following.start_offset:
            self._gaps.append((segment.end_offset, following.start_offset))
        else:
            self._overlaps.append((following.start_offset, segment.end_offset))

    def _take_entries(self, found: MessageSet) -> int:
        """Counts the good stored entries of a set, their codecs, and the payloads that look compressed."""
        data = found.data[: found.valid_bytes]
        stored = MessageSet(data, shallow=True)
        if not stored:
            return 0
        octets = numpy.frombuffer(data, "uint8")
        starts, lengths = stored.offsets, stored.lengths
        magics = octets[starts + 4]
        codecs = numpy.where(magics == 1, octets[starts + 5] & 3, 0)
        self._codecs += numpy.bincount(codecs, minlength=len(Codec))
        self._lookalikes += _count_lookalikes(octets, (starts + 9 + magics)[codecs == 0], lengths[codecs == 0])
        return len(stored)

    def report(self, others: tuple[str, ...]) -> LogReport:
        return LogReport(
            topic=self._place.topic,
            partition=self._place.partition,
            start_offset=self._segments[0].start_offset if self._segments else 0,
            end_offset=self._end_offset,
            bytes=sum(segment.bytes for segment in self._segments),
            entries=sum(segment.entries for segment in self._segments),
            messages=sum(segment.messages for segment in self._segments),
            segments=tuple(self._segments),
            corrupt=tuple(self._corrupt),
            gaps=tuple(self._gaps),
            overlaps=tuple(self._overlaps),
            torn_tail=self._torn_tail,
            wrappers={str(codec): int(self._codecs[codec]) for codec in (Codec.GZIP, Codec.SNAPPY)},
            lookalikes=self._lookalikes,
            others=others,
        )


def _count_lookalikes(octets: numpy.ndarray, starts: numpy.ndarray, lengths: numpy.ndarray) -> int:
    """How many of the payloads at ``starts`` begin as compressed data does; most are ruled out by their first byte."""
    filled = lengths > 0
    starts, lengths = starts[filled], lengths[filled]
    suspect = numpy.isin(octets[starts], [start[0] for start in _COMPRESSED_STARTS])
    return sum(
        octets[start : start + length].tobytes().startswith(_COMPRESSED_STARTS)
        for start, length in zip(starts[suspect], numpy.minimum(lengths[suspect], 8), strict=True)
    )
