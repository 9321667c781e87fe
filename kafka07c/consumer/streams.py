"""Streams of messages: what one thread of the application takes from, and what counts as handled of it."""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Iterator
from time import monotonic

from kafka07c._views import Message, MessageSet
from kafka07c.consumer.chunks import ChunkQueue
from kafka07c.consumer.reader import Reader, Taken
from kafka07c.errors import KafkaError
from kafka07c.names import TopicPartition
from kafka07c.positions import Handout

__all__ = ["MessageStream"]

#: seconds between two looks at what no queue tells: that the consumer was closed, or may go on
_TICK = 0.05


class MessageStream:
    """Messages of the partitions that are on this stream, each with its topic, broker and partition; for one thread.

    ::

        for message in stream:
            handle(message)

    Each partition's messages come in order, and a partition is on one stream only. Iteration waits for messages; it
    ends when the consumer is closed, or no message came for ``consumer.timeout.ms``, or with ``until_end`` when all
    is read. It can then be begun again. :meth:`batches` gives whole message sets instead. A message counts as handled
    once the thread asks for the next one; see :class:`~kafka07c.consumer.Consumer` for what that means to commits.

    Iterating raises the error of a partition, where the policy is to raise: once, after the messages before it. Iterate
    again for those of all other partitions; ``seek`` lets the damaged one go on.
    """

    def __init__(self, reader: Reader):
        self.queue = ChunkQueue(reader.config.queue_bytes)
        self._reader = reader
        self._taken: list[Taken] = []  # what is not done with, in the order in which it came
        self._done: deque[Taken] = deque()  # handed out and come back for, and not yet said
        self._errors: deque[KafkaError] = deque()
        self._iteration: Iterator[Message] | None = None
        self._thread: int | None = None

    @property
    def is_this_threads(self) -> bool:
        """Whether the calling thread is the one that took from the stream last."""
        return self._thread == threading.get_ident()

    def __iter__(self) -> Iterator[Message]:
        if self._iteration is None:
            self._iteration = self._messages()
        return self._iteration

    def __next__(self) -> Message:
        return next(iter(self))

    def batches(self) -> Iterator[MessageSet]:
        """Whole message sets, never empty, as they were fetched: each is of one partition and says which.

        A set that was begun message by message goes on with the next message, also inside a wrapper.
        """
        while (taken := self._next()) is not None:
            messages = _rest(taken.handout)
            taken.handout.handed = taken.handout.count
            yield messages

    def poll(self, timeout: float, max_messages: int) -> dict[TopicPartition, list[Message]]:
        """What is here, up to so many messages; waits up to ``timeout`` seconds for the first."""
        polled: dict[TopicPartition, list[Message]] = {}
        taken = self._next(timeout)
        while taken is not None:
            handout = taken.handout
            messages = handout.messages[handout.handed : handout.handed + max_messages]
            handout.handed += len(messages)
            polled.setdefault(taken.chunk.tp, []).extend(messages)
            max_messages -= len(messages)
            if not max_messages:
                break
            taken = self._first_live()
            while taken is None and self._take(0.0):
                taken = self._first_live()
        return polled

    def _messages(self) -> Iterator[Message]:
        try:
            while (taken := self._next()) is not None:
                handout, lease = taken.handout, self._reader.lease
                messages, count = handout.messages, handout.count
                # All that is done per message. Live is asked first: what is handed out after that, while another thread
                # gives the partition up, is not in what that one commits.
                while handout.live and (i := handout.handed) < count and monotonic() < lease.may_deliver_until:
                    handout.handed = i + 1
                    yield messages[i]
                    handout.back = handout.handed
        finally:
            self._iteration = None

    def _next(self, timeout: float | None = None) -> Taken | None:
        """Come back for more, and wait for something to hand out; None when there is none in time, or will be none."""
        reader = self._reader
        if timeout is None and reader.config.consumer_timeout_ms >= 0:
            timeout = reader.config.consumer_timeout_ms / 1000
        deadline = None if timeout is None else monotonic() + timeout
        self._thread = threading.get_ident()
        while True:
            self._come_back()
            if self._errors:
                raise copy.copy(self._errors.popleft())
            if reader.closed:
                return None
            if (taken := self._first_live()) is not None:
                return taken
            if reader.until_end and reader.at_end:
                return None
            left = _TICK if deadline is None else max(0.0, min(_TICK, deadline - monotonic()))
            if reader.waiting:
                time.sleep(left)
            elif self._take(left):
                continue
            if deadline is not None and monotonic() >= deadline:
                return None

    def _first_live(self) -> Taken | None:
        if self._reader.waiting:
            return None
        for taken in self._taken:
            if taken.handout.live and not taken.handout.finished:
                return taken
        return None

    def _take(self, timeout: float) -> bool:
        """Take the next chunk out of the queue, of use or not; False when none came within ``timeout`` seconds."""
        chunk = self.queue.get(timeout)
        taken = None if chunk is None else self._reader.accept(chunk)
        if taken is not None:
            self._taken.append(taken)
        return chunk is not None

    def _come_back(self) -> None:
        """What was handed out is handled: say so, and let go of what is done with."""
        for assigned in {each.assigned for each in self._taken}:
            assigned.progress.come_back()
        self._done.extend(each for each in self._taken if each.handout.finished)
        self._taken = [each for each in self._taken if not each.handout.finished and not each.handout.gone]
        while self._done:
            error = self._reader.done(self._done.popleft())  # may call the application, which may raise
            if error is not None:
                self._errors.append(error)


def _rest(handout: Handout) -> MessageSet:
    """The messages not handed out yet, without an error at the end."""
    messages = handout.messages
    if messages.error is not None:
        messages = messages.good()
    return messages.skip(handout.handed) if handout.handed else messages
