"""Is there what a build needs? Asked by the Makefile before it makes anything, and by setup.py before it compiles.

Needs nothing but the standard library. Every complaint is one line that says what to install or free.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

PYTHON = (3, 11)
DISK_BYTES = 3 * 1024**3  # pyspark alone is 0.5 GB packed and is unpacked, built and installed


def fail(line: str) -> None:
    sys.exit(f"kafka07c: {line}")


def check_python() -> None:
    if sys.version_info < PYTHON:
        fail(
            f"Python {PYTHON[0]}.{PYTHON[1]} or later is needed, {sys.executable} is {sys.version.split()[0]}: "
            "install a later one and run make PYTHON=python3.12 (or as it is called)"
        )


def check_venv() -> None:
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        fail("Python's venv module is missing: apt install python3-venv")


def check_build() -> None:
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if not (shutil.which(compiler) or shutil.which("cc") or shutil.which("gcc")):
        fail(f"no C compiler ({compiler}) on PATH: apt install gcc (and libc6-dev)")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        fail(f"Python's C headers are missing ({header}): apt install python3-dev")


def check_disk(folder: str = ".") -> None:
    free = shutil.disk_usage(folder).free
    if free < DISK_BYTES:
        fail(
            f"{free / 1e9:.1f} GB free where {Path(folder).resolve()} lies, setting up takes {DISK_BYTES / 1e9:.1f} GB: "
            "free some space and run it again"
        )


if __name__ == "__main__":
    check_python()
    check_venv()
    check_build()
    check_disk()
