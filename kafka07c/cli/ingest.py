"""``kafka07c ingest``: topics into a folder of Parquet files."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kafka07c.cli.arguments import Commands, add_command, add_source, open_source
from kafka07c.cli.exit_codes import CORRUPT, INCOMPLETE, OK, UNREACHABLE, UsageError
from kafka07c.cli.output import json_line, megabytes_per_second, note, progress_bar, table
from kafka07c.errors import MissingExtraError

if TYPE_CHECKING:
    from kafka07c.spark.ingest import IngestReport, PartitionReport

__all__ = ["add_parser", "run"]

_EXAMPLE = """\
  kafka07c ingest --zookeeper zk1:2181/kafka --topic clicks --topic orders --out /data/kafka
  kafka07c ingest --logs 0:/archive/broker0,1:/archive/broker1 --topic clicks --out /data/kafka
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
        "reading_seconds, partitions: of each topic, broker, partition, start, end (what was read, in bytes of the log), "
        "messages, bytes, seconds, first_offset, last_offset, corrupt (start, end, reason of what was skipped), "
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
    parser.add_argument("--master", default="local[*]", metavar="URL", help="Spark's master; default local[*]")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def run(args: argparse.Namespace) -> int:
    try:
        from kafka07c.spark import ingest
        from kafka07c.spark.layout import COMPRESSIONS, Layout
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} is not installed: pip install 'kafka07c[spark]'") from None
    if args.compression not in COMPRESSIONS:
        raise UsageError(f"--compression is one of {', '.join(COMPRESSIONS)}, not {args.compression}")
    with open_source(args) as source, progress_bar("ingest") as progress:
        report = ingest.ingest(
            source,
            args.topic,
            args.out,
            on_corrupt=args.on_corrupt,
            layout=Layout(compression=args.compression),
            master=args.master,
            progress=progress,
        )
    print(json_line(report.to_dict()) if args.json else _table(report))
    _notes(report)
    return _exit_code(report)


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
