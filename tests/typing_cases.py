"""What type checkers see of the public names: nothing here runs, mypy reads it (see test_types.py).

``assert_type`` says what a type is. A line that has to be wrong carries an ignore of just that error: mypy complains
when it is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_type

import numpy
from numpy.typing import NDArray

import kafka07c
from kafka07c import (
    EARLIEST,
    Cluster,
    Codec,
    Consumer,
    Delivery,
    FetchRequest,
    Log,
    Message,
    MessageSet,
    Position,
    Producer,
    SimpleConsumer,
    SyncProducer,
    TopicPartition,
    __version__,
    build_info,
    build_message_set,
    crc32,
    errors,
)
from kafka07c.metrics import Metrics
from kafka07c.names import BrokerAddress
from kafka07c.producer import ProducerRecord, State, default_partition


def message_sets(data: bytes, array: NDArray[numpy.uint8]) -> None:
    ms = MessageSet(memoryview(data), 0, topic="clicks", broker=0, partition=1, shallow=True)
    MessageSet(bytearray(data))
    MessageSet(array)
    MessageSet("text")  # type: ignore[arg-type]
    MessageSet(data, topic=b"clicks")  # type: ignore[arg-type]
    assert_type(ms.offsets, NDArray[numpy.int64])
    assert_type(ms.next_offsets, NDArray[numpy.int64])
    assert_type(ms.indexes, NDArray[numpy.int32])
    assert_type(ms.lengths, NDArray[numpy.int32])
    assert_type(ms.payloads(), list[bytes])
    assert_type(ms.valid_bytes, int)
    assert_type(ms.data, memoryview)
    assert_type(ms.good(), MessageSet)
    assert_type(ms[0], Message)
    assert_type(ms[1:], list[Message])
    assert_type([message for message in ms], list[Message])
    assert_type(len(ms), int)
    ms.valid_bytes = 3  # type: ignore[misc]
    if ms.error is not None:
        assert_type(ms.error, errors.PlacedError)
        assert_type(ms.error.offset, int | None)


def messages(message: Message) -> None:
    assert_type(message.payload, memoryview)
    assert_type(message.value, bytes)
    assert_type(message.offset, int)
    assert_type(message.topic, str | None)
    assert_type(message.codec, Codec)
    message.key  # type: ignore[attr-defined]  # 0.7 has none
    Message()


def building(array: NDArray[numpy.uint8], offsets: NDArray[numpy.int64]) -> None:
    assert_type(build_message_set([b"a", bytearray(b"b"), memoryview(b"c")], "gzip"), bytes)
    build_message_set(array, Codec.SNAPPY)
    build_message_set(b"abc", offsets=[0, 1, 3])
    build_message_set(array, offsets=offsets)
    build_message_set(MessageSet(b""))
    build_message_set(b"one payload")  # type: ignore[arg-type]
    build_message_set(["text"])  # type: ignore[list-item]
    build_message_set([b"a"], magic=2)  # type: ignore[call-overload]
    assert_type(crc32(b"abc"), int)


def consumers(tp: TopicPartition) -> None:
    with Consumer("clicks", zookeeper="zk1:2181", group="reports", metrics=Metrics()) as consumer:
        assert_type(consumer, Consumer)
        for message in consumer:
            assert_type(message, Message)
        assert_type(next(consumer), Message)
        assert_type(consumer.batches(), Iterator[MessageSet])
        assert_type(consumer.poll(100), dict[TopicPartition, list[Message]])
        assert_type(consumer.assignment, set[TopicPartition])
        assert_type(consumer.errors, dict[TopicPartition, errors.KafkaError])
        assert_type(consumer.committed(tp), Position | None)
        consumer.assign({tp: EARLIEST})
        consumer.commit({tp: Position(4711, 2)})
        consumer.commit({tp: None})  # type: ignore[dict-item]
        consumer.pause("clicks")  # type: ignore[arg-type]
        for stream in consumer.create_message_streams({"clicks": 2})["clicks"]:
            for message in stream:
                assert_type(message, Message)


def producers(tp: TopicPartition, told: list[Delivery]) -> None:
    with Producer(zookeeper="zk1:2181", on_delivery=told.append) as producer:
        assert_type(producer, Producer)
        assert_type(producer.send("clicks", b"value", partition=tp), Delivery | None)
        assert_type(producer.send_many("clicks", [b"a", b"b"], keys=["x", "y"]), list[Delivery] | None)
        assert_type(producer.send_batch("clicks", numpy.zeros((3, 8), numpy.uint8)), list[Delivery] | None)
        assert_type(producer.flush(10.0), int)
        producer.send("clicks", b"value", partition=0)  # type: ignore[arg-type]  # 0.7 has a partition 0 on each broker
        producer.send(b"clicks", b"value")  # type: ignore[arg-type]
    for delivery in told:
        assert_type(delivery.state, State)
        assert_type(delivery.ok, bool)
        assert_type(delivery.partition, TopicPartition | None)
        assert_type(delivery.error, errors.KafkaError | None)
        delivery.state = State.FAILED  # type: ignore[misc]
    ProducerRecord("clicks", b"value", partition="0-1")  # type: ignore[arg-type]
    assert_type(default_partition("key", 8), int)


def simple() -> None:
    consumer = SimpleConsumer("127.0.0.1", 9092)
    assert_type(consumer.fetch("clicks", 0, 0), MessageSet)
    assert_type(consumer.multifetch([FetchRequest("clicks", 0, 0)]), list[MessageSet])
    assert_type(consumer.get_offsets_before("clicks", 0, EARLIEST, 1), list[int])
    SyncProducer("127.0.0.1", 9092).send("clicks", 0, [b"value"], codec="gzip")


def cluster_and_logs() -> None:
    with Cluster(zookeeper="zk1:2181", live=True) as cluster:
        assert_type(cluster.partitions("clicks"), list[TopicPartition])
        assert_type(cluster.brokers, dict[int, BrokerAddress])
    with Log("/archive/clicks-0") as log:
        assert_type(log.read(0), MessageSet)
        for part in log.scan(on_corrupt="skip"):
            assert_type(part, MessageSet)
        log.scan(on_corrupt="ignore")  # type: ignore[arg-type]


def errors_and_metrics(error: errors.CorruptMessageError) -> None:
    assert_type(error.next_offset, int | None)
    assert_type(error.topic, str | None)
    errors.CorruptMessageError("it", topic="clicks", partition=0, offset=17)
    errors.CorruptMessageError("it", place=17)  # type: ignore[call-arg]
    assert_type(Metrics().snapshot(), dict[str, float])
    assert_type(__version__, str)
    kafka07c.Produser  # type: ignore[attr-defined]
    assert_type(build_info().kernel, str)
