"""A group on a cluster of its own: brokers, a producer and members as processes, and all that can be done to them.

::

    with ZooKeeper(tick_ms=200) as zookeeper, Stage(zookeeper, "g1", seed=7) as stage:
        first, second = stage.join(), stage.join(mode="batches")
        stage.wait_settled()
        stage.kill(first)
        stage.wait_settled()
        verdict = stage.finish()

The processes end with this one, however it ends.
"""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from faults import history
from faults.proxy import Proxy
from faults.stage import PATIENCE, BrokerStage, StageError
from faults.transactions import read_changes
from groups.checker import Verdict, check, read_logs
from groups.observer import member_of, observe
from kazoo.exceptions import KazooException

from kafka07c import Log, TopicPartition
from kafka07c.assignment import assign
from kafka07c.errors import KafkaError
from kafka07c.segments import find_logs
from kafka07c.subscription import Subscription
from kafka07c.testing import ZooKeeper
from kafka07c.zookeeper.groups import GroupPaths, make_member_id, read_members, read_offsets, read_owners

_HOST = "127.0.0.1"


@dataclass(eq=False)
class Member:
    """One consumer in a process, which may have several."""

    name: str
    process: subprocess.Popen
    proxy: Proxy | None = None  # between it and ZooKeeper

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None


