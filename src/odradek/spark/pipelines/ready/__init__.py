"""Pipelines that need only parameters: a file says `use = "archive"` and has a table `[archive]`.

    [pipeline]
    name = "orders-archive"
    use = "archive"

    [archive]
    topics = ["orders"]
    parquet = "lake/orders"

READY names them, each with a module of this package that has

- `SUMMARY`: one line, shown by `odradek pipeline list`;
- `PARAMETERS`: a mapping of names to `Parameter`, by which the table is checked (unknown names, wrong types, missing
  ones and values that are not among the choices are refused with file and line) and `odradek pipeline new` is written;
- `build(pipeline, parameters)`: adds the sources, transforms and sinks to the `Pipeline` by its methods (topic, files,
  source; sql, add; write_topic, write_lake, write). It has its name, broker, trigger, checkpoint and Spark settings
  already. `parameters` has every name of PARAMETERS, defaults filled in, kinds as declared in `keys.Kind`: "texts" is
  always a tuple, "table" a dict of texts, and a relative "path" has been made absolute against the folder of the file.
  What only `build` can find wrong is a `ParameterError(name, message)`, which is told with file and line.

From Python: `ready.add(Pipeline("orders-archive"), "archive", topics=["orders"], parquet="lake/orders")`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek.spark.pipelines.errors import (
    ParameterError,
    Path,
    PipelineError,
    PipelineFileError,
    Problem,
    listed,
    nearest,
)
from odradek.spark.pipelines.keys import Parameter, check_table

if TYPE_CHECKING:
    from odradek.spark.pipelines.pipeline import Pipeline

__all__ = ["READY", "Parameter", "ParameterError", "add", "build", "check", "parameters_of", "summary_of"]

READY: Mapping[str, str] = MappingProxyType({
    "archive": f"{__name__}.archive",
    "replay": f"{__name__}.replay",
    "windowed_counts": f"{__name__}.windowed_counts",
    "join": f"{__name__}.join",
    "dead_letters": f"{__name__}.dead_letters",
    "latest_state": f"{__name__}.latest_state",
})  # fmt: skip


def _module(name: str) -> Any:
    return importlib.import_module(READY[name])


def summary_of(name: str) -> str:
    """What a ready pipeline does, in one line."""
    summary: str = _module(name).SUMMARY
    return summary


def parameters_of(name: str) -> Mapping[str, Parameter]:
    """What the table of a ready pipeline may have."""
    parameters: Mapping[str, Parameter] = _module(name).PARAMETERS
    return parameters


def check(name: str, path: Path, given: Mapping[str, object]) -> tuple[dict[str, Any], list[Problem]]:
    """The parameters with defaults filled in, and what is wrong with them."""
    return check_table(path, given, parameters_of(name))


def build(pipeline: Pipeline, name: str, parameters: Mapping[str, Any]) -> list[Problem]:
    """Add the steps of a ready pipeline; what is wrong with its parameters is returned."""
    try:
        _module(name).build(pipeline, _with_absolute_paths(pipeline, parameters_of(name), parameters))
    except ParameterError as error:
        return [Problem((name, error.name), error.message)]
    except PipelineFileError as error:  # a step that could not be declared, since a parameter makes no sense there
        return [Problem((name,), problem.message) for problem in error.problems]
    return []


def add(pipeline: Pipeline, name: str, **parameters: object) -> None:
    """Add the steps of a ready pipeline to one that is written in Python."""
    if name not in READY:
        known = nearest(name, READY) or f"; there are {listed(READY)}"
        raise PipelineError(f"there is no ready pipeline '{name}'{known}")
    found, problems = check(name, (name,), parameters)
    pipeline.complain(problems or build(pipeline, name, found))


def _with_absolute_paths(
    pipeline: Pipeline, allowed: Mapping[str, Parameter], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        name: pipeline.absolute(value) if value is not None and allowed[name].kind == "path" else value
        for name, value in parameters.items()
    }
