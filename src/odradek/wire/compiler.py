"""Turns a class and a version into straight-line Python functions: the text is written, then compiled by Python.

The writers are wire.decoding and wire.encoding. wire.schema keeps the functions, and turns what they raise by
themselves (IndexError, struct.error, ...) into one error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from odradek.wire.decoding import DecoderWriter
from odradek.wire.encoding import EncoderWriter
from odradek.wire.source import Source, title

Decoder: TypeAlias = Callable[[Any, int], Any]
Encoder: TypeAlias = Callable[[Any, list[Any]], None]


def compile_decoder(cls: type[Any], version: int, flexible: bool) -> Decoder:
    """Make the function (data, position) -> object for one version of a class."""
    function: Decoder = DecoderWriter(cls, version, flexible).function()
    return function


def compile_encoder(cls: type[Any], version: int, flexible: bool) -> Encoder:
    """Make the function (object, list that pieces are appended to) for one version of a class."""
    function: Encoder = EncoderWriter(cls, version, flexible).function()
    return function


def compile_init(cls: type[Any]) -> Callable[..., None]:
    """Make the `__init__` of a class: keywords only, every field with its default."""
    source = Source({"_absent": object()})
    parameters = ["self", "*"] if cls.fields else ["self"]
    for field in cls.fields:
        name, default = field.name, source.default(field)
        if field.default == ():  # a list or a struct, which must be a new one each time
            parameters.append(f"{name}=_absent")
            source.line(f"self.{name} = {default} if {name} is _absent else {name}")
        else:
            parameters.append(f"{name}={default}")
            source.line(f"self.{name} = {name}")
    source.line("return")
    function: Callable[..., None] = source.compile(f"__init__({', '.join(parameters)})", f"{title(cls)} init")
    return function
