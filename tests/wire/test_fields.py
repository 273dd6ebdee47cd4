"""What a declaration means by version, and which declarations contradict themselves."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.wire.fields import Field, array, data, int32, string, struct, uuid

from .samples import Topic


def test_a_field_is_there_from_its_first_to_its_last_version() -> None:
    field: Field = int32(since=2, until=4)
    assert [field.is_in(version) for version in range(6)] == [False, False, True, True, True, False]


def test_a_tagged_field_can_have_been_an_ordinary_one() -> None:
    moved: Field = int32(since=1, tag=0, tag_since=3, until=4)
    assert [moved.is_tagged_in(version) for version in range(6)] == [False, False, False, True, True, False]
    always: Field = int32(since=1, tag=0)
    assert [always.is_tagged_in(version) for version in range(3)] == [False, True, True]
    assert not int32().is_tagged_in(1)


def test_null_is_allowed_from_a_version_on() -> None:
    field: Field = string(nullable=2)
    assert [field.is_nullable_in(version) for version in range(4)] == [False, False, True, True]
    assert not string().is_nullable_in(9)


def test_an_array_takes_a_class_a_specifier_or_what_a_specifier_returns() -> None:
    assert array(Topic).element.struct is Topic
    assert array(uuid).element.kind == "uuid"
    assert array(data(nullable=0)).element.nullable == 0


@pytest.mark.parametrize(
    ("specifier", "arguments"),
    [
        (string, {"default": None}),  # null, but never nullable
        (array, {"element": int32, "default": None}),
        (int32, {"tag_since": 1}),
        (int32, {"nullable": 1}),
        (array, {"element": int32, "default": [1]}),
        (array, {"element": array(int32)}),
        (array, {"element": lambda: 1}),
        (struct, {"struct_class": Topic, "default": Topic()}),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(specifier: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        specifier(**arguments)
