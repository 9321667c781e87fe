"""What has to stay straight: the cost of a message with their number, threads, partitions, memory.

    python -m bench --suite growth        as part of `make bench`
    python -m bench.growth                alone
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.measuring import HEADER_BYTES, SET_BYTES, Costs, Work, on_cpu
from bench.samples import noise
from bench.served import BUILD, TOPIC, equal, take, write_segment
from bench.servers import LOCALHOST, served
from kafka07c import Consumer, MessageSet, SimpleConsumer, TopicPartition, build_message_set

_PAYLOAD = 10
_COUNTS = (10**4, 10**5, 10**6, 10**7, 10**8)
_PIECE_COUNT = 10_000
_PARTITIONS = 10_000
_FILES = 100
_TURNS = 4  # fetches of a partition
_PART_BYTES = 64 * 1024
_BROKERS = (0, 1)  # each holds two files of a log open, and a process may not hold all


@dataclass(frozen=True)
class Check:
    """What was looked at, the figure with its limit, and in words what was measured."""

    name: str
    figure: float
    limit: float
    met: bool
    told: str


def summary(costs: Costs) -> dict[str, float]:
    """Nanoseconds a message: medians, and the quickest"""
    return {
        "cpu_ns": statistics.median(costs.cpu), "best_ns": min(costs.cpu), "wall_ns": statistics.median(costs.wall),
        "repeats": len(costs.cpu),
    }  # fmt: skip


def run() -> list[Check]:
    """All of them, each printed when it is known"""
    print("\ngrowth", flush=True)
    checks = []
    for check in (flat_cost, two_threads, many_partitions, bounded_memory):
        checks.append(check())
        done = checks[-1]
        print(f"  {done.name}: {done.told}: {'met' if done.met else 'MISSED'} (limit {done.limit:g})", flush=True)
    return checks


@contextmanager
def _scratch() -> Iterator[Path]:
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="growth-", dir=BUILD) as folder:
        yield Path(folder)


def flat_cost() -> Check:
    """10^4 to 10^8 messages through one SimpleConsumer to columns, in fetches of 10^4"""
    with ExitStack() as stack:
        stack.enter_context(on_cpu(0))
        port, _ = stack.enter_context(served("answers", _PAYLOAD, _PIECE_COUNT * (_PAYLOAD + HEADER_BYTES)))
        consumer = stack.enter_context(SimpleConsumer(LOCALHOST, port))

        def read(count: int) -> None:
            for _ in range(count // _PIECE_COUNT):
                equal(take(consumer.fetch(TOPIC, 0, 0, SET_BYTES)), _PIECE_COUNT)

        works = {count: Work(partial(read, count), count, warm=count < 10**6) for count in _COUNTS}
        read(10**6)
        costs: dict[int, list[float]] = {count: [] for count in _COUNTS}
        for _ in range(7):
            for count, work in works.items():
                # more repeats of the short ones, for a median of the same worth
                costs[count] += [work.cost()[0] for _ in range(1 if count > 10**7 else 7)]
    medians = {count: statistics.median(each) for count, each in costs.items()}
    spread = max(medians.values()) / min(medians.values()) - 1
    told = ", ".join(f"10^{len(str(count)) - 1}: {cost:.2f} ns" for count, cost in medians.items())
    told += f"; spread {spread:.1%}"
    return Check("cost of a message of 10 B by their number", spread, 0.1, spread <= 0.1, told)


def two_threads() -> Check:
    """Two threads that scan sets of their own against one, by the clock on the wall: the best of many"""
    data = [build_message_set(noise(1024)) for _ in range(2)]
    rounds = 300

    def scan(own: bytes) -> None:
        for _ in range(rounds):
            MessageSet(own)

    def elapsed(count: int) -> float:
        threads = [threading.Thread(target=scan, args=(own,)) for own in data[:count]]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begin

    one, two = [], []
    for _ in range(400):
        one.append(elapsed(1))
        two.append(elapsed(2))
    ratio = 2 * min(one) / min(two)
    told = f"{ratio:.2f} times one (best of {len(one)}; load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores)"
    return Check("two threads", ratio, 1.8, ratio >= 1.8, told)


def many_partitions() -> Check:
    """One consumer on 10 000 partitions of two brokers, and on 100 with as much in them; fetches of the same size.

    The clock runs while the second to the fourth fifth is read: what it costs to begin and to end with a partition is
    for each partition, and no cost of a message. The logs are links to a hundred files, for their bytes to be as far
    from the CPU in both cases.
    """
    piece = build_message_set(noise(100, _PART_BYTES))
    count = len(MessageSet(piece))
    each, few = _PARTITIONS // len(_BROKERS), _FILES // len(_BROKERS)
    with _scratch() as scratch, ExitStack() as stack:
        stack.enter_context(on_cpu(0))
        addresses = []
        for broker in _BROKERS:
            folder = scratch / str(broker)
            for number in range(few):
                write_segment(folder / f"few-{number}", piece * (_TURNS * _FILES), 1)
            short = [_write_file(scratch / f"short-{broker}-{number}", piece * _TURNS) for number in range(_FILES)]
            for number in range(each):
                link = folder / f"many-{number}" / f"{0:020}.kafka"
                link.parent.mkdir()
                link.hardlink_to(short[number % _FILES])
            port, _ = stack.enter_context(served("broker", folder, "", each))
            addresses.append(f"{broker}:{LOCALHOST}:{port}")
        costs: dict[str, list[float]] = {"many": [], "few": []}
        for _ in range(3):
            for topic, partitions in (("many", each), ("few", few)):
                names = [TopicPartition(topic, broker, number) for broker in _BROKERS for number in range(partitions)]
                costs[topic].append(_middle_cost(",".join(addresses), names, len(piece), _PARTITIONS * _TURNS * count))
    many, less = (statistics.median(costs[topic]) for topic in ("many", "few"))
    told = f"{many:.1f} ns a message of 100 B on 10 000 partitions, {less:.1f} on 100: {many / less:.2f} times"
    return Check("10 000 partitions in one consumer", many / less, 1.1, many <= 1.1 * less, told)


def _middle_cost(brokers: str, names: list[TopicPartition], fetch_bytes: int, total: int) -> float:
    first, last, count = total // 5, total * 4 // 5, 0
    began = ended = (0, 0)
    with Consumer(brokers=brokers, until_end=True, fetch_bytes=fetch_bytes) as consumer:
        consumer.assign(dict.fromkeys(names, 0))
        for messages in consumer.batches():
            count += take(messages)
            if count >= first and not began[1]:
                began = (time.process_time_ns(), count)
            if count >= last and not ended[1]:
                ended = (time.process_time_ns(), count)
    equal(count, total)
    return (ended[0] - began[0]) / (ended[1] - began[1])


def _write_file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


_READER = """\
import sys
from pathlib import Path
from kafka07c import Consumer, TopicPartition
port, partitions, fetch_bytes = map(int, sys.argv[1:])
def anonymous():
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) * 1024
names = [TopicPartition("memory", 0, number) for number in range(partitions)]
with Consumer(brokers=f"0:127.0.0.1:{port}", until_end=True, fetch_bytes=fetch_bytes) as consumer:
    consumer.assign(dict.fromkeys(names, 0))
    batches = consumer.batches()
    before = anonymous()
    peak = total = 0
    for batch in batches:
        total += batch.valid_bytes
        peak = max(peak, anonymous() - before)
