"""Katar's REST door (seed 000): topics and their settings, publish and subscribe, for people with curl.

Any broker of a cluster answers. The broker keeps nothing for those who read: where they stand comes with each request.
A topic with `clients.required` is used with the header `client_key` only, on every route that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from odradek.broker.katar_port import KatarBroker
from odradek.broker.katar_reading import KatarReader
from odradek.edge.rest import fields
from odradek.edge.rest.forwarding import Forwarder
from odradek.edge.rest.guard import Guard
from odradek.edge.rest.katar_docs import CREATE, DELETE, DESCRIBE, LIST, PATCH, PUBLISH, PUT, SUBSCRIBE
from odradek.edge.rest.katar_errors import problem_of
from odradek.edge.routing import NO_CONTENT, Answer, Page, Request, RequestError, Route, json_page
from odradek.model import PARTITION_MAX
from odradek.wire.errors import PeerError

if TYPE_CHECKING:
    from odradek.edge.rest.katar_records import KatarRecords

CLIENT_HEADER = "client_key"
_CREATE_FIELDS = frozenset(CREATE.request or ())
_FACTOR_MAX = 32_767


class Clients(Protocol):
    """Who may use a topic; `broker.clients.Clients` is what there is."""

    def is_required(self, topic: str) -> bool:
        """Whether only registered clients may use a topic."""

    async def check(self, topic: str, key: str | None, peer: str) -> None:
        """Raise PeerError for a key that is not registered with the topic."""


class KatarDoor:
    """The routes, and the links to other brokers that they use."""

    def __init__(self, port: KatarBroker, reader: KatarReader, guard: Guard, clients: Clients) -> None:
        self._port = port
        self._reader = reader
        self._guard = guard
        self._clients = clients
        self._forwarder = Forwarder(guard)
        self._records_made: KatarRecords | None = None

    def routes(self) -> list[Route]:
        """All of the document's routes."""
        return [
            Route("GET", "/topic", self._list, LIST),
            Route("GET", "/topic/{topic_name}", self._describe, DESCRIBE),
            Route("POST", "/topic", self._create, CREATE),
            Route("PUT", "/topic/{topic_name}", self._reset, PUT),
            Route("PATCH", "/topic/{topic_name}", self._change, PATCH),
            Route("DELETE", "/topic/{topic_name}", self._delete, DELETE),
            Route("POST", "/publish", self._publish, PUBLISH),
            Route("POST", "/subscribe", self._subscribe, SUBSCRIBE),
        ]

    async def close(self) -> None:
        """Hang up on other brokers."""
        await self._forwarder.close()

    async def admit(self, topic: str, request: Request) -> None:
        """Let a client pass that may use a topic; 401 or 429 for one that may not."""
        if self._clients.is_required(topic):
            try:
                await self._clients.check(topic, request.headers.get(CLIENT_HEADER), request.peer)
            except PeerError as error:
                raise problem_of(error) from None

    # Topics.

    def _list(self, _request: Request) -> Page:
        return json_page({"topics": self._port.topics()})

    async def _describe(self, request: Request) -> Page:
        names = list(dict.fromkeys(request.parameters["topic_name"].split(",")))
        for name in names:
            await self._find(name, request)
        return json_page({"topics": [self._told(name) for name in names]})

    async def _create(self, request: Request) -> Page:
        body = request.json()
        try:
            unknown = min(body.keys() - _CREATE_FIELDS, default=None)
            if unknown is not None:
                raise RequestError(422, f"there is no field {unknown!r}: send {', '.join(sorted(_CREATE_FIELDS))}")
            name = fields.text(body, "name")
            partitions = fields.number(body, "partitions", -1, 1, PARTITION_MAX)
            factor = fields.number(body, "replication_factor", -1, 1, _FACTOR_MAX)
        except RequestError as error:
            raise RequestError(422, error.detail) from None
        try:
            made = await self._port.create_topic(name, partitions, factor, _config(body.get("config")))
        except PeerError as error:
            raise problem_of(error) from None
        return json_page(self._told(made), 201)

    async def _reset(self, request: Request) -> Page:
        name, config = await self._change_of(request)
        try:
            await self._port.replace_config(name, config)
        except PeerError as error:
            raise problem_of(error) from None
        return json_page(self._told(name))

    async def _change(self, request: Request) -> Page:
        name, config = await self._change_of(request)
        try:
            await self._port.change_config(name, config)
        except PeerError as error:
            raise problem_of(error) from None
        return json_page(self._told(name))

    async def _change_of(self, request: Request) -> tuple[str, dict[str, str | None]]:
        """The topic and the settings of a request: they stand in `config`, or are the body themselves."""
        name, body = request.parameters["topic_name"], request.json()
        await self._find(name, request)
        return name, _config(body["config"] if body.keys() == {"config"} else body)

    async def _delete(self, request: Request) -> Page:
        name = request.parameters["topic_name"]
        await self._find(name, request)
        try:
            await self._port.delete_topic(name)
        except PeerError as error:
            raise problem_of(error) from None
        return NO_CONTENT

    async def _find(self, name: str, request: Request) -> None:
        try:
            await self._port.find_topic(name)
        except PeerError as error:
            raise problem_of(error) from None
        await self.admit(name, request)

    def _told(self, name: str) -> dict[str, Any]:
        try:
            return self._port.describe(name)._asdict()
        except PeerError as error:  # deleted in this very moment
            raise problem_of(error) from None

    # Records.

    async def _publish(self, request: Request) -> Answer:
        return await self._records().publish(request)

    async def _subscribe(self, request: Request) -> Answer:
        return await self._records().subscribe(request)

    def _records(self) -> KatarRecords:
        if self._records_made is None:
            # msgspec takes a good part of a broker's start to import, and many brokers never need it.
            from odradek.edge.rest.katar_records import KatarRecords  # noqa: PLC0415

            self._records_made = KatarRecords(self._port, self._reader, self._guard, self._forwarder, self)
        return self._records_made


def _config(given: object) -> dict[str, str | None]:
    """Settings as the table reads them; a number, a boolean and a list of words are taken for what they look like."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise RequestError(422, "config must be an object of settings and their values")
    return {name: _value(name, value) for name, value in given.items()}


def _value(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return ",".join(value)
    raise RequestError(422, f"{name} must be a string, a number, true, false, or a list of words")
