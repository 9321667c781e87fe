"""One connection: time-outs, cuts, lies about sizes, reconnecting; and questions that survive a lost connection."""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import struct
import threading
import tracemalloc

import pytest
from scripted_server import PATIENCE, Peer, ScriptedServer

import kafka07c.connection as connection_module
from kafka07c.connection import Connection, Dialogue
from kafka07c.errors import BrokerConnectionError, BrokerTimeoutError, ProtocolError

#: a time-out that a test waits for; the others never come near theirs
SOON = 0.2


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def connected(server: ScriptedServer, **options) -> Connection:
    connection = Connection("127.0.0.1", server.port, **options)
    connection.connect()
    return connection


def wait_readable(connection: Connection) -> None:
    """Until the kernel knows of bytes or of an end from the peer."""
    assert select.select([connection._socket], [], [], PATIENCE)[0]


def until_client_closes(peer: Peer) -> None:
    while peer.socket.recv(1 << 16):
        pass


def answers(data: bytes):
    """A script: take one question, send ``data``, close."""

    def script(peer: Peer) -> None:
        peer.read_raw()
        peer.send(data)

    return script


QUESTION = framed(b"what?")


# --- receiving


def test_frames_come_whole_and_in_order_when_the_peer_sends_one_byte_at_a_time():
    def script(peer: Peer) -> None:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in framed(b"first") + framed(b"second"):
            peer.send(bytes([byte]))

    with ScriptedServer(script) as server:
        connection = connected(server)
        assert bytes(connection.receive(100)) == b"first"
        assert bytes(connection.receive(100)) == b"second"
        connection.close()


def test_a_frame_is_the_callers_own_and_read_only():
    with ScriptedServer(answers(framed(b"one") + framed(b"two"))) as server:
        connection = connected(server)
        connection.send([QUESTION])
        one, two = connection.receive(100), connection.receive(100)
        connection.close()
        assert one.readonly
        assert (bytes(one), bytes(two)) == (b"one", b"two")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "closed the connection instead of answering"),
        (framed(b"x" * 50)[:2], "closed the connection after 2 bytes of an answer, with at least 2 missing"),
        (framed(b"x" * 50)[:4], "closed the connection after 4 bytes of an answer, with at least 50 missing"),
        (framed(b"x" * 50)[:30], "closed the connection after 30 bytes of an answer, with at least 24 missing"),
    ],
    ids=["at-once", "in-the-size", "after-the-size", "in-the-frame"],
)
def test_a_connection_that_ends_too_soon_says_where(data, match):
    with ScriptedServer(answers(data)) as server:
        connection = connected(server)
        connection.send([QUESTION])
        with pytest.raises(BrokerConnectionError, match=f"^broker 127.0.0.1:{server.port} {match}") as raised:
            connection.receive(100)
        assert not isinstance(raised.value, BrokerTimeoutError)
        assert not connection.is_open


def test_a_reset_connection_is_a_connection_error():
    def script(peer: Peer) -> None:
        peer.read_raw()
        peer.reset()

    with ScriptedServer(script) as server:
        connection = connected(server)
        connection.send([QUESTION])
        with pytest.raises(BrokerConnectionError, match=f":{server.port} broke off before it had answered: .*reset"):
            connection.receive(100)


@pytest.mark.parametrize("size", [0, -1, -(2**31), 101, 2**31 - 1])
def test_a_size_that_cannot_be_raises_before_memory_is_taken(size):
    with ScriptedServer(answers(struct.pack(">i", size))) as server:
        connection = connected(server)
        connection.send([QUESTION])
        tracemalloc.start()
        try:
            with pytest.raises(ProtocolError, match=f"127.0.0.1:{server.port}: a frame announces .*{size} bytes"):
                connection.receive(100)
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()
        assert not connection.is_open


