"""Imports run one way: a room knows only the rooms before it. A package is one room, or has its rooms in the list."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "kafka07c"

#: each room may import from the rooms in the lines above its own
ORDER = """
    errors config names settings properties metrics assignment java_regex callbacks
    _crc32 _memory _wire
    _compress
    _scan build_info
    _arrow
    _build _views
    framing protocol java metrics_server
    connection subscription prometheus
    simple segments positions testing
    zookeeper
    cluster
    group_state ranges broker
    consumer.config consumer.group_log consumer.chunks consumer.log_ends
    consumer.fetcher consumer.coordinator
    consumer.commits
    consumer.reader
    consumer.streams
    consumer.consumer
    producer.records producer.partitioners
    producer.handlers
    producer.config producer.routing producer.batches
    producer.verifying
    producer.sender
    producer.dispatcher producer.staging
    producer.producer
    consumer producer
    mirror spark
    cli
    demo
"""
LEVEL = {room: level for level, line in enumerate(ORDER.split("\n")) for room in line.split()}

#: packages whose files have places of their own
DIVIDED = {room.partition(".")[0] for room in LEVEL if "." in room}

#: what only one room may import
ONLY = {"kazoo": "zookeeper", "pyspark": "spark"}


def room_of(module: str) -> str:
    """The room of ``kafka07c.a.b.c``."""
    _, first, *rest = module.split(".")
    return f"{first}.{rest[0]}" if first in DIVIDED and rest else first


def sources() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        module = ".".join(parts).removesuffix(".__init__")
        if module not in ("kafka07c", "kafka07c.__main__"):
            yield room_of(module), path
    for path in sorted((ROOT / "src_pyx" / "kafka07c").glob("*.p[yx][xd]")):
        yield path.stem, path


def imported(path: Path) -> set[str]:
    """Modules, as dotted names, that a file imports anywhere in it; those for type checking alone do not count."""
    if path.suffix != ".py":
        return set(re.findall(r"^\s*from (\S+) c?import", path.read_text(), re.M))
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "kafka07c":
            found.update(f"kafka07c.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


@pytest.mark.parametrize(("room", "path"), list(sources()), ids=lambda value: getattr(value, "name", value))
def test_imports_run_one_way(room, path):
    names = imported(path)
    own = {room_of(name) for name in names if name.startswith("kafka07c.")} - {room}
    assert room in LEVEL, f"{room} is a new room: give it a place in ORDER"
    assert {other for other in own if LEVEL[other] >= LEVEL[room]} == set()
    for package, only in ONLY.items():
        assert room == only or package not in {name.split(".")[0] for name in names}


def test_a_file_without_imports_is_not_all_that_is_seen():
    assert "kafka07c.errors" in imported(PACKAGE / "simple.py")
    assert "kafka07c._crc32" in imported(ROOT / "src_pyx" / "kafka07c" / "_scan.pyx")
