"""kafka07c dump against what the recorded DumpLogSegments printed, and on damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka07c import MessageSet, build_message_set
from kafka07c.cli import dump, main


@pytest.fixture(autouse=True)
def in_golden_folder(golden, monkeypatch):
    """The recorded lines name files as they were named then."""
    monkeypatch.chdir(golden.root)


@pytest.fixture
def run(capsysbinary):
    """Runs ``kafka07c dump``: (exit code, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, bytes, str]:
        code = main(["dump", *map(str, arguments)])
        captured = capsysbinary.readouterr()
        return code, captured.out, captured.err.decode()

    return run


def write(folder: Path, data: bytes, start: int = 0) -> Path:
    path = folder / f"{start:020d}.kafka"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("recorded", "arguments"),
    [
        ("tools/dump-log-segments.txt", ["logs/plain-1/00000000000000000000.kafka"]),
        ("tools/dump-log-segments-noprint.txt", ["-noprint", "logs/mixed-0/00000000000000000000.kafka"]),
        ("tools/dump-log-segments-noprint.txt", ["--no-payload", "logs/mixed-0/00000000000000000000.kafka"]),
    ],
)
def test_byte_for_byte_as_recorded(golden, run, recorded, arguments):
    assert run(*arguments) == (0, golden.bytes(recorded), "")


def test_every_recorded_segment(golden, run):
    files = [segment["file"] for segment in golden.manifest["segments"]]
    expected = []
    for segment in golden.manifest["segments"]:
        expected += [f"Dumping {segment['file']}", f"Starting offset: {segment['start_offset']}"]
        expected += [
            f"offset: {entry['offset']} isvalid: true payloadsize: {entry['payload_size']} magic: {entry['magic']}"
            f" compresscodec: {entry['codec']}"
            for entry in segment["dump_log_segments"]
        ]
        expected.append(f"tail of the log is at offset: {segment['tail_offset']}")
    code, out, err = run("--no-payload", *files)
    assert (code, err) == (0, "")
    assert out.decode().splitlines() == expected


def test_deep_shows_the_recorded_messages(golden, run):
    for segment in golden.manifest["segments"]:
        code, out, _ = run("--deep", "--json", "--no-payload", segment["file"])
        assert code == 0
        lines = [json.loads(line) for line in out.splitlines()]
        messages = [line for line in lines if "index" in line or line["codec"] == "none"]
        assert [(line["next_offset"], line["crc"], line["payload_size"]) for line in messages] == [
            (message["next_offset"], message["crc"], message["payload"]["len"]) for message in segment["messages"]
        ]


def test_json_has_text_or_base64(run, tmp_path):
    path = write(tmp_path, build_message_set([b"text", b"\xff\x00"]), 1000)
    code, out, _ = run("--json", path)
    text, binary = map(json.loads, out.splitlines())
    assert text == {
        "file": str(path), "offset": 1000, "next_offset": 1014, "valid": True, "codec": "none", "magic": 1,
        "crc": 999008199, "payload_size": 4, "payload": "text",
    }  # fmt: skip
    assert binary["payload_base64"] == "/wA=" and "payload" not in binary


def test_bytes_that_are_no_utf8_do_not_spoil_the_lines(run, tmp_path):
    _, out, _ = run(write(tmp_path, build_message_set([b"a\xffb", "ü".encode()])))
    assert [line for line in out.decode().splitlines() if line.startswith("payload:")] == [
        "payload:\ta\N{REPLACEMENT CHARACTER}b",
        "payload:\tü",
    ]


# --- damage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "valid", "tail", "error"),
    [
        ("rec-crc-mid-0", [True, False, True, True, True], 95, "offset 19: corrupt entry"),
        ("rec-crc-last-0", [True, True, True, True, False], 95, "offset 76: corrupt entry"),
        ("rec-garbage-tail-0", [True] * 5, 95, "offset 95: corrupt entry"),
        ("rec-negative-size-0", [True] * 2, 38, "offset 38: corrupt entry"),
        ("rec-small-size-0", [True] * 2, 38, "offset 38: corrupt entry"),
        ("rec-zero-tail-0", [True] * 5, 95, "offset 95: corrupt entry"),
    ],
)
def test_recorded_damage(run, case, valid, tail, error):
    path = f"recovery/before/{case}/00000000000000000000.kafka"
    code, out, err = run("--no-payload", path)
    lines = out.decode().splitlines()
    assert code == 4
    assert ["isvalid: true" in line for line in lines[2:-1]] == valid
    assert lines[-1] == f"tail of the log is at offset: {tail}"
    assert len(err.splitlines()) == 1 and err.startswith(f"kafka07c dump: {path}: {error}")


