"""Segment files: what they are called, which ones a directory holds, and how their bytes are taken.

``<log.dir>/<topic>-<partition>/<start offset, 20 digits>.kafka``: nothing but message sets, one after the other; the
partition is what follows the *last* dash. An offset is a byte position: a segment that starts at ``s`` and has ``n``
bytes is followed by the one that starts at ``s + n``. Source: kafka.log.Log of 0.7.2.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from kafka07c.errors import LogError

__all__ = [
    "Segment",
    "SegmentFile",
    "find_logs",
    "list_segments",
    "log_error",
    "parse_log_name",
    "segment_name",
    "sync_directory",
]

FILE_SUFFIX = ".kafka"

_SEGMENT = re.compile(r"([0-9]{1,20})\.kafka")
_LOG_NAME = re.compile(r"(.+)-([0-9]{1,10})", re.DOTALL)
_MAX_OFFSET = 2**63 - 1
_MAX_PARTITION = 2**31 - 1

#: smaller segments are copied: a mapping costs a file descriptor for as long as anything of it is in use
_MAP_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Segment:
    """One segment file, as it was when it was looked at.

    ``start_offset``: the offset of its first byte. ``size``: how many bytes of it a reader may have. ``mtime_ms``: when
    the file was last written, in ms since 1970, UTC.
    """

    start_offset: int
    size: int
    path: Path
    mtime_ms: int

    @property
    def end_offset(self) -> int:
        """The offset after its last byte: where the next segment has to start."""
        return self.start_offset + self.size


def segment_name(start_offset: int) -> str:
    """The file name of the segment that starts at ``start_offset``."""
    return f"{start_offset:020d}{FILE_SUFFIX}"


def parse_log_name(name: str) -> tuple[str, int] | None:
    """``topic-partition`` as (topic, partition), split at the last dash; None when it is no such name."""
    match = _LOG_NAME.fullmatch(name)
    if match is None or int(match[2]) > _MAX_PARTITION:
        return None
    return match[1], int(match[2])


def log_error(what: str, path: str | Path, error: OSError) -> LogError:
    """A LogError for an OSError: ``what`` failed on ``path``, and the system's reason."""
    return LogError(f"cannot {what} {str(path)!r}: {error.strerror or error}")


def sync_directory(directory: Path) -> None:
    """Force the names in ``directory`` to the disk: a new file is not safe before."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def find_logs(log_dir: str | os.PathLike[str]) -> list[Path]:
    """The partition directories in ``log_dir`` (a broker's whole ``log.dir``), sorted by topic and partition number.

    A ``log_dir`` that is a single partition's directory itself gives just that. Files, and directories that are not
    named ``topic-partition``, are passed over. LogError when it cannot be listed.
    """
    directory = Path(os.path.abspath(log_dir))
    try:
        with os.scandir(directory) as entries:
            found = [(entry.name, entry.is_dir()) for entry in entries]
    except OSError as error:
        raise log_error("list the log directory", directory, error) from error
    logs = [(parse_log_name(name), name) for name, is_directory in found if is_directory]
    logs = sorted((log, name) for log, name in logs if log is not None)
    holds_segments = any(_SEGMENT.fullmatch(name) for name, is_directory in found if not is_directory)
    if parse_log_name(directory.name) and (holds_segments or not logs):
        return [directory]
    return [directory / name for _, name in logs]


def list_segments(directory: Path) -> tuple[tuple[Segment, ...], tuple[str, ...]]:
    """The segments in ``directory`` by start offset, and the sorted names of what else lies there.

    A file that vanishes while we look has been deleted by retention, and is not there. LogError when the directory or
    a segment cannot be looked at, or two files claim the same start.
    """
    segments: dict[int, Segment] = {}
    others = []
    try:
        names = sorted(os.listdir(directory))
    except OSError as error:
        raise log_error("list the log directory", directory, error) from error
    for name in names:
        match = _SEGMENT.fullmatch(name)
        segment = _look_at(directory / name, int(match[1])) if match and int(match[1]) <= _MAX_OFFSET else None
        if segment is None:
            others.append(name)
        elif segment.start_offset in segments:
            twin = segments[segment.start_offset].path.name
            raise LogError(f"{str(directory)!r} has two segments that start at {segment.start_offset}: {twin}, {name}")
        else:
            segments[segment.start_offset] = segment
    return tuple(segments[start] for start in sorted(segments)), tuple(others)


def _look_at(path: Path, start_offset: int) -> Segment | None:
    """The segment at ``path``; None when it is no regular file or is gone."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise log_error("look at the segment", path, error) from error
    if not stat.S_ISREG(status.st_mode):
        return None
    return Segment(start_offset, status.st_size, path, status.st_mtime_ns // 1_000_000)


class SegmentFile:
    """A segment file open for reading; a context manager. Memory that it gave stays good after it is closed.

    ``closed_segment``: the file is not the last of its log. A broker appends to and truncates the last one only, and
    deletes others whole, which does a mapping no harm: a large closed segment is mapped. A mapping of a file that is
    cut under it would end the process with SIGBUS, so the last segment is copied. What lies before the place last asked
    for is given back to the kernel, and comes again by itself when somebody still looks at it: the memory in use does
    not grow with the file. Measured on the page cache: mapping 11 GB/s, copying 7 GB/s, ``readinto`` 7.5 GB/s.
    """

    def __init__(self, path: Path, *, closed_segment: bool):
        self.path = path
        self._mapping: mmap.mmap | None = None
        self._given_back = 0
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if closed_segment:
            self._mapping = self._map()

    def _map(self) -> mmap.mmap | None:
        size = os.fstat(self._fd).st_size
        if size < _MAP_BYTES:
            return None
        try:
            return mmap.mmap(self._fd, size, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            # a file system that cannot map, or no room for it: copying does as well
            return None

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def take(self, position: int, count: int) -> memoryview | bytes:
        """``count`` bytes from ``position`` on, fewer where the file ends. LogError when the disk fails."""
        if self._mapping is None:
            return self.copy(position, count)
        self._give_back(self._mapping, position)
        return memoryview(self._mapping)[position : position + count]

    def copy(self, position: int, count: int) -> bytes:
        """As :meth:`take`, never mapped."""
        try:
            data = os.pread(self._fd, count, position)
            while len(data) < count and (more := os.pread(self._fd, count - len(data), position + len(data))):
                data += more
        except OSError as error:
            raise log_error("read the segment", self.path, error) from error
        return data

    def _give_back(self, mapping: mmap.mmap, position: int) -> None:
        length = position - position % mmap.PAGESIZE - self._given_back
        if length > 0 and hasattr(mmap, "MADV_DONTNEED"):
            mapping.madvise(mmap.MADV_DONTNEED, self._given_back, length)
            self._given_back += length
