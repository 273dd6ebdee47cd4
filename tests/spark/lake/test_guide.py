"""The guide of the lake says what is: its snippets are run, its files are checked, its table has all options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from odradek.spark.lake.settings import SinkOptions
from odradek.testing import broker
from tests.architecture import ROOT
from tests.cli.commands import Cli

GUIDE = (ROOT / "docs" / "guides" / "lake.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:^`(?P<file>[\w.]+)`:\n\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A piece of the guide between fences."""

    file: str | None
    language: str
    text: str


def blocks() -> Iterator[Block]:
    return (Block(match["file"], match["language"], match["text"]) for match in BLOCK.finditer(GUIDE))


@pytest.fixture
def address() -> Iterator[str]:
    """A broker of its own: the guide's topics have plain names."""
    with broker() as embedded:
        yield embedded.bootstrap_servers


def test_every_snippet_of_the_guide_runs(
    spark: SparkSession,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setenv("ODRADEK_DIR", str(tmp_path / "home"))
    monkeypatch.setenv("ODRADEK_BROKER", address)
    monkeypatch.chdir(tmp_path)
    cli = Cli(capfdbinary, monkeypatch, address)
    names: dict[str, object] = {"broker": address}
    seen = []
    for block in blocks():
        seen.append(block.file or block.language)
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
            if block.language == "toml":
                cli.ok("pipeline", "check", block.file)
        elif block.language == "python":
            exec(compile(block.text, "lake.md", "exec"), names)  # noqa: S102 (it is our own text)
        else:
            _run(cli, block.text)
    assert seen.count("python") >= 5
    assert {"archive.toml", "replay.toml", "state.toml", "parted.toml", "counts.toml", "paid.toml"} <= set(seen)
    assert len(cli.ok("consume", "orders.replayed").lines) == 2


def _run(cli: Cli, text: str) -> None:
    for part in text.split("$ ")[1:]:
        command, _, expected = part.partition("\n")
        said = cli.ok(*shlex.split(command)[1:]).out
        assert fnmatchcase(said.strip(), expected.strip().replace("...", "*")), f"{command} said {said}"


def test_the_guide_has_every_option_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `([\w.*]+)` \| (.*?) ?\| .+ \|$", GUIDE, re.MULTILINE))
    for option in fields(SinkOptions):
        name = "catalog.*" if option.name == "catalog" else option.name
        assert name in rows
        default = getattr(SinkOptions(), option.name)
        if isinstance(default, bool | int | float):
            assert rows[name] == f"{default:g}" if isinstance(default, float) else str(default).lower()
