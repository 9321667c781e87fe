"""What an installation says of itself, and what an import says when its compiled core is missing or does not fit."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import zlib
from importlib.metadata import version
from pathlib import Path

import pytest

import kafka07c
from kafka07c import _crc32, build_info

PACKAGE = Path(kafka07c.__file__).parent


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60
    )


def info_under(code: str = "", **environment: str) -> dict:
    show = f"{code}\nimport json, kafka07c; print(json.dumps(kafka07c.build_info().as_dict()))"
    found = run_python(show, **environment)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


# --- build_info ---------------------------------------------------------------------------------------------------


def test_versions_and_the_compiler():
    info = build_info()
    assert info.version == kafka07c.__version__ == version("kafka07c")
    assert info.python == f"{platform.python_implementation()} {platform.python_version()}"
    assert {name: info.packages[name] for name in ("cramjam", "kazoo", "numpy")} == {
        name: version(name) for name in ("cramjam", "kazoo", "numpy")
    }
    assert info.packages["zlib"] == zlib.ZLIB_RUNTIME_VERSION
    assert info.compiler.split()[0] in ("gcc", "clang") and info.compiler.split()[1][0].isdigit()
    assert info.compiled_for[0] == {"arm64": "aarch64"}.get(platform.machine(), platform.machine())


def test_it_cannot_be_changed():
    info = build_info()
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.kernel = "other"
    with pytest.raises(TypeError):
        info.packages["numpy"] = "0"


def test_the_line_says_all_that_matters():
    info = build_info()
    line = str(info)
    assert "\n" not in line
    for part in (f"kafka07c {info.version} ", info.compiler, f"crc {info.kernel}", f"gzip {info.gzip}", *info.slow):
        assert part in line


def test_the_kernel_and_why():
    found = info_under(KAFKA07C_KERNEL="")
    assert found["kernel"] == found["kernels"][0] == _crc32.kernels()[0]
    assert found["kernel_reason"] == "the best that this CPU can run"
    assert set(found["kernels"]) <= set(found["kernels_compiled"])
    found = info_under(KAFKA07C_KERNEL="slice16")
    assert (found["kernel"], found["kernel_reason"]) == ("slice16", "KAFKA07C_KERNEL=slice16")
    assert any("slice16" in reason for reason in found["slow"])


@pytest.mark.skipif(len(_crc32.kernels()) < 2, reason="this CPU runs the portable kernel alone")
def test_a_kernel_that_was_selected_by_hand(monkeypatch):
    monkeypatch.delenv("KAFKA07C_KERNEL", raising=False)
    before = _crc32.kernel()
    try:
        _crc32.select_kernel("slice16")
        info = build_info()
    finally:
        _crc32.select_kernel(before)
    assert (info.kernel, info.kernel_reason) == ("slice16", "chosen by select_kernel()")
    assert f"CRC by slice16, not {info.kernels[0]} (chosen by select_kernel())" in info.slow


def test_without_isal_it_says_so_and_works():
    found = info_under(
        "import sys, gzip; sys.modules['isal'] = None\n"
        "from kafka07c import MessageSet, build_message_set\n"
        "assert [bytes(m.value) for m in MessageSet(build_message_set([b'x'], codec='gzip'))] == [b'x']"
    )
    assert found["gzip"] == "zlib"
    assert [reason for reason in found["slow"] if "isal" in reason] != []


def test_with_isal_nothing_is_slow():
    pytest.importorskip("isal")
    found = info_under(KAFKA07C_KERNEL="")
    assert found["gzip"] == "isal"
    assert [reason for reason in found["slow"] if "gzip" in reason] == []


# --- imports that cannot be ---------------------------------------------------------------------------------------


def import_copy(package: Path, code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Imports the package there, without site: an editable installation would find in the checkout what it lacks."""
    paths = [str(package.parent), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    script = f"import sys; sys.path[:0] = {paths}; {code}\nimport kafka07c; print(kafka07c.__file__)"
    return subprocess.run(
        [sys.executable, "-S", "-P", "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def copy(tmp_path):
    """The package without its larger parts, to be broken."""
    package = tmp_path / "kafka07c"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("spark", "cli", "__pycache__"))
    found = import_copy(package)
    assert found.stdout.strip() == str(package / "__init__.py"), found.stderr
    return package


def reason_of(copy: Path) -> str:
    found = import_copy(copy)
    assert found.returncode == 1
    last = found.stderr.splitlines()[-1]
    assert last.startswith("ImportError: kafka07c")
    assert last.endswith(": install it (pip install .), or in a checkout build it (make build/built)")
    return last


def test_without_the_core(copy):
    for path in copy.glob("*.so"):
        path.unlink()
    assert "is here without its compiled core (kafka07c._" in reason_of(copy)


def test_a_core_for_another_python(copy):
    here = sysconfig.get_config_var("SOABI")
    for path in copy.glob("*.so"):
        path.rename(path.with_name(path.name.replace(here, here.replace("cpython-3", "cpython-2"))))
    reason = reason_of(copy)
    assert f"was built for another Python: {here.replace('cpython-3', 'cpython-2')}, and this is {here}" in reason


def test_a_core_that_cannot_be_loaded(copy):
    for path in copy.glob("*.so"):
        path.write_bytes(path.read_bytes()[:100])
    assert "does not fit this Python, this machine or itself (" in reason_of(copy)


def test_a_core_of_which_one_part_is_stale(copy, tmp_path):
    """Built for real, from sources that lack what the other extensions were compiled against."""
    pytest.importorskip("Cython")
    (tmp_path / "stale").mkdir()
    (tmp_path / "stale" / "_memory.pyx").write_text("def nothing(): pass\n")
    (tmp_path / "stale" / "setup.py").write_text(
        "from Cython.Build import cythonize\nfrom setuptools import Extension, setup\n"
        "setup(name='stale', ext_modules=cythonize([Extension('kafka07c._memory', ['_memory.pyx'],"
        " extra_compile_args=['-O0'])], language_level=3))\n"
    )
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=tmp_path / "stale", check=True, capture_output=True, timeout=120)
    reason = reason_of(copy)
    assert "does not fit" in reason and "kafka07c._memory" in reason


def test_what_is_not_ours_is_raised_as_it_is(copy):
    found = import_copy(copy, "sys.modules['kazoo'] = None")
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1].startswith("ModuleNotFoundError: No module named 'kazoo.client'")
    (copy.parent / "cramjam.py").write_text("raise ImportError('no symbol for cramjam', name='cramjam')")
    found = import_copy(copy)
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1] == "ImportError: no symbol for cramjam"
    found = import_copy(copy, KAFKA07C_KERNEL="slice17")
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1].startswith("ValueError: CRC kernel 'slice17' is unknown or not for this CPU")
