"""The line of every key in a TOML text, which Python's own reader does not tell. Pure.

The text is known to be TOML: `tomllib` has read it. So only what delimits keys and values is looked at.
"""

from __future__ import annotations

import ast
import re

from odradek.spark.pipelines.errors import Path

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}|' r"'''.*?'{3,5}|" r'"(?:[^"\\\n]|\\.)*"|' r"'[^'\n]*'", re.DOTALL)
_SCALAR = re.compile(r"[^,\]}#\n]+")


def lines_of(text: str) -> dict[Path, int]:
    """The line of each key and table by its path, the first is 1; items of arrays are numbered from 0."""
    return _Reader(text).lines


class _Reader:
    """Goes through the text once."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self._text = text
        self._at = 0
        self._arrays: dict[Path, int] = {}  # how many tables [[such]] there are
        self._read_document()

    def _read_document(self) -> None:
        table: Path = ()
        self._skip()
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._read_header()
            else:
                self._read_pair(table)
            self._skip()

    def _read_header(self) -> Path:
        is_array = self._text.startswith("[[", self._at)
        line = self._line()
        self._at += 2 if is_array else 1
        path = self._within_arrays(self._read_key())
        self._at += 2 if is_array else 1
        if is_array:
            number = self._arrays[path] = self._arrays.get(path, -1) + 1
            path = (*path, number)
        for length in range(1, len(path) + 1):
            self._found(path[:length], line)
        return path

    def _within_arrays(self, key: Path) -> Path:
        """[a.b] below [[a]] is about the last of these."""
        path: Path = ()
        for number, part in enumerate(key):
            path = (*path, part)
            if path in self._arrays and number < len(key) - 1:
                path = (*path, self._arrays[path])
        return path

    def _read_pair(self, table: Path) -> None:
        line = self._line()
        key = self._read_key()
        self._at += 1  # =
        path = (*table, *key)
        for length in range(len(table) + 1, len(path) + 1):
            self._found(path[:length], line)
        self._read_value(path)

    def _read_key(self) -> Path:
        parts: list[str] = []
        while True:
            self._skip()
            if (bare := _BARE.match(self._text, self._at)) is not None:
                parts.append(bare[0])
                self._at = bare.end()
            else:
                parts.append(self._read_string())
            self._skip()
            if self._text[self._at] != ".":
                return tuple(parts)
            self._at += 1

    def _read_string(self) -> str:
        match = _STRING.match(self._text, self._at)
        assert match is not None, f"no key in line {self._line()}"
        self._at = match.end()
        if match[0].startswith("'"):
            return match[0].strip("'")
        found = ast.literal_eval(match[0])  # a key's escapes are Python's
        assert isinstance(found, str)
        return found

    def _read_value(self, path: Path) -> None:
        self._skip()
        if self._text[self._at] == "[":
            self._read_items(path, "]")
        elif self._text[self._at] == "{":
            self._read_items(path, "}")
        else:
            match = _STRING.match(self._text, self._at) or _SCALAR.match(self._text, self._at)
            assert match is not None, f"no value in line {self._line()}"
            self._at = match.end()

    def _read_items(self, path: Path, end: str) -> None:
        """The values of an array or the pairs of an inline table."""
        self._at += 1
        number = 0
        while True:
            self._skip()
            if self._text[self._at] == end:
                self._at += 1
                return
            if self._text[self._at] == ",":
                self._at += 1
            elif end == "}":
                self._read_pair(path)
            else:
                self._found((*path, number), self._line())
                self._read_value((*path, number))
                number += 1

    def _found(self, path: Path, line: int) -> None:
        self.lines.setdefault(path, line)

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match is not None else self._at

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1
