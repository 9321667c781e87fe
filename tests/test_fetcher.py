"""Fetch threads and their queues, over real sockets: what gets through, in which order, and what is kept from whom."""

from __future__ import annotations

import logging
import random
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import monotonic

import pytest
from kafka07c._build import build_message_set
from kafka07c._compress import deflate
from kafka07c._views import MessageSet
from scripted_server import PATIENCE, Logs, Peer, ScriptedServer

from kafka07c.broker import Broker
from kafka07c.consumer import fetcher
from kafka07c.consumer.chunks import Chunk, ChunkQueue, Feed
from kafka07c.consumer.config import ConsumerConfig
from kafka07c.consumer.fetcher import Fetchers
from kafka07c.errors import (
    CorruptMessageError,
    InvalidTopicError,
    MessageTooLargeError,
    NoOffsetError,
    UnknownError,
    WrongPartitionError,
)
from kafka07c.metrics import Metrics
from kafka07c.names import BrokerAddress, TopicPartition
from kafka07c.positions import Position
from kafka07c.protocol import (
    EARLIEST,
    LATEST,
    FetchRequest,
    MultiFetchRequest,
    OffsetsRequest,
    Request,
    encode_multifetch_response,
    encode_offsets_response,
)
from kafka07c.simple import FetchedPart, SimpleConsumer, SyncProducer

#: longer than any test may last: what is left alone for so long is left alone
FOR_EVER = 3_600_000

A, B, C = (TopicPartition("t", 0, number) for number in range(3))


def entry(payload: bytes) -> bytes:
    return build_message_set([payload])


def damaged(stored: bytes, at: int = -1) -> bytes:
    changed = bytearray(stored)
    changed[at] ^= 1
    return bytes(changed)


class SegmentLogs(Logs):
    """Logs that also tell where they begin. Who holds the lock keeps requests from being answered."""

    def __init__(self, partitions: dict[tuple[str, int], list[bytes]], start: int = 0):
        super().__init__(partitions, start)
        self.lock = threading.Lock()

    def serve(self, peer: Peer) -> None:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as brokers do
        super().serve(peer)

    def answer(self, request: Request) -> bytes:
        with self.lock:
            if isinstance(request, OffsetsRequest) and request.time == EARLIEST:
                return encode_offsets_response([self.start])
            return super().answer(request)

    @property
    def parts(self) -> list[FetchRequest]:
        return [part for request in self.asked if isinstance(request, MultiFetchRequest) for part in request.requests]


class Rig:
    """Fetchers, a queue, and brokers that may come, go and move."""

    def __init__(self, ports: dict[int, int], *, max_bytes: int = 10**7, metrics: Metrics | None = None, **settings):
        self.ports = dict(ports)
        self.addresses_asked = 0
        self.resets: list[tuple[TopicPartition, Position, int]] = []
        self.queue = ChunkQueue(max_bytes)
        settings = {"fetch_backoff_ms": 5, "socket_timeout_ms": int(PATIENCE * 1000)} | settings
        self.fetchers = Fetchers(
            self.address,
            config=ConsumerConfig(**settings),
            on_reset=lambda tp, position, generation: self.resets.append((tp, position, generation)),
            metrics=metrics,
        )

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *exc_info) -> None:
        self.fetchers.close()

    def address(self, broker: int) -> BrokerAddress | None:
        self.addresses_asked += 1
        port = self.ports.get(broker)
        return None if port is None else BrokerAddress(broker, "127.0.0.1", port)

    def add(self, tp: TopicPartition, offset: int | None = 0, generation: int = 1, queue: ChunkQueue | None = None):
        self.fetchers.add(tp, None if offset is None else Position(offset), generation, queue or self.queue)

    def chunk(self) -> Chunk:
        chunk = self.queue.get(PATIENCE)
        assert chunk is not None, "nothing came"
        return chunk

    def until_end(self, *partitions: TopicPartition) -> list[Chunk]:
        """All chunks until the end of each of these was told."""
        chunks, running = [], set(partitions)
        while running:
            chunk = self.chunk()
            chunks.append(chunk)
            if chunk.at_end:
                running.discard(chunk.tp)
        return chunks


def payloads(chunks: Iterable[Chunk], tp: TopicPartition) -> list[bytes]:
    return [payload for chunk in chunks if chunk.tp == tp for payload in chunk.messages.good().payloads()]


@contextmanager
def served(
    partitions: dict[TopicPartition, list[bytes]], *, start: int = 0, connections: int = 1, **options
) -> Iterator[tuple[Rig, SegmentLogs]]:
    """A rig on logs in memory: segments of each partition."""
    logs = SegmentLogs({(tp.topic, tp.partition): segments for tp, segments in partitions.items()}, start)
    with ScriptedServer(*[logs.serve] * connections) as server, Rig({0: server.port}, **options) as rig:
        yield rig, logs


def produce(broker: Broker, topic: str, partition: int, messages: list[bytes], codec: str = "none") -> None:
    """Returns when they can be fetched."""
    with SimpleConsumer("127.0.0.1", broker.port) as consumer, SyncProducer("127.0.0.1", broker.port) as producer:
        [before] = consumer.get_offsets_before(topic, partition, LATEST)
        producer.send(topic, partition, messages, codec)
        wait_until(lambda: consumer.get_offsets_before(topic, partition, LATEST) > [before])


def numbered(count: int, size: int = 20) -> list[bytes]:
    return [b"%d " % number + b"x" * size for number in range(count)]


# --- queues


def chunk_of(tp: TopicPartition, *messages: bytes, offset: int = 0, generation: int = 1, codec: str = "none") -> Chunk:
    data = build_message_set(messages, codec) if messages else b""
    return Chunk(tp, MessageSet(data, offset), generation, Position(offset))


def put(queue: ChunkQueue, feed: Feed, chunk: Chunk) -> bool:
    return queue.put(feed, chunk, Position(chunk.messages.next_offset))


class Waker:
    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


def test_a_queue_gives_chunks_in_order_and_then_waits():
    queue = ChunkQueue(1000)
    chunks = [chunk_of(A, b"one"), chunk_of(B, b"two"), chunk_of(A, b"three", offset=13)]
    feeds = {tp: Feed(tp, Position(0), 1, queue) for tp in (A, B)}
    for chunk in chunks:
        assert put(queue, feeds[chunk.tp], chunk)
    assert queue.chunks_queued == 3
    assert [queue.get(0), queue.get(None), queue.get(PATIENCE)] == chunks
    assert queue.get(0) is None and queue.get(0.01) is None
    assert (queue.chunks_queued, queue.bytes_queued) == (0, 0)


