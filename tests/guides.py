"""The examples of a guide in docs/guides: its commands with what each is said to print, and its programs."""

from __future__ import annotations

import re
from pathlib import Path

GUIDES = Path(__file__).parents[1] / "docs" / "guides"


def commands(name: str) -> list[tuple[str, str]]:
    """The lines after `$ ` of a guide, in their order, and what each is said to print."""
    blocks = re.findall(r"^```\n(\$ .*?)^```$", _text(name), re.DOTALL | re.MULTILINE)
    found = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
    return [(command, told.strip()) for command, _, told in (part.partition("\n") for part in found)]


def programs(name: str) -> list[str]:
    """The Python programs of a guide."""
    return re.findall(r"^```python\n(.*?)^```$", _text(name), re.DOTALL | re.MULTILINE)


def agrees(printed: str, told: str) -> bool:
    """Whether a command has printed what its guide says; `...` stands for anything that follows."""
    wanted, is_cut, _ = told.partition("...")
    return printed.startswith(wanted) if is_cut else printed == wanted


def _text(name: str) -> str:
    return (GUIDES / name).read_text(encoding="utf-8")
