"""The suites that need a socket, a broker or a file: network, consumer, producer, log."""

from __future__ import annotations

import importlib
import os
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import peers, plain
from bench.measuring import SET_BYTES, Row, Work, Works, on_cpu
from bench.samples import noise
from bench.servers import LOCALHOST, kafka_of_today, served
from bench.suites import NOT_INSTALLED, Context, Suite
from kafka07c import Consumer, Log, MessageSet, Producer, SimpleConsumer, TopicPartition, build_message_set
from kafka07c.protocol import FetchRequest
from kafka07c.testing import ZooKeeper

TOPIC = "bench"
FETCH_BYTES = SET_BYTES
_FETCHES = 8
_STALE_SECONDS = 60.0

#: bytes of a log that is read from its start to its end each time
_LOG_BYTES = 64 << 20
_ARCHIVE_BYTES = 1 << 30

#: values of a producer's call, and of a read from the broker of today
_PRODUCED = {10: 200_000, 100: 100_000, 1024: 20_000}
_CONSUMED = {100: 1_000_000, 1024: 150_000, 10240: 20_000}

BUILD = Path("build/bench")


def take(messages: MessageSet) -> int:
    """What a user of columns touches; how many messages they tell of"""
    assert messages.error is None
    assert len(messages.offsets) == len(messages.lengths)
    return len(messages)


