"""What the tests of wire/messages share: every message class in every version, and values for them.

A value is a plain dict of the fields that a version has, so that messages of other libraries can be made of it too.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st

from odradek.wire import messages
from odradek.wire.fields import Field
from odradek.wire.schema import VERSION_MAX, Struct

Plain = dict[str, Any]

# Hundreds of pairs of class and version share the time of one ordinary property.
FEW_EXAMPLES = max(2, settings().max_examples // 10)


class Case(NamedTuple):
    """A message class and one of its versions."""

    module: str
    cls: type[Struct]
    version: int

    def __repr__(self) -> str:
        """Name the case as pytest shall print it."""
        return f"{self.module}.{self.cls.__name__}-v{self.version}"


def all_cases() -> Iterator[Case]:
    """Yield everything that is encoded on its own (structs that only occur within others are not)."""
    for info in pkgutil.iter_modules(messages.__path__):
        module = importlib.import_module(f"{messages.__name__}.{info.name}")
        for cls in vars(module).values():
            if isinstance(cls, type) and issubclass(cls, Struct) and cls.__module__ == module.__name__:
                low, high = cls.versions
                if high != VERSION_MAX:
                    yield from (Case(info.name, cls, version) for version in range(low, high + 1))


def fields_in(cls: type[Struct], version: int) -> list[Field]:
    """Return the fields that a version has, in the order of their declaration."""
    return [field for field in cls.fields if field.is_in(version)]


def from_plain(cls: type[Struct], plain: Plain) -> Struct:
    """Make one of our objects of a plain value."""
    fields = {field.name: field for field in cls.fields}
    return cls(**{name: _from_plain(fields[name], value) for name, value in plain.items()})


def _from_plain(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.kind == "array":
        assert field.element is not None
        return [_from_plain(field.element, item) for item in value]
    return value if field.struct is None else from_plain(field.struct, value)


def to_plain(message: Struct, version: int) -> Plain:
    """Take an object apart into a plain value of what a version has."""
    return {f.name: _to_plain(getattr(message, f.name), version) for f in fields_in(type(message), version)}


def _to_plain(value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return to_plain(value, version)
    if isinstance(value, list):
        return [_to_plain(item, version) for item in value]
    return bytes(value) if isinstance(value, memoryview) else value


def integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    """Numbers of so many bits."""
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


TEXT = st.text(max_size=8)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "int8": integers(8),
    "int16": integers(16),
    "int32": integers(32),
    "int64": integers(64),
    "uint16": integers(16, signed=False),
    "uint32": integers(32, signed=False),
    "float64": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "uuid": st.binary(min_size=16, max_size=16) | st.just(bytes(16)),
    "string": TEXT,
    "data": st.binary(max_size=8),
    "records": st.binary(max_size=8),
}


def plain_values(cls: type[Struct], version: int) -> st.SearchStrategy[Plain]:
    """Plain values of a class in a version."""
    return st.fixed_dictionaries({field.name: _values(field, version) for field in fields_in(cls, version)})


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.kind == "array":
        assert field.element is not None
        values: st.SearchStrategy[Any] = st.lists(_values(field.element, version), max_size=2)
    elif field.struct is not None:
        values = plain_values(field.struct, version)
    else:
        values = SCALARS[field.kind]
    return st.none() | values if field.is_nullable_in(version) else values


def full_value(cls: type[Struct], version: int) -> Plain:
    """Return a value in which nothing is empty, null or at its default, and neighbours differ."""
    return {field.name: _full(field, version, number) for number, field in enumerate(fields_in(cls, version), start=1)}


def _full(field: Field, version: int, number: int) -> Any:
    """Numbers are small where an error code may be meant, and whole seconds where a time may be."""
    match field.kind:
        case "array":
            assert field.element is not None
            return [_full(field.element, version, number), _full(field.element, version, number + 1)]
        case "struct":
            assert field.struct is not None
            return full_value(field.struct, version)
        case "string":
            return f"text {number} ☃"
        case "data" | "records":
            return b"bytes %d" % number
        case "uuid":
            return bytes([number] * 16)
        case "boolean":
            return not field.default
        case "float64":
            return number + 0.5
        case "int8" | "int16" | "uint16":
            return number + 20
    return (number + 20) * 1000
