"""``kafka07c lag``: how far a group is behind, with the columns of kafka-consumer-groups.

Offsets of 0.7 count bytes, so the lag is in bytes of the log: compressed ones where messages are compressed.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kafka07c.cli.arguments import Commands, add_command, add_group, add_zookeeper, zookeeper_of
from kafka07c.cli.exit_codes import OK, UNREACHABLE
from kafka07c.cli.groups import existing_group, member_of
from kafka07c.cli.output import note, print_rows
from kafka07c.errors import BrokerConnectionError, KafkaError, ZooKeeperError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafka07c.names import TopicPartition
    from kafka07c.zookeeper import Access

__all__ = ["add_parser", "log_bounds", "run"]

_EXAMPLE = """\
  kafka07c lag --zookeeper zk1:2181/kafka -g billing
  kafka07c lag --zookeeper zk1:2181/kafka -g billing -t clicks --json"""

_HEADS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "OWNER")


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "lag",
        run,
        help="how far a consumer group is behind, and who owns what",
        description="Shows each partition that a group has to do with: what is committed, where the log ends (what is\n"
        "flushed), the bytes in between, the member that owns it and that member's thread. - is: not there.",
        example=_EXAMPLE,
        fields="partition: group, topic, partition (broker-partition), current_offset, log_end_offset, lag, consumer_id, owner "
        "(null: not there)",
    )
    add_zookeeper(parser)
    add_group(parser)
    parser.add_argument("-t", "--topic", action="append", metavar="TOPIC", help="only this one; may be repeated")


def run(args: argparse.Namespace) -> int:
    group = existing_group(args)
    topics = [topic for topic in group.topics() if not args.topic or topic in args.topic]
    there = {tp for topic in topics for tp in group.partitions(topic)}
    known = {tp for tp in (*group.owners, *group.offsets) if tp.topic in topics}
    ends, errors = log_bounds(zookeeper_of(args), there)
    rows = []
    for tp in sorted(there | known):
        position, owner = group.offsets.get(tp), group.owners.get(tp)
        current = None if position is None else position.offset
        end = ends[tp][1] if tp in ends else None
        lag = end - current if end is not None and current is not None else None
        member = None if owner is None else member_of(owner)
        rows.append((group.name, tp.topic, tp.name, current, end, lag, member, owner))
    print_rows(_HEADS, rows, left=("GROUP", "TOPIC", "PARTITION", "CONSUMER-ID", "OWNER"), as_json=args.json)
    for error in errors:
        note(f"kafka07c lag: {error}")
    return UNREACHABLE if errors else OK


def log_bounds(
    zookeeper: str | Access, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, tuple[int, int]], list[KafkaError]]:
    """Where the logs begin and end, as their brokers say; and an error for each broker that does not say it."""
    from kafka07c.ranges import open_source

    bounds: dict[TopicPartition, tuple[int, int]] = {}
    errors: dict[int, KafkaError] = {}
    with open_source(zookeeper=zookeeper) as source:
        for tp in sorted(partitions):
            if tp.broker not in errors:
                try:
                    bounds[tp] = source.bounds(tp)
                except (BrokerConnectionError, ZooKeeperError) as error:
                    errors[tp.broker] = error
    return bounds, list(errors.values())
