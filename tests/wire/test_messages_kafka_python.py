"""Every message in every version that kafka-python has, against it: the same bytes, and the same values out of them.

kafka-python keeps no value for a tagged field at its default, None for an id of zeros, and sets for bit fields.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, settings

from odradek.wire.fields import NO_UUID
from odradek.wire.messages import api_versions
from odradek.wire.schema import Message, Struct
from tests.wire.message_samples import (
    FEW_EXAMPLES,
    Case,
    Plain,
    all_cases,
    fields_in,
    from_plain,
    full_value,
    plain_values,
    to_plain,
)

# Our tests turn warnings into errors; kafka-python 3.0 still calls importlib.resources.read_text when imported.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol import admin, consumer, metadata, producer, sasl
    from kafka.protocol.consumer import metadata as consumer_protocol

CASES_EXPECTED = 482
# It has neither KIP-848's APIs nor telemetry, nor the records of __consumer_offsets, and forgets no broker.
MODULES_UNKNOWN = {
    "consumer_group_describe",
    "consumer_group_heartbeat",
    "get_telemetry_subscriptions",
    "offsets_topic",
    "push_telemetry",
    "unregister_broker",
}
NO_OPERATIONS = -(2**31)  # the default of a bit field: nobody asked for it


def _their_class(case: Case) -> Any:
    name = case.module.title().replace("_", "") + case.cls.__name__
    found = [
        getattr(module, name)
        for module in (admin, consumer, consumer_protocol, metadata, producer, sasl)
        if hasattr(module, name)
    ]
    return found[0] if found else None


CASES = [(case, theirs) for case in all_cases() if (theirs := _their_class(case)) is not None]


def _pairs(struct: Any, cls: type[Struct], version: int) -> Iterator[tuple[Any, Any]]:
    """Their fields and ours, in the order of both; only one name differs."""
    theirs = [field for field in struct.fields.values() if field.for_version_q(version)]
    for their_field, field in zip(theirs, fields_in(cls, version), strict=True):
        names = field.name.replace("_", ""), their_field.name.replace("_", "")
        assert names[0] == names[1] or names[1] == "authorizedoperations"
        yield their_field, field


def _theirs(struct: Any, cls: type[Struct], plain: Plain, version: int) -> Plain:
    """Turn a plain value into what kafka-python makes an object of."""
    chosen = {}
    for their_field, field in _pairs(struct, cls, version):
        value = plain[field.name]
        if not (field.is_tagged_in(version) and value == _default(field, version)):
            chosen[their_field.name] = _their_value(their_field, field, value, version)
    return chosen


def _their_value(their_field: Any, field: Any, value: Any, version: int) -> Any:
    struct = field.struct or (field.element.struct if field.element else None)
    if value is None:
        return None
    if struct is not None:
        values = value if field.kind == "array" else [value]
        made = [
            their_field.data_class(version=version, **_theirs(their_field, struct, each, version)) for each in values
        ]
        return made if field.kind == "array" else made[0]
    if field.kind == "uuid":
        return None if value == NO_UUID else UUID(bytes=value)
    if their_field.type_str == "bitfield":
        return {bit for bit in range(32) if value >> bit & 1}
    return value


def _plain(struct: Any, cls: type[Struct], theirs: Any, version: int) -> Plain:
    """Turn an object of kafka-python's into a plain value."""
    return {
        field.name: _plain_value(their_field, field, getattr(theirs, their_field.name), version)
        for their_field, field in _pairs(struct, cls, version)
    }


def _plain_value(their_field: Any, field: Any, value: Any, version: int) -> Any:
    struct = field.struct or (field.element.struct if field.element else None)
    if value is None and field.is_tagged_in(version):
        return _default(field, version)
    if field.kind == "uuid":
        return NO_UUID if value is None else value.bytes
    if their_field.type_str == "bitfield":
        return NO_OPERATIONS if value is None else sum(1 << bit if bit < 31 else NO_OPERATIONS for bit in value)
    if value is None:
        return None
    if struct is not None:
        values = value if field.kind == "array" else [value]
        made = [_plain(their_field, struct, each, version) for each in values]
        return made if field.kind == "array" else made[0]
    return bytes(value) if isinstance(value, memoryview) else value


def _default(field: Any, version: int) -> Any:
    if field.kind == "array" and field.default == ():
        return []
    return to_plain(field.struct(), version) if field.struct is not None and field.default == () else field.default


def test_kafka_python_knows_every_message_we_expect_it_to_know() -> None:
    assert len(CASES) == CASES_EXPECTED
    assert {case.module for case in all_cases()} - {case.module for case, _ in CASES} == MODULES_UNKNOWN


@pytest.mark.parametrize(("case", "their_class"), CASES, ids=[repr(case) for case, _ in CASES])
def test_we_and_kafka_python_read_and_write_the_same(case: Case, their_class: Any) -> None:
    _, cls, version = case
    unframed = {} if issubclass(cls, Message) else {"header": False}

    @settings(max_examples=FEW_EXAMPLES)
    @example(full_value(cls, version))
    @given(plain_values(cls, version))
    def check(plain: Plain) -> None:
        if cls is api_versions.Response:
            plain = plain | {"error_code": 0}  # of any other it reads no more than version 0 has
        encoded = from_plain(cls, plain).encode(version)
        chosen = _theirs(their_class._struct, cls, plain, version)
        assert their_class(version=version, **chosen).encode(version, **unframed) == encoded
        assert to_plain(cls.decode(encoded, version), version) == plain
        theirs = their_class.decode(encoded, version=version, **unframed)
        assert _plain(their_class._struct, cls, theirs, version) == plain

    check()
