"""The checker: did every record get one final state, is it true, and is what is in the logs what was handed over?

It reads the history of one stage (see :mod:`faults.history`) and the logs from disk. The logs are the judge: what a
sender was told is held against them.

A record that is in no log, and was told neither ``failed`` nor ``unknown``, is *lost*. With ``verify`` none may be.
Without, there is only the broker's word that it went on to the next request: a loss is counted, and allowed where a
connection to the broker was made to die between the hand-over and the telling, or where the broker crashed with what it
had not flushed.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from faults.history import Event

from kafka07c import Log
from kafka07c.names import TopicPartition, parse_partition
from kafka07c.segments import find_logs

#: faults in which no connection dies
HARMLESS = {"delayed", "sliced to one byte", "sender killed"}

#: the fault in which a broker loses what it has not flushed, and how many seconds that may be old (see the scenario)
CRASH = "broker crashed"
UNFLUSHED = 5.0

#: seconds by which a sender may be late to learn that a broker has gone
_LEARNS = 5.0

_OK = ("written", "verified")


class Stored(NamedTuple):
    """A message in a log: where, where its stored entry starts, its id, and whether its payload is what it should be.

    ``rank``: its place in the log.
    """

    partition: str
    rank: int
    offset: int
    id: str
    sound: bool


def payload(identity: str, size: int) -> bytes:
    """The payload of a record: its id and a space, then as many bytes as are wanted, which follow from the id."""
    head = identity.encode() + b" "
    pattern = b"%08x" % zlib.crc32(head)
    return head + (pattern * (size // 8 + 1))[: max(0, size - len(head))]


def identify(value: bytes) -> tuple[str, bool]:
    """The id in a payload, and whether the rest of it is what :func:`payload` makes."""
    value = bytes(value)
    identity = value.partition(b" ")[0].decode(errors="replace")
    return identity, value == payload(identity, len(value))


def read_stored(log_dir: Path, broker: int) -> list[Stored]:
    """All messages of a broker's logs; raises what is wrong with a log."""
    found = []
    for directory in find_logs(log_dir):
        log = Log(directory, broker=broker)
        partition = str(TopicPartition(log.topic, broker, log.partition))
        messages = (message for messages in log.scan() for message in messages)
        for rank, message in enumerate(messages):
            found.append(Stored(partition, rank, message.offset, *identify(message.value)))
    return found


@dataclass
class Verdict:
    """What a run was like, in records; ``violations`` by rule, none of which may be there."""

    faults: Counter[str] = field(default_factory=Counter)
    handed: int = 0
    states: Counter[str] = field(default_factory=Counter)
    open: int = 0  # without a final state, because their sender was killed
    stored: int = 0
    lost: int = 0
    duplicates: int = 0
    resends: int = 0
    violations: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def ok(self) -> bool:
        return not self.violations

    def told(self, each: int = 3) -> str:
        """The violations, some of each kind."""
        lines = []
        for rule, found in self.violations.items():
            lines += [f"{rule}: {len(found)} times"] + [f"    {text}" for text in found[:each]]
        return "\n".join(lines)


def check(events: Sequence[Event], stored: Iterable[Stored]) -> Verdict:
    """Check the history of one stage against all that its brokers have stored."""
    return _Checker(events, stored).check()


@dataclass(slots=True)
class _Record:
    """One record, from the hand-over to its end."""

    id: str
    stream: str
    number: int
    by: str
    handed: float
    call: str
    topic: str
    wanted: str | None  # the partition, where one was asked for
    raised: str | None = None
    told: Event | None = None
    stored: list[Stored] = field(default_factory=list)

    @property
    def state(self) -> str | None:
        return None if self.told is None else self.told["state"]

    @property
    def partition(self) -> str | None:
        """Where it is said to be."""
        return None if self.told is None else self.told["partition"]

    def __str__(self) -> str:
        told = "nothing" if self.told is None else f"{self.state} in {self.partition} at {self.told.at:.3f}"
        places = ", ".join(f"{each.partition} at {each.offset}" for each in self.stored) or "nowhere"
        return f"{self.id!r} ({self.call}, handed over at {self.handed:.3f}; told {told}; stored {places})"


