"""What each request does, as 0.7.2 does it.

::

    request                        what is wrong                          consequence
    FETCH, a part of a MULTIFETCH  partition not of this broker           error 3
                                   offset out of range                    error 1
                                   illegal topic, anything else           error -1
                                   no such topic, no log yet              empty, error 0, at any offset
                                   negative maximum                       a frame that lies, and the connection ends
    PRODUCE, a part of a           message above max.message.size         the set is dropped, silently
    MULTIPRODUCE                   anything else                          the connection ends; earlier parts stay
    OFFSETS                        anything                               the connection ends

Source: Kafka 0.7.2, ``kafka.server.KafkaRequestHandlers``, ``kafka.log.LogManager``; recorded in tests/golden07/wire.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass

from kafka07c.broker.answers import Answer, FileSlice
from kafka07c.broker.faults import Faults
from kafka07c.broker.stats import BrokerStats
from kafka07c.broker.storage import Storage
from kafka07c.errors import BrokerError, InvalidTopicError, MessageTooLargeError, ProtocolError
from kafka07c.protocol import (
    RANDOM_PARTITION,
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceData,
    Request,
    encode_offsets_response,
    response_header,
)

__all__ = ["Handlers", "describe"]

logger = logging.getLogger("kafka07c.broker")

#: for a set that leaves the choice to the broker: one of so many partitions
pick_partition = random.randrange

_UNKNOWN = -1
_HEADER_BYTES = 6

#: the largest body that a response's size field can announce beside its error code
_MAX_BODY_BYTES = 2**31 - 1 - 2


def describe(request: Request) -> tuple[str, tuple[str, ...]]:
    """The request's api, as :mod:`.faults` names it, and the topics that it is about."""
    match request:
        case FetchRequest():
            return "fetch", (request.topic,)
        case MultiFetchRequest():
            return "multifetch", tuple(part.topic for part in request.requests)
        case ProduceData():
            return "produce", (request.topic,)
        case MultiProduceRequest():
            return "multiproduce", tuple(part.topic for part in request.parts)
        case _:
            return "offsets", (request.topic,)


@dataclass(frozen=True)
class _Part:
    """The answer to one fetch: an error code, or bytes of a segment file, or none of both."""

    error: int = 0
    data: FileSlice | None = None
    #: what the header announces in place of the data's size, for a negative maximum
    lie: int | None = None

    @property
    def body_bytes(self) -> int:
        if self.lie is not None:
            return self.lie
        return self.data.count if self.data else 0

    def pieces(self) -> list[bytes | FileSlice]:
        header = response_header(self.body_bytes, self.error)
        return [header, self.data] if self.data else [header]


class Handlers:
    """Carries requests out on a storage. Safe to call from any thread."""

    def __init__(self, storage: Storage, faults: Faults, stats: BrokerStats) -> None:
        self._storage = storage
        self._faults = faults
        self._stats = stats

    def handle(self, request: Request) -> Answer | None:
        """Carry ``request`` out: the answer, or None where 0.7 gives none. An exception ends the connection."""
        match request:
            case FetchRequest():
                with self._stats.fetch_requests:
                    return self._fetch(request)
            case MultiFetchRequest():
                with self._stats.fetch_requests:
                    return self._multifetch(request)
            case OffsetsRequest():
                return self._offsets(request)
            case ProduceData():
                with self._stats.produce_requests:
                    self._produce(request, "produce")
            case MultiProduceRequest():
                with self._stats.produce_requests:
                    for part in request.parts:
                        self._produce(part, "multiproduce")
        return None

    def _produce(self, part: ProduceData, api: str) -> None:
        partition = part.partition
        if partition == RANDOM_PARTITION:
            partition = pick_partition(self._storage.partitions(part.topic))
        try:
            self._faults.maybe_fail(api, part.topic)
            self._storage.append(part.topic, partition, part.message_set)
        except MessageTooLargeError as error:
            self._stats.topic(part.topic).produce_failed()
            logger.warning("dropped a message set: %s", error)
        except Exception:
            self._stats.topic(part.topic).produce_failed()
            raise
        else:
            self._stats.topic(part.topic).produced(len(part.message_set))

    def _fetch(self, request: FetchRequest) -> Answer:
        part = self._read(request, "fetch", _MAX_BODY_BYTES)
        return Answer(part.pieces(), part.lie is not None)

    def _multifetch(self, request: MultiFetchRequest) -> Answer:
        parts: list[_Part] = []
        body_bytes = _HEADER_BYTES * len(request.requests)
        for fetch in request.requests:
            # an answer may be cut anywhere, so one too large for its size field is cut there
            part = self._read(fetch, "multifetch", _MAX_BODY_BYTES - body_bytes)
            body_bytes += part.body_bytes
            parts.append(part)
        pieces: list[bytes | FileSlice] = [response_header(body_bytes)]
        for part in parts:
            pieces += part.pieces()
            if part.lie is not None:
                return Answer(pieces, then_close=True)
        return Answer(pieces)

    def _read(self, request: FetchRequest, api: str, limit: int) -> _Part:
        part = self._try_to_read(request, api, limit)
        stats = self._stats.topic(request.topic)
        if part.error:
            stats.fetch_failed()
        elif part.data is not None:
            stats.fetched(part.data.count)
        return part

    def _try_to_read(self, request: FetchRequest, api: str, limit: int) -> _Part:
        try:
            self._faults.maybe_fail(api, request.topic)
            wanted = min(request.max_bytes, limit) if request.max_bytes >= 0 else 1
            data = self._storage.slice(request.topic, request.partition, request.offset, wanted)
        except BrokerError as error:
            logger.debug("refused a fetch: %s", error)
            return _Part(error.code)
        except InvalidTopicError as error:
            logger.info("refused a fetch: %s", error)
            return _Part(_UNKNOWN)
        except Exception:
            logger.exception("cannot fetch from topic %r, partition %d", request.topic, request.partition)
            return _Part(_UNKNOWN)
        if request.max_bytes < 0 and data:
            # 0.7.2 takes the maximum for the size of what it has read, announces it, and fails when it sends it
            return _Part(lie=request.max_bytes)
        return _Part(data=data)

    def _offsets(self, request: OffsetsRequest) -> Answer:
        try:
            self._faults.maybe_fail("offsets", request.topic)
        except BrokerError as error:
            return Answer([encode_offsets_response([], error.code)])
        try:
            offsets = self._storage.offsets(request.topic, request.partition, request.time, request.max_offsets)
        except ValueError as error:
            raise ProtocolError(f"an OFFSETS request for topic {request.topic!r}: {error}") from None
        return Answer([encode_offsets_response(offsets)])
