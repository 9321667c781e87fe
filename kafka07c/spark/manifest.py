"""An output folder of Parquet files, and the manifests that say what in it counts. Knows nothing of Spark or Parquet.

::

    DIR/clicks-0-1-<start>-<end>.parquet     rows of topic clicks, broker 0, partition 1, offsets start up to end
    DIR/_kafka07c/manifests/00000001.json    what run 1 committed
    DIR/_kafka07c/staged/00000002-x7k2/      files that run 2 is writing; none of them ends in .parquet
    DIR/_kafka07c/lock                       held (flock) by the one process that writes

The topic in a file's name is percent-encoded where needed; the true one is in a column. There are no folders by topic:
Spark looks into folders only if they are called ``topic=clicks``, and then readers disagree about that column's type.

**How a run commits.** The new files are written into ``staged`` and fsynced, then their folder. Then the manifest is
written beside the others, fsynced and renamed to its number, and its folder fsynced: this is the commit. Then the files
are moved to where the manifest says. Whoever opens the folder next finishes the moves that a manifest names, and then
removes what lies in ``staged`` and no manifest names. So a reader that knows nothing of manifests sees committed
files only: Spark, pandas and pyarrow given ``DIR`` (they skip folders that begin with ``_``), DuckDB and polars given
``DIR/*.parquet`` (polars refuses a folder that holds anything but Parquet, hidden or not).

**The manifest**, one JSON object, the same for a run and for a batch of a stream::

    {"format": "kafka07c-manifest", "version": 1, "number": 7, "created": "2026-01-31T12:00:00Z",
     "source": "zookeeper:10.0.0.1:2181", "on_corrupt": "stop",
     "partitions": [
       {"topic": "clicks", "broker": 0, "partition": 1,
        "start": 0, "end": 4711,            offsets: what of the log the files hold, and where the next run goes on
        "messages": 100, "bytes": 4711,     rows in the files; bytes of the log read, damaged ranges left out
        "last": {"offset": 4600, "next_offset": 4711, "crc": 305419896},
        "corrupt": [{"start": 10, "end": 20, "reason": "..."}],
        "complete": true, "reason": null,   false: the run did not reach the end that it had set out for, and why
        "files": [{"path": "clicks-0-1-….parquet", "staged": "00000007-x7k2/….staged",
                   "start": 0, "end": 4711, "rows": 100, "bytes": 3210}]}]}

``last`` is the last entry as the log stores it (a wrapper counts as one, by its own CRC); null where a run met none,
and then the one before it counts. A resume reads that entry again: if it differs, the log is another one.
The ranges of a partition follow each other without a gap through its files and from manifest to manifest.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kafka07c.errors import ManifestError, OutputFolderError
from kafka07c.names import TopicPartition

__all__ = [
    "STATE",
    "CorruptRange",
    "DataFile",
    "LastEntry",
    "Manifest",
    "Output",
    "PartitionRun",
    "Position",
    "data_file_name",
]

FORMAT = "kafka07c-manifest"
VERSION = 1
#: the folder inside DIR that holds all but the data
STATE = "_kafka07c"

_MANIFEST_NAME = re.compile(r"(\d{8,18})\.json")
_FOLDER = re.compile(r"(topic=[\w.~%-]+/)?(date=[\w.~%-]+/)?", re.ASCII)
_STAGED_NAME = re.compile(r"\d{8,18}-[0-9a-f]+/[0-9a-f]+\.staged")
#: a file name has room for 255 bytes, numbers and dots take up to 72, and a topic's 255 characters may come to 3060
_LONGEST_TOPIC = 180


def data_file_name(topic: str, broker: int, partition: int, start: int, end: int, folder: str = "") -> str:
    """The path in DIR of the file that holds offsets ``start`` up to ``end`` of a partition (those in ``folder``).

    In the topic all but letters, digits and ``_ . - ~`` is percent-encoded, and a leading ``_`` or ``.`` too, because
    readers skip such files. A very long one is cut, and ends in a digest.
    """
    return f"{folder}{encoded(topic)}-{broker}-{partition}-{start:020d}-{end:020d}.parquet"


def date_folder(date: str | None) -> str:
    """The value in a folder's name, encoded as Hive and Spark do it; theirs too is the name for none."""
    return quote(date, safe="") if date else "__HIVE_DEFAULT_PARTITION__"


def encoded(topic: str) -> str:
    """The topic in the name of a file or a folder; see `data_file_name`."""
    name = quote(topic, safe="")
    if name[0] in "_.":
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) > _LONGEST_TOPIC:
        digest = hashlib.sha256(topic.encode()).hexdigest()[:32]
        name = f"{name[: _LONGEST_TOPIC - 33]}~{digest}"
    return name


# --- what a manifest says -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LastEntry:
    """A stored entry: where it begins and ends in the log, and the CRC-32 of its stored payload."""

    offset: int
    next_offset: int
    crc: int


