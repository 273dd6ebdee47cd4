"""Keeps topics in a lake: every record once, in folders by the day of its event, small files merged.

The table has a record's key, value, headers, topic, partition, offset and timestamp, and the column of its day.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek.spark.pipelines.keys import Parameter
from odradek.spark.pipelines.ready.places import (
    EVENT_TIME,
    LAKE,
    SOURCE_OPTIONS,
    event_time,
    the_lake,
    use_utc,
    utc_date,
)

if TYPE_CHECKING:
    from odradek.spark.pipelines.pipeline import Pipeline

SUMMARY = "Keep topics in a Parquet, Delta or Iceberg table, by the day of the event, each record once."

PARAMETERS: Mapping[str, Parameter] = MappingProxyType({
    "topics": Parameter("topics", "the topics to keep", required=True, example='["orders"]'),
    **LAKE,
    **EVENT_TIME,
    "by_topic": Parameter("flag", "a folder for each topic above those of the days", default=False),
    "compact_every": Parameter("whole", "merge small files after so many batches; 0 is never", default=20),
    "options": SOURCE_OPTIONS,
})  # fmt: skip


def build(pipeline: Pipeline, parameters: Mapping[str, Any]) -> None:
    """Topics, dated, into a table."""
    kind, path = the_lake(parameters)
    use_utc(pipeline)
    options = {"includeHeaders": "true", **parameters["options"]}
    pipeline.topic("records", parameters["topics"], format="raw", options=options)
    pipeline.sql(
        "dated",
        "SELECT key, value, headers, topic, partition, offset, timestamp, "
        f"{utc_date(event_time(parameters))} AS date FROM records",
        inputs=["records"],
    )
    pipeline.write_lake(
        "dated",
        kind,
        path,
        name="archive",
        partition_by=["topic", "date"] if parameters["by_topic"] else ["date"],
        options={"compact_every": parameters["compact_every"], **parameters["table_options"]},
    )
