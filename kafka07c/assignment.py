"""Which thread of a group consumes which partition of one topic: the answer that every member computes for itself.

There is no leader in 0.7: each member reads who is in the group and which partitions there are, and comes to the same
answer as the others, JVM members among them. Source: Kafka 0.7.2, ``ZookeeperConsumerConnector.rebalance``; the sample
code on the public design page is off by one where two or more threads take an extra partition.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["assign"]


def assign(partitions: Iterable[str], threads: Iterable[str]) -> dict[str, list[str]]:
    """The partitions of each thread: consecutive runs of the sorted partitions, in the order of the sorted threads.

    ``partitions`` are names such as ``"0-1"`` (broker, number), ``threads`` the thread ids ``"ID-0"``, ``"ID-1"``, …
    of all members that want the topic, each in any order; repeats count once. With P partitions and C threads each
    thread gets ``P // C``, and the first ``P % C`` threads one more.

    Sorting is by UTF-16 code units, as Java sorts strings: ``"0-10"`` comes before ``"0-2"``. Every thread is in the
    answer, in that order; those for which nothing is left have an empty list. No threads: an empty answer.
    """
    ordered_partitions, ordered_threads = _sorted_as_java(partitions), _sorted_as_java(threads)
    if not ordered_threads:
        return {}
    each, extra = divmod(len(ordered_partitions), len(ordered_threads))
    assignment = {}
    for number, thread in enumerate(ordered_threads):
        start = each * number + min(number, extra)
        assignment[thread] = ordered_partitions[start : start + each + (number < extra)]
    return assignment


def _sorted_as_java(names: Iterable[str]) -> list[str]:
    # Big-endian UTF-16 compares as its code units do; group names and consumer ids may have any characters.
    return sorted(set(names), key=lambda name: name.encode("utf-16-be", "surrogatepass"))
