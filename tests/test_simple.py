"""SimpleConsumer and SyncProducer over real sockets: growth, damage, refusals, lost connections, lying brokers."""

from __future__ import annotations

import select
import struct
import threading
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from conftest import Golden
from scripted_server import PATIENCE, Logs, Peer, ScriptedServer

from kafka07c import config
from kafka07c._build import build_message_set
from kafka07c._views import MessageSet
from kafka07c.errors import (
    BrokerConnectionError,
    BrokerError,
    BrokerTimeoutError,
    CorruptMessageError,
    InvalidFetchSizeError,
    InvalidMessageError,
    InvalidTopicError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    ProtocolError,
    UnknownError,
    WrongPartitionError,
)
from kafka07c.protocol import (
    EARLIEST,
    LATEST,
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceData,
    ProduceRequest,
    decode_request,
    encode_fetch_response,
    encode_multifetch_response,
    encode_offsets_response,
    response_header,
)
from kafka07c.simple import SimpleConsumer, SyncProducer

GOLDEN = Golden()

SMALL = build_message_set([b"one", b"two", b"three"])
LARGE = build_message_set([b"x" * 5000])
LOG = SMALL + LARGE + SMALL


def consumer_of(server: ScriptedServer, **options) -> SimpleConsumer:
    return SimpleConsumer("127.0.0.1", server.port, broker=7, **options)


class Served:
    """A consumer of logs in memory, and what it asked."""

    def __init__(self, *segments: bytes, start: int = 0, **options):
        self.logs = Logs({("t", 0): list(segments)}, start)
        self._server = ScriptedServer(self.logs.serve)
        self.consumer = consumer_of(self._server, **options)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *exc_info) -> None:
        self.consumer.close()
        self._server.__exit__(*exc_info)

    @property
    def fetched_bytes(self) -> list[int]:
        return [r.max_bytes for r in self.logs.asked if isinstance(r, FetchRequest)]


def answering(*answers: bytes):
    """A script that takes a request for each of ``answers``, then waits for the client to close."""

    def script(peer: Peer) -> None:
        for answer in answers:
            peer.read_raw()
            peer.send(answer)
        peer.read_raw()

    return script


# --- fetch


def test_fetch_gives_messages_with_their_place():
    with Served(LOG) as served:
        messages = served.consumer.fetch("t", 0, 0)
        assert messages.payloads() == [b"one", b"two", b"three", b"x" * 5000] + [b"one", b"two", b"three"]
        message = messages[1]
        assert (message.topic, message.broker, message.partition, message.offset) == ("t", 7, 0, 13)
        assert (messages.base_offset, messages.next_offset) == (0, len(LOG))
        assert served.logs.asked == [FetchRequest("t", 0, 0, config.FETCH_BYTES)]


@pytest.mark.parametrize("max_bytes", [4, 5, 12, 13, 14, 40, 5000, 5010, 10**6])
def test_every_message_comes_once_whatever_the_fetch_size(max_bytes):
    with Served(LOG) as served:
        offset, payloads = 0, []
        while (messages := served.consumer.fetch("t", 0, offset, max_bytes)).next_offset > offset:
            payloads += messages.payloads()
            offset = messages.next_offset
        assert payloads == MessageSet(LOG).payloads()
        assert offset == len(LOG)


def test_a_fetch_grows_only_for_a_message_that_does_not_fit_and_only_that_far():
    with Served(LOG) as served:
        assert len(served.consumer.fetch("t", 0, 0, 100)) == 3  # a cut tail is no reason to grow
        assert len(served.consumer.fetch("t", 0, len(SMALL), 100)) == 1
        assert served.fetched_bytes == [100, 100, len(LARGE)]


def test_a_message_above_the_cap_fails_at_once_with_offset_and_size():
    size = len(LARGE) - 4
    with Served(LOG) as served:
        with pytest.raises(MessageTooLargeError, match=f"{size} bytes is above max_message_bytes") as raised:
            served.consumer.fetch("t", 0, len(SMALL), 100, max_message_bytes=size - 1)
        error = raised.value
        assert (error.topic, error.broker, error.partition, error.offset) == ("t", 7, 0, len(SMALL))
        assert (error.size, error.max_message_bytes) == (size, size - 1)
        assert len(served.logs.asked) == 1
        assert len(served.consumer.fetch("t", 0, len(SMALL), 100, max_message_bytes=size)) == 1


def test_at_the_end_the_set_is_empty_and_stays_where_it_is():
    with Served(LOG) as served:
        messages = served.consumer.fetch("t", 0, len(LOG))
        assert (len(messages), messages.next_offset, messages.error) == (0, len(LOG), None)


def test_a_fetch_goes_on_over_segments():
    with Served(SMALL, LARGE, SMALL, start=1000) as served:
        first = served.consumer.fetch("t", 0, 1000)
        assert first.next_offset == 1000 + len(SMALL)
        assert served.consumer.fetch("t", 0, first.next_offset).next_offset == first.next_offset + len(LARGE)


