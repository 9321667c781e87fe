"""Memory of the core: large blocks are used again, and never more of them kept than said."""

from __future__ import annotations

import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

from kafka07c import MessageSet, build_message_set
from kafka07c._memory import forget_blocks, kept_blocks

KEPT_BLOCKS, KEPT_BYTES = 8, 16 << 20  # c/recycler.h
SMALL = build_message_set([b"%d" % i for i in range(50_000)])  # columns of 400 and of 200 KB


@pytest.fixture(autouse=True)
def nothing_kept():
    gc.collect()
    forget_blocks()
    assert kept_blocks() == (0, 0)
    yield
    forget_blocks()


def place(array: numpy.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_the_columns_of_a_set_are_used_again():
    messages = MessageSet(SMALL)
    places = {place(messages.offsets), place(messages.lengths)}
    assert kept_blocks() == (0, 0), "what is in use is not kept"
    del messages
    count, size = kept_blocks()
    assert count == 2
    assert 600_000 <= size < 1_200_000
    again = MessageSet(SMALL)
    assert {place(again.offsets), place(again.lengths)} == places
    assert kept_blocks() == (0, 0)
    assert again.payloads() == [b"%d" % i for i in range(50_000)]


def test_an_array_over_a_block_keeps_it_from_being_used_again():
    offsets = MessageSet(SMALL).offsets
    before = offsets.copy()
    assert kept_blocks()[0] == 1, "only the lengths are free"
    others = [MessageSet(SMALL) for _ in range(4)]
    assert all(place(other.offsets) != place(offsets) for other in others)
    assert (offsets == before).all()


def test_small_blocks_and_very_large_ones_are_not_kept():
    del_small = MessageSet(build_message_set([b"x"] * 1000))
    del del_small
    large = build_message_set([b""] * 700_000)  # offsets of more than 4 MB
    messages = MessageSet(large)
    assert messages.offsets.nbytes > 4 << 20
    del messages
    assert kept_blocks()[0] == 1, "the lengths, of less than 4 MB"


def test_no_more_is_kept_than_said():
    sets = [MessageSet(SMALL) for _ in range(40)]
    assert kept_blocks() == (0, 0)
    sets.clear()
    assert kept_blocks()[0] == KEPT_BLOCKS
    forget_blocks()
    halves = build_message_set([b""] * 350_000)  # offsets of about 3 MB
    sets = [MessageSet(halves) for _ in range(20)]
    sets.clear()
    count, size = kept_blocks()
    assert 0 < count <= KEPT_BLOCKS
    assert 8 << 20 < size <= KEPT_BYTES


def test_a_large_block_is_not_wasted_on_little():
    messages = MessageSet(build_message_set([b""] * 400_000))
    assert messages.offsets.nbytes > 3 << 20
    del messages
    large = kept_blocks()
    few = MessageSet(build_message_set([b""] * 40_000))  # less than half of either
    assert kept_blocks() == large
    assert len(few) == 40_000


def test_columns_that_outgrow_a_block_that_was_kept():
    grows = build_message_set([bytes(1000)]) + SMALL  # the first entry lets few be expected
    del_first = MessageSet(SMALL)
    del del_first
    for _ in range(3):
        messages = MessageSet(grows)
        assert len(messages) == 50_001
        assert messages.payloads()[1:] == [b"%d" % i for i in range(50_000)]
        del messages


def test_many_threads_get_blocks_of_their_own():
    sets = [build_message_set([b"%d-%d" % (k, i) for i in range(20_000 + 3000 * k)]) for k in range(6)]
    wanted = [MessageSet(each).payloads() for each in sets]

    def scan(k: int) -> bool:
        messages = MessageSet(sets[k])
        offsets = messages.offsets
        others = MessageSet(sets[(k + 1) % 6])
        return (
            messages.payloads() == wanted[k]
            and len(others) == len(wanted[(k + 1) % 6])
            and bool((numpy.diff(offsets) == messages.lengths[:-1] + 10).all())
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(scan, [k % 6 for k in range(300)]))
    count, size = kept_blocks()
    assert 0 < count <= KEPT_BLOCKS
    assert size <= KEPT_BYTES


def test_a_forked_child_has_its_own():
    code = """if True:
        import os
        from kafka07c import MessageSet, build_message_set
        from kafka07c._memory import forget_blocks, kept_blocks
        data = build_message_set([b"%d" % i for i in range(50_000)])
        MessageSet(data)
        assert kept_blocks()[0] == 2
        child = os.fork()
        if not child:
            assert len(MessageSet(data)) == 50_000
            forget_blocks()
            os._exit(0 if kept_blocks() == (0, 0) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert kept_blocks()[0] == 2 and len(MessageSet(data)) == 50_000
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
