"""The partitions that a consumer reads: how far it is in each, what may be handed out now, and what is committed.

Three kinds of threads meet here. The application's take chunks out of their streams' queues and hand them to
:meth:`Reader.accept`. The coordinator's says which partitions are ours. One of our own commits now and then. All that
they share is in :class:`Assigned` records under one lock; no broker and no ZooKeeper is asked while it is held.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka07c import metrics as names
from kafka07c.callbacks import Callbacks
from kafka07c.chunks import Chunk, ChunkQueue
from kafka07c.cluster import Cluster, TopicPartition
from kafka07c.config import ConsumerConfig
from kafka07c.coordinator import REVOKE_SECONDS, GroupMember, OffsetStore, State
from kafka07c.errors import CommitFailedError, GroupError, KafkaError, ZooKeeperError
from kafka07c.fetcher import Fetchers
from kafka07c.log_ends import LogEnds
from kafka07c.metrics import Metrics
from kafka07c.positions import Handout, Position, Progress
from kafka07c.subscription import Subscription
from kafka07c.zookeeper import Access

__all__ = ["Assigned", "Events", "GroupLog", "Reader", "Taken"]

_log = logging.getLogger("kafka07c.consumer")



class GroupLog(logging.LoggerAdapter):
    """Puts the group in front of each line, and ``group``, ``topic``, ``partition`` onto each record.

    The partition a line is about is given as ``extra={"tp": tp}`` and stands behind the group.
    """

    def __init__(self, group: str | None):
        super().__init__(_log, {})
        self._group = group

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """As in any logger."""
        if not self.isEnabledFor(level):
            return
        tp = (kwargs.get("extra") or {}).get("tp")
        place = [f"group {self._group}"] if self._group else []
        place += [str(tp)] if tp is not None else []
        kwargs["extra"] = {
            "group": self._group,
            "topic": tp.topic if tp is not None else None,
            "partition": tp.name if tp is not None else None,
        }
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the line is our caller's
        text, prefix = str(msg) % args if args else str(msg), "".join(f"{each}: " for each in place)
        # what is raised names its group too
        self.logger.log(level, "%s%s", "" if text.startswith(prefix) else prefix, text, **kwargs)


@dataclass(frozen=True)
class Events:
    """What the application wants to be told; see :class:`kafka07c.consumer.Consumer`."""

    on_assign: Callable[[set[TopicPartition]], Any] | None = None
    on_revoke: Callable[[set[TopicPartition], bool], Any] | None = None
    on_error: Callable[[TopicPartition, KafkaError, tuple[int, int] | None], Any] | None = None
    on_partition_end: Callable[[TopicPartition, Position], Any] | None = None


@dataclass(eq=False)
class Assigned:
    """A partition that is ours. All is guarded by the reader's lock, and ``progress`` by its own rules too."""

    tp: TopicPartition
    progress: Progress
    queue: ChunkQueue
    group_generation: int
    paused: bool = False
    begun: bool = False  # whether it is being fetched
    ended: bool = False  # whether its end was reached
    error: KafkaError | None = None  # what has stopped it


@dataclass(frozen=True, eq=False)
class Taken:
    """A chunk that an application's thread has taken, and what of it is handed out."""

    chunk: Chunk
    assigned: Assigned
    handout: Handout


