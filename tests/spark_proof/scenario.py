"""A stream under ``kill -9``: rows are sent in rounds, and in each of them a process of the driver is killed.

The moments, and what is killed, come from the seed. When all rounds are over a last driver reads to the end, and what
came out is held against what was sent.
"""

from __future__ import annotations

import json
import random
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from faults.soak import note
from faults.stage import PATIENCE, BrokerProcess, BrokerStage, StageError

from kafka07c import SyncProducer
from kafka07c.testing import ZooKeeper
from spark_proof import outputs, processes
from spark_proof.messages import SIZE, Tally, payloads, tally, tally_sent

TOPIC, COPY = "clicks", "copy"

#: messages in one request of the sender
_PER_SEND = 2_000

#: seconds in which the kill comes: after the first batches of a driver have ended, or after they have begun
_WINDOW, _EARLY = (0.0, 3.0), (0.0, 6.0)

#: how many of the kills are to be early ones; after such a one the next driver has the same batches to do again
_EARLY_PART = 0.3

#: seconds for a driver to start, and to end or read to its end
_STARTING, _ENDING = 180.0, 1800.0

#: drivers that may give up one after the other
_STARTS = 20

#: seconds for which a broker is away; connecting is tried for five of them by itself
_AWAY = (6.0, 15.0)

_BROKER = {"log.file.size": 64 << 20, "log.flush.interval": 50_000, "log.default.flush.scheduler.interval.ms": 50}


@dataclass
class Killed:
    """What was killed when: ``seconds`` after the driver had begun, and which batches had begun and not ended."""

    what: str
    seconds: float
    under_way: list[str]


@dataclass
class Outcome:
    """Of one kind of output: what is there, held against what was sent."""

    kind: str
    sent: Tally
    found: Tally

    @property
    def ok(self) -> bool:
        """The topic may have repeats, the files may not."""
        if self.kind == "topic":
            return (self.found.foreign, self.found.digest_of_distinct) == (0, self.sent.digest_of_distinct)
        return self.found == self.sent


