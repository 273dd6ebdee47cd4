"""The gRPC server: what it lets through, what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterable, Awaitable
from pathlib import Path

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from odradek.edge.grpc import guarding
from odradek.edge.grpc.server import GrpcServer
from odradek.edge.grpc.standard import HEALTH, REFLECTION, REFLECTION_V1
from tests.client.support import until
from tests.edge.doors import on_uvloop
from tests.edge.grpc.servers import CALLS_MAX, MESSAGE_BYTES_MAX, NAME, Parrot, Said, config, refusal, say, served
from tests.process import BrokerProcess

Code = grpc.StatusCode


def check(channel: aio.Channel, service: str) -> Awaitable[health_pb2.HealthCheckResponse]:
    call = channel.unary_unary(
        f"/{HEALTH}/Check", health_pb2.HealthCheckRequest.SerializeToString, health_pb2.HealthCheckResponse.FromString
    )
    return call(health_pb2.HealthCheckRequest(service=service), timeout=30)


@on_uvloop
async def test_all_four_kinds_of_calls_are_answered_and_counted() -> None:
    parrot = Parrot()
    encode, decode = Said.SerializeToString, Said.FromString
    async with served(parrot) as (server, channel, _):
        assert await say(channel, "hello") == "hello"
        joined = channel.stream_unary(f"/{NAME}/Join", encode, decode)(iter([Said(service="a"), Said(service="b")]))
        assert (await joined).service == "a b"
        repeated = channel.unary_stream(f"/{NAME}/Repeat", encode, decode)(Said(service="x"))
        assert [answer.service async for answer in repeated] == ["x 0", "x 1", "x 2"]
        echoed = channel.stream_stream(f"/{NAME}/Echo", encode, decode)(iter([Said(service="1"), Said(service="2")]))
        assert [answer.service async for answer in echoed] == ["1", "2"]
        assert server.stats.open == 0
        assert {method: count for (method, code), count in server.stats.calls.items() if code == "OK"} == {
            f"{NAME}/{method}": 1 for method in ("Say", "Join", "Repeat", "Echo")
        }


@on_uvloop
async def test_a_bug_is_told_as_internal_and_its_traceback_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    encode, decode = Said.SerializeToString, Said.FromString
    async with served(Parrot()) as (server, channel, _):
        with caplog.at_level(logging.ERROR, "odradek"):
            code, details = await refusal(say(channel, "bug"))
            assert code is Code.INTERNAL and "for a test" not in details and "Traceback" not in details
            assert len(caplog.records) == 1 and caplog.records[0].exc_info
            bug = Said(service="bug")
            assert (await refusal(channel.stream_unary(f"/{NAME}/Join", encode, decode)(iter([bug]))))[
                0
            ] is Code.INTERNAL
            stream = channel.unary_stream(f"/{NAME}/Repeat", encode, decode)(bug)
            assert (await refusal(_all(stream)))[0] is Code.INTERNAL
        assert await say(channel, "still here") == "still here"
        assert server.stats.calls[f"{NAME}/Say", "INTERNAL"] == 1


async def _all(stream: AsyncIterable[Said]) -> list[str]:
    return [answer.service async for answer in stream]


@on_uvloop
async def test_what_is_not_a_message_and_what_is_no_method_are_refused() -> None:
    async with served(Parrot()) as (server, channel, _):
        garbage = b"\x0a\xff\xff"

        async def code(method: str, raw: bytes) -> grpc.StatusCode:
            return (await refusal(channel.unary_unary(method, bytes, bytes)(raw)))[0]

        assert await code(f"/{NAME}/Say", garbage) is Code.INVALID_ARGUMENT
        joined = channel.stream_unary(f"/{NAME}/Join", bytes, bytes)(iter([garbage]))
        assert (await refusal(joined))[0] is Code.INVALID_ARGUMENT
        assert await code(f"/{NAME}/Sing", b"") is Code.UNIMPLEMENTED
        assert await code("/nobody/Say", b"") is Code.UNIMPLEMENTED
        assert (await refusal(say(channel, "no")))[0] is Code.NOT_FOUND
        assert server.stats.calls[f"{NAME}/Say", "NOT_FOUND"] == 1
        assert server.stats.calls[f"{NAME}/Say", "INVALID_ARGUMENT"] == 1


@on_uvloop
async def test_a_message_over_the_bound_is_refused_both_ways() -> None:
    parrot = Parrot()
    async with served(parrot) as (_, channel, _):
        assert (await refusal(say(channel, "x" * 2 * MESSAGE_BYTES_MAX)))[0] is Code.RESOURCE_EXHAUSTED
        assert parrot.begun == []
        assert (await refusal(say(channel, "large")))[0] is Code.RESOURCE_EXHAUSTED
        assert await say(channel, "x" * (MESSAGE_BYTES_MAX // 2))


@on_uvloop
async def test_more_calls_than_the_bound_are_refused_and_the_others_are_answered() -> None:
    parrot = Parrot()
    async with served(parrot) as (_, channel, _):
        waiting = [asyncio.create_task(say(channel, f"later {number}")) for number in range(CALLS_MAX)]
        await until(lambda: len(parrot.begun) == CALLS_MAX)
        assert (await refusal(say(channel, "one more")))[0] is Code.RESOURCE_EXHAUSTED
        parrot.bell.set()
        assert len(await asyncio.gather(*waiting)) == CALLS_MAX
        assert await say(channel, "again") == "again"


@on_uvloop
async def test_too_many_bytes_under_way_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "HELD_BYTES_MAX", 1_000)
    parrot = Parrot()
    async with served(parrot) as (server, channel, _):
        first = asyncio.create_task(say(channel, "later" + "x" * 2_000))  # alone it may be larger
        await until(lambda: len(parrot.begun) == 1)
        assert (await refusal(say(channel, "next")))[0] is Code.RESOURCE_EXHAUSTED
        parrot.bell.set()
        await first
        assert await say(channel, "next") == "next"
        assert server.stats.held_bytes == 0


@on_uvloop
async def test_a_deadline_and_a_cancelled_call_free_what_they_held() -> None:
    parrot = Parrot()
    async with served(parrot) as (server, channel, _):
        assert (await refusal(say(channel, "later: deadline", timeout=0.2)))[0] is Code.DEADLINE_EXCEEDED
        await until(lambda: parrot.ended == ["later: deadline"])
        task = asyncio.create_task(say(channel, "later: cancelled"))
        await until(lambda: len(parrot.begun) == 2)
        task.cancel()
        await until(lambda: len(parrot.ended) == 2)
        await until(lambda: server.stats.open == 0)
        assert server.stats.calls[f"{NAME}/Say", "CANCELLED"] == 2


@on_uvloop
async def test_health_is_told_of_every_service_and_ends_when_the_door_closes() -> None:
    parrot = Parrot()
    async with served(parrot) as (server, channel, _):
        for name in ("", NAME):
            assert (await check(channel, name)).status == health_pb2.HealthCheckResponse.SERVING
        assert (await refusal(check(channel, "nobody")))[0] is Code.NOT_FOUND
        watch = channel.unary_stream(
            f"/{HEALTH}/Watch",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )(health_pb2.HealthCheckRequest(service=NAME))
        told = aiter(watch)
        assert (await anext(told)).status == health_pb2.HealthCheckResponse.SERVING
        async with asyncio.timeout(4):  # less than the grace that calls get
            await server.close()
        code, _ = await refusal(_end(told))
        assert code is Code.UNAVAILABLE


async def _end(stream: AsyncIterable[object]) -> None:
    async for _ in stream:
        pass


@pytest.mark.parametrize("name", [REFLECTION, REFLECTION_V1])
@on_uvloop
async def test_reflection_lists_the_services_and_describes_them(name: str) -> None:
    wanted = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=HEALTH),
    ]
    async with served(Parrot()) as (_, channel, _):
        call = channel.stream_stream(
            f"/{name}/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        listed, described = [answer async for answer in call(iter(wanted))]
        assert {service.name for service in listed.list_services_response.service} == {NAME, HEALTH, REFLECTION}
        assert described.file_descriptor_response.file_descriptor_proto


@on_uvloop
async def test_calls_under_way_are_answered_when_the_door_closes_and_streams_end() -> None:
    parrot = Parrot()
    async with served(parrot) as (server, channel, _):
        under_way = asyncio.create_task(say(channel, "later"))
        stream = channel.unary_stream(f"/{NAME}/Repeat", Said.SerializeToString, Said.FromString)(
            Said(service="for ever")
        )
        answers = aiter(stream)
        assert (await anext(answers)).service == "for ever 0"
        await until(lambda: "later" in parrot.begun)
        closing = asyncio.create_task(server.close())
        await parrot.closing.wait()
        parrot.bell.set()
        assert await under_way == "later"
        assert await _all(answers) == ["for ever 1", "for ever 2"]
        await closing
        assert (await refusal(say(channel, "hello", timeout=5)))[0] in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)


@on_uvloop
async def test_an_address_that_is_taken_or_is_none_is_an_oserror_and_a_closed_door_frees_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(OSError) as caught:
            GrpcServer(config()).listen("127.0.0.1", taken.getsockname()[1])
        assert caught.value.errno == errno.EADDRINUSE
    with pytest.raises(OSError):
        GrpcServer(config()).listen("nobody.invalid", 0)
    first = GrpcServer(config())
    _, port = first.listen("127.0.0.1", 0)
    with pytest.raises(OSError):
        GrpcServer(config()).listen("127.0.0.1", port)
    await first.close()  # though it was never opened
    again = GrpcServer(config())
    assert again.listen("127.0.0.1", port) == ("127.0.0.1", port)
    await again.close()


@on_uvloop
async def test_more_connections_than_the_bound_are_hung_up_on() -> None:
    parrot = Parrot()
    async with served(parrot, GrpcServer(config(), connections_max=1)) as (_, channel, port):
        assert await say(channel, "hello") == "hello"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()
        assert await say(channel, "still") == "still"


def test_a_broker_without_the_door_imports_no_grpc(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        maps = Path(f"/proc/{broker.process.pid}/maps").read_text(encoding="utf-8")
        assert "cygrpc" not in maps
