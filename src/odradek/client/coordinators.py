"""Finds the broker that looks after a group, and asks it; a move of the coordinator is followed (KIP-699 for v4).

Answers with a coordinator's errors are retried until the time is over; every other error code is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from odradek.client.address import Address
from odradek.client.cluster import Cluster, Node
from odradek.client.errors import BrokerUnavailableError, TimedOutError, check
from odradek.client.pool import Channel
from odradek.client.retry import retry
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import find_coordinator
from odradek.wire.schema import Message

GROUP_KEY = 0

MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
RETRIED = MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNSTABLE_OFFSET_COMMIT}

Answer = TypeVar("Answer", bound=Message)


class Coordinators:
    """The coordinators of groups, as far as they have been asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes: dict[str, int] = {}

    def forget(self, group: str) -> None:
        """Look for the group's coordinator anew at the next request."""
        self._nodes.pop(group, None)

    async def find(self, group: str) -> int:
        """The node that coordinates a group; asks once."""
        node_id = self._nodes.get(group)
        if node_id is not None:
            return node_id
        request = find_coordinator.Request(key=group, key_type=GROUP_KEY, coordinator_keys=[group])
        response = await self._cluster.ask_any(request, find_coordinator.Response)
        what = f"finding the coordinator of group {group}"
        check(response.error_code, what, response.error_message)
        found: find_coordinator.Response | find_coordinator.ResponseCoordinator = response
        if response.coordinators:
            found = response.coordinators[0]
            check(found.error_code, what, found.error_message)
        known = self._cluster.nodes.get(found.node_id)
        address = Address(found.host, found.port)
        if known is None or known.address != address:
            self._cluster.nodes[found.node_id] = Node(found.node_id, address)
        self._nodes[group] = found.node_id
        return found.node_id

    async def ask_once(
        self,
        group: str,
        message: Message,
        answer: type[Answer],
        *,
        channel: Channel = "",
        timeout_ms: int | None = None,
        version_max: int | None = None,
    ) -> Answer:
        """Send one request to a group's coordinator, once."""
        try:
            node_id = await self.find(group)
            return await self._cluster.ask(
                node_id, message, answer, channel=channel, timeout_ms=timeout_ms, version_max=version_max
            )
        except (BrokerUnavailableError, TimedOutError):
            self.forget(group)
            raise

    async def ask(
        self,
        group: str,
        message: Message,
        answer: type[Answer],
        *,
        what: str,
        error_of: Callable[[Answer], int],
        channel: Channel = "",
        version_max: int | None = None,
    ) -> Answer:
        """Send a request to a group's coordinator until one answers that really is it."""

        async def attempt() -> Answer:
            response = await self.ask_once(group, message, answer, channel=channel, version_max=version_max)
            code = error_of(response)
            if code in MOVED:
                self.forget(group)
            if code in RETRIED:
                check(code, what)
            return response

        return await retry(attempt, what=what, timeout_ms=self._cluster.timeouts.total_ms)
