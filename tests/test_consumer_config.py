"""The consumer's settings: 0.7's names and defaults, today's spellings, what is refused and how, the table."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kafka07c.consumer.config import ConsumerConfig, consumer_table

#: name and default in Kafka 0.7.2: kafka.consumer.ConsumerConfig, kafka.utils.ZKConfig
DEFAULTS = {
    "zk.connect": None,
    "zk.sessiontimeout.ms": 6000,
    "zk.connectiontimeout.ms": None,
    "zk.synctime.ms": 2000,
    "groupid": None,
    "consumerid": None,
    "socket.timeout.ms": 30_000,
    "socket.buffersize": 64 * 1024,
    "fetch.size": 1024 * 1024,
    "fetcher.backoff.ms": 100,  # 1000 there: ours holds up no partition but the one at its end
    "autocommit.enable": True,
    "autocommit.interval.ms": 10_000,
    "queuedchunks.max": 10,
    "rebalance.retries.max": 4,
    "rebalance.backoff.ms": None,
    "autooffset.reset": "earliest",  # smallest
    "consumer.timeout.ms": -1,
    "shallowiterator.enable": False,
}

FIELDS = {each.metadata["property"]: each.name for each in dataclasses.fields(ConsumerConfig) if each.metadata}


def test_the_defaults_are_those_of_0_7():
    config = ConsumerConfig()
    assert {name: getattr(config, FIELDS[name]) for name in DEFAULTS} == DEFAULTS


def test_what_depends_on_another_setting():
    config = ConsumerConfig()
    assert (config.zookeeper_connect, config.rebalance_backoff, config.queue_bytes) == (6.0, 2.0, 10 * 1024 * 1024)
    config = ConsumerConfig(zookeeper_session_ms=500, zookeeper_sync_ms=30, fetch_bytes=1000, queued_chunks=3)
    assert (config.zookeeper_connect, config.rebalance_backoff, config.queue_bytes) == (0.5, 0.03, 3000)
    config = ConsumerConfig(zookeeper_connect_ms=100, rebalance_backoff_ms=0, max_queued_bytes=77)
    assert (config.zookeeper_connect, config.rebalance_backoff, config.queue_bytes) == (0.1, 0.0, 77)


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ConsumerConfig().group = "other"


#: 0.7.2's own config/consumer.properties, without its comments' text
SHIPPED = """
# Zk connection string
zk.connect=127.0.0.1:2181

# timeout in ms for connecting to zookeeper
zk.connectiontimeout.ms=1000000

#consumer group id
groupid=test-consumer-group

