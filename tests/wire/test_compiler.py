"""Generated code against a slow reference, in every version of a class that has every feature."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.wire.compiler import compile_decoder, compile_encoder, compile_init
from odradek.wire.errors import DecodeError

from . import reference
from .samples import Everything, Inner, Topic, objects

VERSIONS = range(Everything.versions[0], Everything.versions[1] + 1)


def is_flexible(version: int) -> bool:
    return Everything.flexible_since is not None and version >= Everything.flexible_since


@given(st.data(), st.sampled_from(VERSIONS))
def test_what_is_written_is_what_the_reference_writes_and_comes_back(data: st.DataObject, version: int) -> None:
    value = data.draw(objects(Everything, version))
    encoded = value.encode(version)
    assert encoded == reference.encode(value, version, is_flexible(version))
    assert Everything.decode(encoded, version) == value
    assert Everything.decode(memoryview(b"xy" + encoded + b"z"), version, 2) == value


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_takes_the_defaults(version: int) -> None:
    value = Everything(inners=[Inner(), Inner()])
    encoded = value.encode(version)
    assert encoded == reference.encode(value, version, is_flexible(version))
    assert Everything.decode(encoded, version) == value


@given(st.data(), st.sampled_from(VERSIONS))
def test_bytes_that_are_cut_off_anywhere_are_refused(data: st.DataObject, version: int) -> None:
    encoded = data.draw(objects(Everything, version)).encode(version)
    step = max(1, len(encoded) // 400)  # all places in most cases; a large batch is many times the same place
    for end in range(0, len(encoded), step):
        with pytest.raises(DecodeError):
            Everything.decode(encoded[:end], version)


@given(st.data(), st.sampled_from(VERSIONS))
def test_changed_bytes_give_an_object_or_a_decode_error(data: st.DataObject, version: int) -> None:
    encoded = bytearray(Everything(inners=[Inner()], tagged_number=3, tagged_array=[Inner()]).encode(version))
    changes = data.draw(st.lists(st.tuples(st.integers(0, len(encoded) - 1), st.integers(0, 255)), max_size=8))
    for at, byte in changes:
        encoded[at] = byte
    try:
        Everything.decode(bytes(encoded), version)
    except DecodeError as error:
        assert error.__cause__ is None


@given(st.binary(max_size=200), st.sampled_from(VERSIONS))
def test_any_bytes_give_an_object_or_a_decode_error(data: bytes, version: int) -> None:
    for cls in (Everything, Inner, Topic):
        try:
            cls.decode(data, version)
        except DecodeError:
            continue


def test_a_struct_can_be_compiled_classic_and_flexible() -> None:
    parts: list[bytes] = []
    compile_encoder(Inner, 2, True)(Inner(text="a"), parts)
    assert b"".join(parts).hex() == "0000" + "0261" + "ff" * 8 + "00"
    assert compile_decoder(Inner, 2, True)(b"".join(parts), 0) == Inner(text="a")


def test_an_init_takes_keywords_only_and_has_a_default_for_each() -> None:
    parameters = list(inspect.signature(compile_init(Topic)).parameters.values())[1:]
    assert [parameter.name for parameter in parameters] == ["topic_id", "name"]
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}
    assert [parameter.default for parameter in parameters] == [bytes(16), ""]
