"""The base of every message class: declared fields become slots, a keyword `__init__`, and codecs by version.

A class body holds `name: type = specifier(...)` only (see wire.fields). Code for a version is compiled when that
version is first used and kept on the class. What the versions mean is Kafka's protocol guide; KIP-482 for tags.
"""

from __future__ import annotations

import struct as struct_module
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from odradek.wire.api import FLEXIBLE_SINCE, ApiKey
from odradek.wire.compiler import Decoder, Encoder, compile_decoder, compile_encoder, compile_init
from odradek.wire.errors import DecodeError
from odradek.wire.fields import (
    Field,
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
from odradek.wire.primitives import ReadBuffer
from odradek.wire.source import title

__all__ = [
    "Message", "Struct", "array", "boolean", "data", "float64", "int8", "int16", "int32", "int64", "records",
    "string", "struct", "uint16", "uint32", "uuid",
]  # fmt: skip

VERSION_MAX = 2**15 - 1

# What generated code raises for a value that does not fit its field.
_UNFIT = (struct_module.error, AttributeError, TypeError, OverflowError)

_Function = TypeVar("_Function")


class _ByVersion(dict[int, _Function]):
    """The compiled functions of a class by version, each made when it is first asked for."""

    def __init__(self, cls: type[Struct], make: Callable[[type[Any], int, bool], _Function]) -> None:
        super().__init__()
        self._cls = cls
        self._make = make

    def __missing__(self, version: int) -> _Function:
        cls = self._cls
        low, high = cls.versions
        if not low <= version <= high:
            raise ValueError(f"{cls.__module__}.{cls.__qualname__} has versions {low} to {high}, not {version}")
        flexible = cls.flexible_since is not None and version >= cls.flexible_since
        function = self._make(cls, version, flexible)
        self[version] = function
        return function


class _StructType(type):
    """Takes the declared fields out of a class body and makes slots of them."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any) -> _StructType:
        declared = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        for key, field in declared.items():
            if field.name:
                raise TypeError(f"{name}.{key}: the field is {field.name} of another class already")
            field.name = key
            del namespace[key]
        fields = tuple(declared.values())
        for field in fields:
            if any(hasattr(base, field.name) for base in bases):
                raise TypeError(f"{name}.{field.name}: every struct has something of that name already")
        if any(getattr(base, "fields", ()) for base in bases):
            raise TypeError(f"{name}: a struct with fields cannot be inherited from")
        tags = [field.tag for field in fields if field.tag is not None]
        if len(tags) != len(set(tags)):
            raise TypeError(f"{name}: two fields have the same tag")
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["fields"] = fields
        return super().__new__(cls, name, bases, namespace, **keywords)


@dataclass_transform(kw_only_default=True)
class Struct(metaclass=_StructType):
    """A part of a message, or a blob of its own (`versions` and `flexible` are for the latter)."""

    fields: ClassVar[tuple[Field, ...]]
    versions: ClassVar[tuple[int, int]]
    flexible_since: ClassVar[int | None]
    _decoders: ClassVar[_ByVersion[Decoder]]
    _encoders: ClassVar[_ByVersion[Encoder]]

    def __init_subclass__(cls, *, versions: tuple[int, int] = (0, VERSION_MAX), flexible: int | None = None) -> None:
        """Note the versions; the fields are noted already."""
        cls.versions = versions
        cls.flexible_since = flexible
        cls._decoders = _ByVersion(cls, compile_decoder)
        cls._encoders = _ByVersion(cls, compile_encoder)

    def __init__(self, **values: Any) -> None:
        """Set the fields. This one serves a class once: compiling hundreds at import would slow every start."""
        cls = type(self)
        cls.__init__ = compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    @classmethod
    def decode(cls, data: ReadBuffer, version: int, at: int = 0) -> Self:
        """Read an object that starts at a position. Raw fields are views of `data`; what follows is left alone."""
        decoder = cls._decoders[version]
        try:
            made: Self = decoder(data, at)
        except (IndexError, struct_module.error):
            raise DecodeError(f"{title(cls)} v{version}: the bytes end too soon") from None
        except UnicodeDecodeError as error:
            raise DecodeError(f"{title(cls)} v{version}: a string is not UTF-8: {error.reason}") from None
        return made

    def encode(self, version: int) -> bytes:
        """Write the object in the format of a version."""
        try:
            return b"".join(self.encode_parts(version))
        except TypeError as error:
            raise ValueError(f"{title(type(self))} v{version} cannot be encoded: {error}") from error

    def encode_parts(self, version: int) -> list[ReadBuffer]:
        """Write the object as pieces to be sent one after the other; raw fields are among them uncopied."""
        encoder = self._encoders[version]
        parts: list[ReadBuffer] = []
        try:
            encoder(self, parts)
        except _UNFIT as error:
            raise ValueError(f"{title(type(self))} v{version} cannot be encoded: {error}") from error
        return parts

    def __eq__(self, other: object) -> bool:
        """Compare field by field; a view equals the bytes that it shows."""
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show the object as the call that makes it."""
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.fields)
        return f"{type(self).__qualname__}({values})"


class Message(Struct):
    """A request or a response of one API."""

    api_key: ClassVar[ApiKey]

    def __init_subclass__(cls, *, key: ApiKey, versions: tuple[int, int], flexible: int | None) -> None:
        """Note the API; the version at which it turns flexible must be that of the headers before it."""
        super().__init_subclass__(versions=versions, flexible=flexible)
        if flexible != FLEXIBLE_SINCE[key]:
            raise TypeError(f"{title(cls)}: {key.name} is flexible since {FLEXIBLE_SINCE[key]}, not {flexible}")
        cls.api_key = key
