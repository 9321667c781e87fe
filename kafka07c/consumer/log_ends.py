"""Where logs begin and end, asked of their brokers; for seeking, and for telling how far a consumer is behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from kafka07c.cluster import Cluster
from kafka07c.errors import KafkaError, ProtocolError
from kafka07c.names import TopicPartition
from kafka07c.protocol import LATEST

__all__ = ["LogEnds"]

#: seconds for which an answer is good enough for a figure
_FRESH = 1.0

#: seconds that a broker is waited for when only a figure is wanted
_TIMEOUT = 2.0


class LogEnds:
    """Asks brokers for the beginnings and ends of logs. May be used from several threads."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self._lock = threading.Lock()
        self._seen: dict[TopicPartition, int] = {}
        self._asked: dict[int, float] = {}  # when each broker was

    def ask(self, partitions: Iterable[TopicPartition], when: int, **options: Any) -> dict[TopicPartition, int]:
        """The offset at ``when`` (EARLIEST or LATEST) of each partition; ``options`` are the connection's.

        BrokerConnectionError when a broker cannot be reached, ProtocolError when it names no offset, ZooKeeperError when
        nobody knows where it is.
        """
        by_broker: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            by_broker.setdefault(tp.broker, []).append(tp)
        found = {}
        for broker, tps in by_broker.items():
            with self._cluster.connect(broker, **options) as consumer:
                for tp in tps:
                    offsets = consumer.get_offsets_before(tp.topic, tp.partition, when, 1)
                    if not offsets:
                        raise ProtocolError(f"{tp}: broker {consumer.host}:{consumer.port} names no offset of its log")
                    found[tp] = offsets[0]
        return found

    def latest(self, tp: TopicPartition, among: Iterable[TopicPartition]) -> int | None:
        """The end of the log of ``tp``, a second old at most; None where its broker does not say.

        It is asked for together with those ``among`` that are on the same broker.
        """
        with self._lock:
            now = time.monotonic()
            if now - self._asked.get(tp.broker, float("-inf")) > _FRESH:
                self._asked[tp.broker] = now
                beside = [other for other in among if other.broker == tp.broker]
                for other in beside:
                    self._seen.pop(other, None)
                try:
                    self._seen |= self.ask(beside, LATEST, connect_timeout=_TIMEOUT, timeout=_TIMEOUT)
                except KafkaError:
                    pass  # there is no such figure at the moment; who fetches says why
            return self._seen.get(tp)
