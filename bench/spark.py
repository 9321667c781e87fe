"""Reading and writing with Spark on two cores, each thing beside what it is to be held against, in one run.

    make bench-spark, or python -m bench.spark

- our source to noop, from a live broker and from its logs on disk, against a toy source that yields the same record
  batches ready-made: the roof of Spark's API;
- ingest to Parquet against pyarrow alone in one process, which writes the same rows decoded already, with the same
  settings: the rate of one core;
- ingest against the same rows through Spark's own Parquet writer.

Rows have 139 bytes. Ratios of medians of interleaved runs hold; absolute rates move with the neighbours' load.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import kafka07c.spark
from bench.spark_rows import SIZE, Ratio, Rows, in_turns, parser, payloads, told
from kafka07c.ranges import Range, open_source
from kafka07c.spark.ingest import ingest
from kafka07c.spark.reader import record_batches

CORES = 2

#: record batches in a row group: of 139 bytes a row, a quarter of a million rows
_PER_GROUP = 9

#: what ingest writes, for Spark's own writer to write too
COLUMNS = "topic,broker,partition,offset,index,next_offset,value"


class Toy(DataSource):
    """Yields one record batch of values again and again: ``rows`` in all, ``batch`` in each, by ``tasks`` tasks."""

    @classmethod
    def name(cls) -> str:
        return "toy"

    def schema(self) -> str:
        return "value binary"

    def reader(self, schema: Any) -> DataSourceReader:
        return ToyReader(self.options)


class ToyReader(DataSourceReader):
    def __init__(self, options: Any):
        self._rows, self._batch, self._tasks = (int(options[name]) for name in ("rows", "batch", "tasks"))

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._rows // self._tasks) for _ in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        values = pa.array([row.tobytes() for row in payloads(1, self._batch)], pa.binary())
        ready = pa.record_batch([values], ["value"])
        rest = partition.value
        while rest > 0:
            yield ready if rest >= self._batch else ready.slice(0, rest)
            rest -= self._batch


def to_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def to_parquet(frame: DataFrame, rows: Rows) -> None:
    frame.write.option("compression", "snappy").parquet(str(rows.out()))


def ingested(rows: Rows, options: dict[str, str], topic: str, spark: SparkSession) -> None:
    with open_source(**{name.removeprefix("kafka07."): value for name, value in options.items()}) as source:
        report = ingest(source, [topic], rows.out(), spark=spark)
    assert sum(each.messages for each in report.partitions) == rows.rows, report


def decoded(rows: Rows, topic: str) -> list[pa.RecordBatch]:
    """All of a topic's only partition, with the columns that ingest writes."""
    with open_source(logs=f"0:{rows.logs}") as source:
        (tp,) = source.partitions(topic)
        wanted = Range(*tp, *source.bounds(tp))
        return list(record_batches(source, wanted, columns=COLUMNS.split(",")))


def written(batches: list[pa.RecordBatch], rows: Rows) -> None:
    """By pyarrow alone, with what ingest sets for these columns."""
    out = rows.out()
    out.mkdir()
    schema = batches[0].schema
    with pq.ParquetWriter(
        out / "alone.parquet", schema, compression="snappy", store_schema=False,
        use_dictionary=["topic", "broker", "partition", "index"],
        column_encoding=dict.fromkeys(["offset", "next_offset"], "DELTA_BINARY_PACKED"),
        write_statistics=[name for name in schema.names if name != "value"],
    ) as writer:  # fmt: skip
        for start in range(0, len(batches), _PER_GROUP):
            writer.write_table(pa.Table.from_batches(batches[start : start + _PER_GROUP]))


RATIOS = [
    Ratio("broker to noop : ready-made batches to noop", "broker to noop", "ready-made batches to noop", 0.8),
    Ratio("logs to noop : ready-made batches to noop", "logs to noop", "ready-made batches to noop", 0.8),
    Ratio("ingest from a broker, one task : pyarrow alone", "ingest, broker, one task", "pyarrow alone", 0.6),
    Ratio("ingest from logs, a core : pyarrow alone", "ingest, logs", "pyarrow alone", 0.6, CORES),
    Ratio("ingest from a broker : Spark's Parquet writer", "ingest, broker", "Spark's Parquet writer, broker", 4),
    Ratio("ingest from logs : Spark's Parquet writer", "ingest, logs", "Spark's Parquet writer, logs", 4),
]


def main() -> None:
    options = parser(__doc__, 4_000_000).parse_args()
    spark = kafka07c.spark.session(app="bench", master=f"local[{CORES}]")
    spark.dataSource.register(Toy)
    with Rows(options.rows, {"two": CORES, "one": 1}) as rows:
        batches = decoded(rows, "one")
        sizes = {"rows": str(rows.rows), "batch": str(batches[0].num_rows), "tasks": str(CORES)}

        def read(where: dict[str, str], columns: str) -> DataFrame:
            return spark.read.format("kafka07").options(**where, subscribe="two", columns=columns).load()

        works = {
            "ready-made batches to noop": lambda: to_noop(spark.read.format("toy").options(**sizes).load()),
            "broker to noop": lambda: to_noop(read(rows.live, "value")),
            "logs to noop": lambda: to_noop(read(rows.archived, "value")),
            "pyarrow alone": partial(written, batches, rows),
            "ingest, broker, one task": partial(ingested, rows, rows.live, "one", spark),
            "ingest, broker": partial(ingested, rows, rows.live, "two", spark),
            "ingest, logs": partial(ingested, rows, rows.archived, "two", spark),
            "Spark's Parquet writer, broker": lambda: to_parquet(read(rows.live, COLUMNS), rows),
            "Spark's Parquet writer, logs": lambda: to_parquet(read(rows.archived, COLUMNS), rows),
        }
        times = in_turns(works, options.turns)
        if not options.json:
            print(f"{rows.rows:,} rows of {SIZE} bytes, {CORES} cores, medians of {options.turns} interleaved runs\n")
        told(RATIOS, times, dict.fromkeys(times, rows.rows), options.json)
    spark.stop()


if __name__ == "__main__":
    main()
