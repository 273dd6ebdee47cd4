"""Reads the names and types out of a list of columns as SQL writes it: `id BIGINT, lines ARRAY<STRUCT<a: INT>>`. Pure.

Only as far as names are needed before there is a Spark to ask: what is wrong inside of a type, Spark says later.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+))\s*:?\s+(\S.*?)\s*", re.DOTALL)
_AFTER_TYPE = re.compile(r"\s+(NOT\s+NULL|COMMENT\s+'.*)", re.IGNORECASE | re.DOTALL)


class Column(NamedTuple):
    """A column of a list."""

    name: str
    type: str


def columns_of(ddl: str) -> list[Column]:
    """The columns of a list; a ValueError says which one cannot be read."""
    found = []
    for part in _parts(ddl):
        match = _COLUMN.fullmatch(part)
        if match is None:
            raise ValueError(f"{part.strip()!r} is no column: write a name and a type, as in 'id BIGINT, name STRING'")
        name = match[2] or match[1].replace("``", "`")
        found.append(Column(name, _AFTER_TYPE.split(match[3])[0]))
    return found


def _parts(ddl: str) -> list[str]:
    """Cut at the commas that are not within brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for character in ddl:
        if quote:
            quote = "" if character == quote else quote
        elif character in "`'":
            quote = character
        elif character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append("")
            continue
        parts[-1] += character
    return parts


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
