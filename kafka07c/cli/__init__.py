"""The command ``kafka07c``. Data goes to stdout, all else to stderr; see exit_codes for how a command ends.

One module per command, with ``add_parser(commands)`` that sets ``run(args) -> exit code``. They are imported to build
the parser, so what is slow to import (Spark, Arrow) or comes with an extra is imported in ``run``.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from kafka07c.cli import (
    broker,
    brokers,
    cat,
    completion,
    dump,
    groups,
    ingest,
    lag,
    metrics,
    mirror,
    offsets,
    perf,
    produce,
    topics,
    verify_rebalance,
)
from kafka07c.cli.exit_codes import INTERNAL, INTERRUPTED, OK, USAGE, exit_code

__all__ = ["main", "make_parser"]

_COMMANDS = (
    ingest, cat, produce, mirror, perf, dump, broker, topics, brokers, groups, lag, offsets, verify_rebalance, metrics,
    completion,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code. A usage error and ``--help`` exit at once, as argparse does."""
    args = make_parser().parse_args(argv)
    code = OK
    try:
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        _give_up_unwritten()
        return INTERRUPTED
    except Exception as error:
        enough = isinstance(error, BrokenPipeError) and _stdout_is_closed()  # whoever read our output has had enough
        _give_up_unwritten()
        return code if enough else _report(error, args)


def _give_up_unwritten() -> None:
    """Python would try again, complain and end with a code of its own, when it closes a stdout that takes no more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stdout_is_closed() -> bool:
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _report(error: Exception, args: argparse.Namespace) -> int:
    code = exit_code(error)
    if args.debug:
        traceback.print_exception(error)
    text = " ".join(_text(error).split()) or type(error).__name__
    if code == INTERNAL:
        text = f"{type(error).__name__}: {text} (a fault of kafka07c; --debug shows where)"
    print(f"kafka07c {args.command}: {text}", file=sys.stderr)
    return code


def _text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename else error.strerror
    return str(error)


class _Parser(argparse.ArgumentParser):
    """One that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {' '.join(message.split())} ({self.prog} --help explains)\n")


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *others: object) -> NoReturn:
        from kafka07c.build_info import build_info

        print(build_info())
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line, all commands in it."""
    parser = _Parser(
        prog="kafka07c",
        description="Apache Kafka 0.7: its brokers, its consumer groups, its log segments.",
        epilog="example:\n  kafka07c cat --zookeeper zk1:2181/kafka -t clicks\n\n"
        "Each command explains itself: kafka07c cat --help. Data goes to stdout, all else to stderr. Exit codes:\n"
        "0 done; 1 a fault of kafka07c; 2 the command line asks for what cannot be; 3 nobody could be reached;\n"
        "4 corrupt data; 5 not done, or not to its end; 130 interrupted (a command that runs until then: 0).",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, help="show the version and what runs in it, and end")
    parser.add_argument("--debug", action="store_true", help="show the Python trace of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(commands)
    return parser