class Stage(BrokerStage):
    """All of one group. ``name`` is the chroot's and the group's; ``session`` the members' session time-out.

    ``rate``: messages each second; the rest as in :class:`faults.stage.BrokerStage`. :meth:`finish` ends the run and
    checks it.
    """

    def __init__(self, zookeeper: ZooKeeper, name: str, *, seed: int, rate: float = 100.0, **options: Any):
        super().__init__(zookeeper, name, seed=seed, **options)
        self.group = name
        self.members: dict[str, Member] = {}
        self.settling: list[float] = []  # seconds from a change to owners as the algorithm says
        self._rate = rate
        self._producers: list[subprocess.Popen] = []

    def _begin(self) -> None:
        self.produce(self.topics, self._rate)

    def produce(self, topics: Iterable[str], rate: float) -> None:
        """Start a producer for these topics."""
        name = self._unused_name("producer")
        command = [
            sys.executable, "-m", "groups.producer", "--history", self.history, "--name", name,
            "--zookeeper", self.zookeeper, "--topics", ",".join(topics), "--rate", str(rate),
            "--seed", str(self.random.randrange(2**32)),
        ]  # fmt: skip
        self._producers.append(self.start(name, command))

    # members

    def join(self, **options: object) -> Member:
        """A process with a new member; ``options`` are those of :mod:`groups.member`."""
        return self.join_many(1, **options)[0]

    def join_behind_proxy(self, **options: object) -> Member:
        """A new member that has a proxy of its own between it and ZooKeeper (which is one server)."""
        host, _, port = self.servers.address.rpartition(":")
        proxy = Proxy(host, int(port))
        self._undo.callback(proxy.close)
        member = self.join(zookeeper=f"{_HOST}:{proxy.port}/{self.group}", **options)
        member.proxy = proxy
        return member

    def join_many(self, count: int, **options: object) -> list[Member]:
        """A process with ``count`` new members."""
        names = [self._unused_name("member") for _ in range(count)]
        if "pattern" not in options:
            options.setdefault("topics", ",".join(self.topics))
        command = [
            sys.executable, "-m", "groups.member", "--history", self.history, "--names", ",".join(names),
            "--group", self.group, "--session-ms", str(self.session_ms),
        ]  # fmt: skip
        options.setdefault("zookeeper", self.zookeeper)
        for option, value in options.items():
            command += [f"--{option.replace('_', '-')}", str(value)]
        process = self.start(names[0], command)
        joined = [Member(name, process) for name in names]
        self.members |= {member.name: member for member in joined}
        return joined

    def kill(self, member: Member) -> None:
        """``kill -9``."""
        self.kill_many([member])

    def kill_many(self, members: list[Member]) -> None:
        """``kill -9`` of the one process in which they all are."""
        for member in members:
            self.note_fault("kill -9", member.name)
            del self.members[member.name]
        members[0].process.kill()
        members[0].process.wait()

    def leave(self, member: Member) -> None:
        """It closes its consumer and ends, meanwhile."""
        self.note_fault("leave", member.name)
        member.process.terminate()
        del self.members[member.name]

    def stop(self, member: Member, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so long. Stopped past its session, it is out of the group in between."""
        past = seconds > self._past_session
        self.note_fault("stop past the session" if past else "stop", member.name)
        member.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        member.process.send_signal(signal.SIGCONT)

    def cut_off(self, member: Member, seconds: float) -> None:
        """Nothing goes between the member and ZooKeeper for so long, and no connection is closed."""
        past = seconds > self._past_session
        self.note_fault("cut off past the session" if past else "cut off", member.name)
        member.proxy.hold()
        time.sleep(seconds)
        member.proxy.let_go()

    @property
    def _past_session(self) -> float:
        """Seconds after which ZooKeeper has ended a silent session for certain: it looks once in a tick."""
        return self.session + 2 * self.servers._tick_ms / 1000

    def expire(self, member: Member) -> None:
        """End the session of a member that is alive: somebody else says good-bye in its name.

        The member may come back to its session in the instant between, and keep it: then it is done again.
        """
        while (session := self._session_of(member)) is not None:  # else it is about to register
            at = time.monotonic()
            end_session(self.servers.address, session)
            if self._session_of(member) != session:
                self.note_fault("session expiry", member.name, at)
                return
            self.note_fault("session taken over, and back", member.name, at)

    def member_of(self, thread: str) -> Member:
        """Whose thread it is."""
        return self.members[member_of(thread, self.group)]

    def _session_of(self, member: Member) -> int | None:
        stat = self._client.exists(GroupPaths(self.group).member(make_member_id(self.group, member.name)))
        return None if stat is None else stat.ephemeralOwner

    # what has come about

    def wait_settled(self, seconds: float = PATIENCE) -> float:
        """Wait until the owners are what the algorithm says for all members that run; the seconds that it took."""
        started = time.monotonic()
        self._wait(self.is_settled, seconds, self._unsettled)
        self.settling.append(time.monotonic() - started)
        return self.settling[-1]

    def _check_processes(self) -> None:
        for member in self.members.values():
            if not member.is_running:
                raise StageError(f"{member.name} ended by itself:\n{self.told(member.name)}")

    def is_settled(self) -> bool:
        try:
            return self.wanted_owners() == self.owners()
        except (KafkaError, KazooException, TimeoutError):
            return False  # ZooKeeper is busy electing

    def owners(self) -> dict[TopicPartition, str]:
        """The thread that owns each partition."""
        return {tp: owner.thread for tp, owner in read_owners(self._client, self.group).items()}

    def wanted_owners(self) -> dict[TopicPartition, str] | None:
        """The same as the algorithm has it; None while other members are registered than those that run."""
        members = read_members(self._client, self.group)
        if members.keys() != {make_member_id(self.group, name) for name in self.members}:
            return None
        subscriptions = {member: Subscription.decode(data) for member, data in members.items()}
        wanted = {}
        for topic in self.cluster.topics:
            partitions = {tp.name: tp for tp in self.cluster.partitions(topic)}
            threads = [f"{name}-{n}" for name, each in subscriptions.items() for n in range(each.threads_for(topic))]
            for thread, names in assign(partitions, threads).items():
                wanted |= {partitions[name]: thread for name in names}
        return wanted

    def _unsettled(self) -> str:
        try:
            wanted, owners = self.wanted_owners(), self.owners()
        except (KafkaError, KazooException) as error:
            return f"the group is not balanced, and cannot be read: {error}"
        if wanted is None:
            return f"members are {sorted(read_members(self._client, self.group))}, not {sorted(self.members)}"
        differing = {str(tp): (wanted.get(tp), owners.get(tp)) for tp in wanted.keys() | owners.keys()}
        return f"owners wanted, and found: { {tp: pair for tp, pair in differing.items() if pair[0] != pair[1]} }"

    def is_drained(self) -> bool:
        """Whether all that is in the logs is committed."""
        try:
            committed = read_offsets(self._client, self.group)
        except (KafkaError, KazooException, TimeoutError):
            return False
        return all(self._is_committed(committed, tp, end) for tp, end in self._log_ends().items())

    @staticmethod
    def _is_committed(committed, tp: TopicPartition, end: int) -> bool:
        return end == (committed[tp].offset if tp in committed else 0)

    def _log_ends(self) -> dict[TopicPartition, int]:
        ends = {}
        for broker in self.brokers:
            for directory in find_logs(broker.log_dir):
                log = Log(directory)
                ends[TopicPartition(log.topic, broker.number, log.partition)] = log.flushed_offset
        return ends

    def _undrained(self) -> str:
        committed = read_offsets(self._client, self.group)
        ends = self._log_ends()
        late = [tp for tp, end in ends.items() if not self._is_committed(committed, tp, end)]
        return f"committed, and the log's end: { {str(tp): (committed.get(tp), ends[tp]) for tp in late} }"

    def finish(self, *, new_owner: float | None = None) -> Verdict:
        """End the producers, let the members read all there is, end them, and check what has happened.

        ``new_owner``: see :func:`groups.checker.check`.
        """
        for producer in self._producers:
            producer.terminate()
            producer.wait(PATIENCE)
        late: str | None = None
        try:
            self._wait(self.is_drained, PATIENCE, self._undrained)
        except StageError as error:
            late = str(error)
        for member in self.members.values():
            member.process.terminate()
        for member in list(self.members.values()):
            try:
                member.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                late = f"{member.name} does not end:\n{self.told(member.name)}"
        self.members.clear()
        for broker in self.brokers:
            broker.kill()
        verdict = self.verdict(new_owner=new_owner)
        if late is not None:
            verdict.violations["not in time"].append(late)
        return verdict

    def verdict(self, *, new_owner: float | None = None) -> Verdict:
        logs = {}
        for broker in self.brokers:
            logs |= read_logs(broker.log_dir, broker.number)
        changes = read_changes(node.folder for node in self.servers._nodes)
        events = history.read(self.history) + observe(changes, self.group, f"/{self.group}")
        events.sort(key=lambda event: event.at)
        return check(events, logs, session=self.session, new_owner=new_owner)


def end_session(address: str, session: int) -> None:
    """Connect to a ZooKeeper server as the owner of a session, and close it."""
    host, _, port = address.rpartition(":")
    # protocol, last change seen, time-out, session, password, may be read-only; then number 1, closeSession
    connect_request = struct.pack(">iqiqi16s?", 0, 0, 10_000, session, 16, session_password(session), False)
    close_request = struct.pack(">ii", 1, -11)
    with socket.create_connection((host, int(port)), PATIENCE) as sock:
        for request in (connect_request, close_request):
            sock.sendall(struct.pack(">i", len(request)) + request)
        while sock.recv(4096):
            pass


def session_password(session: int) -> bytes:
    """The password of a session: ZooKeeper's servers work it out of the id (``ZooKeeperServer.generatePasswd``).

    It is what ``java.util.Random`` gives for a seed of the id and a constant.
    """
    mask = (1 << 48) - 1
    state = (session ^ 0xB3415C00 ^ 0x5DEECE66D) & mask
    password = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & mask
        password += (state >> 16 & 0xFFFFFFFF).to_bytes(4, "little")
    return password