def test_who_waits_gets_the_next_chunk_or_the_end():
    queue, got = ChunkQueue(1000), []
    chunk = chunk_of(A, b"one")
    for finish in (lambda: put(queue, Feed(A, Position(0), 1, queue), chunk), queue.close):
        thread = threading.Thread(target=lambda: got.append(queue.get()))
        thread.start()
        finish()
        thread.join(PATIENCE)
    assert got == [chunk, None]


def test_a_closed_queue_takes_and_gives_nothing():
    queue = ChunkQueue(1000)
    feed, filler = Feed(A, Position(0), 1, queue), Waker()
    put(queue, feed, chunk_of(A, b"one"))
    queue.close()
    assert queue.get() is None
    assert not put(queue, feed, chunk_of(A, b"two"))
    assert not queue.move(feed, Position(5))
    assert not queue.reserve(filler, 1)
    assert queue.bytes_queued == 0


def test_what_is_cut_is_gone_and_goes_on_behind_what_was_got():
    queue = ChunkQueue(10_000)
    cut, other = Feed(A, Position(0), 1, queue), Feed(B, Position(0), 1, queue)
    chunks = [chunk_of(A, b"one"), chunk_of(A, b"two", offset=13), chunk_of(B, b"b"), chunk_of(A, b"three", offset=26)]
    for chunk in chunks:
        put(queue, cut if chunk.tp == A else other, chunk)
    assert queue.get(0) is chunks[0]
    before = queue.bytes_queued
    queue.cut([cut])
    assert cut.position == Position(13) and other.position == Position(11)
    assert not put(queue, cut, chunks[1]) and not queue.move(cut, Position(0))
    assert queue.bytes_queued < before
    assert queue.get(0) is chunks[2] and queue.get(0) is None
    assert queue.bytes_queued == 0
    queue.cut([other])
    assert other.position == Position(11)  # nothing of it was left


def test_drop_forgets_partitions():
    queue = ChunkQueue(10_000)
    for tp in (A, B, A):
        put(queue, Feed(tp, Position(0), 1, queue), chunk_of(tp, b"one"))
    queue.drop([A, C])
    assert queue.get(0).tp == B
    assert queue.get(0) is None and queue.bytes_queued == 0


def test_room_is_reserved_given_back_and_told():
    queue, first, second = ChunkQueue(1000), Waker(), Waker()
    assert queue.reserve(first, 700)
    assert not queue.reserve(first, 400)
    assert queue.reserve(first, 300)
    assert queue.reserve(second, 700)  # has nothing under way, and nothing is queued yet
    assert not queue.reserve(second, 1)
    queue.release(first, 300)
    assert (first.woken, second.woken) == (1, 1)
    queue.release(first, 700)
    queue.release(second, 700)
    assert (first.woken, second.woken) == (1, 1)  # nobody waits
    assert queue.reserve(first, 5000)  # at least one, however large


def test_a_full_queue_takes_no_reservation_until_there_is_room():
    queue, filler = ChunkQueue(1000), Waker()
    feed = Feed(A, Position(0), 1, queue)
    put(queue, feed, chunk_of(A, b"x" * 1000))
    for makes_room in (lambda: queue.get(0), lambda: queue.drop([A]), lambda: queue.cut([feed]), queue.close):
        woken = filler.woken
        assert not queue.reserve(filler, 1)
        makes_room()
        assert filler.woken == woken + 1
        feed = Feed(A, Position(0), 1, queue)
        put(queue, feed, chunk_of(A, b"x" * 1000))


def test_bytes_are_counted_inflated():
    queue = ChunkQueue(1000)
    put(queue, Feed(A, Position(0), 1, queue), chunk_of(A, b"x" * 100_000, codec="gzip"))
    assert queue.bytes_queued >= 100_000
    queue.get(0)
    put(queue, Feed(A, Position(0), 1, queue), chunk_of(A))
    assert 0 < queue.bytes_queued < 1000


def test_a_queue_that_can_hold_nothing_is_refused():
    with pytest.raises(ValueError, match="0 bytes"):
        ChunkQueue(0)


# --- what gets through


@pytest.mark.parametrize("fetch_bytes", [4, 50, 1000, 10**6])
def test_every_message_comes_once_and_in_order(fetch_bytes):
    messages = numbered(60)
    plain = [build_message_set(messages[:30]), build_message_set(messages[30:])]
    wrapped = [build_message_set(messages[at : at + 20], codec) for at, codec in ((0, "gzip"), (20, "snappy"))]
    mixed = [b"".join([*wrapped, build_message_set(messages[40:])])]
    with served({A: plain, B: mixed, C: []}, fetch_bytes=fetch_bytes) as (rig, _):
        for tp in (A, B, C):
            rig.add(tp)
        chunks = rig.until_end(A, B, C)
        assert payloads(chunks, A) == payloads(chunks, B) == messages
        for tp in (A, B):
            places = [(c.position, c.messages.next_offset) for c in chunks if c.tp == tp]
            assert [position.offset for position, _ in places] == [0, *(end for _, end in places[:-1])]


def test_a_chunk_says_what_it_is():
    with served({A: [build_message_set([b"one", b"two"], "gzip")]}) as (rig, _):
        rig.fetchers.add(A, Position(0, 1), 42, rig.queue)
        chunk = rig.chunk()
        assert (chunk.tp, chunk.generation, chunk.position) == (A, 42, Position(0, 1))
        assert chunk.messages.payloads() == [b"one", b"two"]  # to skip the first is the consumer's part
        assert (chunk.messages[0].topic, chunk.messages[0].broker, chunk.messages[0].partition) == A
        assert (chunk.at_end, chunk.error, chunk.skipped) == (False, None, None)
        end = rig.chunk()
        assert end.at_end and len(end.messages) == 0 and end.position == Position(chunk.messages.next_offset)


