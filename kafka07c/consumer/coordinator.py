"""A member of a consumer group: which partitions are ours, for as long as it lives.

One thread drives it. What happens outside (ZooKeeper's connection and watches, :meth:`GroupMember.close`) only puts an
event into a queue; the thread takes events one by one, looks up what to do in the table of transitions, and does it. An
action may itself find out something: that is the next event. ZooKeeper is called by this thread, and by those that
commit.

The rounds of a member are those of 0.7.2 (``ZookeeperConsumerConnector``): read who is in the group and which
partitions there are, compute the assignment, release what is no longer ours, claim what is. They differ in that what
stays ours is left alone, a claim that somebody is in the way of does not give back the others, and there is always
another try. JVM members in the group see the same nodes with the same bytes.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from kafka07c import metrics as figures
from kafka07c.assignment import assign
from kafka07c.consumer.config import ConsumerConfig
from kafka07c.errors import GroupError, KafkaError, ZooKeeperError
from kafka07c.metrics import Metrics
from kafka07c.names import TopicPartition
from kafka07c.positions import Position
from kafka07c.subscription import Subscription
from kafka07c.zookeeper.client import Access
from kafka07c.zookeeper.groups import check_name, make_member_id
from kafka07c.zookeeper.members import GroupNodes
from kafka07c.zookeeper.offsets import OffsetStore, Written, commit_error

__all__ = ["REVOKE_SECONDS", "GroupListener", "GroupMember", "OffsetStore", "State"]

_log = logging.getLogger(__name__)

#: how long ``on_revoked`` may take: a JVM member looks every 2 s whether what it waits for is released, 4 times
REVOKE_SECONDS = 1.0

#: changes are gathered for so many seconds, a random time in between, before a round: members come and go in bunches
_GATHER_SECONDS = (0.05, 0.3)

#: seconds from one look at "do I own what the algorithm says?" to the next, when nothing is known to have changed
_AUDIT_SECONDS = 10.0

#: a back-off of 0 would keep the thread busy for nothing
_LEAST_BACKOFF_SECONDS = 0.02

#: seconds to the next try after a failure, doubled each time up to the back-off
_RETRY_SECONDS = 0.25

#: a member that announces more threads than this is taken for damaged
_MAX_THREADS = 10_000


class GroupListener(Protocol):
    """What a member tells its owner. Called from the member's one thread; none of it may wait long."""

    def on_assigned(self, partitions: dict[TopicPartition, tuple[int, Position | None]], generation: int) -> None:
        """These partitions are ours from now on, each with its thread number (from 0) and its committed position.

        Only new ones are named. Those that stay ours keep what they have, generation included.
        """

    def on_revoked(self, partitions: set[TopicPartition], can_commit: bool) -> None:
        """These partitions are being given up. Once this returns nothing of them may be delivered.

        ``member.commit()`` works meanwhile, in any thread, if ``can_commit``. Takes ``REVOKE_SECONDS`` at most.
        """

    def on_suspended(self) -> None:
        """The connection to ZooKeeper is lost: deliver nothing, commit nothing, until ``on_resumed`` or ``on_lost``."""

    def on_resumed(self) -> None:
        """The same session goes on, and with it all that is owned."""

    def on_lost(self, partitions: set[TopicPartition]) -> None:
        """These partitions are others': their session's end, or somebody's hand, has taken them. Nothing of them may
        be delivered, and they cannot be committed. Ends ``on_suspended``, with an empty set too."""

    def on_failed(self, error: Exception) -> None:
        """Something keeps the group from being balanced; there will be another try."""


class State(StrEnum):
    """Where a member is."""

    NEW = "new"  # not connected yet
    JOINING = "joining"  # connected; our id is to be put there
    UNBALANCED = "unbalanced"  # the next round is due soon
    BALANCED = "balanced"  # we own what the algorithm gives us
    SUSPENDED = "suspended"  # not connected; what we own is ours as long as the session lives
    EXPIRED = "expired"  # the session is over, and there is no new one yet
    CLOSED = "closed"


