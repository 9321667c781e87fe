"""Ctrl-C: every command that may have to wait ends by it at once, without a trace, and what it had printed is whole."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading

import pytest

from kafka07c import build_message_set

from group_cluster import PATIENCE

COMMAND = [sys.executable, "-m", "kafka07c"]


class Silent:
    """Somebody who takes connections, listens, and never says a word."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self.spoken_to = threading.Event()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            self._open.append(connection)
            self._threads.append(threading.Thread(target=self._listen, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _listen(self, connection: socket.socket) -> None:
        try:
            while connection.recv(1 << 16):
                self.spoken_to.set()
        except OSError:
            pass

    def close(self) -> None:
        for each in (self._listener, *self._open):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def silent():
    peer = Silent()
    yield peer
    peer.close()


#: what waits for ZooKeeper or a broker, whose address goes behind it; and what it ends with
WAITING = [
    ("topics --zookeeper", 130),
    ("brokers --zookeeper", 130),
    ("groups --zookeeper", 130),
    ("lag -g g --zookeeper", 130),
    ("verify-rebalance -g g --zookeeper", 130),
    ("offsets show -g g --zookeeper", 130),
    ("offsets export --zookeeper", 130),
    ("offsets reset -g g --all-topics --to latest --zookeeper", 130),
    ("offsets before latest -t t --zookeeper", 130),
    ("offsets before latest -t t -b", 130),
    ("cat -t t -b", 130),
    ("metrics", 130),
    ("metrics --interval 1", 0),  # it runs until then
    ("perf fetch -t t -b", 130),
    ("broker --port 0 --log-dir {folder} --zookeeper", 0),
]


@pytest.mark.parametrize(("line", "code"), WAITING)
def test_while_it_waits_for_an_answer(line, code, silent, tmp_path):
    arguments = line.format(folder=tmp_path / "logs").split()
    process = subprocess.Popen(
        [*COMMAND, *arguments, silent.address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert silent.spoken_to.wait(PATIENCE)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == code, err
    assert out == "" and "Traceback" not in err and "Exception" not in err


def test_dump_ends_with_a_whole_line(tmp_path):
    path = tmp_path / f"{0:020d}.kafka"
    path.write_bytes(build_message_set([b"%d" % number for number in range(200_000)]))
    whole = subprocess.run([*COMMAND, "dump", str(path)], capture_output=True, timeout=PATIENCE * 2).stdout
    process = subprocess.Popen([*COMMAND, "dump", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    try:
        begin = process.stdout.read(1000)  # the pipe holds a part of the rest, and then the command waits
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    printed = begin + out
    assert (process.returncode, err) == (130, b"")
    assert whole.startswith(printed) and printed.endswith(b"\n") and len(printed) < len(whole)
