"""Our clients and a real 0.7.2 broker; what we write, its Scala consumer prints, and the other way round."""

from __future__ import annotations

import random
import signal
from itertools import count

import pytest
from interop.scala07 import ConsoleConsumer, ConsoleProducer, wait_until

from kafka07c import Codec
from kafka07c.cluster import Cluster
from kafka07c.errors import (
    BrokerConnectionError,
    InvalidTopicError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    UnknownError,
    WrongPartitionError,
)
from kafka07c.protocol import EARLIEST, LATEST, FetchRequest, ProduceRequest
from kafka07c.simple import SimpleConsumer, SyncProducer

CODECS = ["none", "gzip", "snappy"]
_topics = count()


@pytest.fixture
def topic():
    return f"wire-{next(_topics)}"


@pytest.fixture
def consumer(shared):
    with SimpleConsumer(shared.host, shared.port, broker=0) as consumer:
        yield consumer


@pytest.fixture
def producer(shared):
    with SyncProducer(shared.host, shared.port) as producer:
        yield producer


def lines(seed, number=300):
    """Payloads that a console can show: any bytes but a line end. Some are empty, some large."""
    generator = random.Random(seed)
    sizes = [0, 1, 100_000, *(generator.randrange(400) for _ in range(number))]
    return [generator.randbytes(size).replace(b"\n", b" ").replace(b"\r", b" ") for size in sizes]


def read_all(consumer, topic, partition=0, offset=0, max_bytes=1 << 20):
    """All messages from an offset to the end."""
    messages = []
    while True:
        found = consumer.fetch(topic, partition, offset, max_bytes)
        if found.next_offset == offset:
            return messages
        messages += found
        offset = found.next_offset


def wait_for_messages(consumer, topic, number, partition=0):
    def enough():
        messages = read_all(consumer, topic, partition)
        return len(messages) >= number and messages

    return wait_until(enough, f"{number} messages of {topic}")


# Both ways, every codec


@pytest.mark.parametrize("codec", CODECS)
def test_what_we_send_the_scala_consumer_prints(shared, jvm, producer, topic, codec):
    payloads = lines(codec)
    producer.send(topic, 0, payloads[:100], codec)
    producer.send(topic, 0, payloads[100:101], codec)
    producer.multisend([ProduceRequest(topic, 0, payloads[101:], codec), ProduceRequest(topic, 0, [b"the end"])])
    with ConsoleConsumer(jvm, shared.zookeeper, topic) as console:
        assert console.until(b"the end") == b"".join(payload + b"\n" for payload in [*payloads, b"the end"])


def test_all_codecs_in_one_log(shared, jvm, producer, consumer, topic):
    sent = []
    for number in range(30):
        payloads = [b"%d-%d" % (number, index) for index in range(number)]
        producer.send(topic, 0, payloads, CODECS[number % 3])
        sent += payloads
    producer.send(topic, 0, [b"the end"])
    with ConsoleConsumer(jvm, shared.zookeeper, topic, "--fetch-size", 4096) as console:
        assert console.until(b"the end").split(b"\n")[:-2] == sent
    messages = wait_for_messages(consumer, topic, len(sent) + 1)
    assert [message.value for message in messages[:-1]] == sent
    assert {message.codec for message in messages} == {Codec.NONE, Codec.GZIP, Codec.SNAPPY}


@pytest.mark.parametrize("arguments", [(), ("--sync",), ("--batch-size", 7)], ids=["async", "sync", "batches-of-7"])
def test_what_the_scala_producer_sends_we_read(real_broker, zookeeper, jvm, topic, arguments):
    text = [f"line {n} äöü ☃ {'x' * (n % 500)}".encode() for n in range(500)]
    with (
        real_broker(zookeeper) as broker,
        ConsoleProducer(jvm, zookeeper, topic, *arguments) as console,
        SimpleConsumer(broker.host, broker.port) as consumer,
    ):
        console.send(text)
        messages = wait_for_messages(consumer, topic, len(text))
    assert [message.value for message in messages] == text
    assert {message.codec for message in messages} == {Codec.GZIP}


