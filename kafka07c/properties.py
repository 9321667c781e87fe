"""Java ``.properties`` files, as 0.7 brokers and consumers are configured with (``server.properties``).

The syntax is that of ``java.util.Properties.load``: Latin-1 bytes; a line whose first character is ``#`` or ``!`` is a
comment; a line that ends in an odd number of backslashes goes on with the next, whose leading blanks are dropped; the
name ends at the first ``=``, ``:`` or blank that no backslash precedes; ``\\t \\n \\r \\f \\uXXXX`` are escapes and any
other escaped character stands for itself. Of a name given twice the last value counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["parse_properties", "read_properties"]

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: str | Path) -> dict[str, str]:
    """The properties in the file at ``path``; OSError where it cannot be read, ValueError naming a malformed line."""
    return parse_properties(Path(path).read_bytes().decode("latin-1"), str(path))


def parse_properties(text: str, source: str = "properties") -> dict[str, str]:
    """The properties in ``text``, in order of their first appearance. ``source`` names the text in errors."""
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        end = _name_end(line)
        rest = line[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        try:
            properties[_unescape(line[:end])] = _unescape(rest)
        except ValueError as error:
            raise ValueError(f"{source}, line {number}: {error}") from None
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without comments and blank lines, each with its first line's number."""
    start = 0
    parts: list[str] = []
    # java.util.Properties knows three line ends; str.splitlines would split at form feeds too
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = line.lstrip(_BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            start = number
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2
        parts.append(line[:-1] if goes_on else line)
        if not goes_on:
            yield start, "".join(parts)
            parts = []
    if parts:
        yield start, "".join(parts)


def _name_end(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescape(text: str) -> str:
    return re.sub(r"(?s)\\(u[0-9a-fA-F]{4}|.|$)", _escape, text)


def _escape(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) == 5:
        return chr(int(escaped[1:], 16))
    if escaped == "u":
        raise ValueError(f"malformed \\uXXXX escape in {match.string!r}")
    return _ESCAPES.get(escaped, escaped)