def test_the_end_is_told_once_for_each_arrival():
    with served({A: [entry(b"one")], B: []}) as (rig, logs):
        rig.add(A)
        rig.add(B)
        rig.until_end(A, B)
        polled = len(logs.asked)
        wait_until(lambda: len(logs.asked) > polled + 5)
        assert rig.queue.get(0) is None
        logs.partitions["t", 0].append(entry(b"two"))
        assert rig.chunk().messages.payloads() == [b"two"]
        assert rig.chunk().at_end
        polled = len(logs.asked)
        wait_until(lambda: len(logs.asked) > polled + 5)
        assert rig.queue.get(0) is None


def wait_until(true) -> None:
    deadline = monotonic() + PATIENCE
    while not true():
        assert monotonic() < deadline, "it never came to be"
        threading.Event().wait(0.002)


def test_a_partition_at_its_end_holds_up_no_other():
    with served({A: [], B: [entry(b"x" * 100)] * 50}, fetch_bytes=200, fetch_backoff_ms=FOR_EVER) as (rig, _):
        rig.add(A)
        assert rig.chunk().at_end
        rig.add(B)
        assert len(payloads(rig.until_end(B), B)) == 50


def test_partitions_take_turns():
    segments = [entry(b"x" * 900)] * 30
    with served({A: segments, B: segments, C: segments}, fetch_bytes=1000, max_bytes=6000) as (rig, _):
        for tp in (A, B, C):
            rig.add(tp)
        behind = Counter({A: 0, B: 0, C: 0})
        for _ in range(85):
            behind[rig.chunk().tp] += 1
            assert max(behind.values()) - min(behind.values()) <= 3


def test_queues_take_turns_when_one_request_cannot_serve_all(monkeypatch):
    monkeypatch.setattr(fetcher, "_ANSWER_BYTES", 2000)
    partitions = [TopicPartition("t", 0, number) for number in range(24)]
    with served({tp: [entry(b"x" * 900)] * 50 for tp in partitions}, fetch_bytes=1000) as (rig, logs):
        queues = [ChunkQueue(10**6) for _ in range(4)]
        rig.fetchers.pause(partitions)
        for tp in partitions:
            rig.add(tp, queue=queues[tp.partition % 4])
            rig.fetchers.pause([tp])
        rig.fetchers.resume(partitions)
        assert all([queue.get(PATIENCE) for _ in range(100) for queue in queues])
        asked = Counter(part.partition % 4 for part in logs.parts)
        assert max(asked.values()) - min(asked.values()) <= 12


def test_a_full_queue_holds_up_no_other():
    with served({A: [entry(b"x" * 900)] * 50, B: [entry(b"x" * 900)] * 50}, fetch_bytes=1000) as (rig, _):
        full = ChunkQueue(1)
        rig.add(A, queue=full)
        rig.add(B)
        assert len(payloads(rig.until_end(B), B)) == 50
        assert full.chunks_queued == 1
        assert len([full.get(PATIENCE) for _ in range(50)]) == 50


def test_a_queue_is_bounded_by_bytes():
    segments = [entry(b"x" * 900)] * 60
    with served({A: segments, B: segments}, fetch_bytes=1000, max_bytes=10_000) as (rig, logs):
        rig.add(A)
        rig.add(B)
        chunks = []
        for _ in range(120):
            wait_until(lambda: rig.queue.bytes_queued > 0)
            assert rig.queue.bytes_queued <= 10_000 + 1500
            chunks.append(rig.chunk())
        assert len(payloads(chunks, A)) == len(payloads(chunks, B)) == 60


def test_a_full_queue_asks_for_nothing():
    with served({A: [entry(b"x" * 900)] * 60}, fetch_bytes=1000, max_bytes=3000) as (rig, logs):
        rig.add(A)
        wait_until(lambda: rig.queue.bytes_queued > 2000)
        threading.Event().wait(0.05)
        assert len(logs.asked) <= 4


# --- asking ahead, and how much


def test_two_requests_are_on_their_way():
    logs = SegmentLogs({("t", 0): [entry(b"a")], ("t", 1): [entry(b"b")]})

    def patient(peer: Peer) -> None:
        for request in [peer.request() for _ in range(2)]:
            peer.send(logs.answer(request))
        logs.serve(peer)

    with ScriptedServer(patient) as server, Rig({0: server.port}) as rig:
        rig.queue.reserve(Waker(), 1)
        rig.add(A)
        rig.add(B)
        assert sorted(payload for c in rig.until_end(A, B) for payload in c.messages.payloads()) == [b"a", b"b"]


def test_the_next_request_is_sent_before_a_wrapper_is_inflated(monkeypatch):
    segments = [build_message_set([b"one"], "gzip"), build_message_set([b"two"], "snappy")]
    messages = FetchedPart.messages
    with served({A: segments}, fetch_backoff_ms=FOR_EVER) as (rig, logs):

        def inflated_when_asked_again(part: FetchedPart, **options) -> MessageSet:
            if part.request.offset == 0:
                wait_until(lambda: len(logs.asked) == 2)
            return messages(part, **options)

        monkeypatch.setattr(FetchedPart, "messages", inflated_when_asked_again)
        rig.add(A)
        assert payloads(rig.until_end(A), A) == [b"one", b"two"]
        first, second = map(len, segments)
        assert [part.offset for part in logs.parts] == [0, first, first + second]  # nothing was asked twice


def wrapper_with_damage(*good: bytes) -> bytes:
    """A stored entry whose last inner message is damaged: the entry itself is good."""
    inner = build_message_set(good) + damaged(entry(b"bad"))
    wrapper = bytearray(build_message_set([deflate(1, inner)]))
    wrapper[5] = 1
    from zlib import crc32

    wrapper[6:10] = crc32(wrapper[10:]).to_bytes(4, "big")
    return bytes(wrapper)


@pytest.mark.parametrize("policy", ["raise", "stop", "skip"])
def test_damage_inside_a_wrapper_that_was_read_ahead_of(policy):
    first = wrapper_with_damage(b"one")
    with served({A: [first + entry(b"two"), entry(b"three")], B: [entry(b"b")]}, on_corrupt=policy) as (rig, _):
        rig.add(A)
        chunk = rig.chunk()
        assert chunk.messages.good().payloads() == [b"one"]
        assert isinstance(chunk.error, CorruptMessageError)
        rig.add(B)
        chunks = rig.until_end(*([A, B] if policy == "skip" else [B]))
        assert payloads(chunks, A) == ([b"two", b"three"] if policy == "skip" else [])
        assert rig.queue.get(0.05) is None


