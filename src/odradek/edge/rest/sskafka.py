"""SSKafka's REST door (seed 003): topics, records, and the health check, as its document words them.

The active controller is the leader of that document. It alone takes requests, and passes those for records on to the
broker that leads the partition; every other broker answers 421 and says who the leader is. Partitions count from 1
here and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from odradek.client.http import HttpError
from odradek.edge.rest import fields
from odradek.edge.rest.admission import TopicClients, admit, key_of
from odradek.edge.rest.errors import problem_of
from odradek.edge.rest.forwarding import Forwarder
from odradek.edge.rest.guard import FORWARDED_HEADER, Guard
from odradek.edge.rest.sskafka_docs import CONSUME, CREATE, DELETE, HEALTH, LIST, PRODUCE
from odradek.edge.routing import NO_CONTENT, Page, Request, RequestError, Route, json_page
from odradek.model import PARTITION_MAX, TopicPartition
from odradek.wire.errors import ErrorCode, PeerError

_OFFSET_MAX = 2**63 - 1
_BROKER_ID_MAX = 2**31 - 1
_RECORDS_DEFAULT = 100
_RECORDS_MAX = 10_000  # in one answer, whatever the client allows
_ACKS = {"0": "0", "1": "1", "-1": "all", "all": "all"}
_FORWARD_TIMEOUT_MS = 30_000
_FORWARD_ALL_TIMEOUT_MS = 3_600_000  # acks=all waits for replicas that are down, however long that is
_LEADER_SECONDS_MAX = 5.0  # for a partition to get a leader that answers
_LEADER_RETRY_SECONDS = 0.1

Partitions = Sequence[tuple[int, Sequence[int]]]  # a partition's number from 0, and the brokers that have it


class SSKafkaPort(Protocol):
    """What this door needs of a broker. Partitions count from 0; what is refused is refused by PeerError."""

    @property
    def node_id(self) -> int:
        """The id of this broker."""

    @property
    def leader_id(self) -> int:
        """The active controller, -1 if none is known."""

    async def create_topic(self, name: str, partitions: int) -> Partitions:
        """Make a topic with a replica on every broker; return when a majority has it."""

    def topics(self) -> Sequence[tuple[str, Partitions]]:
        """All topics but the cluster's own."""

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; return when a majority has it."""

    def leads(self, topic: str, partition: int) -> bool:
        """Say whether this broker leads a partition; False for one that does not exist."""

    def leader_url(self, topic: str, partition: int) -> tuple[str, int] | None:
        """Where the HTTP door of a partition's leader is; None without a leader or a partition."""

    async def produce(self, topic: str, partition: int, key: bytes | None, payload: bytes, acks: str) -> None:
        """Store a record: '0' returns at once, '1' when it is safe here, 'all' when every replica has it."""

    async def consume(
        self, topic: str, partition: int, after_offset: int, max_records: int
    ) -> tuple[int, Sequence[tuple[int, bytes | None, bytes | None]]]:
        """Read records behind an offset, and the last offset read, or the given one if there are none."""

    def acknowledge(self, topic: str, partition: int, broker_id: int, last_offset: int) -> None:
        """A replica has stored all up to an offset."""


def _always() -> bool:
    return True


