"""Writing logs as 0.7.2 does: append, flush and what readers see, roll, retention, slices for sendfile, one writer."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from kafka07c import MessageSet, build_message_set
from kafka07c.errors import CorruptMessageError, LogError, MessageTooLargeError, OffsetOutOfRangeError
from kafka07c.protocol import EARLIEST, LATEST, decode_request
from kafka07c.segments import Log
from kafka07c.segments.files import segment_name

GOLDEN = Path(__file__).parent / "golden07"
#: an entry of 100 bytes
HUNDRED = build_message_set([b"x" * 90])


class Clock:
    """A clock that stands until it is told otherwise."""

    def __init__(self, ms: int = 1_000_000_000):
        self.ms = ms

    def __call__(self) -> float:
        return self.ms / 1000


def open_log(root: Path, name: str = "clicks-0", **settings) -> Log:
    return Log(root / name, writable=True, **{"flush_messages": 1, **settings})


def values(log: Log) -> list[bytes]:
    return [message.value for messages in log.scan() for message in messages]


def starts(log: Log) -> list[int]:
    return [segment.start_offset for segment in log.segments]


# --- append


def test_new_log_has_one_empty_segment(tmp_path):
    with open_log(tmp_path) as log:
        assert [path.name for path in log.directory.iterdir()] == [segment_name(0)]
        assert (log.start_offset, log.end_offset, log.flushed_offset, starts(log)) == (0, 0, 0, [0])
        assert len(log.read(0)) == 0 and list(log.scan()) == []
        assert log.append(b"") == 0


def test_append_writes_the_bytes_that_were_given(tmp_path, golden):
    data = golden.bytes("logs/mixed-0/00000000000000000000.kafka")
    with open_log(tmp_path) as log:
        assert log.append(data) == 0
        assert log.append(MessageSet(data)) == len(data)
        assert log.append(memoryview(bytearray(data))) == 2 * len(data)
    assert (log.directory / segment_name(0)).read_bytes() == data * 3
    assert len(values(Log(log.directory))) == 27


def test_cut_tail_is_left_out(tmp_path):
    with open_log(tmp_path) as log:
        log.append(HUNDRED + HUNDRED[:7])
        log.append(HUNDRED + HUNDRED[:3])
        assert log.append(HUNDRED[:3]) == 200
        assert log.end_offset == 200


def test_reopened_log_goes_on(tmp_path):
    with open_log(tmp_path) as log:
        log.append(HUNDRED)
    with open_log(tmp_path) as log:
        assert log.append(HUNDRED) == 100
        assert log.flushed_offset == 200


@pytest.mark.parametrize("name", ["attrs-0", "bad-0", "mixed-0", "nested-0", "plain-0", "toolarge-0", "trail-0"])
def test_recorded_produce_requests(golden, tmp_path, name):
    """Every recorded PRODUCE to these logs: refused or taken, and the log's end, as the broker had it."""
    seen = 0
    with open_log(tmp_path, name) as log:
        for exchange in golden.manifest["exchanges"]:
            ends = exchange.get("log_end_after") or {}
            if exchange["api"] != "PRODUCE" or list(ends) != [name] or not exchange.get("request"):
                continue
            data = decode_request(golden.bytes(exchange["request_file"])[4:]).message_set
            seen += 1
            assert log.end_offset == exchange["log_end_before"][name]
            if exchange["connection_after"] == "closed":
                with pytest.raises(CorruptMessageError):
                    log.append(data, max_message_bytes=10_000)
            elif ends == exchange["log_end_before"] and data:
                with pytest.raises(MessageTooLargeError) as caught:
                    log.append(data, max_message_bytes=10_000)
                assert (caught.value.size, caught.value.max_message_bytes) == (10_001, 10_000)
            else:
                log.append(data, max_message_bytes=10_000)
            assert log.flushed_offset == ends[name], exchange["name"]
    assert seen
    assert (log.directory / segment_name(0)).read_bytes() == golden.bytes(f"logs/{name}/{segment_name(0)}")


