"""Fixtures that several rooms share."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kafka07c.testing import ZooKeeper
from kafka07c.zookeeper import connect
from kafka07c.zookeeper.client import disconnect

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


# A ZooKeeper, and a place of the test's own in it

_chroots = count()


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeper]:
    """A real ZooKeeper for the tests of a file; its sessions may be short."""
    with ZooKeeper(tick_ms=100) as zookeeper:
        yield zookeeper


@pytest.fixture
def hosts(server: ZooKeeper) -> str:
    """An address with a chroot of the test's own, that is there and empty."""
    address = f"{server.address}/{next(_chroots)}"
    disconnect(connect(address, make_chroot=True))
    return address


@pytest.fixture
def client(hosts: str) -> Iterator[KazooClient]:
    """A session of somebody else's at ``hosts``: a broker's, an operator's, or a JVM member's."""
    client = connect(hosts)
    yield client
    disconnect(client)
