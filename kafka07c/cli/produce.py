"""``kafka07c produce``: lines of stdin or of files, or whole files, to a topic, with kcat's flags.

Input is read in blocks and goes on as it comes: a block's lines are one batch, given to the producer as one buffer with
offsets (as lists where there are keys), so nothing is made for a line but the bytes of it. The producer's queue is
bounded, and so is this.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import stat
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from kafka07c.cli.arguments import add_command, add_metrics, serving_metrics
from kafka07c.cli.cat import unescape
from kafka07c.cli.exit_codes import INCOMPLETE, INTERRUPTED, OK, UsageError
from kafka07c.cli.output import json_line, megabytes_per_second, note, progress_bar
from kafka07c.cli.producing import (
    add_codec,
    add_properties,
    add_target,
    check_verify,
    column_of,
    named_partition,
    open_producer,
    positive,
    properties_of,
    target_of,
)
from kafka07c.cli.stopping import StopSignal
from kafka07c.errors import KafkaError, MessageTooLargeError, QueueFullError

if TYPE_CHECKING:
    from kafka07c.cli.arguments import Commands
    from kafka07c.metrics import Metrics
    from kafka07c.names import TopicPartition
    from kafka07c.producer import Delivery, Producer

__all__ = ["add_parser", "run"]

_EXAMPLE = """\
  tail -f access.log | kafka07c produce --zookeeper zk1:2181/kafka -t clicks
  kafka07c produce -b host:9092 -t clicks -p 0-1 -z gzip -l access.log --verify --dead-letter failed.log
  kafka07c produce --zookeeper zk1:2181/kafka -t orders -K : < orders.txt
  kafka07c produce --zookeeper zk1:2181/kafka -t images *.png"""

#: bytes that are read at a time
_BLOCK = 1 << 18

#: bytes that may have been read and not been told about; the producer bounds what it holds, not what waits to be told
_UNTOLD = 16 << 20
_UNTOLD_PAUSE = 0.002

#: what a message may have until its delimiter is found; no broker takes a request as large
_LONGEST = 100 << 20

#: milliseconds between two looks at a signal while there is no input
_LOOK = 200

_FAILURES_SHOWN = 5
_SHOWN = 60


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "produce",
        run,
        help="lines of stdin, or files, to a topic",
        description="Sends each line of stdin as one message; with -l those of files; without it each file is one\n"
        "message. An empty line is an empty message. 0.7 acknowledges nothing: what the broker has read from the\n"
        "connection counts as written; --verify reads it back. Ctrl-C sends what was read by then, says how much it\n"
        "was, and ends with exit code 130. Exit code 5: a record could not be sent.",
        example=_EXAMPLE,
        fields="run: topic, messages, bytes, seconds, written, verified, failed, unknown (messages by their final "
        "state), resent",
    )
    add_target(parser)
    parser.add_argument("-t", "--topic", metavar="TOPIC", required=True)
    parser.add_argument("files", nargs="*", metavar="FILE", help="each one message, or with -l lines; default: stdin")
    parser.add_argument("-l", "--lines", action="store_true", help="send the lines of the files")
    parser.add_argument(
        "-p", "--partition", type=named_partition, metavar="BROKER-PARTITION", help="such as 0-1; default, or -1: any"
    )
    parser.add_argument("-D", "--delimiter", default="\\n", metavar="TEXT", help="what ends a message; default \\n")
    parser.add_argument(
        "-K",
        "--key-delimiter",
        metavar="TEXT",
        help="each message begins with a key and this; the key chooses the partition, and is not sent: 0.7 has no keys",
    )
    parser.add_argument("-k", "--key", metavar="KEY", help="the key of all messages that have none of their own")
    add_codec(parser)
    parser.add_argument("-c", "--count", type=positive, metavar="N", help="end after N messages")
    parser.add_argument("-T", "--tee", action="store_true", help="print what is sent to stdout too")
    parser.add_argument("-Z", "--null", action="store_true", help="refused: 0.7 has no null, an empty message is empty")
    parser.add_argument("-H", "--header", metavar="NAME=VALUE", help="refused: 0.7 has no headers")
    add_properties(parser)
    parser.add_argument("--sync", action="store_true", help="send each block of input before the next one is read")
    parser.add_argument(
        "--verify", action="store_true", help="read back what was written; with -b it needs -p. It waits for the flush"
    )
    parser.add_argument(
        "--dead-letter", metavar="FILE", help="append what could not be sent, as it was read, to be sent with -l later"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as a JSON object to stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="no summary and no progress, errors only")
    add_metrics(parser)


def run(args: argparse.Namespace) -> int:
    _check(args)
    logging.basicConfig(
        stream=sys.stderr, level=logging.ERROR if args.quiet else logging.WARNING, format="%% %(message)s"
    )
    begun = time.monotonic()
    with ExitStack() as stack:
        metrics = stack.enter_context(serving_metrics(args))
        outcome = stack.enter_context(_outcome(args))
        producer = _open_producer(args, metrics)
        stop = stack.enter_context(StopSignal(said="% Sending what was read; once more gives it up"))
        sender = _Sender(producer, args, outcome)
        try:
            try:
                _send_all(sender, args, stop)
            except (KafkaError, OSError) as error:
                outcome.error = error  # told after what was sent before it
            producer.close()
        except KeyboardInterrupt:
            pass  # the second signal
        finally:
            producer.close(0)  # what is left fails, and says so; nothing to do after the other close
        interrupted = stop.is_set()
    _summary(outcome, time.monotonic() - begun, args)
    if outcome.error is not None:
        raise outcome.error
    not_sent = outcome.states["failed"] + outcome.states["unknown"]
    return INCOMPLETE if not_sent else INTERRUPTED if interrupted else OK


def _check(args: argparse.Namespace) -> None:
    if args.null:
        raise UsageError("-Z: 0.7 has no null message; an empty line is sent as an empty message")
    if args.header is not None:
        raise UsageError("-H: 0.7 has no headers")
    if args.lines and not args.files:
        raise UsageError("-l goes with files; stdin is sent by lines anyway")
    if args.tee and args.json:
        raise UsageError("-T and --json both want stdout: take one")
    if args.dead_letter is not None and args.files and not args.lines:
        raise UsageError("--dead-letter is for lines; of files that could not be sent the names are shown")
    if not args.delimiter or args.key_delimiter == "":
        raise UsageError("a delimiter needs at least one character")


def _open_producer(args: argparse.Namespace, metrics: Metrics | None) -> Producer:
    # Always async, a block at a time where it is to be sync: so a failure is told once, by its callback, and not raised
    # too
    producer = open_producer(args, target_of(args), metrics=metrics)
    check_verify(producer, args.partition)
    if producer.config.brokers is not None and args.partition is None:
        if args.key is not None or args.key_delimiter is not None:
            note("% With -b each broker picks the partition: keys have no effect (as in 0.7)")
    return producer


# --- reading ------------------------------------------------------------------------------------------------------


def _send_all(sender: _Sender, args: argparse.Namespace, stop: StopSignal) -> None:
    with progress_bar("produce") if not args.quiet else _no_progress() as progress:
        if args.files and not args.lines:
            for path in args.files:
                if stop.is_set() or sender.left == 0:
                    return
                with open(path, "rb") as file:
                    sender.send([file.read()], path)
            return
        delimiter = unescape(args.delimiter)
        for name in args.files or [None]:
            with _opened(name) as file:
                total = _size_of(file)
                read = 0
                for block, lines in _lines(_blocks(file, stop), delimiter):
                    sender.send(lines)
                    read += block
                    if progress is not None and total:
                        progress(read, total)
                    if sender.left == 0:
                        return
            if stop.is_set():
                return


@contextmanager
def _no_progress() -> Iterator[None]:
    yield None


@contextmanager
def _opened(path: str | None) -> Iterator[BinaryIO]:
    if path is None or path == "-":
        yield sys.stdin.buffer
    else:
        with open(path, "rb") as file:
            yield file


def _size_of(file: BinaryIO) -> int | None:
    """Of a regular file; nobody knows how much comes through a pipe."""
    try:
        status = os.fstat(file.fileno())
    except OSError:  # io.UnsupportedOperation: no file of the system's
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _blocks(file: BinaryIO, stop: StopSignal) -> Iterator[bytes]:
    """What is there, as it comes, up to a block at a time; ends at the end, or at a signal."""
    try:
        poll = select.poll()
        poll.register(file.fileno(), select.POLLIN)
    except OSError:
        poll = None
    while not stop.is_set():
        if poll is not None and not poll.poll(_LOOK):
            continue
        block = os.read(file.fileno(), _BLOCK) if poll is not None else file.read(_BLOCK)
        if not block:
            return
        yield block


def _lines(blocks: Iterator[bytes], delimiter: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """For each block its size and the lines that end in it; what follows the last delimiter is a line too.

    UsageError for a line that nothing ends within what any broker would take.
    """
    parts: list[bytes] = []  # of a line that has not ended yet
    held = 0
    tail = b""  # of it: a delimiter may begin in one block and end in another
    overlap = len(delimiter) - 1
    for block in blocks:
        window = tail + block
        parts.append(block)
        held += len(block)
        if delimiter in window:
            lines = b"".join(parts).split(delimiter)
            window = lines.pop()
            parts = [window]
            held = len(window)
            yield len(block), lines
        tail = window[max(0, len(window) - overlap) :]
        if held > _LONGEST:
            raise UsageError(f"{held} bytes without the delimiter {delimiter!r}: no broker takes such a message")
    if held:
        yield 0, [b"".join(parts)]


# --- sending ------------------------------------------------------------------------------------------------------


class _Sender:
    """Gives lines to the producer, and what it refuses to the outcome."""

    def __init__(self, producer: Producer, args: argparse.Namespace, outcome: _Outcome):
        from kafka07c.names import TopicPartition

        self.left: int | None = args.count
        self._producer = producer
        self._outcome = outcome
        self._topic: str = args.topic
        self._partition = None if args.partition is None else TopicPartition(args.topic, *args.partition)
        self._key: bytes | None = None if args.key is None else os.fsencode(args.key)
        self._key_delimiter = None if args.key_delimiter is None else unescape(args.key_delimiter)
        self._tee = unescape(args.delimiter) if args.tee else None
        self._sync: bool = args.sync or properties_of(args.property, args.config).get("producer.type") == "sync"

    def send(self, lines: list[bytes], name: str | None = None) -> None:
        """Send these, up to the count; what cannot be is in the outcome. ``name``: of the file that is the message."""
        if self.left is not None:
            lines = lines[: self.left]
            self.left -= len(lines)
        if not lines:
            return
        if self._tee is not None:
            sys.stdout.buffer.write(self._tee.join([*lines, b""]))
            sys.stdout.buffer.flush()
        self._outcome.read(lines)
        try:
            self._send(lines, name)
        except QueueFullError as error:
            self._outcome.refused([lines[i] for i in error.refused], name, error)
        except MessageTooLargeError as error:
            if len(lines) == 1:
                self._outcome.refused(lines, name, error)
            else:
                self._send_one_by_one(lines)
        except KafkaError as error:  # the end of it all, but what was read is kept
            self._outcome.refused(lines, name, error)
            raise
        if self._sync:
            self._producer.flush()

    def _send_one_by_one(self, lines: list[bytes]) -> None:
        """One of them is too large, so that none was taken: find out which."""
        for line in lines:
            try:
                self._send([line], None)
            except (MessageTooLargeError, QueueFullError) as error:
                self._outcome.refused([line], None, error)

    def _send(self, lines: list[bytes], name: str | None) -> None:
        settled = partial(self._outcome.settled, lines, name)
        if self._key_delimiter is None and self._key is None:
            data, offsets = column_of(lines)
            self._producer.send_batch(
                self._topic, data, offsets=offsets, partition=self._partition, on_delivery=settled
            )
            return
        values, keys = self._keyed(lines)
        if len(lines) == 1:
            self._producer.send(self._topic, values[0], keys[0], partition=self._partition, on_delivery=settled)
        else:
            one_of_them = partial(self._outcome.settled_one, self._key_delimiter)
            self._producer.send_many(self._topic, values, keys, partition=self._partition, on_delivery=one_of_them)

    def _keyed(self, lines: list[bytes]) -> tuple[list[bytes], list[bytes | None]]:
        if self._key_delimiter is None:
            return lines, [self._key] * len(lines)
        cut = [line.partition(self._key_delimiter) for line in lines]
        values = [value if found else line for line, (_, found, value) in zip(lines, cut, strict=True)]
        return values, [key if found else self._key for key, found, _ in cut]


# --- what became of it --------------------------------------------------------------------------------------------


class _Outcome:
    """What was read, and what became of it. The main thread reads and is refused, the producer's callback thread
    settles: each has its own counts.
    """

    def __init__(self, dead_letter: BinaryIO | None, delimiter: bytes):
        self.messages = 0
        self.bytes = 0
        self.resends = 0
        self.error: Exception | None = None
        #: of the first that could not be sent: what it was and why
        self.failures: list[str] = []
        self._settled: Counter[str] = Counter()
        self._told = 0  # of them all
        self._refused = 0
        self._dead_letter = dead_letter
        self._delimiter = delimiter
        self._lock = threading.Lock()

    @property
    def states(self) -> dict[str, int]:
        """How many messages came to each state."""
        states = {state: self._settled[state] for state in ("written", "verified", "failed", "unknown")}
        states["failed"] += self._refused
        return states

    def read(self, lines: list[bytes]) -> None:
        """These go to the producer, once it is not too far behind with telling what became of those before."""
        while self.messages and self.bytes * (self.messages - self._told - self._refused) > _UNTOLD * self.messages:
            time.sleep(_UNTOLD_PAUSE)
        self.messages += len(lines)
        self.bytes += sum(map(len, lines))

    def settled(self, lines: list[bytes], name: str | None, delivery: Delivery) -> None:
        """The producer's word on a batch."""
        count = delivery.count
        self._settled[delivery.state] += count
        self._told += count
        if delivery.resends:
            self.resends += count
        if not delivery.ok:
            those = lines if delivery.indexes is None else [lines[i] for i in delivery.indexes]
            self._keep(those, name, f"{delivery.state}: {delivery.error}")

    def settled_one(self, key_delimiter: bytes | None, delivery: Delivery) -> None:
        """The producer's word on one record of several."""
        line = delivery.value
        if key_delimiter is not None and delivery.key is not None:
            line = delivery.key + key_delimiter + line
        self.settled([line], None, delivery)

    def refused(self, lines: list[bytes], name: str | None, error: KafkaError) -> None:
        """The producer has not taken these."""
        self._refused += len(lines)
        self._keep(lines, name, f"failed: {error}")

    def _keep(self, lines: list[bytes], name: str | None, why: str) -> None:
        with self._lock:
            for line in lines[: _FAILURES_SHOWN - len(self.failures)]:
                self.failures.append(f"{name or _shown(line)}: {' '.join(why.split())}")
            if self._dead_letter is not None:
                self._dead_letter.write(self._delimiter.join([*lines, b""]))


