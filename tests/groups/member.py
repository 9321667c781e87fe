"""Members of a group as a process that logs its history: ``python -m groups.member``. SIGTERM: it leaves cleanly.

Everything that is handed out is written down at once, before more is asked for: what the history does not have cannot
have been committed.
"""

from __future__ import annotations

import argparse
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable

from faults.history import Writer
from groups.checker import record_id

from kafka07c import Message, TopicPartition
from kafka07c.consumer import Consumer
from kafka07c.errors import CommitFailedError
from kafka07c.subscription import Whitelist

_TICK_MS = 200


class Member:
    """One consumer, and what it does with what it gets."""

    def __init__(self, args: argparse.Namespace, name: str, stopping: threading.Event):
        self._args = args
        self._stopping = stopping
        self._history = Writer(args.history, name)
        self._consumer = Consumer(
            zookeeper=args.zookeeper,
            group=args.group,
            consumer_id=name,
            zookeeper_session_ms=args.session_ms,
            autocommit=args.mode != "poll",
            autocommit_interval_ms=args.commit_ms,
            consumer_timeout_ms=_TICK_MS,
            socket_timeout_ms=args.socket_ms,
            fetch_backoff_ms=100,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
        )

    def run(self) -> None:
        with self._consumer:
            getattr(self, f"_{self._args.mode}")()

    def _subscribe(self) -> None:
        if self._args.pattern:
            self._consumer.subscribe(pattern=self._args.pattern)
        else:
            self._consumer.subscribe(self._args.topics.split(","))

    def _on_assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._history.write("assigned", partitions=sorted(map(str, partitions)))

    def _on_revoke(self, partitions: Iterable[TopicPartition], can_commit: bool) -> None:
        self._history.write("revoked", partitions=sorted(map(str, partitions)), can_commit=can_commit)

    def _iterate(self) -> None:
        """One message at a time, committed by itself."""
        self._subscribe()
        while not self._stopping.is_set():
            for message in self._consumer:
                self._delivered(time.monotonic(), [message])
                if self._stopping.is_set():
                    break

    def _poll(self) -> None:
        """Some messages at a time, committed by hand."""
        self._subscribe()
        while not self._stopping.is_set():
            polled = self._consumer.poll(timeout_ms=_TICK_MS, max_records=50)
            at = time.monotonic()
            for messages in polled.values():
                self._delivered(at, messages)
            if polled:
                self._commit(self._consumer.commit)

    def _batches(self) -> None:
        """Whole chunks, committed by itself."""
        self._subscribe()
        while not self._stopping.is_set():
            for batch in self._consumer.batches():
                self._delivered(time.monotonic(), batch)
                if self._stopping.is_set():
                    break

    def _streams(self) -> None:
        """As 0.7 has it: a thread for each stream."""
        if self._args.pattern:
            whitelist = Whitelist(self._args.pattern)
            streams = self._consumer.create_message_streams_by_filter(whitelist, self._args.threads)
        else:
            threads = dict.fromkeys(self._args.topics.split(","), self._args.threads)
            of_topic = self._consumer.create_message_streams(threads)
            streams = [stream for each in of_topic.values() for stream in each]
        threads = [threading.Thread(target=self._drain, args=(stream,)) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _drain(self, stream: Iterable[Message]) -> None:
        while not self._stopping.is_set():
            for message in stream:
                self._delivered(time.monotonic(), [message])
                if self._stopping.is_set():
                    break

    def _commit(self, commit: Callable[[], None]) -> None:
        try:
            commit()
        except CommitFailedError as error:
            self._history.write("failed", error=str(error))

    def _delivered(self, at: float, messages: Iterable[Message]) -> None:
        records = []
        for message in messages:
            records.append([message.offset, message.index, record_id(message.value)])
        if records:
            partition = str(TopicPartition(message.topic, message.broker, message.partition))
            self._history.write("delivered", at=at, partition=partition, records=records)
        if self._args.work_ms:
            time.sleep(self._args.work_ms / 1000)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--history", required=True)
    parser.add_argument("--names", required=True, help="of the members in this process, with commas")
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topics", default="")
    parser.add_argument("--pattern")
    parser.add_argument("--mode", choices=["iterate", "poll", "batches", "streams"], default="iterate")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--session-ms", type=int, required=True)
    parser.add_argument("--commit-ms", type=int, default=300)
    parser.add_argument("--socket-ms", type=int, default=2000)
    parser.add_argument("--work-ms", type=float, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    members = [Member(args, name, stopping) for name in args.names.split(",")]
    threads = [threading.Thread(target=member.run) for member in members]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(_TICK_MS / 1000)  # a signal that another thread was given does not wake one that waits for a lock


if __name__ == "__main__":
    main()
