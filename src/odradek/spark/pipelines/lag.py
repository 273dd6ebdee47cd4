"""How far a pipeline is behind, asked of the broker: records and seconds, by partition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from odradek.client.client import Client
from odradek.client.offsets import bounds
from odradek.model import TopicPartition

FETCH_SECONDS_MAX = 5.0
FETCH_BYTES = 64 * 1024  # a broker gives the first batch in any case
FETCHES_MAX = 8  # at a time


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far behind one partition is; None where there is nothing to say."""

    position: int
    end: int | None  # None: the partition is gone
    records: int | None
    seconds: float | None  # since the first record that is not yet processed was written


async def lags(client: Client, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, PartitionLag]:
    """The lag behind each of some positions. What retention has removed is not counted."""
    topics = {topic.name: topic for topic in await client.admin.list_topics(internal=True) if not topic.error}
    present = [key for key in positions if key.topic in topics and key.partition in topics[key.topic].partitions]
    first, last = await bounds(client.cluster, present)
    starts = {key: max(positions[key], first[key]) for key in present}
    behind = {key: start for key, start in starts.items() if start < last[key]}
    times = await _times(client, behind)
    now = time.time()
    found = {}
    for key, position in sorted(positions.items()):
        if key not in starts:
            found[key] = PartitionLag(position, None, None, None)
            continue
        records = max(0, last[key] - starts[key])
        seconds = 0.0 if not records else max(0.0, now - times[key] / 1000) if key in times else None
        found[key] = PartitionLag(position, last[key], records, seconds)
    return found


async def _times(client: Client, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The timestamps of the first records from some offsets on, in milliseconds; those that come in time."""
    few = asyncio.Semaphore(FETCHES_MAX)

    async def fetch(key: TopicPartition, start: int) -> tuple[TopicPartition, int | None]:
        size = FETCH_BYTES
        consumer = client.consumer({key: start}, fetch_bytes=size, partition_bytes=size, buffer_bytes=size)
        async with few, consumer:
            records = await consumer.poll(1, FETCH_SECONDS_MAX * 1000)
        return key, records[0].timestamp if records else None

    found = await asyncio.gather(*(fetch(key, start) for key, start in starts.items()))
    return {key: timestamp for key, timestamp in found if timestamp is not None}
