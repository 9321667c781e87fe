"""A mirror: between real brokers and ZooKeepers, as an object and as a process; what is committed is in the target."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from itertools import count

import pytest

from kafka07c import SimpleConsumer, SyncProducer, TopicPartition
from kafka07c.broker import Broker
from kafka07c.cli import main
from kafka07c.cluster import Cluster
from kafka07c.errors import MirrorError, UnknownTopicError
from kafka07c.mirror import Mirror, MirrorProgress
from kafka07c.producer import Producer, default_partition
from kafka07c.testing import ZooKeeper
from kafka07c.zookeeper import connect

pytestmark = pytest.mark.zookeeper

_chroots = count()


@pytest.fixture(scope="module")
def server():
    with ZooKeeper(tick_ms=100) as zookeeper:
        yield zookeeper


class Side:
    """A cluster: its ZooKeeper, one broker, and what is in it."""

    def __init__(self, server, folder, broker_id: int, partitions: int):
        self.client = connect(f"{server.address}/mirror{next(_chroots)}", make_chroot=True)
        self.zookeeper = f"{server.address}{self.client.chroot}"
        self.folder, self.id, self.partitions = folder, broker_id, partitions
        self.broker = self.start(0)

    def start(self, port: int) -> Broker:
        return Broker(
            self.folder, self.id, port, self.partitions, self.zookeeper, properties={"log.flush.interval": 1}
        ).start()

    def close(self) -> None:
        self.broker.stop()
        self.client.stop()
        self.client.close()

    def fill(self, topic: str, first: int, last: int, codec: str = "none", at_once: int = 10) -> None:
        """Messages ``B-P number`` in each partition."""
        with SyncProducer(self.broker.host, self.broker.port) as producer:
            for number in range(self.partitions):
                for start in range(first, last, at_once):
                    payloads = [
                        b"%d-%d %d" % (self.id, number, i) for i in range(start, min(last, start + at_once))
                    ]
                    producer.send(topic, number, payloads, codec)
        self.wait_for(topic)

    def wait_for(self, topic: str) -> None:
        """Until ZooKeeper lists the topic, and all that was sent has arrived."""
        with Cluster(zookeeper=self.zookeeper) as cluster:
            until(lambda: cluster.refresh() or topic in cluster.topics)
        with SimpleConsumer(self.broker.host, self.broker.port) as consumer:
            end = {}
            while end != (now := {n: consumer.get_offsets_before(topic, n, -1)[0] for n in range(self.partitions)}):
                end = now
                time.sleep(0.05)

    def payloads(self, topic: str) -> dict[int, list[bytes]]:
        """What each partition holds."""
        found = {}
        with SimpleConsumer(self.broker.host, self.broker.port) as consumer:
            for number in range(self.partitions):
                found[number], offset = [], 0
                while len(messages := consumer.fetch(topic, number, offset)):
                    found[number] += messages.payloads()
                    offset = messages.next_offset
        return found

    def ends(self, topic: str) -> dict[str, int]:
        """Where each partition's log ends."""
        with SimpleConsumer(self.broker.host, self.broker.port) as consumer:
            return {
                f"{self.id}-{number}": consumer.get_offsets_before(topic, number, -1)[0]
                for number in range(self.partitions)
            }

    def committed(self, group: str, topic: str) -> dict[str, int]:
        """The group's offsets."""
        root = f"/consumers/{group}/offsets/{topic}"
        if self.client.exists(root) is None:
            return {}
        return {name: int(self.client.get(f"{root}/{name}")[0]) for name in self.client.get_children(root)}


@pytest.fixture
def source(server, tmp_path):
    side = Side(server, tmp_path / "source", 0, 4)
    yield side
    side.close()


@pytest.fixture
def target(server, tmp_path):
    side = Side(server, tmp_path / "target", 7, 2)
    yield side
    side.close()


def until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.02)


def streams_of(found: dict[int, list[bytes]]) -> dict[str, dict[int, list[int]]]:
    """The numbers of each source partition, by the target partition they are in."""
    streams: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, payloads in found.items():
        for payload in payloads:
            name, _, number = payload.decode().partition(" ")
            streams[name][place].append(int(number))
    return streams


