"""The partitions that a consumer reads: which are its own, where they go on, and what may be handed out of them now.

Three kinds of threads meet here. The application's take chunks out of their streams' queues and hand them to
:meth:`Reader.accept`. The coordinator's says which partitions are ours. One of our own commits now and then. All that
they share is in the :class:`~kafka07c.consumer.commits.Holdings`, under one lock, and no broker and no ZooKeeper is asked while
it is held.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka07c import metrics as names
from kafka07c.callbacks import Callbacks
from kafka07c.cluster import Cluster
from kafka07c.consumer.chunks import Chunk, ChunkQueue
from kafka07c.consumer.commits import Assigned, Commits, Holdings, completed, handed
from kafka07c.consumer.config import ConsumerConfig
from kafka07c.consumer.coordinator import REVOKE_SECONDS, GroupMember, State
from kafka07c.consumer.fetcher import Fetchers
from kafka07c.consumer.group_log import GroupLog
from kafka07c.consumer.log_ends import LogEnds
from kafka07c.errors import GroupError, KafkaError, ZooKeeperError
from kafka07c.metrics import Metrics
from kafka07c.names import BrokerAddress, TopicPartition
from kafka07c.positions import Handout, Position, Progress
from kafka07c.subscription import Subscription
from kafka07c.zookeeper import Access

__all__ = ["Events", "Reader", "Taken"]


@dataclass(frozen=True)
class Events:
    """What the application wants to be told; see :class:`kafka07c.consumer.Consumer`."""

    on_assign: Callable[[set[TopicPartition]], Any] | None = None
    on_revoke: Callable[[set[TopicPartition], bool], Any] | None = None
    on_error: Callable[[TopicPartition, KafkaError, tuple[int, int] | None], Any] | None = None
    on_partition_end: Callable[[TopicPartition, Position], Any] | None = None


@dataclass(frozen=True, eq=False)
class Taken:
    """A chunk that an application's thread has taken, and what of it is handed out."""

    chunk: Chunk
    assigned: Assigned
    handout: Handout


class _Always:
    """The lease of those who own what they read as long as they like."""

    may_deliver_until = float("inf")


_ALWAYS = _Always()


