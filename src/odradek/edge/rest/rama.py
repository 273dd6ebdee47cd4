"""RAMA's REST door (seed 002): channels in an object store, for clients that have registered with them.

A message is a JSON object with its time, `_ts`, in it; it is kept byte for byte as it came, whatever its Content-Type
was, and answered for when the store has it. Any broker of a cluster takes any request, and passes those for messages
on to the broker that leads the channel. A body that is not JSON is 400; one that is, but not what it should be, 422.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from odradek.edge.rest import rama_docs as docs
from odradek.edge.rest.admission import KEY_HEADER, key_of
from odradek.edge.rest.errors import problem_of
from odradek.edge.rest.guard import Guard
from odradek.edge.rest.leading import LeadersPort, Leading
from odradek.edge.routing import NO_CONTENT, Page, Request, RequestError, Route, json_page
from odradek.model import TopicPartition
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError

if TYPE_CHECKING:
    from odradek.edge.rest.rama_messages import Messages

_MESSAGES_DEFAULT = 100
_MESSAGES_MAX = 10_000
_SKIP_MAX = 2**31 - 1
_TIME_MAX = 2**63 - 1
_WAIT_MS_MAX = 30_000
_FORWARD_TIMEOUT_MS = 60_000
_OVERRIDES = {  # of every channel that is made here, unless its creator says otherwise
    "clients.required": "true",  # without a key nobody gets in by Katar's routes either
    "max.message.bytes": str((1 << 20) + 4096),  # a message of 1 MiB, and what Kafka's format takes beside it
}
_WRONG = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_CONFIG})


class StoredMessage(Protocol):
    """A message of a channel."""

    @property
    def timestamp(self) -> int:
        """When it was sent, in ms."""

    @property
    def value(self) -> bytes | None:
        """Its body; that of a Kafka producer need not be JSON."""


class ChannelTimes(Protocol):
    """How a channel goes by time; `objects.spec.ChannelSpec` is what there is."""

    @property
    def window_ms(self) -> int:
        """How much time a bucket spans."""

    @property
    def grace_ms(self) -> int:
        """How long after its end a bucket's messages may still come."""

    @property
    def fifo(self) -> bool:
        """Whether a message's time is that of its arrival."""


class RamaPort(LeadersPort, Protocol):
    """What this door needs of a broker; what is refused is refused by PeerError."""

    def is_channel(self, topic: str) -> bool:
        """Say whether there is such a channel."""

    def now_ms(self) -> int:
        """The broker's clock."""

    def times(self, topic: str) -> ChannelTimes:
        """How a channel that is led here goes by time."""

    async def create(self, name: str, *, store: str | None, fifo: bool, overrides: Mapping[str, str]) -> None:
        """Make a channel."""

    async def publish(self, name: str, records: Sequence[NewRecord]) -> tuple[int, int]:
        """Store messages in a channel that is led here; give the first and the last offset when the store has them."""

    async def read(self, name: str, start_ms: int, skip: int, count: int, wait_ms: int) -> Sequence[StoredMessage]:
        """Read messages that are not older than a time, bucket by bucket, in the order of arrival within each."""


class ClientsPort(Protocol):
    """Who may use a topic; `broker.clients.Clients` is what there is."""

    async def find(self, name: str) -> object:
        """Refuse a topic that does not exist."""

    async def register(self, topic: str, key: str | None) -> tuple[str, str, bool]:
        """Register a client: its id, its key, and whether it is new."""

    async def revoke(self, topic: str, client_id: str) -> None:
        """Let a client's key be good no longer."""

    async def check(self, topic: str, key: str | None, peer: str) -> None:
        """Refuse whoever is not registered with a topic."""


