"""Reading back what was written: against the real embedded broker, with other producers, flushes, losses, hang-ups."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from dataclasses import dataclass
from queue import SimpleQueue
from time import monotonic, sleep

import numpy
import pytest

from broker_client import Wire, log_end
from faults.proxy import Plan, Proxy
from kafka07c import Log, MessageSet, Producer, SimpleConsumer, SyncProducer, TopicPartition, build_message_set
from kafka07c.broker import Broker
from kafka07c.errors import BrokerConnectionError, MessageTooLargeError, NotVerifiedError
from kafka07c.metrics import Metrics
from kafka07c.names import BrokerAddress
from kafka07c.producer.batches import Batch
from kafka07c.producer.records import State
from kafka07c.producer.verifying import Verifier, _Expected, _Tail
from kafka07c.protocol import ProduceData

#: nothing is flushed unless it is asked for
UNFLUSHED = {"log.flush.interval": 1_000_000, "log.default.flush.scheduler.interval.ms": 3_600_000}

PLACE = TopicPartition("t", 0, 0)


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path / "log", properties={"log.flush.interval": 1}) as broker:
        yield broker


@pytest.fixture
def silent(tmp_path):
    """A broker that flushes when it is told to."""
    with Broker(tmp_path / "log", properties=UNFLUSHED) as broker:
        yield broker


class Told:
    """What on_delivery hears."""

    def __init__(self):
        self.deliveries = []
        self._queue = SimpleQueue()

    def __call__(self, delivery):
        self.deliveries.append(delivery)
        self._queue.put(delivery)

    def next(self):
        return self._queue.get(timeout=30)

    @property
    def states(self):
        return Counter(delivery.state for delivery in self.deliveries)


def producer(port, told=None, **options):
    options = {"delivery_timeout_ms": 30_000, "queue_time_ms": 1} | options
    return Producer(brokers=f"0:127.0.0.1:{port}", verify=True, on_delivery=told, **options)


def write(broker, *sets):
    """Sets of another producer's, one request each; the broker has carried them out."""
    with Wire(broker.port) as wire:
        for payloads in sets:
            wire.send(ProduceData("t", 0, build_message_set(payloads)).encode())
        wire.offsets("t", 0)


def stored(broker, topic="t"):
    """All payloads in partition 0, in order."""
    broker.flush()
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        found, offset = [], 0
        while messages := consumer.fetch(topic, 0, offset):
            found += messages.payloads()
            offset = messages.next_offset
    return found


def entry_at(broker, offset):
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        return consumer.fetch("t", 0, offset)[0].value


# --- found


def test_each_record_is_verified_and_its_offset_is_where_it_is(broker):
    SyncProducer("127.0.0.1", broker.port).send("t", 0, [b"from before"])
    told = Told()
    with producer(broker.port, told) as sending:
        sending.send("t", b"first", partition=PLACE)
        sending.send_many("t", [b"%d" % i for i in range(1000)], partition=PLACE)
        assert sending.flush(30) == 0
    assert told.states == {State.VERIFIED: 1001}
    assert all(delivery.ok and delivery.partition == PLACE for delivery in told.deliveries)
    for delivery in told.deliveries[:3] + told.deliveries[-3:]:
        assert entry_at(broker, delivery.offset) == delivery.value
    assert stored(broker) == [b"from before", b"first", *(b"%d" % i for i in range(1000))]


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_a_wrapper_is_verified_as_it_is_stored(broker, codec):
    told = Told()
    with producer(broker.port, told, codec=codec, queue_time_ms=1000) as sending:
        sending.send_many("t", [b"a" * 100] * 50, partition=PLACE)
        sending.flush(30)
        sending.send_many("t", [b"b" * 100] * 50, partition=PLACE)
    assert told.states == {State.VERIFIED: 100}
    first, second = sorted({delivery.offset for delivery in told.deliveries})
    with SimpleConsumer("127.0.0.1", broker.port, shallow=True) as consumer:
        assert list(consumer.fetch("t", 0, 0).offsets) == [first, second]


