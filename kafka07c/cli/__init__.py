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
from importlib.metadata import version

from kafka07c.cli import broker, brokers, cat, dump, groups, ingest, lag, metrics, offsets, topics, verify_rebalance
from kafka07c.cli.exit_codes import INTERNAL, INTERRUPTED, OK, exit_code

__all__ = ["main"]

_COMMANDS = (ingest, cat, dump, broker, topics, brokers, groups, lag, offsets, verify_rebalance, metrics)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code. A usage error and ``--help`` exit at once, as argparse does."""
    args = _parser().parse_args(argv)
    code = OK
    try:
        code = args.run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kafka07c",
        description="Apache Kafka 0.7: read its brokers and its log segments.",
        epilog="Each command explains itself: kafka07c ingest --help",
    )
    parser.add_argument("--version", action="version", version=f"kafka07c {version('kafka07c')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(commands)
    return parser