class RamaDoor:
    """The routes. `all_routes` are those of all doors, whose names no channel may have."""

    def __init__(
        self, port: RamaPort, clients: ClientsPort, guard: Guard, all_routes: Iterable[Route], max_skew_ms: int
    ) -> None:
        self._port = port
        self._clients = clients
        self._guard = guard
        self._all_routes = all_routes
        self._max_skew_ms = max_skew_ms
        self._leading = Leading(port, guard)

    def routes(self) -> list[Route]:
        """All routes; they are to be added behind those of other doors, since a channel may be called anything."""
        return [
            Route("PUT", "/create_topic", self._create, docs.CREATE),
            Route("POST", "/register/{topic}", self._register, docs.REGISTER),
            Route("DELETE", "/register/{topic}/{client_id}", self._revoke, docs.REVOKE),
            Route("PUT", "/{topic}", self._publish, docs.PUBLISH),
            Route("POST", "/{topic}", self._publish_many, docs.PUBLISH_MANY),
            Route("GET", "/{topic}", self._explain),
            Route("GET", "/{topic}/{timestamp}", self._read, docs.READ),
        ]

    async def close(self) -> None:
        """Hang up on other brokers."""
        await self._leading.close()

    @cached_property
    def _messages(self) -> Messages:
        from odradek.edge.rest.rama_messages import Messages  # noqa: PLC0415 - takes long; most brokers need it never

        return Messages(self._port.now_ms, self._max_skew_ms)

    # Channels and clients.

    async def _create(self, request: Request) -> Page:
        body = _object(request)
        name = _text(body, "topic")
        if name is None:
            raise RequestError(422, 'topic is missing: send {"topic": "NAME"}')
        self._refuse_reserved(name)
        fifo = body.get("fifo", False)
        if not isinstance(fifo, bool):
            raise RequestError(422, "fifo must be true or false")
        overrides = {**_OVERRIDES, **_config(body)}
        try:
            await self._port.create(name, store=_text(body, "store"), fifo=fifo, overrides=overrides)
        except PeerError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                raise RequestError(409, f"topic {name} already exists") from None
            raise _problem_of(error) from None
        return json_page({"topic": name}, 201)

    def _refuse_reserved(self, name: str) -> None:
        reserved = {route.path.split("/")[1] for route in self._all_routes}
        if name in reserved:
            raise RequestError(
                422, f"a channel cannot be called {name}: /{name} is a path of the broker itself; choose another name"
            )

    async def _register(self, request: Request) -> Page:
        key = _text(_object(request), KEY_HEADER) if request.body.strip() else None
        topic = request.parameters["topic"]
        try:
            client_id, key, is_new = await self._clients.register(topic, key)
        except PeerError as error:
            raise _problem_of(error) from None
        content = {"topic": topic, "client_key": key, "client_id": client_id}
        return json_page(content, 201 if is_new else 200)

    async def _revoke(self, request: Request) -> Page:
        topic = request.parameters["topic"]
        try:
            if not self._guard.shows_secret(request):
                await self._clients.check(topic, request.headers.get(KEY_HEADER), request.peer)
            await self._clients.revoke(topic, request.parameters["client_id"])
        except PeerError as error:
            raise _problem_of(error) from None
        return NO_CONTENT

    async def _admit(self, request: Request) -> TopicPartition:
        """Let registered clients of a channel pass: 404 without a channel, then 401 without a key."""
        name = request.parameters["topic"]
        try:
            if not self._port.is_channel(name):
                await self._clients.find(name)
            if not self._port.is_channel(name):
                raise RequestError(404, f"topic {name} is no channel: it is kept in no store")
            await self._clients.check(name, request.headers.get(KEY_HEADER), request.peer)
        except PeerError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise RequestError(404, f"there is no channel {name}: make it by PUT /create_topic") from None
            raise _problem_of(error) from None
        return TopicPartition(name, 0)

    # Messages.

    async def _publish(self, request: Request) -> Page:
        place = await self._admit(request)
        record = self._messages.one(request.body)

        async def here() -> Page:
            timestamp = self._port.now_ms() if self._port.times(place.topic).fifo else record.timestamp
            offset, _ = await self._port.publish(place.topic, [record])
            return json_page({"offset": offset, "timestamp": timestamp}, 201)

        return await self._leading.answer(request, place, here, key_of(request), _FORWARD_TIMEOUT_MS, may_repeat=False)

    async def _publish_many(self, request: Request) -> Page:
        place = await self._admit(request)
        records = self._messages.many(request.body)

        async def here() -> Page:
            return json_page({"offsets": list(await self._port.publish(place.topic, records))}, 201)

        return await self._leading.answer(request, place, here, key_of(request), _FORWARD_TIMEOUT_MS, may_repeat=False)

    def _explain(self, request: Request) -> Page:
        name = request.parameters["topic"]
        if self._port.is_channel(name):
            raise RequestError(404, f"a channel is read from a time on: GET /{name}/<ms since 1970>")
        raise RequestError(404, f"there is nothing at this path, and no channel {name}; GET /docs tells what there is")

    async def _read(self, request: Request) -> Page:
        place = await self._admit(request)
        start_ms = _number("the timestamp", request.parameters["timestamp"], 0, _TIME_MAX)
        query = request.query
        skip = _number("o", query.get("o", "0"), 0, _SKIP_MAX)
        count = _number("n", query.get("n", str(_MESSAGES_DEFAULT)), 1, _MESSAGES_MAX)
        wait_ms = _number("wait_ms", query.get("wait_ms", "0"), 0, _WAIT_MS_MAX)

        async def here() -> Page:
            found = await self._port.read(place.topic, start_ms, skip, count, wait_ms)
            timestamp, behind = self._next(place.topic, start_ms, skip, [message.timestamp for message in found])
            bodies = b",".join([self._messages.as_json(message.value) for message in found])
            told = f'],"next":{{"timestamp":{timestamp},"o":{behind}}}}}\n'
            return Page(b'{"messages":[' + bodies + told.encode(), "application/json")

        return await self._leading.answer(
            request, place, here, key_of(request), wait_ms + _FORWARD_TIMEOUT_MS, may_repeat=True
        )

    def _next(self, topic: str, start_ms: int, skip: int, found: Sequence[int]) -> tuple[int, int]:
        """Where to read on: from the start of the last bucket, if no message may come any more that is older."""
        same = start_ms, skip + len(found)
        if not found:
            return same
        times = self._port.times(topic)
        window_ms = times.window_ms
        bucket_ms = found[-1] - found[-1] % window_ms
        inside = sum(timestamp >= bucket_ms for timestamp in found)
        is_counted = inside < len(found) or not skip  # else some that were skipped may lie in it, too
        if bucket_ms <= start_ms or not is_counted or not self._messages.is_past(bucket_ms, times.grace_ms):
            return same
        return bucket_ms, inside


def _problem_of(error: PeerError) -> RequestError:
    return RequestError(422, error.message) if error.code in _WRONG else problem_of(error)


def _object(request: Request) -> dict[str, Any]:
    """The body, if it is a JSON object."""
    content = request.any_json()
    if not isinstance(content, dict):
        raise RequestError(422, "the body is JSON, but not an object: send {...}")
    return content


def _text(body: Mapping[str, Any], name: str) -> str | None:
    found = body.get(name)
    if found is not None and not isinstance(found, str):
        raise RequestError(422, f"{name} must be a string")
    return found


def _config(body: Mapping[str, Any]) -> dict[str, str]:
    """Settings of a new channel, as text."""
    config = body.get("config")
    if config is None:
        return {}
    if not isinstance(config, dict) or not all(isinstance(value, (str, int, float)) for value in config.values()):
        raise RequestError(422, 'config must be an object of settings: {"channel.slice.ms": 500}')
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in config.items()}


def _number(name: str, given: str, low: int, high: int) -> int:
    is_number = given.isascii() and given.isdigit() and len(given) <= 20
    if not is_number or not low <= int(given) <= high:
        raise RequestError(422, f"{name} must be a whole number from {low} to {high}")
    return int(given)
