"""The output folder: the order of a commit, restarts after a kill at any point, the lock, hostile manifests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafka07c.names import TopicPartition
from kafka07c.errors import ManifestError
from kafka07c.spark import manifest as manifest_module
from kafka07c.spark.manifest import (
    STATE,
    CorruptRange,
    DataFile,
    LastEntry,
    Manifest,
    Output,
    PartitionRun,
    Position,
    data_file_name,
)

TP = TopicPartition("clicks", 0, 1)


def staged_run(stage: Path, start: int, end: int, *, partition: int = 1, parts: int = 1) -> PartitionRun:
    """A run of one partition, its files written to ``stage``."""
    cuts = [start + (end - start) * part // parts for part in range(parts + 1)]
    files = []
    for number, (first, after) in enumerate(zip(cuts, cuts[1:])):
        name = f"{partition:04x}{start:08x}{number:04x}.staged"
        content = f"{partition}:{first}-{after}".encode()
        (stage / name).write_bytes(content)
        path = data_file_name("clicks", 0, partition, first, after)
        files.append(DataFile(path, f"{stage.name}/{name}", first, after, 10, len(content)))
    last = LastEntry(end - 5, end, 77)
    return PartitionRun("clicks", 0, partition, start, end, 10 * parts, end - start, last, files=tuple(files))


def visible(folder: Path) -> dict[str, str]:
    """What a reader sees who skips folders that begin with an underscore."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and STATE not in path.relative_to(folder).parts
    }


def leftovers(folder: Path) -> list[Path]:
    return [*(folder / STATE / "staged").iterdir(), *(folder / STATE / "manifests").glob("*.tmp")]


def commit(folder: Path, start: int, end: int, **kwargs) -> Manifest:
    with Output(folder) as output:
        stage = output.stage()
        return output.commit(stage, "logs:0:/x", "stop", [staged_run(stage, start, end, **kwargs)])


def test_a_commit_puts_files_in_place_and_the_next_opening_goes_on_behind_it(tmp_path):
    out = tmp_path / "new" / "folder"
    written = commit(out, 0, 100, parts=2)
    assert visible(out) == {
        "clicks-0-1-00000000000000000000-00000000000000000050.parquet": "1:0-50",
        "clicks-0-1-00000000000000000050-00000000000000000100.parquet": "1:50-100",
    }
    assert not leftovers(out)
    on_disk = Manifest.from_json((out / STATE / "manifests" / "00000001.json").read_bytes(), "it")
    assert on_disk == written
    with Output(out) as output:
        assert output.positions == {TP: Position(100, LastEntry(95, 100, 77))}
        assert output.source == "logs:0:/x"
    assert commit(out, 100, 120).number == 2
    assert len(visible(out)) == 3


def test_last_entry_is_carried_over_a_run_that_met_none(tmp_path):
    commit(tmp_path / "out", 0, 100)
    with Output(tmp_path / "out") as output:
        bad = (CorruptRange(100, 130, "bad CRC"),)
        run = PartitionRun("clicks", 0, 1, 100, 130, last=None, corrupt=bad)
        output.commit(output.stage(), "logs:0:/x", "skip", [run])
    with Output(tmp_path / "out") as output:
        assert output.positions[TP] == Position(130, LastEntry(95, 100, 77))


def test_a_run_that_does_not_go_on_where_the_last_one_ended_is_refused(tmp_path):
    commit(tmp_path / "out", 0, 100)
    with Output(tmp_path / "out") as output:
        stage = output.stage()
        with pytest.raises(ManifestError, match=r"clicks 0-1 goes on at offset 101, but .* end at 100"):
            output.commit(stage, "logs:0:/x", "stop", [staged_run(stage, 101, 120)])
    assert len(visible(tmp_path / "out")) == 1


def test_staged_files_that_no_run_names_are_removed(tmp_path):
    with Output(tmp_path / "out") as output:
        stage = output.stage()
        run = staged_run(stage, 0, 100)
        (stage / "dropped.staged").write_text("of a later segment")
        output.commit(stage, "logs:0:/x", "stop", [run])
    assert list(visible(tmp_path / "out").values()) == ["1:0-100"]
    assert not leftovers(tmp_path / "out")


# --- killed -------------------------------------------------------------------------------------------------------