def test_our_reading_agrees_with_our_writing_whatever_the_fetch_size(producer, consumer, topic):
    payloads = lines(1, 50)
    for codec in CODECS:
        producer.send(topic, 1, payloads, codec)
    whole = wait_for_messages(consumer, topic, 3 * len(payloads), partition=1)
    assert [message.value for message in whole] == 3 * payloads
    for max_bytes in (4, 37, 1000, 120_000):
        found = read_all(consumer, topic, 1, max_bytes=max_bytes)
        assert [(m.offset, m.index, m.next_offset, m.value) for m in found] == [
            (m.offset, m.index, m.next_offset, m.value) for m in whole
        ]


def test_fetches_sent_ahead(producer, consumer, topic):
    producer.send(topic, 0, [b"%d" % n for n in range(100)])
    end = wait_until(lambda: consumer.get_offsets_before(topic, 0, LATEST)[0], "the messages")
    starts = [message.offset for message in read_all(consumer, topic)]
    for offset in [*starts, end]:
        consumer.send_fetch(topic, 0, offset, 64)
    firsts = [consumer.receive() for _ in range(len(starts) + 1)]
    assert [messages[0].value for messages in firsts[:-1]] == [b"%d" % n for n in range(100)]
    assert len(firsts[-1]) == 0


# Growth and limits


def test_a_fetch_grows_for_a_message_that_does_not_fit(producer, consumer, topic):
    large = random.Random(2).randbytes(700_000)
    producer.send(topic, 0, [b"small", large])
    producer.send(topic, 0, [large], "gzip")
    wait_for_messages(consumer, topic, 3)
    first = consumer.fetch(topic, 0, 0, 64)
    assert [message.value for message in first] == [b"small"]
    second = consumer.fetch(topic, 0, first.next_offset, 64)
    assert [message.value for message in second] == [large]
    with pytest.raises(MessageTooLargeError) as caught:
        consumer.fetch(topic, 0, second.next_offset, 64, max_message_bytes=600_000)
    assert caught.value.offset == second.next_offset
    assert caught.value.size > 700_000
    (third,) = consumer.multifetch([FetchRequest(topic, 0, second.next_offset, 64)])
    assert [message.value for message in third] == [large]


def test_a_message_above_the_limit_is_dropped_without_a_word(shared, producer, consumer, topic):
    with pytest.raises(MessageTooLargeError):
        producer.send(topic, 0, [bytes(1_000_001)])
    with SyncProducer(shared.host, shared.port, max_message_bytes=2_000_000) as careless:
        careless.send(topic, 0, [bytes(2_000_000)], "gzip")  # what counts is the size as stored
        careless.send(topic, 0, [bytes(1_000_000)])
        careless.send(topic, 0, [b"lost with it", bytes(1_000_001)])
        careless.send(topic, 0, [b"after"])  # the connection stays open
    messages = wait_for_messages(consumer, topic, 3)
    assert [message.value for message in messages] == [bytes(2_000_000), bytes(1_000_000), b"after"]


# Refusals


def test_refusals(producer, consumer, topic):
    producer.send(topic, 0, [b"one"])
    wait_for_messages(consumer, topic, 1)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        consumer.fetch(topic, 0, 1000)
    assert (caught.value.code, caught.value.topic, caught.value.offset) == (1, topic, 1000)
    with pytest.raises(WrongPartitionError):
        consumer.fetch(topic, 2, 0)
    with pytest.raises(UnknownError):
        consumer.fetch("no/topic", 0, 0)
    with pytest.raises(BrokerConnectionError):
        consumer.get_offsets_before(topic, 2, LATEST)
    assert len(consumer.fetch("never-heard-of", 0, 0)) == 0
    assert [message.value for message in consumer.fetch(topic, 0, 0)] == [b"one"]


def test_refused_parts_of_a_multifetch_leave_the_others_alone(producer, consumer, topic):
    producer.send(topic, 0, [b"one", b"two"])
    producer.send(topic, 1, [b"three"], "snappy")
    wait_for_messages(consumer, topic, 2)
    wait_for_messages(consumer, topic, 1, partition=1)
    parts = consumer.multifetch(
        [
            FetchRequest(topic, 0, 0),
            FetchRequest(topic, 7, 0),
            FetchRequest(topic, 0, 1 << 40),
            FetchRequest("no/topic", 0, 0),
            FetchRequest("never-heard-of", 1, 0),
            FetchRequest(topic, 1, 0),
        ]
    )
    values = [[message.value for message in part.good()] for part in parts]
    assert values == [[b"one", b"two"], [], [], [], [], [b"three"]]
    assert [type(part.error) for part in parts] == [
        type(None), WrongPartitionError, OffsetOutOfRangeError, UnknownError, type(None), type(None),
    ]  # fmt: skip


