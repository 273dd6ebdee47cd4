"""The columns, partitions and files of an Iceberg table, in Spark's words."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from odradek.spark.lake.errors import LakeError
from odradek.spark.lake.schemas import nullable


def schema_of(columns: StructType) -> Schema:
    """Iceberg's schema for Spark's columns, with fresh ids."""
    return assign_fresh_schema_ids(
        Catalog._convert_schema_if_needed(to_arrow_schema(nullable(columns), timezone="UTC"))
    )


def columns_of(table: Table) -> StructType:
    """Spark's columns for a table."""
    return nullable(from_arrow_schema(schema_to_pyarrow(table.schema(), include_field_ids=False)))


def partition_spec(schema: Schema, partition_by: Sequence[str]) -> PartitionSpec:
    """Partitions by the values of columns as they are."""
    return PartitionSpec(
        *(
            PartitionField(
                schema.find_field(name).field_id, PARTITION_FIELD_ID_START + number, IdentityTransform(), name
            )
            for number, name in enumerate(partition_by)
        )
    )


def partitions_of(table: Table) -> tuple[str, ...]:
    """The columns by which a table is partitioned; any other transform than identity is shown, and fits no sink."""
    return tuple(
        table.schema().find_column_name(one.source_id) or ""
        if isinstance(one.transform, IdentityTransform)
        else f"{one.transform}({table.schema().find_column_name(one.source_id)})"
        for one in table.spec().fields
    )


def current_files(table: Table) -> list[DataFile]:
    """The files of the current snapshot, if they can be read as plain Parquet by the names of their columns."""
    tasks = list(table.scan().plan_files())
    if any(task.delete_files for task in tasks):
        raise LakeError(
            f"the Iceberg table {table.location()} has delete files, which only Iceberg's own engines merge"
        )
    names: dict[int, str] = {}
    ids: dict[str, int] = {}
    for schema in table.schemas().values():
        for one in schema.fields:
            if (
                names.setdefault(one.field_id, one.name) != one.name
                or ids.setdefault(one.name, one.field_id) != one.field_id
            ):
                raise LakeError(
                    f"in the Iceberg table {table.location()} the column {one.name!r} was renamed or made anew: its "
                    "files can only be rewritten by Iceberg's own engines"
                )
    return [task.file for task in tasks]