#consumer timeout
#consumer.timeout.ms=5000
"""


def test_a_properties_file(tmp_path):
    path = tmp_path / "consumer.properties"
    path.write_text(SHIPPED)
    config = ConsumerConfig.from_properties(path)
    assert config == ConsumerConfig(
        zookeeper="127.0.0.1:2181", zookeeper_connect_ms=1_000_000, group="test-consumer-group"
    )
    assert ConsumerConfig.from_properties(str(path), group="mine", consumer_timeout_ms=5) == dataclasses.replace(
        config, group="mine", consumer_timeout_ms=5
    )


def test_text_becomes_values():
    text = {"autocommit.enable": "false", "fetch.size": " 2048 ", "consumer.timeout.ms": "-1", "groupid": " g "}
    config = ConsumerConfig.from_properties(text)
    assert (config.autocommit, config.fetch_bytes, config.consumer_timeout_ms, config.group) == (False, 2048, -1, "g")


@pytest.mark.parametrize(
    ("today", "value", "field"),
    [
        ("group_id", "g", "group"),
        ("session_timeout_ms", 7, "zookeeper_session_ms"),
        ("request_timeout_ms", 8, "socket_timeout_ms"),
        ("receive_buffer_bytes", 9, "receive_buffer_bytes"),
        ("max_partition_fetch_bytes", 10, "fetch_bytes"),
        ("enable_auto_commit", False, "autocommit"),
        ("auto_commit_interval_ms", 11, "autocommit_interval_ms"),
        ("auto_offset_reset", "latest", "offset_reset"),
        ("consumer_timeout_ms", 12, "consumer_timeout_ms"),
        ("max_poll_records", 13, "max_poll_records"),
    ],
)
def test_todays_spellings(today, value, field):
    assert getattr(ConsumerConfig.from_properties(None, **{today: value}), field) == value
    assert getattr(ConsumerConfig.from_properties({today: value}), field) == value
    assert getattr(ConsumerConfig.from_properties({today.replace("_", "."): str(value).lower()}), field) == value


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("smallest", "earliest"), ("earliest", "earliest"), ("largest", "latest"), ("latest", "latest"),
        ("error", "error"), ("none", "error"),
    ],
)  # fmt: skip
def test_what_to_do_without_an_offset(word, meaning):
    assert ConsumerConfig.from_properties({"autooffset.reset": word}).offset_reset == meaning


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"fetch.sise": "1"}, r"know no property 'fetch\.sise'; did you mean 'fetch\.size'\?"),
        ({"group": "g", "grupid": "g"}, r"'grupid'; did you mean 'groupid'\?"),
        ({"fetch_min_bytes": 1}, "know no property 'fetch_min_bytes'"),
        ({"log.dir": "/x"}, r"know no property 'log\.dir'"),
        ({"groupid": "a", "group_id": "b"}, "'groupid' and 'group_id' are the same setting"),
        ({"fetch.size": "1 MB"}, r"fetch\.size must be a whole number, but is '1 MB'"),
        ({"fetch.size": "3"}, r"fetch\.size must be between 4 and 2147483647, but is 3"),
        ({"fetch_bytes": 1e6}, "fetch_bytes must be a whole number"),
        ({"autocommit.enable": "yes"}, r"autocommit\.enable must be true or false, but is 'yes'"),
        ({"groupid": " "}, "groupid must not be empty"),
        ({"autooffset.reset": "middle"}, r"autooffset\.reset must be one of smallest, .* but is 'middle'"),
        ({"corrupt.policy": "ignore"}, r"corrupt\.policy must be one of raise, stop, skip, but is 'ignore'"),
    ],
)
def test_what_is_refused(properties, message):
    with pytest.raises(ValueError, match=message):
        ConsumerConfig.from_properties(properties)
    with pytest.raises(ValueError, match=message):
        ConsumerConfig.from_properties(None, **properties)


def test_options_go_before_properties_and_none_is_not_given():
    config = ConsumerConfig.from_properties({"groupid": "a", "fetch.size": "100"}, group_id="b", fetch_bytes=None)
    assert (config.group, config.fetch_bytes) == ("b", 100)


def test_properties_of_an_old_mirror_are_named_as_ignored():
    config = ConsumerConfig.from_properties({"groupid": "g", "mirror.topics.whitelist": "a|b"})
    assert config.ignored == ("mirror.topics.whitelist",)


def test_the_table_has_every_setting_with_its_default():
    rows = {}
    for line in consumer_table().splitlines()[2:]:
        name, default, _, aliases, about = (cell.strip() for cell in line.strip("|").split("|"))
        rows[name.strip("`")] = (default.strip("`"), aliases, about)
    assert set(rows) == set(FIELDS)
    assert rows["fetch.size"][0] == "1048576"
    assert rows["autocommit.enable"][:2] == (
        "true", "`autocommit`, `enable.auto.commit`, `enable_auto_commit`"
    )  # fmt: skip
    assert all(about for _, _, about in rows.values())


def test_the_docs_have_this_table():
    docs = Path(__file__).parent.parent / "docs" / "configuration.md"
    assert f"\n\n{consumer_table()}\n# Settings of a producer\n" in docs.read_text()
