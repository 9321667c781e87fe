"""The observer: who owned what of a group, and what was committed, as ZooKeeper's own transaction log has it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from faults.history import Event
from faults.transactions import Change

_NODE = re.compile(
    r"/consumers/(?P<group>[^/]+)/(?P<kind>owners|offsets)/(?P<topic>[^/]+)/(?P<partition>[0-9]+-[0-9]+)"
)


def observe(changes: Iterable[Change], group: str, chroot: str = "") -> list[Event]:
    """The history of one group: who owned which partition, and what was committed, by which session."""
    since_1970 = time.time() - time.monotonic()
    owners: dict[str, int] = {}  # partition -> session
    events = []

    def add(change: Change, what: str, **fields) -> None:
        events.append(Event(change.time_ms / 1000 - since_1970, what, "observer", fields))

    for change in changes:
        if change.path is None:
            for partition in [partition for partition, session in owners.items() if session == change.session]:
                del owners[partition]
                add(change, "disowned", partition=partition, session=change.session)
            add(change, "session ended", session=change.session)
            continue
        match = _NODE.fullmatch(change.path.removeprefix(chroot))
        if match is None or not change.path.startswith(chroot) or match["group"] != group:
            continue
        partition = f"{match['topic']} {match['partition']}"
        if match["kind"] == "offsets":
            offset = None if change.data is None else int(change.data)
            add(change, "committed", partition=partition, offset=offset, session=change.session)
        elif change.data is None:
            owners.pop(partition, None)
            add(change, "disowned", partition=partition, session=change.session)
        else:
            owners[partition] = change.session
            member = member_of(change.data.decode(), group)
            add(change, "owned", partition=partition, member=member, session=change.session)
    return events


def member_of(thread: str, group: str) -> str:
    """The consumer id in a thread's id ``GROUP_CONSUMER-N``."""
    return thread.removeprefix(f"{group}_").rpartition("-")[0]
