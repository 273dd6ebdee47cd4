"""Katar's subscribe as server-sent events: an event a record, an id to go on from, and a sign of life."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from odradek.edge.rest import katar_stream
from odradek.edge.rest.katar_leaders import Leaders, Reading
from odradek.edge.routing import RequestError
from odradek.model import TopicPartition
from tests.client.support import until
from tests.edge.doors import on_uvloop
from tests.edge.web import HttpClient
from tests.katar.doors import Katar, open_katar

Event = tuple[str, str, Any]  # kind, id, data


class Listener:
    """Reads a stream as a browser would."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._lines: list[str] = []
        self.comments = 0

    async def head(self) -> str:
        """The status line and the headers, in lower case."""
        return (await self._client.reader.readuntil(b"\r\n\r\n")).decode().lower()

    async def next(self) -> Event:
        """The next event; comments are counted."""
        kind = last_id = ""
        data: list[str] = []
        while True:
            line = await self._line()
            name, _, value = line.partition(": ")
            if line.startswith(":"):
                self.comments += 1
            elif name == "event":
                kind = value
            elif name == "id":
                last_id = value
            elif name == "data":
                data.append(value)
            elif not line and data:
                return kind, last_id, json.loads("\n".join(data))

    async def _line(self) -> str:
        while len(self._lines) < 2:
            size = int(await self._client.reader.readline(), 16)
            assert size, "the stream has ended"
            chunk = (await self._client.reader.readexactly(size + 2))[:-2].decode()
            text = (self._lines.pop() if self._lines else "") + chunk
            self._lines = text.split("\n")
        return self._lines.pop(0)

    async def ends(self) -> bool:
        """Whether nothing more comes."""
        return not [line for line in self._lines if line] and await self._client.reader.readline() == b"0\r\n"


async def listen(katar: Katar, body: object, last_event_id: str = "") -> Listener:
    client = await katar.connect()
    content = json.dumps(body)
    resumed = f"Last-Event-ID: {last_event_id}\n" if last_event_id else ""
    client.send(
        f"POST /subscribe HTTP/1.1\nHost: x\nAccept: text/event-stream\n{resumed}"
        f"Content-Length: {len(content)}\n\n{content}"
    )
    listener = Listener(client)
    head = await listener.head()
    assert "200 ok" in head and "content-type: text/event-stream" in head and "cache-control: no-store" in head
    return listener


@on_uvloop
async def test_records_come_as_events_and_new_ones_as_they_are_published() -> None:
    async with open_katar() as katar:
        await katar.publish("t", "a", {"b": 1})
        listener = await listen(katar, {"topic": "t", "offset": 0})
        kind, last_id, record = await listener.next()
        assert (kind, last_id, record["payload"], record["true_offset"]) == ("record", '{"t":{"0":1}}', "a", 0)
        assert (await listener.next())[1:] == (
            '{"t":{"0":2}}',
            {**record, "offset": 1, "true_offset": 1, "payload": {"b": 1}},
        )
        for number in range(3):
            await katar.publish("t", number)
            assert (await listener.next())[2]["payload"] == number


@on_uvloop
async def test_a_stream_without_a_start_tells_what_comes_from_now_on() -> None:
    async with open_katar() as katar:
        await katar.publish("t", "before")
        listener = await listen(katar, {"topic": "t"})
        await katar.publish("t", "after")
        assert (await listener.next())[2]["payload"] == "after"
        assert listener.comments == 1, "a sign of life came first"


@on_uvloop
async def test_the_last_id_goes_on_where_the_stream_was_lost() -> None:
    async with open_katar() as katar:
        await katar.create("t", partitions=2)
        for partition in (0, 1):
            await katar.publish("t", *(f"{partition}-{number}" for number in range(5)), partition=partition)
        seen: list[str] = []
        last_id = ""
        while len(seen) < 10:  # the connection is lost after each event
            listener = await listen(katar, {"topic": "t", "offset": 0, "max": 4}, last_id)
            _, last_id, record = await listener.next()
            seen.append(record["payload"])
        assert sorted(seen) == [f"{partition}-{number}" for partition in (0, 1) for number in range(5)]
        assert json.loads(last_id) == {"t": {"0": 5, "1": 5}}


