"""The producer when brokers hang up, stall, die and move; callbacks, handlers, and the end of processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterable, Iterator, Sequence

import pytest
from faults.proxy import Proxy
from scripted_server import PATIENCE
from test_producer import (
    HERE,
    VISIBLE_AT_ONCE,
    Told,
    listed,
    numbers,
    read_back,
    until,
    without_repeats,
)

from kafka07c import TopicPartition
from kafka07c.broker import Broker
from kafka07c.errors import (
    BrokerConnectionError,
    BrokerTimeoutError,
    KafkaError,
    ProducerClosedError,
    QueueFullError,
)
from kafka07c.metrics import Metrics
from kafka07c.producer import (
    CallbackHandler,
    Delivery,
    EventHandler,
    Producer,
    ProducerRecord,
    State,
)
from kafka07c.testing import ZooKeeper, free_ports

OTHER = "0-1"


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
    return f"{zookeeper.address}/{request.node.name}"


# --- a connection that ends


@pytest.mark.parametrize(
    "fault",
    [
        lambda faults: faults.close_next(None, when="before"),
        lambda faults: faults.close_next(None, when="after"),
        lambda faults: faults.fail_next(None, 2),
        lambda faults: faults.cut_next("offsets", 0),
        lambda faults: faults.cut_next("offsets", 7),
        lambda faults: faults.close_next("offsets", when="after"),
        lambda faults: faults.close_next(None, when="before", times=3),
    ],
)
def test_order_is_kept_and_nothing_lost_when_a_connection_ends(broker, fault):
    told = Told()
    fault(broker.faults)
    with Producer(brokers=listed(broker), on_delivery=told, batch_messages=10, queue_time_ms=0) as producer:
        for value in numbers(200):
            producer.send("t", value, partition=HERE)
    assert broker.faults.pending == 0
    assert without_repeats(read_back(broker, "t")) == numbers(200) == told.values
    assert told.states == {State.WRITTEN: 200}


def test_a_broker_that_hangs_up_again_and_again(broker):
    told, metrics = Told(), Metrics()
    with Producer(
        brokers=listed(broker), on_delivery=told, batch_messages=10, queue_time_ms=0, metrics=metrics
    ) as producer:
        for start in range(0, 2000, 200):
            broker.faults.close_next("offsets", when="before", times=2)
            producer.send_many("t", numbers(200, start), partition=HERE)
            producer.flush()
    assert without_repeats(read_back(broker, "t")) == numbers(2000) == told.values
    assert told.states == {State.WRITTEN: 2000}
    resends = sum(delivery.resends for delivery in told.deliveries)
    assert resends and metrics.snapshot()["KafkaProducerStats.Resends{topic=t}"] == resends


def test_a_connection_that_was_closed_while_idle_loses_nothing(broker):
    told = Told()
    with Producer(brokers=listed(broker), mode="sync", on_delivery=told) as producer:
        broker.faults.close_next("offsets", when="after")
        producer.send("t", b"0", partition=HERE)
        producer.flush()
        until(lambda: producer._dispatcher._senders[0]._connection is None)
        for value in numbers(5, 1):
            producer.send("t", value, partition=HERE)
    assert read_back(broker, "t") == numbers(6)
    assert {delivery.resends for delivery in told.deliveries} == {0}


def test_without_retries_what_a_hang_up_leaves_open_fails(broker):
    told, dead = Told(), Told()
    broker.faults.close_next("produce", when="before")
    with Producer(brokers=listed(broker), on_delivery=told, dead_letter=dead, retries=0) as producer:
        producer.send_many("t", numbers(10), partition=HERE)
        producer.flush()
        producer.send_many("t", numbers(10, 10), partition=HERE)
    assert read_back(broker, "t") == numbers(10, 10)
    assert dead.values == numbers(10) and told.values == numbers(20)
    assert told.states == {State.FAILED: 10, State.WRITTEN: 10}
    assert isinstance(dead.deliveries[0].error, BrokerConnectionError)
    assert "num.retries" in str(dead.deliveries[0].error)


def test_a_set_that_the_broker_does_not_take_fails_alone(broker):
    told, dead = Told(), Told()
    with Producer(brokers=listed(broker), on_delivery=told, dead_letter=dead, queue_time_ms=20) as producer:
        producer.send_many("t", numbers(10), partition=HERE)
        producer.send_many("t", [b"poison"] * 3, partition="0-7")
        producer.send_many("u", numbers(10), partition=HERE)
        producer.flush()
        producer.send_many("t", [b"again"], partition="0-7")
        producer.send_many("t", numbers(10, 10), partition=HERE)
    assert without_repeats(read_back(broker, "t")) == numbers(20)
    assert without_repeats(read_back(broker, "u")) == numbers(10)
    assert dead.values == [b"poison"] * 3 + [b"again"]
    assert told.states == {State.WRITTEN: 30, State.FAILED: 4}
    error = dead.deliveries[0].error
    assert isinstance(error, BrokerConnectionError) and "'t', partition 7" in str(error)
    assert "4 times with nothing else on the connection" in str(error)


def test_nobody_is_to_blame_while_a_proxy_takes_connections_for_a_broker_that_is_down(broker):
    told = Told()
    (nowhere,) = free_ports(1)
    with Proxy("127.0.0.1", nowhere) as proxy:
        with Producer(brokers=f"0:127.0.0.1:{proxy.port}", retries=1, on_delivery=told) as producer:
            producer.send_many("t", numbers(20), partition=HERE)
            until(lambda: proxy.connections > 5)
            assert told.deliveries == []
            proxy.target = (broker.host, broker.port)
            assert producer.flush(PATIENCE) == 0
    assert {delivery.state for delivery in told.deliveries} == {State.WRITTEN}
    assert read_back(broker, "t") == numbers(20)


def test_a_sync_producer_raises_what_could_not_be_written():
    (port,) = free_ports(1)
    dead = Told()
    with Producer(brokers=f"0:127.0.0.1:{port}", mode="sync", delivery_timeout_ms=300, dead_letter=dead) as producer:
        with pytest.raises(BrokerTimeoutError, match="not delivered to broker 0 within 0.3 s.*cannot be reached"):
            producer.send("t", b"x", partition=HERE)
        producer.flush()
    assert dead.values == [b"x"]


def test_a_stalled_broker_is_given_up_and_written_to_again(broker):
    told = Told()
    stall = broker.faults.stall_next("produce")
    with Producer(brokers=listed(broker), on_delivery=told, socket_timeout_ms=300) as producer:
        producer.send_many("t", numbers(10), partition=HERE)
        assert stall.wait_entered(PATIENCE)
        producer.flush()
        assert told.states == {State.WRITTEN: 10}
        assert {delivery.resends for delivery in told.deliveries} == {1}
        stall.release()
    assert without_repeats(read_back(broker, "t")) == numbers(10)


# --- brokers that die, move and leave


def test_a_broker_that_comes_back_on_its_port(tmp_path):
    (port,) = free_ports(1)
    told = Told()
    options = {"broker_id": 0, "port": port, "properties": VISIBLE_AT_ONCE}
    with Producer(brokers=f"0:127.0.0.1:{port}", on_delivery=told, batch_messages=5) as producer:
        for start in range(0, 300, 100):
            producer.send_many("t", numbers(50, start), partition=HERE)  # while it is away
            with Broker(tmp_path, **options):
                producer.send_many("t", numbers(50, start + 50), partition=HERE)
                assert producer.flush(PATIENCE) == 0
    with Broker(tmp_path, **options) as broker:
        assert without_repeats(read_back(broker, "t")) == numbers(300) == told.values
    assert told.states == {State.WRITTEN: 300}


def test_a_broker_that_comes_back_elsewhere(chroot, tmp_path):
    told = Told()
    options = {"broker_id": 0, "zookeeper": chroot, "properties": VISIBLE_AT_ONCE}
    with Producer(zookeeper=chroot, on_delivery=told) as producer:
        with Broker(tmp_path, **options) as broker:
            first = broker.port
            producer.send_many("t", numbers(50), partition=HERE)
            producer.send_many("t", numbers(50, 50), keys=["k"] * 50)
            assert producer.flush(PATIENCE) == 0
        producer.send_many("t", numbers(50, 100), partition=HERE)  # it waits for this broker
        with Broker(tmp_path, port=next(port for port in free_ports(2) if port != first), **options) as broker:
            assert producer.flush(PATIENCE) == 0
            assert broker.port != first
            assert without_repeats(read_back(broker, "t")) == numbers(150)
    assert told.states == {State.WRITTEN: 150}


def test_what_a_broker_that_left_was_to_get_goes_elsewhere(chroot, tmp_path):
    told = Told()
    options = {"zookeeper": chroot, "properties": VISIBLE_AT_ONCE}
    with Producer(zookeeper=chroot, on_delivery=told, delivery_timeout_ms=5000) as producer:
        with Broker(tmp_path / "1", broker_id=1, **options) as staying:
            with Broker(tmp_path / "0", broker_id=0, **options) as leaving:
                for name in ("0-0", "1-0"):
                    producer.send("t", b"makes it", partition=name)
                producer.flush()
                until(lambda: len(producer._router.partitions("t")) == 2)
                stalls = leaving.faults.stall_next(None)
                producer.send_many("t", numbers(40), keys=[f"key{i}" for i in range(40)])
                assert stalls.wait_entered(PATIENCE)
                producer.send("t", b"stays with 0", partition="0-0")
            assert producer.flush(PATIENCE) == 0
            values = read_back(staying, "t")
    assert set(numbers(40)) <= set(values)
    assert told.states == {State.WRITTEN: 42, State.FAILED: 1}
    (failed,) = [delivery for delivery in told.deliveries if not delivery.ok]
    assert failed.value == b"stays with 0" and "delivery.timeout.ms" in str(failed.error)
    assert {d.partition for d in told.deliveries if d.ok and d.key} == {TopicPartition("t", 1, 0)}


def test_a_partitioner_that_fails_when_a_broker_leaves_loses_nothing(chroot, tmp_path, caplog):
    """It knows two partitions, and one is left: what it cannot place waits for the broker, and then fails."""
    told = Told()
    options = {"zookeeper": chroot, "properties": VISIBLE_AT_ONCE}
    settings = {"on_delivery": told, "delivery_timeout_ms": 3000, "partitioner": lambda key, count: int(key)}
    with Producer(zookeeper=chroot, **settings) as producer, Broker(tmp_path / "0", broker_id=0, **options) as staying:
        with Broker(tmp_path / "1", broker_id=1, **options) as leaving:
            for name in ("0-0", "1-0"):
                producer.send("t", b"makes it", partition=name)
            producer.flush()
            until(lambda: len(producer._router.partitions("t")) == 2)
            stalls = leaving.faults.stall_next(None)
            producer.send_many("t", numbers(4), keys=["0", "1", "0", "1"])
            assert stalls.wait_entered(PATIENCE)
            producer.send_many("t", numbers(4, 4), keys=["0", "1", "0", "1"])
        assert producer.flush(PATIENCE) == 0
        assert set(read_back(staying, "t")) == {b"makes it", b"0", b"2", b"4", b"6"}
    assert told.states == {State.WRITTEN: 6, State.FAILED: 4}
    assert "cannot go elsewhere" in caplog.text


def test_what_finds_no_other_broker_keeps_its_place(chroot, tmp_path):
    """One thread's records to one partition, by partition= and by key, while the only broker is gone."""
    told = Told()
    options = {"broker_id": 0, "zookeeper": chroot, "properties": VISIBLE_AT_ONCE}
    with Producer(zookeeper=chroot, on_delivery=told, batch_messages=3) as producer:
        with Broker(tmp_path, **options) as broker:
            producer.send("t", b"0", partition=HERE)
            producer.flush()
            until(lambda: producer._cluster.topics)
            stall = broker.faults.stall_next(None, times=100)
            for i in range(1, 100, 2):
                producer.send("t", b"%d" % i, partition=HERE)
                producer.send("t", b"%d" % (i + 1), key="k")
            assert stall.wait_entered(PATIENCE)
        until(lambda: not producer._cluster.brokers)
        with Broker(tmp_path, **options) as broker:
            assert producer.flush(PATIENCE) == 0
            assert without_repeats(read_back(broker, "t")) == numbers(101)
    assert sorted(told.values, key=int) == numbers(101)


