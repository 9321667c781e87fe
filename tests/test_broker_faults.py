"""Scripted faults: each does what it says to the request it is meant for, once, and to no other."""

from __future__ import annotations

import threading

import pytest

from broker_client import PATIENCE, Wire, log_end
from kafka07c import build_message_set
from kafka07c.broker import Broker
from kafka07c.errors import MessageTooLargeError, OffsetOutOfRangeError
from kafka07c.protocol import (
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceData,
    decode_fetch_response,
    decode_multifetch_response,
    decode_offsets_response,
)

ONE = build_message_set([b"one"])
PRODUCE = ProduceData("clicks", 0, ONE)
FETCH = FetchRequest("clicks", 0, 0, 100)
OFFSETS = OffsetsRequest("clicks", 0, -1, 10)
GOOD = b"\0\0\0\x0f\0\0" + ONE


@pytest.fixture
def broker(tmp_path):
    """A broker with one message in clicks-0."""
    with Broker(tmp_path, properties={"log.flush.interval": 1}) as broker:
        with Wire(broker.port) as wire:
            wire.send(PRODUCE.encode())
            assert wire.ask(FETCH) == GOOD
        yield broker


@pytest.fixture
def wire(broker):
    with Wire(broker.port) as wire:
        yield wire


def error_of(response: bytes) -> int:
    return decode_fetch_response(response[4:])[0]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (1, 1),
        (4, 4),
        (-1, -1),
        (99, 99),
        (OffsetOutOfRangeError("scripted"), 1),
        (OffsetOutOfRangeError("scripted", code=7), 7),
        (RuntimeError, -1),
        (RuntimeError("scripted"), -1),
    ],
)
def test_a_fetch_fails_with_a_code_and_the_next_does_not(broker, wire, error, code):
    broker.fail_next("fetch", error)
    assert error_of(wire.ask(FETCH)) == code
    assert wire.ask(FETCH) == GOOD


def test_one_part_of_a_multifetch_fails(broker, wire):
    broker.fail_next("multifetch", 2, topic="views")
    request = MultiFetchRequest((FETCH, FetchRequest("views", 0, 0, 100), FETCH, FetchRequest("views", 0, 0, 100)))
    outer, parts = decode_multifetch_response(wire.ask(request)[4:], 4)
    assert outer == 0
    assert [(error, bytes(data)) for error, data in parts] == [(0, ONE), (2, b""), (0, ONE), (0, b"")]


def test_offsets_fail_with_a_code_that_0_7_never_sends(broker, wire):
    broker.fail_next("offsets", 3)
    assert decode_offsets_response(wire.ask(OFFSETS)[4:]) == (3, [])
    assert wire.offsets("clicks", 0) == [13, 0]


@pytest.mark.parametrize("request_", [PRODUCE, MultiProduceRequest((PRODUCE, PRODUCE))])
def test_a_produce_that_fails_is_lost_with_its_connection(broker, wire, request_):
    api = "produce" if request_ is PRODUCE else "multiproduce"
    broker.fail_next(api, 2)
    wire.send(request_.encode())
    assert wire.read_to_end() == b""
    assert log_end(broker.port, "clicks", 0) == 13


def test_a_later_part_of_a_multiproduce_fails(broker, wire):
    broker.fail_next("multiproduce", RuntimeError, topic="views")
    wire.send(MultiProduceRequest((PRODUCE, ProduceData("views", 0, ONE), PRODUCE)).encode())
    assert wire.read_to_end() == b""
    assert log_end(broker.port, "clicks", 0) == 26


def test_a_set_too_large_by_script_is_dropped_silently(broker, wire):
    broker.fail_next("produce", MessageTooLargeError("scripted"))
    wire.send(PRODUCE.encode() * 2)
    assert wire.offsets("clicks", 0) == [26, 0]


def test_times_topic_and_any_api(broker, wire):
    broker.fail_next(None, 1, times=2, topic="clicks")
    assert broker.faults.pending == 2
    assert error_of(wire.ask(FetchRequest("views", 0, 0, 100))) == 0
    assert error_of(wire.ask(FETCH)) == 1
    assert decode_offsets_response(wire.ask(OFFSETS)[4:]) == (1, [])
    assert broker.faults.pending == 0
    assert wire.ask(FETCH) == GOOD


