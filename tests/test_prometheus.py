"""The exporter: what Prometheus's own parser makes of a scrape, over real HTTP."""

from __future__ import annotations

import subprocess
import sys
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafka07c import metrics as names
from kafka07c.metrics import Metrics
from kafka07c.prometheus import Exporter, metric_name, serve


def scrape(port: int) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}


def test_names():
    assert metric_name(names.MESSAGES) == "kafka07c_consumer_topic_stat_messages_per_topic"
    assert metric_name("SimpleConsumerStats.AvgFetchRequestMs") == "kafka07c_simple_consumer_stats_avg_fetch_request_ms"


def test_no_two_figures_have_the_same_name():
    figures = [value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)]
    assert len(figures) > 15 and len({metric_name(figure) for figure in figures}) == len(figures)


def test_every_figure_of_a_snapshot_is_scraped():
    metrics = Metrics()
    metrics.counter(names.MESSAGES, topic="clicks").inc(3)
    metrics.counter(names.MESSAGES, topic='a "b"\\\n').inc(4)
    metrics.gauge(names.OFFSET_LAG, group="g", topic="clicks", broker=0, partition=1).set(-5)
    metrics.gauge(names.LATEST_OFFSET).set(lambda: None)
    with metrics.timer(names.FETCH_REQUESTS, broker=0):
        pass
    with serve(metrics, 0) as server:
        found = scrape(server.port)
        assert len(found) == len(metrics.snapshot())
        prefix = "kafka07c_consumer_topic_stat_messages_per_topic_total"
        assert found[prefix, (("topic", "clicks"),)] == 3
        assert found[prefix, (("topic", 'a "b"\\\n'),)] == 4
        labels = (("broker", "0"), ("group", "g"), ("partition", "1"), ("topic", "clicks"))
        assert found["kafka07c_consumer_stats_offset_lag", labels] == -5
        assert found["kafka07c_simple_consumer_stats_num_fetch_requests_total", (("broker", "0"),)] == 1

        metrics.counter(names.MESSAGES, topic="clicks").inc()
        assert scrape(server.port)[prefix, (("topic", "clicks"),)] == 4
        server.close()
        with pytest.raises(OSError):
            scrape(server.port)


def test_beside_others_in_one_registry():
    metrics, registry = Metrics(), CollectorRegistry(auto_describe=True)
    registry.register(Exporter(metrics))
    assert generate_latest(registry) == b""
    metrics.gauge(names.GENERATION, group="g").set(2)
    assert b'kafka07c_consumer_stats_generation{group="g"} 2.0' in generate_latest(registry)


def test_without_the_extra_it_says_what_to_install():
    script = "import sys; sys.modules['prometheus_client'] = None; import kafka07c.prometheus"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1 and "pip install 'kafka07c[prometheus]'" in ended.stderr.splitlines()[-1]
