"""What a message class is declared with: one call a field, saying its kind and the versions that have it.

Holds facts only; wire.schema makes classes of them and wire.compiler makes code of those. The numbers of
versions and tags are those of Kafka's protocol (KIP-482 for compact encodings and tagged fields).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Kinds of a fixed size, with their code in the struct module; all are big-endian.
FIXED = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q",
    "uint16": "H", "uint32": "I", "float64": "d", "boolean": "?", "uuid": "16s",
}  # fmt: skip
NO_UUID = bytes(16)


@dataclass(slots=True, eq=False)
class Field:
    """One field of a struct, over all versions. `name` is filled in by the class that has it."""

    kind: str
    since: int = 0  # the first version with it
    until: int | None = None  # the last version with it
    nullable: int | None = None  # the first version in which it may be null
    default: Any = None
    tag: int | None = None
    tag_since: int | None = None  # the first version in which it is a tagged field
    element: Field | None = None  # of an array
    struct: type[Any] | None = None  # the class of a struct
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse a declaration that contradicts itself."""
        if self.default is None and self.nullable is None:
            raise TypeError(f"{self.kind} field: the default is None, so say from which version on it is nullable")
        if self.nullable is not None and self.kind in FIXED:
            raise TypeError(f"{self.kind} field: Kafka has no null of this kind")
        if self.tag is None and self.tag_since is not None:
            raise TypeError(f"{self.kind} field: tag_since without a tag")

    def is_in(self, version: int) -> bool:
        """Say whether a version has the field, tagged or not."""
        return self.since <= version and (self.until is None or version <= self.until)

    def is_tagged_in(self, version: int) -> bool:
        """Say whether the field is a tagged one in a version."""
        if self.tag is None or not self.is_in(version):
            return False
        return self.tag_since is None or version >= self.tag_since

    def is_nullable_in(self, version: int) -> bool:
        """Say whether the field may be null in a version."""
        return self.nullable is not None and version >= self.nullable


# A specifier returns Any, so that `name: str = string()` is well typed; in truth it returns a Field.


def _scalar(kind: str, zero: Any) -> Callable[..., Any]:
    def specify(
        *,
        since: int = 0,
        until: int | None = None,
        default: Any = zero,
        tag: int | None = None,
        tag_since: int | None = None,
    ) -> Any:
        return Field(kind, since, until, None, default, tag, tag_since)

    specify.__name__ = specify.__qualname__ = kind
    specify.__doc__ = f"Declare a field of kind {kind}."
    return specify


def _sized(kind: str, zero: Any) -> Callable[..., Any]:
    def specify(
        *,
        since: int = 0,
        until: int | None = None,
        nullable: int | None = None,
        default: Any = zero,
        tag: int | None = None,
        tag_since: int | None = None,
    ) -> Any:
        return Field(kind, since, until, nullable, default, tag, tag_since)

    specify.__name__ = specify.__qualname__ = kind
    specify.__doc__ = f"Declare a field of kind {kind}."
    return specify


int8 = _scalar("int8", 0)
int16 = _scalar("int16", 0)
int32 = _scalar("int32", 0)
int64 = _scalar("int64", 0)
uint16 = _scalar("uint16", 0)
uint32 = _scalar("uint32", 0)
float64 = _scalar("float64", 0.0)
boolean = _scalar("boolean", False)
uuid = _scalar("uuid", NO_UUID)
string = _sized("string", "")
data = _sized("data", b"")
records = _sized("records", b"")


def array(
    element: Any,
    *,
    since: int = 0,
    until: int | None = None,
    nullable: int | None = None,
    default: Any = (),
    tag: int | None = None,
    tag_since: int | None = None,
) -> Any:
    """Declare an array of structs (give the class) or of a plain kind (give the specifier: `array(int32)`).

    The default is an empty list, a new one each time, or None.
    """
    if default is not None and default != ():
        raise TypeError("an array's default is empty or None")
    return Field("array", since, until, nullable, default, tag, tag_since, element=_as_field(element))


def struct(
    struct_class: type[Any],
    *,
    since: int = 0,
    until: int | None = None,
    nullable: int | None = None,
    default: Any = (),
    tag: int | None = None,
    tag_since: int | None = None,
) -> Any:
    """Declare a struct within a struct. The default is one with all its fields at their defaults, or None."""
    if default is not None and default != ():
        raise TypeError("a struct's default is made of its fields' defaults, or None")
    return Field("struct", since, until, nullable, default, tag, tag_since, struct=struct_class)


def _as_field(element: Any) -> Field:
    if isinstance(element, type):
        return Field("struct", default=(), struct=element)
    field = element if isinstance(element, Field) else element()
    if not isinstance(field, Field) or field.kind == "array":
        raise TypeError(f"{element!r} cannot be the element of an array")
    return field