def _shown(line: bytes) -> str:
    text = line[:_SHOWN].decode(errors="backslashreplace")
    return f"{text!r}{'…' if len(line) > _SHOWN else ''} ({len(line)} bytes)"


@contextmanager
def _outcome(args: argparse.Namespace) -> Iterator[_Outcome]:
    delimiter = unescape(args.delimiter)
    if args.dead_letter is None:
        yield _Outcome(None, delimiter)
        return
    with open(args.dead_letter, "ab") as file:
        yield _Outcome(file, delimiter)


def _summary(outcome: _Outcome, seconds: float, args: argparse.Namespace) -> None:
    states = outcome.states
    for failure in outcome.failures:
        note(f"kafka07c produce: {failure}")
    if more := states["failed"] + states["unknown"] - len(outcome.failures):
        note(f"kafka07c produce: and {more} more")
    figures = {"messages": outcome.messages, "bytes": outcome.bytes, "seconds": round(seconds, 3)}
    if args.json:
        print(json_line({"topic": args.topic, **figures, **states, "resent": outcome.resends}))
    if not args.quiet:
        rate = megabytes_per_second(outcome.bytes, seconds)
        found = ", ".join(f"{count} {state}" for state, count in states.items() if count) or "nothing sent"
        resent = f", {outcome.resends} of them more than once" if outcome.resends else ""
        note(
            f"% {outcome.messages} messages, {outcome.bytes} bytes in {seconds:.1f} s ({rate} MB/s): {found}{resent}"
        )
