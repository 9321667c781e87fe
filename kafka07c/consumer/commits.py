"""What a consumer commits, and when: by hand, by itself every so often, and at once after a reset.

A position is read off and written under one lock, so that nothing is written after something newer. What the group's
offsets are is known as of the last look; what somebody else has made of them is adopted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kafka07c import metrics as names
from kafka07c.consumer.chunks import ChunkQueue
from kafka07c.consumer.config import ConsumerConfig
from kafka07c.consumer.coordinator import GroupMember, OffsetStore
from kafka07c.consumer.group_log import GroupLog
from kafka07c.errors import CommitFailedError, GroupError, KafkaError
from kafka07c.metrics import Metrics
from kafka07c.names import TopicPartition
from kafka07c.positions import Position, Progress
from kafka07c.zookeeper import Access

__all__ = ["Assigned", "Commits", "Holdings", "completed", "handed"]

PositionOf = Callable[["Assigned"], "Position | None"]


@dataclass(eq=False)
class Assigned:
    """A partition that is ours. All is guarded by the holdings' lock; ``progress`` has rules of its own too."""

    tp: TopicPartition
    progress: Progress
    queue: ChunkQueue
    group_generation: int
    member: GroupMember | None = None  # whose it is in the group; None: nobody's, it was assigned by hand
    paused: bool = False
    begun: bool = False  # whether it is being fetched
    ended: bool = False  # whether its end was reached
    error: KafkaError | None = None  # what has stopped it


