"""What the commands that write have in common: the cluster that is written to, and a producer's settings."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

import numpy

from kafka07c.cli.arguments import ZOOKEEPER_VARIABLE, with_broker_ids
from kafka07c.cli.exit_codes import UsageError
from kafka07c.cli.zookeeper_access import add_access, with_access

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka07c.metrics import Metrics
    from kafka07c.producer import Producer
    from kafka07c.zookeeper import Access

__all__ = [
    "CODECS", "Target", "add_codec", "add_properties", "add_target", "check_verify", "checked_target", "column_of",
    "named_partition", "open_producer", "positive", "properties_of", "seconds", "target_of",
]  # fmt: skip

CODECS = ("none", "gzip", "snappy")


class Target(TypedDict, total=False):
    """One of the two: how a cluster is named."""

    zookeeper: str | Access
    brokers: str


def add_target(parser: argparse.ArgumentParser, *, writes: bool = True) -> None:
    """The two ways to name a live cluster: ``args.zookeeper`` or ``args.brokers``; see `target_of`."""
    group = parser.add_argument_group("cluster, one of")
    group.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[/CHROOT]",
        help=f"the brokers that this ZooKeeper lists (without either: ${ZOOKEEPER_VARIABLE})",
    )
    add_access(group)
    picks = " without -p each batch goes to any of them, which picks the partition." if writes else ""
    group.add_argument(
        "-b",
        "--brokers",
        metavar="ID:HOST:PORT,…",
        help=f"these brokers;{picks} without ids, as kcat has it (HOST:PORT,…), they are 0, 1, …",
    )


def target_of(args: argparse.Namespace) -> Target:
    """What `add_target` asked for, or $KAFKA07C_ZOOKEEPER; UsageError unless it is exactly one, and well formed."""
    zookeeper = args.zookeeper
    if zookeeper is None and args.brokers is None:
        zookeeper = os.environ.get(ZOOKEEPER_VARIABLE) or None
    if (zookeeper is None) == (args.brokers is None):
        raise UsageError(f"give one of --zookeeper and -b (or set {ZOOKEEPER_VARIABLE})")
    return checked_target(zookeeper, args.brokers, args.zk_access)


def checked_target(zookeeper: str | None, brokers: str | None, access: str | None) -> Target:
    """The one that is given; UsageError when it is malformed. ``access``: of `add_access`, for a ZooKeeper."""
    from kafka07c.names import parse_brokers
    from kafka07c.zookeeper import parse_hosts

    try:
        if zookeeper is not None:
            parse_hosts(zookeeper)
            return {"zookeeper": with_access(zookeeper, access)}
        brokers = with_broker_ids(brokers or "")
        parse_brokers(brokers)
        return {"brokers": brokers}
    except ValueError as error:
        raise UsageError(str(error)) from None


def open_producer(
    args: argparse.Namespace, target: Target, mode: Literal["async", "sync"] = "async", metrics: Metrics | None = None
) -> Producer:
    """A producer with what `add_codec`, `add_properties` and ``--verify`` say; UsageError for what makes no sense."""
    from kafka07c.producer import Producer

    properties = properties_of(args.property, args.config)
    verify = True if args.verify else None
    try:
        return Producer(properties, mode=mode, codec=args.codec, verify=verify, metrics=metrics, **target)
    except ValueError as error:
        raise UsageError(str(error)) from None


def check_verify(producer: Producer, partition: object) -> None:
    """UsageError when what is written could not be read back."""
    if producer.config.verify and producer.config.brokers is not None and partition is None:
        raise UsageError("--verify with -b needs -p: a broker that picks the partition does not say which")


def add_codec(parser: argparse.ArgumentParser, about: str = "compress each batch: none, gzip or snappy") -> None:
    """``-z``; None where it is not given, so that it may be a property."""
    parser.add_argument("-z", "--codec", choices=CODECS, help=about)


def add_properties(
    parser: argparse.ArgumentParser, whose: str = "producer", example: str = "batch.size=1000"
) -> None:
    """``-X NAME=VALUE`` and ``-F FILE``; see `properties_of`."""
    what = f"the {whose}'s settings"
    parser.add_argument(
        "-X", "--property", action="append", default=[], metavar="NAME=VALUE",
        help=f"one of {what} by its 0.7 name, such as {example}; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "-F", "--config", metavar="FILE", help=f"{what} by 0.7's names, as in {whose}.properties; -X goes before it"
    )


def properties_of(pairs: list[str], path: str | None) -> dict[str, str]:
    """The settings of ``-F`` and ``-X``; UsageError for what cannot be read."""
    from kafka07c.properties import read_properties

    found: dict[str, str] = {}
    if path is not None:
        try:
            found = read_properties(path)
        except OSError as error:
            raise UsageError(f"cannot read {path!r}: {error.strerror}") from None
        except ValueError as error:
            raise UsageError(str(error)) from None
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"-X must read NAME=VALUE, but is {pair!r}")
        found[name.strip()] = value
    return found


def named_partition(text: str) -> tuple[int, int] | None:
    """``"0-1"`` as broker and partition, for argparse; None for kcat's ``-1``, any."""
    from kafka07c.names import parse_partition

    if text == "-1":
        return None
    if text.isdigit():
        raise argparse.ArgumentTypeError(
            f"{text} alone names no partition: in 0.7 each broker has its own partition {text}. "
            f"Write BROKER-PARTITION, such as 0-{text}"
        )
    try:
        return parse_partition(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    if re.fullmatch(r"[0-9]{1,15}", text) and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")


def seconds(text: str) -> float:
    """Seconds, 0 or more, for argparse."""
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")


def column_of(payloads: Sequence[bytes]) -> tuple[bytes, NDArray[numpy.int64]]:
    """The payloads in one buffer, and the offsets between them: what ``send_batch`` takes."""
    offsets = numpy.zeros(len(payloads) + 1, numpy.int64)
    numpy.cumsum(numpy.fromiter(map(len, payloads), numpy.int64, len(payloads)), out=offsets[1:])
    return b"".join(payloads), offsets
