"""Whole connections of the real 0.7.2 clients: every byte of both directions is understood and made again."""

from __future__ import annotations

import struct

import pytest
from conftest import Golden
from scripted_server import Peer, ScriptedServer

from kafka07c import config
from kafka07c._views import MessageSet
from kafka07c.framing import FrameDecoder
from kafka07c.protocol import (
    EARLIEST,
    LATEST,
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceData,
    decode_fetch_response,
    decode_multifetch_response,
    decode_offsets_response,
    decode_request,
    encode_fetch_response,
    encode_multifetch_response,
    encode_offsets_response,
)
from kafka07c.simple import SimpleConsumer, SyncProducer

GOLDEN = Golden()
TRANSCRIPTS = GOLDEN.manifest["transcripts"]
CONNECTIONS = sorted({t["file"].split("/")[1].split(".")[0] for t in TRANSCRIPTS})

NAMES = {
    FetchRequest: "FETCH",
    MultiFetchRequest: "MULTIFETCH",
    OffsetsRequest: "OFFSETS",
    ProduceData: "PRODUCE",
    MultiProduceRequest: "MULTIPRODUCE",
}


def stream(connection: str, direction: str) -> bytes:
    return GOLDEN.bytes(f"transcripts/{connection}.{direction}.bin")


def described(connection: str, direction: str) -> list[dict]:
    return next(t["frames"] for t in TRANSCRIPTS if t["file"] == f"transcripts/{connection}.{direction}.bin")


def frames_of(pieces) -> list[bytes]:
    decoder = FrameDecoder(config.MAX_REQUEST_BYTES)
    frames = [bytes(frame) for piece in pieces for frame in decoder.feed(piece)]
    assert decoder.pending == 0
    return frames


def requests_of(connection: str) -> list:
    return [decode_request(frame) for frame in frames_of([stream(connection, "c2s")])]


def again(request, frame: bytes) -> bytes:
    """A response decoded, as that to ``request``, and encoded."""
    if isinstance(request, FetchRequest):
        error, data = decode_fetch_response(frame)
        return encode_fetch_response(data, error)
    if isinstance(request, MultiFetchRequest):
        error, parts = decode_multifetch_response(frame, len(request.requests))
        assert error == 0
        return encode_multifetch_response(parts)
    assert isinstance(request, OffsetsRequest)
    error, offsets = decode_offsets_response(frame)
    return encode_offsets_response(offsets, error)


@pytest.mark.parametrize("direction", ["c2s", "s2c"])
@pytest.mark.parametrize("connection", CONNECTIONS)
def test_frames_are_those_described_however_the_bytes_come(connection, direction):
    data = stream(connection, direction)
    frames = frames_of([data])
    assert [len(frame) for frame in frames] == [f["size_field"] for f in described(connection, direction)]
    assert frames_of(data[i : i + 1] for i in range(len(data))) == frames
    trailing = FrameDecoder(config.MAX_REQUEST_BYTES)
    assert [bytes(frame) for frame in trailing.feed(data + b"\0\0\0")] == frames
    assert trailing.pending == 3


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_requests_are_those_described_and_encode_to_the_same_bytes(connection):
    requests = requests_of(connection)
    assert [NAMES[type(r)] for r in requests] == [f["request_type"] for f in described(connection, "c2s")]
    assert b"".join(request.encode() for request in requests) == stream(connection, "c2s")


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_responses_decode_and_encode_to_the_same_bytes(connection):
    frames = frames_of([stream(connection, "s2c")])
    asked = [r for r in requests_of(connection) if not isinstance(r, (ProduceData, MultiProduceRequest))]
    assert len(asked) >= len(frames)  # a consumer that is shut down leaves its last fetch unanswered
    encoded = [again(request, frame) for request, frame in zip(asked, frames, strict=False)]
    assert b"".join(encoded) == stream(connection, "s2c")


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_every_message_set_that_a_real_producer_sent_is_whole(connection):
    for request in requests_of(connection):
        for part in getattr(request, "parts", [request]):
            if isinstance(part, ProduceData):
                messages = MessageSet(part.message_set, final=True)
                assert len(messages) and messages.error is None
                assert messages.valid_bytes == len(part.message_set)


def test_simple_consumer_asks_as_the_scala_one_and_reads_the_brokers_answers():
    requests = requests_of("simple-conn01")
    answers = [struct.pack(">i", len(f)) + f for f in frames_of([stream("simple-conn01", "s2c")])]
    received = bytearray()

    def broker(peer: Peer) -> None:
        for answer in answers:
            received.extend(peer.read_raw())
            peer.send(answer)

    fetch, multifetch, latest, earliest = requests
    with (
        ScriptedServer(broker) as server,
        SimpleConsumer("127.0.0.1", server.port, broker=0) as consumer,
    ):
        fetched = consumer.fetch(fetch.topic, fetch.partition, fetch.offset, fetch.max_bytes)
        parts = consumer.multifetch(multifetch.requests)
        ends = consumer.get_offsets_before(latest.topic, latest.partition, LATEST, latest.max_offsets)
        starts = consumer.get_offsets_before(earliest.topic, earliest.partition, EARLIEST, earliest.max_offsets)

    assert bytes(received) == stream("simple-conn01", "c2s")
    assert fetched.valid_bytes == len(answers[0]) - 6 and len(fetched)
    assert [part.valid_bytes for part in parts] == [len(part.data) for part in parts]
    assert all(len(part) for part in parts)
    assert ends == sorted(ends, reverse=True) and starts == [0]


def test_sync_producer_sends_what_the_scala_one_sent():
    sent = requests_of("reconnect-conn01")
    received = bytearray()

    def broker(peer: Peer) -> None:
        received.extend(peer.read(len(stream("reconnect-conn01", "c2s"))))

    with ScriptedServer(broker) as server, SyncProducer("127.0.0.1", server.port) as producer:
        for request in sent:
            producer.send(request.topic, request.partition, MessageSet(request.message_set).payloads())
    assert bytes(received) == stream("reconnect-conn01", "c2s")
