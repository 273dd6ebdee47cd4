"""Katar's publish and subscribe: what they are asked, who may ask, and whom they have do it.

Imported with msgspec by the first request that needs it, see `katar.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from odradek.broker.katar_port import KatarBroker
from odradek.broker.katar_reading import KatarReader, Start
from odradek.broker.value_writing import Prepared, Written
from odradek.edge.rest import katar_body as forms
from odradek.edge.rest.admission import key_of
from odradek.edge.rest.forwarding import Forwarder
from odradek.edge.rest.guard import FORWARDED_HEADER, Guard
from odradek.edge.rest.katar_errors import problem_of
from odradek.edge.rest.katar_leaders import Leaders, UnansweredError
from odradek.edge.rest.katar_stream import CONTENT_TYPE, events
from odradek.edge.routing import Answer, Page, Request, RequestError, Stream
from odradek.model import TopicPartition
from odradek.wire.errors import PeerError

_STREAM_HEADERS = (("cache-control", "no-store"),)


class Admission(Protocol):
    """Lets those pass who may use a topic."""

    async def admit(self, topic: str, request: Request) -> None:
        """Refuse with RequestError whoever may not."""


class KatarRecords:
    """Publishes and reads."""

    def __init__(
        self, port: KatarBroker, reader: KatarReader, guard: Guard, forwarder: Forwarder, admission: Admission
    ) -> None:
        self._port = port
        self._guard = guard
        self._admission = admission
        self._leaders = Leaders(port, reader, forwarder)

    async def publish(self, request: Request) -> Page:
        """Store payloads, each in every topic that is named; answer when all replicas in sync have them."""
        asked = forms.publication(request.body)
        if FORWARDED_HEADER in request.headers:
            return await self._publish_here(request, asked)
        port = self._port
        try:
            for topic in asked.topics:
                if not port.has(topic):
                    await port.ensure_topic(topic)
                await self._admission.admit(topic, request)
            places = [port.choose(topic, asked.key, asked.partition) for topic in asked.topics]
            prepared = {place: port.prepare(place, asked.values, asked.key) for place in places if port.leads(place)}
        except PeerError as error:
            raise problem_of(error) from None
        leaders = self._leaders.carrying(key_of(request))
        if len(places) == 1:
            return forms.offsets_page([await _publish_one(leaders, places[0], prepared, asked)])
        results = await asyncio.gather(
            *(_publish_one(leaders, place, prepared, asked) for place in places), return_exceptions=True
        )
        return forms.offsets_page(_all_of(results))

    async def _publish_here(self, request: Request, asked: forms.Publication) -> Page:
        """Do what another broker was asked."""
        self._guard.check(request)
        if len(asked.topics) != 1 or asked.partition is None:
            raise RequestError(422, "a broker passes on what is for one partition")
        place = TopicPartition(asked.topics[0], asked.partition)
        if not self._port.leads(place):
            raise _elsewhere(place)
        await self._admission.admit(place.topic, request)
        try:
            prepared = self._port.prepare(place, asked.values, asked.key)
        except PeerError as error:
            raise problem_of(error) from None
        return forms.offsets_page([await self._leaders.publish_here(place, prepared)])

    async def subscribe(self, request: Request) -> Answer:
        """Read records from where the client says; it gets a stream if it asks for one."""
        if FORWARDED_HEADER in request.headers:
            return await self._read_here(request)
        is_stream = CONTENT_TYPE in request.headers.get("accept", "")
        asked = forms.subscription(request.body, request.headers.get("last-event-id") if is_stream else None)

        async def admit() -> None:
            for topic in asked.topics:
                await self._admission.admit(topic, request)

        starts: dict[TopicPartition, Start] = {}
        try:
            for topic in asked.topics:
                await self._port.find_topic(topic)
            await admit()
            for topic in asked.topics:
                starts |= self._starts(topic, asked)
        except PeerError as error:
            raise problem_of(error) from None
        strangers = asked.position.keys() - set(asked.topics)
        if strangers:
            raise RequestError(422, f"position names topic {min(strangers)!r}, which topics does not")
        leaders = self._leaders.carrying(key_of(request))
        reading = await leaders.read(starts, asked.max_records, 0 if is_stream else asked.wait_ms)
        if is_stream:
            told = events(leaders, reading, asked.max_records, admit)
            return Stream(told, CONTENT_TYPE, headers=_STREAM_HEADERS)
        return forms.records_page(*reading)

    def _starts(self, topic: str, asked: forms.Subscription) -> dict[TopicPartition, Start]:
        """Where to begin in each partition; one that a position does not know has come later, and is read whole."""
        partitions, position = self._port.partitions(topic), asked.position.get(topic)
        if position is None:
            return {TopicPartition(topic, index): asked.start for index in partitions}
        if not position.keys() <= set(partitions):
            raise RequestError(
                422, f"position names partition {max(position)} of topic {topic!r}, which has {len(partitions)}"
            )
        return {TopicPartition(topic, index): Start("offset", position.get(index, 0)) for index in partitions}

    async def _read_here(self, request: Request) -> Page:
        """Do what another broker was asked."""
        self._guard.check(request)
        starts, max_records, wait_ms = forms.read_request(request.body)
        for place in starts:
            if not self._port.leads(place):
                raise _elsewhere(place)
            await self._admission.admit(place.topic, request)
        try:
            return forms.records_page(*await self._leaders.read_here(starts, max_records, wait_ms))
        except UnansweredError as error:
            raise RequestError(421, str(error)) from None


async def _publish_one(
    leaders: Leaders, place: TopicPartition, prepared: Mapping[TopicPartition, Prepared], asked: forms.Publication
) -> Written:
    ready = prepared.get(place)
    if ready is not None and ready.partition.is_leader:  # others had their turn since it was prepared
        return await leaders.publish_here(place, ready)
    return await leaders.publish(place, asked.values, asked.key)


def _elsewhere(place: TopicPartition) -> RequestError:
    return RequestError(421, f"this broker does not lead {place}")


def _all_of(results: list[Written | BaseException]) -> list[Written]:
    """What was written, if all of it was; what was not is told together with what was."""
    written = [result for result in results if isinstance(result, Written)]
    for result in results:
        if isinstance(result, RequestError):
            places = ", ".join(f"{each.place} from offset {each.first_offset}" for each in written) or "nothing else"
            raise RequestError(result.status, f"{result.detail} (stored all the same: {places})")
        if isinstance(result, BaseException):
            raise result
    return written