@pytest.mark.parametrize("beginning", [b"", framed(b"abc")[:2], framed(b"abc")[:5]], ids=["silent", "size", "frame"])
def test_a_peer_that_stalls_is_a_time_out(beginning):
    def script(peer: Peer) -> None:
        peer.send(beginning)
        until_client_closes(peer)

    with ScriptedServer(script) as server:
        connection = connected(server, timeout=SOON)
        with pytest.raises(BrokerTimeoutError, match=f"127.0.0.1:{server.port} did not answer within 0.2 s"):
            connection.receive(100)
        assert not connection.is_open


def test_an_interrupt_closes_for_the_stream_has_lost_its_place():
    def interrupt(number, frame):
        raise KeyboardInterrupt

    def script(peer: Peer) -> None:
        peer.read_raw()
        peer.send(framed(b"never whole")[:7])
        os.kill(os.getpid(), signal.SIGUSR1)
        until_client_closes(peer)

    previous = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with ScriptedServer(script) as server:
            connection = connected(server)
            with pytest.raises(KeyboardInterrupt):
                connection.send([QUESTION])
                connection.receive(100)
            assert not connection.is_open
    finally:
        signal.signal(signal.SIGUSR1, previous)


# --- sending


def test_many_and_large_buffers_arrive_in_order():
    buffers = [bytes([i % 251]) * (i * 7 % 9000) for i in range(1500)] + [bytearray(3_000_000), memoryview(b"end")]
    expected = b"".join(buffers)
    arrived = []

    def script(peer: Peer) -> None:
        arrived.append(peer.read(len(expected)))

    with ScriptedServer(script) as server:
        connection = connected(server)
        connection.send(buffers)
        connection.close()
    assert arrived == [expected]


def test_a_peer_that_does_not_read_is_a_time_out():
    tested = threading.Event()
    with ScriptedServer(lambda peer: tested.wait(PATIENCE)) as server:
        connection = connected(server, timeout=SOON)
        with pytest.raises(BrokerTimeoutError, match=f"127.0.0.1:{server.port} did not take a request within 0.2 s"):
            connection.send([bytes(64 * 1024 * 1024)])
        tested.set()
        assert not connection.is_open


def test_sending_into_a_reset_connection_is_a_connection_error():
    with ScriptedServer(Peer.reset) as server:
        connection = connected(server)
        wait_readable(connection)
        with pytest.raises(BrokerConnectionError, match=f":{server.port} broke off while it was sent a request: "):
            connection.send([QUESTION])
        assert not connection.is_open


def test_a_connection_that_is_closed_sends_and_receives_nothing():
    connection = Connection("127.0.0.1", 9092)
    connection.close()
    with pytest.raises(BrokerConnectionError, match="broker 127.0.0.1:9092 is not connected"):
        connection.send([b"x"])
    with pytest.raises(BrokerConnectionError, match="broker 127.0.0.1:9092 is not connected"):
        connection.receive(100)


# --- has it been closed?


def test_peer_closed_sees_an_end_a_reset_and_life():
    connected_all = threading.Event()

    def reset_once_connected(peer):  # sooner, and connecting itself may fail
        connected_all.wait(10)
        peer.reset()

    with ScriptedServer(until_client_closes, lambda peer: None, reset_once_connected) as server:
        alive = connected(server)
        assert alive.peer_closed() is False
        assert alive.is_open and alive._socket.gettimeout() == alive.timeout
        for end in ("ended", "reset"):
            connection = connected(server)
            if end == "reset":
                connected_all.set()
            wait_readable(connection)
            assert connection.peer_closed() is True
            connection.close()
        alive.close()


def test_a_peer_that_speaks_unasked_is_no_0_7_broker():
    with ScriptedServer(lambda peer: peer.send(b"SSH-2.0-OpenSSH")) as server:
        connection = connected(server)
        wait_readable(connection)
        with pytest.raises(ProtocolError, match=f"127.0.0.1:{server.port} sent something unasked"):
            connection.peer_closed()
        assert not connection.is_open


# --- connecting


