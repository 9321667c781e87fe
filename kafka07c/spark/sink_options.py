"""The options of ``write.format("kafka07")`` and ``writeStream``: strings in, a producer's settings out."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from kafka07c.producer import ProducerConfig
from kafka07c.protocol import check_topic
from kafka07c.settings import by_name
from kafka07c.spark.options import OptionError

__all__ = ["WriteOptions", "parse_write"]

#: what Spark's users would write, and the producer's name of it
_NAMES = {
    "kafka07.zookeeper": "zookeeper",
    "kafka07.brokers": "brokers",
    "compression": "codec",
    "partitioner": "partitioner",
    "verify": "verify",
}

_PARTITIONERS = {
    "default": "kafka07c.producer:DefaultPartitioner",
    "random": "kafka07c.producer:RandomPartitioner",
    "roundrobin": "kafka07c.producer:RoundRobinPartitioner",
    "sticky": "kafka07c.producer:StickyPartitioner",
}

#: options of Spark's own, which a sink gets too
_SPARKS = ("checkpointlocation", "path", "queryname")

#: a producer's settings that have no place in a task
_REFUSED = {
    "zk.connect": "use kafka07.zookeeper",
    "broker.list": "use kafka07.brokers",
    "producer.type": "a task writes in batches and waits for their end",
    "callback.handler": "nobody is there to be called back",
    "event.handler": "the sink is one itself",
    "serializer.class": "columns are bytes or text already",
}


@dataclass(frozen=True)
class WriteOptions:
    """What a sink is to do: ``topic`` for all rows (None: a column says), ``properties`` of its producer."""

    topic: str | None
    properties: tuple[tuple[str, str], ...]

    @property
    def verify(self) -> bool:
        """Whether what was written is read back."""
        return dict(self.properties).get("verify") == "true"


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    """The options of a sink, by their names in any case. OptionError names the option that is wrong, and why.

    ``kafka07.zookeeper`` or ``kafka07.brokers``; ``topic`` (goes before a column of that name); ``compression`` none,
    gzip or snappy; ``partitioner`` default, random, roundrobin, sticky or ``module:function``; ``verify``; and any
    property of a producer as ``kafka07.NAME``, such as ``kafka07.max.message.size``.
    """
    settings = {name.lower(): name for name in by_name(ProducerConfig)}
    topic: str | None = None
    properties: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower in _SPARKS:
            continue
        if lower == "topic":
            topic = value
        elif lower in _NAMES:
            properties[_NAMES[lower]] = _partitioner(value) if lower == "partitioner" else value.strip()
        elif lower.startswith("kafka07.") and lower.removeprefix("kafka07.") in settings:
            setting = settings[lower.removeprefix("kafka07.")]
            if setting in _REFUSED:
                raise OptionError(f"option {name} is not for a sink: {_REFUSED[setting]}")
            properties[setting] = value
        else:
            raise OptionError(_unknown(name, ["topic", *_NAMES, *(f"kafka07.{each}" for each in settings.values())]))
    _check(topic, properties)
    return WriteOptions(topic, tuple(sorted(properties.items())))


def _partitioner(text: str) -> str:
    return _PARTITIONERS.get(text.strip().lower(), text.strip())


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name.lower(), [each.lower() for each in known], n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are topic, {', '.join(_NAMES)}, kafka07.PROPERTY"
    return f"the sink kafka07 has no option {name!r}: {hint}"


def _check(topic: str | None, properties: Mapping[str, str]) -> None:
    if ("zookeeper" in properties) == ("brokers" in properties):
        raise OptionError("the sink kafka07 needs exactly one of the options kafka07.zookeeper, kafka07.brokers")
    try:
        if topic is not None:
            check_topic(topic)
        ProducerConfig.from_properties(None, **properties)
    except ValueError as error:
        raise OptionError(f"the sink kafka07: {error}") from None
