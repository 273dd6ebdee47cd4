"""Both services at one address, called with the generated stubs alone: what a client in any language would do."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import grpc

from odradek.proto import eeylops_pb2 as ey
from odradek.proto import eeylops_pb2_grpc, mykafka_pb2_grpc
from odradek.proto import mykafka_pb2 as mk

CALL_SECONDS = 60.0
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # the door's bounds count
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a connection that no other channel of this process shares
    ("grpc.initial_reconnect_backoff_ms", 100),  # brokers are killed and come back here
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
)


class Doors:
    """A channel to one broker. What is asserted here is that a call went well."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel = grpc.insecure_channel(address, options=_OPTIONS)
        stubs: Any = (mykafka_pb2_grpc.BrokerStub, eeylops_pb2_grpc.EeylopsServiceStub)  # they have no types
        self.mykafka, self.eeylops = (stub(self.channel) for stub in stubs)

    def wait(self) -> Self:
        """Until there is a connection: the broker may just have come back."""
        self.mykafka.BrokerInfo(mk.Void(), timeout=CALL_SECONDS, wait_for_ready=True)
        return self

    def close(self) -> None:
        self.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # MyKafka

    def create_partition(self, topic: str, partition: int = 0, **settings: int) -> None:
        asked = mk.TopicPartitionRequest(topic=topic, partition=partition, **settings)
        error = self.mykafka.CreatePartition(asked, timeout=CALL_SECONDS)
        assert error.code == mk.OK, error

    def send(self, topic: str, partition: int, payload: bytes) -> int:
        """The offset."""
        asked = mk.SendMessageRequest(topic=topic, partition=partition, payload=payload)
        answer = self.mykafka.SendMessage(asked, timeout=CALL_SECONDS)
        assert answer.error.code == mk.OK, answer
        return int(answer.offset)

    def get(self, topic: str, partition: int, offset: int) -> bytes:
        asked = mk.GetMessageRequest(topic=topic, partition=partition, offset=offset)
        answer = self.mykafka.GetMessage(asked, timeout=CALL_SECONDS)
        assert answer.error.code == mk.OK, answer
        return bytes(answer.payload)

    def offsets(self, topic: str, partition: int) -> tuple[int, int, int]:
        """First, commit and last."""
        asked = mk.GetOffsetsRequest(topic=topic, partition=partition)
        answer = self.mykafka.GetOffsets(asked, timeout=CALL_SECONDS)
        assert answer.error.code == mk.OK, answer
        return answer.first_offset, answer.commit_offset, answer.last_offset

    def dump(self) -> str:
        answer = self.mykafka.BrokerInfo(mk.Void(), timeout=CALL_SECONDS)
        assert answer.error.code == mk.OK, answer
        return str(answer.dump)

    # Eeylops

    def create_topic(self, name: str, partitions: int = 1) -> int:
        """The id."""
        topic = ey.Topic(topic_name=name, partition_ids=range(1, partitions + 1))
        error = self.eeylops.CreateTopic(ey.CreateTopicRequest(topic=topic), timeout=CALL_SECONDS).error
        assert error.error_code == ey.KNoError, error
        return self.topic(name).topic_id

    def topic(self, name: str) -> ey.Topic:
        asked = ey.GetTopicRequest(topic_name=name, sync=True)
        answer = self.eeylops.GetTopic(asked, timeout=CALL_SECONDS)
        assert answer.error.error_code == ey.KNoError, answer
        found: ey.Topic = answer.topic
        return found

    def topics(self) -> dict[str, int]:
        """The id of each topic."""
        answer = self.eeylops.GetAllTopics(ey.GetAllTopicsRequest(sync=True), timeout=CALL_SECONDS)
        assert answer.error.error_code == ey.KNoError, answer
        return {topic.topic_name: topic.topic_id for topic in answer.topics}

    def remove_topic(self, topic: int) -> None:
        error = self.eeylops.RemoveTopic(ey.RemoveTopicRequest(topic_id=topic), timeout=CALL_SECONDS).error
        assert error.error_code == ey.KNoError, error

    def produce(self, topic: int, partition: int, values: Sequence[bytes]) -> None:
        asked = ey.ProduceRequest(topic_id=topic, partition_id=partition, values=values)
        error = self.eeylops.Produce(asked, timeout=CALL_SECONDS).error
        deadline = time.monotonic() + CALL_SECONDS
        while error.error_code == ey.KErrNotLeader and error.leader_id == -1 and time.monotonic() < deadline:
            error = self.eeylops.Produce(asked, timeout=CALL_SECONDS).error  # the leader makes the topic first
        assert error.error_code == ey.KNoError, error

    def publish(self, topic: int, partition: int, requests: Iterable[Sequence[bytes]]) -> None:
        asked = (ey.ProduceRequest(topic_id=topic, partition_id=partition, values=values) for values in requests)
        error = self.eeylops.Publish(asked, timeout=CALL_SECONDS).error
        assert error.error_code == ey.KNoError, error

    def consume(self, topic: int, partition: int = 1, **fields: Any) -> ey.ConsumeResponse:
        asked = ey.ConsumeRequest(topic_id=topic, partition_id=partition, **fields)
        answer: ey.ConsumeResponse = self.eeylops.Consume(asked, timeout=CALL_SECONDS)
        assert answer.error.error_code == ey.KNoError, answer
        return answer

    def values(self, topic: int, partition: int = 1) -> list[bytes]:
        """All that there is, by Consume."""
        found: list[bytes] = []
        offset = 0
        while True:
            answer = self.consume(topic, partition, start_offset=offset, batch_size=1_000)
            if not answer.values and answer.next_offset == offset:
                return found
            found += [value.value for value in answer.values]
            offset = answer.next_offset

    def streamed(self, topic: int, partition: int, count: int) -> list[bytes]:
        """So many values from the first on, by Subscribe."""
        asked = ey.ConsumeRequest(topic_id=topic, partition_id=partition)
        stream = self.eeylops.Subscribe(asked, timeout=CALL_SECONDS)
        found: list[bytes] = []
        for answer in stream:
            assert answer.error.error_code == ey.KNoError, answer
            found += [value.value for value in answer.values]
            if len(found) >= count:
                stream.cancel()
                break
        return found

    def register(self, consumer: str, topic: int, partition: int = 1) -> None:
        asked = ey.RegisterConsumerRequest(consumer_id=consumer, topic_id=topic, partition_id=partition)
        error = self.eeylops.RegisterConsumer(asked, timeout=CALL_SECONDS).error
        assert error.error_code == ey.KNoError, error

    def commit(self, consumer: str, topic: int, offset: int, partition: int = 1) -> ey.Error:
        """How it ended."""
        asked = ey.CommitRequest(consumer_id=consumer, topic_id=topic, partition_id=partition, offset=offset)
        error: ey.Error = self.eeylops.Commit(asked, timeout=CALL_SECONDS).error
        return error

    def committed(self, consumer: str, topic: int, partition: int = 1) -> int:
        asked = ey.LastCommittedRequest(consumer_id=consumer, topic_id=topic, partition_id=partition, sync=True)
        answer = self.eeylops.GetLastCommitted(asked, timeout=CALL_SECONDS)
        assert answer.error.error_code == ey.KNoError, answer
        return int(answer.offset)


def is_well(doors: Doors) -> bool:
    """Whether the broker still does its work: a partition is made, written, read and removed."""
    name = "sign_of_life"
    doors.create_partition(name)
    offset = doors.send(name, 0, b"alive")
    found = doors.get(name, 0, offset)
    asked = mk.TopicPartitionRequest(topic=name, partition=0)
    error = doors.mykafka.DeleteTopic(asked, timeout=CALL_SECONDS)
    return found == b"alive" and error.code == mk.OK
