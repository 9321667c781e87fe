"""A driver as a process of its own: ``python -m spark_proof.driver SPEC.json`` runs queries until it is killed.

The spec: ``zookeeper``, ``topic`` to read, ``copy`` (the topic that the sink writes), ``folder`` for what comes out and
for checkpoints, ``kinds`` (of the queries, see `START`), ``max_bytes`` a batch, ``master``, ``last``: end with what is
there now. Lines ``begun`` and ``ended`` say that this happened to the first batch of each query.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import kafka07c.spark

Spec = dict[str, Any]


def _options(spec: Spec) -> dict[str, str]:
    return {
        "kafka07.zookeeper": spec["zookeeper"], "subscribe": spec["topic"], "startingOffsets": "earliest",
        "maxBytesPerTrigger": str(spec["max_bytes"]),
    }  # fmt: skip


def _values(spark: SparkSession, spec: Spec) -> DataFrame:
    return spark.readStream.format("kafka07").options(**_options(spec), columns="value").load()


def parquet(spark: SparkSession, spec: Spec) -> StreamingQuery:
    """Through Spark's own Parquet sink."""
    writer = _values(spark, spec).writeStream.format("parquet")
    folder = Path(spec["folder"])
    writer = writer.option("path", str(folder / "parquet")).option("checkpointLocation", str(folder / "parquet-state"))
    return _start(writer, spec)


def topic(spark: SparkSession, spec: Spec) -> StreamingQuery:
    """Back into 0.7."""
    writer = _values(spark, spec).writeStream.format("kafka07").option("kafka07.zookeeper", spec["zookeeper"])
    writer = writer.option("topic", spec["copy"])
    return _start(writer.option("checkpointLocation", str(Path(spec["folder"], "topic-state"))), spec)


def archive(spark: SparkSession, spec: Spec) -> StreamingQuery:
    """Into a folder with manifests."""
    trigger = {"availableNow": True} if spec["last"] else None
    return kafka07c.spark.archive(_options(spec), Path(spec["folder"], "archive"), spark=spark, trigger=trigger)


def _start(writer: Any, spec: Spec) -> StreamingQuery:
    return (writer.trigger(availableNow=True) if spec["last"] else writer).start()


START = {"parquet": parquet, "archive": archive, "topic": topic}


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    spark = kafka07c.spark.session(app="proof", master=spec["master"])
    queries = [START[kind](spark, spec) for kind in spec["kinds"]]
    to_tell = [("begun", _has_begun), ("ended", _has_ended)]
    while any(query.isActive for query in queries):
        for query in queries:
            if (error := query.exception()) is not None:
                raise error
        while to_tell and all(map(to_tell[0][1], queries)):
            print(to_tell.pop(0)[0], flush=True)
        time.sleep(0.05)
    for query in queries:
        query.awaitTermination()
    spark.stop()


def _has_begun(query: StreamingQuery) -> bool:
    return bool(query.status["isTriggerActive"]) or _has_ended(query)


def _has_ended(query: StreamingQuery) -> bool:
    progress = query.lastProgress
    return progress is not None and progress["batchDuration"] > 0


if __name__ == "__main__":
    main()
