"""What groups are put through: each scenario goes on in rounds as long as it is told to, on a stage of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.proxy import Plan
from groups.checker import Verdict
from groups.stage import Member, Stage

from kafka07c.testing import ZooKeeper

#: asked before each round: whether there is to be one
More = Callable[[], bool]

MODES = ("iterate", "poll", "batches", "streams")


@dataclass(frozen=True)
class Scenario:
    """``run`` on a stage made with ``options``; ``nodes``: ZooKeeper servers."""

    run: Callable[[Stage, More], None]
    options: Mapping[str, Any] = field(default_factory=dict)
    nodes: int = 1

    @property
    def name(self) -> str:
        return self.run.__name__.replace("_", "-")


def _way(stage: Stage) -> dict[str, object]:
    """One of the ways in which a member takes its messages."""
    mode = stage.random.choice(MODES)
    return {"mode": mode, "threads": stage.random.choice((1, 2)) if mode == "streams" else 1}


def _anyone(stage: Stage) -> Member:
    return stage.random.choice(list(stage.members.values()))


def _a_while(stage: Stage, longest: float) -> None:
    time.sleep(stage.random.uniform(0, longest))


def _three_members(stage: Stage, **options: object) -> None:
    for _ in range(3):
        stage.join(**_way(stage), **options)
    stage.wait_settled()


def churn(stage: Stage, more: More) -> None:
    """Three consumers join one by one, one is killed, one leaves."""
    while more():
        while len(stage.members) < 3:
            stage.join(**_way(stage))
            stage.wait_settled()
        _a_while(stage, 0.3)
        stage.kill(_anyone(stage))
        stage.wait_settled()
        _a_while(stage, 0.3)
        stage.leave(_anyone(stage))
        stage.wait_settled()


def expiring(stage: Stage, more: More) -> None:
    """Sessions end in the middle of a chunk, and in the middle of a rebalance."""
    _three_members(stage, work_ms=2)
    while more():
        stage.expire(_anyone(stage))
        stage.wait_settled()
        _a_while(stage, 0.5)
        newcomer = stage.join(**_way(stage), work_ms=2)
        _a_while(stage, 1.0)  # it takes some time to come, and then the others rebalance
        stage.expire(stage.random.choice([member for member in stage.members.values() if member is not newcomer]))
        _a_while(stage, 0.2)
        stage.expire(_anyone(stage))
        stage.wait_settled()
        stage.leave(newcomer)
        _a_while(stage, 0.2)
        stage.expire(_anyone(stage))
        stage.wait_settled()


def stopping(stage: Stage, more: More) -> None:
    """SIGSTOP past the session, then SIGCONT; and short of it."""
    _three_members(stage, work_ms=1)
    while more():
        stage.stop(_anyone(stage), stage.random.uniform(1.3, 1.8) * stage.session)
        stage.wait_settled()
        stage.stop(_anyone(stage), stage.random.uniform(0.1, 0.6) * stage.session)
        stage.wait_settled()


def cut_off(stage: Stage, more: More) -> None:
    """Members lose ZooKeeper: for longer than their session, for a moment, by a reset, behind slow or cut answers."""
    for _ in range(3):
        stage.join_behind_proxy(**_way(stage))
    stage.wait_settled()
    while more():
        stage.cut_off(_anyone(stage), stage.random.uniform(1.3, 1.8) * stage.session)
        stage.wait_settled()
        stage.cut_off(_anyone(stage), stage.random.uniform(0.1, 0.5) * stage.session)
        stage.wait_settled()
        for _ in range(3):
            member = _anyone(stage)
            plan = Plan(sliced=500) if stage.random.random() < 0.5 else Plan(cut_at=stage.random.randrange(100))
            member.proxy.script(plan)
            member.proxy.reset()
            stage.note_fault(f"ZooKeeper: reset, then {plan.kind}", member.name)
            _a_while(stage, 0.5)
        stage.wait_settled()


def electing(stage: Stage, more: More) -> None:
    """The leader of the ensemble is killed every 20 s."""
    _three_members(stage)
    due = 0.0
    while more():
        time.sleep(max(0.0, due - time.monotonic()))
        due = time.monotonic() + 20.0
        while (leader := stage.servers.leader) is None:
            time.sleep(0.1)
        stage.note_fault("ZooKeeper's leader killed", f"server {leader}")
        stage.servers.kill(leader)
        _a_while(stage, 3.0)
        stage.servers.restart(leader)
        stage.wait_settled()


def network(stage: Stage, more: More) -> None:
    """Connections to brokers are cut, reset, delayed, sliced to one byte, never answered."""
    _three_members(stage)
    while more():
        for broker in stage.brokers:
            broker.proxy.script(*(Plan.drawn(stage.random) for _ in range(3)))
            if broker.proxy.reset():
                stage.note_fault("connections reset", broker.name)
        _a_while(stage, 1.5)
        if stage.random.random() < 0.1:
            broker = stage.random.choice(stage.brokers)
            stage.note_fault("connections held", broker.name)
            broker.proxy.hold()
            _a_while(stage, 4.0)
            broker.proxy.let_go()
    for broker in stage.brokers:
        broker.proxy.forget_plans()


def brokers(stage: Stage, more: More) -> None:
    """Brokers are killed and stopped, and come back on the same port or another."""
    _three_members(stage)
    while more():
        for new_port in (False, True):
            broker = stage.random.choice(stage.brokers)
            stage.note_fault("broker back on another port" if new_port else "broker killed", broker.name)
            broker.kill()
            _a_while(stage, 0.5)
            broker.start(new_port=new_port)
            _a_while(stage, 1.0)
        stage.stop_broker(stage.random.choice(stage.brokers), stage.random.uniform(0, 2 * stage.session))
        stage.wait_settled()


def growing(stage: Stage, more: More) -> None:
    """Topics appear under a filter, partitions are added, and there are more members than partitions."""
    for _ in range(4):
        stage.join(**_way(stage), pattern="clicks.*")
    stage.wait_settled()
    broker = stage.brokers[0]
    number = 0
    while number < 6 and more():
        number += 1
        topic = f"clicks-{number}"
        stage.note_fault("topic made", topic)
        stage.make_topic(topic, broker)
        stage.produce([topic], rate=20)
        stage.wait_for_topics({topic: broker.partitions})
        stage.wait_settled()
        if number % 2:
            broker.partitions += 2
            stage.note_fault("partitions added", broker.name)
            broker.kill()
            broker.start()
            stage.wait_for_topics({topic: broker.partitions})
            stage.wait_settled()


def crowding(stage: Stage, more: More) -> None:
    """More members than partitions: those that are too many wait, and take over when an owner is killed."""
    for _ in range(4):
        stage.join(**_way(stage))
    stage.wait_settled()
    while more():
        owners = {stage.member_of(thread) for thread in stage.owners().values()}
        stage.kill(stage.random.choice(sorted(owners, key=lambda member: member.name)))
        stage.wait_settled()
        stage.join(**_way(stage))
        stage.wait_settled()


def many(stage: Stage, more: More) -> None:
    """Many partitions and members, in few processes, one of which is killed."""
    in_process = stage.brokers[0].partitions // 100
    processes = [stage.join_many(in_process, mode="poll") for _ in range(5)]
    stage.wait_settled(180)
    while more():
        stage.kill_many(processes.pop(0))
        stage.wait_settled(180)
        processes.append(stage.join_many(in_process, mode="poll"))
        stage.wait_settled(180)


@dataclass
class Run:
    """What came of one scenario."""

    scenario: Scenario
    name: str
    rounds: int = 0
    stage: Stage | None = None
    verdict: Verdict = field(default_factory=Verdict)

    def perform(
        self,
        zookeeper: ZooKeeper,
        more: More,
        *,
        seed: int,
        keep: Path | None = None,
        new_owner: float | None = None,
        **options: object,
    ) -> Run:
        """From beginning to end. ``keep``: where history and logs are copied to when a rule was broken.

        ``new_owner``: see :func:`groups.checker.check`; ``options`` of the stage go before those of the scenario.
        """

        def one_more() -> bool:
            again = more()
            self.rounds += again
            return again

        with Stage(zookeeper, self.name, seed=seed, **(dict(self.scenario.options) | options)) as self.stage:
            failure: Exception | None = None
            try:
                self.scenario.run(self.stage, one_more)
            except Exception as error:
                failure = error
            self.verdict = self.stage.finish(new_owner=new_owner)
            if failure is not None:
                self.verdict.violations["did not go on"].append(f"{type(failure).__name__}: {failure}")
            if keep is not None and not self.verdict.ok:
                self.stage.keep(keep / self.name)
        return self


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(churn),
        Scenario(expiring),
        Scenario(stopping),
        Scenario(cut_off),
        Scenario(electing, {"session": 4.0}, nodes=3),
        Scenario(network, {"proxied": True}),
        Scenario(brokers),
        Scenario(growing, {"brokers": 1, "partitions": 1, "rate": 20}),
        Scenario(crowding, {"brokers": 1, "partitions": 2}),
        Scenario(many, {"brokers": 1, "partitions": 1000, "rate": 200}),
    )
}
