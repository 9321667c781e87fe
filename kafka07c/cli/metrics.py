"""``kafka07c metrics``: the figures of a process of ours that runs with ``--metrics``, as JmxTool shows those of 0.7."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple

from kafka07c.cli.arguments import Commands, add_command, address
from kafka07c.cli.exit_codes import OK, UnreachableError, UsageError
from kafka07c.cli.output import json_line, print_rows
from kafka07c.metrics import Sample

__all__ = ["add_parser", "run"]

_EXAMPLE = """\
  kafka07c metrics 127.0.0.1:9400 --match 'OffsetLag|MessagesPerTopic'
  kafka07c metrics 9400 --interval 2 --csv"""

#: seconds for an answer, and its bytes at most
_TIMEOUT = 10.0
_MAX_BYTES = 64 << 20

_KINDS = ("counter", "gauge")


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "metrics",
        run,
        help="the figures of a running kafka07c, as JmxTool",
        description="Shows the figures of a process that runs with --metrics (cat -G, produce, mirror, broker), or that\n"
        "calls kafka07c.metrics_server.serve. The names are those of 0.7's MBeans. Exit code 3 if nobody answers.",
        example=_EXAMPLE,
        fields="figure: time (ms since 1970), kind (counter or gauge), name, labels, value, and with --interval "
        "per_second (of a counter, since the last look; else null)",
    )
    parser.add_argument("address", type=address, metavar="[HOST:]PORT", help="where it shows them")
    parser.add_argument(
        "--match", type=_pattern, metavar="REGEX", help="only figures in whose name{label=value,…} this is found"
    )
    parser.add_argument(
        "--interval", type=_seconds, metavar="SECONDS", help="look again and again, until Ctrl-C, with counters' rates"
    )
    parser.add_argument("-c", "--count", type=_count, metavar="N", help="with --interval: end after N looks")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object per line")
    form.add_argument(
        "--csv", action="store_true", help="a line for each look, as JmxTool: the time (local), then the values of the "
        "figures that there were at the first look, whose names are the first line"
    )  # fmt: skip


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regex: {error}") from None


def _seconds(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text) and float(text) > 0:
        return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")


def _count(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,9}", text) and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of looks")


def run(args: argparse.Namespace) -> int:
    if args.count is not None and args.interval is None:
        raise UsageError("-c goes with --interval")
    show = _Csv() if args.csv else _Json(args) if args.json else _Table(args)
    try:
        for look in _looks(args):
            show(look)
            sys.stdout.flush()
    except KeyboardInterrupt:
        if args.interval is None:
            raise
    return OK


class _Look(NamedTuple):
    """All figures that are wanted, at a moment: ``time_ms`` since 1970, by the other side's clock."""

    time_ms: int
    samples: list[Sample]

    def rates(self, before: _Look | None) -> list[float | None]:
        """What each counter has grown by per second since ``before``; None for what is none, or began anew."""
        old = {} if before is None else {sample.key: sample.value for sample in before.samples}
        seconds = 0.0 if before is None else (self.time_ms - before.time_ms) / 1000
        return [
            (sample.value - old[sample.key]) / seconds
            if sample.kind == "counter" and sample.value >= old.get(sample.key, math.inf) and seconds > 0
            else None
            for sample in self.samples
        ]


def _looks(args: argparse.Namespace) -> Iterator[_Look]:
    left: int | None = 1 if args.interval is None else args.count
    due = time.monotonic()
    while True:
        look = _ask(*args.address)
        if args.match is not None:
            look = look._replace(samples=[sample for sample in look.samples if args.match.search(sample.key)])
        yield look
        if left is not None:
            left -= 1
            if not left:
                return
        due = max(due + args.interval, time.monotonic())
        time.sleep(due - time.monotonic())


# --- asking -------------------------------------------------------------------------------------------------------


def _ask(host: str, port: int) -> _Look:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    connection = HTTPConnection(host, port, timeout=_TIMEOUT)
    try:
        connection.request("GET", "/json")
        answer = connection.getresponse()
        body = answer.read(_MAX_BYTES)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UnreachableError(f"nobody shows figures at {where}: {reason}") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise UnreachableError(f"what answers at {where} shows no figures: it says {answer.status} {answer.reason}")
    try:
        return _parse(json.loads(body))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UnreachableError(f"what answers at {where} is no kafka07c: {body[:60]!r}") from None


def _parse(told: Any) -> _Look:
    """ValueError, KeyError or TypeError for what is not the JSON of `kafka07c.metrics_server`."""
    return _Look(_checked(told["time"], int), [_sample(figure) for figure in _checked(told["metrics"], list)])


def _sample(figure: Any) -> Sample:
    if figure["kind"] not in _KINDS:
        raise ValueError
    labels = tuple((name, _checked(value, str)) for name, value in _checked(figure["labels"], dict).items())
    value = math.nan if figure["value"] is None else _checked(figure["value"], int, float)
    return Sample(figure["kind"], _checked(figure["name"], str), labels, value)


def _checked(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise TypeError
    return value


# --- showing ------------------------------------------------------------------------------------------------------


class _Table:
    """One table for each look, a blank line between them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._repeats = args.interval is not None
        self._before: _Look | None = None

    def __call__(self, look: _Look) -> None:
        if self._before is not None:
            print()
        rates = look.rates(self._before)
        self._before = look
        heads = ["NAME", "LABELS", "VALUE", "PER-SECOND"]
        rows = [
            [sample.name, ",".join(f"{name}={value}" for name, value in sample.labels), _text(sample.value),
             None if rate is None else f"{rate:.1f}"]
            for sample, rate in zip(look.samples, rates, strict=True)
        ]  # fmt: skip
        if not self._repeats:
            heads, rows = heads[:-1], [row[:-1] for row in rows]
        print_rows(heads, rows, left=("NAME", "LABELS"))


def _text(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}" if abs(value) < 1e6 else f"{value:.1f}"


class _Json:
    """One object for each figure of each look."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._repeats = args.interval is not None
        self._before: _Look | None = None

    def __call__(self, look: _Look) -> None:
        rates = look.rates(self._before)
        self._before = look
        for sample, rate in zip(look.samples, rates, strict=True):
            fields = {"time": look.time_ms, "kind": sample.kind, "name": sample.name, "labels": dict(sample.labels)}
            fields["value"] = sample.value if math.isfinite(sample.value) else None
            print(json_line(fields | ({"per_second": rate} if self._repeats else {})))


class _Csv:
    """The lines of JmxTool; a figure that is not there any more is an empty cell."""

    def __init__(self) -> None:
        self._columns: list[str] | None = None

    def __call__(self, look: _Look) -> None:
        values = {sample.key: sample.value for sample in look.samples}
        if self._columns is None:
            self._columns = sorted(values)
            print(", ".join('"{}"'.format(name.replace('"', '""')) for name in ("time", *self._columns)))
        moment = datetime.fromtimestamp(look.time_ms / 1000).isoformat(" ", "milliseconds")
        print(", ".join([moment, *(str(values.get(name, "")) for name in self._columns)]))