def test_columns(broker):
    told = Told()
    column = numpy.arange(3_000_000, dtype=numpy.uint8).reshape(-1, 100)  # several batches
    with producer(broker.port, told) as sending:
        sending.send_batch("t", column, partition=PLACE)
    [delivery] = told.deliveries
    assert (delivery.state, delivery.count, delivery.offset) == (State.VERIFIED, 30_000, 0)
    assert len(stored(broker)) == 30_000


def test_sync_mode_returns_when_it_is_verified(broker):
    with producer(broker.port, mode="sync") as sending:
        delivery = sending.send("t", b"a", partition=PLACE)
        assert (delivery.state, delivery.offset) == (State.VERIFIED, 0)
        more = sending.send_many("t", [b"b", b"c"], partition="0-0")
        assert [each.offset for each in more] == [11, 22]
        [whole] = sending.send_batch("t", numpy.zeros((3, 1), numpy.uint8), partition="0-0")
        assert (whole.state, whole.offset) == (State.VERIFIED, 33)


def test_nothing_is_verified_before_the_flush(silent):
    told = Told()
    with producer(silent.port, told) as sending:
        sending.send("t", b"a", partition=PLACE)
        sending.send("u", b"b", partition="0-0")
        assert sending.flush(0.5) == 2
        assert told.deliveries == []
        silent.flush()
        assert sending.flush(30) == 0
    assert told.states == {State.VERIFIED: 2}
    assert {delivery.resends for delivery in told.deliveries} == {0}


def test_a_flush_interval_and_a_scheduler(tmp_path):
    told = Told()
    properties = {"log.flush.interval": 7, "log.default.flush.scheduler.interval.ms": 100}
    with Broker(tmp_path, properties=properties) as broker, producer(broker.port, told) as sending:
        for i in range(200):
            sending.send("t", b"%d" % i, partition=PLACE)
            if i % 10 == 0:
                sending.flush(30)
        assert sending.flush(30) == 0
        assert told.states == {State.VERIFIED: 200}
        assert stored(broker) == [b"%d" % i for i in range(200)]


def test_other_producers_write_in_between(broker):
    told, ended = Told(), threading.Event()

    def write(seed):
        choice = random.Random(seed)
        with SyncProducer("127.0.0.1", broker.port) as other:
            while not ended.is_set():
                # payloads of ours among them, and one that is itself a message set with one of ours
                other.send("t", 0, [b"%d" % choice.randrange(3000), build_message_set([b"7", b"8"])])

    others = [threading.Thread(target=write, args=(seed,)) for seed in range(3)]
    for other in others:
        other.start()
    try:
        with producer(broker.port, told, codec={"t": "none"}) as sending:
            for i in range(0, 3000, 10):
                sending.send_many("t", [b"%d ours" % each for each in range(i, i + 10)], partition=PLACE)
                if i % 100 == 0:
                    sending.flush(30)
            assert sending.flush(60) == 0
    finally:
        ended.set()
        for other in others:
            other.join()
    assert told.states == {State.VERIFIED: 3000}
    ours = [payload for payload in stored(broker) if payload.endswith(b" ours")]
    assert ours == [b"%d ours" % i for i in range(3000)]


def test_the_same_payloads_again_and_again_are_each_found_once(broker):
    told = Told()
    with producer(broker.port, told, queue_time_ms=0) as sending:
        for count in (1, 3, 2, 1, 50, 1):
            sending.send_many("t", [b"same"] * count, partition=PLACE)
            sending.send("t", b"same", partition=PLACE)
    assert told.states == {State.VERIFIED: 64}
    assert len({delivery.offset for delivery in told.deliveries}) == 64, "no entry stands for two"
    assert stored(broker) == [b"same"] * 64


