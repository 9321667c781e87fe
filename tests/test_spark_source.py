"""The data source kafka07 in real Spark: from archives and from live brokers, in threads and in other processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.pandas.types import to_arrow_schema

import kafka07c.spark
from kafka07c._build import build_message_set
from kafka07c.broker import Broker
from kafka07c.names import TopicPartition
from kafka07c.errors import CorruptMessageError
from kafka07c.java import java_home
from kafka07c.ranges import Range, open_source
from kafka07c.segments import Log
from kafka07c.simple import SyncProducer
from kafka07c.spark import reader
from kafka07c.spark.reader import arrow_schema, record_batches
from kafka07c.spark.options import COLUMNS, CORRUPT, HEADERS, Mode
from kafka07c.spark.planning import split
from kafka07c.spark.source import spark_schema
from kafka07c.testing import ZooKeeper

GOLDEN = Path(__file__).parent / "golden07"
GOLDEN_LOGS = f"0:{GOLDEN / 'logs'}"

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark():
    spark = kafka07c.spark.session(app="tests of the source", master="local[2]")
    yield spark
    spark.stop()


@pytest.fixture
def load(spark):
    def load(**options):
        frame = spark.read.format("kafka07")
        for name, value in options.items():
            name = f"kafka07.{name}" if name in ("logs", "brokers", "zookeeper") else name
            frame = frame.option(name, value if isinstance(value, str) else json.dumps(value))
        return frame.load()

    return load


def rows(frame) -> list[tuple]:
    """What names a message, and its value, in that order."""
    columns = ["topic", "broker", "partition", "offset", "index", "next_offset", "value"]
    table = frame.select(columns).toArrow()
    return sorted(zip(*(column.to_pylist() for column in table.columns)))


def expected(logs: str, *topics: str) -> list[tuple]:
    """The same, read without Spark."""
    with open_source(logs=logs) as source:
        return sorted(
            (*tp, m.offset, m.index, m.next_offset, m.value)
            for topic in topics
            for tp in source.partitions(topic)
            for part in source.read(Range(*tp, *source.bounds(tp)))
            for m in part
        )


# --- batches, without Spark


def test_arrow_schema_is_that_of_spark():
    every = (*COLUMNS, HEADERS, CORRUPT)
    assert arrow_schema(every).equals(to_arrow_schema(spark_schema(every), timezone="UTC"))


def write_messages(log_dir: Path, payloads, *, codec="none", per_set=1000, name="clicks-0") -> str:
    with Log(log_dir / name, writable=True, flush_messages=1_000_000) as log:
        for start in range(0, len(payloads), per_set):
            log.append(build_message_set(payloads[start : start + per_set], codec))
    return f"0:{log_dir}"


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("size", [0, 5, 139, 2000])
def test_batches_have_16_to_64_thousand_rows(tmp_path, codec, size):
    count = 100_000 if size < 1000 else 20_000
    payloads = [(b"%d " % number).ljust(size, b".")[:size] for number in range(count)]
    logs = write_messages(tmp_path, payloads, codec=codec)
    with open_source(logs=logs) as source:
        wanted = Range("clicks", 0, 0, *source.bounds(TopicPartition("clicks", 0, 0)))
        batches = list(record_batches(source, wanted))
        read = [value for part in source.read(wanted) for value in part.payloads()]
    assert read == payloads
    assert all(batch.schema.equals(arrow_schema()) for batch in batches)
    assert pa.Table.from_batches(batches)["value"].to_pylist() == payloads
    assert all(batch.num_rows <= 65536 for batch in batches)
    if size < 1000:
        assert all(batch.num_rows >= 16384 for batch in batches[:-1])


def test_batches_of_large_messages_are_bounded_by_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "MAX_BATCH_BYTES", 100_000)
    monkeypatch.setattr(reader, "FETCH_BYTES", 50_000)
    logs = write_messages(tmp_path, [b"x" * 9_000] * 100, per_set=10)
    with open_source(logs=logs) as source:
        wanted = Range("clicks", 0, 0, *source.bounds(TopicPartition("clicks", 0, 0)))
        batches = list(record_batches(source, wanted))
    assert sum(batch.num_rows for batch in batches) == 100
    assert max(batch.num_rows for batch in batches) <= 100_000 // 9_000 + 50_000 // 9_000 + 1


def test_corrupt_entry_is_raised_after_what_comes_before(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "FETCH_BYTES", 1000)
    monkeypatch.setattr(reader, "MIN_BATCH_ROWS", 10)
    logs = write_messages(tmp_path, [b"x" * 90] * 100)
    [segment] = (tmp_path / "clicks-0").iterdir()
    data = bytearray(segment.read_bytes())
    data[5050] ^= 1
    segment.write_bytes(data)
    with open_source(logs=logs) as source:
        batches = record_batches(source, Range("clicks", 0, 0, 0, 10_000))
        with pytest.raises(CorruptMessageError, match="topic 'clicks', broker 0, partition 0, offset 5000: corrupt"):
            given = 0
            for batch in batches:
                given += batch.num_rows
    assert given == 50


# --- archives


def test_columns_are_those_of_sparks_kafka_source_and_three_more(load):
    frame = load(logs=GOLDEN_LOGS, subscribe="plain")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("broker", "int"),
        ("index", "int"),
        ("next_offset", "bigint"),
    ]
    assert {(row.key, row.timestamp, row.timestampType) for row in frame.collect()} == {(None, None, None)}


def test_archive_is_read_by_one_task_for_each_segment(load):
    frame = load(logs=GOLDEN_LOGS, subscribe="seg,plain,gzip,nested,snappy,emptywrap")
    assert rows(frame) == expected(GOLDEN_LOGS, "seg", "plain", "gzip", "nested", "snappy", "emptywrap")
    assert frame.rdd.getNumPartitions() == 3 + 2 + 4


def test_pattern_assignment_and_offsets(load):
    assert {row[0] for row in rows(load(logs=GOLDEN_LOGS, subscribePattern="mp-.|plain"))} == {"mp-a", "mp-b", "plain"}
    frame = load(logs=GOLDEN_LOGS, ASSIGN={"seg": ["0-0"], "plain": ["0-1"]})
    assert {row[:3] for row in rows(frame)} == {("seg", 0, 0), ("plain", 0, 1)}
    frame = load(
        logs=GOLDEN_LOGS,
        subscribe="seg",
        startingOffsets={"seg": {"0-0": 300}},
        endingOffsets={"seg": {"0-0": 501}},
    )
    assert [row[3] for row in rows(frame)] == [300, 400, 500]


def test_nothing_to_read(load):
    frame = load(logs=GOLDEN_LOGS, subscribe="empty")
    assert frame.count() == 0
    assert frame.collect() == []


def test_filtered_query_leaves_no_trace_in_the_unfiltered_one(load):
    frame = load(logs=GOLDEN_LOGS, subscribe="seg")
    assert frame.filter("offset >= 800").count() == 4
    assert frame.count() == 12
    assert frame.filter("offset < 400").count() == 4


def test_two_queries_side_by_side(spark, load):
    seg = load(logs=GOLDEN_LOGS, subscribe="seg")
    gzip = load(logs=GOLDEN_LOGS, subscribe="gzip")
    assert seg.join(gzip, seg.partition == gzip.partition).count() == 12 * 48


def test_latest_freezes_when_a_frame_is_planned(load, tmp_path):
    logs = write_messages(tmp_path, [b"a", b"b"])
    frame = load(logs=logs, subscribe="clicks")
    assert frame.count() == 2
    write_messages(tmp_path, [b"c"])
    assert frame.count() == 2
    assert load(logs=logs, subscribe="clicks").count() == 3


def test_corrupt_entry_fails_the_query(load, tmp_path):
    logs = write_messages(tmp_path, [b"x" * 90] * 100)
    [segment] = (tmp_path / "clicks-0").iterdir()
    data = bytearray(segment.read_bytes())
    data[5050] ^= 1
    segment.write_bytes(data)
    with pytest.raises(PySparkException, match="topic 'clicks', broker 0, partition 0, offset 5000: corrupt entry"):
        load(logs=logs, subscribe="clicks").count()


def test_data_loss_fails_the_query_unless_told_otherwise(load, tmp_path):
    logs = write_messages(tmp_path, [b"x" * 90] * 10)
    options = {"logs": logs, "subscribe": "clicks", "endingOffsets": {"clicks": {"0-0": 2000}}}
    with pytest.raises(AnalysisException, match="offsets 0 to 2000 are wanted, the partition has 0 to 1000"):
        load(**options).count()
    assert load(**options, failOnDataLoss="false").count() == 10


@pytest.mark.parametrize(
    "options, said",
    [
        ({"logs": GOLDEN_LOGS}, "OptionError: format kafka07 needs exactly one of the options subscribe"),
        ({"logs": GOLDEN_LOGS, "subscribe": "nothing"}, "UnknownTopicError: logs:0:.* has no topic 'nothing'"),
        ({"logs": "0:/nowhere", "subscribe": "clicks"}, "LogError: cannot list the log directory '/nowhere'"),
        ({"brokers": "0:127.0.0.1:1", "subscribe": "clicks"}, "BrokerConnectionError: .*127.0.0.1:1"),
        ({"brokers": "0:127.0.0.1:1", "subscribePattern": "c.*"}, "a static list of brokers knows no topics"),
    ],
)
def test_errors_are_one_clear_line(load, options, said):
    with pytest.raises(AnalysisException, match=said) as raised:
        load(**options).count()
    trace = [line for line in str(raised.value).splitlines() if line.startswith("  File")]
    assert len(trace) == 1


def test_schema_cannot_be_given(spark):
    frame = spark.read.format("kafka07").options(**{"kafka07.logs": GOLDEN_LOGS, "subscribe": "plain"})
    with pytest.raises(AnalysisException, match="format kafka07 has the columns struct<key:binary.*leave out .schema"):
        frame.schema("value string").load().count()
    assert frame.schema(spark_schema()).load().count() == 8


# --- live brokers


def test_live_brokers_by_list_and_by_zookeeper(load, tmp_path):
    for broker in (0, 1):
        shutil.copytree(GOLDEN / "logs", tmp_path / str(broker))
    logs = f"0:{tmp_path}/0,1:{tmp_path}/1"
    topics = ("seg", "plain", "gzip", "nested")
    with ZooKeeper() as zookeeper:
        at = {"zookeeper": zookeeper.address, "partitions": 2}
        with Broker(tmp_path / "0", 0, **at) as first, Broker(tmp_path / "1", 1, **at) as second:
            brokers = f"0:127.0.0.1:{first.port},1:127.0.0.1:{second.port}"
            for given in ({"brokers": brokers}, {"zookeeper": zookeeper.address}):
                frame = load(**given, subscribe=",".join(topics))
                assert rows(frame) == expected(logs, *topics)
                assert frame.rdd.getNumPartitions() == 2 * (3 + 2 + 1 + 1)
            with SyncProducer("127.0.0.1", second.port) as producer, open_source(brokers=brokers) as source:
                producer.send("plain", 1, [b"new"], codec="gzip")
                while source.bounds(TopicPartition("plain", 1, 1)) == (0, 26):  # nothing acknowledges a send
                    time.sleep(0.01)
                    second.flush()
            frame = load(
                zookeeper=zookeeper.address,
                assign={"plain": ["1-1"]},
                startingOffsets={"plain": {"1-1": 26}},
            )
            assert [(row[3], row[6]) for row in rows(frame)] == [(26, b"new")]


# --- sessions


def test_running_session_is_taken(spark):
    assert kafka07c.spark.session(app="another", master="local[7]") is spark
    assert spark.sparkContext.master == "local[2]"


def test_session_is_set_up_for_this_machine(spark):
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.driver.host") == conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.pythonExec == sys.executable


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


LOCAL_CLUSTER = f"""
import kafka07c.spark
spark = kafka07c.spark.session(master="local-cluster[2,1,1024]", **{{"spark.ui.enabled": "true", "spark.ui.port": "0"}})
frame = spark.read.format("kafka07").option("kafka07.logs", {GOLDEN_LOGS!r}).option("subscribe", "seg,gzip").load()
print(spark.sparkContext.uiWebUrl)
print(frame.count(), frame.rdd.getNumPartitions())
spark.stop()
"""


def test_executors_in_other_processes_and_a_host_name_that_does_not_resolve(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    done = run_python(
        LOCAL_CLUSTER, PATH="/usr/bin:/bin", HOME=str(tmp_path), JAVA_TOOL_OPTIONS=f"-Djdk.net.hosts.file={hosts}"
    )
    assert done.returncode == 0, done.stderr
    url, counts = done.stdout.splitlines()
    assert url.startswith("http://127.0.0.1:")
    assert counts == "60 4"
    javas_own = ("Picked up JAVA_TOOL_OPTIONS", "WARNING: Using incubator modules")
    assert [line for line in done.stderr.splitlines() if not line.startswith(javas_own)] == []


def test_settings_of_spark_submit_stand(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        "import kafka07c.spark\n"
        "spark = kafka07c.spark.session(app='job')\n"
        "conf = spark.sparkContext.getConf()\n"
        "print('seen', conf.get('spark.master'), conf.get('spark.app.name'), conf.get('spark.ui.port'))\n"
        "spark.stop()\n"
    )
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = ["--conf", "spark.ui.port=0", "--conf", "spark.driver.host=127.0.0.1"]
    environment = {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [submit, "--master", "local[1]", *settings, script],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)} | environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "seen local[1] job 0" in done.stdout.splitlines()


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
@pytest.mark.parametrize("call", ["session()", "register(None)"])
def test_missing_extra_is_named(missing, call):
    code = f"import sys; sys.modules[{missing!r}] = None; import kafka07c.spark; kafka07c.spark.{call}"
    done = run_python(code)
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert error.startswith("kafka07c.errors.MissingExtraError: ")
    assert "pip install 'kafka07c[spark]'" in error


# --- damage, columns, times, tasks


@pytest.fixture
def damaged(tmp_path) -> str:
    """Entries of 100 bytes; those at 5000 and 9000 are damaged."""
    logs = write_messages(tmp_path, [b"%04d" % number + b"." * 86 for number in range(100)])
    [segment] = (tmp_path / "clicks-0").iterdir()
    data = bytearray(segment.read_bytes())
    data[5050] ^= 1
    data[9050] ^= 1
    segment.write_bytes(data)
    return logs


def test_failfast_is_the_default_and_raises(load, damaged):
    with pytest.raises(PySparkException, match="partition 0, offset 5000: corrupt entry"):
        load(logs=damaged, subscribe="clicks").collect()


def test_dropmalformed_leaves_the_damaged_out(load, damaged):
    frame = load(logs=damaged, subscribe="clicks", mode="dropmalformed")
    assert [row.offset for row in frame.orderBy("offset").collect()] == [
        offset for offset in range(0, 10_000, 100) if offset not in (5000, 9000)
    ]


def test_permissive_has_a_row_for_each_damaged_stretch(load, damaged):
    frame = load(logs=damaged, subscribe="clicks", mode="PERMISSIVE")
    bad = frame.where("_corrupt is not null").orderBy("offset").collect()
    assert [(row.offset, row.next_offset, row.value, row.topic) for row in bad] == [
        (5000, 5100, None, "clicks"),
        (9000, 9100, None, "clicks"),
    ]
    assert "CRC" in bad[0]["_corrupt"]
    assert frame.count() == 100
    assert frame.where("_corrupt is null").count() == 98


def test_what_was_dropped_is_logged_with_its_size(damaged, caplog):
    with open_source(logs=damaged) as source:
        batches = record_batches(source, Range("clicks", 0, 0, 0, 10_000), mode=Mode.DROPMALFORMED)
        assert sum(batch.num_rows for batch in batches) == 98
    assert "2 damaged stretches of 200 bytes dropped; the first: topic 'clicks', broker 0, partition 0, offset 5000" in (
        caplog.text
    )


def test_columns_picks_columns_in_the_order_given(load):
    frame = load(logs=GOLDEN_LOGS, subscribe="plain", columns="next_offset, value")
    assert frame.columns == ["next_offset", "value"]
    assert sorted(frame.toArrow()["value"].to_pylist()) == sorted(row[-1] for row in expected(GOLDEN_LOGS, "plain"))
    with pytest.raises(AnalysisException, match="there is no column timestmap; there are key, value"):
        load(logs=GOLDEN_LOGS, subscribe="plain", columns="timestmap")


def test_headers_are_null_and_there_only_when_asked_for(load):
    frame = load(logs=GOLDEN_LOGS, subscribe="plain", includeHeaders="true")
    assert frame.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    assert frame.where("headers is null").count() == frame.count() > 0


def test_a_filter_and_then_the_same_frame_without_it(load):
    frame = load(logs=GOLDEN_LOGS, subscribe="plain")
    everything = frame.count()
    assert 0 < frame.where("offset > 0").count() < everything
    assert frame.count() == everything


def test_two_cores_share_one_segment_of_an_archive(load, tmp_path):
    payloads = [b"%06d" % number + b"." * 94 for number in range(400_000)]
    logs = write_messages(tmp_path, payloads)
    for options, tasks in ({}, max(1, min(os.cpu_count() or 1, 2))), ({"minPartitions": "7"}, 7):
        frame = load(logs=logs, subscribe="clicks", **options)
        assert frame.rdd.getNumPartitions() >= tasks
        found = frame.select("value").toArrow()["value"].to_pylist()
        assert sorted(found) == payloads


def test_cuts_inside_segments_are_where_entries_begin(tmp_path):
    """The payloads hold whole valid messages, so a cut that was guessed would find them."""
    inner = build_message_set([b"inside"] * 20)
    logs = write_messages(tmp_path, [inner] * 2000)
    with open_source(logs=logs) as source:
        whole = Range("clicks", 0, 0, *source.bounds(TopicPartition("clicks", 0, 0)))
        pieces = split(source, [whole], 37)
        assert len(pieces) == 37
        assert {piece.start % (len(inner) + 10) for piece in pieces} == {0}
        read = [value for piece in pieces for part in source.read(piece) for value in part.payloads()]
    assert read == [inner] * 2000


@pytest.fixture
def three_segments(tmp_path) -> tuple[str, list[int]]:
    """Segments of 10 messages that were last written to at 1000, 2000 and 3000 s; and where they start."""
    with Log(tmp_path / "clicks-0", writable=True, segment_bytes=900) as log:
        for number in range(30):
            log.append(build_message_set([b"%02d" % number + b"." * 88]))
    segments = sorted((tmp_path / "clicks-0").iterdir())
    for number, segment in enumerate(segments, 1):
        os.utime(segment, (number * 1000, number * 1000))
    assert [int(segment.stem) for segment in segments] == [0, 1000, 2000]
    return f"0:{tmp_path}", [0, 1000, 2000]


@pytest.mark.parametrize(
    "options, offsets",
    [
        ({"startingTimestamp": "500000"}, (0, 3000)),  # all is younger
        ({"startingTimestamp": "1000000"}, (0, 3000)),
        ({"startingTimestamp": "2500000"}, (1000, 3000)),  # a lower bound: the segment written to up to 2000 s comes along
        ({"startingTimestamp": "3500000"}, (2000, 3000)),
        ({"endingTimestamp": "500000"}, None),
        ({"endingTimestamp": "2500000"}, (0, 2000)),
        ({"endingTimestamp": "3500000"}, (0, 3000)),
        ({"startingOffsetsByTimestamp": {"clicks": {"0-0": 2000000}}}, (1000, 3000)),
        ({"endingOffsetsByTimestamp": {"clicks": {"0-0": 1000000}}}, (0, 1000)),
        ({"startingTimestamp": "2500000", "startingOffsets": "earliest"}, (1000, 3000)),
        ({"startingTimestamp": "99999999999999", "startingOffsetsByTimestampStrategy": "latest"}, None),
    ],
)
def test_times_are_those_of_segments(load, three_segments, options, offsets):
    logs, _ = three_segments
    found = [row.offset for row in load(logs=logs, subscribe="clicks", **options).orderBy("offset").collect()]
    assert found == (list(range(*offsets, 100)) if offsets else [])


def test_a_time_after_all_there_is_says_so(load, three_segments):
    with pytest.raises(PySparkException, match="nothing here is from 99999999999999 ms since 1970 or later"):
        load(logs=three_segments[0], subscribe="clicks", startingTimestamp="99999999999999").count()
    with pytest.raises(AnalysisException, match="startingTimestamp is 'noon': expected milliseconds since 1970"):
        load(logs=three_segments[0], subscribe="clicks", startingTimestamp="noon")
