"""The quorum's door: who may ask, what is passed on, and how errors travel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.controller.quorum_errors import NotLeaderError
from odradek.edge.rest import kraft
from odradek.edge.rest.kraft import REQUESTS
from odradek.edge.routing import Router
from odradek.wire.errors import ErrorCode, PeerError
from tests.client.support import until
from tests.edge.doors import on_uvloop
from tests.edge.web import Visit, open_door

SECRET = {"x-odradek-secret": "s3cret"}


class FakeQuorum:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.secret: str | None = None
        self.cluster_id = "abc"
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.fails: Exception | None = None
        self.lost = 0
        self.waiting = 0

    async def receive(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if self.fails is not None:
            raise self.fails
        self.asked.append((name, body))
        if body.get("wait"):
            self.waiting += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.waiting -= 1
        return {"granted": True}

    async def command(
        self, command: str, args: Mapping[str, Any], on_close: Callable[[Callable[[], None]], None]
    ) -> dict[str, Any]:
        on_close(self._lose)
        if self.fails is not None:
            raise self.fails
        self.asked.append((command, args))
        return {"broker_epoch": 7}

    def _lose(self) -> None:
        self.lost += 1

    def status(self) -> dict[str, Any]:
        return {"leader_id": 1}


@asynccontextmanager
async def open_quorum() -> AsyncIterator[tuple[FakeQuorum, Visit]]:
    quorum = FakeQuorum()
    async with open_door(Router(*kraft.routes(quorum))) as door:
        yield quorum, door


@on_uvloop
async def test_requests_go_to_the_quorum_whatever_their_content_type() -> None:
    async with open_quorum() as (quorum, door):
        for name in REQUESTS:
            body = {"candidate_epoch": 1, "candidate_id": "3"}
            answer = await door.ask("POST", f"/kraft/v1/{name}", body, {"Content-Type": "application-json"})
            assert answer == (200, {"granted": True})
            assert quorum.asked[-1] == (name, body)
        assert set(REQUESTS) == {
            "voteRequest", "beginQuorumEpoch", "endQuorumEpoch", "fetchMetadata", "fetchSnapshot",
        }  # fmt: skip
        assert await door.ask("GET", "/kraft/v1/status") == (200, {"leader_id": 1})
        assert (await door.ask("POST", "/kraft/v1/other", {}))[0] == 404
        assert (await door.ask("POST", "/kraft/v1/voteRequest", b"["))[0] == 400


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (NotLeaderError(4), 421, "leader is 4, can't accept"),
        (NotLeaderError(-1), 421, "leader is -1, can't accept"),
        (PeerError(ErrorCode.INVALID_REQUEST, "candidate_id is missing"), 400, "candidate_id is missing"),
        (PeerError(ErrorCode.INCONSISTENT_CLUSTER_ID, "another"), 409, "another"),
    ],
)
@on_uvloop
async def test_what_the_quorum_refuses_has_a_status(error: Exception, status: int, detail: str) -> None:
    async with open_quorum() as (quorum, door):
        quorum.fails = error
        assert await door.ask("POST", "/kraft/v1/fetchMetadata", {}) == (status, {"detail": detail})


@on_uvloop
async def test_a_commands_error_is_part_of_its_answer() -> None:
    async with open_quorum() as (quorum, door):
        body = {"command": "register-broker", "args": {"broker_id": 2}}
        assert await door.ask("POST", "/kraft/v1/command", body) == (200, {"broker_epoch": 7})
        assert await door.ask("POST", "/kraft/v1/command", {"command": "rebalance"}) == (200, {"broker_epoch": 7})
        assert quorum.asked == [("register-broker", {"broker_id": 2}), ("rebalance", {})]
        quorum.fails = PeerError(ErrorCode.NOT_CONTROLLER, "it is 3")
        assert await door.ask("POST", "/kraft/v1/command", body) == (200, {"error": 41, "message": "it is 3"})


@pytest.mark.parametrize("body", [{}, {"command": 7}, {"command": "x", "args": []}, {"command": "x", "args": None}])
@on_uvloop
async def test_a_command_that_is_none_is_refused(body: object) -> None:
    async with open_quorum() as (quorum, door):
        assert (await door.ask("POST", "/kraft/v1/command", body))[0] == 400
        assert quorum.asked == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-odradek-secret": ""},
        {"x-odradek-secret": "s3cre"},
        {"x-odradek-secret": "s3cret\xe9"},
        {"secret": "s3cret"},
    ],
)
@on_uvloop
async def test_nobody_without_the_secret_is_let_in(headers: dict[str, str]) -> None:
    async with open_quorum() as (quorum, door):
        quorum.secret = "s3cret"
        for name in (*REQUESTS, "command"):
            status, content = await door.ask("POST", f"/kraft/v1/{name}", {"command": "x"}, headers)
            assert status == 401 and "s3cret" not in content["detail"]
        assert (await door.ask("GET", "/kraft/v1/status", headers=headers))[0] == 401
        assert quorum.asked == []
        assert (await door.ask("POST", "/kraft/v1/voteRequest", {}, SECRET))[0] == 200
        assert (await door.ask("GET", "/kraft/v1/status", headers=SECRET))[0] == 200


@on_uvloop
async def test_brokers_of_another_cluster_are_refused() -> None:
    async with open_quorum() as (quorum, door):
        for theirs, ours, status in (("xyz", "abc", 409), ("abc", "abc", 200), ("", "abc", 200), ("xyz", "", 200)):
            quorum.cluster_id = ours
            for method, path in (("POST", "voteRequest"), ("POST", "command"), ("GET", "status")):
                answer = await door.ask(method, f"/kraft/v1/{path}", {"command": "x"}, {"x-odradek-cluster": theirs})
                assert answer[0] == status, (theirs, ours, answer)


@on_uvloop
async def test_a_long_poll_ends_with_its_connection() -> None:
    async with open_quorum() as (quorum, door):
        client = await door.connect()
        body = '{"wait": true}'
        client.send(f"POST /kraft/v1/fetchMetadata HTTP/1.1\nHost: x\nContent-Length: {len(body)}\n\n{body}")
        await until(lambda: quorum.waiting == 1)
        await client.close()
        await until(lambda: quorum.waiting == 0)


@on_uvloop
async def test_the_loss_of_a_brokers_connection_is_told_once() -> None:
    async with open_quorum() as (quorum, door):
        client = await door.connect()
        for _ in range(5):
            assert (await client.ask("POST", "/kraft/v1/command", {"command": "heartbeat"}))[0] == 200
        assert quorum.lost == 0
        client.writer.transport.abort()
        await until(lambda: quorum.lost > 0)
        assert quorum.lost == 1
