"""SimpleConsumer and SyncProducer end to end, against the embedded broker and the files that it writes."""

from __future__ import annotations

import random
import select
import struct
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from scripted_server import PATIENCE

from kafka07c._views import MessageSet
from kafka07c.broker import Broker
from kafka07c.errors import (
    BrokerConnectionError,
    BrokerTimeoutError,
    CorruptMessageError,
    OffsetOutOfRangeError,
    UnknownError,
    WrongPartitionError,
)
from kafka07c.protocol import EARLIEST, LATEST, FetchRequest, ProduceRequest
from kafka07c.simple import SimpleConsumer, SyncProducer

VISIBLE_AT_ONCE = {"log.flush.interval": 1}


@pytest.fixture
def broker(tmp_path) -> Iterator[Broker]:
    with Broker(tmp_path, partitions=2, properties=VISIBLE_AT_ONCE) as broker:
        yield broker


@pytest.fixture
def consumer(broker) -> Iterator[SimpleConsumer]:
    with SimpleConsumer("127.0.0.1", broker.port, broker=broker.broker_id) as consumer:
        yield consumer


@pytest.fixture
def producer(broker) -> Iterator[SyncProducer]:
    with SyncProducer("127.0.0.1", broker.port) as producer:
        yield producer


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def end_of(consumer: SimpleConsumer, topic: str, partition: int = 0) -> int:
    return consumer.get_offsets_before(topic, partition, LATEST, 1)[0]


def read_all(consumer: SimpleConsumer, topic: str, partition: int = 0, max_bytes: int = 1000) -> list[bytes]:
    """By fetches sent ahead, to the end of what is there."""
    [offset] = consumer.get_offsets_before(topic, partition, EARLIEST, 1)
    payloads = []
    consumer.send_fetch(topic, partition, offset, max_bytes)
    while consumer.pending:
        messages = consumer.receive()
        if messages.next_offset > offset:
            offset = messages.next_offset
            consumer.send_fetch(topic, partition, offset, max_bytes)
        payloads += messages.payloads()
    return payloads


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_what_is_sent_is_read(broker, producer, consumer, codec):
    rng = random.Random(codec)
    batches = [[rng.randbytes(rng.choice([0, 1, 50, 3000])) for _ in range(20)] for _ in range(15)]
    for batch in batches:
        producer.send("t", 1, batch, codec)
    sent = [payload for batch in batches for payload in batch]
    until(lambda: len(read_all(consumer, "t", 1)) == len(sent))
    assert read_all(consumer, "t", 1) == sent
    assert read_all(consumer, "t", 1, 4) == sent
    messages = consumer.fetch("t", 1, 0, 10**6)
    assert str(messages[0].codec) == codec
    assert messages.next_offset == end_of(consumer, "t", 1)


def test_multisend_and_multifetch(broker, producer, consumer):
    producer.multisend(
        [
            ProduceRequest("a", 0, [b"a0"]),
            ProduceRequest("a", 1, [b"a1"] * 9, "gzip"),
            ProduceRequest("b", 0, [b"b0"]),
        ]
    )
    until(lambda: end_of(consumer, "b") > 0)
    a0, wrong, illegal, a1, b0 = consumer.multifetch(
        [
            FetchRequest("a", 0, 0),
            FetchRequest("a", 7, 0),
            FetchRequest("a/b", 0, 0),
            FetchRequest("a", 1, 0, 4),
            FetchRequest("b", 0, 0),
        ]
    )
    assert [a0.payloads(), a1.payloads(), b0.payloads()] == [[b"a0"], [b"a1"] * 9, [b"b0"]]
    assert (type(wrong.error), type(illegal.error)) == (WrongPartitionError, UnknownError)
    assert broker.connections == 2


def test_refusals(broker, producer, consumer):
    producer.send("t", 0, [b"x"])
    until(lambda: end_of(consumer, "t") > 0)
    with pytest.raises(OffsetOutOfRangeError, match="topic 't', broker 0, partition 0, offset 12: "):
        consumer.fetch("t", 0, 12)
    with pytest.raises(OffsetOutOfRangeError):
        consumer.fetch("t", 0, -1)
    with pytest.raises(WrongPartitionError):
        consumer.fetch("t", 2, 0)
    with pytest.raises(UnknownError):
        consumer.fetch("a/b", 0, 0)
    assert len(consumer.fetch("unknown", 0, 12345)) == 0
    assert consumer.get_offsets_before("unknown", 0, LATEST, 1) == [0]
    with pytest.raises(BrokerConnectionError, match="topic 't' partition 2"):
        consumer.get_offsets_before("t", 2, LATEST, 1)
    assert consumer.get_offsets_before("t", 0, LATEST, 5) == [11, 0]


def test_only_flushed_messages_are_there(tmp_path):
    never = {"log.flush.interval": 10_000, "log.default.flush.scheduler.interval.ms": 3_600_000}
    with (
        Broker(tmp_path, properties=never) as broker,
        SimpleConsumer("127.0.0.1", broker.port) as consumer,
        SyncProducer("127.0.0.1", broker.port) as producer,
    ):
        producer.send("t", 0, [b"patience"])
        until(lambda: broker.topics == {"t": 1})
        assert consumer.fetch("t", 0, 0).next_offset == 0

        def flushed() -> bool:
            broker.flush()
            return end_of(consumer, "t") > 0

        until(flushed)
        assert consumer.fetch("t", 0, 0).payloads() == [b"patience"]


