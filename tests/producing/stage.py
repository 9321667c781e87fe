"""Senders on a cluster of their own, and what can be done to the brokers under them.

::

    with ZooKeeper(tick_ms=200) as zookeeper, Stage(zookeeper, "s1", seed=7, senders=[{"verify": True}]) as stage:
        stage.wait_written()
        stage.kill_broker(stage.brokers[0])
        stage.brokers[0].start()
        stage.wait_written()
        verdict = stage.finish()
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from faults import history
from faults.history import Event
from faults.stage import PATIENCE, BrokerProcess, BrokerStage, StageError
from faults.transactions import Change, read_changes
from producing.checker import Verdict, check, read_stored

from kafka07c.testing import ZooKeeper
from kafka07c.zookeeper import BROKER_IDS


@dataclass(eq=False)
class Sender:
    """A process with a Producer and its threads."""

    name: str
    options: Mapping[str, Any]
    process: subprocess.Popen


class Stage(BrokerStage):
    """``senders``: the options (of :mod:`producing.sending`) of each that is to be there from the beginning.

    ``rate``: messages each second, of each. The rest as in :class:`faults.stage.BrokerStage`.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        name: str,
        *,
        seed: int,
        senders: Iterable[Mapping[str, Any]],
        rate: float = 200.0,
        **options: Any,
    ):
        super().__init__(zookeeper, name, seed=seed, **options)
        self.senders: list[Sender] = []
        self.recovering: list[float] = []  # seconds until every sender got through again to a broker that was away
        self._rate = rate
        self._wanted = list(senders)

    def _begin(self) -> None:
        self.wait_for_topics(dict.fromkeys(self.topics, sum(broker.partitions for broker in self.brokers)))
        for options in self._wanted:
            self.send(**options)

    # senders

    def send(self, **options: object) -> Sender:
        """A process that sends; what is True is a flag."""
        name = self._unused_name("sender")
        command = [
            sys.executable, "-m", "producing.sending", "--history", self.history, "--name", name,
            "--zookeeper", self.zookeeper, "--topics", ",".join(self.topics), "--rate", str(self._rate),
            "--seed", str(self.random.randrange(2**32)),
        ]  # fmt: skip
        for option, value in options.items():
            if value is not False:
                command += [f"--{option.replace('_', '-')}"] + ([] if value is True else [str(value)])
        sender = Sender(name, options, self.start(name, command))
        self.senders.append(sender)
        return sender

    def kill_sender(self, sender: Sender) -> None:
        """``kill -9``: what it was not told is open."""
        self.note_fault("sender killed", sender.name)
        self.senders.remove(sender)
        sender.process.kill()
        sender.process.wait()

    def _check_processes(self) -> None:
        for sender in self.senders:
            if sender.process.poll() is not None:
                raise StageError(f"{sender.name} ended by itself:\n{self.told(sender.name)}")

    # brokers

    def bounce(self, broker: BrokerProcess, seconds: float) -> None:
        """A clean stop, and a start after so long."""
        self.note_fault("broker bounced", broker.name)
        broker.terminate()
        time.sleep(seconds)
        broker.start()

    # what has come about

    def wait_written(self, broker: BrokerProcess | None = None) -> None:
        """Wait until each sender has been told of something more that is there, on this broker or on any."""
        started = time.monotonic()
        places = {sender.name: self._size(sender.name) for sender in self.senders}
        number = r"\d+" if broker is None else broker.number
        told = re.compile(rf'"what":"told".*"state":"(written|verified)","partition":("\S+ {number}-\d+"|null)')

        def all_told() -> bool:
            for name in list(places):
                with (self.history / f"{name}{history.SUFFIX}").open() as lines:
                    lines.seek(places[name])
                    if told.search(lines.read()):
                        del places[name]
            return not places

        self._wait(all_told, PATIENCE, lambda: f"{', '.join(places)} did not get through to {broker or 'any broker'}")
        self.recovering.append(time.monotonic() - started)

    def _size(self, name: str) -> int:
        path = self.history / f"{name}{history.SUFFIX}"
        if not path.exists():
            path.touch()
        return path.stat().st_size

    def finish(self) -> Verdict:
        """End the senders, then the brokers, and check what has happened."""
        late = []
        for sender in self.senders:
            sender.process.terminate()
        for sender in self.senders:
            try:
                code = sender.process.wait(2 * PATIENCE)
            except subprocess.TimeoutExpired:
                late.append(f"{sender.name} does not end:\n{self.told(sender.name)}")
            else:
                if code:
                    late.append(f"{sender.name} ended with {code}:\n{self.told(sender.name)}")
        self.senders.clear()
        for broker in self.brokers:
            broker.kill()
        verdict = self.verdict()
        if late:
            verdict.violations["not in time"] += late
        return verdict

    def verdict(self) -> Verdict:
        stored = [each for broker in self.brokers for each in read_stored(broker.log_dir, broker.number)]
        changes = read_changes(node.folder for node in self.servers._nodes)
        events = history.read(self.history) + gone(changes, f"/{self.name}")
        return check(sorted(events, key=lambda event: event.at), stored)


def gone(changes: Iterable[Change], chroot: str) -> list[Event]:
    """When brokers went from ZooKeeper."""
    since_1970 = time.time() - time.monotonic()
    registered: dict[str, int] = {}  # path -> session
    events = []
    for change in changes:
        if change.path is None:
            ended = [path for path, session in registered.items() if session == change.session]
        elif not change.path.startswith(f"{chroot}{BROKER_IDS}/"):
            continue
        elif change.data is None:
            ended = [change.path]
        else:
            registered[change.path] = change.session
            continue
        for path in ended:
            if registered.pop(path, None) is not None:
                number = path.rpartition("/")[2]
                at = change.time_ms / 1000 - since_1970
                events.append(Event(at, "gone", "observer", {"target": f"broker {number}"}))
    return events
