"""The suites: for each a table of rows, and the works that the rows compare, with all answers compared beforehand.

``works`` of a suite is a context manager, for some of them start servers. What cannot be had here (a peer that is not
installed, a broker) is not among the works, and ``missing`` says why.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import numpy
import pyarrow

from bench import peers, plain
from bench.measuring import SIZES, Row, Work, Works
from bench.samples import noise, words
from kafka07c import MessageSet, build_message_set

NOT_INSTALLED = "not installed: make bench-peers"


@dataclass
class Context:
    """What suites need from outside, and what they could not do: work -> reason."""

    quick: bool = False
    classpath: str = ""
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, works: Works, name: str, call: Callable[[], object] | None, messages: int) -> None:
        """A peer's work, or the reason why it is not there"""
        if call is None:
            self.missing[name] = NOT_INSTALLED
        else:
            works[name] = Work(call, messages)


@dataclass(frozen=True)
class Suite:
    name: str
    rows: tuple[Row, ...]
    works: Callable[[int, Context], AbstractContextManager[Works]]
    names: tuple[str, ...]
    sizes: tuple[str, ...] = tuple(SIZES)


class Copier:
    """Called, it copies ``data`` over the same memory each time."""

    def __init__(self, data: bytes):
        self.data = data
        self.target = ctypes.create_string_buffer(len(data))

    def __call__(self) -> None:
        ctypes.memmove(self.target, self.data, len(self.data))


def columns(data: bytes) -> numpy.ndarray:
    messages = MessageSet(data)
    assert messages.offsets is not None
    return messages.lengths


def iterate(data: bytes) -> None:
    for _ in MessageSet(data):
        pass


def check_decoding(data: bytes, payloads: list[bytes]) -> None:
    found = plain.decode(data)
    messages = MessageSet(data)
    assert [bytes(payload) for _, _, payload in found] == payloads == messages.payloads()
    assert [start for start, _, _ in found] == messages.offsets.tolist()
    assert [end for _, end, _ in found] == messages.next_offsets.tolist()
    assert [len(payload) for payload in payloads] == columns(data).tolist()
    assert [message.offset for message in messages] == messages.offsets.tolist()


# --- codec: message sets to columns

CODEC = (
    Row("scan + CRC + columns, time : memcpy", "columns", "memcpy", False, (10.5, 3.1, 1.15, 1.0)),
    Row("the same, rate : plain Python", "columns", "plain Python", True, (100, 50, 20, 12)),
    Row("the same, rate : aiokafka's v2 parser, its format", "columns", "aiokafka", True, (12, 20, 25, 25)),
    Row("the same, rate : kafka-python's v2 parser, its format", "columns", "kafka-python", True, (None,) * 4),
    Row("a set of one message, rate : plain Python", "one message", "one, plain Python", True, (None,) * 4),
)


@contextmanager
def codec_works(size: int, context: Context) -> Iterator[Works]:
    payloads = noise(size)
    data, count = build_message_set(payloads), len(payloads)
    check_decoding(data, payloads)
    one = build_message_set(payloads[:1])
    works = {
        "memcpy": Work(Copier(data), count),
        "columns": Work(lambda: columns(data), count, by_kernel=True),
        "plain Python": Work(lambda: plain.decode(data), count),
        "one message": Work(lambda: [columns(one) for _ in range(1000)], 1000, by_kernel=True),
        "one, plain Python": Work(lambda: [plain.decode(one) for _ in range(1000)], 1000),
    }
    for peer in peers.NAMES:
        context.add(works, peer, peers.parser_v2(peer, payloads), count)
    yield works


# --- values: what is taken out of a set

VALUES = (
    Row("iterate Message, CRC on, rate : aiokafka's v2 parser", "iterate", "aiokafka", True, (3, 5, 15, 15)),
    Row("iterate Message, CRC on, rate : plain Python", "iterate", "plain Python", True, (None,) * 4),
    Row("payloads() as bytes, rate : plain Python", "payloads", "plain Python", True, (None,) * 4),
    Row("Arrow binary_view, time : scan + CRC alone", "binary_view", "scan", False, (2, 1.5, 1.3, 1.3)),
    Row("Arrow binary, time : scan + CRC alone", "binary", "scan", False, (3, 2.5, 3, 3)),
)


