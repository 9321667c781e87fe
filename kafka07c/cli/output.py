"""What the commands print: tables, notes, JSON, payloads as text, a progress bar."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["json_line", "megabytes_per_second", "note", "payload_fields", "print_rows", "progress_bar", "table"]


def note(text: str) -> None:
    """A line on stderr."""
    print(text, file=sys.stderr)


def json_line(fields: dict[str, Any]) -> str:
    """One JSON object without a line break in it."""
    return json.dumps(fields, ensure_ascii=False)


def payload_fields(value: bytes) -> dict[str, str]:
    """``{"payload": text}``, or ``{"payload_base64": …}`` for bytes that are no UTF-8."""
    try:
        return {"payload": value.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(value).decode()}


def megabytes_per_second(count: int, seconds: float) -> str:
    """``"123.4"``, or ``"-"`` where nothing was read."""
    return f"{count / seconds / 1e6:.1f}" if count and seconds > 0 else "-"


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], *, left: Sequence[str] = ()) -> str:
    """Rows under heads, numbers with thousands apart, None as a dash; the columns in ``left`` begin at the left."""
    cells = [list(heads), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if head in left else cell.rjust(width)
            for cell, width, head in zip(row, widths, heads, strict=True)
        ).rstrip()
        for row in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def print_rows(
    heads: Sequence[str], rows: Sequence[Sequence[object]], *, left: Sequence[str] = (), as_json: bool = False
) -> None:
    """Rows to stdout: a table, its numbers as they can be typed again; or one JSON object per row, with the heads as
    names (``LOG-END-OFFSET`` is ``log_end_offset``).
    """
    if as_json:
        names = [head.strip("#").lower().replace("-", "_") for head in heads]
        for row in rows:
            print(json_line(dict(zip(names, row, strict=True))))
    else:
        texts = [[str(value) if isinstance(value, int) else value for value in row] for row in rows]
        print(table(heads, texts, left=left))


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr: call what you get with (bytes done, bytes in all). None when stderr is no terminal or rich is
    not installed (the extra ``cli``).
    """
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        yield None
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
