"""The producer's settings: 0.7's names and defaults, Java's classes, today's spellings, what is refused, the table."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kafka07c import Codec
from kafka07c.errors import InvalidTopicError
from kafka07c.producer.config import ProducerConfig, producer_table
from kafka07c.producer.handlers import CallbackHandler, DefaultEncoder, EventHandler, StringEncoder
from kafka07c.producer.partitioners import DefaultPartitioner, RoundRobinPartitioner

#: name and default in Kafka 0.7.2: kafka.producer.ProducerConfig, its traits, kafka.utils.ZKConfig
DEFAULTS = {
    "broker.list": None,
    "zk.connect": None,
    "zk.sessiontimeout.ms": 6000,
    "zk.connectiontimeout.ms": None,
    "zk.synctime.ms": 2000,
    "zk.read.num.retries": 3,
    "producer.type": "async",  # sync
    "serializer.class": None,
    "partitioner.class": None,
    "compression.codec": Codec.NONE,
    "compressed.topics": None,
    "num.retries": 3,  # 0
    "buffer.size": 102_400,
    "connect.timeout.ms": 5000,
    "socket.timeout.ms": 30_000,
    "reconnect.interval": 30_000,
    "reconnect.time.interval.ms": 10_000_000,
    "max.message.size": 1_000_000,
    "queue.time": 5,  # 5000
    "queue.size": 100_000,  # 10000
    "queue.enqueueTimeout.ms": -1,  # 0
    "batch.size": 10_000,  # 200
    "event.handler": None,
    "event.handler.props": None,
    "callback.handler": None,
    "callback.handler.props": None,
}

OURS = {
    "queue.bytes.max": 64 * 1024 * 1024,
    "batch.bytes": 512 * 1024,
    "resend.window.bytes": 16 * 1024 * 1024,
    "delivery.timeout.ms": 120_000,
    "verify": False,
    "verify.timeout.ms": 30_000,
}

FIELDS = {each.metadata["property"]: each.name for each in dataclasses.fields(ProducerConfig) if each.metadata}


def test_the_defaults():
    assert set(FIELDS) == set(DEFAULTS) | set(OURS)
    config = ProducerConfig()
    assert {name: getattr(config, field) for name, field in FIELDS.items()} == DEFAULTS | OURS


def test_what_differs_from_0_7_and_what_is_not_in_it_says_so():
    about = {each.metadata["property"]: each.metadata["about"] for each in dataclasses.fields(ProducerConfig)}
    in_0_7 = {"producer.type": "`sync`", "num.retries": "0", "queue.time": "5000", "queue.enqueueTimeout.ms": "0"}
    for name, default in (in_0_7 | {"batch.size": "200"}).items():
        assert about[name].endswith(f"(0.7: {default})")
    assert about["queue.size"].endswith("10000)")
    assert {name for name, text in about.items() if text.startswith("not in 0.7: ")} == set(OURS)


def test_times_in_seconds():
    config = ProducerConfig()
    seconds = {
        "zookeeper_session": 6.0, "zookeeper_connect": 6.0, "enqueue_timeout": None, "queue_time": 0.005,
        "connect_timeout": 5.0, "socket_timeout": 30.0, "delivery_timeout": 120.0, "verify_timeout": 30.0,
    }  # fmt: skip
    assert {name: getattr(config, name) for name in seconds} == seconds
    assert ProducerConfig(zookeeper_connect_ms=100).zookeeper_connect == 0.1
    assert ProducerConfig(enqueue_timeout_ms=0).enqueue_timeout == 0.0
    assert ProducerConfig(enqueue_timeout_ms=-5).enqueue_timeout is None


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ProducerConfig().mode = "sync"


#: 0.7.2's own config/producer.properties, without its comments' text
SHIPPED = """
#broker.list=0:localhost:9092
# Producer
zk.connect=localhost:2181
# timeout in ms for connecting to zookeeper
#zk.connectiontimeout.ms=1000000

producer.type=sync

compression.codec=0

serializer.class=kafka.serializer.StringEncoder

