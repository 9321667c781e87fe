"""``kafka07c brokers``: the brokers of a cluster, where they listen and what they hold."""

from __future__ import annotations

import argparse

from kafka07c.cli.arguments import Commands, add_command, add_zookeeper, zookeeper_of
from kafka07c.cli.exit_codes import OK
from kafka07c.cli.output import note, print_rows

__all__ = ["add_parser", "run"]

_EXAMPLE = """\
  kafka07c brokers --zookeeper zk1:2181/kafka
  kafka07c brokers --zookeeper zk1:2181/kafka --json"""


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "brokers",
        run,
        help="the brokers of a cluster",
        description="Lists the brokers that are registered, with the number of their topics and partitions.",
        example=_EXAMPLE,
        fields="broker: id, host, port, topics, partitions (the last two: how many it has)",
    )
    add_zookeeper(parser)


def run(args: argparse.Namespace) -> int:
    from kafka07c.cluster import Cluster

    with Cluster(zookeeper=zookeeper_of(args)) as cluster:
        brokers, topics, errors = cluster.brokers, cluster.topics, cluster.errors
    for error in errors.values():
        note(f"kafka07c brokers: left out: {error}")
    rows = []
    for broker, address in brokers.items():
        counts = [count[broker] for count in topics.values() if broker in count]
        rows.append((broker, address.host, address.port, len(counts), sum(counts)))
    print_rows(("ID", "HOST", "PORT", "TOPICS", "PARTITIONS"), rows, left=("HOST",), as_json=args.json)
    return OK
