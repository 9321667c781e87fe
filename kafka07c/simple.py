"""SimpleConsumer and SyncProducer: one broker each, no ZooKeeper, no group, no state but the connection."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import RLock
from types import TracebackType
from typing import Any, Self, TypeVar

from kafka07c import config
from kafka07c._build import build_message_set
from kafka07c._views import MessageSet
from kafka07c.connection import Connection, Dialogue, Question
from kafka07c.errors import (
    BrokerConnectionError,
    BrokerError,
    CorruptMessageError,
    InvalidTopicError,
    MessageTooLargeError,
    Place,
    ProtocolError,
    error_for_code,
)
from kafka07c.protocol import (
    LATEST,
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceData,
    ProduceRequest,
    check_partition,
    check_topic,
    decode_fetch_response,
    decode_multifetch_response,
    decode_offsets_response,
)

__all__ = ["FetchedPart", "SimpleConsumer", "SyncProducer"]

_INT32_MAX = 2**31 - 1

#: OFFSETS requests that are under way at a time
_OFFSETS_AHEAD = 256

#: a smaller fetch cannot hold a size field: 0.7.2 answers it with nothing, for ever
_MIN_FETCH_BYTES = 4

#: how many answers may end inside their first entry before it is called corrupt, whatever the log's end
_SHORT_ANSWERS = 3

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T")


class _Client:
    """What the two have in common: a connection, a lock, an end."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._lock = RLock()

    @property
    def host(self) -> str:
        return self._connection.host

    @property
    def port(self) -> int:
        return self._connection.port

    def close(self) -> None:
        """Close the connection. A later call connects again."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "connected" if self._connection.is_open else "not connected"
        return f"<{type(self).__name__} {self._connection.name}, {state}>"


@dataclass(frozen=True, slots=True)
class _SentFetch:
    request: FetchRequest
    max_message_bytes: int
    question: Question


@dataclass(frozen=True, slots=True)
class _SentMultifetch:
    requests: tuple[FetchRequest, ...]
    max_message_bytes: int
    question: Question


@dataclass(frozen=True, slots=True, eq=False)
class FetchedPart:
    """One part of the answer to a multifetch sent ahead, as it came: its bytes were not looked at yet.

    ``request`` is what was asked, ``code`` the broker's error code (0: none), ``data`` the bytes of the log: a
    read-only view over the buffer that all parts of the answer share, and that lives as long as any of them.
    """

    request: FetchRequest
    code: int
    data: memoryview
    _consumer: SimpleConsumer
    _max_message_bytes: int

    def messages(self, *, copy: bool = False) -> MessageSet:
        """The message set, as ``multifetch`` would have given it; may ask the broker again.

        ``copy``: the set gets memory of its own, so that it does not keep the whole answer alive.
        """
        data = memoryview(bytes(self.data)) if copy else self.data
        return self._consumer._part(self.request, self.code, data, self._max_message_bytes)


class SimpleConsumer(_Client):
    """Reads from one broker: fetch, multifetch, offsets, and fetches sent ahead.

    ``broker``: the broker's id, if known; it goes into message sets and errors. ``connect_timeout``: seconds to
    connect. ``timeout``: seconds for each operation on the socket. ``max_inflated_bytes``: what one stored entry may
    inflate to. ``shallow``: message sets keep wrappers closed (see MessageSet). Connects when first used, and again
    when the connection was lost: what the broker had not answered by then is asked once more, for reading twice does
    no harm. What timed out is not. Without ``reconnect`` nothing is asked twice: a lost connection is told at once, to
    a caller who knows better where the broker may be now.

    Raises BrokerConnectionError (the broker cannot be reached, or ended the connection, twice), BrokerTimeoutError,
    ProtocolError (what came is not 0.7), each naming host and port; for each error code a BrokerError of its own class,
    naming topic, partition and offset; ValueError for arguments that make no sense.

    The bytes of an answer are read once, from the kernel into a buffer that the message set then owns.

    Threads: each call holds a lock, so a consumer may be shared and its calls take turns. ``send_fetch`` and
    ``receive`` go by their order, and so belong to one thread.

    Fetches sent ahead::

        consumer.send_fetch("clicks", 0, offset)
        while consumer.pending:
            messages = consumer.receive()
            if messages.next_offset > offset:
                offset = messages.next_offset
                consumer.send_fetch("clicks", 0, offset)  # the next answer is on its way ...
            work_with(messages)                           # ... while this one is worked with
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        broker: int | None = None,
        connect_timeout: float = config.CONNECT_TIMEOUT,
        timeout: float = config.SOCKET_TIMEOUT,
        max_inflated_bytes: int = config.MAX_INFLATED_BYTES,
        shallow: bool = False,
        reconnect: bool = True,
    ):
        super().__init__(Connection(host, port, connect_timeout=connect_timeout, timeout=timeout))
        self.broker = broker
        self._max_inflated_bytes = max_inflated_bytes
        self._shallow = shallow
        self._dialogue = Dialogue(self._connection, reconnect=reconnect)
        self._ahead: deque[_SentFetch] = deque()
        self._multi_ahead: deque[_SentMultifetch] = deque()

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int = config.FETCH_BYTES,
        *,
        max_message_bytes: int = config.MAX_FETCH_MESSAGE_BYTES,
    ) -> MessageSet:
        """The messages from ``offset`` on, in about ``max_bytes`` of log (at least 4); go on at ``next_offset``.

        Only whole entries count. When the first one does not fit, and only then, the broker is asked again for as much
        as its size field announces; above ``max_message_bytes`` that is a MessageTooLargeError at once, with offset
        and size. At the log's end the set is empty and ``next_offset`` is ``offset``: there is nothing more yet. (An
        empty set that moves on is a wrapper with nothing in it.) The end is that of what the broker has *flushed*. A
        topic that it does not know is an empty log, at any offset. No answer goes past the end of a segment.

        A damaged entry ends the set: the error is in ``error``, and raised by iterating (see MessageSet). An entry that
        runs past the end of its segment or of the log is damage too; the Scala consumer fetches it for ever.
        ``error.next_offset`` is where a good entry or the end follows the damaged one; if need be it is looked up.

        Raises OffsetOutOfRangeError, WrongPartitionError, UnknownError (an illegal topic), and see the class.
        """
        with self._lock:
            return self._received(self._sent_fetch(topic, partition, offset, max_bytes, max_message_bytes))

    def multifetch(
        self, requests: Iterable[FetchRequest], *, max_message_bytes: int = config.MAX_FETCH_MESSAGE_BYTES
    ) -> list[MessageSet]:
        """One message set per request, in their order, all asked for at once.

        Each part stands for itself: one that the broker refused, or whose first message is above ``max_message_bytes``,
        is an empty set with that refusal as its ``error``; one whose first message does not fit is fetched again
        alone, as ``fetch`` does. The sets share one buffer, which lives as long as any of them.
        """
        requests = tuple(requests)
        if not requests:
            return []
        with self._lock:
            parts = self._received_parts(self._sent_multifetch(requests, max_message_bytes))
            return [part.messages() for part in parts]

    def get_offsets_before(
        self, topic: str, partition: int, time: int | datetime, max_offsets: int = 1
    ) -> list[int]:
        """Up to ``max_offsets`` offsets at which a fetch can begin, descending.

        ``time`` LATEST: the end of what is flushed, then the segments' starts. EARLIEST: the log's start. Else
        milliseconds since 1970 UTC, or a datetime (one without a time zone is taken as UTC; what is finer than a
        millisecond is cut off; before 1970 is 1970): the starts of the segments last modified at or before then. That
        is a *lower bound*, by the files' times and no finer than segments; messages of 0.7 carry no time.

        A topic that the broker does not know gives [0], or [] for a time. For a partition that the topic does not have
        0.7.2 closes the connection: a BrokerConnectionError. What it would refuse whatever it holds is an
        InvalidTopicError (the name, a partition below 0) or a ValueError (``max_offsets`` below 0), and not sent.
        """
        request = OffsetsRequest(topic, partition, _milliseconds(time), max_offsets)
        _check_offsets(request)
        with self._lock:
            return self._offsets(request)

    def get_offsets_before_many(
        self, partitions: Iterable[tuple[str, int]], time: int | datetime, max_offsets: int = 1
    ) -> list[list[int]]:
        """``get_offsets_before`` of many partitions, (topic, number) each, in their order: one round trip for hundreds.

        One that is refused refuses them all: BrokerConnectionError or a BrokerError that names it.
        """
        requests = [
            OffsetsRequest(topic, partition, _milliseconds(time), max_offsets) for topic, partition in partitions
        ]
        for request in requests:
            _check_offsets(request)
        answers: list[list[int]] = []
        with self._lock:
            # both sides' buffers hold this many requests and answers, so nobody waits for the other
            for start in range(0, len(requests), _OFFSETS_AHEAD):
                piece = requests[start : start + _OFFSETS_AHEAD]
                questions = [self._ask_offsets(request) for request in piece]
                answers += [self._answered(*pair) for pair in zip(piece, questions, strict=True)]
        return answers

    def send_fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int = config.FETCH_BYTES,
        *,
        max_message_bytes: int = config.MAX_FETCH_MESSAGE_BYTES,
    ) -> None:
        """Send a fetch and do not wait for it: a later ``receive`` gives its set. Arguments as for ``fetch``.

        Several may be on their way. A call of another kind in between first takes in the answers that are due, and
        keeps them. The broker answers one request after the other, and waits while nobody reads.
        """
        with self._lock:
            self._ahead.append(self._sent_fetch(topic, partition, offset, max_bytes, max_message_bytes))

    def receive(self) -> MessageSet:
        """The message set of the earliest fetch sent ahead and not received yet; RuntimeError if there is none.

        Each fetch that was sent ahead is received once: it returns or raises what ``fetch`` would have. When the
        connection is lost for good, that goes for each fetch that was on its way.
        """
        with self._lock:
            if not self._ahead:
                raise RuntimeError("no fetch was sent ahead: call send_fetch() before receive()")
            return self._received(self._ahead.popleft())

    @property
    def pending(self) -> int:
        """How many fetches were sent ahead and not received yet."""
        return len(self._ahead)

    def send_multifetch(
        self, requests: Iterable[FetchRequest], *, max_message_bytes: int = config.MAX_FETCH_MESSAGE_BYTES
    ) -> None:
        """Send a multifetch and do not wait for it: a later ``receive_multifetch`` gives its parts.

        Arguments as for ``multifetch``, but nothing cannot be asked for: a ValueError. The broker waits while nobody
        reads, so what is sent ahead has to fit the sockets' buffers: keep it to a few tens of kilobytes.
        """
        requests = tuple(requests)
        if not requests:
            raise ValueError("a multifetch sent ahead needs at least one request")
        with self._lock:
            self._multi_ahead.append(self._sent_multifetch(requests, max_message_bytes))

    def receive_multifetch(self) -> list[FetchedPart]:
        """The parts, one per request in their order, of the earliest multifetch sent ahead and not received yet.

        RuntimeError if there is none. The parts are as they came, so that the caller can send the next request before
        they are decoded. Raises what ``multifetch`` raises for the answer as a whole.
        """
        with self._lock:
            if not self._multi_ahead:
                raise RuntimeError("no multifetch was sent ahead: call send_multifetch() before receive_multifetch()")
            return self._received_parts(self._multi_ahead.popleft())

    def close(self) -> None:
        """Close the connection and forget what was sent ahead. A later call connects again."""
        with self._lock:
            self._ahead.clear()
            self._multi_ahead.clear()
            self._dialogue.give_up("the consumer was closed")

    def interrupt(self) -> None:
        """End the connection now, from any thread: a call that waits for the broker in another one fails at once.

        Takes no lock, and so never waits. It is for one who is about to be done with this consumer.
        """
        self._connection.interrupt()

    # --- one fetch, until there is something to return

    def _sent_fetch(
        self, topic: str, partition: int, offset: int, max_bytes: int, max_message_bytes: int
    ) -> _SentFetch:
        request = FetchRequest(topic, partition, offset, max_bytes)
        _check_fetch(request, max_message_bytes)
        return _SentFetch(request, max_message_bytes, self._ask_fetch(request))

    def _ask_fetch(self, request: FetchRequest) -> Question:
        return self._dialogue.ask(request.encode(), 2 + request.max_bytes)

    def _received(self, sent: _SentFetch) -> MessageSet:
        code, data = self._decoded(decode_fetch_response, sent.question)
        return self._complete(sent.request, code, data, sent.max_message_bytes)

    def _sent_multifetch(self, requests: tuple[FetchRequest, ...], max_message_bytes: int) -> _SentMultifetch:
        for request in requests:
            _check_fetch(request, max_message_bytes)
        limit = 2 + sum(6 + request.max_bytes for request in requests)
        question = self._dialogue.ask(MultiFetchRequest(requests).encode(), limit)
        return _SentMultifetch(requests, max_message_bytes, question)

    def _received_parts(self, sent: _SentMultifetch) -> list[FetchedPart]:
        code, parts = self._decoded(decode_multifetch_response, sent.question, len(sent.requests))
        if code:
            raise error_for_code(code, self._refused("a multifetch", code), broker=self.broker)
        return [
            FetchedPart(request, code, data, self, sent.max_message_bytes)
            for request, (code, data) in zip(sent.requests, parts, strict=True)
        ]

    def _part(self, request: FetchRequest, code: int, data: memoryview, max_message_bytes: int) -> MessageSet:
        try:
            with self._lock:
                return self._complete(request, code, data, max_message_bytes)
        except (BrokerError, MessageTooLargeError) as error:
            return self._message_set(request, b"").with_error(error.with_traceback(None))

    def _complete(self, request: FetchRequest, code: int, data: memoryview, max_message_bytes: int) -> MessageSet:
        """The set to return for an answer."""
        messages = self._progress(request, code, data, max_message_bytes)
        if isinstance(messages.error, CorruptMessageError):
            return self._with_next_offset(request, messages, messages.error, max_message_bytes)
        if messages.size_bytes and not messages.valid_bytes:
            return messages.with_error(self._endless(request, messages.data))
        return messages

    def _progress(self, request: FetchRequest, code: int, data: memoryview, max_message_bytes: int) -> MessageSet:
        """The set for an answer. Asks again as long as that may help a first entry that is cut."""
        short_answers = 0
        while True:
            self._check_answer(request, code, data)
            messages = self._message_set(request, data)
            if messages.valid_bytes or messages.error is not None or not data:
                return messages
            if len(data) == request.max_bytes:
                request = replace(request, max_bytes=self._announced_bytes(request, data, max_message_bytes))
            else:
                # The broker had no more to give. It flushes whole sets and cuts segments between entries, so this is no
                # entry, unless the log was seen while it changed: look once more, but not for ever.
                short_answers += 1
                if short_answers == _SHORT_ANSWERS or request.offset + len(data) in self._boundaries(request):
                    return messages
            code, data = self._decoded(decode_fetch_response, self._ask_fetch(request))

    def _check_answer(self, request: FetchRequest, code: int, data: memoryview) -> None:
        if code:
            raise error_for_code(code, self._refused("a fetch", code), **self._place(request))
        if len(data) > request.max_bytes:
            raise ProtocolError(
                f"broker {self._connection.name} sent {len(data)} bytes of topic {request.topic!r} partition "
                f"{request.partition} where it was asked for {request.max_bytes}"
            )

    def _message_set(self, request: FetchRequest, data: bytes | memoryview) -> MessageSet:
        return MessageSet(
            data,
            max(request.offset, 0),  # no set begins below 0; a broker's refusal of such an offset is told by its error
            topic=request.topic,
            broker=self.broker,
            partition=request.partition,
            max_inflated_bytes=self._max_inflated_bytes,
            shallow=self._shallow,
        )

    def _announced_bytes(self, request: FetchRequest, data: memoryview, max_message_bytes: int) -> int:
        size = _size_field(data)
        if size > max_message_bytes:
            raise MessageTooLargeError(
                f"a message of {size} bytes is above max_message_bytes, which is {max_message_bytes}",
                size=size,
                max_message_bytes=max_message_bytes,
                **self._place(request),
            )
        return 4 + size

    def _endless(self, request: FetchRequest, data: memoryview) -> CorruptMessageError:
        found = f"its size field is {_size_field(data)}" if len(data) >= 4 else "its size field is cut"
        reason = f"corrupt entry: {found}, and the log or its segment ends {len(data)} bytes after the entry's start"
        return CorruptMessageError(reason, **self._place(request))

    def _boundaries(self, request: FetchRequest) -> list[int]:
        """Where segments start, and the end of what is flushed. No entry goes across."""
        return self._offsets(OffsetsRequest(request.topic, request.partition, LATEST, config.MAX_SEGMENTS))

    # --- what follows a damaged entry

    def _with_next_offset(
        self, request: FetchRequest, messages: MessageSet, error: CorruptMessageError, max_message_bytes: int
    ) -> MessageSet:
        """The set, its error's ``next_offset`` found where what follows the damaged entry was not in the answer."""
        entry = messages.data[messages.valid_bytes :]
        if error.next_offset is not None or error.offset is None or len(entry) < 4 or _size_field(entry) < 5:
            return messages
        following = replace(request, offset=error.offset + 4 + _size_field(entry))
        at_boundary = following.offset in self._boundaries(following)
        if not at_boundary and not self._begins_good_entry(following, max_message_bytes):
            return messages
        place = self._place(request) | {"offset": error.offset}
        return messages.with_error(CorruptMessageError(error.reason, next_offset=following.offset, **place))

    def _begins_good_entry(self, request: FetchRequest, max_message_bytes: int) -> bool:
        try:
            code, data = self._decoded(decode_fetch_response, self._ask_fetch(request))
            return self._progress(request, code, data, max_message_bytes).valid_bytes > 0
        except (BrokerError, MessageTooLargeError):
            return False

    # --- questions and answers

    def _offsets(self, request: OffsetsRequest) -> list[int]:
        return self._answered(request, self._ask_offsets(request))

    def _ask_offsets(self, request: OffsetsRequest) -> Question:
        # 0.7.2 gives one offset for a topic that it does not know, even when none is asked for.
        with self._naming(request):
            return self._dialogue.ask(request.encode(), 6 + 8 * max(request.max_offsets, 1))

    def _answered(self, request: OffsetsRequest, question: Question) -> list[int]:
        with self._naming(request):
            code, offsets = self._decoded(decode_offsets_response, question)
        if code:
            raise error_for_code(
                code, self._refused("to give offsets", code),
                topic=request.topic, broker=self.broker, partition=request.partition,
            )  # fmt: skip
        return offsets

    @contextmanager
    def _naming(self, request: OffsetsRequest) -> Iterator[None]:
        try:
            yield
        except BrokerConnectionError as error:
            what = f"the offsets of topic {request.topic!r} partition {request.partition}"
            raise type(error)(f"{error}; it was asked for {what}") from error

    def _decoded(self, decode: Callable[..., T], question: Question, *arguments: int) -> T:
        frame = self._dialogue.answer(question)
        try:
            return decode(frame, *arguments)
        except ProtocolError as error:
            raise ProtocolError(f"broker {self._connection.name}: {error}") from error

    def _refused(self, what: str, code: int) -> str:
        return f"broker {self._connection.name} refused {what} with error code {code}"

    def _place(self, request: FetchRequest) -> Place:
        return {
            "topic": request.topic,
            "broker": self.broker,
            "partition": request.partition,
            "offset": request.offset,
        }


