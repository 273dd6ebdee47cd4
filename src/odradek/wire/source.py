"""What the writers of decoders and of encoders share: the text under construction, and facts about fields.

Only wire.decoding and wire.encoding use it. Nothing here knows how a value is laid out beyond its least size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from odradek.wire.fields import FIXED, Field

# Kinds with a length before them: the code of that length where it is not a varint.
LENGTH_CODES = {"string": "h", "data": "i", "records": "i", "array": "i"}


def title(cls: type[Any]) -> str:
    """Name a class in an error: `metadata.Request`."""
    return f"{cls.__module__.rpartition('.')[2]}.{cls.__qualname__}"


def name_of(verb: str, *codes: str) -> str:
    """Name a compiled layout by its codes, in letters that a Python name may have."""
    return "_".join([verb, *codes]).replace("?", "t")


def ordinary(cls: type[Any], version: int) -> list[Field]:
    """List the fields that a version has in their declared order, without the tagged ones."""
    return [field for field in cls.fields if field.is_in(version) and not field.is_tagged_in(version)]


def tagged(cls: type[Any], version: int) -> list[tuple[int, Field]]:
    """List the tagged fields of a version with their tags, lowest first, as they must be written."""
    found = [(field.tag, field) for field in cls.fields if field.tag is not None and field.is_tagged_in(version)]
    return sorted(found, key=lambda pair: pair[0])


def is_number(field: Field) -> bool:
    """Say whether many values of this kind can be read and written by one struct.Struct."""
    return field.kind in FIXED and field.kind != "uuid"


def least_bytes(field: Field, version: int, flexible: bool) -> int:
    """Return the fewest bytes in which a field's value can be written."""
    if field.kind in FIXED:
        return struct.calcsize(">" + FIXED[field.kind])
    if field.struct is None:
        return 1 if flexible else struct.calcsize(">" + LENGTH_CODES[field.kind])
    if field.is_nullable_in(version):
        return 1
    return sum(least_bytes(inner, version, flexible) for inner in ordinary(field.struct, version)) + flexible


class Source:
    """The text of one function while it is written, and the objects that its names stand for."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._lines: list[str] = []
        self._depth = 1
        self._names: dict[str, Any] = names
        self._count = 0

    def line(self, text: str) -> None:
        """Add a line at the current depth."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Add a line, and indent what follows within the `with`."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        """Return a variable's name that nothing else in the function has."""
        self._count += 1
        return f"{prefix}{self._count}"

    def bind(self, name: str, value: Any) -> str:
        """Let a name stand for an object; a name says what it stands for, so the same one never means two."""
        self._names.setdefault(name, value)
        return name

    def bind_class(self, cls: type[Any]) -> str:
        """Return the name of a class, the same one each time."""
        for name, value in self._names.items():
            if value is cls:
                return name
        return self.bind(self.fresh(f"{cls.__name__}_"), cls)

    def default(self, field: Field) -> str:
        """Return an expression for a field's default, new each time where it can be changed."""
        if field.default is None:
            return "None"
        if field.kind == "array":
            return "[]"
        if field.struct is not None:
            return f"{self.bind_class(field.struct)}()"
        if isinstance(field.default, float):
            return self.bind(self.fresh("number"), field.default)
        return repr(field.default)

    def compile(self, signature: str, name: str) -> Any:
        """Return the function; `name` is what a traceback shows in place of a file."""
        text = "\n".join([f"def {signature}:", *self._lines, ""])
        # The text is made of our own declarations only, never of what a peer sent.
        exec(compile(text, f"<odradek {name}>", "exec"), self._names)  # noqa: S102
        return self._names[signature.partition("(")[0]]
