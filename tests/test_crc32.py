"""CRC-32: every kernel that this CPU has, against zlib's."""

from __future__ import annotations

import mmap
import os
import platform
import random
import signal
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
import pytest
from guarded import Guarded

from kafka07c import _crc32, crc32
from kafka07c._crc32 import crc32_copy

TESTS = Path(__file__).parent


@pytest.fixture(params=_crc32.kernels())
def kernel(request):
    before = _crc32.kernel()
    _crc32.select_kernel(request.param)
    assert _crc32.kernel() == request.param
    yield request.param
    _crc32.select_kernel(before)


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=TESTS, env={**os.environ, **environment}, capture_output=True, text=True
    )


def test_the_check_value(kernel):
    assert crc32(b"123456789") == 0xCBF43926  # the "check" of CRC-32/ISO-HDLC in the catalogues


def test_every_length_at_both_guard_pages(kernel):
    rng = random.Random(1)
    memory = Guarded(2000)
    for length in range(2001):
        data = rng.randbytes(length)
        value = rng.getrandbits(32)
        expected, continued = zlib.crc32(data), zlib.crc32(data, value)
        for place in (memory.at_start, memory.at_end):
            room = place(data)
            assert crc32(room) == expected, length
            assert crc32(room, value) == continued, (length, value)


def test_every_alignment(kernel):
    rng = random.Random(2)
    data = rng.randbytes(1000)
    view = memoryview(data)
    for start in range(130):
        for length in (0, 1, 7, 16, 63, 64, 65, 127, 128, 129, 255, 256, 500, rng.randrange(800)):
            assert crc32(view[start : start + length]) == zlib.crc32(data[start : start + length]), (start, length)


@pytest.mark.parametrize("fill", [b"\x00", b"\xff"])
def test_runs_of_one_byte(kernel, fill):
    for length in range(600):
        assert crc32(fill * length) == zlib.crc32(fill * length)


def test_long(kernel):
    rng = random.Random(3)
    memory = Guarded(400_000)
    for _ in range(40):
        data = rng.randbytes(rng.randrange(2000, 400_000))
        value = rng.getrandbits(32)
        assert crc32(memory.at_start(data), value) == zlib.crc32(data, value)
        assert crc32(memory.at_end(data)) == zlib.crc32(data)


def test_continued_from_any_split(kernel):
    data = random.Random(4).randbytes(700)
    whole = zlib.crc32(data)
    for split in range(len(data) + 1):
        assert crc32(data[split:], crc32(data[:split])) == whole, split


