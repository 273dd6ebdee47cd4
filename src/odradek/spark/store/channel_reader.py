"""Reads what a channel holds of a range of time from a store in a batch: the driver's side, and the door to tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from odradek.spark.errors import OptionError
from odradek.spark.store.channel import between, load, tasks_of, units_of
from odradek.spark.store.filters import times_of
from odradek.spark.store.opening import asked, opened
from odradek.spark.store.options import StoreOptions, TimeRange
from odradek.spark.store.pieces import Unit

if TYPE_CHECKING:
    import pyarrow as pa


class UnitsPartition(InputPartition):
    """What one task reads."""

    def __init__(self, units: Sequence[Unit], times: TimeRange) -> None:
        super().__init__(None)
        self.units = tuple(units)
        self.times = times


def read_partition(options: StoreOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read a task's objects; Spark invents a partition without any where there is nothing to read."""
    if not isinstance(partition, UnitsPartition):
        return iter(())
    from odradek.spark.store.objects import read_units  # noqa: PLC0415 (see spark/source.py)

    return read_units(
        options.target,
        options.name,
        partition.units,
        options.columns,
        partition.times,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def partitions_of(options: StoreOptions, units: Sequence[Unit], times: TimeRange) -> list[InputPartition]:
    """The tasks that read some units."""
    tasks = tasks_of(units, bytes_max=options.partition_bytes, at_least=options.min_partitions)
    return [UnitsPartition(task, times) for task in tasks]


class ChannelReader(DataSourceReader):
    """Plans on the driver, reads in tasks; pickled between the two."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self._times = options.times
        if options.fail_on_data_loss and self._times.start_ms > self._times.end_ms:
            raise OptionError(
                f"startingTimestamp ({self._times.start_ms}) lies behind endingTimestamp ({self._times.end_ms})"
            )

    def partitions(self) -> Sequence[InputPartition]:
        """List the slices in question, and no others, and cut them for tasks."""
        return asked(self._options.target, self._plan)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read some objects."""
        return read_partition(self._options, partition)

    def _plan(self) -> list[InputPartition]:
        store = opened(self._options.target)
        spec = load(store, self._options.name)
        if self._times.start_ms >= self._times.end_ms:
            return []
        return partitions_of(self._options, units_of(spec, between(store, spec, self._times)), self._times)


class FilteringChannelReader(ChannelReader):
    """The same, for a Spark that hands filters over."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the range of times out of the filters; all go back."""
        times = times_of(filters)
        self._times = self._times.within(times.start_ms, times.end_ms)
        return filters
