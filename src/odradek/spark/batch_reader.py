"""Reads what lies between two places of some topics, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from odradek.spark.connection import connect_first
from odradek.spark.errors import OptionError
from odradek.spark.offsets import OffsetRange, Positions, ranges_between, split
from odradek.spark.options import ReadOptions
from odradek.spark.resolve import Resolver

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def read_partition(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read a task's range; Spark invents a partition without one where there is nothing to read."""
    if not isinstance(partition, RangePartition):
        return iter(())
    from odradek.spark.read.ranges import read_range  # noqa: PLC0415 (see source.py)

    return read_range(
        options.connection,
        partition.wanted,
        options.columns,
        read_committed=options.read_committed,
        fail_on_data_loss=options.fail_on_data_loss,
    )


class OdradekBatchReader(DataSourceReader):
    """Plans on the driver, reads in tasks; pickled between the two."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Resolve both ends now and cut what lies between."""
        resolver = Resolver(connect_first(self._options.connection), self._options)
        found = resolver.find_all()
        start, end = resolver.start(found.partitions), resolver.end(found.partitions)
        if self._options.fail_on_data_loss:
            _check_order(start, end)
        ranges = split(
            ranges_between(start, end), at_least=self._options.min_partitions, records_max=self._options.max_records
        )
        return [RangePartition(item) for item in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range."""
        return read_partition(self._options, partition)


def _check_order(start: Positions, end: Positions) -> None:
    for partition in sorted(end):
        if start[partition] > end[partition]:
            raise OptionError(
                f"{partition} is to be read from offset {start[partition]} to {end[partition]}, which lies before it"
            )
