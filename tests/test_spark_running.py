"""Around a query: discovery by Spark, figures, the bar."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kafka07c.spark
from kafka07c._build import build_message_set
from kafka07c.java import java_home
from kafka07c.metrics import Metrics
from kafka07c.segments import Log

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def spark():
    spark = kafka07c.spark.session(app="tests of running", master="local[2]")
    yield spark
    spark.stop()


def fill(tmp_path: Path, count: int = 1000) -> dict[str, str]:
    with Log(tmp_path / "logs" / "clicks-0", writable=True) as log:
        for start in range(0, count, 100):
            log.append(build_message_set([b"%08d" % number for number in range(start, start + 100)]))
    return {"kafka07.logs": f"0:{tmp_path / 'logs'}", "subscribe": "clicks", "startingOffsets": "earliest"}


DISCOVERY = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("kafka07").option("kafka07.logs", sys.argv[1]).option("subscribe", "clicks").load()
print("rows:", frame.count())
"""


def test_spark_finds_the_source_by_itself(tmp_path):
    """With a session that nobody has registered anything with; the package is found by the name of its module."""
    options = fill(tmp_path)
    environment = os.environ | {
        "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-c", DISCOVERY, options["kafka07.logs"]],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert "rows: 1000" in ended.stdout, ended.stderr[-3000:]


def start(spark, tmp_path, options, name="reports"):
    return (
        spark.readStream.format("kafka07")
        .options(**options)
        .load()
        .writeStream.format("noop")
        .queryName(name)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )


def test_figures_of_a_query_are_those_of_a_consumer(spark, tmp_path):
    metrics = Metrics()
    listener = kafka07c.spark.add_metrics(spark, metrics)
    query = start(spark, tmp_path, fill(tmp_path))
    labels = "{broker=0,group=reports,partition=0,topic=clicks}"
    try:
        query.processAllAvailable()
        while metrics.snapshot().get("StreamingQuery.Rows{query=reports}") != 1000:
            time.sleep(0.05)  # the listener is called a moment later
        figures = metrics.snapshot()
        assert figures[f"ConsumerStats.ConsumedOffset{labels}"] == 18_000
        assert figures[f"ConsumerStats.LatestOffset{labels}"] == 18_000
        assert figures[f"ConsumerStats.OffsetLag{labels}"] == 0
        assert figures["StreamingQuery.Batches{query=reports}"] >= 2
    finally:
        query.stop()
        while any("OffsetLag" in name for name in metrics.snapshot()):
            time.sleep(0.05)  # gone with the query
        spark.streams.removeListener(listener)


def test_a_bar_until_the_query_ends(spark, tmp_path, capsys):
    pytest.importorskip("rich")
    query = start(spark, tmp_path, fill(tmp_path), "bar")
    query.processAllAvailable()
    assert kafka07c.spark.watch(query, timeout=1.0) is False
    query.stop()
    assert kafka07c.spark.watch(query) is True
    assert "clicks 0-0" in capsys.readouterr().out


def test_names_that_are_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'archives'"):
        kafka07c.spark.archives
    assert callable(kafka07c.spark.archive)
