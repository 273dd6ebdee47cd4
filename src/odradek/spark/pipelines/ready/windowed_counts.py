"""Counts records in windows of event time, by key, topic or fields of their JSON values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek.spark.pipelines.keys import Parameter
from odradek.spark.pipelines.ready import ParameterError
from odradek.spark.pipelines.ready.ddl import quoted, text
from odradek.spark.pipelines.ready.places import (
    EVENT_TIME,
    SOURCE_OPTIONS,
    TARGET,
    event_time,
    field_of_value,
    use_utc,
    write_out,
)

if TYPE_CHECKING:
    from odradek.spark.pipelines.pipeline import Pipeline

SUMMARY = "Count records in windows of time, by key, topic or fields of their values."

PARAMETERS: Mapping[str, Parameter] = MappingProxyType({
    "topics": Parameter("topics", "the topics to count", required=True, example='["orders"]'),
    "window": Parameter("duration", "how long a window is", required=True, example='"1 minute"'),
    "slide": Parameter("duration", "how much later the next window begins; without it windows do not overlap"),
    "late": Parameter("duration", "how much later than the newest an event may come and still count",
                      default="10 minutes"),
    "by": Parameter("texts", "what is counted apart: key, topic, or fields of the JSON value, as in customer.country",
                    default=()),
    **EVENT_TIME,
    **TARGET,
    "emit": Parameter("text", "final writes a window once, when no more events can come for it; updates writes it to"
                      " the topic whenever its count has changed", default="final", choices=("final", "updates")),
    "options": SOURCE_OPTIONS,
})  # fmt: skip

_FIELD = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_OWN = ("start", "end", "count", "time")
_OF_RECORD = {"key": "CAST(key AS STRING)", "topic": "topic"}


def build(pipeline: Pipeline, parameters: Mapping[str, Any]) -> None:
    """Topics, counted, into a topic or a table."""
    updates = parameters["emit"] == "updates"
    if updates and parameters["to_topic"] is None:
        raise ParameterError("emit", "a table gets each window once: updates are for to_topic")
    by = _columns(parameters["by"])
    use_utc(pipeline)
    pipeline.topic("records", parameters["topics"], format="raw", options=parameters["options"])
    columns = [f"{expression} AS {quoted(name)}" for name, expression in by.items()]
    pipeline.sql(
        "events",
        f"SELECT {', '.join([f'{event_time(parameters)} AS time', *columns])} FROM records",
        inputs=["records"],
        watermark=("time", parameters["late"]),
    )
    durations = [text(parameters[name]) for name in ("window", "slide") if parameters[name] is not None]
    window = f"window(time, {', '.join(durations)})"
    names = [quoted(name) for name in by]
    pipeline.sql(
        "counts",
        f"SELECT {', '.join(['window.start', 'window.end', *names, 'count(*) AS count'])} FROM events "
        f"GROUP BY {', '.join([window, *names])}",
        inputs=["events"],
    )
    key = f"concat_ws('|', {', '.join(['start', *names])})"
    write_out(pipeline, "counts", parameters, name="counts", key=key, mode="update" if updates else "append")


def _columns(fields: tuple[str, ...]) -> dict[str, str]:
    """SQL by the names of columns: `customer.country` becomes `customer_country`."""
    found: dict[str, str] = {}
    for field in fields:
        if not _FIELD.fullmatch(field):
            raise ParameterError("by", f"{field!r} is no field: write key, topic, or names with dots, as in a.b")
        name = field.replace(".", "_")
        if name in found or name.lower() in _OWN:
            raise ParameterError("by", f"{field!r} would be a second column {name!r}")
        found[name] = _OF_RECORD.get(field, field_of_value(field))
    return found
