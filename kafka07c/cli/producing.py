"""What the commands that write have in common: the cluster that is written to, and a producer's settings."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy

from kafka07c.cli.arguments import ZOOKEEPER_VARIABLE
from kafka07c.cli.exit_codes import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "CODECS", "add_codec", "add_properties", "add_target", "column_of", "named_partition", "positive", "properties_of", "seconds",
    "target_of",
]  # fmt: skip

CODECS = ("none", "gzip", "snappy")


def add_target(parser: argparse.ArgumentParser, about: str = "cluster, one of") -> None:
    """The two ways to name a cluster that is written to: ``args.zookeeper`` or ``args.brokers``."""
    group = parser.add_argument_group(about)
    group.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[/CHROOT]",
        help=f"the brokers that this ZooKeeper lists (without either: ${ZOOKEEPER_VARIABLE})",
    )
    group.add_argument(
        "-b",
        "--brokers",
        metavar="ID:HOST:PORT,…",
        help="these brokers; without -p each batch goes to any of them, which picks the partition. Without ids, as "
        "kcat has it (HOST:PORT,…), they are 0, 1, …",
    )


def target_of(zookeeper: str | None, brokers: str | None, *, default: bool = True, flags: str = "--zookeeper and -b"
              ) -> dict[str, str]:  # fmt: skip
    """``{"zookeeper": …}`` or ``{"brokers": …}``; UsageError unless exactly one is given, or it is malformed.

    ``default``: neither means what $KAFKA07C_ZOOKEEPER says.
    """
    from kafka07c.names import parse_brokers
    from kafka07c.zookeeper import parse_hosts

    if zookeeper is None and brokers is None and default:
        zookeeper = os.environ.get(ZOOKEEPER_VARIABLE) or None
    if (zookeeper is None) == (brokers is None):
        raise UsageError(f"give one of {flags}" + (f" (or set {ZOOKEEPER_VARIABLE})" if default else ""))
    try:
        if zookeeper is not None:
            parse_hosts(zookeeper)
            return {"zookeeper": zookeeper}
        assert brokers is not None
        brokers = _with_ids(brokers)
        parse_brokers(brokers)
        return {"brokers": brokers}
    except ValueError as error:
        raise UsageError(str(error)) from None


def _with_ids(brokers: str) -> str:
    """kcat's form, ``host:port,host:port``, names brokers without ids."""
    items = brokers.split(",")
    if all(re.fullmatch(r"[^:,]+:[0-9]+", item) for item in items):
        return ",".join(f"{number}:{item}" for number, item in enumerate(items))
    return brokers


def add_codec(parser: argparse.ArgumentParser, about: str = "compress each batch: none, gzip or snappy") -> None:
    """``-z``; None where it is not given, so that it may be a property."""
    parser.add_argument("-z", "--codec", choices=CODECS, help=about)


def add_properties(parser: argparse.ArgumentParser, what: str = "the producer's settings") -> None:
    """``-X NAME=VALUE`` and ``-F FILE``; see `properties_of`."""
    parser.add_argument(
        "-X", "--property", action="append", default=[], metavar="NAME=VALUE",
        help=f"one of {what} by its 0.7 name, such as batch.size=1000; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "-F", "--config", metavar="FILE", help=f"{what} by their 0.7 names, as in producer.properties; -X goes before it"
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
