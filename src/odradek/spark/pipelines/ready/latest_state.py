"""Turns a topic of changes into a table of what is: one row for each key, the latest; a null value deletes it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek.spark.pipelines.keys import Parameter
from odradek.spark.pipelines.ready import ParameterError
from odradek.spark.pipelines.ready.ddl import quoted, text
from odradek.spark.pipelines.ready.places import LAKE, SOURCE_OPTIONS, TEXT_OF_VALUE, columns_in, the_lake, use_utc

if TYPE_CHECKING:
    from odradek.spark.pipelines.pipeline import Pipeline

SUMMARY = "Keep the latest state of each key of a topic of changes in a table."

PARAMETERS: Mapping[str, Parameter] = MappingProxyType({
    "topic": Parameter("topic", "the topic of changes", required=True, example='"customers"'),
    "schema": Parameter("text", "the columns of the JSON values", required=True, example='"name STRING, city STRING"'),
    "key_schema": Parameter("text", "the columns of the JSON keys; without it the key is a text, the column key",
                            example='"id BIGINT"'),
    **LAKE,
    "envelope": Parameter("text", "none: the value is the row; debezium: the row is its field after, and op says if it"
                          " was deleted", default="none", choices=("none", "debezium")),
    "order": Parameter("text", "which of two changes of a key is the later one: offset, for topics whose keys stay in"
                       " their partitions; timestamp; or a column of the schema", default="offset"),
    "deletes": Parameter("text", "remove: a deleted row is gone; keep: it stays with _deleted true, so that a change"
                         " that comes too late does not bring it back", default="remove", choices=("remove", "keep")),
    "compact_every": Parameter("whole", "tidy the table after so many batches; 0 is never", default=20),
    "options": SOURCE_OPTIONS,
})  # fmt: skip

ORDERS = {"offset": "_offset", "timestamp": "_timestamp,_offset"}
MALFORMED = "_malformed"
LENIENT = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{MALFORMED}')"


def build(pipeline: Pipeline, parameters: Mapping[str, Any]) -> None:
    """A topic of changes into a table that is kept up to date."""
    kind, path = the_lake(parameters)
    keys, columns = _columns(parameters)
    use_utc(pipeline)
    options = {"columns": "key,value,partition,offset,timestamp", **parameters["options"]}
    pipeline.topic("changes", parameters["topic"], format="raw", options=options)
    key, (change, row, deleted) = _key(parameters), _change(parameters)
    pipeline.sql("parsed", f"SELECT *, {key} AS keys, {change} AS change FROM changes", inputs=["changes"])
    kept = [*(f"keys.{quoted(name)}" for name in keys), *(f"{row}.{quoted(name)}" for name in columns)]
    pipeline.sql(
        "rows",
        f"SELECT {', '.join(kept)}, partition AS _partition, offset AS _offset, timestamp AS _timestamp, "
        f"{_checked(parameters['topic'])} {deleted} END AS _deleted FROM parsed",
        inputs=["parsed"],
    )
    marker = {"deleted": "_deleted"} if parameters["deletes"] == "remove" else {}
    order = ORDERS.get(parameters["order"], f"{parameters['order']},_offset")
    tidy = {"compact_every": parameters["compact_every"]}
    pipeline.write_lake(
        "rows",
        kind,
        path,
        name="state",
        mode="upsert",
        keys=keys,
        options={"order_by": order, **marker, **tidy, **parameters["table_options"]},
    )


def _columns(parameters: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The names of the key's columns and of the others. Values often repeat the key: then the key's is kept."""
    columns = [column.name for column in columns_in(parameters, "schema")]
    if parameters["order"] not in (*ORDERS, *columns):
        raise ParameterError("order", f"it is offset, timestamp or one of {', '.join(columns)}")
    if parameters["key_schema"] is not None:
        keys = [column.name for column in columns_in(parameters, "key_schema")]
        return keys, [name for name in columns if name not in keys]
    if "key" in columns:
        raise ParameterError("schema", "the column key is the record's key: leave it out, or set key_schema")
    return ["key"], columns


def _key(parameters: Mapping[str, Any]) -> str:
    if parameters["key_schema"] is None:
        return "named_struct('key', CAST(key AS STRING))"
    return f"from_json(CAST(key AS STRING), {text(parameters['key_schema'])})"


def _change(parameters: Mapping[str, Any]) -> tuple[str, str, str]:
    """SQL for what a value says, for the row in it, and for whether it is a deletion."""
    schema, row, deleted = parameters["schema"], "change", "value IS NULL"
    if parameters["envelope"] == "debezium":
        fields = ", ".join(f"{quoted(column.name)}: {column.type}" for column in columns_in(parameters, "schema"))
        schema, row, deleted = f"op STRING, after STRUCT<{fields}>", "change.after", "coalesce(change.op = 'd', true)"
    whole = text(f"{schema}, {MALFORMED} STRING")
    return f"from_json({TEXT_OF_VALUE}, {whole}, {LENIENT})", row, deleted


def _checked(topic: str) -> str:
    """SQL that fails the pipeline at a value that is not as the schema says: the table would be wrong without it."""
    where = f"concat({text(topic + '-')}, partition, ' offset ', offset)"
    what = f"concat('the value of ', {where}, ' is not as the schema says: ', left({TEXT_OF_VALUE}, 100))"
    return (
        f"CASE WHEN value IS NOT NULL AND (change IS NULL OR change.{MALFORMED} IS NOT NULL) "
        f"THEN raise_error({what}) ELSE"
    )