#partitioner.class=
#compressed.topics=
#queue.time=
#batch.size=
"""


def test_a_properties_file(tmp_path):
    path = tmp_path / "producer.properties"
    path.write_text(SHIPPED)
    config = ProducerConfig.from_properties(path)
    assert (config.zookeeper, config.mode, config.codec) == ("localhost:2181", "sync", Codec.NONE)
    assert config.encoder("é") == b"\xc3\xa9"
    other = ProducerConfig.from_properties(str(path), mode="async", batch_messages=5, encoder=bytes)
    assert (other.mode, other.batch_messages, other.encoder) == ("async", 5, bytes)
    assert other.zookeeper == config.zookeeper


@pytest.mark.parametrize(
    ("today", "value", "field"),
    [
        ("request_timeout_ms", 8, "socket_timeout_ms"),
        ("buffer_memory", 9, "queue_bytes"),
        ("max_block_ms", 10, "enqueue_timeout_ms"),
        ("linger_ms", 11, "queue_time_ms"),
        ("compression_type", "gzip", "codec"),
        ("retries", 12, "retries"),
        ("delivery_timeout_ms", 13, "delivery_timeout_ms"),
        ("send_buffer_bytes", 14, "send_buffer_bytes"),
    ],
)
def test_todays_spellings(today, value, field):
    wanted = Codec.GZIP if field == "codec" else value
    assert getattr(ProducerConfig.from_properties(None, **{today: value}), field) == wanted
    assert getattr(ProducerConfig.from_properties({today: value}), field) == wanted
    assert getattr(ProducerConfig.from_properties({today.replace("_", "."): str(value)}), field) == wanted


# --- codecs


@pytest.mark.parametrize(
    ("given", "codec"),
    [
        ("0", Codec.NONE), ("1", Codec.GZIP), (" 2 ", Codec.SNAPPY), (2, Codec.SNAPPY), ("none", Codec.NONE),
        ("gzip", Codec.GZIP), ("Snappy", Codec.SNAPPY), (Codec.GZIP, Codec.GZIP),
    ],
)  # fmt: skip
def test_one_codec(given, codec):
    config = ProducerConfig.from_properties({"compression.codec": given})
    assert (config.codec, config.codec_of("any")) == (codec, codec)


def test_a_codec_for_some_topics():
    config = ProducerConfig.from_properties({"compression.codec": "gzip", "compressed.topics": " a, b,"})
    assert [config.codec_of(topic) for topic in "abc"] == [Codec.GZIP, Codec.GZIP, Codec.NONE]
    assert ProducerConfig.from_properties(None, compressed_topics=["a"]).compressed_topics == ("a",)
    assert ProducerConfig.from_properties({"compression.codec": "1", "compressed.topics": ""}).codec_of("x") == 1


def test_a_codec_for_each_topic():
    config = ProducerConfig.from_properties(None, codec={"a": "gzip", "b": 2})
    assert [config.codec_of(topic) for topic in "abc"] == [Codec.GZIP, Codec.SNAPPY, Codec.NONE]


# --- code in settings

HERE = "test_producer_config"


class Shouting:
    def __call__(self, value):
        return value.upper().encode()


class Recording(CallbackHandler):
    pass


class Sending(EventHandler):
    pass


class Demanding(CallbackHandler):
    def __init__(self, what):
        pass


last = RoundRobinPartitioner()


def halves(key, count):
    return 0


def test_java_classes_that_we_have():
    config = ProducerConfig.from_properties(
        {
            "serializer.class": "kafka.serializer.DefaultEncoder",
            "partitioner.class": "kafka.producer.DefaultPartitioner",
            "event.handler": "kafka.producer.async.DefaultEventHandler",
        }
    )
    assert (type(config.encoder), type(config.partitioner)) == (DefaultEncoder, DefaultPartitioner)
    assert config.event_handler is None, "the producer itself"
    strings = ProducerConfig.from_properties({"serializer.class": "kafka.serializer.StringEncoder"})
    assert type(strings.encoder) is StringEncoder


def test_names_of_python_code():
    config = ProducerConfig.from_properties(
        {
            "serializer.class": f"{HERE}:Shouting",
            "partitioner.class": f"{HERE}:halves",
            "callback.handler": f"{HERE}:Recording",
            "callback.handler.props": "a=1, b = x=y ,",
            "event.handler": f" {HERE}:Sending ",
            "event.handler.props": "",
        }
    )
    assert config.encoder("a") == b"A"
    assert config.partitioner("k", 2) == 0
    assert type(config.callback_handler).__name__ == "Recording"
    assert config.callback_handler_properties == {"a": "1", "b": "x=y"}
    assert type(config.event_handler).__name__ == "Sending"
    assert config.event_handler_properties == {}
    named = ProducerConfig.from_properties({"partitioner.class": f"{HERE}:last"})
    assert type(named.partitioner) is RoundRobinPartitioner


def test_the_code_itself():
    handler = Recording()
    config = ProducerConfig.from_properties(
        None, callback_handler=handler, partitioner=halves, encoder=Shouting, callback_handler_properties={"n": 1}
    )
    assert (config.callback_handler, config.partitioner, type(config.encoder)) == (handler, halves, Shouting)
    assert config.callback_handler_properties == {"n": "1"}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"queue.sise": "1"}, r"know no property 'queue\.sise'; did you mean 'queue\.size'\?"),
        ({"batch_size": 16384}, r"know no property 'batch_size'; did you mean 'batch\.size'\?"),
        ({"groupid": "g"}, "know no property 'groupid'"),
        ({"linger_ms": 1, "queue.time": 1}, "'linger_ms' and 'queue.time' are the same setting"),
        ({"batch.size": "0"}, r"batch\.size must be between 1 and"),
        ({"producer.type": "half"}, r"producer\.type must be one of async, sync, but is 'half'"),
        ({"compression.codec": "3"}, r"compression\.codec: codec '3' is none of none, gzip, snappy"),
        ({"compression.codec": "lz4"}, r"compression\.codec: codec 'lz4' is none of"),
        ({"codec": {"a": "lz4"}}, r"codec of topic 'a': codec 'lz4' is none of"),
        ({"codec": {"a": "gzip"}, "compressed.topics": "a"}, "a codec for each topic and compressed.topics exclude"),
        ({"compressed.topics": 5}, r"compressed\.topics must be topics between commas, but is 5"),
        ({"zk.connect": "h:1", "broker.list": "0:h:1"}, r"zk\.connect \(zookeeper\) and broker\.list .* exclude"),
        ({"verify": True, "event.handler": f"{HERE}:Sending"}, "verify and event.handler exclude each other"),
        ({"callback.handler.props": "a"}, r"callback\.handler\.props must be name=value,name=value, but has 'a'"),
        (
            {"serializer.class": "com.example.AvroEncoder"},
            r"serializer\.class names the Java class 'com\.example\.AvroEncoder', .*DefaultEncoder, .*give encoder=, "
            r"a function \(value\) -> bytes, or name one here as 'module:name'",
        ),
        ({"partitioner.class": "com.example.P"}, r"give partitioner=, a function \(key, count\) -> index"),
        ({"event.handler": "com.example.H"}, "give event_handler=, an EventHandler"),
        ({"callback.handler": "com.example.H"}, "give callback_handler=, a CallbackHandler"),
        ({"serializer.class": "no_such_module:x"}, "cannot be imported: No module named 'no_such_module'"),
        ({"serializer.class": f"{HERE}:nothing"}, "cannot be imported: module .* has no attribute 'nothing'"),
        ({"serializer.class": ":x"}, "cannot be imported"),
        ({"serializer.class": f"{HERE}:HERE"}, r"serializer\.class must be a function .*, but is 'test_producer"),
        ({"callback.handler": f"{HERE}:Demanding"}, "cannot be made without arguments: .*'what'"),
        ({"callback_handler": Shouting()}, "callback_handler must be a CallbackHandler, .*; it lacks init, before_enq"),
        ({"event_handler": 5}, "event_handler must be an EventHandler, but is 5; it lacks init, handle, close"),
        ({"partitioner": 5}, "partitioner must be a function .*, but is 5$"),
    ],
)
def test_what_is_refused(properties, message):
    with pytest.raises(ValueError, match=message):
        ProducerConfig.from_properties(properties)
    with pytest.raises(ValueError, match=message):
        ProducerConfig.from_properties(None, **properties)


@pytest.mark.parametrize("properties", [{"compressed.topics": "a,b/c"}, {"codec": {"..": "gzip"}}])
def test_topics_that_are_none(properties):
    with pytest.raises(InvalidTopicError):
        ProducerConfig.from_properties(properties)


def test_options_go_before_properties_and_none_is_not_given():
    config = ProducerConfig.from_properties({"batch.size": "1", "queue.time": "2"}, batch_messages=3, linger_ms=None)
    assert (config.batch_messages, config.queue_time_ms) == (3, 2)


def test_where_the_cluster_is_said_as_an_option_goes_before_either_in_the_properties():
    config = ProducerConfig.from_properties({"zk.connect": "h:1"}, brokers="0:h:2")
    assert (config.zookeeper, config.brokers) == (None, "0:h:2")
    config = ProducerConfig.from_properties({"broker.list": "0:h:2"}, zookeeper="h:1")
    assert (config.zookeeper, config.brokers) == ("h:1", None)


def test_the_table_has_every_setting_with_its_default():
    rows = {}
    for line in producer_table().splitlines()[2:]:
        name, default, _, aliases, about = (cell.strip() for cell in line.strip("|").split("|"))
        rows[name.strip("`")] = (default.strip("`"), aliases, about)
    assert set(rows) == set(FIELDS)
    assert rows["compression.codec"][:2] == ("none", "`codec`, `compression.type`, `compression_type`")
    assert rows["verify"][0] == "false"
    assert all(about for _, _, about in rows.values())


def test_the_docs_have_this_table():
    docs = Path(__file__).parent.parent / "docs" / "configuration.md"
    assert docs.read_text().endswith("\n\n" + producer_table())
