"""Answers of the HTTP door that are sent piece by piece: as fast as the client takes them, and never longer than it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from odradek.edge import http
from odradek.edge.routing import Page, Request, Route, Router, Stream
from tests.client.support import until
from tests.edge.doors import on_uvloop
from tests.edge.web import open_door

HEAD = "GET /stream HTTP/1.1\nHost: x\n\n"


class Source:
    """Makes the pieces of a stream, and knows what became of it."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()  # None is the end
        self.made = 0
        self.begun = 0
        self.ended = 0

    def router(self) -> Router:
        return Router(
            Route("GET", "/stream", self.stream),
            Route("GET", "/later", self.later),
            Route("GET", "/endless", lambda _request: Stream(self.endless(), "text/plain")),
            Route("GET", "/ok", lambda _request: Page(b"fine\n", "text/plain")),
        )

    def stream(self, _request: Request) -> Stream:
        return Stream(self.queued(), "text/event-stream", headers=(("cache-control", "no-store"),))

    async def later(self, request: Request) -> Stream:
        return self.stream(request)

    async def queued(self) -> AsyncIterator[bytes]:
        self.begun += 1
        try:
            while (piece := await self.pieces.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                self.made += 1
                yield piece
        finally:
            self.ended += 1

    async def endless(self) -> AsyncIterator[bytes]:
        self.begun += 1
        try:
            while True:
                self.made += 1
                yield bytes(1 << 20)
        finally:
            self.ended += 1

    def give(self, *pieces: bytes | Exception | None) -> None:
        for piece in pieces:
            self.pieces.put_nowait(piece)


@pytest.mark.parametrize("path", ["/stream", "/later"])
@on_uvloop
async def test_each_piece_is_sent_when_it_is_made(path: str) -> None:
    source = Source()
    async with open_door(source.router()) as door:
        client = await door.connect()
        client.send(f"GET {path} HTTP/1.1\nHost: x\n\n")
        head = (await client.reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200 ok\r\n") and b"content-length" not in head
        for line in (b"content-type: text/event-stream", b"cache-control: no-store", b"transfer-encoding: chunked"):
            assert line in head
        for piece in (b"one", b"x" * 300):
            source.give(b"", piece)
            sent = await client.reader.readuntil(b"%x\r\n%b\r\n" % (len(piece), piece))
            assert sent == b"%x\r\n%b\r\n" % (len(piece), piece), "an empty piece would end the stream"
        source.give(None)
        assert await client.reader.readuntil(b"0\r\n\r\n") == b"0\r\n\r\n"
        assert (await client.get("/ok"))[2] == b"fine\n"
        assert source.ended == 1


@on_uvloop
async def test_what_a_client_asks_meanwhile_is_answered_after_the_stream() -> None:
    source = Source()
    async with open_door(source.router()) as door:
        client = await door.connect()
        client.send(HEAD + "GET /ok HTTP/1.1\nHost: x\n\n")
        source.give(b"a", b"b", None)
        assert (await client.read())[2] == b"ab"
        assert (await client.read())[2] == b"fine\n"


@on_uvloop
async def test_head_of_a_stream_makes_no_pieces() -> None:
    source = Source()
    async with open_door(source.router()) as door:
        client = await door.connect()
        client.send("HEAD /stream HTTP/1.1\nHost: x\n\n")
        status, headers, body = await client.read("HEAD")
        assert (status, headers["content-type"], body) == (200, "text/event-stream", b"")
        assert (await client.get("/ok"))[2] == b"fine\n"
        assert source.begun == 0


@on_uvloop
async def test_a_client_without_chunks_gets_pieces_until_the_connection_ends() -> None:
    source = Source()
    async with open_door(source.router()) as door:
        client = await door.connect()
        client.send("GET /stream HTTP/1.0\n\n")
        source.give(b"one", b"two", None)
        answer = await client.reader.read()
        assert answer.endswith(b"\r\n\r\nonetwo") and b"chunked" not in answer


@on_uvloop
async def test_no_piece_is_made_that_the_client_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source()
    async with open_door(source.router()) as door:
        client, other = await door.connect(), await door.connect()
        client.send("GET /endless HTTP/1.1\nHost: x\n\n")
        await until(lambda: source.made > 0)
        for _ in range(50):
            assert (await other.get("/ok"))[0] == 200
        assert source.made < 30
        made = source.made
        await client.reader.readexactly(40 << 20)
        await until(lambda: source.made > made)
        monkeypatch.setattr(http, "_REQUEST_SECONDS_MAX", 0.1)
        await until(lambda: source.ended == 1 and len(door.server._connections) == 1)


@on_uvloop
async def test_a_client_that_idles_in_a_stream_is_not_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_REQUEST_SECONDS_MAX", 0.05)
    monkeypatch.setattr(http, "_IDLE_SECONDS_MAX", 0.05)
    source = Source()
    async with open_door(source.router()) as door:
        client = await door.connect()
        client.send(HEAD)
        await until(lambda: source.begun == 1)
        late = asyncio.get_running_loop().time() + 0.2
        await until(lambda: asyncio.get_running_loop().time() > late)
        source.give(b"late", None)
        assert (await client.read())[2] == b"late"


@pytest.mark.parametrize("by_abort", [False, True])
@on_uvloop
async def test_a_stream_whose_client_hangs_up_is_ended(by_abort: bool) -> None:
    source = Source()
    async with open_door(source.router()) as door:
        client = await door.connect()
        client.send(HEAD)
        source.give(b"one")
        await until(lambda: source.made == 1)
        if by_abort:
            client.writer.transport.abort()
        else:
            client.writer.close()
        await until(lambda: source.ended == 1)
        await until(lambda: not door.server._connections and not door.server.tasks)


@on_uvloop
async def test_a_stream_ends_whole_when_the_door_closes() -> None:
    source = Source()
    async with open_door(source.router()) as door:
        client = await door.connect()
        client.send(HEAD)
        source.give(b"one")
        await until(lambda: source.made == 1)
        async with asyncio.timeout(5):
            await door.server.close()
        assert (await client.read())[2] == b"one", "it ends as the protocol asks"
        assert await client.is_closed()
        assert source.ended == 1 and not door.server.tasks


@on_uvloop
async def test_a_bug_in_a_stream_cuts_it_off(caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    async with open_door(source.router()) as door:
        client, other = await door.connect(), await door.connect()
        client.send(HEAD)
        source.give(b"one", RuntimeError("for a test"))
        answer = await client.reader.read()
        assert not answer.endswith(b"0\r\n\r\n"), "nobody may take it for whole"
        assert "for a test" in caplog.text
        assert (await other.get("/ok"))[0] == 200


@on_uvloop
async def test_a_client_that_sends_no_more_and_reads_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_REQUEST_SECONDS_MAX", 0.2)
    source = Source()
    async with open_door(source.router()) as door:
        client = await door.connect()
        client.send(HEAD)
        await until(lambda: source.begun == 1)
        (connection,) = door.server._connections
        assert connection._transport is not None
        given = 0
        while not connection._transport.get_write_buffer_size():  # the system takes no more, and the door waits not yet
            source.give(bytes(16 << 10))
            given += 1
            await until(lambda: source.made == given)  # noqa: B023
        assert connection._is_writing
        client.writer.write_eof()
        await until(lambda: not door.server._connections)
