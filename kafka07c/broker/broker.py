"""The embedded broker: its parts put together, started and stopped in the right order."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from kafka07c.broker.config import BrokerConfig
from kafka07c.broker.connection import serve
from kafka07c.broker.faults import Faults, Stall
from kafka07c.broker.handlers import Handlers
from kafka07c.broker.server import Server
from kafka07c.broker.stats import BrokerStats
from kafka07c.broker.storage import Storage
from kafka07c.broker.ticker import Ticker
from kafka07c.metrics import NONE, Metrics
from kafka07c.segments import Recovery
from kafka07c.zookeeper import Access, BrokerRegistration, parse_hosts

__all__ = ["Broker"]

logger = logging.getLogger("kafka07c.broker")

#: seconds after the start until retention runs for the first time, as in 0.7.2
_FIRST_CLEANUP = 60.0

_WILDCARDS = ("", "0.0.0.0", "::")


class Broker:
    """A Kafka 0.7 broker in this process, for development, tests and demos. It is no server for production.

    ::

        with Broker("/tmp/logs", partitions=3, properties={"log.flush.interval": 1}) as broker:
            SyncProducer("127.0.0.1", broker.port).send("clicks", 0, [b"one", b"two"])

    It reads and writes real 0.7 log directories, speaks all five requests, and behaves as a 0.7.2 broker does, silent
    drops and hang-ups included (see :mod:`kafka07c.broker.handlers`). What differs on purpose: it binds to 127.0.0.1
    unless ``host`` says otherwise, takes a free port when ``port`` is 0, deletes nothing by age or size unless a
    retention property is given, and copies what recovery cuts off before it cuts it.

    ``properties`` has settings by their 0.7 names (:class:`~kafka07c.broker.config.BrokerConfig`); an argument that is
    given goes before the property of the same meaning. ``zookeeper`` (``"host:port,…/chroot"``, or an
    :class:`~kafka07c.zookeeper.Access`): the broker and its topics are registered there. More than ``max_connections`` connections at a time are refused. ``clock`` gives the
    time in seconds since 1970, UTC, that OFFSETS by time, rolling and retention go by. ``metrics`` counts what 0.7.2
    shows over JMX (:mod:`kafka07c.broker.stats` has the names).

    Raises ValueError for settings that make no sense. :meth:`start` (or ``with``) raises LogError for a log directory
    that is in use or no such thing, OSError where host and port cannot be bound, ZooKeeperError, and
    BrokerIdInUseError when somebody else is registered under the id.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        broker_id: int | None = None,
        port: int | None = None,
        partitions: int | None = None,
        zookeeper: str | Access | None = None,
        host: str = "127.0.0.1",
        properties: Mapping[str, Any] | None = None,
        *,
        max_connections: int = 1000,
        clock: Callable[[], float] = time.time,
        metrics: Metrics | None = None,
    ):
        self.config = BrokerConfig.from_properties(
            properties,
            log_dir=None if log_dir is None else os.fspath(log_dir),
            broker_id=broker_id,
            port=port,
            partitions=partitions,
            zookeeper=None if zookeeper is None else str(zookeeper),
        )
        if self.config.log_dir is None:
            raise ValueError("a broker needs a log directory: log_dir, or the property log.dir")
        if self.config.zookeeper is not None:
            parse_hosts(self.config.zookeeper)
        self._zookeeper = zookeeper if isinstance(zookeeper, Access) else self.config.zookeeper
        self.broker_id = self.config.broker_id
        self.host = host
        #: the port that the broker listens on; 0 as long as it has not taken a free one
        self.port = self.config.port
        self.faults = Faults()
        #: what the recovery of the last start cut off, log by log
        self.recovered: list[Recovery] = []
        self._max_connections = max_connections
        self._clock = clock
        self._stats = BrokerStats(metrics or NONE)
        self._running: _Running | None = None

    def start(self) -> Broker:
        """Recover the logs if need be, listen, register, serve. A broker that was stopped takes its old port again."""
        if self._running is not None:
            raise RuntimeError(f"broker {self.broker_id} is running already")
        if self.config.ignored:
            logger.info("these properties have no effect here: %s", ", ".join(self.config.ignored))
        if self.config.retains:
            logger.info("retention is on: old segments will be deleted")
        self._running = _Running(self)
        return self

    def stop(self, *, clean: bool = True) -> None:
        """Close all connections, flush and close the logs, and leave the mark of a clean stop. Twice does no harm.

        ``clean=False`` leaves no mark, as a crash would, so that the next start runs recovery.
        """
        running, self._running = self._running, None
        if running is not None:
            # in this order, so that a request that is stalled is not answered after all
            running.server.close_connections()
            self.faults.clear()
            running.stop(clean)

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def flush(self) -> None:
        """Flush all logs now: what was produced becomes visible to fetches."""
        self._parts.storage.flush()

    def retain(self) -> int:
        """Apply retention now; the number of segments deleted."""
        return self._parts.storage.retain()

    @property
    def topics(self) -> dict[str, int]:
        """The topics that have a log here, and how many partitions each may have (by the settings)."""
        return self._parts.storage.topics()

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._parts.server.connections

    def close_connections(self) -> None:
        """Close all connections that are open now; new ones are welcome."""
        self._parts.server.close_connections()

    # Scripted faults: see kafka07c.broker.faults.Faults for what each does.

    def fail_next(self, api: str | None, error: Any, *, times: int = 1, topic: str | None = None) -> None:
        """:meth:`Faults.fail_next <kafka07c.broker.faults.Faults.fail_next>`"""
        self.faults.fail_next(api, error, times=times, topic=topic)

    def cut_next(self, api: str | None, at_byte: int, *, times: int = 1, topic: str | None = None) -> None:
        """:meth:`Faults.cut_next <kafka07c.broker.faults.Faults.cut_next>`"""
        self.faults.cut_next(api, at_byte, times=times, topic=topic)

    def stall_next(
        self, api: str | None, seconds: float | None = None, *, times: int = 1, topic: str | None = None
    ) -> Stall:
        """:meth:`Faults.stall_next <kafka07c.broker.faults.Faults.stall_next>`"""
        return self.faults.stall_next(api, seconds, times=times, topic=topic)

    def close_next(self, api: str | None, *, when: str = "before", times: int = 1, topic: str | None = None) -> None:
        """:meth:`Faults.close_next <kafka07c.broker.faults.Faults.close_next>`"""
        self.faults.close_next(api, when=when, times=times, topic=topic)

    @property
    def _parts(self) -> _Running:
        if self._running is None:
            raise RuntimeError(f"broker {self.broker_id} is not running")
        return self._running


