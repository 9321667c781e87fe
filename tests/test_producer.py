"""The producer end to end, against the embedded broker with its faults, and a real ZooKeeper where it has a say."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy
import pyarrow as pa
import pytest
from scripted_server import PATIENCE

from kafka07c import Codec, SimpleConsumer, TopicPartition
from kafka07c.broker import Broker
from kafka07c.errors import (
    InvalidTopicError,
    MessageTooLargeError,
    QueueFullError,
)
from kafka07c.metrics import Metrics
from kafka07c.producer import (
    Delivery,
    Producer,
    State,
    StringEncoder,
    default_partition,
)
from kafka07c.producer.batches import Batch
from kafka07c.testing import ZooKeeper

VISIBLE_AT_ONCE = {"log.flush.interval": 1}

HERE = "0-0"


@pytest.fixture
def broker(tmp_path) -> Iterator[Broker]:
    with Broker(tmp_path / "log", broker_id=0, partitions=2, properties=VISIBLE_AT_ONCE) as broker:
        yield broker


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeper]:
    with ZooKeeper() as zookeeper:
        yield zookeeper


@pytest.fixture
def chroot(zookeeper, request) -> str:
    return f"{zookeeper.address}/{request.node.name[:40].replace('[', '-').replace(']', '')}"


def listed(broker: Broker) -> str:
    return f"{broker.broker_id}:127.0.0.1:{broker.port}"


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def read_back(broker: Broker, topic: str, partition: int = 0) -> list[bytes]:
    """Everything in a partition."""
    values: list[bytes] = []
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        offset = 0
        while len(messages := consumer.fetch(topic, partition, offset)):
            values += [bytes(message.value) for message in messages]
            offset = messages.next_offset
    return values


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(start, start + count)]


def without_repeats(values: list[bytes]) -> list[bytes]:
    return list(dict.fromkeys(values))


class Told:
    """A callback that keeps what it hears."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []

    def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)

    def __len__(self) -> int:
        return len(self.deliveries)

    @property
    def values(self) -> list[bytes]:
        return [bytes(delivery.value) for delivery in self.deliveries if isinstance(delivery.value, bytes)]

    @property
    def states(self) -> Counter[State]:
        return Counter(delivery.state for delivery in self.deliveries)


# --- what arrives


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_what_is_sent_arrives_in_order_and_is_told_once(broker, codec):
    told = Told()
    with Producer(brokers=listed(broker), codec=codec, on_delivery=told) as producer:
        for value in numbers(100):
            assert producer.send("t", value, partition=HERE) is None
        assert producer.send_many("t", numbers(20_000, 100), partition=HERE) is None
        column = pa.array(numbers(500, 20_100), pa.binary())
        assert producer.send_batch("t", column, partition=HERE) is None
        assert producer.flush(PATIENCE) == 0
        assert told.states == {State.WRITTEN: 20_101}
    assert read_back(broker, "t") == numbers(20_600)
    assert told.values == numbers(20_100)
    assert {delivery.partition for delivery in told.deliveries} == {TopicPartition("t", 0, 0)}
    last = told.deliveries[-1]
    assert (last.value, last.count, last.ok, last.resends, last.offset) == (column, 500, True, 0, None)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_sync_mode_returns_what_became_of_each(broker, codec):
    with Producer(brokers=listed(broker), mode="sync", codec=codec) as producer:
        one = producer.send("t", b"0", key="k", partition=HERE)
        many = producer.send_many("t", numbers(3, 1), partition=HERE)
        columns = producer.send_batch("t", numpy.frombuffer(b"456", numpy.uint8).reshape(3, 1), partition=HERE)
        assert producer.send_many("t", []) == []
    assert one == Delivery("t", TopicPartition("t", 0, 0), b"0", "k", State.WRITTEN)
    assert [delivery.value for delivery in many] == numbers(3, 1)
    assert [(delivery.state, delivery.count) for delivery in columns] == [(State.WRITTEN, 3)]
    assert read_back(broker, "t") == numbers(7)


def test_with_a_static_list_the_broker_picks_and_nobody_knows_which(broker):
    with Producer(brokers=listed(broker), mode="sync") as producer:
        assert producer.send("t", b"x", key="k").partition is None
    assert read_back(broker, "t", 0) + read_back(broker, "t", 1) == [b"x"]


