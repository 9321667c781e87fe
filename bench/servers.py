"""Servers for the suites that use sockets, each a process of its own on another core than the client's.

    python -m bench.servers answers 1024 [BYTES]                  one prebuilt answer to each FETCH: a set of a megabyte
    python -m bench.servers sink                                  takes PRODUCE requests and drops them; answers OFFSETS
    python -m bench.servers broker FOLDER [ZOOKEEPER [COUNT]]     kafka07c's embedded broker on the logs there

Each prints its port when it listens, and ends with the process that started it.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.samples import noise
from kafka07c import build_message_set
from kafka07c.broker import Broker
from kafka07c.protocol import encode_fetch_response, encode_offsets_response
from kafka07c.testing import free_ports, start_process

LOCALHOST = "127.0.0.1"
_OFFSETS = 4
_KAFKA_START = 60.0


@contextmanager
def served(*arguments: object) -> Iterator[tuple[int, int]]:
    """Runs ``python -m bench.servers ARGUMENTS`` on the last core; its port, and its process's id"""
    process = start_process(
        [sys.executable, "-m", "bench.servers", *map(str, arguments)], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.wait()


# What runs in the child


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            return b""
        data += piece
    return data


def _answer(answer: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        while head := _exactly(connection, 4):
            _exactly(connection, struct.unpack(">i", head)[0])
            connection.sendall(answer)

    return serve


def _drop(connection: socket.socket) -> None:
    room = memoryview(bytearray(1 << 20))
    offsets = encode_offsets_response([0])
    while head := _exactly(connection, 6):
        size, kind = struct.unpack(">ih", head)
        left = size - 2
        while left:
            got = connection.recv_into(room[: min(left, len(room))])
            if not got:
                return
            left -= got
        if kind == _OFFSETS:
            connection.sendall(offsets)


def _listen(serve: Callable[[socket.socket], None]) -> None:
    server = socket.create_server((LOCALHOST, 0))
    print(server.getsockname()[1], flush=True)
    while True:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_guarded, args=(serve, connection), daemon=True).start()


def _guarded(serve: Callable[[socket.socket], None], connection: socket.socket) -> None:
    with connection:
        try:
            serve(connection)
        except ConnectionError:
            pass  # the client has gone


def _broker(folder: str, zookeeper: str = "", partitions: str = "1") -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a log holds two files open
    with Broker(folder, zookeeper=zookeeper or None, partitions=int(partitions)) as broker:
        print(broker.port, flush=True)
        threading.Event().wait()


def main(kind: str, *arguments: str) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if kind == "answers":
        _listen(_answer(encode_fetch_response(build_message_set(noise(*map(int, arguments))))))
    elif kind == "sink":
        _listen(_drop)
    elif kind == "broker":
        _broker(*arguments)
    else:
        sys.exit(f"no such server: {kind}")


# A Kafka broker of today, for confluent-kafka


@contextmanager
def kafka_of_today(classpath: str) -> Iterator[str]:
    """Its address: one node, KRaft, in a temporary folder, on the last core; RuntimeError with its log's end"""
    folder = Path(tempfile.mkdtemp(prefix="kafka07c-bench-kafka-"))
    port, controller = free_ports(2)
    settings = {
        "process.roles": "broker,controller", "node.id": 1, "controller.quorum.voters": f"1@{LOCALHOST}:{controller}",
        "listeners": f"PLAINTEXT://{LOCALHOST}:{port},CONTROLLER://{LOCALHOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{LOCALHOST}:{port}", "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "logs", "offsets.topic.replication.factor": 1, "num.partitions": 1,
        "transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1,
    }  # fmt: skip
    configuration = folder / "server.properties"
    configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = ["java", "-Xmx1g", "-cp", classpath]
    pin = ["taskset", "-c", str(max(os.sched_getaffinity(0)))] if shutil.which("taskset") else []
    log = folder / "kafka.log"
    try:
        with log.open("wb") as out:
            subprocess.run(
                [*java, "kafka.tools.StorageTool", "format", "-t", "kafka07cBenchClusterAA", "-c", configuration],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
            process = start_process(
                [*pin, *java, "kafka.Kafka", configuration], stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        try:
            deadline = time.monotonic() + _KAFKA_START
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the Kafka broker does not serve:\n" + log.read_text(errors="replace")[-2000:])
                time.sleep(0.2)
            yield f"{LOCALHOST}:{port}"
        finally:
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOCALHOST, port), timeout=1).close()
        return True
    except OSError:
        return False


if __name__ == "__main__":
    main(*sys.argv[1:])
