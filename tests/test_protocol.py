"""Requests and responses, both ways, against what went over the wire to and from a real 0.7.2 broker."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from conftest import Golden
from hypothesis import given, strategies as st

from kafka07c import config
from kafka07c.errors import InvalidTopicError, KafkaError, ProtocolError
from kafka07c.protocol import (
    EARLIEST,
    LATEST,
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceData,
    check_partition,
    check_topic,
    decode_fetch_response,
    decode_multifetch_response,
    decode_offsets_response,
    decode_request,
    encode_fetch_response,
    encode_multifetch_response,
    encode_offsets_response,
    response_header,
)

GOLDEN = Golden()
EXCHANGES = GOLDEN.manifest["exchanges"]

#: the requests that a broker cannot make sense of, and how it shows: it closes
MALFORMED = {
    "request-unknown-type-5": "type 5 is unknown",
    "request-unknown-type-99": "type 99 is unknown",
    "request-type-negative": "type -1 is unknown",
    "request-size-1": "needs 2 bytes, and 1 are left",
    "request-fetch-short-body": "needs 16 bytes, and 8 are left",
    "request-produce-set-size-too-big": "needs 1000 bytes, and 11 are left",
    "request-topic-length-negative": "length of -1",
    "request-multifetch-negative-count": "count is -1",
}

#: those whose size field alone decides: framing's, not ours
SIZE_ONLY = {"request-size-zero", "request-size-negative", "request-oversized", "request-size-at-limit"}

#: bytes after the last field, which the broker ignores
TRAILING = {"request-fetch-long-body": 5}

#: hand-made, and the manifest has a stand-in's values for it
STAND_IN = "produce-utf8-topic"


def exchanges(api, *, values=False, response=False):
    """All of one kind; only those whose values the manifest has; only those that were answered."""
    chosen = [e for e in EXCHANGES if e["api"] == api]
    if values:
        chosen = [e for e in chosen if e.get("request") is not None and e["name"] != STAND_IN]
    if response:
        chosen = [e for e in chosen if "response_file" in e and e.get("expected") is not None]
    assert chosen
    return pytest.mark.parametrize("exchange", chosen, ids=[f"{e['id']:03}-{e['name']}" for e in chosen])


def fetch_request(values):
    return FetchRequest(values["topic"], values["partition"], values["offset"], values["max_size"])


def request_bytes(exchange):
    return GOLDEN.bytes(exchange["request_file"])


def response_bytes(exchange):
    return GOLDEN.bytes(exchange["response_file"])


# --- requests


@pytest.mark.parametrize("exchange", EXCHANGES, ids=[f"{e['id']:03}-{e['name']}" for e in EXCHANGES])
def test_recorded_request_decodes_and_encodes_to_the_same_bytes(exchange):
    name, raw = exchange["name"], request_bytes(exchange)
    if name in SIZE_ONLY:
        assert len(raw) == 4
    elif name in MALFORMED:
        assert exchange["outcome"] == "connection closed by broker"
        with pytest.raises(ProtocolError, match=MALFORMED[name]):
            decode_request(raw[4:])
    else:
        encoded = decode_request(raw[4:]).encode()
        extra = TRAILING.get(name, 0)
        assert encoded[4:] == raw[4 : len(raw) - extra]
        assert int.from_bytes(encoded[:4]) == len(raw) - 4 - extra


def test_every_recorded_malformed_request_is_there():
    names = {e["name"] for e in EXCHANGES}
    assert names >= MALFORMED.keys() | SIZE_ONLY | TRAILING.keys()


@exchanges("FETCH", values=True)
def test_recorded_fetch_has_the_recorded_values(exchange):
    assert decode_request(request_bytes(exchange)[4:]) == fetch_request(exchange["request"])


@exchanges("MULTIFETCH", values=True)
def test_recorded_multifetch_has_the_recorded_values(exchange):
    expected = MultiFetchRequest(tuple(map(fetch_request, exchange["request"])))
    assert decode_request(request_bytes(exchange)[4:]) == expected


@exchanges("OFFSETS", values=True)
def test_recorded_offsets_request_has_the_recorded_values(exchange):
    asked = exchange["request"]
    expected = OffsetsRequest(asked["topic"], asked["partition"], asked["time"], asked["max_offsets"])
    assert decode_request(request_bytes(exchange)[4:]) == expected


@exchanges("PRODUCE", values=True)
def test_recorded_produce_request_has_the_recorded_values(exchange):
    asked = exchange["request"]
    request = decode_request(request_bytes(exchange)[4:])
    assert (request.topic, request.partition) == (asked["topic"], asked["partition"])
    assert len(request.message_set) == asked["message_set"]["bytes"]
    assert request_bytes(exchange).endswith(request.message_set)


def test_a_topic_is_utf8_and_its_length_counts_bytes():
    raw = request_bytes(next(e for e in EXCHANGES if e["name"] == STAND_IN))
    assert decode_request(raw[4:]).topic == "tópic-☃"
    assert raw[6:8] == bytes([0, 10])


@exchanges("MULTIPRODUCE", values=True)
def test_recorded_multiproduce_request_has_the_recorded_values(exchange):
    request = decode_request(request_bytes(exchange)[4:])
    found = [(part.topic, part.partition, len(part.message_set)) for part in request.parts]
    assert found == [(p["topic"], p["partition"], p["message_set"]["bytes"]) for p in exchange["request"]]


def test_bytes_after_the_last_field_are_ignored_as_the_broker_does():
    exchange = next(e for e in EXCHANGES if e["name"] == "request-fetch-long-body")
    assert exchange["outcome"] == "response"
    assert decode_request(request_bytes(exchange)[4:]) == FetchRequest("plain", 0, 0, 100)


def test_message_sets_are_views_over_the_frame():
    frame = bytearray(ProduceData("t", 0, b"the set").encode()[4:])
    request = decode_request(frame)
    frame[-3:] = b"SET"
    assert bytes(request.message_set) == b"the SET"


def test_produce_requests_are_sent_without_copying_their_sets():
    sets = [bytearray(b"one"), b"", memoryview(b"three")]
    request = MultiProduceRequest(tuple(ProduceData("t", i, s) for i, s in enumerate(sets)))
    pieces = request.buffers()
    assert b"".join(pieces) == request.encode()
    assert all(any(piece is s for piece in pieces) for s in sets)
    assert any(piece is sets[0] for piece in ProduceData("t", 0, sets[0]).buffers())


def test_a_numpy_array_is_a_message_set_and_a_frame():
    data = np.arange(9, dtype=np.uint8)
    encoded = ProduceData("t", 1, data).encode()
    assert encoded == ProduceData("t", 1, data.tobytes()).encode()
    assert decode_request(np.frombuffer(encoded, np.uint8)[4:]).message_set == data.tobytes()


topics = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
fetches = st.builds(FetchRequest, topics, int32s, int64s, int32s)
produces = st.builds(ProduceData, topics, int32s, st.binary(max_size=40))
requests = st.one_of(
    fetches,
    produces,
    st.builds(OffsetsRequest, topics, int32s, int64s, int32s),
    st.builds(MultiFetchRequest, st.lists(fetches, max_size=4).map(tuple)),
    st.builds(MultiProduceRequest, st.lists(produces, max_size=4).map(tuple)),
)


@given(requests)
def test_what_is_encoded_decodes_to_the_same(request):
    encoded = request.encode()
    assert int.from_bytes(encoded[:4]) == len(encoded) - 4
    assert decode_request(encoded[4:]) == request


@given(requests, st.data())
def test_no_beginning_of_a_request_is_a_request(request, data):
    frame = request.encode()[4:]
    cut = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(ProtocolError):
        decode_request(frame[:cut])


@given(st.binary(max_size=60), st.sampled_from([b"", *(bytes([0, n]) for n in range(6))]))
def test_any_bytes_give_a_request_or_a_protocol_error(body, head):
    try:
        decode_request(head + body)
    except ProtocolError:
        pass


def test_a_large_count_costs_nothing_before_the_parts_are_there():
    with pytest.raises(ProtocolError, match="2 bytes, and 0 are left"):
        decode_request(bytes([0, 3, 0x7F, 0xFF]))


def test_a_topic_that_is_no_utf8_decodes_to_an_illegal_one():
    request = decode_request(b"\0\1" + b"\0\2" + b"a\xff" + bytes(16))
    assert request.topic == "a\ufffd"
    with pytest.raises(InvalidTopicError):
        check_topic(request.topic)


@pytest.mark.parametrize(
    "request_",
    [
        FetchRequest("t", 2**31, 0),
        FetchRequest("t", 0, 2**63),
        FetchRequest("t", 0, 0, 2**31),
        OffsetsRequest("t", 0, -(2**63) - 1, 1),
        ProduceData("t", -(2**31) - 1, b""),
        MultiFetchRequest((FetchRequest("t", 0, 0),) * 2**15),
    ],
    ids=["partition", "offset", "max-bytes", "time", "produce-partition", "count"],
)
def test_a_number_that_does_not_fit_the_wire_is_a_value_error(request_):
    with pytest.raises(ValueError, match="fit the wire|int16 count"):
        request_.encode()


@pytest.mark.parametrize("topic", ["x" * 2**15, "lone \ud800"])
def test_a_topic_that_cannot_be_written_is_an_invalid_topic(topic):
    with pytest.raises(InvalidTopicError):
        FetchRequest(topic, 0, 0).encode()


def test_requests_pickle():
    fetch = FetchRequest("t", 0, 5)
    for request in (fetch, MultiFetchRequest((fetch,)), OffsetsRequest("t", 0, -1, 1)):
        assert pickle.loads(pickle.dumps(request)) == request


def test_defaults_and_constants_are_those_of_0_7():
    assert FetchRequest("t", 0, 0).max_bytes == config.FETCH_BYTES == 1048576
    assert (LATEST, EARLIEST) == (-1, -2)


# --- names and partitions


@pytest.mark.parametrize("exchange", [e for e in EXCHANGES if "produce-topic-" in e["name"]], ids=lambda e: e["name"])
def test_check_topic_agrees_with_the_broker_on_recorded_names(exchange):
    topic = exchange["request"]["topic"]
    if exchange["outcome"] == "connection closed by broker":
        with pytest.raises(InvalidTopicError, match="topic name"):
            check_topic(topic)
    else:
        assert check_topic(topic) == topic


# What java.util.regex finds with the pattern of kafka.utils.TopicNameValidator.
@pytest.mark.parametrize(
    ("topic", "is_legal"),
    [
        ("tópic-☃", True),
        ("...", True),
        ("..a", True),
        ("x\U0001f600y", True),
        ("\uf900", True),
        ("\uffef", True),
        ("a\u2028", True),
        ("\u00a0", True),
        ("x" * 255, True),
        ("\U0001f600" * 127, True),
        (".\u2028", False),
        ("..\u2029", False),
        (".\u0085", False),
        (".\n", False),
        ("a\x1f", False),
        ("a\x7f", False),
        ("a\x9f", False),
        ("\ud800", False),
        ("\ue000", False),
        ("\uf8ff", False),
        ("\ufff0", False),
        ("\ufffd", False),
        ("x" * 256, False),
        ("\U0001f600" * 128, False),
    ],
)
def test_check_topic_agrees_with_the_pattern_of_0_7(topic, is_legal):
    if is_legal:
        assert check_topic(topic) == topic
    else:
        with pytest.raises(InvalidTopicError):
            check_topic(topic)


def test_check_topic_takes_the_brokers_own_limit():
    assert check_topic("x" * 10, max_length=10)
    with pytest.raises(InvalidTopicError, match="11 characters long; a broker takes 10"):
        check_topic("x" * 11, max_length=10)


def test_check_partition():
    assert [check_partition(n) for n in (-1, 0, 2**31 - 1)] == [-1, 0, 2**31 - 1]
    for partition in (-2, 2**31):
        with pytest.raises(InvalidTopicError, match=f"partition {partition}"):
            check_partition(partition)


# --- responses


@exchanges("FETCH", values=True, response=True)
def test_recorded_fetch_response(exchange):
    raw = response_bytes(exchange)
    if exchange["request"]["max_size"] == -1:
        # The broker counts the -1 bytes of the body into the size, sends the error code, and closes.
        assert raw == response_header(-1)
        return
    error, data = decode_fetch_response(raw[4:])
    assert (error, len(data)) == (exchange["expected"]["error_code"], exchange["expected"]["bytes"])
    assert encode_fetch_response(data, error) == raw
    assert response_header(len(data), error) == raw[:6]


@exchanges("MULTIFETCH", response=True)
def test_recorded_multifetch_response(exchange):
    raw, expected = response_bytes(exchange), exchange["expected"]
    error, parts = decode_multifetch_response(raw[4:], len(expected))
    assert error == 0
    assert [(code, len(data)) for code, data in parts] == [(e["error_code"], e["bytes"]) for e in expected]
    assert encode_multifetch_response(parts) == raw


@exchanges("OFFSETS", response=True)
def test_recorded_offsets_response(exchange):
    raw = response_bytes(exchange)
    error, offsets = decode_offsets_response(raw[4:])
    assert (error, offsets) == (0, exchange["expected"]["offsets"])
    assert encode_offsets_response(offsets) == raw


def test_log_bytes_are_views_over_the_frame():
    frame = bytearray(encode_fetch_response(b"log")[4:])
    _, data = decode_fetch_response(frame)
    frame[-1:] = b"G"
    assert data == b"loG"


def test_an_outer_error_is_told_and_leaves_no_parts():
    assert decode_multifetch_response(response_header(0, -1)[4:], 3) == (-1, [])
    assert decode_offsets_response(encode_offsets_response([], 3)[4:]) == (3, [])


@pytest.mark.parametrize(
    ("frame", "count", "match"),
    [
        (b"\0", 1, "needs 2 bytes, and 1 are left"),
        (b"\0\0" + response_header(10), 1, "needs 10 bytes, and 0 are left"),
        (b"\0\0" + response_header(-3), 1, "length of -3"),
        (b"\0\0" + response_header(0), 2, "needs 6 bytes, and 0 are left"),
        (b"\0\0" + response_header(0) + b"x", 1, "1 bytes follow"),
    ],
    ids=["no-error", "short-part", "negative-part", "missing-part", "trailing"],
)
def test_a_multifetch_response_that_does_not_add_up_is_a_protocol_error(frame, count, match):
    with pytest.raises(ProtocolError, match=match):
        decode_multifetch_response(frame, count)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"\0\0\0", "needs 4 bytes, and 3 are left"),
        (b"\xff\xff\xff\xff", "length of -8"),
        (b"\x7f\xff\xff\xff", "needs 17179869176 bytes, and 0 are left"),
        (b"\0\0\0\1" + bytes(9), "1 bytes follow"),
    ],
    ids=["no-count", "negative-count", "huge-count", "trailing"],
)
def test_an_offsets_response_that_does_not_add_up_is_a_protocol_error(body, match):
    with pytest.raises(ProtocolError, match=match):
        decode_offsets_response(b"\0\0" + body)


@given(st.binary(max_size=60), st.integers(0, 4))
def test_any_bytes_give_a_response_or_a_protocol_error(frame, count):
    for decode in (
        decode_fetch_response,
        decode_offsets_response,
        lambda frame: decode_multifetch_response(frame, count),
    ):
        try:
            decode(frame)
        except KafkaError as error:
            assert isinstance(error, ProtocolError)
