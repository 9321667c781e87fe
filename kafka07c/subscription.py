"""What a member of a consumer group wants to read, and how 0.7 writes that in ZooKeeper.

::

    { "clicks": 2,"orders": 1 }     these topics, with so many threads each
    *2*clicks.*|orders              every topic whose whole name matches the Java regex, with 2 threads
    !1!test.*                       every topic whose name does not

It is the data of the member's node ``/consumers/GROUP/ids/ID``; every member reads those of all the others and works
out from them who owns what. Source: Kafka 0.7.2, ``kafka.consumer.TopicCount`` and ``TopicFilter``; tests compare
with recorded nodes.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from kafka07c.java_regex import compile_java
from kafka07c.protocol import check_topic

__all__ = ["Blacklist", "Subscription", "TopicFilter", "Whitelist"]

_MAX_THREADS = 2**31 - 1
_FILTER = re.compile(r"([*!])([0-9]+)\1(.*)", re.ASCII | re.DOTALL)
_LINE_END = re.compile("[\n\r\u0085\u2028\u2029]")
_NO_JSON_NAME = re.compile(r'["\\]')  # 0.7 writes names as they are, and so could not read these back
_TRIMMED = "".join(map(chr, range(33)))
_SHOWN = 200


def filter_text(text: str) -> str:
    """The regex that 0.7 makes of a filter's text: trimmed, ``,`` is ``|``, no spaces, no quotes around it.

    Members read this text from ZooKeeper and do the same again, so it is done here until nothing changes any more.
    """
    while True:
        trimmed = text.strip(_TRIMMED).replace(",", "|").replace(" ", "").strip("\"'")
        if trimmed == text:
            return text
        text = trimmed


@dataclass(frozen=True)
class TopicFilter(ABC):
    """Topics by a Java regex that the whole name has to match; use :class:`Whitelist` or :class:`Blacklist`.

    ``regex`` is the text after 0.7's trimming (see :func:`filter_text`). ValueError for one that is no Java regex,
    or that Python cannot read in exactly the same way.
    """

    regex: str
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        regex = filter_text(self.regex)
        if _LINE_END.search(regex):
            raise ValueError(f"the filter {regex!r} has a line break in it: no member could read it from ZooKeeper")
        object.__setattr__(self, "regex", regex)
        object.__setattr__(self, "_pattern", compile_java(regex))

    def __str__(self) -> str:
        return self.regex

    @abstractmethod
    def matches(self, topic: str) -> bool:
        """Whether the topic is wanted."""


class Whitelist(TopicFilter):
    """All topics whose whole name matches the regex, those to come included."""

    def matches(self, topic: str) -> bool:
        return self._pattern.fullmatch(topic) is not None

    def without(self, regex: str) -> Whitelist:
        """This whitelist without the topics whose whole name matches ``regex``: one regex that JVM members read alike.

        0.7 has either a whitelist or a blacklist; a negative lookahead makes one expression of both.
        """
        excluded = Whitelist(regex).regex
        return Whitelist(rf"(?!(?:{excluded})\z)(?:{self.regex})")


class Blacklist(TopicFilter):
    """All topics but those whose whole name matches the regex, those to come included."""

    def matches(self, topic: str) -> bool:
        return self._pattern.fullmatch(topic) is None


@dataclass(frozen=True)
class Subscription:
    """The topics that one member wants and its number of threads for each; made by one of the class methods."""

    topic_threads: Mapping[str, int] = field(default_factory=dict)
    topic_filter: TopicFilter | None = None
    threads: int = 0

    @classmethod
    def topics(cls, threads: Mapping[str, int]) -> Self:
        """These topics, each with its number of threads.

        InvalidTopicError for a name that no broker takes, ValueError for one that 0.7 could not write down.
        """
        for topic, count in threads.items():
            _check_threads(count, f"topic {topic!r}")
            check_topic(topic)
            if _NO_JSON_NAME.search(topic):
                raise ValueError(f"topic {topic!r} cannot be subscribed to by name: 0.7 writes names without escapes")
        return cls(topic_threads=dict(threads))

    @classmethod
    def whitelist(cls, regex: str, threads: int = 1, *, exclude: str | None = None) -> Self:
        """All topics that match the Java regex, without those that match ``exclude``; ValueError as for a filter."""
        chosen = Whitelist(regex)
        return cls.filtered(chosen if exclude is None else chosen.without(exclude), threads)

    @classmethod
    def blacklist(cls, regex: str, threads: int = 1) -> Self:
        """All topics that do not match the Java regex; ValueError as for a filter."""
        return cls.filtered(Blacklist(regex), threads)

    @classmethod
    def filtered(cls, topic_filter: TopicFilter, threads: int = 1) -> Self:
        """All topics that a :class:`Whitelist` or :class:`Blacklist` lets through, with so many threads."""
        _check_threads(threads, f"filter {topic_filter.regex!r}")
        return cls(topic_filter=topic_filter, threads=threads)

    @classmethod
    def decode(cls, data: bytes | None) -> Self:
        """The subscription in a member's node, JVM member or ours; ValueError, naming it, when it makes no sense.

        Also for a regex that cannot be read as Java reads it: guessing would split the partitions differently.
        """
        try:
            text = (data or b"").decode()
            return cls._decode(text)
        except (ValueError, RecursionError) as error:
            shown = repr(data[:_SHOWN] if data else data)
            raise ValueError(f"the subscription {shown} cannot be read: {error}") from None

    @classmethod
    def _decode(cls, text: str) -> Self:
        if match := _FILTER.fullmatch(text):
            kind = Whitelist if match[1] == "*" else Blacklist
            return cls.filtered(kind(match[3]), _threads(match[2]))
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError('expected { "topic": threads }, *threads*regex or !threads!regex')
        for topic, count in found.items():
            _check_threads(count, f"topic {topic!r}")
        return cls(topic_threads=found)

    def encode(self) -> bytes:
        """The node's data, as 0.7.2 writes it."""
        if self.topic_filter is not None:
            marker = "*" if isinstance(self.topic_filter, Whitelist) else "!"
            return f"{marker}{self.threads}{marker}{self.topic_filter.regex}".encode()
        return ("{ " + ",".join(f'"{topic}": {count}' for topic, count in self.topic_threads.items()) + " }").encode()

    @property
    def is_filter(self) -> bool:
        """Whether topics that appear later can come under it."""
        return self.topic_filter is not None

    def matches(self, topic: str) -> bool:
        """Whether the topic is wanted."""
        return self.threads_for(topic) > 0

    def threads_for(self, topic: str) -> int:
        """The member's number of threads for the topic; 0 when it does not want it."""
        if self.topic_filter is None:
            return self.topic_threads.get(topic, 0)
        return self.threads if self.topic_filter.matches(topic) else 0


def _threads(digits: str) -> int:
    if len(digits) > 10:
        raise ValueError(f"{len(digits)} digits are no number of threads")
    return int(digits)


def _check_threads(count: object, what: str) -> None:
    if type(count) is not int or not 1 <= count <= _MAX_THREADS:
        raise ValueError(f"{what} has {count!r} threads: expected 1 or more")
