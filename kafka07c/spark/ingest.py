"""``kafka07c ingest``: everything that a source has, into an output folder of Parquet files, by tasks of Spark.

The driver plans ranges (a partition's new part, cut at its segments), tasks write one staged file each (see
``writer``), and the driver commits what fits together (see ``manifest``). Spark schedules and moves no rows.

A run takes what was there when it began. A partition goes on where its last commit ended, once the last entry before
that is found unchanged. Of a partition whose tasks did not all succeed, the part before the first failure counts.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka07c._views import MessageSet
from kafka07c.errors import CorruptMessageError, KafkaError, OffsetOutOfRangeError, PartitionPlace, SourceChangedError
from kafka07c.names import TopicPartition
from kafka07c.ranges import OnCorrupt, Range, Source
from kafka07c.spark.guesses import guess, unproved
from kafka07c.spark.layout import DEFAULT_LAYOUT, Layout
from kafka07c.spark.manifest import DataFile, LastEntry, Manifest, Output, Position, data_file_name, segment_name
from kafka07c.spark.planning import split
from kafka07c.spark.remote import Out, RemoteOutput, is_remote, open_output
from kafka07c.spark.report import IngestReport, PartitionReport
from kafka07c.spark.stages import Stage, as_stage
from kafka07c.spark.writer import RangeResult, StagedFile, write_range

if TYPE_CHECKING:
    from pyspark.accumulators import AccumulatorParam
    from pyspark.sql import SparkSession

__all__ = ["IngestReport", "PartitionReport", "ingest"]

_log = logging.getLogger(__name__)

#: seconds between two looks at how far the tasks are
_PROGRESS_INTERVAL = 0.2

#: seconds in which a Java whose connections have just broken has ended, if it is going to
_JAVA_END_SECONDS = 1.0


class IncompleteError(KafkaError):
    """A range was not read to its end for a reason outside the data: its task was lost, or the run was stopped."""


def ingest(
    source: Source,
    topics: Iterable[str],
    out: Out,
    *,
    on_corrupt: OnCorrupt = "stop",
    layout: Layout = DEFAULT_LAYOUT,
    master: str = "local[*]",
    spark: SparkSession | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> IngestReport:
    """Reads ``topics`` of ``source`` up to the end that they have now, and commits them to ``out``: a folder, a URI
    such as ``s3://bucket/path``, or ``(filesystem, path)`` with a file system of pyarrow's (see ``remote``).

    ``on_corrupt``: "stop" ends a partition before its first corrupt entry, "skip" leaves the entry out (of a damaged
    wrapper the messages before the first bad one are taken) and writes the range into the manifest. ``layout``: what
    the files are to be like. ``spark``: a session to use; without it the one that is running, else one is made for
    ``master``, only if there is something to read, and stopped. ``progress(bytes done, bytes in all)`` is called a few
    times a second, from a thread of its own.

    What goes wrong with one partition is in the report, and what the others have is committed. Raised are, before
    anything is read: UnknownTopicError, ManifestError (``out`` is locked, or holds something else), SourceChangedError
    (the source is not what earlier runs read), BrokerConnectionError or ZooKeeperError (nobody there to ask).
    """
    if on_corrupt not in ("stop", "skip"):
        raise ValueError(f"on_corrupt is stop or skip, not {on_corrupt!r}")
    began = time.perf_counter()
    topics = list(dict.fromkeys(topics))
    check_layout(out, topics, on_corrupt, layout)
    # asked before the folder is made: a wrong name or address leaves nothing behind
    partitions = [tp for topic in topics for tp in source.partitions(topic)]
    with open_output(out) as output:
        output.check_same(layout.to, columns_of(layout), output.path)
        plans = _plan(source, partitions, output)
        total = sum(range.size for plan in plans for range in plan.ranges)
        manifest, reading_seconds = None, 0.0
        if total:
            stage: Any = output.stage()
            with _session(spark, master) as session, _reporting(stage, total, progress):
                started = time.perf_counter()
                run_plans(session, source, plans, stage, on_corrupt, layout)
                reading_seconds = time.perf_counter() - started
            new = [plan.report for plan in plans if plan.report.end > plan.report.start]
            if new:
                manifest = commit(output, stage, source, on_corrupt, layout, new).number
            else:
                output.discard(stage)
        reports = [plan.report for plan in plans]
        place = output.path
    return IngestReport(place, source.name, manifest, time.perf_counter() - began, reading_seconds, reports)


def check_layout(out: Out, topics: Iterable[str], on_corrupt: OnCorrupt, layout: Layout) -> None:
    """ValueError for what cannot be with this layout."""
    if layout.to == "kafka07":
        if is_remote(out):
            raise ValueError("kafka07 makes folders that are read as logs, on this machine's disks: give a path")
        if on_corrupt == "skip":
            raise ValueError("a log has no gaps: kafka07 cannot leave corrupt entries out")
        for topic in topics:
            segment_name(topic, 0, 0, 0)


def columns_of(layout: Layout) -> dict[str, str] | None:
    """What a manifest says of a decoder's columns."""
    return None if layout.decoder is None else {field.name: str(field.type) for field in layout.decoder.schema}


