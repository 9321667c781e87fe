"""``make sanitize``: the extensions built with ASan and UBSan, and the tests of codec, wire and log run on them.

All goes under ``build/sanitize``; the extensions in place are left alone. Arguments: tests to run instead, and other
arguments for pytest. The program of the fuzzer is built with the same sanitizers and run on every kernel.

Python is not built with them, so their run time is preloaded, memory comes from malloc() and not from Python's own
pools, and leaks, of which an interpreter has many at its end, are not looked for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "sanitize"
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g"
RUNTIMES = ("libasan.so", "libubsan.so")
FUZZ_CASES = 300_000

TESTS = [
    f"tests/test_{name}.py"
    for name in (
        "crc32 walk build memory compress message_set hostile golden oracle "  # codec
        "framing protocol transcripts connection simple parsers "  # wire
        "segments log_writing recovery dump"  # log; nothing that starts Spark: no JVM lives with the run time preloaded
    ).split()
]

#: a fault is left to the tests that want one; memory that is not there is a NULL, as without sanitizers
SETTINGS = {
    "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:handle_sigbus=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "PYTHONMALLOC": "malloc",
    "PYTHONSAFEPATH": "1",  # or else the folder that we are in, with the other extensions, comes first
}


def compiler() -> str:
    return os.environ.get("CC") or "gcc"


def runtimes() -> list[str]:
    """Where the compiler keeps the run time of the sanitizers."""
    found = []
    for name in RUNTIMES:
        path = subprocess.run([compiler(), f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        if not os.path.isabs(path):
            sys.exit(f"kafka07c: {compiler()} has no {name}: make sanitize needs gcc with its sanitizers")
        found.append(os.path.realpath(path))
    return found


def build() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.copytree(
        ROOT / "kafka07c",
        FOLDER / "kafka07c",
        ignore=shutil.ignore_patterns("*.so*", "__pycache__"),
        dirs_exist_ok=True,
    )
    flags = {"CC": compiler(), "CFLAGS": FLAGS, "LDFLAGS": FLAGS, "LDSHARED": f"{compiler()} -shared"}
    command = [
        sys.executable, "setup.py", "--quiet", "build_ext",
        "--build-lib", str(FOLDER), "--build-temp", str(FOLDER / "objects"),
    ]  # fmt: skip
    subprocess.run(command, cwd=ROOT, env={**os.environ, **flags}, check=True)


def run_tests(arguments: list[str]) -> int:
    environment = {
        **os.environ,
        **SETTINGS,
        "LD_PRELOAD": ":".join(runtimes()),
        "PYTHONPATH": os.pathsep.join([str(FOLDER), str(ROOT / "tests")]),
    }
    where = "import kafka07c._scan as m; print(m.__file__)"
    loaded = subprocess.run([sys.executable, "-c", where], env=environment, capture_output=True, text=True, cwd=ROOT)
    if not loaded.stdout.startswith(str(FOLDER)):
        sys.exit(f"kafka07c: the sanitized extensions are not the ones that load: {loaded.stdout}{loaded.stderr}")
    tests = arguments or [path for path in TESTS if (ROOT / path).exists()]
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], cwd=ROOT, env=environment).returncode


def fuzz() -> int:
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from fuzz import run  # type: ignore[import-not-found,unused-ignore]

    from kafka07c import _crc32

    program = run.build(FOLDER, flags=("-O2", *FLAGS.split()))
    os.environ["ASAN_OPTIONS"] = "handle_segv=0"
    worst = 0
    for kernel in _crc32.kernels():
        done = run.run(program, kernel, 1, 0, FUZZ_CASES)
        print(f"{kernel}: {done.stdout.strip()} {done.stderr.strip()}", flush=True)
        worst = max(worst, abs(done.returncode))
    return worst


if __name__ == "__main__":
    build()
    sys.exit(run_tests(sys.argv[1:]) or (0 if sys.argv[1:] else fuzz()))
