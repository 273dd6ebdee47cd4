"""Imports point down the house, and the pure folders import nothing that acts or differs from run to run."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture import ROOT, SOURCE, python_files, relative

# Folders and modules of odradek without I/O, time or chance.
PURE = (
    "records", "wire", "model", "metrics", "settings_table", "settings_rows", "settings_objects", "settings_grpc",
    "raft", "replication.progress",
    *(f"controller.{name}" for name in (
        "assignment", "changes", "decisions", "decisions_archive", "decisions_base", "decisions_brokers",
        "decisions_change", "decisions_clients", "decisions_partitions", "decisions_sparse",
        "decisions_topics", "image", "image_archive", "image_partitions", "sessions",
    )),
    *(f"objects.{name}" for name in ("archive_index", "errors", "keys", "slices", "spec")),
    "broker.fetch_sessions", "spark.errors", "spark.offsets", "spark.option_names", "spark.option_values",
    "spark.store.planning", "spark.store.stream_offset",
    *(f"groups.{name}" for name in (
        "assignors", "balance", "classic", "classic_members", "classic_rounds", "classic_types", "config",
        "consumer_admission", "consumer_checks", "consumer_group", "consumer_image", "consumer_records",
        "consumer_types", "gaps", "group", "offsets", "reconcile", "storage", "subscribed", "subscription",
        "topic_pattern", "topic_syntax",
    )),
)  # fmt: skip

IMPURE_MODULES = frozenset({
    "asyncio", "socket", "os", "time", "random", "threading", "pathlib", "io", "subprocess", "ssl", "select",
    "datetime", "secrets", "uuid", "importlib", "concurrent", "multiprocessing", "selectors", "signal",
    "tempfile", "shutil", "mmap", "logging", "posix", "_thread",
})  # fmt: skip
IMPURE_BUILTINS = frozenset({"__import__", "input", "open", "print"})


def impurities(source: str) -> list[str]:
    """List what a pure module must not have: `line: what`, imports within functions included."""
    return [f"{line}: {what}" for line, what in sorted(_impurities(ast.parse(source)))]


def _impurities(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module = node.module or ""
            # `from odradek import clock` imports odradek.clock
            imported = [f"odradek.{name.name}" for name in node.names] if module == "odradek" else [module]
        elif isinstance(node, ast.ImportFrom) and node.level > 1:
            imported = ["an import relative to a folder above"]
        elif isinstance(node, ast.Name) and node.id in IMPURE_BUILTINS:
            imported = [node.id]
        else:
            continue
        yield from ((node.lineno, name) for name in imported if not _is_pure(name))


def _is_pure(name: str) -> bool:
    root, *inner = name.split(".")
    if root == "odradek":
        return any(inner[: len(parts)] == parts for parts in (name.split(".") for name in PURE))
    return " " not in name and root not in IMPURE_MODULES | IMPURE_BUILTINS


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import os", ["1: os"]),
        ("import os.path as p", ["1: os.path"]),
        ("import struct, time", ["1: time"]),
        ("from datetime import datetime", ["1: datetime"]),
        ("def f():\n    import random", ["2: random"]),
        ("if TYPE_CHECKING:\n    from pathlib import Path", ["2: pathlib"]),
        ("try:\n    pass\nexcept E:\n    from asyncio import sleep as s", ["4: asyncio"]),
        ("class C:\n    import uuid", ["2: uuid"]),
        ("m = __import__('os')", ["1: __import__"]),
        ("f = __import__", ["1: __import__"]),
        ("import importlib\nimportlib.import_module('os')", ["1: importlib"]),
        ("from importlib import import_module as i\ni('os')", ["1: importlib"]),
        ("open('x')", ["1: open"]),
        ("from odradek.clock import SystemClock", ["1: odradek.clock"]),
        ("from odradek import clock", ["1: odradek.clock"]),
        ("import odradek.disk.real", ["1: odradek.disk.real"]),
        ("from ..clock import SystemClock", ["1: an import relative to a folder above"]),
        ("import struct, zlib, timeit_not_time, oscar", []),
        ("from odradek.records.crc import crc32c\nfrom odradek.model import Offset\nfrom . import crc", []),
        ("text = 'import os'  # import time\nself.open()\nsegment.time", []),
    ],
)
def test_the_checker_of_pure_modules_finds_what_it_should(source: str, found: list[str]) -> None:
    assert impurities(source) == found


def pure_files() -> list[Path]:
    places = [SOURCE.joinpath(*name.split(".")) for name in PURE]
    files = [file for place in places for file in (*python_files(place), place.with_suffix(".py")) if file.exists()]
    assert len(files) > len(PURE), "the pure folders have moved: PURE at the top of this test names them"
    return files


@pytest.mark.parametrize("file", pure_files(), ids=relative)
def test_a_pure_module_does_no_io_and_knows_no_time_and_no_chance(file: Path) -> None:
    assert impurities(file.read_text(encoding="utf-8")) == []


def test_imports_point_down_the_house() -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run([lint_imports, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_module_and_package_has_its_place_in_the_layers() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [one for one in pyproject["tool"]["importlinter"]["contracts"] if one["type"] == "layers"]
    placed = [name.strip() for layer in contract["layers"] for name in layer.replace("|", ":").split(":")]
    present = [path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert sorted(placed) == sorted(set(present) - {"__init__"})
