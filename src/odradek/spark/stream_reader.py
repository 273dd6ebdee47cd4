"""Reads topics as an endless table: says how far there is something to read, and cuts it for tasks.

The offset methods run in one Python process beside the driver; `read` runs in tasks, on a pickled copy. The checkpoint
is the truth about how far a query has come: nothing is remembered here that a restart would miss.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from odradek.client.errors import ClientError
from odradek.clock import Clock, SystemClock
from odradek.model import TopicPartition
from odradek.spark.batch_reader import RangePartition, read_partition
from odradek.spark.connection import connect_first
from odradek.spark.errors import DataLossError
from odradek.spark.offsets import Positions, StreamOffset, backlog, limited, ranges_between, split
from odradek.spark.options import ReadOptions
from odradek.spark.resolve import Found, Resolver

if TYPE_CHECKING:
    import pyarrow as pa

OBSERVE_MS_MAX = 2_000  # a commit is for those who look on: it must not hold the query up

_log = logging.getLogger("odradek.spark")


class OdradekStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of a streaming query."""

    def __init__(self, options: ReadOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = SystemClock() if clock is None else clock
        self._resolver: Resolver | None = None
        self._initial: StreamOffset | None = None
        self._latest: StreamOffset | None = None  # as last seen
        self._ends = False  # whether the query reads what is there, and ends
        self._last_batch_ms: int | None = None
        self._observed: Positions = {}

    # Called by Spark on the driver.

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts. Spark asks more than once, and gets the same answer."""
        if self._initial is None:
            found = self._resolve.find_all()
            start = self._resolve.start(found.partitions)
            self._initial = StreamOffset(start, start, found.topic_ids)
        return self._initial.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query when it has read what there is when it asks for the first time."""
        self._ends = True

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say; a composite of both limits does not exist in Python, so the lower one is kept here."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next batch reads: `start` itself if there is nothing to do."""
        begin = StreamOffset.from_json(start)
        self._observe(begin.positions)
        latest = self._latest_after(begin)
        from_where = self._with_new(_kept(begin, latest), latest.positions)
        end = self._admit(from_where, latest.positions, limit)
        if end is None or (end == begin.positions and latest.topic_ids == begin.topic_ids):
            return start
        is_first = begin.start == begin.positions
        return StreamOffset(end, from_where if is_first else None, latest.topic_ids).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What was there when Spark asked last; for the progress of a query."""
        return self._latest.to_json() if self._latest is not None and self._latest.positions else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut what lies between two offsets. They are the same while only other sources of the query have news."""
        if start == end:
            return []
        first, last = StreamOffset.from_json(start), StreamOffset.from_json(end)
        if last.start is not None:
            first = StreamOffset(last.start, None, last.topic_ids)
        ranges = split(
            ranges_between(self._with_new(_kept(first, last), last.positions), last.positions),
            at_least=self._options.min_partitions,
            records_max=self._options.max_records,
        )
        return [RangePartition(item) for item in ranges]

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before `end` is done."""
        self._observe(StreamOffset.from_json(end).positions)

    # Called by Spark in tasks.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range."""
        return read_partition(self._options, partition)

    @property
    def _resolve(self) -> Resolver:
        if self._resolver is None:
            self._resolver = Resolver(connect_first(self._options.connection), self._options)
        return self._resolver

    def _latest_after(self, begin: StreamOffset) -> StreamOffset:
        """What there is now; or, for a query that ends, what there was when it asked for the first time."""
        if self._latest is None or not self._ends:
            found = self._resolve.find()
            self._check_topics(begin, found)
            latest = self._resolve.latest(found.partitions)
            self._latest = StreamOffset(latest, None, found.topic_ids)
            self._check_order(begin)
        return self._latest

    def _check_topics(self, begin: StreamOffset, found: Found) -> None:
        """See whether what the query has read from is still there."""
        for topic in sorted({partition.topic for partition in begin.positions}):
            mine = sorted(partition for partition in begin.positions if partition.topic == topic)
            gone = [partition for partition in mine if partition not in found.partitions]
            if len(gone) == len(mine):
                self._lost(f"topic {topic} is gone: it was deleted, or the query does not ask for it any more")
            elif _is_another(topic, begin.topic_ids, found.topic_ids):
                come_to = ", ".join(f"offset {begin.positions[partition]} of {partition}" for partition in mine)
                self._lost(f"topic {topic} was deleted and created again; the query had come to {come_to}")
            elif gone:
                self._lost(f"partitions of topic {topic} are gone: {', '.join(map(str, gone))}")
        if self._options.fail_on_data_loss:
            self._resolve.check_all_there(found)

    def _check_order(self, begin: StreamOffset) -> None:
        """No partition ends before what was read of it. A leader that has just been elected may say so for a moment."""
        assert self._latest is not None
        behind = _behind(begin, self._latest)
        for _ in range(self._options.offset_tries - 1):
            if not behind:
                return
            time.sleep(self._options.offset_retry_ms / 1000)
            self._latest = replace(self._latest, positions={**self._latest.positions, **self._resolve.latest(behind)})
            behind = _behind(begin, self._latest)
        for partition in behind:
            self._lost(
                f"{partition} ends at offset {self._latest.positions[partition]},"
                f" and the query was to go on at {begin.positions[partition]}"
            )

    def _with_new(self, begin: Positions, end: Positions) -> Positions:
        """Add the partitions that are in `end` only: they are read from their first record."""
        new = [partition for partition in end if partition not in begin]
        if not new:
            return begin
        first = self._resolve.earliest(new)
        for partition, offset in sorted(first.items()):
            if offset != 0:
                self._lost(f"{partition} is new to the query, and its first record has offset {offset}, not 0")
        return {**begin, **first}

    def _admit(self, start: Positions, end: Positions, limit: ReadLimit) -> Positions | None:
        """The end of the next batch by the limits; None to wait for more."""
        if isinstance(limit, ReadAllAvailable):
            return end
        if self._is_too_little(start, end):
            return None
        return limited(start, end, limit.max_rows) if isinstance(limit, ReadMaxRows) else end

    def _is_too_little(self, start: Positions, end: Positions) -> bool:
        """Whether to wait for more, as minOffsetsPerTrigger and maxTriggerDelay say; a query that ends does not."""
        if self._options.min_offsets is None or self._ends:
            return False
        now = self._clock.now_ms()
        is_late = self._last_batch_ms is None or now - self._last_batch_ms >= self._options.max_delay_ms
        if not is_late and backlog(start, end) < self._options.min_offsets:
            return True
        self._last_batch_ms = now
        return False

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{what}. Records may have been lost. Set failOnDataLoss to false to go on with what is left"
            )
        _log.warning("%s. Records may have been lost; going on, because failOnDataLoss is false", what)

    def _observe(self, positions: Positions) -> None:
        """Commit how far the query has come to a group, so that tools for lag see it; nothing depends on it."""
        if self._options.group is None or positions == self._observed:
            return
        client = connect_first(self._options.connection)
        commit = client.admin.inner.set_group_offsets(self._options.group, positions)
        try:
            client.call(asyncio.wait_for(commit, OBSERVE_MS_MAX / 1000))
            self._observed = positions
        except (ClientError, TimeoutError) as error:
            reason = error if isinstance(error, ClientError) else f"no answer within {OBSERVE_MS_MAX} ms"
            _log.warning("offsets could not be committed to group %s: %s", self._options.group, reason)


def _is_another(topic: str, before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    return topic in before and topic in now and before[topic] != now[topic]


def _kept(begin: StreamOffset, end: StreamOffset) -> Positions:
    """The positions that still mean something: those of topics that are there and were not created again."""
    return {
        partition: offset
        for partition, offset in begin.positions.items()
        if partition in end.positions and not _is_another(partition.topic, begin.topic_ids, end.topic_ids)
    }


def _behind(begin: StreamOffset, end: StreamOffset) -> list[TopicPartition]:
    return sorted(partition for partition, offset in _kept(begin, end).items() if end.positions[partition] < offset)
