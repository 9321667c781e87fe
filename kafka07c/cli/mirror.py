"""``kafka07c mirror``: topics of one cluster to another; 0.7's MirrorMaker and ReplayLogProducer in one.

The work is `kafka07c.mirror.Mirror`'s. The first signal lets it write and commit what it has read, a second one ends it
at once.
"""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from kafka07c.cli.arguments import add_command, add_metrics, serving_metrics
from kafka07c.cli.exit_codes import INTERRUPTED, OK, UsageError, exit_code
from kafka07c.cli.output import json_line, megabytes_per_second, note
from kafka07c.cli.producing import (
    add_codec,
    add_properties,
    checked_target,
    open_producer,
    positive,
    properties_of,
    seconds,
    target_of,
)
from kafka07c.cli.stopping import StopSignal
from kafka07c.cli.zookeeper_access import add_access

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka07c.cli.arguments import Commands
    from kafka07c.metrics import Metrics
    from kafka07c.mirror import Mirror, MirrorProgress
    from kafka07c.producer import Producer

__all__ = ["add_parser", "run"]

_EXAMPLE = """\
  kafka07c mirror --zookeeper zk1:2181/kafka --to-zookeeper zk2:2181/kafka -g mirror clicks orders
  kafka07c mirror --zookeeper zk1:2181/kafka --to-zookeeper zk2:2181/kafka -g mirror '^.*' --exclude 'test.*' -z gzip
  kafka07c mirror --zookeeper zk1:2181/kafka --to-zookeeper zk1:2181/kafka clicks --rename %t-replayed -e"""

