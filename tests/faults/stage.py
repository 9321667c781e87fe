"""A cluster of its own for what is to go through faults: brokers as processes, all that can be done to them, and one
place where every process writes its history. :mod:`groups.stage` and :mod:`producing.stage` put what they try on it.

The processes end with this one, however it ends.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from faults import history
from faults.proxy import Proxy
from kazoo.client import KazooClient

from kafka07c import Cluster, Log, SimpleConsumer, SyncProducer
from kafka07c.protocol import LATEST
from kafka07c.segments import find_logs
from kafka07c.testing import ZooKeeper, free_ports, start_process
from kafka07c.zookeeper import BROKER_IDS, connect

_TESTS = Path(__file__).parent.parent
_HOST = "127.0.0.1"
_BEHIND_PROXY = "127.0.0.2"  # the same port as the proxy's, on another address of this machine

#: nothing here has to survive the machine, and every flush of a broker is an fsync
_SCRATCH = "/dev/shm" if os.path.isdir("/dev/shm") else None

#: seconds for what has to come about
PATIENCE = 60.0


class StageError(AssertionError):
    """Something did not come about in time."""


class BrokerProcess:
    """``kafka07c broker`` on a log directory, behind a proxy or not."""

    def __init__(self, stage: BrokerStage, number: int, partitions: int, proxied: bool):
        self.number = number
        self.partitions = partitions
        self.log_dir = stage.folder / f"broker-{number}"
        self.port = 0
        self.proxy: Proxy | None = None
        self._stage = stage
        self._process: subprocess.Popen | None = None
        if proxied:
            self.proxy = Proxy(_BEHIND_PROXY, 0, on_fault=lambda plan: stage.note_fault(plan.kind, self.name))
            self.port = self.proxy.port
            self.proxy.target = (_BEHIND_PROXY, self.port)

    @property
    def name(self) -> str:
        """What it is called in a history."""
        return f"broker {self.number}"

    def start(self, *, new_port: bool = False) -> None:
        """Start it, on its old port unless a new one is wanted, and wait until it is registered and listens.

        On another port it is another broker until the session of the one that was killed has ended.
        """
        if new_port:
            self._stage.wait_for_end_of(self)
            self.port = free_ports(1)[0]
        command = [
            sys.executable, "-m", "kafka07c", "broker", "--id", str(self.number), "--log-dir", self.log_dir,
            "--port", str(self.port), "--partitions", str(self.partitions), "--zookeeper", self._stage.zookeeper,
            "--host", _BEHIND_PROXY if self.proxy else _HOST,
        ]  # fmt: skip
        for name, value in self._stage.broker_properties.items():
            command += ["--property", f"{name}={value}"]
        self._process = self._stage.start(f"broker-{self.number}", command, stdout=subprocess.PIPE, text=True)
        listening = self._process.stdout.readline()
        self._process.stdout.close()
        if not listening:
            raise StageError(f"broker {self.number} did not start:\n{self._stage.told(f'broker-{self.number}')}")
        self.port = int(listening.rpartition(":")[2])

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """``kill -9``."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def crash(self) -> float:
        """End as when the machine loses power: of what is not flushed, some is gone; when that was (time.monotonic()).

        It has to be behind a proxy: as long as that holds everything, nobody can have seen a later flush than the one
        that is asked for here.
        """
        self.proxy.hold()
        try:
            flushed = self._flushed_ends()
            self.kill()
            at = time.monotonic()
            for directory, end in flushed.items():
                self._lose_some(directory, end)
            self.proxy.reset()
        finally:
            self.proxy.let_go()
        return at

    def _flushed_ends(self) -> dict[Path, int]:
        with SimpleConsumer(_BEHIND_PROXY, self.port) as consumer:
            logs = [Log(directory) for directory in find_logs(self.log_dir)]
            return {log.directory: consumer.get_offsets_before(log.topic, log.partition, LATEST)[0] for log in logs}

    def _lose_some(self, directory: Path, flushed: int) -> None:
        last = max(directory.glob("*.kafka"))
        size = last.stat().st_size
        kept = max(0, flushed - int(last.stem))
        os.truncate(last, self._stage.random.randint(min(kept, size), size))

    def terminate(self) -> None:
        """SIGTERM: a clean stop, waited for."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE)


class BrokerStage:
    """Brokers on a chroot ``name`` of their own. ``session``: time-out of sessions, in seconds.

    ``brokers`` have ``partitions`` each of all ``topics``; with ``proxied`` their clients come to them through proxies.
    ``broker_properties`` go before those that brokers have here. A context manager.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        name: str,
        *,
        seed: int,
        session: float = 2.0,
        brokers: int = 2,
        partitions: int = 3,
        topics: Iterable[str] = ("clicks",),
        proxied: bool = False,
        broker_properties: Mapping[str, object] | None = None,
    ):
        self.random = random.Random(f"{seed} {name}")
        self.name = name
        self.zookeeper = f"{zookeeper.address}/{name}"
        self.session = session
        self.session_ms = round(session * 1000)
        self.topics = list(topics)
        self.broker_properties = {
            "hostname": _HOST, "log.flush.interval": 20, "log.default.flush.scheduler.interval.ms": 50,
            "log.file.size": 1_000_000, "zk.sessiontimeout.ms": self.session_ms, "zk.connectiontimeout.ms": 30_000,
            **(broker_properties or {}),
        }  # fmt: skip
        self.folder = Path(tempfile.mkdtemp(prefix=f"kafka07c-{name}-", dir=_SCRATCH))
        self.servers = zookeeper
        self.faults = 0
        self.history = self.folder / "history"
        self.history.mkdir()
        self._writer = history.Writer(self.history, "stage")
        self._faults_lock = threading.Lock()
        self._started = 0
        self._undo = ExitStack()
        self._undo.callback(self._clean_up)
        self._processes: list[subprocess.Popen] = []
        self.brokers = [BrokerProcess(self, number, partitions, proxied) for number in range(brokers)]
        self._client: KazooClient | None = None

    # beginning and end

    def __enter__(self) -> Self:
        try:
            self._client = connect(self.zookeeper, PATIENCE, session_timeout=10.0, make_chroot=True)
            self._undo.callback(self._disconnect)
            for broker in self.brokers:
                broker.start()
                for topic in self.topics:
                    self.make_topic(topic, broker)
            self.cluster = self._undo.enter_context(Cluster(self.zookeeper, live=True))
            self._begin()
        except BaseException:
            self._undo.close()
            raise
        return self

    def _begin(self) -> None:
        """What there is to be as soon as the brokers are there."""

    def __exit__(self, *exc_info) -> None:
        self._undo.close()

    def _disconnect(self) -> None:
        self._client.stop()
        self._client.close()

    def _clean_up(self) -> None:
        for broker in self.brokers:
            if broker.proxy is not None:
                broker.proxy.close()
        for process in self._processes:
            process.kill()
            process.wait()
        self._writer.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, name: str, command: list, **options) -> subprocess.Popen:
        """A process whose standard error goes to a file of its own."""
        path = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")]))
        environment = os.environ | {"PYTHONPATH": path}
        with (self.folder / f"{name}.log").open("ab") as log:
            process = start_process(command, stdin=subprocess.DEVNULL, stderr=log, env=environment, **options)
        self._processes.append(process)
        return process

    def told(self, name: str) -> str:
        """The end of what a process had to say."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]

    def keep(self, folder: Path) -> None:
        """Copy history, logs, what the processes said, and ZooKeeper's transactions, for somebody to look at."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        for number, node in enumerate(self.servers._nodes):
            shutil.copytree(node.folder, folder / f"zookeeper-{number}", dirs_exist_ok=True)

    def _unused_name(self, kind: str) -> str:
        self._started += 1
        # as strings they sort in no particular order, so that newcomers come before, between and after the others
        return f"{kind}-{self.random.randrange(0x1000):03x}-{self._started}"

    # topics, faults

    def make_topic(self, topic: str, broker: BrokerProcess) -> None:
        with SyncProducer(_HOST, broker.port) as producer:
            producer.send(topic, 0, [])

    def note_fault(self, kind: str, target: str, at: float | None = None) -> None:
        """Count a fault that comes now, or came ``at`` this time (time.monotonic())."""
        with self._faults_lock:
            self.faults += 1
        self._writer.write("fault", at=at, kind=kind, target=target)

    def kill_broker(self, broker: BrokerProcess) -> None:
        self.note_fault("broker killed", broker.name)
        broker.kill()

    def stop_broker(self, broker: BrokerProcess, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so long."""
        self.note_fault("broker stopped", broker.name)
        broker.signal(signal.SIGSTOP)
        time.sleep(seconds)
        broker.signal(signal.SIGCONT)

    # what has come about

    def wait_for_topics(self, partitions: Mapping[str, int]) -> None:
        """Wait until ZooKeeper has the topics, with so many partitions each."""

        def are_there() -> bool:
            return all(len(self.cluster.partitions(topic)) == count for topic, count in partitions.items())

        self._wait(are_there, PATIENCE, lambda: f"topics are {self.cluster.topics}, not {dict(partitions)}")

    def wait_for_end_of(self, broker: BrokerProcess) -> None:
        """Wait until ZooKeeper has forgotten a broker that was killed."""
        path = f"{BROKER_IDS}/{broker.number}"
        self._wait(lambda: self._client.exists(path) is None, PATIENCE, lambda: f"{path} is still there")

    def _wait(self, condition: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            self._check_processes()
            if time.monotonic() > deadline:
                raise StageError(f"waited {seconds:g} s in vain: {what()}")
            time.sleep(0.05)

    def _check_processes(self) -> None:
        """StageError when one has ended that should not have."""
