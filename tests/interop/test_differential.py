"""The same bytes sent to a real 0.7.2 broker and to ours: the same bytes back, the same logs in the end.

What was recorded once is replayed elsewhere; here the requests are made up, by the thousand, from a seed.
"""

from __future__ import annotations

import random
import re
import shutil
import socket
import struct
import zlib

import pytest
from interop.scala07 import wait_until
from interop.test_wire import CODECS, lines, wait_for_messages

from kafka07c import MessageSet, build_message_set
from kafka07c._compress import deflate
from kafka07c.broker import Broker
from kafka07c.segments import Log
from kafka07c.simple import SimpleConsumer, SyncProducer

PROPERTIES = {
    "num.partitions": 2, "log.flush.interval": 1, "log.file.size": 20_000, "max.message.size": 5000,
    "max.socket.request.bytes": 1_000_000,
}  # fmt: skip


def text(topic):
    data = topic.encode()
    return struct.pack(">h", len(data)) + data


def request(kind, body):
    return struct.pack(">ih", len(body) + 2, kind) + body


# Asked at the end of each connection: whether it answers tells if the connection was still open.
LAST_QUESTION = request(4, text("nobody-has-this") + struct.pack(">iqi", 0, -1, 1))
LAST_ANSWER = struct.pack(">ihiq", 14, 0, 1, 0)


def exchange(broker, sent):
    """What comes back, and whether the connection was open afterwards."""
    received = bytearray()
    with socket.create_connection((broker.host, broker.port), timeout=60) as sock:
        try:
            sock.sendall(sent + LAST_QUESTION)
            sock.shutdown(socket.SHUT_WR)
            while data := sock.recv(1 << 20):
                received += data
        except OSError:  # reset by the broker, with our question unread
            pass
    if received.endswith(LAST_ANSWER):
        return bytes(received[: -len(LAST_ANSWER)]), "open"
    return bytes(received), "closed"


def different(requests, real, ours):
    """The requests that the two do not answer alike, with both answers."""
    pairs = ((sent, exchange(real, sent), exchange(ours, sent)) for sent in requests)
    return [(sent.hex(), answer, other) for sent, answer, other in pairs if not alike(answer, other)]


def alike(answer, other):
    """Of a broken frame before a hang-up more or less may arrive: the kernel drops what was not read at a reset."""
    (data, end), (other_data, other_end) = answer, other
    cut = end == other_end == "closed" and (data.startswith(other_data) or other_data.startswith(data))
    return answer == other or cut


@pytest.fixture
def both(real_broker, tmp_path):
    """Start a real broker and ours, each on its own copy of a folder."""
    running = []

    def start(folder=None):
        for broker in running:
            broker.stop()
        if folder is not None:
            for name in ("the-real-one", "ours"):
                shutil.copytree(folder, tmp_path / name)
        settings = {name.replace(".", "_"): value for name, value in PROPERTIES.items()}
        running[:] = [
            real_broker(log_dir=tmp_path / "the-real-one", **settings),
            Broker(tmp_path / "ours", properties=PROPERTIES),
        ]
        for broker in running:
            broker.start()
        return running

    yield start
    for broker in running:
        broker.stop()


# Reading


