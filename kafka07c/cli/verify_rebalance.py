"""``kafka07c verify-rebalance``: whether a group owns what the algorithm says."""

from __future__ import annotations

import argparse

from kafka07c.cli.arguments import Commands, add_command, add_group, add_zookeeper
from kafka07c.cli.exit_codes import INCOMPLETE, OK
from kafka07c.cli.groups import existing_group
from kafka07c.cli.output import note, print_rows

__all__ = ["add_parser", "run"]

_EXAMPLE = """\
  kafka07c verify-rebalance --zookeeper zk1:2181/kafka -g billing"""

_HEADS = ("GROUP", "TOPIC", "PARTITION", "OWNER", "EXPECTED", "REASON")


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "verify-rebalance",
        run,
        help="check that a consumer group owns what the algorithm says",
        description="Works out from a group's members and the partitions who should own what, as every member does,\n"
        "and lists each partition of which that is not so; exit code 5 then. 0.7's VerifyConsumerRebalance\n"
        "asks only whether the owner is a member. In the middle of a rebalance there are such partitions.",
        example=_EXAMPLE,
        fields="partition with a wrong owner: group, topic, partition (broker-partition), owner, expected (null: nobody), reason",
    )
    add_zookeeper(parser)
    add_group(parser)


def run(args: argparse.Namespace) -> int:
    group = existing_group(args)
    problems = group.problems()
    if problems or args.json:
        rows = [(group.name, each.tp.topic, each.tp.name, *each[1:]) for each in problems]
        print_rows(_HEADS, rows, left=_HEADS, as_json=args.json)
    total = len(group.expected_owners())
    if problems:
        note(f"{len(problems)} partitions of group {group.name} are not owned as they should be; {total} should be")
        return INCOMPLETE
    note(f"all {total} partitions of group {group.name} are owned as they should be, by {len(group.members)} members")
    return OK
