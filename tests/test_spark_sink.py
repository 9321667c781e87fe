"""Writing to topics from Spark, batch and stream."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

import kafka07c.spark
from kafka07c._build import build_message_set
from kafka07c.broker import Broker
from kafka07c.names import TopicPartition
from kafka07c.producer import default_partition
from kafka07c.ranges import Range, open_source
from kafka07c.segments import Log
from kafka07c.simple import SyncProducer
from kafka07c.spark.options import OptionError
from kafka07c.spark.sink_options import parse_write
from kafka07c.testing import ZooKeeper

pytestmark = pytest.mark.spark

FLUSHED = {"log.flush.interval": 1, "log.default.flush.scheduler.interval.ms": 20}


@pytest.fixture(scope="module")
def spark():
    spark = kafka07c.spark.session(app="tests of the sink", master="local[2]")
    yield spark
    spark.stop()


@pytest.fixture(scope="module")
def zookeeper():
    with ZooKeeper() as zookeeper:
        yield zookeeper


@pytest.fixture
def cluster(zookeeper, tmp_path, request):
    """Two brokers with two partitions of each topic; the address of their ZooKeeper."""
    address = f"{zookeeper.address}/{request.node.name.partition('[')[0]}{abs(hash(request.node.name))}"
    options = {"partitions": 2, "zookeeper": address, "properties": FLUSHED}
    with Broker(tmp_path / "0", broker_id=0, **options) as zero, Broker(tmp_path / "1", broker_id=1, **options) as one:
        for broker in (zero, one):
            with SyncProducer("127.0.0.1", broker.port) as producer:
                producer.send("clicks", 0, [])
        yield address


def held(tmp_path: Path, topic: str = "clicks") -> dict[str, list[bytes]]:
    """Payloads by partition, as the logs have them on disk."""
    found = {}
    with open_source(logs=f"0:{tmp_path / '0'},1:{tmp_path / '1'}") as source:
        for tp in source.partitions(topic):
            sets = source.read(Range(*tp, *source.bounds(tp)))
            found[tp.name] = [value for part in sets for value in part.payloads()]
    return found


def everything(tmp_path: Path, topic: str = "clicks") -> list[bytes]:
    return sorted(value for values in held(tmp_path, topic).values() for value in values)


def write(frame, cluster: str, mode: str = "append", **options: str) -> None:
    frame.write.format("kafka07").mode(mode).option("kafka07.zookeeper", cluster).options(**options).save()


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy"])
def test_rows_arrive_once_each(spark, cluster, tmp_path, compression):
    frame = spark.range(10_000).selectExpr("cast(id as string) value")
    write(frame, cluster, topic="clicks", compression=compression, **{"kafka07.batch.size": "500"})
    assert everything(tmp_path) == sorted(b"%d" % number for number in range(10_000))


def test_keys_go_where_the_producer_puts_them(spark, cluster, tmp_path):
    frame = spark.range(1000).selectExpr("concat('v', id) value", "concat('key', id % 50) key")
    write(frame, cluster, topic="clicks")
    expected = Counter(default_partition(f"key{number % 50}", 4) for number in range(1000))
    counts = {name: len(values) for name, values in held(tmp_path).items()}
    assert counts == {f"{index // 2}-{index % 2}": count for index, count in expected.items()}


def test_what_the_source_gives_can_be_written_back_as_it_is(spark, cluster, tmp_path):
    payloads = [b"%06d" % number for number in range(5000)]
    for name, values in (("clicks-0", payloads[:3000]), ("clicks-1", payloads[3000:])):
        with Log(tmp_path / "old" / name, writable=True) as log:
            log.append(build_message_set(values))
    frame = spark.read.format("kafka07").option("kafka07.logs", f"1:{tmp_path / 'old'}").option("subscribe", "clicks")
    write(frame.load(), cluster, verify="true")
    found = held(tmp_path)
    assert (found["1-0"], found["1-1"]) == (payloads[:3000], payloads[3000:])
    assert not found.get("0-0") and not found.get("0-1")


def test_topics_from_a_column(spark, cluster, tmp_path):
    frame = spark.range(100).selectExpr("cast(id as string) value", "if(id % 2 = 0, 'even', 'odd') topic")
    write(frame, cluster)
    assert everything(tmp_path, "even") == sorted(b"%d" % number for number in range(0, 100, 2))
    assert everything(tmp_path, "odd") == sorted(b"%d" % number for number in range(1, 100, 2))


def test_the_option_goes_before_the_column(spark, cluster, tmp_path):
    write(spark.createDataFrame([("a", "other")], "value string, topic string"), cluster, topic="clicks")
    assert everything(tmp_path) == [b"a"]


def test_a_stream_goes_on_from_its_checkpoint(spark, cluster, tmp_path):
    def append(first: int, count: int) -> None:
        with Log(tmp_path / "old" / "events-0", writable=True) as log:
            log.append(build_message_set([b"%05d" % number for number in range(first, first + count)]))

    for round in range(3):
        append(1000 * round, 1000)
        query = (
            spark.readStream.format("kafka07")
            .option("kafka07.logs", f"0:{tmp_path / 'old'}")
            .option("subscribe", "events")
            .option("startingOffsets", "earliest")
            .option("columns", "value")
            .load()
            .writeStream.format("kafka07")
            .option("kafka07.zookeeper", cluster)
            .option("topic", "clicks")
            .option("verify", "true")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert everything(tmp_path) == [b"%05d" % number for number in range(3000)]


TEXT = "cast(id as string) value"


@pytest.mark.parametrize(
    "columns, options, said",
    [
        (["id"], {"topic": "clicks"}, "needs a column value; there are id"),
        (["id value"], {"topic": "clicks"}, "column value is bigint: the sink kafka07 expects binary or string"),
        ([TEXT], {}, "needs the option topic, or a column of that name"),
        ([TEXT, "1 broker"], {"topic": "clicks"}, "broker and partition name a partition together"),
        ([TEXT], {"topic": "a/b"}, "OptionError: the sink kafka07: .*a/b"),
        ([TEXT], {"topic": "clicks", "compresion": "gzip"}, "did you mean compression"),
        ([TEXT], {"topic": "clicks", "compression": "lz4"}, "codec 'lz4' is none of none, gzip, snappy"),
        ([TEXT], {"topic": "clicks", "kafka07.producer.type": "sync"}, "is not for a sink"),
        (["if(id = 7, null, 'x') value"], {"topic": "clicks"}, "column value is null in row"),
        (["'x' value", "0 broker", "if(id = 7, null, 0) partition"], {"topic": "clicks"}, "a broker without a partition"),
        (["repeat('x', 1000001) value"], {"topic": "clicks"}, "1000001 bytes; a broker drops what is above"),
    ],
)
def test_what_cannot_be_written_is_said_in_a_line(spark, cluster, columns, options, said):
    with pytest.raises(PySparkException, match=said):
        write(spark.range(10).selectExpr(*columns), cluster, **options)


def test_overwriting_is_refused(spark, cluster):
    with pytest.raises(PySparkException, match="nothing in a topic can be overwritten"):
        write(spark.createDataFrame([("a",)], "value string"), cluster, mode="overwrite", topic="clicks")


def test_a_partition_that_is_not_there_fails_the_task(spark, cluster):
    frame = spark.createDataFrame([("a", 1, 7)], "value string, broker int, partition int")
    with pytest.raises(PySparkException, match="1-7|partition 7"):
        write(frame, cluster, topic="clicks", **{"kafka07.delivery.timeout.ms": "3000"})


def test_names_of_properties_in_any_case():
    given = {"KAFKA07.Brokers": "0:a:1", "kafka07.queue.enqueuetimeout.ms": "5", "Verify": "true", "TOPIC": "t"}
    options = parse_write(given)
    assert dict(options.properties) == {"brokers": "0:a:1", "queue.enqueueTimeout.ms": "5", "verify": "true"}
    assert (options.topic, options.verify) == ("t", True)
    for wrong in ({}, {"kafka07.brokers": "0:a:1", "kafka07.zookeeper": "a:1"}):
        with pytest.raises(OptionError, match="exactly one of the options kafka07.zookeeper, kafka07.brokers"):
            parse_write(wrong)
    assert json.dumps(dict(options.properties))
    assert TopicPartition("t", 0, 1).name == "0-1"
