"""What is shipped: the checks of ``make dist``; that the places which name versions, platforms and targets agree."""

from __future__ import annotations

import importlib.util
import io
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOWS = {path.name: path.read_text() for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="asks the repository, and this is none")


@pytest.fixture(scope="module")
def dist() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kafka07c_dist", ROOT / "shipping" / "dist.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- make dist's eyes ---------------------------------------------------------------------------------------------


def wheel(path: Path, names: set[str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return path


def sdist(path: Path, names: set[str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"kafka07c-1/{name}"), io.BytesIO())
    return path


@pytest.fixture
def good_wheel(dist) -> set[str]:
    extensions = {
        f"kafka07c/{path.stem}.cpython-313-x86_64-linux-gnu.so" for path in ROOT.glob("src_pyx/kafka07c/*.pyx")
    }
    return {
        *(name for name in dist.tracked() if name.startswith(dist.PACKAGES)),
        *extensions,
        "kafka07c-1.dist-info/licenses/LICENSE",
        "kafka07c-1.dist-info/METADATA",
    }


@pytest.fixture
def good_sdist(dist) -> set[str]:
    return {*(name for name in dist.tracked() if not name.startswith(".")), "PKG-INFO", "setup.cfg"}


def complaint(check: Callable[[Path], None], path: Path) -> str:
    with pytest.raises(SystemExit) as ended:
        check(path)
    return str(ended.value)


def test_a_wheel_as_it_should_be(dist, good_wheel, tmp_path):
    dist.check_wheel(wheel(tmp_path / "good.whl", good_wheel))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kafka07c/_scan.pyx", "has sources"),
        ("kafka07c/_scan.c", "has sources"),
        ("kafka07c/_other.abi3.so", "has unknown extensions"),
        ("kafka07c/notes.txt", "has what the repository has not"),
        ("tests/oracle.py", "has what is not of the package"),
        ("kafka07c.libs/libz.so", "has what is not of the package"),
    ],
)
def test_a_wheel_with_too_much(dist, good_wheel, tmp_path, name, words):
    assert words in complaint(dist.check_wheel, wheel(tmp_path / "bad.whl", good_wheel | {name}))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kafka07c/py.typed", "lacks: kafka07c/py.typed"),
        ("kafka07c/_scan.pyi", "lacks: kafka07c/_scan.pyi"),
        ("kafka07c/_scan.cpython-313-x86_64-linux-gnu.so", "lacks extensions: _scan"),
        ("kafka07c/spark/log4j2.properties", "lacks: kafka07c/spark/log4j2.properties"),
        ("kafka07c-1.dist-info/licenses/LICENSE", "has no licence"),
    ],
)
def test_a_wheel_with_too_little(dist, good_wheel, tmp_path, name, words):
    assert name in good_wheel
    assert words in complaint(dist.check_wheel, wheel(tmp_path / "bad.whl", good_wheel - {name}))


def test_an_sdist_as_it_should_be(dist, good_sdist, tmp_path):
    dist.check_sdist(sdist(tmp_path / "good.tar.gz", good_sdist))


@pytest.mark.parametrize("name", ["src_pyx/kafka07c/_scan.c", "build/cython/_scan.c", "kafka07c/_scan.so", "notes.txt"])
def test_an_sdist_with_too_much(dist, good_sdist, tmp_path, name):
    said = complaint(dist.check_sdist, sdist(tmp_path / "bad.tar.gz", good_sdist | {name}))
    assert f"has what the repository has not: {name}" in said


@pytest.mark.parametrize("name", ["src_pyx/preflight.py", "src_pyx/kafka07c/c/crc32.h", "setup.py", "tests/oracle.py"])
def test_an_sdist_with_too_little(dist, good_sdist, tmp_path, name):
    assert name in good_sdist
    said = complaint(dist.check_sdist, sdist(tmp_path / "bad.tar.gz", good_sdist - {name}))
    assert f"lacks: {name}" in said


def test_the_smoke_test_is_not_fooled_by_a_checkout():
    """It is run here from a path that has the checkout's package and no installation."""
    smoke = ROOT / "shipping" / "smoke.py"
    start = f"runpy.run_path({str(smoke)!r}, run_name='__main__')"
    script = f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); {start}"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "smoke test: kafka07c comes from" in ended.stderr


# --- one place for each fact --------------------------------------------------------------------------------------


def test_the_version_stands_in_one_place():
    version = PROJECT["project"]["version"]
    places = subprocess.run(
        ["git", "grep", "-lF", f'"{version}"', "--", "*.py", "*.toml", "*.pyx", "*.md", "*.yml", "Makefile"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert places.stdout.split() == ["pyproject.toml"]


def test_the_changelog_knows_the_version_or_what_comes():
    headings = re.findall(r"^## \[?([\w.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] in ("Unreleased", PROJECT["project"]["version"])


def test_every_python_that_is_promised_is_built_and_tested():
    assert len(PYTHONS) >= 4
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
    assert PROJECT["tool"]["cibuildwheel"]["build"] == [f"cp{python.replace('.', '')}-*" for python in PYTHONS]
    tested = re.search(r"python: \[(.*)\]", WORKFLOWS["ci.yml"])
    assert tested and re.findall(r"[\d.]+", tested[1]) == PYTHONS


def test_publishing_waits_for_every_wheel():
    """Each Python for manylinux and musllinux on two machines, and for two kinds of Mac."""
    runners = re.search(r"runner: \[(.*)\]", WORKFLOWS["wheels.yml"])
    assert runners
    kinds = sum(2 if runner.startswith("ubuntu") else 1 for runner in runners[1].split(", "))
    assert f'wc -l)" = {len(PYTHONS) * kinds}\n' in WORKFLOWS["wheels.yml"]


def targets() -> set[str]:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony
    return set(phony[1].split())


def test_make_help_lists_every_target():
    listed = subprocess.run(["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [line.split()[1] for line in listed.splitlines()]
    assert sorted(names) == sorted(targets() - {"install"})  # which is a part of setup


@pytest.mark.parametrize("name", [*WORKFLOWS, "run"])
def test_only_targets_that_exist_are_called(name):
    text = WORKFLOWS.get(name) or (ROOT / ".ci" / "run").read_text()
    called = set(re.findall(r"\bmake (?:--silent )?([a-z-]+)(?=[\s|;&]|$)", re.sub(r"#.*", "", text)))
    assert called <= targets() | {"build-built"}, name


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_may_do_little_and_use_what_is_pinned(name):
    text = WORKFLOWS[name]
    assert "permissions:\n  contents: read\n" in text
    used = re.findall(r"uses: (\S+)", text)
    assert used and all(re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", action) for action in used)
    granted = re.findall(r"^ {6}([a-z-]+): write", text, re.MULTILINE)
    assert granted == (["id-token"] if name == "wheels.yml" else [])