class SSKafkaDoor:
    """The routes, and the links to other brokers that they use."""

    def __init__(
        self, port: SSKafkaPort, guard: Guard, is_up: Callable[[], bool] = _always,
        clients: TopicClients | None = None,
    ) -> None:  # fmt: skip
        """Without `clients` no topic is guarded."""
        self._port = port
        self._clients = clients
        self._guard = guard
        self._is_up = is_up
        self._forwarder = Forwarder(guard)

    def routes(self) -> list[Route]:
        """All of the document's routes but those of KRaft."""
        return [
            Route("GET", "/healthcheck", self._health, HEALTH),
            Route("POST", "/admin/v1/topics", self._create, CREATE),
            Route("GET", "/admin/v1/topics", self._list, LIST),
            Route("DELETE", "/admin/v1/topics/{topic_name}", self._delete, DELETE),
            Route("POST", "/data/v1/produce", self._produce, PRODUCE),
            Route("POST", "/data/v1/consume", self._consume, CONSUME),
        ]

    async def close(self) -> None:
        """Hang up on other brokers."""
        await self._forwarder.close()

    def _health(self, _request: Request) -> Page:
        is_up = self._is_up()
        content = {
            "status": "up" if is_up else "down",
            "broker_id": self._port.node_id,
            "leader_broker_id": self._port.leader_id,
        }
        return json_page(content, 200 if is_up else 503)

    def _require_leader(self) -> None:
        if self._port.leader_id != self._port.node_id:
            raise self._elsewhere()

    def _elsewhere(self) -> RequestError:
        leader_id = self._port.leader_id
        return RequestError(421, f"leader is {leader_id if leader_id != self._port.node_id else -1}, can't accept")

    async def _create(self, request: Request) -> Page:
        self._require_leader()
        body = request.json()
        name = fields.text(body, "topic_name")
        if "-" in name:
            raise RequestError(400, f"topic_name {name} has a dash in it: the dash parts a topic from its partition")
        if not name:
            raise RequestError(400, "topic_name is empty")
        count = fields.number(body, "partition_count", None, 1, PARTITION_MAX)
        try:
            partitions = await self._port.create_topic(name, count)
        except PeerError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                raise RequestError(409, f"topic {name} already exists") from None
            raise self._problem_of(error) from None
        return json_page(_topic(name, partitions), 201)

    def _list(self, _request: Request) -> Page:
        self._require_leader()
        return json_page({"topics": [_topic(name, partitions) for name, partitions in self._port.topics()]})

    async def _delete(self, request: Request) -> Page:
        self._require_leader()
        name = request.parameters["topic_name"]
        try:
            await self._port.delete_topic(name)
        except PeerError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise RequestError(404, f"topic {name} does not exist") from None
            raise self._problem_of(error) from None
        return NO_CONTENT

    async def _produce(self, request: Request) -> Page:
        self._admit(request)
        body = request.json()
        place, shown = _place(body)
        await self._admit_client(request, place)
        key = fields.encoded(body, "key")
        payload = fields.encoded(body, "payload")
        if payload is None:
            raise RequestError(400, "payload is missing")
        acks = _acks(body.get("acks"))

        async def here() -> Page:
            await self._port.produce(*place, key, payload, acks)
            return NO_CONTENT

        timeout_ms = _FORWARD_ALL_TIMEOUT_MS if acks == "all" else _FORWARD_TIMEOUT_MS
        return await self._at_leader(request, body, place, shown, here, timeout_ms, may_repeat=False)

    async def _consume(self, request: Request) -> Page:
        self._admit(request)
        body = request.json()
        place, shown = _place(body)
        await self._admit_client(request, place)
        after = fields.number(body, "last_offset", -1, -1, _OFFSET_MAX)
        most = fields.number(body, "max_batch_size", _RECORDS_DEFAULT, 1, _OFFSET_MAX)
        follower = fields.number(body, "follower_broker_id", -1, -1, _BROKER_ID_MAX)
        if follower >= 0:
            self._guard.check(request)

        async def here() -> Page:
            if follower >= 0:
                self._port.acknowledge(*place, follower, after)
            last_offset, records = await self._port.consume(*place, after, min(most, _RECORDS_MAX))
            return json_page({"last_offset": last_offset, "records": [_record(*record) for record in records]})

        return await self._at_leader(request, body, place, shown, here, _FORWARD_TIMEOUT_MS, may_repeat=True)

    def _admit(self, request: Request) -> None:
        """Take a request for records: from anybody on the leader, from brokers everywhere."""
        if FORWARDED_HEADER in request.headers:
            self._guard.check(request)
        else:
            self._require_leader()

    async def _admit_client(self, request: Request, place: TopicPartition) -> None:
        if self._clients is not None:
            await admit(self._clients, place.topic, request)

    async def _at_leader(
        self, request: Request, body: Mapping[str, Any], place: TopicPartition, shown: str,
        here: Callable[[], Awaitable[Page]], timeout_ms: int, *, may_repeat: bool,
    ) -> Page:  # fmt: skip
        """Have the partition's leader answer. A request that was not carried out is tried again for a while."""
        if FORWARDED_HEADER in request.headers and not self._port.leads(*place):
            raise self._elsewhere()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LEADER_SECONDS_MAX
        while True:
            try:
                if self._port.leads(*place):
                    return await here()
                return await self._forward(request, body, place, shown, timeout_ms)
            except PeerError as error:
                problem, is_undone = self._problem_of(error), may_repeat and error.code.retriable
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise _missing(shown) from None
            except _UnansweredError as error:
                problem, is_undone = RequestError(503, str(error)), may_repeat or error.is_undone
            if not is_undone or FORWARDED_HEADER in request.headers or loop.time() >= deadline:
                raise problem
            await asyncio.sleep(_LEADER_RETRY_SECONDS)
            self._require_leader()

    async def _forward(
        self, request: Request, body: Mapping[str, Any], place: TopicPartition, shown: str, timeout_ms: int
    ) -> Page:
        address = self._port.leader_url(*place)
        if address is None:
            if not self._exists(place):
                raise _missing(shown)
            raise _UnansweredError(f"partition {shown} has no leader at the moment; try again", is_undone=True)
        try:
            status, answer = await self._forwarder.post(address, request.path, body, timeout_ms, key_of(request))
        except HttpError as error:
            is_undone = error.kind == "refused"
            told = "try again" if is_undone else "whether it has done its work is not known"
            raise _UnansweredError(f"the leader of partition {shown}: {error}; {told}", is_undone=is_undone) from None
        if status == 421:
            raise _UnansweredError(f"partition {shown} has just changed its leader; try again", is_undone=True)
        return NO_CONTENT if status == 204 else json_page(answer, status)

    def _exists(self, place: TopicPartition) -> bool:
        return any(
            name == place.topic and any(place.partition == partition for partition, _ in partitions)
            for name, partitions in self._port.topics()
        )

    def _problem_of(self, error: PeerError) -> RequestError:
        return self._elsewhere() if error.code is ErrorCode.NOT_CONTROLLER else problem_of(error)