class _Always:
    """The lease of those who own what they read as long as they like."""

    may_deliver_until = float("inf")


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
        self.member: GroupMember | None = None
        self.log_ends = LogEnds(cluster)
        self._cluster = cluster
        self._zookeeper = zookeeper
        self._events = events
        self._callbacks = Callbacks(self.log)
        self._fetchers = Fetchers(
            self._address, config=config, on_reset=self._on_reset, metrics=self.metrics, log=self.log
        )
        self._store: OffsetStore | None = None
        self._lock = threading.RLock()
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._leaving: dict[TopicPartition, Assigned] = {}  # those that on_revoke may still commit
        self._lost: set[TopicPartition] = set()  # handed out, lost before it was committed, and not yet said
        self._left: dict[TopicPartition, Position] = {}  # how far it was handled, of those that we had
        self._sought: dict[TopicPartition, Position | None] = {}  # before they were ours
        self._suspended = False
        self._may_commit = True
        self._epoch = 0
        self._queue_of: Callable[[TopicPartition, int], ChunkQueue] | None = None
        self._committing = threading.RLock()  # what is read off as handled is written before anything newer is
        self._committer: threading.Thread | None = None
        self._resets: dict[TopicPartition, tuple[Position, int]] = {}
        self._wake = threading.Event()

    # Beginning and ending

    def join(self, subscription: Subscription, queue_of: Callable[[TopicPartition, int], ChunkQueue]) -> None:
        """Become a member of the group; ``queue_of`` gives the queue for a partition on a thread's number."""
        if self.config.group is None:
            raise GroupError("there is no group to join: give the consumer group=")
        if self._zookeeper is None:
            raise GroupError("members of a group meet in ZooKeeper: give the consumer zookeeper=")
        self._queue_of = queue_of
        self.member = GroupMember(
            self._zookeeper, self.config.group, subscription, config=self.config, listener=self, metrics=self.metrics
        )
        try:
            self.member.start()
        except BaseException:
            self.member = None
            raise
        self.metrics.gauge(names.CONSUMER_GROUP, group=self.config.group).set(1)
        self._start_committer()

    def leave(self) -> None:
        """Leave the group; what is uncommitted is committed where autocommit is on."""
        if self.member is None:
            self.drop(self.partitions)
            return
        try:
            self.member.close()  # which calls on_revoked
        finally:
            self.member = None

    def assign(self, positions: Mapping[TopicPartition, Position | None], queue: ChunkQueue) -> None:
        """Read these partitions, which are nobody's; None: from the committed offset, else as settings say."""
        unknown = [tp for tp, position in positions.items() if position is None]
        committed = self.committed(unknown) if unknown and self.config.group is not None else {}
        with self._lock:
            new = [
                self._take_up(tp, position if position is not None else committed.get(tp), committed.get(tp), queue, 0)
                for tp, position in positions.items()
            ]
        self._start_committer()
        self._begin(new)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading partitions; with autocommit on, what came back of them is committed."""
        with self._lock:
            gone = self._give_up(set(partitions))
        if gone:
            self._fetchers.remove(gone)
            if self.config.autocommit and self._may_commit:
                self._commit_quietly(_completed, gone.values())
            self._forget(gone.values())

    def close(self, *, commit: bool, of: Callable[[ChunkQueue], bool] | None = None) -> None:
        """End everything; ``commit``: with autocommit on, all that was handed out, the last message included.

        ``of``: as for :meth:`commit`.
        """
        if self.closed:
            return
        if commit and self.config.autocommit and self._may_commit:
            self._commit_quietly(_by_hand(of), by_hand=True)
        self._may_commit = commit and self._may_commit
        try:
            self.leave()
        finally:
            self.closed = True
            self._wake.set()
            self._fetchers.close()
            self._callbacks.close()
            if self._store is not None:
                self._store.close()
            if self._committer is not None and self._committer is not threading.current_thread():
                self._committer.join(timeout=1.0)

    # The coordinator's thread

    def on_assigned(self, partitions: dict[TopicPartition, tuple[int, Position | None]], generation: int) -> None:
        with self._lock:
            new = [
                self._take_up(tp, self._resumed(tp, position), position, self._queue_of(tp, thread), generation)
                for tp, (thread, position) in partitions.items()
            ]
            self._lost.difference_update(partitions)
        self.log.info("ours from now on: %s", ", ".join(map(str, partitions)))
        if self._events.on_assign is None:
            self._begin(new)
        else:
            self._callbacks.call(self._assign_then_begin, set(partitions), new)

    def on_revoked(self, partitions: set[TopicPartition], can_commit: bool) -> None:
        deadline = time.monotonic() + REVOKE_SECONDS
        with self._lock:
            gone = self._give_up(partitions)
            can_commit = can_commit and self._may_commit
            if can_commit:
                self._leaving.update(gone)
        self._fetchers.remove(partitions)
        self.log.info("given up: %s", ", ".join(map(str, sorted(partitions))))
        if can_commit and self.config.autocommit:
            self._commit_quietly(_completed, gone.values())
        if self._events.on_revoke is not None:
            left = max(0.001, deadline - time.monotonic())
            if not self._callbacks.call(self._events.on_revoke, partitions, can_commit, wait=left):
                self.log.warning("on_revoke takes longer than %g s: it can no longer commit", REVOKE_SECONDS)
        self._settle_commits(deadline)
        with self._lock:
            for tp in partitions:
                self._leaving.pop(tp, None)
            self._forget(gone.values())

    def on_suspended(self) -> None:
        self.log.warning("the connection to ZooKeeper is lost: nothing is handed out until it is back")
        with self._lock:
            self._suspended = True
            self._let_all()

    def on_resumed(self) -> None:
        self.log.info("connected to ZooKeeper again, what was ours still is")
        with self._lock:
            self._suspended = False
            self._let_all()

    def on_lost(self, partitions: set[TopicPartition]) -> None:
        with self._lock:
            gone = self._give_up(partitions)
            self._suspended = False
            self._let_all()
        self._fetchers.remove(partitions)
        if partitions:
            self.log.warning("lost: %s", ", ".join(map(str, sorted(partitions))))
        if partitions and self._events.on_revoke is not None:
            self._callbacks.call(self._events.on_revoke, partitions, False)
        self._forget(gone.values())

    def on_failed(self, error: Exception) -> None:
        self.log.warning("%s", error)

    def _assign_then_begin(self, partitions: set[TopicPartition], new: list[Assigned]) -> None:
        try:
            self._events.on_assign(partitions)
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
        assigned = Assigned(tp, Progress(start, self._epoch, committed), queue, generation)
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
                tp, progress = assigned.tp, assigned.progress
                completed, handed = progress.completed, progress.handed
                if completed is not None and completed.index:
                    self._left[tp] = completed
                else:
                    self._left.pop(tp, None)
                if handed not in (progress.origin, progress.committed) and tp not in self._assigned:
                    self._lost.add(tp)
                for name in (names.PART_OWNER, names.CONSUMED_OFFSET, names.LATEST_OFFSET, names.OFFSET_LAG):
                    self.metrics.remove(name, **self._labels(tp))

    def _let_all(self) -> None:
        for assigned in self._assigned.values():
            assigned.progress.let(not self._suspended and not assigned.paused)

    # The application's threads

    @property
    def lease(self) -> GroupMember | _Always:
        """Its ``may_deliver_until`` is the time.monotonic() up to which what is ours certainly is."""
        return _Always if self.member is None else self.member

    @property
    def waiting(self) -> bool:
        """Whether nothing at all may be handed out at the moment."""
        return self._suspended or time.monotonic() > self.lease.may_deliver_until

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
            handout.live = not self._suspended and not assigned.paused
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

    # Committing

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """What the group has committed."""
        return self._offsets.committed(partitions)

    def commit(
        self,
        positions: Mapping[TopicPartition, Position] | None = None,
        *,
        of: Callable[[ChunkQueue], bool] | None = None,
    ) -> None:
        """Commit by hand: these positions, or all that was handed out.

        ``of`` chooses queues: what others handed out counts only as far as it has come back.
        """
        self._offsets  # noqa: B018 -- without a group it is an error even if there is nothing to commit
        with self._committing:
            with self._lock:
                lost, self._lost = self._lost, set()
                if positions is None:
                    todo = self._handled(_by_hand(of), self._ours_or_leaving().values())
                    unknown: set[TopicPartition] = set()
                else:
                    ours = self._ours_or_leaving()
                    todo = {ours[tp]: position for tp, position in positions.items() if tp in ours}
                    unknown = positions.keys() - ours.keys()
                    lost -= unknown
                self._supersede_resets(todo)
            try:
                self._write(todo, by_hand=True)
                failure = None
            except CommitFailedError as error:
                failure = error
            except BaseException:
                with self._lock:
                    self._lost |= lost
                raise
        lost |= unknown
        if not lost and failure is None:
            return
        if failure is None or lost:
            reasons = [f"group {self.config.group}: lost before it was committed: {', '.join(map(str, sorted(lost)))}"]
            reasons += [str(failure)] if failure is not None else []
            raise CommitFailedError(
                "; ".join(reasons),
                lost=lost.union(failure.lost if failure is not None else ()),
                moved=failure.moved if failure is not None else {},
            ) from failure
        raise failure

    @property
    def _offsets(self) -> Any:
        if self.member is not None:
            return self.member
        if self.config.group is None:
            raise GroupError("there is no group to commit for: give the consumer a group")
        with self._lock:
            if self._store is None:
                if self._zookeeper is None:
                    raise GroupError("a group's offsets are in ZooKeeper: give the consumer zookeeper=")
                self._store = OffsetStore(
                    self._zookeeper,
                    self.config.group,
                    session_timeout=self.config.zookeeper_session,
                    connect_timeout=self.config.zookeeper_connect,
                )
            return self._store

    def _ours_or_leaving(self) -> dict[TopicPartition, Assigned]:
        return self._leaving | self._assigned

    def _handled(
        self, position_of: Callable[[Assigned], Position | None], among: Iterable[Assigned]
    ) -> dict[Assigned, Position]:
        """What there is to write: where a position is known, and differs from what is written."""
        found = {}
        for assigned in among:
            position = position_of(assigned)
            if position is not None and position != assigned.progress.committed:
                found[assigned] = position
        return found

    def _write(self, todo: Mapping[Assigned, Position], *, by_hand: bool) -> None:
        if not todo:
            return
        positions = {assigned.tp: position for assigned, position in todo.items()}
        self.metrics.counter(names.COMMITS, group=self.config.group).inc()
        try:
            if self.member is not None:
                self.member.commit(positions, max(assigned.group_generation for assigned in todo))
            else:
                self._offsets.commit(positions)
        except CommitFailedError as error:
            self.metrics.counter(names.FAILED_COMMITS, group=self.config.group).inc()
            self._note(todo, {*error.lost, *error.moved}, by_hand=by_hand)
            self._adopt(todo, error.moved)
            raise
        self._note(todo, set(), by_hand=by_hand)

    def _note(self, written: Mapping[Assigned, Position], refused: set[TopicPartition], *, by_hand: bool) -> None:
        with self._lock:
            for assigned, position in written.items():
                if assigned.tp not in refused:
                    assigned.progress.commit(position, by_hand=by_hand)

    def _adopt(self, todo: Iterable[Assigned], moved: Mapping[TopicPartition, Position | None]) -> None:
        """Go on where somebody else has set the offset."""
        with self._lock:
            for assigned in todo:
                if assigned.tp in moved and self._assigned.get(assigned.tp) is assigned:
                    position = moved[assigned.tp]
                    where = "as autooffset.reset says" if position is None else f"at offset {position.offset}"
                    self.log.warning("somebody else changed the offset: goes on %s", where, extra={"tp": assigned.tp})
                    self._restart(assigned, position)
                    assigned.progress.committed = position

    def _commit_quietly(
        self,
        position_of: Callable[[Assigned], Position | None],
        among: Iterable[Assigned] | None = None,
        *,
        by_hand: bool = False,
    ) -> None:
        """Commit by itself: only where something was handed out; what fails is logged, for it will come again."""
        if self.config.group is None:
            return
        with self._committing:
            with self._lock:
                chosen = list(self._assigned.values() if among is None else among)
                todo = self._handled(position_of, [each for each in chosen if _has_moved(each, position_of)])
                self._supersede_resets(todo)
            try:
                self._write(todo, by_hand=by_hand)
            except KafkaError as error:
                self.log.warning("%s", error)

    def _settle_commits(self, deadline: float) -> None:
        """Wait for a commit under way, which has read its positions off before what is said now."""
        if self._committing.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._committing.release()

    def _adopt_changes(self) -> None:
        """Look whether somebody else has set an offset: who has nothing to commit would not find out."""
        with self._committing:
            with self._lock:
                known = {tp: each for tp, each in self._assigned.items() if each.progress.committed is not None}
            found = self._offsets.committed(known) if known else {}
            changed = {
                assigned: assigned.progress.committed
                for tp, assigned in known.items()
                if _offset(found[tp]) != assigned.progress.committed.offset
            }
            try:
                self._write(changed, by_hand=False)  # which is refused: the offset has another version by now
            except CommitFailedError as error:
                self.log.debug("%s", error)

    def _on_reset(self, tp: TopicPartition, position: Position, generation: int) -> None:
        """A fetch thread had to begin elsewhere: ZooKeeper is told at once, by the thread that commits."""
        with self._lock:
            assigned = self._assigned.get(tp)
            if assigned is None or assigned.progress.generation != generation:
                return
            assigned.progress.reset(position)
            if self.config.group is not None:
                self._resets[tp] = (position, generation)
        self.metrics.counter(names.RESETS, group=self.config.group).inc()
        self._wake.set()

    def _supersede_resets(self, todo: Iterable[Assigned]) -> None:
        """What is about to be written is newer than a reset that was not written yet: that would be a step back."""
        for assigned in todo:
            self._resets.pop(assigned.tp, None)

    def _start_committer(self) -> None:
        if self._committer is None and self.config.group is not None:
            self._committer = threading.Thread(target=self._keep_committing, name="kafka07c-commit", daemon=True)
            self._committer.start()

    def _keep_committing(self) -> None:
        due = time.monotonic() + self.config.autocommit_interval
        while not self.closed:
            self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()
            try:
                self._commit_resets()
                if time.monotonic() >= due:
                    due = time.monotonic() + self.config.autocommit_interval
                    self._look_after_offsets()
            except KafkaError as error:
                self.log.warning("%s", error)
            except Exception:
                self.log.exception("committing failed")

    def _look_after_offsets(self) -> None:
        if self.closed or self._suspended or not self._may_commit:
            return
        if self.config.autocommit:
            self._commit_quietly(_completed)
        self._adopt_changes()

    def _commit_resets(self) -> None:
        with self._committing:
            with self._lock:
                resets, self._resets = self._resets, {}
                todo = {
                    self._assigned[tp]: position
                    for tp, (position, generation) in resets.items()
                    if tp in self._assigned and self._assigned[tp].progress.generation == generation
                }
            if todo and not self.closed:
                try:
                    self._write(todo, by_hand=False)
                except KafkaError as error:
                    self.log.warning("%s", error)

    # Others

    def _lag(self, assigned: Assigned) -> int | None:
        """Bytes of the log that were not handed out yet."""
        latest, handed = self.log_ends.latest(assigned.tp, self.partitions), assigned.progress.handed
        return None if latest is None or handed is None else latest - handed.offset

    def _queued_bytes(self) -> int:
        with self._lock:
            return sum(queue.bytes_queued for queue in {assigned.queue for assigned in self._assigned.values()})

    def _address(self, broker: int):
        try:
            return self._cluster.address(broker)
        except ZooKeeperError as error:
            self.log.warning("%s", error)
            return None

    def _labels(self, tp: TopicPartition) -> dict[str, Any]:
        return {"group": self.config.group, "topic": tp.topic, "broker": tp.broker, "partition": tp.partition}


def _completed(assigned: Assigned) -> Position | None:
    return assigned.progress.completed


def _by_hand(of: Callable[[ChunkQueue], bool] | None) -> Callable[[Assigned], Position | None]:
    """What committing by hand covers: all that was handed out, by those queues that ``of`` chooses."""
    if of is None:
        return lambda assigned: assigned.progress.handed
    return lambda assigned: assigned.progress.handed if of(assigned.queue) else assigned.progress.completed


def _has_moved(assigned: Assigned, position_of: Callable[[Assigned], Position | None]) -> bool:
    return position_of(assigned) != assigned.progress.origin


def _offset(position: Position | None) -> int | None:
    return None if position is None else position.offset
