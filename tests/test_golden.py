"""Everything recorded from 0.7.2 reads as its Scala classes read it, and where they go wrong, as it should.

The differences are named one by one in ``recorded``: a first entry that is cut is no error, and what the Scala iterator
throws is a CorruptMessageError with the good messages before it and the place.
"""

from __future__ import annotations

import pytest

import oracle
import recorded
from agreement import assert_agrees, iterated, kind_of
from kafka07c import MessageSet


def ids(sets):
    return [s.name for s in sets]


@pytest.mark.parametrize("one", recorded.decoded_by_scala(), ids=ids(recorded.decoded_by_scala()))
def test_exchange(one):
    message_set = MessageSet(one.data, one.base_offset)
    want = recorded.expected_outcome(one)
    messages, error = iterated(message_set)
    assert len(messages) == want.messages
    assert (message_set.valid_bytes, message_set.next_offset) == (want.valid_bytes, one.base_offset + want.valid_bytes)
    assert (kind_of(error) if error else None) == want.kind
    if error:
        assert error.offset == one.base_offset + want.valid_bytes
    recorded.check_messages(one, messages)


@pytest.mark.parametrize("one", recorded.decoded_by_scala(), ids=ids(recorded.decoded_by_scala()))
def test_entries_as_stored(one):
    """Wrappers left closed, against the manifest's shallow decode: offsets, sizes, codecs, CRCs."""
    messages, _ = iterated(MessageSet(one.data, one.base_offset, shallow=True))
    shallow = one.scala["shallow"]
    if one.name in recorded.DECODED_BEFORE_DAMAGE:
        shallow = shallow[: len(messages)]
    got = [(m.offset, m.next_offset, m.magic, m.codec, m.crc, m.index) for m in messages]
    assert got == [(s["offset"], s["next_offset"], s["magic"], s["codec"], s["crc"], 0) for s in shallow]


@pytest.mark.parametrize("segment", recorded.manifest()["segments"], ids=lambda s: s["file"])
def test_segment(segment):
    data = (recorded.GOLDEN / segment["file"]).read_bytes()
    start = segment["start_offset"]
    message_set = MessageSet(data, start, final=True)
    assert message_set.error is None
    assert message_set.next_offset == segment["tail_offset"]
    assert len(message_set) == len(segment["messages"])
    recorded.check_messages(recorded.Recorded(segment["file"], data, start, segment), message_set)
    stored = MessageSet(data, start, final=True, shallow=True)
    codecs = {0: "NoCompressionCodec", 1: "GZIPCompressionCodec", 2: "SnappyCompressionCodec"}
    assert [(m.offset, m.next_offset, len(m.payload), m.magic, codecs[m.codec]) for m in stored] == [
        (d["offset"], d["next_offset"], d["payload_size"], d["magic"], d["codec"])
        for d in segment["dump_log_segments"]
    ]


@pytest.mark.parametrize("one", recorded.undecoded(), ids=ids(recorded.undecoded()))
def test_set_without_a_decode(one):
    assert MessageSet(one.data, final=True).payloads() == recorded.UNDECODED[one.name]


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("shallow", [False, True])
def test_everything_recorded_reads_as_the_oracle_reads_it(shallow, final):
    for one in recorded.everything():
        assert_agrees(one.data, one.base_offset, shallow=shallow, final=final)


@pytest.mark.parametrize("case", recorded.manifest()["recovery"], ids=lambda c: c["before"])
def test_recovery_keeps_what_reads_as_good_entries(case):
    """An unclean start of the broker cuts where the first bad entry begins; it looks into no wrapper."""
    before = (recorded.GOLDEN / case["before"]).read_bytes()
    cut_at = MessageSet(before, final=True, shallow=True).valid_bytes
    if case["shutdown"].startswith("unclean"):
        assert cut_at == case["after_bytes"]
        assert before[:cut_at] == (recorded.GOLDEN / case["after"]).read_bytes()
    else:
        assert cut_at <= case["after_bytes"] == len(before)


def test_what_a_consumer_gets_again_follows_from_the_offsets():
    """The offsets that the real consumer committed when it stopped inside wrappers are our next_offsets."""
    commits = recorded.manifest()["consumer_commits"]
    message_set = MessageSet((recorded.GOLDEN / commits["log"]).read_bytes(), final=True)
    after = {m.value.decode(): m.next_offset for m in message_set}
    assert commits["runs"]
    for run in commits["runs"]:
        if run["received"] and run["committed"]:
            assert int(run["committed"]) == after[run["received"][-1]]


def test_good_messages_before_a_bad_inner_one_are_not_lost():
    """rec-gzip holds a wrapper whose last inner message is bad: the Scala iterator looks one ahead and loses the one
    before it; here all come, then the error, then what follows can be read from where it says."""
    name = "recovery/before/rec-gzip-0/00000000000000000000.kafka"
    data = (recorded.GOLDEN / name).read_bytes()
    messages, error = iterated(MessageSet(data, final=True))
    want = oracle.decode(data, final=True)
    assert [m.value for m in messages] == [m.payload for m in want.messages] != []
    assert {(m.offset, m.next_offset) for m in messages} == {(0, 0)}
    assert (error.offset, error.next_offset, kind_of(error)) == (0, 68, oracle.CRC)
    rest = MessageSet(data[68:], 68, final=True)
    assert rest.error is None and len(rest) > 0
