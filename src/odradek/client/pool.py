"""The open connections of a client: one for each pair of address and channel, made when first asked for.

A channel keeps those apart who would wait for each other: Kafka works off a connection in order, so a fetch that
waits for data, or a join that waits for the others, would hold up everything behind it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TypeAlias

from odradek.client.address import Address
from odradek.client.connection import Connection, connect
from odradek.client.errors import ClientError

Channel: TypeAlias = str  # "" is the one for short requests


class Pool:
    """Connections by address and channel. Used on one event loop."""

    def __init__(self, client_id: str, *, connect_timeout_ms: int) -> None:
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._connections: dict[tuple[Address, Channel], Connection] = {}
        self._opening: dict[tuple[Address, Channel], asyncio.Task[Connection]] = {}
        self._closed = False

    async def get(self, address: Address, channel: Channel = "") -> Connection:
        """An open connection; several callers share one attempt to make it."""
        key = (address, channel)
        connection = self._connections.get(key)
        if connection is not None and connection.is_open:
            return connection
        if self._closed:
            raise ClientError("this client is closed")
        task = self._opening.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(key))
            self._opening[key] = task
            task.add_done_callback(partial(self._opened, key))
        await asyncio.wait([task])  # not `await task`: a caller that is cancelled must not take it from the others
        if task.cancelled():
            raise ClientError("this client, or the part of it that asked, is closed")
        return task.result()

    async def _open(self, key: tuple[Address, Channel]) -> Connection:
        stale = self._connections.pop(key, None)
        if stale is not None:
            await stale.close()
        connection = await connect(key[0], self._client_id, timeout_ms=self._connect_timeout_ms)
        self._connections[key] = connection
        return connection

    def _opened(self, key: tuple[Address, Channel], task: asyncio.Task[Connection]) -> None:
        del self._opening[key]
        if not task.cancelled():
            task.exception()  # perhaps nobody waits any more: asyncio would complain that nobody looked

    async def close_channel(self, channel: Channel) -> None:
        """Close the connections of one channel, whose owner ends."""
        await self._close([key for key in (*self._opening, *self._connections) if key[1] == channel])

    async def close(self) -> None:
        """Close everything."""
        self._closed = True
        await self._close([*self._opening, *self._connections])

    async def _close(self, keys: list[tuple[Address, Channel]]) -> None:
        opening = [self._opening[key] for key in keys if key in self._opening]
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        connections = [self._connections.pop(key) for key in keys if key in self._connections]
        await asyncio.gather(*(connection.close() for connection in connections))
