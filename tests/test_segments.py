"""Reading logs: golden segments, every cut, damage and seams between segments, directories that change, memory."""

from __future__ import annotations

import base64
import gc
import hashlib
import os
import pickle
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from kafka07c import MessageSet, build_message_set
from kafka07c.errors import CorruptMessageError, LogError, MessageTooLargeError, OffsetOutOfRangeError
from kafka07c.segments import CorruptRange, Log, Segment, find_logs
from kafka07c.segments.files import parse_log_name, segment_name

GOLDEN = Path(__file__).parent / "golden07"
LOGS = sorted(path.name for path in (GOLDEN / "logs").iterdir())
MIB = 1024 * 1024


def make_log(root: Path, segments: dict[int, bytes], name: str = "clicks-0") -> Path:
    directory = root / name
    directory.mkdir(exist_ok=True)
    for start, data in segments.items():
        (directory / segment_name(start)).write_bytes(data)
    return directory


def entry(payload: bytes) -> bytes:
    return build_message_set([payload])


def values(sets) -> list[bytes]:
    return [message.value for messages in sets for message in messages.good()]


def row(message) -> tuple:
    return message.offset, message.index, message.next_offset, message.value


def errors(sets) -> list:
    return [messages.error for messages in sets if messages.error is not None]


def flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :]


ONE, TWO, THREE = entry(b"one"), entry(b"two two"), entry(b"three three")
SIX = [entry(b"message %d" % i) for i in range(6)]
N = len(SIX[0])


# --- recorded logs


def recorded(golden, log: str) -> list[dict]:
    """What the Scala classes read from the segments of ``log``, in order, with absolute offsets."""
    found = []
    for segment in golden.manifest["segments"]:
        if segment["file"].startswith(f"logs/{log}/"):
            found += [(segment["start_offset"], message) for message in segment["messages"]]
    return found


@pytest.mark.parametrize("name", LOGS)
def test_recorded_log_reads_as_scala_reads_it(golden, name):
    log = Log(GOLDEN / "logs" / name, broker=7)
    files = [it for it in golden.manifest["segments"] if it["file"].startswith(f"logs/{name}/")]
    assert [(it.start_offset, it.size, it.path.name) for it in log.segments] == [
        (it["start_offset"], it["bytes"], Path(it["file"]).name) for it in files
    ]
    topic, _, partition = name.rpartition("-")
    assert (log.topic, log.partition, log.start_offset) == (topic, int(partition), 0)
    assert log.end_offset == log.flushed_offset == files[-1]["start_offset"] + files[-1]["bytes"]

    messages = [message for messages in log.scan() for message in messages]
    expected = recorded(golden, name)
    assert len(messages) == len(expected)
    for message, (start, scala) in zip(messages, expected, strict=True):
        assert message.crc == scala["crc"]
        assert message.next_offset == start + scala["next_offset"] or message.next_offset == scala["next_offset"]
        assert hashlib.sha1(message.value).hexdigest() == scala["payload"]["sha1"]
        if "base64" in scala["payload"]:
            assert message.value == base64.b64decode(scala["payload"]["base64"])
        assert (message.topic, message.partition, message.broker) == (topic, int(partition), 7)


@pytest.mark.parametrize("name", LOGS)
def test_recorded_log_verifies(golden, name):
    report = Log(GOLDEN / "logs" / name).verify()
    files = [it for it in golden.manifest["segments"] if it["file"].startswith(f"logs/{name}/")]
    assert report.ok and report.torn_tail is None and report.lookalikes == 0 and report.others == ()
    assert report.messages == sum(len(it["messages"]) for it in files)
    assert report.entries == sum(len(it["dump_log_segments"]) for it in files)
    assert report.bytes == sum(it["bytes"] for it in files)
    dumped = [line["codec"] for it in files for line in it["dump_log_segments"]]
    assert report.wrappers == {
        "gzip": dumped.count("GZIPCompressionCodec"),
        "snappy": dumped.count("SnappyCompressionCodec"),
    }
    assert [(it.start_offset, it.bytes, it.entries, it.messages, it.corrupt) for it in report.segments] == [
        (it["start_offset"], it["bytes"], len(it["dump_log_segments"]), len(it["messages"]), 0) for it in files
    ]
    assert pickle.loads(pickle.dumps(report)) == report


