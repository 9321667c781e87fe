"""Our source beside Spark's own Kafka source and a real Kafka of today: the same rows, from live brokers, on two cores.

    make bench-spark-kafka KAFKA_JARS=… SPARK_KAFKA_JARS=…

``KAFKA_JARS``: a folder of jars with a Kafka broker (org.apache.kafka:kafka_2.13 and what it needs at run time), and
``SPARK_KAFKA_JARS``: one with Spark's source (org.apache.spark:spark-sql-kafka-0-10_2.13 and the same of it), as
``mvn dependency:copy-dependencies -DincludeScope=runtime`` puts them together. They stay outside of the project.

Rows have 139 bytes; the column is the value. Each way has a driver of its own, and they take turns; Spark's source is
measured with its defaults and tuned, and the better one counts. Memory is the peak of what a driver and all processes
below it hold (proportional set size), without the brokers.
"""

from __future__ import annotations

import base64
import json
import statistics
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from bench.spark_rows import SIZE, Ratio, Rows, parser, told
from kafka07c.java import java_command
from kafka07c.testing import free_ports, start_process

CORES = 2
TOPIC = "two"

#: what makes Spark's source faster
TUNED = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(32 << 20),
    "kafka.receive.buffer.bytes": "-1",
}

_BROKER = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""

RATIOS = [
    Ratio("to noop: ours : Spark's Kafka source", "ours to noop", "theirs to noop", 1.5),
    Ratio("to Parquet: ours (ingest) : Spark's Kafka source", "ours to Parquet", "theirs to Parquet", 4),
]


