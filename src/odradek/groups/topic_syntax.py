"""Reads the regular expressions by which consumers subscribe: RE2's syntax, over the characters of topics' names.

The result is a tree of nodes; `topic_pattern.py` matches with it. What RE2 has not (look-around, references back) is
refused, and so are word boundaries and Unicode classes, which no topic's name needs.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

PATTERN_LENGTH_MAX = 1024
REPEAT_MAX = 1000  # as in RE2
_DEPTH_MAX = 32  # parentheses within parentheses

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
_DIGITS = frozenset(string.digits)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_CLASSES: Mapping[str, frozenset[str]] = MappingProxyType({
    "d": _DIGITS, "D": ALPHABET - _DIGITS,
    "w": _WORD, "W": ALPHABET - _WORD,
    "s": frozenset(), "S": ALPHABET,
})  # fmt: skip
_POSIX: Mapping[str, frozenset[str]] = MappingProxyType({
    "alnum": _WORD - {"_"}, "alpha": frozenset(string.ascii_letters), "ascii": ALPHABET, "blank": frozenset(),
    "cntrl": frozenset(), "digit": _DIGITS, "graph": ALPHABET, "lower": frozenset(string.ascii_lowercase),
    "print": ALPHABET, "punct": frozenset("._-"), "space": frozenset(), "upper": frozenset(string.ascii_uppercase),
    "word": _WORD, "xdigit": frozenset(string.hexdigits),
})  # fmt: skip
_CONTROL: Mapping[str, str] = MappingProxyType({"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"})
_FLAGS = frozenset("imsU")  # of these only `i` makes a difference for a name that must match as a whole


class PatternError(ValueError):
    """A regular expression that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class One:
    """One character out of a set."""

    characters: frozenset[str]


@dataclass(frozen=True, slots=True)
class Edge:
    """The beginning of the name, or its end."""

    is_end: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any of several."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part between `least` and `most` times; None: without end."""

    part: Node
    least: int
    most: int | None


Node: TypeAlias = One | Edge | Sequence | Choice | Repeat


