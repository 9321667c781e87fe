"""The settings of a consumer: default, unit, meaning and 0.7 property name of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass
from pathlib import Path
from typing import Any

from kafka07c.config import FETCH_BYTES, MAX_FETCH_MESSAGE_BYTES, SOCKET_TIMEOUT
from kafka07c.properties import read_properties
from kafka07c.settings import boolean, by_name, choice, integer, parse, setting, table, text

_CORRUPT = choice(**{"raise": "raise", "stop": "stop", "skip": "skip"})
_RESET = choice(
    smallest="earliest", earliest="earliest", largest="latest", latest="latest", error="error", none="error"
)


@dataclass(frozen=True)
class ConsumerConfig:
    """All settings of a consumer; :func:`consumer_table` shows them with their 0.7 names, units and meanings.

    Names and defaults: Kafka 0.7.2, ``kafka.consumer.ConsumerConfig`` and ``kafka.utils.ZKConfig``. Those without a
    0.7 name say so. Most are in milliseconds, as 0.7 has them; the properties without ``_ms`` give seconds.
    """

    zookeeper: str | None = setting("zk.connect", None, "host:port,…/chroot", text, about="where ZooKeeper is")
    group: str | None = setting(
        "groupid", None, "", text, aliases=["group_id", "group.id"], about="the group that shares the partitions"
    )
    consumer_id: str | None = setting(
        "consumerid", None, "", text, about="the member's name in the group; made up where none is given"
    )
    zookeeper_session_ms: int = setting(
        "zk.sessiontimeout.ms", 6000, "ms", integer(1), aliases=["session_timeout_ms", "session.timeout.ms"],
        about="a member that is silent for so long is out of the group",
    )
    zookeeper_connect_ms: int | None = setting(
        "zk.connectiontimeout.ms", None, "ms", integer(1),
        about="how long ZooKeeper is waited for at the start; as `zk.sessiontimeout.ms` where not given",
    )
    zookeeper_sync_ms: int = setting(
        "zk.synctime.ms", 2000, "ms", integer(0), about="how far one ZooKeeper server may be behind another"
    )

    socket_timeout_ms: int = setting(
        "socket.timeout.ms", int(SOCKET_TIMEOUT * 1000), "ms", integer(1),
        aliases=["request_timeout_ms", "request.timeout.ms"], about="how long a broker's answer is waited for",
    )
    receive_buffer_bytes: int = setting(
        "socket.buffersize", 65_536, "bytes", integer(1), aliases=["receive.buffer.bytes"],
        about="accepted, without effect: the kernel's own choice grows with the connection, and is faster",
    )
    fetch_bytes: int = setting(
        "fetch.size", FETCH_BYTES, "bytes", integer(4),
        aliases=["max_partition_fetch_bytes", "max.partition.fetch.bytes"],
        about="asked for of each partition in one fetch; a larger message makes its partition's fetch grow",
    )
    max_fetch_bytes: int = setting(
        "fetch.size.max", MAX_FETCH_MESSAGE_BYTES, "bytes", integer(4),
        about="not in 0.7: how far one partition's fetch grows for a large message",
    )
    fetch_backoff_ms: int = setting(
        "fetcher.backoff.ms", 100, "ms", integer(0),
        about="how long a partition at its end is left alone; in 0.7, where the whole fetch thread sleeps and new "
        "messages are late by so much, 1000",
    )
    queued_chunks: int = setting(
        "queuedchunks.max", 10, "chunks", integer(1),
        about="0.7's bound of a queue; here times `fetch.size`, where `queued.bytes.max` is not given",
    )
    max_queued_bytes: int | None = setting(
        "queued.bytes.max", None, "bytes", integer(1), about="not in 0.7: what one queue holds at most"
    )

    autocommit: bool = setting(
        "autocommit.enable", True, "", boolean, aliases=["enable_auto_commit", "enable.auto.commit"],
        about="commit by itself what was handed out and come back for more",
    )
    autocommit_interval_ms: int = setting(
        "autocommit.interval.ms", 10_000, "ms", integer(1),
        aliases=["auto_commit_interval_ms", "auto.commit.interval.ms"], about="how often that happens",
    )
    rebalance_retries: int = setting(
        "rebalance.retries.max", 4, "tries", integer(1),
        about="tries in a row before a rebalance is reported as failed; it goes on trying until closed",
    )
    rebalance_backoff_ms: int | None = setting(
        "rebalance.backoff.ms", None, "ms", integer(0), about="between two tries; as `zk.synctime.ms` where not given"
    )
    offset_reset: str = setting(
        "autooffset.reset", "earliest", "", _RESET, aliases=["auto_offset_reset", "auto.offset.reset"],
        about="where to go on when there is no offset, or one outside of the log: `smallest` (or `earliest`), "
        "`largest` (or `latest`), `error` (or `none`)",
    )
    consumer_timeout_ms: int = setting(
        "consumer.timeout.ms", -1, "ms", integer(-1),
        about="iteration ends when no message came for so long; -1: never",
    )
    shallow: bool = setting(
        "shallowiterator.enable", False, "", boolean, about="give compressed wrappers as they are stored"
    )
    on_corrupt: str = setting(
        "corrupt.policy", "raise", "", _CORRUPT,
        about="not in 0.7: what a damaged partition does: `raise` its error each time it is come to, `stop` that "
        "partition, or `skip` to the next entry or segment that can be believed",
    )
    max_poll_records: int = setting(
        "max.poll.records", 500, "messages", integer(1), about="not in 0.7: what one `poll` gives at most"
    )

    #: 0.7 properties that were given and have no effect here
    ignored: tuple[str, ...] = ()

    @classmethod
    def from_properties(
        cls, properties: str | Path | Mapping[str, Any] | None = None, **options: Any
    ) -> ConsumerConfig:
        """Settings from 0.7 ``properties``, a mapping or a ``.properties`` file; ``options`` go before them.

        Both take each setting's 0.7 name, its field's name, and kafka-python's spelling where it means the same. Values
        are text, numbers or booleans; an option that is None counts as not given. ValueError for a name that is not
        known (it proposes the nearest one), one setting under two names, or a bad value; OSError for a file that
        cannot be read.
        """
        if isinstance(properties, (str, Path)):
            properties = read_properties(properties)
        values, ignored = parse("0.7 consumers", _CONSUMER_SETTINGS, _WITHOUT_EFFECT, properties or {})
        given = {name: value for name, value in options.items() if value is not None}
        first, more = parse("consumers", _CONSUMER_SETTINGS, _WITHOUT_EFFECT, given)
        return cls(**(values | first), ignored=ignored + more)

    @property
    def zookeeper_session(self) -> float:
        """Seconds without a sign of life after which ZooKeeper forgets the member."""
        return self.zookeeper_session_ms / 1000

    @property
    def zookeeper_connect(self) -> float:
        """Seconds that ZooKeeper is waited for."""
        return (self.zookeeper_connect_ms or self.zookeeper_session_ms) / 1000

    @property
    def rebalance_backoff(self) -> float:
        """Seconds between two tries to rebalance."""
        return (self.zookeeper_sync_ms if self.rebalance_backoff_ms is None else self.rebalance_backoff_ms) / 1000

    @property
    def socket_timeout(self) -> float:
        """Seconds that an answer of a broker is waited for."""
        return self.socket_timeout_ms / 1000

    @property
    def fetch_backoff(self) -> float:
        """Seconds for which a partition at its end is left alone."""
        return self.fetch_backoff_ms / 1000

    @property
    def autocommit_interval(self) -> float:
        """Seconds between two commits by itself."""
        return self.autocommit_interval_ms / 1000

    @property
    def queue_bytes(self) -> int:
        """Bytes that one queue holds at most."""
        return self.max_queued_bytes or self.queued_chunks * self.fetch_bytes


def _spelt_both_ways(settings: dict[str, Field[Any]]) -> dict[str, Field[Any]]:
    """The field names are names too, so that options are keywords in Python."""
    return {each.name: each for each in settings.values()} | settings


_CONSUMER_SETTINGS = _spelt_both_ways(by_name(ConsumerConfig))

#: 0.7.2 knows their names and never asks for their values (its mirror maker has options of its own)
_WITHOUT_EFFECT = frozenset({"mirror.topics.whitelist", "mirror.topics.blacklist", "mirror.consumer.numthreads"})


def consumer_table() -> str:
    """All settings of a consumer as a Markdown table."""
    return table(ConsumerConfig)
