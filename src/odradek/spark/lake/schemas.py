"""Whether a batch fits a table: columns that are missing become null, new ones are added if that is wished."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from odradek.spark.lake.errors import SchemaError


def nullable(schema: StructType) -> StructType:
    """The same columns, all of which may be null: a stream cannot promise more for its whole life."""
    return StructType([StructField(one.name, _nullable(one.dataType)) for one in schema.fields])


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return nullable(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    return kind


def evolved(table: StructType, batch: StructType, *, merge_schema: bool, where: str) -> StructType:
    """The table's columns after this batch; a SchemaError says which columns do not fit."""
    known = {one.name: one for one in table.fields}
    changed = [
        f"{one.name} is {_named(known[one.name].dataType)} there and {_named(one.dataType)} here"
        for one in batch.fields
        if one.name in known and _nullable(one.dataType) != _nullable(known[one.name].dataType)
    ]
    if changed:
        raise SchemaError(f"the batch does not fit the table {where}: {'; '.join(changed)}. Cast the columns")
    added = [one for one in batch.fields if one.name not in known]
    _refuse_twins([*table.fields, *added], where)
    if added and not merge_schema:
        listed = ", ".join(f"{one.name} ({_named(one.dataType)})" for one in added)
        raise SchemaError(
            f"the batch has columns that the table {where} does not have: {listed}. "
            "Set the option merge_schema = true to add them, or leave them out"
        )
    return nullable(StructType([*table.fields, *added]))


def _refuse_twins(fields: Sequence[StructField], where: str) -> None:
    """Spark takes `Id` and `id` for one column, others for two: such a table could not be read back."""
    seen: dict[str, str] = {}
    for one in fields:
        if (twin := seen.setdefault(one.name.lower(), one.name)) != one.name:
            raise SchemaError(f"{one.name} and {twin} differ only in case: the table {where} cannot have both")


def projection(frame: DataFrame, schema: StructType) -> list[Column]:
    """Exactly the columns of a schema, in its order; those that the frame does not have are null."""
    present = set(frame.columns)
    return [
        sql.col(quoted(one.name)) if one.name in present else sql.lit(None).cast(one.dataType).alias(one.name)
        for one in schema.fields
    ]


def require_columns(what: str, names: Iterable[str], batch: StructType) -> None:
    """Refuse a setting that names a column which a batch does not have."""
    present = batch.fieldNames()
    for name in names:
        if name not in present:
            raise SchemaError(f"{what} names the column {name!r}, but the batch has {', '.join(present)}")


def quoted(name: str) -> str:
    """A column's name as Spark reads it: a dot in it is no access to a field."""
    return "`" + name.replace("`", "``") + "`"


def _named(kind: DataType) -> str:
    return kind.simpleString()