@pytest.mark.parametrize("max_bytes", [3, 0, -1, 2**31])
def test_fetch_sizes_that_make_no_sense(max_bytes):
    consumer = SimpleConsumer("127.0.0.1", 9)
    with pytest.raises(ValueError, match=f"max_bytes is {max_bytes}; it goes from 4 to"):
        consumer.fetch("t", 0, 0, max_bytes)
    with pytest.raises(ValueError, match=f"max_bytes is {max_bytes}"):
        consumer.send_fetch("t", 0, 0, max_bytes)
    with pytest.raises(ValueError, match=f"max_bytes is {max_bytes}"):
        consumer.multifetch([FetchRequest("t", 0, 0), FetchRequest("t", 0, 0, max_bytes)])
    with pytest.raises(ValueError, match="max_message_bytes is 0"):
        consumer.fetch("t", 0, 0, max_message_bytes=0)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (-1, UnknownError),
        (1, OffsetOutOfRangeError),
        (2, InvalidMessageError),
        (3, WrongPartitionError),
        (4, InvalidFetchSizeError),
        (17, BrokerError),
    ],
)
def test_each_error_code_is_a_class_of_its_own_with_the_place(code, kind):
    with ScriptedServer(answering(encode_fetch_response(b"", code), encode_fetch_response(SMALL))) as server:
        with consumer_of(server) as consumer:
            with pytest.raises(BrokerError, match=f"{server.port} refused a fetch with error code {code}") as raised:
                consumer.fetch("t", 2, 33)
            error = raised.value
            assert (type(error), error.code) == (kind, code)
            assert (error.topic, error.broker, error.partition, error.offset) == ("t", 7, 2, 33)
            assert len(consumer.fetch("t", 2, 0)) == 3  # on the same connection
        assert server.connections == 1


def test_an_offset_below_0_is_for_the_broker_to_refuse():
    with Served(LOG) as served, pytest.raises(OffsetOutOfRangeError):
        served.consumer.fetch("t", 0, -1)


# --- the recorded answers of a real broker

REFUSALS = {-1: UnknownError, 1: OffsetOutOfRangeError, 3: WrongPartitionError}


def recorded(api: str) -> list[dict]:
    """Those that one request settles: answered with a whole entry, with nothing, or with a refusal."""
    return [
        e
        for e in GOLDEN.manifest["exchanges"]
        if e["api"] == api
        and e.get("request")
        and "response_file" in e
        and (api != "FETCH" or e["request"]["max_size"] >= 4)
        and (api != "FETCH" or e["expected"].get("valid_bytes") or not e["expected"]["bytes"])
    ]


def expect(messages: MessageSet, expected: dict) -> None:
    good = messages.good()
    assert good.next_offsets.tolist() == [m["next_offset"] for m in expected["messages"]]
    assert good.lengths.tolist() == [m["payload"]["len"] for m in expected["messages"]]
    assert [m.crc for m in good] == [m["crc"] for m in expected["messages"]]


@pytest.mark.parametrize("exchange", recorded("FETCH"), ids=lambda e: f"{e['id']:03}-{e['name']}")
def test_recorded_fetch(exchange):
    raw = GOLDEN.bytes(exchange["request_file"])

    def broker(peer: Peer) -> None:
        assert peer.read_raw() == raw
        peer.send(GOLDEN.bytes(exchange["response_file"]))

    request, expected = decode_request(raw[4:]), exchange["expected"]
    with ScriptedServer(broker) as server, consumer_of(server) as consumer:

        def fetch() -> MessageSet:
            return consumer.fetch(request.topic, request.partition, request.offset, request.max_bytes)

        if expected["error_code"]:
            with pytest.raises(REFUSALS[expected["error_code"]]):
                fetch()
        else:
            messages = fetch()
            assert messages.valid_bytes == expected["valid_bytes"]
            expect(messages, expected)


@pytest.mark.parametrize("exchange", recorded("OFFSETS"), ids=lambda e: f"{e['id']:03}-{e['name']}")
def test_recorded_offsets(exchange):
    raw = GOLDEN.bytes(exchange["request_file"])

    def broker(peer: Peer) -> None:
        assert peer.read_raw() == raw
        peer.send(GOLDEN.bytes(exchange["response_file"]))

    request = decode_request(raw[4:])
    with ScriptedServer(broker) as server, consumer_of(server) as consumer:
        offsets = consumer.get_offsets_before(request.topic, request.partition, request.time, request.max_offsets)
        assert offsets == exchange["expected"]["offsets"]


def test_recorded_multifetch_with_refused_parts():
    exchange = next(e for e in GOLDEN.manifest["exchanges"] if e["name"] == "multifetch-errors")
    raw = GOLDEN.bytes(exchange["request_file"])

    def broker(peer: Peer) -> None:
        assert peer.read_raw() == raw
        peer.send(GOLDEN.bytes(exchange["response_file"]))

    requests = decode_request(raw[4:]).requests
    with ScriptedServer(broker) as server, consumer_of(server) as consumer:
        parts = consumer.multifetch(requests)
    assert len(parts) == len(requests)
    for request, part, expected in zip(requests, parts, exchange["expected"], strict=True):
        assert (part.topic, part.broker, part.partition) == (request.topic, 7, request.partition)
        if expected["error_code"]:
            assert type(part.error) is REFUSALS[expected["error_code"]]
            assert part.error.offset == request.offset
            assert (len(part), part.next_offset) == (0, request.offset)
            with pytest.raises(type(part.error)):
                list(part)
        else:
            assert part.error is None
            expect(part, expected)


