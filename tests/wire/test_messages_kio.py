"""Every message in every version against kio: the same bytes, and the same values out of them.

kio has types of its own for times, errors and ids; here they are turned into the plain numbers that we keep.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import io
import pkgutil
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from odradek.wire.schema import Struct
from tests.wire.message_samples import (
    FEW_EXAMPLES,
    SCALARS,
    Case,
    Plain,
    all_cases,
    fields_in,
    from_plain,
    full_value,
    to_plain,
)

# Without Produce 0 to 2, which we describe only so as to refuse them, and the records of __consumer_offsets.
CASES_EXPECTED = 490
MILLISECOND = timedelta(milliseconds=1)

# Durations and points in time that are exact in Python's own types; kio holds points in time to whole seconds.
_KIO_SCALARS: dict[str, st.SearchStrategy[Any]] = SCALARS | {
    "bool": SCALARS["boolean"],
    "bytes": SCALARS["data"],
    "uuid": st.none() | st.uuids(),
    "error_code": st.sampled_from(KioErrorCode),
    "timedelta_i32": SCALARS["int32"].map(lambda ms: ms * MILLISECOND),
    "timedelta_i64": st.integers(-(2**40), 2**40).map(lambda ms: ms * MILLISECOND),
    "datetime_i64": st.integers(0, 2**33).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
}


def _kio_class(case: Case) -> type[Any] | None:
    name = case.cls.__name__
    package = f"kio.schema.{case.module}"
    if case.module == "consumer_protocol":
        package = f"kio.schema.consumer_protocol_{name.lower()}"
    try:
        module = importlib.import_module(f"{package}.v{case.version}")
    except ModuleNotFoundError:
        return None
    (found,) = (getattr(module, each) for each in module.__all__ if each.endswith(name))
    assert isinstance(found, type)
    return found


CASES = [(case, kio_class) for case in all_cases() if (kio_class := _kio_class(case)) is not None]


@functools.cache
def _entities(kio_class: type[Any]) -> st.SearchStrategy[Any]:
    values = {field.name: _values(field.type, field) for field in dataclasses.fields(kio_class)}
    return st.fixed_dictionaries(values).map(lambda chosen: kio_class(**chosen))


def _values(kio_type: Any, field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    arguments = get_args(kio_type)
    if NoneType in arguments:
        (inner,) = (each for each in arguments if each is not NoneType)
        return st.none() | _values(inner, field)
    if get_origin(kio_type) is tuple:
        return st.lists(_values(arguments[0], field), max_size=2).map(tuple)
    if dataclasses.is_dataclass(kio_type):
        return _entities(kio_type)  # type: ignore[arg-type]
    return _KIO_SCALARS[field.metadata["kafka_type"]]


def _plain_entity(entity: Any, cls: type[Struct], version: int) -> Plain:
    """Turn kio's object into our plain value, field by field in the order of both."""
    plain = {}
    for theirs, ours in zip(dataclasses.fields(entity), fields_in(cls, version), strict=True):
        names = ours.name.replace("_", ""), theirs.name.replace("_", "")
        assert names[0] in (names[1], f"{names[1]}ms"), f"{theirs.name} is called {ours.name} here"
        struct = ours.struct or (ours.element.struct if ours.element else None)
        plain[ours.name] = _plain(getattr(entity, theirs.name), theirs.metadata.get("kafka_type"), struct, version)
    return plain


def _plain(value: Any, kafka_type: str | None, struct: type[Struct] | None, version: int) -> Any:
    if isinstance(value, tuple):
        return [_plain(item, kafka_type, struct, version) for item in value]
    if dataclasses.is_dataclass(value):
        assert struct is not None
        return _plain_entity(value, struct, version)
    match kafka_type, value:
        case "uuid", None:
            return bytes(16)
        case "datetime_i64", None:
            return -1
        case _, UUID():
            return value.bytes
        case _, datetime():
            return int(value.timestamp()) * 1000
        case _, timedelta():
            return value // MILLISECOND
        case _, KioErrorCode():
            return value.value
    return value


def test_we_know_every_version_that_kio_knows() -> None:
    assert len(CASES) == CASES_EXPECTED
    for module in {case.module for case, _ in CASES} - {"consumer_protocol"}:
        package = importlib.import_module(f"kio.schema.{module}")
        theirs = {info.name for info in pkgutil.iter_modules(package.__path__)}
        assert theirs == {f"v{case.version}" for case, _ in CASES if case.module == module}


def test_kio_knows_every_version_that_we_know_but_for_the_oldest_of_produce() -> None:
    unknown = {repr(case) for case in all_cases()} - {repr(case) for case, _ in CASES}
    assert {name for name in unknown if not name.startswith("offsets_topic.")} == {
        f"produce.{kind}-v{version}" for kind in ("Request", "Response") for version in range(3)
    }


@pytest.mark.parametrize(("case", "kio_class"), CASES, ids=[repr(case) for case, _ in CASES])
def test_we_and_kio_read_and_write_the_same(case: Case, kio_class: Any) -> None:
    write, read = entity_writer(kio_class), entity_reader(kio_class)

    @settings(max_examples=FEW_EXAMPLES)
    @given(_entities(kio_class))
    def check(entity: Any) -> None:
        with io.BytesIO() as buffer:
            write(buffer, entity)
            encoded = buffer.getvalue()
        plain = _plain_entity(entity, case.cls, case.version)
        ours = case.cls.decode(encoded, case.version)
        assert to_plain(ours, case.version) == plain
        made = from_plain(case.cls, plain)
        assert made == ours
        assert made.encode(case.version) == ours.encode(case.version) == encoded
        theirs, size = read(made.encode(case.version), 0)
        assert (theirs, size) == (entity, len(encoded))

    check()


@pytest.mark.parametrize(("case", "kio_class"), CASES, ids=[repr(case) for case, _ in CASES])
def test_kio_reads_a_message_of_ours_that_has_everything(case: Case, kio_class: Any) -> None:
    plain = full_value(case.cls, case.version)
    encoded = from_plain(case.cls, plain).encode(case.version)
    entity, size = entity_reader(kio_class)(encoded, 0)
    assert size == len(encoded)
    assert _plain_entity(entity, case.cls, case.version) == plain