print(peak, total, consumer.config.queue_bytes)
"""


def bounded_memory() -> Check:
    """What a process grows by that reads 1 GB in 8 partitions: fetch size times fetches in flight, and the queue"""
    fetch_bytes, partitions = 1 << 20, 8
    piece = build_message_set(noise(1024))
    with _scratch() as scratch, ExitStack() as stack:
        for number in range(partitions):
            write_segment(scratch / f"memory-{number}", piece, 128 << 20)
        port, _ = stack.enter_context(served("broker", scratch, "", partitions))
        output = subprocess.run(
            [sys.executable, "-c", _READER, str(port), str(partitions), str(fetch_bytes)],
            check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.getcwd()},
        ).stdout  # fmt: skip
    grown, total, queue_bytes = map(int, output.split())
    equal(total, partitions * ((128 << 20) // len(piece)) * len(piece))
    bound = queue_bytes + 2 * partitions * fetch_bytes
    told = (
        f"{total / 1e9:.2f} GB read, memory grew by {grown / 1e6:.1f} MB; "
        f"{partitions} partitions x 2 fetches x {fetch_bytes / 1e6:.1f} MB and the queue's "
        f"{queue_bytes / 1e6:.1f} MB are {bound / 1e6:.1f} MB"
    )
    return Check("memory of a consumer", grown / bound, 1.0, grown <= bound, told)


if __name__ == "__main__":
    run()