@pytest.mark.parametrize("topic", ["plain", "gzip", "snappy", "mixed", "nested", "magic0", "attrs"])
@pytest.mark.parametrize("max_bytes", [4, 100])
def test_recorded_logs_read_in_small_fetches(topic, max_bytes):
    [segment] = [s for s in GOLDEN.manifest["segments"] if s["file"].startswith(f"logs/{topic}-0/")]
    with Served(GOLDEN.bytes(segment["file"])) as served:
        offset, found = 0, []
        while (messages := served.consumer.fetch("t", 0, offset, max_bytes)).next_offset > offset:
            found += zip(messages.next_offsets.tolist(), (m.crc for m in messages), strict=True)
            offset = messages.next_offset
        assert found == [(m["next_offset"], m["crc"]) for m in segment["messages"]]


# --- damage


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def resized(data: bytes, size: int, at: int = 0) -> bytes:
    return data[:at] + struct.pack(">i", size) + data[at + 4 :]


def test_a_damaged_entry_ends_the_set_and_the_good_ones_before_it_are_there():
    with Served(flipped(LOG, 13 + 12)) as served:
        messages = served.consumer.fetch("t", 0, 0)
        assert (len(messages), messages.next_offset) == (1, 13)
        assert isinstance(messages.error, CorruptMessageError)
        assert (messages.error.offset, messages.error.next_offset) == (13, 26)
        with pytest.raises(CorruptMessageError):
            list(messages)


# Trap 32: a length too large at the log's end; the Scala consumer fetches the same bytes for ever.
@pytest.mark.parametrize("size", [30, 10_000, 2**31 - 1])
@pytest.mark.parametrize("max_bytes", [25, 1000])
def test_an_entry_that_runs_past_the_logs_end_is_corrupt(size, max_bytes):
    bad = resized(build_message_set([b"the last one"]), size)
    assert len(bad) == 22
    with Served(SMALL + bad) as served:
        messages = served.consumer.fetch("t", 0, len(SMALL), max_bytes)
        assert isinstance(messages.error, CorruptMessageError)
        assert (messages.error.topic, messages.error.broker, messages.error.partition) == ("t", 7, 0)
        assert (messages.error.offset, messages.error.next_offset) == (len(SMALL), None)
        assert f"its size field is {size}, and the log or its segment ends 22 bytes after" in str(messages.error)
        assert (len(messages), messages.next_offset) == (0, len(SMALL))
        with pytest.raises(CorruptMessageError):
            list(messages)
        assert len(served.logs.asked) == 2


def test_an_entry_that_runs_past_a_segments_end_is_corrupt():
    bad = resized(LARGE, len(LARGE))
    with Served(bad, SMALL) as served:
        error = served.consumer.fetch("t", 0, 0, 100).error
        assert isinstance(error, CorruptMessageError) and error.offset == 0
        assert served.fetched_bytes == [100, len(LARGE) + 4]


@pytest.mark.parametrize("left", [1, 2, 3])
def test_a_log_that_ends_inside_a_size_field_is_corrupt(left):
    with Served(SMALL + LARGE[:left]) as served:
        error = served.consumer.fetch("t", 0, len(SMALL)).error
        assert isinstance(error, CorruptMessageError)
        assert f"its size field is cut, and the log or its segment ends {left} bytes after" in str(error)


def test_a_log_that_grew_meanwhile_is_not_corrupt():
    cut, end = LARGE[:1000], len(LARGE)
    seen = encode_fetch_response(cut), encode_offsets_response([end, 0]), encode_fetch_response(LARGE)
    with ScriptedServer(answering(*seen)) as server, consumer_of(server) as consumer:
        messages = consumer.fetch("t", 0, 0)
        assert (len(messages), messages.error) == (1, None)


def test_a_log_that_never_settles_is_corrupt_in_the_end():
    answers = []
    for length in (1000, 1001, 1002):
        answers += encode_fetch_response(LARGE[:length]), encode_offsets_response([length + 1, 0])
    with ScriptedServer(answering(*answers[:-1])) as server, consumer_of(server) as consumer:
        assert isinstance(consumer.fetch("t", 0, 0).error, CorruptMessageError)


def test_a_negative_or_tiny_size_is_corrupt_at_once():
    for size in (-1, 0, 4):
        with Served(resized(SMALL, size)) as served:
            error = served.consumer.fetch("t", 0, 0, 10).error
            assert isinstance(error, CorruptMessageError) and error.next_offset is None
            assert len(served.logs.asked) == 1


BAD = flipped(build_message_set([b"damaged"]), 12)


