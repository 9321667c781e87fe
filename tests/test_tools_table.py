"""docs/tools.md: all 18 tools of 0.7 are there, each command line in it can be typed, each option of ours exists."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from kafka07c.cli import make_parser

TOOLS = """ConsoleProducer ConsoleConsumer GetOffsetShell ConsumerOffsetChecker DumpLogSegments ExportZkOffsets ImportZkOffsets
UpdateOffsetsInZK VerifyConsumerRebalance MirrorMaker ReplayLogProducer SimpleConsumerShell ConsumerShell ProducerShell
JmxTool ProducerPerformance SimpleConsumerPerformance ConsumerPerformance""".split()

TEXT = (Path(__file__).parents[1] / "docs" / "tools.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in TEXT.splitlines() if line.startswith("| `")]


def command_of(arguments: list[str]) -> argparse.ArgumentParser:
    """The parser that these arguments end up with."""
    it = make_parser()
    for word in arguments:
        below = next((a.choices for a in it._actions if isinstance(a, argparse._SubParsersAction)), {})
        it = below.get(word, it)
    return it


def test_all_tools_are_there_once():
    assert [row[0] for row in ROWS] == [f"`{name}`" for name in TOOLS]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("`"))
def test_a_row(row):
    tool, ours, options = row
    words = shlex.split(ours.strip("`"))
    assert words[0] == "kafka07c"
    assert callable(make_parser().parse_args(words[1:]).run)
    known = {flag for action in command_of(words[1:])._actions for flag in action.option_strings}
    named = set()
    # what stands behind an arrow is ours, up to the comma before the next of theirs
    for behind in re.split("→", options)[1:]:
        named |= set(re.findall(r"`(-[^`]+)`", re.split(r", `|\. |; ", behind)[0]))
    named |= set(re.findall(r"(?:there is|without|wrappers:|group:) `(-[^`]+)`", options))
    assert named <= known, f"{tool}: {named - known}"


def test_every_command_of_ours_is_named():
    below = next(a.choices for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
    named = set(re.findall(r"`(?:kafka07c )?([a-z-]+)", TEXT))
    assert set(below) <= named, set(below) - named