def test_a_port_where_nobody_listens_is_told_at_once(monkeypatch):
    monkeypatch.setattr(connection_module, "sleep", lambda seconds: pytest.fail("it waited"))
    port = free_port()
    with pytest.raises(BrokerConnectionError, match=f"broker 127.0.0.1:{port} cannot be reached: .*refused") as raised:
        Connection("127.0.0.1", port).connect()
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_host_that_does_not_take_connections_is_a_time_out():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for client in waiting:  # with its queue full, the kernel ignores who comes next
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        port = full.getsockname()[1]
        try:
            with pytest.raises(BrokerTimeoutError, match=f"127.0.0.1:{port} did not take a connection within 0.2 s"):
                Connection("127.0.0.1", port, connect_timeout=SOON).connect()
        finally:
            for client in waiting:
                client.close()


@pytest.mark.parametrize("failure", [socket.gaierror(-2, "Name not known"), None], ids=["unknown", "illegal"])
def test_a_host_name_that_leads_nowhere_is_a_connection_error(monkeypatch, failure):
    if failure is not None:  # asking a real name server would make the test depend on one

        def create_connection(address, timeout):
            raise failure

        monkeypatch.setattr(socket, "create_connection", create_connection)
    with pytest.raises(BrokerConnectionError, match=r"broker no\.\.such:9092 cannot be reached: "):
        Connection("no..such", 9092).connect()


