"""What ZooKeeper's own transaction log says: every change, who made it, and when.

A watch sees only the last of several changes that follow each other quickly, and an operator's client may be late.
The servers write every change in the order in which all members see them, with the session that made it and the time
in ms; nothing is missing there. Format: ZooKeeper 3.4 to 3.9, ``FileTxnLog`` and ``zookeeper.jute``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"ZKLG"
_CREATES = {1, 15, 19, 21}  # create, create2, container, with a time to live
_DELETES = {2, 20}
_SET, _MULTI, _CLOSE_SESSION, _ERROR = 5, 14, -11, -1


@dataclass(frozen=True)
class Change:
    """One node, or a whole session, as a transaction left it. ``data`` is None for a node that was deleted."""

    zxid: int
    time_ms: int
    session: int
    path: str | None  # None: the session has ended, its ephemeral nodes with it
    data: bytes | None = None
    ephemeral: bool = False


class _Jute:
    """Reads the serialization of ZooKeeper's records."""

    def __init__(self, data: bytes):
        self._data = data
        self._at = 0

    def _unpack(self, kind: str) -> int:
        (value,) = struct.unpack_from(kind, self._data, self._at)
        self._at += struct.calcsize(kind)
        return value

    def int(self) -> int:
        return self._unpack(">i")

    def long(self) -> int:
        return self._unpack(">q")

    def boolean(self) -> bool:
        return bool(self._unpack(">b"))

    def buffer(self) -> bytes:
        size = max(self.int(), 0)
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        return self.buffer().decode()

    def skip_acl(self) -> None:
        for _ in range(self.int()):
            self.int(), self.text(), self.text()


def read_changes(folders: Iterable[Path]) -> list[Change]:
    """All changes in the logs of one server, or of all servers of an ensemble, in the order in which they were made.

    Servers that were down miss some of the transactions and get them as a snapshot, so the logs are taken together.
    """
    transactions = {}
    for folder in folders:
        for path in sorted(Path(folder, "version-2").glob("log.*")):
            transactions |= {zxid: transaction for zxid, *transaction in _transactions(path.read_bytes())}
    return [change for zxid, transaction in sorted(transactions.items()) for change in _changes(zxid, *transaction)]


def _transactions(log: bytes) -> Iterator[tuple[int, int, int, int, _Jute]]:
    """``(zxid, ms, session, type, record)`` of each; what is preallocated, or just being written, ends it."""
    if log[:4] != _MAGIC:
        return
    at = 16
    while len(log) >= at + 12:
        (size,) = struct.unpack_from(">i", log, at + 8)
        at += 12 + size + 1
        if size <= 0 or log[at - 1 : at] != b"B":
            return
        record = _Jute(log[at - 1 - size : at - 1])
        session, _, zxid, milliseconds, kind = record.long(), record.int(), record.long(), record.long(), record.int()
        yield zxid, milliseconds, session, kind, record


def _changes(zxid: int, time_ms: int, session: int, kind: int, record: _Jute) -> Iterator[Change]:
    if kind in _CREATES:
        path, data = record.text(), record.buffer()
        record.skip_acl()
        yield Change(zxid, time_ms, session, path, data, kind in (1, 15) and record.boolean())
    elif kind == _SET:
        yield Change(zxid, time_ms, session, record.text(), record.buffer())
    elif kind in _DELETES:
        yield Change(zxid, time_ms, session, record.text())
    elif kind == _CLOSE_SESSION:
        yield Change(zxid, time_ms, session, None)
    elif kind == _MULTI:
        parts = [(record.int(), _Jute(record.buffer())) for _ in range(record.int())]
        if all(part_kind != _ERROR for part_kind, _ in parts):  # else nothing of it was done
            for part_kind, part in parts:
                yield from _changes(zxid, time_ms, session, part_kind, part)
