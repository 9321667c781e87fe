"""Where a task's files are written: a staging folder here, or their final places on a file system of pyarrow's.

Stages pickle: each task has one.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.fs

from kafka07c.names import TopicPartition
from kafka07c.spark.manifest import unique_file_name

__all__ = [
    "LocalStage", "NoProgress", "Progress", "RemoteStage", "Stage", "Target", "as_stage", "make_folder", "underlying",
]  # fmt: skip


class Target(Protocol):
    """A file that is being written to ``stream``: ``name`` in the staging folder, or ``path``, its final one."""

    stream: Any
    name: str
    path: str

    def settle(self) -> int:
        """Once the stream is closed: see to it that the file is there for good; its size in bytes."""

    def discard(self) -> None:
        """Remove it."""


class Stage(Protocol):
    """``name``: of the staging folder, for the manifest; empty where files get their final places at once."""

    name: str

    def create(self, tp: TopicPartition, start: int, folder: str, suffix: str) -> Target:
        """Begin a file of rows of ``tp`` from ``start`` on, which is to lie in ``folder``."""

    def remove(self, target: Target) -> None:
        """Remove a file that is settled."""

    def progress(self) -> Progress | NoProgress:
        """How far the tasks are."""


class LocalStage:
    """A folder for the files of one commit, which moves them to their places; see ``manifest``."""

    def __init__(self, path: Path):
        self.path = path
        self.name = path.name

    def create(self, tp: TopicPartition, start: int, folder: str, suffix: str) -> Target:
        return _LocalTarget(self.path / f"{uuid.uuid4().hex}.staged")

    def remove(self, target: Target) -> None:
        (self.path / target.name).unlink(missing_ok=True)

    def progress(self) -> Progress | NoProgress:
        return Progress(self.path)


class _LocalTarget:
    path = ""

    def __init__(self, path: Path):
        self._path = path
        self.name = path.name
        self.stream = pa.OSFile(str(path), "wb")

    def settle(self) -> int:
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def discard(self) -> None:
        self._path.unlink(missing_ok=True)


def as_stage(stage: Path | Stage) -> Stage:
    """A path is that of a folder here."""
    return LocalStage(stage) if isinstance(stage, Path) else stage


class RemoteStage:
    """The output folder itself, on a file system that cannot rename: names are unique, and the manifest says which
    files count.
    """

    name = ""

    def __init__(self, filesystem: pyarrow.fs.FileSystem, base: str):
        self._filesystem = filesystem
        self._base = base

    def create(self, tp: TopicPartition, start: int, folder: str, suffix: str) -> Target:
        path = unique_file_name(*tp, start, uuid.uuid4().hex, folder, suffix)
        return _RemoteTarget(self._filesystem, f"{self._base}/{path}", path)

    def remove(self, target: Target) -> None:
        target.discard()

    def progress(self) -> Progress | NoProgress:
        return NoProgress()


class _RemoteTarget:
    name = ""

    def __init__(self, filesystem: pyarrow.fs.FileSystem, place: str, path: str):
        self._filesystem = filesystem
        self._place = place
        self.path = path
        make_folder(filesystem, place.rpartition("/")[0])
        self.stream = filesystem.open_output_stream(place, compression=None)

    def settle(self) -> int:
        real, place = underlying(self._filesystem, self._place)
        if real.type_name == "local":
            with open(place, "rb") as file:
                os.fsync(file.fileno())
        size = self._filesystem.get_file_info(self._place).size
        if size is None:
            raise OSError(f"{self._place} was written and is not there")
        return int(size)

    def discard(self) -> None:
        try:
            self._filesystem.delete_file(self._place)
        except OSError:
            pass  # never there, or swept at the next opening


def make_folder(filesystem: Any, path: str) -> None:
    """Folders up to ``path``, where there are such things: object stores have names with slashes in them."""
    if underlying(filesystem, path)[0].type_name not in ("s3", "gcs", "abfs"):
        filesystem.create_dir(path, recursive=True)


def underlying(filesystem: Any, path: str) -> tuple[Any, str]:
    """The file system that a SubTreeFileSystem stands on, and the path there."""
    while isinstance(filesystem, pyarrow.fs.SubTreeFileSystem):
        filesystem, path = filesystem.base_fs, f"{filesystem.base_path.rstrip('/')}/{path.lstrip('/')}"
    return filesystem, path


class Progress:
    """How far each task is, in a file that all tasks and the driver see: 8 bytes per slot, bytes of log read."""

    def __init__(self, stage: Path):
        self._descriptor = os.open(stage / "progress", os.O_RDWR | os.O_CREAT, 0o666)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._descriptor)

    def put(self, slot: int, bytes_done: int) -> None:
        os.pwrite(self._descriptor, bytes_done.to_bytes(8, "little"), slot * 8)

    def total(self) -> int:
        """The sum over all slots. A slot that was never written counts as 0."""
        data = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)
        return int(np.frombuffer(data[: len(data) // 8 * 8], "<i8").sum())


class NoProgress:
    """Where there is no file that all see, nobody knows before the end."""

    def __enter__(self) -> NoProgress:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def put(self, slot: int, bytes_done: int) -> None:
        """Nothing."""

    def total(self) -> int:
        return 0
