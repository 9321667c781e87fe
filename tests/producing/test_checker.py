"""The checker, checked: a good history passes, and one that breaks a rule fails by that rule and no other."""

from __future__ import annotations

import pytest
from faults.history import Event
from producing.checker import Stored, check, identify, payload, read_stored

from kafka07c import build_message_set
from kafka07c.segments import Log

HERE, THERE = "clicks 0-0", "clicks 1-0"


def began(by, verify):
    return Event(0.0, "began", by, {"verify": verify})


def handed(at, stream, first, count=1, call="send", partition=None):
    fields = {"stream": stream, "first": first, "count": count, "call": call, "topic": "clicks"}
    return Event(at, "handed", stream[0], {**fields, "partition": partition})


def raised(at, stream, first, count=1, call="send"):
    fields = {"stream": stream, "first": first, "count": count, "call": call, "error": "QueueFullError: full"}
    return Event(at, "raised", stream[0], fields)


def told(at, ids, state, partition=HERE, offset=None, resends=0):
    fields = {"state": state, "partition": partition, "offset": offset, "resends": resends, "error": None}
    return Event(at, "told", ids[0][0], {"ids": list(ids), **fields})


def ended(by, left=0, at=9.0):
    return Event(at, "ended", by, {"left": left})


def fault(at, kind, target="broker 0"):
    return Event(at, "fault", "stage", {"kind": kind, "target": target})


def log(partition, *entries):
    """A log of entries of 10 bytes; an entry is an id, or several ids in a wrapper."""
    wrappers = [(entry,) if isinstance(entry, str) else entry for entry in entries]
    places = [(10 * number, identity) for number, wrapper in enumerate(wrappers) for identity in wrapper]
    return [Stored(partition, rank, offset, identity, True) for rank, (offset, identity) in enumerate(places)]


#: v verifies, w does not; each of them is one thread
GOOD = [
    began("v", True),
    began("w", False),
    handed(1.0, "v.0", 0, 2, "send_many", HERE),
    handed(1.0, "w.0", 0, 2, "send_many"),
    told(1.2, ["w.0:0", "w.0:1"], "written", THERE),
    told(1.3, ["v.0:0"], "verified", HERE, 0),
    told(1.3, ["v.0:1"], "verified", HERE, 10),
    handed(1.4, "v.0", 2, 2, "send_batch"),
    told(1.6, ["v.0:2", "v.0:3"], "verified", HERE, 20),
    handed(2.0, "v.0", 4),
    fault(2.1, "broker killed"),
    handed(2.2, "v.0", 5),
    told(4.0, ["v.0:4"], "verified", HERE, 50, resends=1),
    told(4.0, ["v.0:5"], "failed", None),
    ended("v"),
    ended("w"),
]
LOGS = [*log(HERE, "v.0:0", "v.0:1", ("v.0:2", "v.0:3"), "v.0:4", "v.0:4"), *log(THERE, "w.0:0", "w.0:1")]
LOGS = [each._replace(offset=each.offset + 10 * (each.offset >= 30)) for each in LOGS]  # the last entries at 40 and 50


def verdict(events, logs=LOGS):
    return check(sorted(events, key=lambda event: event.at), logs)


def without(what, at, number=0, events=GOOD):
    found = [event for event in events if (event.what, event.at) == (what, at)]
    return [event for event in events if event is not found[number]]


def test_a_good_history():
    found = verdict(GOOD)
    assert found.ok, found.told()
    assert (found.handed, found.stored, found.lost, found.duplicates, found.open) == (8, 8, 0, 1, 0)
    assert found.states == {"verified": 5, "written": 2, "failed": 1}
    assert found.resends == 1
    assert found.faults == {"broker killed": 1}


def stored(*changes):
    """LOGS with the record of an id at another place, or not at all."""
    return [changed for each in LOGS for changed in [dict(changes).get(each.id, each)] if changed is not None]


W = "w.0:1"
BAD = {
    "never told": (without("told", 1.2), LOGS),
    "told twice": ([*GOOD, told(5.0, [W], "written", THERE)], LOGS),
    "told of what was not handed over": ([*GOOD, told(5.0, ["v.0:6"], "failed")], LOGS),
    "told what it cannot be": ([*without("told", 1.3), told(1.3, ["v.0:0"], "written")], LOGS),
    "raised, and yet told it is there": ([*GOOD, handed(5.0, "v.0", 6), raised(5.0, "v.0", 6),
                                          told(5.1, ["v.0:6"], "verified", THERE, 20)],
                                         [*LOGS, Stored(THERE, 2, 20, "v.0:6", True)]),
    "not flushed": ([*without("ended", 9.0), ended("v", left=1)], LOGS),
    "stored, but not handed over": (GOOD, [*LOGS, Stored(THERE, 2, 20, "w.0:2", True)]),
    "changed on the way": ([*GOOD, handed(5.0, "w.0", 2), told(5.1, ["w.0:2"], "failed")],
                           [*LOGS, Stored(THERE, 2, 20, "w.0:2", False)]),
    "lost": (GOOD, stored(("v.0:4", None))),
    "lost without a reason": (GOOD, stored((W, None))),
    "not where it was verified": ([*without("told", 1.3), told(1.3, ["v.0:0"], "verified", HERE, 10)], LOGS),
    "in another partition than was asked for": ([*without("handed", 1.0),
                                                 handed(1.0, "v.0", 0, 2, "send_many", "clicks 0-1")], LOGS),
    "repeated without being sent again": (GOOD, [*LOGS, Stored(THERE, 2, 20, W, True)]),
    "out of order": (GOOD, [*LOGS[:6], *log(THERE, "w.0:1", "w.0:0")]),
}  # fmt: skip


