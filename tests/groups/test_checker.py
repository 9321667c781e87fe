"""The checker, checked: a good history passes, and one that breaks a rule fails by that rule and no other."""

from __future__ import annotations

import pytest
from faults.history import Event, Writer, read
from groups.checker import Record, check, read_logs

from kafka07c import build_message_set
from kafka07c.segments import Log

SESSION = 2.0
PARTITION = "clicks 0-0"

#: plain entries of ten bytes, and from 60 on a wrapper of three
LOG = [Record(10 * n, 0, 10 * n + 10, f"p:{n}") for n in range(6)]
LOG += [Record(60, index, 90, f"p:{6 + index}") for index in range(3)]


def owned(at, member, session, partition=PARTITION):
    return Event(at, "owned", "observer", {"partition": partition, "member": member, "session": session})


def disowned(at, session):
    return Event(at, "disowned", "observer", {"partition": PARTITION, "session": session})


def committed(at, offset, session):
    return Event(at, "committed", "observer", {"partition": PARTITION, "offset": offset, "session": session})


def delivered(at, member, *ranks):
    records = [[LOG[rank].offset, LOG[rank].index, LOG[rank].id] for rank in ranks]
    return Event(at, "delivered", member, {"partition": PARTITION, "records": records})


def fault(at, kind, target):
    return Event(at, "fault", "stage", {"kind": kind, "target": target})


def reset(at, offset):
    return Event(at, "reset", "stage", {"partition": PARTITION, "offset": offset})


#: a reads, commits in the middle of the wrapper and is killed; b repeats the wrapper and reads to the end
GOOD = [
    owned(1.0, "a", 1),
    delivered(1.1, "a", 0, 1, 2),
    committed(1.2, 30, 1),
    delivered(1.3, "a", 3, 4, 5, 6, 7),
    committed(1.4, 60, 1),
    fault(2.0, "kill -9", "a"),
    disowned(4.0, 1),
    owned(4.5, "b", 2),
    delivered(4.6, "b", 6, 7, 8),
    committed(4.7, 90, 2),
]


def verdict(events, log=LOG):
    return check(sorted(events, key=lambda event: event.at), {PARTITION: log}, session=SESSION)


def without(what, at):
    kept = [event for event in GOOD if (event.what, event.at) != (what, at)]
    assert len(kept) == len(GOOD) - 1
    return kept


def test_a_good_history():
    found = verdict(GOOD)
    assert found.ok, found.told()
    assert (found.records, found.deliveries, found.lost, found.duplicates) == (9, 11, 0, 2)
    assert (found.commits, found.rewinds, found.overlap) == (3, 0, 0.0)
    assert found.takeovers == [2.5]
    assert found.faults == {"kill -9": 1}


BAD = {
    "lost": [*without("delivered", 4.6)[:-1]],
    "not in the log": [
        *GOOD,
        Event(4.8, "delivered", "b", {"partition": PARTITION, "records": [[95, 0, "p:9"]]}),
    ],
    "delivered by a stranger": [*GOOD, delivered(4.8, "c", 8)],
    "repeated without reason": [*GOOD, delivered(4.8, "b", 8)],
    "repeated what was committed": [*without("delivered", 4.6), delivered(4.6, "b", 5, 6, 7, 8)],
    "out of order": [*without("delivered", 1.3), delivered(1.3, "a", 4, 3, 5, 6, 7)],
    "commit went back": [*GOOD, committed(4.8, 50, 2)],
    "committed by a stranger": [*without("committed", 4.7), committed(4.7, 90, 1)],
    "committed where no entry begins": [*without("committed", 1.2), committed(1.2, 29, 1)],
    "committed before it was delivered": [*without("committed", 1.2), committed(1.05, 30, 1)],
    "two owners at once": [*GOOD, delivered(6.7, "a", 8)],
    "no new owner in time": [*GOOD[:7], owned(6.1, "b", 2), delivered(6.2, "b", 6, 7, 8), committed(6.3, 90, 2)],
}


@pytest.mark.parametrize("rule", BAD)
def test_a_history_that_breaks_one_rule(rule):
    assert set(verdict(BAD[rule]).violations) == {rule}


def test_what_only_a_deleted_offset_is():
    found = verdict([*GOOD, committed(4.8, None, 2)])
    assert set(found.violations) == {"commit went back"}
    assert found.rewinds == 1


def test_an_overlap_within_the_session_is_measured_and_allowed():
    found = verdict([*GOOD, delivered(6.5, "a", 8)])
    assert found.ok
    assert found.overlap == pytest.approx(1.9)


def test_an_owner_that_never_comes():
    assert set(verdict(GOOD[:6] + [Event(9.0, "assigned", "b")]).violations) == {"lost", "no new owner in time"}


def test_an_operators_reset_allows_one_step_back():
    again = [reset(5.0, 30), committed(5.0, 30, 77), delivered(5.1, "b", *range(3, 9)), committed(5.2, 90, 2)]
    assert verdict(GOOD + again).ok
    twice = [delivered(5.3, "b", 3), committed(5.4, 30, 2)]
    found = verdict(GOOD + again + twice)
    assert set(found.violations) == {"repeated without reason", "commit went back"}


def test_records_come_out_of_the_logs(tmp_path):
    with Log(tmp_path / "clicks-0", writable=True, flush_messages=1) as log:
        log.append(build_message_set([b"p:0 filler", b"p:1"]))
        log.append(build_message_set([b"p:2 x", b"p:3 y"], codec="gzip"))
        end = log.flushed_offset
    records = read_logs(tmp_path, 4)["clicks 4-0"]
    assert [record.id for record in records] == ["p:0", "p:1", "p:2", "p:3"]
    assert [record.index for record in records] == [0, 0, 0, 1]
    assert records[2].offset == records[3].offset
    assert records[3].next_offset == end


def test_a_history_is_read_back_in_order_of_time_without_the_line_that_a_kill_cut(tmp_path):
    first, second = Writer(tmp_path, "a"), Writer(tmp_path, "b")
    second.write("assigned", at=2.0, partitions=[PARTITION])
    first.write("fault", at=1.0, kind="kill -9", target="b")
    with second.path.open("ab") as file:
        file.write(b'{"at":3.0,"wall"')
    for writer in (first, second):
        writer.close()
    assert read(tmp_path) == [
        Event(1.0, "fault", "a", {"kind": "kill -9", "target": "b"}),
        Event(2.0, "assigned", "b", {"partitions": [PARTITION]}),
    ]