def test_too_large_comes_before_damage_behind_it_and_not_before_damage_in_front(tmp_path):
    """0.7.2 looks at the sizes first and stops at the first entry with a bad CRC; wrappers it opens later."""
    large = build_message_set([b"y" * 200])
    bad = HUNDRED[:-1] + b"!"
    bad_inside = bytearray(build_message_set([build_message_set([b"no set"])], codec="none"))
    bad_inside[5] = 1
    with open_log(tmp_path) as log:
        for data, expected in (
            (large + bad, MessageTooLargeError),
            (bytes(bad_inside) + large, MessageTooLargeError),
            (bad + large, CorruptMessageError),
            (bytes(bad_inside), CorruptMessageError),
        ):
            with pytest.raises(expected):
                log.append(data, max_message_bytes=150)
        assert log.end_offset == 0


def test_failed_append_leaves_the_log_as_it_was(tmp_path):
    """A file size limit stands in for the full disk."""
    printed = run_python(f"""
        import resource, signal
        from kafka07c import build_message_set
        from kafka07c.errors import LogError
        from kafka07c.segments import Log
        log = Log({str(tmp_path / 'clicks-0')!r}, writable=True, flush_messages=1)
        log.append(build_message_set([b"kept"]))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        try:
            log.append(build_message_set([b"z" * 10_000]))
        except LogError as error:
            print(error)
        log.append(build_message_set([b"goes on"]))
        log.close()
    """)
    assert "cannot append to the segment" in printed
    assert values(Log(tmp_path / "clicks-0")) == [b"kept", b"goes on"]
    assert Log(tmp_path / "clicks-0").verify().torn_tail is None