@pytest.mark.parametrize("name", LOGS)
def test_recorded_log_reads_the_same_in_small_pieces(name):
    log = Log(GOLDEN / "logs" / name)
    whole = [row(m) for s in log.scan() for m in s]
    for chunk_bytes in (1, 7, 100):
        assert [row(m) for s in log.scan(chunk_bytes=chunk_bytes) for m in s] == whole
    offset, read = log.start_offset, []
    while offset < log.end_offset:
        messages = log.read(offset, 1)
        read += map(row, messages)
        assert messages.next_offset > offset
        offset = messages.next_offset
    assert read == whole


def test_recorded_fetches_are_what_read_gives(golden):
    """The recorded FETCH answers from topic seg: never across a segment, on to the next at its end, out of range."""
    log = Log(GOLDEN / "logs" / "seg-0")
    seen = 0
    for exchange in golden.manifest["exchanges"]:
        request = exchange.get("request")
        if exchange["api"] != "FETCH" or not request or request["topic"] != "seg" or request["max_size"] < 4:
            continue
        seen += 1
        expected = exchange["expected"]
        if expected["error_code"] == 1:
            with pytest.raises(OffsetOutOfRangeError):
                log.read(request["offset"], request["max_size"])
            continue
        messages = log.read(request["offset"], request["max_size"])
        assert bytes(messages.data) == golden.bytes(exchange["response_file"])[6:]
        assert messages.valid_bytes == expected["valid_bytes"]
    assert seen >= 4


def test_recorded_offsets_answers(golden, tmp_path):
    """OFFSETS by time compares with the files' times: those of the recording are put on copies of the segments."""
    times = next(it["segments"] for it in golden.manifest["exchanges"] if it["name"] == "offsets-seg-time-minus-3")
    directory = make_log(tmp_path, {}, "seg-0")
    for file in times:
        path = directory / file["file"]
        path.write_bytes(golden.bytes(f"logs/seg-0/{file['file']}"))
        os.utime(path, ns=(0, file["last_modified_ms"] * 1_000_000))
    make_log(tmp_path, {0: b""}, "empty-0")
    make_log(tmp_path, {0: golden.bytes("logs/plain-0/00000000000000000000.kafka")}, "plain-0")
    first = {path.name: path.read_bytes() for path in (GOLDEN / "start" / "rec-gap-0").iterdir()}
    make_log(tmp_path, {int(name[:20]): data for name, data in first.items()}, "rec-gap-0")
    make_log(tmp_path, {}, "nosuch-0")
    seen = 0
    for exchange in golden.manifest["exchanges"]:
        request = exchange.get("request")
        if exchange["api"] != "OFFSETS" or not (tmp_path / f"{request['topic']}-{request['partition']}").is_dir():
            continue
        # the recording's clock stands where its last question about a time was asked
        log = Log(tmp_path / f"{request['topic']}-{request['partition']}", clock=lambda: 1795170315.6)
        seen += 1
        if exchange["outcome"] != "response":
            with pytest.raises(ValueError):
                log.get_offsets_before(request["time"], request["max_offsets"])
        else:
            offsets = log.get_offsets_before(request["time"], request["max_offsets"])
            assert offsets == exchange["expected"]["offsets"], exchange["name"]
    assert seen == 21


def test_offsets_before_a_time_go_by_the_latest_old_enough_segment(tmp_path):
    """0.7.2 walks down from the end to the first that is old enough; what lies before it counts whatever its time."""
    directory = make_log(tmp_path, {0: ONE, len(ONE): TWO})
    os.utime(directory / segment_name(0), (5000, 5000))
    os.utime(directory / segment_name(len(ONE)), (1000, 1000))
    log = Log(directory, clock=lambda: 9000)
    assert log.get_offsets_before(2_000_000, 10) == [len(ONE), 0]
    assert log.get_offsets_before(9_000_000, 10) == [len(ONE + TWO), len(ONE), 0]
    assert log.get_offsets_before(8_999_999, 10) == [len(ONE), 0]
    assert log.get_offsets_before(999_999, 10) == []


