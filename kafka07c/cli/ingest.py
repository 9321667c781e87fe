"""``kafka07c ingest``: topics into a folder of Parquet files."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafka07c.cli.arguments import Commands, add_command, add_source, open_source, source_of
from kafka07c.cli.exit_codes import CORRUPT, INCOMPLETE, OK, UNREACHABLE, UsageError
from kafka07c.cli.output import json_line, megabytes_per_second, note, progress_bar, table
from kafka07c.errors import MissingExtraError

if TYPE_CHECKING:
    from kafka07c.spark.ingest import IngestReport, PartitionReport
    from kafka07c.spark.layout import Layout

__all__ = ["add_parser", "run"]

_EXAMPLE = """\
  kafka07c ingest --zookeeper zk1:2181/kafka --topic clicks --topic orders --out /data/kafka
  kafka07c ingest --logs 0:/archive/broker0,1:/archive/broker1 --topic clicks --out /data/kafka
  kafka07c ingest --zookeeper zk1:2181/kafka --topic clicks --out /data/kafka --follow --interval 60
"""


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "ingest",
        run,
        help="topics into a folder of Parquet files",
        description="Reads topics to the end that they have now and writes Parquet. Run again, it goes on from there:\n"
        "the folder's manifests say what it holds. Readers see complete, committed files only.",
        example=_EXAMPLE,
        fields="run: out, source, manifest (its number; null: nothing to commit), messages, bytes, seconds, "
        "reading_seconds, partitions: of each topic, broker, partition, start, end (what was read, in bytes of the "
        "log), messages, bytes, seconds, first_offset, last_offset, corrupt (start, end, reason of what was skipped), "
        "complete, reason (of an end before the end), files",
    )
    add_source(parser, "--brokers")
    parser.add_argument("--topic", action="append", required=True, metavar="NAME", help="a topic; may be repeated")
    parser.add_argument("--out", required=True, metavar="DIR", help="the output folder: new, empty, or of earlier runs")
    parser.add_argument(
        "--on-corrupt",
        choices=("stop", "skip"),
        default="stop",
        help="a corrupt entry ends its partition (stop, the default; exit code 4), or is left out (skip)",
    )
    parser.add_argument("--compression", default="snappy", metavar="CODEC", help="snappy (default), zstd, lz4, gzip…")
    parser.add_argument(
        "--target-file-size", type=_size, metavar="SIZE", help="a file is closed at this size: 64m, say; default 256m"
    )
    parser.add_argument(
        "--partition-by",
        type=_folders,
        default=(),
        metavar="topic[,date]",
        help="put files into folders topic=NAME, or date=DATE as well, with --date-from",
    )
    parser.add_argument(
        "--date-from",
        metavar="MODULE:FUNCTION",
        help="a function of yours: an Arrow array of payloads in, one of dates or strings out",
    )
    parser.add_argument(
        "--follow", action="store_true", help="go on with what comes, a commit each --interval, until Ctrl-C"
    )
    parser.add_argument(
        "--interval", type=float, default=10.0, metavar="SECONDS", help="with --follow: between commits; default 10"
    )
    parser.add_argument("--master", default="local[*]", metavar="URL", help="Spark's master; default local[*]")
    parser.add_argument(
        "--json", action="store_true", help="print the report as one JSON object (with --follow: one for each commit)"
    )


def run(args: argparse.Namespace) -> int:
    try:
        from kafka07c.spark import ingest
        from kafka07c.spark.layout import COMPRESSIONS, TARGET_BYTES, Layout
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} is not installed: pip install 'kafka07c[spark]'") from None
    if args.compression not in COMPRESSIONS:
        raise UsageError(f"--compression is one of {', '.join(COMPRESSIONS)}, not {args.compression}")
    layout = Layout(
        compression=args.compression,
        target_bytes=args.target_file_size or TARGET_BYTES,
        by_topic="topic" in args.partition_by,
        date=_date_function(args),
    )
    if args.follow:
        return _follow(args, layout)
    with open_source(args) as source, progress_bar("ingest") as progress:
        report = ingest.ingest(
            source,
            args.topic,
            args.out,
            on_corrupt=args.on_corrupt,
            layout=layout,
            master=args.master,
            progress=progress,
        )
    print(json_line(report.to_dict()) if args.json else _table(report))
    _notes(report)
    return _exit_code(report)


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15})([kmg]?)b?", text.strip().lower())
    if match is None or not int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 64m or 1g")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]


def _folders(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if names not in (("topic",), ("date",), ("topic", "date")):
        raise argparse.ArgumentTypeError(f"{text!r} is not topic, date, or topic,date")
    return names


def _date_function(args: argparse.Namespace) -> Callable[[Any], Any] | None:
    if ("date" in args.partition_by) != (args.date_from is not None):
        raise UsageError("--partition-by date and --date-from go together")
    if args.date_from is None:
        return None
    module, colon, name = args.date_from.partition(":")
    try:
        if not colon:
            raise ValueError("expected MODULE:FUNCTION")
        function: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
        return function
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"--date-from {args.date_from}: {error}") from None


def _follow(args: argparse.Namespace, layout: Layout) -> int:
    from kafka07c.cli.stopping import StopSignal
    from kafka07c.spark import session
    from kafka07c.spark.archiving import BatchReport, follow

    kind, address = source_of(args)
    if args.zk_access is not None:
        raise UsageError("--zk-access does not go with --follow: Spark's tasks get the address alone")
    committed = [0, 0, 0]

    def tell(report: BatchReport) -> None:
        done = (report.messages, report.bytes, report.files)
        committed[:] = [one + more for one, more in zip(committed, done, strict=True)]
        if args.json:
            fields = {"batch": report.batch_id, "messages": report.messages, "bytes": report.bytes,
                      "files": report.files, "seconds": round(report.seconds, 3), "lag": report.lag}  # fmt: skip
            print(json_line(fields), flush=True)
        elif report.files:
            rate = megabytes_per_second(report.bytes, report.seconds)
            behind = "" if report.lag is None else f"; {report.lag:,} bytes behind"
            what = f"{report.messages:,} messages, {report.bytes:,} bytes in {report.files} files"
            note(f"batch {report.batch_id}: {what}, {rate} MB/s{behind}")

    read = {f"kafka07.{kind}": address, "subscribe": ",".join(args.topic)}
    spark = session(app="kafka07c ingest", master=args.master)
    with StopSignal(said="stopping") as stopping:  # after the session, which takes SIGINT for itself
        try:
            follow(
                read, args.out, interval=args.interval, is_stopped=stopping.is_set, spark=spark,
                on_corrupt=args.on_corrupt, layout=layout, on_batch=tell,
            )  # fmt: skip
        finally:
            spark.stop()
            messages, size, files = committed
            note(f"{messages:,} messages, {size:,} bytes of log, {files} files committed to {args.out}")
    return OK


def _table(report: IngestReport) -> str:
    heads = (
        "topic", "partition", "messages", "bytes", "MB/s", "first offset", "last offset", "corrupt entries", "state",
    )  # fmt: skip
    rows: list[tuple[object, ...]] = [
        (
            each.topic, each.tp.name, each.messages, each.bytes, megabytes_per_second(each.bytes, each.seconds),
            each.first_offset, each.last_offset, each.corrupt_entries, _state(each),
        )
        for each in report.partitions
    ]  # fmt: skip
    corrupt = sum(each.corrupt_entries for each in report.partitions)
    rate = megabytes_per_second(report.bytes, report.reading_seconds)
    rows.append(("all", "", report.messages, report.bytes, rate, "", "", corrupt, ""))
    return table(heads, rows, left=("topic", "partition", "state"))


def _state(each: PartitionReport) -> str:
    if each.failure is None:
        return "complete"
    return "stopped" if each.stopped_by_corruption else "incomplete"


def _notes(report: IngestReport) -> None:
    for each in report.partitions:
        for bad in each.corrupt:
            note(f"kafka07c ingest: {each.tp}: skipped {bad.start} to {bad.end}: {bad.reason}")
        if each.failure is not None:
            reason = " ".join(str(each.failure).split())
            note(f"kafka07c ingest: {each.tp} was read up to offset {each.end}: {reason}")
    if report.manifest is not None:
        files = sum(len(each.files) for each in report.partitions)
        note(f"{files} files committed to {report.out} as number {report.manifest} in {report.seconds:.1f} s")
    elif report.incomplete or report.corrupt:
        note(f"nothing new could be committed to {report.out}")
    else:
        note(f"nothing new: {report.out} holds all that {report.source} has")


def _exit_code(report: IngestReport) -> int:
    if report.unreachable:
        return UNREACHABLE
    if report.incomplete:
        return INCOMPLETE
    return CORRUPT if report.corrupt else OK
