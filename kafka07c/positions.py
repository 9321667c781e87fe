"""How far a consumer is in a partition: what was handed out, what came back, and what may be committed of it.

Nothing here knows a socket, a thread or ZooKeeper. One thread hands out; any other may ask how far it is: each method
reads what one store has written, in an order in which a reader sees too little handled rather than too much.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka07c._views import MessageSet

__all__ = ["Handout", "Position", "Progress"]


class Position(NamedTuple):
    """Where to go on in a partition: fetch from ``offset``, skip the first ``index`` messages of that entry.

    ``offset`` is a byte position in the log at which a stored entry starts (or the log ends): 0.7's commits hold
    this number and nothing else. ``index`` counts messages of that one entry that were handled already; it is above
    0 only inside a compressed wrapper.
    """

    offset: int
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which nobody asks of a position
class Handout:
    """Messages of one partition on their way to the application, some of them handed out.

    ``start`` is the position that they were asked for from: messages before it are in ``messages`` and count as
    handled. ``end`` is where to go on after all of them. ``handed`` and ``back`` are counts from the start of
    ``messages``: the next to hand out is ``messages[handed]``, and the application has come back for more after the
    first ``back``. ``live``: whether more may be handed out now; ``gone``: nothing ever will.
    """

    __slots__ = ("back", "count", "end", "first", "gone", "handed", "live", "messages", "start")

    def __init__(self, messages: MessageSet, start: Position, skipped_to: int | None = None):
        self.messages = messages
        self.start = start
        self.count = len(messages)
        self.first = self.handed = self.back = _handled_before(messages, start)
        self.live = True
        self.gone = False
        if skipped_to is not None:
            self.end = Position(skipped_to)
        else:
            # a wrapper that is damaged inside ends the set before it, after some of its messages
            self.end = max(start, self._after(self.count), Position(messages.next_offset))

    def position(self, count: int) -> Position:
        """Where to go on after the first ``count`` messages."""
        return self.end if count >= self.count else self._after(count)

    @property
    def finished(self) -> bool:
        """Whether all was handed out."""
        return self.handed >= self.count

    def _after(self, count: int) -> Position:
        if count <= self.first:
            return self.start
        last = self.messages[count - 1]
        return Position(last.next_offset, last.index + 1 if last.next_offset == last.offset else 0)


def _handled_before(messages: MessageSet, start: Position) -> int:
    """How many messages of the first entry to pass over; none when it has not so many, and so is not what it was."""
    index = start.index
    if not index or len(messages) < index or messages[index - 1].offset != start.offset:
        return 0
    if len(messages) > index:
        return index if messages[index].offset == start.offset else 0
    # a wrapper whose good messages were handled, and then its damage was met: it will be again
    return index if messages.next_offset == start.offset else 0


class Progress:
    """How far the application is in one partition, over all its handouts that are not yet done with.

    ``handed`` and ``completed`` are positions, None as long as nobody knows where the partition begins: where to go on
    after what was handed out, and after that part of it which the application has come back from. ``origin`` is where
    it began here. ``committed`` is what the group's offset is known to be, ``generation`` tells the chunks that belong
    here from those asked for earlier.
    """

    __slots__ = ("_by_hand", "_handouts", "_reset", "_start", "committed", "generation", "origin")

    def __init__(self, start: Position | None, generation: int, committed: Position | None = None):
        self.committed = committed
        self._begin(start, generation)

    def _begin(self, start: Position | None, generation: int) -> None:
        self.origin = self._start = start
        self.generation = generation
        self._handouts: tuple[Handout, ...] = ()  # replaced, never changed
        self._by_hand: Position | None = None
        self._reset: Position | None = None

    @property
    def handed(self) -> Position | None:
        """Where to go on after what was handed out."""
        if self._reset is not None:
            return self._reset
        handouts = self._handouts
        for handout in handouts:
            if handout.handed < handout.count:
                return handout.position(handout.handed)
        return handouts[-1].end if handouts else self._start

    @property
    def completed(self) -> Position | None:
        """Where to go on after what was handed out and come back for more, or committed by hand."""
        if self._reset is not None:
            return self._reset
        handouts = self._handouts
        found = handouts[-1].end if handouts else self._start
        for handout in handouts:
            if handout.back < handout.count:
                found = handout.position(handout.back)
                break
        by_hand = self._by_hand
        return found if by_hand is None or found is None else max(found, by_hand)

    @property
    def handouts(self) -> tuple[Handout, ...]:
        """Those that are not done with, in the order of the log."""
        return self._handouts

    def add(self, handout: Handout) -> None:
        """These messages come next."""
        if handout.start == self._reset:  # no position after those from before the reset means anything any more
            self.void()
            self._handouts = (handout,)
            self._by_hand = self._reset = None
        else:
            self._handouts += (handout,)

    def come_back(self) -> None:
        """The application has come back for more: what was handed out is handled."""
        handouts = self._handouts
        done = 0
        for handout in handouts:
            handout.back = handout.handed
            if not handout.finished:
                break
            done += 1
        if done:
            self._start = handouts[done - 1].end  # before the next line: who asks meanwhile finds the one or the other
            self._handouts = handouts[done:]

    def commit(self, position: Position, *, by_hand: bool) -> None:
        """The group's offset is ``position`` now; ``by_hand``: because the application says so, come back or not."""
        self.committed = position
        if by_hand:
            self._by_hand = position

    def restart(self, start: Position | None, generation: int) -> None:
        """Go on elsewhere: what there is of handouts is void."""
        self.void()
        self._begin(start, generation)

    def reset(self, position: Position) -> None:
        """The log no longer has the offset where this would go on: it goes on at ``position``, once that is fetched."""
        self.origin = self._reset = position

    def void(self) -> None:
        """Nothing more is handed out of what there is; how far it came can still be asked."""
        for handout in self._handouts:
            handout.gone = True
            handout.live = False

    def let(self, live: bool) -> None:
        """Whether more may be handed out at the moment."""
        for handout in self._handouts:
            handout.live = live and not handout.gone