# --- every cut


def test_every_cut_of_the_last_segment_is_a_torn_tail(tmp_path):
    data = ONE + build_message_set([b"in", b"side"], codec="gzip") + THREE
    ends = [0, len(ONE), len(data) - len(THREE), len(data)]
    counts = [0, 1, 3, 4]
    directory = make_log(tmp_path, {100: TWO})
    path = directory / segment_name(100 + len(TWO))
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        log = Log(directory)
        whole = max(i for i, end in enumerate(ends) if end <= cut)
        sets = list(log.scan())
        assert errors(sets) == []
        assert len(values(sets)) == 1 + counts[whole]
        report = log.verify()
        start = 100 + len(TWO)
        torn = None if cut == ends[whole] else (start + ends[whole], start + cut)
        assert report.ok and report.torn_tail == torn and report.messages == 1 + counts[whole]
        tail = log.read(start + ends[whole], 10)
        assert len(tail) == 0 and tail.error is None and tail.valid_bytes == 0


def test_every_cut_of_a_closed_segment_is_damage(tmp_path):
    data = ONE + TWO
    following = 200
    directory = make_log(tmp_path, {following: THREE})
    path = directory / segment_name(following - len(data))
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        log = Log(directory)
        stopped = list(log.scan())
        whole = [b"one"] if cut >= len(ONE) else []
        assert values(stopped) == whole
        [error] = errors(stopped)
        assert stopped[-1].error is error and isinstance(error, CorruptMessageError)
        assert error.offset == log.start_offset + (len(ONE) if whole else 0)
        assert error.next_offset == following
        skipped = list(log.scan(on_corrupt="skip"))
        assert values(skipped) == [*whole, b"three three"]
        assert len(errors(skipped)) == 1
        report = log.verify()
        assert not report.ok and report.messages == len(whole) + 1
        assert report.gaps == ((log.start_offset + cut, following),)
        read = log.read(error.offset, 1000)
        assert read.error is not None and read.error.next_offset == following and len(read) == 0


# --- damage


@pytest.mark.parametrize("bad", range(6))
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("chunk_bytes", [1, N + 3, MIB])
def test_bad_crc_stops_the_scan_or_is_skipped(tmp_path, bad, last, chunk_bytes):
    """The length of the bad entry is believed, wherever chunks end and whether or not anything follows it."""
    data = flip(b"".join(SIX), bad * N + N - 1)
    directory = make_log(tmp_path, {50: data} if last else {50: data, 50 + 6 * N: ONE})
    log = Log(directory)
    stopped = list(log.scan(chunk_bytes=chunk_bytes))
    assert values(stopped) == [b"message %d" % i for i in range(bad)]
    assert stopped[-1].error.offset == 50 + bad * N
    assert stopped[-1].error.next_offset == 50 + (bad + 1) * N
    assert (stopped[-1].error.topic, stopped[-1].error.partition) == ("clicks", 0)
    skipped = list(log.scan(on_corrupt="skip", chunk_bytes=chunk_bytes))
    assert values(skipped) == [b"message %d" % i for i in range(6) if i != bad] + ([] if last else [b"one"])
    assert len(errors(skipped)) == 1
    report = log.verify()
    assert [(it.start, it.end) for it in report.corrupt] == [(50 + bad * N, 50 + (bad + 1) * N)]
    assert not report.ok and report.torn_tail is None


@pytest.mark.parametrize("size", [-1, 0, 4, -(2**31), 10**9, 2**31 - 1])
def test_bad_size_field_in_a_closed_segment_goes_on_with_the_next(tmp_path, size):
    data = SIX[0] + size.to_bytes(4, "big", signed=True) + b"".join(SIX[1:])
    log = Log(make_log(tmp_path, {0: data, len(data): ONE}))
    assert values(log.scan()) == [b"message 0"]
    skipped = list(log.scan(on_corrupt="skip"))
    assert values(skipped) == [b"message 0", b"one"]
    [error] = errors(skipped)
    assert error.offset == N
    assert [(it.start, it.end) for it in log.verify().corrupt] == [(N, len(data))]