def test_columns_of_several_shapes(broker):
    with Producer(brokers=listed(broker), mode="sync") as producer:
        producer.send_batch("t", numpy.frombuffer(b"aabb", numpy.uint8).reshape(2, 2), partition=HERE)
        producer.send_batch("t", b"ccdd", offsets=[0, 2, 4], partition=HERE)
        producer.send_batch("t", pa.chunked_array([[b"ee"], [b"ff"]], pa.binary()), partition=HERE)
        assert producer.send_batch("t", pa.array([], pa.binary()), partition=HERE) == []
    assert read_back(broker, "t") == [b"aa", b"bb", b"cc", b"dd", b"ee", b"ff"]


def test_keys_of_a_column_may_be_a_column(chroot, tmp_path):
    names = [f"k{i}" for i in range(60)]
    given = [names, pa.array(names), pa.chunked_array([names[:7], names[7:]]), pa.array([n.encode() for n in names])]
    with Broker(tmp_path, broker_id=0, partitions=3, zookeeper=chroot, properties=VISIBLE_AT_ONCE) as broker:
        with Producer(zookeeper=chroot, mode="sync") as producer:
            producer.send("t", b"makes it", partition=HERE)
            until(lambda: len(producer._router.partitions("t")) == 3)
            for keys in given:
                told = producer.send_batch("t", pa.array(names), keys=keys)
                assert sorted(i for each in told for i in each.indexes) == list(range(60))
                for each in told:
                    assert all(default_partition(names[i], 3) == each.partition.partition for i in each.indexes)
            with pytest.raises(ValueError, match="60 values and 59 keys"):
                producer.send_batch("t", pa.array(names), keys=pa.array(names[1:]))
        for number in range(3):
            mine = [name.encode() for name in names if default_partition(name, 3) == number]
            assert [value for value in read_back(broker, "t", number) if value != b"makes it"] == mine * len(given)


def test_keys_decide_and_order_is_kept_in_each_partition(chroot, tmp_path):
    options = {"partitions": 2, "zookeeper": chroot, "properties": VISIBLE_AT_ONCE}
    with Broker(tmp_path / "0", broker_id=0, **options) as b0, Broker(tmp_path / "1", broker_id=1, **options) as b1:
        told = Told()
        with Producer(zookeeper=chroot, on_delivery=told) as producer:
            producer.send("t", b"makes it", partition="0-0")
            producer.send("t", b"makes it", partition="1-0")
            producer.flush()
            until(lambda: len(producer._router.partitions("t")) == 4)
            keys = [f"key{i % 50}" for i in range(2000)]
            producer.send_many("t", numbers(2000), keys)
            for i in range(2000, 2100):
                producer.send("t", b"%d" % i, key=f"key{i % 50}")
            column = pa.array(numbers(100, 2100), pa.binary())
            producer.send_batch("t", column, keys=pa.array([f"key{i % 50}" for i in range(2100, 2200)]))
        logs = {(b.broker_id, p): read_back(b, "t", p) for b in (b0, b1) for p in (0, 1)}
    places = [{int(v) % 50 for v in log if v.isdigit()} for log in logs.values()]
    assert sum(map(len, places)) == 50  # no key in two places
    for log in logs.values():
        found = [int(value) for value in log if value.isdigit()]
        assert found == sorted(found)
    assert sum(map(len, logs.values())) == 2202
    assert {delivery.key for delivery in told.deliveries if delivery.count == 1} == {None, *keys}
    columns = [delivery for delivery in told.deliveries if delivery.value is column]
    assert sum(delivery.count for delivery in columns) == 100 and len(columns) == len([p for p in places if p])
    assert sorted(i for delivery in columns for i in delivery.indexes) == list(range(100))
    for delivery in columns:
        there = logs[delivery.partition.broker, delivery.partition.partition]
        assert {column[i].as_py() for i in delivery.indexes} == {value for value in there if value.isdigit() and int(value) >= 2100}


