"""Writes the text of a function that encodes one version of a class; wire.compiler asks for it.

The function appends pieces to a list: joining them once is cheaper than growing a buffer, and a large raw field is
not copied on the way. Nested structs are written out in place; neighbouring fixed-size fields, and the length
behind them, are packed by one struct.Struct.
"""

from __future__ import annotations

import struct
from typing import Any

from odradek.wire import primitives
from odradek.wire.fields import FIXED, Field
from odradek.wire.source import LENGTH_CODES, Source, is_number, name_of, ordinary, tagged, title

_HELPERS = {
    "encode_uvarint": primitives.encode_uvarint,
    "join": b"".join,
    "pack_many": primitives.pack_many,
    "refuse_uuid": primitives.refuse_uuid,
    "small": tuple(map(primitives.encode_uvarint, range(128))),
}


class EncoderWriter:
    """Writes `encode(message, parts)`: it appends the pieces that, joined, are the message."""

    def __init__(self, cls: type[Any], version: int, flexible: bool) -> None:
        self._cls = cls
        self._version = version
        self._flexible = flexible
        self._source = Source(dict(_HELPERS))
        self._parts = "parts"
        self._run: list[tuple[str, str]] = []  # fixed-size fields yet to be written: code and expression

    def function(self) -> Any:
        """Return the compiled function."""
        self._struct(self._cls, "message", title(self._cls))
        self._flush()
        self._source.line("return")
        return self._source.compile("encode(message, parts)", f"{title(self._cls)} v{self._version} encode")

    def _struct(self, cls: type[Any], value: str, path: str) -> None:
        for field in ordinary(cls, self._version):
            self._value(field, f"{value}.{field.name}", f"{path}.{field.name}")
        if self._flexible:
            self._tags(tagged(cls, self._version), value, path)

    def _value(self, field: Field, value: str, path: str) -> None:
        if field.kind == "uuid":
            local = self._local(value)
            self._source.line(f"if len({local}) != 16: refuse_uuid({local}, {path!r})")
            self._run.append((FIXED[field.kind], local))
        elif field.kind in FIXED:
            self._run.append((FIXED[field.kind], value))
        elif field.struct is not None:
            self._struct_value(field, value, path)
        else:
            self._sized_value(field, value, path)

    def _local(self, value: str) -> str:
        local = self._source.fresh("v")
        self._source.line(f"{local} = {value}")
        return local

    def _packed(self) -> str:
        """Return an expression for the bytes of the fixed-size fields that have gathered, and forget them."""
        codes = "".join(code for code, _ in self._run)
        values = ", ".join(value for _, value in self._run)
        self._run.clear()
        if (codes, values) == ("B", "0"):
            return "b'\\0'"
        layout = struct.Struct(">" + codes)
        return f"{self._source.bind(name_of('pack', codes), layout.pack)}({values})"

    def _flush(self) -> None:
        if self._run:
            self._source.line(f"{self._parts}.append({self._packed()})")

    def _struct_value(self, field: Field, value: str, path: str) -> None:
        assert field.struct is not None
        local = self._local(value)
        if not field.is_nullable_in(self._version):
            self._struct(field.struct, local, path)
            return
        self._flush()
        with self._source.block(f"if {local} is None:"):
            self._source.line(f"{self._parts}.append(b'\\xff')")
        with self._source.block("else:"):
            self._run.append(("b", "1"))
            self._struct(field.struct, local, path)
            self._flush()

    def _sized_value(self, field: Field, value: str, path: str) -> None:
        line, local, length = self._source.line, self._local(value), self._source.fresh("n")
        if field.is_nullable_in(self._version):
            with self._source.block(f"if {local} is None:"):
                line(f"{length} = {0 if self._flexible else -1}")
                line(f"{local} = b''")
            with self._source.block("else:"):
                self._measure(field, local, length)
        else:
            self._measure(field, local, length)
        self._length(field, length)
        if field.element is None:
            line(f"{self._parts}.append({local})")
        elif is_number(field.element):
            self._numbers(field.element, local)
        else:
            self._elements(field.element, local, path)

    def _measure(self, field: Field, local: str, length: str) -> None:
        if field.kind == "string":
            self._source.line(f"{local} = {local}.encode()")
        self._source.line(f"{length} = len({local}){' + 1' if self._flexible else ''}")

    def _length(self, field: Field, length: str) -> None:
        """Write a length together with the fixed-size fields before it."""
        if not self._flexible:
            self._run.append((LENGTH_CODES[field.kind], length))
            self._flush()
        elif self._run:
            before = list(self._run)
            long = f"{self._packed()} + encode_uvarint({length})"
            self._run = [*before, ("B", length)]
            self._source.line(f"{self._parts}.append({self._packed()} if {length} < 128 else {long})")
        else:
            self._source.line(f"{self._parts}.append(small[{length}] if {length} < 128 else encode_uvarint({length}))")

    def _numbers(self, element: Field, values: str) -> None:
        code = FIXED[element.kind]
        few = self._source.bind(name_of("few", code), primitives.few_packers(code))
        pack = f"{few}[len({values})](*{values}) if len({values}) < {primitives.FEW} else pack_many({code!r}, {values})"
        self._source.line(f"if {values}: {self._parts}.append({pack})")

    def _elements(self, element: Field, values: str, path: str) -> None:
        item = self._source.fresh("item")
        with self._source.block(f"for {item} in {values}:"):
            if element.struct is not None:
                self._struct(element.struct, item, path)
            else:
                self._value(element, item, path)
            self._flush()

    def _tags(self, fields: list[tuple[int, Field]], value: str, path: str) -> None:
        if not fields:
            self._run.append(("B", "0"))
            return
        self._flush()
        line, written = self._source.line, self._source.fresh("tagged")
        line(f"{written} = []")
        for tag, field in fields:
            local = self._local(f"{value}.{field.name}")
            with self._source.block(f"if {self._differs(field, local)}:"):
                body = self._tag_body(field, local, f"{path}.{field.name}")
                line(f"{written}.append({primitives.encode_uvarint(tag)!r} + encode_uvarint(len({body})))")
                line(f"{written}.append({body})")
        line(f"{self._parts}.append(small[len({written}) // 2])")
        line(f"{self._parts} += {written}")

    def _differs(self, field: Field, value: str) -> str:
        """Return an expression: whether a value is not its field's default. Of a struct, every field is compared."""
        if field.default is None:
            return f"{value} is not None"
        if field.struct is None:
            return f"{value} != {self._source.default(field)}"
        inner = " or ".join(self._differs(each, f"{value}.{each.name}") for each in field.struct.fields) or "False"
        return f"{value} is None or {inner}" if field.nullable is not None else inner

    def _tag_body(self, field: Field, local: str, path: str) -> str:
        """Write a tagged field's value into a list of its own, since its size goes before it."""
        outer, self._parts = self._parts, self._source.fresh("parts")
        self._source.line(f"{self._parts} = []")
        self._value(field, local, path)
        self._flush()
        body = self._source.fresh("body")
        self._source.line(f"{body} = join({self._parts})")
        self._parts = outer
        return body
