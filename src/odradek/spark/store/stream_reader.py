"""Reads a channel from a store as an endless table: the driver's side of a streaming query.

A batch ends `readDelay` before now: by then all that bears an earlier time of storing can be seen, also if its PUT took
long, or the clocks of the store and this machine differ a little. The offset methods run in one Python process beside
the driver; `read` runs in tasks, on a pickled copy. The checkpoint is the truth about how far a query has come.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from odradek.clock import Clock, SystemClock
from odradek.objects.keys import parse_object_key
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import ObjectInfo
from odradek.spark.errors import DataLossError
from odradek.spark.options import AtTime, Edge
from odradek.spark.store.channel import Arrivals, between, load, units_of
from odradek.spark.store.channel_reader import partitions_of, read_partition
from odradek.spark.store.opening import PATIENCE_S, asked, opened
from odradek.spark.store.options import StoreOptions
from odradek.spark.store.stream_offset import ChannelOffset

if TYPE_CHECKING:
    import pyarrow as pa

RULES_MS_MAX = 60_000  # how old what is known of the channel's rules may be
QUIET_MS_MAX = 3_600_000  # after so long without news the offset moves all the same

_log = logging.getLogger("odradek.spark")


class _Channel(NamedTuple):
    """What is known of a channel, and since when."""

    spec: ChannelSpec
    arrivals: Arrivals
    loaded_ms: int


class _Listed(NamedTuple):
    """What could be seen when the store was last asked: all in slices from `first_ms` on, stored before `until_ms`."""

    first_ms: int
    until_ms: int
    keys: frozenset[str]


class ChannelStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of a streaming query."""

    def __init__(self, options: StoreOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = SystemClock() if clock is None else clock
        self._channel: _Channel | None = None
        self._initial: ChannelOffset | None = None
        self._until_ms: int | None = None  # of a query that reads what is there, and ends
        self._latest: ChannelOffset | None = None  # as last seen
        self._listed: _Listed | None = None
        self._planned: tuple[ChannelOffset, ChannelOffset, list[ObjectInfo]] | None = None

    # Called by Spark on the driver.

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts. Spark asks more than once, and gets the same answer."""
        if self._initial is None:
            spec = asked(self._options.target, self._load).spec
            place = ChannelOffset(spec.id, self._settled_ms())
            if isinstance(self._options.starting, AtTime):
                place = replace(place, slice_ms=self._options.times.start_ms)
            elif self._options.starting is Edge.EARLIEST:
                place = replace(place, slice_ms=0)
            self._initial = replace(place, start=place)
        return self._initial.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query when it has read what there is now."""
        self._until_ms = self._settled_ms()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What maxBytesPerTrigger says."""
        if self._options.trigger_bytes is not None:
            return ReadMaxBytes(self._options.trigger_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next batch reads: `start` itself if there is nothing to do."""
        begin = ChannelOffset.from_json(start)
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None

        def find() -> ChannelOffset | None:
            channel = self._fresh(begin)
            if begin.slice_ms is not None:
                end = self._caught_up(channel, begin, begin.slice_ms, bytes_max)
                if end is not None:
                    return end
            return self._arrived(channel, replace(begin.place, slice_ms=None), begin, bytes_max)

        end = asked(self._options.target, find, patience_s=PATIENCE_S)
        if end is None:
            return start
        return replace(end, start=begin.place if begin.start == begin.place else None).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What was there when Spark asked last; for the progress of a query."""
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut what lies between two offsets. They are the same while only other sources of the query have news."""
        if start == end:
            return []
        last = ChannelOffset.from_json(end)
        first = ChannelOffset.from_json(start).place if last.start is None else last.start
        last = last.place
        if self._planned is not None and self._planned[:2] == (first, last):
            infos = self._planned[2]
        else:
            infos = asked(self._options.target, lambda: self._between(first, last), patience_s=PATIENCE_S)
        spec = asked(self._options.target, self._load, patience_s=PATIENCE_S).spec
        return partitions_of(self._options, units_of(spec, infos), self._options.times)

    # Called by Spark in tasks.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read some objects."""
        return read_partition(self._options, partition)

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options; what the driver remembers stays there."""
        return {**ChannelStreamReader(self._options, self._clock).__dict__}

    # What is in the store.

    def _settled_ms(self) -> int:
        """Everything that was stored before can be seen by now."""
        return self._clock.now_ms() - self._options.read_delay_ms

    def _load(self) -> _Channel:
        if self._channel is None:
            store = opened(self._options.target)
            spec = load(store, self._options.name)
            self._channel = _Channel(spec, Arrivals(store, spec), self._clock.now_ms())
        return self._channel

    def _fresh(self, begin: ChannelOffset) -> _Channel:
        """The channel by its present rules; it has to be the one that the query began with."""
        if self._channel is not None and self._clock.now_ms() - self._channel.loaded_ms > RULES_MS_MAX:
            self._channel = None
        channel = self._load()
        if channel.spec.id != begin.channel_id:
            self._lost(f"channel {channel.spec.name} was deleted and created again since the query last read it")
        return channel

    def _caught_up(
        self, channel: _Channel, begin: ChannelOffset, slice_ms: int, bytes_max: int | None
    ) -> ChannelOffset | None:
        """The end of the next batch of what was stored before the query began; None if there is no more of it."""
        times = replace(self._options.times, start_ms=max(slice_ms, self._options.times.start_ms))
        stored = (
            info
            for info in between(opened(self._options.target), channel.spec, times)
            if info.modified_ms < begin.stored_ms
        )
        chosen: list[ObjectInfo] = []
        size_bytes = 0
        end = replace(begin.place, channel_id=channel.spec.id, slice_ms=None)
        for start_ms, together in groupby(stored, key=_slice_of):
            infos = list(together)
            size_bytes += sum(info.size_bytes for info in infos)
            if chosen and bytes_max is not None and size_bytes > bytes_max:
                end = replace(end, slice_ms=start_ms)
                break
            chosen += infos
        if not chosen:
            return None
        self._planned = (begin.place, end, chosen)
        return end

    def _arrived(
        self, channel: _Channel, place: ChannelOffset, begin: ChannelOffset, bytes_max: int | None
    ) -> ChannelOffset | None:
        """The end of the next batch of what was stored since; None if nothing was."""
        until_ms = self._settled_ms() if self._until_ms is None else self._until_ms
        self._latest = ChannelOffset(channel.spec.id, max(until_ms, place.stored_ms))
        if until_ms <= place.stored_ms:
            return None
        self._check_none_expired(channel, place)
        near = channel.arrivals.near(place.stored_ms, until_ms)
        self._check_none_missed(place, near)
        self._listed = _Listed(channel.arrivals.first_slice_ms(place.stored_ms), until_ms, frozenset(near))
        stored = sorted(
            (info for info in near.values() if place.stored_ms <= info.modified_ms < until_ms),
            key=attrgetter("modified_ms"),
        )
        chosen: list[ObjectInfo] = []
        size_bytes = 0
        end = ChannelOffset(channel.spec.id, until_ms)
        for modified_ms, together in groupby(stored, key=attrgetter("modified_ms")):
            infos = list(together)
            size_bytes += sum(info.size_bytes for info in infos)
            if chosen and bytes_max is not None and size_bytes > bytes_max:
                end = replace(end, stored_ms=modified_ms)
                break
            chosen += infos
        if not chosen and until_ms - place.stored_ms < _quiet_ms(channel.spec):
            return None
        self._planned = (begin.place, end, chosen)
        return end

    def _between(self, first: ChannelOffset, last: ChannelOffset) -> list[ObjectInfo]:
        """The objects of a batch that another process has planned."""
        channel = self._fresh(last)
        if first.slice_ms is not None and first.stored_ms == last.stored_ms:
            end_ms = self._options.times.end_ms if last.slice_ms is None else last.slice_ms
            found = between(
                opened(self._options.target), channel.spec, self._options.times.within(first.slice_ms, end_ms)
            )
            return [info for info in found if info.modified_ms < first.stored_ms]
        near = channel.arrivals.near(first.stored_ms, last.stored_ms)
        return [info for info in near.values() if first.stored_ms <= info.modified_ms < last.stored_ms]

    # Trouble.

    def _check_none_expired(self, channel: _Channel, place: ChannelOffset) -> None:
        """A query that was away for longer than records are kept has lost those that came in between."""
        kept_ms = channel.spec.retention_ms
        seen_ms = place.stored_ms if self._listed is None else max(place.stored_ms, self._listed.until_ms)
        if 0 <= kept_ms < self._clock.now_ms() - seen_ms and channel.arrivals.has_changed_since(seen_ms):
            self._lost(
                f"channel {channel.spec.name} keeps records for {kept_ms} ms, and the query has read nothing of it"
                " for longer"
            )

    def _check_none_missed(self, place: ChannelOffset, near: dict[str, ObjectInfo]) -> None:
        """What was stored before the last batch ended could be seen when it was planned, or readDelay is too short."""
        listed = self._listed
        if listed is None or listed.until_ms < place.stored_ms:
            return
        for key in sorted(near.keys() - listed.keys):
            if near[key].modified_ms < place.stored_ms and _slice_of(near[key]) >= listed.first_ms:
                self._lost(
                    f"the object {key} bears a time of storing at which the query had looked already, and was not to be"
                    f" seen then. Set the clocks of the store and of the driver right, or make readDelay"
                    f" ({self._options.read_delay_ms} ms) longer"
                )

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{what}. Records may have been lost. Set failOnDataLoss to false to go on with what is left"
            )
        _log.warning("%s. Records may have been lost; going on, because failOnDataLoss is false", what)


def _quiet_ms(spec: ChannelSpec) -> int:
    """How long an offset may stay where it is: it must not look as if the query had been away."""
    return QUIET_MS_MAX if spec.retention_ms < 0 else min(QUIET_MS_MAX, spec.retention_ms // 2)


def _slice_of(info: ObjectInfo) -> int:
    key = parse_object_key(info.key)
    assert key is not None, info.key
    return key.start_ms
