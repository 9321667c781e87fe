"""``make fuzz``: the C kernels on random cases, each kernel of this CPU in turn; fuzz/kernels.c has what is tried.

    PYTHONPATH=tests python -m fuzz.run --cases 50000000 --seed 3     so many cases for each kernel
    PYTHONPATH=tests python -m fuzz.run --kernel pclmulqdq --seed 3 --first 1234 --cases 1
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kafka07c import _crc32

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "src_pyx" / "kafka07c" / "c"
PROGRAM = Path(__file__).parent / "kernels.c"

#: for each kernel, without --cases
CASES = 5_000_000


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def build(folder: Path, *, sources: Path = KERNELS, flags: tuple[str, ...] = ("-O3",)) -> Path:
    """The program, from the C files in ``sources``; the compiler's complaints as RuntimeError."""
    path = folder / "kernels"
    command = [
        *compiler()[:1], *flags, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{sources}",
        "-o", str(path), str(PROGRAM), *map(str, sorted(sources.glob("*.c"))), "-pthread", "-ldl",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}:\n{done.stderr}")
    return path


def run(program: Path, kernel: str, seed: int, first: int, cases: int, *more: str) -> subprocess.CompletedProcess[str]:
    command = [str(program), kernel, str(seed), str(first), str(cases), *more]
    return subprocess.run(command, capture_output=True, text=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=CASES, help="for each kernel (%(default)s)")
    parser.add_argument("--seed", type=int, help="draws the same cases again; one is drawn without it, and printed")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case (%(default)s)")
    parser.add_argument("--kernel", choices=_crc32.kernels(), help="this one alone")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    kernels = [options.kernel] if options.kernel else _crc32.kernels()
    print(f"seed {seed}: {options.cases} cases for each of {', '.join(kernels)}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(kernels)) as pool:
        program = build(Path(folder))
        ended = list(pool.map(lambda kernel: run(program, kernel, seed, options.first, options.cases), kernels))
    for kernel, done in zip(kernels, ended, strict=True):
        print(f"{kernel}: {done.stdout.strip()} {done.stderr.strip()}")
    print(f"{time.monotonic() - began:.0f} s")
    return max(abs(done.returncode) for done in ended)


if __name__ == "__main__":
    sys.exit(main())