class _Running:
    """The parts of a broker between start and stop."""

    def __init__(self, broker: Broker):
        config = broker.config
        with ExitStack() as undo:
            self.storage = Storage(config, broker._clock, broker._stats)
            undo.callback(self.storage.close, clean=False)
            broker.recovered = self.storage.recovered
            handlers = Handlers(self.storage, broker.faults, broker._stats)
            self.server = Server(
                broker.host,
                broker.port,
                lambda sock: serve(sock, handlers, broker.faults, broker._stats, config.max_request_bytes),
                max_connections=broker._max_connections,
                send_buffer_bytes=config.send_buffer_bytes,
                receive_buffer_bytes=config.receive_buffer_bytes,
            )
            undo.callback(self.server.stop)
            broker.port = self.server.port
            # connections wait until the server is started: as in 0.7.2, nothing is served before the registration
            self.registration = self._register(broker)
            if self.registration is not None:
                undo.callback(self.registration.close)
            # so late, so that a start that fails leaves the mark of the last clean stop where it is
            self.storage.begin()
            self._ticker = Ticker(f"kafka07c-ticker-{broker.port}")
            undo.callback(self._ticker.stop)
            self._ticker.every(config.flush_check_ms / 1000, self.storage.flush_due)
            if config.retains:
                self._ticker.every(config.cleanup_minutes * 60.0, self.storage.retain, first=_FIRST_CLEANUP)
            self._ticker.start()
            self.server.start()
            undo.pop_all()

    def _register(self, broker: Broker) -> BrokerRegistration | None:
        config = broker.config
        if broker._zookeeper is None or config.enable_zookeeper is False:
            return None
        host = config.hostname or (socket.gethostname() if broker.host in _WILDCARDS else broker.host)
        registration = BrokerRegistration(
            broker._zookeeper,
            broker.broker_id,
            host,
            broker.port,
            session_timeout=config.zookeeper_session_ms / 1000,
            connect_timeout=(config.zookeeper_connect_ms or config.zookeeper_session_ms) / 1000,
        )
        for topic, partitions in self.storage.topics().items():
            registration.add_topic(topic, partitions)
        registration.start()
        self.storage.on_new_topic = registration.add_topic
        return registration

    def stop(self, clean: bool) -> None:
        # from the bottom up, and each even if one before it fails: the first error is raised at the end
        with ExitStack() as stack:
            if self.registration is not None:
                stack.callback(self.registration.close)
            stack.callback(self.storage.close, clean=clean)
            stack.callback(self._ticker.stop)
            stack.callback(self.server.stop)
