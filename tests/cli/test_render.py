"""Records as text: nothing in them can break a line or drive a terminal, and nothing is changed without need."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.lines import from_json
from odradek.cli.render import FORMAT_DEFAULT, as_json, formatted, shown
from odradek.client.fetched import ConsumerRecord
from odradek.records.record import Header


def record(
    value: bytes | None, key: bytes | None = None, headers: tuple[tuple[str, bytes | None], ...] = ()
) -> ConsumerRecord:
    return ConsumerRecord("t", 1, 2, 3, 0, key, value, tuple(Header(*header) for header in headers), 0)


@given(st.binary(max_size=30))
def test_what_is_shown_is_one_harmless_line(data: bytes) -> None:
    text = shown(data).decode()
    assert all(character.isprintable() or character in "\t" or character.isspace() for character in text)
    assert not set(text) & set("\n\r\x0b\x0c\x1b\x85\u2028\u2029")


@given(st.text(st.characters(categories=("L", "N", "P", "S")), max_size=30))
def test_text_is_shown_as_it_is(text: str) -> None:
    assert shown(text.encode()).decode() == text


def test_tabs_and_backslashes_stay_so_that_columns_and_json_can_be_piped_on() -> None:
    assert shown(b'a\t{"x": "\\n"}') == b'a\t{"x": "\\n"}'


def test_the_default_is_the_value_on_a_line() -> None:
    render = formatted(FORMAT_DEFAULT, null="null", raw=False)
    assert [render(record(value)) for value in (b"v", b"", None)] == [b"v\n", b"\n", b"null\n"]


def test_raw_is_raw() -> None:
    render = formatted("%k%v%h", null="", raw=True)
    assert render(record(b"\xff\n", b"\x00", (("h", b"\x1b"),))) == b"\x00\xff\nh=\x1b"


@pytest.mark.parametrize("template", ["%", "%q", "\\", "\\q", "\\x1", "% "])
def test_a_format_that_means_nothing_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="means nothing"):
        formatted(template, null="", raw=False)


contents = st.none() | st.binary(max_size=20)


@given(contents, contents, st.lists(st.tuples(st.text(max_size=5), contents), max_size=3))
def test_json_has_everything_and_can_be_produced_again(
    value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    given_record = record(value, key, tuple(headers))
    line = as_json(given_record)
    assert line.endswith(b"\n") and line.count(b"\n") == 1 and line.isascii()
    assert (json.loads(line)["topic"], json.loads(line)["offset"]) == ("t", 2)
    again = from_json(line)
    assert (again.value, again.key, again.headers, again.partition, again.timestamp) == (
        value, key, given_record.headers, 1, 3,
    )  # fmt: skip
