"""The registry of figures: what counts, what it shows, and that the names are those of 0.7's clients over JMX."""

from __future__ import annotations

import json
import threading

import pytest

from kafka07c import metrics as names
from kafka07c.metrics import NONE, Metrics, Sample, Timer


def test_counters_gauges_and_their_labels():
    metrics = Metrics()
    metrics.counter("C", topic="a").inc()
    metrics.counter("C", topic="a").inc(41)
    metrics.counter("C", topic="b", broker=0).inc(0)
    metrics.gauge("G").set(1.5)
    metrics.gauge("F").set(lambda: 7)
    metrics.gauge("unset")
    metrics.gauge("not at the moment").set(lambda: None)
    assert metrics.snapshot() == {"C{topic=a}": 42, "C{broker=0,topic=b}": 0, "F": 7, "G": 1.5}
    assert Sample("counter", "C", (("topic", "a"),), 42) in metrics.collect()
    assert (metrics.counter("C", topic="a").value, metrics.gauge("F").value) == (42, 7)
    metrics.remove("C", topic="a")
    metrics.remove("C", topic="never there")
    assert "C{topic=a}" not in metrics.snapshot()


def test_one_name_is_one_kind():
    metrics = Metrics()
    metrics.counter("C")
    with pytest.raises(TypeError, match="C is a counter, not a gauge"):
        metrics.gauge("C")


def test_a_timer_gives_the_figures_of_0_7():
    now = [100.0]
    timer = Timer(clock=lambda: now[0])
    timer.observe(0.5)
    with timer:
        now[0] += 1.5
    now[0] += 2.5
    assert {sample.name: sample.value for sample in timer._samples("SimpleConsumerStats.FetchRequests", ())} == {
        "SimpleConsumerStats.NumFetchRequests": 2,
        "SimpleConsumerStats.AvgFetchRequestMs": 1000.0,
        "SimpleConsumerStats.MaxFetchRequestMs": 1500.0,
        "SimpleConsumerStats.TotalFetchRequestMs": 2000.0,
        "SimpleConsumerStats.FetchRequestsPerSecond": 0.5,
    }
    assert "LogFlushStats.MaxFlushMs" in {sample.name for sample in timer._samples("LogFlushStats.Flushes", ())}
    assert {sample.value for sample in Timer(clock=lambda: 0.0)._samples("T", ())} == {0}


def test_counting_from_several_threads_loses_nothing():
    metrics = Metrics()

    def count() -> None:
        for _ in range(5000):
            metrics.counter("C").inc()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.snapshot() == {"C": 20_000}


def test_a_gauge_that_fails_is_left_out_and_told_once(caplog):
    metrics = Metrics()
    metrics.counter("C").inc()
    metrics.gauge("G", topic="t").set(lambda: 1 / 0)
    metrics.gauge("H").set(lambda: 2)
    assert metrics.snapshot() == metrics.snapshot() == {"C": 1, "H": 2}
    [told] = caplog.records
    assert "G{topic=t} is left out" in told.message
    assert "ZeroDivisionError" in caplog.text
    metrics.gauge("G", topic="t").set(3)
    assert metrics.snapshot()["G{topic=t}"] == 3


def test_who_wants_no_figures_gets_none():
    NONE.counter("C", topic="a").inc()
    NONE.gauge("G").set(1)
    with NONE.timer("T") as timer:
        timer.observe(1.0)
    assert NONE.snapshot() == {}


def test_every_figure_of_the_recorded_consumer_has_its_name(golden):
    metrics = Metrics()
    for name in vars(names).values():
        if isinstance(name, str) and name.partition(".")[0].startswith(("Consumer", "Simple")):
            metrics.timer(name) if name == names.FETCH_REQUESTS else metrics.counter(name)
    shown = set(metrics.snapshot())
    for bean in json.loads(golden.bytes("mbeans.json"))["consumer_and_producer"]:
        kind = bean["object_name"].partition("=kafka.")[2].split(".")[0]  # ConsumerTopicStat.real: the topic is a label
        if "Consumer" in kind:
            attributes = [attribute["name"] for attribute in bean["attributes"]]
            attributes += [operation.partition("(")[0].removeprefix("get") for operation in bean["operations"]]
            assert {f"{kind}.{attribute}" for attribute in attributes} <= shown


def test_every_figure_of_the_recorded_producer_has_its_name(golden):
    metrics = Metrics()
    metrics.timer(names.PRODUCE_REQUESTS, broker=0)
    metrics.counter(names.ASYNC_EVENTS)
    metrics.counter(names.ASYNC_DROPPED)
    metrics.gauge(names.ASYNC_QUEUE_SIZE).set(0)
    shown = {sample.name for sample in metrics.collect()}
    seen = set()
    for bean in json.loads(golden.bytes("mbeans.json"))["producer"]:
        kind = bean["object_name"].partition("type=")[2].removeprefix("kafka.").split("-")[0]  # a queue has a number
        if "Producer" in kind:
            seen |= {f"{kind}.{attribute['name']}" for attribute in bean["attributes"]}
    assert len(seen) == 7 and seen <= shown
