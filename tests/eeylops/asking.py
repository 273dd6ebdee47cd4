"""Eeylops' service asked with the stubs that any client would generate; errors are told, not raised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import grpc

from odradek.proto import eeylops_pb2 as pb
from odradek.proto import eeylops_pb2_grpc

CALL_SECONDS = 60.0
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class Asker:
    """A channel to one broker."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, options=_OPTIONS)
        stub: Any = eeylops_pb2_grpc.EeylopsServiceStub  # generated, without types
        self.stub = stub(self.channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.channel.close()

    def create(self, name: str, partition_ids: Iterable[int] = (), **fields: int) -> pb.Error:
        topic = pb.Topic(topic_name=name, partition_ids=partition_ids, **fields)
        error: pb.Error = self.stub.CreateTopic(pb.CreateTopicRequest(topic=topic), timeout=CALL_SECONDS).error
        return error

    def created(self, name: str, partitions: int = 1, **fields: int) -> int:
        """Make a topic, and tell its id."""
        error = self.create(name, range(1, partitions + 1), **fields)
        assert error.error_code == pb.KNoError, error
        return self.topic(name).topic.topic_id

    def remove(self, topic: int) -> pb.Error:
        error: pb.Error = self.stub.RemoveTopic(pb.RemoveTopicRequest(topic_id=topic), timeout=CALL_SECONDS).error
        return error

    def topic(self, name: str, *, sync: bool = True) -> pb.GetTopicResponse:
        asked = pb.GetTopicRequest(topic_name=name, sync=sync)
        answer: pb.GetTopicResponse = self.stub.GetTopic(asked, timeout=CALL_SECONDS)
        return answer

    def topics(self, *, sync: bool = True) -> dict[int, str]:
        """All topics, in the order in which they are told."""
        answer = self.stub.GetAllTopics(pb.GetAllTopicsRequest(sync=sync), timeout=CALL_SECONDS)
        assert answer.error.error_code == pb.KNoError, answer.error
        return {topic.topic_id: topic.topic_name for topic in answer.topics}

    def produce(self, topic: int, partition: int, values: Sequence[bytes]) -> pb.Error:
        asked = pb.ProduceRequest(topic_id=topic, partition_id=partition, values=values)
        error: pb.Error = self.stub.Produce(asked, timeout=CALL_SECONDS).error
        return error

    def publish(self, requests: Iterable[tuple[int, int, Sequence[bytes]]]) -> tuple[pb.Error, int]:
        """Publish topic, partition and values of each; how it ended, and how many requests are stored."""
        asked = (
            pb.ProduceRequest(topic_id=topic, partition_id=each, values=values) for topic, each, values in requests
        )
        answer, call = self.stub.Publish.with_call(asked, timeout=CALL_SECONDS)
        return answer.error, int(dict(call.trailing_metadata())["odradek-stored"])

    def broker(self, topic: int, partition: int) -> pb.GetLeaderResponse:
        asked = pb.GetBrokerRequest(topic_id=topic, partition_id=partition)
        answer: pb.GetLeaderResponse = self.stub.GetBroker(asked, timeout=CALL_SECONDS)
        return answer

    def leader(self) -> pb.GetLeaderResponse:
        answer: pb.GetLeaderResponse = self.stub.GetLeader(pb.GetLeaderRequest(), timeout=CALL_SECONDS)
        return answer

    def config(self) -> pb.ClusterConfig:
        answer = self.stub.GetClusterConfig(pb.GetClusterConfigRequest(), timeout=CALL_SECONDS)
        assert answer.error.error_code == pb.KNoError, answer.error
        config: pb.ClusterConfig = answer.config
        return config

    def values(self, topic: int, partition: int = 1) -> list[bytes]:
        """All that a partition has, in order."""
        found: list[bytes] = []
        offset = 0
        while True:
            asked = pb.ConsumeRequest(topic_id=topic, partition_id=partition, start_offset=offset, batch_size=10_000)
            answer = self.stub.Consume(asked, timeout=CALL_SECONDS)
            assert answer.error.error_code == pb.KNoError, answer.error
            if not answer.values:
                return found
            found += [value.value for value in answer.values]
            offset = answer.next_offset


def code(error: pb.Error) -> str:
    """How a call ended, by name; what is not well is said with a text."""
    assert (error.error_code == pb.KNoError) == (error.error_msg == ""), error
    return pb.ErrorCodes.Name(error.error_code)
