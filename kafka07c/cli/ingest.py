"""``kafka07c ingest``: topics into a folder of Parquet files, or of others."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from kafka07c.cli.arguments import Commands, add_command, add_source, open_source, source_of
from kafka07c.cli.exit_codes import CORRUPT, INCOMPLETE, OK, UNREACHABLE, UsageError
from kafka07c.cli.output import json_line, megabytes_per_second, note, progress_bar, table
from kafka07c.errors import DecoderError, MissingExtraError

if TYPE_CHECKING:
    from kafka07c.spark.decoders import Decoder
    from kafka07c.spark.ingest import IngestReport, PartitionReport
    from kafka07c.spark.layout import Layout

__all__ = ["add_parser", "run"]

_EXAMPLE = """\
  kafka07c ingest --zookeeper zk1:2181/kafka --topic clicks --topic orders --out /data/kafka
  kafka07c ingest --logs 0:/archive/broker0,1:/archive/broker1 --topic clicks --out /data/kafka
  kafka07c ingest --zookeeper zk1:2181/kafka --topic clicks --out s3://lake/clicks --decoder json
  kafka07c ingest --zookeeper zk1:2181/kafka --topic clicks --out /backup --to kafka07
  kafka07c ingest --zookeeper zk1:2181/kafka --topic clicks --out /data/kafka --follow --interval 60