def commit(
    output: Output | RemoteOutput,
    stage: Any,
    source: Source,
    on_corrupt: OnCorrupt,
    layout: Layout,
    reports: Iterable[PartitionReport],
) -> Manifest:
    """One manifest with what the reports have."""
    runs = [report.to_run() for report in reports]
    return output.commit(stage, source.name, on_corrupt, runs, layout.to, columns_of(layout))


# --- planning -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Plan:
    report: PartitionReport
    ranges: list[Range]


def _plan(source: Source, partitions: list[TopicPartition], output: Output | RemoteOutput) -> list[Plan]:
    """What to read of each partition; also of those that earlier runs read and the source does not list any more."""
    topics = {tp.topic for tp in partitions}
    missing = [tp for tp in output.positions if tp.topic in topics and tp not in set(partitions)]
    plans = []
    recognized = 0
    for tp in sorted({*partitions, *missing}):
        position = output.positions.get(tp)
        start = position.end if position else 0
        plan = Plan(PartitionReport(*tp, start=start, end=start), [])
        plans.append(plan)
        try:
            if tp in missing:
                raise IncompleteError(f"{tp} was read by an earlier run and is not there now: is its broker down?")
            earliest, latest = source.bounds(tp)
            if position is None:
                plan.report.start = plan.report.end = start = earliest
            else:
                recognized += check_unchanged(source, tp, position, earliest, latest)
            plan.ranges = split(source, [Range(*tp, start, latest)])
        except SourceChangedError:
            raise
        except KafkaError as error:
            plan.report.failure = error
    if output.source not in (None, source.name) and not recognized:
        raise SourceChangedError(
            f"{output.path} was read from {output.source}, and nothing of that is found again in {source.name}:"
            " give another output folder"
        )
    return plans


def check_unchanged(source: Source, tp: TopicPartition, position: Position, earliest: int, latest: int) -> bool:
    """Compares the last entry read with what is there now; False if there is none to compare.

    Raises SourceChangedError: it differs, or the log ends before it, or begins after where the run has to go on.
    """
    place: PartitionPlace = {"topic": tp.topic, "broker": tp.broker, "partition": tp.partition}
    if latest < position.end:
        raise SourceChangedError(
            f"the log ends at {latest}, but an earlier run read it up to here: it was cut, or is another log",
            offset=position.end, **place,
        )  # fmt: skip
    if earliest > position.end:
        raise SourceChangedError(
            f"the next run goes on here, but the log now begins at {earliest}: what lies between is gone;"
            " give another output folder to take what is left",
            offset=position.end, **place,
        )  # fmt: skip
    last = position.last
    if last is None or last.offset < earliest:
        return False
    found: LastEntry | str | None
    try:
        found = _entry_at(source, Range(*tp, last.offset, last.next_offset))
    except (CorruptMessageError, OffsetOutOfRangeError) as error:
        found = error.reason
    if found != last:
        raise SourceChangedError(
            f"an earlier run read an entry of CRC {last.crc:#010x} here that ends at {last.next_offset}; now there is"
            f" {_describe(found)}: another log, or a rewritten one",
            offset=last.offset, **place,
        )  # fmt: skip
    return True