def test_segments_are_read_one_after_the_other(tmp_path):
    small = VISIBLE_AT_ONCE | {"log.file.size": 300}
    with (
        Broker(tmp_path, properties=small) as broker,
        SimpleConsumer("127.0.0.1", broker.port) as consumer,
        SyncProducer("127.0.0.1", broker.port) as producer,
    ):
        sent = [b"%03d" % i * 30 for i in range(20)]
        for payload in sent:
            producer.send("t", 0, [payload])
        until(lambda: end_of(consumer, "t") == 2000)
        assert consumer.get_offsets_before("t", 0, LATEST, 100) == [2000, 1600, 1200, 800, 400, 0]
        assert consumer.fetch("t", 0, 100).next_offset == 400
        assert read_all(consumer, "t") == sent


def test_a_broker_that_is_started_again(broker, producer, consumer):
    producer.send("t", 0, [b"before"])
    until(lambda: end_of(consumer, "t") > 0)
    broker.stop()
    with pytest.raises(BrokerConnectionError, match=f"127.0.0.1:{broker.port} cannot be reached"):
        SimpleConsumer("127.0.0.1", broker.port).fetch("t", 0, 0)
    broker.start()
    assert consumer.fetch("t", 0, 0).payloads() == [b"before"]
    producer.send("t", 0, [b"after"])
    until(lambda: len(consumer.fetch("t", 0, 0)) == 2)
    assert consumer.fetch("t", 0, 0).payloads() == [b"before", b"after"]


def test_sends_after_one_that_the_broker_hung_up_on_are_not_lost(broker, producer, consumer):
    producer.send("t", 0, [b"good 1"])
    producer.send("t", 2, [b"there is no partition 2"])
    assert select.select([producer._connection._socket], [], [], PATIENCE)[0]
    producer.send("t", 0, [b"good 2"])
    producer.send("t", 0, [b"good 3"])
    until(lambda: len(consumer.fetch("t", 0, 0)) == 3)
    assert consumer.fetch("t", 0, 0).payloads() == [b"good 1", b"good 2", b"good 3"]


def test_answers_that_are_cut_or_never_begun_are_asked_for_again(broker, producer, consumer):
    producer.send("t", 0, [b"x" * 100])
    until(lambda: end_of(consumer, "t") > 0)
    for at_byte in (0, 2, 5, 50):
        broker.cut_next("fetch", at_byte)
        assert len(consumer.fetch("t", 0, 0)) == 1
    broker.close_next("fetch")
    assert len(consumer.fetch("t", 0, 0)) == 1
    broker.cut_next("fetch", 20, times=2)
    with pytest.raises(BrokerConnectionError, match="closed the connection after 20 bytes of an answer"):
        consumer.fetch("t", 0, 0)
    assert len(consumer.fetch("t", 0, 0)) == 1


def test_a_stalled_answer_is_a_time_out(broker, producer):
    with SimpleConsumer("127.0.0.1", broker.port, timeout=0.2) as consumer:
        stall = broker.stall_next("fetch")
        with pytest.raises(BrokerTimeoutError, match="did not answer within 0.2 s"):
            consumer.fetch("t", 0, 0)
        stall.release()
        assert len(consumer.fetch("t", 0, 0)) == 0


def damaged(broker: Broker, tmp_path, change: Callable[[bytearray], None]) -> None:
    """Stop the broker cleanly, change the one segment of t-0, and start it: it runs no recovery then."""
    broker.stop()
    [segment] = (tmp_path / "t-0").glob("*.kafka")
    data = bytearray(segment.read_bytes())
    change(data)
    segment.write_bytes(data)
    broker.start()


def test_a_length_too_large_at_the_logs_end_is_told_and_not_fetched_for_ever(broker, producer, consumer, tmp_path):
    producer.send("t", 0, [b"x" * 90] * 3)
    until(lambda: end_of(consumer, "t") == 300)

    def grow_the_last(data: bytearray) -> None:
        data[200:204] = struct.pack(">i", 5000)

    damaged(broker, tmp_path, grow_the_last)
    messages = consumer.fetch("t", 0, 0)
    assert (len(messages), messages.next_offset, messages.error) == (2, 200, None)
    error = consumer.fetch("t", 0, 200, 50).error
    assert isinstance(error, CorruptMessageError)
    assert (error.offset, error.next_offset) == (200, None)


def test_what_follows_a_damaged_entry_is_known_at_the_end_of_what_was_fetched(broker, producer, consumer, tmp_path):
    producer.send("t", 0, [b"x" * 90] * 3)
    until(lambda: end_of(consumer, "t") == 300)

    def flip_one_bit(data: bytearray) -> None:
        data[150] ^= 1
        data[250] ^= 1

    damaged(broker, tmp_path, flip_one_bit)
    messages = consumer.fetch("t", 0, 0, 200)
    assert (len(messages), messages.error.offset) == (1, 100)
    assert messages.error.next_offset is None  # what comes after it is damaged too
    last = consumer.fetch("t", 0, 200)
    assert (last.error.offset, last.error.next_offset) == (200, 300)  # the log's end


def test_the_set_of_a_fetch_goes_to_arrow_without_a_message_being_made(broker, producer, consumer):
    producer.send("t", 0, pa.array([b"%d" % i for i in range(1000)]), "snappy")
    until(lambda: end_of(consumer, "t") > 0)
    messages = consumer.fetch("t", 0, 0)
    batch = pa.record_batch(messages)
    assert batch.num_rows == len(messages) == 1000
    assert batch.column("value").to_pylist() == MessageSet(messages.data).payloads()
