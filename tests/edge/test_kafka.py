"""The Kafka door: answers in the order of requests, bounds on all that waits, and bugs that cost one connection."""

from __future__ import annotations

import asyncio
import struct
from time import monotonic

import pytest

from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.headers import RequestHeader, encode_request_header
from odradek.wire.messages import api_versions
from tests.client.support import until
from tests.edge.doors import LARGE_BYTES, answer, on_uvloop, open_door

MIB = 1 << 20


@on_uvloop
async def test_answers_come_in_the_order_of_requests_whichever_is_ready_first() -> None:
    async with open_door() as door:
        client = await door.connect()
        client.send("later 1", "now 2", "task 3", "now 4")
        await until(lambda: len(door.staff.handled) == 4)
        door.staff.bells["task 3"].set()
        await until(lambda: door.staff.ended == ["task 3"])
        assert door.stats.api("METADATA").latency.count == 0, "the first one still waits"
        door.staff.waiting["later 1"].set_result(answer("later 1"))
        said = [await client.read() for _ in range(4)]
        assert said == [(1, "later 1"), (2, "now 2"), (3, "task 3"), (4, "now 4")]


@on_uvloop
async def test_no_more_requests_are_taken_than_may_wait_and_the_rest_is_taken_in_turn() -> None:
    async with open_door(connection_requests_max=3) as door:
        client, other = await door.connect(), await door.connect()
        client.send(*(f"later {n}" for n in range(6)))
        assert await other.ask("now") == "now"
        await until(lambda: len(door.staff.waiting) == 3)
        for number in range(6):
            assert len(door.staff.waiting) == min(number + 3, 6)
            door.staff.waiting[f"later {number}"].set_result(answer(f"later {number}"))
            assert await client.read() == (number + 1, f"later {number}")
            await until(lambda number=number: len(door.staff.waiting) == min(number + 4, 6))  # type: ignore[misc]


@on_uvloop
async def test_a_client_that_does_not_read_is_not_read_from_until_it_does() -> None:
    async with open_door(connection_queued_max_bytes=MIB, queued_answers_max_bytes=64 * MIB) as door:
        deaf, other = await door.connect(), await door.connect()
        asked = 60
        deaf.send(*["large"] * asked)
        await until(lambda: door.server.room.left_bytes < 64 * MIB)
        for _ in range(20):
            assert await other.ask("now") == "now"
        handled = door.staff.handled.count("large")
        assert handled < asked, "some of its requests wait unread"
        for _ in range(asked):
            assert (await deaf.read())[1] == "large"
        await until(lambda: door.server.room.left_bytes == 64 * MIB)
        assert door.staff.handled.count("large") == asked
        assert await deaf.ask("now") == "now"


@on_uvloop
async def test_a_client_that_does_not_read_for_too_long_is_let_go(caplog: pytest.LogCaptureFixture) -> None:
    async with open_door(connection_queued_max_bytes=MIB, socket_stall_timeout_ms=5000) as door:
        deaf = await door.connect()
        deaf.send(*["large"] * 60)
        await until(lambda: door.server.room.left_bytes < door.server.config.queued_answers_max_bytes)
        connection = door.connection()
        assert connection.stalled_at is not None
        connection.check_deadlines(connection.stalled_at + 4.9)
        assert door.stats.connections == 1
        connection.check_deadlines(connection.stalled_at + 5.1)
        await until(lambda: door.stats.connections == 0)
        assert "has not read its answers for 5000 ms" in caplog.text
        assert door.server.room.left_bytes == door.server.config.queued_answers_max_bytes
        assert door.stats.connections_dropped == 1


@on_uvloop
async def test_a_silent_connection_is_closed_unless_it_waits_for_an_answer() -> None:
    async with open_door(connections_max_idle_ms=60_000) as door:
        client = await door.connect()
        client.send("later")
        await until(lambda: bool(door.staff.waiting))
        connection = door.connection()
        connection.check_deadlines(connection.heard_at + 3600)
        door.staff.waiting["later"].set_result(answer("later"))
        assert await client.read() == (1, "later")
        connection.check_deadlines(connection.heard_at + 59)
        assert await client.ask("still here") == "still here"
        connection.check_deadlines(connection.heard_at + 61)
        assert await client.is_closed()
        await until(lambda: door.stats.connections == 0)
        assert door.stats.connections_dropped == 1


@on_uvloop
async def test_a_request_that_does_not_arrive_in_full_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with open_door(socket_frame_timeout_ms=1000) as door:
        client = await door.connect()
        client.writer.write(client.frame("whole") + client.frame("half")[:-1])
        assert await client.read() == (1, "whole")
        connection = door.connection()
        assert connection.frame_begun_at is not None
        connection.check_deadlines(connection.frame_begun_at + 0.9)
        client.writer.write(client.frame("half")[-1:])
        assert (await client.read())[1] == "half"
        assert connection.frame_begun_at is None
        client.writer.write(b"\0")
        await until(lambda: connection.frame_begun_at is not None)
        connection.check_deadlines(connection.frame_begun_at + 1.1)
        assert await client.is_closed()
        assert "did not arrive in full within 1000 ms" in caplog.text


