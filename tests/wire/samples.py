"""Classes for the tests of the schema: one with every feature of it, and some with the shape of Kafka's messages."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from odradek.wire.api import ApiKey
from odradek.wire.fields import Field
from odradek.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    data,
    float64,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)


class Inner(Struct):
    """Within arrays and within others; has a tagged field itself."""

    number: int = int16()
    text: str | None = string(nullable=2)
    late: int = int64(since=2, default=-1)
    note: str = string(since=3, tag=7)


class Everything(Struct, versions=(0, 5), flexible=3):
    """Every kind and every keyword; classic below version 3."""

    small: int = int8()
    medium: int = int16(default=5)
    large: int = int32()
    huge: int = int64()
    port: int = uint16()
    unsigned: int = uint32(until=4)
    ratio: float = float64(default=0.5)
    flag: bool = boolean(default=True)
    ident: bytes = uuid()
    name: str = string()
    alias: str | None = string(since=1, nullable=2)
    blob: bytes | memoryview = data()
    maybe_blob: bytes | memoryview | None = data(nullable=0, default=None)
    batch: bytes | memoryview | None = records(nullable=1)
    numbers: list[int] = array(int32)
    longs: list[int] | None = array(int64, nullable=0, default=None)
    flags: list[bool] = array(boolean)
    names: list[str] = array(string)
    aliases: list[str | None] = array(string(nullable=0))
    idents: list[bytes] = array(uuid, since=1)
    blobs: list[bytes | memoryview] = array(data)
    inners: list[Inner] | None = array(Inner, nullable=1)
    inner: Inner = struct(Inner)
    maybe_inner: Inner | None = struct(Inner, since=1, nullable=1, default=None)
    moved: int = int32(since=1, tag=4, tag_since=4, default=-1)
    tagged_number: int = int64(since=3, tag=0, default=-1)
    tagged_text: str | None = string(since=3, tag=1, nullable=3, default=None)
    tagged_array: list[Inner] = array(Inner, since=4, tag=2)
    tagged_inner: Inner = struct(Inner, since=4, until=4, tag=3)
    tagged_maybe: Inner | None = struct(Inner, since=5, nullable=5, tag=200, default=None)
    tagged_ident: bytes = uuid(since=5, tag=9)
    last: int = int8(since=2)


class Topic(Struct):
    """A topic in a request for metadata."""

    topic_id: bytes = uuid(since=10)
    name: str | None = string(nullable=10)


class Request(Message, key=ApiKey.METADATA, versions=(0, 13), flexible=9):
    """Has the shape of Kafka's request for metadata."""

    topics: list[Topic] | None = array(Topic, nullable=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


class Feature(Struct):
    """A feature in an answer to ApiVersions."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class Version(Struct):
    """An API in an answer to ApiVersions."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class Versions(Message, key=ApiKey.API_VERSIONS, versions=(0, 4), flexible=3):
    """Has the shape of Kafka's answer to ApiVersions."""

    error_code: int = int16()
    api_keys: list[Version] = array(Version)
    throttle_time_ms: int = int32(since=1)
    supported_features: list[Feature] = array(Feature, since=3, tag=0)
    finalized_features_epoch: int = int64(since=3, tag=1, default=-1)


INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}


def objects(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Draw objects of a class that are the same after a journey through a version: what it lacks is at its default."""
    fields = {field.name: values(field, version) for field in cls.fields if field.is_in(version)}
    return st.builds(cls, **fields)


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    """Draw values of a field."""
    if field.kind in INTEGERS:
        return st.integers(*INTEGERS[field.kind])
    plain: dict[str, st.SearchStrategy[Any]] = {
        "float64": st.floats(allow_nan=False),
        "boolean": st.booleans(),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.just("long" * 50),
        "data": st.binary(max_size=8) | st.just(b"long" * 50),
        "records": st.binary(max_size=8) | st.just(b"long" * 5000),
    }
    if field.struct is not None:
        strategy = objects(field.struct, version)
    elif field.element is not None:
        strategy = st.lists(values(field.element, version), max_size=12 if field.element.struct is None else 3)
    else:
        strategy = plain[field.kind]
    return st.none() | strategy if field.is_nullable_in(version) else strategy