def parse(pattern: str) -> Node:
    """Read a regular expression; PatternError if it is none, or not one of ours."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise PatternError(f"it has {len(pattern)} characters, at most {PATTERN_LENGTH_MAX} are allowed")
    parser = _Parser(pattern)
    node = parser.choice(ignores_case=False, depth=0)
    if not parser.is_done:
        raise PatternError("there is a ) without a (")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def is_done(self) -> bool:
        return self._at == len(self._text)

    def _next_is(self, token: str) -> bool:
        return self._text.startswith(token, self._at)

    def _accept(self, token: str) -> bool:
        found = self._next_is(token)
        self._at += len(token) if found else 0
        return found

    def _take(self) -> str:
        if self.is_done:
            raise PatternError("it ends in the middle")
        self._at += 1
        return self._text[self._at - 1]

    def _take_until(self, token: str) -> str:
        end = self._text.find(token, self._at)
        if end < 0:
            raise PatternError(f"there is a {token} missing")
        taken = self._text[self._at : end]
        self._at = end + len(token)
        return taken

    # The grammar, outermost first

    def choice(self, *, ignores_case: bool, depth: int) -> Node:
        if depth > _DEPTH_MAX:
            raise PatternError(f"its parentheses are nested deeper than {_DEPTH_MAX}")
        options: list[Node] = []
        parts: list[Node] = []
        while not self.is_done and not self._next_is(")"):
            if self._accept("|"):
                options.append(Sequence(tuple(parts)))
                parts = []
            elif self._accept("(?"):
                # Flags without a colon hold up to the end of the group around them.
                group, ignores_case = self._special_group(ignores_case, depth)
                if group is not None:
                    parts.append(self._repeats(group))
            elif self._accept(r"\Q"):
                quoted = self._take_until(r"\E") if r"\E" in self._text[self._at :] else self._rest()
                parts.extend(_one(character, ignores_case) for character in quoted)
            else:
                parts.append(self._repeats(self._atom(ignores_case, depth)))
        options.append(Sequence(tuple(parts)))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _rest(self) -> str:
        rest, self._at = self._text[self._at :], len(self._text)
        return rest

    def _special_group(self, ignores_case: bool, depth: int) -> tuple[Node | None, bool]:
        """What follows `(?`: a named group, or flags with or without a group of their own."""
        if self._next_is("P<") or (self._next_is("<") and not self._next_is("<=") and not self._next_is("<!")):
            self._take_until(">")
            return self._group(ignores_case, depth), ignores_case
        inner, is_set = ignores_case, True
        while True:
            flag = self._take()
            if flag == ":":
                return self._group(inner, depth), ignores_case
            if flag == ")":
                return None, inner
            if flag == "-" and is_set:
                is_set = False
            elif flag not in _FLAGS:
                raise PatternError(f"(?{flag} is not supported")
            elif flag == "i":
                inner = is_set

    def _group(self, ignores_case: bool, depth: int) -> Node:
        node = self.choice(ignores_case=ignores_case, depth=depth + 1)
        if not self._accept(")"):
            raise PatternError("there is a ) missing")
        return node

    def _atom(self, ignores_case: bool, depth: int) -> Node:
        character = self._take()
        match character:
            case "(":
                return self._group(ignores_case, depth)
            case ".":
                return One(ALPHABET)
            case "^":
                return Edge(is_end=False)
            case "$":
                return Edge(is_end=True)
            case "[":
                return One(self._class(ignores_case))
            case "\\":
                return self._escape(ignores_case)
            case "*" | "+" | "?":
                raise PatternError(f"there is nothing that {character} could repeat")
            case _:
                return _one(character, ignores_case)

    def _repeats(self, part: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return part
        self._accept("?")  # greedy or not, the same names match
        if self._bounds() is not None:
            raise PatternError("one repetition follows another")
        return Repeat(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._accept("*"):
            return 0, None
        if self._accept("+"):
            return 1, None
        if self._accept("?"):
            return 0, 1
        if not self._next_is("{"):
            return None
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(end, self._at + 1)].partition(",")
        if not _is_number(low) or not (high == "" or _is_number(high)):
            return None  # an ordinary brace, as in RE2
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
            raise PatternError(f"{{{low}{comma}{high}}} is not a number of times up to {REPEAT_MAX}")
        self._at = end + 1
        return least, most

    def _escape(self, ignores_case: bool) -> Node:
        character = self._take()
        match character:
            case "A":
                return Edge(is_end=False)
            case "z":
                return Edge(is_end=True)
            case _ if character in _CLASSES:
                return One(_CLASSES[character])
            case _:
                return _one(self._escaped_character(character), ignores_case)

    def _escaped_character(self, character: str) -> str:
        if character == "x":
            digits = self._take_until("}") if self._accept("{") else self._take() + self._take()
            if not digits or len(digits) > 6 or not set(digits) <= set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
                raise PatternError(rf"\x{digits} is not a character")
            return chr(int(digits, 16))
        if character in _CONTROL:
            return _CONTROL[character]
        if character.isascii() and character.isalnum():
            raise PatternError(rf"\{character} is not supported")
        return character

    def _class(self, ignores_case: bool) -> frozenset[str]:
        is_negated = self._accept("^")
        characters: set[str] = set()
        is_first = True
        while is_first or not self._next_is("]"):
            is_first = False
            if self._accept("[:"):
                characters |= _posix(self._take_until(":]"))
                continue
            low = self._take()
            if low == "\\":
                low = self._take()
                if low in _CLASSES:
                    characters |= _CLASSES[low]
                    continue
                low = self._escaped_character(low)
            characters |= _cased(self._span(low), ignores_case)
        self._at += 1
        return ALPHABET - characters if is_negated else ALPHABET & characters

    def _span(self, low: str) -> frozenset[str]:
        """The characters from `low` to the other end of the span, if there is one."""
        if not self._next_is("-") or self._next_is("-]"):
            return frozenset(low)
        self._at += 1
        high = self._take()
        if high == "\\":
            high = self._escaped_character(self._take())
        if high < low:
            raise PatternError(f"[{low}-{high}] runs backwards")
        return frozenset(character for character in ALPHABET if low <= character <= high)


def _posix(name: str) -> frozenset[str]:
    positive = name.removeprefix("^")
    if positive not in _POSIX:
        raise PatternError(f"[:{name}:] is not a class of characters")
    return ALPHABET - _POSIX[positive] if name.startswith("^") else _POSIX[positive]


def _one(character: str, ignores_case: bool) -> One:
    return One(_cased(frozenset(character), ignores_case) & ALPHABET)


def _cased(characters: frozenset[str], ignores_case: bool) -> frozenset[str]:
    if not ignores_case:
        return characters
    return characters | {character.lower() for character in characters} | {c.upper() for c in characters}


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 5 and text.isascii() and text.isdigit()
