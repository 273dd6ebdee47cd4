"""Joins two topics of JSON values: an event of the left with those of the right that come within a time of it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek.spark.pipelines.keys import Parameter
from odradek.spark.pipelines.ready import ParameterError
from odradek.spark.pipelines.ready.ddl import quoted
from odradek.spark.pipelines.ready.places import SOURCE_OPTIONS, TARGET, columns_in, use_utc, write_out

if TYPE_CHECKING:
    from odradek.spark.pipelines.pipeline import Pipeline

SUMMARY = "Join the events of two topics that belong together and lie close in time."

PARAMETERS: Mapping[str, Parameter] = MappingProxyType({
    "left": Parameter("topic", "the topic whose events come first", required=True, example='"orders"'),
    "right": Parameter("topic", "the topic whose events follow", required=True, example='"payments"'),
    "left_schema": Parameter("text", "the columns of the left values", required=True,
                             example='"id STRING, amount DOUBLE"'),
    "right_schema": Parameter("text", "the columns of the right values", required=True,
                              example='"order_id STRING, paid DOUBLE"'),
    "on": Parameter("text", "what belongs together, in SQL: the tables are l and r", required=True,
                    example='"l.id = r.order_id"'),
    "within": Parameter("duration", "how much later than the left event the right one may be", required=True,
                        example='"10 minutes"'),
    "left_time": Parameter("text", "the TIMESTAMP column of the left event's time; without it, the record's own"),
    "right_time": Parameter("text", "the TIMESTAMP column of the right event's time; without it, the record's own"),
    "late": Parameter("duration", "how much later than the newest an event may come and still be joined",
                      default="10 minutes"),
    "kind": Parameter("text", "inner writes what was joined; left writes also left events that stayed alone, when the"
                      " time for a right one is over", default="inner", choices=("inner", "left")),
    "select": Parameter("text", "the columns of the result, in SQL; without it all of l and r"),
    "key": Parameter("text", "the key of the result's records: an SQL expression over its columns"),
    **TARGET,
    "options": SOURCE_OPTIONS,
})  # fmt: skip

RECORD_TIME = "_timestamp"  # what a source's metadata column is called


def build(pipeline: Pipeline, parameters: Mapping[str, Any]) -> None:
    """Two topics, joined, into a topic or a table."""
    if parameters["key"] is not None and parameters["to_topic"] is None:
        raise ParameterError("key", "only records have keys: it is for to_topic")
    selected = parameters["select"] or _all_columns(parameters)
    use_utc(pipeline)
    times = [_source(pipeline, parameters, side) for side in ("left", "right")]
    # Spark keeps an event as long as a partner may come: so the join says how far apart in time they can be.
    earlier, later = f"l.{times[0]}", f"r.{times[1]}"
    pipeline.sql(
        "joined",
        f"SELECT {selected} FROM left_events l "
        f"{'LEFT OUTER' if parameters['kind'] == 'left' else 'INNER'} JOIN right_events r ON ({parameters['on']}) "
        f"AND {later} BETWEEN {earlier} AND {earlier} + INTERVAL '{parameters['within']}'",
        inputs=["left_events", "right_events"],
    )
    write_out(pipeline, "joined", parameters, name="joined", key=parameters["key"])


def _source(pipeline: Pipeline, parameters: Mapping[str, Any], side: str) -> str:
    """Add the source of a side, and return its column of time."""
    time = parameters[f"{side}_time"] or RECORD_TIME
    pipeline.topic(
        f"{side}_events",
        parameters[side],
        schema=parameters[f"{side}_schema"],
        malformed="drop",
        metadata=["timestamp"],
        watermark=(time, parameters["late"]),
        options=parameters["options"],
    )
    return quoted(time)


def _all_columns(parameters: Mapping[str, Any]) -> str:
    left, right = ([column.name for column in columns_in(parameters, f"{side}_schema")] for side in ("left", "right"))
    twice = [name for name in right if name.lower() in {other.lower() for other in left}]
    if twice:
        raise ParameterError(
            "select", f"both sides have {', '.join(twice)}: say which you want, as in 'l.*, r.{twice[0]} AS other'"
        )
    return ", ".join([f"l.{quoted(name)}" for name in left] + [f"r.{quoted(name)}" for name in right])
