"""Habits that are easy to lose: short files, nothing left undone, no sleeping tests, a docstring a module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture import ROOT, SOURCE, python_files, relative

LINES_MAX = 500
UNDONE = re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X)\b")  # the brackets keep this line from finding itself
SLEEP = re.compile(r"\bsleep\s*\(")

TESTS = python_files(ROOT / "tests")
ALL = python_files(ROOT / "src", ROOT / "tests", ROOT / "bench")


def lines_with(pattern: re.Pattern[str], text: str) -> list[str]:
    """Quote the lines in which a pattern occurs, with their numbers."""
    return [f"{number}: {line.strip()}" for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def test_the_patterns_find_what_they_should() -> None:
    assert lines_with(UNDONE, "a\n# TO" + "DO: b") == ["2: # TO" + "DO: b"]
    assert lines_with(UNDONE, "# the todo list of XXXL shirts") == []
    assert lines_with(SLEEP, "time.sleep" + "(1)\nawait asyncio.sleep" + " (0)") != []
    assert lines_with(SLEEP, "asleep(1); sleeper(2)") == []


def test_there_are_files_to_look_at() -> None:
    assert Path(__file__) in TESTS
    assert SOURCE / "__init__.py" in ALL


@pytest.mark.parametrize("file", ALL, ids=relative)
def test_no_file_is_longer_than_a_reader_can_hold(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


@pytest.mark.parametrize("file", ALL, ids=relative)
def test_nothing_is_left_undone(file: Path) -> None:
    assert lines_with(UNDONE, file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", TESTS, ids=relative)
def test_no_test_sleeps(file: Path) -> None:
    assert lines_with(SLEEP, file.read_text(encoding="utf-8")) == [], "wait for a condition with a deadline instead"


@pytest.mark.parametrize("file", python_files(ROOT / "src"), ids=relative)
def test_every_module_says_what_it_is_for(file: Path) -> None:
    assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
