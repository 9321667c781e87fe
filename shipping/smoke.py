"""Is an installed kafka07c whole? ``python smoke.py`` in an environment that has it, and nothing but what it asks for.

Run on every wheel and on the sdist, by ``make dist`` here and by cibuildwheel elsewhere; not from a checkout's folder.
Prints the line of ``build_info()`` and what was tried; the first thing that does not hold ends it with exit code 1.
"""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
import time
import zlib
from pathlib import Path

os.environ.pop("KAFKA07C_KERNEL", None)  # what is chosen by itself is what is wanted to be seen

import kafka07c
from kafka07c.broker import Broker

EXTENSIONS = ("_arrow", "_build", "_compress", "_crc32", "_memory", "_scan", "_views")
PAYLOADS = [b"", b"x", b"snappy " * 1000, bytes(range(256)), os.urandom(5000)]


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"smoke test: {otherwise}")


def installed() -> str:
    package = Path(kafka07c.__file__).parent
    places = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    check(package.parent in places, f"kafka07c comes from {package}, not from what is installed for this Python")
    for name in EXTENSIONS:
        origin = Path(str(importlib.import_module(f"kafka07c.{name}").__file__))
        check(origin.parent == package, f"kafka07c.{name} comes from {origin}, not from {package}")
    check((package / "py.typed").exists(), f"there is no py.typed in {package}")
    return f"{len(EXTENSIONS)} extensions in {package}"


def best_kernel() -> str:
    """The CRC kernel that this machine should run, as far as its system says what the CPU has."""
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    features = set(cpu_features().split())
    if machine == "x86_64":
        if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "vpclmulqdq", "bmi2"} <= features:
            return "vpclmulqdq512"
        if {"pclmulqdq", "sse4_1"} <= features:
            return "pclmulqdq"
    if machine == "aarch64" and "crc32" in features:
        return "armv8"
    return "slice16"


def cpu_features() -> str:
    """In the words of Linux."""
    if sys.platform == "darwin":
        return "crc32" if platform.machine() == "arm64" else "pclmulqdq sse4_1"  # each Mac that runs Python 3.11
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return value
    return ""


def kernels() -> str:
    info = kafka07c.build_info()
    best = best_kernel()
    check(best in info.kernels, f"this CPU could run {best}, and the build runs {', '.join(info.kernels)} here: {info}")
    check(best == "slice16" or not info.slow, f"slower than it has to be: {info}")
    data = os.urandom(70_000)
    for length in [*range(300), len(data)]:
        same = kafka07c.crc32(data[:length]) == zlib.crc32(data[:length])
        check(same, f"a wrong CRC of {length} bytes by {info.kernel}")
    return f"CRC by {info.kernel}, equal to zlib's"


def codecs() -> str:
    for codec in ("none", "gzip", "snappy"):
        stored = kafka07c.build_message_set(PAYLOADS, codec=codec)
        messages = kafka07c.MessageSet(stored)
        values = [bytes(message.value) for message in messages]
        check(values == PAYLOADS, f"{codec}: {len(PAYLOADS)} payloads went in, others came out")
        check(messages.valid_bytes == len(stored), f"{codec}: {messages.valid_bytes} of {len(stored)} bytes are valid")
        damaged = bytearray(stored)
        damaged[-1] ^= 1
        check(len(list(kafka07c.MessageSet(damaged).good())) < len(PAYLOADS), f"{codec}: damage is not seen")
    return "none, gzip and snappy there and back"


def broker(folder: str) -> str:
    """Over real sockets and segment files."""
    with (
        Broker(folder, properties={"log.flush.interval": 1}) as server,
        kafka07c.SyncProducer("127.0.0.1", server.port) as producer,
        kafka07c.SimpleConsumer("127.0.0.1", server.port) as consumer,
    ):
        for codec in ("none", "gzip", "snappy"):
            producer.send(codec, 0, PAYLOADS, codec=codec)
            fetched = fetch(consumer, codec, len(PAYLOADS))
            check(fetched == PAYLOADS, f"the broker gave other messages than it was sent ({codec})")
        with kafka07c.Producer(brokers=f"0:127.0.0.1:{server.port}", codec="snappy") as queued:
            queued.send_many("queued", PAYLOADS)
        check(fetch(consumer, "queued", len(PAYLOADS)) == PAYLOADS, "the broker gave other messages than were queued")
    return "an embedded broker, written to and read from"


def fetch(consumer: kafka07c.SimpleConsumer, topic: str, count: int) -> list[bytes]:
    """As many payloads; a produce request is not answered, so the first fetches may come too early."""
    fetched: list[bytes] = []
    offset, end = 0, time.monotonic() + 30
    while len(fetched) < count:
        check(time.monotonic() < end, f"{len(fetched)} of {count} messages of {topic} after 30 s")
        messages = consumer.fetch(topic, 0, offset)
        fetched += [bytes(message.value) for message in messages]
        offset = messages.next_offset
    return fetched


def command() -> str:
    suffix = ".exe" if os.name == "nt" else ""
    path = Path(sysconfig.get_path("scripts")) / f"kafka07c{suffix}"
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    good = said.returncode == 0 and said.stdout.startswith(f"kafka07c {kafka07c.__version__}")
    check(good, f"{path} --version says {said.stdout}{said.stderr}")
    return f"{path.name} --version"


def main() -> None:
    print(kafka07c.build_info())
    for tried in (installed, kernels, codecs, command):
        print(f"  ok: {tried()}")
    with tempfile.TemporaryDirectory() as folder:
        print(f"  ok: {broker(folder)}")


if __name__ == "__main__":
    main()
