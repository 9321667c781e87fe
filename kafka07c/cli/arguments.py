"""What the commands' parsers have in common."""

from __future__ import annotations

import argparse
import os
import re
import textwrap
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka07c.cli.exit_codes import UsageError
from kafka07c.cli.output import note
from kafka07c.cli.zookeeper_access import add_access, with_access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafka07c.metrics import Metrics
    from kafka07c.names import TopicPartition
    from kafka07c.ranges import Source
    from kafka07c.zookeeper import Access

__all__ = [
    "ZOOKEEPER_VARIABLE", "Commands", "add_command", "add_group", "add_metrics", "add_source", "add_zookeeper",
    "address", "open_source", "selected_partitions", "serving_metrics", "source_of", "with_broker_ids", "zookeeper_of",
]  # fmt: skip

#: what ``add_subparsers`` gives
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

ZOOKEEPER_VARIABLE = "KAFKA07C_ZOOKEEPER"


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    help: str,
    description: str,
    example: str,
    fields: str | None = None,
) -> argparse.ArgumentParser:
    """A parser for one command, with ``--debug`` and an example below its help.

    ``fields`` documents what ``--json`` prints: ``"topic: topic, partitions, brokers (partitions by broker id)"`` says
    that there is an object per topic, with these names in it.
    """
    per, _, names = (fields or "").partition(": ")
    documented = f"fields with --json, one object per {per}:\n{_wrapped(names)}\n\n" if fields else ""
    parser = commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=f"{documented}example:\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    # suppressed, so that it does not take back what stands before the command
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the Python trace of an error"
    )
    return parser


def _wrapped(names: str) -> str:
    return textwrap.fill(names, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def add_source(parser: argparse.ArgumentParser, *broker_flags: str) -> None:
    """The three ways to name what is read; ``broker_flags`` are the names of the one with a list of brokers."""
    group = parser.add_argument_group("source, exactly one of")
    group.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[/CHROOT]",
        help=f"live brokers, as this ZooKeeper lists them (without any of the three: ${ZOOKEEPER_VARIABLE})",
    )
    add_access(group)
    group.add_argument(
        *broker_flags,
        dest="brokers",
        metavar="ID:HOST:PORT,…",
        help="live brokers, named with their broker ids (HOST:PORT,… are 0, 1, …)",
    )
    group.add_argument(
        "--logs",
        metavar="ID:PATH,…",
        help="log directories on disk, behind the id of the broker that wrote them: a whole log.dir, or one partition",
    )


def open_source(args: argparse.Namespace) -> Source:
    """The source that the arguments of ``add_source`` name; UsageError if they do not name exactly one."""
    from kafka07c import ranges

    kind, address = source_of(args)
    given: Any = with_access(address, args.zk_access) if kind == "zookeeper" else address
    try:
        if kind == "logs":
            missing = [path for _, path in ranges.parse_logs(address) if not path.is_dir()]
            if missing:
                raise UsageError(f"--logs: there is no folder {str(missing[0])!r}")
        return ranges.open_source(**{kind: given})
    except ValueError as error:
        raise UsageError(str(error)) from None


def source_of(args: argparse.Namespace) -> tuple[str, str]:
    """Which of ``zookeeper``, ``brokers`` and ``logs`` the arguments name, and its value; UsageError if not one."""
    given: dict[str, str | None] = {name: getattr(args, name) for name in ("zookeeper", "brokers", "logs")}
    given = {name: value for name, value in given.items() if value is not None}
    if not given and (zookeeper := os.environ.get(ZOOKEEPER_VARIABLE)):
        given = {"zookeeper": zookeeper}
    if len(given) != 1:
        raise UsageError(f"give exactly one of --zookeeper, --brokers and --logs (or set {ZOOKEEPER_VARIABLE})")
    [(kind, address)] = given.items()
    assert address is not None
    return kind, with_broker_ids(address) if kind == "brokers" else address


def with_broker_ids(brokers: str) -> str:
    """kcat's form, ``host:port,host:port``, names brokers without ids: here they are 0, 1, …"""
    items = brokers.split(",")
    if all(re.fullmatch(r"[^:,]+:[0-9]+", item) for item in items):
        return ",".join(f"{number}:{item}" for number, item in enumerate(items))
    return brokers


def selected_partitions(partitions: list[TopicPartition], wanted: str | None) -> list[TopicPartition]:
    """Those of a topic's partitions that ``wanted`` names: ``0-1``, or ``1`` for that of each broker; None: all."""
    if wanted is None:
        return partitions
    selected = [tp for tp in partitions if wanted in (tp.name, str(tp.partition))]
    if not selected:
        there = ", ".join(tp.name for tp in partitions)
        raise UsageError(f"topic {partitions[0].topic!r} has no partition {wanted}; there are {there}")
    return selected


def add_zookeeper(parser: argparse.ArgumentParser) -> None:
    """The ZooKeeper of a cluster, and ``--json``: for the commands that show what is in it."""
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[/CHROOT]",
        help=f"the cluster's ZooKeeper (default: ${ZOOKEEPER_VARIABLE})",
    )
    add_access(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def add_group(parser: argparse.ArgumentParser, **options: Any) -> None:
    """The name of a consumer group; ``options`` are argparse's."""
    parser.add_argument("-g", "--group", metavar="GROUP", **{"required": True, "help": "the consumer group", **options})


def zookeeper_of(args: argparse.Namespace) -> str | Access:
    """The address that ``add_zookeeper`` asked for, with what lets us in; UsageError: there is none, or malformed."""
    from kafka07c.zookeeper import parse_hosts

    zookeeper = args.zookeeper or os.environ.get(ZOOKEEPER_VARIABLE)
    if not zookeeper:
        raise UsageError(f"give --zookeeper (or set {ZOOKEEPER_VARIABLE})")
    try:
        parse_hosts(zookeeper)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return with_access(zookeeper, args.zk_access)


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """``--metrics``, for a command that runs for long; see `serving_metrics`."""
    parser.add_argument(
        "--metrics",
        type=address,
        metavar="[HOST:]PORT",
        help="show its figures over HTTP, for Prometheus (/metrics) and for kafka07c metrics (/json); "
        "on 127.0.0.1 unless HOST is given, 0 takes a free port",
    )


def address(text: str) -> tuple[str, int]:
    """``[HOST:]PORT`` as host and port, 127.0.0.1 without a host; for argparse."""
    match = re.fullmatch(r"(?:(\[[^][]+\]|[^][:\s]+):)?([0-9]{1,5})", text)
    if match is None or int(match[2]) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not [HOST:]PORT")
    return (match[1] or "127.0.0.1").strip("[]"), int(match[2])


@contextmanager
def serving_metrics(args: argparse.Namespace) -> Iterator[Metrics | None]:
    """A registry whose figures are shown as long as the block runs, or None without ``--metrics``.

    UsageError when the address cannot be had. One line on stderr says where they are, unless ``args.quiet``.
    """
    if args.metrics is None:
        yield None
        return
    from kafka07c.metrics import Metrics
    from kafka07c.metrics_server import serve

    host, port = args.metrics
    metrics = Metrics()
    try:
        server = serve(metrics, port, host)
    except OSError as error:
        raise UsageError(f"--metrics: cannot listen on {host}:{port}: {error.strerror or error}") from None
    with server:
        if not getattr(args, "quiet", False):
            shown = f"[{host}]" if ":" in host else host
            note(f"% Figures at http://{shown}:{server.port}/metrics, and for kafka07c metrics {shown}:{server.port}")
        yield metrics
