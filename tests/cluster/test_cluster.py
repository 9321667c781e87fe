"""A standalone cluster whose workers have kafka07c as it is shipped: source, archive and sink, from end to end."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import zlib
from pathlib import Path

from cluster.conftest import SENT, stored
from cluster.standalone import SPARK_HOME

from kafka07c.java import java_home

DRIVER = Path(__file__).with_name("driver.py")
EVERYTHING = [value for values in SENT for value in values]
EXPECTED = [len(EVERYTHING), len(EVERYTHING), sum(map(zlib.crc32, EVERYTHING))]


def run(cluster, environment: Path, worker_python: str, brokers: str, folder: Path, *settings: str) -> dict:
    """What the driver says; it has the same kafka07c as the workers, and Spark from SPARK_HOME."""
    libraries = os.pathsep.join(map(str, (SPARK_HOME / "python" / "lib").glob("*.zip")))
    named = {
        "PATH": "/usr/bin:/bin", "HOME": str(folder), "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(SPARK_HOME), "PYTHONPATH": libraries, "PYSPARK_PYTHON": worker_python,
    }  # fmt: skip
    command = [environment / "bin" / "python", DRIVER, cluster.url, brokers, folder, *settings]
    ended = subprocess.run(command, env=named, cwd=folder, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stderr[-6000:]
    return json.loads(ended.stdout.splitlines()[-1])


def check(found: dict, brokers: str, inside: str) -> None:
    assert found["batch"] == EXPECTED
    assert found["archive"] == EXPECTED
    copies = stored(brokers, "copies")
    assert sorted(set(copies)) == sorted(EVERYTHING)  # at least once, as Spark's own sink
    packages, folders = zip(*found["places"], strict=True)
    assert len(set(folders)) == 2, "one executor did it all"
    assert all(inside.format(folder=folder) in package for package, folder in found["places"]), packages


def test_a_wheel_on_each_node(cluster, environment, brokers, tmp_path):
    found = run(cluster, environment, str(environment / "bin" / "python"), brokers, tmp_path)
    check(found, brokers, f"{environment.resolve()}/lib/")


def test_a_packed_environment(cluster, environment, packed, brokers, tmp_path):
    """The archive goes to the workers with the job; the driver plans with the same path, in its own folder."""
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "environment", filter="fully_trusted")
    (environment / "lib").rename(environment / "gone")  # nobody may use it instead
    try:
        setting = f"spark.archives={packed}#environment"
        found = run(cluster, tmp_path / "environment", "./environment/bin/python", brokers, tmp_path, setting)
    finally:
        (environment / "gone").rename(environment / "lib")
    check(found, brokers, "{folder}/environment/lib/")
