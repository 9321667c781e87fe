"""``kafka07c groups``: the consumer groups that there are, or the members of one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kafka07c.cli.arguments import Commands, add_command, add_group, add_zookeeper, zookeeper_of
from kafka07c.cli.exit_codes import OK, UsageError
from kafka07c.cli.output import print_rows

if TYPE_CHECKING:
    from kafka07c.group_state import GroupState

__all__ = ["add_parser", "existing_group", "member_of", "run"]

_EXAMPLE = """\
  kafka07c groups --zookeeper zk1:2181/kafka
  kafka07c groups --zookeeper zk1:2181/kafka -g billing"""


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "groups",
        run,
        help="the consumer groups, or the members of one",
        description="Lists the consumer groups; with -g the members of one, what they want and how much they own.\n"
        "A subscription is shown as it stands in ZooKeeper: topics with their threads, *threads*whitelist or\n"
        "!threads!blacklist.",
        example=_EXAMPLE,
        fields="group: group, members, topics, owned, committed (how many of each). With -g one per member: group, consumer_id, "
        "partitions (how many it owns), subscription",
    )
    add_zookeeper(parser)
    add_group(parser, required=False, help="show the members of this group")


def run(args: argparse.Namespace) -> int:
    if args.group is not None:
        return _members(existing_group(args), args.json)
    from kafka07c.group_state import read_groups

    rows = [
        (group.name, len(group.members), len({tp.topic for tp in group.owners.keys() | group.offsets.keys()}),
         len(group.owners), len(group.offsets))
        for group in read_groups(zookeeper_of(args))
    ]  # fmt: skip
    print_rows(("GROUP", "#MEMBERS", "#TOPICS", "#OWNED", "#COMMITTED"), rows, left=("GROUP",), as_json=args.json)
    return OK


def _members(group: GroupState, as_json: bool) -> int:
    owned = [member_of(thread) for thread in group.owners.values()]
    rows = [
        (group.name, member, owned.count(member), data.decode(errors="replace"))
        for member, data in sorted(group.members.items())
    ]
    heads = ("GROUP", "CONSUMER-ID", "#PARTITIONS", "SUBSCRIPTION")
    print_rows(heads, rows, left=("GROUP", "CONSUMER-ID", "SUBSCRIPTION"), as_json=as_json)
    return OK


def member_of(thread: str) -> str:
    """The member id in the id of one of its threads, ``ID-0``."""
    return thread.rpartition("-")[0] or thread


def existing_group(args: argparse.Namespace) -> GroupState:
    """The group of ``-g``; UsageError when there is none of this name."""
    from kafka07c.group_state import read_group

    group = read_group(zookeeper_of(args), args.group)
    if group is None:
        raise UsageError(f"there is no group {args.group!r} in ZooKeeper; kafka07c groups lists those that there are")
    return group