class Kafka:
    """One broker of today, from jars, in a folder; a context manager."""

    def __init__(self, jars: Path, folder: Path):
        self._java = [str(java_command()), "-Xmx1g", "-cp", f"{jars}/*"]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Kafka:
        self._folder.mkdir()
        self.port, controller = free_ports(2)
        settings = self._folder / "server.properties"
        settings.write_text(
            _BROKER.format(port=self.port, controller=controller, folder=self._folder, partitions=CORES)
        )
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        form = ["kafka.tools.StorageTool", "format", "-t", identity, "-c", str(settings)]
        with (self._folder / "kafka.log").open("wb") as log:
            subprocess.run([*self._java, *form], check=True, stdout=log, stderr=log)
            self._process = start_process([*self._java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Driver:
    """A Spark of its own, in a process of its own: see `serve`."""

    def __init__(self, spec: dict[str, Any]):
        command = [sys.executable, "-m", "bench.spark_kafka", "--driver", json.dumps(spec)]
        self._process = start_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, work: str) -> tuple[float, int]:
        """Seconds that it took, and the peak of memory in bytes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{work}\n")
        self._process.stdin.flush()
        peak, over = [0], threading.Event()
        watcher = threading.Thread(target=self._watch, args=(peak, over))
        watcher.start()
        try:
            answer = self._process.stdout.readline()
        finally:
            over.set()
            watcher.join()
        if not answer:
            raise SystemExit(f"the driver ended while it was to do {work!r}")
        return float(answer), peak[0]

    def _watch(self, peak: list[int], over: threading.Event) -> None:
        while not over.wait(0.1):
            peak[0] = max(peak[0], sum(map(held, family(self._process.pid))))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def family(pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def held(pid: int) -> int:
    """Its proportional set size in bytes: what several share counts once."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def serve(spec: dict[str, Any]) -> None:
    """The driver's side: does what it is told, a line each, and answers with the seconds."""
    import kafka07c.spark
    from kafka07c.ranges import open_source
    from kafka07c.spark.ingest import ingest

    jars = ",".join(str(path) for path in sorted(Path(spec["jars"]).glob("*.jar"))) if spec["jars"] else ""
    spark = kafka07c.spark.session(
        app="bench", master=f"local[{CORES}]", **({"spark.jars": jars} if jars else {})
    )

    def ours() -> Any:
        read = spark.read.format("kafka07").option("kafka07.brokers", spec["brokers"])
        return read.option("subscribe", TOPIC).option("columns", "value").load()

    def theirs() -> Any:
        read = spark.read.format("kafka").options(**spec["options"])
        return read.option("kafka.bootstrap.servers", spec["kafka"]).option("subscribe", TOPIC).load().select("value")

    def fill() -> None:
        written = ours().write.format("kafka").option("kafka.bootstrap.servers", spec["kafka"])
        written.option("topic", TOPIC).option("kafka.linger.ms", "20").option("kafka.batch.size", "65536").save()
        assert theirs().count() == spec["rows"]

    def to_noop() -> None:
        (theirs() if jars else ours()).write.format("noop").mode("overwrite").save()

    def to_parquet() -> None:
        out = Path(spec["out"])
        if jars:
            theirs().write.mode("overwrite").option("compression", "snappy").parquet(str(out))
            return
        with open_source(brokers=spec["brokers"]) as source:
            report = ingest(source, [TOPIC], out, spark=spark)
        assert sum(each.messages for each in report.partitions) == spec["rows"]

    works = {"fill": fill, "noop": to_noop, "parquet": to_parquet}
    for line in sys.stdin:
        subprocess.run(["rm", "-rf", spec["out"]], check=True)
        began = time.perf_counter()
        works[line.strip()]()
        print(time.perf_counter() - began, flush=True)


def main() -> None:
    made = parser(__doc__, 3_000_000)
    made.add_argument("--kafka-jars", type=Path)
    made.add_argument("--source-jars", type=Path)
    made.add_argument("--driver", help="for internal use")
    options = made.parse_args()
    if options.driver:
        return serve(json.loads(options.driver))
    if not all(path is not None and path.name and path.is_dir() for path in (options.kafka_jars, options.source_jars)):
        made.error("two folders of jars are needed: see KAFKA_JARS and SPARK_KAFKA_JARS in --help")
    with Rows(options.rows, {TOPIC: CORES}) as rows, Kafka(options.kafka_jars, rows.folder / "kafka") as kafka:
        spec = {
            "jars": "", "brokers": rows.live["kafka07.brokers"], "kafka": f"127.0.0.1:{kafka.port}",
            "rows": rows.rows, "out": str(rows.folder / "ours"), "options": {},
        }  # fmt: skip
        theirs = {"jars": str(options.source_jars.absolute()), "out": str(rows.folder / "theirs")}
        specs = {
            "ours": spec,
            "theirs, defaults": spec | theirs,
            "theirs, tuned": spec | theirs | {"options": TUNED},
        }
        filler = Driver(specs["theirs, defaults"])
        filler.do("fill")
        filler.close()
        times, peaks = measure(specs, options.turns)
    for work in ("noop", "Parquet"):
        names = [f"theirs, {way} to {work}" for way in ("defaults", "tuned")]
        times[f"theirs to {work}"] = min((times[name] for name in names), key=statistics.median)
    if not options.json:
        print(f"{rows.rows:,} rows of {SIZE} bytes, {CORES} cores, medians of {options.turns} interleaved runs\n")
    told(RATIOS, times, dict.fromkeys(times, rows.rows), options.json)
    tell_memory(peaks, options.json)


def measure(specs: dict[str, dict[str, Any]], turns: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Seconds, in turns, the first of which does not count; and the peaks of memory. New drivers for each work."""
    times: dict[str, list[float]] = {}
    peaks: dict[str, int] = {}
    for work, name in (("noop", "noop"), ("parquet", "Parquet")):
        drivers = {who: Driver(spec) for who, spec in specs.items()}
        try:
            for turn in range(turns + 1):
                for who, driver in drivers.items():
                    seconds, peak = driver.do(work)
                    peaks[f"{who} to {name}"] = max(peak, peaks.get(f"{who} to {name}", 0))
                    if turn:
                        times.setdefault(f"{who} to {name}", []).append(seconds)
        finally:
            for driver in drivers.values():
                driver.close()
    return times, peaks


def tell_memory(peaks: dict[str, int], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"peak bytes": peaks}))
        return
    print()
    for name, peak in peaks.items():
        print(f"{name:44}{peak / 2**20:8.0f} MiB at most")
    theirs = min(peaks[f"theirs, {way} to Parquet"] for way in ("defaults", "tuned"))
    print(f"to Parquet, in no more memory: {'met' if peaks['ours to Parquet'] <= theirs else 'MISSED'}")


if __name__ == "__main__":
    main()
