"""A job on a cluster: reads a topic, archives it, writes it to another one; what came of it as JSON on stdout.

driver.py MASTER BROKERS FOLDER [SETTING=VALUE…]. Its workers find kafka07c where PYSPARK_PYTHON does.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import kafka07c.spark


def where(rows):
    """Which kafka07c an executor's Python has."""
    import os
    import time

    import kafka07c

    for _ in rows:
        pass
    time.sleep(2)  # so that one executor does not take both tasks
    yield os.path.realpath(kafka07c.__file__), os.path.realpath(os.getcwd())


def main(master: str, brokers: str, folder: Path, *settings: str) -> None:
    conf = {"spark.executor.memory": "512m"} | dict(each.split("=", 1) for each in settings)
    spark = kafka07c.spark.session(app="cluster", master=master, **conf)
    while len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) < 3:  # the driver counts as one
        time.sleep(0.1)
    read = {"kafka07.brokers": brokers, "subscribe": "clicks"}
    frame = spark.read.format("kafka07").options(**read).load()
    found = {
        "places": spark.sparkContext.parallelize(range(2), 2).mapPartitions(where).collect(),
        "batch": frame.selectExpr("count(*)", "count(distinct value)", "sum(crc32(value))").first(),
    }

    query = kafka07c.spark.archive(read, folder / "archive", spark=spark, trigger={"availableNow": True})
    query.awaitTermination()
    archived = spark.read.parquet(str(folder / "archive"))
    found["archive"] = archived.selectExpr("count(*)", "count(distinct value)", "sum(crc32(value))").first()

    stream = spark.readStream.format("kafka07").options(**read, startingOffsets="earliest").load()
    sink = (
        stream.select("value")
        .writeStream.format("kafka07")
        .options(**{"kafka07.brokers": brokers}, topic="copies", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    sink.awaitTermination()
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
