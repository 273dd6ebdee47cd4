"""Asks the cluster what a subscription and a place in the log mean now: which partitions, which offsets.

It decides nothing about lost data: what has vanished is the readers' business.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from odradek.client.cluster import NO_TOPIC_ID, UNKNOWN_TOPIC_GRACE_MS, Cluster, TopicInfo
from odradek.client.errors import UnknownTopicError, check
from odradek.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, look_up
from odradek.client.retry import retry
from odradek.client.start import EARLIEST, LATEST
from odradek.client.sync import Client
from odradek.model import TopicPartition
from odradek.spark.errors import MissingTopicError, NoMatchingOffsetError, OptionError
from odradek.spark.options import Assign, AtOffsets, AtTime, Edge, Pattern, Place, ReadOptions, Subscribe
from odradek.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Found:
    """What of a subscription there is."""

    partitions: frozenset[TopicPartition]
    topic_ids: Mapping[str, str]  # without those of brokers before Kafka 2.8, which have none
    missing: tuple[str, ...]  # topics and partitions that were named and do not exist


class Resolver:
    """Answers for one read."""

    def __init__(self, client: Client, options: ReadOptions) -> None:
        self._client = client
        self._options = options
        self._absent: set[str] = set()  # topics that were not there when they were last asked for
        self._isolation = READ_COMMITTED if options.read_committed else READ_UNCOMMITTED

    def find(self) -> Found:
        """Which partitions the subscription means now."""
        subscription = self._options.subscription
        if isinstance(subscription, Pattern):
            infos = self._client.admin.list_topics()
            matching = [info for info in infos if not info.error and re.fullmatch(subscription.pattern, info.name)]
            return _found(matching, None, ())
        if isinstance(subscription, Subscribe):
            present, missing = self._describe(subscription.topics)
            return _found(present, None, missing)
        assert isinstance(subscription, Assign)
        names = list(dict.fromkeys(partition.topic for partition in subscription.partitions))
        present, missing = self._describe(names)
        known = {TopicPartition(info.name, number) for info in present for number in info.partitions}
        absent = [
            str(partition)
            for partition in subscription.partitions
            if partition not in known and partition.topic not in missing
        ]
        return _found(present, frozenset(subscription.partitions), (*missing, *absent))

    def find_all(self) -> Found:
        """The same, for a read that begins: everything that was named has to be there."""
        found = self.find()
        self.check_all_there(found)
        return found

    def check_all_there(self, found: Found) -> None:
        """Refuse to read without what was named."""
        if found.missing:
            raise MissingTopicError(
                f"not found on {self._options.connection.bootstrap}: {', '.join(found.missing)}."
                " Create what is missing, or correct the name in subscribe or assign (UNKNOWN_TOPIC_OR_PARTITION)"
            )

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each partition still has."""
        return self._look_up(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind each partition's last record: with read_committed, behind the last that is decided."""
        return self._look_up(dict.fromkeys(partitions, LATEST))

    def start(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where a new read begins."""
        place = self._options.starting
        return self._at(place, partitions, no_match_is_latest=self._options.latest_if_no_match)

    def end(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where a batch read ends; a time after the last record is the end."""
        return self._at(self._options.ending, partitions, no_match_is_latest=True)

    def _at(
        self, place: Place, partitions: Collection[TopicPartition], *, no_match_is_latest: bool
    ) -> dict[TopicPartition, int]:
        if isinstance(place, Edge):
            return self.earliest(partitions) if place is Edge.EARLIEST else self.latest(partitions)
        if isinstance(place, AtOffsets):
            return self._at_offsets(place, partitions)
        return self._at_times(place, partitions, no_match_is_latest)

    def _at_offsets(self, place: AtOffsets, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        _check_complete(place.option, place.offsets, partitions, "Use -1 for latest and -2 for earliest.")
        edges = self._look_up({key: offset for key, offset in place.offsets.items() if offset in (EARLIEST, LATEST)})
        return {**place.offsets, **edges}

    def _at_times(
        self, place: AtTime, partitions: Collection[TopicPartition], no_match_is_latest: bool
    ) -> dict[TopicPartition, int]:
        if place.timestamp_ms is None:
            _check_complete(place.option, place.by_partition, partitions, "Every partition needs a time.")
            wanted = dict(place.by_partition)
        else:
            wanted = dict.fromkeys(partitions, place.timestamp_ms)
        offsets = self._look_up(wanted)
        unmatched = sorted(partition for partition, offset in offsets.items() if offset < 0)
        if unmatched and not no_match_is_latest:
            first = unmatched[0]
            raise NoMatchingOffsetError(
                f"{place.option}: {first} has no record at or after {wanted[first]} ms."
                " Set startingOffsetsByTimestampStrategy to latest to start at the end there"
            )
        return {**offsets, **self.latest(unmatched)}

    def _describe(self, names: Collection[str]) -> tuple[list[TopicInfo], tuple[str, ...]]:
        """The topics that there are, and the names of those that there are not."""
        infos = self._client.call(_topics(self._client.cluster, names, patient=self._absent.isdisjoint(names)))
        self._absent = {name for name in names if name not in infos}
        return list(infos.values()), tuple(name for name in names if name not in infos)

    def _look_up(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        cluster = self._client.cluster
        found = self._client.call(look_up(cluster, wanted, isolation=self._isolation))
        return {partition: info.offset for partition, info in found.items()}


async def _topics(cluster: Cluster, names: Collection[str], *, patient: bool) -> dict[str, TopicInfo]:
    """Ask for topics, once for all of them. Brokers learn of a new topic one after the other: be patient with that."""
    grace_ends = asyncio.get_running_loop().time() + UNKNOWN_TOPIC_GRACE_MS / 1000

    async def attempt() -> dict[str, TopicInfo]:
        await cluster.refresh(names)
        infos: dict[str, TopicInfo] = {}
        for name in names:
            info = cluster.topics.get(name)
            if info is None or info.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if patient and asyncio.get_running_loop().time() < grace_ends:
                    raise UnknownTopicError(name, retriable=True)
                continue
            check(info.error, f"topic {name}")
            infos[name] = info
        return infos

    return await retry(attempt, what="asking for topics", timeout_ms=cluster.timeouts.total_ms)


def _found(present: Iterable[TopicInfo], only: frozenset[TopicPartition] | None, missing: tuple[str, ...]) -> Found:
    infos = list(present)
    partitions = frozenset(TopicPartition(info.name, number) for info in infos for number in info.partitions)
    ids = {info.name: info.topic_id.hex() for info in infos if info.topic_id != NO_TOPIC_ID}
    return Found(partitions if only is None else partitions & only, ids, missing)


def _check_complete(
    option: str, given: Mapping[TopicPartition, int], partitions: Collection[TopicPartition], advice: str
) -> None:
    if given.keys() == set(partitions):
        return
    raise OptionError(
        f"{option} has to name exactly the partitions that are read. {advice}"
        f" Named: {_names(given)}. Read: {_names(partitions)}"
    )


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(partition) for partition in sorted(partitions)) or "none"