def check(found: dict[int, list[bytes]], names: list[str], last: int, *, repeats: bool = False) -> None:
    """Everything is there, each source partition in one target partition and in its order, repeats aside."""
    streams = streams_of(found)
    assert sorted(streams) == sorted(names)
    for name, places in streams.items():
        assert len(places) == 1, f"{name} went to {sorted(places)}"
        (numbers,) = places.values()
        first_times = list(dict.fromkeys(numbers))
        assert first_times == list(range(last)), name
        assert repeats or len(numbers) == last, name


NAMES = ["0-0", "0-1", "0-2", "0-3"]


def mirrored(source: Side, target: Side, *topics: str, producer: dict | None = None, **options) -> MirrorProgress:
    with Producer(zookeeper=target.zookeeper, **(producer or {})) as opened:
        return Mirror(
            topics, producer=opened, zookeeper=source.zookeeper, **{"until_end": True, "group": "m", **options}
        ).run()


# --- all of it, once and in order ---------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_all_of_it_in_order_and_committed(source, target, streams, codec):
    for number, stored in enumerate(("none", "gzip", "snappy", "none")):
        source.fill("clicks", 50 * number, 50 * number + 50, stored)
    done = mirrored(source, target, "clicks", streams=streams, producer={"codec": codec})
    check(target.payloads("clicks"), NAMES, 200)
    assert (done.messages, done.on_their_way) == (800, 0)
    assert done.bytes == sum(len(payload) for each in target.payloads("clicks").values() for payload in each)
    assert source.committed("m", "clicks") == source.ends("clicks")
    assert mirrored(source, target, "clicks", streams=streams).messages == 0

    source.fill("clicks", 200, 230)
    assert mirrored(source, target, "clicks").messages == 120
    check(target.payloads("clicks"), NAMES, 230)


def test_the_partition_is_that_of_the_same_name_else_the_names_own(source, target, tmp_path, server):
    source.fill("clicks", 0, 3)
    done = mirrored(source, target, "clicks")
    assert done.partitions == {
        TopicPartition("clicks", 0, number): TopicPartition("clicks", 7, default_partition(f"0-{number}", 2))
        for number in range(4)
    }
    twin = Side(server, tmp_path / "twin", 0, 4)
    try:
        done = mirrored(source, twin, "clicks", group="twin")
        assert done.partitions == {tp: tp for tp in (TopicPartition("clicks", 0, number) for number in range(4))}
        assert twin.payloads("clicks") == source.payloads("clicks")
    finally:
        twin.close()


def test_a_partitioner_of_ones_own(source, target):
    source.fill("clicks", 0, 3)
    mirrored(source, target, "clicks", partitioner=lambda name, count: count - 1)
    assert len(target.payloads("clicks")[1]) == 12


def test_without_a_group_nothing_is_committed_and_all_comes_again(source, target):
    source.fill("clicks", 0, 20)
    for _ in range(2):
        assert mirrored(source, target, "clicks", group=None).messages == 80
    check(target.payloads("clicks"), NAMES, 20, repeats=True)
    assert source.client.exists("/consumers") is None


def test_without_a_group_a_topic_that_is_not_there_is_an_error(source, target):
    """Nobody would take notice when it comes; the members of a group do."""
    source.fill("clicks", 0, 5)
    with pytest.raises(UnknownTopicError, match="no broker has a topic 'clocks'"):
        mirrored(source, target, "clicks", "clocks", group=None)
    code, said, err = run(source, target, "clocks")
    assert code == 2 and said[-1]["messages"] == 0
    assert err.splitlines()[-1] == "kafka07c mirror: no broker has a topic 'clocks'"


def test_topics_by_pattern_and_under_other_names(source, target):
    for topic in ("clicks", "orders", "test-1"):
        source.fill(topic, 0, 5)
    mirrored(source, target, pattern=".*", exclude="test-.*", rename=lambda topic: f"copy-of-{topic}")
    with Cluster(zookeeper=target.zookeeper) as cluster:
        assert set(cluster.topics) == {"copy-of-clicks", "copy-of-orders"}
    mirrored(source, target, exclude="clicks|orders", rename={"orders": "x"})
    with Cluster(zookeeper=target.zookeeper) as cluster:
        assert set(cluster.topics) == {"copy-of-clicks", "copy-of-orders", "test-1"}
    check(target.payloads("test-1"), NAMES, 5)


