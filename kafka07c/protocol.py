"""The five requests of Kafka 0.7.2 and their responses: values in, bytes out, and back. Knows no socket.

Everything is big-endian. ``size`` counts what follows it::

    request   int32 size | int16 type  | body
    response  int32 size | int16 error | body

    type             body
    0 PRODUCE        topic, int32 partition, int32 set size, message set           (never answered)
    1 FETCH          topic, int32 partition, int64 offset, int32 max bytes
    2 MULTIFETCH     int16 count, count x (topic, partition, offset, max bytes)
    3 MULTIPRODUCE   int16 count, count x (topic, partition, set size, set)        (never answered)
    4 OFFSETS        topic, int32 partition, int64 time, int32 max number

    topic = int16 length in bytes | UTF-8

    answer to        body
    FETCH            bytes of the log, cut at max bytes wherever that falls
    MULTIFETCH       per request, in order: int32 size | int16 error | bytes       (the outer error is always 0)
    OFFSETS          int32 count | count x int64, descending

There is no version and no correlation id: answers come in the order of the requests on a connection.

A *frame* here is what follows a size field; ``framing`` cuts a stream into frames. Decoding copies no message bytes:
what comes back are views over the frame, which they keep alive. ``encode()`` gives the size field too.

Sources: ``kafka.api`` and ``kafka.network`` of 0.7.2, and a running broker's answers (tests/golden07/wire).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Any

from kafka07c import config
from kafka07c.errors import InvalidTopicError, ProtocolError

__all__ = [
    "EARLIEST",
    "LATEST",
    "RANDOM_PARTITION",
    "FetchRequest",
    "MultiFetchRequest",
    "MultiProduceRequest",
    "OffsetsRequest",
    "ProduceData",
    "ProduceRequest",
    "RequestType",
    "check_partition",
    "check_topic",
    "decode_fetch_response",
    "decode_multifetch_response",
    "decode_offsets_response",
    "decode_request",
    "encode_fetch_response",
    "encode_multifetch_response",
    "encode_offsets_response",
    "response_header",
]

#: ``time`` of an OFFSETS request: the end of what has been flushed, then the segments' starts
LATEST = -1

#: ``time`` of an OFFSETS request: the start of the first segment
EARLIEST = -2

#: ``partition`` of a produce request that leaves the choice to the broker
RANDOM_PARTITION = -1

Buffer = bytes | bytearray | memoryview

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_HEADER = Struct(">ih")  # size, then type or error: `size` counts the int16 with the body
_SET_HEADER = Struct(">ii")  # partition, set size
_QUESTION = Struct(">iqi")  # partition, offset or time, a maximum: FETCH and OFFSETS alike

_MAX_COUNT = 2**15 - 1  # of the parts of a MULTIFETCH or MULTIPRODUCE, and of the bytes of a topic


class RequestType(IntEnum):
    """The int16 that follows a request's size (``kafka.api.RequestKeys``)."""

    PRODUCE = 0
    FETCH = 1
    MULTIFETCH = 2
    MULTIPRODUCE = 3
    OFFSETS = 4


# --- names and numbers that a broker takes ---------------------------------------------------------------------------

