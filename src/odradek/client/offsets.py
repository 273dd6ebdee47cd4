"""Looks up offsets at the leaders: by time, the first, the last; and what a Start means in each partition.

The KIPs behind the special timestamps are those of ListOffsets: KIP-79, KIP-734.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.client.cluster import Cluster
from odradek.client.errors import check
from odradek.client.retry import retry
from odradek.client.start import EARLIEST, LATEST, Start
from odradek.model import TopicPartition
from odradek.wire.messages import list_offsets

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class OffsetInfo(NamedTuple):
    """What a look-up found: -1 and -1 if there is no record at or after that time."""

    offset: int
    timestamp: int
    leader_epoch: int


async def look_up(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, OffsetInfo]:
    """Find the offset of a timestamp (or LATEST, EARLIEST, MAX_TIMESTAMP) in each partition; all or an error."""
    found: dict[TopicPartition, OffsetInfo] = {}
    attempts = 0

    async def attempt() -> None:
        nonlocal attempts
        attempts += 1
        missing = [partition for partition in wanted if partition not in found]
        grouped = await cluster.by_leader(missing, refresh=attempts > 1)
        answers = await asyncio.gather(
            *(
                cluster.ask(node_id, _request(partitions, wanted, isolation), list_offsets.Response)
                for node_id, partitions in grouped.items()
            )
        )
        for response in answers:
            for topic in response.topics:
                for item in topic.partitions:
                    partition = TopicPartition(topic.name, item.partition_index)
                    check(item.error_code, f"looking up an offset in partition {partition}")
                    found[partition] = OffsetInfo(item.offset, item.timestamp, item.leader_epoch)

    if wanted:
        for topic in {partition.topic for partition in wanted}:
            await cluster.topic(topic)
        await retry(attempt, what="looking up offsets", timeout_ms=cluster.timeouts.total_ms)
    return found


def _request(
    partitions: list[TopicPartition], wanted: Mapping[TopicPartition, int], isolation: int
) -> list_offsets.Request:
    topics: dict[str, list_offsets.RequestTopic] = {}
    for partition in partitions:
        topic = topics.setdefault(partition.topic, list_offsets.RequestTopic(name=partition.topic, partitions=[]))
        topic.partitions.append(
            list_offsets.RequestPartition(partition_index=partition.partition, timestamp=wanted[partition])
        )
    return list_offsets.Request(replica_id=-1, isolation_level=isolation, topics=list(topics.values()))


async def resolve(
    cluster: Cluster, starts: Mapping[TopicPartition, Start], *, isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """Turn places into offsets. A time after the last record is the end; shifts stop at the ends of the log."""
    found = {partition: start.offset for partition, start in starts.items() if start.offset is not None}
    by_time = {partition: start for partition, start in starts.items() if start.offset is None}
    infos = await look_up(cluster, {key: start.timestamp for key, start in by_time.items()}, isolation=isolation)
    bounded = [key for key, start in by_time.items() if start.shift or infos[key].offset < 0]
    first, last = await bounds(cluster, bounded, isolation=isolation)
    for partition, start in by_time.items():
        offset = infos[partition].offset
        if partition in last:
            offset = last[partition] if offset < 0 else offset
            offset = max(first[partition], min(last[partition], offset + start.shift))
        found[partition] = offset
    return found


async def bounds(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, isolation: int = READ_UNCOMMITTED
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The first offset of each partition, and the one behind its last record."""
    wanted = list(partitions)
    first = await look_up(cluster, dict.fromkeys(wanted, EARLIEST), isolation=isolation)
    last = await look_up(cluster, dict.fromkeys(wanted, LATEST), isolation=isolation)
    return {key: info.offset for key, info in first.items()}, {key: info.offset for key, info in last.items()}