def test_into_the_same_cluster_under_another_name(source):
    source.fill("clicks", 0, 20)
    mirrored(source, source, "clicks", rename={"clicks": "replayed"})
    assert source.payloads("replayed") == source.payloads("clicks")


@pytest.mark.parametrize("rename", [None, {"clicks": "clicks-2"}])
def test_a_loop_is_refused(source, rename):
    source.fill("clicks", 0, 5)
    with pytest.raises(MirrorError, match="a loop"):
        mirrored(source, source, pattern="clicks.*", rename=rename)
    assert set(source.committed("m", "clicks").values()) <= {0}
    assert sum(map(len, source.payloads("clicks").values())) == 20


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_a_count_is_exact_and_what_is_left_comes_next(source, target, codec):
    source.fill("clicks", 0, 40, codec)
    assert mirrored(source, target, "clicks", count=53).messages == 53
    assert sum(map(len, target.payloads("clicks").values())) == 53
    rest = mirrored(source, target, "clicks").messages
    # offsets are where entries start: of a wrapper that was cut all of it comes again
    assert rest == 160 - 53 if codec == "none" else 160 - 53 <= rest < 160 - 53 + 10
    check(target.payloads("clicks"), NAMES, 40, repeats=codec != "none")


def test_from_the_end(source, target):
    source.fill("clicks", 0, 5)
    assert mirrored(source, target, "clicks", offset_reset="latest").messages == 0
    assert source.committed("m", "clicks") == source.ends("clicks")


def test_a_damaged_partition_stops_alone_or_is_skipped(source, target):
    source.fill("clicks", 0, 20)
    log = next((source.folder / "clicks-1").glob("*.kafka"))
    data = bytearray(log.read_bytes())
    damaged = data.index(b"0-1 12")
    data[damaged] ^= 1
    log.write_bytes(data)
    with Producer(zookeeper=target.zookeeper) as producer:
        options = {"producer": producer, "zookeeper": source.zookeeper, "group": "m", "until_end": True}
        stopped = Mirror(["clicks"], **options)
        assert stopped.run().messages == 3 * 20 + 12
        assert set(stopped.errors) == {TopicPartition("clicks", 0, 1)}
        assert source.committed("m", "clicks")["0-1"] == damaged - 10
        skipping = Mirror(["clicks"], on_corrupt="skip", **options)
        assert skipping.run().messages == 7
    streams = streams_of(target.payloads("clicks"))
    assert [*streams["0-1"].values()] == [[number for number in range(20) if number != 12]]
    assert source.committed("m", "clicks") == source.ends("clicks")


# --- at least once, whatever happens ------------------------------------------------------------------------------


def test_what_cannot_be_written_stops_it_and_is_not_committed(source, target):
    entry = 10 + len(b"0-0 0")
    with SyncProducer(source.broker.host, source.broker.port) as producer:
        producer.send("clicks", 0, [b"0-0 0"])
        producer.send("clicks", 0, [b"x" * 2000])
        producer.send("clicks", 0, [b"0-0 1"])
    source.wait_for("clicks")
    with pytest.raises(MirrorError, match="clicks 0-0 cannot go on from offset 15 to clicks 7-.*2000 bytes"):
        mirrored(source, target, "clicks", producer={"max_message_bytes": 1000}, fetch_bytes=20)
    assert source.committed("m", "clicks")["0-0"] == entry
    assert sum(target.payloads("clicks").values(), []) == [b"0-0 0"]
    assert mirrored(source, target, "clicks").messages == 2