@dataclass(frozen=True, slots=True)
class CorruptRange:
    """Offsets ``start`` up to ``end`` were damaged and left out."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file: ``path`` its name in DIR, ``staged`` its place below ``staged`` before, ``bytes`` its size."""

    path: str
    staged: str
    start: int
    end: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """What one run took from one partition; the fields are those of the manifest (see the module)."""

    topic: str
    broker: int
    partition: int
    start: int
    end: int
    messages: int = 0
    bytes: int = 0
    last: LastEntry | None = None
    corrupt: tuple[CorruptRange, ...] = ()
    complete: bool = True
    reason: str | None = None
    files: tuple[DataFile, ...] = ()

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.broker, self.partition)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One commit."""

    number: int
    created: str
    source: str
    on_corrupt: str
    partitions: tuple[PartitionRun, ...]

    def to_json(self) -> bytes:
        document = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps(document, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes, name: str) -> Manifest:
        """Reads and checks a manifest; ``name`` is for the error. Raises ManifestError: no manifest, or a newer one."""
        try:
            document = json.loads(data)
            if not isinstance(document, dict) or document.get("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT!r}")
            if document.get("version") != VERSION:
                found = document.get("version")
                raise ManifestError(f"{name} has version {found!r} of the format, this kafka07c knows {VERSION}")
            return cls(
                number=_integer(document["number"]),
                created=_text(document["created"]),
                source=_text(document["source"]),
                on_corrupt=_text(document["on_corrupt"]),
                partitions=tuple(map(_partition_run, document["partitions"])),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            raise ManifestError(f"{name} is no usable manifest: {what}") from None


@dataclass(frozen=True, slots=True)
class Position:
    """Where a partition's next run goes on, and the last entry before that (None: none was ever met)."""

    end: int
    last: LastEntry | None


def _integer(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} where a number from 0 is expected")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} where text is expected")
    return value


def _range(document: dict[str, Any]) -> tuple[int, int]:
    start, end = _integer(document["start"]), _integer(document["end"])
    if end < start:
        raise ValueError(f"a range from {start} to {end}")
    return start, end


def _partition_run(document: dict[str, Any]) -> PartitionRun:
    tp = _text(document["topic"]), _integer(document["broker"]), _integer(document["partition"])
    start, end = _range(document)
    last, reason = document["last"], document["reason"]
    run = PartitionRun(
        *tp,
        start=start,
        end=end,
        messages=_integer(document["messages"]),
        bytes=_integer(document["bytes"]),
        last=None if last is None else LastEntry(*(_integer(last[key]) for key in ("offset", "next_offset", "crc"))),
        corrupt=tuple(CorruptRange(*_range(bad), _text(bad["reason"])) for bad in document["corrupt"]),
        complete=document["complete"] is True,
        reason=None if reason is None else _text(reason),
        files=tuple(_data_file(file, *tp) for file in document["files"]),
    )
    places: dict[str, int] = {}  # by folder: with dates, the same range lies in several
    for file in run.files:
        folder = file.path.rpartition("/")[0]
        if file.start < places.get(folder, start) or file.end > end:
            raise ValueError(f"{file.path} overlaps another file or leaves its range")
        places[folder] = file.end
    return run


def _data_file(document: dict[str, Any], topic: str, broker: int, partition: int) -> DataFile:
    path, staged = _text(document["path"]), _text(document["staged"])
    # the paths are used for renames: nothing but the shapes that this module makes itself
    start, end = _range(document)
    folder = path[: path.rfind("/") + 1]
    if path != data_file_name(topic, broker, partition, start, end, folder) or not _FOLDER.fullmatch(folder):
        raise ValueError(f"{path!r} is not the name of this data file")
    if not _STAGED_NAME.fullmatch(staged):
        raise ValueError(f"{staged!r} is no path of a staged file")
    return DataFile(path, staged, start, end, _integer(document["rows"]), _integer(document["bytes"]))


# --- the folder ---------------------------------------------------------------------------------------------------


