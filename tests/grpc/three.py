"""Three brokers, a channel to each, and the little that a client of a cluster must do: ask who leads, and go there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc

from odradek.proto import eeylops_pb2 as ey
from tests.fault.cluster import ClusterProcesses
from tests.fault.network import LoopbackNetwork
from tests.grpc.doors import Doors
from tests.process import wait_until

NODES = (1, 2, 3)
SOON = 60.0
TRY_SECONDS = 10.0
AGAIN = (ey.KErrNotLeader, ey.KErrReplication, ey.KErrTransport, ey.KErrTimeout)
Answer = TypeVar("Answer")


class Three:
    """Three brokers."""

    def __init__(self, cluster: ClusterProcesses, doors: dict[int, Doors]) -> None:
        self.cluster = cluster
        self.doors = doors

    def leader(self, topic: int, partition: int = 1) -> int:
        """Who leads a partition, as those who run tell it; waits until one of them does."""
        found: list[int] = []

        def is_led() -> bool:
            asked = ey.GetBrokerRequest(topic_id=topic, partition_id=partition)
            for node in self.cluster.running():
                try:
                    answer = self.doors[node].eeylops.GetBroker(asked, timeout=TRY_SECONDS)
                except grpc.RpcError:
                    continue
                if answer.error.error_code == ey.KNoError and answer.leader_config.id in self.cluster.running():
                    found[:] = [answer.leader_config.id]
                    return True
            return False

        wait_until(is_led, SOON, "a leader")
        return found[0]

    def at_leader(self, topic: int, partition: int, ask: Callable[[Doors], Answer]) -> Answer:
        """Ask whoever leads, again and again while nobody does; the answer has an `error` of Eeylops."""
        deadline = time.monotonic() + SOON
        while True:
            try:
                answer: Any = ask(self.doors[self.leader(topic, partition)])
                if answer.error.error_code not in AGAIN:
                    return answer  # type: ignore[no-any-return]
                reason: object = answer.error
            except grpc.RpcError as error:
                reason = error
            assert time.monotonic() < deadline, f"nobody did it within {SOON} s: {reason}"

    def publish(self, topic: int, partition: int, requests: Sequence[Sequence[bytes]]) -> None:
        """Until one stream with all of them was confirmed: at least once."""
        asked = [ey.ProduceRequest(topic_id=topic, partition_id=partition, values=values) for values in requests]
        answer = self.at_leader(topic, partition, lambda doors: doors.eeylops.Publish(iter(asked), timeout=TRY_SECONDS))
        assert answer.error.error_code == ey.KNoError, answer

    def consume(self, topic: int, partition: int, offset: int, most: int = 1_000) -> ey.ConsumeResponse:
        """Read at the leader."""
        asked = ey.ConsumeRequest(topic_id=topic, partition_id=partition, start_offset=offset, batch_size=most)
        answer: ey.ConsumeResponse = self.at_leader(
            topic, partition, lambda doors: doors.eeylops.Consume(asked, timeout=TRY_SECONDS)
        )
        assert answer.error.error_code == ey.KNoError, answer
        return answer

    def values(self, topic: int, partition: int = 1) -> list[tuple[int, bytes]]:
        """All that there is, with the offsets."""
        found: list[tuple[int, bytes]] = []
        offset = 0
        while True:
            answer = self.consume(topic, partition, offset)
            if not answer.values and answer.next_offset == offset:
                return found
            found += [(value.offset, value.value) for value in answer.values]
            offset = answer.next_offset


@contextmanager
def three_brokers(directory: Path, settings: dict[str, str] | None = None) -> Iterator[Three]:
    """Start them; end them."""
    with ExitStack() as stack:
        cluster = stack.enter_context(ClusterProcesses(directory, LoopbackNetwork(), NODES, settings, grpc=True))
        doors = {node: stack.enter_context(Doors(cluster.address(node, "grpc"))) for node in NODES}
        yield Three(cluster, doors)
