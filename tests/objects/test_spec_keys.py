"""Specs, and the names that objects have by them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.objects.keys import (
    TIME_MAX,
    before_late,
    before_slice,
    channel_prefix,
    frontier_key,
    late_key,
    late_put_ms,
    object_key,
    parse_object_key,
    place,
    publisher_hash,
    queue_prefix,
    slice_start,
    spec_key,
    start_of,
)
from odradek.objects.spec import ChannelSpec

SPEC = ChannelSpec("orders", "id-1")
GRIDS = [(60_000, 1_000), (60_000, 60_000), (1, 1), (10_000, 250), (7_000, 1_000)]

times = st.integers(0, 10**14)


def test_a_spec_survives_its_json() -> None:
    spec = ChannelSpec("a.b_c-1", "f00d", 10_000, 500, 1_024, 0, True, 86_400_000, "lz4")
    assert ChannelSpec.from_json(spec.to_json()) == spec


def test_what_a_later_version_adds_is_left_out() -> None:
    content = {**json.loads(SPEC.to_json()), "colour": "red"}
    assert ChannelSpec.from_json(json.dumps(content).encode()) == SPEC


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"window_ms": 0}, "the window is 1 to 60000 milliseconds long, not 0"),
        ({"window_ms": 60_001}, "the window is 1 to 60000"),
        ({"slice_ms": 7_000}, "a slice must divide the window of 60000 milliseconds without a rest; 7000 does not"),
        ({"slice_ms": 0}, "a slice must divide"),
        ({"slice_ms": 120_000}, "a slice must divide"),
        ({"slice_bytes": 0}, "slice_bytes must be at least 1"),
        ({"grace_ms": -1}, "grace_ms cannot be negative"),
        ({"retention_ms": -2}, "retention_ms is -1"),
        ({"compression": "brotli"}, "choose one of none, gzip, snappy, lz4, zstd"),
        ({"name": "a/b"}, "letters, digits"),
        ({"id": ""}, "it needs an id"),
    ],
)
def test_a_wrong_spec_says_what_is_wrong(values: dict[str, object], said: str) -> None:
    content = {**json.loads(SPEC.to_json()), **values}
    with pytest.raises(ValueError, match=said):
        ChannelSpec.from_json(json.dumps(content).encode())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff", "must be JSON"),
        (b"[]", "a JSON object with a name"),
        (b'{"name": "a", "id": "b", "window_ms": "1"}', "window_ms must be of the type int"),
        (b'{"name": "a", "id": "b", "window_ms": true}', "window_ms must be of the type int"),
        (b'{"name": "a", "id": "b", "format": 2}', "install a newer one"),
    ],
)
def test_what_is_no_spec_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ChannelSpec.from_json(data)


def test_a_name_is_written_as_the_documents_say() -> None:
    key = object_key("orders", 1_700_000_040_000, 1_000, "9f86d081884c7d65", 42)
    assert key == "orders/001700000040000/01000/9f86d081884c7d65-00000000000000000042"
    parsed = parse_object_key(key)
    assert parsed is not None
    assert (str(parsed), parsed.start_ms, parsed.sequence) == (key, 1_700_000_041_000, 42)
    assert start_of(key) == 1_700_000_041_000


@pytest.mark.parametrize(
    "key", [spec_key("a"), frontier_key("a", "0" * 16), late_key("a", 1, "0" * 16, 1), queue_prefix("a", "g") + "x", ""]
)
def test_what_is_no_object_of_a_slice_is_told_apart_and_sorts_before_all(key: str) -> None:
    assert parse_object_key(key) is None
    assert start_of(key) == 0
    assert key < before_slice(ChannelSpec("a", "i"), 0)


@given(first=times, second=times, grid=st.sampled_from(GRIDS), sequence=st.integers(0, 2**63 - 1))
def test_names_sort_by_time_and_then_by_sequence(first: int, second: int, grid: tuple[int, int], sequence: int) -> None:
    spec = ChannelSpec("c", "i", *grid)
    publisher = publisher_hash("p")
    one = object_key("c", *place(spec, first), publisher, sequence)
    other = object_key("c", *place(spec, second), publisher, sequence)
    assert (one < other) == (slice_start(spec, first) < slice_start(spec, second))
    assert one < object_key("c", *place(spec, first), publisher, sequence + 1)
    assert (before_slice(spec, second) < one) == (slice_start(spec, first) >= slice_start(spec, second))
    assert one.startswith(channel_prefix("c"))


@given(timestamp=st.integers(-(2**63), 2**63 - 1), grid=st.sampled_from(GRIDS))
def test_every_time_has_a_place(timestamp: int, grid: tuple[int, int]) -> None:
    window, slice_ = grid
    spec = ChannelSpec("c", "i", window, slice_)
    start = slice_start(spec, timestamp)
    bucket, inside = place(spec, timestamp)
    assert bucket % window == 0 and inside % slice_ == 0 and 0 <= inside < window and bucket + inside == start
    if 0 <= timestamp <= TIME_MAX - window:
        assert start <= timestamp < start + slice_
    assert parse_object_key(object_key("c", bucket, inside, publisher_hash("p"), 0)) is not None


@given(put_ms=times, other_ms=times)
def test_marks_sort_by_the_time_of_their_making(put_ms: int, other_ms: int) -> None:
    mark = late_key("c", put_ms, publisher_hash("p"), 7)
    assert late_put_ms(mark) == put_ms
    assert (before_late("c", other_ms) < mark) == (other_ms <= put_ms)
    assert late_put_ms("c/!late/x") is None


def test_publishers_are_told_apart() -> None:
    assert len({publisher_hash(f"{number}:0") for number in range(10_000)}) == 10_000