def test_only_the_fetch_of_a_large_message_grows():
    large = entry(b"x" * 5000)
    with served({A: [entry(b"a") + large + entry(b"b")], B: [entry(b"c") * 50]}, fetch_bytes=100) as (rig, logs):
        rig.add(A)
        rig.add(B)
        chunks = rig.until_end(A, B)
        assert payloads(chunks, A) == [b"a", b"x" * 5000, b"b"]
        assert len(payloads(chunks, B)) == 50
        assert [r.max_bytes for r in logs.asked if isinstance(r, FetchRequest)] == [len(large)]
        assert {part.max_bytes for part in logs.parts if part.partition == 1} == {100}
        assert logs.parts[-1].max_bytes == 100


def test_a_partition_of_large_messages_is_asked_for_them_at_once():
    large = [entry(b"x" * 5000)] * 10
    with served({A: [b"".join(large)]}, fetch_bytes=100) as (rig, logs):
        rig.add(A)
        assert len(payloads(rig.until_end(A), A)) == 10
        assert len([request for request in logs.asked if isinstance(request, FetchRequest)]) == 1


def test_ten_thousand_partitions():
    partitions = [TopicPartition("a-topic", 0, number) for number in range(10_000)]
    segments = {tp: [entry(b"%d" % tp.partition)] for tp in partitions}
    with served(segments, connections=2, fetch_backoff_ms=FOR_EVER) as (rig, logs):
        for tp in partitions:
            rig.add(tp)
        chunks = rig.until_end(*partitions)
        found = {chunk.tp.partition: chunk.messages.payloads() for chunk in chunks if len(chunk.messages)}
        assert found == {number: [b"%d" % number] for number in range(10_000)}
        requests = [request for request in logs.asked if isinstance(request, MultiFetchRequest)]
        assert len(logs.parts) == 20_000  # one with the message, one at the end
        assert len(requests) < 60
        assert all(sum(part.max_bytes for part in request.requests) <= 4 * 2**20 for request in requests)
        assert max(len(request.encode()) for request in requests) < 33_000
        rig.fetchers.remove(partitions)
        rig.add(partitions[77])
        assert rig.chunk().messages.payloads() == [b"77"]


def test_what_is_asked_of_idle_partitions_is_limited(monkeypatch):
    monkeypatch.setattr(fetcher, "_IDLE_ASKS", 1)
    with served({A: [], B: []}, fetch_backoff_ms=0) as (rig, logs):
        rig.add(A)
        rig.add(B)
        rig.until_end(A, B)
        threading.Event().wait(0.2)
        assert len(logs.parts) < 20


def test_a_small_part_does_not_keep_a_large_answer(monkeypatch):
    copied = {}
    messages = FetchedPart.messages

    def seen(part: FetchedPart, *, copy: bool) -> MessageSet:
        copied[len(part.data)] = copy
        return messages(part, copy=copy)

    monkeypatch.setattr(FetchedPart, "messages", seen)
    small, large = entry(b"small"), entry(b"x" * 5000)
    with served({A: [], B: []}) as (rig, logs):
        rig.add(A)
        rig.add(B)
        rig.until_end(A, B)
        asked = len(logs.asked)
        wait_until(lambda: any(len(request.requests) == 2 for request in logs.asked[asked:]))
        with logs.lock:
            logs.partitions = {("t", 0): [small], ("t", 1): [large]}
        rig.until_end(A, B)
    assert copied == {len(small): True, len(large): False}


# --- one partition's trouble


@pytest.mark.parametrize("policy", ["raise", "stop", "skip"])
def test_a_refused_partition_is_tried_again_and_disturbs_no_other(tmp_path, policy):
    good, bad = TopicPartition("good", 0, 0), TopicPartition("bad", 0, 0)
    properties = {"log.flush.interval": 1}
    with Broker(tmp_path, properties=properties) as broker, Rig({0: broker.port}, on_corrupt=policy) as rig:
        for topic in ("good", "bad"):
            produce(broker, topic, 0, [b"one"])
        broker.fail_next("multifetch", -1, topic="bad", times=3)
        rig.add(bad)
        rig.add(good)
        chunks = rig.until_end(good, bad)
        assert payloads(chunks, good) == payloads(chunks, bad) == [b"one"]
        errors = [chunk.error for chunk in chunks if chunk.error]
        assert [type(error) for error in errors] == ([UnknownError] if policy == "raise" else [])
        assert broker.connections == 1
        broker.fail_next("multifetch", 3, topic="bad")
        if policy == "raise":
            again = rig.chunk()
            assert isinstance(again.error, WrongPartitionError)
            with pytest.raises(WrongPartitionError):
                list(again.messages)


@pytest.mark.parametrize(("reset", "place"), [("earliest", 0), ("latest", 1)])
@pytest.mark.parametrize("offset", [None, 5, 10**9])
def test_an_offset_that_is_none_or_outside_of_the_log_is_reset(offset, reset, place):
    log = entry(b"one") + entry(b"two")
    goal = (1000, 1000 + len(log))[place]
    with served({A: [log], B: [log]}, start=1000, offset_reset=reset) as (rig, _):
        rig.add(A, offset)
        rig.add(B, 1000)
        chunks = rig.until_end(A, B)
        assert rig.resets == [(A, Position(goal), 1)]
        assert payloads(chunks, A) == ([b"one", b"two"] if reset == "earliest" else [])
        assert payloads(chunks, B) == [b"one", b"two"]
        assert next(chunk for chunk in chunks if chunk.tp == A).position == Position(goal)


@pytest.mark.parametrize("policy", ["raise", "stop", "skip"])
@pytest.mark.parametrize("offset", [None, 5])
def test_without_a_reset_the_partition_stops_and_says_so(offset, policy):
    log = entry(b"one")
    with served({A: [log], B: [log]}, start=1000, offset_reset="error", on_corrupt=policy) as (rig, _):
        rig.add(A, offset)
        chunk = rig.chunk()
        assert isinstance(chunk.error, NoOffsetError) and chunk.error.partition == 0
        assert chunk.position == (None if offset is None else Position(5))
        with pytest.raises(NoOffsetError, match="seek to where to go on"):
            list(chunk.messages)
        rig.add(B, 1000)
        assert {chunk.tp for chunk in rig.until_end(B)} == {B}
        rig.fetchers.seek(A, Position(1000), 2)
        assert payloads(rig.until_end(A), A) == [b"one"]
        assert rig.resets == []


