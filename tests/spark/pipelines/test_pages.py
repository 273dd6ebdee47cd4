"""The guide of pipelines is true: its files are good, its commands print what it says, its tables are complete."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.spark.pipelines import tables
from odradek.spark.pipelines.keys import Parameter
from tests.cli.commands import Cli

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "pipelines.md").read_text(encoding="utf-8")
ANYTHING = "..."

_BLOCK = re.compile(r"(?:^`(?P<file>[\w.]+)`:\n\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ odradek (?P<arguments>.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)


def matches(expected: str, printed: str) -> bool:
    """Whether a text is as the page shows it, `...` standing for anything."""
    pattern = ".*".join(re.escape(part) for part in expected.strip().split(ANYTHING))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def test_the_comparison_can_fail() -> None:
    assert matches("a ...\n...\nd\n", "a b\nc\nd\n")
    assert not matches("a\n", "a\nb\n")
    assert not matches("a ... c", "a b d")


def test_the_guide_can_be_followed_step_by_step(spark_cli: Cli, tmp_path: Path) -> None:
    commands = 0
    for block in _BLOCK.finditer(GUIDE):
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["text"])
            continue
        assert not block["language"], f"a file without a name: {block['text']}"
        for command in _COMMAND.finditer(block["text"]):
            ran = spark_cli(*command["arguments"].split())
            printed = ran.out if ran.status == 0 else f"{ran.out}{ran.err}"
            assert matches(command["output"], printed), f"{command['arguments']}\n{printed}\n{ran.err}"
            commands += 1
    assert commands >= 10
    revenue = spark_cli.ok("consume", "revenue").lines
    assert len(revenue) == 3
    assert '{"minute":"2026-01-31T12:00:00.000Z","customer":"Ada","amount":20.0}' in revenue
    assert len(list((tmp_path / "lake" / "orders").rglob("*.parquet"))) >= 1


def rendered(parameters: Mapping[str, Parameter]) -> str:
    """A table of keys as it stands in the guide."""
    rows = ["| key | what it means |", "|---|---|"]
    for name, parameter in parameters.items():
        if parameter.kind == "function":
            continue  # from Python only
        default = parameter.default
        shown = (
            "" if default in (None, (), {}, False) or isinstance(default, Mapping) else f"; `{default}` if not given"
        )
        needed = "; must be given" if parameter.required else ""
        rows.append(f"| `{name}` | {parameter.summary}{needed}{shown} |")
    return "\n".join(rows)


@pytest.mark.parametrize("name", ["PIPELINE", "SOURCE", "TRANSFORM", "SINK"])
def test_every_key_is_explained(name: str) -> None:
    assert rendered(getattr(tables, name)) in GUIDE
