"""A sender as a process: ``python -m producing.sending``. Threads of one Producer, and a history of all they send.

Every way to send is taken: one record, many, a column; to a partition, by a key, without one. What is handed over is
written down before the call, what is told in the callback. SIGTERM: it flushes, closes and ends.
"""

from __future__ import annotations

import argparse
import logging
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy
from faults.history import Writer
from producing.checker import identify, payload

from kafka07c import Cluster
from kafka07c.errors import KafkaError
from kafka07c.producer import Delivery, Producer

_PAUSE = 0.02
_PATIENCE = 50.0

#: of a line in the history, at most: more records, and seconds
_RUN_RECORDS = 500
_RUN_SECONDS = 0.2


class Telling:
    """Writes down what callbacks are told; runs of records with the same end become one line."""

    def __init__(self, history: Writer):
        self._history = history
        self._key: tuple | None = None
        self._ids: list[str] = []
        self._since = 0.0
        self._lock = threading.Lock()

    def record(self, delivery: Delivery) -> None:
        """One record's end."""
        self._add(delivery, [identify(delivery.value)[0]], may_grow=True)

    def column(self, ids: list[str]) -> Callable[[Delivery], None]:
        """What is to be called with the end of a column, or those of its parts: there is one for each partition."""
        def told(delivery: Delivery) -> None:
            if len(delivery.indexes) != delivery.count:
                raise AssertionError(f"{delivery.count} messages, but {len(delivery.indexes)} indexes: {delivery}")
            self._add(delivery, [ids[index] for index in delivery.indexes], may_grow=False)

        return told

    def _add(self, delivery: Delivery, ids: list[str], *, may_grow: bool) -> None:
        now = time.monotonic()
        partition = None if delivery.partition is None else str(delivery.partition)
        error = None if delivery.error is None else f"{type(delivery.error).__name__}: {delivery.error}"
        key = (str(delivery.state), partition, delivery.offset, delivery.resends, error)
        with self._lock:
            if key != self._key or not may_grow or len(self._ids) >= _RUN_RECORDS or now > self._since + _RUN_SECONDS:
                self._write()
                self._since = now
            self._key = key
            self._ids += ids
            if not may_grow:
                self._write()

    def _write(self) -> None:
        if self._ids:
            state, partition, offset, resends, error = self._key
            self._history.write(
                "told", ids=self._ids, state=state, partition=partition, offset=offset, resends=resends, error=error
            )
            self._ids = []

    def finish(self) -> None:
        """Write what is left."""
        with self._lock:
            self._write()