def run_and_die(out: Path, steps: int) -> int:
    """A run in a process of its own, killed before its call number ``steps`` of the system; how the process ended."""
    child = os.fork()
    if not child:
        try:
            left = steps

            def dying(function):
                def call(*args, **kwargs):
                    nonlocal left
                    left -= 1
                    if left < 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return function(*args, **kwargs)

                return call

            # every step of a commit ends in one of these
            for name in ("rename", "fsync", "mkdir", "rmdir", "unlink", "open"):
                setattr(os, name, dying(getattr(os, name)))
            with Output(out) as output:
                stage = output.stage()
                runs = [staged_run(stage, 100, 200, parts=2), staged_run(stage, 0, 50, partition=2)]
                output.commit(stage, "logs:0:/x", "stop", runs)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_killed_before_any_step_all_or_nothing_is_visible_after_a_restart(tmp_path):
    """Every stage between files, manifest, moves and tidying up, by killing before each system call of the commit."""
    counts = []
    for step in range(100):
        out = tmp_path / f"out{step}"
        commit(out, 0, 100)
        ended = run_and_die(out, step)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
        before = visible(out)
        assert len(before) in (1, 2, 3, 4)
        with Output(out) as output:
            end = output.positions[TP].end
            positions = len(output.positions)
        assert not leftovers(out)
        if end == 100:
            # not committed: as if the run had never been, and it can be done again
            assert positions == 1
            assert visible(out) == before and len(before) == 1
            commit(out, 100, 200, parts=2)
            assert len(visible(out)) == 3
        else:
            # committed: all its files are there
            assert (end, positions) == (200, 2)
            assert sorted(visible(out).values()) == ["1:0-100", "1:100-150", "1:150-200", "2:0-50"]
        counts.append((end, len(before)))
    else:
        pytest.fail("the run never came to its end")
    # the kills fell before the commit, between commit and moves, between moves, and after them
    assert {(100, 1), (200, 1), (200, 2), (200, 3), (200, 4)} >= set(counts) >= {(100, 1), (200, 1), (200, 2), (200, 4)}
    assert len(counts) > 10


def test_a_manifest_that_was_only_begun_is_no_manifest(tmp_path):
    out = tmp_path / "out"
    first = commit(out, 0, 100)
    (out / STATE / "manifests" / "00000002.tmp").write_bytes(first.to_json()[:50])
    with Output(out) as output:
        assert output.positions[TP].end == 100
    assert not leftovers(out)


