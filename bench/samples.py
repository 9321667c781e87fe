"""Payloads, the same in every run."""

from __future__ import annotations

import random

from bench.measuring import HEADER_BYTES, SET_BYTES


def noise(size: int, set_bytes: int = SET_BYTES) -> list[bytes]:
    """Payloads of ``size`` random bytes, as many as a set of about ``set_bytes`` has"""
    rng = random.Random(size)
    return [rng.randbytes(size) for _ in range(max(1, set_bytes // (size + HEADER_BYTES)))]


def words(size: int, set_bytes: int = SET_BYTES) -> list[bytes]:
    """The same of text, of a kind that compresses to about a third"""
    rng = random.Random(size)
    vocabulary = [b"".join(rng.choices(LETTERS, k=rng.randrange(2, 9))) for _ in range(4000)]
    count = max(1, set_bytes // (size + HEADER_BYTES))
    return [b" ".join(rng.choices(vocabulary, k=size // 3 + 1))[:size] for _ in range(count)]


LETTERS = [bytes([letter]) for letter in b"abcdefghijklmnopqrstuvwxyz"]
