"""Spark servers of the pip package on 127.0.0.1: a standalone master with workers, a Connect server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pyspark

from kafka07c.java import java_home

SPARK_HOME = Path(pyspark.__file__).parent

#: seconds until a server is up, on a machine that has much else to do
_UP_SECONDS = 120


class Server:
    """A JVM in a process group of its own, all of which is gone after `stop`."""

    def __init__(self, command: list[str | Path], log: Path, environment: dict[str, str] | None = None):
        self.log = log
        named = {"SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "PYTHON"))}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                list(map(str, command)), env=inherited | named | (environment or {}), cwd=log.parent,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def said(self, pattern: str) -> str:
        """The first group of ``pattern`` in what it has logged, waited for."""
        deadline = time.monotonic() + _UP_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            if found := re.search(pattern, self.log.read_text(errors="replace")):
                return found[1]
            time.sleep(0.1)
        raise AssertionError(f"never said {pattern}:\n{self.log.read_text(errors='replace')[-3000:]}")

    def stop(self) -> None:
        """End it, and wait for whatever it started."""
        self._process.terminate()
        self._process.wait(60)
        deadline = time.monotonic() + 60
        while _group_is_there(self._process.pid):
            if time.monotonic() > deadline:
                os.killpg(self._process.pid, signal.SIGKILL)
                raise AssertionError(f"what {self.log.name} started did not end with it")
            time.sleep(0.1)


def _group_is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


class Standalone:
    """A master and two workers of one core each."""

    def __init__(self, folder: Path):
        folder.mkdir()
        spark_class = SPARK_HOME / "bin" / "spark-class"
        here = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self._servers: list[Server] = []
        try:
            self._servers.append(
                Server([spark_class, "org.apache.spark.deploy.master.Master", *here], folder / "master.log")
            )
            self.url = self._servers[0].said(r"Starting Spark master at (spark://\S+)")
            for number in range(2):
                of_one = ["--cores", "1", "--memory", "1g", "--work-dir", folder / f"work-{number}", self.url]
                self._servers.append(
                    Server(
                        [spark_class, "org.apache.spark.deploy.worker.Worker", *here, *of_one],
                        folder / f"worker-{number}.log",
                    )
                )
            for worker in self._servers[1:]:
                worker.said(r"(Successfully registered with master)")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        while self._servers:
            self._servers.pop().stop()
