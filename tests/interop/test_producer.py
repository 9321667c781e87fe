"""Our producer and a real 0.7.2 broker: the Scala consumer reads what it sent, keys land where the Scala producer puts
them, and nothing is lost when the broker is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from itertools import count
from pathlib import Path

import numpy
import pytest
from faults import history
from interop.scala07 import SECONDS, ConsoleConsumer, wait_until
from interop.test_wire import CODECS, lines, read_all, wait_for_messages
from producing.checker import check, read_stored

from kafka07c import Codec, build_message_set
from kafka07c.cluster import Cluster
from kafka07c.connection import Connection
from kafka07c.errors import BrokerConnectionError, BrokerTimeoutError, MessageTooLargeError
from kafka07c.names import TopicPartition
from kafka07c.producer import Producer, RandomPartitioner, RoundRobinPartitioner, State, StickyPartitioner
from kafka07c.protocol import LATEST, MultiProduceRequest, OffsetsRequest, ProduceData, decode_offsets_response
from kafka07c.simple import SimpleConsumer, SyncProducer
from kafka07c.testing import start_process
from kafka07c.zookeeper import session

TESTS = Path(__file__).parent.parent
KEYED_PRODUCER = str(Path(__file__).parent / "KeyedProducer.java")
_topics = count()


@pytest.fixture
def topic():
    return f"produced-{next(_topics)}"


@pytest.fixture
def deliveries():
    """What is told: a list, to which ``deliveries.append`` is the callback."""
    return []


def send_in_every_way(producer, topic, seed):
    """All payloads; some by each call, and some to each partition of broker 0, by a key, or wherever."""
    sent = []
    for place in ({"partition": "0-0"}, {"partition": TopicPartition(topic, 0, 1)}, {"keys": True}, {}):
        payloads = lines(f"{seed} {len(sent)}", 60)
        keyed = "keys" in place
        where = {} if keyed else place
        for n, payload in enumerate(payloads[:10]):
            producer.send(topic, payload, f"key {n}" if keyed else None, **where)
        rest = payloads[10:]
        producer.send_many(topic, rest, [f"key {n}" for n in range(len(rest))] if keyed else None, **where)
        column = numpy.frombuffer(b"".join(b"%039d" % n for n in range(100)), numpy.uint8).reshape(100, 39)
        producer.send_batch(topic, column, **({"keys": [f"key {n}" for n in range(100)]} if keyed else where))
        sent += [*payloads, *map(bytes, column)]
    return sent


# Both ways to send, every codec, every partitioner


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_what_the_producer_sends_the_scala_consumer_prints(shared, jvm, topic, mode, codec, deliveries):
    verify = codec == "gzip"
    told = deliveries.append
    with Producer(zookeeper=shared.zookeeper, mode=mode, codec=codec, verify=verify, on_delivery=told) as producer:
        sent = send_in_every_way(producer, topic, f"{mode} {codec}")
        assert producer.flush(SECONDS) == 0
    assert {delivery.state for delivery in deliveries} == {State.VERIFIED if verify else State.WRITTEN}
    assert sum(delivery.count for delivery in deliveries) == len(sent)
    with ConsoleConsumer(jvm, shared.zookeeper, topic) as console:
        wait_until(lambda: len(console.lines) >= len(sent), f"the console consumer to print {len(sent)} lines")
        assert Counter(console.lines) == Counter(sent)
    with SimpleConsumer(shared.host, shared.port) as consumer:
        stored = [message for partition in (0, 1) for message in read_all(consumer, topic, partition)]
    assert Counter(message.value for message in stored) == Counter(sent)
    assert {message.codec for message in stored} == {Codec[codec.upper()]}


def test_what_each_partitioner_and_a_static_list_sent(shared, jvm, topic, deliveries):
    partitioners = [
        None, RandomPartitioner(), RoundRobinPartitioner(), StickyPartitioner(messages=7),
        lambda key, partitions: len(str(key)) % partitions,
    ]  # fmt: skip
    places = [{"zookeeper": shared.zookeeper, "partitioner": partitioner} for partitioner in partitioners]
    places.append({"brokers": f"0:{shared.host}:{shared.port}"})
    sent = []
    for number, place in enumerate(places):
        with Producer(**place, on_delivery=deliveries.append) as producer:
            values = [b"%d-%d" % (number, n) for n in range(50)]
            producer.send_many(topic, values[:20])
            producer.send_many(topic, values[20:40], ["x" * (n % 5) for n in range(20)])
            for value in values[40:]:
                producer.send(topic, value, key=value)
            sent += values
    assert [delivery.state for delivery in deliveries] == [State.WRITTEN] * len(sent)
    assert {delivery.partition is None for delivery in deliveries[:-50]} == {False}
    assert {delivery.partition is None for delivery in deliveries[-50:]} == {True}
    with ConsoleConsumer(jvm, shared.zookeeper, topic) as console:
        wait_until(lambda: len(console.lines) >= len(sent), f"the console consumer to print {len(sent)} lines")
        assert Counter(console.lines) == Counter(sent)
    with SimpleConsumer(shared.host, shared.port) as consumer:
        for partition in (0, 1):
            mine = {message.value for message in read_all(consumer, topic, partition)}
            told = {bytes(each.value) for each in deliveries if each.partition == (topic, 0, partition)}
            assert told <= mine
            assert not told & {message.value for message in read_all(consumer, topic, 1 - partition)}


def test_keys_land_where_the_scala_producer_puts_them(real_broker, zookeeper, jvm):
    draw = random.Random(5)
    letters = "abcxyz0189 -_äöß☃漢字😀𐍈"
    keys = [f"user-{n}" for n in range(60)] + ["", "😀", "\uffff", "polygenelubricants"[:-1]]
    keys += ["".join(draw.choices(letters, k=draw.randrange(1, 40))) for _ in range(60)]
    keys = list(dict.fromkeys(keys))
    with (
        real_broker(zookeeper, broker_id=0, num_partitions=3) as first,
        real_broker(zookeeper, broker_id=12, num_partitions=2) as second,
    ):
        brokers = {0: (first, 3), 12: (second, 2)}
        for broker, partitions in brokers.values():
            with SyncProducer(broker.host, broker.port) as raw:
                for partition in range(partitions):
                    raw.send("keyed", partition, [])
        cluster = Cluster(zookeeper=zookeeper)

        def are_there():
            cluster.refresh()
            return len(cluster.partitions("keyed")) == 5

        wait_until(are_there, "both brokers to have the topic")
        scala = jvm.start(
            KEYED_PRODUCER, "keyed", f"zk.connect={zookeeper}", "producer.type=sync",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        with scala:
            text = "".join(f"{key}\t{n} scala\n" for n, key in enumerate(keys))
            scala.popen.communicate(text.encode(), timeout=SECONDS)
            assert scala.popen.returncode == 0, scala.told()
        with Producer(zookeeper=zookeeper) as producer:
            for n, key in enumerate(keys):
                producer.send("keyed", b"%d one" % n, key)
                producer.send("keyed", b"%d bytes" % n, key.encode())
            producer.send_many("keyed", [b"%d many" % n for n in range(len(keys))], keys)
        places = [TopicPartition("keyed", number, n) for number, (_, count) in brokers.items() for n in range(count)]
        stored = {}

        def all_are_there():
            for tp in places:
                broker, _ = brokers[tp.broker]
                with SimpleConsumer(broker.host, broker.port) as consumer:
                    messages = read_all(consumer, "keyed", tp.partition)
                stored[tp] = [message.value.decode().split() for message in messages]
            return sum(map(len, stored.values())) >= 4 * len(keys)

        wait_until(all_are_there, "all messages")
    found: dict[str, dict[int, TopicPartition]] = {way: {} for way in ("scala", "one", "bytes", "many")}
    for tp, messages in stored.items():
        for n, way in messages:
            assert int(n) not in found[way]
            found[way][int(n)] = tp
    assert set(found["scala"]) == set(range(len(keys)))
    assert len(set(found["scala"].values())) == 5
    for way in ("one", "bytes", "many"):
        assert found[way] == found["scala"], way


def test_a_new_topic_goes_to_partition_0_of_every_broker_until_it_shows_up(shared, topic, deliveries):
    with Producer(zookeeper=shared.zookeeper, on_delivery=deliveries.append) as producer:
        producer.send(topic, b"first", key="anything")
        assert producer.flush(SECONDS) == 0
        assert deliveries[0].partition == (topic, 0, 0)

        def shows_up():
            producer.send(topic, b"another", key="key 0")  # the hash of which is odd
            producer.flush(SECONDS)
            return deliveries[-1].partition == (topic, 0, 1)

        wait_until(shows_up, "the producer to learn of the topic's two partitions")


# Refusals


def test_a_message_that_the_broker_would_drop_in_silence_is_refused(shared, topic, deliveries):
    with Producer(zookeeper=shared.zookeeper, on_delivery=deliveries.append) as producer:
        with pytest.raises(MessageTooLargeError):
            producer.send(topic, bytes(1_000_001))
        producer.send(topic, bytes(999_990))
    assert [delivery.state for delivery in deliveries] == [State.WRITTEN]
    with SimpleConsumer(shared.host, shared.port) as consumer:
        (message,) = wait_for_messages(consumer, topic, 1)
    assert len(message.value) == 999_990


def test_a_batch_that_compresses_to_more_than_the_broker_takes_is_cut(shared, topic, deliveries):
    values = [random.Random(n).randbytes(100_000) for n in range(35)]
    with Producer(zookeeper=shared.zookeeper, codec="snappy", batch_bytes=8_000_000, queue_time_ms=500) as producer:
        producer.send_many(topic, values, partition="0-0", on_delivery=deliveries.append)
    assert [delivery.state for delivery in deliveries] == [State.WRITTEN] * len(values)
    with SimpleConsumer(shared.host, shared.port) as consumer:
        stored = read_all(consumer, topic, max_bytes=8_000_000)
    assert [message.value for message in stored] == values
    assert len({message.offset for message in stored}) > 3


def test_a_set_that_the_broker_hangs_up_on_fails_alone(real_broker, zookeeper, deliveries):
    with real_broker(zookeeper, num_partitions=2) as broker:
        with Producer(zookeeper=zookeeper, on_delivery=deliveries.append, retries=1) as producer:
            producer.send("t", b"first", partition="0-0")
            assert producer.flush(SECONDS) == 0
            # our own check is left out by a topic that does not exist yet, so that nobody knows its partitions
            for n in range(20):
                producer.send("t", b"%d" % n, partition="0-1")
                producer.send("other", b"%d" % n, partition="0-7")
            assert producer.flush(SECONDS) == 0
        states = Counter((delivery.topic, delivery.state) for delivery in deliveries)
        assert states == {("t", State.WRITTEN): 21, ("other", State.FAILED): 20}
        assert all(delivery.error for delivery in deliveries if delivery.state is State.FAILED)
        with SimpleConsumer(broker.host, broker.port) as consumer:
            stored = [int(message.value) for message in read_all(consumer, "t", 1)]
    firsts = list(dict.fromkeys(stored))
    assert firsts == list(range(20))


# What the barrier stands on


@pytest.fixture
def unflushed(real_broker):
    """A broker that hardly ever flushes, so that what is in its files was appended, and nothing more happened to it."""
    with real_broker(num_partitions=2, log_flush_interval=1_000_000) as broker:
        yield broker


@pytest.fixture
def connection(unflushed):
    connection = Connection(unflushed.host, unflushed.port, connect_timeout=5, timeout=SECONDS)
    connection.connect()
    yield connection
    connection.close()


BARRIER = OffsetsRequest("t", 0, LATEST, 1).encode()


def stored_bytes(broker, partition):
    return sum(path.stat().st_size for path in (broker.log_dir / f"t-{partition}").glob("*.kafka"))


def test_the_answer_to_offsets_comes_after_all_that_was_produced_before_it(unflushed, connection):
    draw = random.Random(3)
    expected = [0, 0]
    for number in range(60):
        sets = []
        for _ in range(draw.randrange(1, 20)):
            values = [draw.randbytes(draw.randrange(3000)) for _ in range(draw.randrange(1, 100))]
            sets.append(ProduceData("t", draw.randrange(2), build_message_set(values, codec=draw.choice(CODECS))))
            expected[sets[-1].partition] += len(sets[-1].message_set)
        request = sets[0] if len(sets) == 1 else MultiProduceRequest(tuple(sets))
        connection.send([*request.buffers(), BARRIER])
        assert decode_offsets_response(connection.receive(1 << 16))[0] == 0
        assert [stored_bytes(unflushed, partition) for partition in (0, 1)] == expected, number


def test_many_barriers_on_one_connection_are_answered_each_in_its_place(unflushed, connection):
    data = build_message_set([bytes(1000)] * 100)
    connection.send([ProduceData("t", 0, data).encode(), BARRIER] * 50)
    for number in range(1, 51):
        assert decode_offsets_response(connection.receive(1 << 16))[0] == 0
        assert stored_bytes(unflushed, 0) >= number * len(data)


@pytest.mark.parametrize("before", [0, 20])
def test_behind_a_set_that_is_refused_there_is_no_answer(connection, before):
    bad = bytearray(build_message_set([b"damaged"]))
    bad[-1] ^= 1
    good = ProduceData("t", 1, build_message_set([b"good"] * 1000))
    request = MultiProduceRequest((*[good] * before, ProduceData("t", 0, bytes(bad))))
    connection.send([*request.buffers(), BARRIER])
    with pytest.raises(BrokerConnectionError) as caught:
        connection.receive(1 << 16)
    assert not isinstance(caught.value, BrokerTimeoutError)


def test_behind_a_set_that_is_dropped_in_silence_there_is_one(unflushed, connection):
    """The barrier does not see it: that is why sizes are checked before anything is sent."""
    sets = (ProduceData("t", 0, build_message_set([bytes(1_000_001)])), ProduceData("t", 0, build_message_set([b"ok"])))
    connection.send([*MultiProduceRequest(sets).buffers(), BARRIER])
    assert decode_offsets_response(connection.receive(1 << 16))[0] == 0
    assert stored_bytes(unflushed, 0) == len(sets[1].message_set)


# A broker killed in the middle


class Killing:
    """A real broker, senders of ours (see :mod:`producing.sending`), and a checker of what came of it."""

    def __init__(self, broker, zookeeper, folder):
        self._broker = broker
        self._zookeeper = zookeeper
        self._folder = folder
        self._stage = history.Writer(folder, "stage")
        self._processes = []
        self._senders = []

    def start(self, name, *options):
        command = [
            sys.executable, "-m", "producing.sending", "--history", self._folder, "--name", name, "--zookeeper",
            self._zookeeper, "--topics", "clicks", "--rate", "400", "--seed", "11", "--delivery-ms", "60000", *options,
        ]  # fmt: skip
        process = start_process(command, stdin=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(TESTS)})
        self._processes.append(process)
        self._senders.append(name)

    def _told(self):
        """How many records of each sender have a final state."""
        told: Counter[str] = Counter()
        for event in history.read(self._folder):
            if event.what == "told":
                told[event.by] += len(event["ids"])
        return told

    def wait_for_more(self, number=200):
        enough = self._told() + Counter(dict.fromkeys(self._senders, number))
        wait_until(lambda: self._told() >= enough, f"each sender to be told about {number} more records")

    def kill(self):
        self._stage.write("fault", kind="broker killed", target="broker 0")
        self._broker.stop(signal.SIGKILL)
        with session(self._zookeeper) as client:  # a real broker does not start while its node is there
            wait_until(lambda: client.exists("/brokers/ids/0") is None, "ZooKeeper to forget the broker")
        self._stage.write("gone", target="broker 0")
        self._broker.start()

    def end(self):
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            assert process.wait(2 * SECONDS) == 0
        self._broker.stop(signal.SIGKILL)
        return check(history.read(self._folder), read_stored(self._broker.log_dir, 0))

    def close(self):
        for process in self._processes:
            process.kill()
            process.wait()
        self._stage.close()


@pytest.fixture
def killing(real_broker, zookeeper, tmp_path):
    folder = tmp_path / "history"
    folder.mkdir()
    flushing = {"log_flush_interval": 50, "log_default_flush_scheduler_interval_ms": 200}
    with real_broker(zookeeper, num_partitions=3, **flushing) as broker:
        with SyncProducer(broker.host, broker.port) as raw:
            for partition in range(3):
                raw.send("clicks", partition, [])
        stage = Killing(broker, zookeeper, folder)
        yield stage
        stage.close()


def test_a_real_broker_killed_in_the_middle(killing):
    killing.start("verifying", "--verify", "--codec", "gzip")
    killing.start("writing")
    killing.start("waiting", "--verify", "--mode", "sync")
    killing.wait_for_more()
    for _ in range(4):
        killing.kill()
        killing.wait_for_more()
    verdict = killing.end()
    assert verdict.ok, verdict.told()
    assert verdict.lost == 0
    assert verdict.states["verified"] > 500
    assert verdict.states["written"] > 500
    assert verdict.states["failed"] == verdict.states["unknown"] == 0
    assert verdict.resends > 0
