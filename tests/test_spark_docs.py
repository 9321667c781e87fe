"""docs/spark.md: every option is in its tables, and what they name is an option."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka07c.spark import options, sink_options

TEXT = (Path(__file__).parents[1] / "docs" / "spark.md").read_text()


def table(heading: str) -> dict[str, list[str]]:
    """The rows of the first table below a heading, by what stands in the first column."""
    below = TEXT.split(f"\n## {heading}\n", 1)[1]
    lines = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0].strip("` |"): row for row in rows}


def test_every_option_of_the_source_is_there():
    assert list(table("Options of the source")) == list(dict.fromkeys(table("Options of the source")))
    assert set(table("Options of the source")) == set(options._NAMES)


@pytest.mark.parametrize("name", [name for name in options._NAMES if name.startswith(("ending", "max", "min"))])
def test_what_is_for_streams_and_what_is_for_batches(name):
    """As the parser has it: a stream has no end, and limits are for streams."""
    said = table("Options of the source")[name][1]
    if name in options._ENDINGS:
        assert said == "B"
        with pytest.raises(options.OptionError, match="for batch queries"):
            options.parse({"kafka07.logs": "0:/a", "subscribe": "a", name: "latest"}, streaming=True)
    else:
        assert said == ("B S" if name == "minPartitions" else "S")


def test_every_option_of_the_sink_is_there():
    assert set(table("Writing")) == {"topic", *sink_options._NAMES, "kafka07.NAME"}
    for name in sink_options._PARTITIONERS:
        assert f"`{name}`" in table("Writing")["partitioner"][2]


def test_every_mode_is_there():
    below = TEXT.split("\n### Damage\n", 1)[1].split("\n### ", 1)[0]
    assert set(re.findall(r"^\| `([A-Z]+)`", below, re.MULTILINE)) == {mode.value for mode in options.Mode}