@pytest.mark.parametrize(
    ("segments", "next_offset"),
    [
        ([BAD + SMALL], len(BAD)),
        ([BAD + LARGE + SMALL], len(BAD)),
        ([BAD, SMALL], len(BAD)),
        ([BAD], len(BAD)),
        ([BAD + flipped(LARGE, 50)], None),
        ([BAD + b"\0" * 40], None),
        ([resized(BAD, len(BAD) - 3) + SMALL], None),
        ([resized(BAD, 10_000) + SMALL], None),
    ],
    ids=["good", "large", "segment", "log-end", "also-bad", "zeros", "wrong-size", "past-end"],
)
@pytest.mark.parametrize("max_bytes", [4, len(BAD), len(BAD) + 3, 10**6])
def test_what_follows_a_damaged_entry_is_found_however_little_was_fetched(segments, next_offset, max_bytes):
    with Served(*segments) as served:
        error = served.consumer.fetch("t", 0, 0, max_bytes).error
        assert isinstance(error, CorruptMessageError)
        assert (error.offset, error.next_offset) == (0, next_offset)


# --- multifetch


def test_multifetch_asks_once_for_all():
    with Served(LOG) as served:
        wanted = [FetchRequest("t", 0, 0, 30), FetchRequest("t", 0, 13, 50), FetchRequest("t", 0, len(LOG))]
        parts = served.consumer.multifetch(iter(wanted))
        assert [part.payloads() for part in parts] == [[b"one", b"two"], [b"two", b"three"], []]
        assert [part.base_offset for part in parts] == [0, 13, len(LOG)]
        assert served.logs.asked == [MultiFetchRequest(tuple(wanted))]


def test_multifetch_of_nothing_asks_nothing():
    assert SimpleConsumer("127.0.0.1", 9).multifetch([]) == []


def test_each_part_of_a_multifetch_stands_for_itself():
    with Served(LOG + BAD) as served:
        fits, grows, out_of_range, negative, wrong, corrupt = served.consumer.multifetch(
            [
                FetchRequest("t", 0, 0, 30),
                FetchRequest("t", 0, len(SMALL), 30),
                FetchRequest("t", 0, 10**9),
                FetchRequest("t", 0, -5),
                FetchRequest("t", 1, 0),
                FetchRequest("t", 0, len(LOG)),
            ]
        )
        assert fits.payloads() == [b"one", b"two"]
        assert grows.payloads() == [b"x" * 5000]
        for part, kind in (
            (out_of_range, OffsetOutOfRangeError),
            (negative, OffsetOutOfRangeError),
            (wrong, WrongPartitionError),
        ):
            assert len(part) == 0 and type(part.error) is kind
        assert isinstance(corrupt.error, CorruptMessageError)
        assert served.fetched_bytes[0] == len(LARGE)


def test_a_part_with_a_message_above_the_cap_fails_alone():
    with Served(LOG) as served:
        large, small = served.consumer.multifetch(
            [FetchRequest("t", 0, len(SMALL), 30), FetchRequest("t", 0, 0, 30)], max_message_bytes=1000
        )
        assert isinstance(large.error, MessageTooLargeError) and large.error.size == len(LARGE) - 4
        with pytest.raises(MessageTooLargeError):
            large.payloads()
        assert small.payloads() == [b"one", b"two"]


def test_a_whole_multifetch_refused():
    with ScriptedServer(answering(response_header(0, -1))) as server, consumer_of(server) as consumer:
        with pytest.raises(UnknownError, match="refused a multifetch"):
            consumer.multifetch([FetchRequest("t", 0, 0)])


def test_a_part_longer_than_asked_for_is_nonsense():
    answer = encode_multifetch_response([(0, SMALL), (0, b"")])
    with ScriptedServer(answering(answer)) as server, consumer_of(server) as consumer:
        with pytest.raises(ProtocolError, match=f"sent {len(SMALL)} bytes of topic 't' partition 0 .* asked for 13"):
            consumer.multifetch([FetchRequest("t", 0, 0, 13), FetchRequest("t", 0, 0, 1000)])


# --- offsets


@pytest.mark.parametrize(
    ("time", "on_the_wire"),
    [
        (LATEST, -1),
        (EARLIEST, -2),
        (1_700_000_000_123, 1_700_000_000_123),
        (datetime(2012, 9, 11, 12, 0, 0, 123_999, tzinfo=UTC), 1_347_364_800_123),
        (datetime(2012, 9, 11, 14, 0, tzinfo=timezone(timedelta(hours=2))), 1_347_364_800_000),
        (datetime(2012, 9, 11, 12, 0), 1_347_364_800_000),
        (datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), 0),
        (datetime.min, 0),
    ],
    ids=["latest", "earliest", "ms", "utc", "zone", "naive", "before-1970", "min"],
)
def test_times_of_offsets(time, on_the_wire):
    def broker(peer: Peer) -> None:
        assert peer.request() == OffsetsRequest("t", 3, on_the_wire, 5)
        peer.send(encode_offsets_response([20, 10]))

    with ScriptedServer(broker) as server, consumer_of(server) as consumer:
        assert consumer.get_offsets_before("t", 3, time, 5) == [20, 10]


