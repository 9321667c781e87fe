"""How a property becomes a value: the fields of the frozen dataclasses that hold settings, and what parses them.

A value is what a properties file holds (text) or what Python code would give: a number, a boolean, a mapping.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, field, fields
from typing import Any

__all__ = ["boolean", "by_name", "choice", "integer", "parse", "setting", "table", "text"]

Parser = Callable[[str, Any], Any]

MAX_INT = 2**31 - 1


def integer(low: int, high: int = MAX_INT) -> Parser:
    """A whole number from ``low`` to ``high``."""

    def parse_integer(name: str, value: Any) -> int:
        try:
            # no float, no bool: what a properties file could not say is a mistake here too
            number = int(value.strip()) if isinstance(value, str) else value
            if isinstance(number, bool) or not isinstance(number, int):
                raise ValueError
        except ValueError:
            raise ValueError(f"{name} must be a whole number, but is {value!r}") from None
        if not low <= number <= high:
            raise ValueError(f"{name} must be between {low} and {high}, but is {number}")
        return number

    return parse_integer


def boolean(name: str, value: Any) -> bool:
    """``true`` or ``false``."""
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.strip(), value)
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, but is {value!r}")
    return value


def text(name: str, value: Any) -> str:
    """Text that is not empty, without the blanks around it."""
    stripped = str(value).strip()
    if not stripped:
        raise ValueError(f"{name} must not be empty")
    return stripped


def choice(**meanings: str) -> Parser:
    """One of the words given, as what it means: ``choice(smallest="earliest", earliest="earliest")``."""

    def parse_choice(name: str, value: Any) -> str:
        try:
            return meanings[str(value).strip()]
        except KeyError:
            raise ValueError(f"{name} must be one of {', '.join(meanings)}, but is {value!r}") from None

    return parse_choice


def setting(
    name: str, default: Any, unit: str, parser: Parser, *, about: str = "", aliases: Collection[str] = ()
) -> Any:
    """A dataclass field for the property ``name``, which may also be spelt as one of ``aliases``."""
    metadata = {"property": name, "unit": unit, "parse": parser, "about": about, "aliases": tuple(aliases)}
    return field(default=default, metadata=metadata)


def by_name(cls: type) -> dict[str, Field[Any]]:
    """The settings of a dataclass by property name and by alias; what has no property is left out."""
    settings = [setting for setting in fields(cls) if setting.metadata]
    names = {alias: setting for setting in settings for alias in setting.metadata.get("aliases", ())}
    return names | {setting.metadata["property"]: setting for setting in settings}


def parse(
    who: str, settings: Mapping[str, Field[Any]], without_effect: Collection[str], properties: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values of ``properties`` by field name, and the names given that have no effect.

    ``settings`` is what :func:`by_name` gives. ValueError for a name that is neither in it nor in ``without_effect``
    (it proposes the nearest one), for a bad value, and for one setting given under two names.
    """
    values: dict[str, Any] = {}
    given: dict[str, str] = {}
    ignored = []
    for name, value in properties.items():
        if name in without_effect:
            ignored.append(name)
            continue
        if name not in settings:
            raise ValueError(_unknown(who, name, [*settings, *without_effect]))
        target = settings[name].name
        if target in values:
            raise ValueError(f"{given[target]!r} and {name!r} are the same setting: give one of them")
        given[target] = name
        values[target] = settings[name].metadata["parse"](name, value)
    return values, tuple(ignored)


def _unknown(who: str, name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"{who} know no property {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def table(cls: type) -> str:
    """The settings of a dataclass as a Markdown table."""
    lines = ["| property | default | unit | also accepted as | what it does |", "|---|---|---|---|---|"]
    for each in fields(cls):
        if each.metadata:
            aliases = sorted({each.name, *each.metadata["aliases"]} - {each.metadata["property"]})
            spelt = ", ".join(f"`{alias}`" for alias in aliases)
            default = str(each.default).lower() if isinstance(each.default, bool) else each.default
            shown = f"`{default}`" if default not in (None, "") else ""
            cells = [f"`{each.metadata['property']}`", shown, each.metadata["unit"], spelt, each.metadata["about"]]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
