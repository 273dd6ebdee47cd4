"""MyKafka's client for programs without an event loop: the same calls, blocking.

with MyKafka("127.0.0.1:50051") as mykafka:
    offset = mykafka.send_message("orders", 0, b"three spools")
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.client.grpc.blocking import BlockingClient
from odradek.client.grpc.mykafka import TIMEOUT_SECONDS, AsyncMyKafka, Offsets


class MyKafka(BlockingClient):
    """MyKafka's seven calls; many threads may share one client."""

    def __init__(
        self, addresses: str | Sequence[str] = "127.0.0.1:50051", *, timeout_s: float = TIMEOUT_SECONDS
    ) -> None:
        """`addresses` is `host:port`, or several; `timeout_s` is the deadline of each call."""
        self._inner = AsyncMyKafka(addresses, timeout_s=timeout_s)
        super().__init__(self._inner)

    def send_message(
        self, topic: str, partition: int, payload: bytes, *, producer_id: int = 0, group_id: int = 0
    ) -> int:
        """Store a message and return its offset."""
        return self._thread.call(
            self._inner.send_message(topic, partition, payload, producer_id=producer_id, group_id=group_id)
        )

    def get_message(self, topic: str, partition: int, offset: int, *, consumer_id: int = 0, group_id: int = 0) -> bytes:
        """Read the message at an offset."""
        return self._thread.call(
            self._inner.get_message(topic, partition, offset, consumer_id=consumer_id, group_id=group_id)
        )

    def get_offsets(self, topic: str, partition: int) -> Offsets:
        """Tell how far a partition reaches."""
        return self._thread.call(self._inner.get_offsets(topic, partition))

    def create_partition(
        self,
        topic: str,
        partition: int,
        *,
        max_segment_size: int = 0,
        max_partition_size: int = 0,
        segment_ttl: int = 0,
    ) -> None:
        """Make a partition, and the topic with its first one; sizes in bytes, the ttl in seconds, 0: the default."""
        self._thread.call(
            self._inner.create_partition(
                topic,
                partition,
                max_segment_size=max_segment_size,
                max_partition_size=max_partition_size,
                segment_ttl=segment_ttl,
            )
        )

    def delete_partition(self, topic: str, partition: int) -> None:
        """Remove a partition with its messages, and the topic with its last one."""
        self._thread.call(self._inner.delete_partition(topic, partition))

    def delete_topic(self, topic: str) -> None:
        """Remove all partitions of a topic; one that does not exist is no error."""
        self._thread.call(self._inner.delete_topic(topic))

    def broker_info(self) -> str:
        """All topics, their partitions, settings and offsets, as text."""
        return self._thread.call(self._inner.broker_info())
