"""Bytes from a peer that means harm: lengths, counts, varints, nulls and tags that must be refused, and cheaply."""

from __future__ import annotations

import tracemalloc

import pytest

from odradek.wire.errors import DecodeError
from odradek.wire.schema import Struct, array, boolean, data, int8, int32, int64, records, string, struct, uuid

from .samples import Inner, Request, Topic

FLEXIBLE, CLASSIC = 1, 0


class Text(Struct, flexible=1):
    value: str = string()


class MaybeText(Struct, flexible=1):
    value: str | None = string(nullable=0)


class Raw(Struct, flexible=1):
    value: bytes | memoryview = data()


class MaybeRaw(Struct, flexible=1):
    value: bytes | memoryview | None = records(nullable=0)


class Numbers(Struct, flexible=1):
    value: list[int] = array(int32)


class Bits(Struct, flexible=1):
    value: list[bool] | None = array(boolean, nullable=0)


class Texts(Struct, flexible=1):
    value: list[str] = array(string)


class Idents(Struct, flexible=1):
    value: list[bytes] = array(uuid)


class Structs(Struct, flexible=1):
    value: list[Inner] | None = array(Inner, nullable=0)


class Outer(Struct, flexible=1):
    value: Inner = struct(Inner)


class Tagged(Struct, flexible=1):
    number: int = int64(since=1, tag=1, default=-1)
    texts: list[str] = array(string, since=1, tag=2)
    after: int = int8()


NOT_NULLABLE = [Text, Raw, Numbers, Texts, Idents]
NULLABLE = [MaybeText, MaybeRaw, Bits, Structs]
ARRAYS = [Numbers, Bits, Texts, Idents, Structs]


def length_bytes(cls: type[Struct]) -> int:
    return 2 if cls in (Text, MaybeText) else 4


@pytest.mark.parametrize("cls", NOT_NULLABLE)
def test_null_where_there_can_be_none_is_refused(cls: type[Struct]) -> None:
    for encoded, version in [
        (b"\xff" * length_bytes(cls), CLASSIC),
        (b"\x00\x00", FLEXIBLE),
        (b"\x80\x00\x00", FLEXIBLE),
    ]:
        with pytest.raises(DecodeError, match=rf"{cls.__name__}\.value is null"):
            cls.decode(encoded, version)


@pytest.mark.parametrize("cls", NULLABLE)
def test_null_is_taken_where_it_is_allowed(cls: type[Struct]) -> None:
    for encoded, version in [
        (b"\xff" * length_bytes(cls), CLASSIC),
        (b"\x00\x00", FLEXIBLE),
        (b"\x80\x00\x00", FLEXIBLE),
    ]:
        assert cls.decode(encoded, version).value is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("cls", NOT_NULLABLE + NULLABLE)
def test_a_length_below_minus_one_is_refused(cls: type[Struct]) -> None:
    encoded = (-2).to_bytes(length_bytes(cls), signed=True)
    with pytest.raises(DecodeError, match="length -2"):
        cls.decode(encoded + bytes(10), CLASSIC)


@pytest.mark.parametrize("cls", NOT_NULLABLE + NULLABLE)
@pytest.mark.parametrize("as_view", [False, True])
def test_a_huge_length_is_refused_before_anything_is_allocated(cls: type[Struct], as_view: bool) -> None:
    classic = b"\x7f" + b"\xff" * (length_bytes(cls) - 1)
    for encoded, version in [(classic, CLASSIC), (b"\xff\xff\xff\xff\x0f", FLEXIBLE), (b"\xff\x7f", FLEXIBLE)]:
        frame: bytes | memoryview = encoded + bytes(100)
        frame = memoryview(frame) if as_view else frame
        with pytest.raises(DecodeError):
            cls.decode(frame, version)  # compiles the code, which takes memory of its own
        tracemalloc.start()
        with pytest.raises(DecodeError):
            cls.decode(frame, version)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 20_000


@pytest.mark.parametrize(("cls", "least"), [(Numbers, 4), (Bits, 1), (Texts, 1), (Idents, 16), (Structs, 4)])
def test_a_count_is_held_against_the_least_size_of_an_element(cls: type[Struct], least: int) -> None:
    count = 100
    with pytest.raises(DecodeError, match=f"claims {count} elements, but only {count * least - 1} bytes are left"):
        cls.decode(bytes([count + 1]) + bytes(count * least - 1), FLEXIBLE)


