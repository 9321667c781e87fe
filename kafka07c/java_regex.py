"""Regular expressions as ``java.util.regex`` reads them, in Python.

A topic filter stands in ZooKeeper as a Java regex, and every member of the group has to come to the same topics with
it. :func:`compile_java` makes a Python pattern that accepts exactly the same whole strings, or says with a ValueError
what it cannot carry over. Sets of characters are worked out here, range by range, and written out; so nothing depends
on what ``\\w``, ``.`` or ``(?i)`` mean in Python, and nested classes and ``&&`` are no different from plain ones.

Refused is what Java does not know; what Java versions read differently (``\\b``, ``\\v``, a negated class with another
inside it); what depends on a version of Unicode (``\\p{L}``); what came after 0.7's time (``\\h``, ``\\R``); and what
has no use in a topic filter (back references, ``(?m)``, ``(?x)``). Groups do not capture.

Source: the documentation of ``java.util.regex.Pattern``, versions 6 to 21; a test asks a real one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

__all__ = ["compile_java"]

#: characters of an expression; a group's filter stands in a ZooKeeper node, which somebody else may have written
MAX_LENGTH = 65_536

_MAX_DEPTH = 50
_MAX_REPEAT = 2**31 - 1
_LAST = 0x10FFFF

#: inclusive ranges of code points, ascending, with gaps between them
_Set = tuple[tuple[int, int], ...]


def _set(ranges: Iterable[tuple[int, int]]) -> _Set:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _chars(text: str) -> _Set:
    return _set((ord(char), ord(char)) for char in text)


def _complement(ranges: _Set) -> _Set:
    gaps, begin = [], 0
    for low, high in ranges:
        if begin < low:
            gaps.append((begin, low - 1))
        begin = high + 1
    if begin <= _LAST:
        gaps.append((begin, _LAST))
    return tuple(gaps)


def _intersection(one: _Set, other: _Set) -> _Set:
    return _complement(_set(_complement(one) + _complement(other)))


_DIGIT, _LOWER, _UPPER = ((48, 57),), ((97, 122),), ((65, 90),)
_ALPHA = _UPPER + _LOWER
_ALNUM = _DIGIT + _ALPHA
_SPACE = _chars(" \t\n\v\f\r")
_WORD = _set(_ALNUM + _chars("_"))
_PUNCT = _chars("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_EVERYTHING: _Set = ((0, _LAST),)
_DOT = _complement(_chars("\n\r\u0085\u2028\u2029"))

_CLASS_ESCAPES = {
    "d": _DIGIT, "D": _complement(_DIGIT), "s": _SPACE, "S": _complement(_SPACE), "w": _WORD, "W": _complement(_WORD),
}  # fmt: skip

_PROPERTIES = {
    "Lower": _LOWER, "Upper": _UPPER, "ASCII": ((0, 127),), "Alpha": _ALPHA, "Digit": _DIGIT, "Alnum": _ALNUM,
    "Punct": _PUNCT, "Graph": ((33, 126),), "Print": ((32, 126),), "Blank": _chars(" \t"),
    "Cntrl": ((0, 31), (127, 127)), "XDigit": _DIGIT + ((65, 70), (97, 102)), "Space": _SPACE,
}  # fmt: skip

_CONTROL_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}

# $ and \Z stand at the end, or before a line terminator there; \r\n is one
_END = r"(?=(?:\r\n|[\r\x85\u2028\u2029]|(?<!\r)\n)?\Z)"

_ANCHORS = {"^": r"\A", "$": _END, "\\A": r"\A", "\\Z": _END, "\\z": r"\Z"}

_GROUPS = {"(?:": "(?:", "(?=": "(?=", "(?!": "(?!", "(?<=": "(?<=", "(?<!": "(?<!", "(?>": "(?>"}

_REFUSED_ESCAPES = {
    **dict.fromkeys("bB", "Java versions differ in what a word is"),
    "v": "it is one character to Java 7 and several to Java 8",
    **dict.fromkeys("hHVRXN", "no Java of 0.7's time knows it"),
    **dict.fromkeys("123456789k", "back references are not carried over"),
    "G": "it has no meaning where a whole name has to match",
    "E": "there is no \\Q before it",
}

_QUOTED = re.compile(r"\\Q(.*?)(\\E|\Z)|\\?.", re.DOTALL)
_REPEAT = re.compile(r"\{([0-9]+)(,([0-9]*))?\}", re.ASCII)
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(-[a-zA-Z]+)?([:)])")
_NAMED = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_CODE_POINT = re.compile(r"0([0-3][0-7]{2}|[0-7]{1,2})|x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})")
_PROPERTY = re.compile(r"[pP](?:\{(?:Is)?([^}]*)\}|(.))", re.DOTALL)


@lru_cache(maxsize=256)  # every member's filter is read anew in each rebalance
def compile_java(regex: str) -> re.Pattern[str]:
    """A pattern whose ``fullmatch`` is what Java's ``String.matches(regex)`` is.

    ValueError, naming the expression and the place, where it is no Java regex or cannot be carried over exactly. An
    expression that Java takes exponential time for takes it here, too.
    """
    if len(regex) > MAX_LENGTH:
        raise ValueError(f"a regular expression of {len(regex)} characters: at most {MAX_LENGTH} are taken")
    parser = _Parser(regex)
    translated = parser.parse()
    try:
        return re.compile(translated)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the regular expression {regex!r} cannot be carried over to Python: {error}") from None


class _Parser:
    """Recursive descent over the expression; what comes out is Python's, with every set of characters spelt out."""

    def __init__(self, regex: str):
        self._regex = regex
        self._text = self._without_quotes(regex)
        self._at = 0
        self._depth = 0
        self._names: set[str] = set()
        self._ignore_case = False
        self._dot = _DOT

    def parse(self) -> str:
        translated = self._alternatives()
        if self._at < len(self._text):
            raise self._error("an unmatched )")
        return translated

    def _without_quotes(self, regex: str) -> str:
        """``\\Q…\\E`` as characters that stand for themselves, in a class too."""

        def unquoted(match: re.Match[str]) -> str:
            if match[1] is None:
                return match[0]
            if not match[2]:
                raise ValueError(f"the regular expression {regex!r} is refused: its \\Q has no \\E")
            return "".join(rf"\x{{{ord(char):x}}}" for char in match[1])

        return _QUOTED.sub(unquoted, regex)

    def _error(self, what: str, at: int | None = None) -> ValueError:
        at = self._at if at is None else at
        near = self._text[at : at + 20]
        return ValueError(f"the regular expression {self._regex!r} is refused: {what}, at {near!r}" if near else
                          f"the regular expression {self._regex!r} is refused: {what}, at its end")  # fmt: skip

    def _next_is(self, *texts: str) -> bool:
        return self._text.startswith(texts, self._at)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        if match:
            self._at = match.end()
        return match

    # expressions

    def _alternatives(self) -> str:
        alternatives = [self._sequence()]
        while self._next_is("|"):
            self._at += 1
            alternatives.append(self._sequence())
        return "|".join(alternatives)

    def _sequence(self) -> str:
        pieces = []
        while self._at < len(self._text) and not self._next_is("|", ")"):
            if self._next_is("*", "+", "?", "{"):
                raise self._error("a quantifier with nothing before it" + self._about_commas())
            piece = self._atom()
            if piece is not None:
                pieces.append(self._repeated(piece))
        return "".join(pieces)

    def _about_commas(self) -> str:
        return " (0.7 reads each comma of a filter as |)" if re.search(r"\{[0-9]*\|", self._text) else ""

    def _repeated(self, piece: str) -> str:
        quantifier = self._quantifier()
        if quantifier is None:
            return piece
        if self._next_is("?"):
            self._at += 1
            return f"(?:{piece}){quantifier}?"
        if self._next_is("+"):  # no way back into an iteration that has matched, nor to fewer of them
            self._at += 1
            return f"(?>(?>{piece}){quantifier})"
        return f"(?:{piece}){quantifier}"

    def _quantifier(self) -> str | None:
        if self._next_is("*", "+", "?"):
            self._at += 1
            return self._text[self._at - 1]
        if not self._next_is("{"):
            return None
        begin = self._at
        match = self._match(_REPEAT)
        if not match:
            raise self._error("no {n}, {n,} or {n,m}" + self._about_commas())
        least = int(match[1])
        most = int(match[3]) if match[3] else least
        if not least <= most <= _MAX_REPEAT:
            raise self._error("a number of repetitions that cannot be", begin)
        return f"{{{least}{',' if match[2] else ''}{most if match[3] else ''}}}"

    def _atom(self) -> str | None:
        """One element, whole by itself; None for flags, which are no element."""
        char = self._text[self._at]
        if char == "(":
            return self._group()
        if char == "[":
            return _written(self._class())
        if char == "\\":
            anchor = _ANCHORS.get(self._text[self._at : self._at + 2])
            if anchor:
                self._at += 2
                return anchor
            escaped = self._escape()
            return _written(escaped if isinstance(escaped, tuple) else self._cased(_chars(escaped)))
        self._at += 1
        if char in _ANCHORS:
            return _ANCHORS[char]
        return _written(self._dot if char == "." else self._cased(_chars(char)))

    def _cased(self, ranges: _Set) -> _Set:
        """With ``(?i)``, the other case of the ASCII letters as well."""
        if not self._ignore_case:
            return ranges
        upper = ((low - 32, high - 32) for low, high in _intersection(ranges, _LOWER))
        lower = ((low + 32, high + 32) for low, high in _intersection(ranges, _UPPER))
        return _set((*ranges, *upper, *lower))

    # groups

    def _group(self) -> str | None:
        flags = self._ignore_case, self._dot
        opening = self._opening()
        if opening is None:
            return None
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(f"more than {_MAX_DEPTH} groups inside each other")
        inside = self._alternatives()
        if not self._next_is(")"):
            raise self._error("a ( without its )")
        self._at += 1
        self._depth -= 1
        self._ignore_case, self._dot = flags
        return f"{opening}{inside})"

    def _opening(self) -> str | None:
        """The opening in Python's words; None for ``(?i)`` and its like, which are done then."""
        for opening in sorted(_GROUPS, key=len, reverse=True):
            if self._next_is(opening):
                self._at += len(opening)
                return _GROUPS[opening]
        begin = self._at
        if named := self._match(_NAMED):
            if named[1] in self._names:
                raise self._error(f"a second group named {named[1]}", begin)
            self._names.add(named[1])
            return "(?:"
        if flags := self._match(_FLAGS):
            self._set_flags(flags, begin)
            return "(?:" if flags[3] == ":" else None
        if self._next_is("(?"):
            hint = ": Java writes (?<name>…)" if self._next_is("(?P") else ""
            raise self._error(f"no group of Java's{hint}")
        self._at += 1
        return "(?:"

    def _set_flags(self, match: re.Match[str], begin: int) -> None:
        for flags, on in ((match[1], True), ((match[2] or "")[1:], False)):
            for flag in flags:
                if flag == "i":
                    self._ignore_case = on
                elif flag == "s":
                    self._dot = _EVERYTHING if on else _DOT
                else:
                    raise self._error(f"the flag {flag} is not carried over, i and s are", begin)

    # characters and their classes

    def _escape(self) -> str | _Set:
        """What stands after a backslash: one character, or the set of a ``\\d``."""
        begin = self._at
        self._at += 1
        if self._at == len(self._text):
            raise self._error("a \\ with nothing after it", begin)
        char = self._text[self._at]
        if char in _REFUSED_ESCAPES:
            raise self._error(f"\\{char} is not carried over: {_REFUSED_ESCAPES[char]}", begin)
        if char in "pP":
            return self._property(begin)
        if match := self._match(_CODE_POINT):
            return self._code_point(match, begin)
        self._at += 1
        if char in _CLASS_ESCAPES:
            return _CLASS_ESCAPES[char]
        if char in _CONTROL_ESCAPES:
            return _CONTROL_ESCAPES[char]
        if char == "c" and self._at < len(self._text):
            self._at += 1
            return chr(ord(self._text[self._at - 1]) ^ 64)
        if char.isascii() and char.isalnum():
            raise self._error(f"no escape of Java's that is carried over: \\{char}", begin)
        return char

    def _code_point(self, match: re.Match[str], begin: int) -> str:
        number = int(match[1], 8) if match[1] else int(match[2] or match[3] or match[4], 16)
        if number > _LAST or 0xD800 <= number <= 0xDFFF:
            raise self._error("no character", begin)
        return chr(number)

    def _property(self, begin: int) -> _Set:
        negated = self._text[self._at] == "P"
        match = self._match(_PROPERTY)
        name = match[1] if match and "{Is" not in match[0] else None
        if name not in _PROPERTIES:
            known = ", ".join(_PROPERTIES)
            raise self._error(f"only these properties mean the same everywhere: {known}", begin)
        if self._ignore_case and name in ("Lower", "Upper"):
            raise self._error("Java versions differ in what it means with (?i)", begin)
        return _complement(_PROPERTIES[name]) if negated else _PROPERTIES[name]

    def _class(self) -> _Set:
        """``[…]``, from its first bracket to its last."""
        begin = self._at
        self._at += 1
        negated = self._next_is("^")
        self._at += negated
        found, nested = self._operand(begin, first=True)
        result = found
        intersected = False
        while self._next_is("&&"):
            self._at += 2
            if self._next_is("&"):
                raise self._error("three & in a class", begin)
            intersected = True
            found, with_class = self._operand(begin, first=False)
            result = _intersection(result, found)
            nested |= with_class
        if negated and (nested or intersected):
            raise self._error("Java versions differ in a negated class with another class or && in it", begin)
        self._at += 1
        return _complement(result) if negated else result

    def _operand(self, begin: int, *, first: bool) -> tuple[_Set, bool]:
        """What stands before, between or after ``&&``: the set, and whether there was a class in it."""
        ranges: list[tuple[int, int]] = []
        nested = items = 0
        while not self._next_is("&&"):
            if self._at >= len(self._text):
                raise self._error("a [ without its ]", begin)
            if self._next_is("]") and (items or not first):
                break
            if self._next_is("["):
                ranges += self._nested(begin)
                nested += 1
            else:
                ranges += self._item()
            items += 1
        if not items:
            raise self._error("an && with nothing on one side", begin)
        if not first and nested and items > 1:
            raise self._error("Java versions differ in a class beside other things after &&", begin)
        return _set(ranges), bool(nested)

    def _nested(self, begin: int) -> _Set:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(f"more than {_MAX_DEPTH} classes inside each other", begin)
        found = self._class()
        self._depth -= 1
        return found

    def _item(self) -> _Set:
        """A character, a range of them, or a ``\\d``."""
        begin = self._at
        low = self._single()
        follows = self._text[self._at + 1 : self._at + 2]
        is_range = self._next_is("-") and follows not in ("", "]", "[")
        if isinstance(low, tuple):
            if is_range:
                raise self._error("a range that begins with a set of characters", begin)
            return low
        if not is_range:
            return self._cased(_chars(low))
        self._at += 1
        high = self._single()
        if isinstance(high, tuple) or high < low:
            raise self._error("no range of characters", begin)
        return self._cased(((ord(low), ord(high)),))

    def _single(self) -> str | _Set:
        if self._next_is("\\"):
            return self._escape()
        self._at += 1
        return self._text[self._at - 1]


def _written(ranges: _Set) -> str:
    """A set of characters as Python writes it."""
    if not ranges:
        return "(?!)"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _character(ranges[0][0])
    inside = "".join(_character(low) + (f"-{_character(high)}" if high > low else "") for low, high in ranges)
    return f"[{inside}]"


def _character(number: int) -> str:
    char = chr(number)
    return char if char.isascii() and char.isalnum() else f"\\U{number:08x}"