def test_the_log_rolls_and_entries_are_larger_than_a_fetch(tmp_path):
    told = Told()
    properties = {"log.flush.interval": 1, "log.file.size": 5000, "max.message.size": 3_000_000}
    with Broker(tmp_path / "log", properties=properties) as broker:
        with producer(broker.port, told, max_message_bytes=3_000_000) as sending:
            for i in range(100):
                sending.send("t", b"%d" % i * 100, partition=PLACE)
                if i % 20 == 0:
                    sending.send("t", bytes([i]) * 2_500_000, partition=PLACE)
                    assert sending.flush(30) == 0
        assert told.states == {State.VERIFIED: 105}
        with Log(tmp_path / "log" / "t-0") as log:
            assert len(log.segments) >= 6
        for delivery in told.deliveries:
            assert entry_at(broker, delivery.offset) == delivery.value


def test_several_partitions(tmp_path):
    told = Told()
    with Broker(tmp_path, partitions=10, properties={"log.flush.interval": 1}) as broker:
        with producer(broker.port, told) as sending:
            for number in range(10):
                sending.send_many("t", [b"%d" % i for i in range(100)], partition=TopicPartition("t", 0, number))
    assert told.states == {State.VERIFIED: 1000}
    assert Counter(delivery.partition.partition for delivery in told.deliveries) == dict.fromkeys(range(10), 100)


# --- lost, and written again


def test_the_connection_dies_before_the_write_has_arrived(silent):
    told = Told()
    with Proxy("127.0.0.1", silent.port) as proxy:
        with producer(proxy.port, told) as sending:
            sending.send("t", b"a", partition=PLACE)
            assert sending.flush(0.5) == 1
            silent.flush()
            assert told.next().state is State.VERIFIED
            stall = silent.stall_next("produce")
            sending.send("t", b"b", partition=PLACE)
            assert stall.wait_entered(30)
            silent.close_next("produce")  # of the next one it reads nothing
            silent.close_connections()
            sending.flush(0.5)
            while not told.deliveries[1:]:
                silent.flush()
                sending.flush(0.1)
    assert (told.deliveries[1].state, told.deliveries[1].value) == (State.VERIFIED, b"b")
    assert told.deliveries[1].resends >= 1
    assert set(stored(silent)) == {b"a", b"b"}


def test_the_connection_dies_and_the_write_had_arrived_and_was_flushed(broker):
    """Wherever the answers end, with the connection: before or in that about the end, or the barrier's."""
    told = Told()
    with producer(broker.port, told) as sending:
        for i in range(30):
            broker.cut_next("offsets", i, topic="t")  # an answer has 18 bytes
            sending.send("t", b"%d" % i, partition=PLACE)
            assert told.next().state is State.VERIFIED
    assert set(stored(broker)) == {b"%d" % i for i in range(30)}


def test_a_barrier_that_is_lost_costs_no_second_write_of_what_is_there(broker):
    told = Told()
    with producer(broker.port, told, queue_time_ms=50) as sending:
        sending.send("t", b"first", partition=PLACE)
        assert told.next().state is State.VERIFIED
        stall = broker.stall_next("produce")
        sending.send("t", b"second", partition=PLACE)
        assert stall.wait_entered(30)
        broker.cut_next("offsets", 0)  # what follows on this connection is the barrier
        stall.release()
        delivery = told.next()
    assert (delivery.state, delivery.resends) == (State.VERIFIED, 0)
    assert stored(broker) == [b"first", b"second"]