def test_size_field_past_the_end_of_the_last_segment_takes_no_memory(tmp_path):
    """It may be a writer's entry on its way, so it is a torn tail; but nobody allocates a gigabyte for it."""
    size = 2**30
    data = ONE + size.to_bytes(4, "big") + bytes([1, 0]) + b"x" * 100
    directory = make_log(tmp_path, {0: data})
    printed = run_python(f"""
        import resource
        from kafka07c.segments import Log
        log = Log({str(directory)!r}, max_message_bytes={size})
        taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + 100_000_000,) * 2)
        print([m.value for messages in log.scan() for m in messages], len(log.read({len(ONE)})), log.verify().torn_tail)
    """)
    assert printed == f"[b'one'] 0 ({len(ONE)}, {len(data)})"


def test_damage_inside_a_wrapper_gives_what_was_good(tmp_path):
    inner = bytearray(ONE + TWO + THREE)
    inner[len(ONE + TWO) - 1] ^= 1
    wrapper = _wrapper(bytes(inner))
    log = Log(make_log(tmp_path, {0: wrapper + SIX[0]}))
    [stopped] = log.scan()
    assert [m.value for m in stopped.good()] == [b"one"]
    assert (stopped.error.offset, stopped.error.next_offset) == (0, len(wrapper))
    assert values(log.scan(on_corrupt="skip")) == [b"one", b"message 0"]


def _wrapper(inner: bytes) -> bytes:
    """A gzip wrapper, with a right CRC, around any bytes."""
    import gzip
    import zlib

    payload = gzip.compress(inner)
    body = bytes([1, 1]) + zlib.crc32(payload).to_bytes(4, "big") + payload
    return len(body).to_bytes(4, "big") + body


def test_start_in_the_middle_of_an_entry_is_damage_at_that_place(tmp_path):
    log = Log(make_log(tmp_path, {0: b"".join(SIX), 6 * N: ONE}))
    for start in set(range(6 * N)) - set(range(0, 6 * N, N)):
        [messages] = log.scan(start)
        assert len(messages) == 0 and messages.error.offset == start
        assert log.read(start).error.offset == start


def test_entry_above_the_limit(tmp_path):
    big = entry(b"x" * 5000)
    log = Log(make_log(tmp_path, {0: ONE + big + TWO}), max_message_bytes=1000)
    assert values(log.scan(chunk_bytes=64)) == [b"one"]
    skipped = list(log.scan(on_corrupt="skip", chunk_bytes=64))
    assert values(skipped) == [b"one", b"two two"]
    [error] = errors(skipped)
    assert isinstance(error, MessageTooLargeError)
    assert (error.offset, error.size, error.max_message_bytes) == (len(ONE), len(big) - 4, 1000)
    assert values([log.read(len(ONE), len(big))]) == [b"x" * 5000], "the limit is for sets that have to grow"


def test_size_field_above_the_limit_with_nothing_behind_it_is_damage(tmp_path):
    data = ONE + (5000).to_bytes(4, "big") + b"\x01" * 9000
    log = Log(make_log(tmp_path, {0: data, len(data): TWO}), max_message_bytes=1000)
    skipped = list(log.scan(on_corrupt="skip", chunk_bytes=64))
    assert values(skipped) == [b"one", b"two two"]
    [error] = errors(skipped)
    assert isinstance(error, CorruptMessageError) and error.offset == len(ONE) and error.next_offset is None


@pytest.mark.parametrize("header", [b"\x02\x00", b"\x01\x03", b"\xff\xff"])
def test_cut_entry_with_a_header_that_cannot_be_one_is_no_torn_tail(tmp_path, header):
    """A size field damaged upwards in the last segment would else end a scan in silence."""
    data = ONE + (60_000).to_bytes(4, "big") + header + b"\0" * 50
    log = Log(make_log(tmp_path, {0: data}))
    [messages] = [messages for messages in log.scan() if messages.error]
    assert (messages.error.offset, messages.error.next_offset) == (len(ONE), None)
    report = log.verify()
    assert [(it.start, it.end) for it in report.corrupt] == [(len(ONE), len(data))] and report.torn_tail is None


