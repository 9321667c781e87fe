"""The main job on a real 0.7 cluster: ``kafka07c ingest`` by ZooKeeper, run again, and from the log directories."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow.parquet as pq
from interop.scala07 import ConsoleProducer, wait_until
from interop.test_wire import CODECS, lines, read_all

from kafka07c.cluster import Cluster
from kafka07c.simple import SyncProducer


def kafka07c(*arguments):
    command = [sys.executable, "-c", "from kafka07c.cli import main; raise SystemExit(main())", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def ingest(out, *source):
    done = kafka07c("ingest", *source, "--topic", "clicks", "--out", out, "--json", "--master", "local[2]")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return sum(partition["messages"] for partition in report["partitions"])


def rows(out):
    """(broker, partition, offset, index) and value of all that a reader sees in the folder."""
    table = pq.read_table(out, columns=["broker", "partition", "offset", "index", "value"])
    found = {(row["broker"], row["partition"], row["offset"], row["index"]): row["value"] for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return found


def test_ingest_from_a_real_cluster(real_broker, zookeeper, jvm, tmp_path):
    text = [f"console {n} ☃".encode() for n in range(300)]
    sent = []

    def send(brokers, seed):
        for broker in brokers:
            with SyncProducer(broker.host, broker.port) as producer:
                for number in range(9):
                    payloads = lines(seed + number, 60)
                    producer.send("clicks", number % 3, payloads, CODECS[number % 3])
                    sent.extend(payloads)

    brokers = [real_broker(zookeeper, broker_id=n, num_partitions=3, log_file_size=100_000) for n in (0, 1)]
    with brokers[0], brokers[1], ConsoleProducer(jvm, zookeeper, "clicks", "--sync") as console:
        console.send(text)
        sent.extend(text)
        send(brokers, 1)
        cluster = Cluster(zookeeper=zookeeper)

        def all_written():
            cluster.refresh()
            number = 0
            for tp in cluster.partitions("clicks"):
                with cluster.connect(tp.broker) as consumer:
                    number += len(read_all(consumer, "clicks", tp.partition))
            return number == len(sent)

        wait_until(all_written, "all messages")
        assert ingest(tmp_path / "out", "--zookeeper", zookeeper) == len(sent)
        assert sorted(rows(tmp_path / "out").values()) == sorted(sent)

        before = len(sent)
        send(brokers[1:], 100)
        wait_until(all_written, "what was sent later")
        assert ingest(tmp_path / "out", "--zookeeper", zookeeper) == len(sent) - before
        for broker in brokers:
            broker.stop()

    logs = ",".join(f"{number}:{broker.log_dir}" for number, broker in enumerate(brokers))
    assert ingest(tmp_path / "from-logs", "--logs", logs) == len(sent)
    assert rows(tmp_path / "from-logs") == rows(tmp_path / "out")
    assert sorted(rows(tmp_path / "out").values()) == sorted(sent)
