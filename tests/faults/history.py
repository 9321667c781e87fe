"""What happened in a run: JSON lines that every process writes and one checker reads.

Each line has ``at`` (CLOCK_MONOTONIC, which all processes of a machine share), ``wall`` (seconds since 1970), ``by``
(who writes), ``what``, and more by what happened. By the stage there is:

=============== ====================================================================================================
fault           kind, target; what it is that is done to whom
=============== ====================================================================================================

of groups:

=============== ====================================================================== =============================
what            more                                                                   by
=============== ====================================================================== =============================
delivered       partition, records [[offset, index, id], …]                            a member
assigned        partitions                                                             a member
revoked         partitions, can_commit                                                 a member
failed          error                                                                  a member, the producer
owned           partition, member, session                                             the observer
disowned        partition, session                                                     the observer
committed       partition, offset (None: deleted), session                             the observer
session ended   session                                                                the observer
reset           partition, offset: an operator's                                       who does it
=============== ====================================================================== =============================

and of producing, where a record's id is ``STREAM:NUMBER`` and a stream is what one thread sends, numbered from 0:

=============== ====================================================================== =============================
what            more                                                                   by
=============== ====================================================================== =============================
began           verify: whether what is written is to be read back                     a sender
handed          stream, first, count, call, topic, partition (None: not chosen)        a sender, before the call
raised          stream, first, count, call, error                                      a sender
told            ids, state, partition, offset, resends, error                          a sender, in the callback
ended           left: records without a final state when it flushed                    a sender, after ``close()``
gone            target: a broker that was registered and is so no more                 the observer
=============== ====================================================================== =============================

A partition is ``str(TopicPartition)``. A line is one ``write`` to a file opened for appending, so nothing of it is
lost when its process is killed; only the last line of a killed process may be cut short.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class Event:
    """One line."""

    at: float
    what: str
    by: str
    fields: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.by}: {self.what} {self.fields}"


class Writer:
    """Appends events to ``folder/by.jsonl``; safe from several threads."""

    def __init__(self, folder: str | Path, by: str):
        self.by = by
        self.path = Path(folder, by + SUFFIX)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, what: str, *, at: float | None = None, **fields: Any) -> Event:
        """Write that this happened ``at`` this time: now, unless it is given."""
        now = time.monotonic()
        at = now if at is None else at
        line = {"at": round(at, 6), "wall": round(time.time() - now + at, 6), "by": self.by, "what": what} | fields
        os.write(self._descriptor, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        return Event(at, what, self.by, fields)

    def close(self) -> None:
        os.close(self._descriptor)


def read(folder: str | Path) -> list[Event]:
    """All that was written, in the order of time."""
    events = [event for path in Path(folder).glob("*" + SUFFIX) for event in read_lines(path)]
    return sorted(events, key=lambda event: event.at)


def read_lines(path: Path) -> Iterator[Event]:
    """The events of one process; a last line that was cut short is left out."""
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                fields = json.loads(line)
                del fields["wall"]
                yield Event(fields.pop("at"), fields.pop("what"), fields.pop("by"), fields)