def write_segment(folder: Path, piece: bytes, size_bytes: int) -> int:
    """The only segment of a log, ``piece`` again and again; how often"""
    times = max(1, size_bytes // len(piece))
    folder.mkdir(parents=True)
    with (folder / f"{0:020}.kafka").open("wb", buffering=0) as file:
        for _ in range(times):
            file.write(piece)
        os.fsync(file.fileno())  # what the kernel still has to write would be written while we measure
    return times


def read_log(consumer: SimpleConsumer, end: int, topic: str = TOPIC) -> int:
    """All of partition 0, in fetches of a megabyte; how many messages"""
    offset = count = 0
    while offset < end:
        messages = consumer.fetch(topic, 0, offset, FETCH_BYTES)
        count += take(messages)
        offset = messages.next_offset
    return count


def equal(found: int, expected: int) -> None:
    if found != expected:
        raise AssertionError(f"{found} messages where there are {expected}")


# --- network: a fetch against what the socket gives

NETWORK = (
    Row(
        "SimpleConsumer.fetch to columns, loopback, rate : recv only", "fetch", "recv only", True,
        (0.65, 0.85, 0.9, 0.9),
    ),
    Row("the same, CPU of the client alone", "fetch, client", "recv only, client", True, (None,) * 4),
    Row("the same, by the clock on the wall", "fetch", "recv only", True, (None,) * 4, wall=True),
)  # fmt: skip


@contextmanager
def network_works(size: int, context: Context) -> Iterator[Works]:
    payloads = noise(size)
    data, count = build_message_set(payloads), len(payloads)
    with ExitStack() as stack:
        stack.enter_context(on_cpu(0))
        port, server = stack.enter_context(served("answers", size))
        consumer = stack.enter_context(SimpleConsumer(LOCALHOST, port))
        assert consumer.fetch(TOPIC, 0, 0, len(data)).payloads() == payloads
        receive = stack.enter_context(_receiver(port, len(data)))

        def fetch() -> None:
            for _ in range(_FETCHES):
                equal(take(consumer.fetch(TOPIC, 0, 0, len(data))), count)

        # one side waits for the other, so the time of both on one core is what a fetch takes on a machine at rest
        works = {
            "recv only": Work(receive, _FETCHES * count, server=server),
            "fetch": Work(fetch, _FETCHES * count, by_kernel=True, server=server),
            "recv only, client": Work(receive, _FETCHES * count),
            "fetch, client": Work(fetch, _FETCHES * count, by_kernel=True),
        }
        yield works


@contextmanager
def _receiver(port: int, set_bytes: int) -> Iterator[Callable[[], None]]:
    """Asks and receives as a SimpleConsumer has to, into memory that is there, and looks at nothing"""
    request = FetchRequest(TOPIC, 0, 0, set_bytes).encode()
    room = memoryview(bytearray(4 + 2 + set_bytes))
    with socket.create_connection((LOCALHOST, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def receive() -> None:
            for _ in range(_FETCHES):
                connection.sendall(request)
                filled = 0
                while filled < len(room):
                    filled += connection.recv_into(room[filled:])

        receive()
        equal(len(MessageSet(room[6:]).good()), len(MessageSet(room[6:])))
        yield receive


# --- live: from a broker's log, against today's client and broker

LIVE = (
    Row(
        "SimpleConsumer from a live broker, rate : confluent-kafka from its own", "live broker",
        "confluent-kafka", True, (None, 6, 2, 1.3),
    ),
)  # fmt: skip


@contextmanager
def live_works(size: int, context: Context) -> Iterator[Works]:
    payloads = noise(size)
    data, count = build_message_set(payloads), len(payloads)
    with ExitStack() as stack:
        stack.enter_context(on_cpu(0))
        works = {"live broker": _from_broker(stack, data, count)}
        call, why = _from_today(stack, context, payloads)
        if call is None:
            context.missing["confluent-kafka"] = why
        else:
            works["confluent-kafka"] = Work(call, _CONSUMED[size], threads=True, warm=False)
        yield works


def _from_broker(stack: ExitStack, data: bytes, count: int) -> Work:
    """A SimpleConsumer through a log of our own broker"""
    folder = Path(stack.enter_context(_scratch()))
    times = write_segment(folder / f"{TOPIC}-0", data, _LOG_BYTES)
    consumer = stack.enter_context(SimpleConsumer(LOCALHOST, stack.enter_context(served("broker", folder))[0]))
    return Work(lambda: equal(read_log(consumer, times * len(data)), times * count), times * count, by_kernel=True)


def _from_today(stack: ExitStack, context: Context, payloads: list[bytes]) -> tuple[Callable[[], None] | None, str]:
    """confluent-kafka through a topic of a Kafka broker of today, or why not"""
    if peers.version("confluent-kafka") is None:
        return None, NOT_INSTALLED
    if not context.classpath:
        return None, "no Kafka broker: make bench KAFKA_CLASSPATH=jar:jar:… (org.apache.kafka:kafka_2.13)"
    if not hasattr(os, "sched_getaffinity"):
        return None, "needs Linux"
    client: Any = importlib.import_module("confluent_kafka")
    address = stack.enter_context(kafka_of_today(context.classpath))
    total = _CONSUMED[len(payloads[0])]
    _fill(client, address, payloads, total)

    def consume() -> None:
        consumer = client.Consumer({
            "bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False, "check.crcs": True,
            "auto.offset.reset": "error", "fetch.queue.backoff.ms": 1,
        })  # fmt: skip
        consumer.assign([client.TopicPartition(TOPIC, 0, 0)])
        found, size, deadline = 0, 0, time.monotonic() + _STALE_SECONDS
        while found < total:
            for message in consumer.consume(10_000, timeout=1.0):
                if message.error() is not None:
                    raise RuntimeError(message.error())
                size += len(message.value())
                found += 1
            if time.monotonic() > deadline:
                raise RuntimeError(f"confluent-kafka gave {found} messages of {total}")
        consumer.close()
        equal(size, total * len(payloads[0]))

    consume()
    return consume, ""


def _fill(client: Any, address: str, payloads: list[bytes], total: int) -> None:
    producer = client.Producer({"bootstrap.servers": address, "linger.ms": 20, "batch.size": SET_BYTES // 2})
    for number in range(total):
        while True:
            try:
                producer.produce(TOPIC, payloads[number % len(payloads)], partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(_STALE_SECONDS):
        raise RuntimeError("the Kafka broker did not take everything")


@contextmanager
def _scratch() -> Iterator[str]:
    BUILD.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="logs-", dir=BUILD)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- consumer: a member of a group against a SimpleConsumer, both to columns

CONSUMER = (
    Row(
        "Consumer.batches() in a group, rate : SimpleConsumer", "in a group", "SimpleConsumer", True,
        (0.85, 0.85, 0.9, 0.9),
    ),
)  # fmt: skip


@contextmanager
def consumer_works(size: int, context: Context) -> Iterator[Works]:
    payloads = noise(size)
    data, count = build_message_set(payloads), len(payloads)
    with ExitStack() as stack:
        stack.enter_context(on_cpu(0))
        folder = Path(stack.enter_context(_scratch()))
        times = write_segment(folder / f"{TOPIC}-0", data, _LOG_BYTES * (1 if context.quick else 2))
        zookeeper = stack.enter_context(ZooKeeper()).address
        port, _ = stack.enter_context(served("broker", folder, zookeeper))
        simple = stack.enter_context(SimpleConsumer(LOCALHOST, port))
        consumer = stack.enter_context(
            Consumer(TOPIC, zookeeper=zookeeper, group="bench", fetch_bytes=FETCH_BYTES, autocommit=False)
        )
        end, total, partition = times * len(data), times * count, TopicPartition(TOPIC, 0, 0)

        def read_in_group() -> int:
            found = 0
            for messages in batches:
                found += take(messages)
                if messages.next_offset == end:
                    consumer.seek(partition, 0)  # and the next round begins with what is fetched from here
                    return found
            raise AssertionError("the consumer ended")

        batches = consumer.batches()
        assert next(batches).payloads()[: len(payloads)] == payloads
        consumer.seek(partition, 0)
        equal(read_in_group(), total)
        def work(read: Callable[[], int]) -> Work:
            return Work(lambda: equal(read(), total), total, by_kernel=True, threads=True, warm=False)

        yield {"SimpleConsumer": work(lambda: read_log(simple, end)), "in a group": work(read_in_group)}


# --- producer

PRODUCER = (
    Row("Producer async, list of bytes, rate : brod's way", "send_many", "brod's way", True, (5, 5, 5, None)),
    Row("Producer async, a send() for each, rate : brod's way", "send", "brod's way", True, (None,) * 4),
    Row("Producer async, a column, rate : brod's way", "send_batch", "brod's way", True, (None,) * 4),
)


@contextmanager
def producer_works(size: int, context: Context) -> Iterator[Works]:
    import pyarrow

    total = _PRODUCED[size] // (4 if context.quick else 1)
    few = noise(size, 1 << 18)
    values = [few[number % len(few)] for number in range(total)]
    column = pyarrow.array(values, pyarrow.binary())
    with ExitStack() as stack:
        stack.enter_context(on_cpu(0))
        check_producing(values[:1000])
        port, _ = stack.enter_context(served("sink"))
        producer = stack.enter_context(Producer(brokers=f"0:{LOCALHOST}:{port}"))
        connection = stack.enter_context(socket.create_connection((LOCALHOST, port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send_many() -> None:
            producer.send_many(TOPIC, values, partition="0-0")
            equal(producer.flush(), 0)

        def send() -> None:
            for value in values:
                producer.send(TOPIC, value, partition="0-0")
            equal(producer.flush(), 0)

        def send_batch() -> None:
            producer.send_batch(TOPIC, column, partition="0-0")
            equal(producer.flush(), 0)

        def brods_way() -> None:
            plain.produce(connection, TOPIC.encode(), values)

        ways = {"send_many": send_many, "send": send, "send_batch": send_batch, "brod's way": brods_way}
        yield {name: Work(way, total, threads=True, warm=False) for name, way in ways.items()}


def check_producing(values: list[bytes]) -> None:
    """Both ways leave the same bytes in a real log"""
    with tempfile.TemporaryDirectory() as folder:
        with served("broker", folder) as (port, _):
            with Producer(brokers=f"0:{LOCALHOST}:{port}") as producer:
                producer.send_many("ours", values, partition="0-0")
            with socket.create_connection((LOCALHOST, port)) as connection:
                plain.produce(connection, b"plain", values)
                ask = struct.pack(">ihh5siqi", 2 + 7 + 16, 4, 5, b"plain", 0, -1, 1)
                connection.sendall(ask)  # 0.7 takes requests in turn: its answer says that all before it was read
                connection.recv(64)
            with SimpleConsumer(LOCALHOST, port) as consumer:
                deadline = time.monotonic() + _STALE_SECONDS
                for topic in ("ours", "plain"):
                    while (read := consumer.fetch(topic, 0, 0, 1 << 24).payloads()) != values:
                        if time.monotonic() > deadline:
                            raise AssertionError(f"{len(read)} of {len(values)} messages are in the log of {topic!r}")
                        time.sleep(0.1)


# --- log: an archive on disk, in the page cache

LOG = (
    Row("archive scan of a 1-GB log to columns, rate : readinto", "scan", "readinto", True, (None, 0.8, 1, 1)),
    Row("a last segment of 1 GB, which is copied, rate : readinto", "last segment", "readinto", True, (None,) * 4),
)  # fmt: skip


@contextmanager
def log_works(size: int, context: Context) -> Iterator[Works]:
    payloads = noise(size)
    data, count = build_message_set(payloads), len(payloads)
    with _scratch() as scratch:
        folder, alone = Path(scratch) / f"{TOPIC}-0", Path(scratch) / f"{TOPIC}-1"
        times = write_segment(folder, data, _ARCHIVE_BYTES // (8 if context.quick else 1))
        closed = folder / f"{0:020}.kafka"
        alone.mkdir()
        (alone / closed.name).hardlink_to(closed)
        # the last segment of a log is copied, for its writer may cut it; the others are mapped. An archive has both
        (folder / f"{times * len(data):020}.kafka").write_bytes(data)
        log, last = Log(folder), Log(alone)
        assert next(log.scan()).payloads()[: len(payloads)] == payloads
        room = bytearray(FETCH_BYTES)

        def read() -> None:
            total = 0
            for segment in log.segments:
                with segment.path.open("rb", buffering=0) as file:
                    while got := file.readinto(room):
                        total += got
            equal(total, (times + 1) * len(data))

        def scan() -> None:
            equal(sum(map(take, log.scan())), (times + 1) * count)

        def scan_last() -> None:
            equal(sum(map(take, last.scan())), times * count)

        yield {
            "readinto": Work(read, (times + 1) * count, warm=False),
            "scan": Work(scan, (times + 1) * count, by_kernel=True, warm=False),
            "last segment": Work(scan_last, times * count, by_kernel=True, warm=False),
        }


SERVED_SUITES = (
    Suite(
        "network", NETWORK, network_works,
        ("recv only", "fetch", "recv only, client", "fetch, client"),
    ),
    Suite("live", LIVE, live_works, ("live broker", "confluent-kafka"), ("100 B", "1 KB", "10 KB")),
    Suite("consumer", CONSUMER, consumer_works, ("SimpleConsumer", "in a group")),
    Suite(
        "producer", PRODUCER, producer_works, ("send_many", "send", "send_batch", "brod's way"),
        ("10 B", "100 B", "1 KB"),
    ),
    Suite("log", LOG, log_works, ("readinto", "scan", "last segment"), ("100 B", "1 KB", "10 KB")),
)  # fmt: skip