@dataclass
class Run:
    """``rows`` through queries of ``kinds`` side by side, with so many ``kills``, each "java", "worker" or "broker".

    A broker comes back after some seconds, and the driver is to live through it.
    """

    seed: int
    rows: int
    kinds: Sequence[str]
    kills: Sequence[str]
    max_bytes: int
    killed: list[Killed] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    #: drivers that ended by themselves
    gave_up: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return bool(self.outcomes) and all(outcome.ok for outcome in self.outcomes)

    def perform(self, zookeeper: ZooKeeper, keep: Path | None = None) -> Run:
        """All of it; ``keep``: where to put everything if it goes wrong."""
        began = time.monotonic()
        name = f"spark-{'-'.join(self.kinds)}-{self.seed}"
        with BrokerStage(
            zookeeper, name, seed=self.seed, brokers=2, partitions=1, topics=(TOPIC, COPY), broker_properties=_BROKER
        ) as stage:
            self._random = random.Random(name)
            self._stage = stage
            try:
                self._go_through_rounds()
                self.outcomes = [self._judge(kind) for kind in self.kinds]
            finally:
                self.seconds = time.monotonic() - began
                if keep is not None and not self.ok:
                    stage.keep(keep)
        return self

    # rounds

    def _go_through_rounds(self) -> None:
        shares = [self.rows * place // (len(self.kills) + 1) for place in range(len(self.kills) + 2)]
        for what, first, end in zip(self.kills, shares, shares[1:]):
            sender = threading.Thread(target=self._send, args=(first, end))
            sender.start()
            if what == "broker":
                sender.join()  # 0.7 does not say what it has taken: what was on its way might be lost
            self._run_and_kill(what)
            sender.join()
        self._send(shares[-2], shares[-1])
        self._run_to_the_end()

    def _send(self, first: int, end: int) -> None:
        """The numbers in this range: to one broker, then to the other."""
        producers = [SyncProducer("127.0.0.1", broker.port) for broker in self._stage.brokers]
        for start in range(first, end, _PER_SEND):
            rows = payloads(start, min(_PER_SEND, end - start))
            column = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(SIZE), len(rows), [None, pa.py_buffer(rows.tobytes())]
            )
            producers[start // _PER_SEND % 2].send(TOPIC, 0, column.cast(pa.binary()))
        for producer in producers:
            producer.close()

    def _start_driver(self, last: bool) -> subprocess.Popen:
        spec = {
            "zookeeper": self._stage.zookeeper, "topic": TOPIC, "copy": COPY, "folder": str(self._stage.folder),
            "kinds": list(self.kinds), "max_bytes": self.max_bytes, "last": last,
            # with more than one try a task that lost its worker is run again, and the query need not end
            "master": self._random.choice(["local[2]", "local[2,3]"]),
        }  # fmt: skip
        path = self._stage.folder / "spec.json"
        path.write_text(json.dumps(spec))
        command = [sys.executable, "-m", "spark_proof.driver", str(path)]
        return self._stage.start("driver", command, stdout=subprocess.PIPE, bufsize=0)

    def _run_and_kill(self, what: str) -> None:
        early = what != "broker" and self._random.random() < _EARLY_PART
        driver = self._started("begun" if early else "ended")
        try:
            pause = self._random.uniform(*(_EARLY if early else _WINDOW))
            time.sleep(pause)
            under_way = self._batches_under_way()
            if what == "broker":
                self._bounce(self._random.choice(self._stage.brokers), self._random.uniform(*_AWAY))
                self.killed.append(Killed(what, round(pause, 2), under_way))
                self._see_that_it_lives(driver)
                return
            victim = processes.java(driver.pid) if what == "java" else self._worker(driver.pid)
            if victim is None or not victim.kill():
                raise StageError(f"there was no {what} to kill:\n{self._stage.told('driver')}")
            self.killed.append(Killed(what, round(pause, 2), under_way))
            note(f"{what} killed; batches under way: {', '.join(under_way) or 'none'}")
            if what == "worker":
                self._wait_for_end(driver, 3.0)
        finally:
            self._end(driver)

    def _bounce(self, broker: BrokerProcess, seconds: float) -> None:
        self._stage.kill_broker(broker)
        time.sleep(seconds)
        broker.start()

    def _see_that_it_lives(self, driver: subprocess.Popen) -> None:
        """It has begun further batches, of each kind, since the broker is back; the rows for that are sent now."""
        before = {kind: _last(self._state(kind) / "commits") for kind in self.kinds}
        deadline = time.monotonic() + 2 * PATIENCE
        while any(_last(self._state(kind) / "commits") <= before[kind] for kind in self.kinds):
            if driver.poll() is not None or time.monotonic() > deadline:
                raise StageError(f"no batch has ended since a broker came back:\n{self._stage.told('driver')}")
            time.sleep(0.1)

    def _started(self, said: str) -> subprocess.Popen:
        """A driver whose first batches have "begun", or "ended".

        On a machine that is busy Spark gives up on a Python that is slow to start: then there is another driver.
        """
        for _ in range(_STARTS):
            driver = self._start_driver(last=False)
            if self._has_said(driver, said):
                return driver
            self._end(driver)
            self.gave_up += 1
            note("a driver gave up before it had begun")
        raise StageError(f"{_STARTS} drivers gave up, the last with:\n{self._stage.told('driver')}")

    def _has_said(self, driver: subprocess.Popen, wanted: str) -> bool:
        while True:
            ready, _, _ = select.select([driver.stdout], [], [], _STARTING)
            line = driver.stdout.readline().decode().strip() if ready else ""
            if line in ("", wanted):
                return bool(line)

    def _worker(self, pid: int) -> processes.Process | None:
        """One of them, as soon as there is one."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if found := processes.workers(pid):
                return self._random.choice(found)
            time.sleep(0.01)
        return None

    def _end(self, driver: subprocess.Popen) -> None:
        """Java first: without a driver it would go on for a moment."""
        if driver.poll() is None and (java := processes.java(driver.pid)) is not None:
            java.kill()
        if not self._wait_for_end(driver, PATIENCE):
            driver.kill()
            driver.wait()
        driver.stdout.close()

    def _wait_for_end(self, driver: subprocess.Popen, seconds: float) -> bool:
        try:
            driver.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _run_to_the_end(self) -> None:
        for _ in range(_STARTS):
            driver = self._start_driver(last=True)
            try:
                if self._wait_for_end(driver, _ENDING) and not driver.returncode:
                    return
            finally:
                self._end(driver)
            self.gave_up += 1
            note("a driver gave up")
        raise StageError(f"no driver read to the end:\n{self._stage.told('driver')}")

    # what came of it

    def _state(self, kind: str) -> Path:
        if kind == "archive":
            return self._stage.folder / "archive" / "_kafka07c" / "checkpoint"
        return self._stage.folder / f"{kind}-state"

    def _batches_under_way(self) -> list[str]:
        """The kinds of those queries that have begun a batch and not ended it."""
        states = {kind: self._state(kind) for kind in self.kinds}
        return [kind for kind, state in states.items() if _last(state / "offsets") > _last(state / "commits")]

    def _judge(self, kind: str) -> Outcome:
        return Outcome(kind, tally_sent(self.rows), tally(self._columns(kind), self.rows))

    def _columns(self, kind: str) -> Iterator[pa.Array]:
        if kind == "topic":
            return outputs.topic([broker.log_dir for broker in self._stage.brokers], COPY)
        return {"parquet": outputs.parquet, "archive": outputs.archive}[kind](self._stage.folder / kind)


def _last(folder: Path) -> int:
    """The latest batch in a folder of a checkpoint; -1 for none."""
    return max((int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()), default=-1)


def drawn_kills(seed: int, count: int) -> list[str]:
    """As many of one as of the other, in an order of the seed's."""
    kills = ["java", "worker"] * (count // 2) + ["java"] * (count % 2)
    random.Random(seed).shuffle(kills)
    return kills
