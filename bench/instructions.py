"""Instructions of the hot loops, counted by callgrind: exact where times are not, and held to a committed count.

    make bench-instructions                   counts, and fails where a count is off by more than 2 %
    python -m bench.instructions --write      makes these the committed counts

Valgrind knows no AVX-512, so the kernels are the 128-bit one and the portable one. A count goes with its compiler and
its Python: with others it cannot be held against what is committed, and that fails too, saying so. What is counted is
a whole call on a set of about 256 KB, Python's own part of the call included.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
COMMITTED = HERE / "instructions.json"
KERNELS = ("pclmulqdq", "slice16")
SIZES = {"10 B": 10, "100 B": 100, "1 KB": 1024, "10 KB": 10240}
SET_BYTES = 1 << 18
TOLERANCE = 0.02

_WRONG = ("SLOWER", "FASTER", "NOT COUNTED")

Counts = dict[str, float]


# In the child, under callgrind


def count_all(library: str) -> None:
    """Runs each row once, and has callgrind write what it took under the row's name"""
    import gc

    import pyarrow

    from bench.samples import noise
    from kafka07c import MessageSet, _crc32, build_message_set

    requests = ctypes.CDLL(library)
    requests.dump.argtypes = [ctypes.c_char_p]
    gc.disable()
    for size, payload_bytes in SIZES.items():
        payloads = noise(payload_bytes, SET_BYTES)
        data, column = build_message_set(payloads), pyarrow.array(payloads, pyarrow.binary())
        assert MessageSet(data).payloads() == payloads
        rows: dict[str, Callable[[], object]] = {
            "scan": lambda data=data: MessageSet(data),  # type: ignore[misc]
            "iterate": lambda data=data: all(map(_whole, MessageSet(data))),  # type: ignore[misc]
            "binary_view": lambda data=data: MessageSet(data).binary_view().__arrow_c_array__(),  # type: ignore[misc]
            "binary": lambda data=data: MessageSet(data).__arrow_c_array__(),  # type: ignore[misc]
            "encode columns": lambda column=column: build_message_set(column),  # type: ignore[misc]
            "encode list": lambda payloads=payloads: build_message_set(payloads),  # type: ignore[misc]
        }
        for name, row in rows.items():
            for _ in range(3):
                row()
            requests.start()
            requests.zero()
            row()
            requests.dump(f"{name}|{size}|{len(payloads)}".encode())
            requests.stop()
    assert _crc32.kernel() == os.environ["KAFKA07C_KERNEL"]


_whole = bool  # Message is true by its length; it is the cheapest thing to do with each


# In the parent


def counted(kernel: str) -> Counts:
    """"row, size, kernel" -> instructions for each message"""
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch, "requests.so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, HERE / "callgrind.c"], check=True)
        child = subprocess.run(
            ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={scratch}/out",
             sys.executable, "-m", "bench.instructions", "--child", library],
            env=os.environ | {"KAFKA07C_KERNEL": kernel, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True, text=True,
        )  # fmt: skip
        if child.returncode:
            sys.exit(f"bench.instructions: the run under callgrind failed:\n{child.stderr[-3000:]}")
        found: Counts = {}
        for path in Path(scratch).glob("out.*"):
            text = path.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
            if name and total and name[1].count("|") == 2:
                row, size, messages = name[1].split("|")
                found[f"{row}, {size}, {kernel}"] = round(int(total[1]) / int(messages), 3)
    return found


def built_with() -> str:
    from kafka07c import _crc32

    return f"{_crc32.compiler()}, CPython {'.'.join(platform.python_version_tuple()[:2])}, {platform.machine()}"


def compared(committed: Counts, now: Counts) -> list[str]:
    """A line for each row; what is wrong with it in capitals"""
    lines = []
    for name in sorted(committed.keys() | now.keys()):
        was, there = committed.get(name), now.get(name)
        if was is None or there is None:
            lines.append(f"{name:32} NOT COUNTED {'before' if was is None else 'now'}")
            continue
        change = there / was - 1
        verdict = "" if abs(change) <= TOLERANCE else "  SLOWER" if change > 0 else "  FASTER: commit it with --write"
        lines.append(f"{name:32} {was:12.2f} -> {there:12.2f} {change:+8.2%}{verdict}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the counts into bench/instructions.json")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        count_all(options.child)
        return
    for program, package in (("valgrind", "valgrind"), ("cc", "gcc")):
        if not shutil.which(program):
            sys.exit(f"bench.instructions: there is no {program} on PATH: apt install {package}")
    now = {name: count for kernel in KERNELS for name, count in counted(kernel).items()}
    if options.write:
        counts = {"built with": built_with(), "instructions a message": dict(sorted(now.items()))}
        COMMITTED.write_text(json.dumps(counts, indent=1) + "\n")
        print(f"written: {len(now)} counts")
        return
    committed = json.loads(COMMITTED.read_text())
    lines = compared(committed["instructions a message"], now)
    print("\n".join(lines))
    if committed["built with"] != built_with():
        before = committed["built with"]
        sys.exit(f"bench.instructions: committed with {before}, this is {built_with()}: not comparable")
    wrong = [line.split("  ")[0] for line in lines if any(word in line for word in _WRONG)]
    if wrong:
        sys.exit(f"bench.instructions: off by more than {TOLERANCE:.0%}: " + "; ".join(wrong))
    print(f"all {len(lines)} counts within {TOLERANCE:.0%}")


if __name__ == "__main__":
    main()
