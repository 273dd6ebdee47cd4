"""MyKafka's client on asyncio: partitions with settings of their own, single messages by offset.

    async with AsyncMyKafka("127.0.0.1:50051") as mykafka:
        offset = await mykafka.send_message("orders", 0, b"three spools")

Any broker answers for all partitions. A call goes to the first address that can be reached. One that reads is made
again elsewhere if its broker goes away; one that writes is not: whether a message whose answer did not come is stored
is for the caller to find out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from odradek.client.errors import BrokerUnavailableError
from odradek.client.grpc.channels import Channel, Opened, parse_targets
from odradek.client.grpc.errors import MyKafkaError
from odradek.proto import mykafka_pb2 as pb
from odradek.proto.mykafka_pb2_grpc import BrokerStub

TIMEOUT_SECONDS = 10.0


class Offsets(NamedTuple):
    """How far a partition reaches; an empty one: 0, -1 and -1."""

    first: int
    commit: int  # the newest message that can be read
    last: int  # the newest message that the leader has


class AsyncMyKafka(Opened):
    """MyKafka's seven calls. An answer that is an error is a MyKafkaError, its `code` a Code."""

    def __init__(
        self, addresses: str | Sequence[str] = "127.0.0.1:50051", *, timeout_s: float = TIMEOUT_SECONDS
    ) -> None:
        """`addresses` is `host:port`, or several; `timeout_s` is the deadline of each call."""
        self._targets = parse_targets(addresses)
        self._timeout_s = timeout_s
        self._channels: list[Channel] = []

    async def start(self) -> None:
        """Connect; a BrokerUnavailableError if nobody is there."""
        self._channels = [Channel(target, BrokerStub) for target in self._targets]
        self._used = self._channels[0]
        await self._connected()

    async def close(self) -> None:
        """Hang up."""
        for channel in self._channels:
            await channel.close()

    async def send_message(
        self, topic: str, partition: int, payload: bytes, *, producer_id: int = 0, group_id: int = 0
    ) -> int:
        """Store a message and return its offset."""
        request = pb.SendMessageRequest(
            producer_id=producer_id, group_id=group_id, topic=topic, partition=partition, payload=payload
        )
        answer = await self._ask("SendMessage", request)
        _check(answer.error)
        return int(answer.offset)

    async def get_message(
        self, topic: str, partition: int, offset: int, *, consumer_id: int = 0, group_id: int = 0
    ) -> bytes:
        """Read the message at an offset."""
        request = pb.GetMessageRequest(
            consumer_id=consumer_id, group_id=group_id, topic=topic, partition=partition, offset=offset
        )
        answer = await self._ask("GetMessage", request, attempts=len(self._channels) + 1)
        _check(answer.error)
        return bytes(answer.payload)

    async def get_offsets(self, topic: str, partition: int) -> Offsets:
        """Tell how far a partition reaches."""
        request = pb.GetOffsetsRequest(topic=topic, partition=partition)
        answer = await self._ask("GetOffsets", request, attempts=len(self._channels) + 1)
        _check(answer.error)
        return Offsets(answer.first_offset, answer.commit_offset, answer.last_offset)

    async def create_partition(
        self,
        topic: str,
        partition: int,
        *,
        max_segment_size: int = 0,
        max_partition_size: int = 0,
        segment_ttl: int = 0,
    ) -> None:
        """Make a partition, and the topic with its first one; sizes in bytes, the ttl in seconds, 0: the default."""
        request = pb.TopicPartitionRequest(
            topic=topic,
            partition=partition,
            max_segment_size=max_segment_size,
            max_partition_size=max_partition_size,
            segment_ttl=segment_ttl,
        )
        _check(await self._ask("CreatePartition", request))

    async def delete_partition(self, topic: str, partition: int) -> None:
        """Remove a partition with its messages, and the topic with its last one."""
        _check(await self._ask("DeletePartition", pb.TopicPartitionRequest(topic=topic, partition=partition)))

    async def delete_topic(self, topic: str) -> None:
        """Remove all partitions of a topic; one that does not exist is no error."""
        _check(await self._ask("DeleteTopic", pb.TopicPartitionRequest(topic=topic)))

    async def broker_info(self) -> str:
        """All topics, their partitions, settings and offsets, as text."""
        answer = await self._ask("BrokerInfo", pb.Void(), attempts=len(self._channels) + 1)
        _check(answer.error)
        return str(answer.dump)

    async def _ask(self, method: str, request: object, *, attempts: int = 1) -> Any:
        while True:
            channel = await self._connected()
            try:
                return await channel.ask(getattr(channel.stub, method)(request, timeout=self._timeout_s))
            except BrokerUnavailableError:
                attempts -= 1
                if attempts <= 0:
                    raise

    async def _connected(self) -> Channel:
        """The channel that was used last if its connection stands, else the first that can be made."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        problem: BrokerUnavailableError | None = None
        for channel in [self._used, *(channel for channel in self._channels if channel is not self._used)]:
            try:
                await channel.connect(max(0.0, deadline - asyncio.get_running_loop().time()))
            except BrokerUnavailableError as error:
                problem = problem or error
            else:
                self._used = channel
                return channel
        assert problem is not None
        raise problem


def _check(error: pb.Error) -> None:
    if error.code != pb.OK:
        raise MyKafkaError(error.code, error.msg)
