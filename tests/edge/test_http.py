"""The HTTP door: routes, methods, connections that stay, and what strangers send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from odradek.edge.http import HttpServer
from odradek.edge.routing import Page, Request, Route, RouteDoc, Router, json_page
from tests.client.support import until
from tests.edge.doors import on_uvloop
from tests.edge.web import HttpClient

HEAD_BYTES_MAX = 16 * 1024
CONNECTIONS_MAX = 200


class HttpHouse:
    """A door that is open."""

    def __init__(self, server: HttpServer, port: int) -> None:
        self.server = server
        self.port = port
        self.calls = 0
        self.clients: list[HttpClient] = []

    async def connect(self) -> HttpClient:
        client = HttpClient(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client

    def large(self, _request: Request) -> Page:
        self.calls += 1
        return Page(bytes(1 << 20), "text/plain")

    def huge(self, _request: Request) -> Page:
        """More than the system holds for a client that does not read."""
        self.calls += 1
        return Page(bytes(64 << 20), "text/plain")


@asynccontextmanager
async def open_http() -> AsyncIterator[HttpHouse]:
    def bug(_request: Request) -> Page:
        raise RuntimeError("for a test")

    doc = RouteDoc("", "", {})
    router = Router(
        Route("GET", "/ok", lambda _request: Page(b"fine\n", "text/plain"), doc),
        Route("GET", "/json", lambda _request: json_page({"a": 1}), doc),
        Route("GET", "/bug", bug),
    )
    server = HttpServer(router)
    _, port = await server.listen("127.0.0.1", 0)
    house = HttpHouse(server, port)
    router.add(Route("GET", "/large", house.large), Route("GET", "/huge", house.huge))
    await server.open()
    try:
        yield house
    finally:
        for client in house.clients:
            await client.close()
        await server.close()


@on_uvloop
async def test_a_path_is_answered_with_its_page() -> None:
    async with open_http() as door:
        client = await door.connect()
        status, headers, body = await client.get("/ok")
        assert (status, headers["content-type"], headers["content-length"], body) == (200, "text/plain", "5", b"fine\n")
        status, headers, body = await client.get("/json?pretty=no")
        assert (status, headers["content-type"], json.loads(body)) == (200, "application/json", {"a": 1})


@on_uvloop
async def test_other_paths_and_methods_are_told_what_there_is() -> None:
    async with open_http() as door:
        client = await door.connect()
        for path in ("/", "/nothing", "/ok/", "//ok", "/%6fk", "http://x/ok"):
            status, _, body = await client.get(path)
            assert status == 404 and "/ok" in json.loads(body)["detail"], path
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
            status, _, body = await client.get("/ok", method)
            assert status == 405 and "GET" in json.loads(body)["detail"], method
        assert (await client.get("/ok"))[0] == 200


@on_uvloop
async def test_head_is_get_without_the_body() -> None:
    async with open_http() as door:
        client = await door.connect()
        for path, wanted in (("/ok", 200), ("/nothing", 404)):
            of_get = await client.get(path)
            status, headers, body = await client.get(path, "HEAD")
            assert (status, body) == (wanted, b"")
            assert headers["content-length"] == of_get[1]["content-length"] == str(len(of_get[2]))


@on_uvloop
async def test_a_connection_stays_for_more_requests_also_when_they_come_at_once() -> None:
    async with open_http() as door:
        client = await door.connect()
        client.send("GET /ok HTTP/1.1\nHost: x\n\nGET /nothing HTTP/1.1\nHost: x\n\nGET /json HTTP/1.1\nHost: x\n\n")
        assert [(await client.read())[0] for _ in range(3)] == [200, 404, 200]
        assert (await client.get("/ok"))[0] == 200


@pytest.mark.parametrize("request_text", ["GET /ok HTTP/1.0\n\n", "GET /ok HTTP/1.1\nHost: x\nConnection: close\n\n"])
@on_uvloop
async def test_a_client_that_wants_the_end_gets_it_after_its_answer(request_text: str) -> None:
    async with open_http() as door:
        client = await door.connect()
        client.send(request_text)
        assert (await client.read())[0] == 200
        assert await client.is_closed()


@on_uvloop
async def test_a_request_may_come_in_pieces_of_any_size() -> None:
    async with open_http() as door:
        client = await door.connect()
        for byte in b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n":
            client.writer.write(bytes((byte,)))
            await client.writer.drain()
        assert (await client.read())[0] == 200


@on_uvloop
async def test_a_body_where_none_belongs_does_not_confuse_what_follows() -> None:
    async with open_http() as door:
        client = await door.connect()
        client.send("GET /ok HTTP/1.1\nHost: x\nContent-Length: 32\n\nGET /json HTTP/1.1\nHost: x\n\n")
        client.send("?")
        assert (await client.read())[2] == b"fine\n"
        client.send("GET /json HTTP/1.1\nHost: x\n\n")
        assert json.loads((await client.read())[2]) == {"a": 1}


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET /ok HTTP/1.1\nHost: x\nX: " + "y" * HEAD_BYTES_MAX * 2, 431),
        ("GET /" + "y" * HEAD_BYTES_MAX * 2, 431),
        ("GET /ok HTTP/1.1\nHost: x\nContent-Length: 1\nContent-Length: 2\n\n", 400),
        ("GET /ok HTTP/1.1\n\n", 400),
        ("GET /ok HTTP/1.1\nHost: x\n bad: y\nnonsense\n\n", 400),
        ("\x16\x03\x01\x02\n\n", 400),
        ("\x00\x00\x00\x20\x00\x03\x00\x09\n\n", 400),
        ("GET /\xe9 HTTP/1.1\nHost: x\n\n", 400),
        ("GET /ok HTTP/1.1\nHost: x\nTransfer-Encoding: gzip\n\n", 501),
    ],
)
@on_uvloop
async def test_what_is_no_request_is_refused_and_the_connection_ends(request_text: str, status: int) -> None:
    async with open_http() as door:
        client, other = await door.connect(), await door.connect()
        client.send(request_text)
        refused, headers, _ = await client.read()
        assert refused in (status, 400)
        assert headers["connection"] == "close"
        assert await client.is_closed()
        assert (await other.get("/ok"))[0] == 200


@pytest.mark.parametrize("text", ["", "GET /ok HT", "GET /ok HTTP/1.1\nHost: x\n"])
@on_uvloop
async def test_half_a_request_and_a_hang_up_leaves_nothing(text: str) -> None:
    async with open_http() as door:
        client = await door.connect()
        client.send(text)
        await until(lambda: len(door.server._connections) == 1)
        client.writer.write_eof()
        await client.reader.read()
        await until(lambda: not door.server._connections)


@on_uvloop
async def test_a_client_that_sends_no_more_still_gets_its_answer() -> None:
    async with open_http() as door:
        client = await door.connect()
        client.send("GET /ok HTTP/1.1\nHost: x\n\n")
        client.writer.write_eof()
        assert (await client.read())[2] == b"fine\n"
        assert await client.is_closed()


@pytest.mark.parametrize(
    ("method", "head", "wanted"),
    [
        ("CONNECT", "x:1 HTTP/1.1\nHost: x\n\n", 404),
        ("GET", "/ok HTTP/1.1\nHost: x\nConnection: upgrade\nUpgrade: websocket\n\n", 200),
        ("POST", "/ok HTTP/1.1\nHost: x\nExpect: 100-continue\nContent-Length: 3\n\nabc", 405),
    ],
)
@on_uvloop
async def test_a_client_that_wants_another_protocol_gets_an_answer_in_this_one(
    method: str, head: str, wanted: int
) -> None:
    async with open_http() as door:
        client = await door.connect()
        client.send(f"{method} {head}")
        assert (await client.read(method))[0] == wanted
        assert (await client.get("/ok"))[0] == 200


@on_uvloop
async def test_a_bug_is_told_in_the_log_and_not_to_the_client(caplog: pytest.LogCaptureFixture) -> None:
    async with open_http() as door:
        client = await door.connect()
        status, _, body = await client.get("/bug")
        assert status == 500 and b"for a test" not in body
        assert "a bug in the HTTP door" in caplog.text and "for a test" in caplog.text
        assert (await client.get("/ok"))[0] == 200


@pytest.mark.parametrize("text", ["", "GET /ok", "POST /ok HTTP/1.1\nHost: x\nContent-Length: 9\n\nabc"])
@on_uvloop
async def test_a_client_that_is_too_slow_is_let_go(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.edge.http._REQUEST_SECONDS_MAX", 0.2)
    async with open_http() as door:
        client = await door.connect()
        client.send(text)
        await client.reader.read()
        await until(lambda: not door.server._connections)


@on_uvloop
async def test_a_client_that_asks_and_does_not_read_does_not_fill_the_memory() -> None:
    async with open_http() as door:
        deaf, other = await door.connect(), await door.connect()
        deaf.send("GET /large HTTP/1.1\nHost: x\n\n" * 100)
        await until(lambda: door.calls > 0)
        for _ in range(50):
            assert (await other.get("/ok"))[0] == 200
        assert door.calls < 30, "answers that nobody reads are not even made"
        for _ in range(100):
            assert len((await deaf.read())[2]) == 1 << 20
        assert door.calls == 100


@on_uvloop
async def test_a_client_that_never_reads_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.edge.http._REQUEST_SECONDS_MAX", 0.2)
    async with open_http() as door:
        deaf = await door.connect()
        deaf.send("GET /large HTTP/1.1\nHost: x\n\n" * 200)
        await until(lambda: door.calls > 0)
        await until(lambda: not door.server._connections)


@on_uvloop
async def test_connections_beyond_the_bound_are_closed() -> None:
    async with open_http() as door:
        clients = [await door.connect() for _ in range(CONNECTIONS_MAX)]
        assert (await clients[-1].get("/ok"))[0] == 200
        assert await (await door.connect()).is_closed()
        await clients[0].close()
        await until(lambda: len(door.server._connections) == CONNECTIONS_MAX - 1)
        assert (await (await door.connect()).get("/ok"))[0] == 200


@on_uvloop
async def test_closing_ends_every_connection() -> None:
    async with open_http() as door:
        idle, deaf = await door.connect(), await door.connect()
        assert (await idle.get("/ok"))[0] == 200
        deaf.send("GET /huge HTTP/1.1\nHost: x\n\n")
        await until(lambda: door.calls > 0)
        async with asyncio.timeout(10):
            await door.server.close()
        assert await idle.is_closed()
        await until(lambda: not door.server._connections, seconds=3)