def test_what_a_broker_lost_though_it_had_carried_it_out_is_written_again(tmp_path):
    """A crash with nothing flushed: the answer to the barrier had come."""
    told = Told()
    directory = tmp_path / "log"
    broker = Broker(directory, properties=UNFLUSHED).start()
    try:
        with producer(broker.port, told) as sending:
            sending.send_many("t", [b"kept"] * 3, partition=PLACE)
            assert sending.flush(0.2) == 3
            broker.flush()
            assert sending.flush(30) == 0
            sending.send_many("t", [b"lost"] * 3, partition=PLACE)
            sending.send("other", b"lost too", partition="0-0")
            while sending._dispatcher._senders[0]._window or sending.flush(0.1) != 4:
                pass  # until the barrier is answered
            broker.stop(clean=False)
            for name, size in (("t-0", 42), ("other-0", 0)):
                [segment] = (directory / name).iterdir()
                with open(segment, "r+b") as file:
                    file.truncate(size)
            broker.start()
            while sending.flush(0.1):
                broker.flush()
        assert told.states == {State.VERIFIED: 7}
        assert [delivery.resends for delivery in told.deliveries] == [0] * 3 + [1] * 4
        assert stored(broker) == [b"kept"] * 3 + [b"lost"] * 3
        assert stored(broker, "other") == [b"lost too"]
    finally:
        broker.stop()


def test_order_is_kept_when_connections_die(broker):
    told = Told()
    with producer(broker.port, told, queue_time_ms=0, batch_messages=3) as sending:
        for i in range(600):
            sending.send("t", b"%d" % i, partition=PLACE)
            if i % 50 == 49:
                broker.close_connections()
            if i % 97 == 0:
                sending.flush(30)
    assert told.states == {State.VERIFIED: 600}
    firsts = list(dict.fromkeys(stored(broker)))
    assert firsts == [b"%d" % i for i in range(600)]


def test_under_a_cutting_proxy_nothing_is_lost(broker):
    told, choice = Told(), random.Random(5)
    with Proxy("127.0.0.1", broker.port) as proxy:
        proxy.script(*(Plan.drawn(choice, swallowing=True) for _ in range(60)))
        with producer(proxy.port, told, socket_timeout_ms=300, queue_time_ms=0) as sending:
            for i in range(400):
                sending.send("t", b"%d" % i, partition=PLACE)
                if i % 20 == 0:
                    sending.flush(0.05)
                if i % 60 == 0:
                    proxy.reset()
            assert sending.flush(60) == 0
    assert told.states == {State.VERIFIED: 400}
    assert set(stored(broker)) == {b"%d" % i for i in range(400)}


# --- dropped in silence


def test_a_set_that_the_broker_dropped_goes_on_without_what_is_too_large(tmp_path):
    """The broker's max.message.size is below ours: the whole set is dropped, and the connection stays."""
    told = Told()
    with Broker(tmp_path, properties={"log.flush.interval": 1, "max.message.size": 1000}) as broker:
        with producer(broker.port, told, queue_time_ms=200) as sending, SyncProducer("127.0.0.1", broker.port) as other:
            payloads = [b"%d" % i for i in range(20)]
            payloads[7] = b"x" * 1001
            sending.send_many("t", payloads, partition=PLACE)
            sending.send_many("u", [b"untouched"], partition="0-0")
            while sending.flush(0.05):
                other.send("t", 0, [b"something that is flushed later"])  # without which nothing could be said
        failed = [delivery for delivery in told.deliveries if delivery.state is State.FAILED]
        [delivery] = failed
        assert delivery.value == payloads[7]
        assert isinstance(delivery.error, MessageTooLargeError)
        assert "is probably below ours, 1000000" in str(delivery.error)
        assert delivery.resends == 4 + 3, "of 20, 10, 5, 3; then, alone, as often as num.retries says"
        assert told.states == {State.VERIFIED: 20, State.FAILED: 1}
        assert sorted(p for p in stored(broker) if len(p) < 3) == sorted(payloads[:7] + payloads[8:])


