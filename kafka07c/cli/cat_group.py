"""``kafka07c cat -G``: a topic's share of a consumer group's member to stdout, as kcat's balanced consumer.

What is committed has been printed and flushed: a message counts as handled when the consumer is asked for more. A
signal is only noted, and looked at between two of these questions; one more ends the command at once, and commits nothing.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka07c.cli.arguments import serving_metrics, zookeeper_of
from kafka07c.cli.exit_codes import CORRUPT, OK, UsageError
from kafka07c.cli.output import note
from kafka07c.cli.stopping import StopSignal

if TYPE_CHECKING:
    from kafka07c._views import Message
    from kafka07c.consumer import Consumer
    from kafka07c.metrics import Metrics
    from kafka07c.names import TopicPartition

__all__ = ["run"]

_RESETS = {"beginning": "earliest", "end": "latest"}

#: messages that are printed at a time, and how long a signal waits at most while there are none
_AT_ONCE = 1000
_POLL_MS = 200


def run(args: argparse.Namespace, render: Callable[[list[Message]], bytes]) -> int:
    """Print until told to stop: by ``-c``, ``-e`` or a signal."""
    _check(args)
    logging.basicConfig(
        stream=sys.stderr, level=logging.ERROR if args.quiet else logging.WARNING, format="%% %(message)s"
    )
    cat = _GroupCat(args, render)
    with StopSignal() as stop, serving_metrics(args) as metrics:
        cat.run(stop, metrics)
    return CORRUPT if cat.failed else OK


def _check(args: argparse.Namespace) -> None:
    if args.brokers is not None or args.logs is not None:
        raise UsageError("-G needs --zookeeper: that is where the members of a group meet")
    if args.partition is not None:
        raise UsageError("-p does not go with -G: the group shares out the partitions")
    if args.offset not in _RESETS:
        raise UsageError("-o is beginning or end with -G; kafka07c offsets reset sets a group's offsets")
    if not args.topics:
        raise UsageError("-G needs topics, behind the options: kafka07c cat -G reports clicks")
    patterns = [topic for topic in args.topics if topic.startswith("^")]
    if patterns and len(args.topics) > 1:
        raise UsageError("a ^REGEX stands alone: put what it is to match into one, with |")
    if args.exclude is not None and not patterns:
        raise UsageError("--exclude goes with a ^REGEX")


class _GroupCat:
    """One run as a member of a group."""

    def __init__(self, args: argparse.Namespace, render: Callable[[list[Message]], bytes]):
        self.failed = False
        self._args = args
        self._render = render
        self._left: int | None = args.count

    def run(self, stop: StopSignal, metrics: Metrics | None) -> None:
        with self._consumer(metrics) as consumer:
            while not stop.is_set() and self._left != 0:
                polled = consumer.poll(_POLL_MS, _AT_ONCE if self._left is None else min(self._left, _AT_ONCE))
                for messages in polled.values():
                    sys.stdout.buffer.write(self._render(messages))
                    if self._left is not None:
                        self._left -= len(messages)
                sys.stdout.flush()
                if self._args.exit and not polled and consumer.at_end:
                    break

    def _consumer(self, metrics: Metrics | None) -> Consumer:
        from kafka07c.consumer import Consumer

        args = self._args
        consumer = Consumer(
            zookeeper=zookeeper_of(args),
            group=args.group,
            offset_reset=_RESETS[args.offset],
            on_corrupt="stop",
            until_end=args.exit,
            on_assign=lambda tps: self._say("has", tps),
            on_revoke=lambda tps, can_commit: self._say("gives up", tps),
            on_error=self._on_error,
            metrics=metrics,
        )
        try:
            first = args.topics[0]
            if first.startswith("^"):
                consumer.subscribe(pattern=first, exclude=args.exclude)
            else:
                consumer.subscribe(args.topics)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return consumer

    def _say(self, what: str, partitions: set[TopicPartition]) -> None:
        if not self._args.quiet:
            note(f"% Group {self._args.group}: this member {what} {', '.join(map(str, sorted(partitions)))}")

    def _on_error(self, tp: TopicPartition, error: Exception, skipped: tuple[int, int] | None) -> None:
        self.failed = True  # the consumer logs it
