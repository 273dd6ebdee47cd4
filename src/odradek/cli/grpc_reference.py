"""Writes docs/reference/grpc.md from the .proto files: their comments are the reference, and there is no other.

It reads the part of the language that proto/ uses: enums, messages and services, with a comment above each entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROTO = Path(__file__).parents[3] / "proto"
FILES = ("mykafka.proto", "eeylops.proto")

_HEAD = """\
# gRPC

<!-- Generated from the comments of proto/*.proto by `make proto`; edit those, not this page. -->

Two services at the address of the setting `grpc` (127.0.0.1:50051), beside `grpc.health.v1.Health` and server
reflection. The .proto files are in `proto/`; with them or by reflection any language has a client.
[The guide](../guides/grpc.md) shows how they are used.
"""

_OPEN = re.compile(r"(enum|message|service) (\w+) \{(\})?")
_VALUE = re.compile(r"(\w+) = (\d+);")
_FIELD = re.compile(r"(repeated )?(\w+) (\w+) = (\d+);")
_RPC = re.compile(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\);")


class ProtoError(Exception):
    """A line of a .proto is not one that this page can show."""


class Entry(NamedTuple):
    """A value, a field or a method."""

    cells: tuple[str, ...]
    comment: str


class Block(NamedTuple):
    """An enum, a message or a service."""

    kind: str
    name: str
    comment: str
    entries: list[Entry]


def render_grpc() -> str:
    """Write the page of the gRPC services, the same text for the same files."""
    return "\n".join((_HEAD, *(part for file in FILES for part in _page((PROTO / file).read_text(encoding="utf-8")))))


def _page(text: str) -> Iterator[str]:
    package, comment, blocks = parse(text)
    for service in (block for block in blocks if block.kind == "service"):
        yield f"## {package}.{service.name}\n\n{comment}\n\n{service.comment}\n"
        yield "| call | takes | gives | what it does |\n|---|---|---|---|"
        yield from (_row(*entry.cells, entry.comment) for entry in service.entries)
        yield ""
    for block in blocks:
        if block.kind == "enum":
            yield f"### {block.name}\n\n{block.comment}\n\n| number | name | meaning |\n|---|---|---|"
            yield from (_row(*entry.cells, entry.comment) for entry in block.entries)
            yield ""
        elif block.kind == "message":
            yield f"### {block.name}\n\n{block.comment}\n"
            if block.entries:
                yield "| number | field | type | meaning |\n|---|---|---|---|"
                yield from (_row(*entry.cells, entry.comment) for entry in block.entries)
                yield ""


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def parse(text: str) -> tuple[str, str, list[Block]]:
    """The package of a .proto, the comment at its head, and its blocks."""
    blocks: list[Block] = []
    comments: list[str] = []
    block: Block | None = None
    head, package = "", ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith("//"):
            comments.append(line[2:].strip())
            continue
        comment = " ".join(part for part in comments if part) if block else _paragraphs(comments)
        if line.startswith("syntax"):
            head = comment
        elif line.startswith("package "):
            package = line.removeprefix("package ").rstrip(";")
        elif opened := _OPEN.fullmatch(line):
            blocks.append(Block(opened[1], opened[2], _told(comment, number, line), []))
            block = None if opened[3] else blocks[-1]
        elif line == "}":
            block = None
        elif line:
            if block is None:
                raise ProtoError(f"line {number} is not understood: {line}")
            block.entries.append(Entry(_cells(block.kind, line, number), _told(comment, number, line)))
        comments = []
    return package, head, blocks


def _paragraphs(comments: list[str]) -> str:
    return "\n".join(comments).strip()


def _told(comment: str, number: int, line: str) -> str:
    if not comment:
        raise ProtoError(f"line {number} has no comment above it: {line}")
    return comment


def _cells(kind: str, line: str, number: int) -> tuple[str, ...]:
    if kind == "enum" and (value := _VALUE.fullmatch(line)):
        return value[2], f"`{value[1]}`"
    if kind == "message" and (field := _FIELD.fullmatch(line)):
        return field[4], f"`{field[3]}`", f"{field[1] or ''}{field[2]}"
    if kind == "service" and (rpc := _RPC.fullmatch(line)):
        return f"`{rpc[1]}`", f"{rpc[2] or ''}{rpc[3]}", f"{rpc[4] or ''}{rpc[5]}"
    raise ProtoError(f"line {number} is no entry of {'an' if kind == 'enum' else 'a'} {kind}: {line}")
