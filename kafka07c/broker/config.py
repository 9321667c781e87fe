"""The broker's settings: default, unit and 0.7 property name of each, and how a property becomes a value.

Names, defaults and ranges: Kafka 0.7.2, ``kafka.server.KafkaConfig`` and ``kafka.utils.ZKConfig``. Where this broker
has another default on purpose, the field says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kafka07c import config
from kafka07c.settings import MAX_INT, boolean, by_name, integer, parse, setting, text

__all__ = ["BrokerConfig", "TopicConfig"]

_HOUR_MS = 3_600_000


def _per_topic(parse_number: Callable[[str, Any], int]) -> Callable[[str, Any], Mapping[str, int]]:
    """``topic:number,topic:number`` (or a mapping). 0.7.2 logs a malformed part and goes on without it; this is an
    error here, and blanks around a topic are dropped (0.7.2 keeps them, which makes the entry match nothing)."""

    def parse(name: str, value: Any) -> Mapping[str, int]:
        pairs = value.items() if isinstance(value, Mapping) else _pairs(name, value)
        return MappingProxyType({topic: parse_number(f"{name}, topic {topic!r},", number) for topic, number in pairs})

    return parse


def _pairs(name: str, value: Any) -> Iterable[tuple[str, str]]:
    for part in filter(None, (part.strip() for part in str(value).split(","))):
        topic, colon, number = part.rpartition(":")
        if not colon or not topic.strip():
            raise ValueError(f"{name} must read topic:number,topic:number, but has {part!r}")
        yield topic.strip(), number


def _topic_setting(name: str, unit: str, parse_number: Callable[[str, Any], int]) -> Any:
    metadata = {"property": name, "unit": unit, "parse": _per_topic(parse_number)}
    return field(default_factory=lambda: MappingProxyType({}), metadata=metadata)


_NOT_NEGATIVE = integer(0, MAX_INT)
_POSITIVE = integer(1, MAX_INT)
_POSITIVE_LONG = integer(1, 2**63 - 1)
_FILE_SIZE = integer(5, MAX_INT)  # a message's smallest header


@dataclass(frozen=True)
class TopicConfig:
    """What holds for the logs of one topic. ``None`` for a retention: that retention is off."""

    partitions: int
    segment_bytes: int
    roll_ms: int
    flush_ms: int
    retention_ms: int | None
    retention_bytes: int | None


@dataclass(frozen=True)
class BrokerConfig:
    """All settings of a broker; each field's metadata holds its 0.7 ``property`` name and its ``unit``."""

    broker_id: int = setting("brokerid", 0, "", _NOT_NEGATIVE)
    log_dir: str | None = setting("log.dir", None, "path", text)
    #: 0 takes a free port (0.7: 6667)
    port: int = setting("port", 0, "", integer(0, 65535))
    #: what ZooKeeper is told; None tells the address that the broker is bound to
    hostname: str | None = setting("hostname", None, "", text)

    partitions: int = setting("num.partitions", 1, "partitions", _POSITIVE)
    topic_partitions: Mapping[str, int] = _topic_setting("topic.partition.count.map", "partitions", _POSITIVE)

    #: checked on the payload of each stored entry: the compressed one for a wrapper
    max_message_bytes: int = setting("max.message.size", config.MAX_MESSAGE_BYTES, "bytes", _NOT_NEGATIVE)
    max_request_bytes: int = setting("max.socket.request.bytes", config.MAX_REQUEST_BYTES, "bytes", _POSITIVE)
    max_topic_length: int = setting("max.topic.name.length", config.MAX_TOPIC_LENGTH, "characters", _POSITIVE)
    #: None: the kernel's choice, which grows with the connection (0.7: 102400, which does not)
    send_buffer_bytes: int | None = setting("socket.send.buffer", None, "bytes", _POSITIVE)
    receive_buffer_bytes: int | None = setting("socket.receive.buffer", None, "bytes", _POSITIVE)

    segment_bytes: int = setting("log.file.size", 1024**3, "bytes", _FILE_SIZE)
    topic_segment_bytes: Mapping[str, int] = _topic_setting("topic.log.file.size", "bytes", _POSITIVE)
    roll_hours: int = setting("log.roll.hours", 168, "hours", _POSITIVE)
    topic_roll_hours: Mapping[str, int] = _topic_setting("topic.log.roll.hours", "hours", _POSITIVE)

    #: messages, those inside wrappers counted one by one
    flush_messages: int = setting("log.flush.interval", 500, "messages", _POSITIVE)
    flush_check_ms: int = setting("log.default.flush.scheduler.interval.ms", 3000, "ms", _POSITIVE)
    #: None: as often as is checked
    flush_ms: int | None = setting("log.default.flush.interval.ms", None, "ms", _NOT_NEGATIVE)
    topic_flush_ms: Mapping[str, int] = _topic_setting("topic.flush.intervals.ms", "ms", _POSITIVE)

    #: None: off (0.7: 168, which would eat an old archive as soon as a broker is started on it)
    retention_hours: int | None = setting("log.retention.hours", None, "hours", _POSITIVE)
    topic_retention_hours: Mapping[str, int] = _topic_setting("topic.log.retention.hours", "hours", _POSITIVE)
    #: None or negative: off
    retention_bytes: int | None = setting("log.retention.size", None, "bytes", integer(-(2**63), 2**63 - 1))
    topic_retention_bytes: Mapping[str, int] = _topic_setting("topic.log.retention.size", "bytes", _POSITIVE_LONG)
    cleanup_minutes: int = setting("log.cleanup.interval.mins", 10, "minutes", _POSITIVE)

    #: None: on where a ZooKeeper is given (0.7: true)
    enable_zookeeper: bool | None = setting("enable.zookeeper", None, "", boolean)
    zookeeper: str | None = setting("zk.connect", None, "host:port,…/chroot", text)
    zookeeper_session_ms: int = setting("zk.sessiontimeout.ms", 6000, "ms", _POSITIVE)
    #: None: as long as the session lasts
    zookeeper_connect_ms: int | None = setting("zk.connectiontimeout.ms", None, "ms", _POSITIVE)

    #: 0.7 properties that were given and have no effect here
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.enable_zookeeper and self.zookeeper is None:
            raise ValueError("enable.zookeeper is true, but zk.connect does not say where ZooKeeper is")

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any] | None = None, **given: Any) -> BrokerConfig:
        """Settings from 0.7 ``properties``; what is ``given`` by field name and is not None goes before them.

        Values are what a properties file holds (text), or numbers, booleans and ``{topic: number}`` mappings. Raises
        ValueError for a name that 0.7 does not know (it proposes the nearest one) and for a bad value.
        """
        values, ignored = parse("0.7 brokers", _BY_PROPERTY, _WITHOUT_EFFECT, properties or {})
        for name, each in _BY_PROPERTY.items():
            if given.get(each.name) is not None:
                values[each.name] = each.metadata["parse"](name, given[each.name])
        return cls(**values, ignored=ignored)

    def of(self, topic: str) -> TopicConfig:
        """What holds for ``topic``: its own settings where it has some, else those for all."""
        retention_hours = self.topic_retention_hours.get(topic, self.retention_hours)
        retention_bytes = self.topic_retention_bytes.get(topic, self.retention_bytes)
        flush_ms = self.flush_check_ms if self.flush_ms is None else self.flush_ms
        return TopicConfig(
            partitions=self.topic_partitions.get(topic, self.partitions),
            segment_bytes=self.topic_segment_bytes.get(topic, self.segment_bytes),
            roll_ms=self.topic_roll_hours.get(topic, self.roll_hours) * _HOUR_MS,
            flush_ms=self.topic_flush_ms.get(topic, flush_ms),
            retention_ms=None if retention_hours is None else retention_hours * _HOUR_MS,
            retention_bytes=None if retention_bytes is None or retention_bytes < 0 else retention_bytes,
        )

    @property
    def retains(self) -> bool:
        """Whether any retention is on."""
        by_age = self.retention_hours is not None or self.topic_retention_hours
        by_size = (self.retention_bytes is not None and self.retention_bytes >= 0) or self.topic_retention_bytes
        return bool(by_age or by_size)


_BY_PROPERTY = by_name(BrokerConfig)

#: every connection has a thread of its own; there are no snapshots of statistics; only consumers use the third
_WITHOUT_EFFECT = frozenset({"num.threads", "monitoring.period.secs", "zk.synctime.ms"})
