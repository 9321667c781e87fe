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
                   "start": 0, "end": 4711, "rows": 100, "bytes": 3210}],
        "undecodable": 0, "dead_letters": []}],    messages that did not decode; files of them, like "files"
     "to": "parquet", "columns": null}             the files' format; what a decoder made: {"id": "int64", ...}

The last four are younger than the format's first version; where they are missing they are as shown.

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
    "committed",
    "committed_files",
    "data_file_name",
    "segment_name",
    "unique_file_name",
]

FORMAT = "kafka07c-manifest"
VERSION = 1
#: the folder inside DIR that holds all but the data
STATE = "_kafka07c"

_MANIFEST_NAME = re.compile(r"(\d{8,18})\.json")
_FOLDER = re.compile(r"(topic=[\w.~%-]+/)?(date=[\w.~%-]+/)?", re.ASCII)
#: where messages go that did not decode
DEAD_LETTERS = f"{STATE}/dead-letters/"
_SUFFIX = r"\.(?:parquet|arrow|(?:csv|jsonl)(?:\.gz|\.zst)?)"
_STAGED_NAME = re.compile(r"\d{8,18}-[0-9a-f]+/[0-9a-f]+\.staged")
#: a file name has room for 255 bytes, numbers and dots take up to 72, and a topic's 255 characters may come to 3060
_LONGEST_TOPIC = 180


def data_file_name(
    topic: str, broker: int, partition: int, start: int, end: int, folder: str = "", suffix: str = ".parquet"
) -> str:
    """The path in DIR of the file that holds offsets ``start`` up to ``end`` of a partition (those in ``folder``).

    In the topic all but letters, digits and ``_ . - ~`` is percent-encoded, and a leading ``_`` or ``.`` too, because
    readers skip such files. A very long one is cut, and ends in a digest.
    """
    if suffix == ".kafka":
        return segment_name(topic, broker, partition, start)
    return f"{folder}{encoded(topic)}-{broker}-{partition}-{start:020d}-{end:020d}{suffix}"


def unique_file_name(
    topic: str, broker: int, partition: int, start: int, token: str, folder: str = "", suffix: str = ".parquet"
) -> str:
    """The path in DIR of a file that is never moved: its end is not known when it is begun."""
    return f"{folder}{encoded(topic)}-{broker}-{partition}-{start:020d}-{token}{suffix}"


