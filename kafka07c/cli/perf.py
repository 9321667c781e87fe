"""``kafka07c perf``: how fast a cluster takes and gives messages, as 0.7's three performance tools.

Threads do the work and count, each for itself; the main thread adds up, prints a line every ``--interval`` seconds, and
stops them at a signal. The clock starts when all threads have done their share of the warm-up. A MB is 1e6 bytes of
payload.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy

from kafka07c.cli.arguments import add_command, selected_partitions
from kafka07c.cli.exit_codes import INCOMPLETE, INTERRUPTED, OK, UsageError, exit_code
from kafka07c.cli.output import json_line, note
from kafka07c.cli.producing import (
    add_codec,
    add_properties,
    add_target,
    check_verify,
    column_of,
    named_partition,
    open_producer,
    positive,
    properties_of,
    seconds,
    target_of,
)
from kafka07c.cli.stopping import StopSignal
from kafka07c.errors import UnknownTopicError
from kafka07c.protocol import EARLIEST, LATEST

if TYPE_CHECKING:
    from kafka07c.cli.arguments import Commands
    from kafka07c.cluster import Cluster
    from kafka07c.consumer import Consumer
    from kafka07c.consumer.streams import MessageStream
    from kafka07c.names import TopicPartition
    from kafka07c.producer import Delivery, Producer
    from kafka07c.simple import SimpleConsumer

__all__ = ["Latencies", "add_parser"]

_PRODUCE = """\
  kafka07c perf produce --zookeeper zk1:2181/kafka -t test --messages 1000000 --size 200 -z snappy
  kafka07c perf produce -b host:9092 -t test --size 100-1000 --threads 4 --rate 20000 --json"""

_CONSUME = """\
  kafka07c perf consume --zookeeper zk1:2181/kafka -t test
  kafka07c perf consume --zookeeper zk1:2181/kafka -t test -g perf --threads 2 -c 1000000"""

_FETCH = """\
  kafka07c perf fetch -b 0:host:9092 -t test -p 0-0 --fetch-size 65536
  kafka07c perf fetch --zookeeper zk1:2181/kafka -t test --threads 4 --json"""

_EXAMPLE = "\n".join(each.split("\n")[0] for each in (_PRODUCE, _CONSUME, _FETCH))

#: seconds between two looks at the threads and at a signal
_LOOK = 0.05

#: bytes of messages that are made, and sent again and again
_POOL_BYTES = 8 << 20

#: messages that one poll gives at most
_POLLED = 1000


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "perf",
        _no_action,
        help="measure producing, consuming and fetching",
        description="Measures MB/s, messages/s and latencies against a live cluster. Ctrl-C ends it, with what was\n"
        "measured by then and exit code 130.",
        example=_EXAMPLE,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_produce(actions)
    _add_consume(actions)
    _add_fetch(actions)


_FIELDS = (
    "line: line (interval, or total), what, topic, messages, bytes, seconds, mb_per_s, messages_per_s, and in the "
    "total latency_ms (p50, p95, p99, max), "
)


def _no_action(args: argparse.Namespace) -> int:
    raise UsageError("perf needs an action")  # argparse asks for one before


def _add_common(parser: argparse.ArgumentParser, threads: str) -> None:
    parser.add_argument("-t", "--topic", metavar="TOPIC", required=True)
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help=threads)
    parser.add_argument(
        "--warm-up", type=_count, default=0, metavar="N", help="so many come first and do not count (default: 0)"
    )
    parser.add_argument(
        "--interval", type=seconds, default=1.0, metavar="SECONDS", help="between two lines (default: 1; 0: none)"
    )
    parser.add_argument("--json", action="store_true", help="print each line as a JSON object, to stdout")


def _count(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of messages")


# --- producing ----------------------------------------------------------------------------------------------------


def _add_produce(actions: Commands) -> None:
    parser = add_command(
        actions,
        "produce",
        _produce,
        help="how fast messages are written (0.7's ProducerPerformance)",
        description="Sends messages of random bytes, or of words, and waits for the final state of each. The latency\n"
        "is from the call that sends to that state: written, once the broker has read it from the connection, or\n"
        "with --verify verified.",
        example=_PRODUCE,
        fields=_FIELDS + "codec, via, written, verified, failed, unknown (messages by their final state)",
    )
    add_target(parser)
    _add_common(parser, "threads that send, with one producer (default: 1)")
    parser.add_argument("-p", "--partition", type=named_partition, metavar="BROKER-PARTITION", help="default: any")
    parser.add_argument("-c", "--messages", type=positive, default=100_000, metavar="N", help="default: 100000")
    parser.add_argument("--size", type=_sizes, default=(200, 200), metavar="BYTES",
                        help="of a message: 200 (default), or 100-1000 for sizes between these")  # fmt: skip
    parser.add_argument("--content", choices=("random", "words"), default="random",
                        help="random bytes (default), or words, which can be compressed")  # fmt: skip
    parser.add_argument("--batch", type=positive, default=200, metavar="N", help="messages in each call (default: 200)")
    parser.add_argument("--via", choices=("send", "send_many", "send_batch"), default="send_many",
                        help="which call: one message, a list (default), or a column")  # fmt: skip
    add_codec(parser)
    parser.add_argument("--rate", type=positive, metavar="N", help="send N messages a second, not as fast as can be")
    parser.add_argument("--sync", action="store_true", help="each call returns once its bytes are written")
    parser.add_argument("--verify", action="store_true", help="read back what was written")
    add_properties(parser)


def _sizes(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", text)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no size: 200, or 100-1000")
    return int(match[1]), int(match[2] or match[1])


def _produce(args: argparse.Namespace) -> int:
    producer = open_producer(args, target_of(args), "sync" if args.sync else "async")
    check_verify(producer, args.partition)
    measurement = _Measurement("produce", args)
    try:
        with StopSignal(measurement.stop) as stop:
            shares = _shares(args.messages, args.threads)
            warm_ups = _shares(args.warm_up, args.threads)
            writers = [_Writer(producer, args, *each) for each in zip(shares, warm_ups, strict=True)]
            measurement.run(writers)
            producer.close()
    finally:
        producer.close(0)
    states = Counter(dict.fromkeys(("written", "verified", "failed", "unknown"), 0))
    for writer in writers:
        states.update(writer.states)
    measurement.report({"codec": args.codec or "none", "via": args.via, **states})
    for failure in dict.fromkeys(str(writer.failure) for writer in writers if writer.failure is not None):
        note(f"kafka07c perf: {' '.join(failure.split())}")
    bad = states["failed"] + states["unknown"]
    return INCOMPLETE if bad else INTERRUPTED if stop.is_set() else OK


def _shares(total: int, count: int) -> list[int]:
    return [total // count + (number < total % count) for number in range(count)]


class _Worker(ABC):
    """What one thread does. It alone adds to its figures (a writer's: the producer's callback thread alone)."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.latencies = Latencies()

    @abstractmethod
    def warm_up(self, measurement: _Measurement) -> None:
        """What does not count."""

    @abstractmethod
    def work(self, measurement: _Measurement) -> None:
        """What counts, to its end or until the measurement is stopped."""


