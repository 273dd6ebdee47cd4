"""Every key that a pipeline's file may have, with what it means. The methods of `Pipeline` take the same names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from odradek.spark.pipelines.errors import Path, Problem
from odradek.spark.pipelines.keys import Parameter, check_table, exactly_one

TRIGGER_DEFAULT = "1 second"
TOPIC_FORMATS = ("json", "csv", "string", "raw")
FILE_FORMATS = ("json", "csv", "parquet", "orc", "text")
METADATA = ("key", "topic", "partition", "offset", "timestamp", "headers")
NEED_SCHEMA = ("json", "csv", "parquet", "orc")
LAKES = ("parquet", "delta", "iceberg")

PIPELINE: Mapping[str, Parameter] = MappingProxyType({
    "name": Parameter("text", "what the pipeline is called, and the consumer group in which its lag is seen",
                      required=True),
    "use": Parameter("text", "a ready pipeline; 'odradek pipeline list' shows them"),
    "bootstrap": Parameter("text", "the broker's address; ODRADEK_BROKER or 127.0.0.1:9092 if there is none"),
    "checkpoint": Parameter("path", "the folder in which Spark keeps how far it has come"),
    "trigger": Parameter("duration", "how often --follow looks for new records", default=TRIGGER_DEFAULT),
})  # fmt: skip

SOURCE: Mapping[str, Parameter] = MappingProxyType({
    "topic": Parameter("topic", "the topic to read"),
    "topics": Parameter("topics", "the topics to read"),
    "pattern": Parameter("text", "a regular expression: all topics that match are read, new ones too"),
    "assign": Parameter("partitions", "the partitions to read, as in { orders = [0, 1] }"),
    "files": Parameter("path", "a folder or a pattern such as landing/*.json: files are read as they come"),
    "function": Parameter("function", "a function of the Spark session that returns a DataFrame"),
    "format": Parameter("text", "what the values or files hold"),
    "schema": Parameter("text", "the columns, as in 'id STRING, amount DOUBLE, at TIMESTAMP'"),
    "malformed": Parameter("text", "what becomes of a record that is not as the schema says: null (its columns are"
                           " null), drop or fail", default="null", choices=("null", "drop", "fail")),
    "metadata": Parameter("texts", "what else of a record becomes a column, with _ before its name", default=(),
                          choices=METADATA),
    "parsing": Parameter("table", "options of from_json or from_csv, as in { timestampFormat = 'dd.MM.yyyy HH:mm' }",
                         default=MappingProxyType({})),
    "watermark": Parameter("table", 'how late events may come: { column = "at", delay = "10 minutes" }'),
    "static": Parameter("flag", "read once as a table, to be joined with a stream", default=False),
    "bootstrap": Parameter("text", "another broker than the pipeline's"),
    "options": Parameter("table", "options of Spark's source", default=MappingProxyType({})),
})  # fmt: skip

WATERMARK: Mapping[str, Parameter] = MappingProxyType({
    "column": Parameter("text", "the column with the time of the event", required=True),
    "delay": Parameter("duration", "how much later than the newest an event may come", required=True),
})  # fmt: skip

TRANSFORM: Mapping[str, Parameter] = MappingProxyType({
    "sql": Parameter("text", "a query; sources and other transforms are its tables"),
    "sql_file": Parameter("path", "a file with the query"),
    "python": Parameter("text", "a function of DataFrames, as in steps.py:enrich; its parameters name its inputs"),
    "function": Parameter("function", "the function itself"),
    "inputs": Parameter("texts", "what it reads, where that cannot be seen from the query or the parameters"),
    "watermark": Parameter("table", 'how late events may come: { column = "at", delay = "10 minutes" }'),
})  # fmt: skip

SINK: Mapping[str, Parameter] = MappingProxyType({
    "from": Parameter("text", "the source or transform whose rows are written", required=True),
    "topic": Parameter("topic", "the topic to write to"),
    "parquet": Parameter("path", "the folder of a table of Parquet files"),
    "delta": Parameter("path", "the folder of a Delta table"),
    "iceberg": Parameter("text", "an Iceberg table"),
    "console": Parameter("flag", "print the rows"),
    "function": Parameter("function", "a function of a batch (DataFrame) and its number"),
    "format": Parameter("text", "how a row becomes a record's value: json, csv, string (the column 'value') or raw"
                        " (the columns are those of the sink)", default="json", choices=TOPIC_FORMATS),
    "key": Parameter("text", "the record's key: a column, or an SQL expression"),
    "mode": Parameter("text", "append, update or complete: what of an aggregation is written; a lake table takes append"
                      " or upsert (one row for each of the keys)", default="append",
                      choices=("append", "update", "complete", "upsert")),
    "keys": Parameter("texts", "the columns that tell one row of a lake table from another, for mode upsert",
                      default=()),
    "partition_by": Parameter("texts", "columns by which a lake table is divided into folders", default=()),
    "rows": Parameter("whole", "how many rows of a batch the console shows", default=20),
    "bootstrap": Parameter("text", "another broker than the pipeline's"),
    "options": Parameter("table", "options of the sink", default=MappingProxyType({})),
})  # fmt: skip

SOURCE_KINDS = ("topic", "topics", "pattern", "assign", "files")
TRANSFORM_KINDS = ("sql", "sql_file", "python")
SINK_KINDS = ("topic", "parquet", "delta", "iceberg", "console")
PLACES = ("topic", "topics", "pattern", "assign")

# Keys that mean something for some kinds only: what they are for, by kind.
_ONLY_FOR: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "source": {"metadata": PLACES, "malformed": PLACES, "parsing": PLACES, "bootstrap": PLACES},
    "sink": {
        "format": ("topic",), "key": ("topic",), "bootstrap": ("topic",), "partition_by": LAKES, "keys": LAKES,
        "rows": ("console",),
    },
}  # fmt: skip


def check_pipeline(path: Path, given: Mapping[str, object]) -> tuple[dict[str, Any], list[Problem]]:
    """The table [pipeline]."""
    found, problems = check_table(path, given, PIPELINE)
    if "name" in found and (problem := name_problem(found["name"])):
        problems.append(Problem((*path, "name"), problem))
    return found, problems


def check_spark(path: Path, given: Mapping[str, object]) -> tuple[dict[str, str], list[Problem]]:
    """The table [spark]: any setting of Spark."""
    try:
        settings: dict[str, str] = Parameter("table", "").checked(given)
    except ValueError as error:
        return {}, [Problem(path, str(error))]
    strange = [name for name in settings if not name.startswith("spark.")]
    problems = [
        Problem((*path, name), f"Spark's settings begin with 'spark.'; did you mean 'spark.{name}'?")
        for name in strange
    ]
    return settings, problems


def check_source(path: Path, given: Mapping[str, object]) -> tuple[dict[str, Any], list[Problem]]:
    """A table [sources.NAME]."""
    found, problems = check_table(path, given, _without_functions(SOURCE, given))
    problems += _kind_problems(path, given, SOURCE_KINDS, _ONLY_FOR["source"])
    problems += _check_watermark(path, given, found)
    if found.get("watermark") and found.get("static"):
        problems.append(Problem((*path, "watermark"), "a static table has no watermark: it is read once"))
    if not problems:
        problems += _format_problems(path, given, found)
    return found, problems


def check_transform(path: Path, given: Mapping[str, object]) -> tuple[dict[str, Any], list[Problem]]:
    """A table [transforms.NAME]."""
    found, problems = check_table(path, given, _without_functions(TRANSFORM, given))
    problems += _kind_problems(path, given, TRANSFORM_KINDS, {})
    problems += _check_watermark(path, given, found)
    return found, problems


def check_sink(path: Path, given: Mapping[str, object]) -> tuple[dict[str, Any], list[Problem]]:
    """A table [sinks.NAME]."""
    found, problems = check_table(path, given, _without_functions(SINK, given))
    problems += _kind_problems(path, given, SINK_KINDS, _ONLY_FOR["sink"])
    if found.get("console") is False and "console" in given:
        problems.append(Problem((*path, "console"), "write true, or leave the sink away"))
    if not problems and (problem := _mode_problem(found)):
        problems.append(Problem((*path, "mode"), problem))
    return found, problems


def _mode_problem(found: Mapping[str, Any]) -> str | None:
    lake = next((kind for kind in LAKES if found[kind] is not None), None)
    if lake is None and found["mode"] == "upsert":
        return "upsert is for lake tables: parquet, delta and iceberg"
    if lake is not None and found["mode"] not in ("append", "upsert"):
        return (
            f"a {lake} table takes append (aggregations need a watermark then) or upsert, with the keys that tell rows"
            " apart"
        )
    return None


def name_problem(name: str) -> str | None:
    """What is wrong with the name of a pipeline or a sink, which becomes a folder's and a consumer group's."""
    if name in (".", "..") or not name.isascii() or not name.replace("-", "a").replace(".", "a").isidentifier():
        return f"{name!r} cannot be a name: it begins with a letter and goes on with letters, digits, '.', '_' and '-'"
    return None


def _without_functions(allowed: Mapping[str, Parameter], given: Mapping[str, object]) -> Mapping[str, Parameter]:
    """A file cannot hold a function: it is no key there, and nothing to suggest."""
    if callable(given.get("function")):
        return allowed
    return {name: parameter for name, parameter in allowed.items() if parameter.kind != "function"}


def _kind_problems(
    path: Path, given: Mapping[str, object], kinds: tuple[str, ...], only_for: Mapping[str, tuple[str, ...]]
) -> list[Problem]:
    if callable(given.get("function")):
        kinds = (*kinds, "function")
    problems = exactly_one(path, given, kinds)
    if not problems:
        kind = next(name for name in kinds if name in given)
        problems += [
            Problem((*path, name), f"this is for {' and '.join(owners)}, not for {kind}")
            for name, owners in only_for.items()
            if name in given and kind not in owners
        ]
    return problems


def _check_watermark(path: Path, given: Mapping[str, object], found: dict[str, Any]) -> list[Problem]:
    watermark = given.get("watermark")
    if not isinstance(watermark, Mapping):
        return []
    found["watermark"], problems = check_table((*path, "watermark"), watermark, WATERMARK)
    return [problem for problem in problems if problem.path[-1] != "watermark"] + [
        Problem((*path, "watermark"), problem.message) for problem in problems if problem.path[-1] == "watermark"
    ]


def _format_problems(path: Path, given: Mapping[str, object], found: dict[str, Any]) -> list[Problem]:
    """What the format must be, and what goes with it; fills in the one that topics have if none is named."""
    if "function" in given:
        missing = not found["schema"]
        return [Problem(path, f"'schema' is missing: {SOURCE['schema'].summary}")] if missing else []
    is_files = "files" in given
    formats = FILE_FORMATS if is_files else TOPIC_FORMATS
    if found["format"] is None:
        if is_files:
            return [Problem(path, f"'format' is missing: one of {', '.join(formats)}")]
        found["format"] = "json" if found["schema"] else "raw"
    try:
        Parameter("text", "", choices=formats).checked(found["format"])
    except ValueError as error:
        return [Problem((*path, "format"), str(error))]
    name = found["format"]
    if name in NEED_SCHEMA and not found["schema"]:
        return [Problem(path, f"'schema' is missing, which {name} needs: {SOURCE['schema'].summary}")]
    if name not in NEED_SCHEMA and found["schema"]:
        return [Problem((*path, "schema"), f"a source of the format {name} has its own columns")]
    if name == "raw" and found["metadata"]:
        return [Problem((*path, "metadata"), "raw has all columns of a record already")]
    return []
