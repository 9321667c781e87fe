"""What lies in an output: decoded columns, what did not decode, the formats, and file systems without renames.

The tasks run in this process, without Spark.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import datetime
import gzip
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

import kafka07c.spark
from kafka07c import Codec, build_message_set
from kafka07c._compress import deflate
from kafka07c.cli import main
from kafka07c.errors import DecoderError, ManifestError, OutputFolderError, UndecodableError
from kafka07c.names import TopicPartition
from kafka07c.ranges import Range, open_source
from kafka07c.segments import Log
from kafka07c.spark import ingest, writer
from kafka07c.spark.decoders import FunctionDecoder, JsonDecoder, PrefixedDecoder, parse_schema
from kafka07c.spark.formats import json_texts
from kafka07c.spark.ingest import IngestReport
from kafka07c.spark.layout import OUR_COLUMNS, Layout
from kafka07c.spark.manifest import STATE, Output
from kafka07c.spark.remote import RemoteOutput, files_of, open_output
from kafka07c.spark.writer import write_range


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """ingest() with its tasks in this process."""

    def run_tasks(spark, source, ranges, stage, on_corrupt, layout):
        return {
            range: write_range(source.only(range.tp), range, stage, slot, on_corrupt=on_corrupt, layout=layout)
            for slot, range in enumerate(ranges)
        }

    monkeypatch.setattr(ingest, "run_tasks", run_tasks)
    monkeypatch.setattr(ingest, "_session", lambda spark, master: contextlib.nullcontext())
    monkeypatch.setattr(writer, "BATCH_ROWS", 4)  # several in each range


def append(tmp_path: Path, *sets: bytes, partition: int = 0) -> list[int]:
    """Adds message sets to a log; where each begins."""
    with Log(tmp_path / "logs" / f"clicks-{partition}", writable=True) as log:
        starts = []
        for each in sets:
            starts.append(log.end_offset)
            log.append(each)
    return starts


def run(tmp_path: Path, out, layout: Layout, **options) -> IngestReport:
    with open_source(logs=f"0:{tmp_path / 'logs'}") as source:
        return ingest.ingest(source, ["clicks"], out, layout=layout, **options)


def plain(*payloads: bytes) -> bytes:
    return build_message_set(payloads)


def zipped(*payloads: bytes) -> bytes:
    return build_message_set(payloads, "gzip")


def click(number: int, **fields) -> bytes:
    return json.dumps({"id": number, "name": f"n{number}", **fields}).encode()


def table(out: Path, format: str = "parquet") -> pa.Table:
    return (
        pyarrow.dataset.dataset(out, format=format)
        .to_table()
        .sort_by([("offset", "ascending"), ("index", "ascending")])
    )


def manifests(out: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((out / STATE / "manifests").iterdir())]


JSON = JsonDecoder(parse_schema("id: int64\nname: string\nat: timestamp[us]"))

# --- decoded columns ----------------------------------------------------------------------------------------------


def test_decoded_columns_beside_ours(tmp_path):
    append(tmp_path, plain(click(0), click(1)), zipped(*(click(n, at="2012-01-31T12:00:00") for n in range(2, 9))))
    out = tmp_path / "out"
    report = run(tmp_path, out, Layout(decoder=JSON))
    found = table(out)
    assert found.schema.names == ["topic", "broker", "partition", "offset", "index", "next_offset", "id", "name", "at"]
    assert found["id"].to_pylist() == list(range(9)) and found["name"].to_pylist() == [f"n{n}" for n in range(9)]
    assert found["at"].to_pylist() == [None] * 2 + [datetime.datetime(2012, 1, 31, 12)] * 7
    assert found["index"].to_pylist() == [0, 0, *range(7)]
    assert report.messages == 9 and report.partitions[0].undecodable == 0
    assert manifests(out)[0]["columns"] == {"id": "int64", "name": "string", "at": "timestamp[us]"}


BAD = b'{"id": "seven"}'


@pytest.mark.parametrize("place", range(7))
def test_fail_ends_before_the_entry_and_keep_goes_on_there(tmp_path, place):
    """Whole entries only: of a wrapper with a bad message nothing is taken."""
    sets: list[list[bytes]] = [[click(3 * n), click(3 * n + 1), click(3 * n + 2)] for n in range(7)]
    sets[place][1] = BAD
    starts = append(tmp_path, *((zipped if number % 2 else plain)(*each) for number, each in enumerate(sets)))
    at = starts[place] if place % 2 else starts[place] + len(plain(sets[place][0]))
    out = tmp_path / "out"
    for _ in range(2):  # running again changes nothing, and finds the last entry as it was
        report = run(tmp_path, out, Layout(decoder=JSON))
        [partition] = report.partitions
        assert report.corrupt and not report.incomplete
        assert isinstance(partition.failure, UndecodableError) and partition.end == partition.failure.offset == at
        assert f"topic 'clicks', broker 0, partition 0, offset {at}: message {place % 2} of the entry here" in str(
            partition.failure
        )
        assert partition.undecodable_messages == 1 and partition.corrupt_entries == 0
    before = [n for n in range(3 * place + 1 - place % 2)]
    assert (table(out)["id"].to_pylist() if before else []) == before

    report = run(tmp_path, out, Layout(decoder=JSON, on_undecodable="keep"))
    assert report.messages == 21 - len(before) and report.partitions[0].undecodable == 1
    found = pa.concat_tables(map(pq.read_table, sorted(out.glob("*.parquet"))), promote_options="default")
    found = found.sort_by([("offset", "ascending"), ("index", "ascending")])
    expected = [None if n == 3 * place + 1 else n for n in range(21)]
    assert found["id"].to_pylist() == expected
    assert [row for row in found["_raw"].to_pylist() if row] == [BAD]
    [reason] = [row for row in found["_error"].to_pylist() if row]
    assert 'field id is text, not int64: "seven"' in reason


def test_dead_letters_lie_in_a_file_of_their_own_that_the_manifest_names(tmp_path):
    [start, wrapper] = append(tmp_path, plain(click(0), b"\xff\0", click(1)), zipped(b"bad", click(2), b""))
    out = tmp_path / "out"
    report = run(tmp_path, out, Layout(decoder=JSON, on_undecodable="dead-letter"))
    assert report.messages == 3 and report.partitions[0].undecodable == 3
    assert table(out)["id"].to_pylist() == [0, 1, 2]
    [written] = manifests(out)[0]["partitions"]
    [letters] = written["dead_letters"]
    assert written["undecodable"] == 3 and letters["rows"] == 3 and written["messages"] == 3
    assert letters["path"].startswith("_kafka07c/dead-letters/clicks-0-0-")
    found = pq.read_table(out / letters["path"])
    assert found["value"].to_pylist() == [b"\xff\0", b"bad", b""]
    assert found["index"].to_pylist() == [0, 0, 2] and found["offset"].to_pylist()[1:] == [wrapper] * 2
    assert all("no JSON" in reason for reason in found["error"].to_pylist())
    assert report.to_dict()["partitions"][0]["dead_letters"] == [letters["path"]]
    append(tmp_path, plain(b"again", click(3)))
    assert run(tmp_path, out, Layout(decoder=JSON, on_undecodable="dead-letter")).messages == 1
    assert len(list((out / STATE / "dead-letters").iterdir())) == 2
    assert not list((out / STATE / "staged").iterdir())


def test_only_dead_letters_and_nothing_else(tmp_path):
    append(tmp_path, plain(b"x", b"y"))
    report = run(tmp_path, tmp_path / "out", Layout(decoder=JSON, on_undecodable="dead-letter"))
    assert (report.messages, report.manifest, report.partitions[0].undecodable) == (0, 1, 2)
    with Output(tmp_path / "out") as output:  # the manifest is read and checked anew
        assert output.positions[TopicPartition("clicks", 0, 0)].end == report.partitions[0].end


def test_damage_and_undecodable_messages_in_one_range(tmp_path):
    """Of a damaged wrapper "skip" takes the good beginning; where that does not decode, the damage is ahead again."""
    inner = bytearray(plain(BAD, b"damaged", b"lost"))
    inner[inner.index(b"damaged")] ^= 1
    wrapper = plain(deflate(Codec.GZIP, bytes(inner)))
    append(tmp_path, plain(click(0)))
    [segment] = (tmp_path / "logs" / "clicks-0").iterdir()
    at = segment.stat().st_size
    after = at + len(wrapper)
    segment.write_bytes(segment.read_bytes() + wrapper[:5] + b"\x01" + wrapper[6:] + plain(click(1)))
    report = run(tmp_path, tmp_path / "out", Layout(decoder=JSON), on_corrupt="skip")
    assert (report.partitions[0].end, report.partitions[0].corrupt, report.messages) == (at, [], 1)
    keep = Layout(decoder=JSON, on_undecodable="keep")
    report = run(tmp_path, tmp_path / "out", keep, on_corrupt="skip")
    assert [(bad.start, bad.end) for bad in report.partitions[0].corrupt] == [(at, after)]
    assert (report.messages, report.partitions[0].undecodable) == (2, 1)


def raising(values: pa.Array) -> pa.RecordBatch:
    if b"now" in values.to_pylist():
        raise RuntimeError("cheese")
    return pa.record_batch({"size": pc.binary_length(values)})


def test_a_decoder_that_raises_commits_nothing_of_its_range(tmp_path):
    append(tmp_path, plain(*[b"good"] * 9, b"now"))
    report = run(tmp_path, tmp_path / "out", Layout(decoder=FunctionDecoder(raising)))
    assert report.incomplete and isinstance(report.partitions[0].failure, DecoderError)
    assert "raised RuntimeError: cheese" in str(report.partitions[0].failure)
    assert not list((tmp_path / "out").glob("*.parquet"))
    assert not list((tmp_path / "out" / STATE / "staged").iterdir())


@pytest.mark.parametrize("policy", ["keep", "dead-letter"])
def test_folders_by_a_decoded_column(tmp_path, policy):
    ats = ["2012-01-31T23:59:59", "2012-02-01T00:00:00", None]
    append(tmp_path, plain(*(click(n, at=ats[n % 3]) for n in range(30)), b"bad"))
    out = tmp_path / "out"
    run(tmp_path, out, Layout(decoder=JSON, date_column="at", by_topic=True, on_undecodable=policy))
    folders = {
        path.name: sum(pq.read_metadata(file).num_rows for file in path.iterdir())
        for path in (out / "topic=clicks").iterdir()
    }
    none = 10 + (policy == "keep")
    assert folders == {"date=2012-01-31": 10, "date=2012-02-01": 10, "date=__HIVE_DEFAULT_PARTITION__": none}


def by_length(values: pa.Array) -> pa.Array:
    return pc.binary_length(values).cast(pa.string())


def test_folders_by_payloads_that_are_decoded_as_well(tmp_path):
    append(tmp_path, plain(click(1), click(2), click(30), b"bad"))
    run(tmp_path, tmp_path / "out", Layout(decoder=JSON, date=by_length, on_undecodable="keep"))
    found = {
        path.parent.name: pq.read_table(path, partitioning=None) for path in (tmp_path / "out").glob("*/*.parquet")
    }
    sizes = [f"date={len(click(1))}", f"date={len(click(30))}", "date=3"]
    assert [found[name]["id"].to_pylist() for name in sizes] == [[1, 2], [30], [None]]
    assert found["date=3"].schema.names == [*OUR_COLUMNS, "id", "name", "at", "_raw", "_error"]


def test_a_dictionary_where_it_pays(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "BATCH_ROWS", 65536)
    decoder = JsonDecoder(parse_schema("kind: string\nname: string"))
    payloads = [json.dumps({"kind": f"kind {n % 5}", "name": f"name {n}"}).encode() for n in range(1000)]
    append(tmp_path, plain(*payloads))
    run(tmp_path, tmp_path / "out", Layout(decoder=decoder))
    [path] = (tmp_path / "out").glob("*.parquet")
    group = pq.read_metadata(path).row_group(0)
    encodings = {group.column(n).path_in_schema: group.column(n).encodings for n in range(group.num_columns)}
    assert "RLE_DICTIONARY" in encodings["kind"] and "RLE_DICTIONARY" not in encodings["name"]


def test_what_does_not_go_together():
    nested = JsonDecoder(parse_schema("a: list<string>"))
    for options, said in (
        ({"decoder": JsonDecoder(parse_schema("Topic: string"))}, "makes a column 'Topic', and there is one of ours"),
        ({"decoder": JsonDecoder(parse_schema("_raw: string"))}, "column '_raw'"),
        (
            {"decoder": JsonDecoder(parse_schema("date: string")), "date_column": "date"},
            "column 'date', and there is one",
        ),
        ({"decoder": JSON, "date_column": "when"}, "makes no column 'when'"),
        ({"decoder": JSON, "date_column": "id"}, "column 'id' is int64: dates come from"),
        ({"date_column": "id"}, "needs a decoder"),
        ({"decoder": JSON, "to": "kafka07"}, "byte for byte: no decoder"),
        ({"by_topic": True, "to": "kafka07"}, "no folders by topic"),
        ({"to": "kafka07", "target_bytes": 2 << 30}, "1073741824 bytes at most"),
        ({"to": "xml"}, "one of parquet, arrow, csv, json, kafka07, not 'xml'"),
        ({"to": "arrow", "compression": "gzip"}, "compression of arrow is one of lz4, zstd, none, not 'gzip'"),
        ({"to": "csv", "decoder": nested}, "CSV has no place for column 'a'"),
        ({"on_undecodable": "drop"}, "is fail, keep or dead-letter"),
    ):
        with pytest.raises(ValueError, match=said):
            Layout(**options)
    Layout(decoder=PrefixedDecoder(JsonDecoder(parse_schema("topic: string")), "v_"))


def test_an_output_keeps_its_format_and_the_types_of_its_columns(tmp_path):
    append(tmp_path, plain(click(0)))
    out = tmp_path / "out"
    run(tmp_path, out, Layout(decoder=JSON))
    append(tmp_path, plain(click(1)))
    for layout, said in (
        (Layout(to="csv", decoder=JSON), "holds files of format parquet, not csv"),
        (Layout(), "holds the columns of a decoder"),
        (Layout(decoder=JsonDecoder(parse_schema("id: string"))), "holds column id as int64, it would be string now"),
    ):
        with pytest.raises(ManifestError, match=said):
            run(tmp_path, out, layout)
    assert run(tmp_path, out, Layout(decoder=JsonDecoder(parse_schema("id: int64\nmore: string")))).messages == 1
    append(tmp_path, plain(click(2)))
    with pytest.raises(ManifestError, match="column more as string"):
        run(tmp_path, out, Layout(decoder=JsonDecoder(parse_schema("more: int64"))))


# --- formats ------------------------------------------------------------------------------------------------------

PAYLOADS = [
    b"plain",
    b"",
    'quote " comma, back\\slash\nline \u00fc \U0001f600'.encode(),
    b"\xff\x00bytes",
    b"tab\t\x01",
    b"null",
]


def read_arrow(data: bytes) -> list[bytes]:
    return pa.ipc.open_file(data).read_all()["value"].to_pylist()


def read_csv(data: bytes) -> list[bytes]:
    rows = csv.DictReader(io.StringIO(data.decode(), newline=""))
    return [base64.b64decode(row["value_base64"]) or row["value"].encode() for row in rows]


def read_json(data: bytes) -> list[bytes]:
    rows = map(json.loads, data.decode().splitlines())
    return [base64.b64decode(row["value_base64"]) if "value_base64" in row else row["value"].encode() for row in rows]


FORMATS: dict[tuple[str, str | None], tuple[str, Callable[[bytes], list[bytes]]]] = {
    ("arrow", None): (".arrow", read_arrow),
    ("arrow", "zstd"): (".arrow", read_arrow),
    ("csv", None): (".csv", read_csv),
    ("csv", "gzip"): (".csv.gz", lambda data: read_csv(gzip.decompress(data))),
    ("json", None): (".jsonl", read_json),
    ("json", "gzip"): (".jsonl.gz", lambda data: read_json(gzip.decompress(data))),
}


@pytest.mark.parametrize(("to", "compression"), FORMATS, ids=str)
def test_formats_hold_what_was_sent(tmp_path, to, compression):
    suffix, read = FORMATS[to, compression]
    append(tmp_path, plain(*PAYLOADS), zipped(*PAYLOADS))
    out, layout = tmp_path / "out", Layout(compression, to=to)
    report = run(tmp_path, out, layout)
    append(tmp_path, plain(b"later"))
    assert report.messages == 12 and run(tmp_path, out, layout).messages == 1
    found = sorted(path for path in out.iterdir() if path.name != STATE)
    assert len(found) == 2 and all(path.name.endswith(suffix) for path in found)
    assert [read(path.read_bytes()) for path in found] == [PAYLOADS * 2, [b"later"]]
    with pytest.raises(ManifestError, match="holds files of format"):
        run(tmp_path, out, Layout())


def test_lines_of_json(tmp_path):
    decoder = JsonDecoder(
        parse_schema("id: int64\nok: bool\nx: double\nat: timestamp[us]\npos: struct<a: list<int64>>\nraw: binary")
    )
    append(tmp_path, plain(
        b'{"id": 1, "ok": true, "x": 1.5, "at": "2012-01-31T12:00:00", "pos": {"a": [1, 2]}, "raw": "\\u0001"}', b"{}"
    ))  # fmt: skip
    run(tmp_path, tmp_path / "out", Layout(to="json", decoder=decoder))
    [path] = (tmp_path / "out").glob("*.jsonl")
    one, other = map(json.loads, path.read_text().splitlines())
    place = {"topic": "clicks", "broker": 0, "partition": 0, "offset": 0, "index": 0, "next_offset": one["next_offset"]}
    assert one == place | {
        "id": 1,
        "ok": True,
        "x": 1.5,
        "at": "2012-01-31T12:00:00",
        "pos": {"a": [1, 2]},
        "raw": "\x01",
    }
    assert [other[name] for name in ("id", "ok", "x", "at", "pos", "raw")] == [None] * 6


def test_numbers_that_json_does_not_have():
    assert json_texts(pa.array([1.0, float("nan"), float("inf"), None])).to_pylist() == ["1.0", "null", "null", "null"]


def test_binary_columns_of_csv_need_room(tmp_path):
    append(tmp_path, plain(b"{}"))
    decoder = JsonDecoder(parse_schema("a: binary\na_base64: string"))
    report = run(tmp_path, tmp_path / "out", Layout(to="csv", decoder=decoder))
    assert "two columns of one name" in str(report.partitions[0].failure)


# --- segments -----------------------------------------------------------------------------------------------------


def stored(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def test_segments_are_the_log_byte_for_byte_and_are_read_again(tmp_path):
    sets = [plain(b"%d" % n * 50, b"x") if n % 3 else zipped(*[b"%d" % n] * 40) for n in range(50)]
    append(tmp_path, *sets)
    append(tmp_path, *sets[:5], partition=1)
    out, layout = tmp_path / "out", Layout(to="kafka07", target_bytes=1000)
    first = run(tmp_path, out, layout)
    append(tmp_path, *sets)
    [segment] = (tmp_path / "logs" / "clicks-0").iterdir()
    with open(segment, "ab") as file:
        file.write(plain(b"cut")[:-1])  # the torn tail stays out
    second = run(tmp_path, out, layout)
    assert (first.messages, second.messages) == (50 * 2 + 17 * 38 + 5 * 2 + 2 * 38, 50 * 2 + 17 * 38)
    assert stored(out / "broker-0" / "clicks-0") == b"".join(sets) * 2
    assert stored(out / "broker-0" / "clicks-1") == b"".join(sets[:5])
    with open_source(logs=f"0:{tmp_path / 'logs'}") as log, open_source(logs=f"0:{out / 'broker-0'}") as archive:
        for tp in log.partitions("clicks"):
            assert archive.bounds(tp)[0] == 0

        def messages(source):
            tps = source.partitions("clicks")
            ranges = [Range(*tp, *archive.bounds(tp)) for tp in tps]
            return [[(m.offset, m.index, m.payload.tobytes()) for s in source.read(r) for m in s] for r in ranges]

        assert messages(archive) == messages(log)


def test_segments_need_a_folder_and_no_gaps(tmp_path):
    append(tmp_path, plain(b"a"))
    for out, options, said in (
        ((tmp_path / "out").as_uri(), {}, "on this machine's disks"),
        (tmp_path / "out", {"on_corrupt": "skip"}, "a log has no gaps"),
    ):
        with pytest.raises(ValueError, match=said):
            run(tmp_path, out, Layout(to="kafka07"), **options)
    assert not (tmp_path / "out").exists()


def test_a_segment_ends_before_damage(tmp_path):
    [_, bad, _] = append(tmp_path, plain(b"a"), plain(b"b"), plain(b"c"))
    [segment] = (tmp_path / "logs" / "clicks-0").iterdir()
    data = bytearray(segment.read_bytes())
    data[bad + 9] ^= 1
    segment.write_bytes(data)
    report = run(tmp_path, tmp_path / "out", Layout(to="kafka07"))
    assert report.corrupt and stored(tmp_path / "out" / "broker-0" / "clicks-0") == plain(b"a")


# --- file systems without renames ---------------------------------------------------------------------------------


def as_uri(folder: Path):
    return folder.as_uri()


def as_subtree(folder: Path):
    folder.parent.mkdir(exist_ok=True)
    return pyarrow.fs.SubTreeFileSystem(str(folder.parent), pyarrow.fs.LocalFileSystem()), folder.name


def values_of(out) -> list[bytes]:
    filesystem = out[0] if isinstance(out, tuple) else None
    paths = [path.removeprefix("file://") for path in files_of(out)]
    return [value for path in paths for value in pq.read_table(path, filesystem=filesystem)["value"].to_pylist()]


@pytest.mark.parametrize("place", [as_uri, as_subtree])
def test_the_manifest_alone_says_what_counts(tmp_path, place):
    append(tmp_path, plain(*PAYLOADS))
    folder = tmp_path / "lake" / "out"
    out = place(folder)
    assert run(tmp_path, out, Layout(by_topic=True)).messages == 6
    [first] = folder.glob("topic=clicks/*.parquet")
    # a run that was killed after its task: its file lies there and nobody names it
    append(tmp_path, plain(b"later"))
    with open_source(logs=f"0:{tmp_path / 'logs'}") as source, open_output(out) as output:
        tp = source.partitions("clicks")[0]
        end = output.positions[tp].end
        orphan = Range(*tp, end, source.bounds(tp)[1])
        result = write_range(source, orphan, output.stage(), 0, on_corrupt="stop", layout=Layout(by_topic=True))
    assert result.messages == 1 and len(list(folder.glob("topic=clicks/*.parquet"))) == 2
    assert values_of(out) == PAYLOADS
    assert run(tmp_path, out, Layout(by_topic=True)).messages == 1
    assert len(list(folder.glob("topic=clicks/*.parquet"))) == 2 and first.exists()
    assert values_of(out) == [*PAYLOADS, b"later"]
    assert run(tmp_path, out, Layout(by_topic=True)).manifest is None
    assert {path.name for path in (folder / STATE).iterdir()} == {"manifests", "output"}


def test_a_first_run_that_was_killed_leaves_a_place_of_ours(tmp_path):
    with open_output((tmp_path / "out").as_uri()) as output:
        output.stage().create(TopicPartition("clicks", 0, 0), 0, "", ".parquet").stream.close()
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 1
    open_output((tmp_path / "out").as_uri())
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_a_failing_task_leaves_nothing(tmp_path):
    append(tmp_path, plain(*[b"good"] * 9, b"now"))
    run(tmp_path, (tmp_path / "out").as_uri(), Layout(decoder=FunctionDecoder(raising)))
    assert [path.name for path in (tmp_path / "out").iterdir()] == [STATE]


def test_dead_letters_without_renames(tmp_path):
    append(tmp_path, plain(click(0), b"bad"))
    out = (tmp_path / "out").as_uri()
    run(tmp_path, out, Layout(decoder=JSON, on_undecodable="dead-letter"))
    open_output(out)
    assert len(list((tmp_path / "out" / STATE / "dead-letters").iterdir())) == 1
    assert len(files_of(out)) == 1


def test_two_writers_end_in_an_error_and_not_in_rows_that_are_there_twice(tmp_path):
    append(tmp_path, plain(b"a"))
    out = (tmp_path / "out").as_uri()
    slow, fast = RemoteOutput(out), RemoteOutput(out)
    for output in (slow, fast):
        with open_source(logs=f"0:{tmp_path / 'logs'}") as source:
            tp = source.partitions("clicks")[0]
            range = Range(*tp, *source.bounds(tp))
            stage = output.stage()
            report = ingest.PartitionReport(*tp, start=0, end=0)
            result = write_range(source, range, stage, 0, on_corrupt="stop", layout=Layout())
            ingest.assemble(ingest.Plan(report, [range]), {range: result}, stage.name)
            output.report = report
    fast.commit(fast.stage(), "logs:0:/x", "stop", [fast.report.to_run()])
    with pytest.raises(ManifestError, match="00000001.json exists already: another writer"):
        slow.commit(slow.stage(), "logs:0:/x", "stop", [slow.report.to_run()])
    assert values_of(out) == [b"a"]
    third = RemoteOutput(out)  # sweeps what the slow one wrote
    third._last_number = slow._last_number = 1
    with pytest.raises(ManifestError, match="is gone or altered: has another writer opened"):
        slow.commit(slow.stage(), "logs:0:/x", "stop", [slow.report.to_run()])


def test_the_manifest_is_created_in_one_step_where_it_can_be(tmp_path, monkeypatch):
    """The other writer comes between the look and the writing."""
    append(tmp_path, plain(b"a"))
    out = (tmp_path / "out").as_uri()
    from kafka07c.spark import remote

    create = remote._create

    def late(filesystem, path, data):
        Path(path).write_bytes(b"another's")
        return create(filesystem, path, data)

    monkeypatch.setattr(remote, "_create", late)
    with pytest.raises(ManifestError, match="exists already"):
        run(tmp_path, out, Layout())
    assert (tmp_path / "out" / STATE / "manifests" / "00000001.json").read_bytes() == b"another's"


def test_places_of_others_are_left_alone(tmp_path):
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(OutputFolderError, match="no ingest wrote"):
        open_output(tmp_path.as_uri())
    with pytest.raises(OutputFolderError, match="is not a folder"):
        open_output((tmp_path / "holiday.jpg").as_uri())
    with pytest.raises(OutputFolderError, match="nosuch://"):
        open_output("nosuch://place")
    assert files_of((tmp_path / "nothing").as_uri()) == files_of(tmp_path / "nothing") == []


def test_files_of_a_folder_with_moves_still_to_do(tmp_path, monkeypatch):
    append(tmp_path, plain(b"a"))
    run(tmp_path, tmp_path / "out", Layout())
    append(tmp_path, plain(b"b"))
    monkeypatch.setattr(Output, "move", lambda self, manifest: None)
    monkeypatch.setattr(Output, "discard", lambda self, stage: None)
    run(tmp_path, tmp_path / "out", Layout())
    found = kafka07c.spark.files_of(tmp_path / "out")
    assert [os.path.basename(os.path.dirname(path)) for path in found][0] == "out"
    assert [pq.read_table(path)["value"].to_pylist() for path in found] == [[b"a"], [b"b"]]


# --- as a command


def command(tmp_path: Path, *options: str) -> list[str]:
    return ["ingest", "--logs", f"0:{tmp_path / 'logs'}", "--topic", "clicks", "--out", str(tmp_path / "out"), *options]


def test_columns_by_the_first_messages_stay_what_they_were(tmp_path, capsys):
    append(tmp_path, plain(click(0, topic="t")))
    arguments = command(tmp_path, "--decoder", "json", "--column-prefix", "v_")
    assert main(arguments) == 0
    assert "columns by the first messages" in capsys.readouterr().err
    append(tmp_path, plain(click(1, more=1), b"bad"))
    assert main([*arguments, "--on-undecodable", "dead-letter", "--sample", "1"]) == 0
    printed = capsys.readouterr()
    assert "columns by the first messages" not in printed.err and "undecodable" in printed.out
    assert "1 messages did not decode: _kafka07c/dead-letters/clicks-0-0-" in printed.err
    found = table(tmp_path / "out")
    assert found.schema.names[6:] == ["v_id", "v_name", "v_topic"] and found["v_id"].to_pylist() == [0, 1]


def test_fail_is_exit_code_4_and_names_the_place(tmp_path, capsys):
    schema = tmp_path / "columns"
    schema.write_text("id: int64\n")
    append(tmp_path, plain(click(0), BAD))
    arguments = command(tmp_path, "--decoder", "json", "--schema", str(schema))
    assert main(arguments) == 4
    printed = capsys.readouterr()
    at = len(plain(click(0)))
    assert (
        f"clicks 0-0 was read up to offset {at}: topic 'clicks', broker 0, partition 0, offset {at}: message 0"
        in printed.err
    )
    assert "field id is text" in printed.err and "stopped" in printed.out
    assert main([*arguments, "--on-undecodable", "keep", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["partitions"][0]["undecodable"] == 1


def test_wrong_ways_to_ask(tmp_path, capsys):
    append(tmp_path, plain(b"not json"))
    (tmp_path / "schema").write_text("a: strin")
    for options, said in (
        (["--decoder", "json"], "none of the first messages is a JSON object"),
        (["--decoder", "json", "--schema", str(tmp_path / "schema")], "'strin' is no type of Arrow"),
        (["--decoder", "json", "--schema", str(tmp_path / "nothing")], "No such file"),
        (["--decoder", "avro"], "--decoder avro needs --schema"),
        (["--decoder", "protobuf"], "--decoder protobuf needs --message"),
        (["--decoder", "xml"], "xml: expected MODULE:NAME"),
        (["--decoder", "json:loads"], "--decoder json:loads has to give its columns for no payloads too"),
        (["--schema", "x"], "--schema goes with --decoder json or avro or protobuf"),
        (["--decoder", "json", "--skip-bytes", "5"], "--skip-bytes goes with --decoder avro or protobuf"),
        (["--on-undecodable", "keep"], "go with --decoder"),
        (["--to", "xml"], "the format is one of parquet"),
        (["--to", "csv", "--compression", "snappy"], "compression of csv is one of none, gzip, zstd"),
        (["--to", "kafka07", "--on-corrupt", "skip"], "a log has no gaps"),
        (["--partition-by", "date", "--date-from", "column:at"], "needs a decoder"),
    ):
        assert main(command(tmp_path, *options)) == 2, options
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