def test_a_cut_tail_is_told_and_is_no_corruption(run):
    code, out, err = run("--no-payload", "recovery/before/rec-trunc-0/00000000000000000000.kafka")
    assert code == 0
    assert out.decode().splitlines()[-1] == "tail of the log is at offset: 76"
    assert "offset 76: the file ends with 12 bytes of an entry" in err


def test_damage_inside_a_wrapper_is_seen_by_deep_only(run):
    path = "recovery/before/rec-gzip-0/00000000000000000000.kafka"
    code, shallow, err = run(path)
    assert (code, err) == (0, "")
    code, deep, err = run("--deep", "--json", path)
    assert code == 4
    assert "offset 0: corrupt entry" in err
    lines = [json.loads(line) for line in deep.splitlines()]
    # the good messages before the bad one, and the good wrapper behind it
    assert [line["offset"] for line in lines if "index" not in line] == [0, 68]
    assert [line["index"] for line in lines if line.get("index") is not None and line["offset"] == 0] == [0, 1]


@pytest.mark.parametrize("size", [-1, 0, 4, 2**31 - 1])
def test_a_size_that_cannot_be_ends_the_file_without_taking_memory(run, tmp_path, size):
    good = build_message_set([b"good"])
    path = write(tmp_path, good + size.to_bytes(4, "big", signed=True) + bytes(100))
    with open(path, "r+b") as file:
        file.truncate(3 << 30)  # sparse: there would be as many bytes
    code, out, err = run(path)
    assert code == 4
    assert out.decode().splitlines()[-1] == f"tail of the log is at offset: {len(good)}"
    assert f"offset {len(good)}: " in err


def test_an_unknown_codec_is_an_invalid_entry(run, tmp_path):
    bad = bytearray(build_message_set([b"what"]))
    bad[5] = 3
    code, out, err = run("--no-payload", write(tmp_path, bytes(bad) + build_message_set([b"next"])))
    assert code == 4 and "offset 0" in err
    lines = out.decode().splitlines()
    assert lines[2] == "offset: 0 isvalid: false payloadsize: 4 magic: 1 compresscodec: unknown codec 3"
    assert lines[3].startswith("offset: 14 isvalid: true")


def test_entries_larger_than_a_window_and_across_its_edge(run, tmp_path, monkeypatch):
    monkeypatch.setattr(dump, "_WINDOW", 64)
    payloads = [b"x" * size for size in (0, 1, 30, 54, 55, 64, 65, 1000, 3)]
    data = build_message_set(payloads)
    path = write(tmp_path, data, 500)
    code, out, err = run("--json", path)
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["payload"].encode() for line in lines] == payloads
    assert [line["offset"] for line in lines] == MessageSet(data, 500).offsets.tolist()


# --- arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["segment.kafka", "abc", f"{0:023d}.kafka", "99999999999999999999.kafka"])
def test_a_name_without_an_offset_is_a_usage_error(run, tmp_path, name):
    (tmp_path / name).touch()
    code, out, err = run(tmp_path / name)
    assert (code, out) == (2, b"")
    assert "no segment file" in err


def test_a_missing_file_is_named(run, tmp_path):
    code, _, err = run(tmp_path / f"{0:020d}.kafka")
    assert code == 2
    assert "No such file" in err and len(err.splitlines()) == 1


def test_a_folder_is_no_segment(run, tmp_path):
    (tmp_path / f"{0:020d}.kafka").mkdir()
    code, _, err = run(tmp_path / f"{0:020d}.kafka")
    assert code == 2 and len(err.splitlines()) == 1
