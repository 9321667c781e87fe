"""The options of ``format("kafka07")``: strings in, values out. Names and meanings are those of Spark's Kafka source.

Nothing here asks a broker, a disk or Spark; `kafka07c.spark.planning.plan` compares the values with what is there.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kafka07c.names import TopicPartition, parse_partition
from kafka07c.protocol import EARLIEST, LATEST
from kafka07c.ranges import Source, open_source

__all__ = [
    "BROKER_PATIENCE", "COLUMNS", "Assign", "Mode", "Offsets", "OptionError", "ReadOptions", "Subscribe",
    "SubscribePattern", "Times", "columns", "parse",
]  # fmt: skip

_SOURCES = {"kafka07.zookeeper": "zookeeper", "kafka07.brokers": "brokers", "kafka07.logs": "logs"}
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_ENDINGS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_NAMES = (
    *_SOURCES, *_SUBSCRIPTIONS,
    "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets", "startingOffsetsByTimestampStrategy",
    *_ENDINGS,
    "failOnDataLoss", "minPartitions", "columns", "mode", "includeHeaders",
    "maxBytesPerTrigger", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
)  # fmt: skip

_OFFSETS_FORM = '"earliest", "latest" or JSON such as {"clicks": {"0-1": 4711}}'
_OFFSET = "an offset in bytes, -2 for earliest or -1 for latest"
_TIMES_FORM = 'JSON such as {"clicks": {"0-1": 1767225600000}}, in milliseconds since 1970, UTC'
_ASSIGN_FORM = 'JSON such as {"clicks": ["0-0", "0-1"]}'

#: the columns that there are, in their order; "headers" only with includeHeaders, "_corrupt" with mode PERMISSIVE
COLUMNS = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "broker", "index", "next_offset",
)  # fmt: skip
HEADERS = "headers"
CORRUPT = "_corrupt"

#: seconds for which a query waits for a broker that has gone, in the middle of a batch: a restart takes less
BROKER_PATIENCE = 60.0

_BYTE_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TIME_UNITS = {
    "us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400,
    "second": 1, "seconds": 1, "minute": 60, "minutes": 60, "hour": 3600, "hours": 3600, "day": 86_400, "days": 86_400,
}  # fmt: skip


class OptionError(ValueError):
    """An option of a query is missing, wrong, or does not fit what is there."""


class Mode(StrEnum):
    """What a damaged entry does, as in Spark's own readers."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"


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
        return _of(self.everywhere, self.by_partition, tp)


@dataclass(frozen=True)
class Times:
    """A time ``everywhere``, or for each partition one: milliseconds since 1970, UTC."""

    everywhere: int | None = None
    by_partition: Mapping[TopicPartition, int] | None = None

    def of(self, tp: TopicPartition) -> int:
        """The time for ``tp``; KeyError when it is not among those given one by one."""
        return _of(self.everywhere, self.by_partition, tp)


def _of(everywhere: int | None, by_partition: Mapping[TopicPartition, int] | None, tp: TopicPartition) -> int:
    if by_partition is not None:
        return by_partition[tp]
    assert everywhere is not None
    return everywhere


@dataclass(frozen=True)
class ReadOptions:
    """What a query asks for.

    ``latest_if_none``: where no segment is from the time asked for or later, begin at the end rather than raise.
    ``columns``: the names of those wanted, in their order. The limits are in bytes of the logs, all partitions together
    (None: none), ``max_trigger_delay`` in seconds.
    """

    source: Mapping[str, Any]
    subscription: Subscribe | SubscribePattern | Assign
    starting: Offsets | Times
    ending: Offsets | Times
    fail_on_data_loss: bool
    latest_if_none: bool = False
    min_partitions: int | None = None
    columns: tuple[str, ...] = COLUMNS
    mode: Mode = Mode.FAILFAST
    max_bytes_per_trigger: int | None = None
    min_bytes_per_trigger: int | None = None
    max_trigger_delay: float = 900.0

    def open_source(self, **options: Any) -> Source:
        """The source, which has not opened anything yet; ``options`` go to `ranges.open_source`."""
        return open_source(**self.source, **({"patience": BROKER_PATIENCE} | options))