def _entry_at(source: Source, range: Range) -> LastEntry | None:
    for each in source.read(range):
        if each.valid_bytes:
            stored = MessageSet(each.data[: each.valid_bytes], each.base_offset, shallow=True)[0]
            return LastEntry(stored.offset, stored.next_offset, stored.crc)
        if each.error is not None:
            raise each.error
    return None


def _describe(found: LastEntry | str | None) -> str:
    if isinstance(found, LastEntry):
        return f"one of CRC {found.crc:#010x} that ends at {found.next_offset}"
    return "none" if found is None else f"none ({found})"


# --- running ------------------------------------------------------------------------------------------------------


def run_plans(
    spark: SparkSession, source: Source, plans: list[Plan], stage: Any, on_corrupt: OnCorrupt, layout: Layout
) -> None:
    """Reads what is planned, and takes the results into the plans' reports.

    Ranges of live brokers may be cut at guesses; what lies around a wrong one is read once more, as one.
    """
    ranges, guessed = guess(source, [range for plan in plans for range in plan.ranges])
    if not ranges:
        return
    results = run_tasks(spark, source, ranges, stage, on_corrupt, layout)
    again = unproved(ranges, guessed, results)
    if again:
        _log.info("%d guesses at where entries begin were wrong; reading those ranges as one", len(again))
        whole = [replace(group[0], end=group[-1].end) for group in again]
        results |= run_tasks(spark, source, whole, stage, on_corrupt, layout)
        dropped = {range for group in again for range in group}
        ranges = sorted([*(range for range in ranges if range not in dropped), *whole], key=lambda range: range.start)
    for plan in plans:
        plan.ranges = [range for range in ranges if range.tp == plan.report.tp]
        assemble(plan, results, stage.name)


def run_tasks(
    spark: SparkSession, source: Source, ranges: list[Range], stage: Path | Stage, on_corrupt: OnCorrupt, layout: Layout
) -> dict[Range, RangeResult]:
    """Runs one task per range; results by range. A task that was lost has a result with a failure.

    Results come back through an accumulator, so that those of finished tasks are there even if the job fails.
    """
    results = spark.sparkContext.accumulator([], _listed())
    sources = {tp: source.only(tp) for tp in {range.tp for range in ranges}}
    tasks = [(slot, range, sources[range.tp]) for slot, range in enumerate(ranges)]
    # the longest first: the last task to start should not be the longest
    tasks.sort(key=lambda task: -task[1].size)

    def work(items: Iterable[tuple[int, Range, Source]]) -> None:
        for slot, range, part in items:
            results.add([write_range(part, range, stage, slot, on_corrupt=on_corrupt, layout=layout)])

    lost = IncompleteError("its task did not report back")
    try:
        spark.sparkContext.parallelize(tasks, len(tasks)).foreachPartition(work)
    except KeyboardInterrupt:  # pyspark has cancelled the job
        lost = IncompleteError("the run was interrupted")
    except Exception as error:  # whatever Spark says: what its other tasks have finished counts
        lost = IncompleteError(_java_ended(spark) or f"Spark gave up on a task: {_what_was_raised(error)}")
    finished = {range: RangeResult(range, range.start, failure=lost) for range in ranges}
    return finished | {result.range: result for result in list(results.value)}


@contextmanager
def _session(spark: SparkSession | None, master: str) -> Iterator[SparkSession]:
    """``spark``, or the session that is running, or a new one that is stopped again."""
    if spark is not None:
        from kafka07c.spark.sessions import refuse_connect

        refuse_connect(spark, "ingest()")
        yield spark
        return
    import kafka07c.spark

    running = _is_running()
    spark = kafka07c.spark.session(app="kafka07c ingest", master=master)
    try:
        yield spark
    finally:
        if not running:
            _stop(spark)