def test_a_target_that_goes_away_and_comes_back(source, target):
    """Longer than the producer waits: what it has not taken is not committed; the next run brings it."""
    source.fill("clicks", 0, 10)
    producer = Producer(zookeeper=target.zookeeper, delivery_timeout_ms=1500)
    mirror = Mirror(["clicks"], producer=producer, zookeeper=source.zookeeper, group="m", commit_interval=0.1)
    failures: list[BaseException] = []
    thread = threading.Thread(target=lambda: failures.append(_raised(mirror.run)))
    thread.start()
    try:
        until(lambda: source.committed("m", "clicks") == source.ends("clicks"))
        before = source.ends("clicks")
        port = target.broker.port
        target.broker.stop()
        source.fill("clicks", 10, 20)
        thread.join(60)
        assert not thread.is_alive()
    finally:
        mirror.stop()
        thread.join(60)
        producer.close(0)
    (failure,) = failures
    assert isinstance(failure, MirrorError) and "clicks 0-" in str(failure) and "could not be written" in str(failure)
    assert source.committed("m", "clicks") == before
    target.broker = target.start(port)
    assert mirrored(source, target, "clicks").messages == 40
    check(target.payloads("clicks"), NAMES, 20)


def _raised(function) -> BaseException | None:
    try:
        function()
    except BaseException as error:
        return error
    return None


def test_an_offset_that_an_operator_sets_is_followed_and_not_overwritten(source, target):
    source.fill("clicks", 0, 10)
    with Producer(zookeeper=target.zookeeper) as producer:
        mirror = Mirror(
            ["clicks"], producer=producer, zookeeper=source.zookeeper, group="m", commit_interval=0.05,
            autocommit_interval_ms=50,
        )  # fmt: skip
        thread = threading.Thread(target=mirror.run)
        thread.start()
        try:
            until(lambda: source.committed("m", "clicks") == source.ends("clicks"))
            source.client.set("/consumers/m/offsets/clicks/0-2", b"0")
            until(lambda: mirror.progress.messages == 50)
            until(lambda: source.committed("m", "clicks") == source.ends("clicks"))
        finally:
            mirror.stop()
            thread.join(60)
    assert [*streams_of(target.payloads("clicks"))["0-2"].values()] == [[*range(10), *range(10)]]


class LateToTell(Producer):
    """Tells what became of a batch when it is let: a target that is slow at just the wrong time."""

    def __init__(self, **options):
        super().__init__(**options)
        self.late: list = []

    def send_batch(self, *arguments, on_delivery, **options):
        return super().send_batch(
            *arguments, on_delivery=lambda delivery: self.late.append((on_delivery, delivery)), **options
        )

    def tell(self, count: int) -> None:
        """What became of the first so many batches that are not told about."""
        for on_delivery, delivery in self.late[:count]:
            on_delivery(delivery)
        del self.late[:count]


def test_what_was_on_its_way_does_not_undo_an_operators_offset(source, target):
    source.fill("clicks", 0, 10)
    entry = 10 + len(b"0-0 0")
    for name in NAMES:
        source.client.create(f"/consumers/m/offsets/clicks/{name}", b"%d" % (5 * entry), makepath=True)
    producer = LateToTell(zookeeper=target.zookeeper)
    mirror = Mirror(
        ["clicks"], producer=producer, zookeeper=source.zookeeper, group="m", commit_interval=0.05,
        autocommit_interval_ms=50,
    )  # fmt: skip
    thread = threading.Thread(target=mirror.run)
    thread.start()
    try:
        until(lambda: len(producer.late) == 4)
        source.client.set("/consumers/m/offsets/clicks/0-2", b"0")
        until(lambda: len(producer.late) == 5)
        producer.tell(4)
        until(lambda: [*source.committed("m", "clicks").values()].count(10 * entry) == 3)
        assert source.committed("m", "clicks")["0-2"] == 0
        producer.tell(1)
        until(lambda: source.committed("m", "clicks") == source.ends("clicks"))
    finally:
        mirror.stop()
        thread.join(60)
        producer.close()