def test_topics_have_codecs_of_their_own(broker):
    with Producer(brokers=listed(broker), mode="sync", codec={"zipped": "gzip"}) as producer:
        producer.send_many("zipped", numbers(10), partition=HERE)
        producer.send_many("plain", numbers(10), partition=HERE)
    with SimpleConsumer("127.0.0.1", broker.port, shallow=True) as consumer:
        assert [m.codec for m in consumer.fetch("zipped", 0, 0)] == [Codec.GZIP]
        assert len(consumer.fetch("plain", 0, 0)) == 10


def test_values_are_encoded(broker):
    with Producer(brokers=listed(broker), mode="sync", encoder=StringEncoder()) as producer:
        producer.send("t", "é", partition=HERE)
        producer.send_many("t", ["a", "b"], partition=HERE)
        with pytest.raises(TypeError, match="takes str, not int"):
            producer.send("t", 5, partition=HERE)
    with Producer(brokers=listed(broker), mode="sync", encoder=str.upper) as producer:
        for send, value in ((producer.send, "x"), (producer.send_many, ["x"])):
            with pytest.raises(TypeError, match="the encoder made str of a str, not bytes"):
                send("t", value, partition=HERE)
    with Producer(brokers=listed(broker), mode="sync") as producer:
        producer.send_many("t", [bytearray(b"c"), memoryview(b"d")], partition=HERE)
        with pytest.raises(TypeError, match="not str: encode it"):
            producer.send_many("t", [b"good", "text"], partition=HERE)
        with pytest.raises(TypeError, match="pass a list"):
            producer.send_many("t", b"one", partition=HERE)
    assert read_back(broker, "t") == ["é".encode(), b"a", b"b", b"c", b"d"]