# kafka.utils.TopicNameValidator. Java's `$` also matches before a last line separator, so `.` and one is refused too.
_ILLEGAL_TOPIC = re.compile("^\\.{1,2}[\u2028\u2029]?\\Z|[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def check_topic(name: str, max_length: int = config.MAX_TOPIC_LENGTH) -> str:
    """``name``, if a 0.7.2 broker takes it for a topic; else InvalidTopicError.

    Illegal are: the empty name, ``.``, ``..``, more than ``max_length`` UTF-16 units (``max.topic.name.length``), and
    any of ``/``, the control characters, U+D800 to U+F8FF (so also what is no UTF-8) and U+FFF0 to U+FFFF. The broker
    closes the connection of a produce or OFFSETS request with such a name, and answers a fetch with error -1.
    """
    if not name:
        raise InvalidTopicError("a topic name cannot be empty")
    length = len(name.encode("utf-16-le", "surrogatepass")) // 2
    if length > max_length:
        raise InvalidTopicError(f"topic name {name[:40]!r}... is {length} characters long; a broker takes {max_length}")
    found = _ILLEGAL_TOPIC.search(name)
    if found:
        raise InvalidTopicError(f"topic name {name!r} is illegal: a broker does not take {found[0]!r} in it")
    return name


def check_partition(partition: int) -> int:
    """``partition``, if a 0.7.2 broker may take it in a produce request: 0 and up, or -1; else InvalidTopicError.

    Whether the topic has that many partitions only the broker knows; it closes the connection when not.
    """
    if not RANDOM_PARTITION <= partition < 2**31:
        raise InvalidTopicError(f"partition {partition} is none: they are 0 and up, or -1 to let the broker pick one")
    return partition


# --- requests --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Bytes of one partition's log: at most ``max_bytes`` from ``offset`` on (a byte position in the log)."""

    topic: str
    partition: int
    offset: int
    max_bytes: int = config.FETCH_BYTES

    def encode(self) -> bytes:
        return _frame(RequestType.FETCH, self._body())

    def _body(self) -> bytes:
        return _encode_topic(self.topic) + _pack(_QUESTION, self, self.partition, self.offset, self.max_bytes)


@dataclass(frozen=True, slots=True)
class MultiFetchRequest:
    """Several fetches in one request, answered by one response."""

    requests: tuple[FetchRequest, ...]

    def encode(self) -> bytes:
        return _frame(RequestType.MULTIFETCH, _count(self.requests) + b"".join(r._body() for r in self.requests))


@dataclass(frozen=True, slots=True)
class OffsetsRequest:
    """Up to ``max_offsets`` offsets at which a fetch may begin: LATEST, EARLIEST, or a ``time`` in ms since 1970, UTC.

    LATEST: the end of the flushed log, then the segments' starts, descending. EARLIEST: the first segment's start
    alone. A time: the starts of the segments last modified at or before it: a lower bound, no finer than segments.
    """

    topic: str
    partition: int
    time: int
    max_offsets: int

    def encode(self) -> bytes:
        body = _pack(_QUESTION, self, self.partition, self.time, self.max_offsets)
        return _frame(RequestType.OFFSETS, _encode_topic(self.topic) + body)


@dataclass(frozen=True, slots=True)
class ProduceData:
    """One message set for one partition, as bytes; the wire's form of a ProduceRequest."""

    topic: str
    partition: int
    message_set: Buffer

    def encode(self) -> bytes:
        return b"".join(self.buffers())

    def buffers(self) -> list[Buffer]:
        """The request in pieces, in order, the set itself uncopied: what ``sendmsg`` takes."""
        head = self._head()
        return [_header(len(head) + len(self.message_set), RequestType.PRODUCE) + head, self.message_set]

    def _head(self) -> bytes:
        return _encode_topic(self.topic) + _pack(_SET_HEADER, self, self.partition, len(self.message_set))


@dataclass(frozen=True, slots=True)
class MultiProduceRequest:
    """Several message sets in one request. The broker takes them in order and stops at the first bad one."""

    parts: tuple[ProduceData, ...]

    def encode(self) -> bytes:
        return b"".join(self.buffers())

    def buffers(self) -> list[Buffer]:
        """The request in pieces, in order, the sets themselves uncopied: what ``sendmsg`` takes."""
        pieces: list[Buffer] = [_count(self.parts)]
        for part in self.parts:
            pieces += (part._head(), part.message_set)
        return [_header(sum(map(len, pieces)), RequestType.MULTIPRODUCE), *pieces]


Request = FetchRequest | MultiFetchRequest | OffsetsRequest | ProduceData | MultiProduceRequest


@dataclass(frozen=True, slots=True, eq=False)
class ProduceRequest:
    """What a user asks a producer to send: ``payloads`` to one partition, all in one wrapper if ``codec`` is not none.

    ``payloads`` is whatever ``build_message_set`` takes: bytes-like objects, an Arrow binary or string column, or, with
    ``offsets`` (n + 1 integers), one buffer that holds them all.
    """

    topic: str
    partition: int
    payloads: Any
    codec: Any = "none"
    offsets: Any = None


def decode_request(frame: Buffer) -> Request:
    """The request in ``frame`` (the bytes after its size field).

    Raises ProtocolError where a 0.7.2 broker closes the connection for the request's form: an unknown type, a body
    that ends too soon, a negative length or count, a set larger than the request. Bytes after the last field are
    ignored, as the broker does. Values are taken as they are: an illegal topic or partition is for the broker to
    answer. A topic that is no UTF-8 gets U+FFFD, which is illegal in a topic. Message sets are views over ``frame``.
    """
    body = _Body(frame)
    number = body.int16("type")
    if number not in _DECODERS:
        raise ProtocolError(f"request type {number} is unknown; 0.7 has 0 to 4")
    return _DECODERS[number](body)


def _decode_fetch(body: _Body) -> FetchRequest:
    return FetchRequest(body.topic(), *body.unpack(_QUESTION, "fetch"))


def _decode_multifetch(body: _Body) -> MultiFetchRequest:
    return MultiFetchRequest(tuple(_decode_fetch(body) for _ in range(body.count())))


def _decode_offsets(body: _Body) -> OffsetsRequest:
    return OffsetsRequest(body.topic(), *body.unpack(_QUESTION, "offsets"))


def _decode_produce(body: _Body) -> ProduceData:
    topic = body.topic()
    partition, size = body.unpack(_SET_HEADER, "message set header")
    return ProduceData(topic, partition, body.take(size, "message set"))


def _decode_multiproduce(body: _Body) -> MultiProduceRequest:
    return MultiProduceRequest(tuple(_decode_produce(body) for _ in range(body.count())))


_DECODERS: dict[int, Callable[[_Body], Request]] = {
    RequestType.PRODUCE: _decode_produce,
    RequestType.FETCH: _decode_fetch,
    RequestType.MULTIFETCH: _decode_multifetch,
    RequestType.MULTIPRODUCE: _decode_multiproduce,
    RequestType.OFFSETS: _decode_offsets,
}


# --- responses -------------------------------------------------------------------------------------------------------


def response_header(body_bytes: int, error: int = 0) -> bytes:
    """The 6 bytes before a response's body of ``body_bytes``, and before each part's bytes in a MULTIFETCH response.

    For a broker that sends the body itself straight from a file. (0.7.2 answers a fetch of at most -1 bytes with the
    header of a body of -1 bytes, then closes: ``response_header(-1)``.)
    """
    return _HEADER.pack(body_bytes + 2, error)


def encode_fetch_response(data: Buffer, error: int = 0) -> bytes:
    """A whole response to FETCH, size field included."""
    return response_header(len(data), error) + data


def encode_multifetch_response(parts: Iterable[tuple[int, Buffer]]) -> bytes:
    """A whole response to MULTIFETCH, from (error, bytes) per part in the order of the requests."""
    body = b"".join(encode_fetch_response(data, error) for error, data in parts)
    return response_header(len(body)) + body


def encode_offsets_response(offsets: Sequence[int], error: int = 0) -> bytes:
    """A whole response to OFFSETS."""
    body = Struct(f">i{len(offsets)}q").pack(len(offsets), *offsets)
    return response_header(len(body), error) + body


def decode_fetch_response(frame: Buffer) -> tuple[int, memoryview]:
    """(error, bytes of the log) from the response to a FETCH; the bytes are a view over ``frame``."""
    body = _Body(frame)
    return body.int16("error"), body.rest()


def decode_multifetch_response(frame: Buffer, count: int) -> tuple[int, list[tuple[int, memoryview]]]:
    """(outer error, [(error, bytes of the log), ...]) from the response to a MULTIFETCH of ``count`` requests.

    The parts are in the order of the requests; their bytes are views over ``frame``. With an outer error (a 0.7.2
    broker never sends one) there are no parts. ProtocolError if the parts do not fill the frame exactly.
    """
    body = _Body(frame)
    outer = body.int16("error")
    if outer:
        return outer, []
    parts = []
    for _ in range(count):
        size, error = body.unpack(_HEADER, "part header")
        parts.append((error, body.take(size - 2, "part")))
    body.expect_end()
    return outer, parts


def decode_offsets_response(frame: Buffer) -> tuple[int, list[int]]:
    """(error, offsets in the broker's order, which is descending) from the response to an OFFSETS request.

    ProtocolError if the count is not that of the offsets that follow.
    """
    body = _Body(frame)
    error = body.int16("error")
    if error:
        return error, []
    (count,) = body.unpack(_INT32, "count")
    numbers = body.take(count * 8, "list of offsets")
    body.expect_end()
    return error, list(Struct(f">{count}q").unpack(numbers))


# --- bytes -----------------------------------------------------------------------------------------------------------


class _Body:
    """A cursor over a frame. Every length is checked, low end first, before it is used."""

    __slots__ = ("_at", "_view")

    def __init__(self, frame: Buffer):
        self._view = memoryview(frame)
        self._at = 0

    def unpack(self, struct: Struct, what: str) -> tuple[int, ...]:
        return struct.unpack(self.take(struct.size, what))

    def int16(self, what: str) -> int:
        return self.unpack(_INT16, what)[0]

    def count(self) -> int:
        count = self.int16("count")
        if count < 0:
            raise ProtocolError(f"a count is {count}")
        return count

    def topic(self) -> str:
        return str(self.take(self.int16("topic length"), "topic"), "utf-8", "replace")

    def take(self, length: int, what: str) -> memoryview:
        if length < 0:
            raise ProtocolError(f"the {what} at byte {self._at} has a length of {length}")
        if length > len(self._view) - self._at:
            left = len(self._view) - self._at
            raise ProtocolError(f"the {what} at byte {self._at} needs {length} bytes, and {left} are left")
        taken = self._view[self._at : self._at + length]
        self._at += length
        return taken

    def rest(self) -> memoryview:
        return self.take(len(self._view) - self._at, "rest")

    def expect_end(self) -> None:
        left = len(self._view) - self._at
        if left:
            raise ProtocolError(f"{left} bytes follow the end of a response at byte {self._at}")


def _header(body_bytes: int, request_type: RequestType) -> bytes:
    if body_bytes + 2 >= 2**31:
        raise ValueError(f"a request of {body_bytes} bytes does not fit the wire's int32 size")
    return _HEADER.pack(body_bytes + 2, request_type)


def _frame(request_type: RequestType, body: bytes) -> bytes:
    return _header(len(body), request_type) + body


def _count(parts: Sequence[Any]) -> bytes:
    if len(parts) > _MAX_COUNT:
        raise ValueError(f"{len(parts)} parts in one request; the wire's int16 count allows {_MAX_COUNT}")
    return _INT16.pack(len(parts))


def _encode_topic(topic: str) -> bytes:
    try:
        encoded = topic.encode()
    except UnicodeEncodeError as error:
        raise InvalidTopicError(f"topic name {topic!r} cannot be written as UTF-8") from error
    if len(encoded) > _MAX_COUNT:
        raise InvalidTopicError(f"topic name {topic[:40]!r}... takes {len(encoded)} bytes; the wire has {_MAX_COUNT}")
    return _INT16.pack(len(encoded)) + encoded


def _pack(struct: Struct, request: Request, *values: int) -> bytes:
    try:
        return struct.pack(*values)
    except StructError as error:
        raise ValueError(f"a number in {type(request).__name__} does not fit the wire: {values}: {error}") from error
