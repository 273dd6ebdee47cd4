"""The facts about fields that the generated code rests on."""

from __future__ import annotations

from odradek.wire.fields import array, data, int8, string, struct, uuid
from odradek.wire.source import Source, least_bytes, ordinary, tagged, title

from .samples import Everything, Inner, Topic


def test_the_least_size_of_a_value_is_known() -> None:
    assert [least_bytes(field, 0, False) for field in (int8(), uuid(), string(), data(), array(int8))] == [
        1,
        16,
        2,
        4,
        4,
    ]
    assert [least_bytes(field, 0, True) for field in (int8(), uuid(), string(), data(), array(int8))] == [
        1,
        16,
        1,
        1,
        1,
    ]
    assert least_bytes(struct(Inner), 0, False) == 4
    assert least_bytes(struct(Inner), 2, False) == 12
    assert least_bytes(struct(Inner), 3, True) == 12  # the tagged field may be absent
    assert least_bytes(struct(Inner, nullable=0), 3, True) == 1


def test_the_least_size_is_what_the_emptiest_object_takes() -> None:
    for version in range(6):
        flexible = version >= 3
        empty = Everything(
            alias=None if version >= 2 else "", batch=None if version >= 1 else b"", inners=None if version >= 1 else []
        )
        assert least_bytes(struct(Everything), version, flexible) == len(empty.encode(version))


def test_tagged_fields_are_listed_by_tag_and_apart_from_the_others() -> None:
    assert [tag for tag, _ in tagged(Everything, 5)] == [0, 1, 2, 4, 9, 200]
    assert [tag for tag, _ in tagged(Everything, 3)] == [0, 1]
    assert "moved" in [field.name for field in ordinary(Everything, 3)]
    assert "moved" not in [field.name for field in ordinary(Everything, 4)]


def test_a_class_is_named_with_its_module() -> None:
    assert title(Topic) == "samples.Topic"


def test_a_name_stands_for_one_thing() -> None:
    source = Source({})
    assert source.bind_class(Topic) == source.bind_class(Topic) != source.bind_class(Inner)
    assert source.fresh("n") != source.fresh("n")
    source.line("return thing")
    source.bind("thing", 5)
    source.bind("thing", 6)
    assert source.compile("get()", "test")() == 5
