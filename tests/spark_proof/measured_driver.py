"""A driver for :mod:`spark_proof.memory`: for each line on standard input it takes in what there is, and tells what it
and the processes below it hold then.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import kafka07c.spark
from spark_proof import processes
from spark_proof.driver import START


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    spark = kafka07c.spark.session(app="memory", master=spec["master"])
    queries = [START[kind](spark, spec) for kind in spec["kinds"]]
    for _ in sys.stdin:
        time.sleep(0.2)  # the broker flushes after 50 ms: what is not flushed is in the next batch
        for query in queries:
            query.processAllAvailable()
        print(json.dumps(_held(spark)), flush=True)
    for query in queries:
        query.stop()


def _held(spark: SparkSession) -> dict[str, int]:
    jvm = spark.sparkContext._jvm
    jvm.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    me = os.getpid()
    held = {
        "java, heap after a collection": runtime.totalMemory() - runtime.freeMemory(),
        "driver's Python": processes.Process(me, 0, "").rss,
    }
    held["planners' Python, the largest"] = max((each.rss for each in processes.planners(me)), default=0)
    held["workers' Python, the largest"] = max((each.rss for each in processes.workers(me)), default=0)
    return held


if __name__ == "__main__":
    main()
