"""A pipeline as it is declared: by a Python file that calls these methods, or by a TOML file of the same names.

    pipeline = Pipeline("revenue")
    pipeline.topic("orders", schema="customer STRING, amount DOUBLE")
    pipeline.sql("totals", "SELECT customer, sum(amount) AS amount FROM orders GROUP BY customer")
    pipeline.write_topic("totals", "revenue", key="customer", mode="update")

Declaring touches nothing: `odradek pipeline run` does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from odradek.spark.pipelines import tables
from odradek.spark.pipelines.errors import Path as KeyPath
from odradek.spark.pipelines.errors import PipelineFileError, Problem
from odradek.spark.pipelines.graph import graph_problems
from odradek.spark.pipelines.model import Sink, Source, Transform, absolute
from odradek.spark.pipelines.places import default_bootstrap, folder_of
from odradek.spark.pipelines.steps import make_step

Function = TypeVar("Function", bound=Callable[..., Any])
StepLike = str | Callable[..., Any]

PACKAGE = __name__.rpartition(".")[0]

# The folder against which relative paths are meant while a file is loaded; the current one otherwise.
FOLDER: ContextVar[Path | None] = ContextVar("FOLDER", default=None)


class Pipeline:
    """Sources, transforms and sinks by their names, and what they share."""

    def __init__(
        self,
        name: str,
        *,
        bootstrap: str | None = None,
        checkpoint: str | None = None,
        trigger: str = tables.TRIGGER_DEFAULT,
        spark: Mapping[str, str | int | float | bool] | None = None,
        folder: Path | None = None,
    ) -> None:
        """`folder` is what relative paths are relative to: that of the file, or the current one."""
        self.folder = (folder or FOLDER.get() or Path.cwd()).absolute()
        self.sources: dict[str, Source] = {}
        self.transforms: dict[str, Transform] = {}
        self.sinks: dict[str, Sink] = {}
        self.lines: dict[KeyPath, int] = {}  # of what is declared, where that is known
        given = {"name": name, "bootstrap": bootstrap, "checkpoint": checkpoint, "trigger": trigger}
        found, problems = tables.check_pipeline(("pipeline",), _present(given))
        settings, more = tables.check_spark(("spark",), spark or {})
        self.complain(problems + more)
        self.name: str = found["name"]
        self.bootstrap: str = found["bootstrap"] or default_bootstrap()
        self.trigger: str = found["trigger"]
        self.spark: dict[str, str] = settings
        self.checkpoint = (
            absolute(self.folder, found["checkpoint"])
            if found["checkpoint"]
            else str(folder_of(self.name) / "checkpoints")
        )

    # Sources

    def topic(
        self,
        name: str,
        topic: str | Sequence[str] | None = None,
        *,
        pattern: str | None = None,
        assign: Mapping[str, Sequence[int]] | None = None,
        format: str | None = None,  # noqa: A002 (as the key is called)
        schema: str | None = None,
        malformed: str | None = None,
        metadata: Sequence[str] | None = None,
        parsing: Mapping[str, str | int | bool] | None = None,
        watermark: tuple[str, str] | None = None,
        static: bool = False,
        bootstrap: str | None = None,
        options: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        """Read one or several topics; without a name, a pattern or partitions, the one that is called as the source."""
        topics = topic if topic or pattern or assign else name
        self.declare("sources", name, _present({
            "topics": topics, "pattern": pattern, "assign": assign, "format": format, "schema": schema,
            "malformed": malformed, "metadata": metadata, "parsing": parsing, "watermark": _watermark(watermark),
            "static": static or None, "bootstrap": bootstrap, "options": options,
        }))  # fmt: skip

    def files(
        self,
        name: str,
        path: str,
        format: str,  # noqa: A002
        *,
        schema: str | None = None,
        watermark: tuple[str, str] | None = None,
        static: bool = False,
        options: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        """Read the files of a folder, and those that come."""
        self.declare("sources", name, _present({
            "files": path, "format": format, "schema": schema, "watermark": _watermark(watermark),
            "static": static or None, "options": options,
        }))  # fmt: skip

    def source(
        self,
        name: str,
        function: Callable[..., Any],
        schema: str,
        *,
        watermark: tuple[str, str] | None = None,
        static: bool = False,
    ) -> None:
        """Read what a function of the Spark session returns: a DataFrame of that schema, a stream unless static."""
        self.declare("sources", name, _present({
            "function": function, "schema": schema, "watermark": _watermark(watermark), "static": static or None,
        }))  # fmt: skip

    # Transforms

    def sql(
        self,
        name: str,
        query: str,
        *,
        inputs: Sequence[str] | None = None,
        watermark: tuple[str, str] | None = None,
    ) -> None:
        """Add a query, whose tables are sources and other transforms."""
        given = {"sql": query, "inputs": inputs, "watermark": _watermark(watermark)}
        self.declare("transforms", name, _present(given))

    def transform(self, function: Function) -> Function:
        """Add a function of DataFrames under its own name; its parameters name its inputs. A decorator."""
        self.add(function.__name__, function)
        return function

    def add(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        inputs: Sequence[str] | None = None,
        watermark: tuple[str, str] | None = None,
    ) -> None:
        """Add a function of DataFrames under another name, or with other inputs than its parameters name."""
        given = {"function": function, "inputs": inputs, "watermark": _watermark(watermark)}
        self.declare("transforms", name, _present(given))

    # Sinks

    def write_topic(
        self,
        source: StepLike,
        topic: str,
        *,
        name: str | None = None,
        format: str = "json",  # noqa: A002
        key: str | None = None,
        mode: str = "append",
        bootstrap: str | None = None,
        options: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        """Write a step's rows to a topic."""
        self.declare("sinks", name or topic, _present({
            "from": _step(source), "topic": topic, "format": format, "key": key, "mode": mode, "bootstrap": bootstrap,
            "options": options,
        }))  # fmt: skip

    def write_lake(
        self,
        source: StepLike,
        kind: str,
        path: str,
        *,
        name: str | None = None,
        partition_by: Sequence[str] | None = None,
        mode: str = "append",
        keys: Sequence[str] | None = None,
        options: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        """Add a step's rows to a table (parquet, delta or iceberg), or with mode="upsert" keep one for each key."""
        if kind not in tables.LAKES:
            self.complain([Problem(("sinks", name or kind), f"'{kind}' is not one of {', '.join(tables.LAKES)}")])
        self.declare("sinks", name or kind, _present({
            "from": _step(source), kind: path, "partition_by": partition_by, "mode": mode, "keys": keys,
            "options": options,
        }))  # fmt: skip

    def write_console(
        self, source: StepLike, *, name: str = "console", mode: str = "append", rows: int | None = None
    ) -> None:
        """Print a step's rows."""
        self.declare("sinks", name, _present({"from": _step(source), "console": True, "mode": mode, "rows": rows}))

    def write(self, source: StepLike, function: Callable[..., Any], *, name: str, mode: str = "append") -> None:
        """Call a function with each batch of a step's rows (a DataFrame) and its number.

        After a crash the batch under way comes again with its number: the function must know it again.
        """
        self.declare("sinks", name, {"from": _step(source), "function": function, "mode": mode})

    # Both kinds of files end here.

    def declare(self, section: str, name: str, given: Mapping[str, object]) -> None:
        """Add one step from the keys of its table; a PipelineFileError names all that is wrong with them."""
        path = (section, name)
        line = self._called_from()[1]
        if line is not None:
            self.lines.setdefault(path, line)
        step, problems = make_step(section, name, given, self.folder)
        problems += self._name_problems(section, name)
        self.complain(problems)
        getattr(self, section)[name] = step

    def problems(self) -> list[Problem]:
        """What is wrong with how the steps refer to each other."""
        found = graph_problems(self.sources, self.transforms, self.sinks)
        return [problem.located(self.line_of(problem.path)) for problem in found]

    def absolute(self, path: str) -> str:
        """A path of the pipeline: relative ones are relative to the folder of its file."""
        return absolute(self.folder, path)

    def line_of(self, path: KeyPath) -> int | None:
        """The line of a key, or else of the table that it stands in."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return None

    def _name_problems(self, section: str, name: str) -> list[Problem]:
        taken = {
            step.lower(): step for step in (self.sinks if section == "sinks" else [*self.sources, *self.transforms])
        }
        if name.lower() in taken:
            return [Problem((section, name), f"there is already a step '{taken[name.lower()]}'")]
        return []

    def complain(self, problems: Sequence[Problem]) -> None:
        """Refuse what somebody declared, with the line from which that was done."""
        if problems:
            file, line = self._called_from()
            raise PipelineFileError(file, [problem.located(line) for problem in problems])

    @staticmethod
    def _called_from() -> tuple[str, int | None]:
        """The place outside of this package from which a method was called."""
        frame = sys._getframe()
        while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(PACKAGE):
            if frame.f_back is None:
                break
            frame = frame.f_back
        return frame.f_code.co_filename, frame.f_lineno


def _present(given: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in given.items() if value is not None}


def _watermark(given: tuple[str, str] | Mapping[str, str] | None) -> object:
    if isinstance(given, tuple | list) and len(given) == 2:
        return {"column": given[0], "delay": given[1]}
    return given


def _step(given: StepLike) -> str:
    return given if isinstance(given, str) else given.__name__
