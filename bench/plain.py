"""The plain way, in Python's standard library alone: what somebody writes who has no library for 0.7."""

from __future__ import annotations

import socket
import struct
import zlib

_ENTRY = struct.Struct(">iBBI")
_PRODUCE = 0


def decode(data: bytes) -> list[tuple[int, int, memoryview]]:
    """(start, end, payload) of each entry, its CRC checked"""
    view, found, start = memoryview(data), [], 0
    unpack, crc32 = _ENTRY.unpack_from, zlib.crc32
    while start < len(data):
        size, _, _, crc = unpack(data, start)
        end = start + 4 + size
        payload = view[start + 10 : end]
        if crc32(payload) != crc:
            raise ValueError(start)
        found.append((start, end, payload))
        start = end
    return found


def encode(payloads: list[bytes]) -> bytes:
    """A message set"""
    pack, crc32 = _ENTRY.pack, zlib.crc32
    parts: list[bytes] = []
    for payload in payloads:
        parts += (pack(len(payload) + 6, 1, 0, crc32(payload)), payload)
    return b"".join(parts)


def inflate(wrapper: bytes) -> bytes:
    """What is in a gzip wrapper that stands alone, through zlib"""
    return zlib.decompress(memoryview(wrapper)[10:], 31)


def produce(connection: socket.socket, topic: bytes, payloads: list[bytes]) -> None:
    """Brod's way: each message a request of its own, packed by ``struct``, and a call to the kernel"""
    pack, crc32, name = struct.pack, zlib.crc32, struct.pack(f">h{len(topic)}si", len(topic), topic, 0)
    for payload in payloads:
        entry = pack(">iBBI", len(payload) + 6, 1, 0, crc32(payload)) + payload
        connection.sendall(pack(">ih", 6 + len(name) + len(entry), _PRODUCE) + name + pack(">i", len(entry)) + entry)