def test_no_room_for_the_manifest_leaves_all_as_it_was(tmp_path, monkeypatch):
    out = tmp_path / "out"
    commit(out, 0, 100)
    seen = visible(out)

    def full(descriptor):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".tmp"):
            raise OSError(28, "No space left on device")

    with Output(out) as output:
        stage = output.stage()
        run = staged_run(stage, 100, 200)
        monkeypatch.setattr(manifest_module.os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            output.commit(stage, "logs:0:/x", "stop", [run])
        monkeypatch.undo()
        assert visible(out) == seen
        assert output.positions[TP].end == 100
    commit(out, 100, 200)
    assert len(visible(out)) == 2


def test_files_the_user_took_away_are_not_missed(tmp_path):
    out = tmp_path / "out"
    commit(out, 0, 100)
    for name in visible(out):
        (out / name).unlink()
    commit(out, 100, 200)
    assert list(visible(out).values()) == ["1:100-200"]


# --- the lock -----------------------------------------------------------------------------------------------------

HOLDER = """
import sys
from kafka07c.spark.manifest import Output
with Output(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_writer_at_a_time_and_a_kill_frees_the_lock(tmp_path):
    out = tmp_path / "out"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ManifestError, match=rf"being written by process {holder.pid} on \S+ since 20\S+Z"):
            Output(out)
    finally:
        holder.kill()
        holder.communicate()
    Output(out).close()


def test_stray_files_among_the_staged_stop_nobody(tmp_path):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    commit(out, 0, 100)
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (out / STATE / "staged" / ".DS_Store").touch()
    (out / STATE / "staged" / "link").symlink_to(elsewhere)
    Output(out).close()
    assert not leftovers(out) and (elsewhere / "kept").exists()


def test_an_opening_that_fails_gives_the_lock_back(tmp_path):
    out = tmp_path / "out"
    commit(out, 0, 100)
    path = out / STATE / "manifests" / "00000001.json"
    good = path.read_bytes()
    path.write_bytes(b"{")
    with pytest.raises(ManifestError, match="no usable manifest"):
        Output(out)
    path.write_bytes(good)
    Output(out).close()


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "holiday.jpg").write_text("")
    with pytest.raises(ManifestError, match="no ingest wrote"):
        Output(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]
    with pytest.raises(ManifestError, match="is not a folder"):
        Output(tmp_path / "holiday.jpg")


# --- reading manifests --------------------------------------------------------------------------------------------


def document(tmp_path) -> dict:
    commit(tmp_path / "out", 0, 100, parts=2)
    return json.loads((tmp_path / "out" / STATE / "manifests" / "00000001.json").read_text())


def set_at(document: dict, keys: tuple, value) -> bytes:
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("format",), "parquet"),
        (("number",), "1"),
        (("number",), True),
        (("source",), None),
        (("partitions",), 3),
        (("partitions", 0), "clicks"),
        (("partitions", 0, "topic"), 7),
        (("partitions", 0, "broker"), -1),
        (("partitions", 0, "end"), -5),
        (("partitions", 0, "end"), 1 << 63),
        (("partitions", 0, "start"), 101),
        (("partitions", 0, "end"), 99),
        (("partitions", 0, "last"), {"offset": 3}),
        (("partitions", 0, "last"), [1, 2, 3]),
        (("partitions", 0, "corrupt"), [{"start": 9, "end": 3, "reason": ""}]),
        (("partitions", 0, "files", 1, "start"), 49),
        (("partitions", 0, "files", 0, "rows"), 1.5),
        (("partitions", 0, "files", 0, "path"), "../../clicks-0-1-00000000000000000000-00000000000000000050.parquet"),
        (("partitions", 0, "files", 0, "path"), "/etc/passwd"),
        (("partitions", 0, "files", 0, "path"), "orders-0-1-00000000000000000000-00000000000000000050.parquet"),
        (("partitions", 0, "topic"), "../clicks"),
        (("partitions", 0, "files", 0, "staged"), "../manifests/00000001.json"),
        (("partitions", 0, "files", 0, "staged"), "/etc/passwd"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(tmp_path, keys, value):
    data = set_at(document(tmp_path), keys, value)
    with pytest.raises(ManifestError, match=r"x\.json is no usable manifest: "):
        Manifest.from_json(data, "x.json")


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff\xfe", b'"kafka07c-manifest"', b"[" * 100_000])
def test_what_is_no_json_object_is_refused(data):
    with pytest.raises(ManifestError, match="no usable manifest"):
        Manifest.from_json(data, "x.json")


def test_a_newer_format_is_named(tmp_path):
    data = set_at(document(tmp_path), ("version",), 2)
    with pytest.raises(ManifestError, match=r"x\.json has version 2 of the format, this kafka07c knows 1"):
        Manifest.from_json(data, "x.json")


def test_a_missing_manifest_is_noticed(tmp_path):
    out = tmp_path / "out"
    for start in (0, 100, 200):
        commit(out, start, start + 100)
    (out / STATE / "manifests" / "00000002.json").unlink()
    with pytest.raises(ManifestError, match=r"00000003\.json: clicks 0-1 goes on at offset 200, .* end at 100"):
        Output(out)


def test_a_renamed_manifest_is_noticed(tmp_path):
    out = tmp_path / "out"
    commit(out, 0, 100)
    manifests = out / STATE / "manifests"
    os.rename(manifests / "00000001.json", manifests / "00000004.json")
    with pytest.raises(ManifestError, match=r"00000004\.json says that it is number 1"):
        Output(out)


@pytest.mark.parametrize(
    ("topic", "encoded"),
    [
        ("clicks", "clicks"),
        ("a-b.c_d", "a-b.c_d"),
        ("_hidden", "%5Fhidden"),
        (".hidden", "%2Ehidden"),
        ("day=1", "day%3D1"),
        ("a b*c", "a%20b%2Ac"),
        ("a/b", "a%2Fb"),
        ("häuser", "h%C3%A4user"),
    ],
)
def test_no_topic_makes_a_name_that_readers_skip_or_misread(topic, encoded):
    expected = f"{encoded}-3-4-00000000000000000005-00000000000000000060.parquet"
    assert data_file_name(topic, 3, 4, 5, 60) == expected


def test_long_topics_fit_a_file_name_and_stay_apart():
    most = 2**31 - 1, 2**31 - 1, 2**63 - 1, 2**63 - 1
    one, other = data_file_name("ü" * 255, *most), data_file_name("ü" * 254 + "x", *most)
    assert one != other
    assert max(len(one), len(other)) <= 255
