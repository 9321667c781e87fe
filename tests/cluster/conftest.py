"""What the tests of a cluster share: kafka07c as it is shipped, a cluster, a broker with a topic."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
from cluster.standalone import Standalone

from kafka07c.broker import Broker
from kafka07c.ranges import Range, open_source
from kafka07c.simple import SyncProducer

ROOT = Path(__file__).parents[2]

#: what is left out of a wheel's sources: what was built before, environments, the repository's own
_LEFT_OUT = (".*", "build", "dist", "demo", "*.so", "*.egg-info", "__pycache__", "golden07")


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    subprocess.run(command, check=True)


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> Path:
    """A virtual environment as each node has one: a wheel of this tree, pyarrow and pandas; no pyspark."""
    folder = tmp_path_factory.mktemp("environment")
    shutil.copytree(ROOT, folder / "sources", ignore=shutil.ignore_patterns(*_LEFT_OUT))
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, folder / "sources")
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "node", symlinks=True)
    pip("--python", folder / "node" / "bin" / "python", "install", wheel, "pyarrow>=18", "pandas>=2.2,<3")
    return folder / "node"


@pytest.fixture(scope="session")
def packed(environment, tmp_path_factory) -> Path:
    """The same environment in one file, for ``spark.archives``."""
    folder = tmp_path_factory.mktemp("packed")
    pip("install", "--target", folder / "tool", "--no-deps", "venv-pack")
    subprocess.run(
        [sys.executable, "-m", "venv_pack", "-q", "--prefix", environment, "--output", folder / "environment.tar.gz",
         "--compress-level", "1"],
        check=True, env={"PYTHONPATH": str(folder / "tool"), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return folder / "environment.tar.gz"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    cluster = Standalone(tmp_path_factory.mktemp("cluster") / "spark")
    yield cluster
    cluster.stop()


#: what the topic clicks holds: by partition, in order
SENT = [[b"%d-%08d" % (partition, number) for number in range(10_000)] for partition in range(2)]


@pytest.fixture
def brokers(tmp_path):
    """The address of a broker, for ``kafka07.brokers``, that has all of SENT."""
    with Broker(tmp_path / "kafka", partitions=2) as broker:
        with SyncProducer("127.0.0.1", broker.port) as producer:
            for partition, values in enumerate(SENT):
                for start in range(0, len(values), 500):
                    producer.send("clicks", partition, values[start : start + 500])
        address = f"0:127.0.0.1:{broker.port}"
        while len(stored(address, "clicks", broker)) < sum(map(len, SENT)):
            time.sleep(0.1)  # nothing acknowledges a send
        yield address


def stored(brokers: str, topic: str, broker: Broker | None = None) -> list[bytes]:
    """All messages of a topic."""
    if broker is not None:
        broker.flush()
    with open_source(brokers=brokers) as source:
        return [
            bytes(message.value)
            for tp in source.partitions(topic)
            for part in source.read(Range(*tp, *source.bounds(tp)))
            for message in part
        ]