_RESETS = {"beginning": "earliest", "end": "latest"}


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "mirror",
        run,
        help="topics of one cluster to another, or under other names",
        description="Reads topics and writes what it reads to another cluster, or to the same one under other names.\n"
        "Each source partition goes to one target partition, in its order: that of the same name, where there is\n"
        "one, else the one that its name as a key would have. Offsets are committed after what is before them was\n"
        "written (with --verify: was read back), so nothing is left out, and after a crash some may come twice. Runs\n"
        "until Ctrl-C or SIGTERM unless -e or -c ends it; what it has read is then written and committed first. When\n"
        "a batch cannot be written it stops, and commits nothing behind it (exit code 5).",
        example=_EXAMPLE,
        fields="line: line (interval, or total), messages, bytes, seconds, on_their_way (messages), lag (bytes; null: "
        "not known), and in the total partitions (source and target)",
    )
    source = parser.add_argument_group("source, one of")
    source.add_argument(
        "--zookeeper", metavar="HOST:PORT[/CHROOT]", help="its ZooKeeper (default: $KAFKA07C_ZOOKEEPER)"
    )
    add_access(source)
    source.add_argument("-b", "--brokers", metavar="ID:HOST:PORT,…", help="its brokers; without -g, and topics by name")
    target = parser.add_argument_group("target, one of")
    target.add_argument("--to-zookeeper", metavar="HOST:PORT[/CHROOT]", help="its ZooKeeper")
    add_access(target, "--to-zk-access")
    target.add_argument("--to-brokers", metavar="ID:HOST:PORT,…", help="its brokers")
    parser.add_argument(
        "topics", nargs="*", metavar="TOPIC", help="topics, or one ^REGEX for all whose whole name matches (Java's)"
    )
    parser.add_argument(
        "--exclude", metavar="REGEX", help="not the topics that match this; without topics: all the others"
    )
    parser.add_argument(
        "-g",
        "--group",
        metavar="GROUP",
        help="the consumer group, which shares the partitions among its mirrors and has the offsets; without it "
        "each run reads all, from --from on, and commits nothing",
    )
    parser.add_argument(
        "--rename",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="the target's name for a topic; may be repeated. Or NEW alone, with %%t for the old name, for all others",
    )
    parser.add_argument(
        "--from",
        dest="start",
        choices=tuple(_RESETS),
        default="beginning",
        help="where to begin a partition of which the group has no offset: beginning (default) or end",
    )
    parser.add_argument("-e", "--exit", action="store_true", help="stop when all is read to its end")
    parser.add_argument("-c", "--count", type=positive, metavar="N", help="stop after N messages")
    parser.add_argument("--streams", type=positive, default=1, metavar="N", help="threads that read (default: 1)")
    add_codec(parser, "compress what is written: none, gzip or snappy (what was read is inflated first)")
    parser.add_argument("--verify", action="store_true", help="commit only what was read back from the target")
    parser.add_argument(
        "--on-corrupt",
        choices=("stop", "skip"),
        default="stop",
        help="a damaged entry ends its partition (stop, the default; exit code 4), or is left out (skip)",
    )
    add_properties(parser)
    parser.add_argument(
        "--consumer-property", action="append", default=[], metavar="NAME=VALUE",
        help="one of the consumer's settings by its 0.7 name; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--commit-interval", type=seconds, default=1.0, metavar="SECONDS", help="between two commits (default: 1)"
    )
    parser.add_argument(
        "--interval", type=seconds, default=10.0, metavar="SECONDS", help="between two lines (default: 10; 0: none)"
    )
    parser.add_argument("--json", action="store_true", help="print these lines, and the summary, as JSON to stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="no lines and no summary, errors only")
    add_metrics(parser)


def run(args: argparse.Namespace) -> int:
    _check(args)
    logging.basicConfig(
        stream=sys.stderr, level=logging.ERROR if args.quiet else logging.WARNING, format="%% %(message)s"
    )
    with ExitStack() as stack:
        metrics = stack.enter_context(serving_metrics(args))
        target = checked_target(args.to_zookeeper, args.to_brokers, args.to_zk_access)
        producer = open_producer(args, target, metrics=metrics)
        stack.callback(producer.close, 0)  # by then all is done, or given up
        mirror = _mirror(args, producer, metrics)
        stop = stack.enter_context(StopSignal(mirror.stop))
        lines = _Lines(args)
        try:
            mirror.run(lines.progress if args.interval else None, args.interval)
            interrupted = stop.is_set() and (args.exit or args.count is not None)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            lines.summary(mirror.progress)
    for error in mirror.errors.values():
        note(f"kafka07c mirror: {' '.join(str(error).split())}")
    return max(map(exit_code, mirror.errors.values())) if mirror.errors else INTERRUPTED if interrupted else OK


def _check(args: argparse.Namespace) -> None:
    patterns = [topic for topic in args.topics if topic.startswith("^")]
    if patterns and len(args.topics) > 1:
        raise UsageError("a ^REGEX stands alone: put what it is to match into one, with |")
    if args.exclude is not None and args.topics and not patterns:
        raise UsageError("--exclude goes with a ^REGEX, or stands alone")
    if not args.topics and args.exclude is None:
        raise UsageError("nothing to mirror: name topics, behind the options, or give --exclude")
    if args.brokers is not None and (args.group is not None or patterns or args.exclude is not None):
        raise UsageError("-g, ^REGEX and --exclude need --zookeeper: groups and the list of topics are there")
    if args.streams > 1 and args.group is None:
        raise UsageError("--streams goes with -g")
    if (args.to_zookeeper is None) == (args.to_brokers is None):
        raise UsageError("give one of --to-zookeeper and --to-brokers")


def _mirror(args: argparse.Namespace, producer: Producer, metrics: Metrics | None) -> Mirror:
    from kafka07c.mirror import Mirror

    chosen: dict[str, Any] = {"exclude": args.exclude}
    if args.topics and args.topics[0].startswith("^"):
        chosen["pattern"] = args.topics[0]
    elif args.topics:
        chosen["topics"] = args.topics
    try:
        return Mirror(
            producer=producer,
            **chosen,
            **target_of(args),
            group=args.group,
            streams=args.streams,
            rename=_rename(args.rename),
            until_end=args.exit,
            count=args.count,
            commit_interval=max(0.01, args.commit_interval),
            metrics=metrics,
            offset_reset=_RESETS[args.start],
            on_corrupt=args.on_corrupt,
            properties=properties_of(args.consumer_property, None),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _rename(texts: list[str]) -> Callable[[str], str | None]:
    """The function that ``--rename`` describes; UsageError for what makes no sense."""
    names: dict[str, str] = {}
    template: str | None = None
    for text in texts:
        old, equals, new = text.partition("=")
        if equals and old and new:
            names[old] = new
        elif not equals and "%t" in text and template is None:
            template = text
        else:
            raise UsageError(f"--rename is OLD=NEW, or once a name with %t in it, not {text!r}")
    return lambda topic: names.get(topic) or (None if template is None else template.replace("%t", topic))


class _Lines:
    """What is said while it runs, and in the end."""

    def __init__(self, args: argparse.Namespace):
        self._json: bool = args.json
        self._quiet: bool = args.quiet
        self._before = (0, 0, 0.0)

    def progress(self, now: MirrorProgress) -> None:
        """What was done since the last line."""
        messages, size, since = self._before
        self._before = (now.messages, now.bytes, now.seconds)
        self._say("interval", now, now.messages - messages, now.bytes - size, now.seconds - since)

    def summary(self, now: MirrorProgress) -> None:
        """All that was done."""
        self._say("total", now, now.messages, now.bytes, now.seconds)

    def _say(self, line: str, now: MirrorProgress, messages: int, size: int, took: float) -> None:
        if self._json:
            fields: dict[str, Any] = {
                "line": line, "messages": messages, "bytes": size, "seconds": round(took, 3),
                "on_their_way": now.on_their_way, "lag": now.lag,
            }  # fmt: skip
            if line == "total":
                fields["partitions"] = {str(source): str(target) for source, target in sorted(now.partitions.items())}
            print(json_line(fields), flush=True)
        if not self._quiet and not (self._json and line == "interval"):
            lag = "" if now.lag is None else f", {now.lag} bytes behind"
            waiting = f", {now.on_their_way} messages on their way" if now.on_their_way else ""
            note(
                f"% {messages} messages, {size} bytes in {took:.1f} s ({megabytes_per_second(size, took)} MB/s)"
                f"{waiting}{lag}"
            )