def test_a_send_after_one_that_was_hung_up_on_is_not_lost(shared, producer, consumer, topic):
    producer.send(topic, 0, [b"before"])
    wait_for_messages(consumer, topic, 1)
    producer.send(topic, 2, [b"the broker has two partitions, and closes"])
    wait_until(producer._connection.peer_closed, "the broker to close")
    producer.send(topic, 0, [b"after"])
    assert [message.value for message in wait_for_messages(consumer, topic, 2)] == [b"before", b"after"]


# Offsets


def test_offsets(real_broker, jvm):
    with (
        real_broker(log_file_size=500) as broker,
        SyncProducer(broker.host, broker.port) as producer,
        SimpleConsumer(broker.host, broker.port) as consumer,
    ):
        for number in range(20):
            producer.send("seg", 0, [b"%090d" % number])
        wait_for_messages(consumer, "seg", 20)
        offsets = consumer.get_offsets_before("seg", 0, LATEST, 100)
        assert offsets == [2000, 1800, 1200, 600, 0]
        assert consumer.get_offsets_before("seg", 0, EARLIEST) == [0]
        assert consumer.get_offsets_before("seg", 0, 0, 10) == []
        shell = jvm.run(
            "kafka.tools.GetOffsetShell", "--server", f"kafka://{broker.host}:{broker.port}", "--topic", "seg",
            "--partition", 0, "--time", -1, "--offsets", 100,
        )  # fmt: skip
        assert [int(line) for line in shell.splitlines() if line.isdecimal()] == offsets


# A broker restarted in between


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_broker_restarted_in_between(real_broker, with_signal):
    with (
        real_broker() as broker,
        SyncProducer(broker.host, broker.port, connect_timeout=0.5) as producer,
        SimpleConsumer(broker.host, broker.port, connect_timeout=0.5) as consumer,
    ):
        producer.send("t", 0, [b"before"], "gzip")
        wait_for_messages(consumer, "t", 1)
        broker.stop(with_signal)
        with pytest.raises(BrokerConnectionError):
            producer.send("t", 0, [b"nobody is there"])
        with pytest.raises(BrokerConnectionError):
            consumer.fetch("t", 0, 0)
        broker.start()
        producer.send("t", 0, [b"after"])
        assert [message.value for message in wait_for_messages(consumer, "t", 2)] == [b"before", b"after"]
        # And when nobody was looking while it was away.
        broker.stop(with_signal)
        broker.start()
        producer.send("t", 0, [b"at last"], "snappy")
        assert [message.value for message in wait_for_messages(consumer, "t", 3)] == [b"before", b"after", b"at last"]


# Names and addresses


def test_the_cluster_is_what_the_broker_registered(real_broker, zookeeper):
    counts = {"topic_partition_count_map": "wide:40,narrow:1"}
    with (
        real_broker(zookeeper, broker_id=0, num_partitions=3) as first,
        real_broker(zookeeper, broker_id=12, **counts) as second,
    ):
        for broker in (first, second):
            with SyncProducer(broker.host, broker.port) as producer:
                for topic in ("wide", "narrow"):
                    producer.send(topic, 0, [b"x"])
        cluster = Cluster(zookeeper=zookeeper)

        def all_there():
            cluster.refresh()
            return sum(map(len, cluster.topics.values())) == 4

        wait_until(all_there, "the topics to be registered")
        assert cluster.topics == {"narrow": {0: 3, 12: 1}, "wide": {0: 3, 12: 40}}
        assert cluster.brokers == {0: (0, "127.0.0.1", first.port), 12: (12, "127.0.0.1", second.port)}
        assert cluster.errors == {}
        # Asked one by one, without ZooKeeper, they say the same, and make nothing of what they were asked for.
        listed = Cluster(brokers=f"0:{first.host}:{first.port},12:{second.host}:{second.port}")
        before = sorted(path.name for path in second.log_dir.iterdir())
        for topic in ("narrow", "wide"):
            assert listed.partitions(topic) == cluster.partitions(topic)
        assert len(listed.partitions("unheard-of")) == 4
        with pytest.raises(InvalidTopicError):
            listed.partitions("no/topic")
        assert sorted(path.name for path in second.log_dir.iterdir()) == before
        with cluster.connect(12) as consumer:
            assert [message.value for message in wait_for_messages(consumer, "wide", 1)] == [b"x"]
