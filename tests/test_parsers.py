"""All parsers of the command line, subcommands included: what each has to have, and that its examples can be typed."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator

import pytest

from kafka07c.cli import main, make_parser


def walk(it: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield it
    for action in it._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from walk(below)


ALL = list(walk(make_parser()))
#: those that do something themselves
LEAVES = [it for it in ALL if not any(isinstance(action, argparse._SubParsersAction) for action in it._actions)]


def example_lines(it: argparse.ArgumentParser) -> list[str]:
    """The command lines below ``example:``, up to the next blank line."""
    examples = (it.epilog or "").partition("example:\n")[2].partition("\n\n")[0]
    return [line.strip() for line in examples.splitlines() if line.strip()]


def commands_in(line: str) -> list[list[str]]:
    """The arguments of each kafka07c in a line of shell: pipes, redirections and all."""
    found: list[list[str]] = []
    inside = False
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.wordchars += "%^:,[]{}$@+!"
    for word in lexer:
        if word and set(word) <= set("|;&"):
            inside = False
        elif set(word) <= set("<>"):
            next(lexer, None)
        elif inside:
            found[-1].append(word)
        elif word == "kafka07c":
            inside = True
            found.append([])
    return found


def test_the_walk_sees_all():
    names = {it.prog for it in ALL}
    assert {"kafka07c", "kafka07c cat", "kafka07c offsets", "kafka07c offsets before", "kafka07c perf fetch"} <= names
    assert len(LEAVES) >= 20


def test_shell_lines_are_taken_apart():
    assert commands_in("tail -f x | kafka07c a -t 'b c' | sort > y; kafka07c d < e") == [["a", "-t", "b c"], ["d"]]
    assert commands_in("kafka07c cat -f '%b-%p %o\\n' -G x '^.*'") == [["cat", "-f", "%b-%p %o\\n", "-G", "x", "^.*"]]


@pytest.mark.parametrize("it", ALL, ids=lambda it: it.prog)
def test_each_has_an_example_that_parses(it):
    lines = example_lines(it)
    assert lines, f"{it.prog} --help has no example"
    seen = 0
    for line in lines:
        commands = commands_in(line)
        assert commands, f"{line!r} is no kafka07c command"
        for arguments in commands:
            args = make_parser().parse_args(arguments)  # ends the test if it does not parse
            assert callable(args.run)
            seen += ["kafka07c", *arguments][: len(it.prog.split())] == it.prog.split()
    assert seen, f"no example of {it.prog} is one of {it.prog}"


@pytest.mark.parametrize("it", LEAVES, ids=lambda it: it.prog)
def test_each_has_json_with_its_fields_in_the_help_and_debug(it):
    options = {text for action in it._actions for text in action.option_strings}
    assert "--debug" in options
    if it.prog == "kafka07c completion":
        return  # it prints a script for a shell, nothing else
    assert "--json" in options
    assert re.search(r"^fields with --json, one object per \w", it.epilog or "", re.M), f"{it.prog} names no fields"


@pytest.mark.parametrize("it", ALL, ids=lambda it: it.prog)
def test_each_help_is_within_its_width_and_every_option_explained(it, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = it.format_help()
    assert max(map(len, text.splitlines())) <= 120
    obvious = {"topic", "topics"}
    for action in it._actions:
        assert action.help or action.dest in obvious or isinstance(action, argparse._SubParsersAction), action


@pytest.mark.parametrize("it", LEAVES, ids=lambda it: it.prog)
def test_a_wrong_option_is_one_line(it, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*it.prog.split()[1:], "--no-such-option"])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("kafka07c") and err.endswith(" --help explains)\n")


@pytest.mark.parametrize(
    ("arguments", "debug"),
    [
        (["--debug", "offsets", "before", "latest", "-t", "t"], True),
        (["offsets", "--debug", "before", "latest", "-t", "t"], True),
        (["offsets", "before", "--debug", "latest", "-t", "t"], True),
        (["offsets", "before", "latest", "-t", "t"], False),
    ],
)
def test_debug_anywhere(arguments, debug):
    assert make_parser().parse_args(arguments).debug is debug
