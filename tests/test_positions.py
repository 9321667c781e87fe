"""How far a consumer is: handed out, handled, committed; inside wrappers, at errors, after resets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka07c._build import build_message_set
from kafka07c._views import MessageSet
from kafka07c.positions import Handout, Position, Progress

PLAIN = build_message_set([b"a", b"b", b"c"])
EACH = len(PLAIN) // 3
WRAPPER = build_message_set([b"1", b"2", b"3"], "gzip")


def hand_out(handout: Handout, count: int) -> list[bytes]:
    start = handout.handed
    handout.handed += count
    return [message.value for message in handout.messages[start : handout.handed]]


def test_plain_messages():
    progress = Progress(Position(100), 1)
    handout = Handout(MessageSet(PLAIN, 100), Position(100))
    progress.add(handout)
    assert (progress.handed, progress.completed) == (Position(100), Position(100))
    hand_out(handout, 2)
    assert (progress.handed, progress.completed) == (Position(100 + 2 * EACH), Position(100))
    progress.come_back()
    assert (progress.handed, progress.completed) == (Position(100 + 2 * EACH),) * 2
    hand_out(handout, 1)
    assert (progress.handed, progress.completed) == (Position(100 + 3 * EACH), Position(100 + 2 * EACH))
    progress.come_back()
    assert progress.completed == Position(100 + 3 * EACH)
    assert progress.handouts == ()  # nothing keeps the memory of what is done with


def test_inside_a_wrapper_its_start_and_an_index():
    progress = Progress(Position(0), 1)
    handout = Handout(MessageSet(WRAPPER + PLAIN), Position(0))
    progress.add(handout)
    found = [progress.handed]
    for _ in range(4):
        hand_out(handout, 1)
        found.append(progress.handed)
    end = len(WRAPPER)
    assert found == [Position(0), Position(0, 1), Position(0, 2), Position(end), Position(end + EACH)]


def test_going_on_inside_a_wrapper():
    handout = Handout(MessageSet(WRAPPER + PLAIN), Position(0, 2))
    progress = Progress(Position(0, 2), 1)
    progress.add(handout)
    assert progress.handed == progress.completed == Position(0, 2)
    assert hand_out(handout, 2) == [b"3", b"a"]


def test_an_index_that_the_log_does_not_bear_out_skips_nothing():
    for data, index in [(PLAIN, 1), (WRAPPER, 3), (WRAPPER, 7), (WRAPPER + PLAIN, 4), (b"", 1)]:
        assert Handout(MessageSet(data), Position(0, index)).first == 0


def test_damage_inside_a_wrapper_is_come_to_again():
    inner = bytearray(build_message_set([b"1", b"2", b"3"]))
    inner[-1] ^= 1
    damaged = wrapper_of(bytes(inner))
    messages = MessageSet(damaged + PLAIN)
    assert messages.error is not None and len(messages) == 2
    handout = Handout(messages, Position(0))
    progress = Progress(Position(0), 1)
    progress.add(handout)
    hand_out(handout, 2)
    progress.come_back()
    assert progress.completed == Position(0, 2)
    assert Handout(messages, Position(0, 2)).finished


def wrapper_of(inner: bytes) -> bytes:
    import gzip
    import zlib

    payload = gzip.compress(inner)
    return (len(payload) + 6).to_bytes(4) + b"\x01\x01" + zlib.crc32(payload).to_bytes(4) + payload


def test_chunks_without_messages_move_on():
    progress = Progress(Position(0), 1)
    empty_wrapper = build_message_set([], "gzip")
    progress.add(Handout(MessageSet(empty_wrapper), Position(0)))
    progress.come_back()
    assert progress.completed == Position(len(empty_wrapper))
    progress.add(Handout(MessageSet(b"", progress.handed.offset), progress.handed, skipped_to=500))
    assert progress.handed == Position(500)


def test_several_chunks_in_one_poll():
    progress = Progress(Position(0), 1)
    first, second = Handout(MessageSet(PLAIN), Position(0)), Handout(MessageSet(PLAIN, 3 * EACH), Position(3 * EACH))
    progress.add(first)
    progress.add(second)
    hand_out(first, 3)
    hand_out(second, 1)
    assert (progress.handed, progress.completed) == (Position(4 * EACH), Position(0))
    progress.come_back()
    assert progress.completed == Position(4 * EACH)
    assert progress.handouts == (second,)


def test_a_commit_by_hand_is_not_taken_back_by_what_has_come_back():
    progress = Progress(Position(0), 1)
    handout = Handout(MessageSet(PLAIN), Position(0))
    progress.add(handout)
    hand_out(handout, 2)
    progress.commit(progress.handed, by_hand=True)
    assert progress.completed == progress.committed == Position(2 * EACH)
    progress.restart(Position(0), 2)
    assert progress.completed == Position(0)
    assert handout.gone and not handout.live


def test_a_reset_stands_until_what_comes_after_it_is_here():
    progress = Progress(Position(1000), 1)
    old = Handout(MessageSet(PLAIN, 1000), Position(1000))
    progress.add(old)
    hand_out(old, 1)
    progress.reset(Position(5000))
    assert progress.handed == progress.completed == Position(5000)
    hand_out(old, 2)  # it was here already
    progress.add(Handout(MessageSet(PLAIN, 2000), Position(2000)))  # was on its way already
    progress.come_back()
    assert progress.handed == progress.completed == Position(5000)
    new = Handout(MessageSet(PLAIN, 5000), Position(5000))
    progress.add(new)
    hand_out(new, 1)
    assert (progress.handed, progress.completed) == (Position(5000 + EACH), Position(5000))


def test_nothing_is_known_of_a_partition_that_has_not_begun():
    progress = Progress(None, 1)
    assert (progress.handed, progress.completed) == (None, None)
    progress.come_back()
    progress.reset(Position(7))
    assert progress.handed == Position(7)


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=6), st.data())
def test_what_is_completed_never_passes_what_was_handed_out_and_never_goes_back(entries, data):
    """Stored entries in chunks at random, handed out and come back for at random, against a count of messages."""
    progress = Progress(Position(0), 1)
    positions, waiting, offset = [Position(0)], [], 0
    for count, wrapped in entries:
        stored = build_message_set([b"x"] * count, "gzip" if wrapped else "none")
        messages = MessageSet(stored, offset)
        for message in messages:
            inside = message.next_offset == message.offset
            positions.append(Position(message.next_offset, message.index + 1 if inside else 0))
        waiting.append(Handout(messages, Position(offset)))
        offset += len(stored)
    handed = back = 0
    for handout in waiting:
        progress.add(handout)
        while not handout.finished:
            if data.draw(st.booleans()):
                progress.come_back()
                back = handed
            hand_out(handout, 1)
            handed += 1
            assert (progress.handed, progress.completed) == (positions[handed], positions[back])
    progress.come_back()
    assert progress.completed == Position(offset)
