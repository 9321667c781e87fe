"""What planning costs the driver with very many partitions: ``python -m bench.planning [PARTITIONS]``.

Log folders of a hundred partitions a topic with two small segments each, read as archives and from three brokers in
processes of their own; then one manifest of all of them. docs/scale.md has the figures.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from kafka07c._build import build_message_set
from kafka07c.spark.manifest import DataFile, LastEntry, Manifest, PartitionRun, data_file_name, read_manifest
from kafka07c.spark.options import parse
from kafka07c.spark.reader import Kafka07Reader
from kafka07c.spark.stream import Kafka07StreamReader

BROKERS = 3
OF_A_TOPIC = 100

BROKER = """
import sys
from kafka07c.broker import Broker
with Broker(sys.argv[1], broker_id=int(sys.argv[2]), partitions=100) as broker:
    print(broker.port, flush=True)
    sys.stdin.read()
"""

_R = TypeVar("_R")


def timed(what: str, call: Callable[[], _R]) -> _R:
    began, cpu = time.perf_counter(), time.process_time()
    result = call()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(f"  {what:44} {seconds:7.2f} s, of them {cpu:7.2f} s at work here", flush=True)
    return result


def fill(folder: Path, partitions: int) -> None:
    """Broker folders ``0``, ``1``, ``2``; each topic's partitions lie on one of them."""
    segment = bytes(build_message_set([b"x" * 130] * 20))
    for number in range(partitions):
        topic, partition = divmod(number, OF_A_TOPIC)
        log = folder / str(topic % BROKERS) / f"topic{topic:04d}-{partition}"
        log.mkdir(parents=True)
        (log / f"{0:020d}.kafka").write_bytes(segment)
        (log / f"{len(segment):020d}.kafka").write_bytes(segment)
    for broker in range(BROKERS):
        (folder / str(broker) / ".kafka_cleanshutdown").touch()


def plan(options: dict[str, str]) -> None:
    """Batch and stream, as Spark asks for them; tasks pickled as Spark gets them."""
    reader = Kafka07Reader(parse(options))
    tasks = timed("batch: partitions()", reader.partitions)
    sizes = [len(pickle.dumps(task)) for task in tasks]
    print(f"  {len(tasks)} tasks of {sum(sizes) // len(sizes)} bytes")
    stream = Kafka07StreamReader(parse({**options, "startingOffsets": "earliest"}, streaming=True))
    begin = timed("stream: first latestOffset()", lambda: stream.latestOffset({}, ReadAllAvailable()))
    end = timed("stream: latestOffset()", lambda: stream.latestOffset(begin, ReadAllAvailable()))
    timed("stream: partitions()", lambda: stream.partitions(begin, end))
    half = 3000 * len(tasks) // 2  # about half of what there is
    timed("stream: latestOffset() with a limit", lambda: stream.latestOffset(begin, ReadMaxBytes(half)))
    timed("stream: reportLatestOffset()", stream.reportLatestOffset)
    print(f"  {len(json.dumps(end))} bytes of offsets in the checkpoint")
    stream.stop()


def of_archives(folder: Path) -> None:
    print("archives")
    logs = ",".join(f"{broker}:{folder / str(broker)}" for broker in range(BROKERS))
    plan({"kafka07.logs": logs, "subscribePattern": "topic.*"})


def of_brokers(folder: Path) -> None:
    print(f"{BROKERS} brokers (assigned, since without ZooKeeper they cannot be asked for topics)")
    there: dict[str, list[str]] = {}
    for broker in range(BROKERS):
        for log in (folder / str(broker)).glob("topic*"):
            topic, _, partition = log.name.rpartition("-")
            there.setdefault(topic, []).append(f"{broker}-{partition}")
    command = [sys.executable, "-c", BROKER]
    running = [
        subprocess.Popen(
            [*command, str(folder / str(broker)), str(broker)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for broker in range(BROKERS)
    ]
    try:
        ports = [int(process.stdout.readline()) for process in running if process.stdout]
        brokers = ",".join(f"{broker}:127.0.0.1:{port}" for broker, port in enumerate(ports))
        plan({"kafka07.brokers": brokers, "assign": json.dumps(there)})
    finally:
        for process in running:
            process.communicate()


def manifest(partitions: int) -> None:
    print("a manifest with one file for each partition")
    runs = []
    for number in range(partitions):
        topic, partition = divmod(number, OF_A_TOPIC)
        start, end = 10**9, 2 * 10**9
        name = data_file_name(f"topic{topic:04d}", 0, partition, start, end)
        file = DataFile(name, "00000007-a7c2/0123456789abcdef.staged", start, end, rows=10**7, bytes=10**8)
        last = LastEntry(2 * 10**9 - 139, 2 * 10**9, 305419896)
        runs.append(
            PartitionRun(
                topic=f"topic{topic:04d}", broker=0, partition=partition, start=10**9, end=2 * 10**9, messages=10**7,
                bytes=10**9, last=last, corrupt=(), complete=True, reason=None, files=(file,),
            )  # fmt: skip
        )
    made = Manifest(7, "2026-01-31T12:00:00Z", "zookeeper:10.0.0.1:2181", "stop", tuple(runs))
    data = timed("encoded", made.to_json)
    timed("read", lambda: read_manifest(data, 7, "here"))
    print(f"  {len(data)} bytes")


def main() -> None:
    partitions = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory(prefix="kafka07c-planning-") as place:
        fill(Path(place), partitions)
        of_archives(Path(place))
        of_brokers(Path(place))
    manifest(partitions)


if __name__ == "__main__":
    main()