def run_python(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.strip()


# --- flush


def test_only_flushed_bytes_are_seen(tmp_path):
    """As recorded in exchanges 206 to 212: empty at 0, out of range at the true end, until the flush."""
    with open_log(tmp_path, flush_messages=10_000) as log:
        log.append(HUNDRED)
        assert (log.end_offset, log.flushed_offset) == (100, 0)
        assert len(log.read(0)) == 0 and log.slice(0, 1000).count == 0
        for call in (log.read, lambda offset: log.slice(offset, 10), log.scan):
            with pytest.raises(OffsetOutOfRangeError):
                call(100)
        assert log.get_offsets_before(LATEST, 10) == [0]
        assert log.flush() is True
        assert values(log) == [b"x" * 90] and len(log.read(100)) == 0
        assert log.get_offsets_before(LATEST, 10) == [100, 0]
        assert log.flush() is False


def test_flush_by_number_of_messages(tmp_path):
    """Messages count, those in wrappers too; not entries, not appends."""
    with open_log(tmp_path, flush_messages=5) as log:
        log.append(HUNDRED * 4)
        assert log.flushed_offset == 0
        log.append(HUNDRED)
        assert log.flushed_offset == 500
        log.append(build_message_set([b"a"] * 5, codec="gzip"))
        assert log.flushed_offset == log.end_offset > 500


def test_empty_wrapper_counts_for_no_message(tmp_path, golden):
    """As recorded in exchange 142: it stays unseen until something else is flushed, a roll or the end."""
    data = golden.bytes("logs/emptywrap-0/00000000000000000000.kafka")
    with open_log(tmp_path) as log:
        log.append(data)
        assert (log.flushed_offset, log.flush(), log.flushed_offset) == (0, False, 0)
        log.append(HUNDRED)
        assert log.flushed_offset == len(data) + 100
        log.append(data)
        log.roll()
        assert log.flushed_offset == 2 * len(data) + 100
        assert log.verify().ok, "0.7.2 would begin the new segment before the end of the last"
        log.append(data)
    assert Log(log.directory).verify().entries == 4 and Log(log.directory).verify().ok


def test_flush_by_time(tmp_path):
    clock = Clock()
    with open_log(tmp_path, flush_messages=500, clock=clock) as log:
        log.append(HUNDRED)
        clock.ms += 2999
        assert (log.flush_if_older(3000), log.flushed_offset) == (False, 0)
        clock.ms += 1
        assert (log.flush_if_older(3000), log.flushed_offset) == (True, 100)
        log.append(HUNDRED)
        clock.ms += 2999
        assert log.flush_if_older(3000) is False
        clock.ms += 1
        assert log.flush_if_older(3000) is True


def test_close_flushes(tmp_path):
    log = open_log(tmp_path, flush_messages=500)
    log.append(HUNDRED)
    log.close()
    log.close()
    assert values(Log(log.directory)) == [b"x" * 90]
    for call in (lambda: log.append(HUNDRED), log.flush, log.roll, log.recover, log.retain, lambda: log.segments):
        with pytest.raises(LogError, match="closed"):
            call()


# --- roll


def test_roll_by_size_as_recorded(tmp_path, golden):
    """Topic seg had log.file.size 300: twelve messages of 100 bytes make three segments of 400."""
    with open_log(tmp_path, "seg-0", segment_bytes=300) as log:
        for start in (0, 400, 800):
            data = golden.bytes(f"logs/seg-0/{segment_name(start)}")
            for position in range(0, 400, 100):
                log.append(data[position : position + 100])
        assert starts(log) == [0, 400, 800]
    for path in (GOLDEN / "logs" / "seg-0").iterdir():
        assert (log.directory / path.name).read_bytes() == path.read_bytes()


def test_roll_at_the_size_itself_waits(tmp_path):
    with open_log(tmp_path, segment_bytes=200) as log:
        for _ in range(3):
            log.append(HUNDRED)
        assert starts(log) == [0]
        log.append(b"")
        assert starts(log) == [0, 300], "an empty set rolls too, as in 0.7.2"


def test_roll_by_age_counts_from_the_first_append(tmp_path):
    clock = Clock()
    with open_log(tmp_path, roll_ms=1000, clock=clock) as log:
        clock.ms += 5000
        log.append(HUNDRED)
        clock.ms += 1000
        log.append(HUNDRED)
        assert starts(log) == [0]
        clock.ms += 1
        log.append(HUNDRED)
        assert starts(log) == [0, 200]
    clock.ms += 100_000
    with open_log(tmp_path, roll_ms=1000, clock=clock) as log:
        log.append(HUNDRED)
        assert starts(log) == [0, 200], "a segment that was there before has no first append yet"


def test_roll_on_request(tmp_path):
    with open_log(tmp_path, flush_messages=500) as log:
        log.roll()
        assert starts(log) == [0]
        log.append(HUNDRED)
        log.roll()
        assert (starts(log), log.flushed_offset) == ([0, 100], 100)
        log.append(HUNDRED)
        assert len(log.read(100)) == 0
        log.flush()
        assert values(log) == [b"x" * 90] * 2


def test_roll_does_not_destroy_a_file_of_the_same_name(tmp_path):
    with open_log(tmp_path) as log:
        log.append(HUNDRED)
        (log.directory / segment_name(100)).write_bytes(b"precious")
        with pytest.raises(LogError, match="File exists"):
            log.roll()
        assert (log.directory / segment_name(100)).read_bytes() == b"precious"
        assert log.append(HUNDRED) == 100


# --- retention


def aged_log(root: Path, clock: Clock, ages_ms: list[int], **settings) -> Log:
    """One segment of 100 bytes for each age, the last one empty when its age is None."""
    log = open_log(root, clock=clock, **settings)
    for number, age in enumerate(ages_ms):
        if number:
            log.roll()
        if age is not None:
            log.append(HUNDRED)
            mtime_ns = (clock.ms - age) * 1_000_000
            os.utime(log.directory / segment_name(number * 100), ns=(mtime_ns, mtime_ns))
    return log


def files(log: Log) -> list[str]:
    return sorted(path.name for path in log.directory.iterdir())


def test_retention_by_age_stops_at_the_first_young_segment(tmp_path):
    with aged_log(tmp_path, Clock(), [5000, 4001, 4000, 9000, 10]) as log:
        assert [segment.start_offset for segment in log.retain(max_age_ms=4000)] == [0, 100]
        assert (starts(log), log.start_offset, log.end_offset) == ([200, 300, 400], 200, 500)
        assert files(log) == [segment_name(start) for start in (200, 300, 400)]
        assert log.get_offsets_before(EARLIEST, 1) == [200]
        with pytest.raises(OffsetOutOfRangeError):
            log.slice(199, 10)
        assert log.retain(max_age_ms=4000) == ()
    assert Log(log.directory).verify().ok


def test_retention_of_everything_keeps_the_end_offset(tmp_path):
    with aged_log(tmp_path, Clock(), [5000, 5000]) as log:
        assert len(log.retain(max_age_ms=1)) == 2
        assert (starts(log), log.start_offset, log.end_offset) == ([200], 200, 200)
        assert files(log) == [segment_name(200)]
        assert log.append(HUNDRED) == 200


def test_retention_keeps_an_empty_last_segment(tmp_path):
    clock = Clock()
    with aged_log(tmp_path, clock, [5000, None]) as log:
        last = log.directory / segment_name(100)
        os.utime(last, (1, 1))
        assert [segment.start_offset for segment in log.retain(max_age_ms=1)] == [0]
        assert files(log) == [last.name]
        assert last.stat().st_mtime > 1, "0.7.2 gives it a new time"


@pytest.mark.parametrize(
    ("max_bytes", "left"),
    [(600, [0, 100, 200, 300, 400]), (500, [0, 100, 200, 300, 400]), (499, [0, 100, 200, 300, 400]),
     (401, [0, 100, 200, 300, 400]), (400, [100, 200, 300, 400]), (150, [300, 400]), (1, [400]), (0, [500])],
)
def test_retention_by_size_keeps_so_many_bytes_at_least(tmp_path, max_bytes, left):
    with aged_log(tmp_path, Clock(), [0] * 5) as log:
        log.retain(max_bytes=max_bytes)
        assert starts(log) == left
        assert log.end_offset == 500


def test_no_limits_delete_nothing(tmp_path):
    with aged_log(tmp_path, Clock(), [10**9, 10**9]) as log:
        assert log.retain() == ()
        assert starts(log) == [0, 100]


def test_readers_go_on_while_segments_are_deleted(tmp_path):
    with aged_log(tmp_path, Clock(), [5000, 5000, 0]) as log:
        reader = Log(log.directory).scan(chunk_bytes=1)
        first = next(reader)
        with log.slice(0, 1000) as piece:
            log.retain(max_age_ms=1000)
            assert os.pread(piece.fd, piece.count, piece.position) == HUNDRED
        assert first[0].value == b"x" * 90
        with pytest.raises(OffsetOutOfRangeError):
            next(reader)


def test_segment_that_cannot_be_deleted_stays_in_the_log(tmp_path):
    """Nothing behind it is deleted either: that would leave a gap, on which no broker starts."""
    with aged_log(tmp_path, Clock(), [5000] * 3) as log:
        path = log.directory / segment_name(100)
        held = path.rename(tmp_path / "held")
        path.mkdir()
        with pytest.raises(LogError, match="cannot delete"):
            log.retain(max_bytes=0)
        path.rmdir()
        held.rename(path)
        assert starts(log)[0] == 100
    assert Log(log.directory).verify().ok


# --- slices


def test_slices_are_what_a_fetch_gets(tmp_path):
    with aged_log(tmp_path, Clock(), [0, 0, 0]) as log:
        whole = HUNDRED * 3
        for offset in range(301):
            for max_bytes in (0, 1, 50, 1000):
                stop = min((offset // 100 + 1) * 100, offset + max_bytes, 300)
                with log.slice(offset, max_bytes) as piece:
                    assert piece.count == max(stop - offset, 0)
                    if piece.count:
                        assert os.pread(piece.fd, piece.count, piece.position) == whole[offset:stop]
        for offset in (-1, 301):
            with pytest.raises(OffsetOutOfRangeError):
                log.slice(offset, 10)
        with pytest.raises(ValueError, match="max_bytes"):
            log.slice(0, -1)


def test_slice_goes_out_by_sendfile(tmp_path):
    with open_log(tmp_path) as log:
        log.append(HUNDRED * 2)
        ours, theirs = socket.socketpair()
        with ours, theirs, log.slice(100, 1000) as piece:
            assert os.sendfile(ours.fileno(), piece.fd, piece.position, piece.count) == 100
            assert theirs.recv(1000, socket.MSG_WAITALL | socket.MSG_DONTWAIT) == HUNDRED


def test_slices_leave_no_descriptors(tmp_path):
    with open_log(tmp_path) as log:
        log.append(HUNDRED)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            piece = log.slice(0, 10)
            piece.close()
            piece.close()
        assert len(os.listdir("/proc/self/fd")) == before


# --- one writer, many threads


def test_one_writer_at_a_time(tmp_path):
    with open_log(tmp_path) as log:
        with pytest.raises(LogError, match="one writer at a time"):
            open_log(tmp_path)
        printed = run_python(f"""
            from kafka07c.errors import LogError
            from kafka07c.segments import Log
            try:
                Log({str(log.directory)!r}, writable=True)
            except LogError as error:
                print(error)
        """)
        assert "one writer at a time" in printed
        assert Log(log.directory).end_offset == 0, "readers are not locked out"
        assert files(log) == [segment_name(0)]
    open_log(tmp_path).close()


def test_segments_that_do_not_follow_each_other_are_not_written_to(tmp_path):
    directory = tmp_path / "clicks-0"
    directory.mkdir()
    (directory / segment_name(0)).write_bytes(HUNDRED)
    for start, word in ((150, "gap of 50"), (50, "overlap of 50")):
        path = directory / segment_name(start)
        path.write_bytes(HUNDRED)
        with pytest.raises(LogError, match=word):
            open_log(tmp_path)
        path.unlink()
    open_log(tmp_path).close()


def test_threads_append_and_read(tmp_path):
    """Every append is whole and at the offset it was told; readers never see anything unflushed or torn."""
    writers, appends = 4, 60
    told: dict[int, bytes] = {}
    failures: list[BaseException] = []
    done = threading.Event()

    def guarded(work, *args):
        try:
            work(*args)
        except BaseException as error:
            failures.append(error)

    def write(log: Log, writer: int):
        for number in range(appends):
            payload = b"%d %d " % (writer, number) * 20
            told[log.append(build_message_set([payload]))] = payload

    def read(log: Log):
        while not done.is_set():
            end = log.flushed_offset
            seen = sum(messages.valid_bytes for messages in log.scan())
            assert seen >= end
            with log.slice(0, 10_000) as piece:
                data = os.pread(piece.fd, piece.count, piece.position) if piece.count else b""
                assert MessageSet(data, final=False).error is None

    with open_log(tmp_path, segment_bytes=5000, flush_messages=3) as log:
        threads = [threading.Thread(target=guarded, args=(write, log, writer)) for writer in range(writers)]
        readers = [threading.Thread(target=guarded, args=(read, log)) for _ in range(2)]
        for thread in (*threads, *readers):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        for thread in readers:
            thread.join()
    assert failures == []
    stored = {message.offset: message.value for messages in Log(log.directory).scan() for message in messages}
    assert stored == told and len(told) == writers * appends
    assert Log(log.directory).verify().ok and len(Log(log.directory).segments) > 5
