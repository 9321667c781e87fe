"""Figures over real HTTP: what Prometheus's own parser makes of them, what its own client would have written, the JSON."""

from __future__ import annotations

import http.client
import json
import math
import socket

import pytest
from hypothesis import given, strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafka07c import metrics as names
from kafka07c.metrics import Metrics, Sample
from kafka07c.metrics_server import json_text, metric_name, prometheus_text, serve
from kafka07c.prometheus import Exporter


def ask(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}


def filled() -> Metrics:
    metrics = Metrics()
    metrics.counter(names.MESSAGES, topic="clicks").inc(3)
    metrics.counter(names.MESSAGES, topic='a "b"\\\n').inc(4)
    metrics.gauge(names.OFFSET_LAG, group="g", topic="clicks", broker=0, partition=1).set(-5)
    metrics.gauge(names.LATEST_OFFSET).set(lambda: None)
    metrics.gauge(names.QUEUED_BYTES).set(2**53)
    with metrics.timer(names.FETCH_REQUESTS, broker=0):
        pass
    return metrics


def test_prometheus_reads_every_figure_as_its_own_client_would_write_it():
    metrics = filled()
    metrics.remove(names.FETCH_REQUESTS, broker=0)  # its rates change with every look
    registry = CollectorRegistry()
    registry.register(Exporter(metrics))
    ours = prometheus_text(metrics.collect())
    assert parsed(ours) == parsed(generate_latest(registry).decode())
    kinds = {family.name: family.type for family in text_string_to_metric_families(ours)}
    assert kinds[metric_name(names.MESSAGES)] == "counter" and kinds[metric_name(names.OFFSET_LAG)] == "gauge"


@given(st.text(), st.floats() | st.integers(-(2**70), 2**70))
def test_any_label_and_any_number(text, value):
    key, read = next(iter(parsed(prometheus_text([Sample("gauge", "G", (("topic", text),), value)])).items()))
    assert key == ("kafka07c_g", (("topic", text),))
    assert read == pytest.approx(value, nan_ok=True)
    shown = json.loads(json_text([Sample("gauge", "G", (("topic", text),), value)], 0.0))["metrics"][0]["value"]
    assert shown == (value if math.isfinite(value) else None)


def test_both_forms_over_http_are_of_the_moment():
    metrics = filled()
    with serve(metrics, 0) as server:
        status, body = ask(server.port, "/metrics")
        assert status == 200 and len(parsed(body.decode())) == len(metrics.snapshot())
        metrics.counter(names.MESSAGES, topic="clicks").inc()
        status, body = ask(server.port, "/json?now")
        told = json.loads(body)
        assert status == 200 and told["time"] > 1_700_000_000_000
        assert {"kind": "counter", "name": names.MESSAGES, "labels": {"topic": "clicks"}, "value": 4} in told["metrics"]
        assert len(told["metrics"]) == len(metrics.snapshot())
        assert ask(server.port, "/json", "HEAD") == (200, b"")
        server.close()
        with pytest.raises(OSError):
            ask(server.port, "/metrics")
    server.close()


def test_what_it_does_not_have_and_does_not_understand():
    with serve(Metrics(), 0) as server:
        assert ask(server.port, "/")[0] == 404
        assert ask(server.port, "/metrics", "POST")[0] == 501
        with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
            connection.sendall(b"\x00\xff\n\n")
            assert b"400" in connection.recv(1000)
        assert ask(server.port, "/metrics") == (200, b"")


def test_a_gauge_that_fails_hides_nothing_else():
    metrics = Metrics()
    metrics.gauge("G").set(lambda: 1 / 0)
    metrics.gauge("H").set(1)
    with serve(metrics, 0) as server:
        for _ in range(2):
            status, body = ask(server.port, "/json")
            assert status == 200 and [each["name"] for each in json.loads(body)["metrics"]] == ["H"]


def test_a_taken_port():
    with serve(Metrics(), 0) as server, pytest.raises(OSError):
        serve(Metrics(), server.port)