def test_the_same_answers(both, tmp_path):
    folder = tmp_path / "filled"
    with Broker(folder, properties=PROPERTIES) as broker, SyncProducer(broker.host, broker.port) as producer:
        for number in range(40):
            producer.send("t", 0, lines(number, 12)[3:], CODECS[number % 3])
        producer.send("t", 1, [b"one"])
        producer.send("made-but-empty", 1, [])
        with SimpleConsumer(broker.host, broker.port) as consumer:
            wait_for_messages(consumer, "t", 1, partition=1)
    with Log(folder / "t-0") as log:
        starts = [segment.start_offset for segment in log.segments]
        entries = [int(offset) for messages in log.scan() for offset in messages.offsets]
        times = [segment.mtime_ms for segment in log.segments]
        interesting = [*starts, *entries, log.end_offset, 0, -1, -(2**63), 2**63 - 1, 2**31]
    real, ours = both(folder)
    generator = random.Random(7)

    def fetch():
        topic = generator.choice(["t"] * 8 + ["made-but-empty", "unknown", "a/b", "", ".", "x" * 255, "x" * 256])
        partition = generator.choice([0, 0, 0, 0, 1, 1, 2, -1, -2, 2**31 - 1])
        offset = min(max(generator.choice(interesting) + generator.choice([0, 0, 0, 1, -1, 7]), -(2**63)), 2**63 - 1)
        size = generator.choice([0, 1, 3, 4, 5, 64, 1000, 20_000, 10**6, 2**31 - 1, generator.randrange(40_000)])
        return text(topic) + struct.pack(">iqi", partition, offset, size)

    def some_request():
        kind = generator.choice([1, 1, 1, 2, 2, 4, 4])
        if kind == 1:
            return request(1, fetch() + generator.choice([b"", b"", b"", b"trailing"]))
        if kind == 2:
            count = generator.choice([0, 1, 2, 5])
            return request(2, struct.pack(">h", count) + b"".join(fetch() for _ in range(count)))
        topic = generator.choice(["t", "t", "t", "made-but-empty", "unknown", "a/b", ""])
        time = generator.choice([-1, -1, -2, -3, 0, *times, times[0] - 1, times[-1] + 1, 2**62])
        numbers = struct.pack(">iqi", generator.choice([0, 0, 1, 2, -1]), time, generator.choice([-1, 0, 1, 2, 100]))
        return request(4, text(topic) + numbers)

    assert different((some_request() for _ in range(1500)), real, ours) == []


def test_the_same_answer_to_what_is_no_request(both):
    real, ours = both()
    generator = random.Random(8)
    whole = [
        request(0, text("t") + struct.pack(">ii", 0, 10) + build_message_set([b""])),
        request(1, text("t") + struct.pack(">iqi", 0, 0, 100)),
        request(2, struct.pack(">h", 1) + text("t") + struct.pack(">iqi", 0, 0, 100)),
        request(3, struct.pack(">h", 1) + text("t") + struct.pack(">ii", 0, 10) + build_message_set([b""])),
        request(4, text("t") + struct.pack(">iqi", 0, -1, 1)),
    ]
    made = [struct.pack(">i", size) for size in (0, -1, 1, 2, 1_000_001, 2**31 - 1, -(2**31))]
    made += [request(kind, b"") for kind in (-1, 0, 1, 2, 3, 4, 5, 99)]
    for good in whole:
        made += [struct.pack(">i", cut - 4) + good[4:cut] for cut in range(4, len(good), 3)]
        for _ in range(40):
            bad = bytearray(good)
            bad[generator.randrange(4, len(bad))] = generator.choice([0, 1, 127, 128, 255])
            made.append(bytes(bad))
    assert different(made, real, ours) == []


# Writing


def entry(payload, attributes=0, magic=1, crc=None):
    crc = zlib.crc32(payload) if crc is None else crc
    head = struct.pack(">bbI" if magic else ">bI", *([magic, attributes] if magic else [magic]), crc)
    return struct.pack(">i", len(head) + len(payload)) + head + payload