def test_what_the_broker_would_hang_up_on_is_not_asked():
    consumer = SimpleConsumer("127.0.0.1", 9)  # where nobody listens
    for topic, partition in (("a/b", 0), ("", 0), ("t", -1)):
        with pytest.raises(InvalidTopicError):
            consumer.get_offsets_before(topic, partition, LATEST, 1)
    with pytest.raises(ValueError, match="max_offsets is -1"):
        consumer.get_offsets_before("t", 0, LATEST, -1)


def test_offsets_of_a_partition_that_is_not_there():
    def hangs_up(peer: Peer) -> None:
        peer.read_raw()

    with ScriptedServer(hangs_up, hangs_up) as server, consumer_of(server) as consumer:
        with pytest.raises(BrokerConnectionError, match=r"as 0.7 does .*the offsets of topic 't' partition 99"):
            consumer.get_offsets_before("t", 99, LATEST, 1)
        assert server.connections == 2


def test_more_offsets_than_asked_for_are_refused_before_they_are_read():
    with ScriptedServer(answering(encode_offsets_response(range(100)))) as server, consumer_of(server) as consumer:
        with pytest.raises(ProtocolError, match="announces 806 bytes, and at most 86"):
            consumer.get_offsets_before("t", 0, LATEST, 10)


def test_an_error_code_for_offsets():
    with ScriptedServer(answering(encode_offsets_response([], 3))) as server, consumer_of(server) as consumer:
        with pytest.raises(WrongPartitionError, match="topic 't', broker 7, partition 5: .* refused to give offsets"):
            consumer.get_offsets_before("t", 5, LATEST, 10)


def test_the_one_offset_of_an_unknown_topic_even_when_none_is_asked_for():
    with ScriptedServer(answering(encode_offsets_response([0]))) as server, consumer_of(server) as consumer:
        assert consumer.get_offsets_before("t", 0, LATEST, 0) == [0]


# --- fetches sent ahead


def test_fetches_sent_ahead_are_all_asked_before_the_first_is_received():
    def broker(peer: Peer) -> None:
        requests = [peer.request() for _ in range(3)]
        for request in requests:
            peer.send(encode_fetch_response(LOG[request.offset :][: request.max_bytes]))

    with ScriptedServer(broker) as server, consumer_of(server) as consumer:
        for offset in (0, 13, 26):
            consumer.send_fetch("t", 0, offset, 15)
        assert consumer.pending == 3
        assert [consumer.receive().payloads() for _ in range(3)] == [[b"one"], [b"two"], [b"three"]]
        assert consumer.pending == 0
        with pytest.raises(RuntimeError, match="send_fetch"):
            consumer.receive()


def test_reading_ahead_as_the_class_shows_it():
    with Served(LOG) as served:
        consumer, offset, payloads = served.consumer, 0, []
        consumer.send_fetch("t", 0, offset, 30)
        while consumer.pending:
            messages = consumer.receive()
            if messages.next_offset > offset:
                offset = messages.next_offset
                consumer.send_fetch("t", 0, offset, 30)
            payloads += messages.payloads()
        assert payloads == MessageSet(LOG).payloads()


def test_other_calls_and_growth_between_fetches_sent_ahead():
    with Served(LOG) as served:
        consumer = served.consumer
        consumer.send_fetch("t", 0, 0, 15)
        consumer.send_fetch("t", 0, len(SMALL), 15)
        consumer.send_fetch("t", 0, 13, 15)
        assert consumer.get_offsets_before("t", 0, LATEST, 1) == [len(LOG)]
        assert consumer.fetch("t", 0, 26, 20).payloads() == [b"three"]
        assert consumer.pending == 3
        assert [consumer.receive().payloads() for _ in range(3)] == [[b"one"], [b"x" * 5000], [b"two"]]


def test_a_refused_fetch_sent_ahead_fails_alone():
    with Served(LOG) as served:
        for offset in (0, 10**9, 13):
            served.consumer.send_fetch("t", 0, offset, 15)
        assert served.consumer.receive().payloads() == [b"one"]
        with pytest.raises(OffsetOutOfRangeError):
            served.consumer.receive()
        assert served.consumer.receive().payloads() == [b"two"]


def test_fetches_sent_ahead_survive_one_lost_connection_and_not_two():
    def loses(peer: Peer) -> None:
        for _ in range(2):
            peer.read_raw()

    logs = Logs({("t", 0): [LOG]})
    with ScriptedServer(loses, logs.serve) as server, consumer_of(server) as consumer:
        consumer.send_fetch("t", 0, 0, 15)
        consumer.send_fetch("t", 0, 13, 15)
        assert [consumer.receive().payloads() for _ in range(2)] == [[b"one"], [b"two"]]
    with ScriptedServer(loses, loses, logs.serve) as server, consumer_of(server) as consumer:
        consumer.send_fetch("t", 0, 0, 15)
        consumer.send_fetch("t", 0, 13, 15)
        for _ in range(2):
            with pytest.raises(BrokerConnectionError):
                consumer.receive()
        assert consumer.pending == 0
        assert consumer.fetch("t", 0, 0, 15).payloads() == [b"one"]


