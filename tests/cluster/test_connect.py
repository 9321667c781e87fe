"""Source and sink over Spark Connect, with a server of its own; what needs the driver says so."""

from __future__ import annotations

import sys
import time

import pytest
from cluster.conftest import SENT, stored
from cluster.standalone import SPARK_HOME, Server

import kafka07c.spark
from kafka07c.metrics import Metrics
from kafka07c.ranges import open_source
from kafka07c.spark.ingest import ingest

EVERYTHING = [value for values in SENT for value in values]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """A session with a Connect server in a process of its own."""
    folder = tmp_path_factory.mktemp("connect")
    settings = {
        "spark.connect.grpc.binding.port": 0, "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false",
    }  # fmt: skip
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    service = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"]
    command = [SPARK_HOME / "bin" / "spark-submit", *service, *conf, "spark-internal"]
    server = Server(command, folder / "server.log", {"PYSPARK_PYTHON": sys.executable})
    try:
        port = server.said(r"Spark Connect server started at: \S*:(\d+)")
        spark = kafka07c.spark.session(master=f"sc://127.0.0.1:{port}")
        yield spark
        spark.stop()
    finally:
        server.stop()


def test_source_sink_bar_and_figures(spark, brokers, tmp_path, capsys):
    read = {"kafka07.brokers": brokers, "subscribe": "clicks"}
    frame = spark.read.format("kafka07").options(**read).load()
    assert sorted(frame.select("value").toArrow()["value"].to_pylist()) == sorted(EVERYTHING)

    metrics = Metrics()
    listener = kafka07c.spark.add_metrics(spark, metrics)
    stream = spark.readStream.format("kafka07").options(**read, startingOffsets="earliest").load()
    query = (
        stream.select("value")
        .writeStream.format("kafka07")
        .queryName("copying")
        .options(**{"kafka07.brokers": brokers}, topic="copies", checkpointLocation=str(tmp_path / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    assert kafka07c.spark.watch(query, timeout=1.0) is False
    assert "clicks 0-1" in capsys.readouterr().out
    while metrics.snapshot().get("StreamingQuery.Rows{query=copying}") != len(EVERYTHING):
        time.sleep(0.1)
    query.stop()
    spark.streams.removeListener(listener)
    assert sorted(set(stored(brokers, "copies"))) == sorted(EVERYTHING)


def test_what_needs_the_driver_says_so(spark, brokers, tmp_path):
    with pytest.raises(ValueError, match=r"archive\(\) commits from the driver's own process.*Spark Connect"):
        kafka07c.spark.archive({"kafka07.brokers": brokers, "subscribe": "clicks"}, tmp_path / "out", spark=spark)
    with open_source(brokers=brokers) as source:
        with pytest.raises(ValueError, match=r"ingest\(\) commits from the driver's own process"):
            ingest(source, ["clicks"], tmp_path / "out", spark=spark)
    assert not list(tmp_path.glob("out/*.parquet"))
