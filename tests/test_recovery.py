"""Recovery of the last segment: the recorded cases byte for byte, every cut and flip, and a writer killed at work."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import pytest

from kafka07c import build_message_set
from kafka07c.errors import LogError
from kafka07c.segments import Log
from kafka07c.segments.files import segment_name

GOLDEN = Path(__file__).parent / "golden07"
CASES = sorted(path.name for path in (GOLDEN / "recovery" / "before").iterdir())
KEPT = sorted(path.name for path in (GOLDEN / "recovery" / "clean-shutdown").iterdir())
NOW_MS = 1_700_000_000_000


def writable_copy(source: Path, root: Path) -> Path:
    directory = root / source.name
    shutil.copytree(source, directory, copy_function=shutil.copyfile)
    return directory


def make_log(root: Path, data: bytes, start: int = 0) -> Path:
    directory = root / "clicks-0"
    directory.mkdir(exist_ok=True)
    (directory / segment_name(start)).write_bytes(data)
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def recover(directory: Path):
    with Log(directory, writable=True, clock=lambda: NOW_MS / 1000) as log:
        return log.recover()


def raw_entry(magic: int, attributes: int, payload: bytes) -> bytes:
    """An entry with a right CRC, whatever its magic and codec."""
    body = bytes([magic, attributes] if magic else [magic]) + zlib.crc32(payload).to_bytes(4, "big") + payload
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("case", CASES)
def test_recorded_case_gives_the_recorded_bytes(golden, tmp_path, case):
    record = next(it for it in golden.manifest["recovery"] if it["before"].startswith(f"recovery/before/{case}/"))
    before = contents(GOLDEN / "recovery" / "before" / case)
    directory = writable_copy(GOLDEN / "recovery" / "before" / case, tmp_path)
    result = recover(directory)
    after = contents(directory)
    [(name, data)] = contents(GOLDEN / "recovery" / "after" / case).items()
    assert after.pop(name) == data
    assert (result.path, result.kept_bytes, result.cut_bytes) == (directory / name, len(data), record["truncated"])
    if record["truncated"]:
        assert result.copy.name == f"{name}.cut-{len(data)}-{NOW_MS}"
        assert after.pop(result.copy.name) == before[name][len(data) :]
        assert result.reason
    else:
        assert result.copy is None and result.reason is None
    assert after == {}


@pytest.mark.parametrize("case", KEPT)
def test_without_recovery_nothing_changes(tmp_path, case):
    """After a clean shutdown a broker does not recover; and it looks at the last segment only."""
    directory = writable_copy(GOLDEN / "recovery" / "clean-shutdown" / case, tmp_path)
    before = contents(directory)
    Log(directory, writable=True).close()
    assert contents(directory) == before


def test_only_the_last_segment_is_recovered(tmp_path):
    """As recorded: the damage in the first of four segments stays, unclean shutdown or not."""
    directory = writable_copy(GOLDEN / "recovery" / "clean-shutdown" / "rec-multi-0", tmp_path)
    before = contents(directory)
    assert recover(directory).cut_bytes == 0
    assert contents(directory) == before


GOOD = [
    build_message_set([b"first"]),
    build_message_set([b"in", b"side"], codec="snappy"),
    build_message_set([b"magic 0"], magic=0),
    build_message_set([b""]),
]
ENDS = [0, *itertools.accumulate(map(len, GOOD))]
DATA = b"".join(GOOD)


def test_every_cut(tmp_path):
    for cut in range(len(DATA) + 1):
        directory = make_log(tmp_path, DATA[:cut], 1000)
        kept = max(end for end in ENDS if end <= cut)
        result = recover(directory)
        assert (result.kept_bytes, result.cut_bytes) == (kept, cut - kept)
        assert (directory / segment_name(1000)).read_bytes() == DATA[:kept]
        if cut > kept:
            assert result.copy.name == f"{segment_name(1000)}.cut-{1000 + kept}-{NOW_MS}"
            assert result.copy.read_bytes() == DATA[kept:cut]
            result.copy.unlink()


def survives(data: bytes) -> int:
    """0.7.2's recovery, straight from its source: how many bytes stay."""
    position = 0
    while len(data) - position >= 4:
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        if size < 5 or position + 4 + size > len(data):
            break
        body = data[position + 4 : position + 4 + size]
        if body[0] > 1 or size < 5 + body[0]:
            break
        payload = 5 + body[0]
        if zlib.crc32(body[payload:]) != int.from_bytes(body[payload - 4 : payload], "big"):
            break
        position += 4 + size
    return position