def test_a_log_that_is_not_there_yet_begins_at_0(tmp_path):
    tp = TopicPartition("new", 0, 0)
    with Broker(tmp_path, properties={"log.flush.interval": 1}) as broker, Rig({0: broker.port}) as rig:
        rig.add(tp, None)
        assert rig.chunk().at_end
        assert rig.resets == [(tp, Position(0), 1)]
        produce(broker, "new", 0, [b"one"])
        assert rig.chunk().messages.payloads() == [b"one"]


def test_a_partition_that_is_not_there_costs_no_connection(tmp_path):
    there, wrong = TopicPartition("t", 0, 0), TopicPartition("t", 0, 9)
    with Broker(tmp_path, properties={"log.flush.interval": 1}) as broker, Rig({0: broker.port}) as rig:
        produce(broker, "t", 0, [b"one"])
        rig.add(wrong, None)
        assert isinstance(rig.chunk().error, WrongPartitionError)
        rig.add(there, None)
        assert payloads(rig.until_end(there), there) == [b"one"]
        assert rig.addresses_asked == 1


def test_a_reset_that_cannot_be_told_is_logged_and_goes_on(caplog):
    with served({A: [entry(b"one")]}) as (rig, _):

        def fails(tp, position, generation):
            raise RuntimeError("no ZooKeeper today")

        rig.fetchers._on_reset = fails
        rig.add(A, None)
        assert payloads(rig.until_end(A), A) == [b"one"]
    assert "no ZooKeeper today" in caplog.text


def read_with_damage(segments: list[bytes], policy: str, **options) -> list[Chunk]:
    """The chunks of A, with another partition beside it that has to come through whole."""
    with served({A: segments, B: [entry(b"b")] * 5}, on_corrupt=policy, **options) as (rig, _):
        rig.add(A)
        rig.add(B)
        chunks = rig.until_end(*([A, B] if policy == "skip" else [B]))
        while not any(chunk.error for chunk in chunks):
            chunks.append(rig.chunk())
        assert payloads(chunks, B) == [b"b"] * 5
        assert rig.queue.get(0.02) is None
    return [chunk for chunk in chunks if chunk.tp == A]


ONE, BAD, TWO, THREE = entry(b"one"), damaged(entry(b"bad")), entry(b"two"), entry(b"three")
#: its length cannot be believed
LOST = b"\x7f\xff\xff\xff" + entry(b"lost")[4:]


def test_damage_raises_and_stops_the_partition():
    [chunk] = read_with_damage([ONE + BAD + TWO, THREE], "raise")
    with pytest.raises(CorruptMessageError) as raised:
        list(chunk.messages)
    assert chunk.messages.good().payloads() == [b"one"]
    assert raised.value.offset == chunk.error.offset == len(ONE)
    assert chunk.skipped is None


def test_damage_stops_the_partition():
    [chunk] = read_with_damage([ONE + BAD + TWO, THREE], "stop")
    assert chunk.messages.payloads() == [b"one"]
    assert isinstance(chunk.error, CorruptMessageError) and chunk.skipped is None


def test_damage_is_skipped_to_the_next_entry_where_the_length_is_believed():
    chunks = read_with_damage([ONE + BAD + TWO, THREE], "skip")
    assert payloads(chunks, A) == [b"one", b"two", b"three"]
    assert [chunk.skipped for chunk in chunks if chunk.error] == [(len(ONE), len(ONE + BAD))]


def test_damage_is_skipped_to_the_next_segment_where_it_is_not():
    chunks = read_with_damage([ONE + LOST + TWO, THREE], "skip", max_fetch_bytes=10**6)
    assert payloads(chunks, A) == [b"one", b"three"]
    assert [chunk.skipped for chunk in chunks if chunk.error] == [(len(ONE), len(ONE + LOST + TWO))]


def test_damage_in_the_last_segment_is_skipped_to_its_end():
    with served({A: [ONE + b"\0" * 50]}, on_corrupt="skip") as (rig, logs):
        rig.add(A)
        chunks = rig.until_end(A)
        assert payloads(chunks, A) == [b"one"]
        assert [chunk.skipped for chunk in chunks if chunk.error] == [(len(ONE), len(ONE) + 50)]
        logs.partitions["t", 0].append(TWO)
        assert rig.chunk().messages.payloads() == [b"two"]


def test_a_partition_that_damage_has_stopped_goes_on_after_a_seek():
    with served({A: [ONE + BAD + TWO]}) as (rig, _):
        rig.add(A)
        error = rig.chunk().error
        rig.fetchers.pause([A])
        rig.fetchers.resume([A])
        assert rig.queue.get(0.02) is None
        rig.fetchers.seek(A, Position(error.next_offset), 2)
        chunk = rig.chunk()
        assert (chunk.messages.payloads(), chunk.generation) == ([b"two"], 2)


def test_an_error_that_was_not_heard_is_told_again_after_a_pause():
    with served({A: [ONE + BAD + TWO]}) as (rig, _):
        rig.add(A)
        for _ in range(2):
            wait_until(lambda: rig.queue.chunks_queued == 1)
            rig.fetchers.pause([A])
            assert rig.queue.bytes_queued == 0
            rig.fetchers.resume([A])
        assert isinstance(rig.chunk().error, CorruptMessageError)


LARGE = entry(b"x" * 5000)


@pytest.mark.parametrize("policy", ["raise", "stop"])
def test_a_message_above_the_cap_stops_its_partition(policy):
    *before, chunk = read_with_damage([ONE + LARGE + TWO], policy, fetch_bytes=100, max_fetch_bytes=1000)
    assert payloads(before, A) == [b"one"]
    assert isinstance(chunk.error, MessageTooLargeError)
    assert (chunk.error.offset, chunk.error.size) == (len(ONE), len(LARGE) - 4)
    assert (chunk.messages.error is None) == (policy == "stop")


