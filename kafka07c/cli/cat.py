"""``kafka07c cat``: a topic to stdout, with kcat's flags.

Offsets of 0.7 count bytes, so what kcat does with arithmetic is reading here: ``-o -N`` counts messages from the last
segment's start on, and, if they are too few, from that of the one before it; then it reads once more from there.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka07c.cli.arguments import Commands, add_command, add_metrics, add_source, open_source, selected_partitions
from kafka07c.cli.exit_codes import OK, UsageError, exit_code
from kafka07c.cli.output import json_line, note, payload_fields
from kafka07c.errors import BrokerConnectionError, KafkaError, OffsetOutOfRangeError

if TYPE_CHECKING:
    from kafka07c._views import Message, MessageSet
    from kafka07c.names import TopicPartition
    from kafka07c.ranges import Source

__all__ = ["add_parser", "run", "unescape"]

_EXAMPLE = """\
  kafka07c cat --zookeeper zk1:2181/kafka -t clicks -o -10 -e
  kafka07c cat -b 0:host:9092 -t clicks -p 0-1 -f '%b-%p %o.%i %s\\n'
  kafka07c cat --zookeeper zk1:2181/kafka -G reports clicks orders

format (-f):
  %t topic   %b broker   %p partition   %o offset of the stored entry   %i index in it   %n next offset
  %s payload   %S its length   %R its length as 4 bytes, big-endian   %% a percent sign
  %k %K %T %h: key, its length, timestamp, headers; 0.7 has none: empty, -1, -1, empty
  \\n \\r \\t \\\\ \\xNN
