"""Writes the text of a function that decodes one version of a class; wire.compiler asks for it.

Nested structs are written out in place, since a call costs more than most structs hold; declarations cannot be
recursive, so the text is finite. Neighbouring fixed-size fields, and the length or tag count behind them, are read by
one struct.Struct. A varint of one byte is read inline, a longer one by wire.primitives.
"""

from __future__ import annotations

import struct
from typing import Any

from odradek.wire import primitives
from odradek.wire.fields import FIXED, Field
from odradek.wire.source import LENGTH_CODES, Source, is_number, least_bytes, name_of, ordinary, tagged, title

_HELPERS = {
    "new": object.__new__,
    "decode_length": primitives.decode_length,
    "decode_uvarint": primitives.decode_uvarint,
    "refuse_count": primitives.refuse_count,
    "refuse_length": primitives.refuse_length,
    "refuse_tag_size": primitives.refuse_tag_size,
    "refuse_tags": primitives.refuse_tags,
    "skip_tags": primitives.skip_tags,
    "unpacker": primitives.unpacker,
}


class DecoderWriter:
    """Writes `decode(data, at)`.

    `at` only ever grows, so a slice that came out short shows at the end, where `at` lies behind the data; an index
    or an unpacking behind the data raises by itself. Either way it is an IndexError or a struct.error.
    """

    def __init__(self, cls: type[Any], version: int, flexible: bool) -> None:
        self._cls = cls
        self._version = version
        self._flexible = flexible
        self._is_viewed = _has_slices(cls, version)
        self._source = Source(dict(_HELPERS))
        self._run: list[tuple[str, str]] = []  # fixed-size fields yet to be read: code, and where the value goes

    def function(self) -> Any:
        """Return the compiled function."""
        line = self._source.line
        # Strings are cut out of bytes twice as fast as out of a view; only raw fields need the view.
        kind = "memoryview" if self._is_viewed else "bytes"
        line(f"if type(data) is not {kind}: data = {kind}(data)")
        line("size = len(data)")
        made = self._struct(self._cls, title(self._cls))
        self._flush()
        line("if at > size: raise IndexError")
        line(f"return {made}")
        return self._source.compile("decode(data, at)", f"{title(self._cls)} v{self._version} decode")

    def _struct(self, cls: type[Any], path: str) -> str:
        made = self._source.fresh("o")
        self._source.line(f"{made} = new({self._source.bind_class(cls)})")
        for field in cls.fields:
            if not field.is_in(self._version) or field.is_tagged_in(self._version):
                self._source.line(f"{made}.{field.name} = {self._source.default(field)}")
        for field in ordinary(cls, self._version):
            self._value(field, f"{made}.{field.name}", f"{path}.{field.name}")
        if self._flexible:
            self._tags(tagged(cls, self._version), made, path)
        return made

    def _value(self, field: Field, target: str, path: str) -> None:
        if field.kind in FIXED:
            self._run.append((FIXED[field.kind], target))
        elif field.struct is not None:
            self._struct_value(field, target, path)
        else:
            self._sized_value(field, target, path)

    def _flush(self) -> None:
        """Read the fixed-size fields that have gathered, all at once."""
        codes = "".join(code for code, _ in self._run)
        targets = ", ".join(target for _, target in self._run)
        self._run.clear()
        if codes == "B":
            self._source.line(f"{targets} = data[at]")
        elif codes:
            layout = struct.Struct(">" + codes)
            unpack = self._source.bind(name_of("unpack", codes), layout.unpack_from)
            self._source.line(f"{targets}{'' if ',' in targets else ','} = {unpack}(data, at)")
        if codes:
            self._source.line(f"at += {struct.calcsize('>' + codes)}")

    def _struct_value(self, field: Field, target: str, path: str) -> None:
        if not field.is_nullable_in(self._version):
            self._source.line(f"{target} = {self._struct(field.struct, path)}")  # type: ignore[arg-type]
            return
        mark = self._source.fresh("n")
        self._run.append(("b", mark))
        self._flush()
        with self._source.block(f"if {mark} < 0:"):
            self._source.line(f"{target} = None")
        with self._source.block("else:"):
            self._source.line(f"{target} = {self._struct(field.struct, path)}")  # type: ignore[arg-type]
            self._flush()

    def _sized_value(self, field: Field, target: str, path: str) -> None:
        line, block = self._source.line, self._source.block
        length = self._source.fresh("n")
        self._run.append(("B" if self._flexible else LENGTH_CODES[field.kind], length))
        self._flush()
        if not field.is_nullable_in(self._version):
            if self._flexible:
                line(f"if not 0 < {length} < 128: {length}, at = decode_length(data, at - 1, {path!r})")
            else:
                line(f"if {length} < 0: refuse_length({length}, {path!r})")
            self._content(field, length, target, path)
            return
        if self._flexible:
            line(f"if {length} > 127: {length}, at = decode_uvarint(data, at - 1)")
        with block(f"if {length}:" if self._flexible else f"if {length} >= 0:"):
            self._content(field, length, target, path)
        with block("else:"):
            if not self._flexible:
                line(f"if {length} != -1: refuse_length({length}, {path!r})")
            line(f"{target} = None")

    def _content(self, field: Field, length: str, target: str, path: str) -> None:
        line = self._source.line
        if field.kind == "array":
            if self._flexible:
                line(f"{length} -= 1")
            self._elements(field, length, target, path)
            return
        line(f"end = at + {length}{' - 1' if self._flexible else ''}")
        if field.kind == "string":
            line(f"{target} = data[at:end]{'.tobytes()' if self._is_viewed else ''}.decode()")
        else:
            line(f"{target} = data[at:end]")
        line("at = end")

    def _elements(self, field: Field, count: str, target: str, path: str) -> None:
        line, element = self._source.line, field.element
        assert element is not None
        least = least_bytes(element, self._version, self._flexible)
        if least == 0:
            raise TypeError(f"{path}: in version {self._version} its elements have no bytes")
        line(f"if {count} * {least} > size - at: refuse_count({count}, {path!r}, size - at)")
        if is_number(element):
            code = FIXED[element.kind]
            few = self._source.bind(name_of("few", code), primitives.few_unpackers(code))
            unpack = f"({few}[{count}] if {count} < {primitives.FEW} else unpacker({code!r}, {count}))"
            line(f"{target} = list({unpack}(data, at))")
            line(f"at += {count} * {least}")
            return
        items = self._source.fresh("items")
        line(f"{items} = []")
        with self._source.block(f"for _ in range({count}):"):
            if element.struct is not None:
                value = self._struct(element.struct, path)
            else:
                value = self._source.fresh("item")
                self._value(element, value, path)
            self._flush()
            line(f"{items}.append({value})")
        line(f"{target} = {items}")

    def _tags(self, known: list[tuple[int, Field]], made: str, path: str) -> None:
        count = self._source.fresh("n")
        self._run.append(("B", count))
        self._flush()
        with self._source.block(f"if {count}:"):
            self._source.line(f"if {count} > 127: {count}, at = decode_uvarint(data, at - 1)")
            if known:
                self._known_tags(known, count, made, path)
            else:
                self._source.line(f"at = skip_tags(data, at, {count}, {path!r})")

    def _known_tags(self, known: list[tuple[int, Field]], count: str, made: str, path: str) -> None:
        line, block = self._source.line, self._source.block
        unknown, tag, end = (self._source.fresh(name) for name in ("unknown", "tag", "end"))
        line(f"if {count} > {primitives.UNKNOWN_TAGS_MAX + len(known)}: refuse_tags({count}, {path!r})")
        line(f"{unknown} = 0")
        with block(f"for _ in range({count}):"):
            line(f"{tag}, at = decode_uvarint(data, at)")
            line(f"{end}, at = decode_uvarint(data, at)")
            line(f"{end} += at")
            for place, (number, field) in enumerate(known):
                with block(f"{'elif' if place else 'if'} {tag} == {number}:"):
                    inner = f"{path}.{field.name}"
                    self._value(field, f"{made}.{field.name}", inner)
                    self._flush()
                    line(f"if at != {end}: refuse_tag_size({inner!r})")
            with block("else:"):
                line(f"{unknown} += 1")
                line(f"if {unknown} > {primitives.UNKNOWN_TAGS_MAX}: refuse_tags({count}, {path!r})")
                line(f"at = {end}")


def _has_slices(cls: type[Any], version: int) -> bool:
    """Say whether a decoded object holds raw bytes, which are views of the input."""
    fields = [field.element or field for field in cls.fields if field.is_in(version)]
    return any(
        field.kind in ("data", "records") or (field.struct is not None and _has_slices(field.struct, version))
        for field in fields
    )