def test_a_column_with_what_is_too_large_says_so_once(tmp_path):
    told = Told()
    column = [b"%d" % i for i in range(6)] + [b"x" * 1001]
    offsets = numpy.cumsum([0, *map(len, column)])
    with Broker(tmp_path, properties={"log.flush.interval": 1, "max.message.size": 1000}) as broker:
        with producer(broker.port, told) as sending, SyncProducer("127.0.0.1", broker.port) as other:
            sending.send_batch("t", b"".join(column), offsets=offsets, partition=PLACE)
            while sending.flush(0.05):
                other.send("t", 0, [b"something that is flushed later"])
        [delivery] = told.deliveries
        assert (delivery.state, delivery.count, type(delivery.error)) == (State.FAILED, 7, MessageTooLargeError)
        assert sorted(p for p in stored(broker) if len(p) == 1) == column[:6]


def test_without_retries_it_fails_at_once(tmp_path):
    told = Told()
    with Broker(tmp_path, properties={"log.flush.interval": 1, "max.message.size": 1000}) as broker:
        with producer(broker.port, told, retries=0) as sending, SyncProducer("127.0.0.1", broker.port) as other:
            sending.send_many("t", [b"a", b"x" * 1001], partition=PLACE)
            while sending.flush(0.05):
                other.send("t", 0, [b"something that is flushed later"])
        assert told.states == {State.FAILED: 2}
        assert b"a" not in stored(broker)


def test_without_retries_what_a_dead_connection_lost_fails(silent):
    told = Told()
    with producer(silent.port, told, retries=0) as sending:
        stall = silent.stall_next("produce")
        sending.send("t", b"a", partition=PLACE)
        assert stall.wait_entered(30)
        silent.close_connections()
        delivery = told.next()
        stall.release()
    assert delivery.state is State.FAILED
    assert isinstance(delivery.error, BrokerConnectionError)


# --- undecided


def test_what_is_not_decided_in_time_is_unknown(silent):
    told, dead = Told(), []
    metrics = Metrics()
    with producer(silent.port, told, verify_timeout_ms=300, dead_letter=dead.append, metrics=metrics) as sending:
        sending.send_many("t", [b"a", b"b"], partition=PLACE)
        assert sending.flush(30) == 0
    assert told.states == {State.UNKNOWN: 2}
    assert dead == told.deliveries
    error = told.deliveries[0].error
    assert isinstance(error, NotVerifiedError)
    assert (error.topic, error.broker, error.partition) == ("t", 0, 0)
    assert str(error).endswith("nor known to be missing after 0.3 s (verify.timeout.ms)")
    assert told.deliveries[0].offset is None
    assert metrics.snapshot()["KafkaProducerStats.Unknown{topic=t}"] == 2
    assert stored(silent) == [b"a", b"b"], "it was there, and nobody said so"


def test_sync_mode_raises_what_is_unknown(silent):
    with producer(silent.port, verify_timeout_ms=200, mode="sync") as sending:
        with pytest.raises(NotVerifiedError, match=r"topic 't', broker 0, partition 0: it was written, and is neither"):
            sending.send("t", b"a", partition=PLACE)


def test_a_dropped_set_in_a_quiet_partition_is_unknown_for_no_flush_ever_passes_it(tmp_path):
    told = Told()
    with Broker(tmp_path, properties={"log.flush.interval": 1, "max.message.size": 1000}) as broker:
        with producer(broker.port, told, verify_timeout_ms=500) as sending:
            sending.send("t", b"x" * 1001, partition=PLACE)
            assert sending.flush(30) == 0
    assert told.states == {State.UNKNOWN: 1}


def _expected(sending):
    lanes = sending._dispatcher._senders[0]._verifier._lanes.values()
    return [each for lane in list(lanes) for each in list(lane.expected.values())]


def test_closing_does_not_wait_for_a_flush_longer_than_it_may(silent):
    told = Told()
    sending = producer(silent.port, told)
    sending.send("t", b"a", partition=PLACE)
    deadline = monotonic() + 30
    while not any(each.confirmed for each in _expected(sending)):
        assert monotonic() < deadline
        sleep(0.005)
    sending.close(0.3)
    [delivery] = told.deliveries
    assert delivery.state is State.UNKNOWN
    assert isinstance(delivery.error, NotVerifiedError) and "when the producer was closed" in str(delivery.error)
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith(("kafka07c-verifier", "kafka07c-producer"))]


