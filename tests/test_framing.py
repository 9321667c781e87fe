"""The frame decoder: the same frames however the bytes come, and no memory on a size field's word."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from kafka07c import config
from kafka07c.errors import ProtocolError
from kafka07c.framing import EAGER_BYTES, FrameDecoder


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def decode(decoder: FrameDecoder, pieces) -> list[bytes]:
    return [bytes(frame) for piece in pieces for frame in decoder.feed(piece)]


frame_lists = st.lists(st.binary(min_size=1, max_size=30), max_size=6)


@given(frame_lists, st.data())
def test_frames_are_the_same_however_the_stream_is_cut(frames, data):
    stream = framed(*frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    decoder = FrameDecoder(30, eager_bytes=4)
    assert decode(decoder, pieces) == frames
    assert decoder.pending == 0


@pytest.mark.parametrize("eager", [1, 3, 7, 1000])
def test_whole_byte_by_byte_and_with_bytes_trailing(eager):
    frames = [b"a", b"bc" * 50, b"\0" * 7]
    stream = framed(*frames)
    assert decode(FrameDecoder(100, eager), [stream]) == frames
    assert decode(FrameDecoder(100, eager), [stream[i : i + 1] for i in range(len(stream))]) == frames
    trailing = FrameDecoder(100, eager)
    assert decode(trailing, [stream + framed(b"next")[:6]]) == frames
    assert (trailing.pending, trailing.missing) == (6, 2)
    assert decode(trailing, [b"xt"]) == [b"next"]


def test_pending_and_missing_while_the_size_field_comes():
    decoder = FrameDecoder(100)
    assert (decoder.pending, decoder.missing) == (0, 4)
    decoder.feed(b"\0\0\0")
    assert (decoder.pending, decoder.missing) == (3, 1)
    decoder.feed(b"\5")
    assert (decoder.pending, decoder.missing) == (4, 5)


def test_the_buffer_never_goes_past_the_frame():
    decoder = FrameDecoder(100, eager_bytes=8)
    source = memoryview(framed(b"x" * 50) + b"the next one")
    while True:
        target = decoder.buffer()
        assert 0 < len(target) <= decoder.missing
        target[:] = source[: len(target)]
        source = source[len(target) :]
        if (frame := decoder.advance(len(target))) is not None:
            break
    assert (bytes(frame), bytes(source)) == (b"x" * 50, b"the next one")


def test_a_frame_is_read_only_and_its_own_memory():
    decoder = FrameDecoder(100)
    first, second = decoder.feed(framed(b"first", b"other"))
    assert first.readonly
    decoder.feed(framed(b"third"))
    assert (bytes(first), bytes(second)) == (b"first", b"other")


@pytest.mark.parametrize("size", [0, -1, -(2**31), 101, 2**31 - 1])
def test_a_size_that_cannot_be_is_refused_with_the_last_of_its_bytes(size):
    decoder = FrameDecoder(100)
    field = struct.pack(">i", size)
    assert decoder.feed(field[:3]) == []
    with pytest.raises(ProtocolError, match=f"announces .*{size} bytes"):
        decoder.feed(field[3:])


def test_the_limit_itself_is_allowed():
    assert [bytes(f) for f in FrameDecoder(100).feed(framed(b"x" * 100))] == [b"x" * 100]
    # The broker waits for the rest of a request of exactly this size, and refuses one byte more.
    assert FrameDecoder(config.MAX_REQUEST_BYTES).feed(struct.pack(">i", 104857600)) == []
    with pytest.raises(ProtocolError):
        FrameDecoder(config.MAX_REQUEST_BYTES).feed(struct.pack(">i", 104857601))


def peak_of(work) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_with_what_arrives_and_not_with_what_is_announced():
    decoder = FrameDecoder(config.MAX_REQUEST_BYTES)
    announced = struct.pack(">i", config.MAX_REQUEST_BYTES)
    assert peak_of(lambda: decoder.feed(announced)) < 2 * EAGER_BYTES
    arrived = bytes(300_000)
    assert peak_of(lambda: decoder.feed(arrived)) < 4 * len(arrived)
    assert decoder.pending == 4 + len(arrived)


def test_what_the_caller_vouches_for_is_one_allocation():
    size = 8 * EAGER_BYTES
    decoder = FrameDecoder(size, eager_bytes=size)
    decoder.feed(struct.pack(">i", size))
    assert len(decoder.buffer()) == size
