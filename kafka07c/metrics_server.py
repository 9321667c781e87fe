"""A process's figures over HTTP: under ``/metrics`` as Prometheus reads them, under ``/json`` as one JSON object.

::

    metrics = Metrics()
    consumer = Consumer("clicks", zookeeper="zk1:2181", group="reports", metrics=metrics)
    with serve(metrics, 9400):                             # http://127.0.0.1:9400/metrics and /json
        ...

0.7 shows its figures over JMX; this is what stands in for that. Nothing beyond the standard library is needed. The
figures are those of the moment of each question. The JSON: ``{"time": ms since 1970, "metrics": [{"kind": "counter" or
"gauge", "name": …, "labels": {…}, "value": …}]}``, sorted by kind, name and labels.

``ConsumerTopicStat.MessagesPerTopic{topic=clicks}`` is ``kafka07c_consumer_topic_stat_messages_per_topic_total`` for
Prometheus, with the label ``topic``: the names of :mod:`kafka07c.metrics` in lower case, ``_total`` after what only
grows. Text format: https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4.
"""

from __future__ import annotations

import json
import logging
import math
import re
import socket
import socketserver
import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from kafka07c.metrics import Metrics, Sample

__all__ = ["MetricsServer", "json_text", "metric_name", "prometheus_text", "serve"]

_log = logging.getLogger(__name__)

#: seconds that a client may take for its question
_PATIENCE = 10.0

_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def metric_name(name: str) -> str:
    """The name that a figure has in Prometheus, without ``_total``."""
    return "kafka07c_" + re.sub("[^a-z0-9]+", "_", _WORD_BEGINS.sub("_", name).lower())


def prometheus_text(samples: Iterable[Sample]) -> str:
    """Samples in Prometheus's text format; those of one name have to follow each other, as ``collect`` has them."""
    lines: list[str] = []
    last = ""
    for sample in samples:
        name = metric_name(sample.name) + ("_total" if sample.kind == "counter" else "")
        if name != last:
            lines += [f"# HELP {name} {_escape(sample.name)}", f"# TYPE {name} {sample.kind}"]
            last = name
        labels = ",".join(f'{label}="{_escape(value)}"' for label, value in sample.labels)
        lines.append(f"{name}{{{labels}}} {_number(sample.value)}" if labels else f"{name} {_number(sample.value)}")
    return "".join(f"{line}\n" for line in lines)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def json_text(samples: Iterable[Sample], now: float) -> str:
    """Samples as one JSON object without a line break; ``now`` is in seconds since 1970. What is no number is null."""
    figures = [
        {
            "kind": sample.kind,
            "name": sample.name,
            "labels": dict(sample.labels),
            "value": sample.value if math.isfinite(sample.value) else None,
        }
        for sample in samples
    ]
    return json.dumps({"time": int(now * 1000), "metrics": figures})


class MetricsServer:
    """What :func:`serve` has started: ``host`` and ``port`` are where it listens. A context manager."""

    def __init__(self, metrics: Metrics, port: int, host: str) -> None:
        self._server = _Server(metrics, host, port)
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name=f"kafka07c-metrics-{self.port}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Twice does no harm."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def serve(metrics: Metrics, port: int, host: str = "127.0.0.1") -> MetricsServer:
    """Show the figures over HTTP, from a thread; port 0 takes a free one. OSError when the address cannot be had."""
    return MetricsServer(metrics, port, host)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # who reads slowly does not hold up the end

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        self.metrics = metrics
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's would look the host's name up
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a client of the figures went away", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path not in ("/metrics", "/json"):
            self.send_error(404, explain="There are /metrics and /json.")
            return
        samples = self.server.metrics.collect()
        if path == "/metrics":
            self._answer("text/plain; version=0.0.4; charset=utf-8", prometheus_text(samples))
        else:
            self._answer("application/json", json_text(samples, time.time()) + "\n")

    do_HEAD = do_GET

    def _answer(self, content_type: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        _log.debug(format, *args)
