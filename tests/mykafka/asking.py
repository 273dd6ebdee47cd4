"""A client of MyKafka's door for tests, over a real channel, with the stubs that are generated from the .proto."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from odradek.proto import mykafka_pb2 as pb
from odradek.proto import mykafka_pb2_grpc

SECONDS = 60.0  # for a call on a machine that has much else to do
TOPIC = "bookstore"


class Client:
    """Asks, and gives codes and plain values."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.stub: Any = mykafka_pb2_grpc.BrokerStub(channel)  # type: ignore[no-untyped-call]

    def create(self, topic: str, partition: int, segment: int = 0, size: int = 0, ttl: int = 0) -> int:
        return self.told_create(topic, partition, segment, size, ttl).code

    def told_create(self, topic: str, partition: int, segment: int = 0, size: int = 0, ttl: int = 0) -> pb.Error:
        request = pb.TopicPartitionRequest(
            topic=topic, partition=partition, max_segment_size=segment, max_partition_size=size, segment_ttl=ttl
        )
        answer: pb.Error = self.stub.CreatePartition(request, timeout=SECONDS)
        return answer

    def delete(self, topic: str, partition: int) -> int:
        request = pb.TopicPartitionRequest(topic=topic, partition=partition)
        return int(self.stub.DeletePartition(request, timeout=SECONDS).code)

    def delete_topic(self, topic: str) -> int:
        return int(self.stub.DeleteTopic(pb.TopicPartitionRequest(topic=topic), timeout=SECONDS).code)

    def send(self, topic: str, partition: int, payload: bytes) -> int:
        """The offset, or the code with a minus."""
        answer = self.told_send(topic, partition, payload)
        return -answer.error.code or answer.offset

    def told_send(self, topic: str, partition: int, payload: bytes, seconds: float = SECONDS) -> pb.SendMessageResponse:
        request = pb.SendMessageRequest(topic=topic, partition=partition, payload=payload)
        answer: pb.SendMessageResponse = self.stub.SendMessage(request, timeout=seconds)
        return answer

    def get(self, topic: str, partition: int, offset: int) -> bytes | int:
        """The message, or the code."""
        answer = self.told_get(topic, partition, offset)
        return answer.error.code or answer.payload

    def told_get(self, topic: str, partition: int, offset: int, seconds: float = SECONDS) -> pb.GetMessageResponse:
        request = pb.GetMessageRequest(topic=topic, partition=partition, offset=offset)
        answer: pb.GetMessageResponse = self.stub.GetMessage(request, timeout=seconds)
        return answer

    def offsets(self, topic: str, partition: int) -> tuple[int, int, int] | int:
        """First, commit and last, or the code."""
        answer = self.stub.GetOffsets(pb.GetOffsetsRequest(topic=topic, partition=partition), timeout=SECONDS)
        if answer.error.code:
            return int(answer.error.code)
        return answer.first_offset, answer.commit_offset, answer.last_offset

    def info(self) -> str:
        return str(self.stub.BrokerInfo(pb.Void(), timeout=SECONDS).dump)


@contextmanager
def asking(address: str) -> Iterator[Client]:
    """A client of one broker."""
    with grpc.insecure_channel(address) as channel:
        yield Client(channel)


def segments(data: Path, topic: str, partition: int) -> int:
    """How many segments a partition has on the disk."""
    return len(list((data / f"{topic}-{partition}").glob("*.log")))