@pytest.mark.parametrize("cls", NOT_NULLABLE + NULLABLE)
@pytest.mark.parametrize("varint", ["ffffffff10", "80808080808000", "ffffffffffffffffff01"])
def test_an_overlong_length_is_refused(cls: type[Struct], varint: str) -> None:
    with pytest.raises(DecodeError, match="varint"):
        cls.decode(bytes.fromhex(varint) + bytes(10), FLEXIBLE)


def test_a_length_padded_with_zeros_is_taken() -> None:
    assert Text.decode(bytes.fromhex("8380808000 6162 00"), FLEXIBLE) == Text(value="ab")


@pytest.mark.parametrize(("encoded", "version"), [("0002c328", CLASSIC), ("03c32800", FLEXIBLE), ("02c300", FLEXIBLE)])
def test_a_string_that_is_not_utf8_is_refused(encoded: str, version: int) -> None:
    for cls in (Text, MaybeText):
        with pytest.raises(DecodeError, match="not UTF-8"):
            cls.decode(bytes.fromhex(encoded), version)


def test_an_element_that_takes_no_bytes_cannot_be_counted() -> None:
    class Nothing(Struct):
        late: int = int8(since=1)

    class Many(Struct):
        value: list[Nothing] = array(Nothing)

    with pytest.raises(TypeError, match="elements have no bytes"):
        Many.decode(b"\x7f\xff\xff\xff", 0)


def test_unknown_tags_are_skipped_in_every_struct() -> None:
    encoded = bytes.fromhex("02 0261 01 05 02 aabb 01 00 00 02 63 00 64 01 ff")
    assert Request.decode(encoded, 9) == Request(topics=[Topic(name="a")])


@pytest.mark.parametrize("cls", [Outer, Tagged])
def test_at_most_128_unknown_tags_are_taken(cls: type[Struct]) -> None:
    # Tags 100 and up: known to neither class. The count takes two bytes.
    encoded = {count: bytes([count & 0x7F | 0x80, count >> 7]) + b"\x64\x00" * count for count in (128, 129, 16383)}
    before = bytes(1) if cls is Tagged else bytes.fromhex("0000 01 00")
    assert cls.decode(before + encoded[128], FLEXIBLE) == cls.decode(before + b"\x00", FLEXIBLE)
    for count in (129, 16383):
        with pytest.raises(DecodeError, match="tagged fields: at most 128"):
            cls.decode(before + encoded[count], FLEXIBLE)


def test_known_and_unknown_tags_mix_in_any_order() -> None:
    encoded = bytes.fromhex("07 03 64 01 ff 02 04 02 03 6162 01 08 0000000000000009")
    assert Tagged.decode(encoded, FLEXIBLE) == Tagged(after=7, number=9, texts=["ab"])


@pytest.mark.parametrize(
    "tag",
    ["01 07 00000000000000", "01 09 000000000000000000", "02 01 02 02 61", "02 03 02 03 6162", "02 05 02 03 6162 00"],
)
def test_a_tagged_field_must_have_the_size_that_stands_before_it(tag: str) -> None:
    with pytest.raises(DecodeError, match="does not have the size"):
        Tagged.decode(bytes.fromhex("07 01" + tag) + bytes(20), FLEXIBLE)


@pytest.mark.parametrize("tag", ["01 08 00", "05 08 00", "05 ffffffff0f", "05", "ffffffffff01 00", "05 ffffffffff01"])
def test_a_tag_that_reaches_behind_the_end_is_refused(tag: str) -> None:
    for cls, before in ((Tagged, b"\x07"), (Text, b"\x01")):
        with pytest.raises(DecodeError):
            cls.decode(before + bytes.fromhex("01" + tag), FLEXIBLE)


@pytest.mark.parametrize("cls", ARRAYS)
def test_a_large_array_comes_back_whole(cls: type[Struct]) -> None:
    items = {Numbers: -5, Bits: True, Texts: "x", Idents: bytes(16), Structs: Inner(number=3)}
    value = cls(value=[items[cls]] * 1000)
    for version in (CLASSIC, FLEXIBLE):
        assert cls.decode(value.encode(version), version) == value
