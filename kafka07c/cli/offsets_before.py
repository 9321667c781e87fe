"""``kafka07c offsets before``: where reading can begin to see all from a time on, as 0.7's GetOffsetShell asks a broker.

A message of 0.7 carries no time: what there is are the times when segment files were last written. So the answer is a
lower bound, and no finer than segments. Of archived logs the files' times have to be those that the broker left.
"""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime

from kafka07c.cli.arguments import Commands, add_command, add_source, open_source, selected_partitions
from kafka07c.cli.exit_codes import OK, UNREACHABLE
from kafka07c.cli.output import note, print_rows
from kafka07c.errors import BrokerConnectionError
from kafka07c.protocol import EARLIEST, LATEST

__all__ = ["add_parser", "parse_time", "run"]

_EXAMPLE = """\
  kafka07c offsets before 2026-11-20T18:00:00Z --zookeeper zk1:2181/kafka -t clicks
  kafka07c offsets before latest -b 0:host:9092 -t clicks -p 0-1 --max 5
  kafka07c offsets before -2 --logs 0:/archive/broker0 -t clicks --json"""

_NAMED = {"earliest": EARLIEST, "latest": LATEST, "-2": EARLIEST, "-1": LATEST}
_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1


def add_parser(actions: Commands) -> None:
    parser = add_command(
        actions,
        "before",
        run,
        help="the offsets at or before a time, as 0.7's GetOffsetShell",
        description="Shows the offsets at which reading can begin, the latest first: of each partition those of the\n"
        "segments last written at TIME or before. A message of 0.7 carries no time, so that is a lower bound, by the\n"
        "times of the segment files and no finer than segments: some messages from before TIME may follow it. An\n"
        "offset - says that no segment is so old. With latest they are the end of what is flushed and then the\n"
        "starts of segments, with earliest the start of the log.",
        example=_EXAMPLE,
        fields="offset: topic, partition (broker-partition), offset (null: none)",
    )
    parser.add_argument(
        "time",
        type=parse_time,
        metavar="TIME",
        help="earliest (-2), latest (-1), ISO 8601 (2026-11-20T18:00:00+01:00; without a zone it is UTC), or "
        "milliseconds since 1970",
    )
    add_source(parser, "-b", "--brokers")
    parser.add_argument("-t", "--topic", metavar="TOPIC", required=True)
    parser.add_argument(
        "-p",
        "--partition",
        metavar="PARTITION",
        help="0-1: partition 1 of broker 0; 1: partition 1 of each broker; default: all",
    )
    parser.add_argument(
        "--max", type=_maximum, default=1, metavar="N", help="so many offsets of each partition at most (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def parse_time(text: str) -> int:
    """Milliseconds since 1970 UTC, or EARLIEST or LATEST; for argparse."""
    if text in _NAMED:
        return _NAMED[text]
    if re.fullmatch(r"[0-9]{1,19}", text) and int(text) <= _MAX_LONG:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not earliest, latest, ISO 8601 such as 2026-11-20T18:00:00Z, or milliseconds since 1970"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    since_1970 = time - datetime(1970, 1, 1, tzinfo=UTC)
    return max(0, (since_1970.days * 86_400 + since_1970.seconds) * 1000 + since_1970.microseconds // 1000)


def _maximum(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,10}", text) and 0 < int(text) <= _MAX_INT:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {_MAX_INT}")


def run(args: argparse.Namespace) -> int:
    rows: list[tuple[str, str, int | None]] = []
    errors: dict[int, BrokerConnectionError] = {}
    with open_source(args) as source:
        for tp in selected_partitions(source.partitions(args.topic), args.partition):
            if tp.broker in errors:
                continue
            try:
                offsets = source.offsets_before(tp, args.time, args.max)
            except BrokerConnectionError as error:
                errors[tp.broker] = error
            else:
                rows += [(tp.topic, tp.name, offset) for offset in offsets] or [(tp.topic, tp.name, None)]
    print_rows(("TOPIC", "PARTITION", "OFFSET"), rows, left=("TOPIC", "PARTITION"), as_json=args.json)
    if args.time >= 0:
        note(f"% of segments last written at {_shown(args.time)} or before: a lower bound")
    for each in errors.values():
        note(f"kafka07c offsets before: {each}")
    return UNREACHABLE if errors else OK


def _shown(time: int) -> str:
    try:
        return datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # past the year 9999
        return f"{time} ms after 1970"