# --- callbacks


def test_callbacks_may_send_raise_and_block(broker, caplog):
    blocked, release = threading.Event(), threading.Event()
    told = Told()

    def on_delivery(delivery: Delivery) -> None:
        told(delivery)
        if delivery.value == b"block":
            blocked.set()
            assert release.wait(PATIENCE)
        if delivery.value == b"raise":
            raise ZeroDivisionError
        if delivery.value == b"send":
            producer.send("t", b"from a callback", partition=HERE, on_delivery=told)
        if delivery.value == b"wait":
            for wait in (producer.flush, producer.close):
                with pytest.raises(RuntimeError, match="cannot be called from one"):
                    wait()

    # a queue of one: the room of what is told about is free already
    with Producer(brokers=listed(broker), on_delivery=on_delivery, queue_messages=1) as producer:
        producer.send("t", b"block", partition=HERE)
        assert blocked.wait(PATIENCE)
        for value in (b"raise", b"send", b"wait", b"last"):
            producer.send("t", value, partition=HERE)
        assert producer.flush(0.05) > 0  # told about, not
        until(lambda: len(read_back(broker, "t")) == 5)  # but written
        release.set()
        assert producer.flush(PATIENCE) == 0
    assert sorted(told.values) == sorted([b"block", b"raise", b"send", b"wait", b"last", b"from a callback"])
    assert "a callback failed" in caplog.text