"""

#: seconds between looks for new messages: doubled from the first to the last while there are none
_FIRST_WAIT = 0.05
_LAST_WAIT = 1.0


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "cat",
        run,
        help="a topic to stdout",
        description="Prints a topic's messages, and waits for more unless told otherwise (-e, -c). Ctrl-C ends it.\n"
        "With -G it is a member of a consumer group: it prints what falls to its share, and commits what is printed.",
        example=_EXAMPLE,
        fields="message: topic, broker, partition, offset (of the stored entry), index (in it), next_offset, key (null: "
        "0.7 has none), payload, or payload_base64 where it is no UTF-8",
    )
    add_source(parser, "-b", "--brokers")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-t", "--topic", metavar="TOPIC")
    what.add_argument("-G", "--group", metavar="GROUP", help="join this consumer group, for the topics at the end")
    parser.add_argument(
        "topics",
        nargs="*",
        metavar="TOPIC",
        help="with -G: topics, or one ^REGEX for all whose whole name matches (a Java regex, as in 0.7)",
    )
    parser.add_argument("--exclude", metavar="REGEX", help="with -G ^REGEX: not the topics that match this")
    parser.add_argument(
        "-p",
        "--partition",
        metavar="PARTITION",
        help="0-1: partition 1 of broker 0; 1: partition 1 of each broker; default: all",
    )
    parser.add_argument(
        "-o",
        "--offset",
        type=_start,
        default="beginning",
        metavar="OFFSET",
        help="where to begin: beginning (default), end, an offset, or -N for the last N messages of each partition; "
        "with -G beginning or end, where the group has no offset that is in the log",
    )
    parser.add_argument("-c", "--count", type=_count, metavar="N", help="end after N messages")
    parser.add_argument("-e", "--exit", action="store_true", help="stop at the end that there is at the start")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("-f", "--format", metavar="FORMAT", help="how a message is printed, see below")
    form.add_argument("-J", "--json", action="store_true", help="one JSON object per message")
    form.add_argument("-D", "--delimiter", default="\\n", metavar="TEXT", help="what follows a payload; default \\n")
    add_metrics(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no notes on stderr, errors only")


def run(args: argparse.Namespace) -> int:
    render = _Renderer(args)
    if args.group is not None:
        from kafka07c.cli import cat_group

        return cat_group.run(args, render.messages)
    if args.topics or args.exclude is not None or args.metrics is not None:
        raise UsageError("more topics behind the options, --exclude and --metrics go with -G; -t names the only one")
    with open_source(args) as source:
        partitions = selected_partitions(source.partitions(args.topic), args.partition)
        cat = _Cat(source, render.part, args)
        try:
            cat.run(partitions)
        except KeyboardInterrupt:
            pass  # the way to end it
        sys.stdout.flush()
        return cat.code


def _start(text: str) -> str | int:
    if text in ("beginning", "end"):
        return text
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not beginning, end, an offset, or -N")


def _count(text: str) -> int:
    if re.fullmatch(r"\d{1,18}", text) and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of messages")


# --- reading ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Position:
    """Where a partition goes on: at entry ``offset``, and ``skip`` messages from there are not wanted."""

    offset: int
    skip: int = 0


class _Cat:
    """One run: partitions in turn, each up to the end that it has when its turn comes."""

    def __init__(self, source: Source, render: Callable[[MessageSet, slice], bytes], args: argparse.Namespace):
        #: of the worst error that ended a partition: what is incomplete goes before what is corrupt, as in ingest
        self.code = OK
        self._source = source
        self._render = render
        self._left: int | None = args.count
        self._start: str | int = args.offset
        self._follow = not args.exit
        self._quiet = args.quiet

    def run(self, partitions: list[TopicPartition]) -> None:
        positions, ends = {}, {}
        for tp in partitions:
            earliest, ends[tp] = self._source.bounds(tp)
            positions[tp] = _position(self._source, tp, self._start, earliest, ends[tp])
        wait = _FIRST_WAIT
        while True:
            before = [position.offset for position in positions.values()]
            for tp in list(positions):
                if not self._read(tp, positions[tp], ends[tp]):
                    del positions[tp]
                if self._left == 0:
                    return
            sys.stdout.flush()
            if not self._follow or not positions:
                if not self._quiet and len(positions) == len(partitions):
                    note(f"% Reached the end of all {len(partitions)} partitions")
                return
            new = before != [position.offset for position in positions.values()]
            wait = _FIRST_WAIT if new else min(2 * wait, _LAST_WAIT)
            time.sleep(wait)
            self._look_for_more(positions, ends)

    def _look_for_more(self, positions: dict[TopicPartition, _Position], ends: dict[TopicPartition, int]) -> None:
        for tp in positions:
            try:
                ends[tp] = self._source.bounds(tp)[1]
            except BrokerConnectionError as error:
                # a broker that is restarted comes back
                self._source.close()
                if not self._quiet:
                    note(f"% {tp}: {error}; trying again")

    def _read(self, tp: TopicPartition, position: _Position, end: int) -> bool:
        """Prints from ``position`` to ``end`` and moves it there. False: an error ended the partition."""
        from kafka07c.ranges import Range

        if position.offset >= end:
            return True
        try:
            for each in self._source.read(Range(*tp, position.offset, end)):
                self._print(each.good(), position)
                position.offset = each.next_offset
                if each.error is not None:
                    raise each.error
                if self._left == 0:
                    return True
        except BrokerConnectionError as error:
            if not self._follow:
                raise
            self._source.close()
            if not self._quiet:
                note(f"% {error}; trying again")
        except KafkaError as error:
            sys.stdout.flush()
            note(f"kafka07c cat: {error}")
            self.code = max(self.code, exit_code(error))
            return False
        return True

    def _print(self, each: MessageSet, position: _Position) -> None:
        begin = min(position.skip, len(each))
        position.skip -= begin
        end = len(each) if self._left is None else min(len(each), begin + self._left)
        if begin < end:
            sys.stdout.buffer.write(self._render(each, slice(begin, end)))
        if self._left is not None:
            self._left -= end - begin


def _position(source: Source, tp: TopicPartition, start: str | int, earliest: int, latest: int) -> _Position:
    if isinstance(start, str):
        return _Position(earliest if start == "beginning" else latest)
    if start < 0:
        return _last_messages(source, tp, -start, earliest, latest)
    if not earliest <= start <= latest:
        raise OffsetOutOfRangeError(
            f"the log has offsets {earliest} to {latest}", topic=tp.topic, broker=tp.broker, partition=tp.partition,
            offset=start,
        )  # fmt: skip
    return _Position(start)


def _last_messages(source: Source, tp: TopicPartition, wanted: int, earliest: int, latest: int) -> _Position:
    """Where the last ``wanted`` messages begin. Memory: two numbers for each message set of one segment."""
    from kafka07c.ranges import Range

    for segment in reversed(source.split(Range(*tp, earliest, latest))):
        counts = [(each.base_offset, len(each)) for each in source.read(segment)]
        for offset, count in reversed(counts):
            if count >= wanted:
                return _Position(offset, count - wanted)
            wanted -= count
    return _Position(earliest)


# --- printing -----------------------------------------------------------------------------------------------------


class _Renderer:
    """From messages to the bytes for stdout, as the arguments want them."""

    def __init__(self, args: argparse.Namespace):
        self._delimiter = unescape(args.delimiter)
        self._one: Callable[[Message], bytes] | None = None  # None: payloads
        if args.json:
            self._one = lambda message: f"{json_line(_fields(message))}\n".encode()
        elif args.format is not None:
            pieces = _parse_format(args.format)
            self._one = lambda message: b"".join([piece(message) for piece in pieces])

    def part(self, each: MessageSet, part: slice) -> bytes:
        """Some messages of a set; the payloads without making a message of each."""
        return self.messages(each[part]) if self._one else self._delimiter.join([*each.payloads()[part], b""])

    def messages(self, messages: list[Message]) -> bytes:
        """These messages."""
        if self._one:
            return b"".join(map(self._one, messages))
        return self._delimiter.join([*(message.payload for message in messages), b""])


def _fields(message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic, "broker": message.broker, "partition": message.partition,
        "offset": message.offset, "index": message.index, "next_offset": message.next_offset,
        "key": None, **payload_fields(message.value),
    }  # fmt: skip


_FORMATS: dict[str, Callable[[Message], bytes]] = {
    "t": lambda message: str(message.topic).encode(),
    "b": lambda message: str(message.broker).encode(),
    "p": lambda message: str(message.partition).encode(),
    "o": lambda message: b"%d" % message.offset,
    "i": lambda message: b"%d" % message.index,
    "n": lambda message: b"%d" % message.next_offset,
    "s": lambda message: message.value,
    "S": lambda message: b"%d" % len(message.payload),
    "R": lambda message: len(message.payload).to_bytes(4, "big"),
    "k": lambda message: b"",
    "K": lambda message: b"-1",
    "T": lambda message: b"-1",
    "h": lambda message: b"",
    "%": lambda message: b"%",
}


def _constant(piece: bytes) -> Callable[[Message], bytes]:
    return lambda message: piece


def _parse_format(text: str) -> list[Callable[[Message], bytes]]:
    pieces: list[Callable[[Message], bytes]] = []
    for literal, letter in re.findall(r"((?:[^%])+)|%(.?)", text, re.DOTALL):
        if literal:
            pieces.append(_constant(unescape(literal)))
        elif letter in _FORMATS:
            pieces.append(_FORMATS[letter])
        else:
            raise UsageError(f"-f: %{letter} is no field; there are {' '.join('%' + name for name in _FORMATS)}")
    return pieces


_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def unescape(text: str) -> bytes:
    """The bytes that are meant, with \\n, \\t, \\xNN and so on taken for what they stand for; others stay as is."""

    def replacement(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return bytes([int(match[1], 16)])
        whole: bytes = match[0]
        return _ESCAPES.get(match[2].decode("latin-1"), whole)

    encoded = text.encode("utf-8", "surrogateescape")
    return re.sub(rb"\\(?:x([0-9a-fA-F]{1,2})|(.))", replacement, encoded, flags=re.DOTALL)
