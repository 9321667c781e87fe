"""The broker's settings and the files that hold them: 0.7 names, Java's properties syntax, what is refused and how."""

from __future__ import annotations

import dataclasses

import pytest

from kafka07c.broker.config import BrokerConfig
from kafka07c.properties import parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("brokerid=1", {"brokerid": "1"}),
        ("brokerid = 1", {"brokerid": "1"}),
        ("brokerid: 1", {"brokerid": "1"}),
        ("brokerid 1", {"brokerid": "1"}),
        ("  brokerid\t1", {"brokerid": "1"}),
        ("a==b", {"a": "=b"}),
        ("a = : b", {"a": ": b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=a", {"": "a"}),
        ("a=1 ", {"a": "1 "}),
        ("# a=1\n! b=2\n  # c=3\nd=4", {"d": "4"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("a=1,\\\n   2,\\\r\n\t3", {"a": "1,2,3"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a\\\nb=1", {"ab": "1"}),
        ("a=1\\", {"a": "1"}),
        ("\\\na=1", {"a": "1"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("a=\\u0041\\t\\n\\r\\f\\z\\\\", {"a": "A\t\n\r\fz\\"}),
        ("a=1\rb=2\r\nc=3\n\n\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x\fy", {"a": "x\fy"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text, properties):
    assert parse_properties(text) == properties


def test_a_malformed_escape_names_the_line():
    with pytest.raises(ValueError, match=r"server\.properties, line 3: .*u00g1"):
        parse_properties("a=1\n\nb=\\u00g1", "server.properties")


def test_files_are_latin_1(tmp_path):
    path = tmp_path / "server.properties"
    path.write_bytes(b"log.dir=/data/\xe9t\xe9\n")
    assert read_properties(path) == {"log.dir": "/data/été"}


#: the settings in 0.7.2's own config/server.properties
SHIPPED = """
############################# Server Basics #############################
brokerid=0
#hostname=
port=9092
num.threads=8
socket.send.buffer=1048576
socket.receive.buffer=1048576
max.socket.request.bytes=104857600
log.dir=/tmp/kafka-logs
num.partitions=1
#topic.partition.count.map=topic1:3, topic2:4
log.flush.interval=10000
log.default.flush.interval.ms=1000
#topic.flush.intervals.ms=topic1:1000, topic2:3000
log.default.flush.scheduler.interval.ms=1000
log.retention.hours=168
log.file.size=536870912
log.cleanup.interval.mins=1
enable.zookeeper=true
zk.connect=localhost:2181
zk.connectiontimeout.ms=1000000
"""


def test_the_settings_that_0_7_ships_are_taken():
    config = BrokerConfig.from_properties(parse_properties(SHIPPED))
    assert (config.broker_id, config.port, config.log_dir) == (0, 9092, "/tmp/kafka-logs")
    assert (config.send_buffer_bytes, config.segment_bytes, config.flush_messages) == (1048576, 536870912, 10000)
    assert (config.zookeeper, config.enable_zookeeper) == ("localhost:2181", True)
    assert config.ignored == ("num.threads",)
    assert config.zookeeper_connect_ms == 1_000_000
    topic = config.of("clicks")
    assert (topic.flush_ms, topic.retention_ms, topic.retention_bytes) == (1000, 168 * 3_600_000, None)


def test_defaults_are_those_of_0_7_but_retention_is_off():
    config = BrokerConfig()
    topic = config.of("clicks")
    assert (config.max_message_bytes, config.max_request_bytes, config.max_topic_length) == (1_000_000, 104857600, 255)
    assert (config.flush_messages, topic.flush_ms, topic.segment_bytes) == (500, 3000, 1024**3)
    assert (topic.partitions, topic.roll_ms) == (1, 168 * 3_600_000)
    assert not config.retains
    assert (topic.retention_ms, topic.retention_bytes) == (None, None)


def test_every_setting_names_its_property_and_no_two_the_same():
    named = [field.metadata["property"] for field in dataclasses.fields(BrokerConfig) if field.name != "ignored"]
    assert len(set(named)) == len(named)


def test_a_topic_has_its_own_settings_before_those_for_all():
    config = BrokerConfig.from_properties(
        {
            "num.partitions": "2",
            "topic.partition.count.map": "clicks:8, views : 3,",
            "topic.log.file.size": {"clicks": 1000},
            "topic.log.roll.hours": "clicks:1",
            "topic.flush.intervals.ms": "clicks:50",
            "topic.log.retention.hours": "clicks:2",
            "topic.log.retention.size": "clicks:10000000000",
            "log.retention.size": -1,
        }
    )
    clicks, views, other = config.of("clicks"), config.of("views"), config.of("other")
    assert (clicks.partitions, views.partitions, other.partitions) == (8, 3, 2)
    assert (clicks.segment_bytes, views.segment_bytes) == (1000, 1024**3)
    assert (clicks.roll_ms, clicks.flush_ms) == (3_600_000, 50)
    assert (clicks.retention_ms, clicks.retention_bytes) == (7_200_000, 10_000_000_000)
    assert (other.flush_ms, other.retention_ms, other.retention_bytes) == (3000, None, None)
    assert config.retains


def test_what_is_given_goes_before_the_properties():
    properties = {"port": "9092", "brokerid": "3", "num.partitions": 4}
    config = BrokerConfig.from_properties(properties, port=0, broker_id=None)
    assert (config.port, config.broker_id, config.partitions) == (0, 3, 4)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="'log.flush.intervall'; did you mean 'log.flush.interval'"):
        BrokerConfig.from_properties({"log.flush.intervall": 1})
    with pytest.raises(ValueError, match="'num.thread'; did you mean 'num.threads'"):
        BrokerConfig.from_properties({"num.thread": 1})
    with pytest.raises(ValueError, match="know no property 'zzz'$"):
        BrokerConfig.from_properties({"zzz": 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "9092x"),
        ("port", 65536),
        ("port", 9092.0),
        ("brokerid", -1),
        ("brokerid", True),
        ("num.partitions", 0),
        ("max.message.size", -1),
        ("max.socket.request.bytes", 2**31),
        ("log.flush.interval", ""),
        ("log.file.size", 4),
        ("log.retention.hours", 0),
        ("enable.zookeeper", "yes"),
        ("log.dir", " "),
        ("topic.partition.count.map", "clicks"),
        ("topic.partition.count.map", ":3"),
        ("topic.partition.count.map", "clicks:0"),
        ("topic.flush.intervals.ms", "clicks:soon"),
    ],
)
def test_a_bad_value_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name}"):
        BrokerConfig.from_properties({name: value})


def test_zookeeper_without_an_address_is_refused():
    with pytest.raises(ValueError, match="zk.connect"):
        BrokerConfig.from_properties({"enable.zookeeper": "true"})
