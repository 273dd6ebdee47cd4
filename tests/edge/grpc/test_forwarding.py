"""Calls that are passed on: a leader that says nothing is waited for as long as it leads, and not longer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import grpc
import pytest

from odradek.broker.mykafka_sending import UnsureError
from odradek.edge.grpc import forwarding
from odradek.edge.grpc.forwarding import Forwarding
from odradek.edge.grpc.guarding import Context
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode, PeerError
from tests.client.support import CONDITION_SECONDS, asynchronous, until
from tests.edge.grpc.servers import NAME, Parrot, Said, config, served

PLACE = TopicPartition("books", 0)
FIRST, SECOND, NOBODY = 1, 2, -1
DEADLINE_SECONDS = 600.0


class Caller:
    """A call as the server gives it to us, with a deadline that is far away."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def time_remaining(self) -> float:
        return DEADLINE_SECONDS


class Metadata:
    """Two brokers, and who of them leads; implements `Port`."""

    def __init__(self, addresses: dict[int, tuple[str, int]]) -> None:
        self.leader = FIRST
        self.is_there = True
        self._addresses = addresses

    async def find(self, place: TopicPartition, timeout_s: float) -> int:
        if not self.is_there:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {place}")
        return self.leader

    def leads(self, place: TopicPartition) -> bool:
        return False

    def address(self, node_id: int) -> tuple[str, int] | None:
        return self._addresses.get(node_id)


class Both:
    """The two brokers, and a third that passes calls on to them."""

    def __init__(self, first: Parrot, second: Parrot, metadata: Metadata, passing: Forwarding) -> None:
        self.first = first
        self.second = second
        self.metadata = metadata
        self.forwarding = passing

    async def ask(self, text: str, *, may_repeat: bool) -> Said:
        there = (f"/{NAME}/Say", Said(service=text), Said.FromString)
        caller = cast(Context, Caller())
        return await self.forwarding.answer(PLACE, caller, self._never, there, may_repeat=may_repeat)

    async def begin(self, text: str, *, may_repeat: bool) -> asyncio.Task[Said]:
        """Ask, and go on when the first one has it."""
        task = asyncio.create_task(self.ask(text, may_repeat=may_repeat))
        await until(lambda: text in self.first.begun)
        return task

    async def _never(self) -> Said:
        raise AssertionError("this broker leads nothing")


@asynccontextmanager
async def both() -> AsyncIterator[Both]:
    first, second = Parrot(), Parrot()
    async with served(first) as one, served(second) as other:
        second.bell.set()  # it answers all
        metadata = Metadata({FIRST: ("127.0.0.1", one.port), SECOND: ("127.0.0.1", other.port)})
        passing = Forwarding(metadata, config())
        try:
            yield Both(first, second, metadata, passing)
        finally:
            await passing.close()


async def result_of(task: asyncio.Task[Said]) -> Said:
    async with asyncio.timeout(CONDITION_SECONDS):  # and not when the deadline comes
        return await task


@asynchronous
async def test_what_may_be_done_twice_is_asked_of_the_new_leader() -> None:
    async with both() as brokers:
        asking = await brokers.begin("later", may_repeat=True)
        brokers.metadata.leader = SECOND
        assert (await result_of(asking)).service == "later"
        assert brokers.second.begun == ["later"]


@asynchronous
async def test_what_may_have_been_done_is_not_done_again_and_the_caller_hears_so() -> None:
    async with both() as brokers:
        asking = await brokers.begin("later", may_repeat=False)
        brokers.metadata.leader = SECOND
        with pytest.raises(UnsureError, match="leads no longer"):
            await result_of(asking)
        assert brokers.second.begun == []
        await until(lambda: brokers.first.ended == ["later"])  # it hears that nobody waits


@asynchronous
async def test_a_partition_that_is_gone_is_not_waited_for() -> None:
    async with both() as brokers:
        asking = await brokers.begin("later", may_repeat=True)
        brokers.metadata.is_there = False
        with pytest.raises(PeerError) as refusal:
            await result_of(asking)
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@asynchronous
async def test_a_leader_that_takes_its_time_is_waited_for_also_while_there_is_none() -> None:
    async with both() as brokers:
        asking = await brokers.begin("later", may_repeat=False)
        other = await brokers.begin("later too", may_repeat=False)
        watch = brokers.forwarding._watch
        brokers.metadata.leader = NOBODY
        await asyncio.wait({asking, other}, timeout=0.5)
        brokers.metadata.leader = FIRST
        brokers.first.bell.set()
        assert [(await result_of(task)).service for task in (asking, other)] == ["later", "later too"]
        assert watch is not None
        await asyncio.wait({watch}, timeout=CONDITION_SECONDS)  # nothing is left to be watched
        assert brokers.forwarding._watch is None


@asynchronous
async def test_what_a_leader_has_done_it_may_say_though_another_leads_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_GRACE_SECONDS", CONDITION_SECONDS)
    async with both() as brokers:
        asking = await brokers.begin("later", may_repeat=False)
        brokers.metadata.leader = SECOND
        (asked,) = brokers.forwarding._under_way
        await until(lambda: asked.give_up_at < math.inf)  # that it leads no longer has been seen
        brokers.first.bell.set()
        assert (await result_of(asking)).service == "later"


@asynchronous
async def test_a_caller_who_hangs_up_ends_his_call_only() -> None:
    async with both() as brokers:
        asking = await brokers.begin("later", may_repeat=True)
        other = await brokers.begin("later too", may_repeat=True)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await result_of(asking)
        brokers.metadata.leader = SECOND
        assert (await result_of(other)).service == "later too"
        assert brokers.second.begun == ["later too"]


@asynchronous
async def test_a_leader_that_refuses_is_heard() -> None:
    async with both() as brokers:
        with pytest.raises(Exception, match="as you like") as refusal:
            await brokers.ask("no", may_repeat=True)
        assert getattr(refusal.value, "code", None) is grpc.StatusCode.NOT_FOUND
