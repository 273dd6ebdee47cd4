"""Requests that the leader of a partition must answer: here, or passed on to it, whichever broker was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol
from urllib.parse import urlencode

from odradek.client.http import HttpError
from odradek.edge.rest.errors import problem_of
from odradek.edge.rest.forwarding import Forwarder
from odradek.edge.rest.guard import FORWARDED_HEADER, Guard
from odradek.edge.routing import NO_CONTENT, Page, Request, RequestError
from odradek.model import TopicPartition
from odradek.wire.errors import PeerError

_LEADER_SECONDS_MAX = 5.0  # for a partition to get a leader that answers
_RETRY_SECONDS = 0.05


class LeadersPort(Protocol):
    """What a broker knows of leaders."""

    def leads(self, topic: str, partition: int) -> bool:
        """Say whether this broker leads a partition; False for one that does not exist."""

    def leader_url(self, topic: str, partition: int) -> tuple[str, int] | None:
        """Where the HTTP door of a partition's leader is; None without a leader or a partition."""


class _UndoneError(Exception):
    """Nobody has carried the request out; it may be tried again."""


class Leading:
    """Finds who answers."""

    def __init__(self, port: LeadersPort, guard: Guard) -> None:
        self._port = port
        self._guard = guard
        self._forwarder = Forwarder(guard)

    async def close(self) -> None:
        """Hang up on other brokers."""
        await self._forwarder.close()

    async def answer(
        self, request: Request, place: TopicPartition, here: Callable[[], Awaitable[Page]],
        headers: Mapping[str, str], timeout_ms: int, *, may_repeat: bool,
    ) -> Page:  # fmt: skip
        """Have the partition's leader answer; `headers` go with a request that is passed on.

        What was certainly not carried out is tried again for a while, and so is all that may be done twice.
        """
        is_forwarded = FORWARDED_HEADER in request.headers
        if is_forwarded:
            self._guard.check(request)
            if not self._port.leads(*place):
                raise RequestError(421, f"this broker does not lead {place}")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LEADER_SECONDS_MAX
        while True:
            try:
                if self._port.leads(*place):
                    return await here()
                return await self._pass_on(request, place, headers, timeout_ms, may_repeat=may_repeat)
            except PeerError as error:
                problem, is_undone = problem_of(error), may_repeat and error.code.retriable
            except _UndoneError as error:
                problem, is_undone = RequestError(503, str(error)), True
            if not is_undone or is_forwarded or problem.status != 503 or loop.time() >= deadline:
                raise problem
            await asyncio.sleep(_RETRY_SECONDS)

    async def _pass_on(
        self, request: Request, place: TopicPartition, headers: Mapping[str, str], timeout_ms: int, *, may_repeat: bool
    ) -> Page:
        address = self._port.leader_url(*place)
        if address is None:
            raise _UndoneError(f"{place} has no leader at the moment; try again")
        target = f"{request.path}?{urlencode(request.query)}" if request.query else request.path
        try:
            status, answer = await self._forwarder.send(
                address, request.method, target, headers, request.body, timeout_ms
            )
        except HttpError as error:
            if may_repeat or error.kind == "refused":
                raise _UndoneError(f"the leader of {place}: {error}; try again") from None
            raise RequestError(
                503, f"the leader of {place}: {error}; whether it has done its work is not known"
            ) from None
        if status == 421:
            raise _UndoneError(f"{place} has just changed its leader; try again")
        return NO_CONTENT if status == 204 else Page(answer, "application/json", status)
