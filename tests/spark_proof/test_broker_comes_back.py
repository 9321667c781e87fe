"""A broker that goes in the middle of what a task or the planner does, and comes back; or does not."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka07c._build import build_message_set
from kafka07c.broker import Broker
from kafka07c.errors import BrokerConnectionError
from kafka07c.names import TopicPartition
from kafka07c.ranges import Range, open_source
from kafka07c.segments import Log
from kafka07c.spark import stream
from kafka07c.spark.options import parse
from kafka07c.testing import free_ports

PAYLOADS = [b"%06d" % number + b"." * 94 for number in range(2000)]
FETCH = 10_000


def broker(folder: Path, port: int) -> Broker:
    return Broker(folder, broker_id=0, port=port)


def filled(folder: Path) -> int:
    """Makes a broker's folder with the payloads in clicks-0; gives a port that is free."""
    with Log(folder / "clicks-0", writable=True) as log:
        log.append(build_message_set(PAYLOADS))
    return free_ports(1)[0]


@contextmanager
def back_once_missed(folder: Path, port: int, logger: str) -> Iterator[None]:
    """Starts the broker again when something has been logged that it is tried again; stops it at the end."""
    missed, over = threading.Event(), threading.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            missed.set()

    def start() -> None:
        missed.wait()
        with broker(folder, port):
            over.wait()

    thread, listener = threading.Thread(target=start), Listener(logging.WARNING)
    thread.start()
    logging.getLogger(logger).addHandler(listener)
    try:
        yield
    finally:
        logging.getLogger(logger).removeHandler(listener)
        missed.set()
        over.set()
        thread.join()


@pytest.mark.parametrize("parts_before", [0, 1, 5])
def test_a_reader_goes_on_where_it_was(tmp_path, parts_before):
    port = filled(tmp_path)
    source = open_source(brokers=f"0:127.0.0.1:{port}", patience=60)
    found = []
    with source:
        with broker(tmp_path, port):
            wanted = Range("clicks", 0, 0, *source.bounds(TopicPartition("clicks", 0, 0)))
            parts = source.read(wanted, fetch_bytes=FETCH)
            for _ in range(parts_before):
                found += next(parts).payloads()
        with back_once_missed(tmp_path, port, "kafka07c.ranges"):
            found += [payload for part in parts for payload in part.payloads()]
    assert found == PAYLOADS


def test_a_task_has_the_patience_of_its_query(tmp_path):
    port = filled(tmp_path)
    options = parse({"kafka07.brokers": f"0:127.0.0.1:{port}", "subscribe": "clicks"})
    with broker(tmp_path, port), options.open_source() as source:
        part = source.only(TopicPartition("clicks", 0, 0))
    with back_once_missed(tmp_path, port, "kafka07c.ranges"), part:
        found = [payload for each in part.read(Range("clicks", 0, 0, 0, 1100)) for payload in each.payloads()]
    assert found == PAYLOADS[:10]


def test_without_patience_or_in_the_end_it_is_told(tmp_path):
    port = filled(tmp_path)
    wanted = Range("clicks", 0, 0, 0, 1100)
    with open_source(brokers=f"0:127.0.0.1:{port}") as source, pytest.raises(BrokerConnectionError) as told:
        list(source.read(wanted))
    assert "tried again" not in str(told.value)
    with open_source(brokers=f"0:127.0.0.1:{port}", patience=0.3) as source:
        with pytest.raises(BrokerConnectionError, match=f"{port}.*; reading clicks 0-0 from 0 to 1100 was tried again"):
            list(source.read(wanted))


def test_planning_waits_too(tmp_path):
    """The offsets of the batch are written down when the broker goes; a query must not end for that."""
    port = filled(tmp_path)
    reader = stream.Kafka07StreamReader(
        parse(
            {"kafka07.brokers": f"0:127.0.0.1:{port}", "assign": json.dumps({"clicks": ["0-0"]})}
            | {"startingOffsets": "earliest"},
            streaming=True,
        )
    )
    with broker(tmp_path, port):
        start = reader.latestOffset({}, reader.getDefaultReadLimit())
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
    with back_once_missed(tmp_path, port, "kafka07c.spark.stream"):
        tasks = reader.partitions(start, end)
        found = [value for task in tasks for batch in reader.read(task) for value in batch["value"].to_pylist()]
    reader.stop()
    assert found == PAYLOADS