"""


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "ingest",
        run,
        help="topics into a folder of Parquet files, or of others",
        description="Reads topics to the end that they have now and writes Parquet. Run again, it goes on from there:\n"
        "the folder's manifests say what it holds. Readers see complete, committed files only. See docs/ingest.md.",
        example=_EXAMPLE,
        fields="run: out, source, manifest (its number; null: nothing to commit), messages, bytes, seconds, "
        "reading_seconds, partitions: of each topic, broker, partition, start, end (what was read, in bytes of the "
        "log), messages, bytes, seconds, first_offset, last_offset, corrupt (start, end, reason of what was skipped), "
        "complete, reason (of an end before the end), files, undecodable (messages that did not decode), dead_letters "
        "(files of them)",
    )
    add_source(parser, "--brokers")
    parser.add_argument("--topic", action="append", required=True, metavar="NAME", help="a topic; may be repeated")
    parser.add_argument(
        "--out",
        required=True,
        metavar="DIR",
        help="the output folder: new, empty, or of earlier runs; or s3://…, gs://…",
    )
    parser.add_argument(
        "--on-corrupt",
        choices=("stop", "skip"),
        default="stop",
        help="a corrupt entry ends its partition (stop, the default; exit code 4), or is left out (skip)",
    )
    parser.add_argument(
        "--to",
        default="parquet",
        metavar="FORMAT",
        help="parquet (default), arrow, csv, json, or kafka07: log segments",
    )
    parser.add_argument(
        "--compression", metavar="CODEC", help="of Parquet snappy (default), zstd, lz4, gzip, none; others have fewer"
    )
    _add_decoding(parser)
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
        metavar="MODULE:FUNCTION|column:NAME",
        help="a function of yours: an Arrow array of payloads in, one of dates or strings out; or a decoded column",
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


def _add_decoding(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("columns out of payloads")
    group.add_argument(
        "--decoder",
        metavar="json|avro|protobuf|MODULE:FUNCTION",
        help="make columns of the payloads; a function of yours: an Arrow array of them in, a RecordBatch out",
    )
    group.add_argument(
        "--schema",
        metavar="FILE",
        help="json: a line 'name: type' for each column (without: by the first messages); avro: the writer's schema; "
        "protobuf: what protoc --include_imports --descriptor_set_out wrote",
    )
    group.add_argument(
        "--message", metavar="NAME", help="protobuf: the message's full name, or without --schema MODULE:CLASS"
    )
    group.add_argument(
        "--sample", type=_count, metavar="N", help="json without --schema: look at so many messages; default 1000"
    )
    group.add_argument(
        "--skip-bytes", type=_count, metavar="N", help="avro, protobuf: pass over a header of so many bytes"
    )
    group.add_argument("--column-prefix", metavar="TEXT", help="put this before the names of decoded columns")
    group.add_argument(
        "--on-undecodable",
        choices=("fail", "keep", "dead-letter"),
        default="fail",
        help="a message that does not decode ends its partition (fail, the default; exit code 4), is a row with _raw "
        "and _error (keep), or goes into a file of its own (dead-letter)",
    )


def run(args: argparse.Namespace) -> int:
    try:
        from kafka07c.spark import ingest
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} is not installed: pip install 'kafka07c[spark]'") from None
    try:
        layout = _layout(args)
        ingest.check_layout(args.out, args.topic, args.on_corrupt, layout)
    except (ValueError, DecoderError) as error:
        raise UsageError(str(error)) from None
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


def _layout(args: argparse.Namespace) -> Layout:
    """ValueError, UsageError: what is asked for does not go together."""
    from kafka07c.spark.decoders import imported
    from kafka07c.spark.layout import TARGET_BYTES, Layout

    if ("date" in args.partition_by) != (args.date_from is not None):
        raise UsageError("--partition-by date and --date-from go together")
    date, column = None, None
    if args.date_from is not None:
        if args.date_from.startswith("column:"):
            column = args.date_from.removeprefix("column:")
        else:
            try:
                date = imported(args.date_from)
            except ValueError as error:
                raise UsageError(f"--date-from {error}") from None
    return Layout(
        compression=args.compression,
        target_bytes=args.target_file_size or TARGET_BYTES,
        by_topic="topic" in args.partition_by,
        date=date,
        to=args.to,
        decoder=_decoder(args),
        on_undecodable=args.on_undecodable,
        date_column=column,
    )


def _decoder(args: argparse.Namespace) -> Decoder | None:
    from kafka07c.spark import decoders

    _check_goes_with_decoder(args)
    if args.decoder is None:
        return None
    skip = args.skip_bytes or 0
    decoder: Decoder
    if args.decoder == "json":
        decoder = _json_decoder(args)
    elif args.decoder == "avro":
        if args.schema is None:
            raise UsageError("--decoder avro needs --schema FILE, the schema that the records were written with")
        decoder = decoders.AvroDecoder(decoders.read_file(args.schema).decode(), skip=skip)
    elif args.decoder == "protobuf":
        if args.message is None:
            raise UsageError("--decoder protobuf needs --message NAME")
        given = None if args.schema is None else decoders.read_file(args.schema)
        decoder = decoders.ProtobufDecoder(args.message, given, skip=skip)
    else:
        decoder = decoders.FunctionDecoder(decoders.imported(args.decoder), f"--decoder {args.decoder}")
    return decoders.PrefixedDecoder(decoder, args.column_prefix) if args.column_prefix else decoder


#: which decoders an option goes with
_OPTIONS = {
    "schema": ("json", "avro", "protobuf"), "message": ("protobuf",), "sample": ("json",),
    "skip_bytes": ("avro", "protobuf"),
}  # fmt: skip


def _check_goes_with_decoder(args: argparse.Namespace) -> None:
    for name, kinds in _OPTIONS.items():
        if getattr(args, name) is not None and args.decoder not in kinds:
            raise UsageError(f"--{name.replace('_', '-')} goes with --decoder {' or '.join(kinds)}")
    if args.decoder is None and (args.column_prefix is not None or args.on_undecodable != "fail"):
        raise UsageError("--column-prefix and --on-undecodable go with --decoder")


def _json_decoder(args: argparse.Namespace) -> Decoder:
    """By --schema, else as the output has it already, else by the first messages, and then it is told."""
    from kafka07c.spark import decoders
    from kafka07c.spark.remote import columns_held

    if args.schema is not None:
        return decoders.JsonDecoder(decoders.parse_schema(decoders.read_file(args.schema).decode()))
    prefix = args.column_prefix or ""
    if held := columns_held(args.out):
        lines = [f"{name.removeprefix(prefix)}: {kind}" for name, kind in held.items()]
        return decoders.JsonDecoder(decoders.parse_schema("\n".join(lines)))
    with open_source(args) as source:
        schema = decoders.infer_schema(decoders.first_messages(source, args.topic, args.sample or 1000))
    listed = ", ".join(f"{field.name} {field.type}" for field in schema)
    note(f"columns by the first messages, other fields are left out (--schema chooses): {listed}")
    return decoders.JsonDecoder(schema)


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


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
    heads: tuple[str, ...] = (
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
    undecodable = sum(each.undecodable_messages for each in report.partitions)
    rate = megabytes_per_second(report.bytes, report.reading_seconds)
    rows.append(("all", "", report.messages, report.bytes, rate, "", "", corrupt, ""))
    if undecodable:
        heads = (*heads[:-1], "undecodable", heads[-1])
        counts = [*(each.undecodable_messages for each in report.partitions), undecodable]
        rows = [(*row[:-1], count, row[-1]) for row, count in zip(rows, counts, strict=True)]
    return table(heads, rows, left=("topic", "partition", "state"))


def _state(each: PartitionReport) -> str:
    if each.failure is None:
        return "complete"
    return "stopped" if each.stopped_by_data else "incomplete"


def _notes(report: IngestReport) -> None:
    for each in report.partitions:
        for bad in each.corrupt:
            note(f"kafka07c ingest: {each.tp}: skipped {bad.start} to {bad.end}: {bad.reason}")
        if each.undecodable:
            where = ", ".join(file.path for file in each.dead_letters) or "rows with _raw and _error"
            note(f"kafka07c ingest: {each.tp}: {each.undecodable} messages did not decode: {where}")
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
