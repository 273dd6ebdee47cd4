"""What strangers send to the HTTP door to have two requests seen where one is, or to make it wait, or to fill it."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from odradek.edge import http
from odradek.edge.routing import Page, Request, RequestError, Route, Router, json_page
from tests.client.support import until
from tests.edge.doors import on_uvloop
from tests.edge.web import Visit, open_door

HIDDEN = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"


class Staff:
    """Handlers that count who came."""

    def __init__(self) -> None:
        self.hidden = 0

    def router(self) -> Router:
        return Router(
            Route("POST", "/echo", self.echo),
            Route("POST", "/later", self.later),
            Route("GET", "/hidden", self.seen),
            Route("POST", "/large", self.large),
            Route("GET", "/split", lambda _request: Page(b"", "text/plain", headers=(("x", "a\r\nb: c"),))),
        )

    def echo(self, request: Request) -> Page:
        return json_page(request.body.decode("latin-1"))

    async def later(self, request: Request) -> Page:
        turn = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turn.set_result, None)
        await turn
        return self.echo(request)

    def seen(self, _request: Request) -> Page:
        self.hidden += 1
        return json_page("seen")

    def large(self, _request: Request) -> Page:
        raise RequestError(413, "too large for this route")


async def refused(door: Visit, text: str) -> int:
    """Send bytes as they are; the status of the one answer, after which the connection ends."""
    client = await door.connect()
    client.writer.write(text.encode("latin-1"))
    status, headers, _ = await client.read()
    assert headers["connection"] == "close"
    assert await client.is_closed(), "nothing follows a refusal"
    return status


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n" + HIDDEN, 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n" + HIDDEN, 400),
        (f"Content-Length: 0\r\nContent-Length: {len(HIDDEN)}\r\n", HIDDEN, 400),
        (f"Content-Length: {len(HIDDEN)}, 0\r\n", HIDDEN, 400),
        ("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n" + HIDDEN, 501),
        ("Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n" + HIDDEN, 400),
        ("Transfer-Encoding : chunked\r\n", "0\r\n\r\n" + HIDDEN, 400),
        ("client_key : abc\r\n", HIDDEN, 400),
        ("A: b\r\n Content-Length: 5\r\n", HIDDEN, 400),
        ("A: b\nContent-Length: 5\r\n", HIDDEN, 400),
        ("A: b\r\n\n" + HIDDEN, "", 400),
        ("A: b\rX: y\r\n", HIDDEN, 400),
        ("Transfer-Encoding: chunked\r\n", "5\r\nabc\r\n0\r\n\r\n" + HIDDEN, 400),
        ("Transfer-Encoding: chunked\r\n", "3\nabc\n0\n\n" + HIDDEN, 400),
        ("Transfer-Encoding: chunked\r\n", "0\r\nbad trailer\r\n\r\n" + HIDDEN, 400),
    ],
)
@on_uvloop
async def test_a_request_is_not_hidden_in_another(head: str, body: str, status: int) -> None:
    staff = Staff()
    async with open_door(staff.router()) as door:
        assert await refused(door, f"POST /echo HTTP/1.1\r\nHost: x\r\n{head}\r\n{body}") == status
        assert (await door.ask("POST", "/echo", b"others"))[1] == "others"
        assert staff.hidden == 0


@pytest.mark.parametrize("method", ["POST", "CONNECT", "OPTIONS"])
@on_uvloop
async def test_a_body_beside_an_upgrade_is_a_body(method: str) -> None:
    staff = Staff()
    async with open_door(staff.router()) as door:
        client = await door.connect()
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
        head = f"{method} /echo HTTP/1.1\r\nHost: x\r\n{upgrade}Content-Length: {len(HIDDEN)}\r\n\r\n"
        client.writer.write((head + HIDDEN).encode())
        status, _, body = await client.read("POST")
        assert (status, HIDDEN in body.decode().replace("\\r\\n", "\r\n")) == (
            (200, True) if method == "POST" else (405, False)
        )
        assert (await client.ask("POST", "/echo", b"next")) == (200, "next")
        assert staff.hidden == 0


@pytest.mark.parametrize("path", ["/nothing", "/split", "/echo"])
@on_uvloop
async def test_the_body_of_a_refused_request_is_no_request(path: str) -> None:
    staff = Staff()
    async with open_door(staff.router()) as door:
        client = await door.connect()
        chunk = f"{len(HIDDEN):x}\r\n{HIDDEN}\r\n0\r\n\r\n"
        client.writer.write(f"PUT {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}".encode())
        assert (await client.read())[0] in (404, 405)
        assert (await client.ask("POST", "/echo", b"next")) == (200, "next")
        assert staff.hidden == 0


@on_uvloop
async def test_a_broken_body_of_a_refused_request_ends_the_connection() -> None:
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        client.send("PUT /nothing HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\nnonsense\n")
        assert (await client.read())[0] == 404
        assert await client.is_closed()


@on_uvloop
async def test_a_handler_cannot_be_made_to_write_a_header_of_somebody_else(caplog: pytest.LogCaptureFixture) -> None:
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        status, headers, _ = await client.get("/split")
        assert status == 500 and "b" not in headers and "line end" in caplog.text
        assert (await client.get("/hidden"))[0] == 200


@on_uvloop
async def test_a_body_that_a_route_finds_too_large_was_read_and_ends_nothing() -> None:
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        assert (await client.ask("POST", "/large", b"x" * 1000))[0] == 413
        assert await client.ask("POST", "/echo", b"next") == (200, "next")


@pytest.mark.parametrize("path", ["/echo", "/later"])
@on_uvloop
async def test_a_thousand_requests_at_once_are_answered_in_order(path: str) -> None:
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        for number in range(0, 1000, 2):
            body = str(number)
            client.send(f"POST {path} HTTP/1.1\nHost: x\nContent-Length: {len(body)}\n\n{body}")
            body = str(number + 1)
            client.send(f"POST {path} HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n{len(body):x}\n{body}\n0\n\n")
        assert [json.loads((await client.read())[2]) for _ in range(1000)] == [str(number) for number in range(1000)]
        (connection,) = door.server._connections
        assert connection._ahead_bytes == 0


@pytest.mark.parametrize("answer", [400, 413, 501])
@on_uvloop
async def test_a_client_that_still_sends_sees_why_it_was_refused(answer: int) -> None:
    lines = {400: "client_key : x", 413: "Content-Length: 16000000", 501: "Transfer-Encoding: gzip"}[answer]

    def ask(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(f"POST /echo HTTP/1.1\r\nHost: x\r\n{lines}\r\n\r\n".encode())
            client.sendall(bytes(16_000_000))
            return client.recv(100)

    async with open_door(Staff().router()) as door:
        assert (await asyncio.to_thread(ask, door.port)).startswith(f"HTTP/1.1 {answer} ".encode())


@pytest.mark.parametrize(
    "text", ["\r", "GET /ok HTTP/1.1\r\n", "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3"]
)
@on_uvloop
async def test_a_request_that_never_ends_is_let_go(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_REQUEST_SECONDS_MAX", 0.1)
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        client.writer.write(text.encode())
        await client.reader.read()
        await until(lambda: not door.server._connections)


@on_uvloop
async def test_a_request_that_never_ends_is_let_go_sooner_than_a_client_that_idles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        assert (await client.get("/hidden"))[0] == 200
        (connection,) = door.server._connections
        monkeypatch.setattr(http, "_REQUEST_SECONDS_MAX", 0.1)
        connection._timer = asyncio.get_running_loop().call_later(60, connection._look_at_deadline)
        client.send("GET /hidden")
        await until(lambda: not door.server._connections, seconds=5)


@on_uvloop
async def test_a_client_that_was_refused_and_stays_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_LINGER_SECONDS", 0.1)
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        client.send("nonsense\n\n")
        assert (await client.read())[0] == 400
        await until(lambda: not door.server._connections)


@on_uvloop
async def test_tiny_chunks_with_long_lines_are_only_their_bytes() -> None:
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        client.send("POST /echo HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n")
        for _ in range(1000):
            client.send(f"1;{'x' * 500}\nY\n")
        client.send("0\n\n")
        assert json.loads((await client.read())[2]) == "Y" * 1000
        await until(lambda: door.server._body_bytes == 0)
        (connection,) = door.server._connections
        assert not connection._buffer


@on_uvloop
async def test_empty_lines_before_a_request_mean_nothing() -> None:
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        client.send("\n" * 100_000 + "GET /hidden HTTP/1.1\nHost: x\n\n")
        assert (await client.read())[0] == 200


@on_uvloop
async def test_a_client_may_ask_before_it_sends_chunks() -> None:
    async with open_door(Staff().router(), 1000) as door:
        client = await door.connect()
        client.send("POST /echo HTTP/1.1\nHost: x\nExpect: 100-Continue\nTransfer-Encoding: chunked\n\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 \r\n\r\n"
        client.send("3\nabc\n0\n\n")
        assert json.loads((await client.read())[2]) == "abc"
        client.send("POST /echo HTTP/1.1\nHost: x\nExpect: 100-continue\nContent-Length: 1001\n\n")
        assert (await client.read())[0] == 413