def segment_name(topic: str, broker: int, partition: int, start: int) -> str:
    """The path in DIR of a log's segment: a folder for each broker holds logs as a broker's own folder does.

    ValueError: no folder can have the topic's name.
    """
    if "/" in topic or "\0" in topic or topic in ("", "..", "."):
        raise ValueError(f"no folder can be called {topic!r}: --to kafka07 cannot hold this topic")
    return f"broker-{broker}/{topic}-{partition}/{start:020d}.kafka"


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
    undecodable: int = 0
    dead_letters: tuple[DataFile, ...] = ()

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
    to: str = "parquet"
    columns: dict[str, str] | None = None

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files that it names, those with dead letters too."""
        return tuple(file for run in self.partitions for file in (*run.files, *run.dead_letters))

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
                to=_text(document.get("to", "parquet")),
                columns=_columns(document.get("columns")),
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


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} where an object is expected")
    return value


def _columns(document: Any) -> dict[str, str] | None:
    return None if document is None else {_text(name): _text(kind) for name, kind in _object(document).items()}


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
        undecodable=_integer(document.get("undecodable", 0)),
        dead_letters=tuple(_data_file(file, *tp, dead=True) for file in document.get("dead_letters", ())),
    )
    places: dict[str, int] = {}  # by folder: with dates, the same range lies in several
    for file in run.files:
        folder = file.path.rpartition("/")[0]
        if file.start < places.get(folder, start) or file.end > end:
            raise ValueError(f"{file.path} overlaps another file or leaves its range")
        places[folder] = file.end
    return run


def _data_file(document: dict[str, Any], topic: str, broker: int, partition: int, *, dead: bool = False) -> DataFile:
    path, staged = _text(document["path"]), _text(document["staged"])
    # the paths are used for renames: nothing but the shapes that this module makes itself
    start, end = _range(document)
    if not _is_ours(path, (topic, broker, partition), start, end, moved=bool(staged), dead=dead):
        raise ValueError(f"{path!r} is not the name of this data file")
    if staged and not _STAGED_NAME.fullmatch(staged):
        raise ValueError(f"{staged!r} is no path of a staged file")
    return DataFile(path, staged, start, end, _integer(document["rows"]), _integer(document["bytes"]))


def _is_ours(path: str, tp: tuple[str, int, int], start: int, end: int, *, moved: bool, dead: bool) -> bool:
    if path.endswith(".kafka"):
        return moved and not dead and path == segment_name(*tp, start)
    match = re.fullmatch(rf"(.*/)?([^/]+?)({_SUFFIX})", path, re.S)
    if match is None:
        return False
    folder, suffix = match[1] or "", match[3]
    if folder != DEAD_LETTERS if dead else not _FOLDER.fullmatch(folder):
        return False
    if moved:
        return path == data_file_name(*tp, start, end, folder, suffix)
    token = path.removesuffix(suffix).rpartition("-")[2]
    return bool(re.fullmatch("[0-9a-f]{32}", token)) and path == unique_file_name(*tp, start, token, folder, suffix)


def manifest_name(number: int) -> str:
    return f"{number:08d}.json"


def numbers(names: Iterable[str]) -> list[int]:
    """Those of the manifests among these files, in order."""
    return sorted(int(match[1]) for name in names if (match := _MANIFEST_NAME.fullmatch(name)))


def read_manifest(data: bytes, number: int, path: str) -> Manifest:
    """The manifest in a file; ManifestError if it is none, or that of another number."""
    manifest = Manifest.from_json(data, path)
    if manifest.number != number:
        raise ManifestError(f"{path} says that it is number {manifest.number}")
    return manifest


def committed_files(path: str | os.PathLike[str]) -> list[str]:
    """The paths of all data files that count, as they lie now; reads the manifests, and neither waits nor writes.

    Files that the user has taken away are named all the same. Empty where nothing was ever committed.
    """
    out = Path(path)
    files = []
    for file in (file for each in committed(out) for run in each.partitions for file in run.files):
        staged = out / STATE / "staged" / file.staged
        files.append(str(staged if file.staged and staged.exists() else out / file.path))
    return files


def committed(path: Path) -> list[Manifest]:
    """The manifests of an output folder, in order; none where it is none."""
    folder = path / STATE / "manifests"
    found = numbers(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    places = [(number, folder / manifest_name(number)) for number in found]
    return [read_manifest(place.read_bytes(), number, str(place)) for number, place in places]


# --- the folder ---------------------------------------------------------------------------------------------------


class Ledger:
    """What the manifests of an output say together.

    ``source``: the source name of the last one (None: there is none), ``positions``: where each partition goes on,
    ``to`` and ``columns``: the files' format and the columns that a decoder made (None: no decoder).
    """

    def __init__(self) -> None:
        self.source: str | None = None
        self.positions: dict[TopicPartition, Position] = {}
        self.to = "parquet"
        self.columns: dict[str, str] | None = None
        self._last_number = 0

    def check_same(self, to: str, columns: dict[str, str] | None, place: object) -> None:
        """ManifestError unless new files can lie beside those that there are: of one format, and of one type of each
        column. A column may be new, or gone: readers fill it up with nulls.
        """
        if self.source is None:
            return
        other = "give another output folder"
        if to != self.to:
            raise ManifestError(f"{place} holds files of format {self.to}, not {to}: {other}")
        if (columns is None) != (self.columns is None):
            what = "payloads as they are" if self.columns is None else "the columns of a decoder"
            raise ManifestError(f"{place} holds {what}: {other}")
        for name, kind in (self.columns or {}).items():
            if (now := (columns or {}).get(name, kind)) != kind:
                raise ManifestError(f"{place} holds column {name} as {kind}, it would be {now} now: {other}")

    def _take_in(self, manifest: Manifest, name: str) -> None:
        for run in manifest.partitions:
            self._check_follows(run, name)
            before = self.positions.get(run.tp)
            last = run.last if run.last is not None or before is None else before.last
            self.positions[run.tp] = Position(run.end, last)
        self.source = manifest.source
        self.to = manifest.to
        if manifest.columns is not None:
            self.columns = (self.columns or {}) | manifest.columns
        self._last_number = manifest.number

    def _check_follows(self, run: PartitionRun, name: str) -> None:
        before = self.positions.get(run.tp)
        if before is not None and run.start != before.end:
            raise ManifestError(
                f"{name}: {run.tp} goes on at offset {run.start}, but the manifests before it end at {before.end};"
                " is one of them missing?"
            )


class Output(Ledger):
    """The one writer of an output folder, from opening to ``close()``; a context manager.

    Opening makes the folder if need be, takes its lock, reads the manifests, finishes the moves that they name and
    removes staged files that none names.

    Raises ManifestError: another process writes there, the folder holds other things, a manifest is damaged or is of
    a newer format. OSError: as the file system says.
    """

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__()
        self.path = Path(path)
        self.manifests_path = self.path / STATE / "manifests"
        self.staged_path = self.path / STATE / "staged"
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

    @property
    def checkpoint(self) -> str:
        """Where a stream's checkpoint has its place."""
        return str(self.path.absolute() / STATE / "checkpoint")

    def commit(
        self,
        stage: Path,
        source: str,
        on_corrupt: str,
        partitions: Iterable[PartitionRun],
        to: str = "parquet",
        columns: dict[str, str] | None = None,
    ) -> Manifest:
        """Commits what ``partitions`` name, whose files lie fsynced in ``stage``, and moves the files into place.

        After an OSError the folder is as it was before, or, if only the moves failed, the commit stands and the next
        opening finishes it. Raises ManifestError if a partition does not go on where its last commit ended.
        """
        manifest = Manifest(self._last_number + 1, now(), source, on_corrupt, tuple(partitions), to, columns)
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
        target = self.manifests_path / manifest_name(manifest.number)
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
        for file in manifest.files:
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
        named = {file.staged for file in manifest.files}
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
        manifests = committed(self.path)
        for manifest in manifests:
            self._take_in(manifest, str(self.manifests_path / manifest_name(manifest.number)))
        return manifests

    def _finish(self, manifests: list[Manifest]) -> None:
        """Moves before removals: what a manifest names is data."""
        staged = {f"{path.parent.name}/{path.name}" for path in self.staged_path.glob("*/*")}
        for manifest in manifests:
            if any(file.staged in staged for file in manifest.files):
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
        self._file.write(f"process {os.getpid()} on {socket.gethostname()} since {now()}\n")
        self._file.flush()

    def release(self) -> None:
        self._file.close()


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
