"""Help for tests against the real thing: a ZooKeeper server for as long as a ``with`` block lasts.

::

    with ZooKeeper() as zookeeper:
        Cluster(zookeeper=zookeeper.address)

It is the real server, out of the jars that pyspark brings, run by the Java of :mod:`kafka07c.java`.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import queue
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka07c.errors import MissingExtraError, ZooKeeperError
from kafka07c.java import java_command

__all__ = ["ZooKeeper", "free_ports", "start_process"]

_JARS = (
    "zookeeper", "zookeeper-jute", "slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl", "metrics-core",
    "snappy-java", "netty-handler", "netty-transport", "netty-common", "netty-buffer", "netty-codec",
    "netty-codec-base", "netty-resolver", "netty-transport-native-unix-common", "netty-transport-classes-epoll",
    "commons-cli",
)  # fmt: skip

# No fsync, and a log that is not preallocated: the data lives no longer than the test.
_JAVA_OPTIONS = (
    "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
    "-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=64", "-Dzookeeper.jmx.log4j.disable=true",
    "-Dlog4j2.level=INFO",
)  # fmt: skip

_LOCALHOST = "127.0.0.1"
_PORT_TRIES = 5
_LOG_LINES_SHOWN = 30


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that were free just now; somebody else may be faster, so be ready to ask again."""
    sockets = []
    try:
        for _ in range(count):
            sockets.append(sock := socket.socket())
            sock.bind((_LOCALHOST, 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


# Processes that do not outlive this one

# Linux ends a process whose parent's *thread* ends, when it has asked for that; asking is prctl(PR_SET_PDEATHSIG = 1).
_LAUNCHER = """\
import ctypes, os, signal, sys
getattr(ctypes.CDLL(None), "prctl", lambda *_: 0)(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""

_spawner_lock = threading.Lock()
_Request = tuple["Future[subprocess.Popen[Any]]", list[str], dict[str, Any]]
_spawners: dict[int, queue.SimpleQueue[_Request]] = {}


def start_process(command: Sequence[str | os.PathLike[str]], **popen_options: Any) -> subprocess.Popen[Any]:
    """``subprocess.Popen(command, **popen_options)`` of a process that is killed when this one ends, however it ends.

    FileNotFoundError when there is no such program. On systems other than Linux it is an ordinary child process.
    """
    program = shutil.which(command[0])
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(command[0]))
    arguments = [os.fspath(program), *(os.fspath(argument) for argument in command[1:])]
    launched = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *arguments]
    future: Future[subprocess.Popen[Any]] = Future()
    _spawner().put((future, launched, popen_options))
    return future.result()


def _spawner() -> queue.SimpleQueue[_Request]:
    """Requests to a thread that starts processes and ends only with this process (see ``_LAUNCHER``)."""
    with _spawner_lock:
        requests = _spawners.get(os.getpid())  # a fork has not got its parent's threads
        if requests is None:
            requests = _spawners[os.getpid()] = queue.SimpleQueue()
            threading.Thread(target=_spawn, args=(requests,), name="spawner", daemon=True).start()
        return requests


def _spawn(requests: queue.SimpleQueue[_Request]) -> None:
    while True:
        future, command, options = requests.get()
        try:
            future.set_result(subprocess.Popen(command, **options))
        except BaseException as error:
            future.set_exception(error)


# ZooKeeper


@dataclass
class _Node:
    folder: Path
    client_port: int
    quorum_ports: tuple[int, int]
    process: subprocess.Popen[Any] | None = field(default=None)

    @property
    def configuration(self) -> Path:
        return self.folder / "zoo.cfg"

    @property
    def log(self) -> Path:
        return self.folder / "zookeeper.log"

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def ask(self, word: str) -> str:
        """The answer to a four-letter word; "" when there is none."""
        try:
            with socket.create_connection((_LOCALHOST, self.client_port), timeout=2.0) as sock:
                sock.sendall(word.encode())
                return b"".join(iter(lambda: sock.recv(65536), b"")).decode(errors="replace")
        except OSError:
            return ""

    @property
    def mode(self) -> str:
        """``standalone``, ``leader`` or ``follower``; "" when it does not serve, or another server has the port."""
        if self.process is None or f"dataDir={self.folder}" not in self.ask("conf"):
            return ""
        match = re.search(r"^Mode: (\w+)$", self.ask("srvr"), re.MULTILINE)
        return match[1] if match else ""


class _PortTakenError(ZooKeeperError):
    """Somebody took the port between our asking for a free one and the server's start."""


class ZooKeeper:
    """A real ZooKeeper server on 127.0.0.1, or an ensemble of ``nodes`` servers: started here, gone afterwards.

    A context manager; :meth:`start` and :meth:`stop` do the same by hand. The ports are free ones, the data is in a
    temporary folder that is removed, and the servers end with this process even when it is killed.

    ``tick_ms`` is ZooKeeper's unit of time: sessions last 2 to 120 ticks at least and at most, as the client asks,
    and end on the tick; make it small to see sessions expire. Nothing is fsynced: this is for tests.

    MissingExtraError without pyspark or Java; ZooKeeperError, with the end of the log, when a server does not start.
    """

    def __init__(self, nodes: int = 1, *, tick_ms: int = 500, start_timeout: float = 60.0):
        if nodes < 1:
            raise ValueError(f"an ensemble of {nodes} servers: expected 1 or more")
        self._count = nodes
        self._tick_ms = tick_ms
        self._start_timeout = start_timeout
        self._folder: Path | None = None
        self._nodes: list[_Node] = []

    @property
    def address(self) -> str:
        """``"127.0.0.1:port"``, for an ensemble all of them with commas: a connection string, without a chroot."""
        return ",".join(f"{_LOCALHOST}:{node.client_port}" for node in self._nodes)

    @property
    def leader(self) -> int | None:
        """The number of the node that leads, from 0; None while there is none."""
        modes = [node.mode for node in self._nodes]
        return next((number for number, mode in enumerate(modes) if mode in ("leader", "standalone")), None)

    def log(self, node: int = 0) -> str:
        """What the server has logged so far."""
        return self._nodes[node].log.read_text(errors="replace")

    def start(self) -> ZooKeeper:
        """Start all nodes and wait until each of them serves."""
        for tries_left in reversed(range(_PORT_TRIES)):
            self._folder = Path(tempfile.mkdtemp(prefix="kafka07c-zookeeper-"))
            try:
                self._nodes = self._configure(self._folder)
                for node in self._nodes:
                    self._launch(node)
                self._wait_for(self._nodes)
                break
            except BaseException as error:
                self.stop()
                if not (isinstance(error, _PortTakenError) and tries_left):
                    raise
        return self

    def stop(self) -> None:
        """Kill all nodes and remove their data. Twice does no harm."""
        for node in self._nodes:
            node.kill()
        self._nodes = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def kill(self, node: int = 0) -> None:
        """End one server the hard way (SIGKILL); its data stays."""
        self._nodes[node].kill()

    def restart(self, node: int = 0) -> None:
        """Start a server again on its port and data, and wait until it serves; one that runs is killed first."""
        self._nodes[node].kill()
        self._launch(self._nodes[node])
        self._wait_for([self._nodes[node]])

    def __enter__(self) -> ZooKeeper:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _configure(self, folder: Path) -> list[_Node]:
        """Ports, folders and configuration files of all nodes."""
        ports = free_ports(3 * self._count)
        nodes = []
        for number in range(self._count):
            client_port, *quorum_ports = ports[3 * number : 3 * number + 3]
            nodes.append(_Node(folder / str(number), client_port, (quorum_ports[0], quorum_ports[1])))
        settings: dict[str, object] = {
            "tickTime": self._tick_ms,
            "maxSessionTimeout": 120 * self._tick_ms,
            "maxClientCnxns": 0,
            "clientPortAddress": _LOCALHOST,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        if self._count > 1:
            # Ten seconds, in ticks, for a follower to connect and to keep up.
            settings["initLimit"] = settings["syncLimit"] = max(5, 10_000 // self._tick_ms)
            for number, node in enumerate(nodes, 1):
                settings[f"server.{number}"] = ":".join(map(str, (_LOCALHOST, *node.quorum_ports)))
        for number, node in enumerate(nodes, 1):
            node.folder.mkdir()
            (node.folder / "myid").write_text(f"{number}\n")
            own = settings | {"dataDir": node.folder, "clientPort": node.client_port}
            node.configuration.write_text("".join(f"{name}={value}\n" for name, value in own.items()))
        return nodes

    def _launch(self, node: _Node) -> None:
        main = "ZooKeeperServerMain" if self._count == 1 else "quorum.QuorumPeerMain"
        with node.log.open("wb") as log:
            node.process = start_process(
                [java_command(), "-cp", _class_path(), *_JAVA_OPTIONS, f"org.apache.zookeeper.server.{main}",
                 node.configuration],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the test, which then stops the server
            )  # fmt: skip

    def _wait_for(self, nodes: list[_Node]) -> None:
        deadline = time.monotonic() + self._start_timeout
        for node in nodes:
            while not node.mode:
                code = None if node.process is None else node.process.poll()
                if code is not None or time.monotonic() > deadline:
                    raise self._start_error(node, code)
                time.sleep(0.02)

    def _start_error(self, node: _Node, code: int | None) -> ZooKeeperError:
        how = f"does not serve after {self._start_timeout:g} s" if code is None else f"ended with code {code}"
        log = node.log.read_text(errors="replace")
        kind = _PortTakenError if "java.net.BindException" in log else ZooKeeperError
        tail = "\n".join(log.splitlines()[-_LOG_LINES_SHOWN:])
        return kind(f"ZooKeeper on port {node.client_port} {how}; the end of its log:\n{tail}")


def _class_path() -> str:
    """The jars of a ZooKeeper server, out of pyspark's."""
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or not pyspark.submodule_search_locations:
        raise MissingExtraError("a ZooKeeper server needs the jars of pyspark: pip install 'kafka07c[spark]'")
    jars = sorted(Path(pyspark.submodule_search_locations[0], "jars").glob("*.jar"))
    found = [next((jar for jar in jars if re.fullmatch(rf"{name}-[0-9.]+.*\.jar", jar.name)), None) for name in _JARS]
    if missing := [name for name, jar in zip(_JARS, found) if jar is None]:
        raise MissingExtraError(f"pyspark has no jar of {', '.join(missing)}: pip install 'kafka07c[spark]' anew")
    return os.pathsep.join(map(str, found))
