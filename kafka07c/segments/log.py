"""Log: one partition's directory of segment files."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from kafka07c import config
from kafka07c._views import MessageSet
from kafka07c.errors import LogError, OffsetOutOfRangeError
from kafka07c.protocol import EARLIEST, LATEST, Buffer
from kafka07c.segments.files import Segment, list_segments, parse_log_name
from kafka07c.segments.reading import Place, SegmentReader, seam_error
from kafka07c.segments.recovery import Recovery
from kafka07c.segments.report import LogReport, verify
from kafka07c.segments.writing import LogSlice, LogWriter

__all__ = ["Log"]

_CHUNK_BYTES = 1024 * 1024


class Log:
    """The log of one partition: a directory ``<topic>-<partition>`` of segment files, of any 0.7 broker or archive.

    Read-only unless ``writable``: then nothing in the directory is ever created, changed or locked, and a broker may
    go on appending to it, rolling, deleting and recovering. Every property and method takes its own look at the
    directory, so that what a broker has written or deleted meanwhile is seen; :meth:`scan` looks once, when called.
    Reading cannot tell what has been flushed, so it shows the files as they are. A directory without segments is an
    empty log that starts and ends at 0.

    ``broker``: the broker id that messages and errors carry, if known. ``max_inflated_bytes``, ``shallow``: see MessageSet.
    ``max_message_bytes``: how large an entry may be for which a set grows past the size asked for; above that it is a
    MessageTooLargeError, or damage where no entry begins behind it.

    With ``writable`` the directory is made when missing, and locked (``flock`` on the directory itself, which leaves no
    file behind) against other writers of this library until :meth:`close`; a real 0.7.2 broker takes no lock and sees
    none. Segments that do not follow each other are a LogError, as 0.7.2 refuses to start on them. Then
    ``segment_bytes`` (``log.file.size``) and ``roll_ms`` (``log.roll.hours``) say when a new segment begins,
    ``flush_messages`` (``log.flush.interval``) after how many messages the log is flushed; readers see flushed bytes
    only. ``clock`` gives the time in seconds since 1970, UTC. ``on_append`` is told the number of messages of each
    append, ``on_flush`` the seconds that each flush took; they may do no more than count. Writing is safe from several
    threads.

    A context manager. LogError: the name is no ``topic-partition``, there is no such directory, it cannot be read, or
    somebody else writes to it.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        broker: int | None = None,
        max_inflated_bytes: int = config.MAX_INFLATED_BYTES,
        max_message_bytes: int = config.MAX_FETCH_MESSAGE_BYTES,
        shallow: bool = False,
        writable: bool = False,
        segment_bytes: int = 1024**3,
        roll_ms: int = 168 * 3600 * 1000,
        flush_messages: int = 500,
        clock: Callable[[], float] = time.time,
        on_append: Callable[[int], object] | None = None,
        on_flush: Callable[[float], object] | None = None,
    ) -> None:
        self.directory = Path(os.path.abspath(directory))
        name = parse_log_name(self.directory.name)
        if name is None:
            raise LogError(f"{str(self.directory)!r} is no log: the directory of one is named topic-partition")
        self.topic, self.partition = name
        self.broker = broker
        self._place = Place(self.topic, broker, self.partition, max_inflated_bytes, max_message_bytes, shallow)
        self._clock = clock
        self._writer: LogWriter | None = None
        if writable:
            self._writer = LogWriter(
                self.directory,
                self._place,
                segment_bytes=segment_bytes,
                roll_ms=roll_ms,
                flush_messages=flush_messages,
                clock=clock,
                on_append=on_append,
                on_flush=on_flush,
            )
        else:
            list_segments(self.directory)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Log {self.topic}-{self.partition} in {str(self.directory.parent)!r}>"

    def close(self) -> None:
        """Flush and give up the lock, when writable; nothing is left to do for a reader. May be called again."""
        if self._writer is not None:
            self._writer.close()

    # what there is

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, by start offset; of a writable log only what is flushed counts as their size."""
        if self._writer is not None:
            return self._writer.segments()
        return list_segments(self.directory)[0]

    @property
    def start_offset(self) -> int:
        """The offset of the first byte that is still there."""
        segments = self.segments
        return segments[0].start_offset if segments else 0

    @property
    def flushed_offset(self) -> int:
        """The end of what readers may see. Of a log that is not writable here: the end of the last file."""
        segments = self.segments
        return segments[-1].end_offset if segments else 0

    @property
    def end_offset(self) -> int:
        """The end of the log: where the next append goes, flushed or not. A torn tail counts."""
        return self.flushed_offset if self._writer is None else self._writer.end_offset

    def get_offsets_before(self, time: int, max_offsets: int) -> list[int]:
        """Up to ``max_offsets`` offsets at which reading may begin, descending, as a 0.7.2 broker answers OFFSETS.

        ``time``: LATEST for the flushed end and then the segment starts, EARLIEST for the first segment's start alone,
        or ms since 1970, UTC: the starts of the segments whose file was last written at that time or before, which is
        a lower bound. An empty last segment has one offset, not two. ValueError for a negative ``max_offsets``.
        """
        if max_offsets < 0:
            raise ValueError(f"max_offsets is {max_offsets}; it cannot be negative")
        segments = self.segments
        known = [(segment.start_offset, segment.mtime_ms) for segment in segments]
        if segments and segments[-1].size:
            known.append((segments[-1].end_offset, int(self._clock() * 1000)))
        if not known:
            known = [(0, 0)] if time in (LATEST, EARLIEST) else []
        if time == EARLIEST:
            known = known[:1]
        elif time != LATEST:
            # the latest one that is old enough, and all before it, whatever their files' times say
            old_enough = [i for i, (_, mtime_ms) in enumerate(known) if mtime_ms <= time]
            known = known[: old_enough[-1] + 1] if old_enough else []
        return [offset for offset, _ in reversed(known)][:max_offsets]

    # reading

    def read(self, offset: int, max_bytes: int = config.FETCH_BYTES) -> MessageSet:
        """The entries from ``offset`` (the start of one) on, out of one segment; about ``max_bytes`` of them.

        The first entry comes whole even when it is larger. At a segment's end the next one is read; at the log's end,
        and before a torn tail, the set is empty. Damage, a gap or an overlap gives a set whose ``error`` says so.
        OffsetOutOfRangeError before the log's start and past its (flushed) end, LogError when a file cannot be read.
        """
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes}; it has to be 1 at least")
        segments = self.segments
        self._check_range(segments, offset)
        number = bisect_right(segments, offset, key=lambda segment: segment.start_offset) - 1
        if number < 0:
            return self._empty(offset)
        segment, following = segments[number], _following(segments, number)
        if following is not None and offset >= segment.end_offset:
            return self._empty(offset).with_error(seam_error(segment, following, self._place))
        with self._reader(segment, following) as reader:
            return reader.read(offset - segment.start_offset, max_bytes)

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        on_corrupt: Literal["stop", "skip"] = "stop",
        chunk_bytes: int = _CHUNK_BYTES,
    ) -> Iterator[MessageSet]:
        """All entries that start in [``start``, ``end``), in order, in sets of about ``chunk_bytes``.

        ``start`` has to be the start of an entry; None is the log's start, None for ``end`` the flushed end that the
        log has now. A set holds whole entries, so an entry larger than ``chunk_bytes`` makes a larger set. A torn tail
        of the last segment ends the scan without an error: its writer may be at it.

        A set with an ``error`` is the last one, unless ``on_corrupt`` is "skip": then the scan goes on at the error's
        ``next_offset`` where the damaged entry's length is believed, else with the next segment. A gap or an overlap
        between segments, and an entry cut short by the end of a segment that is not the last, are damage too; a gap or
        an overlap is an empty set with an error.

        OffsetOutOfRangeError at once for a ``start`` outside the log, and later when retention has deleted a segment
        before the scan came to it.
        """
        if on_corrupt not in ("stop", "skip"):
            raise ValueError(f"on_corrupt is {on_corrupt!r}; it has to be 'stop' or 'skip'")
        if chunk_bytes < 1:
            raise ValueError(f"chunk_bytes is {chunk_bytes}; it has to be 1 at least")
        segments = self.segments
        if start is None:
            start = segments[0].start_offset if segments else 0
        self._check_range(segments, start)
        if end is None:
            end = segments[-1].end_offset if segments else 0
        return self._scan(segments, start, end, chunk_bytes, skip=on_corrupt == "skip")

    def verify(self) -> LogReport:
        """Reads all of the log and reports what is in it and what is wrong with it. Changes nothing."""
        segments, others = self.segments, list_segments(self.directory)[1]
        following = (_following(segments, number) for number in range(len(segments)))
        return verify(self._place, list(zip(segments, following, strict=True)), others)

    # writing

    def append(self, message_set: MessageSet | Buffer, *, max_message_bytes: int | None = None) -> int:
        """Write the whole entries of ``message_set`` (a MessageSet, or bytes to make one of); gives their start offset.

        As 0.7.2 does: first a payload, as stored, above ``max_message_bytes`` (``max.message.size``) is a
        MessageTooLargeError, for which a broker drops the set and says nothing; then damage, at any depth, and a set
        that is nothing but a cut entry, is a CorruptMessageError, for which it hangs up. A cut tail behind good entries
        is left out. A new segment is begun first when it is time, and the log is flushed after when it is time. All is
        written or, with a LogError, nothing; if only that flush fails, all is written and not visible yet. (A cut tail
        inside a wrapper is damage here; 0.7.2 takes it.)
        """
        if not isinstance(message_set, MessageSet):
            message_set = MessageSet(
                message_set,
                topic=self.topic,
                broker=self.broker,
                partition=self.partition,
                max_inflated_bytes=self._place.max_inflated_bytes,
            )
        return self._writing.append(message_set, max_message_bytes)

    def flush(self) -> bool:
        """Force what has been appended to the disk and show it to readers; False when there was nothing to flush.

        0.7.2 counts messages, not bytes: after empty wrappers alone there is nothing to flush.
        """
        return self._writing.flush()

    def flush_if_older(self, max_age_ms: int) -> bool:
        """Flush, if the last flush is ``max_age_ms`` ago or more: a broker's clock calls this from time to time."""
        return self._writing.flush_if_older(max_age_ms)

    def roll(self) -> None:
        """Begin a new segment, unless the last one is empty."""
        self._writing.roll()

    def recover(self) -> Recovery:
        """Cut the last segment where 0.7.2's recovery cuts it: at the first entry that is short or has a bad CRC.

        For a log that was not closed in good order; all behind the bad entry goes, and is first copied into a file
        beside the segment. When nothing has to be cut nothing is touched.
        """
        return self._writing.recover()

    def retain(self, *, max_age_ms: int | None = None, max_bytes: int | None = None) -> tuple[Segment, ...]:
        """Delete whole segments from the start of the log, and return them; None sets no limit.

        First those that were last written more than ``max_age_ms`` ago, up to the first that was not; then as many as
        can go while ``max_bytes`` at least remain. The last segment can go too: an empty one then takes its place, so
        that the log keeps its end offset. Whoever has a segment open reads on undisturbed.
        """
        return self._writing.retain(max_age_ms, max_bytes)

    def slice(self, offset: int, max_bytes: int) -> LogSlice:
        """Where the bytes of a FETCH lie: an open file, for sendfile; the caller closes it.

        Up to ``max_bytes`` flushed bytes of the segment that has ``offset``, which need not be the start of an entry;
        none at the log's flushed end. OffsetOutOfRangeError before the log's start or past its flushed end.
        """
        return self._writing.slice(offset, max_bytes)

    @property
    def _writing(self) -> LogWriter:
        if self._writer is None:
            raise LogError(f"the log in {str(self.directory)!r} is open for reading only; pass writable=True to write")
        return self._writer

    # parts

    def _scan(
        self, segments: tuple[Segment, ...], start: int, end: int, chunk_bytes: int, *, skip: bool
    ) -> Iterator[MessageSet]:
        for number, segment in enumerate(segments):
            following = _following(segments, number)
            if segment.start_offset >= end:
                return
            if following is not None and following.start_offset <= start:
                continue
            error = None
            with self._reader(segment, following) as reader:
                first = max(start - segment.start_offset, 0)
                stop = min(end - segment.start_offset, reader.size)
                for messages in reader.sets(first, stop, chunk_bytes, skip=skip):
                    error = messages.error
                    yield messages
                    if error is not None and not skip:
                        return
            seam = None if following is None else seam_error(segment, following, self._place)
            if seam is None or seam.offset is None:  # a seam's error always has one
                continue
            if seam.offset >= end or getattr(error, "next_offset", None) == seam.next_offset:
                continue
            yield self._empty(max(seam.offset, start)).with_error(seam)
            if not skip:
                return

    def _reader(self, segment: Segment, following: Segment | None) -> SegmentReader:
        return SegmentReader(segment, None if following is None else following.start_offset, self._place)

    def _empty(self, offset: int) -> MessageSet:
        return MessageSet(b"", offset, **self._place.names)

    def _check_range(self, segments: tuple[Segment, ...], offset: int) -> None:
        first = segments[0].start_offset if segments else 0
        last = segments[-1].end_offset if segments else 0
        if not first <= offset <= last:
            raise OffsetOutOfRangeError(
                f"the log goes from {first} to {last}", **self._place.names, offset=offset
            )


def _following(segments: tuple[Segment, ...], number: int) -> Segment | None:
    return segments[number + 1] if number + 1 < len(segments) else None