def test_closing_forgets_what_was_sent_ahead_and_a_later_call_connects_again():
    logs = Logs({("t", 0): [LOG]})
    with ScriptedServer(logs.serve, logs.serve) as server:
        consumer = consumer_of(server)
        consumer.send_fetch("t", 0, 0, 15)
        consumer.close()
        assert consumer.pending == 0
        assert "not connected" in repr(consumer)
        assert consumer.fetch("t", 0, 13, 15).payloads() == [b"two"]
        assert f"127.0.0.1:{server.port}, connected" in repr(consumer)
        consumer.close()


# --- multifetches sent ahead


def test_multifetches_sent_ahead_are_asked_before_the_first_is_received():
    def broker(peer: Peer) -> None:
        requests = [peer.request() for _ in range(2)]
        for request in requests:
            peer.send(encode_multifetch_response((0, LOG[part.offset :][: part.max_bytes]) for part in request.requests))

    with ScriptedServer(broker) as server, consumer_of(server) as consumer:
        consumer.send_multifetch([FetchRequest("t", 0, 0, 15), FetchRequest("t", 0, 13, 15)])
        consumer.send_multifetch([FetchRequest("t", 0, 26, 15)])
        first, second = consumer.receive_multifetch(), consumer.receive_multifetch()
        assert [part.messages().payloads() for part in first + second] == [[b"one"], [b"two"], [b"three"]]
        assert [part.request.offset for part in first + second] == [0, 13, 26]
        with pytest.raises(RuntimeError, match="send_multifetch"):
            consumer.receive_multifetch()


def test_a_part_is_as_it_came_until_its_messages_are_asked_for():
    with Served(LOG) as served:
        served.consumer.send_multifetch(
            [FetchRequest("t", 0, 0, 15), FetchRequest("t", 9, 0), FetchRequest("t", 0, len(SMALL), 30)]
        )
        plain, refused, cut = served.consumer.receive_multifetch()
        assert (plain.code, bytes(plain.data)) == (0, LOG[:15])
        assert (refused.code, bytes(refused.data)) == (3, b"")
        assert isinstance(refused.messages().error, WrongPartitionError)
        assert served.fetched_bytes == []
        assert cut.messages().payloads() == [b"x" * 5000]  # asked for again, alone
        assert served.fetched_bytes == [len(LARGE)]


def test_the_messages_of_a_part_share_the_answer_or_have_a_copy():
    with Served(LOG) as served:
        served.consumer.send_multifetch([FetchRequest("t", 0, 0)])
        [part] = served.consumer.receive_multifetch()
        shared, own = np.frombuffer(part.messages().data, np.uint8), part.messages(copy=True)
        assert np.shares_memory(shared, np.frombuffer(part.data, np.uint8))
        assert not np.shares_memory(shared, np.frombuffer(own.data, np.uint8))
        assert own.payloads() == MessageSet(LOG).payloads()


def test_a_part_grows_while_the_next_multifetch_is_on_its_way():
    with Served(LOG) as served:
        for offset in (len(SMALL), 0):
            served.consumer.send_multifetch([FetchRequest("t", 0, offset, 30)])
        [part] = served.consumer.receive_multifetch()
        assert part.messages().payloads() == [b"x" * 5000]
        assert served.consumer.receive_multifetch()[0].messages().payloads() == [b"one", b"two"]


def test_a_multifetch_of_nothing_cannot_be_sent_ahead():
    with pytest.raises(ValueError, match="at least one request"):
        SimpleConsumer("127.0.0.1", 9).send_multifetch([])


def test_closing_forgets_multifetches_sent_ahead():
    with Served(LOG) as served:
        served.consumer.send_multifetch([FetchRequest("t", 0, 0)])
        served.consumer.close()
        with pytest.raises(RuntimeError):
            served.consumer.receive_multifetch()


def test_without_reconnect_a_lost_connection_is_told_at_once():
    def loses(peer: Peer) -> None:
        peer.read_raw()

    with ScriptedServer(loses) as server, consumer_of(server, reconnect=False) as consumer:
        with pytest.raises(BrokerConnectionError, match="closed the connection instead of answering"):
            consumer.multifetch([FetchRequest("t", 0, 0)])
        assert server.connections == 1


def test_a_consumer_that_waits_is_interrupted_from_another_thread():
    asked = threading.Event()

    def never_answers(peer: Peer) -> None:
        peer.read_raw()
        asked.set()
        peer.read_raw()

    def interrupt() -> None:
        asked.wait(PATIENCE)
        consumer.interrupt()

    with ScriptedServer(never_answers) as server, consumer_of(server, reconnect=False, timeout=PATIENCE) as consumer:
        consumer.interrupt()  # not connected: nothing to end
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(BrokerConnectionError) as raised:
            consumer.multifetch([FetchRequest("t", 0, 0)])
        assert not isinstance(raised.value, BrokerTimeoutError)
        thread.join()


def test_a_shallow_consumer_leaves_wrappers_closed():
    stored = build_message_set([b"one", b"two"], "gzip")
    with Served(stored, shallow=True) as served:
        assert len(served.consumer.fetch("t", 0, 0)) == 1
        assert len(served.consumer.fetch("t", 0, 0)[0].payload) == len(stored) - 10


# --- faulty brokers


