"""One connection to one broker: requests go out without waiting for the answers to earlier ones.

Kafka answers in the order of the requests. What is written is bounded by the callers, who limit their requests in
flight. A request that gets no answer in time ends the connection, since all behind it would wait as well.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import NamedTuple, TypeVar, cast

from odradek import __version__
from odradek.client.address import Address
from odradek.client.errors import BrokerUnavailableError, ClientError, TimedOutError, check
from odradek.client.framing import FrameError, FrameReader
from odradek.client.versions import ApiRanges, api_name
from odradek.wire.api import response_header_version
from odradek.wire.errors import DecodeError, ErrorCode
from odradek.wire.headers import RequestHeader, decode_response_header, encode_request_header
from odradek.wire.messages import api_versions
from odradek.wire.schema import Message

SOFTWARE_NAME = "odradek"
CORRELATION_MAX = 2**31 - 1
_CLOSE_SECONDS_MAX = 1.0

_ERROR_CODE = struct.Struct(">h")
_LENGTH = struct.Struct(">i")

Answer = TypeVar("Answer", bound=Message)


class _Pending(NamedTuple):
    """A request whose answer has not come yet."""

    correlation_id: int
    flexible: bool  # the answer's header has tagged fields
    future: asyncio.Future[tuple[bytearray, int]]  # the frame, and where the body starts


class Connection(asyncio.BufferedProtocol):
    """Made by `connect`. Closed for good when the socket is; a new one is made then."""

    def __init__(self, address: Address, client_id: str) -> None:
        self.address = address
        self.ranges = ApiRanges(str(address), {})
        self._client_id = client_id
        self._reader = FrameReader()
        self._pending: deque[_Pending] = deque()
        self._correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._failure: ClientError | None = None  # why no more requests are taken
        self._lost = asyncio.get_running_loop().create_future()
        self._paused: asyncio.Future[None] | None = None  # while the socket takes no more

    # Called by the owner.

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._failure is None and self._transport is not None

    async def request(
        self, message: Message, answer: type[Answer], *, timeout_ms: int, version_max: int | None = None
    ) -> Answer:
        """Send a request at the highest common version and return its decoded answer."""
        version = self.ranges.choose(type(message), version_max)
        frame, at = await self._exchange(message, version, timeout_ms)
        return self._decode(answer, frame, version, at)

    def send_only(self, message: Message) -> None:
        """Send a request that has no answer: producing with acks=0."""
        self._write(message, self.ranges.choose(type(message)))

    async def drained(self) -> None:
        """Wait until the socket has taken most of what was sent: nothing else bounds requests without an answer."""
        while self._paused is not None:
            await asyncio.shield(self._paused)
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Close the socket and wait until it is closed; requests under way fail."""
        self._fail(ClientError(f"the connection to {self.address} was closed by this client"))
        if self._transport is not None:  # one that is given up while it is made may never hear that it is lost
            await asyncio.wait({self._lost}, timeout=_CLOSE_SECONDS_MAX)

    async def negotiate(self, timeout_ms: int) -> None:
        """Ask for the broker's versions. An answer of 35 is in version 0, whatever was asked in (KIP-511)."""
        version = api_versions.Request.versions[1]
        request = api_versions.Request(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        frame, at = await self._exchange(request, version, timeout_ms)
        if frame[at : at + 2] == _ERROR_CODE.pack(ErrorCode.UNSUPPORTED_VERSION):
            refusal = self._decode(api_versions.Response, frame, 0, at)
            known = {item.api_key: item.max_version for item in refusal.api_keys}
            version = max(0, min(known.get(int(api_versions.Request.api_key), 0), version - 1))
            frame, at = await self._exchange(request, version, timeout_ms)
        response = self._decode(api_versions.Response, frame, version, at)
        check(response.error_code, f"asking {self.address} for its API versions")
        ranges = {item.api_key: (item.min_version, item.max_version) for item in response.api_keys}
        self.ranges = ApiRanges(str(self.address), ranges)

    async def _exchange(self, message: Message, version: int, timeout_ms: int) -> tuple[bytearray, int]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[bytearray, int]] = loop.create_future()
        correlation_id = self._write(message, version)
        flexible = response_header_version(message.api_key, version) > 0
        self._pending.append(_Pending(correlation_id, flexible, future))
        timer = loop.call_later(timeout_ms / 1000, self._give_up, int(message.api_key), timeout_ms)
        try:
            return await future
        finally:
            timer.cancel()

    def _write(self, message: Message, version: int) -> int:
        if self._failure is not None:
            raise self._failure
        assert self._transport is not None, "requests are sent after connect()"
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) & CORRELATION_MAX
        header = encode_request_header(RequestHeader(int(message.api_key), version, correlation_id, self._client_id))
        parts = message.encode_parts(version)
        length = len(header) + sum(map(len, parts))
        self._transport.writelines([_LENGTH.pack(length), header, *parts])
        return correlation_id

    def _decode(self, answer: type[Answer], frame: bytearray, version: int, at: int) -> Answer:
        try:
            return answer.decode(memoryview(frame), version, at)
        except DecodeError as error:
            problem = f"its answer to {api_name(int(answer.api_key))} v{version} cannot be read: {error}"
            raise self._fail(BrokerUnavailableError(str(self.address), problem)) from None

    def _give_up(self, api_key: int, timeout_ms: int) -> None:
        self._fail(
            TimedOutError(
                f"the broker at {self.address} did not answer {api_name(api_key)} within {timeout_ms} ms:"
                " it is overloaded, stopped, or something between drops the packets"
            )
        )

    def _fail(self, error: ClientError) -> ClientError:
        """End the connection and all that waits on it; the first reason stays."""
        if self._failure is None:
            self._failure = error
            if self._transport is not None:
                self._transport.abort()
            pending, self._pending = self._pending, deque()
            for item in pending:
                if not item.future.done():
                    item.future.set_exception(error)
        return error

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only

    def pause_writing(self) -> None:
        """The socket does not take as much as is written."""
        self._paused = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """The socket has caught up, or is gone."""
        paused, self._paused = self._paused, None
        if paused is not None and not paused.done():
            paused.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where to receive into."""
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Hand complete answers to those who wait for them."""
        try:
            for frame in self._reader.received(nbytes):
                self._answered(frame)
        except (FrameError, DecodeError) as error:
            self._fail(BrokerUnavailableError(str(self.address), f"{error}. Something else may listen there"))

    def _answered(self, frame: bytearray) -> None:
        if not self._pending:
            raise FrameError("it answered without having been asked")
        waiting = self._pending[0]
        correlation_id, at = decode_response_header(frame, waiting.flexible)
        if correlation_id != waiting.correlation_id:
            raise FrameError(f"it answered request {correlation_id} instead of {waiting.correlation_id}")
        self._pending.popleft()
        if not waiting.future.done():
            waiting.future.set_result((frame, at))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everyone who still waits."""
        reason = f"the connection broke ({exc})" if exc else "it closed the connection"
        self._fail(BrokerUnavailableError(str(self.address), reason))
        self.resume_writing()
        if not self._lost.done():
            self._lost.set_result(None)


async def connect(address: Address, client_id: str, *, timeout_ms: int) -> Connection:
    """Open a connection and agree on versions, or raise a ClientError that names the address."""
    loop = asyncio.get_running_loop()
    connection = Connection(address, client_id)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await loop.create_connection(lambda: connection, address.host, address.port)
            await connection.negotiate(timeout_ms)
    except TimeoutError:
        await connection.close()
        raise BrokerUnavailableError(str(address), f"no answer within {timeout_ms} ms") from None
    except (OSError, UnicodeError) as error:  # the latter from a host name that no name server could know
        raise BrokerUnavailableError(str(address), _reason(error)) from None
    except BaseException:
        await connection.close()
        raise
    return connection


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    return (getattr(error, "strerror", None) or str(error)).strip()
