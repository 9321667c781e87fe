"""A steady producer as a process: ``python -m groups.producer``. Each payload is ``NAME:NUMBER filler``.

It finds the brokers in ZooKeeper, and goes on whatever they do; what was sent into a dying one may or may not be in
the logs, and the logs are what counts.
"""

from __future__ import annotations

import argparse
import logging
import random
import signal
import threading
import time

from faults.history import Writer

from kafka07c import Cluster, SyncProducer, TopicPartition
from kafka07c.errors import KafkaError

_PAUSE = 0.05
_TIMEOUT = 2.0
_CODECS = ("none", "none", "gzip", "snappy")


class Producer:
    """Sends small sets, plain or compressed, to partitions drawn by chance."""

    def __init__(self, cluster: Cluster, topics: list[str], name: str, seed: int, history: Writer):
        self._cluster = cluster
        self._topics = topics
        self._name = name
        self._random = random.Random(seed)
        self._history = history
        self._connections: dict[int, SyncProducer] = {}
        self._number = 0

    def send(self, count: int) -> None:
        """One set of ``count`` messages to one partition."""
        partitions = [tp for topic in self._topics for tp in self._cluster.partitions(topic)]
        if not partitions:
            return
        tp = self._random.choice(partitions)
        try:
            self._connected(tp).send(tp.topic, tp.partition, self._payloads(count), self._random.choice(_CODECS))
        except KafkaError as error:
            self._history.write("failed", error=str(error))
            if (connection := self._connections.pop(tp.broker, None)) is not None:
                connection.close()

    def _payloads(self, count: int) -> list[bytes]:
        numbers = range(self._number, self._number + count)
        self._number += count
        return [f"{self._name}:{number} {'x' * self._random.randrange(200)}".encode() for number in numbers]

    def _connected(self, tp: TopicPartition) -> SyncProducer:
        if tp.broker not in self._connections:
            address = self._cluster.address(tp.broker)
            self._connections[tp.broker] = SyncProducer(
                address.host, address.port, connect_timeout=_TIMEOUT / 4, timeout=_TIMEOUT
            )
        return self._connections[tp.broker]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--history", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--topics", required=True)
    parser.add_argument("--rate", type=float, required=True, help="messages each second")
    parser.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with Cluster(args.zookeeper, live=True) as cluster:
        producer = Producer(cluster, args.topics.split(","), args.name, args.seed, Writer(args.history, args.name))
        started, sent = time.monotonic(), 0
        while not stopping.wait(_PAUSE):
            # what a broker that was not to be reached has held up is not made up for
            due = min(int((time.monotonic() - started) * args.rate) - sent, int(args.rate * 2 * _PAUSE) + 1)
            producer.send(max(due, 1))
            sent = int((time.monotonic() - started) * args.rate)


if __name__ == "__main__":
    main()