def test_the_connection_is_made_when_first_used_and_kept():
    with Served(LOG) as served:
        assert "not connected" in repr(served.consumer)
        for _ in range(3):
            served.consumer.fetch("t", 0, 0)
        assert served._server.connections == 1


@pytest.mark.parametrize("sent", [0, 3, 5, 6, 20])
def test_a_cut_answer_is_asked_for_once_more(sent):
    def cuts(peer: Peer) -> None:
        peer.read_raw()
        peer.send(encode_fetch_response(LOG)[:sent])

    logs = Logs({("t", 0): [LOG]})
    with ScriptedServer(cuts, logs.serve) as server, consumer_of(server) as consumer:
        assert len(consumer.fetch("t", 0, 0)) == 7
    with ScriptedServer(cuts, cuts) as server, consumer_of(server) as consumer:
        with pytest.raises(BrokerConnectionError, match=f"127.0.0.1:{server.port} closed the connection"):
            consumer.fetch("t", 0, 0)
        assert server.connections == 2


@pytest.mark.parametrize("size", [-1, 0, 2**31 - 1, 103])
def test_an_absurd_size_is_a_protocol_error(size):
    with ScriptedServer(answering(struct.pack(">i", size))) as server, consumer_of(server) as consumer:
        with pytest.raises(ProtocolError, match=f"broker 127.0.0.1:{server.port}: a frame announces"):
            consumer.fetch("t", 0, 0, 100)


def test_a_frame_too_short_for_an_error_code_is_a_protocol_error():
    # What 0.7.2 sends for a fetch of at most -1 bytes: a size of 1.
    with ScriptedServer(answering(response_header(-1))) as server, consumer_of(server) as consumer:
        with pytest.raises(ProtocolError, match=f"broker 127.0.0.1:{server.port}: the error at byte 0 needs 2 bytes"):
            consumer.fetch("t", 0, 0, 100)


def test_a_silent_broker_is_a_time_out_and_the_consumer_usable_after_it():
    logs = Logs({("t", 0): [LOG]})

    def silent(peer: Peer) -> None:
        while peer.read_raw():
            pass

    with ScriptedServer(silent, logs.serve) as server, consumer_of(server, timeout=0.2) as consumer:
        with pytest.raises(BrokerTimeoutError, match="did not answer within 0.2 s"):
            consumer.fetch("t", 0, 0)
        assert len(consumer.fetch("t", 0, 0)) == 7


def test_messages_outlive_the_consumer_and_the_next_answers():
    with Served(LOG) as served:
        first = served.consumer.fetch("t", 0, 0, 40)
        view = first[0].payload
        for offset in (13, 26, len(SMALL)):
            served.consumer.fetch("t", 0, offset, 40)
    assert bytes(view) == b"one"
    del first
    assert bytes(view) == b"one"


# --- SyncProducer


class Sink:
    """A broker that keeps every request and answers none; ``take(n)`` is a script for one connection of n requests."""

    def __init__(self) -> None:
        self.connections: list[list] = []

    def take(self, count: int):
        def script(peer: Peer) -> None:
            requests: list = []
            self.connections.append(requests)
            while len(requests) < count and (request := peer.request()) is not None:
                requests.append(request)

        return script


def test_send_is_one_produce_request():
    sink = Sink()
    with ScriptedServer(sink.take(3)) as server, SyncProducer("127.0.0.1", server.port) as producer:
        producer.send("t", 2, [b"one", b"two", b"three"])
        producer.send("t", -1, [b"zipped"] * 20, "gzip")
        producer.send("new", 0, [])
    plain, zipped, empty = sink.connections[0]
    assert plain == ProduceData("t", 2, SMALL)
    messages = MessageSet(zipped.message_set, final=True)
    assert zipped.partition == -1 and messages.payloads() == [b"zipped"] * 20 and str(messages[0].codec) == "gzip"
    assert empty == ProduceData("new", 0, b"")


def test_arrow_and_numpy_columns_are_payloads():
    sink = Sink()
    flat = np.frombuffer(b"onetwothree", np.uint8)
    with ScriptedServer(sink.take(3)) as server, SyncProducer("127.0.0.1", server.port) as producer:
        producer.send("t", 0, pa.array([b"one", b"two", b"three"]))
        producer.send("t", 0, flat, offsets=np.array([0, 3, 6, 11]))
        producer.multisend([ProduceRequest("t", 0, flat, offsets=[0, 3, 6, 11])])
    arrow, numpy, multi = sink.connections[0]
    assert arrow == numpy == ProduceData("t", 0, SMALL)
    assert multi == MultiProduceRequest((ProduceData("t", 0, SMALL),))


def test_multisend_is_one_request_in_order():
    sink = Sink()
    with ScriptedServer(sink.take(1)) as server, SyncProducer("127.0.0.1", server.port) as producer:
        producer.multisend([])
        producer.multisend(ProduceRequest(f"t{i}", i, [b"%d" % i]) for i in range(600))
    [request] = sink.connections[0]
    assert [(p.topic, p.partition) for p in request.parts] == [(f"t{i}", i) for i in range(600)]
    assert [MessageSet(p.message_set).payloads() for p in request.parts] == [[b"%d" % i] for i in range(600)]


