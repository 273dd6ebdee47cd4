"""Where a ready pipeline writes to and what time an event has: parameters that several of them share. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek.spark.pipelines.keys import Parameter
from odradek.spark.pipelines.ready import ParameterError
from odradek.spark.pipelines.ready.ddl import Column, columns_of, text

if TYPE_CHECKING:
    from odradek.spark.pipelines.pipeline import Pipeline

LAKES = ("parquet", "delta", "iceberg")
TIME_ZONE = "spark.sql.session.timeZone"
TEXT_OF_VALUE = "CAST(value AS STRING)"

LAKE: Mapping[str, Parameter] = MappingProxyType({
    "parquet": Parameter("path", "the folder of a table of Parquet files"),
    "delta": Parameter("path", "the folder of a Delta table"),
    "iceberg": Parameter("path", "the folder of an Iceberg table; its catalog is the file catalog.db beside it"),
    "table_options": Parameter("table", "more options of the table, as in the guide of the lake",
                               default=MappingProxyType({})),
})  # fmt: skip

TARGET: Mapping[str, Parameter] = MappingProxyType(
    {
        "to_topic": Parameter("topic", "the topic to write to"),
        **LAKE,
    }
)

EVENT_TIME: Mapping[str, Parameter] = MappingProxyType({
    "event_time": Parameter("text", "the field of the JSON value with the time of the event, as in at or payment.at;"
                            " without it, and where it cannot be read, the record's own time", example='"at"'),
    "event_time_unit": Parameter("text", "how that field is written: as a text (2026-01-31T12:00:00Z), or as a number"
                                 " of seconds or milliseconds since 1970", default="text",
                                 choices=("text", "seconds", "milliseconds")),
})  # fmt: skip

SOURCE_OPTIONS = Parameter("table", "options of the source, as startingOffsets", default=MappingProxyType({}))


def the_lake(parameters: Mapping[str, Any]) -> tuple[str, str]:
    """The format and the folder of the one table that was named."""
    named = _the_one(parameters, LAKES)
    return named, parameters[named]


def write_out(
    pipeline: Pipeline,
    source: str,
    parameters: Mapping[str, Any],
    *,
    name: str,
    key: str | None = None,
    mode: str = "append",
) -> None:
    """Write a step's rows to the topic, as JSON, or to the table that was named."""
    named = _the_one(parameters, ("to_topic", *LAKES))
    if named == "to_topic":
        pipeline.write_topic(source, parameters["to_topic"], name=name, key=key, mode=mode)
    else:
        pipeline.write_lake(source, named, parameters[named], name=name, options=parameters["table_options"])


def _the_one(parameters: Mapping[str, Any], names: Sequence[str]) -> str:
    named = [name for name in names if parameters[name] is not None]
    if len(named) != 1:
        given = f"{' and '.join(named)} are" if named else "none is"
        raise ParameterError(named[-1] if named else names[0], f"name one of {', '.join(names)}: {given} given")
    return named[0]


def use_utc(pipeline: Pipeline) -> None:
    """Read times without a zone as UTC, wherever the pipeline runs; what the file says about it wins."""
    pipeline.spark.setdefault(TIME_ZONE, "UTC")


def columns_in(parameters: Mapping[str, Any], name: str) -> list[Column]:
    """The columns that a parameter lists."""
    try:
        return columns_of(parameters[name])
    except ValueError as error:
        raise ParameterError(name, str(error)) from None


def field_of_value(path: str) -> str:
    """SQL for a field of a record's JSON value, as a text."""
    return f"get_json_object({TEXT_OF_VALUE}, {text('$.' + path)})"


def event_time(parameters: Mapping[str, Any]) -> str:
    """SQL for the time of an event, from a record's value and timestamp."""
    if parameters["event_time"] is None:
        return "timestamp"
    found = field_of_value(parameters["event_time"])
    if parameters["event_time_unit"] == "text":
        return f"coalesce(try_cast({found} AS TIMESTAMP), timestamp)"
    scale = 1_000_000 if parameters["event_time_unit"] == "seconds" else 1_000
    microseconds = f"try_cast(try_cast({found} AS DECIMAL(30, 6)) * {scale} AS BIGINT)"
    return f"coalesce(timestamp_micros({microseconds}), timestamp)"


def utc_date(time: str) -> str:
    """SQL for the day of a time in UTC, whatever the session's zone is."""
    return f"date_from_unix_date(CAST(floor(unix_micros({time}) / 86400000000) AS INT))"