@on_uvloop
async def test_a_client_whose_every_piece_ends_within_a_request_is_not_taken_for_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_door(socket_frame_timeout_ms=1000) as door:
        client = await door.connect()
        stream = b"".join(client.frame(f"request {number}") for number in range(10))
        size = len(stream) // 10
        now = monotonic()
        monkeypatch.setattr("odradek.edge.kafka.monotonic", lambda: now)
        client.writer.write(stream[: size + 20])
        for number in range(1, 10):
            assert (await client.read())[1] == f"request {number - 1}"
            now += 0.9
            door.connection().check_deadlines(now)
            client.writer.write(stream[number * size + 20 : (number + 1) * size + 20])
        assert (await client.read())[1] == "request 9"


@on_uvloop
async def test_time_that_a_request_waits_for_room_is_not_held_against_the_client() -> None:
    async with open_door(connection_requests_max=1, socket_frame_timeout_ms=1000) as door:
        client = await door.connect()
        client.writer.write(client.frame("later 1") + client.frame("later 2")[:-1])
        await until(lambda: bool(door.staff.waiting))
        door.connection().check_deadlines(monotonic() + 3600)
        client.writer.write(client.frame("later 2")[-1:])
        door.staff.waiting["later 1"].set_result(answer("later 1"))
        assert await client.read() == (1, "later 1")
        await until(lambda: "later 2" in door.staff.waiting)


@on_uvloop
async def test_a_resting_connection_gives_its_buffer_back_and_takes_a_new_one() -> None:
    async with open_door() as door:
        client = await door.connect()
        assert await client.ask("now") == "now"
        connection = door.connection()
        connection.check_deadlines(connection.heard_at + 2.9)
        assert connection._frames.capacity_bytes > 0
        connection.check_deadlines(connection.heard_at + 3.1)
        assert connection._frames.capacity_bytes == 0
        assert await client.ask("again") == "again"
        client.writer.write(client.frame("half")[:-1])
        await until(lambda: not connection._frames.is_empty)
        connection.check_deadlines(connection.heard_at + 3.1)
        client.writer.write(client.frame("half")[-1:])
        assert (await client.read())[1] == "half"


@pytest.mark.parametrize("name", ["bug", "wrong", "odd", "task bug", "later bug"])
@on_uvloop
async def test_a_bug_costs_one_connection_and_is_told_in_full(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async with open_door() as door:
        unlucky, other = await door.connect(), await door.connect()
        unlucky.send("later first", name, "now")
        await until(lambda: name in door.staff.handled)
        if name.startswith("task"):
            door.staff.bells[name].set()
        if name.startswith("later"):
            door.staff.waiting[name].set_exception(RuntimeError("for a test"))
        assert await unlucky.is_closed()
        assert await other.ask("now") == "now"
        assert "a bug in METADATA" in caplog.text
        assert any(record.exc_info for record in caplog.records) or name == "later bug", "with all that is known"
        assert door.stats.api("METADATA").errors == 1
        await until(lambda: door.stats.connections == 1)


@on_uvloop
async def test_a_request_without_an_answer_does_not_hold_up_the_next() -> None:
    async with open_door(connection_requests_max=1) as door:
        client = await door.connect()
        client.send("silent", "silent", "now")
        assert await client.read() == (3, "now")
        assert door.stats.api("METADATA").latency.count == 3


@on_uvloop
async def test_a_version_that_is_not_served_ends_the_connection_but_for_api_versions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_door() as door:
        client = await door.connect()
        client.send("later")
        future = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 5, -1)
        client.writer.write(struct.pack(">i", len(future)) + future)
        await until(lambda: bool(door.staff.waiting))
        door.staff.waiting["later"].set_result(answer("later"))
        assert await client.read() == (1, "later"), "also here one after the other"
        frame = await client.read_frame()
        told = api_versions.Response.decode(frame, 0, 4)
        assert struct.unpack_from(">i", frame) == (5,)
        assert told.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [api.api_key for api in told.api_keys] == [ApiKey.METADATA, ApiKey.API_VERSIONS]
        header = encode_request_header(RequestHeader(ApiKey.METADATA, 8, 6, "test"))
        client.writer.write(struct.pack(">i", len(header)) + header)
        assert await client.is_closed()
        assert "METADATA version 8; 9 to 9 are served" in caplog.text


