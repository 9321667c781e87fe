"""The checker: was everything that is in the logs delivered, in order, by one owner at a time, and committed honestly?

It reads the history of one group (see :mod:`faults.history`) and the logs. Who owned a partition, and when, it takes
from the observer alone: a delivery counts to the last time its member came to own the partition, its *stint*. So a
member that goes on delivering what it has lost makes its old stint longer, into that of the next owner.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from faults.history import Event

from kafka07c import Log
from kafka07c.names import TopicPartition
from kafka07c.segments import find_logs

#: faults after which the partitions of the member need a new owner
OWNER_GONE = {"kill -9", "leave", "stop past the session", "cut off past the session", "session expiry"}

#: ZooKeeper's log has whole ms, cut off; members stamp what they were given after they were given it
_CLOCK = 0.002


class Record(NamedTuple):
    """A message that is in a log, and its id: its payload up to the first space."""

    offset: int
    index: int
    next_offset: int
    id: str


def read_logs(log_dir: Path, broker: int) -> dict[str, list[Record]]:
    """All records of a broker's logs, by partition; raises what is wrong with a log."""
    logs = {}
    for directory in find_logs(log_dir):
        log = Log(directory, broker=broker)
        records = logs[str(TopicPartition(log.topic, broker, log.partition))] = []
        for messages in log.scan():
            records += [Record(m.offset, m.index, m.next_offset, record_id(m.value)) for m in messages]
    return logs


def record_id(payload: bytes) -> str:
    return payload.partition(b" ")[0].decode()


@dataclass
class Verdict:
    """What a run was like; ``violations`` by rule, none of which may be there. Times in seconds."""

    faults: Counter[str] = field(default_factory=Counter)
    records: int = 0
    deliveries: int = 0
    lost: int = 0
    duplicates: int = 0
    rewinds: int = 0
    commits: int = 0
    overlap: float = 0.0
    takeovers: list[float] = field(default_factory=list)
    violations: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def new_owner(self) -> float:
        """The longest time that a partition waited for a new owner."""
        return max(self.takeovers, default=0.0)

    @property
    def ok(self) -> bool:
        return not self.violations

    def told(self, each: int = 3) -> str:
        """The violations, some of each kind."""
        lines = []
        for rule, found in self.violations.items():
            lines += [f"{rule}: {len(found)} times"] + [f"    {text}" for text in found[:each]]
        return "\n".join(lines)


def check(
    events: Sequence[Event], logs: Mapping[str, Sequence[Record]], *, session: float, new_owner: float | None = None
) -> Verdict:
    """Check the history of one group against the logs of its partitions.

    ``session`` is the session time-out: what the overlap may last. ``new_owner``: how long a partition may wait for
    one, two session time-outs unless given.
    """
    verdict = Verdict()
    verdict.faults.update(event["kind"] for event in events if event.what == "fault")
    by_partition: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if "partition" in event.fields:
            by_partition[event["partition"]].append(event)
    for partition in sorted(logs.keys() | by_partition.keys()):
        _Partition(partition, logs.get(partition, ()), by_partition[partition], verdict).check(session)
    _check_new_owners(events, 2 * session if new_owner is None else new_owner, verdict)
    return verdict


@dataclass
class _Stint:
    """One member's ownership of a partition, from getting it to losing it, and what it delivered on its strength."""

    member: str
    session: int
    start: float
    committed: int  # what was committed when it began
    first: float | None = None
    last: float | None = None
    rank: int | None = None  # of the record delivered last


