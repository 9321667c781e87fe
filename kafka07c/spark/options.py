"""The options of ``format("kafka07")``: strings in, values out. Names and meanings are those of Spark's Kafka source.

Nothing here asks a broker, a disk or Spark; `kafka07c.spark.planning.plan` compares the values with what is there.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kafka07c.names import TopicPartition, parse_partition
from kafka07c.protocol import EARLIEST, LATEST
from kafka07c.ranges import Source, open_source

__all__ = ["Assign", "Offsets", "OptionError", "ReadOptions", "Subscribe", "SubscribePattern", "parse"]

_SOURCES = {"kafka07.zookeeper": "zookeeper", "kafka07.brokers": "brokers", "kafka07.logs": "logs"}
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_NAMES = (*_SOURCES, *_SUBSCRIPTIONS, "startingOffsets", "endingOffsets", "failOnDataLoss")

_OFFSETS_FORM = '"earliest", "latest" or JSON such as {"clicks": {"0-1": 4711}}'
_ASSIGN_FORM = 'JSON such as {"clicks": ["0-0", "0-1"]}'


class OptionError(ValueError):
    """An option of a query is missing, wrong, or does not fit what is there."""


@dataclass(frozen=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class SubscribePattern:
    """All partitions of the topics whose whole name the pattern matches."""

    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Assign:
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Offsets:
    """EARLIEST or LATEST ``everywhere``, or for each partition a number, EARLIEST or LATEST."""

    everywhere: int | None = None
    by_partition: Mapping[TopicPartition, int] | None = None

    def of(self, tp: TopicPartition) -> int:
        """The offset for ``tp``; KeyError when it is not among those given one by one."""
        return self.everywhere if self.by_partition is None else self.by_partition[tp]


@dataclass(frozen=True)
class ReadOptions:
    """What a query asks for."""

    source: Mapping[str, str]
    subscription: Subscribe | SubscribePattern | Assign
    starting: Offsets
    ending: Offsets
    fail_on_data_loss: bool

    def open_source(self) -> Source:
        """The source, which has not opened anything yet."""
        return open_source(**self.source)


def parse(options: Mapping[str, str]) -> ReadOptions:
    """The options of a batch query, by their names in any case. OptionError names the option that is wrong, and why.

    An option that is not known is refused: a misspelt ``startingOffsets`` would otherwise read something else.
    """
    given = _by_name(options)
    starting = _offsets("startingOffsets", given.get("startingOffsets", "earliest"))
    ending = _offsets("endingOffsets", given.get("endingOffsets", "latest"))
    _refuse("startingOffsets", starting, LATEST, "latest (-1) is no start for a batch query: it would read nothing")
    _refuse("endingOffsets", ending, EARLIEST, "earliest (-2) is no end for a batch query: it would read nothing")
    return ReadOptions(
        source=_source(given),
        subscription=_subscription(given),
        starting=starting,
        ending=ending,
        fail_on_data_loss=_boolean("failOnDataLoss", given.get("failOnDataLoss", "true")),
    )


def _by_name(options: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower(): name for name in _NAMES}
    given = {}
    for name, value in options.items():
        if name.lower() not in names:
            close = difflib.get_close_matches(name.lower(), names, n=1)
            hint = f"did you mean {names[close[0]]}?" if close else f"there are {', '.join(_NAMES)}"
            raise OptionError(f"format kafka07 has no option {name!r}: {hint}")
        given[names[name.lower()]] = value
    return given


def _source(given: Mapping[str, str]) -> dict[str, str]:
    name = _exactly_one(given, tuple(_SOURCES))
    keyword = _SOURCES[name]
    try:
        open_source(**{keyword: given[name]})
    except ValueError as error:
        raise OptionError(f"option {name}: {error}") from None
    return {keyword: given[name]}


def _subscription(given: Mapping[str, str]) -> Subscribe | SubscribePattern | Assign:
    name = _exactly_one(given, _SUBSCRIPTIONS)
    value = given[name].strip()
    if not value:
        raise OptionError(f"option {name} is empty")
    if name == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, map(str.strip, value.split(",")))))
        if not topics:
            raise OptionError(f"option subscribe is {value!r}: it names no topic")
        return Subscribe(topics)
    if name == "subscribePattern":
        try:
            return SubscribePattern(re.compile(value))
        except re.error as error:
            raise OptionError(f"option subscribePattern is {value!r}: no regular expression: {error}") from None
    return Assign(_assigned(value))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    topics = _json_object("assign", text, _ASSIGN_FORM)
    assigned = []
    for topic, names in topics.items():
        if not isinstance(names, list):
            raise OptionError(f"option assign: topic {topic!r} has {names!r}, expected {_ASSIGN_FORM}")
        assigned += [_partition("assign", topic, name) for name in names]
    if not assigned:
        raise OptionError(f"option assign is {text!r}: it names no partition, expected {_ASSIGN_FORM}")
    return tuple(sorted(set(assigned)))


def _offsets(option: str, text: str) -> Offsets:
    if text.strip().lower() in ("earliest", "latest"):
        return Offsets(everywhere=EARLIEST if text.strip().lower() == "earliest" else LATEST)
    by_partition = {}
    for topic, partitions in _json_object(option, text, _OFFSETS_FORM).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"option {option}: topic {topic!r} has {partitions!r}, expected {_OFFSETS_FORM}")
        for name, offset in partitions.items():
            if type(offset) is not int or not LATEST <= offset < 2**63 and offset != EARLIEST:
                raise OptionError(
                    f"option {option}: topic {topic!r}, partition {name!r} has {offset!r}: "
                    "expected an offset in bytes, -2 for earliest or -1 for latest"
                )
            by_partition[_partition(option, topic, name)] = offset
    return Offsets(by_partition=by_partition)


def _refuse(option: str, offsets: Offsets, value: int, why: str) -> None:
    if offsets.everywhere == value or value in (offsets.by_partition or {}).values():
        raise OptionError(f"option {option}: {why}")


def _partition(option: str, topic: str, name: object) -> TopicPartition:
    try:
        return TopicPartition(topic, *parse_partition(str(name)))
    except ValueError as error:
        raise OptionError(f"option {option}: topic {topic!r}: {error}") from None


def _json_object(option: str, text: str, form: str) -> dict:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise OptionError(f"option {option} is {text!r}: expected {form}")
    return value


def _boolean(option: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"option {option} is {text!r}: expected true or false")
    return text.strip().lower() == "true"


def _exactly_one(given: Mapping[str, str], names: tuple[str, ...]) -> str:
    found = [name for name in names if name in given]
    if len(found) != 1:
        said = f"both {' and '.join(found)} are" if found else "none is"
        raise OptionError(f"format kafka07 needs exactly one of the options {', '.join(names)}: {said} given")
    return found[0]