class SyncProducer(_Client):
    """Writes to one broker, and returns when the bytes are handed to this machine's kernel.

    0.7 never answers a produce request. What it refuses it drops, in silence or by closing the connection with all that
    was on its way. So what can be known to be refused is refused here, before anything is sent: a stored payload above
    ``max_message_bytes`` (the broker's ``max.message.size``, after compression), a request above ``max_request_bytes``
    (its ``max.socket.request.bytes``), an illegal topic name, a partition below -1. Not known here is whether the topic
    has the partition, and whether the broker lives long enough. *Written* is all that can be said of a message; who
    must know more reads it back.

    Before each request the connection is looked at, and made anew if the broker has closed it, so that nothing is
    written into a closed one. (A close that is still on its way cannot be seen.) A request is never sent twice: when
    the connection fails under one, the BrokerConnectionError says so, and whether to send again is the caller's choice
    between losing and doubling.

    ``connect_timeout``: seconds to connect; after a loss, tries go on for that long, with growing pauses. ``timeout``:
    seconds for each operation on the socket. Connects when first used.

    Threads: each request is sent under a lock; a producer may be shared.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        max_message_bytes: int = config.MAX_MESSAGE_BYTES,
        max_request_bytes: int = config.MAX_REQUEST_BYTES,
        connect_timeout: float = config.CONNECT_TIMEOUT,
        timeout: float = config.SOCKET_TIMEOUT,
    ):
        super().__init__(Connection(host, port, connect_timeout=connect_timeout, timeout=timeout))
        self._max_message_bytes = max_message_bytes
        self._max_request_bytes = max_request_bytes

    def send(self, topic: str, partition: int, payloads: Any, codec: Any = "none", *, offsets: Any = None) -> None:
        """Send messages to one partition, -1 for one that the broker picks; with a codec, all in one wrapper.

        ``payloads``: bytes-like objects, or an Arrow binary or string column, or with ``offsets`` (n + 1 integers) one
        buffer that holds them all; see ``build_message_set``. No payloads at all is a request too: it makes the topic.

        Raises MessageTooLargeError, InvalidTopicError (nothing was sent), BrokerConnectionError (see the class).
        """
        self._write(self._built(ProduceRequest(topic, partition, payloads, codec, offsets)))

    def multisend(self, requests: Iterable[ProduceRequest]) -> None:
        """Send to several partitions in one request. All are checked first; one refused refuses them all.

        The broker takes them in order; one for a partition that it does not have loses those after it.
        """
        parts = tuple(map(self._built, requests))
        if parts:
            self._write(MultiProduceRequest(parts))

    def _built(self, request: ProduceRequest) -> ProduceData:
        check_topic(request.topic)
        check_partition(request.partition)
        message_set = build_message_set(request.payloads, request.codec, offsets=request.offsets)
        self._check_sizes(request, message_set)
        return ProduceData(request.topic, request.partition, message_set)

    def _check_sizes(self, request: ProduceRequest, message_set: bytes) -> None:
        sizes = MessageSet(message_set, shallow=True).lengths
        if not len(sizes) or sizes.max() <= self._max_message_bytes:
            return
        largest = int(sizes.argmax())
        what = f"payload {largest}" if len(sizes) > 1 else "the message as stored (compressed, if it is)"
        raise MessageTooLargeError(
            f"{what} has {sizes[largest]} bytes; a broker drops what is above max_message_bytes, "
            f"{self._max_message_bytes}, and says nothing. Nothing was sent",
            size=int(sizes[largest]),
            max_message_bytes=self._max_message_bytes,
            topic=request.topic,
            partition=request.partition,
        )

    def _write(self, request: ProduceData | MultiProduceRequest) -> None:
        buffers = request.buffers()
        size = sum(map(len, buffers)) - 4
        if size > self._max_request_bytes:
            raise MessageTooLargeError(
                f"a request of {size} bytes: a broker hangs up on what is above max_request_bytes, "
                f"{self._max_request_bytes}. Nothing was sent; send fewer messages at once",
                size=size,
                max_message_bytes=self._max_request_bytes,
            )
        with self._lock:
            self._connect_if_needed()
            try:
                self._connection.send(buffers)
            except BrokerConnectionError as error:
                unknown = "whether it has the request is unknown, and it is not sent again"
                raise type(error)(f"{error}; {unknown}") from error

    def _connect_if_needed(self) -> None:
        if not self._connection.is_open or self._connection.peer_closed():
            self._connection.connect()


def _size_field(entry: memoryview) -> int:
    return int.from_bytes(entry[:4], "big", signed=True)


def _check_fetch(request: FetchRequest, max_message_bytes: int) -> None:
    if not _MIN_FETCH_BYTES <= request.max_bytes <= _INT32_MAX:
        raise ValueError(f"max_bytes is {request.max_bytes}; it goes from {_MIN_FETCH_BYTES} to {_INT32_MAX}")
    if not 0 < max_message_bytes <= _INT32_MAX - 4:  # a fetch that holds it also holds its size field
        raise ValueError(f"max_message_bytes is {max_message_bytes}; it goes from 1 to {_INT32_MAX - 4}")


def _check_offsets(request: OffsetsRequest) -> None:
    check_topic(request.topic)
    if request.partition < 0:
        raise InvalidTopicError(f"partition {request.partition} of topic {request.topic!r} is none: they are 0 and up")
    if not 0 <= request.max_offsets <= _INT32_MAX:
        raise ValueError(f"max_offsets is {request.max_offsets}; it goes from 0 to {_INT32_MAX}")


def _milliseconds(time: int | datetime) -> int:
    """``time`` as the wire has it. Before 1970 nothing was; and -1 and -2 mean something else there."""
    if not isinstance(time, datetime):
        return time
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return max((aware - _EPOCH) // timedelta(milliseconds=1), 0)
