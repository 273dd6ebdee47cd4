"""How brokers of one cluster ask each other: POST /kraft/v1/<name> at a voter's HTTP door.

A few connections a broker are kept open, as many as there are requests under way at once, up to a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from odradek.client.http import HttpError, HttpLink

CLUSTER_HEADER = "x-odradek-cluster"
SECRET_HEADER = "x-odradek-secret"

_LINKS_MAX = 16  # to one broker


class RefusedError(HttpError):
    """The other broker answered, and not with what was asked for."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__("refused", text)
        self.status = status


class Transport(Protocol):
    """Carries one request to one broker."""

    async def send(self, node: int, name: str, body: Mapping[str, Any], timeout_ms: int) -> dict[str, Any]:
        """Return the answer's JSON object, or raise HttpError."""

    async def close(self) -> None:
        """Give up what is under way."""


class HttpTransport:
    """Carries requests over HTTP."""

    def __init__(
        self, voters: Mapping[int, tuple[str, int]], cluster_id: Callable[[], str], secret: str | None = None
    ) -> None:
        self._voters = voters
        self._cluster_id = cluster_id
        self._secret = secret
        self._idle: dict[int, list[HttpLink]] = {node: [] for node in voters}
        self._busy: dict[int, set[HttpLink]] = {node: set() for node in voters}

    async def send(self, node: int, name: str, body: Mapping[str, Any], timeout_ms: int) -> dict[str, Any]:
        """Return the answer's JSON object, or raise HttpError."""
        link = self._take(node)
        link.headers = cluster_headers(self._cluster_id(), self._secret)
        try:
            status, answer = await link.post(f"/kraft/v1/{name}", body, timeout_ms)
        finally:
            self._busy[node].discard(link)
            self._idle[node].append(link)
        if status != 200 or not isinstance(answer, dict):
            detail = answer.get("detail") if isinstance(answer, dict) else answer
            raise RefusedError(status, f"broker {node} answered {name} with {status}: {detail}")
        return answer

    def _take(self, node: int) -> HttpLink:
        if node not in self._voters:
            raise HttpError("refused", f"broker {node} is not among the voters")
        if len(self._busy[node]) >= _LINKS_MAX:
            raise RefusedError(429, f"{_LINKS_MAX} requests to broker {node} are under way already")
        link = self._idle[node].pop() if self._idle[node] else HttpLink(self._voters[node])
        self._busy[node].add(link)
        return link

    async def close(self) -> None:
        """Hang up."""
        for links in (*self._idle.values(), *self._busy.values()):
            for link in tuple(links):
                await link.close()


def cluster_headers(cluster_id: str, secret: str | None) -> dict[str, str]:
    """What brokers of one cluster show each other."""
    headers = {CLUSTER_HEADER: cluster_id}
    if secret is not None:
        headers[SECRET_HEADER] = secret
    return headers
