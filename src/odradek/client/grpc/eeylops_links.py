"""Eeylops' client and the brokers of a cluster: their channels, who leads a partition, and asking until it works.

A broker that cannot be reached, one that does not lead, and a partition without a leader for a moment are waited out,
with growing pauses, up to a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

from odradek.client.address import Address
from odradek.client.errors import BrokerUnavailableError, ClientError, TimedOutError
from odradek.client.grpc.channels import Channel
from odradek.client.grpc.eeylops_types import ClusterConfig, Node, Place
from odradek.client.grpc.errors import EeylopsError, ErrorCodes
from odradek.client.retry import pause_ms
from odradek.proto import eeylops_pb2 as pb
from odradek.proto.eeylops_pb2_grpc import EeylopsServiceStub

NOBODY = -1
LOOK_SECONDS_MAX = 5.0  # for one question about who leads
ASK_SECONDS_MAX = 10.0  # for one that any broker can answer: then another one is asked

NOT_LEADER = frozenset({ErrorCodes.NOT_LEADER})
# Worth another attempt where doing it twice does no harm.
PASSING = NOT_LEADER | {ErrorCodes.REPLICATION, ErrorCodes.TRANSPORT}

Result = TypeVar("Result")
Attempt = Callable[[Channel, float], Awaitable[Result]]  # at a broker, within so many seconds


class Deadline:
    """How long one may go on trying, and the growing pauses between attempts."""

    def __init__(self, timeout_s: float) -> None:
        self._at = asyncio.get_running_loop().time() + timeout_s
        self._attempt = 0
        self._problem: ClientError = TimedOutError(f"no broker gave a good answer within {timeout_s:g} s")

    def left_s(self) -> float:
        """The seconds that are left; if there are none, the last problem is raised, or a TimedOutError."""
        left = self._at - asyncio.get_running_loop().time()
        if left <= 0:
            raise self._problem
        return left

    async def pause(self, problem: ClientError) -> None:
        """Wait before the next attempt; the problem is raised if there is no time for one."""
        self._problem = problem
        pause_s = pause_ms(self._attempt) / 1000
        self._attempt += 1
        if asyncio.get_running_loop().time() + pause_s >= self._at:
            raise problem
        await asyncio.sleep(pause_s)


class Links:
    """The brokers that are known, and a channel to each that was needed."""

    def __init__(self, bootstrap: list[Address], timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._bootstrap = bootstrap
        self._nodes: dict[int, Address] = {}
        self._leaders: dict[Place, int] = {}
        self._channels: dict[Address, Channel] = {}
        self._home = bootstrap[0]  # who is asked what any broker can answer

    async def close(self) -> None:
        """Hang up everywhere."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()

    # What any broker answers.

    async def anywhere(self, attempt: Attempt[Result], passing: Collection[int] = PASSING) -> Result:
        """Ask brokers one after the other until one gives a good answer, or one that no other would improve."""
        deadline = Deadline(self.timeout_s)
        while True:
            problem: ClientError | None = None
            addresses = self._addresses()
            for address in addresses:
                channel = self._channel(address)
                try:
                    await channel.connect(deadline.left_s())
                    left_s = deadline.left_s()
                    answer = await attempt(channel, left_s if len(addresses) == 1 else min(left_s, ASK_SECONDS_MAX))
                except EeylopsError as error:
                    if error.code not in passing:
                        raise
                    problem = error
                except (BrokerUnavailableError, TimedOutError) as error:
                    problem = problem or error
                else:
                    self._home = address
                    return answer
            assert problem is not None
            await deadline.pause(problem)

    async def refresh(self) -> ClusterConfig:
        """Learn which brokers there are."""

        async def ask(channel: Channel, left_s: float) -> ClusterConfig:
            answer = await channel.ask(channel.stub.GetClusterConfig(pb.GetClusterConfigRequest(), timeout=left_s))
            check(answer.error)
            nodes = tuple(Node(node.id, node.host, node.port) for node in answer.config.node_config_list)
            return ClusterConfig(nodes, answer.config.leader_id)

        config = await self.anywhere(ask)
        self._nodes = {node.id: Address(node.host, node.port) for node in config.nodes if node.port}
        return config

    # What only a partition's leader answers.

    async def at_leader(
        self, place: Place, attempt: Attempt[Result], *, passing: Collection[int], at_home: bool = False
    ) -> Result:
        """Ask a partition's leader, following it; `at_home` asks the broker at hand first, which may be a replica."""
        deadline = Deadline(self.timeout_s)
        while True:
            try:
                channel = self.at_hand() if at_home else await self.leader(place, deadline)
                at_home = False
                await channel.connect(deadline.left_s())
                return await attempt(channel, deadline.left_s())
            except EeylopsError as error:
                if error.code not in passing:
                    raise
                problem: ClientError = error
                self.learn(place, error)
            except BrokerUnavailableError as error:
                problem = error
                self.forget(place)
            await deadline.pause(problem)

    async def leader(self, place: Place, deadline: Deadline) -> Channel:
        """A channel to the broker that leads; EeylopsError with NOT_LEADER if nobody does, or it has no gRPC door."""
        known = self._leaders.get(place)
        if known is not None and known in self._nodes:
            return self._channel(self._nodes[known])
        node = await self.ask_leader(place, deadline.left_s())
        if node.id == NOBODY:
            raise EeylopsError(ErrorCodes.NOT_LEADER, f"nobody leads partition {place.partition_id} at this moment")
        if not node.port:
            raise EeylopsError(
                ErrorCodes.NOT_LEADER, f"broker {node.id}, which leads, has no gRPC door: start it with --grpc", node.id
            )
        self._nodes[node.id] = Address(node.host, node.port)
        self._leaders[place] = node.id
        return self._channel(self._nodes[node.id])

    def at_hand(self) -> Channel:
        """A channel to the broker that answered last."""
        return self._channel(self._home)

    async def ask_leader(self, place: Place, left_s: float) -> Node:
        """Ask the brokers at hand who leads a partition."""
        request = pb.GetBrokerRequest(topic_id=place.topic_id, partition_id=place.partition_id)
        problem: ClientError | None = None
        for address in self._addresses():
            channel = self._channel(address)
            try:
                await channel.connect(left_s)
                answer = await channel.ask(channel.stub.GetBroker(request, timeout=min(left_s, LOOK_SECONDS_MAX)))
            except (BrokerUnavailableError, TimedOutError) as error:
                problem = problem or error
                continue
            self._home = address
            if answer.error.error_code == pb.KErrNotLeader:
                return Node(NOBODY, "", 0)
            check(answer.error)
            node = answer.leader_config
            return Node(node.id, node.host, node.port)
        assert problem is not None
        raise problem

    def learn(self, place: Place, error: EeylopsError) -> None:
        """Take note of the leader that an answer names."""
        if error.code != ErrorCodes.NOT_LEADER:
            return
        if error.leader_id == NOBODY or self._leaders.get(place) == error.leader_id:
            self._leaders.pop(place, None)  # nobody, or one that has said no: ask anew
        else:
            self._leaders[place] = error.leader_id

    def forget(self, place: Place) -> None:
        """The leader of a partition did not answer."""
        self._leaders.pop(place, None)

    def _addresses(self) -> list[Address]:
        """All that are known, the one that answered last first."""
        return list(dict.fromkeys([self._home, *self._nodes.values(), *self._bootstrap]))

    def _channel(self, address: Address) -> Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = Channel(address, EeylopsServiceStub)
        return channel


def check(error: Any) -> None:
    """Raise an EeylopsError unless the answer says that it is well."""
    if error.error_code != pb.KNoError:
        raise EeylopsError(error.error_code, error.error_msg, error.leader_id)
