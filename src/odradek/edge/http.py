"""The HTTP door: requests in, pages out, and nothing that a stranger could make grow.

`odradek.edge.http_parsing` keeps the protocol; this is the shell around it. A request has a bounded head, a bounded
body and a time in which it must arrive; its answer may take as long as it likes. One request of a connection is served
at a time. Routes and what they are asked stand in `odradek.edge.routing`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import cast

from odradek.edge.http_parsing import CONTINUE, LAST_CHUNK, ChunkReader, Head, HeadReader, page_bytes, stream_head
from odradek.edge.routing import Answer, Match, Page, Request, RequestError, Router, Stream, json_page, split_target

_BODY_BYTES_MAX = 8 * 1024 * 1024
_BODIES_BYTES_MAX = 64 * 1024 * 1024  # of all requests that are being read or served
_AHEAD_BYTES_MAX = 64 * 1024  # that a client may send while its request is being served
_REQUESTS_AT_ONCE = 16  # of one connection, then others have their turn
_REQUEST_SECONDS_MAX = 10.0  # for a request to arrive whole, and for a client to take its answer
_IDLE_SECONDS_MAX = 60.0  # between two requests on a connection that stays open
_LINGER_SECONDS = 2.0  # for a client to see that its body was too large
_CONNECTIONS_MAX = 200
_GOODBYE_SECONDS = 1.0  # for clients to take their last answers
_NO_REQUEST = Request("", "")

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
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._is_writing = True  # the client reads what it gets
        self._is_idle = False  # the last request is answered and nothing of the next is here
        self._is_deaf = False  # what still comes is thrown away
        self._is_closed = False  # nothing more is read or written
        self._is_lost = False  # the client is gone
        self._deadline = inf  # when the client's patience with us, or ours with it, is over
        self._timer: asyncio.TimerHandle | None = None  # wakes at the deadline, or before it and looks again
        self._buffer = bytearray()  # what came and has not been looked at
        self._heads = HeadReader()
        self._head: Head | None = None  # of the request that is being read or served
        self._match: Match | None = None  # what serves it; None when it is answered already
        self._request = _NO_REQUEST
        self._left_bytes = 0  # of the body, that have still to come
        self._chunks: ChunkReader | None = None  # reads the body if it comes in chunks
        self._body = bytearray()
        self._task: asyncio.Task[None] | None = None  # serves the request
        self._ahead_bytes = 0  # that came since it began
        self._is_streaming = False  # an answer is under way piece by piece
        self._taken: asyncio.Future[None] | None = None  # done when the client has read what was written
        self._requests = 0  # so far
        self._watched = 0  # the request that has asked last to hear of the end
        self._lost: list[Callable[[], None]] = []  # to be called then

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._server.admit(self):
            self.abort()
            return
        address = self._transport.get_extra_info("peername")
        self._peer = f"{address[0]}:{address[1]}" if address else ""
        self._allow(_REQUEST_SECONDS_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: nobody waits for the answer any more."""
        self._is_closed = self._is_lost = True
        self._server.forget(self)
        self._drop_body()
        self._buffer.clear()
        if self._timer is not None:
            self._timer.cancel()
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
        if self._is_deaf or self._is_closed:
            return
        self._buffer += data
        if self._task is not None:
            self._ahead_bytes += len(data)
            if self._ahead_bytes > _AHEAD_BYTES_MAX:
                assert self._transport is not None
                self._transport.pause_reading()
            return
        if self._is_idle:
            self._is_idle = False
            self._allow(_REQUEST_SECONDS_MAX)
        self._proceed()

    def eof_received(self) -> bool:
        """The client sends no more. One whose request takes its time is taken to be gone: few half-close."""
        self._is_closed = True
        self._allow(_REQUEST_SECONDS_MAX)  # to take what is written
        return False

    def pause_writing(self) -> None:
        """The client does not read: nothing more is made for it until it does, or until its time is over."""
        assert self._transport is not None
        self._is_writing = False
        self._transport.pause_reading()
        if self._is_streaming:
            self._allow(_REQUEST_SECONDS_MAX)

    def resume_writing(self) -> None:
        """It has read."""
        assert self._transport is not None
        self._is_writing = True
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)
        if self._is_streaming:
            self._allow(None)
        if not self._is_closed:
            if self._ahead_bytes <= _AHEAD_BYTES_MAX:
                self._transport.resume_reading()
            self._proceed()

    def close(self) -> None:
        """Send what is written, then close. A stream ends here as one that is whole."""
        if self._transport is not None and not self._is_closed:
            if self._is_streaming:
                self._end_stream()
            self._is_closed = True
            self._transport.close()

    def abort(self) -> None:
        """Close, whatever is not sent yet."""
        self._is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def _allow(self, seconds: float | None) -> None:
        """Give the client so much time from now; None is as much as it takes."""
        if seconds is None:
            self._deadline = inf
            return
        self._deadline = self._loop.time() + seconds
        if self._timer is not None and self._timer.when() <= self._deadline:
            return  # it will look again: a timer for each request would cost more than many a request
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._look_at_deadline)

    def _look_at_deadline(self) -> None:
        self._timer = None
        left = self._deadline - self._loop.time()
        if left <= 0:
            self.abort()
        elif left < inf:
            self._timer = self._loop.call_later(left, self._look_at_deadline)

    def _is_ready(self) -> bool:
        """Say whether the next thing that the client has sent may be looked at."""
        return self._is_writing and self._task is None and not self._is_deaf and not self._is_closed

    def _proceed(self) -> None:
        begun = 0
        try:
            while self._is_ready():
                if self._head is None:
                    self._head = self._heads.take(self._buffer)
                    if self._head is None:
                        break
                    self._begin(self._head)
                    begun += 1
                if not self._take_body():
                    break
                self._serve()
                if begun == _REQUESTS_AT_ONCE:
                    self._loop.call_soon(self._proceed)
                    return
        except RequestError as problem:
            if self._match is None and self._head is not None:
                self._linger()  # it has its answer, and its body is not what it should be
            else:
                self._answer(problem.page(), is_last=True)
            return
        if self._head is None and not self._buffer and self._is_ready():
            self._is_idle = True
            self._allow(_IDLE_SECONDS_MAX)

    def _begin(self, head: Head) -> None:
        """A head is here: find what serves it, or refuse it before its body comes."""
        self._left_bytes = max(head.body_bytes, 0)
        self._chunks = ChunkReader() if head.body_bytes < 0 else None
        self._requests += 1
        try:
            path, query = split_target(head.target)
            match = self._server.router.find(head.method, path)
            _refuse_foreign_pages(head.method, head.headers)
            self._make_room(self._left_bytes)
        except RequestError as problem:
            waits = head.awaits_continue and not self._buffer  # nobody can tell whether its body will come
            self._answer(problem.page(), is_last=problem.status == 413 or waits)
            return
        self._match = match
        self._request = Request(
            head.method, path, match.parameters, query, head.headers, b"", self._peer,
            partial(self._watch, self._requests),
        )  # fmt: skip
        if head.awaits_continue and head.body_bytes:
            self._write(CONTINUE)

    def _take_body(self) -> bool:
        """Take what is here of the body; False if there must be more, or if it is not wanted any more."""
        if self._chunks is not None:
            while (piece := self._chunks.take(self._buffer)) is not None:
                if not piece:
                    return False
                self._collect(piece)
            self._chunks = None
        elif self._left_bytes:
            piece = bytes(self._buffer[: self._left_bytes])
            if piece:
                del self._buffer[: len(piece)]
                self._left_bytes -= len(piece)
                self._collect(piece)
        return not self._left_bytes and not self._is_deaf and not self._is_closed

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
            self._answer(problem.page(), is_last=problem.status == 413)
            return
        self._body += data
        self._server.count_body(len(data))

    def _drop_body(self) -> None:
        if self._body:
            self._server.count_body(-len(self._body))
            self._body = bytearray()

    def _serve(self) -> None:
        """A request is here: answer it now, or when its handler is done."""
        if self._match is None:
            self._end_request()
            return
        (route, _), self._match = self._match, None
        self._request.body = bytes(self._body)
        try:
            answer = route.handle(self._request)
        except Exception as error:
            answer = _page_of(error)
        if isinstance(answer, Page):
            self._finish(answer)
            return
        self._allow(None)
        self._task = self._loop.create_task(self._serve_later(answer))
        self._server.tasks.add(self._task)
        self._task.add_done_callback(partial(self._forget_task, answer))

    def _forget_task(self, answer: Stream | Awaitable[Answer], task: asyncio.Task[None]) -> None:
        self._server.tasks.discard(task)
        if task.cancelled() and isinstance(answer, Coroutine):
            answer.close()  # it may have been cancelled before it began

    async def _serve_later(self, later: Stream | Awaitable[Answer]) -> None:
        try:
            answer = later if isinstance(later, Stream) else await later
            if isinstance(answer, Stream):
                await self._send_stream(answer)
        except asyncio.CancelledError:
            self.abort()
            raise
        except Exception as error:
            answer = _page_of(error)
        self._task = None
        if self._is_closed:
            return
        if isinstance(answer, Page):
            self._finish(answer)
        if self._ahead_bytes > _AHEAD_BYTES_MAX and self._is_writing and not self._is_closed:
            assert self._transport is not None
            self._transport.resume_reading()
        self._ahead_bytes = 0
        self._proceed()

    async def _send_stream(self, stream: Stream) -> None:
        """Send an answer piece by piece; a bug in what makes them cuts it off, so that nobody takes it for whole."""
        assert self._head is not None
        try:
            if self._is_closed:
                return
            in_chunks = self._head.knows_chunks
            self._write(stream_head(stream, in_chunks=in_chunks, is_last=self._head.is_last))
            if self._head.method != "HEAD":
                self._is_streaming = True
                async for chunk in stream.chunks:
                    if self._is_closed:
                        return
                    if chunk:
                        self._write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if in_chunks else chunk)
                    if not self._is_writing:
                        self._taken = self._loop.create_future()
                        await self._taken
                self._end_stream()
            self._drop_body()
            self._end_request()
        except Exception:
            logger.exception("a bug in a stream of the HTTP door")
            self.abort()
        finally:
            self._is_streaming = False
            if isinstance(stream.chunks, AsyncGenerator):
                await stream.chunks.aclose()

    def _end_stream(self) -> None:
        self._is_streaming = False
        if self._head is not None and self._head.knows_chunks:
            self._write(LAST_CHUNK)

    def _finish(self, page: Page) -> None:
        self._drop_body()
        self._answer(page)
        self._end_request()

    def _end_request(self) -> None:
        """A request is read and answered: the next one may come, if there may be one."""
        head, self._head = self._head, None
        self._request = _NO_REQUEST  # a client that idles has its body kept no longer
        if head is not None and head.is_last:
            self.close()
        self._allow(_REQUEST_SECONDS_MAX)

    def _watch(self, number: int, callback: Callable[[], None]) -> None:
        """Call back at the end of the connection; what requests before this one wanted to hear is forgotten."""
        if self._is_lost:
            self._loop.call_soon(callback)
            return
        if self._watched != number:
            self._watched, self._lost = number, []
        self._lost.append(callback)

    def _answer(self, page: Page, *, is_last: bool = False) -> None:
        """Send an answer; after the last one on a connection nothing of a body that still comes is read."""
        head = self._head
        with_body = head is None or head.method != "HEAD"
        ends = is_last or head is None or head.is_last
        try:
            self._write(page_bytes(page, with_body=with_body, is_last=ends))
        except ValueError as error:
            self._write(page_bytes(_page_of(error), with_body=with_body, is_last=ends))
        if is_last:
            self._linger()

    def _linger(self) -> None:
        """Let the client, which still sends, see the answer: a plain close would take it away from it."""
        assert self._transport is not None
        self._is_deaf = True
        self._buffer.clear()
        self._drop_body()
        self._allow(_LINGER_SECONDS)
        self._transport.write_eof()

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)


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