@pytest.mark.parametrize("size", [64 * MIB + 1, 2**31 - 1])
def test_size_field_above_the_limit_is_no_torn_tail(tmp_path, size):
    data = ONE + size.to_bytes(4, "big") + bytes([1, 0]) + b"x" * 100
    [error] = errors(Log(make_log(tmp_path, {0: data})).scan())
    assert isinstance(error, CorruptMessageError) and error.offset == len(ONE) and str(size) in str(error)


# --- seams


def test_gap_between_segments(tmp_path):
    log = Log(make_log(tmp_path, {0: ONE, 500: TWO, 500 + len(TWO): THREE}))
    stopped = list(log.scan())
    assert values(stopped) == [b"one"]
    assert (stopped[-1].error.offset, stopped[-1].error.next_offset) == (len(ONE), 500)
    assert "gap of" in str(stopped[-1].error)
    assert values(log.scan(on_corrupt="skip")) == [b"one", b"two two", b"three three"]
    report = log.verify()
    assert (report.gaps, report.overlaps, report.corrupt, report.ok) == (((len(ONE), 500),), (), (), False)
    for offset in (len(ONE), 300, 499):
        messages = log.read(offset)
        assert len(messages) == 0 and messages.error.next_offset == 500
        [first, *rest] = log.scan(offset, on_corrupt="skip")
        assert first.error.next_offset == 500 and values(rest) == [b"two two", b"three three"]
    assert values([log.read(500)]) == [b"two two"]
    assert errors(log.scan(0, len(ONE))) == []


@pytest.mark.parametrize("into", [N, N + 5])
def test_overlap_of_segments(tmp_path, into):
    """Every offset is read once: from the later segment."""
    log = Log(make_log(tmp_path, {0: b"".join(SIX[:3]), into: entry(b"other")}))
    assert values(log.scan()) == [b"message 0"]
    skipped = list(log.scan(on_corrupt="skip"))
    assert values(skipped) == [b"message 0", b"other"]
    assert {error.next_offset for error in errors(skipped)} == {into}
    report = log.verify()
    assert report.overlaps == ((into, 3 * N),) and not report.ok
    assert values([log.read(into)]) == [b"other"]


def test_empty_closed_segment_is_a_gap(tmp_path):
    log = Log(make_log(tmp_path, {0: ONE, len(ONE): b"", 500: TWO}))
    assert values(log.scan(on_corrupt="skip")) == [b"one", b"two two"]
    assert log.verify().gaps == ((len(ONE), 500),)


# --- ranges


def test_every_start_and_end(tmp_path):
    """Entries that start before the end come whole; the rest does not come; wherever chunks and segments end."""
    directory = make_log(tmp_path, {30: b"".join(SIX[:2]), 30 + 2 * N: b"".join(SIX[2:5]), 30 + 5 * N: SIX[5]})
    log = Log(directory)
    for first in range(7):
        for end in range(28, log.end_offset + 5):
            for chunk_bytes in (1, 2 * N + 1, MIB):
                sets = list(log.scan(30 + first * N, end, chunk_bytes=chunk_bytes))
                wanted = [i for i in range(first, 6) if 30 + i * N < end]
                assert values(sets) == [b"message %d" % i for i in wanted]
                assert errors(sets) == []
                assert all(len(messages) for messages in sets)


def test_read_goes_on_with_the_next_segment_and_never_across(tmp_path):
    log = Log(make_log(tmp_path, {0: b"".join(SIX[:2]), 2 * N: b"".join(SIX[2:])}))
    assert values([log.read(0)]) == [b"message 0", b"message 1"]
    assert values([log.read(2 * N)]) == [b"message 2", b"message 3", b"message 4", b"message 5"]
    assert values([log.read(N, 3)]) == [b"message 1"]
    end = log.read(6 * N)
    assert len(end) == 0 and end.error is None and end.next_offset == 6 * N
    for offset in (-1, 6 * N + 1):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.read(offset)
        assert (caught.value.offset, caught.value.code) == (offset, 1)
        with pytest.raises(OffsetOutOfRangeError):
            log.scan(offset)


