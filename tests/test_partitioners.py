"""Which partition a message goes to: 0.7's own choices as recorded, and what the other partitioners promise."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter

import pytest

from kafka07c.producer.partitioners import (
    DefaultPartitioner,
    RandomPartitioner,
    RoundRobinPartitioner,
    SharedPartitioner,
    StickyPartitioner,
    default_partition,
    default_partitions,
)

#: keys whose Java hash is -2**31: 0.7 gives them a negative index
FAULTY = {"polygenelubricants", "GydZG_", "DESIGNING WORKHOUSES"}


@pytest.fixture(scope="module")
def recorded(golden):
    return json.loads(golden.bytes("partitioner.json"))


def test_all_recorded_keys_go_where_the_scala_producer_puts_them(recorded):
    assert {each["key"] for each in recorded} >= FAULTY
    for each in recorded:
        for count, index in each["partition_of"].items():
            assert (index < 0) <= (each["key"] in FAULTY)
            for key in (each["key"], bytes.fromhex(each["key_utf8_hex"]), memoryview(each["key"].encode())):
                assert default_partition(key, int(count)) == abs(index)


def test_the_faulty_hash_counts_as_two_to_the_31():
    for count in (1, 2, 3, 5, 7, 10, 1000, 2**31 - 1):
        for key in FAULTY:
            assert default_partition(key, count) == 2**31 % count


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_many_keys_at_once_go_where_each_goes_alone(recorded, count):
    shuffled = [each["key"] for each in recorded] * 3 + ["", "", "\ud83d", "\ude00", "x" * 5000]
    random.Random(7).shuffle(shuffled)
    for keys in (
        shuffled,
        [key.encode("utf-8", "surrogatepass") for key in shuffled if "\ud83d" != key != "\ude00"],
        [key for key in shuffled if key.isascii()],
        ["", ""],
        [],
        [FAULTY.copy().pop()],
    ):
        assert default_partitions(keys, count).tolist() == [default_partition(key, count) for key in keys]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, "not NoneType: make it text, or give a partitioner of your own"),
        (12, "not int"),
        (("a",), "not tuple"),
        (b"\xff\xfe", r"b'\\xff\\xfe' is no UTF-8 text.*partitioner=function"),
    ],
)
def test_keys_that_are_no_text(key, message):
    with pytest.raises(TypeError, match=message):
        default_partition(key, 3)
    with pytest.raises(TypeError, match=message):
        default_partitions(["a", key], 3)


def test_no_partitions():
    with pytest.raises(ValueError, match="on 0 partitions"):
        default_partition("a", 0)
    with pytest.raises(ValueError, match="on 0 partitions"):
        default_partitions(["a"], 0)


def test_the_default_hashes_keys_and_leaves_the_rest_to_chance():
    partitioner = DefaultPartitioner()
    assert [partitioner("a", 7), partitioner(b"key", 7)] == [6, 1]
    assert {partitioner(None, 3) for _ in range(200)} == {0, 1, 2}
    assert {index for _ in range(200) for index, _ in partitioner.runs(5, 3)} == {0, 1, 2}
    assert list(partitioner.runs(5, 1)) == [(0, 5)]


def test_those_without_a_key_among_many_go_to_one_partition():
    partitioner = DefaultPartitioner()
    for _ in range(20):
        first, one, key, other = partitioner.of_keys(["a", None, "key", None], 7).tolist()
        assert (first, key) == (6, 1)
        assert one == other
    assert partitioner.of_keys([None, None], 1).tolist() == [0, 0]


def test_random_ignores_keys():
    partitioner = RandomPartitioner()
    assert {partitioner("a", 3) for _ in range(200)} == {0, 1, 2}
    assert {tuple(partitioner.of_keys(["a", None, "b"], 2).tolist()) for _ in range(200)} == {(0, 0, 0), (1, 1, 1)}


def test_round_robin():
    partitioner = RoundRobinPartitioner()
    assert [partitioner("same", 3) for _ in range(4)] == [0, 1, 2, 0]
    assert list(partitioner.runs(8, 3)) == [(1, 3), (2, 3), (0, 2)]
    assert list(partitioner.runs(2, 3)) == [(0, 1), (1, 1)]
    assert list(partitioner.runs(0, 3)) == []
    assert partitioner.of_keys(["a", "b", None, "d"], 3).tolist() == [2, 0, 1, 2]
    assert partitioner(None, 3) == 0
    assert partitioner.for_topic()(None, 3) == 0
    assert partitioner(None, 3) == 1


def test_round_robin_is_fair_whatever_comes_one_by_one_or_at_once():
    partitioner, given = RoundRobinPartitioner(), Counter()
    for messages in (1, 7, 10, 3, 100, 1, 1):
        for index, many in partitioner.runs(messages, 4):
            given[index] += many
        given[partitioner(None, 4)] += 1
    assert max(given.values()) - min(given.values()) <= 1


def test_round_robin_from_several_threads_skips_none():
    partitioner, given = RoundRobinPartitioner(), Counter()
    lock = threading.Lock()

    def take():
        mine = Counter(partitioner(None, 5) for _ in range(2000))
        with lock:
            given.update(mine)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert given == dict.fromkeys(range(5), 1600)


def test_sticky_stays_and_moves_on():
    partitioner = StickyPartitioner(messages=10, seconds=3600)
    places = [{partitioner(None, 4) for _ in range(10)} for _ in range(50)]
    assert all(len(each) == 1 for each in places)
    assert all(one != other for one, other in zip(places, places[1:])), "it moves to another one"
    assert set.union(*places) == {0, 1, 2, 3}
    assert partitioner("a", 7) == 6
    assert {partitioner.for_topic()(None, 4) for _ in range(200)} == {0, 1, 2, 3}


def test_sticky_takes_a_call_whole_and_then_moves():
    partitioner = StickyPartitioner(messages=10, seconds=3600)
    [(first, many)] = partitioner.runs(1000, 2)
    assert many == 1000
    assert partitioner(None, 2) == 1 - first


def test_sticky_moves_when_its_time_is_over(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    partitioner = StickyPartitioner(messages=10**9, seconds=5.0)
    first = partitioner(None, 2)
    now[0] = 4.9
    assert partitioner(None, 2) == first
    now[0] = 5.0
    assert partitioner(None, 2) == 1 - first


def test_sticky_when_partitions_go_away():
    partitioner = StickyPartitioner(messages=10**9, seconds=3600)
    assert {partitioner(None, 50), partitioner(None, 1), partitioner(None, 1)} >= {0}
    assert partitioner(None, 1) == 0


@pytest.mark.parametrize("arguments", [(0, 1.0), (1, 0)])
def test_sticky_for_no_time_at_all(arguments):
    with pytest.raises(ValueError, match="a sticky partitioner stays for"):
        StickyPartitioner(*arguments)


def test_one_of_ones_own():
    class Last(SharedPartitioner):
        def choose(self, count):
            return count - 1

    assert (Last()(None, 4), Last()("a", 7), list(Last().runs(9, 4))) == (3, 6, [(3, 9)])
