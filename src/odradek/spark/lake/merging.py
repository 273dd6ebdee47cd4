"""Merges Parquet files into one, row group by row group: what is in memory at a time is one row group."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

READ_ROWS = 64 << 10
ROW_GROUP_BYTES = 64 << 20
MERGED = ".merged-"  # in the names of files that were made of others
THRIFT = 3  # how many times the rest a file must weigh to be left alone
LARGE_ENOUGH = 0.75  # of the target: a file that has grown to this is left alone


def bins(sizes: Iterable[tuple[Path, int]], target_bytes: int, *, thrifty: bool = False) -> list[list[Path]]:
    """Group small files, in their order, so that each group makes about one file of the target size.

    A thrifty one leaves a file alone while it is much larger than all smaller ones together: who compacts again and
    again would else rewrite for every few new rows all that it merged before.
    """
    small = [(path, size) for path, size in sizes if size < target_bytes * LARGE_ENOUGH]
    if thrifty:
        small = _without_much_larger_than_the_rest(small)
    groups: list[list[Path]] = []
    room = 0
    for path, size in small:
        if size > room:
            groups.append([])
            room = target_bytes
        groups[-1].append(path)
        room -= size
    return [group for group in groups if len(group) > 1]


def _without_much_larger_than_the_rest(files: list[tuple[Path, int]]) -> list[tuple[Path, int]]:
    rest = sum(size for _, size in files)
    excess = set()
    for path, size in sorted(files, key=lambda file: file[1], reverse=True):
        rest -= size
        if size <= THRIFT * rest:
            break
        excess.add(path)
    return [file for file in files if file[0] not in excess]


def merged_name(first: Path) -> str:
    """A new name for a group's file. It begins as that of the first one, so that the order of names is that of rows."""
    return f"{first.stem.partition(MERGED)[0]}{MERGED}{uuid.uuid4().hex[:16]}.parquet"


def merge(files: Sequence[Path], target: Path, compression: str) -> None:
    """Write the rows of some files, in their order, into a new one; columns that a file does not have become null."""
    schema = pa.unify_schemas([_nullable(pq.read_schema(file)) for file in files])
    codec = "none" if compression == "uncompressed" else compression.removesuffix("_raw")
    target.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(target, schema, compression=codec) as writer:
        for table in _row_groups(files, schema):
            writer.write_table(table, row_group_size=table.num_rows)


def _row_groups(files: Sequence[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    for file in files:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(READ_ROWS):
                waiting.append(_fitted(pa.Table.from_batches([batch]), schema))
                if sum(table.nbytes for table in waiting) >= ROW_GROUP_BYTES:
                    yield pa.concat_tables(waiting)
                    waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, all of which may be null: Spark declares for each file what it could prove for its batch."""
    return pa.schema([pa.field(one.name, _nullable_type(one.type)) for one in schema])


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _nullable_type(one.type)) for one in kind.fields])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _nullable_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_nullable_type(kind.key_type), _nullable_type(kind.item_type))
    return kind


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    present = set(table.column_names)
    columns = [
        table.column(one.name).cast(one.type) if one.name in present else pa.nulls(table.num_rows, one.type)
        for one in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
