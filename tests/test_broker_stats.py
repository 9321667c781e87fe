"""What the embedded broker counts: every attribute that 0.7.2's broker shows over JMX, and the right numbers."""

from __future__ import annotations

import json

import pytest

from kafka07c import FetchRequest, SimpleConsumer, build_message_set
from kafka07c.broker import Broker
from kafka07c.errors import BrokerConnectionError, OffsetOutOfRangeError
from kafka07c.metrics import Metrics
from kafka07c.metrics_server import metric_name
from kafka07c.protocol import ProduceData

from broker_client import Wire
from group_cluster import until

PROPERTIES = {"log.flush.interval": 1, "max.message.size": 100}


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def broker(tmp_path, metrics):
    with Broker(tmp_path, partitions=2, properties=PROPERTIES, metrics=metrics) as broker:
        yield broker


def send(broker: Broker, topic: str, payloads: list[bytes], codec: str = "none") -> int:
    """Appends, and gives the bytes; all is counted then, for a connection's requests are carried out in turn."""
    data = build_message_set(payloads, codec)
    with Wire(broker.port) as wire:
        wire.send(ProduceData(topic, 0, data).encode())
        wire.offsets(topic, 0)
    return len(data)


def figures(metrics: Metrics, owner: str, **labels: object) -> dict[str, float]:
    wanted = tuple((name, str(value)) for name, value in sorted(labels.items()))
    return {
        sample.name.partition(".")[2]: sample.value
        for sample in metrics.collect()
        if sample.name.startswith(owner + ".") and sample.labels == wanted
    }


def test_every_attribute_of_the_recorded_broker_is_there(broker, metrics, golden):
    send(broker, "real", [b"x"])
    shown = {(sample.name, sample.labels) for sample in metrics.collect()}
    seen = 0
    for bean in json.loads(golden.bytes("mbeans.json"))["broker"]:
        kind, _, about = bean["object_name"].partition("=kafka.")[2].partition(".")
        if kind == "Log4jController" or about not in ("", "real", "real-0"):
            continue
        labels = ()
        if kind == "logs":
            labels = (("partition", "0"), ("topic", "real"))
        elif about:
            labels = (("topic", about),)
        attributes = {each["name"] for each in bean["attributes"]} - {"Name"}  # which is the labels here
        assert {(f"{kind}.{attribute}", labels) for attribute in attributes} <= shown
        seen += len(attributes)
    assert seen == 5 + 5 + 5 + 14 + 4
    names = {sample.name for sample in metrics.collect()}
    assert len({metric_name(name) for name in names}) == len(names)


def test_messages_and_bytes_in_and_out(broker, metrics):
    first = send(broker, "clicks", [b"a", b"bb"])
    wrapped = send(broker, "clicks", [b"c"] * 40, "gzip")
    other = send(broker, "orders", [b"d"])
    assert figures(metrics, "BrokerTopicStat", topic="clicks") == {
        "MessagesIn": 42, "BytesIn": first + wrapped, "BytesOut": 0, "FailedProduceRequest": 0, "FailedFetchRequest": 0,
    }  # fmt: skip
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        assert len(consumer.fetch("clicks", 0, 0)) == 42
        consumer.multifetch([FetchRequest("clicks", 0, first, 1000), FetchRequest("orders", 0, 0, 1000)])
    assert figures(metrics, "BrokerTopicStat", topic="clicks")["BytesOut"] == first + 2 * wrapped
    assert figures(metrics, "BrokerAllTopicStat") == {
        "MessagesIn": 43, "BytesIn": first + wrapped + other, "BytesOut": first + 2 * wrapped + other,
        "FailedProduceRequest": 0, "FailedFetchRequest": 0,
    }  # fmt: skip
    assert figures(metrics, "logs", topic="clicks", partition=0) == {
        "Size": first + wrapped, "NumberOfSegments": 1, "CurrentOffset": first + wrapped, "NumAppendedMessages": 42,
    }  # fmt: skip


def test_requests_that_fail(broker, metrics):
    send(broker, "clicks", [b"a"])
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        with pytest.raises(OffsetOutOfRangeError):
            consumer.fetch("clicks", 0, 1000)
    too_large = build_message_set([b"x" * 101])
    with Wire(broker.port) as wire:
        wire.send(ProduceData("clicks", 0, too_large).encode())  # dropped without a word
        wire.offsets("clicks", 0)
    with Wire(broker.port) as wire:
        wire.send_to_closing(ProduceData("never-there", 9, build_message_set([b"x"])).encode())
        assert wire.read_to_end() == b""
    assert figures(metrics, "BrokerTopicStat", topic="clicks") | {"BytesIn": 0} == {
        "MessagesIn": 1, "BytesIn": 0, "BytesOut": 0, "FailedProduceRequest": 1, "FailedFetchRequest": 1,
    }  # fmt: skip
    every = figures(metrics, "BrokerAllTopicStat")
    assert (every["FailedProduceRequest"], every["FailedFetchRequest"]) == (2, 1)
    assert not figures(metrics, "BrokerTopicStat", topic="never-there")


def test_requests_bytes_and_flushes(broker, metrics):
    before = figures(metrics, "SocketServerStats")
    with Wire(broker.port) as wire:
        request = ProduceData("clicks", 0, build_message_set([b"a"])).encode()
        wire.send(request)
        asked = len(wire.ask(FetchRequest("clicks", 0, 0, 1000)))
        # an answer is counted when it has gone out
        until(lambda: figures(metrics, "SocketServerStats")["TotalBytesWritten"] == asked)
    after = figures(metrics, "SocketServerStats")
    assert before["NumProduceRequests"] == 0 and after["NumProduceRequests"] == after["NumFetchRequests"] == 1
    assert after["TotalBytesRead"] == len(request) + len(FetchRequest("clicks", 0, 0, 1000).encode())
    assert 0 < after["TotalProduceRequestMs"] == after["AvgProduceRequestMs"] == after["MaxProduceRequestMs"]
    assert after["BytesReadPerSecond"] > 0 < after["BytesWrittenPerSecond"]
    flushes = figures(metrics, "LogFlushStats")
    assert flushes["NumFlushes"] == 1 and 0 < flushes["TotalFlushMs"] == flushes["MaxFlushMs"]


def test_a_stopped_broker_shows_no_logs_and_a_restarted_one_counts_on(tmp_path, metrics):
    broker = Broker(tmp_path, properties=PROPERTIES, metrics=metrics)
    with broker:
        end = send(broker, "clicks", [b"a"])
    assert set(figures(metrics, "logs", topic="clicks", partition=0)) == {"NumAppendedMessages"}
    with broker:
        end += send(broker, "clicks", [b"b"])
        assert figures(metrics, "logs", topic="clicks", partition=0)["CurrentOffset"] == end
        assert figures(metrics, "BrokerTopicStat", topic="clicks")["MessagesIn"] == 2


def test_a_broker_without_metrics_serves_as_before(tmp_path):
    with Broker(tmp_path, properties=PROPERTIES) as broker:
        send(broker, "clicks", [b"a"])
    with pytest.raises(BrokerConnectionError), SimpleConsumer("127.0.0.1", broker.port) as consumer:
        consumer.fetch("clicks", 0, 0)
