"""The other clients' codecs, each on its own format, as `.venv-peers` has them; what is not installed is None.

Nobody but us reads 0.7 today, so a peer's bytes are those that *its* format makes of the same payloads: aiokafka and
kafka-python parse record batches (format v2, one CRC-32C for the batch) and build message sets of format v0, the
nearest to 0.7's (a CRC-32 for each message, and an offset and a key that 0.7 has not). Their compressed sets are v1.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

Parse = Callable[[], int]

NAMES = {"aiokafka": "aiokafka", "kafka-python": "kafka"}  # distribution -> module
_NO_TIME = -1
_ROOM = 1 << 26
CODECS = {"gzip": 1, "snappy": 2}


def version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def records(distribution: str) -> Any:
    """The package of the peer's codecs, or None"""
    if version(distribution) is None:
        return None
    module = NAMES[distribution]
    package = importlib.import_module(f"{module}.record")
    for part in ("default_records", "legacy_records"):
        importlib.import_module(f"{module}.record.{part}")
    return package


def parser_v2(distribution: str, payloads: list[bytes]) -> Parse | None:
    """Goes through a record batch of these payloads and gives how many there were; the values were compared once"""
    package = records(distribution)
    if package is None:
        return None
    codec = package.default_records
    builder = codec.DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=_ROOM,
    )  # fmt: skip
    for number, payload in enumerate(payloads):
        builder.append(number, timestamp=1, key=None, value=payload, headers=[])
    data = bytes(builder.build())

    def parse() -> int:
        batch = codec.DefaultRecordBatch(data)
        if not batch.validate_crc():
            raise ValueError("CRC")
        count = 0
        for _ in batch:
            count += 1
        return count

    assert [bytes(record.value) for record in codec.DefaultRecordBatch(data)] == payloads
    assert parse() == len(payloads)
    return parse


def parser_v1(distribution: str, payloads: list[bytes], compression: str) -> Parse | None:
    """The same of one compressed wrapper of format v1"""
    package = records(distribution)
    if package is None:
        return None
    codec = package.legacy_records
    builder = codec.LegacyRecordBatchBuilder(magic=1, compression_type=CODECS[compression], batch_size=_ROOM)
    for number, payload in enumerate(payloads):
        builder.append(number, timestamp=1, key=None, value=payload)
    data = bytes(builder.build())

    def parse() -> int:
        batch = codec.LegacyRecordBatch(data, 1)
        if not batch.validate_crc():
            raise ValueError("CRC")
        count = 0
        for _ in batch:
            count += 1
        return count

    assert [bytes(record.value) for record in codec.LegacyRecordBatch(data, 1)] == payloads
    assert parse() == len(payloads)
    return parse


def builder_v0(distribution: str, payloads: list[bytes]) -> Callable[[], object] | None:
    """Makes a message set of format v0"""
    package = records(distribution)
    if package is None:
        return None
    codec = package.legacy_records

    def build() -> object:
        builder = codec.LegacyRecordBatchBuilder(magic=0, compression_type=0, batch_size=_ROOM)
        for number, payload in enumerate(payloads):
            builder.append(number, timestamp=_NO_TIME, key=None, value=payload)
        return builder.build()

    # int64 offset, int32 size, CRC, magic, attributes, int32 key length, int32 value length: 26 bytes around a payload
    assert len(bytes(build())) == sum(26 + len(payload) for payload in payloads)  # type: ignore[call-overload]
    return build
