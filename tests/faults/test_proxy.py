"""The proxy: each fault is seen by a client as what it is called, and without one nothing changes."""

from __future__ import annotations

import random
import socket
import threading
import time

import pytest
from faults.proxy import Plan, Proxy

ANSWER = bytes(range(256)) * 40


@pytest.fixture
def server():
    """Sends ANSWER for each byte that it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(sock):
            with sock:
                try:
                    while data := sock.recv(100):
                        sock.sendall(ANSWER * len(data))
                except OSError:
                    pass

        def accept():
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(sock,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def faults():
    return []


@pytest.fixture
def proxy(server, faults):
    with Proxy(*server, on_fault=lambda plan: faults.append(plan.kind)) as proxy:
        yield proxy


class Client:
    """Asks once, and reads what comes."""

    def __init__(self, proxy):
        self.socket = socket.create_connection(("127.0.0.1", proxy.port), 10)

    def ask(self):
        self.socket.sendall(b"?")

    def read(self, count=len(ANSWER)):
        data = b""
        while len(data) < count and (more := self.socket.recv(count - len(data))):
            data += more
        return data

    def __enter__(self):
        self.ask()
        return self

    def __exit__(self, *exc_info):
        self.socket.close()


def test_nothing_is_planned(proxy, faults):
    with Client(proxy) as client, Client(proxy) as other:
        assert client.read() == other.read() == ANSWER
        client.ask()
        assert client.read() == ANSWER
    assert proxy.connections == 2
    assert not faults


@pytest.mark.parametrize("at", [0, 1, 3, 1000])
def test_cut(proxy, faults, at):
    proxy.script(Plan(cut_at=at))
    with Client(proxy) as client:
        assert client.read() == ANSWER[:at]
    with Client(proxy) as client:
        assert client.read() == ANSWER
    assert faults == ["cut at a byte"]


def test_cut_in_a_later_answer(proxy, faults):
    proxy.script(Plan(cut_at=len(ANSWER) + 5))
    with Client(proxy) as client:
        assert client.read() == ANSWER
        assert not faults
        client.ask()
        assert client.read() == ANSWER[:5]
    assert faults == ["cut at a byte"]


@pytest.mark.parametrize("at", [0, 7])
def test_reset(proxy, faults, at):
    proxy.script(Plan(reset_at=at))
    with Client(proxy) as client, pytest.raises(ConnectionResetError):
        client.read(at)  # an RST overtakes what was not read yet
        client.read()
    assert faults == ["reset at a byte"]


def test_slices(proxy, faults):
    proxy.script(Plan(sliced=50))
    with Client(proxy) as client:
        pieces = [client.socket.recv(len(ANSWER))]
        while sum(map(len, pieces)) < len(ANSWER):
            pieces.append(client.socket.recv(len(ANSWER)))
    assert b"".join(pieces) == ANSWER
    assert len(pieces[0]) < 50
    assert faults == ["sliced to one byte"]


@pytest.mark.parametrize("at", [0, 1, 3])
def test_what_is_asked_is_swallowed_and_then_the_connection_reset(proxy, faults, at):
    proxy.script(Plan(swallow_at=at))
    with Client(proxy) as client:
        for _ in range(4):
            client.ask()
        with pytest.raises(ConnectionResetError):
            while client.read(len(ANSWER) * at):
                pass
            client.read()  # an answer to nothing
    assert faults == ["swallowed from a byte"]


def test_what_is_swallowed_never_arrives():
    with socket.create_server(("127.0.0.1", 0)) as listener, Proxy(*listener.getsockname()) as proxy:
        proxy.script(Plan(swallow_at=5))
        with Client(proxy) as client:
            server, _ = listener.accept()
            client.socket.sendall(b"123456789")
            arrived = b""
            with server:
                try:
                    while data := server.recv(100):
                        arrived += data
                except ConnectionResetError:
                    pass
    assert arrived == b"?1234"


def test_delay(proxy, faults):
    proxy.script(Plan(delay=0.2))
    started = time.monotonic()
    with Client(proxy) as client:
        assert client.read() == ANSWER
    assert time.monotonic() - started >= 0.2
    assert faults == ["delayed"]


def test_no_answer_ever(proxy, faults):
    proxy.script(Plan(silent=True))
    with Client(proxy) as client:
        client.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.read()
    assert faults == ["never answered"]


def test_hold_and_let_go(proxy):
    with Client(proxy) as client:
        assert client.read() == ANSWER
        proxy.hold()
        client.ask()
        client.socket.settimeout(0.3)
        with Client(proxy) as another, pytest.raises(TimeoutError):
            another.socket.settimeout(0.3)
            another.read()
        with pytest.raises(TimeoutError):
            client.read()
        proxy.let_go()
        client.socket.settimeout(10)
        assert client.read() == ANSWER


def test_reset_of_all(proxy):
    with Client(proxy) as client, Client(proxy) as other:
        assert client.read() == other.read() == ANSWER
        assert proxy.reset() == 2
        for each in (client, other):
            with pytest.raises(ConnectionResetError):
                each.read()


def test_nobody_behind_it():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    with Proxy(host, port) as proxy, Client(proxy) as client:
        try:
            assert client.read() == b""
        except ConnectionResetError:
            pass  # the question was not read


def test_drawn_plans_are_of_every_kind_and_the_same_for_a_seed():
    plans = [Plan.drawn(random.Random(seed)) for seed in range(60)]
    assert plans == [Plan.drawn(random.Random(seed)) for seed in range(60)]
    kinds = {"cut at a byte", "reset at a byte", "sliced to one byte", "delayed", "never answered"}
    assert {plan.kind for plan in plans} == kinds
    swallowing = {Plan.drawn(random.Random(seed), swallowing=True).kind for seed in range(60)}
    assert swallowing == kinds | {"swallowed from a byte"}