@contextmanager
def values_works(size: int, context: Context) -> Iterator[Works]:
    payloads = noise(size)
    data, count = build_message_set(payloads), len(payloads)
    check_decoding(data, payloads)
    column = pyarrow.array(payloads, pyarrow.binary())
    assert pyarrow.record_batch(MessageSet(data)).column("value").equals(column)
    views = pyarrow.record_batch(MessageSet(data).binary_view()).column("value")
    assert views.type == pyarrow.binary_view() and views.cast(pyarrow.binary()).equals(column)
    works = {
        "scan": Work(lambda: MessageSet(data), count, by_kernel=True),
        "iterate": Work(lambda: iterate(data), count, by_kernel=True),
        "payloads": Work(lambda: MessageSet(data).payloads(), count, by_kernel=True),
        "binary_view": Work(lambda: pyarrow.record_batch(MessageSet(data).binary_view()), count, by_kernel=True),
        "binary": Work(lambda: pyarrow.record_batch(MessageSet(data)), count, by_kernel=True),
        "plain Python": Work(lambda: plain.decode(data), count),
    }
    context.add(works, "aiokafka", peers.parser_v2("aiokafka", payloads), count)
    yield works


# --- compression: wrappers to columns

COMPRESSION = (
    Row("gzip wrapper to columns, rate : through zlib", "gzip", "zlib", True, (None, 1.8, 1.8, None)),
    Row(
        "snappy wrapper to columns, rate : aiokafka v1, its format", "snappy", "aiokafka snappy", True,
        (None, 1.6, 1.3, None),
    ),
    Row("gzip wrapper to columns, rate : aiokafka v1, its format", "gzip", "aiokafka gzip", True, (None,) * 4),
)  # fmt: skip


@contextmanager
def compression_works(size: int, context: Context) -> Iterator[Works]:
    payloads = words(size)
    count = len(payloads)
    gzip, snappy = (build_message_set(payloads, codec) for codec in ("gzip", "snappy"))
    assert MessageSet(gzip).payloads() == payloads == MessageSet(snappy).payloads()
    assert MessageSet(plain.inflate(gzip)).payloads() == payloads
    works = {
        "gzip": Work(lambda: columns(gzip), count),
        "snappy": Work(lambda: columns(snappy), count),
        "zlib": Work(lambda: columns(plain.inflate(gzip)), count),
    }
    for codec in peers.CODECS:
        context.add(works, f"aiokafka {codec}", peers.parser_v1("aiokafka", payloads, codec), count)
    yield works


# --- encode

ENCODE = (
    Row("encode from columns, CRC included, time : memcpy", "from columns", "memcpy", False, (None, 5, 2.2, 2)),
    Row("encode from a list of bytes, rate : plain Python", "from a list", "plain Python", True, (5, 8, 5, 4)),
    Row("encode from a list, rate : aiokafka's v0 builder, its format", "from a list", "aiokafka", True, (4, 5, 5, 3)),
    Row(
        "encode from a list, rate : kafka-python's v0 builder, its format", "from a list", "kafka-python", True,
        (None,) * 4,
    ),
)  # fmt: skip


@contextmanager
def encode_works(size: int, context: Context) -> Iterator[Works]:
    payloads = noise(size)
    column, count = pyarrow.array(payloads, pyarrow.binary()), len(payloads)
    data = plain.encode(payloads)
    assert data == build_message_set(payloads) == build_message_set(column)
    works = {
        "memcpy": Work(Copier(data), count),
        "from columns": Work(lambda: build_message_set(column), count, by_kernel=True),
        "from a list": Work(lambda: build_message_set(payloads), count, by_kernel=True),
        "plain Python": Work(lambda: plain.encode(payloads), count),
    }
    for peer in peers.NAMES:
        context.add(works, peer, peers.builder_v0(peer, payloads), count)
    yield works


CODEC_SUITES = (
    Suite(
        "codec", CODEC, codec_works,
        ("memcpy", "columns", "plain Python", "one message", "one, plain Python", *peers.NAMES),
    ),
    Suite(
        "values", VALUES, values_works,
        ("scan", "iterate", "payloads", "binary_view", "binary", "plain Python", "aiokafka"),
    ),
    Suite(
        "compression", COMPRESSION, compression_works, ("gzip", "snappy", "zlib", "aiokafka gzip", "aiokafka snappy"),
        ("100 B", "1 KB"),
    ),
    Suite("encode", ENCODE, encode_works, ("memcpy", "from columns", "from a list", "plain Python", *peers.NAMES)),
)  # fmt: skip
