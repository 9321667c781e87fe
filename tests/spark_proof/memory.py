"""What a query's processes hold, batch after batch: that it does not grow."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
from faults.soak import table
from faults.stage import BrokerStage, StageError

from kafka07c import SyncProducer
from kafka07c.testing import ZooKeeper
from spark_proof.messages import payloads

#: rows in one batch
ROWS = 20_000

#: what a process may have grown by between the second fifth of the batches and the last: Python's allocator and
#: Java's class loading are not done at once
_ALLOWED = 24 << 20
_ALLOWED_PART = 0.1


@dataclass
class Growth:
    """Bytes after each batch, by what holds them: RSS of processes, and Java's heap after a collection."""

    bytes: dict[str, list[int]] = field(default_factory=dict)

    def bounds(self, name: str) -> tuple[int, int]:
        """The medians of the second fifth and of the last."""
        held = self.bytes[name]
        fifth = len(held) // 5
        return round(statistics.median(held[fifth : 2 * fifth])), round(statistics.median(held[-fifth:]))

    def is_flat(self, name: str) -> bool:
        early, late = self.bounds(name)
        return late - early <= max(_ALLOWED, early * _ALLOWED_PART)

    @property
    def ok(self) -> bool:
        return bool(self.bytes) and all(map(self.is_flat, self.bytes))

    def table(self) -> str:
        rows = {}
        for name in self.bytes:
            early, late = (f"{held / 2**20:.1f}" for held in self.bounds(name))
            rows[name] = {"batches": len(self.bytes[name]), "early MiB": early, "late MiB": late}
            rows[name]["flat"] = "yes" if self.is_flat(name) else "NO"
        return table(rows, ("batches", "early MiB", "late MiB", "flat"))

    def as_dict(self) -> dict[str, list[int]]:
        return asdict(self)["bytes"]


def watch_memory(zookeeper: ZooKeeper, batches: int, seed: int) -> Growth:
    """A driver with a stream to Parquet and an archive, fed batch by batch; it tells what it holds after each."""
    with BrokerStage(zookeeper, f"memory-{seed}", seed=seed, brokers=1, partitions=2) as stage:
        spec = {
            "zookeeper": stage.zookeeper, "topic": "clicks", "folder": str(stage.folder),
            "kinds": ["parquet", "archive"], "max_bytes": 1 << 30, "master": "local[2]", "last": False,
        }  # fmt: skip
        path = stage.folder / "spec.json"
        path.write_text(json.dumps(spec))
        command = [sys.executable, "-m", "spark_proof.measured_driver", str(path)]
        driver = stage.start("driver", command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        growth = Growth()
        with SyncProducer("127.0.0.1", stage.brokers[0].port) as producer:
            for number in range(batches):
                rows = payloads(number * ROWS, ROWS)
                column = pa.array([row.tobytes() for row in rows], pa.binary())
                for partition in range(2):
                    producer.send("clicks", partition, column.slice(partition * ROWS // 2, ROWS // 2))
                driver.stdin.write("go\n")
                driver.stdin.flush()
                line = driver.stdout.readline()
                if not line:
                    raise StageError(f"the driver ended in batch {number}:\n{stage.told('driver')}")
                for name, held in json.loads(line).items():
                    growth.bytes.setdefault(name, []).append(held)
        driver.stdin.close()
        driver.wait(60)
    return growth