class Event(StrEnum):
    """What moves a member on."""

    # told by ZooKeeper, or by close()
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    SESSION_LOST = "session lost"
    CHANGED = "changed"  # something that we had read
    CLOSE = "close"
    # told by the clock
    DUE = "due"  # what was planned
    HEARTBEAT = "heartbeat"
    # found out by an action
    REGISTERED = "registered"  # our id is there
    UNREGISTERED = "unregistered"  # it is gone
    SETTLED = "settled"  # we own what the algorithm gives us
    BLOCKED = "blocked"  # somebody else's node is in the way
    FAILED = "failed"


class _Owned(NamedTuple):
    thread: int
    generation: int


class GroupMember:
    """One member of a group, from :meth:`start` to :meth:`close`.

    ``subscription`` says what it wants. ``config`` gives the session time-out, the back-off and so on, ``listener`` is
    told what is ours. ``consumer_id`` is for those who want the same id each time.

    Nothing may be delivered after :attr:`may_deliver_until`: by then the session may be over without anybody having
    told us, for example when the whole process was stopped for a while.
    """

    def __init__(
        self,
        zookeeper: str | Access,
        group: str,
        subscription: Subscription,
        *,
        config: ConsumerConfig,
        listener: GroupListener,
        consumer_id: str | None = None,
        metrics: Metrics | None = None,
    ):
        """Nothing is connected yet. ValueError for a group or consumer id that cannot be a node's name."""
        self.group = check_name(group, "group")
        self.member_id = check_name(make_member_id(group, consumer_id or config.consumer_id), "member")
        self.subscription = subscription
        #: counts the changes of what is ours
        self.generation = 0
        #: time.monotonic() up to which what is owned is certainly ours; -inf while nothing is certain
        self.may_deliver_until = float("-inf")
        self._zookeeper = zookeeper
        self._config = config
        self._listener = listener
        metrics = figures.NONE if metrics is None else metrics
        self._rebalances = metrics.counter(figures.REBALANCES, group=group)
        self._failed_rebalances = metrics.counter(figures.FAILED_REBALANCES, group=group)
        self._without_owner = metrics.counter(figures.SECONDS_WITHOUT_OWNER, group=group)
        metrics.gauge(figures.GENERATION, group=group).set(lambda: self.generation)
        self._backoff = max(config.rebalance_backoff, _LEAST_BACKOFF_SECONDS)
        self._patience = config.rebalance_retries * self._backoff
        self._state = State.NEW
        self._events: SimpleQueue[tuple[Event, str]] = SimpleQueue()
        self._connected: GroupNodes | None = None  # by start()
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()  # for _owned and for committing: nobody commits what is being forgotten
        self._owned: dict[TopicPartition, _Owned] = {}
        self._suspended = False
        self._due: float | None = None
        self._heartbeat: float | None = None
        self._blocked: dict[str, str] = {}  # paths of nodes that are in our way -> whose
        self._blocked_since: float | None = None
        self._strays: set[TopicPartition] = set()  # not owned, but their owner nodes may be there and be ours
        self._failures = 0  # one after the other
        self._reported = ""
        self._wanted_since: dict[TopicPartition, float] = {}  # ours by the algorithm, but not yet owned
        self._settled = threading.Event()

    # For others

    @property
    def state(self) -> State:
        """Where the member is just now."""
        return self._state

    @property
    def owned(self) -> dict[TopicPartition, int]:
        """The partitions that are ours, each with the number of its thread."""
        with self._lock:  # the thread, which alone changes it, needs no lock to read it
            return {tp: each.thread for tp, each in sorted(self._owned.items())}

    def start(self) -> GroupMember:
        """Connect, and join the group in the background. ZooKeeperError when ZooKeeper cannot be reached."""
        self._connected = GroupNodes(
            self._zookeeper, self.group, self.member_id,
            session_timeout=self._config.zookeeper_session, connect_timeout=self._config.zookeeper_connect,
            on_state=self._on_state, on_change=self._on_change,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._drive, name=f"member-{self.member_id}", daemon=True)
        self._thread.start()
        return self

    def wait_until_balanced(self, timeout: float | None = None) -> bool:
        """Wait until we own what the algorithm gives us; False when ``timeout`` seconds were not enough."""
        return self._settled.wait(timeout)

    def close(self) -> None:
        """Give up what is ours and leave the group: the nodes are gone when this returns, if ZooKeeper can be reached.

        The listener's ``on_revoked`` may still commit. Twice does no harm.
        """
        self._events.put((Event.CLOSE, ""))
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> GroupMember:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def commit(self, positions: Mapping[TopicPartition, Position], generation: int | None = None) -> None:
        """Write positions into ZooKeeper, from any thread, also inside ``on_revoked``.

        Commits what is still ours, and has been since ``generation``; then raises CommitFailedError for the rest: for
        what is lost, and for what somebody else changed meanwhile, which is left as it is and has to be adopted.
        """
        with self._lock:
            ours = {tp: position for tp, position in positions.items() if self._is_ours(tp, generation)}
            try:
                if ours and time.monotonic() > self.may_deliver_until:
                    raise ZooKeeperError(f"ZooKeeper at {self._zookeeper} is out of touch, the session may be over")
                written = self._nodes.commit(ours) if ours else Written()
            except KafkaError as error:
                written = Written(failed=dict.fromkeys(ours, error))
        if written.refused:
            self._on_change("")  # the thread will find out what has happened
        if len(ours) < len(positions) or written.moved or written.refused or written.failed:
            raise commit_error(self.group, written, positions.keys() - ours.keys())

    def _is_ours(self, tp: TopicPartition, generation: int | None) -> bool:
        owned = self._owned.get(tp)
        return owned is not None and (generation is None or owned.generation <= generation)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """The committed positions of any partitions, ours or not. ZooKeeperError when they cannot be read."""
        nodes = self._nodes
        with self._lock:
            return nodes.committed(partitions)

    @property
    def _nodes(self) -> GroupNodes:
        if self._connected is None:
            raise GroupError(f"group {self.group}: the member has not been started")
        return self._connected

    # On kazoo's threads: nothing but putting events into the queue

    def _on_state(self, state: str) -> None:
        self._events.put((_CONNECTION_EVENTS[state], ""))

    def _on_change(self, path: str) -> None:
        self._events.put((Event.CHANGED, path))

    # The thread

    def _drive(self) -> None:
        try:
            while self._state is not State.CLOSED:
                event: Event | None = self._next_event()
                while event is not None:
                    event = self._take(event)
        finally:
            self._nodes.close()  # the session's end deletes all our nodes in one go

    def _take(self, event: Event) -> Event | None:
        """One step in the table; gives the event that the action comes to, if any."""
        action, state = TRANSITIONS[self._state, event]
        if state is not self._state:
            _log.debug("group %s: member %s: %s: %s -> %s", self.group, self.member_id, event, self._state, state)
            self._state = state
            if state is not State.BALANCED:
                self._settled.clear()
        if action is None:
            return None
        try:
            return action(self)
        except Exception as error:  # nothing may end the thread: the member would sit idle for ever
            self._report(error)
            return Event.FAILED

    def _next_event(self) -> Event:
        while True:
            timers = [when for when in (self._due, self._heartbeat) if when is not None]
            try:
                event, path = self._events.get(timeout=max(0.0, min(timers) - time.monotonic()) if timers else None)
            except Empty:
                if self._due is not None and self._due <= time.monotonic():
                    self._due = None
                    return Event.DUE
                if self._heartbeat is not None and self._heartbeat <= time.monotonic():
                    return Event.HEARTBEAT
            else:
                if event is not Event.CHANGED or self._concerns_us(path):
                    return event

    def _concerns_us(self, path: str) -> bool:
        """Of owner nodes only those that are ours, or in our way: not those that we have just deleted."""
        tp = self._nodes.paths.owned_at(path)
        return tp is None or tp in self._owned or path in self._blocked

    def _plan(self, seconds: float) -> None:
        self._due = time.monotonic() + seconds

    def _report(self, error: Exception) -> None:
        self._failed_rebalances.inc()
        if str(error) != self._reported:  # else it would be said again and again
            self._reported = str(error)
            _log.warning("group %s: member %s: %s; trying again", self.group, self.member_id, error,
                         exc_info=None if isinstance(error, KafkaError) else error)  # fmt: skip
        self._tell(self._listener.on_failed, error)

    def _tell(self, method: Callable[..., object], *arguments: object) -> None:
        try:
            method(*arguments)
        except Exception:  # the listener's fault, which must not end the thread
            _log.exception("group %s: member %s: the listener failed", self.group, self.member_id)

    # Actions, as they stand in the table

    def _join(self) -> Event:
        """Put our id there."""
        asked = time.monotonic()
        holder = self._nodes.register(self.subscription.encode())
        if holder is not None:
            self._blocked = {self._nodes.paths.member(self.member_id): f"session {holder:#x}"}
            return Event.BLOCKED
        self._renew(asked)
        return Event.REGISTERED

    def _registered(self) -> None:
        self._blocked, self._blocked_since = {}, None
        if self._suspended:
            self._suspended = False
            self._tell(self._listener.on_resumed)
        self._plan(0.0)

    def _now(self) -> None:
        self._plan(0.0)

    def _gather(self) -> None:
        """A change: more of them may come, so wait a little, but count from the first. Who deletes a whole group is not
        done yet when our own node is gone."""
        soon = time.monotonic() + random.uniform(*_GATHER_SECONDS)
        self._due = soon if self._due is None else min(self._due, soon)

    def _wait(self) -> None:
        """Somebody else's node is in the way. It is watched; look again, at the latest, after the back-off."""
        now = time.monotonic()
        self._blocked_since = self._blocked_since or now
        if now - self._blocked_since > self._patience:
            found = ", ".join(f"{path} ({holder})" for path, holder in sorted(self._blocked.items())[:3])
            self._report(GroupError(f"in the way for more than {self._patience:g} s: {found}"))
        self._plan(self._backoff)

    def _again(self) -> None:
        """It failed: try again soon, then less and less often."""
        self._plan(min(_RETRY_SECONDS * 2 ** min(self._failures, 10), self._backoff))
        self._failures += 1

    def _settle(self) -> None:
        self._blocked, self._blocked_since = {}, None
        self._failures, self._reported = 0, ""
        self._plan(_AUDIT_SECONDS)
        self._settled.set()

    def _beat(self) -> Event | None:
        """Ask for our id: the answer says that the session lives, and so how long what we own is ours for certain."""
        asked = time.monotonic()
        self._heartbeat = asked + self._config.zookeeper_session / 3
        if not self._nodes.is_registered():
            return Event.UNREGISTERED
        self._renew(asked)
        return None

    def _renew(self, asked: float) -> None:
        self.may_deliver_until = asked + self._config.zookeeper_session
        self._heartbeat = asked + self._config.zookeeper_session / 3

    def _no_beat(self) -> None:
        self._heartbeat = None  # joining asks for the id itself

    def _stand_still(self) -> None:
        self._due = self._heartbeat = None
        self.may_deliver_until = float("-inf")

    def _suspend(self) -> None:
        self._stand_still()
        self._plan(self._patience)
        if not self._suspended:
            self._suspended = True
            self._tell(self._listener.on_suspended)

    def _expire(self) -> None:
        self._stand_still()
        self._plan(self._patience)
        lost = set(self._owned)
        self._forget(lost)
        self._strays.clear()
        self._nodes.end_session()
        self._suspended = False
        self._tell(self._listener.on_lost, lost)

    def _still_away(self) -> None:
        self._report(ZooKeeperError(f"ZooKeeper at {self._zookeeper} has not been reached for {self._patience:g} s"))
        self._plan(self._patience)

    def _leave(self) -> None:
        owned = set(self._owned)
        if owned:
            self._tell(self._listener.on_revoked, owned, time.monotonic() <= self.may_deliver_until)
        self._forget(owned)
        self._stand_still()

    def _forget(self, partitions: set[TopicPartition]) -> None:
        """From here on nothing of them is committed."""
        if partitions:
            with self._lock:
                for tp in partitions:
                    self._owned.pop(tp, None)
                self._nodes.forget(partitions)
                self.generation += 1

    # A round

    def _balance(self) -> Event:
        """Own what the algorithm gives us: nothing else, and all that nobody else holds."""
        asked = time.monotonic()
        members = self._nodes.members()
        if self.member_id not in members or not self._nodes.is_registered():
            return Event.UNREGISTERED
        self._renew(asked)
        wanted = self._assignment(members)
        owned = {tp: each.thread for tp, each in self._owned.items()}
        owners = self._nodes.owners(owned)
        taken = {tp for tp, owner in owners.items() if owner is not None and owner.session != self._nodes.session}
        if taken:
            self._forget(taken)
            self._tell(self._listener.on_lost, taken)
        revoked = {tp for tp, thread in owned.items() if wanted.get(tp) != thread} - taken
        if revoked:
            self._tell(self._listener.on_revoked, revoked, time.monotonic() <= self.may_deliver_until)
            self._forget(revoked)
            self._strays |= revoked
        self._nodes.release(self._strays)
        self._strays.clear()
        kept = owned.keys() - taken - revoked
        missing = {tp for tp in kept if owners[tp] is None}
        return self._claim({tp: thread for tp, thread in wanted.items() if tp not in kept or tp in missing}, missing)

    def _claim(self, wanted: dict[TopicPartition, int], missing: set[TopicPartition]) -> Event:
        """Claim partitions; ``missing`` are ours already, but somebody deleted their owner nodes."""
        now = time.monotonic()
        self._wanted_since = {tp: self._wanted_since.get(tp, now) for tp in wanted}
        self._strays |= wanted.keys() - missing
        held = self._nodes.claim({tp: f"{self.member_id}-{thread}" for tp, thread in wanted.items()})
        if overtaken := missing & held.keys():
            self._forget(overtaken)
            self._tell(self._listener.on_lost, overtaken)
        with self._lock:
            positions = self._nodes.take_over(wanted.keys() - held.keys() - missing)
        self._strays.clear()
        if positions:
            with self._lock:
                self.generation += 1
                self._owned |= {tp: _Owned(wanted[tp], self.generation) for tp in positions}
            self._rebalances.inc()
            self._without_owner.inc(sum(time.monotonic() - self._wanted_since.pop(tp) for tp in positions))
            assigned = {tp: (wanted[tp], positions[tp]) for tp in sorted(positions)}
            self._tell(self._listener.on_assigned, assigned, self.generation)
        self._blocked = {self._nodes.paths.owner(tp): f"held by {owner.thread}" for tp, owner in held.items()}
        return Event.BLOCKED if held else Event.SETTLED

    def _assignment(self, members: Mapping[str, bytes]) -> dict[TopicPartition, int]:
        """What the algorithm gives us: our partitions, each with the number of our thread."""
        subscriptions = {member: self._subscription_of(member, data) for member, data in members.items()}
        if self.subscription.is_filter:
            topics = [topic for topic in self._nodes.topics() if self.subscription.matches(topic)]
        else:
            topics = list(self.subscription.topic_threads)
        ours: dict[TopicPartition, int] = {}
        for topic, partitions in self._nodes.partitions(topics).items():
            threads = [
                f"{member}-{number}"
                for member, subscription in subscriptions.items()
                for number in range(subscription.threads_for(topic) if subscription is not None else 0)
            ]
            by_name = {tp.name: tp for tp in partitions}
            assignment = assign(by_name, threads)
            for thread in range(self.subscription.threads_for(topic)):
                ours |= {by_name[name]: thread for name in assignment[f"{self.member_id}-{thread}"]}
        return ours

    def _subscription_of(self, member: str, data: bytes) -> Subscription | None:
        """None for a member whose node nobody can read, JVM members included: it can own nothing."""
        if member == self.member_id:
            return self.subscription
        try:
            subscription = Subscription.decode(data)
            if max([subscription.threads, *subscription.topic_threads.values()]) > _MAX_THREADS:
                raise ValueError(f"more than {_MAX_THREADS} threads")
            return subscription
        except ValueError as error:
            if data[:1] in (b"*", b"!"):  # a JVM member may well be able to read it, and counts on what it gives
                raise GroupError(f"what member {member} wants cannot be known: {error}") from error
            _log.warning("group %s: member %s is left out: %s", self.group, member, error)
            return None


