"""Consumers of ours and 0.7.2's console consumers in one group on a real 0.7.2 broker: nothing is left out.

They join, leave and are killed on both sides; each time the owner nodes have to be what the algorithm says, and all
that was produced has to come out, whoever has the partitions. What the consumers of the other kind have committed is
where the next owner goes on.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from faults import history
from interop.scala07 import SECONDS, ConsoleConsumer, wait_until

from kafka07c import SyncProducer
from kafka07c.group_state import read_group
from kafka07c.testing import start_process

TESTS = Path(__file__).parent.parent
PARTITIONS = 4


class MixedGroup:
    """A group, its producer, and what its members were given."""

    def __init__(self, jvm, zookeeper, broker, folder: Path, stack: ExitStack):
        self._jvm = jvm
        self._zookeeper = zookeeper
        self._folder = folder
        self._stack = stack
        self._producer = stack.enter_context(SyncProducer(broker.host, broker.port))
        self._consoles: list[ConsoleConsumer] = []
        self._names = itertools.count()
        self._produced: list[bytes] = []
        self.members = 0
        for partition in range(PARTITIONS):
            self._producer.send("clicks", partition, [])

    def join(self) -> subprocess.Popen:
        """A consumer of ours, in a process."""
        command = [
            sys.executable, "-m", "groups.member", "--history", self._folder, "--names", f"ours-{next(self._names)}",
            "--zookeeper", self._zookeeper, "--group", "g", "--topics", "clicks", "--session-ms", "3000",
        ]  # fmt: skip
        process = start_process(command, stdin=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(TESTS)})
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        self.members += 1
        return process

    def join_console(self) -> ConsoleConsumer:
        """A JVM consumer."""
        console = ConsoleConsumer(
            self._jvm, self._zookeeper, "clicks", "--group", "g", "--autocommit.interval.ms", 200, from_beginning=False
        )
        self._stack.callback(console.end)
        self._consoles.append(console)
        self.members += 1
        return console

    def settle(self) -> None:
        """Wait until each partition has the owner that the algorithm gives it."""

        def is_settled() -> bool:
            group = read_group(self._zookeeper, "g")
            return (
                group is not None
                and len(group.members) == self.members
                and len(group.owners) == PARTITIONS
                and not group.problems()
            )

        wait_until(is_settled, f"{self.members} members to share the partitions")

    def produce(self) -> None:
        """Twenty messages to each partition, plain and in wrappers."""
        for codec, partition in itertools.product(("none", "gzip"), range(PARTITIONS)):
            ids = [b"%d" % number for number in range(len(self._produced), len(self._produced) + 10)]
            self._producer.send("clicks", partition, ids, codec)
            self._produced += ids

    def delivered(self) -> Counter[bytes]:
        """How many times each message was given to a member."""
        counts = Counter(line for console in self._consoles for line in console.lines)
        for event in history.read(self._folder):
            if event.what == "delivered":
                counts.update(identity.encode() for _, _, identity in event["records"])
        return counts

    def wait_for_all(self) -> None:
        wanted = set(self._produced)
        wait_until(lambda: self.delivered().keys() >= wanted, "all that was produced to be delivered")

    def repeated(self) -> int:
        return sum(count - 1 for count in self.delivered().values())


@pytest.fixture
def group(jvm, zookeeper, real_broker, tmp_path):
    with ExitStack() as stack:
        broker = stack.enter_context(real_broker(zookeeper, num_partitions=PARTITIONS))
        folder = tmp_path / "history"
        folder.mkdir()
        yield MixedGroup(jvm, zookeeper, broker, folder, stack)


def test_all_is_delivered_whoever_comes_and_goes(group):
    def go_on():
        group.settle()
        group.produce()
        group.wait_for_all()

    def leave(process):
        group.members -= 1
        process.terminate()
        process.wait(SECONDS)

    def end_console(console, with_signal):
        group.members -= 1
        console.end(with_signal)

    first = group.join()
    go_on()
    console = group.join_console()
    go_on()
    second = group.join()
    go_on()
    other_console = group.join_console()
    go_on()

    group.produce()  # what a member of ours was doing when it is killed comes again
    group.members -= 1
    first.send_signal(signal.SIGKILL)
    go_on()

    # A JVM member counts what it is just printing as handled; so it is killed when it has nothing.
    end_console(other_console, signal.SIGKILL)
    go_on()
    third = group.join()
    go_on()
    end_console(console, signal.SIGTERM)
    go_on()
    last_console = group.join_console()
    go_on()
    before = group.repeated()
    leave(second)
    go_on()
    leave(third)  # only theirs now
    go_on()
    group.join()
    group.settle()
    end_console(last_console, signal.SIGTERM)  # and only ours
    go_on()
    assert group.repeated() == before  # who leaves commits: the next owner, of the other kind, repeats nothing
