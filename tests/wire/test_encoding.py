"""Values that do not fit their fields are the caller's bug, and nothing of them is written."""

from __future__ import annotations

from typing import Any

import pytest

from . import reference
from .samples import Everything, Inner

WRONG: list[tuple[str, Any]] = [
    ("small", 128), ("small", -129), ("small", None), ("small", "1"), ("small", 1.5),
    ("medium", 2**15), ("large", 2**31), ("huge", 2**63), ("port", -1), ("port", 2**16), ("unsigned", 2**32),
    ("ratio", "x"), ("ident", bytes(15)), ("ident", bytes(17)), ("ident", None), ("ident", "x" * 16),
    ("name", None), ("name", b"x"), ("name", 1), ("name", "\ud800"),
    ("blob", None), ("blob", "x"), ("blob", 5), ("maybe_blob", "x"), ("maybe_blob", [1]), ("batch", "x"),
    ("numbers", None), ("numbers", [2**31]), ("numbers", [None]), ("numbers", [0] * 20 + [2**31]), ("numbers", 3),
    ("names", None), ("names", [None]), ("names", [b"x"]), ("idents", [bytes(15)]), ("idents", [None]),
    ("inners", [None]), ("inners", ["x"]), ("inners", [Inner(text="\ud800")]),
    ("inner", None), ("inner", {}), ("maybe_inner", 1), ("last", 200), ("moved", None),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), WRONG)
@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_value_that_does_not_fit_its_field_is_a_value_error(field: str, value: Any, version: int) -> None:
    message = Everything()
    setattr(message, field, value)
    with pytest.raises(ValueError):
        message.encode(version)


def test_a_classic_string_has_at_most_32767_bytes_and_a_compact_one_may_have_more() -> None:
    with pytest.raises(ValueError, match="cannot be encoded"):
        Everything(name="x" * 32768).encode(2)
    for name, version in [("x" * 32767, 2), ("x" * 70000, 3)]:
        assert Everything.decode(Everything(name=name).encode(version), version).name == name


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 254, 255, 256, 16382, 16383])
def test_lengths_around_the_bounds_of_their_varints_come_back(length: int) -> None:
    inners = [Inner(number=number) for number in range(length)]
    # The name has fixed-size fields before it, the rest has not.
    message = Everything(name="x" * length, blob=b"y" * length, numbers=list(range(length)), inners=inners)
    encoded = message.encode(3)
    assert encoded == reference.encode(message, 3, flexible=True)
    assert Everything.decode(encoded, 3) == message


def test_null_is_refused_in_versions_that_do_not_have_it() -> None:
    with pytest.raises(ValueError, match="cannot be encoded"):
        Everything(alias=None).encode(1)
    assert Everything.decode(Everything(alias=None).encode(2), 2).alias is None


def test_a_field_that_a_version_lacks_is_left_out_whatever_it_holds() -> None:
    assert Everything(last=None, alias=3, tagged_number="x").encode(0) == Everything().encode(0)  # type: ignore[arg-type]


def test_tagged_fields_are_written_only_if_they_differ_from_their_defaults() -> None:
    plain = Everything().encode(5)
    assert Everything(tagged_array=[], tagged_text=None, moved=-1, tagged_ident=bytes(16)).encode(5) == plain
    assert Everything(tagged_text="").encode(5) == plain[:-1] + bytes.fromhex("01 01 01 01")
    assert Everything(moved=1).encode(5) == plain[:-1] + bytes.fromhex("01 04 04 00000001")
    assert Everything(tagged_maybe=Inner()).encode(5)[len(plain) - 1 :].hex().startswith("01c8010d01")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_raw_fields_take_any_kind_of_bytes(kind: Any) -> None:
    assert Everything(blob=kind(b"ab"), batch=kind(b"c")).encode(3) == Everything(blob=b"ab", batch=b"c").encode(3)


def test_arrays_take_any_sequence() -> None:
    assert Everything(numbers=(1, 2), names=("a",)).encode(3) == Everything(numbers=[1, 2], names=["a"]).encode(3)  # type: ignore[arg-type]