@pytest.mark.parametrize(
    ("segments", "expected", "skipped"),
    [
        ([ONE + LARGE + TWO], [b"one", b"two"], len(LARGE)),
        ([ONE + LARGE + LARGE + LARGE + TWO], [b"one", b"two"], 3 * len(LARGE)),
        ([ONE + LARGE + LARGE, TWO], [b"one", b"two"], 2 * len(LARGE)),
        ([ONE + LARGE], [b"one"], len(LARGE)),
        ([ONE + LARGE + BAD + TWO, THREE], [b"one", b"three"], len(LARGE + BAD + TWO)),
        ([ONE + LARGE[:3000], TWO], [b"one", b"two"], 3000),
        # where the length points to there is an entry, but in the next segment: it lies
        ([ONE + LARGE[:4500], entry(b"y" * (len(LARGE) - 4500 - 10)) + TWO], [b"one", b"y" * 500, b"two"], 4500),
    ],
)
def test_messages_above_the_cap_are_skipped(segments, expected, skipped):
    chunks = read_with_damage(segments, "skip", fetch_bytes=100, max_fetch_bytes=1000)
    assert payloads(chunks, A) == expected
    assert [chunk.skipped for chunk in chunks if chunk.error] == [(len(ONE), len(ONE) + skipped)]


@pytest.mark.parametrize("tp", [TopicPartition("a/b", 0, 0), TopicPartition("t", 0, 2**31), TopicPartition("", 0, 0)])
def test_what_no_request_can_say_is_refused_at_once(tp):
    with Rig({}) as rig:
        with pytest.raises(ValueError):
            rig.add(tp)
        with pytest.raises(ValueError):
            rig.fetchers.seek(tp, Position(0), 1)
        with pytest.raises(ValueError):
            rig.add(A, 2**63)
    assert issubclass(InvalidTopicError, ValueError)


def test_a_mistake_with_one_partition_stays_with_it(monkeypatch, caplog):
    messages = FetchedPart.messages

    def broken(part: FetchedPart, **options) -> MessageSet:
        if part.request.partition == 0:
            raise TypeError("a mistake")
        return messages(part, **options)

    monkeypatch.setattr(FetchedPart, "messages", broken)
    with served({A: [ONE], B: [entry(b"b")] * 20}, fetch_bytes=20) as (rig, _):
        rig.add(A)
        rig.add(B)
        assert payloads(rig.until_end(B), B) == [b"b"] * 20
        assert rig.addresses_asked == 1
        monkeypatch.undo()
        assert payloads(rig.until_end(A), A) == [b"one"]
    assert "t 0-0: the answer to a fetch cannot be handled" in caplog.text


def test_a_partition_that_the_broker_hangs_up_on_disturbs_no_other(tmp_path):
    good, bad = TopicPartition("good", 0, 0), TopicPartition("bad", 0, 0)
    with Broker(tmp_path, properties={"log.flush.interval": 1}) as broker, Rig({0: broker.port}, fetch_bytes=30) as rig:
        produce(broker, "good", 0, numbered(50))
        produce(broker, "bad", 0, [b"one"])
        stall = broker.stall_next("multifetch")
        broker.close_next("offsets", times=4)
        rig.add(bad, 10**9)
        assert stall.wait_entered(PATIENCE)
        rig.add(good)
        stall.release()
        chunks = rig.until_end(good, bad)
        assert payloads(chunks, good) == numbered(50)
        assert payloads(chunks, bad) == [b"one"]
        assert rig.addresses_asked == 5


@pytest.mark.parametrize("setting", ["fetch_bytes", "max_fetch_bytes"])
def test_fetch_sizes_that_make_no_sense(setting):
    with pytest.raises(ValueError, match=f"{setting} is 2147483648; it goes from 4 to"):
        Rig({}, **{setting: 2**31})


# --- what other threads ask for


def test_after_remove_nothing_comes_of_what_was_on_its_way(tmp_path):
    with Broker(tmp_path, partitions=2, properties={"log.flush.interval": 1}) as broker, Rig({0: broker.port}) as rig:
        for number in (0, 1):
            produce(broker, "t", number, [b"%d" % number])
        stall = broker.stall_next("multifetch")
        rig.add(A)
        assert stall.wait_entered(PATIENCE)
        rig.add(B)
        rig.fetchers.remove([A, C])
        stall.release()
        assert {chunk.tp for chunk in rig.until_end(B)} == {B}
        rig.add(A, generation=2)
        assert [chunk.generation for chunk in rig.until_end(A)] == [2, 2]


def test_remove_forgets_what_is_queued_and_makes_room():
    with served({A: [entry(b"x" * 900)] * 5, B: [ONE]}, connections=2, fetch_bytes=1000, max_bytes=2000) as (rig, _):
        rig.add(A)
        wait_until(lambda: rig.queue.bytes_queued >= 1000)
        rig.fetchers.remove([A])
        assert rig.queue.bytes_queued == 0
        rig.add(B)
        assert payloads(rig.until_end(B), B) == [b"one"]
        assert rig.queue.get(0) is None


def test_generations_never_mix_whatever_is_removed_when():
    """Many removals at any moment: what one generation had queued or on its way never shows up in the next."""
    rng = random.Random(7)
    segments = [entry(b"x" * 200)] * 200
    with served({tp: segments for tp in (A, B, C)}, fetch_bytes=500, max_bytes=3000) as (rig, _):
        rig.add(C, 0, -1, queue=ChunkQueue(1))  # so that the thread stays
        for generation in range(150):
            for tp in (A, B):
                rig.add(tp, len(segments[0]) * generation, generation)
            for _ in range(rng.randrange(5)):
                chunk = rig.chunk()
                assert chunk.generation == generation
                assert chunk.position.offset >= len(segments[0]) * generation
            rig.fetchers.remove(rng.sample([A, B], 2))
            assert rig.queue.get(0) is None


def test_pause_keeps_its_place_and_resume_goes_on_there():
    segments = [entry(b"%03d" % number) for number in range(100)]
    with served({A: segments, B: segments}, fetch_bytes=15, max_bytes=2000) as (rig, logs):
        rig.add(A)
        rig.add(B)
        found = defaultdict(list)
        rng = random.Random(5)
        while any(len(found[tp]) < 100 for tp in (A, B)):
            rig.fetchers.pause([A, C])
            assert rig.fetchers.paused == {A}
            assert A not in {entry.chunk.tp for entry in rig.queue._entries}
            for _ in range(rng.randrange(4)):
                if len(found[B]) < 100 and (chunk := rig.chunk()).tp == B:
                    found[B] += chunk.messages.payloads()
            rig.fetchers.pause([A])
            rig.fetchers.resume([A, C])
            assert rig.fetchers.paused == set()
            for _ in range(rng.randrange(4)):
                if len(found[A]) < 100 or len(found[B]) < 100:
                    chunk = rig.chunk()
                    found[chunk.tp] += chunk.messages.payloads()
        assert found[A] == found[B] == [b"%03d" % number for number in range(100)]


