"""The C kernels compiled for another machine, C library or compiler than this Python's, and held to zlib's answers.

Each target needs tools that may not be here, and is skipped then with their names; with KAFKA07C_FOREIGN=all in the
environment, as in CI, it fails instead. Nothing here imports the package: it need not be built.
"""

from __future__ import annotations

import os
import platform
import random
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "src_pyx" / "kafka07c" / "c"
#: as setup.py has them, and no warning is let through
FLAGS = ("-O3", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-static", "-pthread")
NATIVE = platform.machine()

CRC, WALK, ENCODE = 0, 1, 2
END, CUT, BAD_CRC = 0, 1, 7  # of walk.h
BASE = 1000  # offset of a walk's first byte, in kernels.c


@dataclass(frozen=True)
class Target:
    name: str
    compiler: tuple[str, ...]
    runner: tuple[str, ...]
    #: the fastest kernel that has to be chosen there; None: whatever this CPU has
    kernel: str | None

    @property
    def missing(self) -> list[str]:
        tools = [self.compiler[0], *self.runner[:1]]
        if self.compiler[1:]:  # clang for another machine takes that machine's C library from gcc
            tools.append("aarch64-linux-gnu-gcc")
        return [tool for tool in tools if not shutil.which(tool)]


#: QEMU's "max" has every feature; no CPU without CRC instructions is known to it
QEMU = ("qemu-aarch64-static", "-cpu", "max")
TARGETS = [
    Target("aarch64 gcc", ("aarch64-linux-gnu-gcc",), QEMU, "armv8"),
    Target("aarch64 clang", ("clang", "--target=aarch64-linux-gnu"), QEMU, "armv8"),
    Target(f"{NATIVE} musl", ("musl-gcc",), (), None),
    Target(f"{NATIVE} clang", ("clang",), (), None),
]


@dataclass(frozen=True)
class Case:
    kind: int
    start: int
    alignment: int
    data: bytes

    def written(self) -> bytes:
        return struct.pack("<4I", self.kind, self.start, self.alignment, len(self.data)) + self.data


def crc_cases() -> Iterator[Case]:
    rng = random.Random(7)
    yield Case(CRC, 0, 0, b"123456789")
    for length in range(2100):
        yield Case(CRC, rng.getrandbits(32), rng.randrange(64), rng.randbytes(length))
    for alignment in range(64):
        yield Case(CRC, 0, alignment, rng.randbytes(rng.randrange(300)))
    for start in (0, 1, 0x80000000, 0xFFFFFFFF):
        for fill in (b"\0", b"\xff"):
            yield Case(CRC, start, 0, fill * 100)
    for _ in range(30):
        yield Case(CRC, rng.getrandbits(32), rng.randrange(64), rng.randbytes(rng.randrange(2000, 100_000)))


def entry(payload: bytes, magic: int, wrong: int = 0) -> bytes:
    body = bytes([1, 0] if magic else [0]) + struct.pack(">I", zlib.crc32(payload) ^ wrong) + payload
    return struct.pack(">i", len(body)) + body


def walk_cases() -> Iterator[tuple[Case, str]]:
    """With the line that has to be printed: sets that are whole, cut anywhere, and with one wrong CRC."""
    rng = random.Random(8)
    for count in (0, 1, 2, 3, 4, 5, 8, 33, 200):
        for longest in (0, 20, 300, 5000):
            payloads = [rng.randbytes(rng.randint(0, longest)) for _ in range(count)]
            entries = [entry(payload, magic=int(rng.random() < 0.8)) for payload in payloads]
            bad = rng.randrange(count) if count else 0
            damaged = [
                entry(payloads[bad], 1, wrong=1 << rng.randrange(32)) if i == bad else e for i, e in enumerate(entries)
            ]
            cut = rng.randint(1, len(entries[-1]) - 1) if count else 0
            yield walk_case(rng, payloads, entries, count, END)
            if count:
                yield walk_case(rng, payloads, damaged, bad, BAD_CRC)
                yield walk_case(rng, payloads, [*entries[:-1], entries[-1][:cut]], count - 1, CUT)


def walk_case(rng, payloads: list[bytes], entries: list[bytes], good: int, stop: int) -> tuple[Case, str]:
    starts = [sum(map(len, entries[:i])) for i in range(good + 1)]
    columns = [f" {BASE + start} {len(payload)}" for start, payload in zip(starts[:good], payloads, strict=False)]
    line = f"{stop} {starts[good]} {good}{''.join(columns)}"
    return Case(WALK, 0, rng.randrange(64), b"".join(entries)), line


@pytest.fixture(params=TARGETS, ids=lambda target: target.name)
def target(request):
    if request.param.missing:
        reason = f"{request.param.name}: {', '.join(request.param.missing)} not on PATH"
        pytest.fail(reason) if os.environ.get("KAFKA07C_FOREIGN") == "all" else pytest.skip(reason)
    return request.param


@pytest.fixture
def program(target, tmp_path):
    path = tmp_path / "kernels"
    sources = [ROOT / "tests" / "foreign" / "kernels.c", *sorted(KERNELS.glob("*.c"))]
    built = subprocess.run(
        [*target.compiler, *FLAGS, f"-I{KERNELS}", "-o", path, *sources], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return [*target.runner, str(path)]


def answers(program: list[str], cases: list[Case], folder: Path) -> tuple[str, dict[str, list[str]]]:
    """The kernel that was chosen by itself, and by kernel what it said: two lines a case."""
    path = folder / "cases"
    path.write_bytes(b"".join(case.written() for case in cases))
    ended = subprocess.run([*program, str(path)], capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    head, *parts = ended.stdout.split("kernel ")
    said = {name: lines for name, *lines in (part.splitlines() for part in parts)}
    assert {len(lines) for lines in said.values()} == {2 * len(cases)}
    return head.removeprefix("chosen ").strip(), said


def test_crc32(target, program, tmp_path):
    cases = list(crc_cases())
    expected = [f"{zlib.crc32(case.data, case.start):08x}" for case in cases for _ in range(2)]
    chosen, said = answers(program, cases, tmp_path)
    print(f"{target.name}: {chosen} chosen of {', '.join(said)}")
    assert chosen == next(iter(said)) == (target.kernel or chosen)
    assert list(said)[-1] == "slice16"
    for name, lines in said.items():
        wrong = [
            (name, cases[i // 2].start, len(cases[i // 2].data)) for i, line in enumerate(lines) if line != expected[i]
        ]
        assert wrong == []


def test_walk(target, program, tmp_path):
    cases, lines = zip(*walk_cases(), strict=True)
    expected = [line for line in lines for _ in range(2)]
    _, said = answers(program, list(cases), tmp_path)
    for name, printed in said.items():
        assert printed == expected, name


def test_encode(target, program, tmp_path):
    rng = random.Random(9)
    lengths = [*range(300), *(rng.randrange(300, 20_000) for _ in range(30))]
    cases = [Case(ENCODE, magic, rng.randrange(64), rng.randbytes(length)) for length in lengths for magic in (0, 1)]
    expected = [entry(case.data, magic=case.start).hex() for case in cases for _ in range(2)]
    _, said = answers(program, cases, tmp_path)
    for name, printed in said.items():
        assert printed == expected, name
