"""Eeylops doors that misbehave on command, for what a good cluster shows only at the wrong moment.

They store what they are sent, in one list. Everything a good broker can show is tested against a real one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from odradek.proto import eeylops_pb2 as pb
from odradek.proto import eeylops_pb2_grpc

NOBODY = -1
OK = pb.Error(leader_id=NOBODY)


class Nodes:
    """What the brokers of a made-up cluster share."""

    def __init__(self) -> None:
        self.ports: dict[int, int] = {}
        self.leader = 1
        self.next_leaders: list[int] = []  # each question who leads moves it on to the next
        self.stored: list[bytes] = []


class Door(eeylops_pb2_grpc.EeylopsServiceServicer):
    """One broker; a test replaces what it wants to go wrong."""

    def __init__(self, id_: int, nodes: Nodes) -> None:
        self.id = id_
        self.nodes = nodes
        self.asked: list[str] = []
        self.publish: Callable[[Door, AsyncIterator[pb.ProduceRequest], Any], Awaitable[pb.Error]] | None = None
        self.subscribe: Callable[[Door, pb.ConsumeRequest, Any], AsyncIterator[pb.ConsumeResponse]] | None = None
        self.create: Callable[[Door, Any], Awaitable[pb.Error]] | None = None
        self.remove: Callable[[Door, Any], Awaitable[pb.Error]] | None = None

    def refusal(self) -> pb.Error | None:
        """What it says if it does not lead."""
        if self.nodes.leader == self.id:
            return None
        return pb.Error(error_code=pb.KErrNotLeader, error_msg="not me", leader_id=self.nodes.leader)

    async def GetClusterConfig(self, request: Any, context: Any) -> pb.GetClusterConfigResponse:  # noqa: N802
        nodes = [pb.NodeConfig(id=id_, host="127.0.0.1", port=port) for id_, port in self.nodes.ports.items()]
        return pb.GetClusterConfigResponse(error=OK, config=pb.ClusterConfig(node_config_list=nodes, leader_id=1))

    async def GetBroker(self, request: Any, context: Any) -> pb.GetLeaderResponse:  # noqa: N802
        self.asked.append("GetBroker")
        if self.nodes.next_leaders:
            self.nodes.leader = self.nodes.next_leaders.pop(0)
        leader = self.nodes.leader
        if leader == NOBODY:
            return pb.GetLeaderResponse(error=pb.Error(error_code=pb.KErrNotLeader, error_msg="none", leader_id=-1))
        node = pb.NodeConfig(id=leader, host="127.0.0.1", port=self.nodes.ports[leader])
        return pb.GetLeaderResponse(error=OK, leader_config=node)

    async def CreateTopic(self, request: Any, context: Any) -> pb.CreateTopicResponse:  # noqa: N802
        assert self.create is not None
        return pb.CreateTopicResponse(error=await self.create(self, context))

    async def RemoveTopic(self, request: Any, context: Any) -> pb.RemoveTopicResponse:  # noqa: N802
        assert self.remove is not None
        return pb.RemoveTopicResponse(error=await self.remove(self, context))

    async def GetTopic(self, request: Any, context: Any) -> pb.GetTopicResponse:  # noqa: N802
        return pb.GetTopicResponse(error=OK, topic=pb.Topic(topic_id=7, topic_name="t", partition_ids=[1]))

    async def Produce(self, request: pb.ProduceRequest, context: Any) -> pb.ProduceResponse:  # noqa: N802
        self.asked.append("Produce")
        if (error := self.refusal()) is not None:
            return pb.ProduceResponse(error=error)
        self.nodes.stored.extend(request.values)
        return pb.ProduceResponse(error=OK)

    async def Publish(  # noqa: N802
        self, requests: AsyncIterator[pb.ProduceRequest], context: Any
    ) -> pb.ProduceResponse:
        self.asked.append("Publish")
        if (error := self.refusal()) is not None:
            return pb.ProduceResponse(error=error)
        if self.publish is not None:
            return pb.ProduceResponse(error=await self.publish(self, requests, context))
        async for request in requests:
            self.nodes.stored.extend(request.values)
        return pb.ProduceResponse(error=OK)

    async def Subscribe(  # noqa: N802
        self, request: pb.ConsumeRequest, context: Any
    ) -> AsyncIterator[pb.ConsumeResponse]:
        self.asked.append(f"Subscribe {request.start_offset}")
        if (error := self.refusal()) is not None:
            yield pb.ConsumeResponse(error=error)
            return
        assert self.subscribe is not None
        async for answer in self.subscribe(self, request, context):
            yield answer


@asynccontextmanager
async def doors(count: int) -> AsyncIterator[list[Door]]:
    """So many brokers, ids from 1; the first leads."""
    nodes = Nodes()
    servers, made = [], []
    for id_ in range(1, count + 1):
        server = grpc.aio.server()
        made.append(Door(id_, nodes))
        eeylops_pb2_grpc.add_EeylopsServiceServicer_to_server(made[-1], server)  # type: ignore[no-untyped-call]
        nodes.ports[id_] = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
    try:
        yield made
    finally:
        for server in servers:
            await server.stop(None)


def address(door: Door) -> str:
    """Where a door listens."""
    return f"127.0.0.1:{door.nodes.ports[door.id]}"


def values(first: int, *texts: bytes) -> pb.ConsumeResponse:
    """An answer with values from an offset on."""
    found = [pb.Value(offset=first + at, timestamp=1, value=text) for at, text in enumerate(texts)]
    return pb.ConsumeResponse(error=OK, values=found, next_offset=first + len(texts))
