"""The types: the whole package passes ``mypy --strict``, the stubs are what the extensions have, and users see what is said.

``typing_cases.py`` has the cases of what users see.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXTENSIONS = sorted(path.stem for path in (ROOT / "src_pyx" / "kafka07c").glob("*.pyx"))
ALLOWLIST = ROOT / "tests" / "stubtest_allowlist.txt"


def checked(module: str, *arguments: str | Path, cache: Path) -> str:
    """What one of mypy's programs says when it is content; fails with what it says when it is not."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT, env=os.environ | {"MYPY_CACHE_DIR": str(cache)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refused(module: str, *arguments: str | Path, cache: Path) -> str:
    with pytest.raises(AssertionError) as failure:
        checked(module, *arguments, cache=cache)
    return str(failure.value)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_the_package_and_the_cases_of_what_users_see_pass_mypy_strict(cache):
    assert "Success" in checked("mypy", "--strict", "kafka07c", "tests/typing_cases.py", cache=cache)


def test_mypy_is_asked_in_earnest(cache, tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from kafka07c import MessageSet\n\n\ndef first(ms: MessageSet) -> str:\n    return ms[0].value\n")
    assert 'got "bytes", expected "str"' in refused("mypy", "--strict", wrong, cache=cache)


def test_every_extension_has_a_stub_and_the_package_says_that_it_has_types():
    assert EXTENSIONS
    assert [name for name in EXTENSIONS if not (ROOT / "kafka07c" / f"{name}.pyi").exists()] == []
    assert [path.stem for path in (ROOT / "kafka07c").glob("*.pyi") if path.stem not in EXTENSIONS] == []
    assert (ROOT / "kafka07c" / "py.typed").exists()


def test_the_stubs_are_what_the_extensions_have(cache):
    modules = [f"kafka07c.{name}" for name in EXTENSIONS]
    options = ["--mypy-config-file", "pyproject.toml", "--allowlist", ALLOWLIST]
    assert f"no issues found in {len(modules)} modules" in checked("mypy.stubtest", *options, *modules, cache=cache)