def test_a_partition_that_is_not_known_cannot_be_verified(broker):
    with producer(broker.port) as sending:
        with pytest.raises(ValueError, match="the broker picks the partition and does not say which: give partition="):
            sending.send("t", b"a")
        with pytest.raises(ValueError, match="give partition="):
            sending.send_many("t", [b"a"])
        with pytest.raises(ValueError, match="give partition="):
            sending.send_batch("t", numpy.zeros((1, 1), numpy.uint8))
        with pytest.raises(ValueError, match="verify=True needs a known partition; with -1"):
            sending.send("t", b"a", partition=TopicPartition("t", 0, -1))


# --- what was read of a log, by itself


@dataclass(eq=False)
class _Set:
    data: bytes
    column: object = None

    def expected(self):
        return _Expected(self, self.data, int.from_bytes(self.data[6:10], "big"))


def parts(*payloads):
    return [_Set(build_message_set(each)).expected() for each in payloads]


def fed(tail, data, at_end=False, expected=()):
    messages = MessageSet(data, tail.end, shallow=True)
    assert messages.valid_bytes == len(data)
    tail.add(data, messages.offsets)
    return tail.find(expected, at_end=at_end)


def test_a_set_inside_a_payload_is_not_there():
    [wanted] = parts([b"a", b"b"])
    tail = _Tail(100)
    assert fed(tail, build_message_set([b"x" + wanted.data, wanted.data, b"yy"]), expected=[wanted]) == []
    assert tail.end == 100 + 11 + len(wanted.data) + 10 + len(wanted.data) + 12
    assert fed(tail, wanted.data, expected=[wanted]) == [(wanted, tail.end - len(wanted.data))]


def test_a_set_that_comes_in_pieces():
    [wanted] = parts([b"%d" % i for i in range(100)])
    tail = _Tail(0)
    entries = [build_message_set([b"%d" % i]) for i in range(100)]
    assert fed(tail, b"".join(entries[:30]), expected=[wanted]) == []
    for piece in entries[:99]:  # the first beginning was none
        assert fed(tail, piece, expected=[wanted]) == []
    assert fed(tail, entries[99] + entries[0], expected=[wanted]) == [(wanted, sum(map(len, entries[:30])))]


def test_at_the_end_a_beginning_is_none():
    longer, shorter = parts([b"a", b"b"], [b"a"])
    tail = _Tail(0)
    assert fed(tail, build_message_set([b"a"]), expected=[longer, shorter]) == []
    assert tail.find([longer, shorter], at_end=True) == [(shorter, 0)]
    assert fed(tail, build_message_set([b"b"]), expected=[longer]) == []


def test_all_cuts_of_all_logs_give_the_same():
    choice = random.Random(3)
    for _ in range(200):
        sets = [[choice.choice([b"a", b"b", b""]) for _ in range(choice.randint(1, 3))] for _ in range(6)]
        log = [[choice.choice([b"a", b"b"])] if choice.random() < 0.5 else sets[choice.randrange(6)] for _ in range(8)]
        entries = [build_message_set([payload]) for each in log for payload in each]
        results = set()
        for cut in (1, 2, 3, len(entries)):
            expected, tail, found = parts(*sets), _Tail(0), []
            for i in range(0, len(entries), cut):
                left = [each for each in expected if each not in [hit for hit, _ in found]]
                found += fed(tail, b"".join(entries[i : i + cut]), expected=left)
            left = [each for each in expected if each not in [hit for hit, _ in found]]
            found += tail.find(left, at_end=True)
            results.add(tuple((expected.index(each), offset) for each, offset in found))
            for each, offset in found:
                assert b"".join(entries)[offset:].startswith(each.data)
            taken = sorted((offset, offset + len(each.data)) for each, offset in found)
            assert all(end <= begin for (_, end), (begin, _) in zip(taken, taken[1:])), "a stretch is for one set"
        assert len(results) == 1


