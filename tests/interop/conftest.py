"""Fixtures of the tests against a real Kafka 0.7.2; CONTRIBUTING has the command, NEEDED what it takes."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest
from interop.scala07 import Jvm, RealBroker, ZooKeeper

NEEDED = """\
tests/interop needs a real Kafka 0.7.2: set KAFKA07_CLASSPATH to its jars, separated by colons.
Whoever has a 0.7 cluster has them all in the broker's folder: kafka-0.7.2.jar, scala-library 2.8.0, zkclient 0.1,
log4j 1.2, jopt-simple 3.2, zookeeper 3.3, snappy-java 1.0.4. For example:
    make interop KAFKA07_CLASSPATH=$(find /opt/kafka-0.7.2 -name '*.jar' | paste -sd:)"""


def pytest_sessionstart(session):
    class_path = os.environ.get("KAFKA07_CLASSPATH", "")
    if not class_path.strip():
        pytest.exit(NEEDED, returncode=2)
    missing = [jar for jar in class_path.split(os.pathsep) if not jar.endswith("*") and not Path(jar).exists()]
    if missing:
        pytest.exit(f"KAFKA07_CLASSPATH names what is not there: {', '.join(missing)}\n{NEEDED}", returncode=2)


@pytest.fixture(scope="session")
def jvm(tmp_path_factory):
    return Jvm(os.environ["KAFKA07_CLASSPATH"], tmp_path_factory.mktemp("jvm"))


@pytest.fixture(scope="session")
def old_zookeeper(jvm, tmp_path_factory):
    zookeeper = ZooKeeper(jvm, tmp_path_factory.mktemp("zookeeper") / "data")
    yield zookeeper
    zookeeper.stop()


_clusters = count()


@pytest.fixture
def zookeeper(old_zookeeper):
    """The address of a ZooKeeper in which there is nothing yet."""
    return old_zookeeper.make_chroot(f"cluster-{next(_clusters)}")


@pytest.fixture(scope="session")
def shared(jvm, old_zookeeper, tmp_path_factory):
    """A real broker, id 0, for the tests that leave it as it is; each has a topic of its own."""
    broker = RealBroker(
        jvm, tmp_path_factory.mktemp("shared") / "log", old_zookeeper.make_chroot("shared"), num_partitions=2
    )
    broker.zookeeper = f"{old_zookeeper.address}/shared"
    with broker:
        yield broker


@pytest.fixture
def real_broker(jvm, tmp_path):
    """Make a real broker: ``real_broker(zookeeper, log_dir, **properties)``; not started yet."""
    made = []

    def make(zookeeper=None, log_dir=None, **properties):
        made.append(RealBroker(jvm, log_dir or tmp_path / f"real-{len(made)}", zookeeper, **properties))
        return made[-1]

    yield make
    for broker in made:
        broker.stop()
