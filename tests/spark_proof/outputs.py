"""What came out of a query, as its readers see it: columns of values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from kafka07c._arrow import gather
from kafka07c.ranges import Range, open_source
from kafka07c.spark.manifest import STATE, Manifest, Output


def parquet(folder: Path) -> Iterator[pa.Array]:
    """Of Spark's Parquet sink: the files that its log of batches names; others are left over from lost tasks."""
    for path in sorted(_named_files(folder / "_spark_metadata")):
        yield from _values(path)


def _named_files(log: Path) -> Iterator[Path]:
    """Batches, and what Spark has put together of the older ones."""
    batches = {path.stem: path for path in log.iterdir() if path.suffix != ".crc" and not path.name.startswith(".")}
    compacted = [int(name) for name, path in batches.items() if path.suffix == ".compact"]
    first = max(compacted, default=0)
    for name, path in batches.items():
        if int(name) >= first:
            for line in path.read_text().splitlines()[1:]:
                yield Path(unquote(urlparse(json.loads(line)["path"]).path))


def archive(folder: Path) -> Iterator[pa.Array]:
    """Of archive(): the files that the manifests name, which have to be all that there are."""
    with Output(folder) as output:  # which finishes what a killed writer has begun
        manifests = [Manifest.from_json(path.read_bytes(), str(path)) for path in output.manifests_path.iterdir()]
    named = {each.path for manifest in manifests for run in manifest.partitions for each in run.files}
    there = {str(path.relative_to(folder)) for path in folder.rglob("*.parquet") if STATE not in path.parts}
    assert there == named, f"leftovers: {there - named}; missing: {named - there}"
    for name in sorted(named):
        yield from _values(folder / name)


def topic(log_dirs: list[Path], name: str) -> Iterator[pa.Array]:
    """Of a topic: the logs of all brokers."""
    with open_source(logs=",".join(f"{number}:{path}" for number, path in enumerate(log_dirs))) as source:
        for tp in source.partitions(name):
            for part in source.read(Range(*tp, *source.bounds(tp))):
                yield pa.record_batch(gather([part])).column("value")


def _values(path: Path) -> Iterator[pa.Array]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["value"]):
            yield batch.column("value")
