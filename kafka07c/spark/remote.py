"""An output on a file system of pyarrow's: s3://, gs://, hdfs://, file://, or one that the caller has made.

There, nothing is renamed and nothing locked. Files get their final names at once, each one that no other file ever had
(a random token is part of it), and only those count that a manifest names: see `files_of`. The manifest is written
under its number and is the commit. Opening the output removes files of ours that no manifest names.

**One writer at a time** is the user's business where the file system has nothing to see to it. What there is: a
manifest is created only if its number is free, in one step on HDFS (a rename that does not replace) and on local disks (a
hard link), and with a look before and after elsewhere, which two writers in the same moment can get past; and a commit first
looks whether its files are still there, for another writer's opening would have removed them. Either ends in a
ManifestError and not in rows that are there twice.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.fs

from kafka07c.errors import ManifestError, OutputFolderError
from kafka07c.spark.manifest import (
    STATE,
    DataFile,
    Ledger,
    Manifest,
    Output,
    PartitionRun,
    committed,
    committed_files,
    manifest_name,
    now,
    numbers,
    read_manifest,
)
from kafka07c.spark.stages import RemoteStage, make_folder, underlying

__all__ = ["Out", "RemoteOutput", "columns_held", "files_of", "is_remote", "open_output"]

#: a folder, a URI, or a file system of pyarrow's with a path on it
Out: TypeAlias = "str | os.PathLike[str] | tuple[pyarrow.fs.FileSystem, str]"

_OURS = re.compile(r"-\d{20}-[0-9a-f]{32}\.[a-z.]+")


def is_remote(out: Out) -> bool:
    """``out`` is not simply a folder."""
    return isinstance(out, tuple) or (isinstance(out, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", out) is not None)


def open_output(out: Out) -> Output | RemoteOutput:
    """The one writer of ``out``; see Output and RemoteOutput for what it raises."""
    if not is_remote(out):
        assert not isinstance(out, tuple)
        return Output(out)
    return RemoteOutput(out)


def files_of(out: Out) -> list[str]:
    """All data files that count, by their manifests, in the order in which they were committed.

    Of a folder their paths; of a URI that URI with the path added; of a file system of pyarrow's paths on it. What is
    in the folder besides them does not count: files of a commit that was never finished.
    """
    if not is_remote(out):
        assert not isinstance(out, tuple)
        return committed_files(out)
    filesystem, base = _place(out)
    prefix = base if isinstance(out, tuple) else str(out).rstrip("/")
    manifests = _manifests(filesystem, base)
    return [f"{prefix}/{file.path}" for each in manifests for run in each.partitions for file in run.files]


def columns_held(out: Out) -> dict[str, str] | None:
    """The columns that decoders made in ``out`` so far, and their types; None if there are none."""
    if is_remote(out):
        manifests = _manifests(*_place(out))
    else:
        assert not isinstance(out, tuple)
        manifests = committed(Path(out))
    held = [manifest.columns for manifest in manifests if manifest.columns is not None]
    return {name: kind for columns in held for name, kind in columns.items()} or None


def _place(out: Out) -> tuple[pyarrow.fs.FileSystem, str]:
    if isinstance(out, tuple):
        filesystem, path = out
    else:
        try:
            filesystem, path = pyarrow.fs.FileSystem.from_uri(str(out))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise OutputFolderError(f"{out}: {' '.join(str(error).split())}") from None
    return filesystem, path.rstrip("/")


def _manifests(filesystem: pyarrow.fs.FileSystem, base: str) -> list[Manifest]:
    folder = f"{base}/{STATE}/manifests"
    found = filesystem.get_file_info(pyarrow.fs.FileSelector(folder, allow_not_found=True))
    manifests = []
    for number in numbers(info.base_name for info in found if info.is_file):
        path = f"{folder}/{manifest_name(number)}"
        manifests.append(read_manifest(_read(filesystem, path), number, path))
    return manifests


def _read(filesystem: pyarrow.fs.FileSystem, path: str) -> bytes:
    with filesystem.open_input_stream(path, compression=None) as stream:
        return bytes(stream.read())


class RemoteOutput(Ledger):
    """The writer of an output on a file system of pyarrow's, from opening to ``close()``; a context manager.

    Opening reads the manifests and removes files of ours that none names. Raises ManifestError: it holds other things,
    a manifest is damaged or is of a newer format. OSError: as the file system says.
    """

    def __init__(self, out: Out):
        super().__init__()
        self.path = out if isinstance(out, str) else str(out[1] if isinstance(out, tuple) else out)
        self._is_uri = isinstance(out, str)
        self._filesystem, self._base = _place(out)
        named = set()
        self._check_is_ours()
        # listed before the manifests are read: what is committed meanwhile is not taken for a leftover
        there = self._listed()
        for manifest in _manifests(self._filesystem, self._base):
            self._take_in(manifest, manifest_name(manifest.number))
            named |= {file.path for file in manifest.files}
        for path in there:
            if path not in named:
                self._filesystem.delete_file(f"{self._base}/{path}")

    def __enter__(self) -> RemoteOutput:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held."""

    @property
    def checkpoint(self) -> str:
        """Where a stream's checkpoint has its place; ValueError where Spark could not find it."""
        if not self._is_uri:
            raise ValueError("a checkpoint has to be named for an output that is given as a file system of pyarrow's")
        uri = re.sub(r"\As3://", "s3a://", self.path)  # Spark's name for it
        return f"{uri.rstrip('/')}/{STATE}/checkpoint"

    def stage(self) -> RemoteStage:
        """Where the tasks write. From now on the place is known for ours, whatever comes of it."""
        make_folder(self._filesystem, f"{self._base}/{STATE}/manifests")
        marker = f"{self._base}/{STATE}/output"
        if self._filesystem.get_file_info(marker).type == pyarrow.fs.FileType.NotFound:
            _write(self._filesystem, marker, b"files that count are named in manifests\n")
        return RemoteStage(self._filesystem, self._base)

    def discard(self, stage: RemoteStage) -> None:
        """What the tasks wrote is removed at the next opening."""

    def commit(
        self,
        stage: RemoteStage,
        source: str,
        on_corrupt: str,
        partitions: Iterable[PartitionRun],
        to: str = "parquet",
        columns: dict[str, str] | None = None,
    ) -> Manifest:
        """Commits what ``partitions`` name.

        Raises ManifestError if a partition does not go on where its last commit ended, if a file is gone, or if another
        writer has used the number.
        """
        manifest = Manifest(self._last_number + 1, now(), source, on_corrupt, tuple(partitions), to, columns)
        for run in manifest.partitions:
            self._check_follows(run, "the new manifest")
        self._check_there(manifest.files)
        self._publish(manifest)
        self._take_in(manifest, "the new manifest")
        return manifest

    def _check_is_ours(self) -> None:
        info = self._filesystem.get_file_info(self._base)
        if info.is_file:
            raise OutputFolderError(f"{self.path} is not a folder")
        found = self._filesystem.get_file_info(pyarrow.fs.FileSelector(self._base, allow_not_found=True))
        if found and not any(each.base_name == STATE for each in found):
            raise OutputFolderError(f"{self.path} holds files that no ingest wrote: give an empty or a new folder")

    def _listed(self) -> list[str]:
        """Paths of files that are named as ours are."""
        selector = pyarrow.fs.FileSelector(self._base, recursive=True, allow_not_found=True)
        return [
            info.path.removeprefix(self._base).lstrip("/")
            for info in self._filesystem.get_file_info(selector)
            if info.is_file and _OURS.search(info.base_name)
        ]

    def _check_there(self, files: Iterable[DataFile]) -> None:
        expected = {f"{self._base}/{file.path}": file.bytes for file in files}
        for info in self._filesystem.get_file_info(list(expected)) if expected else ():
            if not info.is_file or info.size != expected[info.path]:
                raise ManifestError(
                    f"{info.path}, of this run, is gone or altered: has another writer opened {self.path}?"
                )

    def _publish(self, manifest: Manifest) -> None:
        path = f"{self._base}/{STATE}/manifests/{manifest_name(manifest.number)}"
        taken = ManifestError(f"{path} exists already: another writer is at work there")
        if self._filesystem.get_file_info(path).type != pyarrow.fs.FileType.NotFound:
            raise taken
        if not _create(self._filesystem, path, manifest.to_json()):
            raise taken


def _create(filesystem: Any, path: str, data: bytes) -> bool:
    """Writes a file that is not there yet; False: there is one, of other content."""
    filesystem, path = underlying(filesystem, path)
    temporary = f"{path}.{secrets.token_hex(8)}.tmp"
    kind = filesystem.type_name
    if kind == "local":
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        return True
    if kind == "hdfs":
        _write(filesystem, temporary, data)
        try:
            filesystem.move(temporary, path)
        except OSError:
            if filesystem.get_file_info(path).type == pyarrow.fs.FileType.NotFound:
                raise
            return False
        return True
    _write(filesystem, path, data)
    return _read(filesystem, path) == data


def _write(filesystem: Any, path: str, data: bytes) -> None:
    with filesystem.open_output_stream(path, compression=None) as stream:
        stream.write(data)
