"""One row for each key: merges a batch of changes into the rows of a table, as a Spark job."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import BooleanType, StructType

from odradek.spark.lake.errors import SchemaError
from odradek.spark.lake.schemas import projection, quoted, require_columns
from odradek.spark.lake.settings import SinkSettings

_DELETED = "_odradek_deleted"
_FROM_BATCH = "_odradek_from_batch"


def stored_columns(batch: StructType, settings: SinkSettings) -> StructType:
    """The columns of a batch that are kept in the table; refuses settings that name others than there are."""
    require_columns("partition_by", settings.partition_by, batch)
    require_columns("keys", settings.keys, batch)
    require_columns("order_by", settings.options.order_by, batch)
    deleted = settings.options.deleted
    if not deleted:
        return batch
    require_columns("deleted", [deleted], batch)
    if not isinstance(batch[deleted].dataType, BooleanType):
        raise SchemaError(f"the column {deleted!r}, which marks deletions, is no boolean")
    return StructType([one for one in batch.fields if one.name != deleted])


def latest(current: DataFrame | None, batch: DataFrame, columns: StructType, settings: SinkSettings) -> DataFrame:
    """For every key the row that is greatest in `order_by`, of the table and the batch; none if that one is a deletion.

    Of two that are equal in `order_by` the batch's wins. A row whose key is null fails the batch.
    """
    deleted = settings.options.deleted
    is_deleted = sql.coalesce(sql.col(quoted(deleted)), sql.lit(False)) if deleted else sql.lit(False)
    rows = _marked(batch, columns, is_deleted, from_batch=True)
    if current is not None:
        rows = _marked(current, columns, sql.lit(False), from_batch=False).unionByName(rows)
    order = sql.struct(*(sql.col(quoted(name)) for name in settings.options.order_by), sql.col(_FROM_BATCH))
    row = sql.struct(*(sql.col(quoted(name)) for name in rows.columns if name != _FROM_BATCH))
    keys = [_present(name, settings).alias(f"key{number}") for number, name in enumerate(settings.keys)]
    winners = rows.groupBy(*keys).agg(sql.max_by(row, order).alias("row"))
    return winners.where(~sql.col(f"row.{_DELETED}")).select(
        *(sql.col(f"row.{quoted(name)}").alias(name) for name in columns.fieldNames())
    )


def _marked(frame: DataFrame, columns: StructType, is_deleted: Column, *, from_batch: bool) -> DataFrame:
    return frame.select(*projection(frame, columns), is_deleted.alias(_DELETED), sql.lit(from_batch).alias(_FROM_BATCH))


def _present(name: str, settings: SinkSettings) -> Column:
    column = sql.col(quoted(name))
    message = f"a row for the table {settings.path} has no key: its column {name!r} is null. Filter such rows out"
    return sql.when(column.isNull(), sql.raise_error(sql.lit(message))).otherwise(column)
