"""Parts a topic of JSON values: those that fit a schema go on, the others to `<topic>.dlq` with the reason.

A dead letter has the key, the value and the headers of the record as they were, and headers that say why it is one
and where it came from. Both kinds are written by a query of their own, each record once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek.model import topic_name_problem
from odradek.spark.pipelines.keys import Parameter
from odradek.spark.pipelines.ready import ParameterError
from odradek.spark.pipelines.ready.ddl import Column, quoted, text
from odradek.spark.pipelines.ready.places import SOURCE_OPTIONS, TARGET, TEXT_OF_VALUE, columns_in, use_utc, write_out

if TYPE_CHECKING:
    from odradek.spark.pipelines.pipeline import Pipeline

SUMMARY = "Send records that do not fit a schema to a topic of dead letters, with the reason, and the others on."

PARAMETERS: Mapping[str, Parameter] = MappingProxyType({
    "topic": Parameter("topic", "the topic to look at", required=True, example='"orders"'),
    "schema": Parameter("text", "the columns of the JSON values", required=True, example='"id BIGINT, amount DOUBLE"'),
    "required": Parameter("texts", "columns that must be there and not null", default=()),
    "dead_letters": Parameter("topic", "the topic of dead letters; without it the topic's name with .dlq"),
    **TARGET,
    "options": SOURCE_OPTIONS,
})  # fmt: skip

MALFORMED = "_malformed"
SHOWN_MAX = 60  # of a value that does not fit, in the reason
PLACE = ("topic", "partition", "offset", "timestamp")


def build(pipeline: Pipeline, parameters: Mapping[str, Any]) -> None:
    """A topic, parted."""
    columns = columns_in(parameters, "schema")
    names = [column.name for column in columns]
    for name in parameters["required"]:
        if name not in names:
            raise ParameterError("required", f"the schema has no column {name!r}: it has {', '.join(names)}")
    dead_letters = _dead_letters(parameters)
    use_utc(pipeline)
    pipeline.topic(
        "records", parameters["topic"], format="raw", options={"includeHeaders": "true", **parameters["options"]}
    )
    pipeline.sql("judged", _judged(parameters, columns), inputs=["records"])
    pipeline.sql("dead", _dead(), inputs=["judged"])
    pipeline.write_topic("dead", dead_letters, name="dead_letters", format="raw")
    if parameters["to_topic"] is not None:
        pipeline.sql("good", "SELECT key, value, headers FROM judged WHERE reason IS NULL", inputs=["judged"])
        pipeline.write_topic("good", parameters["to_topic"], name="good", format="raw")
        return
    kept = ", ".join(f"row.{quoted(name)}" for name in names)
    place = ", ".join(f"{name} AS _{name}" for name in ("key", *PLACE))
    pipeline.sql("good", f"SELECT {kept}, {place} FROM judged WHERE reason IS NULL", inputs=["judged"])
    write_out(pipeline, "good", parameters, name="good")


def _dead_letters(parameters: Mapping[str, Any]) -> str:
    name: str = parameters["dead_letters"] or f"{parameters['topic']}.dlq"
    if (problem := topic_name_problem(name)) is not None:
        raise ParameterError("dead_letters", f"{name} cannot be a topic: {problem}")
    if name == parameters["topic"]:
        raise ParameterError("dead_letters", "a topic that takes its own dead letters would never come to an end")
    return name


def _judged(parameters: Mapping[str, Any], columns: list[Column]) -> str:
    """Every record with what was read of its value and, if it is a dead letter, the reason."""
    options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{MALFORMED}')"
    schema = text(f"{parameters['schema']}, {MALFORMED} STRING")
    row = f"from_json({TEXT_OF_VALUE}, {schema}, {options})"
    parsed = f"SELECT *, {row} AS row, try_parse_json({TEXT_OF_VALUE}) AS json FROM records"
    missing = [
        f"WHEN row.{quoted(name)} IS NULL THEN {text(f'the column {name} is missing or null')}"
        for name in parameters["required"]
    ]
    return (
        "SELECT *, CASE WHEN value IS NULL THEN 'the value is null' "
        "WHEN NOT is_valid_utf8(value) THEN 'the value is no text in UTF-8' "
        "WHEN json IS NULL THEN 'the value is no JSON' "
        "WHEN schema_of_variant(json) NOT LIKE 'OBJECT%' THEN 'the value is no JSON object' "
        f"WHEN row.{MALFORMED} IS NOT NULL THEN {_misfit(columns)} {' '.join(missing)} END AS reason FROM ({parsed})"
    )


def _misfit(columns: list[Column]) -> str:
    """SQL for which fields do not fit. Spark's parser tells only that some do not: so each is tried by itself."""
    tries = [
        f"CASE WHEN variant_get(json, {path}, 'variant') IS NOT NULL"
        f" AND NOT is_variant_null(variant_get(json, {path}, 'variant'))"
        f" AND from_json(to_json(named_struct('it', variant_get(json, {path}, 'variant'))), "
        f"{text(f'it {column.type}')}).it IS NULL"
        f" THEN concat({text(f'{column.name} is not {column.type}: ')},"
        f" left(to_json(variant_get(json, {path}, 'variant')), {SHOWN_MAX})) END"
        for column in columns
        for path in (text(f"$[{json_name(column.name)}]"),)
    ]
    return f"coalesce(nullif(concat_ws('; ', {', '.join(tries)}), ''), 'the value does not fit the schema')"


def json_name(name: str) -> str:
    """A field's name in a path, quoted: it may have dots."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _dead() -> str:
    headers = [("reason", "reason"), *((name, f"CAST({name} AS STRING)") for name in PLACE)]
    added = ", ".join(
        f"named_struct('key', 'dlq.{name}', 'value', CAST({expression} AS BINARY))" for name, expression in headers
    )
    return (
        f"SELECT key, value, concat(coalesce(headers, array()), array({added})) AS headers "
        "FROM judged WHERE reason IS NOT NULL"
    )
