"""``write.format("kafka07")`` and ``writeStream``: rows into topics, at least once.

Columns: ``value`` (binary or string, no nulls); if they are there ``topic``, ``key`` (null: no key), and ``broker``
with ``partition``, which name the partition (null in both: chosen as for a row without them). Other columns are left
aside, so what the source gives can be written back as it is.

Arrow in, message sets out: rows are grouped by where they go and handed to the producer as columns. A task ends when
everything it wrote has its final state, and fails if anything of it failed; Spark then runs it again, so **rows may be
written twice, and are never lost without an error**. There is nothing that could be undone when a batch is aborted.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegerType, LongType, ShortType, StringType, StructType

from kafka07c.errors import KafkaError
from kafka07c.names import TopicPartition
from kafka07c.producer import Delivery, Producer
from kafka07c.spark.options import OptionError
from kafka07c.spark.sink_options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Kafka07StreamWriter", "Kafka07Writer", "Written", "check_columns"]

_log = logging.getLogger(__name__)

_TEXT = (BinaryType, StringType)
_NUMBER = (IntegerType, LongType, ShortType)
_COLUMNS = {"value": _TEXT, "key": _TEXT, "topic": (StringType,), "broker": _NUMBER, "partition": _NUMBER}


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote: rows, bytes of payload, and rows by partition (by topic where brokers pick the partition)."""

    rows: int = 0
    bytes: int = 0
    by_partition: Counter[str] = field(default_factory=Counter)

    def __iadd__(self, other: Written) -> Written:
        self.rows += other.rows
        self.bytes += other.bytes
        self.by_partition += other.by_partition
        return self


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """OptionError unless rows of this schema can be written with these options."""
    there = {each.name: each.dataType for each in schema}
    if "value" not in there:
        raise OptionError(f"the sink kafka07 needs a column value; there are {', '.join(there) or 'none'}")
    for name, types in _COLUMNS.items():
        if name in there and not isinstance(there[name], types):
            expected = " or ".join(each.typeName() for each in types)
            raise OptionError(f"column {name} is {there[name].simpleString()}: the sink kafka07 expects {expected}")
    if options.topic is None and "topic" not in there:
        raise OptionError("the sink kafka07 needs the option topic, or a column of that name")
    if ("broker" in there) != ("partition" in there):
        raise OptionError("columns broker and partition name a partition together: give both, or neither")


class _Writer:
    """What the two have in common."""

    def __init__(self, options: WriteOptions):
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One task."""
        task = _Task(_producer(self._options), self._options)
        for batch in iterator:
            if batch.num_rows:
                task.take(batch)
        return task.finish()

    def _told(self, what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
        total = Written()
        for message in messages:
            if isinstance(message, Written):
                total += message
        _log.info("%s: %d rows, %d bytes in %d tasks", what, total.rows, total.bytes, len(messages))


class Kafka07Writer(_Writer, DataSourceArrowWriter):
    """A batch query's sink."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: D102
        self._told("written", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing can be taken back: what was written stays."""
        self._told("aborted; written and not taken back", messages)


class Kafka07StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A stream's sink."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, D102
        self._told(f"batch {batchId} written", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing can be taken back: what was written stays, and comes again."""
        self._told(f"batch {batchId} aborted; written and not taken back", messages)


class _Task:
    """Hands a task's batches to a producer, and hears what became of them."""

    def __init__(self, producer: Producer, options: WriteOptions):
        self._producer = producer
        self._topic = options.topic
        self._written = Written()
        self._lock = threading.Lock()
        self._failed: Delivery | None = None
        self._failures = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Queue all rows; what has failed by now is raised."""
        columns = {name: batch.column(name) for name in _COLUMNS if name in batch.schema.names}
        for topic, partition, rows in _groups(columns, self._topic, batch.num_rows):
            values = columns["value"] if rows is None else columns["value"].take(rows)
            keys = columns.get("key")
            if keys is not None:
                keys = keys if rows is None else keys.take(rows)
                keys = None if keys.null_count == len(keys) else keys.to_pylist()
            self._producer.send_batch(topic, values, keys=keys, partition=partition, on_delivery=self._settled)
            self._written.bytes += int(pc.sum(pc.binary_length(values)).as_py() or 0)
        self._check()

    def _settled(self, delivery: Delivery) -> None:
        with self._lock:
            if delivery.ok:
                self._written.rows += delivery.count
                where = str(delivery.partition) if delivery.partition is not None else delivery.topic
                self._written.by_partition[where] += delivery.count
            else:
                self._failures += delivery.count
                self._failed = self._failed or delivery

    def finish(self) -> Written:
        """Wait for the end of all; what was written, or why not all of it was."""
        self._producer.flush()
        self._check()
        return self._written

    def _check(self) -> None:
        with self._lock:
            if self._failed is not None:
                raise KafkaError(f"{self._failures} rows are {self._failed.state}: {self._failed.error}")


def _groups(
    columns: dict[str, Any], topic: str | None, rows: int
) -> Iterator[tuple[str, TopicPartition | None, Any]]:
    """(topic, partition or None, the rows' numbers) for all that goes to one place; None for the rows: all of them."""
    _refuse_nulls("value", columns["value"])
    names: list[str] = [topic] if topic is not None else []
    codes = numpy.zeros(rows, numpy.int64)
    if topic is None:
        _refuse_nulls("topic", columns["topic"])
        found = columns["topic"].dictionary_encode()
        names, codes = found.dictionary.to_pylist(), found.indices.to_numpy().astype(numpy.int64)
    targets = [codes, *_targets(columns, rows)]
    places, group = numpy.unique(numpy.stack(targets), axis=1, return_inverse=True)
    group = group.reshape(-1)
    for number, place in enumerate(places.T.tolist()):
        name = names[place[0]]
        partition = TopicPartition(name, place[1], place[2]) if len(place) == 3 and place[1] >= 0 else None
        yield name, partition, None if places.shape[1] == 1 else pa.array(numpy.flatnonzero(group == number))


def _targets(columns: dict[str, Any], rows: int) -> list[Any]:
    """Brokers and partitions, -1 where they are null; nothing where there are no such columns."""
    if "broker" not in columns:
        return []
    broker, partition = columns["broker"], columns["partition"]
    half = pc.xor(broker.is_null(), partition.is_null())
    if pc.any(half).as_py():
        raise OptionError("a row has a broker without a partition, or the other way round: give both, or neither")
    for name, numbers in (("broker", broker), ("partition", partition)):
        if pc.any(pc.less(numbers, 0)).as_py():
            raise OptionError(f"a row has a {name} below 0")
    return [numbers.fill_null(-1).to_numpy(zero_copy_only=False).astype(numpy.int64) for numbers in (broker, partition)]


def _refuse_nulls(name: str, column: Any) -> None:
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise OptionError(f"column {name} is null in row {row} of a batch; 0.7 has no null {name}: drop such rows")


#: a worker goes from task to task, and keeps its connections and its session with ZooKeeper
_producers: dict[tuple[int, WriteOptions], Producer] = {}


def _producer(options: WriteOptions) -> Producer:
    key = os.getpid(), options
    producer = _producers.get(key)
    if producer is None:
        producer = _producers[key] = Producer.from_properties(dict(options.properties))
    return producer
