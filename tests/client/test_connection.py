from __future__ import annotations

import asyncio
import socket

import pytest

from odradek.client.address import Address
from odradek.client.connection import Connection, connect
from odradek.client.errors import BrokerUnavailableError, ClientError, TimedOutError
from odradek.client.pool import Pool
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import api_versions, metadata
from tests.client.scripted import Hangup, ScriptedBroker
from tests.client.support import asynchronous, until


def closed_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def connected(broker: ScriptedBroker) -> Connection:
    host, port = broker.address.split(":")
    return await connect(Address(host, int(port)), "me", timeout_ms=5_000)


async def ask(connection: Connection, timeout_ms: int = 5_000) -> metadata.Response:
    return await connection.request(metadata.Request(topics=[]), metadata.Response, timeout_ms=timeout_ms)


@asynchronous
async def test_nobody_at_the_address_is_said_so_with_the_address() -> None:
    port = closed_port()
    with pytest.raises(BrokerUnavailableError, match=f"127.0.0.1:{port} cannot be reached: the connection was refused"):
        await connect(Address("127.0.0.1", port), "me", timeout_ms=5_000)


@asynchronous
async def test_a_host_that_cannot_exist_is_said_so() -> None:
    with pytest.raises(BrokerUnavailableError, match="aaa:1 cannot be reached"):
        await connect(Address("a" * 64, 1), "me", timeout_ms=5_000)


@asynchronous
async def test_a_listener_that_says_nothing_is_given_up_in_time() -> None:
    async with ScriptedBroker() as broker:
        broker.handlers[ApiKey.API_VERSIONS] = lambda _: None
        with pytest.raises((BrokerUnavailableError, TimedOutError), match=broker.address):
            host, port = broker.address.split(":")
            await connect(Address(host, int(port)), "me", timeout_ms=100)


@asynchronous
async def test_a_broker_that_does_not_know_our_api_versions_is_asked_in_its_own() -> None:
    async with ScriptedBroker() as broker:
        refusals = [
            api_versions.Response(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                api_keys=[api_versions.ResponseApiKey(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)],
            ).encode(0)
        ]
        broker.handlers[ApiKey.API_VERSIONS] = lambda request: (
            refusals.pop() if refusals else broker.on_api_versions(request)
        )
        connection = await connected(broker)
        assert broker.versions == [(ApiKey.API_VERSIONS, api_versions.Request.versions[1]), (ApiKey.API_VERSIONS, 2)]
        await ask(connection)
        await connection.close()


@asynchronous
async def test_the_highest_common_version_is_spoken() -> None:
    async with ScriptedBroker() as broker:
        broker.ranges[ApiKey.METADATA] = (0, 8)
        connection = await connected(broker)
        await ask(connection)
        assert broker.versions[-1] == (ApiKey.METADATA, 8)
        await connection.close()


@asynchronous
async def test_many_requests_are_under_way_at_once_and_each_gets_its_own_answer() -> None:
    async with ScriptedBroker() as broker:
        counts = iter(range(1, 100))

        def count(_: object) -> metadata.Response:
            return metadata.Response(controller_id=next(counts))

        broker.handlers[ApiKey.METADATA] = count
        connection = await connected(broker)
        answers = await asyncio.gather(*(ask(connection) for _ in range(20)))
        assert [answer.controller_id for answer in answers] == list(range(1, 21))
        await connection.close()


@asynchronous
async def test_a_request_that_is_cancelled_does_not_take_the_answers_of_others() -> None:
    async with ScriptedBroker() as broker:
        connection = await connected(broker)
        cancelled = asyncio.create_task(ask(connection))
        following = asyncio.create_task(ask(connection))
        asyncio.get_running_loop().call_soon(cancelled.cancel)
        assert (await following).controller_id == 1
        assert cancelled.cancelled() or cancelled.done()
        await connection.close()


@asynchronous
async def test_silence_ends_the_connection_and_everyone_on_it() -> None:
    async with ScriptedBroker() as broker:
        connection = await connected(broker)
        broker.handlers[ApiKey.METADATA] = lambda _: None
        patient = asyncio.create_task(ask(connection, timeout_ms=60_000))
        with pytest.raises(TimedOutError, match=f"{broker.address} did not answer Metadata within 50 ms"):
            await ask(connection, timeout_ms=50)
        with pytest.raises(TimedOutError):
            await patient
        with pytest.raises(TimedOutError):
            await ask(connection)
        assert not connection.is_open
        await connection.close()


@asynchronous
async def test_a_broken_connection_is_said_so_with_the_address() -> None:
    async with ScriptedBroker() as broker:
        connection = await connected(broker)

        def hang_up(_: object) -> None:
            raise Hangup

        broker.handlers[ApiKey.METADATA] = hang_up
        with pytest.raises(BrokerUnavailableError, match=f"{broker.address} cannot be reached"):
            await ask(connection)
        await connection.close()


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x08\0\0\0\x63\0\0\0\0", b"\0\0\0\x05\0\0\0\0\xff"]
)
@asynchronous
async def test_something_else_at_the_address_is_said_so(garbage: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(garbage)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    with pytest.raises(BrokerUnavailableError, match=str(address)):
        await connect(address, "me", timeout_ms=5_000)
    server.close()
    await server.wait_closed()


@asynchronous
async def test_a_closed_connection_takes_no_requests() -> None:
    async with ScriptedBroker() as broker:
        connection = await connected(broker)
        await connection.close()
        with pytest.raises(ClientError, match="closed by this client"):
            await ask(connection)


@asynchronous
async def test_callers_share_a_connection_and_channels_do_not() -> None:
    async with ScriptedBroker() as broker:
        host, port = broker.address.split(":")
        address = Address(host, int(port))
        pool = Pool("me", connect_timeout_ms=5_000)
        first, second, other = await asyncio.gather(pool.get(address), pool.get(address), pool.get(address, "fetch-1"))
        assert first is second
        assert first is not other
        assert broker.connections == 2
        await pool.close_channel("fetch-1")
        assert (first.is_open, other.is_open) == (True, False)
        await pool.close()


@asynchronous
async def test_a_lost_connection_is_made_anew_when_it_is_asked_for() -> None:
    async with ScriptedBroker() as broker:
        host, port = broker.address.split(":")
        address = Address(host, int(port))
        pool = Pool("me", connect_timeout_ms=5_000)
        first = await pool.get(address)
        broker.hang_up()
        await until(lambda: not first.is_open)
        second = await pool.get(address)
        assert second is not first
        assert second.is_open
        await pool.close()


@asynchronous
async def test_a_pool_that_closes_ends_attempts_without_cancelling_the_callers() -> None:
    async with ScriptedBroker() as broker:
        broker.handlers[ApiKey.API_VERSIONS] = lambda _: None
        host, port = broker.address.split(":")
        pool = Pool("me", connect_timeout_ms=60_000)
        caller = asyncio.create_task(pool.get(Address(host, int(port))))
        await until(lambda: broker.connections == 1)
        await pool.close()
        with pytest.raises(ClientError, match="closed"):
            await caller
        with pytest.raises(ClientError, match="closed"):
            await pool.get(Address(host, int(port)))
