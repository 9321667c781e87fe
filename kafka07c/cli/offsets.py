"""``kafka07c offsets``: a group's committed offsets: shown, exported, imported, reset.

The file is that of 0.7's ExportZkOffsets and ImportZkOffsets: one ``/consumers/GROUP/offsets/TOPIC/B-P:OFFSET`` per
line. What changes offsets shows what it would do, and does it only with ``--execute``, as kafka-consumer-groups does.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafka07c.cli import offsets_before
from kafka07c.cli.arguments import Commands, add_command, add_group, add_zookeeper, zookeeper_of
from kafka07c.cli.exit_codes import OK, UsageError
from kafka07c.cli.groups import existing_group
from kafka07c.cli.output import json_line, note, print_rows
from kafka07c.errors import CorruptMessageError, GroupError, KafkaError

if TYPE_CHECKING:
    from kafka07c.group_state import GroupState
    from kafka07c.names import TopicPartition
    from kafka07c.positions import Position
    from kafka07c.ranges import Source
    from kafka07c.zookeeper import Access

__all__ = ["add_parser", "format_line", "parse_lines"]

_EXAMPLE = """\
  kafka07c offsets show --zookeeper zk1:2181/kafka -g billing
  kafka07c offsets export --zookeeper zk1:2181/kafka -g billing -o billing.txt
  kafka07c offsets import --zookeeper zk1:2181/kafka billing.txt --execute
  kafka07c offsets reset --zookeeper zk1:2181/kafka -g billing -t clicks --to earliest --execute
  kafka07c offsets before 2026-11-20T18:00:00Z --zookeeper zk1:2181/kafka -t clicks"""

_LINE = re.compile(r"/consumers/([^/]+)/offsets/([^/]+)/([^/:]+):([0-9]{1,19})")
_MAX_OFFSET = 2**63 - 1


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "offsets",
        _show,  # of the actions, each brings its own
        help="a group's committed offsets: show, export, import, reset; and a log's offsets before a time",
        description="A group's committed offsets: where its members go on after a restart. And the offsets at which\n"
        "reading a log can begin.",
        example=_EXAMPLE,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_show(actions)
    _add_export(actions)
    _add_import(actions)
    _add_reset(actions)
    offsets_before.add_parser(actions)


_CHANGES = "change: group, topic, partition (broker-partition), current_offset (null: none), new_offset"


def _add_action(
    actions: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    about: str,
    example: str,
    fields: str = _CHANGES,
) -> argparse.ArgumentParser:
    description = f"{about[0].upper()}{about[1:]}."
    parser = add_command(actions, name, run, help=about, description=description, example=example, fields=fields)
    add_zookeeper(parser)
    return parser


def _add_topics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", action="append", metavar="TOPIC", help="only this one; may be repeated")


def _add_execute(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--execute", action="store_true", help="do it; without, what would be done is shown")
    parser.add_argument(
        "--force", action="store_true", help="even while the group has members; JVM members would write their own again"
    )


# show


def _add_show(actions: Commands) -> None:
    parser = _add_action(
        actions, "show", _show, "show what a group has committed",
        "  kafka07c offsets show --zookeeper zk1:2181/kafka -g billing -t clicks",
        "partition: group, topic, partition (broker-partition), current_offset, index (in the entry that begins there)",
    )  # fmt: skip
    add_group(parser)
    _add_topics(parser)


def _show(args: argparse.Namespace) -> int:
    group = existing_group(args)
    rows = [
        (group.name, tp.topic, tp.name, position.offset, position.index)
        for tp, position in group.offsets.items()
        if not args.topic or tp.topic in args.topic
    ]
    heads = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "INDEX")
    print_rows(heads, rows, left=("GROUP", "TOPIC", "PARTITION"), as_json=args.json)
    return OK


# export and import


def _add_export(actions: Commands) -> None:
    parser = _add_action(
        actions, "export", _export, "write committed offsets to a file, as 0.7's ExportZkOffsets does",
        "  kafka07c offsets export --zookeeper zk1:2181/kafka -g billing -o billing.txt",
        "partition: group, topic, partition (broker-partition), offset",
    )  # fmt: skip
    add_group(parser, required=False, action="append", help="a consumer group; may be repeated (default: all)")
    parser.add_argument("-o", "--output", metavar="FILE", help="default: stdout")


def _export(args: argparse.Namespace) -> int:
    from kafka07c.group_state import read_groups

    groups = {group.name: group for group in read_groups(zookeeper_of(args))}
    if unknown := sorted(set(args.group or ()) - groups.keys()):
        raise UsageError(f"there is no group {', '.join(map(repr, unknown))} in ZooKeeper")
    format = _json_object if args.json else format_line
    lines = [
        format(name, tp, position.offset)
        for name in (args.group or groups)
        for tp, position in groups[name].offsets.items()
    ]
    text = "".join(f"{line}\n" for line in lines)
    if args.output is None:
        sys.stdout.write(text)
    else:
        with open(args.output, "w", encoding="utf-8") as file:
            file.write(text)
        note(f"{len(lines)} offsets written to {args.output}")
    return OK


def format_line(group: str, tp: TopicPartition, offset: int) -> str:
    """A line of ExportZkOffsets."""
    return f"/consumers/{group}/offsets/{tp.topic}/{tp.name}:{offset}"


def _json_object(group: str, tp: TopicPartition, offset: int) -> str:
    return json_line({"group": group, "topic": tp.topic, "partition": tp.name, "offset": offset})


def _add_import(actions: Commands) -> None:
    parser = _add_action(
        actions, "import", _import, "set the offsets in a file that export has written, or 0.7's ExportZkOffsets",
        "  kafka07c offsets import --zookeeper zk1:2181/kafka billing.txt --execute",
    )  # fmt: skip
    parser.add_argument("file", metavar="FILE", help="lines of /consumers/GROUP/offsets/TOPIC/B-P:OFFSET; - is stdin")
    _add_execute(parser)


def _import(args: argparse.Namespace) -> int:
    from kafka07c.group_state import read_groups

    if args.file == "-":
        text = sys.stdin.read()
    else:
        try:
            with open(args.file, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {args.file!r}: {getattr(error, 'strerror', None) or error}") from None
    try:
        wanted = parse_lines(text)
    except ValueError as error:
        raise UsageError(f"{args.file}: {error}") from None
    groups = {group.name: group for group in read_groups(zookeeper_of(args))}
    changes = []
    for name, offsets in wanted.items():
        group = groups.get(name)
        present = group.offsets if group is not None else {}
        changes += [_Change(name, tp, _offset_of(present, tp), offset) for tp, offset in offsets.items()]
        if group is not None:
            _check_inactive(group, args)
    return _carry_out(changes, args)


def parse_lines(text: str) -> dict[str, dict[TopicPartition, int]]:
    """``{group: {partition: offset}}`` from an export; ValueError names the line that is none, or is there twice."""
    from kafka07c.names import TopicPartition, parse_partition

    groups: dict[str, dict[TopicPartition, int]] = {}
    for number, line in enumerate(text.split("\n"), 1):  # splitlines would split names at U+2028, too
        line = line.removesuffix("\r")
        if not line:
            continue
        match = _LINE.fullmatch(line)
        if not match or int(match[4]) > _MAX_OFFSET:
            raise ValueError(f"line {number}: {line[:200]!r} is not /consumers/GROUP/offsets/TOPIC/B-P:OFFSET")
        try:
            tp = TopicPartition(match[2], *parse_partition(match[3]))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        offsets = groups.setdefault(match[1], {})
        if tp in offsets:
            raise ValueError(f"line {number}: {tp} of group {match[1]!r} is there twice")
        offsets[tp] = int(match[4])
    return groups


# reset


def _add_reset(actions: Commands) -> None:
    parser = _add_action(
        actions, "reset", _reset, "set a group's offsets to the beginning or the end of the logs, or to a number",
        "  kafka07c offsets reset --zookeeper zk1:2181/kafka -g billing -t clicks -p 0-1 --to 4711 --execute",
    )  # fmt: skip
    add_group(parser)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("-t", "--topic", action="append", metavar="TOPIC", help="this topic; may be repeated")
    chosen.add_argument("--all-topics", action="store_true", help="all that the group has to do with")
    parser.add_argument("-p", "--partition", action="append", metavar="B-P", help="only this one; may be repeated")
    parser.add_argument(
        "--to", required=True, type=_target, metavar="OFFSET", help="earliest, latest, or where a message begins"
    )
    _add_execute(parser)


def _target(text: str) -> str | int:
    if text in ("earliest", "latest"):
        return text
    if re.fullmatch(r"[0-9]{1,19}", text) and int(text) <= _MAX_OFFSET:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not earliest, latest or an offset")


def _reset(args: argparse.Namespace) -> int:
    from kafka07c.ranges import open_source

    group = existing_group(args)
    partitions = _chosen(group, args)
    _check_inactive(group, args)
    with open_source(zookeeper=zookeeper_of(args)) as source:
        changes = [
            _Change(group.name, tp, _offset_of(group.offsets, tp), _new_offset(source, tp, args.to))
            for tp in partitions
        ]
    return _carry_out(changes, args)


def _chosen(group: GroupState, args: argparse.Namespace) -> list[TopicPartition]:
    topics = group.topics() if args.all_topics else args.topic
    if unknown := [topic for topic in topics if not group.partitions(topic)]:
        raise UsageError(f"no broker has a topic {', '.join(map(repr, unknown))}")
    partitions = [tp for topic in topics for tp in group.partitions(topic)]
    if missing := sorted(set(args.partition or ()) - {tp.name for tp in partitions}):
        raise UsageError(f"there is no partition {', '.join(missing)}; there are {', '.join(map(str, partitions))}")
    return [tp for tp in partitions if not args.partition or tp.name in args.partition]


def _new_offset(source: Source, tp: TopicPartition, target: str | int) -> int:
    from kafka07c.ranges import Range

    earliest, latest = source.bounds(tp)
    if isinstance(target, str):
        return earliest if target == "earliest" else latest
    if not earliest <= target <= latest:
        raise UsageError(f"{tp} has no offset {target}: it has {earliest} to {latest}")
    # An offset is a byte's place: in the middle of a message there is nothing to begin with.
    for messages in source.read(Range(*tp, target, min(target + 1, latest))):
        if isinstance(messages.error, CorruptMessageError) and messages.error.offset == target:
            raise UsageError(f"{tp}: no message begins at offset {target}, or it is damaged: {messages.error.reason}")
        break
    return target


# carrying out


class _Change(NamedTuple):
    group: str
    tp: TopicPartition
    before: int | None
    after: int


def _offset_of(offsets: Mapping[TopicPartition, Position | None], tp: TopicPartition) -> int | None:
    position = offsets.get(tp)
    return None if position is None else position.offset


def _check_inactive(group: GroupState, args: argparse.Namespace) -> None:
    if args.execute and not args.force and group.members:
        some = ", ".join(sorted(group.members)[:3])
        raise GroupError(
            f"group {group.name!r} has {len(group.members)} members ({some}): stop them first, or use --force"
        )


def _carry_out(changes: Iterable[_Change], args: argparse.Namespace) -> int:
    """Shows the changes, and makes them if that was asked for; those that fail are named by the error raised."""
    changes = list(changes)
    if args.execute:
        _write(changes, zookeeper_of(args))
    heads = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET")
    rows = [(each.group, each.tp.topic, each.tp.name, each.before, each.after) for each in changes]
    print_rows(heads, rows, left=("GROUP", "TOPIC", "PARTITION"), as_json=args.json)
    done = f"{len(changes)} offsets set" if args.execute else "nothing was changed: --execute does it"
    note(done)
    return OK


def _write(changes: list[_Change], zookeeper: str | Access) -> None:
    from kafka07c.positions import Position
    from kafka07c.zookeeper.offsets import OffsetStore

    failures: list[KafkaError] = []
    for group in dict.fromkeys(each.group for each in changes):
        ours = [each for each in changes if each.group == group]
        with OffsetStore(zookeeper, group) as store:
            seen = store.committed(each.tp for each in ours)
            moved = [each.tp for each in ours if _offset_of(seen, each.tp) != each.before]
            try:
                if moved:
                    raise GroupError(f"group {group!r}: {', '.join(map(str, moved))} changed just now; nothing was set")
                store.commit({each.tp: Position(each.after) for each in ours})
            except KafkaError as error:
                failures.append(error)
    if failures:
        raise GroupError("; ".join(map(str, failures)))
