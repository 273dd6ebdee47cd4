"""Eeylops' reading on a broker under test, with the groups that keep its consumers' commits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from odradek.broker.consumers import Consumers
from odradek.broker.eeylops_reading import ConsumeSpec, EeylopsReading
from odradek.broker.offsets_topic import KnownTopics, OffsetsTopic
from odradek.broker.value_cursor import Batch
from odradek.edge.config import GrpcDoorConfig
from odradek.groups.coordinator import Coordinator
from odradek.model import TopicPartition
from tests.broker.houses import House, at_home

PLACE = TopicPartition("t", 0)
SECONDS = 30.0


class Reader:
    """A broker with one topic, and short words for what Eeylops' consumers do."""

    def __init__(self, house: House, groups: Coordinator, stream_bytes: int, message_bytes: int) -> None:
        self.house = house
        self.broker = house.broker
        self.groups = groups
        self.consumers = Consumers(house.broker, groups, None)
        config = GrpcDoorConfig(
            max_grpc_message_bytes=message_bytes, max_grpc_calls=100, max_grpc_stream_bytes=stream_bytes
        )
        self.reading = EeylopsReading(house.broker, self.consumers, config)

    async def produce(self, *values: bytes) -> int:
        """Append one batch, safely; tell its first offset."""
        return await self.house.produce("t", *values)

    async def append(self, data: bytearray) -> None:
        """Append a batch as it is, safely."""
        partition = self.broker.partition(*PLACE)
        await self.broker.committed(partition, partition.append(data).last_offset + 1)

    def trim(self, offset: int) -> None:
        """Remove all below an offset, as DeleteRecords does."""
        partition = self.broker.partition(*PLACE)
        partition.log.delete_records(offset).run()
        partition.advanced()

    async def consume(self, consumer: str = "", **spec: Any) -> Batch:
        """Read once."""
        asked = ConsumeSpec(consumer_id=consumer, **spec)
        return await self.reading.consume(PLACE, asked, follower=False, timeout_s=SECONDS)

    async def values(self, consumer: str = "", **spec: Any) -> list[bytes]:
        """Read once, and look at the values only."""
        return [value for _, _, value in (await self.consume(consumer, **spec)).values]

    def subscribe(self, consumer: str = "", **spec: Any) -> Stream:
        """Read as a stream."""
        asked = ConsumeSpec(consumer_id=consumer, **spec)
        return Stream(self.reading.subscribe(PLACE, asked, follower=False))

    async def register(self, consumer: str = "me") -> None:
        await self.consumers.register(consumer, PLACE, SECONDS)

    async def commit(self, offset: int, consumer: str = "me") -> None:
        await self.consumers.commit(consumer, PLACE, offset, SECONDS)

    async def committed(self, consumer: str = "me") -> int:
        return await self.consumers.last_committed(consumer, PLACE, SECONDS, sync=True)


class Stream:
    """A subscription that a test reads step by step."""

    def __init__(self, batches: AsyncGenerator[Batch, None]) -> None:
        self.batches = batches

    async def next(self) -> Batch:
        """The next batch; StopAsyncIteration at the end."""
        return await anext(self.batches)

    async def values(self) -> list[bytes]:
        """Those of the next batch."""
        return [value for _, _, value in (await self.next()).values]

    async def close(self) -> None:
        await self.batches.aclose()


@asynccontextmanager
async def reader(stream_bytes: int = 1 << 20, message_bytes: int = 1 << 20, **settings: Any) -> AsyncIterator[Reader]:
    """A broker with topic `t`, while the block runs."""
    async with at_home(**settings) as house:
        await house.broker.create_topic("t", 1, {})
        journal = OffsetsTopic(house.broker)
        groups = Coordinator(house.settings.group_config(), house.clock, journal, KnownTopics(house.broker), str)
        house.broker.on_topic_deleted = groups.offsets.forget_topic
        groups.load()
        groups.start()
        found = Reader(house, groups, stream_bytes, message_bytes)
        try:
            yield found
        finally:
            await found.consumers.close()
            await groups.close()
            await journal.close()
