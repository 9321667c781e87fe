"""Every message set in the recordings, cut out of its request, response or file, with what the Scala classes read.

The frames are taken apart by hand, so that no mistake in the package's own protocol code can hide one in the codec.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import struct
from dataclasses import dataclass, field
from pathlib import Path

import oracle

GOLDEN = Path(__file__).parent / "golden07"
PRODUCE, FETCH, MULTIFETCH, MULTIPRODUCE = range(4)


@dataclass(frozen=True)
class Recorded:
    """One message set. ``scala`` is the manifest's decode of it, None for files that have none in the manifest."""

    name: str
    data: bytes = field(repr=False)
    base_offset: int = 0
    scala: dict | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Outcome:
    """What we read where Scala ends with an exception: so many messages and bytes, then ``kind`` or nothing."""

    messages: int
    valid_bytes: int
    kind: str | None


#: The sets whose Scala decode ends with an exception. The first entry cut is no error for us; 'inside' is a fetch that
#: begins in the middle of an entry, where the size field is larger than all that came: a cut entry as well.
CUT_AT_FIRST_ENTRY = {
    "produce-only-cut-message",
    "fetch-plain-inside-message",
    "fetch-plain-inside-payload",
    *(f"fetch-plain-max-{n}" for n in (4, 5, 9, 10, 14)),
    *(f"fetch-gzip-max-{n}" for n in (4, 8, 50, 60)),
}
DAMAGED = {
    "produce-bad-crc-inner": Outcome(0, 0, oracle.CRC),
    "produce-garbage-gzip": Outcome(0, 0, oracle.INFLATE),
    "produce-garbage-snappy": Outcome(0, 0, oracle.INFLATE),
    "produce-codec-3": Outcome(0, 0, oracle.CODEC),
    "produce-magic-2": Outcome(0, 0, oracle.MAGIC),
    "produce-size-zero-message": Outcome(0, 0, oracle.SIZE),
    "produce-size-negative-message": Outcome(0, 0, oracle.SIZE),
    "produce-size-5-message": Outcome(0, 0, oracle.SIZE),
    "corrupt-fetch-0": Outcome(1, 19, oracle.CRC),
    "corrupt-fetch-19": Outcome(0, 0, oracle.CRC),
}
#: For these the manifest has the decode from before the byte was damaged that makes them what their name says.
DECODED_BEFORE_DAMAGE = {
    "produce-bad-crc": Outcome(0, 0, oracle.CRC),
    "produce-bad-crc-second": Outcome(1, 18, oracle.CRC),
    "produce-bad-crc-wrapper": Outcome(0, 0, oracle.CRC),
    "multiproduce-last-bad-crc.1": Outcome(0, 0, oracle.CRC),
}
#: Requests with a good set that the manifest has no decode of, or that of other bytes (the topic was put in by hand).
UNDECODED = {"produce-utf8-topic": [b"utf8 topic"], "unflushed-produce": [b"not yet flushed"]}


def expected_outcome(recorded: Recorded) -> Outcome:
    """How many messages we read, and how it ends: as Scala, but for the sets named above."""
    scala = recorded.scala
    if recorded.name in CUT_AT_FIRST_ENTRY:
        return Outcome(0, 0, None)
    special = DAMAGED.get(recorded.name) or DECODED_BEFORE_DAMAGE.get(recorded.name)
    return special or Outcome(len(scala["messages"]), scala["valid_bytes"], None)


def check_messages(recorded: Recorded, messages) -> None:
    """Holds ``messages`` (anything with the fields of a message) to what the Scala classes read, value by value."""
    for got, want in zip(messages, recorded.scala["messages"]):
        header = 5 if want["magic"] == 0 else 6
        assert (got.next_offset, got.magic, got.crc) == (want["next_offset"], want["magic"], want["crc"])
        # Scala's attributes() of a magic 0 message reads the first byte of its CRC: there is no such byte
        assert got.attributes == (0 if want["magic"] == 0 else want["attributes"])
        payload = bytes(got.payload)
        assert len(payload) == want["payload"]["len"] == want["size"] - header
        assert hashlib.sha1(payload).hexdigest() == want["payload"]["sha1"]
        if "base64" in want["payload"]:
            assert payload == base64.b64decode(want["payload"]["base64"])


@functools.cache
def manifest() -> dict:
    return json.loads((GOLDEN / "manifest.json").read_text())


