"""docs/kcat.md: what it says of our flags is so, and none of kcat's is left out."""

from __future__ import annotations

import argparse
import re
from functools import cache
from pathlib import Path

import pytest

from kafka07c import cli

TEXT = (Path(__file__).parents[1] / "docs" / "kcat.md").read_text()

#: kcat 1.7.1, ``kcat -h``; a capital letter can be another flag
KCAT = "CPLQGMtpbDKcmFXdqvEVh" + "zkHlTZ" + "oefJsrOu"


def rows() -> list[list[str]]:
    """The cells of the tables' rows."""
    lines = [line for line in TEXT.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [re.split(r"\s*\|\s*", line.strip("| ")) for line in lines]


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@cache
def our_parser() -> argparse.ArgumentParser:
    return cli.make_parser()


def parser_of(words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser that ``cat -b``, ``offsets before`` or ``--version`` is about, and the words behind its name."""
    parser = our_parser()
    words = [word for word in words if word != "kafka07c"]
    while words and not words[0].startswith("-"):
        actions = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        if not actions:
            break
        assert words[0] in actions[0].choices, words
        parser, words = actions[0].choices[words[0]], words[1:]
    return parser, words


CASES = [(span, flag) for row in rows() for span in spans(row[-1]) if re.match(r"[a-z]+( |$)|--", span)
         for flag in [None, *re.findall(r"(?<!\S)--?[A-Za-z][a-z-]*", span)]]  # fmt: skip


@pytest.mark.parametrize(("span", "flag"), [case for case in CASES if not case[0].startswith("kcat")])
def test_each_command_and_flag_that_is_named_exists(span, flag):
    parser, _ = parser_of(span.split())
    assert flag is None or flag in parser._option_string_actions, f"{parser.prog} has no {flag}"


def test_the_table_is_read():
    assert len(CASES) > 60 and ("produce -K", "-K") in CASES and ("cat --debug", "--debug") in CASES


@pytest.mark.parametrize("flag", KCAT)
def test_each_of_kcats_flags_has_a_row(flag):
    named = {word for row in rows() for span in spans(row[0]) for word in span.split()}
    assert f"-{flag}" in {word[:2] for word in named if word.startswith("-")}