@on_uvloop
async def test_an_id_of_nothing_is_refused() -> None:
    async with open_katar() as katar:
        await katar.create("t")
        headers = {"Accept": "text/event-stream", "Last-Event-ID": "7"}
        status, answer = await katar.ask("POST", "/subscribe", {"topic": "t"}, headers)
        assert (status, answer["detail"]) == (422, "the header last-event-id is not the id of an event of this stream")


@on_uvloop
async def test_what_cannot_be_read_is_refused_before_the_stream_begins() -> None:
    async with open_katar() as katar:
        headers = {"Accept": "text/event-stream"}
        assert (await katar.ask("POST", "/subscribe", {"topic": "none"}, headers))[0] == 404
        await katar.create("t")
        assert (await katar.ask("POST", "/subscribe", {"topic": "t", "offset": 9}, headers))[0] == 422
        katar.clients.required.add("t")
        assert (await katar.ask("POST", "/subscribe", {"topic": "t"}, headers))[0] == 401


@on_uvloop
async def test_a_payload_of_several_lines_stays_one_event() -> None:
    async with open_katar() as katar:
        for end in ("\n", "\r\n", "\r"):
            await katar.ask("POST", "/publish", f'{{"topic":"t","payload":{{{end}"a":{end}1}}}}'.encode())
        listener = await listen(katar, {"topic": "t", "offset": 0})
        assert [(await listener.next())[2]["payload"] for _ in range(3)] == [{"a": 1}] * 3


@on_uvloop
async def test_a_topic_that_goes_ends_the_stream_with_a_word() -> None:
    async with open_katar() as katar:
        await katar.create("t")
        listener = await listen(katar, {"topic": "t"})
        partition = katar.house.broker.partition("t", 0)
        await until(lambda: bool(partition._wakers))
        await katar.ask("DELETE", "/topic/t")
        kind, _, problem = await listener.next()
        assert (kind, problem["status"]) == ("error", 404)
        assert await listener.ends()


@on_uvloop
async def test_a_key_that_is_good_no_longer_ends_the_stream_before_the_next_record() -> None:
    async with open_katar() as katar:
        await katar.create("t")
        listener = await listen(katar, {"topic": "t"})
        katar.clients.required.add("t")
        status, _ = await katar.ask("POST", "/publish", {"topic": "t", "payload": 1}, {"client_key": "good"})
        assert status == 200
        kind, _, problem = await listener.next()
        assert (kind, problem) == ("error", {"status": 401, "detail": "no key for t"})
        assert await listener.ends()


@on_uvloop
async def test_a_listener_that_goes_leaves_nothing_behind() -> None:
    async with open_katar() as katar:
        await katar.create("t")
        listener = await listen(katar, {"topic": "t"})
        partition = katar.house.broker.partition("t", 0)
        await until(lambda: bool(partition._wakers))
        await listener._client.close()
        await until(lambda: not partition._wakers)


QUIET = {TopicPartition("t", 0): 7}


class QuietLeaders:
    """Have nothing to tell twice, and then a problem."""

    def __init__(self) -> None:
        self.waits: list[int] = []

    async def read(self, _starts: object, _max_records: int, wait_ms: int) -> Reading:
        self.waits.append(wait_ms)
        if len(self.waits) == 3:
            raise RequestError(503, "gone")
        return Reading([], QUIET)


@on_uvloop
async def test_a_comment_comes_every_fifteen_seconds() -> None:
    leaders = QuietLeaders()

    async def admit() -> None:
        """Everybody may."""

    stream = katar_stream.events(cast(Leaders, leaders), Reading([], QUIET), 10, admit)
    assert isinstance(stream, AsyncIterator)
    pieces = [piece async for piece in stream]
    assert leaders.waits == [15_000] * 3
    assert pieces[:3] == [b': nothing new\nid: {"t":{"0":7}}\n\n'] * 3, "who has got no record yet goes on there, too"
    assert pieces[3] == b'event: error\ndata: {"status": 503, "detail": "gone"}\n\n'
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