def _stop(spark: SparkSession) -> None:
    try:
        spark.stop()
    except Exception as error:  # its Java has died; what the tasks finished before that still counts
        _log.info("Spark could not be stopped: %s", _first_line(error))


def _java_ended(spark: SparkSession) -> str | None:
    """How Spark's Java ended, if that is what has happened; what is raised then speaks of sockets."""
    gateway = spark.sparkContext._gateway
    process = getattr(gateway, "proc", None)  # None: somebody else has started it
    if process is None:
        return None
    try:
        code = process.wait(_JAVA_END_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    return f"Spark's Java {how} in the middle of the run; a machine short of memory does that, for one"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _is_running() -> bool:
    try:
        from pyspark import SparkContext
    except ModuleNotFoundError:
        return False  # asking for a session says what to install
    return SparkContext._active_spark_context is not None


def _listed() -> AccumulatorParam[list[RangeResult]]:
    from pyspark.accumulators import AccumulatorParam

    class Listed(AccumulatorParam[list[RangeResult]]):
        """Lists, joined."""

        def zero(self, value: list[RangeResult]) -> list[RangeResult]:
            return []

        def addInPlace(  # noqa: N802 - pyspark's name
            self, value1: list[RangeResult], value2: list[RangeResult]
        ) -> list[RangeResult]:
            value1.extend(value2)
            return value1

    return Listed()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def _what_was_raised(error: Exception) -> str:
    """The line that says what is wrong: with what a task raised Spark gives the whole trace, and that line is its last."""
    _, trace, below = str(error).partition("Traceback (most recent call last):\n")
    raised = next((line for line in below.splitlines() if line and not line[0].isspace()), None) if trace else None
    return (raised or _first_line(error))[:300]


@contextmanager
def _reporting(stage: Path | Stage, total: int, progress: Callable[[int, int], None] | None) -> Iterator[None]:
    """Calls ``progress`` while the block runs, and once more at its end."""
    if progress is None:
        yield
        return
    ended = threading.Event()
    with as_stage(stage).progress() as file:

        def watch() -> None:
            while not ended.wait(_PROGRESS_INTERVAL):
                progress(file.total(), total)

        thread = threading.Thread(target=watch, name="kafka07c-ingest-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            progress(file.total(), total)


# --- putting together ---------------------------------------------------------------------------------------------


def assemble(plan: Plan, results: dict[Range, RangeResult], stage: str) -> None:
    """Takes the results of a partition's ranges into its report, in order, up to the first that does not fit."""
    report = plan.report
    for range in plan.ranges:
        result = results[range]
        report.seconds += result.seconds
        if result.failure is not None:
            report.failure = result.failure
            return
        _take(report, result, stage)
        if result.stopped is not None:
            report.failure = result.stopped
            return
        if report.end != range.end and range is not plan.ranges[-1]:
            report.failure = CorruptMessageError(
                f"a segment ends here, and the next begins at {range.end}",
                topic=range.topic, broker=range.broker, partition=range.partition, offset=report.end,
            )  # fmt: skip
            return


def _take(report: PartitionReport, result: RangeResult, stage: str) -> None:
    report.end = result.end
    report.messages += result.messages
    report.bytes += result.bytes
    report.corrupt += result.corrupt
    report.last = result.last or report.last
    if result.files:
        if report.first_offset is None:
            report.first_offset = result.first_offset
        report.last_offset = result.last_offset
    report.files += [_data_file(file, report.tp, stage) for file in result.files]
    report.undecodable += result.undecodable
    report.dead_letters += [_data_file(file, report.tp, stage) for file in result.dead_letters]


def _data_file(file: StagedFile, tp: TopicPartition, stage: str) -> DataFile:
    """Its place, which it is yet to be moved to, unless it has one."""
    path = file.path or data_file_name(*tp, file.start, file.end, file.folder, file.suffix)
    staged = "" if file.path else f"{stage}/{file.name}"
    return DataFile(path, staged, start=file.start, end=file.end, rows=file.rows, bytes=file.bytes)