class _Checker:
    def __init__(self, events: Sequence[Event], stored: Iterable[Stored]):
        self.verdict = Verdict()
        self.events = events
        self.records: dict[str, _Record] = {}
        self.verifies = {event.by: event["verify"] for event in events if event.what == "began"}
        self.ended = {event.by: event["left"] for event in events if event.what == "ended"}
        self.gone: dict[str, list[float]] = defaultdict(list)
        self.died: dict[str, list[float]] = defaultdict(list)
        self.crashed: dict[str, list[float]] = defaultdict(list)
        self._read_faults()
        self._read_hand_overs()
        self._read_telling()
        self._read_stored(stored)

    def check(self) -> Verdict:
        for record in self.records.values():
            self._check_state(record)
            self._check_repeats(record)
        for by, left in self.ended.items():
            if left:
                self._complain("not flushed", f"{by} had {left} records without a final state when it flushed")
        self._check_order()
        return self.verdict

    def _complain(self, rule: str, what: Any) -> None:
        self.verdict.violations[rule].append(str(what))

    # reading

    def _read_faults(self) -> None:
        for event in self.events:
            if event.what == "gone":
                self.gone[event["target"]].append(event.at)
            elif event.what == "fault":
                self.verdict.faults[event["kind"]] += 1
                if event["kind"] not in HARMLESS:
                    self.died[event["target"]].append(event.at)
                if event["kind"] == CRASH:
                    self.crashed[event["target"]].append(event.at)

    def _read_hand_overs(self) -> None:
        for event in self.events:
            if event.what == "handed":
                for identity, number in _numbered(event):
                    self.records[identity] = _Record(
                        identity, event["stream"], number, event.by, event.at, event["call"], event["topic"],
                        event["partition"],
                    )  # fmt: skip
        self.verdict.handed = len(self.records)
        for event in self.events:
            if event.what == "raised":
                for identity, _ in _numbered(event):
                    self.records[identity].raised = event["error"]

    def _read_telling(self) -> None:
        for event in self.events:
            if event.what != "told":
                continue
            self.verdict.states[event["state"]] += len(event["ids"])
            self.verdict.resends += event["resends"] * len(event["ids"])
            for identity in event["ids"]:
                record = self.records.get(identity)
                if record is None:
                    self._complain("told of what was not handed over", event)
                elif record.told is not None:
                    self._complain("told twice", f"{record}; then {event}")
                else:
                    record.told = event

    def _read_stored(self, stored: Iterable[Stored]) -> None:
        for each in stored:
            record = self.records.get(each.id)
            if record is None:
                self._complain("stored, but not handed over", each)
            elif not each.sound:
                self._complain("changed on the way", each)
            else:
                self.verdict.stored += 1
                record.stored.append(each)

    # states

    def _check_state(self, record: _Record) -> None:
        verify = self.verifies[record.by]
        if record.told is None:
            self._check_untold(record)
            return
        if record.raised is not None and record.call == "send" and record.state in _OK:
            self._complain("raised, and yet told it is there", f"{record}: {record.raised}")
        if record.state not in ("verified" if verify else "written", "failed", "unknown" if verify else "failed"):
            self._complain("told what it cannot be", record)
        if record.state in _OK:
            self._check_presence(record, verify)

    def _check_untold(self, record: _Record) -> None:
        if record.raised is not None:
            return
        if record.by in self.ended:
            self._complain("never told", record)
        else:
            self.verdict.open += 1

    def _check_presence(self, record: _Record, verify: bool) -> None:
        here = [each for each in record.stored if record.partition in (None, each.partition)]
        if not here:
            self.verdict.lost += 1
            if verify:
                self._complain("lost", record)
            elif not self._may_be_lost(record):
                self._complain("lost without a reason", record)
        elif record.state == "verified" and not self._is_where_it_was_verified(record, here):
            self._complain("not where it was verified", f"{record}, said to be at {record.told['offset']}")

    def _may_be_lost(self, record: _Record) -> bool:
        brokers = list(self.died) if record.partition is None else [_broker(record.partition)]
        return any(
            any(record.handed <= at <= record.told.at for at in self.died[broker])
            or any(record.handed <= at <= record.told.at + UNFLUSHED for at in self.crashed[broker])
            for broker in brokers
        )

    def _is_where_it_was_verified(self, record: _Record, here: list[Stored]) -> bool:
        offset = record.told["offset"]
        if record.call != "send_batch":
            return any(each.offset == offset for each in here)
        # told of the whole column: it starts at the offset; the rest is behind that, unless it is in several partitions
        if record.id == record.told["ids"][0]:
            others = (self.records[identity] for identity in record.told["ids"] if identity in self.records)
            return any(each.offset == offset for other in others for each in other.stored)
        return record.partition is None or any(each.offset >= offset for each in here)

    # repeats, order

    def _check_repeats(self, record: _Record) -> None:
        elsewhere = [each for each in record.stored if record.wanted not in (None, each.partition)]
        if elsewhere:
            self._complain("in another partition than was asked for", record)
        repeats = max(0, len(record.stored) - 1)
        self.verdict.duplicates += repeats
        if record.told is not None and repeats > record.told["resends"]:
            self._complain("repeated without being sent again", f"{record}: {record.told['resends']} resends")

    def _check_order(self) -> None:
        """What one stream has in one partition is first there in the order in which it was handed over."""
        firsts: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        for record in self.records.values():
            if record.stored and self._has_an_order(record):
                for each in record.stored:
                    ranks = firsts[record.stream, each.partition]
                    ranks[record.number] = min(each.rank, ranks.get(record.number, each.rank))
        for (stream, partition), ranks in firsts.items():
            latest = -1
            for number in sorted(ranks, key=ranks.__getitem__):
                if number < latest:
                    record = self.records[f"{stream}:{number}"]
                    self._complain("out of order", f"{record} comes after {stream}:{latest} in {partition}")
                latest = max(latest, number)

    def _has_an_order(self, record: _Record) -> bool:
        """Not what was given up, nor what a broker put where it liked, nor what may have been on its way to a broker
        that then went away: that goes to another partition, with its batch."""
        if record.told is None or record.state not in _OK or record.partition is None:
            return False
        return record.wanted is not None or not any(
            record.handed - _LEARNS <= at <= record.told.at for times in self.gone.values() for at in times
        )


def _numbered(event: Event) -> Iterable[tuple[str, int]]:
    stream, first = event["stream"], event["first"]
    return ((f"{stream}:{number}", number) for number in range(first, first + event["count"]))


def _broker(partition: str) -> str:
    """``broker 1`` for ``clicks 1-0``."""
    broker, _ = parse_partition(partition.rpartition(" ")[2])
    return f"broker {broker}"