@dataclass(eq=False)
class Holdings:
    """The partitions that are ours, and the lock for all about them."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    assigned: dict[TopicPartition, Assigned] = field(default_factory=dict)
    leaving: dict[TopicPartition, Assigned] = field(default_factory=dict)  # those that on_revoke may still commit
    suspended: bool = False

    def committable(self) -> dict[TopicPartition, Assigned]:
        """Those that can be committed just now."""
        return self.leaving | self.assigned


def completed(assigned: Assigned) -> Position | None:
    """What is committed without being asked: what was handed out and come back for."""
    return assigned.progress.completed


def handed(of: Callable[[ChunkQueue], bool] | None = None) -> PositionOf:
    """What committing by hand covers: all that was handed out; where ``of`` is given by those queues that it chooses,
    and by others as far as it has come back."""
    if of is None:
        return lambda assigned: assigned.progress.handed
    return lambda assigned: assigned.progress.handed if of(assigned.queue) else assigned.progress.completed


class Commits:
    """Writes the positions of what is held, by ``member`` where there is one, else straight to the group's offsets.

    ``restart`` makes a partition go on elsewhere; it is called with the holdings' lock held.
    """

    def __init__(
        self,
        holdings: Holdings,
        config: ConsumerConfig,
        zookeeper: str | Access | None,
        restart: Callable[[Assigned, Position | None], None],
        metrics: Metrics,
        log: GroupLog,
    ):
        self.member: GroupMember | None = None
        #: whether anything is still committed that nobody asked for
        self.by_itself = config.autocommit and config.group is not None
        self._holdings = holdings
        self._config = config
        self._zookeeper = zookeeper
        self._restart = restart
        self._metrics = metrics
        self._log = log
        self._store: OffsetStore | None = None
        self._lost: set[TopicPartition] = set()  # handed out, lost before it was committed, and not yet said
        self._resets: dict[TopicPartition, tuple[Position, int]] = {}  # to be written, with their generations
        self._tried: dict[TopicPartition, set[int]] = {}  # offsets that may be written: the answer was lost
        self._writing = threading.RLock()
        self._wake = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look after the offsets from now on, where there is a group."""
        if self._thread is None and self._config.group is not None:
            self._thread = threading.Thread(target=self._look_after_offsets, name="kafka07c-commit", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Commit nothing any more."""
        self._closed = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)
        if self._store is not None:
            self._store.close()

    # By hand

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """What the group has committed; GroupError without a group, ZooKeeperError when it cannot be read."""
        return self._offsets.committed(partitions)

    def commit(
        self,
        positions: Mapping[TopicPartition, Position] | None = None,
        *,
        of: Callable[[ChunkQueue], bool] | None = None,
    ) -> None:
        """Commit these positions, or all that was handed out (see :func:`handed` for ``of``).

        CommitFailedError for what is lost, also if it was earlier and not said, and for what somebody else changed.
        """
        self._check_group()  # without one it is an error even if there is nothing to commit
        with self._writing:
            with self._holdings.lock:
                lost, self._lost = self._lost, set()
                ours = self._holdings.committable()
                if positions is None:
                    todo = _to_write(handed(of), ours.values())
                else:
                    todo = {ours[tp]: position for tp, position in positions.items() if tp in ours}
                    lost |= positions.keys() - ours.keys()
                self._supersede_resets(todo)
            failure = None
            try:
                self._write(todo, by_hand=True)
            except CommitFailedError as error:
                failure = error
            except BaseException:
                with self._holdings.lock:
                    self._lost |= lost
                raise
        if lost:
            raise self._lost_error(lost, failure) from failure
        if failure is not None:
            raise failure

    def _lost_error(self, lost: set[TopicPartition], failure: CommitFailedError | None) -> CommitFailedError:
        reason = f"group {self._config.group}: lost before it was committed: {', '.join(map(str, sorted(lost)))}"
        if failure is None:
            return CommitFailedError(reason, lost=lost)
        return CommitFailedError(f"{reason}; {failure}", lost=lost.union(failure.lost), moved=failure.moved)

    # By itself

    def commit_quietly(
        self, position_of: PositionOf, among: Iterable[Assigned] | None = None, *, by_hand: bool = False
    ) -> None:
        """If anything is to be committed by itself: these positions, of all or ``among`` those, where they have moved.

        What fails is logged, for the messages come again.
        """
        if not self.by_itself:
            return
        with self._writing:
            with self._holdings.lock:
                chosen = list(self._holdings.assigned.values() if among is None else among)
                todo = _to_write(position_of, [each for each in chosen if position_of(each) != each.progress.origin])
                self._supersede_resets(todo)
            self._write_quietly(todo, by_hand=by_hand)

    def settle(self, deadline: float) -> None:
        """Wait for what is being written: it was read off before what is said now. Until ``deadline`` (monotonic)."""
        if self._writing.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._writing.release()

    def ours_again(self, partitions: Iterable[TopicPartition]) -> None:
        """These were lost, perhaps, and go on from what was committed: there is nothing to say about them."""
        with self._holdings.lock:
            self._lost.difference_update(partitions)

    def gone(self, assigned: Assigned) -> None:
        """This is no longer ours: if some of it was handed out and not committed, the next commit says so."""
        with self._holdings.lock:
            self._tried.pop(assigned.tp, None)
            progress = assigned.progress
            if progress.handed not in (progress.origin, progress.committed):
                if assigned.tp not in self._holdings.assigned:
                    self._lost.add(assigned.tp)

    def on_reset(self, tp: TopicPartition, position: Position, generation: int) -> None:
        """A fetch thread had to begin elsewhere: ZooKeeper is told at once, by the thread that commits."""
        with self._holdings.lock:
            assigned = self._holdings.assigned.get(tp)
            if assigned is None or assigned.progress.generation != generation:
                return
            assigned.progress.reset(position)
            if self._config.group is not None:
                self._resets[tp] = (position, generation)
        self._metrics.counter(names.RESETS, group=self._config.group).inc()
        self._wake.set()

    def _look_after_offsets(self) -> None:
        """The thread that commits."""
        due = time.monotonic() + self._config.autocommit_interval
        while not self._closed:
            self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()
            try:
                self._write_resets()
                if time.monotonic() >= due and not self._closed and not self._holdings.suspended:
                    self.commit_quietly(completed)
                    self._adopt_changes()
            except KafkaError as error:
                if not self._closed:
                    self._log.warning("%s", error)
            except Exception:
                self._log.exception("committing failed")
            if time.monotonic() >= due:
                due = time.monotonic() + self._config.autocommit_interval

    def write_resets_quietly(self) -> None:
        """Write what :meth:`on_reset` was told and nobody has written yet; what fails is logged. Before the end: who
        comes next would begin at the log's end as it is then, and leave out what came between."""
        try:
            if self._config.group is not None:
                self._write_resets()
        except KafkaError as error:
            self._log.warning("%s", error)

    def _write_resets(self) -> None:
        with self._writing:
            with self._holdings.lock:
                resets, self._resets = self._resets, {}
                todo = {
                    self._holdings.assigned[tp]: position
                    for tp, (position, generation) in resets.items()
                    if tp in self._holdings.assigned
                    and self._holdings.assigned[tp].progress.generation == generation
                }
            if not self._closed:
                self._write_quietly(todo, by_hand=False)
            with self._holdings.lock:
                for assigned, position in todo.items():
                    if assigned.progress.committed != position:  # it failed: again, unless something newer comes
                        self._resets.setdefault(assigned.tp, resets[assigned.tp])

    def _supersede_resets(self, todo: Iterable[Assigned]) -> None:
        """What is about to be written is newer than a reset that was not written yet: that would be a step back."""
        for assigned in todo:
            self._resets.pop(assigned.tp, None)

    def _adopt_changes(self) -> None:
        """Look whether somebody else has set an offset: who has nothing to commit would not find out."""
        with self._writing:
            with self._holdings.lock:
                ours = self._holdings.assigned.items()
                known = {tp: each for tp, each in ours if each.progress.committed is not None}
            found = self._offsets.committed(known) if known else {}
            changed: dict[Assigned, Position] = {}
            for tp, assigned in known.items():
                before, now = assigned.progress.committed, found[tp]
                if now is not None and now.offset in self._tried.get(tp, ()):
                    assigned.progress.committed = now  # it was we; to write what was before would be a step back
                elif before is not None and (now is None or now.offset != before.offset):
                    changed[assigned] = before
            # It is refused, for the offset has another version by now; that is how the new one is learnt.
            self._write_quietly(changed, by_hand=False)

    # Writing

    @property
    def _offsets(self) -> GroupMember | OffsetStore:
        if self.member is not None:
            return self.member
        zookeeper, group = self._check_group()
        with self._holdings.lock:
            if self._closed:  # nobody would close another session
                raise GroupError(f"group {group}: the consumer is closed")
            if self._store is None:
                self._store = OffsetStore(
                    zookeeper,
                    group,
                    session_timeout=self._config.zookeeper_session,
                    connect_timeout=self._config.zookeeper_connect,
                )
            return self._store

    def _check_group(self) -> tuple[str | Access, str]:
        """ZooKeeper and the group's name; GroupError when there is none of the one or the other."""
        if self._config.group is None:
            raise GroupError("there is no group to commit for: give the consumer a group")
        if self._zookeeper is None:
            raise GroupError("a group's offsets are in ZooKeeper: give the consumer zookeeper=")
        return self._zookeeper, self._config.group

    def _write_quietly(self, todo: Mapping[Assigned, Position], *, by_hand: bool) -> None:
        try:
            self._write(todo, by_hand=by_hand)
        except KafkaError as error:
            self._log.warning("%s", error)

    def _write(self, todo: Mapping[Assigned, Position], *, by_hand: bool) -> None:
        if not todo:
            return
        positions = {assigned.tp: position for assigned, position in todo.items()}
        self._metrics.counter(names.COMMITS, group=self._config.group).inc()
        refused: set[TopicPartition] = set()
        for tp, position in positions.items():
            self._tried.setdefault(tp, set()).add(position.offset)
        member = next(iter(todo)).member  # of all; the group may have been left, or joined anew, since it was looked up
        try:
            if member is not None:
                member.commit(positions, max(assigned.group_generation for assigned in todo))
            else:
                self._offsets.commit(positions)
        except CommitFailedError as error:
            self._metrics.counter(names.FAILED_COMMITS, group=self._config.group).inc()
            refused = {*error.lost, *error.moved}
            self._adopt(todo, error.moved)
            raise
        except BaseException:
            refused = set(positions)
            raise
        finally:
            with self._holdings.lock:
                for assigned, position in todo.items():
                    if assigned.tp not in refused:
                        self._tried.pop(assigned.tp, None)
                        assigned.progress.commit(position, by_hand=by_hand)

    def _adopt(self, todo: Iterable[Assigned], moved: Mapping[TopicPartition, Position | None]) -> None:
        """Go on where somebody else has set the offset."""
        with self._holdings.lock:
            for assigned in todo:
                tp = assigned.tp
                if tp in moved and self._holdings.assigned.get(tp) is assigned:
                    now = moved[tp]
                    where = "as autooffset.reset says" if now is None else f"at offset {now.offset}"
                    self._log.warning("somebody else changed the offset: goes on %s", where, extra={"tp": tp})
                    self._restart(assigned, now)
                    self._tried.pop(tp, None)
                    assigned.progress.committed = now


def _to_write(position_of: PositionOf, among: Iterable[Assigned]) -> dict[Assigned, Position]:
    """Positions that are known, and differ from what is written."""
    found = {assigned: position_of(assigned) for assigned in among}
    return {
        assigned: position
        for assigned, position in found.items()
        if position is not None and position != assigned.progress.committed
    }
