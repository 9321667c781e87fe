"""What producing is put through: each scenario goes on in rounds as long as it is told to, on a stage of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.proxy import Plan
from producing.checker import CRASH, Verdict
from producing.stage import Stage

from kafka07c.testing import ZooKeeper

#: asked before each round: whether there is to be one
More = Callable[[], bool]

#: with and without reading back, waiting for each record or not, all codecs; a static list of brokers
VERIFYING = {"verify": True, "codec": "gzip"}
WRITING = {}
SYNC = {"mode": "sync", "verify": True}
SYNC_WRITING = {"mode": "sync", "codec": "snappy"}
STATIC = {"static": True, "codec": "gzip"}

#: well within what the checker takes for the age of what is lost
SELDOM_FLUSHED = {"log.flush.interval": 1_000_000, "log.default.flush.scheduler.interval.ms": 700}


@dataclass(frozen=True)
class Scenario:
    """``run`` on a stage made with ``options``; ``senders`` of short runs, and of long ones those ``besides``."""

    run: Callable[[Stage, More], None]
    options: Mapping[str, Any] = field(default_factory=dict)
    senders: Sequence[Mapping[str, Any]] = (VERIFYING, WRITING)
    besides: Sequence[Mapping[str, Any]] = (SYNC, SYNC_WRITING)

    @property
    def name(self) -> str:
        return self.run.__name__.replace("_", "-")


def _a_while(stage: Stage, longest: float) -> None:
    time.sleep(stage.random.uniform(0, longest))


def calm(stage: Stage, more: More) -> None:
    """Nothing happens."""
    while more():
        for broker in stage.brokers:
            stage.wait_written(broker)


def bouncing(stage: Stage, more: More) -> None:
    """Brokers are stopped cleanly and started again, at once or after a while."""
    stage.wait_written()
    while more():
        broker = stage.random.choice(stage.brokers)
        stage.bounce(broker, stage.random.choice((0.0, 0.3, 2.0)))
        stage.wait_written(broker)
        _a_while(stage, 0.5)


def killing(stage: Stage, more: More) -> None:
    """Brokers are killed and started again: before ZooKeeper has noticed, or after."""
    stage.wait_written()
    while more():
        broker = stage.random.choice(stage.brokers)
        stage.kill_broker(broker)
        time.sleep(stage.random.choice((0.0, 0.5, 1.5 * stage.session)))
        broker.start()
        stage.wait_written(broker)
        _a_while(stage, 0.5)


def crashing(stage: Stage, more: More) -> None:
    """Brokers lose what they had not flushed, as when the power fails. They flush seldom here."""
    stage.wait_written()
    while more():
        broker = stage.random.choice(stage.brokers)
        _a_while(stage, 1.0)
        stage.note_fault(CRASH, broker.name, broker.crash())
        broker.start()
        stage.wait_written(broker)


def stopping(stage: Stage, more: More) -> None:
    """Brokers get SIGSTOP for longer than a sender waits for an answer, and SIGCONT; or for a moment."""
    stage.wait_written()
    while more():
        broker = stage.random.choice(stage.brokers)
        stage.stop_broker(broker, stage.random.uniform(1.8, 2.5))
        stage.wait_written(broker)
        stage.stop_broker(broker, stage.random.uniform(0.1, 1.0))
        stage.wait_written(broker)


def network(stage: Stage, more: More) -> None:
    """Connections are cut, reset, delayed, sliced, never answered, held; what is asked is swallowed."""
    stage.wait_written()
    while more():
        for broker in stage.brokers:
            broker.proxy.script(*(Plan.drawn(stage.random, swallowing=True) for _ in range(4)))
            if broker.proxy.reset():
                stage.note_fault("connections reset", broker.name)
        _a_while(stage, 2.0)
        if stage.random.random() < 0.1:
            broker = stage.random.choice(stage.brokers)
            stage.note_fault("connections held", broker.name)
            broker.proxy.hold()
            _a_while(stage, 4.0)
            broker.proxy.let_go()
    for broker in stage.brokers:
        broker.proxy.forget_plans()
        stage.wait_written(broker)


def moving(stage: Stage, more: More) -> None:
    """Brokers are killed and come back on another port."""
    stage.wait_written()
    while more():
        broker = stage.random.choice(stage.brokers)
        stage.note_fault("broker moved", broker.name)
        broker.kill()
        broker.start(new_port=True)
        stage.wait_written(broker)
        _a_while(stage, 0.5)


def dying(stage: Stage, more: More) -> None:
    """Senders are killed, and others come."""
    stage.wait_written()
    while more():
        sender = stage.random.choice(stage.senders)
        _a_while(stage, 0.5)
        stage.kill_sender(sender)
        stage.send(**sender.options)
        stage.wait_written()


@dataclass
class Run:
    """What came of one scenario."""

    scenario: Scenario
    name: str
    rounds: int = 0
    stage: Stage | None = None
    verdict: Verdict = field(default_factory=Verdict)

    def perform(
        self, zookeeper: ZooKeeper, more: More, *, seed: int, long: bool = False, keep: Path | None = None,
        **options: Any,
    ) -> Run:
        """From beginning to end. ``keep``: where history and logs are copied to when a rule was broken.

        ``long``: with the senders of long runs. ``options`` of the stage go before those of the scenario.
        """

        def one_more() -> bool:
            again = more()
            self.rounds += again
            return again

        senders = [*self.scenario.senders, *(self.scenario.besides if long else ())]
        options = {"partitions": 2, "senders": senders, **self.scenario.options, **options}
        with Stage(zookeeper, self.name, seed=seed, **options) as self.stage:
            failure: Exception | None = None
            try:
                self.scenario.run(self.stage, one_more)
            except Exception as error:
                failure = error
            self.verdict = self.stage.finish()
            if failure is not None:
                self.verdict.violations["did not go on"].append(f"{type(failure).__name__}: {failure}")
            if keep is not None and not self.verdict.ok:
                self.stage.keep(keep / self.name)
        return self


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(calm, senders=(VERIFYING, WRITING, SYNC, SYNC_WRITING, STATIC), besides=()),
        Scenario(bouncing, besides=(SYNC, SYNC_WRITING, STATIC)),
        Scenario(killing, besides=(SYNC, SYNC_WRITING, STATIC)),
        Scenario(crashing, {"proxied": True, "broker_properties": SELDOM_FLUSHED}),
        Scenario(stopping),
        Scenario(network, {"proxied": True}),
        Scenario(moving),
        Scenario(dying, besides=()),
    )
}
