"""The HTTP door: `GET /healthcheck` and `GET /metrics`, and nothing that a stranger could make grow.

h11 keeps the protocol; this is the shell around it. A request has no body that is read, a bounded head, and a time
in which it must arrive.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, cast

import h11

_HEAD_BYTES_MAX = 16 * 1024
_REQUEST_SECONDS_MAX = 10.0  # for a head to arrive, and for the next one on a connection that stays open
_CONNECTIONS_MAX = 200
_GOODBYE_SECONDS = 1.0  # for clients to take their last answers

logger = logging.getLogger(__name__)


class Page(NamedTuple):
    """What a route answers."""

    body: bytes
    content_type: str
    status: int = 200


def json_page(content: object, status: int = 200) -> Page:
    """An answer for programs."""
    return Page(json.dumps(content).encode() + b"\n", "application/json", status)


Route = Callable[[], Page]


class HttpServer:
    """Answers GET and HEAD on a table of paths."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self.routes = routes
        self._connections: set[_Connection] = set()
        self._is_empty = asyncio.Event()  # there are no connections
        self._is_empty.set()
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Take the address; OSError if somebody has it. Nobody is answered before `open`."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: _Connection(self), host, port, start_serving=False)
        address = self._listener.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def open(self) -> None:
        """Begin to answer."""
        assert self._listener is not None
        await self._listener.start_serving()

    def admit(self, connection: _Connection) -> bool:
        """Count a connection, or refuse it."""
        if len(self._connections) >= _CONNECTIONS_MAX:
            return False
        self._connections.add(connection)
        self._is_empty.clear()
        return True

    def forget(self, connection: _Connection) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        if not self._connections:
            self._is_empty.set()

    async def close(self) -> None:
        """Hang up."""
        if self._listener is not None:
            self._listener.close()
        for connection in tuple(self._connections):
            connection.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_empty.wait(), _GOODBYE_SECONDS)
        for connection in tuple(self._connections):
            connection.abort()
        if self._listener is not None:
            await self._listener.wait_closed()


class _Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._is_writing = True  # the client reads what it gets
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._server.admit(self):
            self._transport.abort()
            return
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._server.forget(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        self._http.receive_data(data)
        self._proceed()

    def eof_received(self) -> bool:
        """The client sends no more."""
        self._http.receive_data(b"")
        self._proceed()
        return False

    def pause_writing(self) -> None:
        """The client does not read: nothing more is made for it until it does, or until its time is over."""
        assert self._transport is not None
        self._is_writing = False
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It has read."""
        assert self._transport is not None
        self._is_writing = True
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._proceed()

    def close(self) -> None:
        """Send what is written, then close."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close, whatever is not sent yet."""
        if self._transport is not None:
            self._transport.abort()

    def _await_request(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(_REQUEST_SECONDS_MAX, self.abort)

    def _proceed(self) -> None:
        try:
            while self._is_writing and (event := self._http.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Request):
                    self._answer(event)
                elif event is h11.PAUSED and self._http.our_state is h11.DONE:
                    self._http.start_next_cycle()
                    self._await_request()
                elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                    self.close()
                    return
        except h11.RemoteProtocolError as error:
            self._refuse(error)
            return
        if self._http.our_state is h11.MUST_CLOSE:
            self.close()

    def _answer(self, request: h11.Request) -> None:
        path = request.target.split(b"?")[0].decode("ascii", "replace")
        route = self._server.routes.get(path)
        if route is None:
            known = ", ".join(sorted(self._server.routes))
            page = json_page({"detail": f"there is nothing at this path; try {known}"}, 404)
        elif request.method not in (b"GET", b"HEAD"):
            page = json_page({"detail": "only GET and HEAD are answered here"}, 405)
        else:
            page = self._run(route)
        self._send(page, with_body=request.method != b"HEAD")

    def _run(self, route: Route) -> Page:
        try:
            return route()
        except Exception:
            logger.exception("a bug in the HTTP door")
            return json_page({"detail": "a bug in the broker; its log says more"}, 500)

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send(json_page({"detail": str(error)}, error.error_status_hint), with_body=True, last=True)
        self.close()

    def _send(self, page: Page, *, with_body: bool, last: bool = False) -> None:
        headers = [("content-type", page.content_type), ("content-length", str(len(page.body)))]
        if last:
            headers.append(("connection", "close"))
        out = self._http.send(h11.Response(status_code=page.status, headers=headers)) or b""
        if with_body:
            out += self._http.send(h11.Data(data=page.body)) or b""
        out += self._http.send(h11.EndOfMessage()) or b""
        assert self._transport is not None
        self._transport.write(out)
