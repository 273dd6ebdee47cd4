"""A link to another broker's HTTP door: JSON in, JSON out, over one connection that is kept open.

One request at a time; the others wait their turn, and the wait counts against their time. A connection that broke is
made anew by the next request. No request is sent twice: whether that is safe is for the caller to know.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import h11

_HEAD_BYTES_MAX = 64 * 1024
_CLOSE_SECONDS_MAX = 1.0
_IDLE_SECONDS_MAX = 4.0  # after so long a server may be about to hang up, and the request would be in doubt
ANSWER_BYTES_MAX = 256 * 1024 * 1024  # a snapshot of the metadata is the largest answer there is

Kind = Literal["refused", "timeout", "broken"]


class HttpError(Exception):
    """There is no answer. `refused`: the request was never sent. `timeout`, `broken`: it may have been carried out."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind: Kind = kind
        self.text = text


class HttpLink:
    """Asks one address. `headers` go with every request and may be changed between them."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        headers: Mapping[str, str] | None = None,
        on_lost: Callable[[], None] | None = None,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        """Tell `on_lost` when the other side ends the connection, whether a request is under way or not."""
        self.address = address
        self.headers = dict(headers or {})
        self.on_lost = on_lost
        self.connection_count = 0  # how many were made so far
        self._answer_bytes_max = answer_bytes_max
        self._turn = asyncio.Lock()
        self._connection: _Connection | None = None
        self._is_closed = False

    async def post(self, path: str, body: Mapping[str, Any], timeout_ms: int) -> tuple[int, Any]:
        """Send a JSON object; return the answer's status and its JSON, None when it is empty."""
        content = json.dumps(body, separators=(",", ":")).encode()
        status, answer = await self._ask("POST", path, content, timeout_ms)
        return status, self._read(path, answer)

    async def get(self, path: str, timeout_ms: int) -> tuple[int, Any]:
        """Ask for a page; return its status and its JSON, None when it is empty."""
        status, answer = await self._ask("GET", path, b"", timeout_ms)
        return status, self._read(path, answer)

    async def send(self, method: str, path: str, content: bytes, timeout_ms: int) -> tuple[int, bytes]:
        """Send any request with its body as it is; return the answer's status and its bytes as they came."""
        return await self._ask(method, path, content, timeout_ms)

    async def close(self) -> None:
        """Hang up; a request under way fails."""
        self._is_closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.on_lost = None
            connection.abort("the link was closed here")
            await asyncio.wait({connection.closed}, timeout=_CLOSE_SECONDS_MAX)

    def _name(self) -> str:
        host, port = self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def _ask(self, method: str, path: str, content: bytes, timeout_ms: int) -> tuple[int, bytes]:
        sent: list[_Connection] = []  # at most one: the connection that the request went out on
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._turn:
                connection = await self._open()
                sent.append(connection)
                status, answer = await connection.exchange(method, path, self._name(), self.headers, content)
        except TimeoutError:
            text = f"{self._name()} did not answer {path} within {timeout_ms} ms"
            self._drop(sent, text)
            raise HttpError("timeout" if sent else "refused", text) from None
        except asyncio.CancelledError:
            self._drop(sent, f"{path} was given up")
            raise
        except ConnectionError as error:
            raise HttpError("broken", f"{self._name()}: {path}: {error}") from None
        return status, answer

    def _drop(self, sent: list[_Connection], reason: str) -> None:
        """End a connection whose next bytes belong to nobody."""
        for connection in sent:
            connection.on_lost = None
            connection.abort(reason)

    async def _open(self) -> _Connection:
        if self._is_closed:
            raise HttpError("refused", f"the link to {self._name()} was closed here")
        if self._connection is not None and self._connection.is_idle:
            return self._connection
        if self._connection is not None:
            self._drop([self._connection], "the connection cannot be used again")
        host, port = self.address
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(self._answer_bytes_max, self.on_lost), host, port
            )
        except (OSError, UnicodeError) as error:  # the latter from a host name that no name server could know
            raise HttpError("refused", f"{self._name()} cannot be reached: {_reason(error)}") from None
        if self._is_closed:  # meanwhile
            connection.on_lost = None
            connection.abort("the link was closed here")
            raise HttpError("refused", f"the link to {self._name()} was closed here")
        self.connection_count += 1
        self._connection = connection
        return connection

    def _read(self, path: str, answer: bytes) -> Any:
        if not answer:
            return None
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise HttpError(
                "broken", f"{self._name()} answered {path} with something that is not JSON: {error}"
            ) from None


class _Connection(asyncio.Protocol):
    """One socket, and the request under way on it."""

    def __init__(self, answer_bytes_max: int, on_lost: Callable[[], None] | None) -> None:
        self.on_lost = on_lost
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES_MAX)
        self._answer_bytes_max = answer_bytes_max
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._status = 0
        self._body = bytearray()
        self._used_at = asyncio.get_running_loop().time()

    # Called by the link.

    @property
    def is_idle(self) -> bool:
        """Whether it can take a request."""
        if self.closed.done() or self._transport is None or self._http.our_state is not h11.IDLE:
            return False
        return asyncio.get_running_loop().time() - self._used_at < _IDLE_SECONDS_MAX

    async def exchange(
        self, method: str, path: str, host: str, headers: Mapping[str, str], content: bytes
    ) -> tuple[int, bytes]:
        """Send a request and wait for the whole of its answer."""
        assert self._transport is not None
        own = {"host": host, "content-type": "application/json", "content-length": str(len(content))}
        request = h11.Request(method=method, target=path, headers=[*own.items(), *headers.items()])
        out = self._http.send(request) or b""
        if content:
            out += self._http.send(h11.Data(data=content)) or b""
        out += self._http.send(h11.EndOfMessage()) or b""
        self._status, self._body = 0, bytearray()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(out)
        try:
            return await self._answer
        finally:
            self._answer = None
            self._used_at = asyncio.get_running_loop().time()

    def abort(self, reason: str) -> None:
        """Close now; whoever waits is told why."""
        self._fail(reason)
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """A piece of an answer has come."""
        try:
            self._http.receive_data(data)
            self._proceed()
        except (h11.RemoteProtocolError, ValueError) as error:
            self.abort(f"its answer cannot be read: {error}")

    def eof_received(self) -> bool:
        """The other side sends no more: only an answer of unsaid length may end so."""
        try:
            self._http.receive_data(b"")
            self._proceed()
        except h11.RemoteProtocolError:
            self._fail("it closed the connection before its answer was whole")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._fail(f"the connection broke ({exc})" if exc else "it closed the connection")
        if not self.closed.done():
            self.closed.set_result(None)
        on_lost, self.on_lost = self.on_lost, None
        if on_lost is not None:
            on_lost()

    def _proceed(self) -> None:
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Response):
                self._status = event.status_code
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > self._answer_bytes_max:
                    raise ValueError(f"it is longer than {self._answer_bytes_max} bytes")
            elif isinstance(event, h11.EndOfMessage):
                self._finish()
                return
            elif isinstance(event, h11.ConnectionClosed) or event is h11.NEED_DATA or event is h11.PAUSED:
                return

    def _finish(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((self._status, bytes(self._body)))
        self._body = bytearray()
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        elif self._transport is not None:  # the other side said that it will close
            self.on_lost = None
            self._transport.close()

    def _fail(self, reason: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(reason))


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    return (getattr(error, "strerror", None) or str(error)).strip()
