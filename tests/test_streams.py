"""Streams for threads, as 0.7 has them: who gets what, what counts as handled, how they end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from group_cluster import PATIENCE, GroupCluster, handling_the_third, until

from kafka07c import Blacklist, Whitelist
from kafka07c.consumer.streams import MessageStream
from kafka07c.errors import GroupError
from kafka07c.names import TopicPartition
from kafka07c.testing import ZooKeeper

pytestmark = pytest.mark.zookeeper

PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[GroupCluster]:
    with ZooKeeper(tick_ms=100) as zookeeper:
        folder = tmp_path_factory.mktemp("logs")
        with closing(GroupCluster(folder, zookeeper.address, partitions=PARTITIONS)) as cluster:
            yield cluster


def payloads(count: int, prefix: str) -> list[bytes]:
    return [f"{prefix}{i}".encode() for i in range(count)]


def filled(cluster: GroupCluster, count: int = 20, codec: str = "none") -> tuple[str, str]:
    return cluster.new(*(payloads(count, f"{partition}-") for partition in range(PARTITIONS)), codec=codec)


class Worker:
    """A thread that reads a stream to its end."""

    def __init__(self, stream: MessageStream):
        self.stream = stream
        self.seen: list[tuple[str, int, bytes]] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        for message in self.stream:
            self.seen.append((message.topic, message.partition, message.value))

    def join(self) -> None:
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


def test_each_partition_is_on_one_stream_and_all_streams_have_some(cluster):
    topic, group = filled(cluster)
    consumer = cluster.consumer(group=group)
    streams = consumer.create_message_streams({topic: 2})
    assert list(streams) == [topic]
    workers = [Worker(stream) for stream in streams[topic]]
    until(lambda: sum(len(worker.seen) for worker in workers) == 20 * PARTITIONS)
    consumer.shutdown()
    for worker in workers:
        worker.join()
    by_worker = [{partition for _, partition, _ in worker.seen} for worker in workers]
    assert by_worker == [{0, 1}, {2, 3}]  # as 0.7 assigns them
    for worker in workers:
        for partition in {partition for _, partition, _ in worker.seen}:
            mine = [value for _, each, value in worker.seen if each == partition]
            assert mine == payloads(20, f"{partition}-")
    # all came back for more, so all of it is committed
    for partition in range(PARTITIONS):
        assert cluster.offset(group, TopicPartition(topic, 0, partition)) == cluster.end(topic, partition)


def test_several_topics_with_threads_of_their_own(cluster):
    topic, group = filled(cluster, 5)
    other, _ = filled(cluster, 5)
    with cluster.consumer(group=group) as consumer:
        streams = consumer.create_message_streams({topic: 1, other: PARTITIONS})
        assert {name: len(each) for name, each in streams.items()} == {topic: 1, other: PARTITIONS}
        assert {next(streams[topic][0]).topic for _ in range(5 * PARTITIONS)} == {topic}
        for number, stream in enumerate(streams[other]):
            assert {(next(stream).topic, next(stream).partition) for _ in range(2)} == {(other, number)}


def test_a_filter_spreads_all_partitions_over_the_streams(cluster):
    topic, group = filled(cluster, 5)
    cluster.send(f"{topic}x", 3, [b"x"])
    with cluster.consumer(group=group) as consumer:
        streams = consumer.create_message_streams_by_filter(Whitelist(f"{topic}.*"), 2)
        first, second = (
            {(message.topic, message.partition) for message in (next(stream) for _ in range(count))}
            for stream, count in zip(streams, (10, 11))
        )
        assert first == {(topic, 0), (topic, 1)}
        assert second == {(topic, 2), (topic, 3), (f"{topic}x", 3)}
        data, _ = cluster.nodes.get(f"/consumers/{group}/ids/{consumer._reader.member.member_id}")
        assert data == f"*2*{topic}.*".encode()
        # a topic that appears later comes under it
        cluster.send(f"{topic}y", 0, [b"y"])
        assert next(streams[0]).topic == f"{topic}y"


def test_a_blacklist(cluster):
    topic, group = filled(cluster, 2)
    with cluster.consumer(group=group) as consumer:
        [stream] = consumer.create_message_streams_by_filter(Blacklist(f"(?!{topic}$).*"))
        assert {next(stream).topic for _ in range(2 * PARTITIONS)} == {topic}


def test_shutdown_does_not_commit_what_another_thread_is_handling(cluster):
    topic, group = filled(cluster, 10)
    tp = TopicPartition(topic, 0, 0)
    consumer = cluster.consumer(group=group)
    [stream, *_] = consumer.create_message_streams({topic: PARTITIONS})[topic]
    with handling_the_third(stream) as offsets:
        consumer.commit_offsets()  # by another thread than the one that handles
        assert cluster.offset(group, tp) == offsets[1]
        consumer.shutdown()
        assert cluster.offset(group, tp) == offsets[1]


def test_commit_offsets_covers_what_this_thread_was_handed(cluster):
    topic, group = filled(cluster, 10)
    with cluster.consumer(group=group, autocommit=False) as consumer:
        streams = consumer.create_message_streams({topic: 2})[topic]
        last = [[next(stream) for _ in range(3)][-1] for stream in streams]
        consumer.commit_offsets()
        for message in last:
            assert cluster.offset(group, TopicPartition(topic, 0, message.partition)) == message.next_offset
        next(streams[0])
    assert cluster.offset(group, TopicPartition(topic, 0, last[0].partition)) == last[0].next_offset


def test_batches_and_the_time_out(cluster):
    topic, group = filled(cluster, 10, codec="snappy")
    with cluster.consumer(group=group, consumer_timeout_ms=500) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        assert sum(map(len, stream.batches())) == 10 * PARTITIONS
        assert list(stream) == []


def test_what_is_refused(cluster):
    topic, group = filled(cluster, 1)
    with pytest.raises(GroupError, match="group="):
        cluster.consumer().create_message_streams({topic: 1})
    with pytest.raises(ValueError, match="0 threads"):
        cluster.consumer(group=group).create_message_streams({topic: 0})
    with cluster.consumer(topic, group=group) as consumer:
        with pytest.raises(RuntimeError, match="reads something already"):
            consumer.create_message_streams({topic: 1})
    with cluster.consumer(group=group) as consumer:
        consumer.create_message_streams({topic: 1})
        with pytest.raises(RuntimeError, match="come from the streams"):
            next(consumer)
        with pytest.raises(RuntimeError, match="streams' topics are fixed"):
            consumer.subscribe([topic])