def test_a_call_may_have_a_callback_of_its_own(broker):
    own, default = Told(), Told()
    with Producer(brokers=listed(broker), on_delivery=default) as producer:
        for i, value in enumerate(numbers(10)):
            producer.send("t", value, partition=HERE, on_delivery=own if i % 3 == 0 else None)
        producer.send_many("t", numbers(5, 10), partition=HERE, on_delivery=own)
    assert own.values == [b"0", b"3", b"6", b"9", *numbers(5, 10)]
    assert default.values == [b"1", b"2", b"4", b"5", b"7", b"8"]


# --- the end


def test_close_fails_what_is_left_after_its_time(broker):
    told, dead = Told(), Told()
    stall = broker.faults.stall_next("produce")
    producer = Producer(brokers=listed(broker), on_delivery=told, dead_letter=dead, batch_messages=5)
    producer.send_many("t", numbers(5), partition=HERE)
    assert stall.wait_entered(PATIENCE)
    producer.send_many("t", numbers(20, 5), partition=HERE)
    producer.close(0.05)
    assert sorted(told.values, key=int) == numbers(25) and len(dead) == 25
    assert told.states == {State.FAILED: 25}
    assert all(isinstance(delivery.error, ProducerClosedError) for delivery in dead.deliveries)
    producer.close()
    for call in (lambda: producer.send("t", b"x"), lambda: producer.send_many("t", [b"x"])):
        with pytest.raises(ProducerClosedError, match="is closed"):
            call()