def produced_sets():
    """Message sets, whole and damaged, with their names."""
    generator = random.Random(9)
    plain = build_message_set([b"one", b"", b"three" * 20])
    yield "empty", b""
    for codec in CODECS:
        good = build_message_set([b"%d" % n * 9 for n in range(40)], codec)
        yield f"{codec}", good
        yield f"{codec} twice", good + good
        for number in range(25):
            cut = generator.randrange(1, len(good))
            yield f"{codec} cut {cut}", good[:cut]
            yield f"plain and {codec} cut {cut}", plain + good[:cut]
            damaged = bytearray(plain + good)
            damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
            yield f"{codec} damaged {number}", bytes(damaged)
    for inner in (b"", plain, plain[:-1], plain[:3], plain + entry(b"x", crc=7), build_message_set([b"x"], "gzip")):
        for attributes, codec in ((1, "gzip"), (2, "snappy")):
            yield f"{codec} of {len(inner)} bytes", entry(bytes(deflate(attributes, inner)), attributes)
    for codec, attributes in (("gzip", 1), ("snappy", 2)):
        packed = bytes(deflate(attributes, plain * 20))
        for number in range(60):
            damaged = bytearray(packed)
            damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
            yield f"{codec} with a good CRC and damage {number} inside", entry(bytes(damaged), attributes)
        for cut in (0, 1, 5, 9, 10, 16, 20, len(packed) - 9, len(packed) - 8, len(packed) - 1):
            yield f"{codec} with a good CRC and cut at {cut}", entry(packed[:cut], attributes)
        yield f"{codec} twice in one", entry(packed + packed, attributes)
        yield f"{codec} and zeros", entry(packed + bytes(8), attributes)
        yield f"{codec} and more", entry(packed + b"more", attributes)
    for attributes in (0, 1, 2, 3, 4, 0x40, 0x80 - 1):
        yield f"attributes {attributes}", entry(b"not compressed", attributes)
    for magic in (0, 1, 2, 127, -1):
        yield f"magic {magic}", entry(b"x", magic=magic)
    for size in (0, -1, 1, 4, 5, 6, 2**31 - 1, -(2**31)):
        yield f"size {size}", plain + struct.pack(">i", size) + bytes(20)
    for size in (4999, 5000, 5001):
        yield f"payload of {size}", entry(bytes(size))
        yield f"plain and payload of {size}", plain + entry(bytes(size))


def is_judged_otherwise(name, message_set):
    """Three things on which the brokers differ, and ours stays as it is.

    A wrapper whose inside ends in the middle of a message: 0.7.2 stores it, and its consumers lose that message without
    a word; we call it corrupt. Reserved flags in a gzip header: Java does not look at them, RFC 1952 wants an error.
    Two xerial snappy streams in one wrapper: snappy-java of that time cannot read the second; later ones can, and so
    can we.
    """
    found = str(MessageSet(message_set).error)
    cut_inside = re.search("inside its wrapper.*: it is cut", found)
    return bool(cut_inside or "gzip data has reserved flags" in found or name == "snappy twice in one")


def test_the_same_logs(both, tmp_path):
    real, ours = both()
    names, answers, judged_otherwise = {}, [], 0
    for number, (name, message_set) in enumerate(produced_sets()):
        topic, partition = f"p{number}", number % 2
        head = text(topic) + struct.pack(">ii", partition, len(message_set))
        sent = request(0, head + message_set)
        if number % 5 == 0:
            other = entry(b"another")
            sent = request(3, struct.pack(">h", 2) + head + message_set + text(topic) + struct.pack(
                ">ii", 1 - partition, len(other)) + other)  # fmt: skip
        answer, our_answer = exchange(real, sent), exchange(ours, sent)
        if answer != our_answer and is_judged_otherwise(name, message_set):
            judged_otherwise += 1
            continue
        names[topic] = name
        if answer != our_answer:
            answers.append((name, answer, our_answer))
    assert answers == []
    assert 5 <= judged_otherwise < 15 < len(names)

    def logs(folder):
        return {path.relative_to(folder): path.read_bytes() for path in folder.glob("*/*.kafka")}

    found, expected = logs(tmp_path / "ours"), logs(tmp_path / "the-real-one")
    wrong = [path for path in found | expected if found.get(path) != expected.get(path)]
    topics = {path.parent.name.rpartition("-")[0] for path in wrong}
    assert [names[topic] for topic in topics if topic in names] == []


def test_the_same_segments(both, tmp_path):
    """Rolling is decided at the next append, by size: many small sets lie in the same files on both."""
    real, ours = both()
    generator = random.Random(10)
    sets = [build_message_set([generator.randbytes(generator.randrange(300))], "none") for _ in range(900)]
    for broker in (real, ours):
        with SyncProducer(broker.host, broker.port) as producer:
            for message_set in sets:
                (message,) = MessageSet(message_set)
                producer.send("t", 0, [message.value])
        with SimpleConsumer(broker.host, broker.port) as consumer:
            size = sum(map(len, sets))
            wait_until(lambda: consumer.get_offsets_before("t", 0, -1) == [size], "all sets")
    names = [sorted(path.name for path in (tmp_path / name).glob("t-0/*.kafka")) for name in ("the-real-one", "ours")]
    assert names[0] == names[1] and len(names[0]) > 5
