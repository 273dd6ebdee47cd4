"""Reads a pipeline from TOML. All mistakes are collected, each with the line and the key that it is about."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from odradek.spark.pipelines import ready, tables
from odradek.spark.pipelines.errors import Path as KeyPath
from odradek.spark.pipelines.errors import PipelineFileError, Problem, listed, nearest
from odradek.spark.pipelines.pipeline import Pipeline
from odradek.spark.pipelines.toml_lines import lines_of

SECTIONS = ("sources", "transforms", "sinks")
_LINE = re.compile(r"\s*\(at line (\d+), column (\d+)\)|\s*\(at end of document\)")


def read_toml(file: Path, text: str, settings: Sequence[tuple[str, object]] = ()) -> Pipeline:
    """The pipeline that a text declares; `settings` are keys with values that replace those of the text."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PipelineFileError(str(file), [_syntax_problem(error, text)]) from None
    lines = lines_of(text)
    problems: list[Problem] = []
    for key, value in settings:
        problems += _set(document, tuple(key.split(".")), value)
    if not problems:
        pipeline, problems = _read(document, file)
    if not problems:
        assert pipeline is not None
        pipeline.lines = lines
        problems = pipeline.problems()
    if problems:
        raise PipelineFileError(str(file), [problem.located(_line(lines, problem.path)) for problem in problems])
    assert pipeline is not None
    return pipeline


def _syntax_problem(error: tomllib.TOMLDecodeError, text: str) -> Problem:
    message = str(error)
    found = _LINE.search(message)
    line = int(found[1]) if found is not None and found[1] else text.count("\n") + 1
    return Problem((), f"no TOML: {_LINE.sub('', message)}", line)


def _line(lines: Mapping[KeyPath, int], path: KeyPath) -> int | None:
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)


def _read(document: dict[str, Any], file: Path) -> tuple[Pipeline | None, list[Problem]]:
    used, problems = _used(document)
    allowed = ["pipeline", "spark", *([used] if used else SECTIONS)]
    for name, value in document.items():
        if name not in allowed:
            problems.append(Problem((name,), _stranger(name, used, allowed)))
        elif not isinstance(value, Mapping):
            problems.append(Problem((name,), f"this must be a table: [{name}]"))
    if any(len(problem.path) == 1 and problem.path[0] in allowed for problem in problems):
        return None, problems
    if "pipeline" not in document:
        return None, [*problems, Problem((), "the table [pipeline] is missing, with at least a name")]
    pipeline, more = _head(document, file)
    problems += more
    steps = pipeline or Pipeline("checked", folder=file.parent)  # so that all mistakes are found at once
    problems += _use(steps, used, document) if used else _declare(steps, document)
    return pipeline, problems


def _used(document: Mapping[str, Any]) -> tuple[str | None, list[Problem]]:
    """The ready pipeline that a file names."""
    head = document.get("pipeline")
    name = head.get("use") if isinstance(head, Mapping) else None
    if not isinstance(name, str):
        return None, []
    if name in ready.READY:
        return name, []
    known = nearest(name, ready.READY) or f"; there are {listed(ready.READY)}"
    return None, [Problem(("pipeline", "use"), f"there is no ready pipeline '{name}'{known}")]


def _stranger(name: str, used: str | None, allowed: Sequence[str]) -> str:
    if used and name in SECTIONS:
        return f"a pipeline with use = \"{used}\" has its steps already: leave [{name}] away, or 'use'"
    if name in ready.READY and not used:
        return f'this is for a pipeline with use = "{name}" in [pipeline]'
    return f"there is no such table{nearest(name, allowed) or f'; there are {listed(allowed)}'}"


def _head(document: Mapping[str, Any], file: Path) -> tuple[Pipeline | None, list[Problem]]:
    found, problems = tables.check_pipeline(("pipeline",), document["pipeline"])
    settings, more = tables.check_spark(("spark",), document.get("spark", {}))
    if problems or more:
        return None, problems + more
    given = {name: value for name, value in found.items() if name != "use"}
    return Pipeline(**given, spark=settings, folder=file.parent), []


def _declare(pipeline: Pipeline, document: Mapping[str, Any]) -> list[Problem]:
    problems: list[Problem] = []
    for section in SECTIONS:
        for name, table in document.get(section, {}).items():
            if not isinstance(table, Mapping):
                problems.append(
                    Problem((section, name), f"this must be a table: [{section}.NAME], with a name of your choice")
                )
                continue
            try:
                pipeline.declare(section, name, table)
            except PipelineFileError as error:
                problems += [Problem(problem.path, problem.message) for problem in error.problems]
    return problems


def _use(pipeline: Pipeline, used: str, document: Mapping[str, Any]) -> list[Problem]:
    found, problems = ready.check(used, (used,), document.get(used, {}))
    if problems and used not in document:
        problems = [Problem(("pipeline", "use"), f"the table [{used}] is missing, with the parameters of {used}")]
    return problems or ready.build(pipeline, used, found)


def _set(document: dict[str, Any], path: tuple[str, ...], value: object) -> list[Problem]:
    """Put a value where a key would stand; tables that are not there are made."""
    if path[0] == "spark":  # the setting is called as a whole
        path = ("spark", ".".join(path[1:] if path[1:2] == ("spark",) else path))
    elif "options" in path[:-1]:
        where = path.index("options") + 1
        path = (*path[:where], ".".join(path[where:]))
    table: Any = document
    for number, part in enumerate(path[:-1]):
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            return [Problem(path[: number + 1], f"--set {'.'.join(path)}: this is a value and no table")]
    table[path[-1]] = value
    return []
