"""Our figures in a process that shows others to Prometheus already; needs the extra ``prometheus``.

::

    metrics = Metrics()
    consumer = Consumer("clicks", zookeeper="zk1:2181", group="reports", metrics=metrics)
    prometheus_client.REGISTRY.register(Exporter(metrics))

Where there is nothing else to show, :func:`kafka07c.metrics_server.serve` does without the extra, and gives the same
text. Names are made as there; each scrape asks for the figures as they are then.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka07c.errors import MissingExtraError
from kafka07c.metrics import Metrics
from kafka07c.metrics_server import MetricsServer, metric_name, serve

try:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtraError(f"{error.name} is not installed: pip install 'kafka07c[prometheus]'") from None

__all__ = ["Exporter", "MetricsServer", "metric_name", "serve"]


class Exporter(Collector):
    """A collector for a registry of ``prometheus_client``, over one registry of ours.

    Consumers that share a process share a :class:`~kafka07c.metrics.Metrics` too: two exporters in one registry would
    give two figures the same name.
    """

    def __init__(self, metrics: Metrics) -> None:
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
