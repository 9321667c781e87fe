"""A consumer's figures for Prometheus; needs the extra ``prometheus``.

::

    metrics = Metrics()
    consumer = Consumer("clicks", zookeeper="zk1:2181", group="reports", metrics=metrics)
    server = kafka07c.prometheus.serve(metrics, 9400)      # http://127.0.0.1:9400/metrics
    ...
    server.close()

or, in a process that exports others already, ``prometheus_client.REGISTRY.register(Exporter(metrics))``.

``ConsumerTopicStat.MessagesPerTopic{topic=clicks}`` becomes
``kafka07c_consumer_topic_stat_messages_per_topic_total{topic="clicks"}``: the names of :mod:`kafka07c.metrics` in lower
case, ``_total`` after what only grows. Each scrape asks for the figures as they are then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from wsgiref.simple_server import WSGIServer

from kafka07c.errors import MissingExtraError
from kafka07c.metrics import Metrics

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtraError(f"{error.name} is not installed: pip install 'kafka07c[prometheus]'") from None

__all__ = ["Exporter", "Server", "metric_name", "serve"]

_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def metric_name(name: str) -> str:
    """The name that a figure has in Prometheus, without ``_total``."""
    return "kafka07c_" + re.sub("[^a-z0-9]+", "_", _WORD_BEGINS.sub("_", name).lower())


class Exporter(Collector):
    """A collector for a registry of ``prometheus_client``, over one registry of ours.

    Consumers that share a process share a :class:`~kafka07c.metrics.Metrics` too: two exporters in one registry would
    give two figures the same name.
    """

    def __init__(self, metrics: Metrics):
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        """Nothing is known of what there will be."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All figures as they are now."""
        families: dict[tuple[str, str], Metric] = {}
        for sample in self._metrics.collect():
            name = metric_name(sample.name)
            family = families.setdefault((name, sample.kind), Metric(name, sample.name, sample.kind))
            end = "_total" if sample.kind == "counter" else ""
            family.add_sample(name + end, dict(sample.labels), sample.value)
        yield from families.values()


class Server:
    """What :func:`serve` has started; ``port`` is where it listens. A context manager."""

    def __init__(self, server: WSGIServer, thread):
        self._server = server
        self._thread = thread
        self.port: int = server.server_port

    def close(self) -> None:
        """Stop listening. Twice does no harm."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()


def serve(metrics: Metrics, port: int, host: str = "127.0.0.1") -> Server:
    """Answer Prometheus over HTTP in a thread; port 0 takes a free one. OSError when the port is taken."""
    registry = CollectorRegistry()
    registry.register(Exporter(metrics))
    return Server(*start_http_server(port, host, registry))