def test_faults_come_in_the_order_in_which_they_were_scripted(broker, wire):
    broker.fail_next("fetch", 1)
    broker.fail_next("offsets", 2)
    broker.fail_next("fetch", 3)
    assert [error_of(wire.ask(FETCH)) for _ in range(3)] == [1, 3, 0]
    assert broker.faults.pending == 1
    broker.faults.clear()
    assert wire.offsets("clicks", 0) == [13, 0]


@pytest.mark.parametrize("at_byte", range(len(GOOD) + 2))
def test_an_answer_is_cut_at_every_byte(broker, wire, at_byte):
    broker.cut_next("fetch", at_byte)
    wire.send(FETCH.encode() * 2)
    assert wire.read_to_end() == GOOD[:at_byte]
    with Wire(broker.port) as again:
        assert again.ask(FETCH) == GOOD


def test_a_multifetch_is_cut_in_its_second_part(broker, wire):
    request = MultiFetchRequest((FETCH, FETCH))
    whole = wire.ask(request)
    for at_byte in range(len(whole)):
        broker.cut_next("multifetch", at_byte)
        with Wire(broker.port) as cut:
            cut.send(request.encode())
            assert cut.read_to_end() == whole[:at_byte]


def test_a_produce_is_carried_out_before_its_missing_answer_is_cut(broker, wire):
    broker.cut_next("produce", 0)
    wire.send(PRODUCE.encode())
    assert wire.read_to_end() == b""
    assert log_end(broker.port, "clicks", 0) == 26


def test_close_before_does_nothing_of_what_was_asked(broker, wire):
    broker.close_next("produce")
    wire.send(PRODUCE.encode())
    assert wire.read_to_end() == b""
    assert log_end(broker.port, "clicks", 0) == 13


def test_close_after_has_done_and_answered(broker, wire):
    broker.close_next("fetch", when="after")
    wire.send(FETCH.encode() * 2)
    assert wire.read_to_end() == GOOD


def test_a_stall_holds_one_connection_until_it_is_released(broker, wire):
    stall = broker.stall_next("produce")
    wire.send(PRODUCE.encode() + FETCH.encode())
    assert stall.wait_entered(PATIENCE)
    with Wire(broker.port) as other:
        assert other.ask(FETCH) == GOOD
        assert other.offsets("clicks", 0) == [13, 0]
    stall.release()
    assert wire.read_response() == b"\0\0\0\x1c\0\0" + ONE * 2


def test_a_stall_ends_by_itself(broker, wire):
    stall = broker.stall_next("fetch", 0.01)
    assert wire.ask(FETCH) == GOOD
    assert stall.wait_entered(0)


def test_nobody_comes_to_a_stall(broker):
    assert not broker.stall_next("fetch").wait_entered(0.01)


def test_a_stop_releases_what_is_stalled(broker, wire):
    stalls = [broker.stall_next("fetch"), broker.stall_next("offsets")]
    wire.send(FETCH.encode())
    with Wire(broker.port) as other:
        other.send(OFFSETS.encode())
        assert all(stall.wait_entered(PATIENCE) for stall in stalls)
        broker.stop()
        assert other.read_to_end() == b""


def test_stalled_then_failed(broker, wire):
    stall = broker.stall_next("fetch")
    broker.fail_next("fetch", 1)
    wire.send(FETCH.encode())
    assert stall.wait_entered(PATIENCE)
    stall.release()
    assert error_of(wire.read_response()) == 1


def test_each_fault_hits_once_however_many_ask_at_the_same_time(broker):
    broker.fail_next("fetch", 1, times=37)
    errors: list[int] = []

    def ask() -> None:
        with Wire(broker.port) as wire:
            for _ in range(20):
                errors.append(error_of(wire.ask(FETCH)))

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(errors) == [0] * 63 + [1] * 37


@pytest.mark.parametrize(
    "script",
    [
        lambda broker: broker.fail_next("metadata", 1),
        lambda broker: broker.fail_next("fetch", 0),
        lambda broker: broker.fail_next("fetch", 1, times=0),
        lambda broker: broker.cut_next("fetch", -1),
        lambda broker: broker.close_next("fetch", when="during"),
    ],
)
def test_a_script_that_makes_no_sense_is_refused(broker, script):
    with pytest.raises(ValueError):
        script(broker)
    assert broker.faults.pending == 0
