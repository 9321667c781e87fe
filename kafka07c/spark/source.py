"""``spark.read.format("kafka07")``: Kafka 0.7 as a Spark data source, with the columns of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka07c.spark import options
from kafka07c.spark.reader import Kafka07Reader, shortly
from kafka07c.spark.sink import Kafka07StreamWriter, Kafka07Writer, check_columns
from kafka07c.spark.sink_options import parse_write
from kafka07c.spark.stream import Kafka07StreamReader, RefusedStreamReader

__all__ = ["SCHEMA", "Kafka07DataSource", "spark_schema"]

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "broker": IntegerType(),
    "index": IntegerType(),
    "next_offset": LongType(),
    options.HEADERS: ArrayType(_HEADER),
    options.CORRUPT: StringType(),
}


def spark_schema(columns: Iterable[str] = options.COLUMNS) -> StructType:
    """The schema of a query with these columns. Those of Spark's own Kafka source have its names, types and order."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


#: of a query that names no columns
SCHEMA = spark_schema()


class Kafka07DataSource(DataSource):
    """The data source. Opens nothing: Spark makes it anew in other processes.

    (topic, broker, partition, offset, index) names one message for ever; ``partition`` counts within ``broker``.
    The partitions, and what "latest" means, are fixed when Spark first plans a DataFrame: the same DataFrame read again
    gives the same rows. There is no filter push-down and no column pruning: use the options.
    """

    @classmethod
    def name(cls) -> str:
        return "kafka07"

    @shortly
    def schema(self) -> StructType:
        return spark_schema(options.columns(self.options))  # so a wrong option is told by load() already

    @shortly
    def reader(self, schema: StructType) -> Kafka07Reader:
        wanted = options.parse(self.options)
        _check_schema(schema, wanted)
        return Kafka07Reader(wanted)

    def streamReader(self, schema: StructType) -> Kafka07StreamReader | RefusedStreamReader:  # noqa: N802 - Spark's name
        try:
            wanted = options.parse(self.options, streaming=True)
            _check_schema(schema, wanted)
        except options.OptionError as error:
            return RefusedStreamReader(error)
        return Kafka07StreamReader(wanted)

    @shortly
    def writer(self, schema: StructType, overwrite: bool) -> Kafka07Writer:
        wanted = parse_write(self.options)
        if overwrite:
            raise options.OptionError("nothing in a topic can be overwritten: use .mode(\"append\")")
        check_columns(schema, wanted)
        return Kafka07Writer(wanted)

    @shortly
    def streamWriter(self, schema: StructType, overwrite: bool) -> Kafka07StreamWriter:  # noqa: N802 - Spark's name
        wanted = parse_write(self.options)
        check_columns(schema, wanted)
        return Kafka07StreamWriter(wanted)


def _check_schema(schema: StructType, wanted: options.ReadOptions) -> None:
    there = spark_schema(wanted.columns)
    if _columns(schema) != _columns(there):
        raise options.OptionError(
            f"format kafka07 has the columns {there.simpleString()}: leave out .schema(...), and use the option columns"
        )


def _columns(schema: StructType) -> list[tuple[str, DataType]]:
    return [(field.name, field.dataType) for field in schema]
