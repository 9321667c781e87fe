"""Fixtures that several rooms share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.register_assert_rewrite("agreement", "recorded")  # their asserts show values, as those of the tests do

GOLDEN = Path(__file__).parent / "golden07"


class Golden:
    """The recordings from a real 0.7.2 broker and its Scala clients; see tests/golden07/README.md."""

    root = GOLDEN

    def __init__(self):
        self.manifest = json.loads((GOLDEN / "manifest.json").read_text())

    def bytes(self, name: str) -> bytes:
        return (GOLDEN / name).read_bytes()


@pytest.fixture(scope="session")
def golden() -> Golden:
    return Golden()
