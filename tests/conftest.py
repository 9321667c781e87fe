"""Fixtures that several rooms share."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

pytest.register_assert_rewrite("agreement", "recorded")  # their asserts show values, as those of the tests do

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # as in a shell's background job; commands that tests interrupt would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)

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