def test_arguments(tmp_path):
    log = Log(make_log(tmp_path, {0: ONE}))
    for call in (
        lambda: log.read(0, 0),
        lambda: log.scan(chunk_bytes=0),
        lambda: log.scan(on_corrupt="ignore"),
        lambda: log.get_offsets_before(-1, -1),
    ):
        with pytest.raises(ValueError):
            call()


# --- directories


def test_names():
    assert parse_log_name("a-b-c-0") == ("a-b-c", 0)
    assert parse_log_name("a--12") == ("a-", 12)
    assert parse_log_name("-1") is None
    assert parse_log_name("clicks") is None
    assert parse_log_name("clicks-") is None
    assert parse_log_name("clicks-x") is None
    assert parse_log_name(f"clicks-{2**31}") is None
    assert parse_log_name("tópic-☃-3") == ("tópic-☃", 3)


def test_directory_that_is_no_log(tmp_path):
    (tmp_path / "clicks").mkdir()
    with pytest.raises(LogError, match="topic-partition"):
        Log(tmp_path / "clicks")
    with pytest.raises(LogError, match="nowhere-0"):
        Log(tmp_path / "nowhere-0")
    (tmp_path / "file-0").write_bytes(b"")
    with pytest.raises(LogError, match="file-0"):
        Log(tmp_path / "file-0")


def test_relative_path_and_dots_name_the_log(tmp_path, monkeypatch):
    directory = make_log(tmp_path, {0: ONE})
    monkeypatch.chdir(directory)
    assert (Log(".").topic, Log("../clicks-0/").partition) == ("clicks", 0)


def test_empty_directory_is_an_empty_log(tmp_path):
    log = Log(make_log(tmp_path, {}))
    assert (log.start_offset, log.end_offset, log.segments) == (0, 0, ())
    assert list(log.scan()) == [] and len(log.read(0)) == 0
    with pytest.raises(OffsetOutOfRangeError):
        log.read(1)
    assert log.verify().ok
    assert list(log.directory.iterdir()) == []


def test_foreign_files_are_passed_over_and_named(tmp_path):
    directory = make_log(tmp_path, {0: ONE})
    foreign = ["notes.txt", "copy of 0.kafka", f"{segment_name(0)}.cut-3-1700000000000", f"{2**63}.kafka"]
    for name in foreign:
        (directory / name).write_bytes(b"?")
    (directory / segment_name(77)).mkdir()
    os.symlink("nowhere", directory / segment_name(88))
    log = Log(directory)
    assert values(log.scan()) == [b"one"]
    assert log.verify().others == tuple(sorted([*foreign, segment_name(77), segment_name(88)]))


def test_names_without_padding_are_segments_too(tmp_path):
    """0.7.2 takes any number for a start offset."""
    directory = make_log(tmp_path, {0: ONE})
    (directory / segment_name(0)).rename(directory / "0.kafka")
    assert values(Log(directory).scan()) == [b"one"]
    (directory / "00.kafka").write_bytes(TWO)
    with pytest.raises(LogError, match=r"two segments that start at 0: 0\.kafka, 00\.kafka"):
        Log(directory)


def test_segment_that_cannot_be_opened():
    """In a process without root's rights, which would open it all the same."""
    with tempfile.TemporaryDirectory() as root:
        directory = make_log(Path(root), {0: ONE})
        os.chmod(root, 0o755)
        os.chmod(directory, 0o755)
        os.chmod(directory / segment_name(0), 0)
        printed = run_python(f"""
            import os
            from kafka07c.errors import LogError
            from kafka07c.segments import Log
            if os.getuid() == 0:
                os.setuid(65534)
            try:
                list(Log({str(directory)!r}).scan())
            except LogError as error:
                print(error)
        """)
    assert printed.startswith("cannot open the segment") and "Permission denied" in printed