class _UnansweredError(Exception):
    """A partition's leader has not answered."""

    def __init__(self, text: str, *, is_undone: bool) -> None:
        super().__init__(text)
        self.is_undone = is_undone  # the request has certainly not been carried out


def _topic(name: str, partitions: Partitions) -> dict[str, Any]:
    return {
        "topic_name": name,
        "partitions": [
            {"id": f"{name}-{partition + 1}", "replica_brokers": [str(broker) for broker in sorted(replicas)]}
            for partition, replicas in sorted(partitions)
        ],
    }


def _record(offset: int, key: bytes | None, payload: bytes | None) -> dict[str, Any]:
    return {"offset": offset, "key": _shown(key), "payload": _shown(payload)}


def _shown(content: bytes | None) -> str | None:
    """Bytes as text; those of other doors need not be any, and lose what is none."""
    return None if content is None else content.decode("utf-8", "replace")


def _place(body: Mapping[str, Any]) -> tuple[TopicPartition, str]:
    """Which partition is meant, and how the client calls it: `orders-1` is the first one of `orders`."""
    shown = fields.text(body, "topic_partition")
    topic, _, digits = shown.rpartition("-")
    if not topic or not (digits.isascii() and digits.isdigit()) or digits[0] == "0" or len(digits) > 10:
        raise _missing(shown)
    return TopicPartition(topic, int(digits) - 1), shown


def _missing(shown: str) -> RequestError:
    return RequestError(
        404, f"topic_partition {shown} does not exist: it is a topic's name, a dash and a partition's number from 1"
    )


def _acks(given: object) -> str:
    acks = _ACKS.get("all" if given is None else str(given))
    if acks is None or isinstance(given, bool):
        raise RequestError(400, "acks must be all, 1 or 0")
    return acks