def test_every_single_bit_counts(kernel):
    for length in (1, 10, 64, 100, 129, 300):
        data = bytearray(random.Random(length).randbytes(length))
        whole = crc32(data)
        for bit in range(8 * length):
            data[bit // 8] ^= 1 << bit % 8
            assert crc32(data) != whole, (length, bit)
            assert crc32(data) == zlib.crc32(data)
            data[bit // 8] ^= 1 << bit % 8


def test_any_buffer():
    data = bytes(range(256)) * 20
    pages = mmap.mmap(-1, len(data))
    pages[:] = data
    array = numpy.frombuffer(data, "<i8").reshape(20, 32)
    for buffer in (data, bytearray(data), memoryview(data), array, pages):
        assert crc32(buffer) == zlib.crc32(data)
    with pytest.raises(TypeError):
        crc32("text")
    with pytest.raises(TypeError):
        crc32(None)
    with pytest.raises((BufferError, ValueError)):
        crc32(numpy.frombuffer(data, "u1")[::2])


def test_values_are_taken_modulo_2_to_the_32():
    assert crc32(b"x", 0xFFFFFFFF) == zlib.crc32(b"x", 0xFFFFFFFF)
    assert crc32(b"", 0x12345678) == 0x12345678


def test_a_copy_of_every_length_between_guard_pages(kernel):
    """What is read and what is written both end, or begin, at a page that nobody may touch."""
    rng = random.Random(5)
    source, target = Guarded(2600), Guarded(2600)
    for length in range(2600):
        data = rng.randbytes(length)
        value = rng.getrandbits(32)
        for read, written in ((source.at_start, target.at_end), (source.at_end, target.at_start)):
            room = written(b"." * length)
            assert crc32_copy(read(data), room, value) == zlib.crc32(data, value), length
            assert room == data, length


def test_a_copy_writes_nothing_else(kernel):
    rng = random.Random(6)
    for length in [*range(300), *range(600, 3000, 101)]:
        data, room = rng.randbytes(length), bytearray(b"." * (length + 260))
        place = rng.randrange(130)
        assert crc32_copy(data, memoryview(room)[place:]) == zlib.crc32(data)
        assert room == b"." * place + data + b"." * (260 - place), length


def test_a_copy_has_room_or_is_refused():
    with pytest.raises(ValueError, match="3 bytes do not go into a buffer of 2"):
        crc32_copy(b"abc", bytearray(2))
    with pytest.raises((BufferError, TypeError)):
        crc32_copy(b"abc", bytes(3))
    with pytest.raises(TypeError):
        crc32_copy("abc", bytearray(3))
    room = bytearray(2)
    with pytest.raises(ValueError):
        crc32_copy(b"abc", room)
    room.append(1)  # nothing holds it


@pytest.mark.parametrize("value", ["a", 1.5, None])
def test_a_value_that_is_no_int(value):
    with pytest.raises(TypeError, match=f"value is {value!r}, {type(value).__name__}; it must be an int"):
        crc32(b"x", value)


def test_several_threads(kernel):
    parts = [random.Random(i).randbytes(200_000) for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(crc32, parts * 10)) == [zlib.crc32(part) for part in parts] * 10


def test_the_portable_kernel_is_always_there():
    assert _crc32.kernels()[-1] == "slice16"
    assert _crc32.kernel() in _crc32.kernels()


def cpu_features() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return set(value.split())
    return set()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc/cpuinfo")
def test_the_best_kernel_is_taken():
    features = cpu_features()
    machine = platform.machine()
    if machine == "x86_64" and {"avx512f", "avx512bw", "avx512dq", "avx512vl", "vpclmulqdq", "bmi2"} <= features:
        best = "vpclmulqdq512"
    elif machine == "x86_64" and {"pclmulqdq", "sse4_1"} <= features:
        best = "pclmulqdq"
    elif machine == "aarch64" and "crc32" in features:
        best = "armv8"
    else:
        best = "slice16"
    assert _crc32.kernels()[0] == best
    found = run_python("from kafka07c import _crc32; print(_crc32.kernel())", KAFKA07C_KERNEL="")
    assert found.stdout.strip() == best, found.stderr


def test_a_kernel_by_environment(kernel):
    found = run_python("from kafka07c import _crc32; print(_crc32.kernel())", KAFKA07C_KERNEL=kernel)
    assert found.stdout.strip() == kernel, found.stderr


def test_an_unknown_kernel_in_the_environment_fails_the_import():
    found = run_python("from kafka07c import _crc32", KAFKA07C_KERNEL="slice17")
    assert found.returncode != 0
    assert "slice17" in found.stderr


def test_an_unknown_kernel_changes_nothing():
    before = _crc32.kernel()
    with pytest.raises(ValueError, match="slice17"):
        _crc32.select_kernel("slice17")
    assert _crc32.kernel() == before
    _crc32.select_kernel("auto")
    assert _crc32.kernel() == _crc32.kernels()[0]
    _crc32.select_kernel(before)


@pytest.mark.parametrize("side", ["past_end", "before_start"])
def test_the_guard_pages_kill(side):
    """Or else the tests with guard pages would show nothing."""
    code = f"from guarded import Guarded; from kafka07c import crc32; crc32(Guarded(1).{side}())"
    assert run_python(code).returncode == -signal.SIGSEGV
