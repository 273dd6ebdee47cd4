"""The HTTP door with bodies, handlers that take their time, and clients that leave meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Awaitable

import pytest

from odradek.edge import http
from odradek.edge.http import HttpServer
from odradek.edge.routing import NO_CONTENT, Page, Request, RequestError, Route, RouteDoc, Router, json_page
from tests.client.support import until
from tests.edge.doors import on_uvloop
from tests.edge.web import HttpClient, open_door

BODY_BYTES_MAX = 1 << 20
LATER = "POST /later HTTP/1.1\nHost: x\nContent-Length: 2\n\n{}"


class Staff:
    """Handlers of a few kinds, and what became of them."""

    def __init__(self) -> None:
        self.bell = asyncio.Event()
        self.begun = 0
        self.cancelled = 0
        self.lost: list[str] = []

    def router(self) -> Router:
        doc = RouteDoc("", "", {})
        return Router(
            Route("POST", "/echo/{name}", self.echo, doc),
            Route("GET", "/ok", lambda _request: Page(b"fine\n", "text/plain"), doc),
            Route("POST", "/later", self.later),
            Route("GET", "/later", self.later),
            Route("POST", "/fail", self.fail),
            Route("DELETE", "/nothing", lambda _request: NO_CONTENT),
            Route("POST", "/watch/{name}", self.watch),
            Route("POST", "/future", self.future),
        )

    def echo(self, request: Request) -> Page:
        return json_page([request.method, request.parameters, request.query, len(request.body), request.peer[:10]])

    async def later(self, _request: Request) -> Page:
        self.begun += 1
        try:
            await self.bell.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return json_page({"done": True})

    async def fail(self, request: Request) -> Page:
        if request.body == b"bug":
            raise RuntimeError("for a test")
        raise RequestError(409, "not so", (("x-why", "because"),))

    async def watch(self, request: Request) -> Page:
        request.on_close(lambda: self.lost.append(request.parameters["name"]))
        return NO_CONTENT

    def future(self, _request: Request) -> Awaitable[Page]:
        made: asyncio.Future[Page] = asyncio.get_running_loop().create_future()
        made.set_result(NO_CONTENT)
        return made


@on_uvloop
async def test_a_handler_gets_the_whole_request() -> None:
    async with open_door(Staff().router()) as door:
        status, content = await door.ask(
            "POST", "/echo/a%20b?x=1", b"y" * 300_000, {"Content-Type": "application-json"}
        )
        assert (status, content) == (200, ["POST", {"name": "a b"}, {"x": "1"}, 300_000, "127.0.0.1:"])


@on_uvloop
async def test_a_body_may_come_in_chunks_and_in_pieces() -> None:
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        text = "POST /echo/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        for byte in text.encode():
            client.writer.write(bytes((byte,)))
            await client.writer.drain()
        assert json.loads((await client.read())[2])[3] == 5
        assert (await client.get("/ok"))[0] == 200


@on_uvloop
async def test_an_answer_without_content_has_none() -> None:
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        status, headers, body = await client.get("/nothing", "DELETE")
        assert (status, body) == (204, b"") and not {"content-length", "content-type"} & set(headers)
        assert await client.ask("POST", "/future") == (204, None)


@on_uvloop
async def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    async with open_door(Staff().router(), BODY_BYTES_MAX) as door:
        client = await door.connect()
        client.send(f"POST /echo/x HTTP/1.1\nHost: x\nContent-Length: {BODY_BYTES_MAX + 1}\n\nabc")
        status, headers, body = await client.read()
        assert (status, headers["connection"]) == (413, "close") and str(BODY_BYTES_MAX) in json.loads(body)["detail"]
        client.writer.write(bytes(BODY_BYTES_MAX))  # it is still sending: it must not lose its answer by that
        assert await client.is_closed()
        assert (await door.ask("POST", "/echo/x", bytes(BODY_BYTES_MAX)))[0] == 200


@on_uvloop
async def test_a_client_that_sends_all_before_it_reads_still_sees_that_it_was_too_much() -> None:
    def ask(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(b"POST /echo/x HTTP/1.1\r\nHost: x\r\nContent-Length: 16000000\r\n\r\n")
            client.sendall(bytes(16_000_000))
            return client.recv(100)

    async with open_door(Staff().router(), BODY_BYTES_MAX) as door:
        assert (await asyncio.to_thread(ask, door.port)).startswith(b"HTTP/1.1 413 ")


@on_uvloop
async def test_chunks_that_become_too_large_are_refused() -> None:
    async with open_door(Staff().router(), 1000) as door:
        client = await door.connect()
        client.send("POST /echo/x HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n")
        for _ in range(3):
            client.send("190\n" + "x" * 400 + "\n")
        assert (await client.read())[0] == 413
        assert door.server._body_bytes == 0


@on_uvloop
async def test_bodies_of_many_clients_have_a_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_BODIES_BYTES_MAX", 1000)
    async with open_door(Staff().router()) as door:
        slow = await door.connect()
        slow.send("POST /echo/x HTTP/1.1\nHost: x\nContent-Length: 700\n\n" + "y" * 600)
        await until(lambda: door.server._body_bytes == 600)
        assert (await door.ask("POST", "/echo/x", bytes(500)))[0] == 503
        assert (await door.ask("POST", "/echo/x", bytes(400)))[0] == 200
        await slow.close()
        await until(lambda: door.server._body_bytes == 0)
        assert (await door.ask("POST", "/echo/x", bytes(500)))[0] == 200


@on_uvloop
async def test_a_client_that_asks_whether_to_go_on_is_told_so() -> None:
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        client.send("POST /echo/x HTTP/1.1\nHost: x\nExpect: 100-continue\nContent-Length: 3\n\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 \r\n\r\n"
        client.send("abc")
        assert json.loads((await client.read())[2])[3] == 3
        client.send("POST /no HTTP/1.1\nHost: x\nExpect: 100-continue\nContent-Length: 3\n\n")
        status, headers, _ = await client.read()
        assert (status, headers["connection"]) == (404, "close"), "whether its body comes nobody knows"
        assert await client.is_closed()


@pytest.mark.parametrize("path", ["/keep", "/keep/later"])
@on_uvloop
async def test_a_connection_that_idles_keeps_no_body(path: str) -> None:
    kept: list[bytes] = []

    def keep(request: Request) -> Page:
        kept.append(request.body)
        return NO_CONTENT

    async def keep_later(request: Request) -> Page:
        return keep(request)

    async with open_door(Router(Route("POST", "/keep", keep), Route("POST", "/keep/later", keep_later))) as door:
        client = await door.connect()
        assert (await client.ask("POST", path, b"body"))[0] == 204
        alone = [bytes(bytearray(b"body"))]
        await until(lambda: sys.getrefcount(kept[0]) == sys.getrefcount(alone[0]))


@on_uvloop
async def test_a_handler_that_fails_is_told_to_the_client_and_a_bug_is_not(caplog: pytest.LogCaptureFixture) -> None:
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        client.send("POST /fail HTTP/1.1\nHost: x\n\n")
        status, headers, body = await client.read()
        assert (status, headers["x-why"], json.loads(body)) == (409, "because", {"detail": "not so"})
        status, content = await client.ask("POST", "/fail", b"bug")
        assert status == 500 and "for a test" not in content["detail"] and "for a test" in caplog.text
        assert (await client.get("/ok"))[0] == 200


@on_uvloop
async def test_methods_that_a_path_does_not_have_are_told_which_it_has() -> None:
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        client.send("PUT /later HTTP/1.1\nHost: x\n\n")
        status, headers, _ = await client.read()
        assert (status, headers["allow"]) == (405, "GET, HEAD, POST")


@on_uvloop
async def test_an_answer_may_take_longer_than_a_request_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_REQUEST_SECONDS_MAX", 0.05)
    staff = Staff()
    async with open_door(staff.router()) as door:
        client = await door.connect()
        client.send(LATER)
        await until(lambda: staff.begun == 1)
        late = asyncio.get_running_loop().time() + 0.2
        await until(lambda: asyncio.get_running_loop().time() > late)
        staff.bell.set()
        assert json.loads((await client.read())[2]) == {"done": True}
        assert (await client.get("/ok"))[0] == 200, "a connection may idle longer than a request may take"


@on_uvloop
async def test_a_client_that_idles_too_long_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_IDLE_SECONDS_MAX", 0.05)
    async with open_door(Staff().router()) as door:
        client = await door.connect()
        assert (await client.get("/ok"))[0] == 200
        assert await client.is_closed()


@on_uvloop
async def test_requests_that_come_meanwhile_are_served_after_it_in_order() -> None:
    staff = Staff()
    async with open_door(staff.router()) as door:
        client = await door.connect()
        client.send(LATER + "GET /ok HTTP/1.1\nHost: x\n\n" + "HEAD /later HTTP/1.1\nHost: x\n\n")
        await until(lambda: staff.begun == 1)
        staff.bell.set()
        assert (await client.read())[2] == b'{"done": true}\n'
        assert (await client.read())[2] == b"fine\n"
        assert (await client.read("HEAD"))[2] == b""


@on_uvloop
async def test_a_client_that_sends_on_and_on_meanwhile_is_not_read_until_it_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "_AHEAD_BYTES_MAX", 1000)
    staff = Staff()
    async with open_door(staff.router()) as door:
        client = await door.connect()
        client.send(LATER)
        await until(lambda: staff.begun == 1)
        client.send("GET /ok HTTP/1.1\nHost: x\n\n" * 100)
        (connection,) = door.server._connections
        await until(lambda: connection._ahead_bytes > 1000)
        ahead_bytes = connection._ahead_bytes
        client.send("GET /ok HTTP/1.1\nHost: x\n\n" * 100)
        assert (await door.ask("DELETE", "/nothing"))[0] == 204, "others are served meanwhile"
        assert connection._ahead_bytes == ahead_bytes
        staff.bell.set()
        assert (await client.read())[2] == b'{"done": true}\n'
        assert [(await client.read())[2] for _ in range(200)] == [b"fine\n"] * 200


async def leave(client: HttpClient, *, by_abort: bool) -> None:
    if by_abort:
        client.writer.transport.abort()
    else:
        client.writer.close()


@pytest.mark.parametrize("by_abort", [False, True])
@on_uvloop
async def test_a_handler_whose_client_hangs_up_is_cancelled(by_abort: bool) -> None:
    staff = Staff()
    async with open_door(staff.router()) as door:
        client = await door.connect()
        client.send(LATER)
        await until(lambda: staff.begun == 1)
        await leave(client, by_abort=by_abort)
        await until(lambda: staff.cancelled == 1)
        await until(lambda: not door.server._connections and not door.server.tasks)


@on_uvloop
async def test_a_request_and_a_hang_up_at_once_leave_nothing() -> None:
    staff = Staff()
    async with open_door(staff.router()) as door:
        for _ in range(20):
            client = await door.connect()
            client.send(LATER)
            client.writer.close()
        await until(lambda: not door.server._connections and not door.server.tasks)
        assert staff.cancelled == staff.begun


@on_uvloop
async def test_a_handler_that_is_cancelled_before_it_began_leaves_nothing() -> None:
    staff = Staff()
    server = HttpServer(staff.router())
    connection = http._Connection(server)
    connection.connection_made(asyncio.Transport())
    connection.data_received(LATER.replace("\n", "\r\n").encode())
    connection.connection_lost(None)
    await until(lambda: not server.tasks)
    assert staff.begun == 0


@pytest.mark.parametrize("by_abort", [False, True])
@on_uvloop
async def test_the_loss_of_a_connection_is_told_to_its_last_watcher(by_abort: bool) -> None:
    staff = Staff()
    async with open_door(staff.router()) as door:
        client, other = await door.connect(), await door.connect()
        for name in ("first", "second", "third"):
            assert await client.ask("POST", f"/watch/{name}") == (204, None)
        assert (await client.get("/ok"))[0] == 200
        assert await other.ask("POST", "/watch/other") == (204, None)
        assert staff.lost == []
        await leave(client, by_abort=by_abort)
        await until(lambda: staff.lost == ["third"])


@on_uvloop
async def test_closing_the_door_cancels_what_is_being_served() -> None:
    staff = Staff()
    async with open_door(staff.router()) as door:
        client = await door.connect()
        client.send(LATER)
        await until(lambda: staff.begun == 1)
        await door.server.close()
        assert staff.cancelled == 1 and not door.server.tasks


@pytest.mark.parametrize(
    ("origin", "method", "status"),
    [
        ("http://x", "POST", 200),
        ("http://evil.example", "POST", 403),
        ("null", "POST", 403),
        ("http://evil.example", "GET", 405),
    ],
)
@on_uvloop
async def test_a_page_of_somebody_else_cannot_change_anything(origin: str, method: str, status: int) -> None:
    async with open_door(Staff().router()) as door:
        assert (await door.ask(method, "/echo/x", headers={"Origin": origin}))[0] == status