def test_every_bit_flipped(tmp_path):
    directory = make_log(tmp_path, b"")
    path = directory / segment_name(0)
    with Log(directory, writable=True, clock=lambda: NOW_MS / 1000):
        pass
    for bit in range(len(DATA) * 8):
        damaged = bytearray(DATA)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        result = recover(directory)
        assert result.kept_bytes == survives(bytes(damaged)), bit
        assert path.read_bytes() == damaged[: result.kept_bytes]
        if result.copy:
            assert result.copy.read_bytes() == damaged[result.kept_bytes :]
            result.copy.unlink()


def test_what_0_7_2_does_not_check_stays(tmp_path):
    """Codec 3, and wrappers that do not inflate: their own CRC is right."""
    data = raw_entry(1, 3, b"codec 3") + raw_entry(1, 1, b"no gzip") + raw_entry(1, 2, b"no snappy") + GOOD[0]
    assert recover(make_log(tmp_path, data)).cut_bytes == 0


@pytest.mark.parametrize("bad", [raw_entry(2, 0, b"magic 2"), b"\0\0\0\x05\x01\0\0\0\0", b"\0" * 40])
def test_what_stops_0_7_2_from_starting_is_cut(tmp_path, bad):
    directory = make_log(tmp_path, GOOD[0] + bad + GOOD[0])
    result = recover(directory)
    assert (result.kept_bytes, result.cut_bytes) == (len(GOOD[0]), len(bad + GOOD[0]))
    assert result.copy.read_bytes() == bad + GOOD[0]


def test_entries_larger_than_a_chunk(tmp_path):
    large = build_message_set([os.urandom(3_000_000)])
    assert recover(make_log(tmp_path, GOOD[0] + large + GOOD[1])).cut_bytes == 0
    damaged = large[:-1] + bytes([large[-1] ^ 1])
    directory = make_log(tmp_path, GOOD[0] + large + damaged + GOOD[1])
    result = recover(directory)
    assert result.kept_bytes == len(GOOD[0] + large)
    assert "CRC" in result.reason
    assert result.copy.read_bytes() == damaged + GOOD[1]


def test_readers_do_not_see_the_copy(tmp_path):
    directory = make_log(tmp_path, GOOD[0] + b"\0" * 40)
    copy = recover(directory).copy
    log = Log(directory)
    assert [m.value for messages in log.scan() for m in messages] == [b"first"]
    assert log.verify().others == (copy.name,)


def test_appending_goes_on_where_recovery_cut(tmp_path):
    directory = make_log(tmp_path, GOOD[0] + GOOD[1][:-1], 500)
    with Log(directory, writable=True) as log:
        log.recover()
        assert log.end_offset == log.flushed_offset == 500 + len(GOOD[0])
        assert log.append(GOOD[2]) == 500 + len(GOOD[0])
    assert (directory / segment_name(500)).read_bytes() == GOOD[0] + GOOD[2]
    assert Log(directory).verify().ok


def test_nothing_is_cut_when_the_copy_fails(tmp_path):
    """A file size limit stands in for the full disk; the segment stays as it was and no half of a copy is left."""
    directory = make_log(tmp_path, GOOD[0] + b"\0" * 10_000)
    before = contents(directory)
    script = f"""
        import resource, signal
        from kafka07c.errors import LogError
        from kafka07c.segments import Log
        log = Log({str(directory)!r}, writable=True)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        try:
            log.recover()
        except LogError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert "cannot copy what recovery cuts" in done.stdout and "File too large" in done.stdout
    assert contents(directory) == before


def test_recovery_needs_a_writable_log(tmp_path):
    with pytest.raises(LogError, match="writable=True"):
        Log(make_log(tmp_path, DATA)).recover()


def test_killed_writer(tmp_path):
    """kill -9 in the middle of appends, again and again: all that was flushed is there, recovery makes it whole."""
    directory = tmp_path / "killed-0"
    script = f"""
        import itertools, os
        from kafka07c import build_message_set
        from kafka07c.segments import Log
        log = Log({str(directory)!r}, writable=True, flush_messages=7, segment_bytes=200_000)
        log.recover()
        for number in itertools.count():
            log.append(build_message_set([os.urandom(5000)] * 3))
            if number % 10 == 9:
                print(log.flushed_offset, flush=True)
    """
    flushed = 0
    for _ in range(4):
        writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
        try:
            for _ in range(3):
                line = writer.stdout.readline()
                assert line, "the writer ended by itself"
                flushed = int(line)
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            writer.stdout.close()
        with Log(directory, writable=True) as log:
            log.recover()
            assert log.end_offset >= flushed
        report = Log(directory).verify()
        assert report.ok and report.torn_tail is None
        assert all(len(m) == 5000 for messages in Log(directory).scan() for m in messages)
    assert len(Log(directory).segments) > 1
