"""Makes the step that a checked table describes. Reads the files that it names (SQL, Python), and nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from odradek.spark.errors import SparkError
from odradek.spark.lake import open_sink
from odradek.spark.option_names import BOOTSTRAP
from odradek.spark.options import Mode, ReadOptions, WriteOptions
from odradek.spark.pipelines import model, tables
from odradek.spark.pipelines.errors import Path as KeyPath
from odradek.spark.pipelines.errors import PipelineError, Problem, nearest
from odradek.spark.pipelines.model import Watermark, absolute
from odradek.spark.pipelines.modules import load_module
from odradek.spark.pipelines.places import BOOTSTRAP_DEFAULT
from odradek.spark.pipelines.sql_inputs import query_problem

SESSION_PARAMETER = "spark"


def make_step(
    section: str, name: str, given: Mapping[str, object], folder: Path
) -> tuple[model.Source | model.Transform | model.Sink | None, list[Problem]]:
    """A step of a section ("sources", "transforms", "sinks"), and what is wrong with its table."""
    path = (section, name)
    check = {"sources": tables.check_source, "transforms": tables.check_transform, "sinks": tables.check_sink}[section]
    found, problems = check(path, given)
    problems = [*_name_problems(path, name), *problems]
    if problems:
        return None, problems
    try:
        if section == "sources":
            return _source(name, found, folder), []
        if section == "sinks":
            return _sink(name, found, folder), []
        return _transform(name, found, folder), []
    except _TransformError as error:
        return None, [Problem((*path, error.key), str(error))]
    except SparkError as error:  # the options of a source or a sink are those of somebody else
        return None, [Problem((*path, "options") if "options" in given else path, str(error))]


def _name_problems(path: KeyPath, name: str) -> list[Problem]:
    if path[0] == "sinks":
        problem = tables.name_problem(name)
    elif name.isascii() and name.isidentifier() and name != SESSION_PARAMETER:
        problem = None
    else:
        problem = (
            f"{name!r} cannot be the name of a table in SQL: it begins with a letter and goes on with letters, digits"
            f" and '_', and is not '{SESSION_PARAMETER}'"
        )
    return [] if problem is None else [Problem(path, problem)]


def _watermark(found: Mapping[str, Any]) -> Watermark | None:
    return Watermark(**found["watermark"]) if found["watermark"] else None


def _source(name: str, found: Mapping[str, Any], folder: Path) -> model.Source:
    watermark, static = _watermark(found), found["static"]
    if found.get("function") is not None:
        return model.FunctionSource(
            name=name, function=found["function"], schema=found["schema"], watermark=watermark, static=static
        )
    if found["files"] is not None:
        return model.FileSource(
            name=name, path=absolute(folder, found["files"]), format=found["format"], schema=found["schema"],
            watermark=watermark, static=static, options=found["options"],
        )  # fmt: skip
    strategy, subscribed = _subscription(found)
    source = model.TopicSource(
        name=name, strategy=strategy, subscribed=subscribed, bootstrap=found["bootstrap"], format=found["format"],
        schema=found["schema"], malformed=found["malformed"], metadata=found["metadata"], parsing=found["parsing"],
        watermark=watermark, static=static, options=found["options"],
    )  # fmt: skip
    ReadOptions.parse(read_options(source, BOOTSTRAP_DEFAULT), Mode.BATCH if static else Mode.STREAM)
    return source


def read_options(source: model.TopicSource, bootstrap: str) -> dict[str, str]:
    """The options with which Spark reads a topic. A new pipeline begins with the first record, if it is not told."""
    columns = {} if source.format == "raw" else {"columns": ",".join(("value", *source.metadata))}
    told = any(name.lower().startswith("starting") for name in source.options)
    start = {} if told or source.static else {"startingOffsets": "earliest"}
    own = {BOOTSTRAP: source.bootstrap or bootstrap, source.strategy: source.subscribed}
    return own | columns | start | dict(source.options)


def write_options(sink: model.TopicSink, bootstrap: str) -> dict[str, str]:
    """The options with which Spark writes to a topic."""
    return {BOOTSTRAP: sink.bootstrap or bootstrap, "topic": sink.topic} | dict(sink.options)


def _subscription(found: Mapping[str, Any]) -> tuple[str, str]:
    if found["pattern"] is not None:
        return "subscribePattern", found["pattern"]
    if found["assign"] is not None:
        return "assign", found["assign"]
    topics = found["topics"] or (found["topic"],)
    return "subscribe", ",".join(dict.fromkeys(topics))


class _TransformError(ValueError):
    """A transform's query or function cannot be had."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def _transform(name: str, found: Mapping[str, Any], folder: Path) -> model.Transform:
    watermark = _watermark(found)
    if found["sql"] is not None or found["sql_file"] is not None:
        key = "sql" if found["sql"] is not None else "sql_file"
        query = found["sql"] or _read(Path(absolute(folder, found["sql_file"])))
        if (problem := query_problem(query)) is not None:
            raise _TransformError(key, problem)
        return model.SqlTransform(name=name, query=query, inputs=found["inputs"], watermark=watermark)
    key = "python" if found["python"] else "function"
    function = found.get("function") or _named_function(found["python"], folder)
    parameters = _parameters_of(function, key)
    inputs = found["inputs"] or parameters
    if len(inputs) != len(parameters):
        raise _TransformError("inputs", f"the function takes {len(parameters)} inputs: {', '.join(parameters)}")
    return model.FunctionTransform(
        name=name, function=function, parameters=parameters, inputs=inputs, watermark=watermark,
        takes_session=SESSION_PARAMETER in inspect.signature(function).parameters,
    )  # fmt: skip


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise _TransformError("sql_file", f"{file} cannot be read: {reason}") from None