def test_mirrors_that_come_and_go_leave_nothing_out(source, target):
    """Two of a group, one more that takes over, while messages come in."""
    source.fill("clicks", 0, 50)
    ended = threading.Event()

    def keep_filling() -> None:
        for first in range(50, 400, 10):
            source.fill("clicks", first, first + 10, ("none", "gzip")[first // 10 % 2])
        ended.set()

    filling = threading.Thread(target=keep_filling)
    filling.start()
    for _ in range(3):
        with Producer(zookeeper=target.zookeeper) as producer:
            options = {
                "producer": producer, "zookeeper": source.zookeeper, "group": "m", "commit_interval": 0.05,
                "rebalance_backoff_ms": 100,
            }  # fmt: skip
            mirrors = [Mirror(["clicks"], streams=number + 1, **options) for number in range(2)]
            threads = [threading.Thread(target=mirror.run) for mirror in mirrors]
            for thread in threads:
                thread.start()
            until(lambda: sum(mirror.progress.messages for mirror in mirrors) > 20)
            mirrors[0].stop()
            threads[0].join(60)
            mirrors[1].stop()
            threads[1].join(60)
        if ended.is_set():
            break
    filling.join(120)
    mirrored(source, target, "clicks")
    check(target.payloads("clicks"), NAMES, 400, repeats=True)
    assert source.committed("m", "clicks") == source.ends("clicks")


def test_progress_is_told(source, target):
    source.fill("clicks", 0, 10)
    told: list[MirrorProgress] = []
    with Producer(zookeeper=target.zookeeper) as producer:
        mirror = Mirror(["clicks"], producer=producer, zookeeper=source.zookeeper, group="m")

        def hear(progress: MirrorProgress) -> None:
            told.append(progress)
            if progress.messages == 40 and progress.lag == 0:
                mirror.stop()

        final = mirror.run(hear, interval=0.02)
    assert final.messages == told[-1].messages == 40 and final.partitions.keys() == {
        TopicPartition("clicks", 0, number) for number in range(4)
    }


@pytest.mark.parametrize(
    ("options", "reason"),
    [({}, "nothing to mirror"), ({"topics": ["a"], "pattern": "b"}, "not both"),
     ({"topics": ["a b"]}, "give a pattern"), ({"pattern": "("}, "refused"), ({"topics": ["a"], "count": 0}, "nothing"),
     ({"topics": ["a"], "streams": 2}, "with a group"), ({"topics": ["a"], "streams": 0}, "0 streams")],
)  # fmt: skip
def test_what_makes_no_sense(server, options, reason):
    with Producer(brokers="0:127.0.0.1:1") as producer, pytest.raises(ValueError, match=reason):
        Mirror(producer=producer, zookeeper=server.address, **options)


# --- the command --------------------------------------------------------------------------------------------------


def start(source: Side, target: Side, *arguments: object) -> subprocess.Popen:
    command = [
        sys.executable, "-m", "kafka07c", "mirror", "--zookeeper", source.zookeeper, "--to-zookeeper", target.zookeeper,
        *map(str, arguments),
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(source: Side, target: Side, *arguments: object) -> tuple[int, list[dict], str]:
    process = start(source, target, "--json", *arguments)
    out, err = process.communicate(timeout=60)
    return process.returncode, [json.loads(line) for line in out.splitlines()], err.decode()


def test_the_command(source, target):
    source.fill("clicks", 0, 30, "gzip")
    source.fill("orders", 0, 10)
    code, said, err = run(source, target, "-g", "m", "-e", "clicks", "--rename", "clicks=c", "-z", "snappy")
    assert (code, said[0]["messages"], said[0]["on_their_way"]) == (0, 120, 0)
    assert said[0]["partitions"]["clicks 0-0"] in ("c 7-0", "c 7-1") and "% 120 messages, " in err
    check(target.payloads("c"), NAMES, 30)
    code, said, _ = run(source, target, "-g", "n", "-e", "-q", "^.*", "--exclude", "clicks", "--rename", "%t.copy",
                        "--streams", 2)  # fmt: skip
    assert (code, said[0]["messages"]) == (0, 40)
    check(target.payloads("orders.copy"), NAMES, 10)
    code, said, _ = run(source, target, "-c", 7, "orders", "-q")
    assert (code, said[0]["messages"]) == (0, 7)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_it_write_and_commit_what_it_has_read(source, target, number):
    source.fill("clicks", 0, 100)
    process = start(source, target, "-g", "m", "clicks", "--interval", "0.05", "--commit-interval", "3600", "--json")
    try:
        while json.loads(process.stdout.readline())["messages"] == 0:
            pass
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0 and b"% " in err
    found = sum(map(len, target.payloads("clicks").values()))
    assert json.loads(out.splitlines()[-1])["messages"] == found
    assert mirrored(source, target, "clicks").messages == 400 - found
    check(target.payloads("clicks"), NAMES, 100)


def test_killed_in_the_middle(source, target):
    for first in range(0, 3000, 500):
        source.fill("clicks", first, first + 500, "gzip" if first % 1000 else "none", at_once=50)
    process = start(source, target, "-g", "m", "clicks", "--commit-interval", "0.01", "-X", "batch.bytes=500",
                    "--consumer-property", "fetch.size=2000")  # fmt: skip
    try:
        until(lambda: sum(source.committed("m", "clicks").values()) > 0)
    finally:
        process.kill()
        process.communicate()
    mirrored(source, target, "clicks")
    check(target.payloads("clicks"), NAMES, 3000, repeats=True)
    assert source.committed("m", "clicks") == source.ends("clicks")


def test_verify_commits_what_was_read_back(source, target):
    source.fill("clicks", 0, 50, "gzip")
    code, said, err = run(source, target, "-g", "m", "-e", "clicks", "--verify", "-z", "snappy")
    assert (code, said[-1]["messages"]) == (0, 200), err
    check(target.payloads("clicks"), NAMES, 50)
    assert source.committed("m", "clicks") == source.ends("clicks")


def test_what_cannot_be_verified_is_not_committed(source, target):
    source.fill("clicks", 0, 5)
    port = target.broker.port
    target.broker.stop()
    target.broker = Broker(target.folder, target.id, port, target.partitions, target.zookeeper, properties={
        "log.flush.interval": 10**6, "log.default.flush.scheduler.interval.ms": 3_600_000}).start()  # fmt: skip
    code, said, err = run(source, target, "-g", "m", "-e", "clicks", "--verify", "-X", "verify.timeout.ms=500", "-q")
    assert code == 5 and said[-1]["messages"] == 0
    assert "may or may not have been written to clicks 7-" in err and err.count("\n") == 1
    assert set(source.committed("m", "clicks").values()) == {0}


def test_a_failure_is_told_in_one_line(source, target):
    source.fill("clicks", 0, 5)
    code, said, err = run(source, target, "-g", "m", "-e", "clicks", "-X", "max.message.size=3", "-q")
    assert code == 5 and said[-1]["messages"] == 0
    assert err.startswith("kafka07c mirror: clicks 0-") and "cannot go on from offset 0" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["-g", "g"], "nothing to mirror"), (["^a", "b"], "stands alone"), (["a", "--exclude", "b"], "goes with"),
     (["a", "--streams", "2"], "goes with -g"), (["a", "--to-brokers", "0:h:1"], "one of --to-zookeeper"),
     (["a", "--rename", "b"], "--rename is"), (["a", "--rename", "%t", "--rename", "x%t"], "--rename is"),
     (["a", "-X", "b"], "NAME=VALUE"), (["a", "-X", "batch.sise=1"], "batch.size"),
     (["a", "--consumer-property", "fetch.sise=1"], "fetch.size"), (["^("], "refused")],
)  # fmt: skip
def test_a_command_line_that_makes_no_sense(server, capsys, arguments, reason):
    where = ["--zookeeper", server.address, "--to-zookeeper", server.address]
    assert main(["mirror", *where, *arguments]) == 2
    captured = capsys.readouterr()
    assert reason in captured.err and captured.err.count("\n") == 1


def test_what_needs_a_zookeeper(capsys):
    for more in (["-g", "g", "a"], ["^a"], ["--exclude", "a"]):
        assert main(["mirror", "-b", "0:h:1", "--to-brokers", "0:h:1", *more]) == 2
        assert "need --zookeeper" in capsys.readouterr().err


def test_lists_of_brokers_on_both_sides(source, target, capsys):
    source.fill("clicks", 0, 5)
    sides = ["-b", f"{source.broker.host}:{source.broker.port}", "--to-brokers", f"7:127.0.0.1:{target.broker.port}"]
    assert main(["mirror", *sides, "-e", "-q", "clicks"]) == 0
    check(target.payloads("clicks"), NAMES, 5)
