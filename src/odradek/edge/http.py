"""The HTTP door: requests in, pages out, and nothing that a stranger could make grow.

h11 keeps the protocol; this is the shell around it. A request has a bounded head, a bounded body and a time in which
it must arrive; its answer may take as long as it likes. One request of a connection is served at a time. Routes and
what they are asked stand in `odradek.edge.routing`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from http.client import responses
from typing import cast

import h11

from odradek.edge.routing import Match, Page, Request, RequestError, Router, json_page, split_target

_HEAD_BYTES_MAX = 16 * 1024
_BODY_BYTES_MAX = 8 * 1024 * 1024
_BODIES_BYTES_MAX = 64 * 1024 * 1024  # of all requests that are being read or served
_AHEAD_BYTES_MAX = 64 * 1024  # that a client may send while its request is being served
_REQUESTS_AT_ONCE = 16  # of one connection, then others have their turn
_REQUEST_SECONDS_MAX = 10.0  # for a request to arrive whole, and for a client to take its answer
_IDLE_SECONDS_MAX = 60.0  # between two requests on a connection that stays open
_LINGER_SECONDS = 2.0  # for a client to see that its body was too large
_CONNECTIONS_MAX = 200
_GOODBYE_SECONDS = 1.0  # for clients to take their last answers

logger = logging.getLogger(__name__)


class HttpServer:
    """Answers what a router has routes for."""

    def __init__(self, router: Router, body_bytes_max: int = _BODY_BYTES_MAX) -> None:
        self.router = router
        self.body_bytes_max = body_bytes_max
        self.tasks: set[asyncio.Task[None]] = set()
        self._body_bytes = 0
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

    def has_room(self, body_bytes: int) -> bool:
        """Say whether so much more of a body may be kept."""
        return self._body_bytes + body_bytes <= _BODIES_BYTES_MAX

    def count_body(self, body_bytes: int) -> None:
        """Bytes of a body are kept, or, if negative, no longer."""
        self._body_bytes += body_bytes

    async def close(self) -> None:
        """Hang up; requests that are being served are given up."""
        if self._listener is not None:
            self._listener.close()
        for connection in tuple(self._connections):
            connection.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_empty.wait(), _GOODBYE_SECONDS)
        for connection in tuple(self._connections):
            connection.abort()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=_GOODBYE_SECONDS)
        if self._listener is not None:
            await self._listener.wait_closed()


class _Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._is_writing = True  # the client reads what it gets
        self._is_idle = False  # the last request is answered and nothing of the next is here
        self._is_deaf = False  # what still comes is thrown away
        self._deadline: asyncio.TimerHandle | None = None
        self._match: Match | None = None  # of the request whose body is being read
        self._request = Request("", "")
        self._body = bytearray()
        self._task: asyncio.Task[None] | None = None  # serves the request
        self._ahead_bytes = 0  # that came since it began
        self._is_lost = False  # the client is gone
        self._lost: list[Callable[[], None]] = []  # to be called then

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._server.admit(self):
            self._transport.abort()
            return
        self._allow(_REQUEST_SECONDS_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: nobody waits for the answer any more."""
        self._is_lost = True
        self._server.forget(self)
        self._drop_body()
        if self._deadline is not None:
            self._deadline.cancel()
        if self._task is not None:
            self._task.cancel()
        lost, self._lost = self._lost, []
        for callback in lost:
            try:
                callback()
            except Exception:
                logger.exception("a bug in what waits for the end of a connection")

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._is_deaf:
            return
        if self._is_idle:
            self._is_idle = False
            self._allow(_REQUEST_SECONDS_MAX)
        if self._task is not None:
            self._ahead_bytes += len(data)
            if self._ahead_bytes > _AHEAD_BYTES_MAX:
                assert self._transport is not None
                self._transport.pause_reading()
        self._http.receive_data(data)
        self._proceed()

    def eof_received(self) -> bool:
        """The client sends no more. One whose request takes its time is taken to be gone: few half-close."""
        if not self._is_deaf:
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

    def _allow(self, seconds: float | None) -> None:
        """Give the client so much time from now; None is as much as it takes."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.abort)

    def _is_ready(self) -> bool:
        """Say whether the next thing that the client has sent may be looked at; after an answer that is a request."""
        if not self._is_writing or self._task is not None or self._is_deaf or self._is_lost:
            return False
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._allow(_REQUEST_SECONDS_MAX)
        return True

    def _proceed(self) -> None:
        begun = 0
        try:
            while self._is_ready() and (event := self._http.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Request):
                    self._begin(event)
                    begun += 1
                elif isinstance(event, h11.Data):
                    self._collect(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    self._serve()
                    if begun == _REQUESTS_AT_ONCE:
                        asyncio.get_running_loop().call_soon(self._proceed)
                        return
                elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                    self.close()
                    return
        except h11.RemoteProtocolError as error:
            self._refuse(error)
            return
        if self._http.our_state is h11.MUST_CLOSE and not self._is_deaf:
            self.close()
        elif self._http.their_state is h11.IDLE and self._is_writing and not self._http.trailing_data[0]:
            self._is_idle = True
            self._allow(_IDLE_SECONDS_MAX)

    def _begin(self, head: h11.Request) -> None:
        """A head is here: find what serves it, or refuse it before its body comes."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        method = head.method.decode("ascii")
        try:
            path, query = split_target(head.target)
            match = self._server.router.find(method, path)
            _refuse_foreign_pages(method, headers)
            self._make_room(int(headers.get("content-length", "0")))
        except RequestError as problem:
            self._answer(problem.page(), with_body=method != "HEAD")
            return
        self._match = match
        self._request = Request(
            method, path, match.parameters, query, headers, peer=self._peer(), on_close=self._hear_of_loss()
        )
        if self._http.they_are_waiting_for_100_continue:
            self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))

    def _make_room(self, more_bytes: int) -> None:
        if len(self._body) + more_bytes > self._server.body_bytes_max:
            raise RequestError(413, f"the body is larger than {self._server.body_bytes_max} bytes")
        if not self._server.has_room(more_bytes):
            raise RequestError(503, "too many requests are being read at once; try again")

    def _collect(self, data: bytes) -> None:
        if self._match is None:
            return
        try:
            self._make_room(len(data))
        except RequestError as problem:
            self._match = None
            self._drop_body()
            self._answer(problem.page(), with_body=self._request.method != "HEAD")
            return
        self._body += data
        self._server.count_body(len(data))

    def _drop_body(self) -> None:
        self._server.count_body(-len(self._body))
        self._body = bytearray()

    def _serve(self) -> None:
        """A request is here: answer it now, or when its handler is done."""
        if self._match is None:
            return
        (route, _), self._match = self._match, None
        self._request.body = bytes(self._body)
        try:
            page = route.handle(self._request)
        except Exception as error:
            page = _page_of(error)
        if isinstance(page, Page):
            self._finish(page)
            return
        self._allow(None)
        self._task = asyncio.get_running_loop().create_task(self._serve_later(page))
        self._server.tasks.add(self._task)
        self._task.add_done_callback(self._server.tasks.discard)
        if isinstance(page, Coroutine):
            self._task.add_done_callback(lambda _: page.close())  # it may have been cancelled before it began

    async def _serve_later(self, later: Awaitable[Page]) -> None:
        try:
            page = await later
        except asyncio.CancelledError:
            self.abort()
            raise
        except Exception as error:
            page = _page_of(error)
        self._task = None
        assert self._transport is not None
        if self._transport.is_closing():
            return
        self._finish(page)
        self._allow(_REQUEST_SECONDS_MAX)
        if self._ahead_bytes > _AHEAD_BYTES_MAX and self._is_writing:
            self._transport.resume_reading()
        self._ahead_bytes = 0
        self._proceed()

    def _finish(self, page: Page) -> None:
        self._drop_body()
        self._answer(page, with_body=self._request.method != "HEAD")

    def _peer(self) -> str:
        assert self._transport is not None
        address = self._transport.get_extra_info("peername")
        return f"{address[0]}:{address[1]}" if address else ""

    def _hear_of_loss(self) -> Callable[[Callable[[], None]], None]:
        """What a request calls to hear of the end; it forgets what requests before it wanted to hear."""
        mine: list[Callable[[], None]] = []

        def on_close(callback: Callable[[], None]) -> None:
            if self._is_lost:
                asyncio.get_running_loop().call_soon(callback)
                return
            mine.append(callback)
            self._lost = mine

        return on_close

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._answer(json_page({"detail": str(error)}, error.error_status_hint), with_body=True, last=True)
        self.close()

    def _answer(self, page: Page, *, with_body: bool, last: bool = False) -> None:
        is_too_large = page.status == 413
        headers = list(page.headers)
        if page.status != 204:
            headers += [("content-type", page.content_type), ("content-length", str(len(page.body)))]
        if last or is_too_large:
            headers.append(("connection", "close"))
        reason = responses.get(page.status, "")
        out = self._http.send(h11.Response(status_code=page.status, headers=headers, reason=reason)) or b""
        if with_body and page.body:
            out += self._http.send(h11.Data(data=page.body)) or b""
        out += self._http.send(h11.EndOfMessage()) or b""
        self._write(out)
        if is_too_large and self._http.their_state is h11.SEND_BODY:
            self._linger()

    def _linger(self) -> None:
        """Let the client, which still sends, see the answer: a plain close would take it away from it."""
        assert self._transport is not None
        self._is_deaf = True
        self._allow(_LINGER_SECONDS)
        self._transport.write_eof()

    def _write(self, data: bytes | None) -> None:
        assert self._transport is not None
        self._transport.write(data or b"")


def _page_of(error: Exception) -> Page:
    """What a client is told when its request fails."""
    if isinstance(error, RequestError):
        return error.page()
    logger.error("a bug in the HTTP door", exc_info=error)
    return json_page({"detail": "a bug in the broker; its log says more"}, 500)


def _refuse_foreign_pages(method: str, headers: Mapping[str, str]) -> None:
    """Keep a page of somebody else's, open in a browser on this machine, from changing anything here."""
    origin = headers.get("origin")
    if method not in ("GET", "HEAD") and origin is not None and origin.partition("://")[2] != headers.get("host"):
        raise RequestError(403, f"a page from {origin} may not do this")