@pytest.mark.parametrize(
    "frame", [b"", b"\0\x03\0", struct.pack(">hhih", 999, 0, 1, -1), struct.pack(">hhi", 3, 9, 1) + b"\xff" * 9]
)
@on_uvloop
async def test_what_is_no_request_ends_the_connection_with_one_line(
    frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_door() as door:
        client = await door.connect()
        client.writer.write(struct.pack(">i", len(frame)) + frame + client.frame("after"))
        assert await client.is_closed()
        assert caplog.text.count("dropped") == 1 and "Traceback" not in caplog.text
        assert door.staff.handled == []
        assert door.stats.connections_dropped == 1


@on_uvloop
async def test_the_first_request_must_be_small_and_later_ones_need_not() -> None:
    async with open_door(socket_first_request_max_bytes=1024) as door:
        client, other = await door.connect(), await door.connect()
        client.send("x" * 2000)
        assert await client.is_closed()
        assert await other.ask("now") == "now"
        assert await other.ask("x" * 2000) == "x" * 2000


@on_uvloop
async def test_a_client_that_sends_no_more_still_gets_its_answers_and_then_the_end() -> None:
    async with open_door() as door:
        client = await door.connect()
        client.send("later 1", "now 2")
        client.writer.write_eof()
        await until(lambda: len(door.staff.handled) == 2)
        door.staff.waiting["later 1"].set_result(answer("later 1"))
        assert [await client.read(), await client.read()] == [(1, "later 1"), (2, "now 2")]
        assert await client.is_closed()
        await until(lambda: door.stats.connections == 0)


@on_uvloop
async def test_a_client_that_hangs_up_while_it_waits_does_not_keep_its_place() -> None:
    async with open_door() as door:
        client = await door.connect()
        client.send("later")
        await until(lambda: bool(door.staff.waiting))
        await client.close()
        door.staff.waiting["later"].set_result(answer("later"))
        await until(lambda: door.stats.connections == 0)


@on_uvloop
async def test_what_a_lost_client_waited_for_is_given_up() -> None:
    async with open_door() as door:
        client = await door.connect()
        client.send("later", "task")
        await until(lambda: len(door.staff.handled) == 2)
        client.writer.transport.abort()
        door.connection()._end()
        await until(lambda: door.stats.connections == 0)
        assert door.staff.waiting["later"].cancelled()
        assert door.staff.ended == [], "what a task has begun it brings to its end"
        door.staff.bells["task"].set()
        await until(lambda: door.staff.ended == ["task"])


@pytest.mark.parametrize("bound", ["max_connections_per_ip", "max_connections_per_broker"])
@on_uvloop
async def test_connections_beyond_the_bound_are_closed_with_one_line_and_places_are_free_again(
    bound: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_door(**{bound: 2}) as door:
        first, second = await door.connect(), await door.connect()
        assert await first.ask("now") == await second.ask("now") == "now"
        for _ in range(3):
            assert await (await door.connect()).is_closed()
        assert caplog.text.count("refused") == 1
        assert (door.stats.connections, door.stats.connections_refused) == (2, 3)
        await first.close()
        await until(lambda: door.stats.connections == 1)
        assert await (await door.connect()).ask("now") == "now"
        assert door.stats.connections_accepted == 3


@on_uvloop
async def test_bytes_and_time_are_counted() -> None:
    async with open_door() as door:
        client = await door.connect()
        await client.ask("large")
        stats = door.stats.api("METADATA")
        assert stats.response_bytes > LARGE_BYTES * 0.9
        assert 20 < stats.request_bytes < 100
        assert stats.latency.count == 1 and stats.latency.total > 0


@on_uvloop
async def test_after_the_stop_no_request_is_taken_though_answers_still_leave() -> None:
    async with open_door() as door:
        client = await door.connect()
        client.send("later 1")
        await until(lambda: bool(door.staff.waiting))
        door.server.stop_reading()
        client.send("now 2")
        door.staff.waiting["later 1"].set_result(answer("later 1"))
        assert await client.read() == (1, "later 1")
        await door.server.close()
        assert await client.is_closed()
        assert door.staff.handled == ["later 1"]


@on_uvloop
async def test_an_answer_that_is_ready_when_the_door_closes_is_sent() -> None:
    async with open_door() as door:
        client = await door.connect()
        client.send("later")
        await until(lambda: bool(door.staff.waiting))
        door.staff.waiting["later"].set_result(answer("later"))
        await door.server.close()
        assert await client.read() == (1, "later")
        assert await client.is_closed()


@on_uvloop
async def test_closing_gives_up_what_waits_and_ends_though_a_client_does_not_read() -> None:
    async with open_door(connection_queued_max_bytes=MIB) as door:
        deaf, waiting = await door.connect(), await door.connect()
        deaf.send(*["large"] * 30)
        waiting.send("task", "later")
        await until(lambda: door.server.room.left_bytes < door.server.config.queued_answers_max_bytes)
        await until(lambda: bool(door.staff.waiting))
        async with asyncio.timeout(10):
            await door.server.close()
        assert door.staff.ended == ["task"]
        assert await waiting.is_closed()
        await until(lambda: door.stats.connections == 0)
