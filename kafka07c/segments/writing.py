"""Writing a log as a 0.7.2 broker does: append, flush, roll, recover, delete what is old.

What a reader may see ends at the last flush. A new segment begins with the append after the one that made the last
segment larger than ``segment_bytes``, or with one more than ``roll_ms`` after this writer's first append to it (a
segment that was there before has no such time until it is appended to). Source: kafka.log.Log and LogManager of 0.7.2.

Two things are not as there. 0.7.2 flushes before it rolls only when it counts unflushed messages, and an empty wrapper
counts for none: a roll then starts the next segment before the end of the last. Here a roll always flushes. And a file
that already has the new segment's name is deleted there; here it is an error.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kafka07c._views import MessageSet
from kafka07c.errors import CorruptMessageError, LogError, MessageTooLargeError, OffsetOutOfRangeError
from kafka07c.segments.files import Segment, list_segments, log_error, segment_name, sync_directory
from kafka07c.segments.reading import Place, seam_error
from kafka07c.segments.recovery import Recovery, copy_tail, find_valid_end

__all__ = ["LogSlice", "LogWriter"]


class LogSlice:
    """``count`` bytes of the open file ``fd`` from ``position`` on, for sendfile; a context manager.

    The descriptor is the slice's own, and good until :meth:`close` even when the segment is deleted. A slice of no
    bytes has none (-1).
    """

    __slots__ = ("count", "fd", "position")

    def __init__(self, fd: int, position: int, count: int):
        self.fd = fd
        self.position = position
        self.count = count

    def __enter__(self) -> LogSlice:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class _ActiveSegment:
    """The last segment, open for appending. ``size`` is what has been written, ``flushed`` what readers may see."""

    def __init__(self, start_offset: int, path: Path, *, create: bool):
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        try:
            self.fd = os.open(path, flags, 0o666)
            if create:
                sync_directory(path.parent)
            self.size = os.fstat(self.fd).st_size
        except OSError as error:
            raise log_error("create the segment" if create else "open the segment for writing", path, error) from error
        self.start_offset = start_offset
        self.path = path
        self.flushed = self.size
        self.first_append_ms: int | None = None

    def look_at(self) -> Segment:
        """What readers may see of it now."""
        return Segment(self.start_offset, self.flushed, self.path, os.fstat(self.fd).st_mtime_ns // 1_000_000)

    def append(self, data: memoryview) -> None:
        """Write all of ``data``, or leave the file as it was and raise OSError."""
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self.fd, data[written:], self.size + written)
        except OSError:
            os.ftruncate(self.fd, self.size)
            raise
        self.size += written

    def flush(self) -> None:
        os.fsync(self.fd)
        self.flushed = self.size

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)
        self.size = size
        self.flush()


@dataclass(frozen=True)
class _View:
    """The segments at one moment. Readers take it without the lock; the writer puts a new one in its place."""

    closed: tuple[Segment, ...]
    active: _ActiveSegment

    @property
    def start_offset(self) -> int:
        return self.closed[0].start_offset if self.closed else self.active.start_offset

    @property
    def flushed_offset(self) -> int:
        return self.active.start_offset + self.active.flushed


class LogWriter:
    """The writing half of a :class:`kafka07c.segments.Log`, which says what the arguments are; safe for threads."""

    def __init__(
        self,
        directory: Path,
        place: Place,
        *,
        segment_bytes: int,
        roll_ms: int,
        flush_messages: int,
        clock: Callable[[], float],
        on_append: Callable[[int], object] | None = None,
        on_flush: Callable[[float], object] | None = None,
    ):
        self._directory = directory
        self._place = place
        self._segment_bytes = segment_bytes
        self._roll_ms = roll_ms
        self._flush_messages = flush_messages
        self._clock = clock
        self._on_append = on_append
        self._on_flush = on_flush
        self._lock = threading.RLock()
        self._unflushed = 0
        self._last_flush_ms = self._now_ms()
        self._directory_fd = _lock_directory(directory)
        try:
            self._view = self._load()
        except BaseException:
            os.close(self._directory_fd)
            raise

    def _load(self) -> _View:
        segments, _ = list_segments(self._directory)
        for segment, following in zip(segments, segments[1:], strict=False):
            seam = seam_error(segment, following, self._place)
            if seam is not None:
                raise LogError(f"cannot write to {str(self._directory)!r}: {seam.reason}")
        if not segments:
            return _View((), _ActiveSegment(0, self._directory / segment_name(0), create=True))
        last = segments[-1]
        return _View(segments[:-1], _ActiveSegment(last.start_offset, last.path, create=False))

    def close(self) -> None:
        with self._lock:
            if self._directory_fd < 0:
                return
            try:
                self._force()
            finally:
                os.close(self._view.active.fd)
                os.close(self._directory_fd)
                self._directory_fd = -1

    # what there is

    @property
    def end_offset(self) -> int:
        active = self._view.active
        return active.start_offset + active.size

    def segments(self) -> tuple[Segment, ...]:
        with self._lock:
            self._check_open()
            view = self._view
            try:
                closed = [replace(it, mtime_ms=os.stat(it.path).st_mtime_ns // 1_000_000) for it in view.closed]
            except OSError as error:
                raise log_error("look at the segments in", self._directory, error) from error
            return (*closed, view.active.look_at())

    def slice(self, offset: int, max_bytes: int) -> LogSlice:
        if max_bytes < 0:
            raise ValueError(f"max_bytes is {max_bytes}; it cannot be negative")
        view = self._view
        start, stop, path = view.active.start_offset, view.flushed_offset, view.active.path
        if not view.start_offset <= offset <= stop:
            raise self._out_of_range(offset, f"the log goes from {view.start_offset} to {stop}")
        if offset < start:
            found = view.closed[bisect_right(view.closed, offset, key=lambda segment: segment.start_offset) - 1]
            start, stop, path = found.start_offset, found.end_offset, found.path
        count = min(max_bytes, stop - offset)
        if count == 0:
            return LogSlice(-1, offset - start, 0)
        try:
            return LogSlice(os.open(path, os.O_RDONLY | os.O_CLOEXEC), offset - start, count)
        except FileNotFoundError:
            raise self._out_of_range(offset, "its segment has been deleted") from None
        except OSError as error:
            raise log_error("open the segment", path, error) from error

    def _out_of_range(self, offset: int, reason: str) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(reason, **self._place.names, offset=offset)

    # append, flush, roll

    def append(self, message_set: MessageSet, max_message_bytes: int | None) -> int:
        _check(message_set, max_message_bytes)
        data = message_set.data[: message_set.valid_bytes]
        with self._lock:
            self._check_open()
            if self._is_roll_due():
                self._roll()
            active = self._view.active
            offset = active.start_offset + active.size
            try:
                active.append(data)
            except OSError as error:
                raise log_error("append to the segment", active.path, error) from error
            if len(data) and active.first_append_ms is None:
                active.first_append_ms = self._now_ms()
            self._unflushed += len(message_set)
            if self._on_append is not None:
                self._on_append(len(message_set))
            if self._unflushed >= self._flush_messages:
                self._force()
            return offset

    def flush(self) -> bool:
        with self._lock:
            self._check_open()
            if self._unflushed == 0:
                return False
            self._force()
            return True

    def flush_if_older(self, max_age_ms: int) -> bool:
        with self._lock:
            return self._now_ms() - self._last_flush_ms >= max_age_ms and self.flush()

    def roll(self) -> None:
        with self._lock:
            self._check_open()
            self._roll()

    def _is_roll_due(self) -> bool:
        active = self._view.active
        if active.size > self._segment_bytes:
            return True
        return active.first_append_ms is not None and self._now_ms() - active.first_append_ms > self._roll_ms

    def _roll(self) -> None:
        """Close the active segment and begin the next; an empty one stays, for its name is the next one's too."""
        old = self._view.active
        if old.size == 0:
            return
        self._force()
        end = old.start_offset + old.size
        new = _ActiveSegment(end, self._directory / segment_name(end), create=True)
        self._view = _View((*self._view.closed, old.look_at()), new)
        os.close(old.fd)

    def _force(self) -> None:
        active = self._view.active
        began = time.perf_counter()
        try:
            active.flush()
        except OSError as error:
            raise log_error("flush the segment", active.path, error) from error
        if self._on_flush is not None:
            self._on_flush(time.perf_counter() - began)
        self._unflushed = 0
        self._last_flush_ms = self._now_ms()

    # recovery, retention

    def recover(self) -> Recovery:
        with self._lock:
            self._check_open()
            active = self._view.active
            try:
                kept, reason = find_valid_end(active.fd, active.size)
                cut = active.size - kept
                if cut == 0:
                    return Recovery(active.path, kept)
                copy = copy_tail(active.path, active.fd, kept, active.start_offset + kept, self._now_ms())
                active.truncate(kept)
            except OSError as error:
                raise log_error("recover the segment", active.path, error) from error
            self._unflushed = 0
            return Recovery(active.path, kept, cut, reason, copy)

    def retain(self, max_age_ms: int | None, max_bytes: int | None) -> tuple[Segment, ...]:
        with self._lock:
            self._check_open()
            deleted: tuple[Segment, ...] = ()
            if max_age_ms is not None:
                deleted += self._delete(_count_older(self.segments(), self._now_ms() - max_age_ms))
            if max_bytes is not None:
                deleted += self._delete(_count_surplus(self.segments(), max_bytes))
            return deleted

    def _delete(self, count: int) -> tuple[Segment, ...]:
        """Delete the first ``count`` segments; the log keeps its end offset whatever goes."""
        segments = self.segments()
        if count == len(segments):
            if self._view.active.size:
                self._roll()
            else:
                os.utime(self._view.active.path)
                count -= 1
        deleted = 0
        try:
            for segment in segments[:count]:
                os.unlink(segment.path)
                deleted += 1
        except OSError as error:
            raise log_error("delete the segment", segments[deleted].path, error) from error
        finally:
            self._view = _View(self._view.closed[deleted:], self._view.active)
        return segments[:count]

    def _check_open(self) -> None:
        if self._directory_fd < 0:
            raise LogError(f"the log in {str(self._directory)!r} has been closed")

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def _lock_directory(directory: Path) -> int:
    """Make the directory when missing and lock it; the lock lives as long as the descriptor that is returned."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise log_error("open the log directory", directory, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise LogError(f"{str(directory)!r} is being written to already; a log has one writer at a time") from None
    except OSError as error:
        os.close(fd)
        raise log_error("lock the log directory", directory, error) from error
    return fd


def _check(message_set: MessageSet, max_message_bytes: int | None) -> None:
    """Raise what 0.7.2 would refuse ``message_set`` for; the sizes of stored entries come first there."""
    if max_message_bytes is not None and message_set.size_bytes > max_message_bytes:
        lengths = MessageSet(message_set.data, shallow=True).good().lengths
        largest = int(lengths.max(initial=0))
        if largest > max_message_bytes:
            raise MessageTooLargeError(
                f"a payload of {largest} bytes is above the limit of {max_message_bytes}",
                topic=message_set.topic,
                partition=message_set.partition,
                size=largest,
                max_message_bytes=max_message_bytes,
            )
    if message_set.error is not None:
        raise message_set.error
    if message_set.valid_bytes == 0 and message_set.size_bytes >= 4:
        raise CorruptMessageError(
            f"the first entry of the set is cut: only {message_set.size_bytes} bytes of it are there",
            topic=message_set.topic,
            partition=message_set.partition,
        )


def _count_older(segments: tuple[Segment, ...], time_ms: int) -> int:
    """How many segments, from the first on, were last written before ``time_ms``."""
    newer = (number for number, segment in enumerate(segments) if segment.mtime_ms >= time_ms)
    return next(newer, len(segments))


def _count_surplus(segments: tuple[Segment, ...], max_bytes: int) -> int:
    """How many segments, from the first on, can go while ``max_bytes`` at least remain."""
    surplus = sum(segment.size for segment in segments) - max_bytes
    if surplus < 0:
        return 0
    for count, segment in enumerate(segments):
        surplus -= segment.size
        if surplus < 0:
            return count
    return len(segments)