@pytest.mark.parametrize("rule", BAD)
def test_a_history_that_breaks_one_rule(rule):
    events, logs = BAD[rule]
    assert set(verdict(events, logs).violations) == {rule}


def test_a_record_in_another_partition_than_told_is_lost():
    assert set(verdict([*without("told", 1.2), told(1.2, ["w.0:0", W], "written", HERE)]).violations) == {
        "lost without a reason"
    }


def test_a_column_starts_where_it_was_verified():
    for offset, ok in ((10, False), (20, True), (30, False)):
        assert verdict([*without("told", 1.6), told(1.6, ["v.0:2", "v.0:3"], "verified", HERE, offset)]).ok is ok


@pytest.mark.parametrize("target", ["broker 0", "broker 1"])
def test_a_loss_without_verify_needs_a_connection_to_that_broker_that_died_in_between(target):
    for at, kind, excused in (
        (1.1, "reset at a byte", True), (1.1, "delayed", False), (0.9, "broker killed", False),
        (1.3, "broker killed", False),
    ):  # fmt: skip
        found = verdict([*GOOD, fault(at, kind, target)], stored((W, None)))
        assert found.ok is (excused and target == "broker 1")
        assert found.lost == 1


def test_a_crash_may_take_what_was_written_just_before_it():
    for at, excused in ((0.9, False), (1.1, True), (2.0, True), (6.1, True), (6.3, False)):
        assert verdict([*GOOD, fault(at, "broker crashed", "broker 1")], stored((W, None))).ok is excused
        assert not verdict([*GOOD, fault(at, "broker crashed", "broker 0")], stored((W, None))).ok
    assert not verdict([*GOOD, fault(2.1, "broker crashed")], stored(("v.0:4", None))).ok


def test_what_failed_may_be_in_the_log_or_not():
    assert verdict(GOOD, [*LOGS, Stored(THERE, 2, 20, "v.0:5", True)]).ok


def test_what_raised_needs_no_telling():
    history = [*GOOD, handed(5.0, "w.0", 2, 3, "send_many"), raised(5.0, "w.0", 2, 3, "send_many")]
    assert verdict(history).ok
    # those that were taken before the queue was full
    assert verdict([*history, told(5.1, ["w.0:2"], "written", THERE)], [*LOGS, Stored(THERE, 2, 20, "w.0:2", True)]).ok


def test_what_a_killed_sender_was_not_told_is_open():
    found = verdict([*without("ended", 9.0, 1), handed(5.0, "w.0", 2)])
    assert found.ok
    assert found.open == 1
    assert verdict([*without("ended", 9.0, 1)], stored((W, None))).violations.keys() == {"lost without a reason"}


def test_order_may_change_for_what_was_on_its_way_to_a_broker_that_went_away():
    swapped = [*LOGS[:6], *log(THERE, "w.0:1", "w.0:0")]

    def gone(at):
        return Event(at, "gone", "observer", {"target": "broker 0"})

    assert verdict([*GOOD, gone(1.1)], swapped).ok
    assert not verdict([*GOOD, gone(1.3)], swapped).ok
    explicit = [*without("handed", 1.0, 1), handed(1.0, "w.0", 0, 2, "send_many", THERE)]
    assert verdict(explicit).ok
    assert verdict([*explicit, gone(1.1)], swapped).violations.keys() == {"out of order"}
    # what was on its way may also come before what had its partition chosen
    mixed = [*without("handed", 1.0, 1), handed(1.0, "w.0", 0, 1, "send", THERE), handed(1.1, "w.0", 1)]
    assert verdict([*mixed, gone(1.15)], swapped).ok
    assert verdict(mixed, swapped).violations.keys() == {"out of order"}


def test_where_the_broker_picks_the_partition_there_is_no_order():
    picked = [*without("told", 1.2), told(1.2, ["w.0:0", W], "written", None)]
    assert verdict(picked, [*LOGS[:6], *log(THERE, "w.0:1", "w.0:0")]).ok


def test_order_goes_by_what_was_there_first():
    repeated = [*without("told", 1.2), told(1.2, ["w.0:0", W], "written", THERE, resends=1)]
    assert verdict(repeated, [*LOGS[:6], *log(THERE, "w.0:0", "w.0:1", "w.0:0", "w.0:1")]).ok
    assert not verdict(repeated, [*LOGS[:6], *log(THERE, "w.0:1", "w.0:0", "w.0:1")]).ok


def test_a_payload_says_whose_it_is_and_whether_it_is_whole():
    for size in (0, 10, 17, 300):
        value = payload("v-1.0:12", size)
        assert len(value) == max(size, len("v-1.0:12") + 1)
        assert identify(value) == ("v-1.0:12", True)
    assert identify(payload("v-1.0:12", 50)[:-1] + b"!") == ("v-1.0:12", False)
    assert identify(payload("v-1.0:12", 50).replace(b":12", b":13")) == ("v-1.0:13", False)
    assert identify(b"\xff nonsense")[1] is False


def test_records_come_out_of_the_logs(tmp_path):
    with Log(tmp_path / "clicks-3", writable=True, flush_messages=1) as stored:
        stored.append(build_message_set([payload("v.0:0", 40), b"foreign"]))
        start = stored.flushed_offset
        stored.append(build_message_set([payload("v.0:1", 0), payload("v.0:2", 30)], codec="gzip"))
    assert read_stored(tmp_path, 4) == [
        Stored("clicks 4-3", 0, 0, "v.0:0", True),
        Stored("clicks 4-3", 1, start - 10 - len(b"foreign"), "foreign", False),
        Stored("clicks 4-3", 2, start, "v.0:1", True),
        Stored("clicks 4-3", 3, start, "v.0:2", True),
    ]