def _named_function(reference: str, folder: Path) -> Callable[..., Any]:
    file_name, colon, name = reference.rpartition(":")
    if not colon or not file_name or not name.isidentifier():
        raise _TransformError("python", f"{reference!r} names no function: write FILE:FUNCTION, as in steps.py:enrich")
    file = Path(absolute(folder, file_name))
    try:
        module = load_module(file)
    except PipelineError as error:
        raise _TransformError("python", str(error)) from None
    function = getattr(module, name, None)
    if function is None:
        functions = [one for one, value in vars(module).items() if callable(value)]
        raise _TransformError("python", f"{file} has no function '{name}'{nearest(name, functions)}")
    if not callable(function):
        raise _TransformError("python", f"'{name}' of {file} is no function")
    found: Callable[..., Any] = function
    return found


def _parameters_of(function: Callable[..., Any], key: str) -> tuple[str, ...]:
    """The names of a function's parameters, which are those of its inputs."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind not in named for parameter in parameters):
        raise _TransformError(key, "each parameter of the function names one of its inputs: there can be no * and no /")
    inputs = tuple(
        parameter.name
        for parameter in parameters
        if parameter.name != SESSION_PARAMETER and parameter.default is inspect.Parameter.empty
    )
    if not inputs:
        raise _TransformError(key, "the function has no parameter: each names one of its inputs, as in enrich(orders)")
    return inputs


def _sink(name: str, found: Mapping[str, Any], folder: Path) -> model.Sink:
    source, mode = found["from"], found["mode"]
    if found.get("function") is not None:
        return model.FunctionSink(name=name, source=source, function=found["function"], mode=mode)
    if found["console"] is not None:
        return model.ConsoleSink(name=name, source=source, rows=found["rows"], mode=mode)
    if found["topic"] is not None:
        sink = model.TopicSink(
            name=name, source=source, topic=found["topic"], bootstrap=found["bootstrap"], format=found["format"],
            key=found["key"], mode=mode, options=found["options"],
        )  # fmt: skip
        WriteOptions.parse(write_options(sink, BOOTSTRAP_DEFAULT))
        return sink
    kind = next(kind for kind in tables.LAKES if found[kind] is not None)
    lake_sink = model.LakeSink(
        name=name, source=source, kind=kind, path=absolute(folder, found[kind]), partition_by=found["partition_by"],
        mode=mode, keys=found["keys"], options=found["options"],
    )  # fmt: skip
    open_lake(lake_sink, name)
    return lake_sink


def open_lake(sink: model.LakeSink, sink_id: str) -> Callable[[Any, int], None]:
    """The function that writes a batch to a lake table; nothing is written before it is called."""
    return open_sink(
        sink.kind, sink.path, sink_id=sink_id, partition_by=sink.partition_by,
        mode="upsert" if sink.mode == "upsert" else "append", keys=sink.keys, options=sink.options,
    )  # fmt: skip
