"""A broker that misbehaves on command, for the faults that a good broker never shows.

It stores nothing. Each API has a handler that the test can replace: return an answer, or `None` to say nothing, or
raise `Hangup` to break the connection. Everything a good broker can show is tested against a real one.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType, TracebackType
from typing import Any, Self, TypeAlias

from odradek.wire.api import ApiKey, response_header_version
from odradek.wire.headers import decode_request_header, encode_response_header
from odradek.wire.messages import (
    api_versions,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
)
from odradek.wire.schema import Message

Handler: TypeAlias = Callable[[Any], Message | bytes | None]

NODE_ID = 1
TOPIC = "t"
TOPIC_ID = bytes(range(16))
PRODUCER_ID = 4711

MODULES: tuple[ModuleType, ...] = (
    api_versions, fetch, find_coordinator, heartbeat, init_producer_id, join_group, leave_group, list_offsets, metadata,
    offset_commit, offset_fetch, produce, sync_group,
)  # fmt: skip
REQUESTS: Mapping[int, type[Message]] = {int(module.Request.api_key): module.Request for module in MODULES}


class Hangup(Exception):  # noqa: N818 - it is an order, not an error
    """Break the connection."""


class ScriptedBroker:
    """A node of a cluster with one topic."""

    def __init__(self, *, node_id: int = NODE_ID, port: int = 0) -> None:
        self.node_id = node_id
        self.cluster = [self]  # all nodes, as its metadata shows them
        self.leader_id = node_id  # of every partition
        self.asked: list[Message] = []
        self.versions: list[tuple[int, int]] = []  # API key and version of each request
        self.connections = 0
        self.partition_count = 1
        self.ranges = {key: request.versions for key, request in REQUESTS.items()}
        self.handlers: dict[ApiKey, Handler] = {
            ApiKey.API_VERSIONS: self.on_api_versions,
            ApiKey.METADATA: self.on_metadata,
            ApiKey.INIT_PRODUCER_ID: lambda _: init_producer_id.Response(producer_id=PRODUCER_ID),
            ApiKey.FIND_COORDINATOR: self.on_find_coordinator,
        }
        self._port = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._port}"

    def asked_for(self, kind: type[Message]) -> list[Any]:
        """The requests of one kind so far."""
        return [message for message in self.asked if isinstance(message, kind)]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.hang_up()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def hang_up(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        self.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError, Hangup):
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                answer = self._answer(await reader.readexactly(length))
                if answer is not None:
                    writer.write(struct.pack(">i", len(answer)) + answer)
                    await writer.drain()
        self._writers.discard(writer)
        writer.transport.abort()

    def _answer(self, frame: bytes) -> bytes | None:
        header, at = decode_request_header(frame)
        version = header.api_version
        message = REQUESTS[header.api_key].decode(frame, version, at)
        self.asked.append(message)
        self.versions.append((header.api_key, version))
        answer = self.handlers[ApiKey(header.api_key)](message)
        if answer is None:
            return None
        body = answer if isinstance(answer, bytes) else answer.encode(version)
        return (
            encode_response_header(header.correlation_id, response_header_version(header.api_key, version) > 0) + body
        )

    def on_api_versions(self, _: api_versions.Request) -> Message | bytes:
        """Say what is spoken here."""
        return api_versions.Response(
            api_keys=[
                api_versions.ResponseApiKey(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self.ranges.items()
            ]
        )

    def on_metadata(self, request: metadata.Request) -> metadata.Response:
        """Describe the nodes and the only topic."""
        partitions = [
            metadata.ResponsePartition(partition_index=index, leader_id=self.leader_id)
            for index in range(self.partition_count)
        ]
        topics = [metadata.ResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=partitions)]
        wanted = [TOPIC] if request.topics is None else [topic.name for topic in request.topics]
        return metadata.Response(
            brokers=[
                metadata.ResponseBroker(node_id=node.node_id, host="127.0.0.1", port=node._port)
                for node in self.cluster
            ],
            controller_id=self.node_id,
            topics=topics if TOPIC in wanted else [],
        )

    def on_find_coordinator(self, request: find_coordinator.Request) -> find_coordinator.Response:
        """It is the coordinator of everything."""
        found = [
            find_coordinator.ResponseCoordinator(key=key, node_id=self.node_id, host="127.0.0.1", port=self._port)
            for key in request.coordinator_keys
        ]
        return find_coordinator.Response(node_id=self.node_id, host="127.0.0.1", port=self._port, coordinators=found)


def produced(error_code: int = 0, *, base_offset: int = 0, message: str | None = None, **more: Any) -> produce.Response:
    """An answer to Produce for the only partition."""
    partition = produce.ResponsePartition(
        index=0, error_code=error_code, base_offset=base_offset, error_message=message, **more
    )
    return produce.Response(
        responses=[produce.ResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partition_responses=[partition])]
    )


def batch_of(request: produce.Request) -> bytes:
    """The batch that a Produce request carries."""
    records = request.topic_data[0].partition_data[0].records
    assert records is not None
    return bytes(records)