@functools.cache
def decoded_by_scala() -> list[Recorded]:
    """All sets of the exchanges that the manifest has a decode of."""
    found = []
    for exchange in manifest()["exchanges"]:
        name = exchange["name"]
        if name in UNDECODED:
            continue
        if exchange["api"] in ("PRODUCE", "MULTIPRODUCE"):
            frame = (GOLDEN / exchange["request_file"]).read_bytes()
            found += _named(name, _as_list(exchange.get("request")), "message_set", frame[4:])
        elif exchange["api"] in ("FETCH", "MULTIFETCH") and "expected" in exchange:
            frame = (GOLDEN / exchange["response_file"]).read_bytes()
            parts = [frame[6:]] if exchange["api"] == "FETCH" else multifetch_parts(frame[4:])
            for i, (scala, data) in enumerate(zip(_as_list(exchange["expected"]), parts, strict=True)):
                if scala["error_code"] == 0:
                    found.append(Recorded(_part_name(name, i, len(parts)), data, scala["initial_offset"], scala))
    return found


@functools.cache
def undecoded() -> list[Recorded]:
    """The sets of UNDECODED."""
    paths = {e["name"]: GOLDEN / e["request_file"] for e in manifest()["exchanges"] if e["name"] in UNDECODED}
    return [Recorded(name, produced_sets(path.read_bytes()[4:])[0]) for name, path in paths.items()]


@functools.cache
def files() -> list[Recorded]:
    """All segment files: the logs, and the damaged ones before and after recovery."""
    return [
        Recorded(str(path.relative_to(GOLDEN)), path.read_bytes(), int(path.stem))
        for path in sorted(GOLDEN.rglob("*.kafka"))
    ]


@functools.cache
def transcripts() -> list[Recorded]:
    """The sets that the real clients sent and got, with offset 0 for those sent."""
    found = []
    for path in sorted(GOLDEN.glob("transcripts/*.c2s.bin")):
        answers = iter(frames((path.parent / path.name.replace(".c2s.", ".s2c.")).read_bytes()))
        for i, request in enumerate(frames(path.read_bytes())):
            name = f"{path.name} {i}"
            (kind,) = struct.unpack_from(">h", request)
            if kind in (PRODUCE, MULTIPRODUCE):
                found += [Recorded(f"{name}.{j}", data) for j, data in enumerate(produced_sets(request))]
                continue
            answer = next(answers, None)
            if kind == FETCH and answer:
                found.append(Recorded(name, answer[2:], _fetch_offset(request[2:])))
            elif kind == MULTIFETCH and answer:
                offsets = _multifetch_offsets(request)
                parts = zip(multifetch_parts(answer), offsets, strict=True)
                found += [Recorded(f"{name}.{j}", data, offset) for j, (data, offset) in enumerate(parts)]
    return found


def everything() -> list[Recorded]:
    """All of the above, each run of bytes once."""
    found = decoded_by_scala() + undecoded() + files() + transcripts()
    return list({(one.data, one.base_offset): one for one in found}.values())


def frames(stream: bytes) -> list[bytes]:
    """The frames of one direction of a connection, without their size fields."""
    found = []
    position = 0
    while position + 4 <= len(stream):
        (size,) = struct.unpack_from(">i", stream, position)
        found.append(stream[position + 4 : position + 4 + size])
        position += 4 + size
    return found


def produced_sets(request: bytes) -> list[bytes]:
    """The message sets of a PRODUCE or MULTIPRODUCE frame."""
    kind, position, count = struct.unpack_from(">h", request)[0], 2, 1
    if kind == MULTIPRODUCE:
        (count,) = struct.unpack_from(">h", request, position)
        position += 2
    found = []
    for _ in range(count):
        (topic_bytes,) = struct.unpack_from(">h", request, position)
        position += 2 + topic_bytes + 4
        (size,) = struct.unpack_from(">i", request, position)
        position += 4
        found.append(request[position : position + size])
        position += size
    return found


def multifetch_parts(response: bytes) -> list[bytes]:
    """The bytes of each part of a MULTIFETCH response, errors left out (they come with no bytes)."""
    found = []
    position = 2
    while position < len(response):
        (size,) = struct.unpack_from(">i", response, position)
        found.append(response[position + 6 : position + 4 + size])
        position += 4 + size
    return found


def _named(name: str, requests: list, key: str, frame: bytes) -> list[Recorded]:
    if not all(key in request for request in requests):
        return []  # a request that cannot be taken apart was recorded without a decode
    sets = produced_sets(frame) if requests else []
    return [
        Recorded(_part_name(name, i, len(sets)), data, 0, request[key])
        for i, (request, data) in enumerate(zip(requests, sets, strict=True))
    ]


def _as_list(value) -> list:
    return value if isinstance(value, list) else [value] if value else []


def _part_name(name: str, i: int, count: int) -> str:
    return f"{name}.{i}" if count > 1 else name


def _fetch_offset(body: bytes) -> int:
    (topic_bytes,) = struct.unpack_from(">h", body)
    return struct.unpack_from(">q", body, 2 + topic_bytes + 4)[0]


def _multifetch_offsets(request: bytes) -> list[int]:
    found = []
    position = 4
    while position < len(request):
        found.append(_fetch_offset(request[position:]))
        position += 2 + struct.unpack_from(">h", request, position)[0] + 16
    return found
