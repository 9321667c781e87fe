"""``kafka07c topics``: the topics of a cluster, and who has how many partitions of them."""

from __future__ import annotations

import argparse

from kafka07c.cli.arguments import Commands, add_command, add_zookeeper, zookeeper_of
from kafka07c.cli.exit_codes import OK
from kafka07c.cli.output import json_line, note, table
from kafka07c.errors import UnknownTopicError

__all__ = ["add_parser", "run"]

_EXAMPLE = """\
  kafka07c topics --zookeeper zk1:2181/kafka
  kafka07c topics --zookeeper zk1:2181/kafka -t clicks --json"""


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "topics",
        run,
        help="the topics of a cluster",
        description="Lists the topics that brokers have registered, with their partitions.",
        example=_EXAMPLE,
        fields="topic: topic, partitions (on all brokers), brokers (partitions by broker id)",
    )
    add_zookeeper(parser)
    parser.add_argument("-t", "--topic", action="append", metavar="TOPIC", help="only this one; may be repeated")


def run(args: argparse.Namespace) -> int:
    from kafka07c.cluster import Cluster

    with Cluster(zookeeper=zookeeper_of(args)) as cluster:
        topics, errors = cluster.topics, cluster.errors
    if unknown := sorted(set(args.topic or ()) - topics.keys()):
        raise UnknownTopicError(f"no broker has a topic {', '.join(map(repr, unknown))}")
    chosen = {topic: counts for topic, counts in topics.items() if not args.topic or topic in args.topic}
    for error in errors.values():
        note(f"kafka07c topics: left out: {error}")
    if args.json:
        for topic, counts in chosen.items():
            print(json_line({"topic": topic, "partitions": sum(counts.values()), "brokers": counts}))
        return OK
    rows = [
        (topic, str(sum(counts.values())), ", ".join(f"{broker}: {count}" for broker, count in counts.items()) or None)
        for topic, counts in chosen.items()
    ]
    print(table(("TOPIC", "PARTITIONS", "ON BROKER"), rows, left=("TOPIC", "ON BROKER")))
    return OK
