"""A short run of the fuzzer over the C kernels, and whether it would see a kernel that is wrong."""

from __future__ import annotations

import shutil
import zlib

import oracle
import pytest
from fuzz.run import KERNELS, build, compiler, run

from kafka07c import _crc32

SEED, CASES = 5, 40_000
ALL_KINDS = ("crc", "copy", "walk", "encode")

# why a walk stops, by the numbers of walk.h
END, CUT, FULL, WRAPPER, BAD_SIZE, BAD_MAGIC, BAD_CODEC, BAD_CRC = range(8)
REASONS = {oracle.SIZE: BAD_SIZE, oracle.MAGIC: BAD_MAGIC}

pytestmark = pytest.mark.skipif(not shutil.which(compiler()[0]), reason="there is no C compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("kernel", _crc32.kernels())
def test_random_cases(program, kernel):
    done = run(program, kernel, SEED, 0, CASES)
    assert done.returncode == 0, done.stdout + done.stderr
    words = done.stdout.split()
    assert words[:2] == ["ok", str(CASES)]
    tried = {kind: int(words[words.index(kind) + 1]) for kind in ALL_KINDS}
    assert sum(tried.values()) == CASES
    assert min(tried.values()) > CASES // 5
    assert min(map(int, words[words.index("stops") + 1 :])) > CASES // 4 // 100, "every reason to stop is met"


def expected_walk(data: bytes, base: int, capacity: int) -> list[int]:
    """stop, position and capacity, then offset and length of each message, by the slow decoder of the other tests."""
    position, columns = 0, []
    while True:
        stop = END if position == len(data) else None
        try:
            header = None if stop == END else oracle.read_header(data, position)
        except oracle.CutTail:
            stop = CUT
        except oracle.Damage as damage:
            stop = REASONS[damage.kind]
        if stop is None:
            stop = stop_at(data, header, len(columns) // 2 == capacity)
        if stop is not None:
            return [stop, position, capacity, *columns]
        columns += [base + position, header.end - header.payload_start]
        position = header.end


def stop_at(data: bytes, header: oracle.Header, full: bool) -> int | None:
    if header.codec:
        return BAD_CODEC if header.codec == 3 else WRAPPER
    if full:
        return FULL
    return None if zlib.crc32(data[header.payload_start : header.end]) == header.crc else BAD_CRC


@pytest.mark.parametrize("kernel", _crc32.kernels())
def test_walks_are_as_the_slow_decoder_says(program, kernel):
    """What the fuzzer compares with is itself held to the decoder that the other tests trust."""
    lines = run(program, kernel, SEED + 1, 0, 8000, "print").stdout.splitlines()
    assert len(lines) > 1500
    assert lines.pop().startswith("ok")
    for line in lines:
        number, data, base, stop, position, capacity, columns = split(line)
        assert [stop, position, capacity, *columns] == expected_walk(data, base, capacity), number


def split(line: str) -> tuple[int, bytes, int, int, int, int, list[int]]:
    """number, data, base, stop, position, capacity, columns"""
    number, rest = line.split(" ", 1)
    data, rest = rest.split(" ", 1)
    base, stop, position, capacity, *columns = map(int, rest.split())
    return int(number), bytes.fromhex(data), base, stop, position, capacity, columns


#: file, what stands there, what is put in its place: each makes a mistake that only a few cases show
MISTAKES = [
    ("walk.c", "<= (uint64_t)(left - HEADER_BYTES)", "<= (uint64_t)(left - HEADER_BYTES + 1)"),
    ("walk.c", "if (room <= 0) return K07_FULL;", "if (room < 0) return K07_FULL;"),
    ("crc32.c", "for (; length >= 16;", "for (; length >= 15;"),
    ("crc32_pclmul.h", "to[length / 2] = middle;", "to[1] = middle;"),
    ("crc32_vpclmul.h", "_mm512_mask_storeu_epi8(to, part, bytes)", "_mm512_storeu_si512(to, bytes)"),
    ("crc32_vpclmul.h", "for (; after > 2;", "for (; after > 1;"),
    ("encode.c", "end - to >= 64", "end - to >= 63"),
    ("encode_loop.h", "fields[slot] = to - 4;", "fields[slot] = out + 6;"),
]


@pytest.mark.parametrize("file, stands, mistake", MISTAKES, ids=[f"{f}: {m}" for f, _, m in MISTAKES])
def test_a_mistake_would_be_found(tmp_path, file, stands, mistake):
    kernels = _crc32.kernels()
    needs = {"crc32_vpclmul.h": "vpclmulqdq512", "encode.c": "vpclmulqdq512", "crc32_pclmul.h": "pclmulqdq"}.get(file)
    if needs is not None and needs not in kernels:
        pytest.skip(f"this CPU has no {needs}")
    sources = shutil.copytree(KERNELS, tmp_path / "c")
    text = (sources / file).read_text()
    assert text.count(stands) == 1
    (sources / file).write_text(text.replace(stands, mistake))
    program = build(tmp_path, sources=sources, flags=("-O1", "-Wno-error"))
    results = [run(program, kernel, SEED, 0, CASES) for kernel in kernels]
    assert any(done.returncode in (1, 3) and f"of seed {SEED}" in done.stdout for done in results)
