"""A bar for a streaming query, in a terminal or a notebook."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark.sql.streaming.query import StreamingQuery

from kafka07c.errors import MissingExtraError
from kafka07c.names import TopicPartition
from kafka07c.spark.listener import offsets_of

if TYPE_CHECKING:
    from rich.progress import TaskID

__all__ = ["watch"]

#: seconds between two looks at the query
_LOOK = 0.25


def watch(query: StreamingQuery, *, timeout: float | None = None) -> bool:
    """Show how far a query that reads ``kafka07`` is, until it ends or for ``timeout`` seconds; whether it has ended.

    A line for each partition: bytes of log read of what there is. Raises what made the query fail, as its
    ``awaitTermination`` does, and MissingExtraError without rich (the extra ``cli``).
    """
    try:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
    except ImportError:
        raise MissingExtraError("rich is not installed, and the bar needs it: pip install 'kafka07c[cli]'") from None
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    deadline = None if timeout is None else time.monotonic() + timeout
    with Progress(*columns) as bar:
        all_rows = bar.add_task("no batch yet", total=None)
        tasks: dict[TopicPartition, TaskID] = {}
        while query.isActive and (deadline is None or time.monotonic() < deadline):
            progress = query.lastProgress
            if progress is not None:
                done, latest = offsets_of(progress)
                for tp, offset in done.items():
                    if tp not in tasks:
                        tasks[tp] = bar.add_task(str(tp), total=None)
                    bar.update(tasks[tp], completed=offset, total=max(latest.get(tp, offset), offset))
                behind = sum(max(latest.get(tp, offset) - offset, 0) for tp, offset in done.items())
                rate = progress.processedRowsPerSecond
                rows = f"{progress.numInputRows:,} rows, {rate:,.0f} rows/s"
                text = f"batch {progress.batchId}: {rows}, {behind:,} B behind"
                bar.update(all_rows, description=text)
            time.sleep(_LOOK)
    if query.isActive:
        return False
    query.awaitTermination()  # raises what ended it
    return True
