"""``spark.read.format("kafka07")``: Kafka 0.7 as a Spark data source, with the columns of Spark's own Kafka source."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
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

__all__ = ["SCHEMA", "Kafka07DataSource"]

#: Spark's own columns first, in its order; 0.7 has no key and no timestamp: null
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("broker", IntegerType()),
        StructField("index", IntegerType()),
        StructField("next_offset", LongType()),
    ]
)


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
        options.parse(self.options)  # so that a wrong option is told by load() already
        return SCHEMA

    @shortly
    def reader(self, schema: StructType) -> Kafka07Reader:
        if _columns(schema) != _columns(SCHEMA):
            columns = SCHEMA.simpleString()
            raise options.OptionError(f"format kafka07 has the columns {columns}: leave out .schema(...), and select")
        return Kafka07Reader(options.parse(self.options))


def _columns(schema: StructType) -> list[tuple[str, DataType]]:
    return [(field.name, field.dataType) for field in schema]
