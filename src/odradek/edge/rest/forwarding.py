"""Requests that another broker must answer: sent there as they came, over links that are kept for the next ones.

A link carries one request at a time and a request may wait long, so each under way has a link of its own; how many
there are is bounded by the connections that the door takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from odradek.client.http import HttpLink
from odradek.edge.rest.guard import FORWARDED_HEADER, Guard

_SPARE_MAX = 4  # links kept for an address
_SPARE_SECONDS_MAX = 30.0  # less than the other door lets a connection idle

Address = tuple[str, int]
_Answer = TypeVar("_Answer")
_NO_HEADERS: Mapping[str, str] = {}


class _Spare(NamedTuple):
    link: HttpLink
    since: float


class Forwarder:
    """Asks other brokers in a client's place."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._spare: dict[Address, list[_Spare]] = {}
        self._is_closed = False

    async def post(
        self, address: Address, path: str, body: Mapping[str, Any], timeout_ms: int,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> tuple[int, Any]:  # fmt: skip
        """Pass a request on, with headers of the client's; give its status and answer. HttpError if there is none."""
        return await self._ask(address, lambda link: link.post(path, body, timeout_ms), headers)

    async def send(
        self, address: Address, method: str, target: str, headers: Mapping[str, str], content: bytes, timeout_ms: int
    ) -> tuple[int, bytes]:
        """Do the same for any request; bytes stay as they are, both ways."""
        return await self._ask(address, lambda link: link.send(method, target, content, timeout_ms), headers)

    async def _ask(
        self, address: Address, ask: Callable[[HttpLink], Awaitable[_Answer]], headers: Mapping[str, str]
    ) -> _Answer:
        link = await self._take(address)
        link.headers = {**headers, **self._guard.headers(), FORWARDED_HEADER: "1"}
        try:
            answer = await ask(link)
        except BaseException:
            await link.close()
            raise
        await self._keep(address, link)
        return answer

    async def close(self) -> None:
        """Hang up everywhere."""
        self._is_closed = True
        spare, self._spare = self._spare, {}
        for links in spare.values():
            for link, _ in links:
                await link.close()

    async def _take(self, address: Address) -> HttpLink:
        links = self._spare.get(address, [])
        while links:
            link, since = links.pop()
            if asyncio.get_running_loop().time() - since <= _SPARE_SECONDS_MAX:
                return link
            await link.close()
        return HttpLink(address)

    async def _keep(self, address: Address, link: HttpLink) -> None:
        links = self._spare.setdefault(address, [])
        if len(links) >= _SPARE_MAX or self._is_closed:
            await link.close()
        else:
            links.append(_Spare(link, asyncio.get_running_loop().time()))
