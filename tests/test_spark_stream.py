"""Streams of the data source kafka07 in real Spark: limits, restarts, what comes and goes meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

import kafka07c.spark
from kafka07c._build import build_message_set
from kafka07c.broker import Broker
from kafka07c.errors import OffsetOutOfRangeError
from kafka07c.names import TopicPartition
from kafka07c.segments import Log
from kafka07c.simple import SyncProducer
from kafka07c.spark.options import OptionError, parse
from kafka07c.spark.stream import Kafka07StreamReader, offsets_from_json, offsets_to_json
from kafka07c.testing import ZooKeeper

pytestmark = pytest.mark.spark

FLUSHED = {"log.flush.interval": 1}


@pytest.fixture(scope="module")
def spark():
    spark = kafka07c.spark.session(app="tests of streams", master="local[2]")
    yield spark
    spark.stop()


def append(log_dir: Path, payloads, *, name="clicks-0", per_set=10, codec="none", segment_bytes=1 << 30) -> int:
    """Appends to an archived log; where it ends then."""
    with Log(log_dir / name, writable=True, segment_bytes=segment_bytes) as log:
        for start in range(0, len(payloads), per_set):
            log.append(build_message_set(payloads[start : start + per_set], codec))
        return log.end_offset


def numbered(first: int, count: int, size: int = 90) -> list[bytes]:
    return [b"%08d" % number + b"." * (size - 8) for number in range(first, first + count)]


def stream_reader(**options) -> Kafka07StreamReader:
    named = {f"kafka07.{n}" if n in ("logs", "brokers", "zookeeper") else n: v for n, v in options.items()}
    given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in named.items()}
    return Kafka07StreamReader(parse({"subscribe": "clicks"} | given, streaming=True))


class Driver:
    """Asks a reader what Spark asks, batch by batch."""

    def __init__(self, reader: Kafka07StreamReader, start: dict | None = None):
        self.reader = reader
        self.end = reader.initialOffset() if start is None else start

    def batch(self, limit=None) -> list[bytes] | None:
        """The payloads of the next batch, None where there is none."""
        end = json.loads(json.dumps(self.reader.latestOffset(self.end, limit or self.reader.getDefaultReadLimit())))
        if end == self.end:
            return None
        start, self.end = self.end, end
        return self.replay(start, end)

    def replay(self, start, end) -> list[bytes]:
        tasks = self.reader.partitions(start, end)
        return [value for task in tasks for batch in self.reader.read(task) for value in batch["value"].to_pylist()]

    def rest(self) -> list[bytes]:
        """All payloads up to the end that there is."""
        found: list[bytes] = []
        while (batch := self.batch()) is not None:
            found += batch
        return found


# --- offsets


def test_offsets_are_json_in_the_shape_of_sparks_kafka_source():
    offsets = {TopicPartition("clicks", 1, 0): 5, TopicPartition("clicks", 0, 10): 4711, TopicPartition("a", 0, 0): 0}
    document = offsets_to_json(offsets)
    assert document == {"a": {"0-0": 0}, "clicks": {"0-10": 4711, "1-0": 5}}
    assert offsets_from_json(json.loads(json.dumps(document))) == offsets


def test_the_first_batch_is_empty_and_ends_where_the_query_begins(tmp_path):
    end = append(tmp_path, numbered(0, 100))
    driver = Driver(stream_reader(logs=f"0:{tmp_path}"))
    assert driver.batch() == []
    assert driver.end == {"clicks": {"0-0": end}}  # latest is the default of a stream
    assert driver.batch() is None
    append(tmp_path, numbered(100, 50))
    assert driver.batch() == numbered(100, 50)


def test_a_first_batch_that_fails_and_a_restart_lose_nothing(tmp_path):
    """Spark has written the end of batch 0, and asks a new reader for everything else again."""
    append(tmp_path, numbered(0, 100))
    first = Driver(stream_reader(logs=f"0:{tmp_path}"))
    first.batch()
    append(tmp_path, numbered(100, 100))
    again = Driver(stream_reader(logs=f"0:{tmp_path}"))
    assert again.replay(again.end, first.end) == []
    again.end = first.end
    assert again.rest() == numbered(100, 100)


@pytest.mark.parametrize("starting", ["earliest", {"clicks": {"0-0": 1000}}, {"clicks": {"0-0": -1}}])
def test_starting_offsets(tmp_path, starting):
    end = append(tmp_path, numbered(0, 100))
    driver = Driver(stream_reader(logs=f"0:{tmp_path}", startingOffsets=starting))
    expected = {"earliest": 0}.get(starting, 10) if isinstance(starting, str) else starting["clicks"]["0-0"] // 100
    assert driver.rest() == (numbered(0, 100)[expected:] if expected >= 0 else [])
    assert driver.end == {"clicks": {"0-0": end}}


def test_starting_offsets_that_the_log_does_not_have(tmp_path):
    append(tmp_path, numbered(0, 10))
    starting = {"clicks": {"0-0": 1_000_000}}
    with pytest.raises(OffsetOutOfRangeError, match="offsets 1000000 to 1000000 are wanted, the partition has 0 to 1000"):
        Driver(stream_reader(logs=f"0:{tmp_path}", startingOffsets=starting)).batch()
    driver = Driver(stream_reader(logs=f"0:{tmp_path}", startingOffsets=starting, failOnDataLoss="false"))
    assert driver.rest() == []
    assert driver.end == {"clicks": {"0-0": 1000}}


def test_starting_offsets_have_to_name_all_partitions(tmp_path):
    append(tmp_path, numbered(0, 10))
    append(tmp_path, numbered(0, 10), name="clicks-1")
    with pytest.raises(OptionError, match="startingOffsets has no offset for clicks 0-1"):
        Driver(stream_reader(logs=f"0:{tmp_path}", startingOffsets={"clicks": {"0-0": 0}})).batch()


def test_a_stream_has_no_end():
    with pytest.raises(OptionError, match="endingOffsets is for batch queries"):
        stream_reader(logs="0:/archive", endingOffsets="latest")


# --- limits


def test_max_bytes_per_trigger_is_shared_out_and_ends_where_entries_end(tmp_path):
    append(tmp_path, numbered(0, 300))
    append(tmp_path, numbered(300, 100), name="clicks-1")
    driver = Driver(stream_reader(logs=f"0:{tmp_path}", startingOffsets="earliest", maxBytesPerTrigger="4000"))
    assert driver.batch() == []
    first = driver.batch()
    assert driver.end == {"clicks": {"0-0": 3000, "0-1": 1000}}
    assert first == numbered(0, 30) + numbered(300, 10)
    assert sorted(first + driver.rest()) == numbered(0, 400)


def test_max_offsets_per_trigger_is_the_same_and_wrappers_stay_whole(tmp_path):
    append(tmp_path, numbered(0, 200), codec="gzip", per_set=50)
    driver = Driver(stream_reader(logs=f"0:{tmp_path}", startingOffsets="earliest", maxOffsetsPerTrigger="1"))
    assert driver.batch() == []
    assert [driver.batch() for _ in range(5)] == [*(numbered(at, 50) for at in range(0, 200, 50)), None]
    with pytest.raises(OptionError, match="are the same"):
        stream_reader(logs=f"0:{tmp_path}", maxOffsetsPerTrigger="1", maxBytesPerTrigger="1")


def test_spark_may_ask_for_everything_whatever_the_limit(tmp_path):
    append(tmp_path, numbered(0, 100))
    reader = stream_reader(logs=f"0:{tmp_path}", startingOffsets="earliest", maxBytesPerTrigger="1k")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(1024)
    driver = Driver(reader)
    driver.batch()
    assert driver.batch(ReadAllAvailable()) == numbered(0, 100)


def test_min_offsets_per_trigger_waits_but_not_for_ever(tmp_path):
    options = {"logs": f"0:{tmp_path}", "startingOffsets": "earliest", "minOffsetsPerTrigger": "5000"}
    append(tmp_path, numbered(0, 20))
    driver = Driver(stream_reader(**options, maxTriggerDelay="1h"))
    assert (driver.batch(), driver.batch()) == ([], None)
    append(tmp_path, numbered(20, 40))
    assert driver.batch() == numbered(0, 60)
    impatient = Driver(stream_reader(**options, maxTriggerDelay="0ms"), {"clicks": {"0-0": 5000}})
    assert impatient.batch() == numbered(50, 10)


def test_available_now_ends_at_what_was_there(tmp_path):
    append(tmp_path, numbered(0, 100))
    reader = stream_reader(logs=f"0:{tmp_path}", startingOffsets="earliest", maxBytesPerTrigger="3000")
    reader.prepareForTriggerAvailableNow()
    append(tmp_path, numbered(100, 100))
    append(tmp_path, numbered(200, 100), name="clicks-1")
    assert Driver(reader).rest() == numbered(0, 100)
    assert reader.reportLatestOffset() == {"clicks": {"0-0": 20_000, "0-1": 10_000}}


# --- what comes, goes and is lost


def test_new_partitions_join_from_their_earliest_offset(tmp_path):
    append(tmp_path, numbered(0, 10))
    driver = Driver(stream_reader(logs=f"0:{tmp_path}"))
    driver.batch()
    append(tmp_path, numbered(100, 50), name="clicks-1")
    assert driver.batch() == []
    assert driver.end == {"clicks": {"0-0": 1000, "0-1": 0}}
    assert driver.batch() == numbered(100, 50)


def test_a_log_that_ends_before_the_query_was_is_a_loss(tmp_path):
    append(tmp_path, numbered(0, 10))
    start = {"clicks": {"0-0": 5000}}
    with pytest.raises(OffsetOutOfRangeError, match="the log ends at 1000, but the query has read it up to 5000"):
        Driver(stream_reader(logs=f"0:{tmp_path}"), start).batch()
    driver = Driver(stream_reader(logs=f"0:{tmp_path}", failOnDataLoss="false"), start)
    assert driver.batch() == []
    append(tmp_path, numbered(10, 10))
    assert driver.rest() == numbered(10, 10)


def test_retention_that_deletes_what_was_to_be_read(tmp_path, caplog):
    append(tmp_path, numbered(0, 100), segment_bytes=2000)
    segments = sorted((tmp_path / "clicks-0").iterdir())
    lost = int(segments[2].stem)
    for segment in segments[:2]:
        segment.unlink()
    start = {"clicks": {"0-0": 0}}
    with pytest.raises(OffsetOutOfRangeError, match=f"the partition has {lost} to 10000"):
        Driver(stream_reader(logs=f"0:{tmp_path}"), start).batch()
    driver = Driver(stream_reader(logs=f"0:{tmp_path}", failOnDataLoss="false"), start)
    assert driver.batch() == numbered(0, 100)[lost // 100 :]
    assert f"offsets 0 to" in caplog.text and f"has {lost} to 10000" in caplog.text


def test_brokers_come_and_go(tmp_path):
    with ZooKeeper() as zookeeper:
        one = Broker(tmp_path / "1", broker_id=1, zookeeper=zookeeper.address, properties=FLUSHED)
        with one, SyncProducer("127.0.0.1", one.port) as producer:
            producer.send("clicks", 0, numbered(0, 20))
            driver = Driver(stream_reader(zookeeper=zookeeper.address, startingOffsets="earliest"))
            found = driver.rest()
            while found != numbered(0, 20):
                found += driver.rest()
            with Broker(tmp_path / "2", broker_id=2, zookeeper=zookeeper.address, properties=FLUSHED) as two:
                with SyncProducer("127.0.0.1", two.port) as other:
                    other.send("clicks", 0, numbered(20, 20))
                while len(found) < 40:
                    found += driver.rest()
            producer.send("clicks", 0, numbered(40, 20))
            while len(found) < 60:  # broker 2 is gone, and holds nobody up
                found += driver.rest()
        assert found == numbered(0, 60)
        assert driver.end == {"clicks": {"1-0": 4000, "2-0": 2000}}
        driver.reader.stop()


def test_a_topic_that_comes_later_is_read_from_its_beginning(tmp_path):
    with ZooKeeper() as zookeeper:
        with Broker(tmp_path, broker_id=1, zookeeper=zookeeper.address, properties=FLUSHED) as broker:
            driver = Driver(stream_reader(zookeeper=zookeeper.address))
            assert (driver.batch(), driver.end) == (None, {})
            with SyncProducer("127.0.0.1", broker.port) as producer:
                producer.send("clicks", 0, numbered(0, 20))
            found: list[bytes] = []
            while len(found) < 20:
                found += driver.rest()
            assert found == numbered(0, 20)
            driver.reader.stop()


# --- in Spark


def options_of(tmp_path, **more) -> dict[str, str]:
    return {"kafka07.logs": f"0:{tmp_path / 'logs'}", "subscribe": "clicks", "startingOffsets": "earliest"} | more


def run(spark, tmp_path, options, name="query") -> list[bytes]:
    """All that a query with Trigger.AvailableNow adds to a Parquet sink."""
    frame = spark.readStream.format("kafka07").options(**options).load()
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(tmp_path / name))
        .option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    read = spark.read.parquet(str(tmp_path / name)).select("value").toArrow()
    return sorted(read["value"].to_pylist())


def test_a_query_goes_on_from_its_checkpoint(spark, tmp_path):
    append(tmp_path / "logs", numbered(0, 1000))
    options = options_of(tmp_path, maxBytesPerTrigger="30k")
    assert run(spark, tmp_path, options) == numbered(0, 1000)
    append(tmp_path / "logs", numbered(1000, 500))
    assert run(spark, tmp_path, options) == numbered(0, 1500)
    offsets = sorted((tmp_path / "query-checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    last = offsets[-1].read_text().splitlines()[-1]
    assert json.loads(last) == {"clicks": {"0-0": 150_000}}
    assert json.loads(offsets[0].read_text().splitlines()[-1]) == {"clicks": {"0-0": 0}}
    assert len(offsets) == 1 + 4 + 2


def test_a_query_that_was_killed_before_its_first_batch_begins_again(spark, tmp_path):
    """What a kill -9 between the writing of offsets/0 and its renaming leaves behind."""
    append(tmp_path / "logs", numbered(0, 100))
    offsets = tmp_path / "query-checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for name in (".0.80cf7770-1873-4000-a41e-76de4cf4fb8e.tmp", "..0.80cf7770-1873-4000-a41e-76de4cf4fb8e.tmp.crc"):
        (offsets / name).write_bytes(b"v1\n")
    assert run(spark, tmp_path, options_of(tmp_path)) == numbered(0, 100)


def test_two_queries_side_by_side(spark, tmp_path):
    append(tmp_path / "logs", numbered(0, 400))
    frames = [spark.readStream.format("kafka07").options(**options_of(tmp_path)).load() for _ in range(2)]
    queries = [
        frame.writeStream.format("parquet")
        .option("path", str(tmp_path / f"out{number}"))
        .option("checkpointLocation", str(tmp_path / f"checkpoint{number}"))
        .trigger(availableNow=True)
        .start()
        for number, frame in enumerate(frames)
    ]
    for query in queries:
        query.awaitTermination()
    for number in range(2):
        assert spark.read.parquet(str(tmp_path / f"out{number}")).count() == 400


def test_a_wrong_option_ends_in_a_line_that_says_so(spark, tmp_path):
    append(tmp_path / "logs", numbered(0, 4))
    with pytest.raises(PySparkException, match="endingOffsets is for batch queries: a stream has no end") as raised:
        run(spark, tmp_path, options_of(tmp_path, endingOffsets="latest"))
    told = str(raised.value)
    assert told.count("Error: ") == 1 and "another exception" not in told and "\tat " not in told, told