def test_eight_threads_send_at_once(broker):
    told = Told()
    with Producer(brokers=listed(broker), on_delivery=told, queue_time_ms=1) as producer:

        def work(who: int) -> None:
            for i in range(300):
                producer.send("t", b"%d-%d" % (who, i), partition=HERE)
            producer.send_many("t", [b"%d-%d" % (who, i) for i in range(300, 1000)], partition=HERE)
            producer.flush()

        threads = [threading.Thread(target=work, args=(who,)) for who in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    values = read_back(broker, "t")
    assert Counter(values) == Counter(told.values) and len(values) == 8000
    for who in range(8):
        mine = [int(v.split(b"-")[1]) for v in values if v.startswith(b"%d-" % who)]
        assert mine == list(range(1000))


# --- what is refused before it is sent


def test_what_a_broker_would_drop_is_refused(broker):
    told = Told()
    with Producer(brokers=listed(broker), max_message_bytes=1000, on_delivery=told) as producer:
        with pytest.raises(MessageTooLargeError, match="1001 bytes.*1000.*Nothing was sent") as caught:
            producer.send("t", bytes(1001), partition=HERE)
        assert (caught.value.size, caught.value.max_message_bytes, caught.value.topic) == (1001, 1000, "t")
        with pytest.raises(MessageTooLargeError):
            producer.send_many("t", [b"good"] * 500 + [bytes(1001)] + [b"good"] * 500, partition=HERE)
        with pytest.raises(MessageTooLargeError, match="payload 1 has 1001"):
            producer.send_batch("t", pa.array([b"good", bytes(1001)], pa.binary()), partition=HERE)
        for bad in ("", "a/b", ".."):
            with pytest.raises(InvalidTopicError):
                producer.send(bad, b"x", partition=HERE)
        with pytest.raises(TypeError, match="every broker"):
            producer.send("t", b"x", partition=0)
        with pytest.raises(ValueError, match="topic 'other'"):
            producer.send("t", b"x", partition=TopicPartition("other", 0, 0))
        with pytest.raises(ValueError, match="2 values and 1 keys"):
            producer.send_many("t", [b"a", b"b"], ["k"])
        producer.send("t", bytes(1000), partition=HERE)
    assert told.states == {State.WRITTEN: 1}
    assert read_back(broker, "t") == [bytes(1000)]


def test_a_wrapper_that_is_too_large_is_cut_in_halves(broker):
    told = Told()
    values = [os.urandom(300) for _ in range(50)]  # does not compress
    with Producer(brokers=listed(broker), max_message_bytes=2000, codec="gzip", on_delivery=told) as producer:
        producer.send_many("t", [*values, os.urandom(3000), b"after"], partition=HERE)
        producer.send_batch("t", pa.array(values, pa.binary()), partition=HERE)
    assert read_back(broker, "t") == [*values, b"after", *values]
    assert told.states == {State.WRITTEN: 52, State.FAILED: 1}
    (failed,) = [delivery for delivery in told.deliveries if not delivery.ok]
    assert isinstance(failed.error, MessageTooLargeError) and len(failed.value) == 3000
    assert "compressed" in str(failed.error)
    assert told.deliveries[-1].count == 50
    with SimpleConsumer("127.0.0.1", broker.port, shallow=True) as consumer:
        assert max(len(m.value) for m in consumer.fetch("t", 0, 0)) <= 2000


# --- a full queue


def test_a_full_queue_blocks_until_there_is_room(broker):
    broker.faults.stall_next("offsets")
    with Producer(brokers=listed(broker), queue_messages=10) as producer:
        producer.send_many("t", numbers(10), partition=HERE)
        until(lambda: broker.faults.pending == 0)
        thread = threading.Thread(target=producer.send_many, args=("t", numbers(25, 10)), kwargs={"partition": HERE})
        thread.start()
        until(lambda: producer._dispatcher.queue._waiting)
        broker.faults.clear()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert read_back(broker, "t") == numbers(35)


@pytest.mark.parametrize("wait_ms", [0, 30])
def test_a_full_queue_raises_at_once_or_after_a_while(broker, wait_ms):
    broker.faults.stall_next("offsets")
    metrics, told = Metrics(), Told()
    options = {"queue_messages": 10, "batch_messages": 4, "enqueue_timeout_ms": wait_ms, "metrics": metrics}
    with Producer(brokers=listed(broker), on_delivery=told, **options) as producer:
        producer.send_many("t", numbers(6), partition=HERE)
        with pytest.raises(QueueFullError, match=r"full: 10 records of 10 \(queue.size\)") as caught:
            producer.send_many("t", numbers(12, 6), partition=HERE)
        assert caught.value.queued == 4
        with pytest.raises(QueueFullError):
            producer.send("t", b"x", partition=HERE)
        figures = metrics.snapshot()
        assert figures["AsyncProducerStats.AsyncProducerDroppedEvents"] == 9
        assert figures["AsyncProducerQueueSizeStats.AsyncProducerQueueSize"] == 10
        broker.faults.clear()
    assert read_back(broker, "t") == numbers(10) == told.values
    assert metrics.snapshot()["KafkaProducerStats.Written{topic=t}"] == 10


def test_a_column_of_which_a_part_finds_room_is_told_about_as_that_part(broker):
    told = Told()
    with Producer(brokers=listed(broker), on_delivery=told, queue_messages=10, enqueue_timeout_ms=0) as producer:
        broker.faults.stall_next("offsets")
        with pytest.raises(QueueFullError) as caught:
            producer.send_batch("t", numbers(25), partition=HERE)
        assert caught.value.queued == 10 and list(caught.value.refused) == list(range(10, 25))
        with pytest.raises(QueueFullError) as caught:
            producer.send_batch("t", numbers(3), partition=HERE)
        assert caught.value.queued == 0
        broker.faults.clear()
        assert producer.flush(PATIENCE) == 0
        (delivery,) = told.deliveries
    assert (delivery.state, delivery.count, delivery.indexes) == (State.WRITTEN, 10, range(10))
    assert read_back(broker, "t") == numbers(10)


def test_a_column_that_was_written_before_the_rest_found_no_room(broker, monkeypatch):
    told = Told()
    with Producer(brokers=listed(broker), on_delivery=told, queue_messages=10, enqueue_timeout_ms=0) as producer:
        add_batch = producer._dispatcher.queue.add_batch

        def add_when_told(batch: Batch) -> None:
            add_batch(batch)
            producer._dispatcher.queue.flush(PATIENCE)
            monkeypatch.setattr(producer._dispatcher.queue, "add_batch", refuse)

        def refuse(batch: Batch) -> None:
            raise QueueFullError("full")

        monkeypatch.setattr(producer._dispatcher.queue, "add_batch", add_when_told)
        with pytest.raises(QueueFullError):
            producer.send_batch("t", numbers(25), partition=HERE)
        assert producer.flush(PATIENCE) == 0
        assert [(delivery.state, delivery.count) for delivery in told.deliveries] == [(State.WRITTEN, 10)]


def test_a_full_queue_says_which_records_it_refused(chroot, tmp_path):
    """With keys it is not the last ones: each partition's go in one piece."""
    told = Told()
    options = {"zookeeper": chroot, "partitions": 2, "properties": VISIBLE_AT_ONCE}
    with Broker(tmp_path, broker_id=0, **options) as broker:
        with Producer(zookeeper=chroot, mode="sync") as producer:
            producer.send("t", b"", partition=HERE)
        settings = {"partitioner": lambda key, count: int(key), "queue_messages": 4, "enqueue_timeout_ms": 0}
        with Producer(zookeeper=chroot, on_delivery=told, **settings) as producer:
            until(lambda: len(producer._router.partitions("t")) == 2)
            broker.faults.stall_next("offsets")
            with pytest.raises(QueueFullError) as caught:
                producer.send_many("t", numbers(6), keys=["1", "0", "1", "0", "1", "0"])
            broker.faults.clear()
    refused = caught.value.refused
    assert sorted([*map(int, told.values), *refused]) == list(range(6))
    assert caught.value.queued == len(told.values) == 3 and list(refused) == [0, 2, 4]


def test_callbacks_are_functions(broker):
    for name in ("on_delivery", "dead_letter"):
        with pytest.raises(TypeError, match=f"{name} must be a function"):
            Producer(brokers=listed(broker), **{name: "print"})
    with Producer(brokers=listed(broker)) as producer:
        for send, value in ((producer.send, b"x"), (producer.send_many, [b"x"]), (producer.send_batch, [b"x"])):
            with pytest.raises(TypeError, match="on_delivery must be a function"):
                send("t", value, partition=HERE, on_delivery="print")
        producer.send("t", b"y", partition=HERE)
    assert read_back(broker, "t") == [b"y"]


@pytest.mark.parametrize("keys", ["ab", b"ab"])
def test_keys_are_a_list(broker, keys):
    with Producer(brokers=listed(broker)) as producer:
        with pytest.raises(TypeError, match="keys is one"):
            producer.send_many("t", numbers(2), keys=keys)


def test_producers_that_count_in_one_place_show_what_their_queues_have_together(broker):
    metrics = Metrics()
    options = {"brokers": listed(broker), "metrics": metrics, "queue_time_ms": 60_000}
    with Producer(**options) as one:
        with Producer(**options) as other:
            one.send_many("t", numbers(2), partition=HERE)
            other.send("t", b"x", partition=HERE)
            assert metrics.gauge("AsyncProducerQueueSizeStats.AsyncProducerQueueSize").value == 3
        assert metrics.gauge("AsyncProducerQueueSizeStats.AsyncProducerQueueSize").value == 2
        assert metrics.gauge("KafkaProducerStats.QueuedBytes").value == 2
    assert metrics.gauge("AsyncProducerQueueSizeStats.AsyncProducerQueueSize").value == 0


def test_the_queue_is_bounded_by_bytes_and_what_is_larger_goes_alone(broker):
    broker.faults.stall_next("offsets")
    with Producer(brokers=listed(broker), queue_bytes=1000, enqueue_timeout_ms=0) as producer:
        producer.send("t", bytes(5000), partition=HERE)
        with pytest.raises(QueueFullError, match="5000 bytes of 1000"):
            producer.send("t", b"x", partition=HERE)
        broker.faults.clear()
        producer.flush()
        producer.send("t", b"x", partition=HERE)
    assert read_back(broker, "t") == [bytes(5000), b"x"]


def test_memory_is_bounded_while_a_broker_stalls(broker):
    broker.faults.stall_next("produce")
    with Producer(brokers=listed(broker), queue_bytes=100_000, enqueue_timeout_ms=0) as producer:
        queued = 0
        with pytest.raises(QueueFullError):
            for _ in range(100):
                producer.send_many("t", [bytes(1000)] * 10, partition=HERE)
                queued += 10
        assert queued <= 100 and producer._dispatcher.queue.size <= 100_000
        broker.faults.clear()
    assert len(read_back(broker, "t")) >= queued