class Output:
    """The one writer of an output folder, from opening to ``close()``; a context manager.

    Opening makes the folder if need be, takes its lock, reads the manifests, finishes the moves that they name and
    removes staged files that none names. ``source`` is the source name of the last manifest (None: there is none),
    ``positions`` where each partition goes on.

    Raises ManifestError: another process writes there, the folder holds other things, a manifest is damaged or is of
    a newer format. OSError: as the file system says.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.manifests_path = self.path / STATE / "manifests"
        self.staged_path = self.path / STATE / "staged"
        self.source: str | None = None
        self.positions: dict[TopicPartition, Position] = {}
        self._last_number = 0
        self._create()
        self._lock = _Lock(self.path / STATE / "lock", self.path)
        try:
            self._finish(self._load())
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the lock back. What was not committed stays in ``staged`` until the next opening."""
        self._lock.release()

    def stage(self) -> Path:
        """A new empty folder for the files of the next commit, which are to be called ``<hex digits>.staged``."""
        folder = self.staged_path / f"{self._last_number + 1:08d}-{secrets.token_hex(4)}"
        folder.mkdir()
        return folder

    def commit(self, stage: Path, source: str, on_corrupt: str, partitions: Iterable[PartitionRun]) -> Manifest:
        """Commits what ``partitions`` name, whose files lie fsynced in ``stage``, and moves the files into place.

        After an OSError the folder is as it was before, or, if only the moves failed, the commit stands and the next
        opening finishes it. Raises ManifestError if a partition does not go on where its last commit ended.
        """
        manifest = Manifest(self._last_number + 1, _now(), source, on_corrupt, tuple(partitions))
        for run in manifest.partitions:
            self._check_follows(run, "the new manifest")
        self._remove_unnamed(stage, manifest)
        _sync_folder(stage)
        _sync_folder(self.staged_path)
        self.publish(manifest)
        self._take_in(manifest, "the new manifest")
        self.move(manifest)
        self.discard(stage)
        return manifest

    def discard(self, stage: Path) -> None:
        """Removes a staging folder and what is left in it."""
        shutil.rmtree(stage, ignore_errors=True)  # what cannot be removed now is swept at the next opening

    def publish(self, manifest: Manifest) -> None:
        """The commit itself: the manifest under its name, and on disk."""
        target = self.manifests_path / f"{manifest.number:08d}.json"
        if target.exists():
            raise ManifestError(f"{target} exists already")
        temporary = target.with_suffix(".tmp")
        try:
            with open(temporary, "wb") as file:
                file.write(manifest.to_json())
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(self.manifests_path)

    def move(self, manifest: Manifest) -> None:
        """Moves the staged files of ``manifest`` that are still there to their places."""
        folders = {self.path}
        for file in (file for run in manifest.partitions for file in run.files):
            target = self.path / file.path
            if not (self.staged_path / file.staged).exists():
                continue  # moved before; or the user has taken it away since
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(self.staged_path / file.staged, target)
            folders |= {target.parent, *(parent for parent in target.parents if self.path in parent.parents)}
        for folder in folders:
            _sync_folder(folder)

    def _remove_unnamed(self, stage: Path, manifest: Manifest) -> None:
        """Before the commit: on a full disk the manifest may need the room."""
        named = {file.staged for run in manifest.partitions for file in run.files}
        for path in stage.iterdir():
            if f"{stage.name}/{path.name}" not in named:
                path.unlink()

    def _create(self) -> None:
        state = self.path / STATE
        if not state.is_dir():
            if self.path.exists() and not self.path.is_dir():
                raise OutputFolderError(f"{self.path} is not a folder")
            if self.path.is_dir() and any(not entry.name.startswith(".") for entry in self.path.iterdir()):
                raise OutputFolderError(f"{self.path} holds files that no ingest wrote: give an empty or a new folder")
            state.mkdir(parents=True, exist_ok=True)
        for folder in (self.manifests_path, self.staged_path):
            folder.mkdir(exist_ok=True)
        for folder in (state, self.path, self.path.absolute().parent):
            _sync_folder(folder)

    def _load(self) -> list[Manifest]:
        names = sorted(
            (int(match[1]), entry.name)
            for entry in self.manifests_path.iterdir()
            if (match := _MANIFEST_NAME.fullmatch(entry.name))
        )
        manifests = []
        for number, name in names:
            path = self.manifests_path / name
            manifest = Manifest.from_json(path.read_bytes(), str(path))
            if manifest.number != number:
                raise ManifestError(f"{path} says that it is number {manifest.number}")
            self._take_in(manifest, str(path))
            manifests.append(manifest)
        return manifests

    def _take_in(self, manifest: Manifest, name: str) -> None:
        for run in manifest.partitions:
            self._check_follows(run, name)
            before = self.positions.get(run.tp)
            last = run.last if run.last is not None or before is None else before.last
            self.positions[run.tp] = Position(run.end, last)
        self.source = manifest.source
        self._last_number = manifest.number

    def _check_follows(self, run: PartitionRun, name: str) -> None:
        before = self.positions.get(run.tp)
        if before is not None and run.start != before.end:
            raise ManifestError(
                f"{name}: {run.tp} goes on at offset {run.start}, but the manifests before it end at {before.end};"
                " is one of them missing?"
            )

    def _finish(self, manifests: list[Manifest]) -> None:
        """Moves before removals: what a manifest names is data."""
        staged = {f"{path.parent.name}/{path.name}" for path in self.staged_path.glob("*/*")}
        for manifest in manifests:
            if any(file.staged in staged for run in manifest.partitions for file in run.files):
                self.move(manifest)
        for leftover in self.staged_path.iterdir():
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover)
            else:  # nothing of ours: what a file manager or a network file system leaves behind
                leftover.unlink(missing_ok=True)
        for leftover in self.manifests_path.glob("*.tmp"):
            leftover.unlink()


class _Lock:
    """An exclusive flock, which ends with the process; the file says who took it last."""

    def __init__(self, path: Path, folder: Path):
        self._file = open(path, "a+")  # noqa: SIM115 - held until release()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read(1000).strip() or "another process"
            self._file.close()
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise ManifestError(f"{folder} is being written by {holder}: one writer at a time") from None
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()} since {_now()}\n")
        self._file.flush()

    def release(self) -> None:
        self._file.close()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