def test_a_pause_at_the_end_tells_it_again_only_if_it_was_not_heard():
    with served({A: [ONE]}) as (rig, _):
        rig.add(A)
        rig.until_end(A)
        rig.fetchers.pause([A])
        rig.fetchers.resume([A])
        assert rig.queue.get(0.05) is None
        rig.fetchers.seek(A, Position(0), 1)
        wait_until(lambda: rig.queue.chunks_queued == 2)
        assert rig.chunk().messages.payloads() == [b"one"]
        rig.fetchers.pause([A])
        rig.fetchers.resume([A])
        assert rig.chunk().at_end


def test_a_seek_drops_what_is_queued_and_begins_there():
    segments = [entry(b"%d" % number) for number in range(10)]
    with served({A: segments}, fetch_bytes=11) as (rig, _):
        rig.add(A)
        wait_until(lambda: rig.queue.chunks_queued > 3)
        rig.fetchers.seek(A, Position(8 * 11, 0), 2)
        chunks = rig.until_end(A)
        assert payloads(chunks, A) == [b"8", b"9"]
        assert {chunk.generation for chunk in chunks} == {2}
        rig.fetchers.pause([A])
        rig.fetchers.seek(A, Position(9 * 11, 0), 3)
        assert rig.queue.get(0.02) is None
        rig.fetchers.resume([A])
        assert payloads(rig.until_end(A), A) == [b"9"]
        rig.fetchers.seek(A, None, 4)
        assert len(payloads(rig.until_end(A), A)) == 10
        with pytest.raises(KeyError):
            rig.fetchers.seek(B, Position(0), 1)


def test_adding_again_begins_anew_and_may_change_the_queue():
    with served({A: [ONE]}) as (rig, _):
        other = ChunkQueue(1000)
        rig.add(A)
        wait_until(lambda: rig.queue.chunks_queued == 2)
        rig.add(A, queue=other, generation=2)
        assert rig.queue.chunks_queued == 0
        assert other.get(PATIENCE).messages.payloads() == [b"one"]
        rig.fetchers.remove([A])
        assert not rig.fetchers._fetchers


# --- a broker's trouble


def test_brokers_that_are_down_unknown_or_come_later(tmp_path, caplog):
    later, unknown, here = (TopicPartition("t", broker, 0) for broker in (1, 2, 0))
    with Broker(tmp_path / "0", 0, properties={"log.flush.interval": 1}) as broker:
        produce(broker, "t", 0, [b"here"])
        down = Broker(tmp_path / "1", 1, properties={"log.flush.interval": 1})
        with down:
            produce(down, "t", 0, [b"later"])
            old_port = down.port
        with Rig({0: broker.port, 1: old_port}) as rig:
            for tp in (later, unknown, here):
                rig.add(tp)
            assert payloads(rig.until_end(here), here) == [b"here"]
            wait_until(lambda: rig.addresses_asked > 5)
            with Broker(tmp_path / "1", 1, properties={"log.flush.interval": 1}) as moved:
                assert moved.port != old_port or True
                rig.ports[1] = moved.port
                assert payloads(rig.until_end(later), later) == [b"later"]
            rig.ports[2] = broker.port
            assert payloads(rig.until_end(unknown), unknown) == [b"here"]
    assert "broker 2 is not registered" in caplog.text
    assert caplog.text.count("fetching from broker 1") == 2  # once down, once gone again; not for each try


def test_a_broker_that_dies_comes_back_on_another_port_with_nothing_lost_or_doubled(tmp_path):
    tp = TopicPartition("t", 0, 0)
    messages = numbered(2000)
    properties = {"log.flush.interval": 1}
    broker = Broker(tmp_path, properties=properties).start()
    try:
        produce(broker, "t", 0, messages)
        with Rig({0: broker.port}, fetch_bytes=500, max_bytes=2000) as rig:
            rig.add(tp)
            chunks = []
            for _ in range(5):
                chunks += [rig.chunk() for _ in range(10)]
                broker.stop(clean=False)
                broker = Broker(tmp_path, properties=properties).start()
                rig.ports[0] = broker.port
            assert payloads(chunks + rig.until_end(tp), tp) == messages
    finally:
        broker.stop()


@pytest.mark.parametrize("at_byte", [0, 3, 4, 6, 11, 12, 13, 100, 10_000])
def test_an_answer_that_is_cut_is_asked_for_again(tmp_path, at_byte):
    tps = [TopicPartition("t", 0, number) for number in range(3)]
    messages = numbered(100)
    with Broker(tmp_path, partitions=3, properties={"log.flush.interval": 1}) as broker:
        for number, codec in enumerate(["none", "gzip", "snappy"]):
            for at in range(0, 100, 10):
                produce(broker, "t", number, messages[at : at + 10], codec)
        broker.cut_next("multifetch", at_byte, times=3)
        with Rig({0: broker.port}, fetch_bytes=700) as rig:
            for tp in tps:
                rig.add(tp)
            chunks = rig.until_end(*tps)
            assert all(payloads(chunks, tp) == messages for tp in tps)


def test_a_broker_that_never_answers_holds_up_its_own_partitions_only(tmp_path):
    stuck, free = TopicPartition("t", 1, 0), TopicPartition("t", 0, 0)
    good, bad = (Broker(tmp_path / str(n), n, properties={"log.flush.interval": 1}) for n in range(2))
    with good, bad:
        for broker in (good, bad):
            produce(broker, "t", 0, numbered(100))
        stall = bad.stall_next("multifetch")
        ports = {0: good.port, 1: bad.port}
        with Rig(ports, socket_timeout_ms=300, max_bytes=1000, fetch_bytes=1000) as rig:
            rig.add(stuck)
            assert stall.wait_entered(PATIENCE)
            rig.add(free)
            assert len(payloads(rig.until_end(free), free)) == 100  # though the queue is reserved for the other
            assert len(payloads(rig.until_end(stuck), stuck)) == 100
        stall.release()