def test_ipv6_literals_with_and_without_brackets():
    assert Connection("::1", 9092).name == Connection("[::1]", 9092).name == "[::1]:9092"
    assert Connection("[::1]", 9092).host == "::1"
    try:
        server = ScriptedServer(answers(framed(b"six")), host="::1")
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with server:
        connection = Connection("[::1]", server.port)
        connection.connect()
        connection.send([QUESTION])
        assert bytes(connection.receive(100)) == b"six"
        connection.close()


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("", 9092), {}),
        (("h", 0), {}),
        (("h", 65536), {}),
        (("h", 9092), {"timeout": 0}),
        (("h", 1), {"connect_timeout": -1}),
    ],
    ids=["no-host", "port-0", "port-65536", "timeout", "connect-timeout"],
)
def test_arguments_that_make_no_sense(arguments, options):
    with pytest.raises(ValueError, match="host|port|time-out"):
        Connection(*arguments, **options)


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        self.pauses: list[float] = []
        monkeypatch.setattr(connection_module, "monotonic", lambda: self.now)
        monkeypatch.setattr(connection_module, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def test_a_reconnect_tries_until_the_connect_timeout_with_growing_bounded_jittered_pauses(monkeypatch):
    with ScriptedServer(lambda peer: None) as server:
        connection = connected(server, connect_timeout=8.0)
    clock = Clock(monkeypatch)
    with pytest.raises(BrokerConnectionError, match="refused"):
        connection.connect()
    longest = [min(0.05 * 2**i, 1.0) for i in range(len(clock.pauses))]
    assert all(most / 2 <= pause <= most for pause, most in zip(clock.pauses, longest, strict=True))
    assert len(set(clock.pauses)) == len(clock.pauses)
    assert 7.0 <= sum(clock.pauses) <= 8.0


def test_a_reconnect_finds_a_broker_that_comes_back(monkeypatch):
    with ScriptedServer(lambda peer: None) as server:
        connection = connected(server)
    back = []
    monkeypatch.setattr(
        connection_module,
        "sleep",
        lambda seconds: back or back.append(ScriptedServer(answers(framed(b"back")), port=server.port)),
    )
    connection.connect()
    with back[0]:
        connection.send([QUESTION])
        assert bytes(connection.receive(100)) == b"back"
        connection.close()


# --- questions and answers


def dialogue_with(server: ScriptedServer, **options) -> Dialogue:
    return Dialogue(Connection("127.0.0.1", server.port, **options))


def echo(peer: Peer) -> None:
    while raw := peer.read_raw():
        peer.send(raw)


def ask(dialogue: Dialogue, *words: bytes) -> list:
    return [dialogue.ask(framed(word), 100) for word in words]


def test_answers_go_to_their_questions_in_whatever_order_they_are_wanted():
    with ScriptedServer(echo) as server:
        dialogue = dialogue_with(server)
        a, b, c = ask(dialogue, b"a", b"b", b"c")
        assert [bytes(dialogue.answer(q)) for q in (c, a, b)] == [b"c", b"a", b"b"]
        assert server.connections == 1
        dialogue.connection.close()


def test_questions_without_an_answer_are_asked_once_more_over_a_new_connection():
    again = []

    def answers_one_of_three(peer: Peer) -> None:
        for _ in range(3):
            raw = peer.read_raw()
            if raw.endswith(b"a"):
                peer.send(raw)
        peer.send(framed(b"b")[:3])

    def second(peer: Peer) -> None:
        while raw := peer.read_raw():
            again.append(raw[4:])
            peer.send(raw)

    with ScriptedServer(answers_one_of_three, second) as server:
        dialogue = dialogue_with(server)
        questions = ask(dialogue, b"a", b"b", b"c")
        assert [bytes(dialogue.answer(q)) for q in questions] == [b"a", b"b", b"c"]
        dialogue.connection.close()
    assert again == [b"b", b"c"]


def test_a_connection_that_ended_between_two_questions_is_made_anew():
    def one(peer: Peer) -> None:
        peer.send(peer.read_raw())

    with ScriptedServer(one, one) as server:
        dialogue = dialogue_with(server)
        for word in (b"first", b"second"):
            [question] = ask(dialogue, word)
            assert bytes(dialogue.answer(question)) == word
        assert server.connections == 2
        dialogue.connection.close()


def test_a_reset_found_while_asking_is_made_good():
    with ScriptedServer(Peer.reset, echo) as server:
        dialogue = dialogue_with(server)
        dialogue.connection.connect()
        wait_readable(dialogue.connection)
        [question] = ask(dialogue, b"still there?")
        assert bytes(dialogue.answer(question)) == b"still there?"
        dialogue.connection.close()


def test_the_second_loss_loses_all_questions_under_way_and_the_next_one_starts_anew():
    def takes_all(peer: Peer) -> None:
        peer.read_raw(), peer.read_raw()

    with ScriptedServer(takes_all, takes_all, echo) as server:
        dialogue = dialogue_with(server)
        a, b = ask(dialogue, b"a", b"b")
        with pytest.raises(BrokerConnectionError, match="closed the connection instead of answering"):
            dialogue.answer(a)
        with pytest.raises(BrokerConnectionError, match=f"broker 127.0.0.1:{server.port} was lost: .*closed"):
            dialogue.answer(b)
        [c] = ask(dialogue, b"c")
        assert bytes(dialogue.answer(c)) == b"c"
        dialogue.connection.close()


def test_what_timed_out_or_made_no_sense_is_not_asked_again():
    def stalls(peer: Peer) -> None:
        peer.read_raw()
        until_client_closes(peer)

    for script, error in ((stalls, BrokerTimeoutError), (answers(struct.pack(">i", -5)), ProtocolError)):
        with ScriptedServer(script) as server:
            dialogue = dialogue_with(server, timeout=SOON)
            [question] = ask(dialogue, b"?")
            with pytest.raises(error):
                dialogue.answer(question)
            with pytest.raises(BrokerConnectionError, match="was lost"):
                dialogue.answer(question)
            assert server.connections == 1


def test_a_broker_that_cannot_be_reached_leaves_no_question_behind():
    dialogue = Dialogue(Connection("127.0.0.1", free_port()))
    for _ in range(2):
        with pytest.raises(BrokerConnectionError, match="refused"):
            ask(dialogue, b"?")
    assert not dialogue._under_way


@pytest.mark.parametrize(("host", "port"), [("host", "9092"), (b"host", 9092), (None, 9092), ("host", 9092.0)])
def test_a_host_or_port_of_the_wrong_type_is_named(host, port):
    with pytest.raises(TypeError, match="text and a whole number, not") as caught:
        Connection(host, port)
    assert repr(host) in str(caught.value) and repr(port) in str(caught.value)
