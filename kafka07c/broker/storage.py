"""The broker's logs: which there are, making new ones, what holds for each, and the mark of a clean stop."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from kafka07c.broker.answers import FileSlice
from kafka07c.broker.config import BrokerConfig
from kafka07c.broker.stats import BrokerStats
from kafka07c.errors import LogError, WrongPartitionError
from kafka07c.metrics import NONE
from kafka07c.protocol import EARLIEST, LATEST, Buffer, check_topic
from kafka07c.segments import Log, Recovery
from kafka07c.segments.files import parse_log_name

__all__ = ["CLEAN_SHUTDOWN", "Storage"]

logger = logging.getLogger("kafka07c.broker")

#: the file in ``log.dir`` that says that the last stop was a clean one (``kafka.server.KafkaServer``)
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


class Storage:
    """All logs below one ``log.dir``, open for writing and locked against other brokers of this library.

    Opening recovers the last segment of each log unless the mark of a clean stop is there. The mark stays until
    :meth:`begin`, so that a start that fails elsewhere leaves all as it was. LogError where the directory cannot be
    used, another broker uses it, or a log in it makes no sense. Safe to use from several threads.
    """

    def __init__(
        self, config: BrokerConfig, clock: Callable[[], float] = time.time, stats: BrokerStats | None = None
    ) -> None:
        self._config = config
        self._clock = clock
        self._stats = stats or BrokerStats(NONE)
        assert config.log_dir is not None  # a Broker sees to that
        self._directory = Path(config.log_dir)
        self._lock = threading.Lock()  # for _logs
        self._logs: dict[str, dict[int, Log]] = {}
        #: what recovery cut off, log by log
        self.recovered: list[Recovery] = []
        #: called with the name and the number of partitions of each topic that gets its first log
        self.on_new_topic: Callable[[str, int], None] = lambda topic, partitions: None
        with ExitStack() as undo:
            self._descriptor = self._lock_directory()
            undo.callback(os.close, self._descriptor)
            undo.callback(self._close_logs)
            self._open_logs(recover=not (self._directory / CLEAN_SHUTDOWN).exists())
            undo.pop_all()

    def begin(self) -> None:
        """Take the mark of a clean stop away: from now on this is a log directory in use."""
        try:
            (self._directory / CLEAN_SHUTDOWN).unlink(missing_ok=True)
            os.fsync(self._descriptor)  # or a crash of the machine could bring it back, and no recovery with it
        except OSError as error:
            raise self._unusable(error) from error

    def close(self, *, clean: bool) -> None:
        """Flush and close all logs. ``clean`` leaves the mark of a clean stop, if nothing has failed."""
        try:
            self._close_logs()
            if clean:
                (self._directory / CLEAN_SHUTDOWN).touch()
                os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    # what there is

    def topics(self) -> dict[str, int]:
        """The topics that have a log, and how many partitions each may have."""
        with self._lock:
            return {topic: self.partitions(topic) for topic in self._logs}

    def partitions(self, topic: str) -> int:
        """How many partitions ``topic`` has or would have here."""
        return self._config.of(topic).partitions

    # what requests ask for

    def append(self, topic: str, partition: int, message_set: Buffer) -> None:
        """Append a message set to a log, which is made when missing; an empty set only makes it.

        InvalidTopicError, WrongPartitionError, CorruptMessageError, LogError: nothing is appended (see Log.append for
        a flush that fails). Nor is it with MessageTooLargeError, where an entry before the first damaged one is above
        ``max.message.size``.
        """
        self._check(topic, partition)
        log = self._find(topic, partition) or self._make(topic, partition)
        log.append(message_set, max_message_bytes=self._config.max_message_bytes)

    def slice(self, topic: str, partition: int, offset: int, max_bytes: int) -> FileSlice | None:
        """The bytes that a fetch gets; None where it gets none: at the end of a log, or where there is no log.

        InvalidTopicError, WrongPartitionError, OffsetOutOfRangeError, LogError.
        """
        self._check(topic, partition)
        log = self._find(topic, partition)
        if log is None:
            return None
        with log.slice(offset, max_bytes) as found:
            return FileSlice(log, offset, found.count) if found.count else None

    def offsets(self, topic: str, partition: int, time: int, max_offsets: int) -> list[int]:
        """What an OFFSETS request gets. InvalidTopicError, WrongPartitionError; ValueError for a negative maximum."""
        self._check(topic, partition)
        log = self._find(topic, partition)
        if log is None:
            return [0] if time in (LATEST, EARLIEST) else []
        return log.get_offsets_before(time, max_offsets)

    # what comes again and again; a log that fails keeps none of the others from its turn, and its error is raised then

    def flush(self) -> None:
        """Flush all logs."""
        self._for_each(Log.flush)

    def flush_due(self) -> None:
        """Flush the logs whose last flush is as long ago as their topic's flush interval."""
        self._for_each(lambda log: log.flush_if_older(self._config.of(log.topic).flush_ms))

    def retain(self) -> int:
        """Delete the segments that the topics' retention does not keep; how many those were."""
        return sum(self._for_each(self._retain))

    def _retain(self, log: Log) -> int:
        settings = self._config.of(log.topic)
        deleted = log.retain(max_age_ms=settings.retention_ms, max_bytes=settings.retention_bytes)
        for segment in deleted:
            logger.info("retention deleted %s", segment.path)
        return len(deleted)

    def _for_each(self, work: Callable[[Log], int]) -> list[int]:
        results, errors = [], []
        for log in self._all():
            try:
                results.append(work(log))
            except LogError as error:
                logger.error("%s", error)
                errors.append(error)
        if errors:
            raise errors[0]
        return results

    # logs

    def _all(self) -> list[Log]:
        with self._lock:
            return [log for partitions in self._logs.values() for log in partitions.values()]

    def _check(self, topic: str, partition: int) -> None:
        check_topic(topic, self._config.max_topic_length)
        count = self.partitions(topic)
        if not 0 <= partition < count:
            raise WrongPartitionError(
                f"this broker has the partitions 0 to {count - 1} of the topic", topic=topic, partition=partition
            )

    def _find(self, topic: str, partition: int) -> Log | None:
        with self._lock:
            return self._logs.get(topic, {}).get(partition)

    def _make(self, topic: str, partition: int) -> Log:
        with self._lock:
            partitions = self._logs.get(topic, {})
            if partition in partitions:
                return partitions[partition]
            log = self._open(topic, partition)
            new_topic = topic not in self._logs
            self._logs.setdefault(topic, partitions)[partition] = log
        logger.info("made the log %s-%d", topic, partition)
        if new_topic:
            self.on_new_topic(topic, self.partitions(topic))
        return log

    def _open(self, topic: str, partition: int) -> Log:
        settings = self._config.of(topic)
        log = Log(
            self._directory / f"{topic}-{partition}",
            broker=self._config.broker_id,
            writable=True,
            segment_bytes=settings.segment_bytes,
            roll_ms=settings.roll_ms,
            flush_messages=self._config.flush_messages,
            clock=self._clock,
            on_append=self._stats.appending(topic, partition),
            on_flush=self._stats.flushes.observe,
        )
        self._stats.show(log)
        return log

    def _open_logs(self, recover: bool) -> None:
        try:
            entries = sorted(self._directory.iterdir())
        except OSError as error:
            raise self._unusable(error) from error
        for directory in entries:
            name = parse_log_name(directory.name)
            # "clicks-00" would be the same log as "clicks-0"
            if name is None or directory.name != f"{name[0]}-{name[1]}" or not directory.is_dir():
                if directory.name != CLEAN_SHUTDOWN:
                    logger.warning("%s is no log: left alone", directory)
                continue
            topic, partition = name
            log = self._logs.setdefault(topic, {})[partition] = self._open(topic, partition)
            if partition >= self.partitions(topic):
                logger.warning(
                    "%s is not served: by the settings the topic has %d partitions", directory, self.partitions(topic)
                )
            if recover:
                self._recover(log)

    def _recover(self, log: Log) -> None:
        recovery = log.recover()
        if recovery.cut_bytes:
            logger.warning(
                "recovery cut %d bytes off %s, after %d good ones: %s; they are kept in %s",
                recovery.cut_bytes, recovery.path, recovery.kept_bytes, recovery.reason, recovery.copy,
            )  # fmt: skip
            self.recovered.append(recovery)

    def _close_logs(self) -> None:
        with ExitStack() as stack:
            for log in self._all():
                stack.callback(log.close)

    def _lock_directory(self) -> int:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            # on the directory itself, so that no file of ours lies in it
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise LogError(f"another broker uses the log directory {str(self._directory)!r}") from None
        except OSError as error:
            os.close(descriptor)
            raise self._unusable(error) from error
        return descriptor

    def _unusable(self, error: OSError) -> LogError:
        return LogError(f"cannot use the log directory {str(self._directory)!r}: {error.strerror or error}")