def test_who_waits_for_room_hears_that_the_producer_is_closed(broker):
    broker.faults.stall_next("produce")
    producer = Producer(brokers=listed(broker), queue_messages=1)
    producer.send("t", b"0", partition=HERE)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            producer.send("t", b"1", partition=HERE)
        except KafkaError as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: producer._dispatcher.queue._waiting)
    producer.close(0.05)
    thread.join(PATIENCE)
    assert [type(error) for error in raised] == [ProducerClosedError]


def test_a_callback_that_exits_ends_nothing(broker, caplog):
    told = Told()

    def on_delivery(delivery: Delivery) -> None:
        told(delivery)
        raise SystemExit(3)

    with Producer(brokers=listed(broker), on_delivery=on_delivery) as producer:
        for value in (b"one", b"two"):
            producer.send("t", value, partition=HERE)
            assert producer.flush(PATIENCE) == 0
    assert told.values == [b"one", b"two"]
    assert "SystemExit" in caplog.text


def run_python(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_interpreters_end_drains(broker):
    out = run_python(
        """
        import sys
        from kafka07c import Producer
        producer = Producer(brokers=sys.argv[1], queue_time_ms=60_000, on_delivery=lambda d: print(d.state))
        producer.send("t", b"one", partition="0-0")
        producer.send_many("t", [b"two", b"three"], partition="0-0")
        """,
        listed(broker),
    )
    assert out.split() == ["written"] * 3
    assert read_back(broker, "t") == [b"one", b"two", b"three"]


def test_the_interpreters_end_drains_what_nobody_holds_any_more(broker):
    out = run_python(
        """
        import gc, sys
        from kafka07c import Producer
        def send():
            producer = Producer(brokers=sys.argv[1], queue_time_ms=60_000, on_delivery=lambda d: print(d.state))
            producer.send("t", b"one", partition="0-0")
        send()
        gc.collect()
        """,
        listed(broker),
    )
    assert out.split() == ["written"]
    assert read_back(broker, "t") == [b"one"]


def test_a_forked_child_is_told_to_make_its_own(broker):
    out = run_python(
        """
        import os, sys
        from kafka07c import Producer
        from kafka07c.errors import ProducerClosedError
        producer = Producer(brokers=sys.argv[1])
        producer.send("t", b"parent", partition="0-0")
        pid = os.fork()
        if not pid:
            for call in (lambda: producer.send("t", b"child"), lambda: producer.send_many("t", [b"child"]),
                         lambda: producer.send_batch("t", b"", offsets=[0]), producer.flush, producer.close):
                try:
                    call()
                except ProducerClosedError as error:
                    assert str(os.getpid()) in str(error) and str(os.getppid()) in str(error), error
                else:
                    os._exit(3)
            with Producer(brokers=sys.argv[1], mode="sync") as own:
                own.send("t", b"own", partition="0-0")
            sys.exit(0)  # as a child ends that drains what is open: not the parent's
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        producer.close()
        """,
        listed(broker),
    )
    assert out.split() == ["0"]
    assert sorted(read_back(broker, "t")) == [b"own", b"parent"]


# --- 0.7's handlers


class Recorder(CallbackHandler):
    """Says what it saw, and does a little of everything."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def init(self, properties) -> None:
        self.calls.append(dict(properties))

    def before_enqueue(self, record: ProducerRecord) -> ProducerRecord:
        if record.value == b"refuse":
            raise ValueError("refused")
        return ProducerRecord(record.topic, record.value.upper(), record.key, record.partition)

    def after_enqueue(self, record: ProducerRecord, added: bool) -> None:
        self.calls.append((record.value, added))

    def after_dequeuing_existing_data(self, record: ProducerRecord) -> Iterable[ProducerRecord]:
        if record.value == b"HOLD":
            self.held = record
            return []
        if record.value == b"DROP":
            return []
        if record.value == b"FAIL":
            raise ZeroDivisionError
        return [record, record] if record.value == b"TWICE" else [record]

    def before_sending_data(self, records: Sequence[ProducerRecord]) -> Iterable[ProducerRecord]:
        return records

    def last_batch_before_close(self) -> Iterable[ProducerRecord]:
        return [self.held, ProducerRecord("t", b"NEW", partition=TopicPartition("t", 0, 0))]

    def close(self) -> None:
        self.calls.append("closed")


def test_the_callback_handler_sees_and_changes_records(broker):
    handler, own, default = Recorder(), Told(), Told()
    with Producer(
        brokers=listed(broker), callback_handler=handler, callback_handler_properties="a=1", on_delivery=default
    ) as producer:
        with pytest.raises(ValueError, match="refused"):
            producer.send("t", b"refuse", partition=HERE)
        producer.send("t", b"one", partition=HERE, on_delivery=own)
        producer.send_many("t", [b"twice", b"hold", b"drop", b"fail"], partition=HERE, on_delivery=own)
        with pytest.raises(ValueError, match="use send_many"):
            producer.send_batch("t", b"", offsets=[0])
        producer.flush(PATIENCE)
        assert read_back(broker, "t") == [b"ONE", b"TWICE", b"TWICE"]
    assert read_back(broker, "t") == [b"ONE", b"TWICE", b"TWICE", b"HOLD", b"NEW"]
    assert handler.calls[0] == {"a": "1"} and handler.calls[-1] == "closed" and (b"ONE", True) in handler.calls
    states = {delivery.value: delivery.state for delivery in own.deliveries}
    assert states == {
        b"ONE": State.WRITTEN, b"TWICE": State.WRITTEN, b"HOLD": State.WRITTEN,
        b"DROP": State.FAILED, b"FAIL": State.FAILED,
    }  # fmt: skip
    assert len(own) == 5 and sorted(default.values) == [b"NEW", b"TWICE"]


def test_what_a_handler_drops_is_told_about_then_and_not_kept(broker):
    """One that filters, and one that lets go later of what it held back."""

    class Filter(CallbackHandler):
        held: ProducerRecord | None = None

        def after_dequeuing_existing_data(self, record: ProducerRecord) -> Iterable[ProducerRecord]:
            if record.value == b"hold":
                self.held = record
            return [record] if record.value.isdigit() and int(record.value) % 2 else []

        def before_sending_data(self, records: Sequence[ProducerRecord]) -> Iterable[ProducerRecord]:
            return records[1:]

    handler, told = Filter(), Told()
    with Producer(brokers=listed(broker), callback_handler=handler, on_delivery=told) as producer:
        producer.send_many("t", [*numbers(1000), b"hold"], partition=HERE)
        assert producer.flush(PATIENCE) == 0
        assert sorted(told.values, key=int) == numbers(1000)  # each once, and not the one that is held
        values = read_back(broker, "t")
        assert told.states == {State.WRITTEN: len(values), State.FAILED: 1000 - len(values)} and len(values) < 500
        (kept,) = producer._staging._kept.values()
        assert kept() is handler.held
        del kept
        handler.held = None
        producer.send("t", b"2", partition=HERE)
        producer.flush(PATIENCE)
        assert sorted(told.values[-2:]) == [b"2", b"hold"] and not producer._staging._kept
    assert len(told) == 1002
    assert all("dropped" in str(each.error) for each in told.deliveries if not each.ok)


def test_what_is_no_record_fails_what_it_stands_for(broker):
    class Wrong(CallbackHandler):
        def before_enqueue(self, record: ProducerRecord) -> ProducerRecord:
            return record.value if record.value == b"now" else record

        def after_dequeuing_existing_data(self, record: ProducerRecord) -> Iterable[ProducerRecord]:
            return [record.value] if record.value == b"later" else [record]

    told = Told()
    with Producer(brokers=listed(broker), callback_handler=Wrong(), on_delivery=told) as producer:
        with pytest.raises(TypeError, match="a handler gives ProducerRecords, not bytes"):
            producer.send("t", b"now", partition=HERE)
        producer.send_many("t", [b"one", b"later", b"two"], partition=HERE)
        assert producer.flush(PATIENCE) == 0
    assert read_back(broker, "t") == [b"one", b"two"]
    assert told.states == {State.WRITTEN: 2, State.FAILED: 1}


def test_callbacks_of_what_an_event_handler_sent_cannot_wait_for_themselves(broker):
    class Own(EventHandler):
        def handle(self, records, producer, encoder) -> None:
            pass

    refused: list[str] = []

    def on_delivery(delivery: Delivery) -> None:
        for wait in (producer.flush, producer.close):
            with pytest.raises(RuntimeError, match="cannot be called from one"):
                wait()
            refused.append(wait.__name__)

    with Producer(brokers=listed(broker), event_handler=Own(), on_delivery=on_delivery) as producer:
        producer.send("t", b"x", partition=HERE)
        assert producer.flush(PATIENCE) == 0
        assert refused == ["flush", "close"]


def test_the_event_handler_sends_in_the_producers_place(broker):
    class Own(EventHandler):
        def handle(self, records, producer, encoder):
            if any(record.value == b"bad" for record in records):
                raise ZeroDivisionError("cannot")
            for record in records:
                producer.send(record.topic, record.partition.partition, [b"own " + encoder(record.value)])

    told, dead = Told(), Told()
    with Producer(brokers=listed(broker), event_handler=Own(), on_delivery=told, dead_letter=dead) as producer:
        producer.send_many("t", numbers(3), partition=HERE)
        producer.flush(PATIENCE)
        producer.send("t", b"bad", partition=HERE)
    until(lambda: read_back(broker, "t") == [b"own 0", b"own 1", b"own 2"])  # nobody has asked whether it has them
    assert told.values == [*numbers(3), b"bad"] and dead.values == [b"bad"]
    assert "handle() failed: ZeroDivisionError: cannot" in str(dead.deliveries[0].error)


def test_a_full_queue_before_the_handlers_says_so(broker):
    class Stuck(Recorder):
        going, entered = threading.Event(), threading.Event()

        def before_sending_data(self, records):
            self.entered.set()
            assert self.going.wait(PATIENCE)
            return records

        def last_batch_before_close(self):
            return []

    handler = Stuck()
    options = {"queue_messages": 2, "enqueue_timeout_ms": 0, "batch_messages": 1}
    with Producer(brokers=listed(broker), callback_handler=handler, **options) as producer:
        producer.send("t", b"0", partition=HERE)
        assert handler.entered.wait(PATIENCE)
        producer.send_many("t", numbers(2, 1), partition=HERE)
        with pytest.raises(QueueFullError, match="wait for the handlers"):
            producer.send("t", b"3", partition=HERE)
        assert handler.calls[-1] == (b"3", False)
        handler.going.set()
    assert read_back(broker, "t") == numbers(3)


def test_handlers_are_for_async_producers(broker):
    with pytest.raises(ValueError, match="mode='async'"):
        Producer(brokers=listed(broker), mode="sync", callback_handler=CallbackHandler())