class Reader:
    """Reads partitions into streams' queues, as a member of a group or as told.

    A ``GroupListener`` of its member. ``until_end``: each partition is read to its end, and no further.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        *,
        zookeeper: str | Access | None = None,
        events: Events = Events(),
        metrics: Metrics | None = None,
        until_end: bool = False,
    ):
        self.config = config
        self.metrics = names.NONE if metrics is None else metrics
        self.log = GroupLog(config.group)
        self.closed = False
        self.until_end = until_end
        self.log_ends = LogEnds(cluster)
        self._cluster = cluster
        self._zookeeper = zookeeper
        self._events = events
        self._callbacks = Callbacks(self.log)
        self._holdings = Holdings()
        self._lock = self._holdings.lock
        self._assigned = self._holdings.assigned
        self.commits = Commits(self._holdings, config, zookeeper, self._restart, self.metrics, self.log)
        self._fetchers = Fetchers(
            self._address, config=config, on_reset=self.commits.on_reset, metrics=self.metrics, log=self.log
        )
        self._left: dict[TopicPartition, Position] = {}  # how far it was handled, of those that we had
        self._sought: dict[TopicPartition, Position | None] = {}  # before they were ours
        self._may_commit = True
        self._epoch = 0
        self._queue_of: Callable[[TopicPartition, int], ChunkQueue] | None = None

    # Beginning and ending

    def join(self, subscription: Subscription, queue_of: Callable[[TopicPartition, int], ChunkQueue]) -> None:
        """Become a member of the group; ``queue_of`` gives the queue for a partition on a thread's number."""
        if self.config.group is None:
            raise GroupError("there is no group to join: give the consumer group=")
        if self._zookeeper is None:
            raise GroupError("members of a group meet in ZooKeeper: give the consumer zookeeper=")
        self._queue_of = queue_of
        member = self.commits.member = GroupMember(
            self._zookeeper, self.config.group, subscription, config=self.config, listener=self, metrics=self.metrics
        )
        try:
            member.start()
        except BaseException:
            self.commits.member = None
            raise
        self.metrics.gauge(names.CONSUMER_GROUP, group=self.config.group).set(1)
        self.commits.start()

    def leave(self) -> None:
        """Leave the group; what is uncommitted is committed where autocommit is on."""
        if self.member is None:
            self.drop(self.partitions)
            return
        try:
            self.member.close()  # which calls on_revoked
        finally:
            self.commits.member = None

    def assign(self, positions: Mapping[TopicPartition, Position | None], queue: ChunkQueue) -> None:
        """Read these partitions, which are nobody's; None: from the committed offset, else as settings say."""
        unknown = [tp for tp, position in positions.items() if position is None]
        committed = self.commits.committed(unknown) if unknown and self.config.group is not None else {}
        with self._lock:
            new = [
                self._take_up(tp, position if position is not None else committed.get(tp), committed.get(tp), queue, 0)
                for tp, position in positions.items()
            ]
        self.commits.start()
        self._begin(new)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading partitions; with autocommit on, what came back of them is committed."""
        with self._lock:
            gone = self._give_up(set(partitions))
        if gone:
            self._fetchers.remove(gone)
            self.commits.commit_quietly(completed, gone.values())
            self._forget(gone.values())

    def close(self, *, commit: bool, of: Callable[[ChunkQueue], bool] | None = None) -> None:
        """End everything; ``commit``: with autocommit on, all that was handed out, the last message included.

        ``of``: as for :meth:`commit`.
        """
        if self.closed:
            return
        self.commits.write_resets_quietly()
        if commit:
            self.commits.commit_quietly(handed(of), by_hand=True)
        else:
            self._may_commit = self.commits.by_itself = False
        try:
            self.leave()
        finally:
            self.closed = True
            self.commits.close()
            self._fetchers.close()
            self._callbacks.close()

    @property
    def member(self) -> GroupMember | None:
        """What we are in the group, if we are in one."""
        return self.commits.member

    # The coordinator's thread

    def on_assigned(self, partitions: dict[TopicPartition, tuple[int, Position | None]], generation: int) -> None:
        queue_of = self._queue_of
        assert queue_of is not None  # join() has set it, before there was a member
        with self._lock:
            new = [
                self._take_up(tp, self._resumed(tp, position), position, queue_of(tp, thread), generation)
                for tp, (thread, position) in partitions.items()
            ]
            self.commits.ours_again(partitions)
        self.log.info("ours from now on: %s", ", ".join(map(str, partitions)))
        on_assign = self._events.on_assign
        if on_assign is None:
            self._begin(new)
        else:
            self._callbacks.call(self._assign_then_begin, on_assign, set(partitions), new)

    def on_revoked(self, partitions: set[TopicPartition], can_commit: bool) -> None:
        deadline = time.monotonic() + REVOKE_SECONDS
        with self._lock:
            gone = self._give_up(partitions)
            can_commit = can_commit and self._may_commit
            if can_commit:
                self._holdings.leaving.update(gone)
        self._fetchers.remove(partitions)
        self.log.info("given up: %s", ", ".join(map(str, sorted(partitions))))
        try:
            if can_commit:
                self.commits.commit_quietly(completed, gone.values())
            if self._events.on_revoke is not None:
                left = max(0.001, deadline - time.monotonic())
                if not self._callbacks.call(self._events.on_revoke, partitions, can_commit, wait=left):
                    self.log.warning("on_revoke takes longer than %g s: it can no longer commit", REVOKE_SECONDS)
            self.commits.settle(deadline)
        finally:
            with self._lock:
                for tp in partitions:
                    self._holdings.leaving.pop(tp, None)
                self._forget(gone.values())

    def on_suspended(self) -> None:
        self.log.warning("the connection to ZooKeeper is lost: nothing is handed out until it is back")
        with self._lock:
            self._holdings.suspended = True
            self._let_all()

    def on_resumed(self) -> None:
        self.log.info("connected to ZooKeeper again, what was ours still is")
        with self._lock:
            self._holdings.suspended = False
            self._let_all()

    def on_lost(self, partitions: set[TopicPartition]) -> None:
        with self._lock:
            gone = self._give_up(partitions)
            self._holdings.suspended = False
            self._let_all()
        self._fetchers.remove(partitions)
        if partitions:
            self.log.warning("lost: %s", ", ".join(map(str, sorted(partitions))))
        if partitions and self._events.on_revoke is not None:
            self._callbacks.call(self._events.on_revoke, partitions, False)
        self._forget(gone.values())

    def on_failed(self, error: Exception) -> None:
        """The member has logged it, once and not with each try, and counts it."""

    def _assign_then_begin(
        self, on_assign: Callable[[set[TopicPartition]], Any], partitions: set[TopicPartition], new: list[Assigned]
    ) -> None:
        try:
            on_assign(partitions)
        finally:
            self._begin(new)

    def _resumed(self, tp: TopicPartition, committed: Position | None) -> Position | None:
        """Where to go on: ZooKeeper says at which entry, and we may know better how much of it was handled here."""
        left = self._left.get(tp)
        if committed is not None and left is not None and left.offset == committed.offset:
            return max(committed, left)
        return committed

    def _take_up(
        self, tp: TopicPartition, start: Position | None, committed: Position | None, queue: ChunkQueue, generation: int
    ) -> Assigned:
        start = self._sought.pop(tp, start)
        self._epoch += 1
        assigned = Assigned(tp, Progress(start, self._epoch, committed), queue, generation, self.member)
        self._assigned[tp] = assigned
        labels = self._labels(tp)
        self.metrics.gauge(names.PART_OWNER, **labels).set(1)
        self.metrics.gauge(names.CONSUMED_OFFSET, **labels).set(lambda: _offset(assigned.progress.handed))
        self.metrics.gauge(names.LATEST_OFFSET, **labels).set(lambda: self.log_ends.latest(tp, self.partitions))
        self.metrics.gauge(names.OFFSET_LAG, **labels).set(lambda: self._lag(assigned))
        self.metrics.gauge(names.QUEUED_BYTES, group=self.config.group).set(self._queued_bytes)
        return assigned

    def _begin(self, new: Iterable[Assigned]) -> None:
        with self._lock:
            for assigned in new:
                if self._assigned.get(assigned.tp) is assigned and not assigned.begun:
                    assigned.begun = True
                    progress = assigned.progress
                    self._fetchers.add(assigned.tp, progress.handed, progress.generation, assigned.queue)
                    if assigned.paused:
                        self._fetchers.pause([assigned.tp])

    def _give_up(self, partitions: set[TopicPartition]) -> dict[TopicPartition, Assigned]:
        gone = {tp: self._assigned.pop(tp) for tp in partitions if tp in self._assigned}
        for assigned in gone.values():
            assigned.progress.void()
        return gone

    def _forget(self, gone: Iterable[Assigned]) -> None:
        """Remember what the application has to be told of partitions that are gone."""
        with self._lock:
            for assigned in gone:
                tp, left = assigned.tp, assigned.progress.completed
                if left is not None and left.index:
                    self._left[tp] = left
                else:
                    self._left.pop(tp, None)
                self.commits.gone(assigned)
                for name in (names.PART_OWNER, names.CONSUMED_OFFSET, names.LATEST_OFFSET, names.OFFSET_LAG):
                    self.metrics.remove(name, **self._labels(tp))

    def _let_all(self) -> None:
        for assigned in self._assigned.values():
            assigned.progress.let(not self._holdings.suspended and not assigned.paused)

    # The application's threads

    @property
    def lease(self) -> GroupMember | _Always:
        """Its ``may_deliver_until`` is the time.monotonic() up to which what is ours certainly is."""
        return _ALWAYS if self.member is None else self.member

    @property
    def waiting(self) -> bool:
        """Whether nothing at all may be handed out at the moment."""
        return self._holdings.suspended or time.monotonic() > self.lease.may_deliver_until

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions that are ours."""
        with self._lock:
            return set(self._assigned)

    @property
    def paused(self) -> set[TopicPartition]:
        """Those that are paused."""
        with self._lock:
            return {tp for tp, assigned in self._assigned.items() if assigned.paused}

    @property
    def errors(self) -> dict[TopicPartition, KafkaError]:
        """The errors that have stopped partitions."""
        with self._lock:
            return {tp: each.error for tp, each in sorted(self._assigned.items()) if each.error is not None}

    @property
    def at_end(self) -> bool:
        """Whether all that is ours was read to its end, or is stopped by an error."""
        with self._lock:
            if self.member is not None and self.member.state is not State.BALANCED:
                return False
            return all(each.begun and (each.ended or each.error) for each in self._assigned.values())

    def accept(self, chunk: Chunk) -> Taken | None:
        """What there is to hand out of a chunk; None for one that belongs to what is no longer ours, or was sought away
        from."""
        with self._lock:
            assigned = self._assigned.get(chunk.tp)
            if assigned is None or assigned.progress.generation != chunk.generation:
                return None
            start = chunk.position if chunk.position is not None else Position(chunk.messages.base_offset)
            handout = Handout(chunk.messages, start, chunk.skipped[1] if chunk.skipped else None)
            handout.live = not self._holdings.suspended and not assigned.paused
            if chunk.position is not None:
                assigned.progress.add(handout)
            return Taken(chunk, assigned, handout)

    def done(self, taken: Taken) -> KafkaError | None:
        """All of it was handed out and has come back; gives the error to raise, if the chunk ends in one."""
        chunk, assigned = taken.chunk, taken.assigned
        self._count(taken)
        error = chunk.messages.error or chunk.error
        with self._lock:
            current = self._assigned.get(chunk.tp) is assigned and assigned.progress.generation == chunk.generation
            if current:
                assigned.error = error if chunk.skipped is None else None
                assigned.ended = chunk.at_end
                if chunk.at_end and self.until_end:
                    self._fetchers.pause([chunk.tp])
        if not current:
            return None
        if chunk.at_end and self._events.on_partition_end is not None:
            self._events.on_partition_end(chunk.tp, taken.handout.end)
        if error is None:
            return None
        self.metrics.counter(names.PARTITION_ERRORS, group=self.config.group).inc()
        if chunk.messages.error is not None:
            return error
        self._report(chunk.tp, error, chunk.skipped)
        return None

    def _report(self, tp: TopicPartition, error: KafkaError, skipped: tuple[int, int] | None) -> None:
        if skipped:
            self.log.error("skipped offsets %d to %d: %s", *skipped, error, extra={"tp": tp})
        else:
            self.log.error("stopped: %s", error, extra={"tp": tp})
        if self._events.on_error is not None:
            self._events.on_error(tp, error, skipped)

    def _count(self, taken: Taken) -> None:
        if self.metrics is names.NONE:
            return
        handout = taken.handout
        count = handout.handed - handout.first
        size = int(handout.messages.good().lengths[handout.first : handout.handed].sum(dtype="int64"))
        self.metrics.counter(names.MESSAGES, topic=taken.chunk.tp.topic).inc(count)
        self.metrics.counter(names.BYTES, topic=taken.chunk.tp.topic).inc(size)
        self.metrics.counter(names.ALL_MESSAGES).inc(count)
        self.metrics.counter(names.ALL_BYTES).inc(size)

    def position(self, tp: TopicPartition) -> Position | None:
        """Where it goes on after what was handed out; None where that is not known yet. GroupError: not ours."""
        with self._lock:
            if tp not in self._assigned and tp in self._sought:
                return self._sought[tp]
            return self._ours(tp).progress.handed

    def seek(self, tp: TopicPartition, position: Position | None) -> None:
        """Go on elsewhere; for a partition that is not ours yet, once it is."""
        with self._lock:
            assigned = self._assigned.get(tp)
            if assigned is None:
                self._sought[tp] = position
                return
            self._restart(assigned, position)

    def _restart(self, assigned: Assigned, position: Position | None) -> None:
        self._epoch += 1
        assigned.progress.restart(position, self._epoch)
        assigned.ended = False
        assigned.error = None
        self._left.pop(assigned.tp, None)
        if assigned.begun:
            if self.until_end and not assigned.paused:
                self._fetchers.resume([assigned.tp])
            self._fetchers.seek(assigned.tp, position, self._epoch)

    def pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        """Hand out nothing of them until they are resumed; or go on. GroupError for one that is not ours."""
        with self._lock:
            chosen = [self._ours(tp) for tp in partitions]
            for assigned in chosen:
                assigned.paused = paused
                if assigned.begun:
                    (self._fetchers.pause if paused else self._fetchers.resume)([assigned.tp])
            self._let_all()

    def _ours(self, tp: TopicPartition) -> Assigned:
        try:
            return self._assigned[tp]
        except KeyError:
            ours = ", ".join(map(str, sorted(self._assigned))) or "none"
            raise GroupError(f"{tp} is not ours; ours: {ours}") from None

    # Others

    def _lag(self, assigned: Assigned) -> int | None:
        """Bytes of the log that were not handed out yet."""
        latest, handed = self.log_ends.latest(assigned.tp, self.partitions), assigned.progress.handed
        return None if latest is None or handed is None else latest - handed.offset

    def _queued_bytes(self) -> int:
        with self._lock:
            return sum(queue.bytes_queued for queue in {assigned.queue for assigned in self._assigned.values()})

    def _address(self, broker: int) -> BrokerAddress | None:
        try:
            return self._cluster.address(broker)
        except ZooKeeperError as error:
            self.log.warning("%s", error)
            return None

    def _labels(self, tp: TopicPartition) -> dict[str, Any]:
        return {"group": self.config.group, "topic": tp.topic, "broker": tp.broker, "partition": tp.partition}


def _offset(position: Position | None) -> int | None:
    return None if position is None else position.offset