class Stream:
    """What one thread sends."""

    def __init__(self, sender: Sender, number: int):
        self._sender = sender
        self._name = f"{sender.name}.{number}"
        self._random = random.Random(f"{sender.args.seed} {self._name}")
        self._number = 0
        self._calls = {"send": self._send_one, "send_many": self._send_many, "send_batch": self._send_column}

    def run(self) -> None:
        """Send until it is time to stop, at about the rate that was asked for."""
        rate = self._sender.args.rate / self._sender.args.threads
        due = time.monotonic()
        while not self._sender.stopping.wait(max(0.0, due - time.monotonic())):
            # what a call that was held up has cost is not made up for
            due = max(due, time.monotonic() - 1.0) + self._send() / rate + self._random.uniform(0, _PAUSE)

    def _send(self) -> int:
        call = self._random.choices(("send", "send_many", "send_batch"), (4, 3, 2))[0]
        count = 1 if call == "send" else self._random.randrange(1, 40)
        first, self._number = self._number, self._number + count
        ids = [f"{self._name}:{number}" for number in range(first, first + count)]
        topic, place, keys = self._destination(count)
        noted = {"stream": self._name, "first": first, "count": count, "call": call}
        partition = place.get("partition")
        self._sender.history.write("handed", **noted, topic=topic, partition=partition and str(partition))
        try:
            self._calls[call](topic, ids, keys, place)
        except KafkaError as error:
            self._sender.history.write("raised", **noted, error=f"{type(error).__name__}: {error}")
        return count

    def _destination(self, count: int) -> tuple[str, dict[str, Any], list[str] | None]:
        """Topic, the argument for a partition, and keys."""
        topic = self._random.choice(self._sender.topics)
        how = self._random.choice(self._sender.destinations)
        if how == "partition" and (partitions := self._sender.partitions(topic)):
            return topic, {"partition": self._random.choice(partitions)}, None
        if how == "key":
            return topic, {}, [f"key {self._random.randrange(50)}" for _ in range(count)]
        return topic, {}, None

    def _send_one(self, topic: str, ids: list[str], keys: list[str] | None, place: dict) -> None:
        value = payload(ids[0], self._random.randrange(200))
        key = None if keys is None else keys[0]
        self._sender.producer.send(topic, value, key, on_delivery=self._sender.telling.record, **place)

    def _send_many(self, topic: str, ids: list[str], keys: list[str] | None, place: dict) -> None:
        values = [payload(identity, self._random.randrange(200)) for identity in ids]
        self._sender.producer.send_many(topic, values, keys, on_delivery=self._sender.telling.record, **place)

    def _send_column(self, topic: str, ids: list[str], keys: list[str] | None, place: dict) -> None:
        size = self._random.randrange(40, 200)
        column = numpy.frombuffer(b"".join(payload(identity, size) for identity in ids), dtype=numpy.uint8)
        told = self._sender.telling.column(ids)
        self._sender.producer.send_batch(topic, column.reshape(len(ids), -1), keys=keys, on_delivery=told, **place)


class Sender:
    """One Producer and its threads."""

    def __init__(self, args: argparse.Namespace, cluster: Cluster):
        self.args = args
        self.name: str = args.name
        self.topics: list[str] = args.topics.split(",")
        self.stopping = threading.Event()
        self.history = Writer(args.history, args.name)
        self.telling = Telling(self.history)
        # with a static list of brokers a key does not matter, and verifying needs a partition
        self.destinations = ("partition",) if args.static and args.verify else ("partition", "key", "any")
        self._cluster = cluster
        self.producer = Producer(
            **self._where(),
            mode=args.mode,
            codec=args.codec,
            verify=args.verify,
            connect_timeout_ms=1000,
            socket_timeout_ms=args.socket_ms,
            delivery_timeout_ms=args.delivery_ms,
            verify_timeout_ms=args.delivery_ms,
            queue_messages=args.queue_size,
        )

    def _where(self) -> dict[str, str]:
        if not self.args.static:
            return {"zookeeper": self.args.zookeeper}
        addresses = sorted(self._cluster.brokers.items())
        return {"brokers": ",".join(f"{number}:{each.host}:{each.port}" for number, each in addresses)}

    def partitions(self, topic: str) -> list:
        return self._cluster.partitions(topic)

    def run(self) -> None:
        self.history.write("began", verify=self.args.verify)
        threads = [threading.Thread(target=Stream(self, number).run) for number in range(self.args.threads)]
        _run_all(threads)
        left = self.producer.flush(_PATIENCE)
        self.producer.close(_PATIENCE)
        self.telling.finish()
        self.history.write("ended", left=left)


def _run_all(threads: Iterable[threading.Thread]) -> None:
    threads = list(threads)
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.1)  # a signal that another thread was given does not wake one that waits for a lock


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--history", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--static", action="store_true", help="the brokers that there are now, as a static list")
    parser.add_argument("--topics", required=True)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rate", type=float, required=True, help="messages each second, at most")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--mode", choices=["async", "sync"], default="async")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--socket-ms", type=int, default=1500)
    parser.add_argument("--delivery-ms", type=int, default=30_000)
    parser.add_argument("--queue-size", type=int, default=5000)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    with Cluster(args.zookeeper, live=True) as cluster:
        sender = Sender(args, cluster)
        signal.signal(signal.SIGTERM, lambda *_: sender.stopping.set())
        sender.run()


if __name__ == "__main__":
    main()
