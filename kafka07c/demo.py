"""``make demo``: the whole way, on real bytes, checked at its end.

A real ZooKeeper and two embedded brokers as processes of their own, with three partitions each. Events made from every
line of the Python library's source are sent to both brokers, a third of them plain, a third gzip, a third snappy; then
``kafka07c ingest`` writes Parquet; then the Parquet is read as anybody would read it and compared with what was sent.
Ends with 0 only if every event is there exactly once, in the partition that it was sent to.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from kafka07c.cli.output import table
from kafka07c.cluster import Cluster
from kafka07c.errors import KafkaError
from kafka07c.names import TopicPartition
from kafka07c.ranges import Range, open_source
from kafka07c.simple import SyncProducer
from kafka07c.testing import ZooKeeper, start_process

__all__ = ["Tally", "differences", "main", "python_events"]

TOPIC = "events"
BROKERS = 2
PARTITIONS = 3
CODECS = ("none", "gzip", "snappy")
EVENTS = 1_000_000
#: events in one produce request, which is one wrapper when compressed
BATCH = 500
#: seconds for the brokers to flush what they were sent
VISIBLE_TIMEOUT = 60.0
STOP_TIMEOUT = 20.0


@dataclass
class Tally:
    """What was sent, or what was read: per partition a count, and a digest that does not depend on the order.

    The digest is the sum, modulo 2**128, of a 128-bit hash of each event with its partition. In an exclusive or, an
    event that is there twice would cancel itself; in a sum it does not.
    """

    counts: Counter[TopicPartition] = field(default_factory=Counter)
    digests: defaultdict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, tp: TopicPartition, payloads: list[bytes]) -> None:
        key = str(tp).encode()
        total = sum(int.from_bytes(blake2b(payload, digest_size=16, key=key).digest(), "big") for payload in payloads)
        self.counts[tp] += len(payloads)
        self.digests[tp] = (self.digests[tp] + total) % (1 << 128)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kafka07c.demo", description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=EVENTS, metavar="N", help=f"how many (default {EVENTS:,})")
    parser.add_argument("--dir", type=Path, default=Path("demo"), help="where to put logs and Parquet (default: demo)")
    args = parser.parse_args(argv)
    began = time.perf_counter()
    folder = _new_folder(args.dir)
    parquet = folder / "parquet"
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper()).address
        _say(f"ZooKeeper {zookeeper}")
        for broker in range(BROKERS):
            address = stack.enter_context(_broker(broker, folder / f"broker{broker}", zookeeper))
            _say(f"broker {broker} {address}, {PARTITIONS} partitions per topic")
        sent = _send(zookeeper, args.events)
        _wait_until_visible(zookeeper, sent)
        command = [sys.executable, "-m", "kafka07c", "ingest", "--zookeeper", zookeeper, "--topic", TOPIC]
        _say("$ kafka07c " + " ".join([*command[3:], "--out", str(parquet)]))
        subprocess.run([*command, "--out", str(parquet)], check=True)
    wrong = _check(parquet, sent, args.events)
    _say(f"{time.perf_counter() - began:.0f} s in all")
    if wrong:
        print("\n".join(["", *wrong, "The Parquet does not hold what was sent."]), file=sys.stderr)
        return 1
    _say(f"All {args.events:,} events are there, each exactly once. The Parquet lies in {parquet}, the logs beside it.")
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


def _new_folder(parent: Path) -> Path:
    """``run-N``, the next after those that are there, which are removed: a run takes a few hundred megabytes."""
    before = {int(path.name[4:]): path for path in parent.glob("run-*") if re.fullmatch("run-[1-9][0-9]{0,8}", path.name)}
    folder = parent / f"run-{max(before, default=0) + 1}"
    folder.mkdir(parents=True)
    for path in before.values():
        shutil.rmtree(path, ignore_errors=True)
    return folder


@contextmanager
def _broker(broker: int, log_dir: Path, zookeeper: str) -> Iterator[str]:
    """``kafka07c broker`` as a process; gives its address once it listens."""
    command = [sys.executable, "-m", "kafka07c", "broker", "--log-dir", str(log_dir), "--id", str(broker), "--port=0"]
    command += ["--partitions", str(PARTITIONS), "--zookeeper", zookeeper]
    # a small segment size, so that there are several per partition; flushed soon, so that the end comes into sight
    command += [f"--property=log.file.size={8 << 20}", "--property=log.default.flush.interval.ms=500"]
    with open(log_dir.with_suffix(".log"), "wb") as log:
        process = start_process(command, stdout=subprocess.PIPE, stderr=log)
        assert process.stdout is not None  # a PIPE
        try:
            address = process.stdout.readline().decode().strip()
            if not address:
                raise KafkaError(f"broker {broker} did not start: {Path(log.name).read_text().strip()}")
            yield address
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


# --- sending ------------------------------------------------------------------------------------------------------


def python_events() -> Iterator[bytes]:
    """Every line of every ``.py`` file of the interpreter's library as JSON, over and over again."""
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(path for path in library.rglob("*.py") if "site-packages" not in path.parts)
    sequence = itertools.count()
    while True:
        for path in files:
            name = str(path.relative_to(library))
            lines = path.read_bytes().decode("utf-8", "surrogateescape").splitlines()
            for number, text in enumerate(lines, 1):
                event = {"seq": next(sequence), "file": name, "line": number, "text": text}
                yield json.dumps(event).encode()