# --- the verifier by itself, where a producer would take too long to get there


@dataclass
class Settings:
    connect_timeout: float = 5.0
    socket_timeout: float = 5.0
    delivery_timeout: float = 30.0
    verify_timeout: float = 30.0


@pytest.fixture
def verifying(silent):
    """A verifier, and what it tells: outcomes, and (batches, dropped)."""
    told = SimpleQueue()
    verifier = Verifier(
        0,
        lambda broker: BrokerAddress(0, "127.0.0.1", silent.port),
        Settings(),
        settle=lambda outcomes: [told.put(outcome) for outcome in outcomes],
        lost=lambda batches, dropped: told.put((batches, dropped)),
        log=logging.getLogger("kafka07c.producer"),
    )
    verifier.start()
    yield verifier, told
    verifier.stop()
    verifier.join(10)
    assert not verifier._thread.is_alive()


def written(verifier, broker, payloads, start=None):
    """Expect payloads and write them, as a sender would; the batch."""
    batch = Batch("t", 0, 0, True)
    batch.extend(payloads, sum(map(len, payloads)), None, None)
    batch.since = monotonic()
    if verifier.expect(batch, build_message_set(payloads)):
        verifier.started("t", 0, log_end(broker.port, "t", 0) if start is None else start)
    write(broker, payloads)
    return batch


def test_it_may_be_found_before_the_barrier_is_answered(silent, verifying):
    verifier, told = verifying
    batch = written(verifier, silent, [b"a"])
    silent.flush()
    outcome = told.get(timeout=30)
    assert (outcome.batch, outcome.state, outcome.offset) == (batch, State.VERIFIED, 0)
    assert not verifier.is_open
    verifier.confirmed([batch])
    verifier.connection_ended()
    assert not verifier.is_searching


def test_who_was_quiet_does_not_read_what_others_wrote_meanwhile(silent, verifying):
    verifier, told = verifying
    written(verifier, silent, [b"a"])
    silent.flush()
    told.get(timeout=30)
    write(silent, [b"x" * 1000] * 100)
    silent.flush()
    written(verifier, silent, [b"b"])
    assert verifier._lanes["t", 0].tail.end >= 11 + 101_000
    silent.flush()
    assert told.get(timeout=30).offset == 11 + 101_000


def test_the_first_write_is_lost_with_its_question(silent, verifying):
    verifier, told = verifying
    batch = Batch("t", 0, 0, True)
    batch.append(b"a", None, None)
    assert verifier.expect(batch, build_message_set([b"a"]))
    verifier.connection_ended()
    assert told.get(timeout=30) == ([batch], False)
    assert not verifier.is_searching


def test_a_question_that_is_lost_does_not_hide_what_arrived(silent, verifying):
    """Where the log was read up to before holds, though others have written since."""
    verifier, told = verifying
    written(verifier, silent, [b"a"])
    silent.flush()
    told.get(timeout=30)
    batch = Batch("t", 0, 0, True)
    batch.append(b"b", None, None)
    assert verifier.expect(batch, build_message_set([b"b"]))
    write(silent, [b"others"], [b"b"])
    silent.flush()
    verifier.connection_ended()
    outcome = told.get(timeout=30)
    assert (outcome.batch, outcome.state, outcome.offset) == (batch, State.VERIFIED, 11 + 16)


