"""A client of the HTTP door that writes its requests by hand, and doors to try it on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import h11

from odradek.edge.http import HttpServer
from odradek.edge.routing import Router


class HttpClient:
    """One connection; requests are written by hand, answers read by h11."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._unread = b""

    def send(self, text: str) -> None:
        self.writer.write(text.replace("\n", "\r\n").encode("latin-1"))

    async def read(self, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        """The next answer: its status, headers and body."""
        http = h11.Connection(h11.CLIENT)
        http.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        http.send(h11.EndOfMessage())
        if self._unread:
            http.receive_data(self._unread)
        status, body = 0, b""
        headers: dict[str, str] = {}
        while not isinstance(event := http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                data = await self.reader.read(65536)
                assert data, "the door closed before its answer was whole"
                http.receive_data(data)
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
        self._unread = http.trailing_data[0]
        return status, headers, body

    async def ask(
        self, method: str, path: str, content: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Send a request as curl would; the answer's status and its JSON, None when it is empty."""
        body = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
        lines = "".join(f"{name}: {value}\n" for name, value in (headers or {}).items())
        self.send(f"{method} {path} HTTP/1.1\nHost: x\n{lines}Content-Length: {len(body)}\n\n")
        self.writer.write(body)
        status, _, answer = await self.read(method)
        return status, json.loads(answer) if answer else None

    async def get(self, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        self.send(f"{method} {path} HTTP/1.1\nHost: x\n\n")
        return await self.read(method)

    async def is_closed(self) -> bool:
        try:
            return self._unread + await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


class Visit:
    """A door that is open, and the clients that came."""

    def __init__(self, server: HttpServer, port: int) -> None:
        self.server = server
        self.port = port
        self._clients: list[HttpClient] = []

    async def connect(self) -> HttpClient:
        client = HttpClient(*await asyncio.open_connection("127.0.0.1", self.port))
        self._clients.append(client)
        return client

    async def ask(
        self, method: str, path: str, content: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Ask over a connection of its own."""
        return await (await self.connect()).ask(method, path, content, headers)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.server.close()


@asynccontextmanager
async def open_door(router: Router, body_bytes_max: int = 1 << 20) -> AsyncIterator[Visit]:
    """A door with these routes."""
    server = HttpServer(router, body_bytes_max)
    _, port = await server.listen("127.0.0.1", 0)
    await server.open()
    visit = Visit(server, port)
    try:
        yield visit
    finally:
        await visit.close()