def test_find_logs(tmp_path):
    for name in ("b-10", "b-2", "a-b-0", "notalog", "x-"):
        make_log(tmp_path, {0: ONE}, name)
    (tmp_path / "c-0").write_bytes(b"a file")
    assert [path.name for path in find_logs(tmp_path)] == ["a-b-0", "b-2", "b-10"]
    assert find_logs(tmp_path / "b-2") == [tmp_path / "b-2"]
    assert find_logs(f"{tmp_path}/b-2/") == [tmp_path / "b-2"]
    make_log(tmp_path, {}, "empty-0")
    assert find_logs(tmp_path / "empty-0") == [tmp_path / "empty-0"]
    with pytest.raises(LogError, match="nowhere"):
        find_logs(tmp_path / "nowhere")


def test_log_dir_that_is_named_like_a_partition(tmp_path):
    log_dir = tmp_path / "kafka-0"
    log_dir.mkdir()
    make_log(log_dir, {0: ONE})
    assert find_logs(log_dir) == [log_dir / "clicks-0"]


# --- directories that change


def test_a_growing_log_is_seen(tmp_path):
    directory = make_log(tmp_path, {0: ONE})
    log = Log(directory)
    scan = log.scan()
    with open(directory / segment_name(0), "ab") as file:
        file.write(TWO)
    assert log.end_offset == len(ONE + TWO)
    assert values(scan) == [b"one"], "a scan ends where the log ended when it was asked for"
    make_log(tmp_path, {len(ONE + TWO): THREE})
    assert values(log.scan()) == [b"one", b"two two", b"three three"]
    assert values([log.read(len(ONE + TWO))]) == [b"three three"]


def test_deleted_segments(tmp_path):
    """What is open is read to its end; what has gone before its turn is out of range, not passed over in silence."""
    directory = make_log(tmp_path, {0: b"".join(SIX[:3]), 3 * N: b"".join(SIX[3:])})
    log = Log(directory)
    scan = log.scan(chunk_bytes=N)
    first = next(scan)
    for path in list(directory.iterdir()):
        path.unlink()
    assert values([first]) == [b"message 0"]
    assert values([next(scan), next(scan)]) == [b"message 1", b"message 2"]
    with pytest.raises(OffsetOutOfRangeError, match="deleted"):
        next(scan)


def test_closed_segment_that_has_become_shorter_is_damage(tmp_path):
    """Small enough to be copied; it must not look like the end of the segment."""
    directory = make_log(tmp_path, {0: b"".join(SIX[:3]), 3 * N: b"".join(SIX[3:])})
    scan = Log(directory).scan(chunk_bytes=N)
    next(scan)
    os.truncate(directory / segment_name(0), N + 4)
    rest = list(scan)
    assert values(rest) == [] and errors(rest)[0].offset == N