def test_closing_does_not_wait_for_a_broker_that_never_answers(tmp_path):
    with Broker(tmp_path) as broker:
        stall = broker.stall_next("multifetch")
        rig = Rig({0: broker.port})
        rig.add(A)
        assert stall.wait_entered(PATIENCE)
        [thread] = [each._thread for each in rig.fetchers._fetchers.values()]
        rig.fetchers.close()
        thread.join(PATIENCE / 2)  # the socket's time-out is PATIENCE
        assert not thread.is_alive()
        stall.release()


def test_closing_leaves_behind_a_thread_that_cannot_be_woken(monkeypatch):
    monkeypatch.setattr(fetcher, "_CLOSE_WAIT", 0.05)
    entered, released = threading.Event(), threading.Event()

    def hangs(broker: int) -> None:
        entered.set()
        released.wait(PATIENCE)

    fetchers = Fetchers(hangs, config=ConsumerConfig())
    queue = ChunkQueue(1000)
    fetchers.add(A, Position(0), 1, queue)
    assert entered.wait(PATIENCE)
    [thread] = [each._thread for each in fetchers._fetchers.values()]
    fetchers.close()
    assert thread.is_alive()
    released.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    fetchers.close()
    with pytest.raises(RuntimeError, match="closed"):
        fetchers.add(A, Position(0), 1, queue)


def test_closing_from_a_fetch_thread():
    with served({A: [ONE]}) as (rig, _):
        closed = threading.Event()

        def close(tp, position, generation):
            rig.fetchers.close()
            closed.set()

        rig.fetchers._on_reset = close
        rig.add(A, None)
        assert closed.wait(PATIENCE)
        assert rig.queue.get(0.02) is None


def test_a_thread_ends_with_its_last_partition():
    with served({A: [], B: []}) as (rig, _):
        rig.add(A)
        rig.add(B)
        rig.until_end(A, B)
        [thread] = [each._thread for each in rig.fetchers._fetchers.values()]
        rig.fetchers.remove([A])
        assert not rig.fetchers._fetchers[0]._stopped
        rig.fetchers.remove([B])
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_thread_that_fails_by_a_mistake_says_so_and_starts_again(caplog):
    logs = SegmentLogs({("t", 0): [ONE]})
    with ScriptedServer(logs.serve) as server:
        failures = iter([RuntimeError("first mistake"), KeyError("second")])

        def address(broker: int) -> BrokerAddress:
            for failure in failures:
                raise failure
            return BrokerAddress(broker, "127.0.0.1", server.port)

        queue = ChunkQueue(1000)
        with Fetchers(address, config=ConsumerConfig()) as fetchers:
            fetchers.add(A, Position(0), 1, queue)
            assert queue.get(PATIENCE).messages.payloads() == [b"one"]
    assert caplog.text.count("the fetch thread of broker 0 failed and starts again") == 2
    assert "first mistake" in caplog.text


def test_a_mistake_while_a_request_is_put_together_forgets_nothing(tmp_path, monkeypatch, caplog):
    mistakes = [True] * 3

    def request(topic: str, partition: int, *more) -> FetchRequest:
        if partition == 1 and mistakes:
            mistakes.pop()
            raise TypeError("a mistake")
        return FetchRequest(topic, partition, *more)

    properties = {"log.flush.interval": 1}
    with Broker(tmp_path, partitions=3, properties=properties) as broker, Rig({0: broker.port}, fetch_bytes=20) as rig:
        for tp in (A, B, C):
            produce(broker, "t", tp.partition, [b"one", b"two"])
            rig.add(tp)
            rig.fetchers.pause([tp])
        monkeypatch.setattr(fetcher, "FetchRequest", request)
        rig.fetchers.resume([A, B, C])
        chunks = rig.until_end(A, B, C)
        assert all(payloads(chunks, tp) == [b"one", b"two"] for tp in (A, B, C))
    assert caplog.text.count("failed and starts again") == 3


def test_a_mistake_with_a_wrapper_is_not_repeated_at_once(monkeypatch):
    messages, tries = FetchedPart.messages, []

    def broken(part: FetchedPart, **options) -> MessageSet:
        tries.append(monotonic())
        if len(tries) < 5:
            raise TypeError("a mistake")
        return messages(part, **options)

    monkeypatch.setattr(FetchedPart, "messages", broken)
    with served({A: [build_message_set([b"one"], "gzip")]}) as (rig, _):
        rig.add(A)
        assert payloads(rig.until_end(A), A) == [b"one"]
    assert tries[4] - tries[1] > 0.05 + 0.1 + 0.2


def test_a_broker_that_speaks_something_else_is_tried_again(caplog):
    logs = SegmentLogs({("t", 0): [ONE]})

    def nonsense(peer: Peer) -> None:
        peer.read_raw()
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    def too_much(peer: Peer) -> None:
        peer.read_raw()
        peer.send(encode_multifetch_response([(0, ONE)]))
        peer.read_raw()
        peer.send(encode_multifetch_response([(0, ONE * 100)]))

    with ScriptedServer(nonsense, too_much, logs.serve) as server, Rig({0: server.port}, fetch_bytes=20) as rig:
        rig.add(A)
        chunks = rig.until_end(A)
        assert payloads(chunks, A) == [b"one"]
    assert "fetching from broker 0" in caplog.text


def test_what_is_fetched_is_counted():
    metrics = Metrics()
    log = build_message_set(numbered(100))
    with served({A: [log]}, metrics=metrics) as (rig, logs):
        rig.add(A)
        rig.until_end(A)
        rig.fetchers.close()
        snapshot = metrics.snapshot()
        assert snapshot["SimpleConsumerStats.ConsumerThroughput{broker=0}"] == len(log)
        assert 2 <= snapshot["SimpleConsumerStats.NumFetchRequests{broker=0}"] <= len(logs.asked)


def test_the_log_may_be_somebody_elses(caplog):
    adapter = logging.LoggerAdapter(logging.getLogger("mine"), {})
    with Fetchers(lambda broker: None, config=ConsumerConfig(), log=adapter) as fetchers:
        fetchers.add(A, Position(0), 1, ChunkQueue(1000))
        wait_until(lambda: any(record.name == "mine" for record in caplog.records))