_CONNECTION_EVENTS = {
    "CONNECTED": Event.CONNECTED,
    "SUSPENDED": Event.DISCONNECTED,
    "LOST": Event.SESSION_LOST,
}


# In this state, when this happens: do this, in the state that comes next.
_M, _S, _E = GroupMember, State, Event
TRANSITIONS: dict[tuple[State, Event], tuple[Callable[[GroupMember], Event | None] | None, State]] = {
    (_S.NEW, _E.CONNECTED): (_M._now, _S.JOINING),
    (_S.NEW, _E.DISCONNECTED): (None, _S.NEW),
    (_S.NEW, _E.SESSION_LOST): (None, _S.NEW),
    (_S.NEW, _E.CLOSE): (_M._leave, _S.CLOSED),
    #
    (_S.JOINING, _E.DUE): (_M._join, _S.JOINING),
    (_S.JOINING, _E.REGISTERED): (_M._registered, _S.UNBALANCED),
    (_S.JOINING, _E.BLOCKED): (_M._wait, _S.JOINING),
    (_S.JOINING, _E.FAILED): (_M._again, _S.JOINING),
    (_S.JOINING, _E.CHANGED): (_M._gather, _S.JOINING),
    (_S.JOINING, _E.HEARTBEAT): (_M._no_beat, _S.JOINING),
    (_S.JOINING, _E.CONNECTED): (_M._now, _S.JOINING),
    (_S.JOINING, _E.DISCONNECTED): (_M._suspend, _S.SUSPENDED),
    (_S.JOINING, _E.SESSION_LOST): (_M._expire, _S.EXPIRED),
    (_S.JOINING, _E.CLOSE): (_M._leave, _S.CLOSED),
    #
    (_S.UNBALANCED, _E.DUE): (_M._balance, _S.UNBALANCED),
    (_S.UNBALANCED, _E.SETTLED): (_M._settle, _S.BALANCED),
    (_S.UNBALANCED, _E.BLOCKED): (_M._wait, _S.UNBALANCED),
    (_S.UNBALANCED, _E.FAILED): (_M._again, _S.UNBALANCED),
    (_S.UNBALANCED, _E.CHANGED): (_M._gather, _S.UNBALANCED),
    (_S.UNBALANCED, _E.HEARTBEAT): (_M._beat, _S.UNBALANCED),
    (_S.UNBALANCED, _E.UNREGISTERED): (_M._gather, _S.JOINING),
    (_S.UNBALANCED, _E.CONNECTED): (None, _S.UNBALANCED),
    (_S.UNBALANCED, _E.DISCONNECTED): (_M._suspend, _S.SUSPENDED),
    (_S.UNBALANCED, _E.SESSION_LOST): (_M._expire, _S.EXPIRED),
    (_S.UNBALANCED, _E.CLOSE): (_M._leave, _S.CLOSED),
    #
    (_S.BALANCED, _E.DUE): (_M._balance, _S.BALANCED),  # the audit: a round that should find nothing to do
    (_S.BALANCED, _E.SETTLED): (_M._settle, _S.BALANCED),
    (_S.BALANCED, _E.BLOCKED): (_M._wait, _S.UNBALANCED),
    (_S.BALANCED, _E.CHANGED): (_M._gather, _S.UNBALANCED),
    (_S.BALANCED, _E.HEARTBEAT): (_M._beat, _S.BALANCED),
    (_S.BALANCED, _E.FAILED): (_M._again, _S.UNBALANCED),
    (_S.BALANCED, _E.UNREGISTERED): (_M._gather, _S.JOINING),
    (_S.BALANCED, _E.CONNECTED): (None, _S.BALANCED),
    (_S.BALANCED, _E.DISCONNECTED): (_M._suspend, _S.SUSPENDED),
    (_S.BALANCED, _E.SESSION_LOST): (_M._expire, _S.EXPIRED),
    (_S.BALANCED, _E.CLOSE): (_M._leave, _S.CLOSED),
    #
    (_S.SUSPENDED, _E.CONNECTED): (_M._now, _S.JOINING),  # the same session: our id will be found there
    (_S.SUSPENDED, _E.SESSION_LOST): (_M._expire, _S.EXPIRED),
    (_S.SUSPENDED, _E.DISCONNECTED): (None, _S.SUSPENDED),
    (_S.SUSPENDED, _E.CHANGED): (None, _S.SUSPENDED),
    (_S.SUSPENDED, _E.DUE): (_M._still_away, _S.SUSPENDED),
    (_S.SUSPENDED, _E.CLOSE): (_M._leave, _S.CLOSED),
    #
    (_S.EXPIRED, _E.CONNECTED): (_M._now, _S.JOINING),
    (_S.EXPIRED, _E.DISCONNECTED): (None, _S.EXPIRED),
    (_S.EXPIRED, _E.SESSION_LOST): (None, _S.EXPIRED),
    (_S.EXPIRED, _E.CHANGED): (None, _S.EXPIRED),
    (_S.EXPIRED, _E.DUE): (_M._still_away, _S.EXPIRED),
    (_S.EXPIRED, _E.CLOSE): (_M._leave, _S.CLOSED),
}