def parse(options: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
    """The options of a query, by their names in any case. OptionError names the option that is wrong, and why.

    An option that is not known is refused: a misspelt ``startingOffsets`` would otherwise read something else. As in
    Spark's Kafka source a stream refuses an end, and a batch query takes no notice of what limits a trigger.
    """
    given = _by_name(options)
    if streaming and (ends := [name for name in _ENDINGS if name in given]):
        raise OptionError(f"option {ends[0]} is for batch queries: a stream has no end")
    starting = _place("starting", given, "latest" if streaming else "earliest")
    ending = _place("ending", given, "latest")
    if isinstance(starting, Offsets) and not streaming:
        _refuse("startingOffsets", starting, LATEST, "latest (-1) is no start for a batch query: it would read nothing")
    if isinstance(ending, Offsets):
        _refuse("endingOffsets", ending, EARLIEST, "earliest (-2) is no end for a batch query: it would read nothing")
    return ReadOptions(
        source=_source(given),
        subscription=_subscription(given),
        starting=starting,
        ending=ending,
        fail_on_data_loss=_boolean("failOnDataLoss", given.get("failOnDataLoss", "true")),
        latest_if_none=_one_of("startingOffsetsByTimestampStrategy", given, ("error", "latest")) == "latest",
        min_partitions=_number("minPartitions", given),
        columns=_columns(given),
        mode=_mode(given),
        max_bytes_per_trigger=_limit(given),
        min_bytes_per_trigger=_size("minOffsetsPerTrigger", given),
        max_trigger_delay=_duration("maxTriggerDelay", given.get("maxTriggerDelay", "15m")),
    )


def columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the columns that a query with these options gives; every name and value of them is looked at."""
    given = _by_name(options)
    parse({name: value for name, value in given.items() if name not in _ENDINGS}, streaming=True)
    return _columns(given)


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


def _place(which: str, given: Mapping[str, str], default: str) -> Offsets | Times:
    """Where to start or to end; of several options the first in the order of Spark's Kafka source counts."""
    if (text := given.get(f"{which}Timestamp")) is not None:
        return Times(everywhere=_milliseconds(f"{which}Timestamp", text))
    option = f"{which}OffsetsByTimestamp"
    if (text := given.get(option)) is not None:
        return Times(by_partition=_by_partition(option, text, _TIMES_FORM, 0, "milliseconds since 1970"))
    return _offsets(f"{which}Offsets", given.get(f"{which}Offsets", default))


def _milliseconds(option: str, text: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,18}\s*", text):
        raise OptionError(f"option {option} is {text!r}: expected milliseconds since 1970, UTC")
    return int(text)


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    there = [*COLUMNS]
    if _boolean("includeHeaders", given.get("includeHeaders", "false")):
        there.append(HEADERS)
    if _mode(given) is Mode.PERMISSIVE:
        there.append(CORRUPT)
    if "columns" not in given:
        return tuple(there)
    wanted = tuple(dict.fromkeys(filter(None, map(str.strip, given["columns"].split(",")))))
    if not wanted:
        raise OptionError("option columns is empty: leave it out for all columns")
    if unknown := [name for name in wanted if name not in there]:
        raise OptionError(f"option columns: there is no column {', '.join(unknown)}; there are {', '.join(there)}")
    return wanted


def _mode(given: Mapping[str, str]) -> Mode:
    return Mode(_one_of("mode", {name: text.upper() for name, text in given.items()}, tuple(Mode)))


def _limit(given: Mapping[str, str]) -> int | None:
    if "maxBytesPerTrigger" in given and "maxOffsetsPerTrigger" in given:
        raise OptionError("maxBytesPerTrigger and maxOffsetsPerTrigger are the same, for offsets are bytes: give one")
    return _size("maxBytesPerTrigger", given) or _size("maxOffsetsPerTrigger", given)


def _size(option: str, given: Mapping[str, str]) -> int | None:
    """Bytes, also as ``64m``; None where not given."""
    text = given.get(option)
    if text is None:
        return None
    match = re.fullmatch(r"\s*([0-9]{1,18})\s*([bkmgt]?)b?\s*", text.lower())
    if match is None or not int(match[1]):
        raise OptionError(f"option {option} is {text!r}: expected a number of bytes above 0, such as 1000000 or 64m")
    return int(match[1]) * _BYTE_UNITS[match[2]]


def _duration(option: str, text: str) -> float:
    """Seconds; a number alone is milliseconds, as in Spark."""
    match = re.fullmatch(r"\s*([0-9]{1,12})\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _TIME_UNITS:
        raise OptionError(f"option {option} is {text!r}: expected a duration such as 15m, 30s or 500ms")
    return int(match[1]) * _TIME_UNITS[match[2]]


def _number(option: str, given: Mapping[str, str]) -> int | None:
    text = given.get(option)
    if text is None:
        return None
    if not re.fullmatch(r"\s*[0-9]{1,9}\s*", text) or not int(text):
        raise OptionError(f"option {option} is {text!r}: expected a number above 0")
    return int(text)


def _one_of(option: str, given: Mapping[str, str], words: tuple[str, ...]) -> str:
    """One of the words; the first where not given."""
    text = given.get(option, words[0]).strip()
    if text not in words:
        raise OptionError(f"option {option} is {text!r}: expected {' or '.join(words)}")
    return text


def _source(given: Mapping[str, str]) -> dict[str, Any]:
    name = _exactly_one(given, tuple(_SOURCES))
    source: dict[str, Any] = {_SOURCES[name]: given[name]}
    try:
        open_source(**source)
    except ValueError as error:
        raise OptionError(f"option {name}: {error}") from None
    return source


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
    return Offsets(by_partition=_by_partition(option, text, _OFFSETS_FORM, EARLIEST, _OFFSET))


def _by_partition(option: str, text: str, form: str, lowest: int, number_form: str) -> dict[TopicPartition, int]:
    numbers = {}
    for topic, partitions in _json_object(option, text, form).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"option {option}: topic {topic!r} has {partitions!r}, expected {form}")
        for name, number in partitions.items():
            if type(number) is not int or not lowest <= number < 2**63:
                raise OptionError(
                    f"option {option}: topic {topic!r}, partition {name!r} has {number!r}: expected {number_form}"
                )
            numbers[_partition(option, topic, name)] = number
    return numbers


def _refuse(option: str, offsets: Offsets, value: int, why: str) -> None:
    if offsets.everywhere == value or value in (offsets.by_partition or {}).values():
        raise OptionError(f"option {option}: {why}")


def _partition(option: str, topic: str, name: object) -> TopicPartition:
    try:
        return TopicPartition(topic, *parse_partition(str(name)))
    except ValueError as error:
        raise OptionError(f"option {option}: topic {topic!r}: {error}") from None


def _json_object(option: str, text: str, form: str) -> dict[str, Any]:
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