class _Writer(_Worker):
    """Sends its share of the messages. The producer's callback thread counts them."""

    def __init__(self, producer: Producer, args: argparse.Namespace, share: int, warm_up: int):
        from kafka07c.names import TopicPartition

        super().__init__()
        self.states: Counter[str] = Counter()
        self.failure: Exception | None = None
        self._producer = producer
        self._topic: str = args.topic
        self._partition = None if args.partition is None else TopicPartition(args.topic, *args.partition)
        self._share = share
        self._warm_up = warm_up
        self._via: str = args.via
        self._at_once: int = 1 if args.via == "send" else args.batch
        self._seconds_each: float = args.threads / args.rate if args.rate else 0.0
        self._batches = _random_batches(args.size, self._at_once, args.content)

    def warm_up(self, measurement: _Measurement) -> None:
        self._send_all(self._warm_up, measurement, counted=False)

    def work(self, measurement: _Measurement) -> None:
        self._send_all(self._share, measurement, counted=True)

    def _send_all(self, count: int, measurement: _Measurement, *, counted: bool) -> None:
        begun = time.monotonic()
        sent = 0
        for number in range(-(-count // self._at_once)):
            if self._seconds_each:
                time.sleep(max(0.0, begun + sent * self._seconds_each - time.monotonic()))
            if measurement.stopped:
                break
            batch = self._batches[number % len(self._batches)][: count - sent]
            self._send(batch, counted)
            sent += len(batch)
        self._producer.flush()

    def _send(self, batch: list[bytes], counted: bool) -> None:
        begun = time.perf_counter_ns()
        where = {"partition": self._partition}
        if self._via == "send_batch":
            settled = partial(self._settled, counted, begun, sum(map(len, batch)))
            data, offsets = column_of(batch)
            self._producer.send_batch(self._topic, data, offsets=offsets, on_delivery=settled, **where)
            return
        settled_one = partial(self._settled, counted, begun, None)
        if self._via == "send":
            self._producer.send(self._topic, batch[0], on_delivery=settled_one, **where)
        else:
            self._producer.send_many(self._topic, batch, on_delivery=settled_one, **where)

    def _settled(self, counted: bool, begun: int, size: int | None, delivery: Delivery) -> None:
        if counted:
            self.latencies.add(time.perf_counter_ns() - begun, delivery.count)
            self.messages += delivery.count
            self.bytes += len(delivery.value) if size is None else size
            self.states[delivery.state] += delivery.count
        if not delivery.ok:
            self.failure = delivery.error


def _random_batches(sizes: tuple[int, int], at_once: int, content: str) -> list[list[bytes]]:
    """Batches of messages to be sent again and again; the same in each run."""
    random = numpy.random.default_rng(7)
    smallest, largest = sizes
    count = max(1, min(64, _POOL_BYTES // max(1, at_once * largest)))
    if content == "words":
        words = [random.bytes(int(length)).hex().encode() for length in random.integers(1, 6, 200)]
        data = b" ".join(words[int(i)] for i in random.integers(0, len(words), 1 + largest))
    else:
        data = random.bytes(1 << 20)
    data *= 2 + largest // len(data)
    lengths = random.integers(smallest, largest + 1, (count, at_once))
    starts = random.integers(0, len(data) // 2, (count, at_once))
    return [
        [data[start : start + length] for start, length in zip(*each, strict=True)]
        for each in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]


# --- consuming ----------------------------------------------------------------------------------------------------


def _add_consume(actions: Commands) -> None:
    parser = add_command(
        actions,
        "consume",
        _consume,
        help="how fast a consumer gets messages (0.7's ConsumerPerformance)",
        description="Reads a topic from its beginning to its end. Without -g nothing is committed, and the threads\n"
        "share the partitions; with it this is a member of the group, which goes on from what is committed. The\n"
        "latency is the time between one batch and the next.",
        example=_CONSUME,
        fields=_FIELDS + "via",
    )
    add_target(parser, writes=False)
    _add_common(parser, "threads that read: each a consumer, with -g each a stream (default: 1)")
    parser.add_argument("-g", "--group", metavar="GROUP", help="a consumer group, which then has its offsets moved")
    parser.add_argument("-c", "--messages", type=positive, metavar="N", help="end after N messages, not at the end")
    parser.add_argument("--via", choices=("batches", "poll"), default="batches",
                        help="whole message sets (default), or lists of messages")  # fmt: skip
    parser.add_argument("--fetch-size", type=positive, metavar="BYTES", help="0.7's fetch.size (default: 1048576)")
    add_properties(parser, "consumer", "fetch.size=65536")


def _consume(args: argparse.Namespace) -> int:
    from kafka07c.cluster import Cluster
    from kafka07c.consumer import Consumer

    target = target_of(args)
    if args.group is not None and "brokers" in target:
        raise UsageError("-g needs --zookeeper: that is where the members of a group meet")
    options: dict[str, Any] = {
        **target, "properties": properties_of(args.property, args.config), "until_end": True,
        "on_corrupt": "stop", "consumer_timeout_ms": 100,
    }  # fmt: skip
    if args.fetch_size is not None:
        options["fetch_bytes"] = args.fetch_size
    measurement = _Measurement("consume", args)
    left = _Left(args.messages, args.warm_up)
    with ExitStack() as stack:
        try:
            if args.group is not None:
                consumer = stack.enter_context(Consumer(group=args.group, **options))
                streams = consumer.create_message_streams({args.topic: args.threads})[args.topic]
                readers = [_Reader(consumer, stream, left, args) for stream in streams]
            else:
                with Cluster(**target) as cluster:
                    partitions = cluster.partitions(args.topic)
                _check_there(args.topic, partitions)
                readers = []
                for number in range(min(args.threads, len(partitions))):
                    consumer = stack.enter_context(Consumer(**options))
                    consumer.assign(partitions[number :: args.threads])
                    readers.append(_Reader(consumer, consumer, left, args))
        except ValueError as error:
            raise UsageError(str(error)) from None
        stop = stack.enter_context(StopSignal(measurement.stop))
        measurement.run(readers)
        errors = {tp: error for reader in readers for tp, error in reader.consumer.errors.items()}
    measurement.report({"via": args.via})
    for failure in errors.values():
        note(f"kafka07c perf: {' '.join(str(failure).split())}")
    return max(map(exit_code, errors.values())) if errors else INTERRUPTED if stop.is_set() else OK


def _check_there(topic: str, partitions: list[TopicPartition]) -> None:
    if not partitions:
        raise UnknownTopicError(f"no broker has a topic {topic!r}")


class _Left:
    """How many messages there are still to read, for all threads together."""

    def __init__(self, count: int | None, warm_up: int):
        self._lock = threading.Lock()
        self._count = count
        self._warm_up = warm_up

    def take(self, count: int) -> int | None:
        """So many of these ``count`` are counted; None: it was enough before."""
        with self._lock:
            cold = min(count, self._warm_up)
            self._warm_up -= cold
            count -= cold
            if self._count is not None:
                if not self._count:
                    return None
                count = min(count, self._count)
                self._count -= count
            return count

    @property
    def warm(self) -> bool:
        """Whether the warm-up is over."""
        return not self._warm_up

    @property
    def enough(self) -> bool:
        """Whether nothing more is wanted."""
        return self._count == 0


class _Reader(_Worker):
    """Takes what comes on one stream, until the end."""

    def __init__(
        self, consumer: Consumer, stream: Consumer | MessageStream, left: _Left, args: argparse.Namespace
    ):
        super().__init__()
        self.consumer = consumer
        self._stream = stream
        self._left = left
        self._poll: bool = args.via == "poll"
        self._last = 0

    def warm_up(self, measurement: _Measurement) -> None:
        self._read(measurement, lambda: self._left.warm)

    def work(self, measurement: _Measurement) -> None:
        self._last = time.perf_counter_ns()
        self._read(measurement, lambda: self._left.enough)

    def _read(self, measurement: _Measurement, over: Callable[[], bool]) -> None:
        while not measurement.stopped and not over():
            for sizes in self._polled() if self._poll else self._batches():
                self._count(sizes)
                if measurement.stopped or over():
                    return
            if self.consumer.at_end:
                return

    def _batches(self) -> Iterator[Any]:
        for batch in self._stream.batches():
            yield batch.lengths

    def _polled(self) -> Iterator[Any]:
        for messages in self._stream.poll(100, _POLLED).values():
            yield numpy.fromiter(map(len, messages), numpy.int32, len(messages))

    def _count(self, sizes: Any) -> None:
        now = time.perf_counter_ns()
        count = self._left.take(len(sizes))
        if count:
            if self._last:
                self.latencies.add(now - self._last)
            self.messages += count
            self.bytes += int(sizes[-count:].sum(dtype="int64"))
        self._last = now


# --- fetching -----------------------------------------------------------------------------------------------------


def _add_fetch(actions: Commands) -> None:
    parser = add_command(
        actions,
        "fetch",
        _fetch,
        help="how fast brokers answer fetches (0.7's SimpleConsumerPerformance)",
        description="Fetches partitions from their beginning to the end that they have now, one request after the\n"
        "other in each thread, in turns through its share of the partitions. The latency is from a request to its\n"
        "answer, walked and checked.",
        example=_FETCH,
        fields=_FIELDS + "requests, fetch_size",
    )
    add_target(parser, writes=False)
    _add_common(parser, "threads, each with connections of its own and a share of the partitions (default: 1)")
    parser.add_argument("-p", "--partition", metavar="PARTITION",
                        help="0-1: partition 1 of broker 0; 1: partition 1 of each broker; default: all")  # fmt: skip
    parser.add_argument("-c", "--messages", type=positive, metavar="N", help="end after N messages, not at the end")
    parser.add_argument("--fetch-size", type=positive, default=1 << 20, metavar="BYTES",
                        help="asked for at a time (default: 1048576)")  # fmt: skip


def _fetch(args: argparse.Namespace) -> int:
    from kafka07c.cluster import Cluster

    measurement = _Measurement("fetch", args)
    left = _Left(args.messages, args.warm_up)
    with Cluster(**target_of(args)) as cluster:
        partitions = cluster.partitions(args.topic)
        _check_there(args.topic, partitions)
        partitions = selected_partitions(partitions, args.partition)
        threads = min(args.threads, len(partitions))
        fetchers = [_Fetcher(cluster, partitions[number::threads], left, args) for number in range(threads)]
        with StopSignal(measurement.stop) as stop:
            measurement.run(fetchers)
    requests = sum(fetcher.latencies.count for fetcher in fetchers)
    measurement.report({"requests": requests, "fetch_size": args.fetch_size})
    return INTERRUPTED if stop.is_set() else OK


class _Fetcher(_Worker):
    """Fetches its share of the partitions."""

    def __init__(self, cluster: Cluster, partitions: list[TopicPartition], left: _Left, args: argparse.Namespace):
        super().__init__()
        self._cluster = cluster
        self._partitions = partitions
        self._left = left
        self._fetch_bytes: int = args.fetch_size
        self._connections: dict[int, SimpleConsumer] = {}
        self._places: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}

    def warm_up(self, measurement: _Measurement) -> None:
        for tp in self._partitions:
            if tp.broker not in self._connections:
                self._connections[tp.broker] = self._cluster.connect(tp.broker)
            consumer = self._connections[tp.broker]
            self._places[tp] = consumer.get_offsets_before(tp.topic, tp.partition, EARLIEST)[0]
            self._ends[tp] = consumer.get_offsets_before(tp.topic, tp.partition, LATEST)[0]
        self._fetch(measurement, lambda: self._left.warm)

    def work(self, measurement: _Measurement) -> None:
        try:
            self._fetch(measurement, lambda: self._left.enough)
        finally:
            for consumer in self._connections.values():
                consumer.close()

    def _fetch(self, measurement: _Measurement, over: Callable[[], bool]) -> None:
        while unread := [tp for tp in self._partitions if self._places[tp] < self._ends[tp]]:
            for tp in unread:
                if measurement.stopped or over():
                    return
                begun = time.perf_counter_ns()
                messages = self._connections[tp.broker].fetch(
                    tp.topic, tp.partition, self._places[tp], self._fetch_bytes
                )
                took = time.perf_counter_ns() - begun
                if messages.error is not None:
                    raise messages.error
                if messages.next_offset == self._places[tp]:
                    self._ends[tp] = self._places[tp]  # the log has been cut since
                self._places[tp] = messages.next_offset
                if count := self._left.take(len(messages)):
                    self.latencies.add(took)
                    self.messages += count
                    self.bytes += int(messages.lengths[-count:].sum(dtype="int64"))


# --- measuring ----------------------------------------------------------------------------------------------------


class Latencies:
    """How long things took, in bounded memory: counts by classes that are up to 1/64 wide, from 1 ns up."""

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0
        self._classes: Counter[int] = Counter()

    def add(self, nanoseconds: int, count: int = 1) -> None:
        """``count`` things took so long."""
        shift = max(0, nanoseconds.bit_length() - 7)
        self._classes[(shift << 7) + (nanoseconds >> shift)] += count
        self.count += count
        if nanoseconds > self.longest:
            self.longest = nanoseconds

    def update(self, other: Latencies) -> None:
        """Add those of another."""
        self._classes.update(other._classes)
        self.count += other.count
        self.longest = max(self.longest, other.longest)

    def percentile(self, percent: float) -> int | None:
        """Nanoseconds within which so many percent were done, at most 1/64 too much; None when there are none."""
        wanted = self.count * percent / 100
        seen = 0
        for number in sorted(self._classes):
            seen += self._classes[number]
            if seen >= wanted:
                shift, first = number >> 7, number & 127
                return min(self.longest, ((first + 1) << shift) - 1)
        return None

    def milliseconds(self) -> dict[str, float | None]:
        """The figures that are shown: ``{"p50": …, "p95": …, "p99": …, "max": …}``."""
        found = {f"p{percent}": self.percentile(percent) for percent in (50, 95, 99)}
        found["max"] = self.longest if self.count else None
        return {name: None if value is None else round(value / 1e6, 3) for name, value in found.items()}


class _Measurement:
    """Runs threads, prints what they do in each interval, and all of it in the end."""

    def __init__(self, what: str, args: argparse.Namespace):
        logging.basicConfig(stream=sys.stderr, level=logging.ERROR, format="%% %(message)s")
        self.stopped = False
        self._what = what
        self._topic: str = args.topic
        self._interval: float = args.interval
        self._json: bool = args.json
        self._workers: Sequence[_Worker] = ()
        self._failure: BaseException | None = None
        self._begun: float | None = None
        self._ended: float | None = None

    def stop(self) -> None:
        """End it soon; may be called by a signal handler."""
        self.stopped = True

    def run(self, workers: Sequence[_Worker]) -> None:
        """To the end of all workers. Raises what one of them raised, after the figures up to there."""
        self._workers = workers
        barrier = threading.Barrier(len(workers), self._begin)
        threads = [
            threading.Thread(target=self._work, args=(worker, barrier), daemon=True) for worker in workers
        ]
        for thread in threads:
            thread.start()
        before = (time.monotonic(), 0, 0)
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(_LOOK / len(threads))
            if self._begun is None:
                before = (time.monotonic(), 0, 0)
            elif self._interval and time.monotonic() - before[0] >= self._interval:
                before = self._show_interval(*before)
        self._ended = time.monotonic()
        if self._failure is not None:
            if any(worker.messages for worker in workers):
                self.report({})
            raise self._failure

    def report(self, more: dict[str, Any]) -> None:
        """All that was measured, to stdout."""
        latencies = Latencies()
        for worker in self._workers:
            latencies.update(worker.latencies)
        messages, size = self._sums()
        took = (self._ended or 0.0) - self._begun if self._begun is not None else 0.0
        figures = {**_rates(messages, size, took), "latency_ms": latencies.milliseconds(), **more}
        if self._json:
            print(json_line({"line": "total", "what": self._what, "topic": self._topic, **figures}))
            return
        print(f"{self._what} {self._topic}: {_in_words(figures)}")
        print("latency ms: " + ", ".join(f"{name} {_cell(value)}" for name, value in figures["latency_ms"].items()))
        if more:
            print(", ".join(f"{name} {value}" for name, value in more.items() if value != 0))

    def _work(self, worker: _Worker, barrier: threading.Barrier) -> None:
        try:
            worker.warm_up(self)
            barrier.wait()
            worker.work(self)
        except threading.BrokenBarrierError:
            pass  # another one has failed before it began
        except BaseException as error:
            self._failure = self._failure or error
            self.stopped = True
            barrier.abort()

    def _begin(self) -> None:
        self._begun = time.monotonic()

    def _sums(self) -> tuple[int, int]:
        return sum(worker.messages for worker in self._workers), sum(worker.bytes for worker in self._workers)

    def _show_interval(self, since: float, messages_before: int, bytes_before: int) -> tuple[float, int, int]:
        now = time.monotonic()
        messages, size = self._sums()
        figures = _rates(messages - messages_before, size - bytes_before, now - since)
        if self._json:
            print(json_line({"line": "interval", "what": self._what, "topic": self._topic, **figures}), flush=True)
        else:
            note(f"% {_in_words(figures)}")
        return now, messages, size


def _rates(messages: int, size: int, took: float) -> dict[str, Any]:
    return {
        "messages": messages, "bytes": size, "seconds": round(took, 3),
        "mb_per_s": round(size / took / 1e6, 2) if took else None,
        "messages_per_s": round(messages / took) if took else None,
    }  # fmt: skip


def _in_words(figures: dict[str, Any]) -> str:
    return (
        f"{figures['messages']} messages, {figures['bytes']} bytes in {figures['seconds']:.2f} s: "
        f"{_cell(figures['mb_per_s'])} MB/s, {_cell(figures['messages_per_s'])} messages/s"
    )


def _cell(value: float | None) -> str:
    return "-" if value is None else str(value)
