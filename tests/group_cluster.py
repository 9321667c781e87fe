"""A broker and a ZooKeeper for tests of consumers: a topic and a group of their own for each test."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from kafka07c import Message
from kafka07c.broker import Broker
from kafka07c.names import TopicPartition
from kafka07c.consumer import Consumer
from kafka07c.protocol import LATEST
from kafka07c.simple import SimpleConsumer, SyncProducer
from kafka07c.zookeeper import connect

#: seconds that something which is bound to happen may take on a busy machine
PATIENCE = 30.0


def until(condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """What ``condition`` gives, once that is true."""
    deadline = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.005)
    return found


@contextmanager
def handling_the_third(messages: Iterable[Message]) -> Iterator[list[int]]:
    """A thread that takes messages and, all along this block, is busy with the third; gives the ``next_offset`` of each.

    Afterwards it goes on, and has to find that there are no more.
    """
    handling, go_on = threading.Event(), threading.Event()
    offsets: list[int] = []

    def work() -> None:
        for message in messages:
            offsets.append(message.next_offset)
            if len(offsets) == 3:
                handling.set()
                assert go_on.wait(PATIENCE)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert handling.wait(PATIENCE)
        yield offsets
    finally:
        go_on.set()
        thread.join(PATIENCE)
    assert not thread.is_alive() and len(offsets) == 3


class GroupCluster:
    """One broker with two partitions of each topic, registered in a ZooKeeper."""

    _numbers = itertools.count()

    def __init__(self, folder: Path, zookeeper: str, partitions: int = 2):
        self.zookeeper = zookeeper
        self.folder = folder
        self.broker = Broker(
            folder, partitions=partitions, zookeeper=zookeeper, properties={"log.flush.interval": 1}
        ).start()  # fmt: skip
        self.nodes: KazooClient = connect(zookeeper)

    def close(self) -> None:
        self.nodes.stop()
        self.nodes.close()
        self.broker.stop()

    def new(self, *messages: Sequence[bytes], codec: str = "none") -> tuple[str, str]:
        """A topic with these messages in its partitions 0, 1, … and a group, both of names that nobody else has."""
        number = next(self._numbers)
        topic = f"topic{number}"
        for partition, payloads in enumerate(messages):
            self.send(topic, partition, payloads, codec)
        return topic, f"group{number}"

    def send(self, topic: str, partition: int, payloads: Iterable[bytes], codec: str = "none") -> int:
        """Append messages, and wait until they are there and ZooKeeper has the topic; gives the log's end."""
        payloads = list(payloads)
        with SyncProducer("127.0.0.1", self.broker.port) as producer:
            before = self.end(topic, partition)
            producer.send(topic, partition, payloads, codec)
        until(lambda: not payloads or self.end(topic, partition) > before)
        until(lambda: self.nodes.exists(f"/brokers/topics/{topic}/0"))
        return self.end(topic, partition)

    def end(self, topic: str, partition: int) -> int:
        with SimpleConsumer("127.0.0.1", self.broker.port) as simple:
            return simple.get_offsets_before(topic, partition, LATEST, 1)[0]

    def segment(self, topic: str, partition: int) -> Path:
        return self.folder / f"{topic}-{partition}" / f"{0:020}.kafka"

    def consumer(self, *topics: str, group: str | None = None, **options: Any) -> Consumer:
        """A consumer that is quick to look again."""
        options = {"fetch_backoff_ms": 10, "rebalance_backoff_ms": 200} | options
        return Consumer(*topics, zookeeper=self.zookeeper, group=group, **options)

    def offset(self, group: str, tp: TopicPartition) -> int | None:
        """What a JVM member would read."""
        path = f"/consumers/{group}/offsets/{tp.topic}/{tp.name}"
        return int(self.nodes.get(path)[0]) if self.nodes.exists(path) else None

    def set_offset(self, group: str, tp: TopicPartition, offset: int) -> None:
        """What an operator does."""
        path = f"/consumers/{group}/offsets/{tp.topic}/{tp.name}"
        self.nodes.ensure_path(path)
        self.nodes.set(path, str(offset).encode())
