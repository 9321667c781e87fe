"""The settings of a producer: default, unit, meaning and 0.7 property name of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass
from pathlib import Path
from typing import Any

from kafka07c._compress import Codec, codec_of
from kafka07c.config import CONNECT_TIMEOUT, MAX_MESSAGE_BYTES, SOCKET_TIMEOUT
from kafka07c.producer.handlers import (
    CALLBACK_HANDLER,
    ENCODER,
    EVENT_HANDLER,
    PARTITIONER,
    CallbackHandler,
    Encoder,
    EventHandler,
)
from kafka07c.producer.partitioners import Partitioner
from kafka07c.properties import read_properties
from kafka07c.protocol import check_topic
from kafka07c.settings import boolean, by_name, choice, integer, parse, setting, table, text

__all__ = ["ProducerConfig", "producer_table"]

_MAX_BYTES = 2**40


def _codec(name: str, value: Any) -> Codec | dict[str, Codec]:
    """One codec, or a mapping of topics to codecs."""
    if isinstance(value, Mapping):
        return {check_topic(topic): _one_codec(f"{name} of topic {topic!r}", one) for topic, one in value.items()}
    return _one_codec(name, value)


def _one_codec(name: str, value: Any) -> Codec:
    if isinstance(value, str):
        value = value.strip()
        value = int(value) if value in ("0", "1", "2") else value
    try:
        return codec_of(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _topics(name: str, value: Any) -> tuple[str, ...]:
    """Names between commas, or an iterable of them."""
    if isinstance(value, str):
        value = filter(None, map(str.strip, value.split(",")))
    if not isinstance(value, Iterable):
        raise ValueError(f"{name} must be topics between commas, but is {value!r}")
    return tuple(check_topic(topic) for topic in value)


def _properties(name: str, value: Any) -> dict[str, str]:
    """``a=b,c=d`` as 0.7 has it, or a mapping."""
    if isinstance(value, Mapping):
        return {str(key): str(one) for key, one in value.items()}
    pairs = {}
    for item in filter(None, map(str.strip, str(value).split(","))):
        key, equals, one = item.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{name} must be name=value,name=value, but has {item!r}")
        pairs[key.strip()] = one.strip()
    return pairs


@dataclass(frozen=True)
class ProducerConfig:
    """All settings of a producer; :func:`producer_table` shows them with their 0.7 names, units and meanings.

    Names and defaults: Kafka 0.7.2, ``kafka.producer.ProducerConfig``, its traits and ``kafka.utils.ZKConfig``; where a
    default is another one here, and where a setting is not in 0.7, ``about`` says so. Most times are in milliseconds,
    as 0.7 has them; the properties without ``_ms`` give seconds.
    """

    zookeeper: str | None = setting("zk.connect", None, "host:port,…/chroot", text, about="where ZooKeeper is")
    brokers: str | None = setting(
        "broker.list", None, "id:host:port,…", text,
        about="the brokers, for those who have no ZooKeeper: each message goes to any of them, which picks the "
        "partition; keys and `partitioner.class` have no effect then",
    )
    zookeeper_session_ms: int = setting(
        "zk.sessiontimeout.ms", 6000, "ms", integer(1), about="how long ZooKeeper may be out of touch"
    )
    zookeeper_connect_ms: int | None = setting(
        "zk.connectiontimeout.ms", None, "ms", integer(1),
        about="how long ZooKeeper is waited for at the start; as `zk.sessiontimeout.ms` where not given",
    )
    zookeeper_sync_ms: int = setting(
        "zk.synctime.ms", 2000, "ms", integer(0), about="accepted, without effect: nothing of a producer's waits for it"
    )
    zookeeper_retries: int = setting(
        "zk.read.num.retries", 3, "tries", integer(0),
        about="while no broker is there, or ZooKeeper is out of touch, `send` looks again so often before it raises",
    )

    mode: str = setting(
        "producer.type", "async", "", choice(**{"async": "async", "sync": "sync"}),
        about="`async`: a queue takes the messages; `sync`: `send` returns when they are written (0.7: `sync`)",
    )
    encoder: Encoder | None = setting(
        "serializer.class", None, "", ENCODER, aliases=["value_serializer", "value.serializer"],
        about="makes bytes of a value; where not given, values are bytes. Also `module:name`",
    )
    partitioner: Partitioner | None = setting(
        "partitioner.class", None, "", PARTITIONER,
        about="picks the partition, `(key, count) -> index`; where not given, as 0.7 does. Also `module:name`",
    )
    codec: Codec | Mapping[str, Codec] = setting(
        "compression.codec", "none", "", _codec, aliases=["compression_type", "compression.type"],
        about="`none`, `gzip`, `snappy`, or `0`, `1`, `2`; in Python also a mapping from topic to one of these",
    )
    compressed_topics: tuple[str, ...] | None = setting(
        "compressed.topics", None, "topic,…", _topics, about="the codec is for these alone; where not given, for all"
    )

    queue_messages: int = setting(
        "queue.size", 100_000, "messages", integer(1),
        about="taken and not yet settled, at most (0.7: not yet sent, 10000)",
    )
    queue_bytes: int = setting(
        "queue.bytes.max", 64 * 1024 * 1024, "bytes", integer(1, _MAX_BYTES),
        aliases=["buffer_memory", "buffer.memory"], about="not in 0.7: the same by bytes of payload",
    )
    enqueue_timeout_ms: int = setting(
        "queue.enqueueTimeout.ms", -1, "ms", integer(-(2**31)), aliases=["max_block_ms", "max.block.ms"],
        about="how long `send` waits for room before it raises; 0: not at all, below 0: for ever (0.7: 0)",
    )
    queue_time_ms: int = setting(
        "queue.time", 5, "ms", integer(0), aliases=["linger_ms", "linger.ms"],
        about="a batch that is not full is sent when its first message is so old (0.7: 5000)",
    )
    batch_messages: int = setting(
        "batch.size", 10_000, "messages", integer(1), about="a batch of so many is sent at once (0.7: 200)"
    )
    batch_bytes: int = setting(
        "batch.bytes", 512 * 1024, "bytes", integer(1), about="not in 0.7: so is one with so many bytes of payload"
    )
    max_message_bytes: int = setting(
        "max.message.size", MAX_MESSAGE_BYTES, "bytes", integer(1),
        about="the brokers' limit for a stored message; they drop what is larger in silence, so it is refused here",
    )

    connect_timeout_ms: int = setting(
        "connect.timeout.ms", int(CONNECT_TIMEOUT * 1000), "ms", integer(1), about="for connecting to a broker"
    )
    socket_timeout_ms: int = setting(
        "socket.timeout.ms", int(SOCKET_TIMEOUT * 1000), "ms", integer(1),
        aliases=["request_timeout_ms", "request.timeout.ms"],
        about="how long a broker may take to accept bytes, or to answer a question",
    )
    retries: int = setting(
        "num.retries", 3, "tries", integer(0), aliases=["retries"],
        about="how often a batch that a broker hangs up on is written again; 0: nothing ever is, and what a lost "
        "connection leaves open fails (0.7: 0)",
    )
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms", 120_000, "ms", integer(1),
        about="not in 0.7: a message that could not be written for so long fails",
    )
    window_bytes: int = setting(
        "resend.window.bytes", 16 * 1024 * 1024, "bytes", integer(1, _MAX_BYTES),
        about="not in 0.7: what was written to a broker and not yet seen to have arrived, at most; it is written again "
        "when the connection is lost",
    )
    verify: bool = setting(
        "verify", False, "", boolean, about="not in 0.7: read back what was written; it waits for the broker's flush"
    )
    verify_timeout_ms: int = setting(
        "verify.timeout.ms", 30_000, "ms", integer(1),
        about="not in 0.7: what that did not settle for so long is `unknown`",
    )

    callback_handler: CallbackHandler | None = setting(
        "callback.handler", None, "", CALLBACK_HANDLER, about="sees the records on their way: `module:name`"
    )
    callback_handler_properties: Mapping[str, str] | None = setting(
        "callback.handler.props", None, "name=value,…", _properties, about="what its `init` gets"
    )
    event_handler: EventHandler | None = setting(
        "event.handler", None, "", EVENT_HANDLER, about="sends batches in the place of the producer: `module:name`"
    )
    event_handler_properties: Mapping[str, str] | None = setting(
        "event.handler.props", None, "name=value,…", _properties, about="what its `init` gets"
    )

    send_buffer_bytes: int = setting(
        "buffer.size", 102_400, "bytes", integer(1), aliases=["send.buffer.bytes"],
        about="accepted, without effect: the kernel's own choice grows with the connection, and is faster",
    )
    reconnect_interval: int = setting(
        "reconnect.interval", 30_000, "sends", integer(-1),
        about="accepted, without effect: a connection is kept until it ends, and then made anew",
    )
    reconnect_interval_ms: int = setting(
        "reconnect.time.interval.ms", 10_000_000, "ms", integer(-1), about="accepted, without effect, for that reason"
    )

    @classmethod
    def from_properties(
        cls, properties: str | Path | Mapping[str, Any] | None = None, **options: Any
    ) -> ProducerConfig:
        """Settings from 0.7 ``properties``, a mapping or a ``.properties`` file; ``options`` go before them.

        Both take each setting's 0.7 name, its field's name, and kafka-python's spelling where it means the same. Values
        are text, numbers, booleans, or for what names code the thing itself; an option that is None counts as not
        given. ``zookeeper`` and ``brokers`` exclude each other; given as an option, either goes before both in
        ``properties``. ValueError for a name that is not known (it proposes the nearest one), one setting under two
        names, settings that exclude each other, a Java class that we have nothing for, or a bad value; OSError for a
        file that cannot be read.
        """
        if isinstance(properties, (str, Path)):
            properties = read_properties(properties)
        values, _ = parse("0.7 producers", _PRODUCER_SETTINGS, (), properties or {})
        given = {name: value for name, value in options.items() if value is not None}
        first, _ = parse("producers", _PRODUCER_SETTINGS, (), given)
        if _TARGETS & first.keys():
            values = {name: value for name, value in values.items() if name not in _TARGETS}
        return cls(**(values | first))

    def __post_init__(self) -> None:
        object.__setattr__(self, "codec", _codec("compression.codec", self.codec))
        if self.zookeeper is not None and self.brokers is not None:
            raise ValueError("zk.connect (zookeeper) and broker.list (brokers) exclude each other: give one of them")
        if isinstance(self.codec, Mapping) and self.compressed_topics:
            raise ValueError("a codec for each topic and compressed.topics exclude each other: give one of them")
        if self.verify and self.event_handler is not None:
            raise ValueError("verify and event.handler exclude each other: what a handler sends is not seen here")

    def codec_of(self, topic: str) -> Codec:
        """How messages of the topic are compressed."""
        if isinstance(self.codec, Mapping):
            return self.codec.get(topic, Codec.NONE)
        if self.compressed_topics and topic not in self.compressed_topics:
            return Codec.NONE
        return self.codec

    @property
    def zookeeper_session(self) -> float:
        """Seconds that ZooKeeper may be out of touch."""
        return self.zookeeper_session_ms / 1000

    @property
    def zookeeper_connect(self) -> float:
        """Seconds that ZooKeeper is waited for."""
        return (self.zookeeper_connect_ms or self.zookeeper_session_ms) / 1000

    @property
    def enqueue_timeout(self) -> float | None:
        """Seconds that ``send`` waits for room in the queue; None: for ever."""
        return None if self.enqueue_timeout_ms < 0 else self.enqueue_timeout_ms / 1000

    @property
    def queue_time(self) -> float:
        """Seconds after which a batch is sent that is not full."""
        return self.queue_time_ms / 1000

    @property
    def connect_timeout(self) -> float:
        """Seconds for connecting to a broker."""
        return self.connect_timeout_ms / 1000

    @property
    def socket_timeout(self) -> float:
        """Seconds for a broker to take bytes or to answer."""
        return self.socket_timeout_ms / 1000

    @property
    def delivery_timeout(self) -> float:
        """Seconds after which a message that could not be written fails."""
        return self.delivery_timeout_ms / 1000

    @property
    def verify_timeout(self) -> float:
        """Seconds after which what was written and not found is ``unknown``."""
        return self.verify_timeout_ms / 1000


def _spelt_both_ways(settings: dict[str, Field[Any]]) -> dict[str, Field[Any]]:
    """The field names are names too, so that options are keywords in Python."""
    return {each.name: each for each in settings.values()} | settings


_PRODUCER_SETTINGS = _spelt_both_ways(by_name(ProducerConfig))

_TARGETS = {"zookeeper", "brokers"}


def producer_table() -> str:
    """All settings of a producer as a Markdown table."""
    return table(ProducerConfig)