@pytest.mark.parametrize(
    ("arguments", "kind", "match"),
    [
        (("a/b", 0, [b"x"]), InvalidTopicError, "illegal"),
        (("", 0, [b"x"]), InvalidTopicError, "empty"),
        (("x" * 256, 0, [b"x"]), InvalidTopicError, "256 characters"),
        (("t", -2, [b"x"]), InvalidTopicError, "partition -2"),
        (("t", 0, [b"ok", b"x" * 101]), MessageTooLargeError, "payload 1 has 101 bytes.*max_message_bytes, 100"),
        (("t", 0, [bytes(range(256))], "gzip"), MessageTooLargeError, "message as stored .*max_message_bytes, 100"),
        (("t", 0, [b"x" * 90] * 12), MessageTooLargeError, "request of 12.. bytes.*max_request_bytes, 1000"),
    ],
    ids=["slash", "empty", "long", "partition", "payload", "wrapper", "request"],
)
def test_what_a_broker_would_drop_or_hang_up_on_is_refused_and_nothing_sent(arguments, kind, match):
    sink = Sink()
    with ScriptedServer(sink.take(1)) as server:
        with SyncProducer("127.0.0.1", server.port, max_message_bytes=100, max_request_bytes=1000) as producer:
            with pytest.raises(kind, match=match) as raised:
                producer.send(*arguments)
            if kind is MessageTooLargeError and "max_message_bytes" in match:
                assert (raised.value.topic, raised.value.partition) == ("t", 0)
                assert raised.value.size > raised.value.max_message_bytes == 100
            with pytest.raises(kind, match=match):
                producer.multisend([ProduceRequest("t", 0, [b"good"]), ProduceRequest(*arguments)])
            producer.send("t", 0, [b"good"])
    assert sink.connections == [[ProduceData("t", 0, build_message_set([b"good"]))]]


def test_a_payload_of_exactly_the_limit_and_what_compression_brings_below_it_are_sent():
    sink = Sink()
    with ScriptedServer(sink.take(2)) as server:
        with SyncProducer("127.0.0.1", server.port, max_message_bytes=100) as producer:
            producer.send("t", 0, [b"x" * 100])
            producer.send("t", 0, [b"x" * 5000], "gzip")
    assert [len(MessageSet(r.message_set)) for r in sink.connections[0]] == [1, 1]


def test_a_request_of_exactly_the_limit_is_sent():
    sink = Sink()
    data = ProduceData("t", 0, build_message_set([b"x" * 50]))
    size = len(data.encode()) - 4
    with ScriptedServer(sink.take(1)) as server:
        with SyncProducer("127.0.0.1", server.port, max_request_bytes=size) as producer:
            with pytest.raises(MessageTooLargeError, match=f"request of {size + 1} bytes"):
                producer.send("t", 0, [b"x" * 51])
            producer.send("t", 0, [b"x" * 50])
    assert sink.connections == [[data]]


def wait_for_end(producer: SyncProducer) -> None:
    """Until this machine knows that the broker has closed."""
    assert select.select([producer._connection._socket], [], [], PATIENCE)[0]


@pytest.mark.parametrize("ends", ["closes", "resets"])
def test_a_send_after_one_that_the_broker_hung_up_on_is_not_lost(ends):
    sink = Sink()

    def hangs_up(peer: Peer) -> None:
        sink.take(1)(peer)
        if ends == "resets":
            peer.reset()

    with ScriptedServer(hangs_up, hangs_up, sink.take(2)) as server:
        with SyncProducer("127.0.0.1", server.port) as producer:
            producer.send("t", 99, [b"bad 1"])
            wait_for_end(producer)
            producer.send("t", 99, [b"bad 2"])
            wait_for_end(producer)
            producer.send("t", 0, [b"good 1"])
            producer.send("t", 0, [b"good 2"])
    sent = [[MessageSet(r.message_set).payloads()[0] for r in requests] for requests in sink.connections]
    assert sent == [[b"bad 1"], [b"bad 2"], [b"good 1", b"good 2"]]


def test_a_request_that_failed_half_way_is_not_sent_again_and_the_error_says_so():
    def takes_a_little(peer: Peer) -> None:
        peer.read(1000)
        peer.reset()

    sink = Sink()
    with ScriptedServer(takes_a_little, sink.take(1)) as server:
        with SyncProducer("127.0.0.1", server.port) as producer:
            with pytest.raises(BrokerConnectionError, match="is unknown, and it is not sent again"):
                producer.send("t", 0, [bytes(1_000_000)] * 50)
            producer.send("t", 0, [b"after"])
    assert sink.connections == [[ProduceData("t", 0, build_message_set([b"after"]))]]


def test_a_broker_that_takes_nothing_is_a_time_out():
    done = threading.Event()
    with ScriptedServer(lambda peer: done.wait(PATIENCE)) as server:
        with SyncProducer("127.0.0.1", server.port, timeout=0.2) as producer:
            with pytest.raises(BrokerTimeoutError, match="did not take a request within 0.2 s.*not sent again"):
                producer.send("t", 0, [bytes(1_000_000)] * 50)
        done.set()
