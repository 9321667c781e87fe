"""Who gets which partition: against recorded groups of real 0.7.2 consumers, and against the definition."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from kafka07c.assignment import assign
from kafka07c.subscription import Subscription

GOLDEN = Path(__file__).parent / "golden07"


def recorded_groups():
    """``{"file group": ({member id: subscription}, {topic: partition names}, {topic: {partition name: thread}})}``."""
    groups = {}
    for file in sorted((GOLDEN / "zk").glob("*.json")):
        nodes = [(node["path"].split("/")[1:], node["data"]) for node in json.loads(file.read_text())]
        partitions: dict[str, list[str]] = {}
        for path, data in nodes:
            match path:
                case ["brokers", "topics", topic, broker]:
                    partitions.setdefault(topic, []).extend(f"{broker}-{number}" for number in range(int(data)))
                case ["consumers", group, "ids", member]:
                    members, _, _ = groups.setdefault(f"{file.name} {group}", ({}, partitions, {}))
                    members[member] = Subscription.decode(data.encode())
                case ["consumers", group, "owners", topic, name]:
                    _, _, owners = groups.setdefault(f"{file.name} {group}", ({}, partitions, {}))
                    owners.setdefault(topic, {})[name] = data
    # one was dumped before its consumer had finished joining
    return {name: group for name, group in groups.items() if group[2]}


def test_groups_with_more_than_one_member_and_with_filters_are_recorded():
    groups = recorded_groups()
    assert max(len(members) for members, _, _ in groups.values()) == 2
    assert any(member.is_filter for members, _, _ in groups.values() for member in members.values())


@pytest.mark.parametrize("group", recorded_groups())
def test_a_recorded_group_is_shared_out_as_the_jvm_did(group):
    members, partitions, owners = recorded_groups()[group]
    expected = {}
    for topic, names in partitions.items():
        threads = [f"{id}-{n}" for id, wanted in members.items() for n in range(wanted.threads_for(topic))]
        assigned = {name: thread for thread, names in assign(names, threads).items() for name in names}
        if assigned:
            expected[topic] = assigned
    assert owners == expected


NAMES = st.sets(st.builds("{}-{}".format, st.integers(0, 30), st.integers(0, 30)), max_size=60).map(list)
THREADS = st.sets(
    st.builds("g_{}-{}".format, st.text(st.characters(codec="utf-8"), max_size=3), st.integers(0, 12)), max_size=25
).map(list)


def as_java_compares(name: str) -> list[int]:
    data = name.encode("utf-16-be")
    return [data[n] << 8 | data[n + 1] for n in range(0, len(data), 2)]


@given(NAMES, THREADS)
def test_the_definition(partitions, threads):
    shares = assign(partitions, threads)
    assert list(shares) == sorted(threads, key=as_java_compares)
    if threads:
        assert [name for share in shares.values() for name in share] == sorted(partitions)  # each once, in string order
        sizes = [len(share) for share in shares.values()]
        assert all(first >= second for first, second in pairwise(sizes))  # the extras first
        assert sizes[0] - sizes[-1] <= 1


@given(NAMES, THREADS, st.randoms())
def test_every_member_comes_to_the_same_answer(partitions, threads, random):
    expected = assign(partitions, threads)
    random.shuffle(partitions)
    random.shuffle(threads)
    assert assign(iter(partitions * 2), iter(threads)) == expected


def test_partitions_are_sorted_as_strings():
    names = [f"0-{number}" for number in range(12)]
    assert assign(names, ["a", "b"]) == {
        "a": ["0-0", "0-1", "0-10", "0-11", "0-2", "0-3"],
        "b": ["0-4", "0-5", "0-6", "0-7", "0-8", "0-9"],
    }


def test_two_threads_that_take_an_extra_one():
    # the public sample code's start would be off by one for the third thread here
    assert [len(share) for share in assign([f"0-{n}" for n in range(8)], ["a", "b", "c"]).values()] == [3, 3, 2]
    assert assign([f"0-{n}" for n in range(8)], ["a", "b", "c"])["c"] == ["0-6", "0-7"]


def test_threads_are_sorted_by_utf_16_code_units():
    # U+1D11E is two surrogates in Java, which come before U+FF41; by code point it is the other way round
    assert list(assign([], ["g_\uff41-0", "g_\U0001d11e-0"])) == ["g_\U0001d11e-0", "g_\uff41-0"]


def test_more_threads_than_partitions():
    assert assign(["0-0"], ["b", "a"]) == {"a": ["0-0"], "b": []}


def test_nothing_to_share_or_nobody_to_share_it():
    assert assign([], ["a"]) == {"a": []}
    assert assign(["0-0"], []) == {}
