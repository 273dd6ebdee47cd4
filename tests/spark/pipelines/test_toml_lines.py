"""The lines of keys, in every way in which TOML lets them be written."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.spark.pipelines.toml_lines import lines_of

DOCUMENT = '''\
# a comment with a = sign and [brackets]
title = "one"

[pipeline]
name = "revenue"     # [not.a.table]
spark.sql."shuffle.partitions" = 4

[sources.orders]
schema = """
id = 5
[nothing]
"""
watermark = { column = "at", delay = '10 "minutes"', deep = { x = [1, 2] } }
topics = [
  "a",  # a comment, with a comma
  "b]",
]

[ sources . "odd name" ]
'quoted key' = 1
"escaped \\u0041" = 2020-01-01T00:00:00Z

[[sinks]]
a = 1
[[sinks]]
b = """x\\"""" # four quotes
[sinks.options]
c = \'\'\'
\'\'\'
last = -1.5e3
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("title",), 2),
        (("pipeline",), 4),
        (("pipeline", "name"), 5),
        (("pipeline", "spark", "sql", "shuffle.partitions"), 6),
        (("sources",), 8),
        (("sources", "orders"), 8),
        (("sources", "orders", "schema"), 9),
        (("sources", "orders", "watermark"), 13),
        (("sources", "orders", "watermark", "delay"), 13),
        (("sources", "orders", "watermark", "deep", "x", 1), 13),
        (("sources", "orders", "topics"), 14),
        (("sources", "orders", "topics", 1), 16),
        (("sources", "odd name"), 19),
        (("sources", "odd name", "quoted key"), 20),
        (("sources", "odd name", "escaped A"), 21),
        (("sinks", 0, "a"), 24),
        (("sinks", 1), 25),
        (("sinks", 1, "b"), 26),
        (("sinks", 1, "options"), 27),
        (("sinks", 1, "options", "c"), 28),
        (("sinks", 1, "options", "last"), 30),
    ],
)
def test_each_key_has_its_line(path: tuple[str | int, ...], line: int) -> None:
    tomllib.loads(DOCUMENT)
    assert lines_of(DOCUMENT)[path] == line


def paths_of(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every key and every item of a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from paths_of(inner, (*path, key))


def test_no_key_is_missed() -> None:
    assert set(paths_of(tomllib.loads(DOCUMENT))) == lines_of(DOCUMENT).keys()


def repr_basic(text: str) -> str:
    """A key in quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


KEYS = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=6).map(repr_basic),
)
VALUES = st.recursive(
    st.sampled_from(
        ["1", "-2.5", "true", '"a"', "'b # c'", '"x\\"] }"', '"""\nl = 1\n"""', "'''a'''", "1979-05-27T07:32:00Z", "{}"]
    ),
    lambda inner: st.lists(inner, max_size=3).map(lambda items: "[ " + ",\n".join(items) + " ]"),
    max_leaves=4,
)


@given(st.lists(st.tuples(st.sampled_from(["", "[t]", "[t.u]", "[[list]]"]), KEYS, VALUES), max_size=8))
def test_whatever_tomllib_reads_is_read(parts: list[tuple[str, str, str]]) -> None:
    text = "".join(f"{header}\n{key} = {value} # end\n" for header, key, value in parts)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # a key or a table that stands twice
    found = lines_of(text)
    assert set(paths_of(document)) == found.keys()
    lines = text.splitlines()
    for path, line in found.items():
        assert 1 <= line <= len(lines), path
