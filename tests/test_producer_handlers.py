"""Encoders, and what 0.7's handlers do when nothing of them is overridden."""

from __future__ import annotations

import array

import numpy
import pytest

from kafka07c.producer.handlers import CallbackHandler, DefaultEncoder, EventHandler, StringEncoder
from kafka07c.producer.records import ProducerRecord


@pytest.mark.parametrize("value", [b"a", bytearray(b"a"), memoryview(b"a")])
def test_the_default_encoder_leaves_bytes_as_they_are(value):
    assert DefaultEncoder()(value) is value


def test_the_default_encoder_takes_what_has_a_buffer():
    assert bytes(DefaultEncoder()(array.array("b", [1, 2]))) == b"\1\2"
    assert bytes(DefaultEncoder()(numpy.array([3, 4], numpy.uint8))) == b"\3\4"


@pytest.mark.parametrize("value", ["text", 5, None, [b"a"]])
def test_the_default_encoder_says_what_to_do_with_others(value):
    with pytest.raises(TypeError, match=f"a message is bytes-like, not {type(value).__name__}: .*StringEncoder"):
        DefaultEncoder()(value)


def test_the_string_encoder():
    assert StringEncoder()("žluť\U0001f600") == "žluť\U0001f600".encode()
    with pytest.raises(TypeError, match="StringEncoder takes str, not bytes"):
        StringEncoder()(b"a")
    with pytest.raises(UnicodeEncodeError):
        StringEncoder()("\ud83d")


def test_a_callback_handler_of_which_nothing_is_overridden_changes_nothing():
    handler, record = CallbackHandler(), ProducerRecord("t", b"a")
    handler.init({})
    assert handler.before_enqueue(record) is record
    handler.after_enqueue(record, True)
    assert list(handler.after_dequeuing_existing_data(record)) == [record]
    assert list(handler.before_sending_data([record, record])) == [record, record]
    assert list(handler.last_batch_before_close()) == []
    handler.close()


def test_an_event_handler_has_to_handle():
    handler = EventHandler()
    handler.init({})
    handler.close()
    with pytest.raises(NotImplementedError):
        handler.handle([], None, DefaultEncoder())
