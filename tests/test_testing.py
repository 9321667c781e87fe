"""The ZooKeeper for tests, tested: it starts, it serves, and nothing of it is left."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kafka07c import testing
from kafka07c.errors import ZooKeeperError
from kafka07c.testing import ZooKeeper, start_process
from kafka07c.zookeeper import session

pytestmark = pytest.mark.zookeeper


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_one_server_keeps_its_data_over_a_restart_and_leaves_nothing():
    with ZooKeeper() as zookeeper:
        folder, address = zookeeper._folder, zookeeper.address
        process = zookeeper._nodes[0].process
        with session(address) as client:
            client.create("/kept", b"data")
        assert zookeeper.leader == 0
        zookeeper.kill()
        assert zookeeper.leader is None
        with pytest.raises(ZooKeeperError, match=f"{address}: connecting"), session(address, timeout=0.5):
            pass
        zookeeper.restart()
        assert zookeeper.address == address
        with session(address) as client:
            assert client.get("/kept")[0] == b"data"
        assert "binding to port" in zookeeper.log()
    assert not folder.exists()
    assert not is_running(process.pid)
    zookeeper.stop()


def test_an_ensemble_goes_on_without_its_leader():
    with ZooKeeper(nodes=3) as zookeeper:
        assert zookeeper.address.count(",") == 2
        first = zookeeper.leader
        with session(zookeeper.address) as client:
            client.create("/kept", b"data")
        zookeeper.kill(first)
        wait_until(lambda: zookeeper.leader not in (None, first))
        with session(zookeeper.address, timeout=30) as client:
            assert client.get("/kept")[0] == b"data"
        zookeeper.restart(first)
        assert zookeeper._nodes[first].mode == "follower"


def test_a_port_that_somebody_else_takes_meanwhile(monkeypatch):
    really_free = testing.free_ports
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answers = iter([[taken.getsockname()[1], *really_free(2)]])
        monkeypatch.setattr(testing, "free_ports", lambda count: next(answers, None) or really_free(count))
        with ZooKeeper() as zookeeper:
            assert zookeeper.leader == 0
            assert not zookeeper.address.endswith(f":{taken.getsockname()[1]}")


def test_another_zookeeper_on_the_port_is_not_taken_for_ours(monkeypatch):
    really_free = testing.free_ports
    with ZooKeeper() as other:
        port = int(other.address.rpartition(":")[2])
        answers = iter([[port, *really_free(2)]])
        monkeypatch.setattr(testing, "free_ports", lambda count: next(answers, None) or really_free(count))
        with ZooKeeper() as zookeeper:
            assert zookeeper.address != other.address


def test_a_server_that_does_not_start_shows_its_log(monkeypatch):
    monkeypatch.setattr(testing, "_JAVA_OPTIONS", ("-XX:NoSuchOption",))
    zookeeper = ZooKeeper()
    with pytest.raises(ZooKeeperError, match="(?s)ended with code 1.*NoSuchOption"):
        zookeeper.start()
    assert zookeeper._folder is None


def test_it_ends_with_a_process_that_is_killed():
    program = (
        "import sys; from kafka07c.testing import ZooKeeper\n"
        "z = ZooKeeper().start(); print(z._nodes[0].process.pid, z._folder, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pid, folder = parent.stdout.readline().split()
    try:
        assert is_running(int(pid))
        os.kill(parent.pid, signal.SIGKILL)
        parent.communicate()
        wait_until(lambda: not is_running(int(pid)))
    finally:
        shutil.rmtree(folder)


def test_a_process_outlives_the_thread_that_started_it():
    started = []
    thread = threading.Thread(target=lambda: started.append(start_process(["/bin/sleep", "60"])))
    thread.start()
    thread.join()
    (process,) = started
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
    finally:
        process.kill()
        process.wait()


def test_a_program_that_is_not_there():
    with pytest.raises(FileNotFoundError, match="/does/not/exist"):
        start_process(["/does/not/exist"])


def test_the_interoperability_tests_say_what_they_need():
    environment = {name: value for name, value in os.environ.items() if name != "KAFKA07_CLASSPATH"}
    reasons = {" ": "needs a real Kafka 0.7.2", "/no/such.jar": "names what is not there: /no/such.jar"}
    for class_path, reason in reasons.items():
        done = subprocess.run(
            [sys.executable, "-m", "pytest", Path(__file__).parent / "interop", "-p", "no:cacheprovider"],
            env=environment | {"KAFKA07_CLASSPATH": class_path}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 2
        assert reason in done.stdout + done.stderr
