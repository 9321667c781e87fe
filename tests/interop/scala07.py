"""The real thing: ZooKeeper, a Kafka 0.7.2 broker and its console tools, from jars that the user points to."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from kafka07c.java import java_command
from kafka07c.testing import free_ports, start_process
from kafka07c.zookeeper import connect

HOST = "127.0.0.1"
SECONDS = 60.0

_LOG4J = """\
log4j.rootLogger=INFO, file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File={file}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def wait_until(condition, what, seconds=SECONDS):
    """The first true answer of ``condition``."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}"
        time.sleep(0.02)
    return answer


class Jvm:
    """Starts Java programs that write their logs into a folder."""

    def __init__(self, class_path: str, folder: Path):
        self.class_path = class_path
        self.folder = folder
        self._started = 0

    def start(self, main: str, *arguments: object, **popen_options) -> Process:
        self._started += 1
        name = f"{self._started:03}-{main.rpartition('.')[2]}"
        log4j = self.folder / f"{name}.properties"
        log4j.write_text(_LOG4J.format(file=self.folder / f"{name}.log"))
        command = [
            java_command(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", self.class_path,
            "--add-opens=java.base/java.lang=ALL-UNNAMED",  # for the class loader tricks of snappy-java 1.0
            f"-Dlog4j.configuration=file:{log4j}", "-Djava.net.preferIPv4Stack=true", main, *map(str, arguments),
        ]  # fmt: skip
        with (self.folder / f"{name}.stderr").open("wb") as stderr:
            popen = start_process(command, stderr=stderr, **popen_options)
        return Process(popen, self.folder / name)

    def run(self, main: str, *arguments: object) -> str:
        """The standard output of a program that ends by itself."""
        process = self.start(main, *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        with process:
            output, _ = process.popen.communicate(timeout=SECONDS)
        assert process.popen.returncode == 0, process.told()
        return output.decode()


class Process:
    """A running Java program."""

    def __init__(self, popen: subprocess.Popen, name: Path):
        self.popen = popen
        self._name = name

    def told(self) -> str:
        """The end of what it has logged and complained about."""
        texts = [Path(f"{self._name}.{kind}") for kind in ("stderr", "log")]
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in texts if path.exists())

    def is_running(self) -> bool:
        return self.popen.poll() is None

    def stop(self, with_signal: int = signal.SIGTERM) -> None:
        """End it by its process id; SIGTERM runs its shutdown hooks."""
        if self.is_running():
            os.kill(self.popen.pid, with_signal)
            try:
                self.popen.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
                raise
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc_info) -> None:
        self.stop(signal.SIGKILL)


class ZooKeeper:
    """The ZooKeeper of the class path, one server."""

    def __init__(self, jvm: Jvm, folder: Path):
        (self.port,) = free_ports(1)
        self.address = f"{HOST}:{self.port}"
        folder.mkdir()
        config = folder / "zoo.cfg"
        config.write_text(
            f"tickTime=500\ndataDir={folder}\nclientPort={self.port}\nclientPortAddress={HOST}\nmaxClientCnxns=0\n"
        )
        self._process = jvm.start("org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
        try:
            client = connect(self.address, SECONDS)
            self.version = ".".join(map(str, client.server_version()))
            client.stop()
            client.close()
        except BaseException:
            self.stop()
            raise

    def make_chroot(self, chroot: str) -> str:
        """Its address with the chroot, which a 0.7.2 broker does not make by itself."""
        client = connect(f"{self.address}/{chroot}", make_chroot=True)
        client.stop()
        client.close()
        return f"{self.address}/{chroot}"

    def stop(self) -> None:
        self._process.stop(signal.SIGKILL)


class RealBroker:
    """A Kafka 0.7.2 broker; stopped and started again, it has the same port and log directory."""

    def __init__(self, jvm: Jvm, log_dir: Path, zookeeper: str | None, broker_id: int = 0, **properties: object):
        (self.port,) = free_ports(1)
        self.host = HOST
        self.log_dir = log_dir
        self._jvm = jvm
        self._process: Process | None = None
        settings = {
            "brokerid": broker_id, "hostname": HOST, "port": self.port, "log.dir": log_dir, "num.threads": 2,
            "num.partitions": 1, "log.flush.interval": 1, "log.retention.hours": 1_000_000,
            "enable.zookeeper": str(zookeeper is not None).lower(), "zk.connect": zookeeper or "",
            "zk.sessiontimeout.ms": 3000,
        }  # fmt: skip
        settings |= {name.replace("_", "."): value for name, value in properties.items()}
        self._config = log_dir.parent / f"{log_dir.name}.server.properties"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def start(self) -> RealBroker:
        process = self._process = self._jvm.start("kafka.Kafka", self._config)

        def listens():
            assert process.is_running(), process.told()
            return "Kafka server started" in process.told() or "Server started" in process.told()

        try:
            wait_until(listens, "the broker to start")
        except BaseException:
            self.stop(signal.SIGKILL)
            raise
        return self

    def stop(self, with_signal: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.stop(with_signal)
            self._process = None

    def __enter__(self) -> RealBroker:
        return self.start()

    def __exit__(self, *exc_info) -> None:
        self.stop(signal.SIGKILL)


class ConsoleConsumer:
    """0.7.2's console consumer; it runs until it is stopped.

    ``from_beginning``: of the topic; it deletes its group for that. Else it goes on where its group is.
    """

    def __init__(self, jvm: Jvm, zookeeper: str, topic: str, *arguments: object, from_beginning: bool = True):
        if from_beginning:
            arguments = ("--from-beginning", *arguments)
        self._process = jvm.start(
            "kafka.consumer.ConsoleConsumer", "--zookeeper", zookeeper, "--topic", topic,
            *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        self._printed = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while data := self._process.popen.stdout.read(65536):
            self._printed += data

    @property
    def lines(self) -> list[bytes]:
        """The whole lines that it has printed."""
        return bytes(self._printed).split(b"\n")[:-1]

    def end(self, with_signal: int = signal.SIGKILL) -> None:
        """End it, and wait until all that it has printed is read; SIGTERM lets it give back its partitions."""
        if self._process.is_running():
            os.kill(self._process.popen.pid, with_signal)
            self._process.popen.wait(SECONDS)
        self._thread.join()
        self._process.stop()

    def until(self, end: bytes, times: int = 1) -> bytes:
        """All that it has printed, as soon as the line ``end`` was among it so many times."""
        line = b"\n" + end + b"\n"

        def is_there():
            printed = b"\n" + bytes(self._printed)
            if printed.count(line) >= times:
                return True
            assert self._process.is_running(), self._process.told()
            return False

        wait_until(is_there, f"the console consumer to print {end!r}; it printed {bytes(self._printed[-200:])!r}")
        return bytes(self._printed)

    def __enter__(self) -> ConsoleConsumer:
        return self

    def __exit__(self, *exc_info) -> None:
        self.end(signal.SIGTERM)


class ConsoleProducer:
    """0.7.2's console producer: each line that is written to it is a message, and gzip is what it always uses."""

    def __init__(self, jvm: Jvm, zookeeper: str, topic: str, *arguments: object):
        self._process = jvm.start(
            "kafka.producer.ConsoleProducer", "--zookeeper", zookeeper, "--topic", topic, *arguments,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def send(self, lines: list[bytes]) -> None:
        self._process.popen.stdin.write(b"".join(line + b"\n" for line in lines))
        self._process.popen.stdin.flush()

    def __enter__(self) -> ConsoleProducer:
        return self

    def __exit__(self, *exc_info) -> None:
        self._process.stop(signal.SIGKILL)  # it does not end with its input
