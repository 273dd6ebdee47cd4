"""The quorum's door: what brokers ask each other, at /kraft/v1/ (SSKafka's three requests and ours beside them).

Only brokers of the own cluster are let in, see `odradek.edge.rest.guard`. What the bodies mean is the quorum's
business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from odradek.edge.rest import fields
from odradek.edge.rest.errors import problem_of
from odradek.edge.rest.guard import Guard, Member
from odradek.edge.rest.kraft_docs import COMMAND, DOCS, STATUS
from odradek.edge.routing import Handler, Page, Request, RequestError, Route, json_page
from odradek.wire.errors import PeerError

REQUESTS = tuple(DOCS)  # voteRequest and the like: the last piece of their paths

OnClose = Callable[[Callable[[], None]], None]  # has something called when the asking broker's connection is lost


class KraftPort(Member, Protocol):
    """What this door needs of the quorum and its controller."""

    async def receive(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request of REQUESTS; PeerError if it cannot, NOT_CONTROLLER among them if the leader must."""

    async def command(self, command: str, args: Mapping[str, Any], on_close: OnClose) -> dict[str, Any]:
        """Carry out a command on the active controller; PeerError says why not."""

    def status(self) -> Mapping[str, Any]:
        """How the quorum stands, for people and tools."""


def routes(port: KraftPort) -> list[Route]:
    """Make the routes of the quorum."""
    guard = Guard(port)

    async def command(request: Request) -> Page:
        guard.check(request)
        body = request.json()
        args = body.get("args", {})
        if not isinstance(args, dict):
            raise RequestError(400, "args must be an object")
        try:
            return json_page(await port.command(fields.text(body, "command"), args, request.on_close))
        except PeerError as error:
            return json_page({"error": int(error.code), "message": error.message})

    def status(request: Request) -> Page:
        guard.check(request)
        return json_page(port.status())

    return [
        *(Route("POST", f"/kraft/v1/{name}", _receiver(port, guard, name), doc) for name, doc in DOCS.items()),
        Route("POST", "/kraft/v1/command", command, COMMAND),
        Route("GET", "/kraft/v1/status", status, STATUS),
    ]


def _receiver(port: KraftPort, guard: Guard, name: str) -> Handler:
    async def receive(request: Request) -> Page:
        guard.check(request)
        try:
            return json_page(await port.receive(name, request.json()))
        except PeerError as error:
            raise problem_of(error) from None

    return receive