def _send(zookeeper: str, count: int) -> Tally:
    """Batches in turn to each partition and, there, with each codec."""
    began = time.perf_counter()
    sent, size = Tally(), 0
    targets = [TopicPartition(TOPIC, broker, number) for number in range(PARTITIONS) for broker in range(BROKERS)]
    turns = itertools.cycle(itertools.product(CODECS, targets))
    events = itertools.islice(python_events(), count)
    with ExitStack() as stack, Cluster(zookeeper=zookeeper) as cluster:
        producers = {
            broker: stack.enter_context(SyncProducer(address.host, address.port))
            for broker, address in cluster.brokers.items()
        }
        while payloads := list(itertools.islice(events, BATCH)):
            codec, tp = next(turns)
            producers[tp.broker].send(tp.topic, tp.partition, payloads, codec)
            sent.add(tp, payloads)
            size += sum(map(len, payloads))
    seconds = time.perf_counter() - began
    _say(f"sent {count:,} events, {size / 1e6:.0f} MB, a third each plain, gzip and snappy, in {seconds:.1f} s")
    return sent


def _wait_until_visible(zookeeper: str, sent: Tally) -> None:
    """0.7 has no acknowledgement, and shows only what it has flushed: reads until all that was sent has shown up."""
    deadline = time.monotonic() + VISIBLE_TIMEOUT
    missing = Counter(sent.counts)
    positions: dict[TopicPartition, int] = dict.fromkeys(missing, 0)
    with open_source(zookeeper=zookeeper) as source, Cluster(zookeeper=zookeeper) as cluster:
        while +missing or not {tp.broker for tp in sent.counts} <= cluster.topics.get(TOPIC, {}).keys():
            cluster.refresh()
            for tp in +missing:
                _, latest = source.bounds(tp)
                for messages in source.read(Range(*tp, positions[tp], latest)):
                    missing[tp] -= len(messages)
                    positions[tp] = messages.next_offset
            if time.monotonic() > deadline:
                late = (+missing).total()
                raise KafkaError(f"{late:,} events are not to be seen {VISIBLE_TIMEOUT:.0f} s after they were sent")
            time.sleep(0.1)


# --- checking -----------------------------------------------------------------------------------------------------


def _check(parquet: Path, sent: Tally, count: int) -> list[str]:
    """Reads the folder as somebody who knows nothing of manifests; prints what it finds; what is wrong."""
    import pyarrow.dataset

    dataset = pyarrow.dataset.dataset(parquet, format="parquet")
    read, sequences = Tally(), bytearray(count)
    unknown = 0
    for batch in dataset.to_batches(columns=["topic", "broker", "partition", "value"]):
        groups: defaultdict[TopicPartition, list[bytes]] = defaultdict(list)
        for *place, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            groups[TopicPartition(*place)].append(value)
            sequence = json.loads(value)["seq"]
            if 0 <= sequence < count:
                sequences[sequence] = min(sequences[sequence] + 1, 255)
            else:
                unknown += 1
        for tp, payloads in groups.items():
            read.add(tp, payloads)
    _print_rows(dataset)
    rows = [
        (tp.topic, tp.name, sent.counts[tp], read.counts[tp], f"{read.digests[tp]:032x}")
        for tp in sorted(sent.counts.keys() | read.counts.keys())
    ]
    _say(table(("topic", "partition", "sent", "read", "digest of what was read"), rows, left=("topic", "partition")))
    return differences(sent, read, sequences, unknown)


def differences(sent: Tally, read: Tally, sequences: bytes | bytearray, unknown: int = 0) -> list[str]:
    """What differs, one line each; ``sequences`` has at each sequence number how often it was read."""
    wrong = []
    for tp in sorted(sent.counts.keys() | read.counts.keys()):
        if sent.counts[tp] != read.counts[tp]:
            wrong.append(f"{tp}: {sent.counts[tp]:,} sent, {read.counts[tp]:,} read")
        elif sent.digests[tp] != read.digests[tp]:
            wrong.append(f"{tp}: digest {sent.digests[tp]:032x} sent, {read.digests[tp]:032x} read")
    once = sequences.count(1)
    if once != len(sequences):
        never = sequences.count(0)
        wrong.append(f"{never:,} sequence numbers never read, {len(sequences) - once - never:,} more than once")
    if unknown:
        wrong.append(f"{unknown:,} events with a sequence number that was never sent")
    return wrong


def _print_rows(dataset: Any) -> None:
    columns = ["partition", "broker", "offset", "index", "value"]
    rows = [list(row.values()) for row in dataset.head(4, columns=columns).to_pylist()]
    for row in rows:
        row[-1] = row[-1].decode(errors="replace")[:90]
    _say(table(columns, rows, left=("value",)))


if __name__ == "__main__":
    sys.exit(main())
