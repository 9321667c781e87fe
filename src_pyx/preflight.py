"""Is there what a build needs? Asked by the Makefile before it makes anything, and by setup.py before it compiles.

Needs nothing but the standard library. Every complaint is one line that says what to install or free.

``python3 src_pyx/preflight.py`` checks all, ``… build`` all but the room on disk that Spark takes. ``… fingerprint``
prints what a virtual environment made now would be made from: when it differs from the one on record, the environment
is stale.
"""

import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

PYTHON = (3, 11)
DISK_BYTES = 3 * 1024**3  # pyspark alone is half a GB packed, and is unpacked, built and installed
MADE_FROM = ("pyproject.toml", "setup.py", "Makefile")
ROOT = Path(__file__).resolve().parent.parent


def fail(line: str) -> None:
    sys.exit(f"kafka07c: {line}")


def check_python() -> None:
    if sys.version_info < PYTHON:
        fail(
            f"Python {PYTHON[0]}.{PYTHON[1]} or later is needed, {sys.executable} is {sys.version.split()[0]}: "
            "install a later one and name it, as in make PYTHON=python3.12 test"
        )


def check_venv() -> None:
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        fail(f"Python's venv module is missing: apt install python3-venv (for {sys.executable})")


def check_build() -> None:
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if not shutil.which(compiler):
        fail(f"there is no C compiler ({compiler}) on PATH: apt install gcc libc6-dev (or name one in CC)")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        fail(f"Python's C headers are missing ({header}): apt install python3-dev")


def check_disk() -> None:
    for folder in (ROOT, Path(tempfile.gettempdir())):
        free = shutil.disk_usage(folder).free
        if free < DISK_BYTES:
            fail(
                f"{free / 1e9:.1f} GB are free under {folder}, and setting up takes {DISK_BYTES / 1e9:.1f} GB: "
                "free some (TMPDIR names another folder for what pip unpacks)"
            )


def fingerprint() -> str:
    digest = hashlib.sha256(f"{sys.version} {sys.base_prefix} {ROOT}".encode())
    for name in MADE_FROM:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    check_python()
    if sys.argv[1:] == ["fingerprint"]:
        print(fingerprint())
    else:
        check_venv()
        check_build()
        if sys.argv[1:] != ["build"]:
            check_disk()