class _Partition:
    """The checks of one partition. A record's *rank* is its place in the log."""

    def __init__(self, name: str, records: Sequence[Record], events: Sequence[Event], verdict: Verdict):
        self.name = name
        self.records = records
        self.verdict = verdict
        self.ranks = {(record.offset, record.index): rank for rank, record in enumerate(records)}
        self.offsets = [record.offset for record in records]
        self.first_delivery: list[float | None] = [None] * len(records)
        self.stints: list[_Stint] = []
        self.resets = [event for event in events if event.what == "reset"]
        self.jumps_left = len(self.resets)
        self.observed = [event for event in events if event.by == "observer"]
        self.deliveries = [event for event in events if event.what == "delivered"]

    def check(self, session: float) -> None:
        self._find_stints()
        self._check_deliveries()
        self._check_commits()
        self._check_overlap(session)
        lost = [record for record, at in zip(self.records, self.first_delivery) if at is None]
        self.verdict.records += len(self.records)
        self.verdict.lost += len(lost)
        for record in lost:
            self._complain("lost", f"{record} was never delivered")

    def _complain(self, rule: str, text: str) -> None:
        self.verdict.violations[rule].append(f"{self.name}: {text}")

    def _find_stints(self) -> None:
        committed = 0
        for event in self.observed:
            if event.what == "committed":
                committed = event["offset"] or 0
            elif event.what == "owned":
                resets = [reset["offset"] or 0 for reset in self.resets if reset.at >= event.at - _CLOCK]
                self.stints.append(_Stint(event["member"], event["session"], event.at, min([committed, *resets])))

    # deliveries

    def _check_deliveries(self) -> None:
        of_member: dict[str, list[_Stint]] = defaultdict(list)
        for stint in self.stints:
            of_member[stint.member].append(stint)
        for event in self.deliveries:
            stints = of_member[event.by]
            number = bisect_right(stints, event.at + _CLOCK, key=lambda stint: stint.start)
            if number == 0:
                self._complain("delivered by a stranger", f"{event} without owning it")
                continue
            stint = stints[number - 1]
            stint.first = event.at if stint.first is None else stint.first
            stint.last = event.at
            for offset, index, identity in event["records"]:
                self._check_delivery(event.at, stint, offset, index, identity)
        self._check_order()

    def _check_delivery(self, at: float, stint: _Stint, offset: int, index: int, identity: str) -> None:
        self.verdict.deliveries += 1
        rank = self.ranks.get((offset, index))
        if rank is None or self.records[rank].id != identity:
            self._complain("not in the log", f"{stint.member} delivered {identity!r} at {offset}, index {index}")
            return
        if stint.rank is not None and rank != stint.rank + 1:
            self._check_jump(at, stint, rank)
        stint.rank = rank
        if offset < stint.committed:
            text = f"{stint.member} delivered {identity!r} at {offset}, but {stint.committed} was committed before"
            self._complain("repeated what was committed", text)
        if self.first_delivery[rank] is None:
            self.first_delivery[rank] = at
        else:
            self.verdict.duplicates += 1

    def _check_jump(self, at: float, stint: _Stint, rank: int) -> None:
        """Within a stint one record follows the other; an operator's reset is the only thing that may change that."""
        if self.jumps_left and any(reset.at <= at for reset in self.resets):
            self.jumps_left -= 1
            return
        again = rank <= stint.rank and self.first_delivery[rank] is not None
        rule = "repeated without reason" if again else "out of order"
        before, now = self.records[stint.rank], self.records[rank]
        self._complain(rule, f"{stint.member} delivered {now.id!r} at {now.offset} after {before.id!r}")

    def _check_order(self) -> None:
        """Repeats aside, what is earlier in the log was delivered earlier."""
        latest, what = float("-inf"), ""
        for record, at in zip(self.records, self.first_delivery):
            if at is not None and at < latest:
                self._complain("out of order", f"{record.id!r} was delivered before {what!r}")
            elif at is not None:
                latest, what = at, record.id

    # commits

    def _check_commits(self) -> None:
        delivered_up_to = self._delivered_up_to()
        boundaries = {0, *self.offsets, *(record.next_offset for record in self.records)}
        resets = list(self.resets)
        stints = iter(self.stints)
        owner: _Stint | None = None
        committed = 0
        for event in self.observed:
            if event.what == "owned":
                owner = next(stints)
            elif event.what == "disowned":
                owner = None
            elif event.what == "committed":
                self.verdict.commits += 1
                offset = event["offset"]
                operators = [each for each in resets if each["offset"] == offset and each.at <= event.at + _CLOCK]
                if operators:
                    resets.remove(operators[0])
                else:
                    self._check_commit(event, committed, owner, delivered_up_to, boundaries)
                committed = offset or 0

    def _check_commit(self, event, committed, owner, delivered_up_to, boundaries) -> None:
        offset = event["offset"]
        if offset is None or offset < committed:
            self.verdict.rewinds += 1
            self._complain("commit went back", f"from {committed} to {offset} by {self._told(owner)}")
            return
        if owner is None or owner.session != event["session"]:
            self._complain("committed by a stranger", f"{offset} by {event['session']:#x}; {self._told(owner)} owns it")
        if offset not in boundaries:
            self._complain("committed where no entry begins", f"{offset} by {self._told(owner)}")
        before = bisect_left(self.offsets, offset)
        if before and delivered_up_to[before - 1] > event.at + _CLOCK:
            self._complain("committed before it was delivered", f"{offset} by {self._told(owner)} at {event.at:.3f}")

    def _delivered_up_to(self) -> list[float]:
        """For each record, when the last of those up to it was first delivered; infinity where one never was."""
        times, latest = [], float("-inf")
        for at in self.first_delivery:
            latest = max(latest, float("inf") if at is None else at)
            times.append(latest)
        return times

    @staticmethod
    def _told(owner: _Stint | None) -> str:
        return "nobody" if owner is None else f"{owner.member} (session {owner.session:#x})"

    # owners

    def _check_overlap(self, session: float) -> None:
        """How long an owner went on delivering after a later one had begun to."""
        delivering = [stint for stint in self.stints if stint.first is not None]
        for number, stint in enumerate(delivering):
            for later in delivering[number + 1 :]:
                if later.start > stint.last:
                    break
                overlap = stint.last - later.first
                if later.member == stint.member or overlap <= 0:
                    continue
                self.verdict.overlap = max(self.verdict.overlap, overlap)
                if overlap > session:
                    text = f"{stint.member} went on for {overlap:.3f} s after {later.member} had begun to deliver"
                    self._complain("two owners at once", text)


def _check_new_owners(events: Sequence[Event], limit: float, verdict: Verdict) -> None:
    """The time from the end of an owner to the next one, for each partition that it had."""
    observed = [event for event in events if event.by == "observer" and event.what in ("owned", "disowned")]
    claims: dict[str, list[Event]] = defaultdict(list)
    for event in observed:
        if event.what == "owned":
            claims[event["partition"]].append(event)
    end = max((event.at for event in events), default=0.0)
    for fault in events:
        if fault.what != "fault" or fault["kind"] not in OWNER_GONE:
            continue
        for partition in _owned_at(observed, fault.at, fault["target"]):
            later = claims[partition][bisect_right(claims[partition], fault.at, key=lambda event: event.at) :]
            waited = (later[0].at if later else end) - fault.at
            if later:
                verdict.takeovers.append(waited)
            if waited > limit:
                text = f"{partition} waited {waited:.3f} s after {fault['kind']} of {fault['target']}"
                verdict.violations["no new owner in time"].append(text)


def _owned_at(observed: Iterable[Event], at: float, member: str) -> list[str]:
    owners: dict[str, str] = {}
    for event in observed:
        if event.at > at:
            break
        if event.what == "owned":
            owners[event["partition"]] = event["member"]
        else:
            owners.pop(event["partition"], None)
    return [partition for partition, owner in owners.items() if owner == member]