def test_the_beginning_of_the_log_is_deleted_under_it(tmp_path, silent, verifying):
    """What it could not read may have held it: never lost, for that alone."""
    verifier, told = verifying
    write(silent, [b"x" * 90])
    segments = tmp_path / "log" / "t-0"
    silent.stop()
    [segment] = segments.iterdir()
    segment.rename(segments / "00000000000000001000.kafka")  # as if what was before had been deleted
    silent.start()
    batch = written(verifier, silent, [b"a"], start=500)
    verifier.confirmed([batch])
    silent.flush()
    outcome = told.get(timeout=30)
    assert (outcome.batch, outcome.state, outcome.offset) == (batch, State.VERIFIED, 1100)


def test_a_log_that_was_cut_is_read_from_its_end(silent, verifying):
    verifier, told = verifying
    batch = written(verifier, silent, [b"a"], start=5000)
    verifier.confirmed([batch])
    other = Batch("t", 0, 0, True)
    other.append(b"b", None, None)
    while verifier._lanes["t", 0].tail.end:
        threading.Event().wait(0.01)
    assert not verifier.expect(other, build_message_set([b"b"]))
    write(silent, [b"b"])
    silent.flush()
    found = {told.get(timeout=30).batch, told.get(timeout=30).batch}
    assert found == {batch, other}


def test_batches_of_a_broker_that_is_gone_move_but_for_those_that_nobody_takes(silent, verifying):
    verifier, told = verifying
    silent.stop()
    batches = []
    for explicit in (False, False, True):
        batch = Batch("t", 0, 0, explicit)
        batch.append(b"a", None, None)
        batch.since = monotonic()
        verifier.expect(batch, build_message_set([b"a"]))
        batches.append(batch)
    verifier.started("t", 0, 0)
    verifier.move(lambda orphans: pytest.fail("the connection lives"))
    verifier.connection_ended()
    asked = []

    def move(orphans):
        asked.append(orphans)
        return orphans[1:]

    verifier.move(move)
    assert asked == [batches[:2]]
    assert verifier.leftovers() == (batches[1:], [])
    assert verifier.is_searching
    silent.start()
    assert told.get(timeout=30) == (batches[1:], False)


def only_expected(verifier, payloads, start=0):
    """Expect what never arrives; the batch."""
    batch = Batch("t", 0, 0, True)
    batch.extend(payloads, sum(map(len, payloads)), None, None)
    batch.since = monotonic()
    if verifier.expect(batch, build_message_set(payloads)):
        verifier.started("t", 0, start)
    return batch


def test_what_could_be_the_beginning_of_one_is_another_when_the_log_ends(silent, verifying):
    verifier, told = verifying
    only_expected(verifier, [b"a", b"b"])
    shorter = only_expected(verifier, [b"a"])
    write(silent, [b"a"])
    silent.flush()
    outcome = told.get(timeout=30)
    assert (outcome.batch, outcome.state, outcome.offset) == (shorter, State.VERIFIED, 0)


def test_what_may_have_been_deleted_unread_is_never_called_lost(tmp_path, silent, verifying):
    verifier, told = verifying
    verifier._settings.verify_timeout = 2.0
    write(silent, [b"x" * 90])
    silent.stop()
    [segment] = (tmp_path / "log" / "t-0").iterdir()
    segment.rename(segment.with_name("00000000000000001000.kafka"))
    silent.start()
    batch = only_expected(verifier, [b"a"], start=500)
    verifier.confirmed([batch])
    while told.empty():
        write(silent, [b"others"])
        silent.flush()  # the end passes it again and again
        threading.Event().wait(0.05)
    outcome = told.get()
    assert (outcome.batch, outcome.state) == (batch, State.UNKNOWN)


def test_while_a_broker_is_away_what_it_had_stays_open_as_long_as_a_delivery_may_take(silent, verifying):
    verifier, told = verifying
    verifier._settings.verify_timeout = 0.5
    silent.stop()
    batch = only_expected(verifier, [b"a"])
    verifier.confirmed([batch])
    verifier.connection_ended()
    threading.Event().wait(1.0)
    silent.start()
    assert told.get(timeout=30) == ([batch], False), "lost, and so written again, rather than unknown"