def run_python(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.strip()


def test_truncation_under_a_reader_does_not_kill_it(tmp_path):
    """A broker's recovery cuts the last segment while it is read, and while messages of it are held."""
    payload = os.urandom(10_000)
    count = 4000
    directory = make_log(tmp_path, {0: build_message_set([payload] * count)})
    printed = run_python(f"""
        import os
        from kafka07c.segments import Log
        log = Log({str(directory)!r})
        scan = log.scan()
        held = [next(scan) for _ in range(3)]
        os.truncate(log.segments[-1].path, 100)
        rest = sum(len(messages) for messages in scan)
        assert all(m.value == held[0][0].value for messages in held for m in messages)
        assert sum(map(len, held)) + rest < {count}
        print(sum(map(len, held)), rest, log.end_offset, len(log.read(0)))
    """)
    assert printed.split()[1:] == ["0", "100", "0"]


def test_deleting_a_mapped_segment_harms_nobody(tmp_path):
    size = 16 * MIB
    data = build_message_set([os.urandom(100_000)] * (size // 100_010))
    directory = make_log(tmp_path, {0: data, len(data): ONE})
    scan = Log(directory).scan()
    held = next(scan)
    for path in list(directory.iterdir()):
        path.unlink()
    found = len(held)
    with pytest.raises(OffsetOutOfRangeError):
        for messages in scan:
            found += len(messages)
    assert found == size // 100_010
    assert len(set(held.payloads())) == 1


# --- memory, and what is held


def test_memory_stays_flat_over_a_large_closed_segment(tmp_path):
    """96 MiB mapped, 96 MiB copied, with sets of a megabyte: nothing of it may stay in memory."""
    data = build_message_set([os.urandom(1000)] * 1000)
    repeat = 96 * MIB // len(data)
    directory = make_log(tmp_path, {})
    for start in (0, repeat * len(data)):
        with open(directory / segment_name(start), "wb") as file:
            for _ in range(repeat):
                file.write(data)
    printed = run_python(f"""
        import resource
        from kafka07c.segments import Log
        log = Log({str(directory)!r})
        next(log.scan())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        messages = largest = 0
        for found in log.scan():
            messages += len(found)
            largest = max(largest, found.size_bytes)
        print(messages, largest, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """)
    messages, largest, grown_kib = map(int, printed.split())
    assert messages == 2 * repeat * 1000
    assert largest <= MIB
    assert grown_kib < 24 * 1024


def test_sets_outlive_the_scan(tmp_path):
    data = build_message_set([b"%06d" % i * 20 for i in range(100_000)])
    log = Log(make_log(tmp_path, {0: data, len(data): ONE}))
    sets = list(log.scan())
    assert len(sets) > 10
    gc.collect()
    assert values(sets) == [b"%06d" % i * 20 for i in range(100_000)] + [b"one"]


def test_many_small_segments_do_not_use_up_file_descriptors(tmp_path):
    directory = make_log(tmp_path, {i * N: SIX[0] for i in range(300)})
    before = len(os.listdir("/proc/self/fd"))
    sets = list(Log(directory).scan())
    assert len(sets) == 300
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_reading_changes_nothing(tmp_path):
    directory = make_log(tmp_path, {0: ONE + TWO[:-2], 500: flip(THREE, 12)})
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}
    log = Log(directory)
    list(log.scan(on_corrupt="skip"))
    log.verify()
    for call in (log.flush, log.roll, log.recover, log.retain, lambda: log.append(ONE), lambda: log.slice(0, 1)):
        with pytest.raises(LogError, match="writable=True"):
            call()
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()} == before


# --- the report


def test_lookalikes_are_counted(tmp_path):
    payloads = [b"\x1f\x8b\x08rest", b"\x82SNAPPY\x00...", b"\x1f\x8b", b"\x82SNAPPY", b"", b"plain", b"\x1f"]
    data = build_message_set(payloads) + build_message_set(payloads, codec="gzip") + build_message_set([b""], magic=0)
    report = Log(make_log(tmp_path, {0: data})).verify()
    assert report.lookalikes == 2
    assert (report.entries, report.messages, report.wrappers) == (9, 15, {"gzip": 1, "snappy": 0})
    assert report.ok


def test_report_of_a_log_in_which_all_is_wrong(tmp_path):
    first = ONE + flip(TWO, len(TWO) - 1) + THREE
    second = SIX[0] + b"\0\0\0\0" + SIX[1]
    log = Log(make_log(tmp_path, {0: first, 200: second, 220: SIX[2] + SIX[3][:-1]}))
    report = log.verify()
    assert report.gaps == ((len(first), 200),)
    assert report.overlaps == ((220, 200 + len(second)),)
    assert report.torn_tail == (220 + N, 220 + 2 * N - 1)
    assert report.corrupt[0] == CorruptRange(len(ONE), len(ONE + TWO), report.corrupt[0].reason)
    assert "CRC" in report.corrupt[0].reason
    assert (report.start_offset, report.end_offset) == (0, 220 + 2 * N - 1)
    assert [it.corrupt for it in report.segments] == [1, 1, 0]
    assert report.messages == 2 + (1 if N <= 20 else 0) + 1


def test_segment_says_where_it_ends(tmp_path):
    segment = Segment(100, 23, tmp_path, 0)
    assert segment.end_offset == 123


def test_set_of_a_log_is_a_message_set(tmp_path):
    log = Log(make_log(tmp_path, {64: ONE}), broker=3)
    messages = log.read(64)
    assert isinstance(messages, MessageSet)
    assert (messages.topic, messages.broker, messages.partition, messages.base_offset) == ("clicks", 3, 0, 64)
    assert list(messages.offsets) == [64]
