"""The ZooKeeper room: the only one that imports kazoo.

====================================  ========================================================================
:mod:`kafka07c.zookeeper.client`      connecting; errors that say where and while doing what; missing parents
:mod:`kafka07c.zookeeper.brokers`     brokers, topics and partition counts; registering a broker of our own
:mod:`kafka07c.zookeeper.groups`      consumer groups: members, owners, offsets (this and what follows are to be
                                      imported by their own names)
:mod:`kafka07c.zookeeper.offsets`     a group's offsets, written without going over somebody else's
:mod:`kafka07c.zookeeper.members`     a member's session, its nodes and what it owns
====================================  ========================================================================

No ZooKeeper call is ever made in one of kazoo's listeners or watches (it would wait for the thread it runs on): they
only wake or tell the thread that does the work.
"""

from kafka07c.zookeeper.brokers import (
    BROKER_IDS,
    BROKER_TOPICS,
    MAX_PARTITIONS,
    BrokerRegistration,
    Snapshot,
    parse_broker,
    parse_partition_count,
    read_snapshot,
)
from kafka07c.zookeeper.client import (
    ACLS,
    CONNECT_TIMEOUT,
    SESSION_TIMEOUT,
    Access,
    connect,
    explained,
    make_parents,
    parse_hosts,
    session,
)

__all__ = [
    "ACLS",
    "BROKER_IDS",
    "BROKER_TOPICS",
    "CONNECT_TIMEOUT",
    "MAX_PARTITIONS",
    "SESSION_TIMEOUT",
    "Access",
    "BrokerRegistration",
    "Snapshot",
    "connect",
    "explained",
    "make_parents",
    "parse_broker",
    "parse_hosts",
    "parse_partition_count",
    "read_snapshot",
    "session",
]
