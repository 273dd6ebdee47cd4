"""What Eeylops' consumers ask, with the generated stubs; errors are told, not raised."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from odradek.proto import eeylops_pb2 as pb
from tests.eeylops.asking import CALL_SECONDS, Asker, code
from tests.fault.cluster import ClusterProcesses
from tests.fault.network import LoopbackNetwork
from tests.process import BrokerProcess, wait_until

SOON = 60.0  # for another broker to lead, or to coordinate
FOLLOWER = (("odradek-follower", "1"),)
NODES = (1, 2, 3)


class Consumer(Asker):
    """A channel to one broker, for somebody who reads."""

    def register(self, consumer: str, topic: int, partition: int = 1) -> str:
        asked = pb.RegisterConsumerRequest(consumer_id=consumer, topic_id=topic, partition_id=partition)
        return code(self.stub.RegisterConsumer(asked, timeout=CALL_SECONDS).error)

    def commit(self, consumer: str, topic: int, offset: int, partition: int = 1) -> str:
        asked = pb.CommitRequest(consumer_id=consumer, topic_id=topic, partition_id=partition, offset=offset)
        return code(self.stub.Commit(asked, timeout=CALL_SECONDS).error)

    def committed(self, consumer: str, topic: int, partition: int = 1, *, sync: bool = True) -> int | str:
        """The offset, or the error's name."""
        asked = pb.LastCommittedRequest(consumer_id=consumer, topic_id=topic, partition_id=partition, sync=sync)
        answer = self.stub.GetLastCommitted(asked, timeout=CALL_SECONDS)
        told = code(answer.error)
        return int(answer.offset) if told == "KNoError" else told

    def consume(self, topic: int, partition: int = 1, *, follower: bool = False, **fields: Any) -> pb.ConsumeResponse:
        asked = pb.ConsumeRequest(topic_id=topic, partition_id=partition, **fields)
        answer: pb.ConsumeResponse = self.stub.Consume(
            asked, timeout=CALL_SECONDS, metadata=FOLLOWER if follower else None
        )
        return answer

    def read(self, topic: int, partition: int = 1, **fields: Any) -> tuple[list[bytes], int]:
        """Values, and where to go on."""
        answer = self.consume(topic, partition, **fields)
        assert code(answer.error) == "KNoError", answer.error
        return [value.value for value in answer.values], answer.next_offset

    def resume(self, consumer: str, topic: int, partition: int = 1, **fields: Any) -> tuple[list[bytes], int]:
        """Values from the last commit on."""
        return self.read(topic, partition, consumer_id=consumer, start_offset=-1,
                         resume_from_last_committed_offset=True, **fields)  # fmt: skip

    def subscribe(self, topic: int, partition: int = 1, *, follower: bool = False, **fields: Any) -> Any:
        """A stream of answers, which can be cancelled."""
        asked = pb.ConsumeRequest(topic_id=topic, partition_id=partition, **fields)
        return self.stub.Subscribe(asked, timeout=CALL_SECONDS, metadata=FOLLOWER if follower else None)

    def ready(self) -> None:
        """Wait until the broker takes calls, after a restart."""
        grpc.channel_ready_future(self.channel).result(CALL_SECONDS)


def told(answer: pb.ConsumeResponse) -> str:
    """How a read ended."""
    return code(answer.error)


def values(answer: pb.ConsumeResponse) -> list[bytes]:
    """The values of an answer that is none of an error."""
    assert told(answer) == "KNoError", answer.error
    return [value.value for value in answer.values]


def numbered(first: int, end: int) -> list[bytes]:
    """Values that say where they belong."""
    return [b"%d" % number for number in range(first, end)]


@contextmanager
def one_broker(directory: Path, **settings: str) -> Iterator[tuple[BrokerProcess, Consumer]]:
    """A broker, and a channel to it."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with BrokerProcess(directory / "data", named, grpc=True) as broker, Consumer(broker.grpc) as consumer:
        yield broker, consumer


class Three:
    """Three brokers and a channel to each."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self.cluster = cluster
        self.consumers = {node: Consumer(cluster.address(node, "grpc")) for node in NODES}

    def leader(self, topic: int, partition: int = 1, *, among: int = 1, other_than: int = -1) -> int:
        """Who leads, as one of them knows it; waits until somebody does."""
        found: list[int] = []

        def is_led() -> bool:
            answer = self.consumers[among].broker(topic, partition)
            if answer.error.error_code == pb.KNoError and answer.leader_config.id != other_than:
                found.append(answer.leader_config.id)
            return bool(found)

        wait_until(is_led, SOON, "a leader")
        return found[0]

    def produce(self, topic: int, partition: int, values: list[bytes], *, among: int = 1) -> None:
        """Store values with whoever leads."""

        def is_stored() -> bool:
            error = self.consumers[self.leader(topic, partition, among=among)].produce(topic, partition, values)
            assert code(error) in ("KNoError", "KErrNotLeader"), error
            return bool(error.error_code == pb.KNoError)

        wait_until(is_stored, SOON, "values that are stored")


@contextmanager
def three_brokers(directory: Path, settings: dict[str, str] | None = None) -> Iterator[Three]:
    """Start them; end them."""
    with ClusterProcesses(directory, LoopbackNetwork(), NODES, settings, grpc=True) as cluster:
        three = Three(cluster)
        try:
            yield three
        finally:
            for consumer in three.consumers.values():
                consumer.channel.close()


def main() -> None:
    """Subscribe for a consumer and say each value when it is done with it, to be killed at any time."""
    address, consumer_id, topic, batch_size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    with Consumer(address) as consumer:
        stream = consumer.subscribe(
            topic, consumer_id=consumer_id, start_offset=-1, resume_from_last_committed_offset=True,
            batch_size=batch_size,
        )  # fmt: skip
        for answer in stream:
            for value in values(answer):
                print(value.decode(), flush=True)
            assert consumer.commit(consumer_id, topic, answer.next_offset) == "KNoError"


if __name__ == "__main__":
    main()
