"""Lines cut out of pieces wherever those end, and what a line says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.lines import LINE_BYTES_MAX, LineError, LineRecord, Splitter, from_json, plain
from odradek.records.record import Header


def split(pieces: list[bytes]) -> list[bytes]:
    splitter = Splitter()
    lines = [line for piece in pieces for line in splitter.feed(piece)]
    return lines + splitter.end()


@given(st.lists(st.binary(max_size=5).map(lambda data: data.replace(b"x", b"\n")), max_size=8), st.data())
def test_lines_do_not_depend_on_where_pieces_end(lines: list[bytes], data: st.DataObject) -> None:
    text = b"\n".join(lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    expected = text.split(b"\n")
    assert split(pieces) == (expected if expected[-1] else expected[:-1])


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    splitter = Splitter()
    piece = bytes(2**20)
    with pytest.raises(LineError, match="more than 16 MiB"):
        for _ in range(LINE_BYTES_MAX // len(piece) + 1):
            splitter.feed(piece)


def test_plain_lines() -> None:
    assert plain(None, None)(b"a:b") == LineRecord(b"a:b")
    assert plain(b":", None)(b"a:b:c") == LineRecord(b"b:c", b"a")
    assert plain(b":", b"")(b"a:") == LineRecord(None, b"a")
    assert plain(None, b"-")(b"-") == LineRecord(None)
    with pytest.raises(LineError, match="':' does not occur"):
        plain(b":", None)(b"a b")


def test_json_lines() -> None:
    assert from_json(b'{"value": "v"}') == LineRecord(b"v")
    assert from_json(b'{"value": 1.5, "key": null}') == LineRecord(b"1.5")
    assert from_json(b'{"value": true, "offset": 7, "topic": "t"}') == LineRecord(b"true")
    full = b'{"value": null, "key": "k", "headers": {"h": "x"}, "partition": 2, "timestamp": 3}'
    assert from_json(full) == LineRecord(None, b"k", (Header("h", b"x"),), 2, 3)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"key": "k"}', 'no "value"'),
        (b'{"value": "v", "vlaue": 1}', "'vlaue'"),
        (b'{"value": "v", "value_base64": "aa=="}', "both"),
        (b'{"value_base64": "a"}', "not base64"),
        (b'{"value_base64": 5}', "not base64"),
        (b'{"value": "\\ud800"}', "surrogate"),
        (b'{"value": "v", "headers": "h"}', "headers"),
        (b'{"value": "v", "headers": [{"value": "h"}]}', "headers"),
        (b'{"value": "v", "partition": -1}', "partition"),
        (b'{"value": "v", "partition": true}', "partition"),
        (b'{"value": "v", "timestamp": "now"}', "timestamp"),
    ],
)
def test_a_line_that_is_no_record_is_explained(line: bytes, problem: str) -> None:
    with pytest.raises(LineError, match=problem):
        from_json(line)


@given(st.binary(max_size=40))
def test_any_line_is_a_record_or_a_line_error(line: bytes) -> None:
    try:
        assert isinstance(from_json(line), LineRecord)
    except LineError as error:
        assert "\n" not in str(error)
