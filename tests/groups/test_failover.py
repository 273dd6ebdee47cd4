"""Groups that go from one broker's coordinator to another's: members carry on, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from random import Random

import pytest

from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_types import State
from odradek.groups.consumer_types import Heartbeat
from odradek.wire.errors import ErrorCode, PeerError
from tests.groups.brokers import House, at_work, group_in, run, started, turns
from tests.groups.classics import DELAY_MS, SESSION_MS

GROUP = group_in(0)
BEAT = Heartbeat(member_id="m", member_epoch=0, rebalance_timeout_ms=1_000, topic_names=("orders",), owned=frozenset())


async def moved(before: House, after: House, epoch: int) -> None:
    """Let the partition of the group have another leader."""
    before.resign(0, epoch)
    await after.lead(0, epoch)


def test_classic_members_carry_on_with_their_ids_generation_and_assignments_and_a_new_session() -> None:
    async def scene() -> None:
        async with at_work() as house, started(house.successor()) as other:
            leader, follower = await house.stable(GROUP, size=2)
            await house.commit(GROUP, leader, 1, orders=41)
            house.advance(SESSION_MS - 1)
            await moved(house, other, 1)
            with pytest.raises(PeerError, match="NOT_COORDINATOR"):
                house.groups.heartbeat(GROUP, leader, None, 1)
            other.advance(SESSION_MS - 1)
            for member_id in (leader, follower):
                assert other.groups.heartbeat(GROUP, member_id, None, 1) is ErrorCode.NONE
                assert (await other.sync(member_id, 1, group_id=GROUP)).assignment == member_id.encode()
            assert other.committed("orders", GROUP) == 41
            assert await other.commit(GROUP, follower, 1, orders=42) is ErrorCode.NONE
            await moved(other, house, 2)
            assert house.committed("orders", GROUP) == 42
            house.advance(SESSION_MS - 1)
            assert house.groups.groups[GROUP].state == State.STABLE
            house.advance(1)
            assert house.groups.groups[GROUP].state == State.EMPTY

    run(scene())


def test_a_group_in_the_middle_of_a_rebalance_is_taken_over_in_its_last_stored_generation() -> None:
    async def scene() -> None:
        async with at_work() as house, started(house.successor()) as other:
            (member_id,) = await house.stable(GROUP)
            newcomer, join = await house.enter(GROUP)
            assert house.groups.heartbeat(GROUP, member_id, None, 1) is ErrorCode.REBALANCE_IN_PROGRESS
            await moved(house, other, 1)
            assert (await join).error is ErrorCode.NOT_COORDINATOR
            assert other.groups.heartbeat(GROUP, member_id, None, 1) is ErrorCode.NONE
            assert (await other.join(GROUP, newcomer)).error is ErrorCode.UNKNOWN_MEMBER_ID
            newcomer, join = await other.enter(GROUP)
            assert other.groups.heartbeat(GROUP, member_id, None, 1) is ErrorCode.REBALANCE_IN_PROGRESS
            rejoin = other.join(GROUP, member_id)
            assert [(await each).generation for each in (join, rejoin)] == [2, 2]
            group = other.groups.groups[GROUP]
            assert isinstance(group, ClassicGroup)
            assert group.members.by_id.keys() == {member_id, newcomer}

    run(scene())


def test_an_assignment_that_was_not_stored_before_the_failover_has_to_be_made_again() -> None:
    async def scene() -> None:
        async with at_work() as house, started(house.successor()) as other:
            (member_id,) = await house.stable(GROUP)
            house.journal.is_held = True
            assert (await house.join(GROUP, member_id)).generation == 2
            sync = house.sync(member_id, 2, {member_id: b"lost"}, GROUP)
            house.journal.error = PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            await moved(house, other, 1)
            assert (await sync).error is ErrorCode.NOT_COORDINATOR
            assert (await other.sync(member_id, 2, {member_id: b"x"}, GROUP)).error is ErrorCode.ILLEGAL_GENERATION
            assert (await other.join(GROUP, member_id)).generation == 2
            assert (await other.sync(member_id, 2, {member_id: b"again"}, GROUP)).assignment == b"again"

    run(scene())


def test_members_of_the_consumer_protocol_carry_on_in_their_epoch() -> None:
    async def scene() -> None:
        async with at_work() as house, started(house.successor()) as other:
            told = await house.groups.live(GROUP, BEAT)
            await house.commit(GROUP, "m", told.member_epoch, orders=3)
            session_ms = house.groups.config.group_consumer_session_timeout_ms
            house.advance(session_ms - 1)
            await moved(house, other, 1)
            other.advance(session_ms - 1)
            again = await other.groups.live(GROUP, Heartbeat(member_id="m", member_epoch=told.member_epoch))
            assert (again.error, again.member_epoch) == (ErrorCode.NONE, told.member_epoch)
            assert await other.commit(GROUP, "m", told.member_epoch, orders=4) is ErrorCode.NONE
            other.advance(session_ms)
            assert other.groups.groups[GROUP].is_empty

    run(scene())


def test_timers_of_groups_that_are_taken_over_ring_by_themselves() -> None:
    async def scene() -> None:
        async with at_work(House(group_min_session_timeout_ms=1)) as house, started(house.successor()) as other:
            member_id, _ = await house.enter(GROUP, session_timeout_ms=5)
            house.advance(DELAY_MS)
            await house.sync(member_id, 1, {}, GROUP)
            await moved(house, other, 1)
            other.clock.advance(5)
            while not other.groups.groups[GROUP].is_empty:
                await turns()

    run(scene())


class Wanderings:
    """Two brokers, one partition whose leader changes at any moment, and commits of one consumer; by a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.first = House()
        self.first.journal.led.clear()
        self.houses = [self.first, self.first.successor()]
        self.epochs = count(1)
        self.leader: House | None = None
        self.acknowledged = 0
        self.offsets = count(1)
        self.waiting: list[tuple[int, asyncio.Future[ErrorCode]]] = []
        self.loads: list[asyncio.Task[None]] = []

    def step(self) -> None:
        """Let one thing happen."""
        self.chance.choice([self.commit] * 3 + [self.move, self.hold, self.release, self.old_news])()
        self.check()

    def move(self) -> None:
        """Another leader, or none; what the old one has not stored is lost, and it may hear of that later."""
        epoch = next(self.epochs)
        if self.leader is not None:
            self.leader.journal.error = PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if self.chance.random() < 0.5:
                self.leader.journal.release()
            self.leader.resign(0, epoch)
        self.leader = self.chance.choice([*self.houses, None])
        if self.leader is not None:
            self.leader.journal.release()
            self.leader.journal.error = None
            self.leader.journal.led.add(0)
            load = self.leader.groups.load_partition(0, epoch)
            self.loads.append(asyncio.create_task(load))

    def commit(self) -> None:
        """Commit at any broker; only the leader may take it."""
        offset, house = next(self.offsets), self.chance.choice(self.houses)
        with suppress(PeerError):
            self.waiting.append((offset, house.commit(GROUP, orders=offset)))
            assert house is self.leader

    def hold(self) -> None:
        """Let the leader's log wait for its replicas."""
        if self.leader is not None:
            self.leader.journal.is_held = True

    def release(self) -> None:
        """Let them catch up."""
        if self.leader is not None:
            self.leader.journal.is_held = False
            self.leader.journal.release()

    def old_news(self) -> None:
        """Tell a broker once more what it knows, or knows better."""
        epoch = self.chance.randrange(-1, 3)
        house = self.chance.choice(self.houses)
        if house is not self.leader:
            house.groups.unload_partition(0, epoch)
        self.loads.append(asyncio.create_task(house.groups.load_partition(0, -1)))

    def check(self) -> None:
        """What was acknowledged is what a leader that has loaded knows, and others know nothing."""
        for offset, answer in list(self.waiting):
            if answer.done():
                self.waiting.remove((offset, answer))
                if answer.result() is ErrorCode.NONE:
                    self.acknowledged = max(self.acknowledged, offset)
                else:
                    assert answer.result() is ErrorCode.NOT_COORDINATOR
        for house in self.houses:
            known = house.committed("orders", GROUP)
            if house is not self.leader:
                assert known is None
            elif GROUP in house.groups.offsets or house.groups.groups:
                assert (known or 0) >= self.acknowledged


@pytest.mark.parametrize("seed", range(40))
def test_no_acknowledged_commit_is_lost_however_the_leader_changes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.groups.coordinator._SLICE_S", 0)

    async def scene() -> None:
        wanderings = Wanderings(seed)
        first, second = wanderings.houses
        async with started(first), started(second):
            for _ in range(120):
                wanderings.step()
                await turns(wanderings.chance.randrange(4))
                wanderings.check()
            await asyncio.gather(*wanderings.loads)
            if wanderings.leader is not None:
                wanderings.release()
            await turns()
            wanderings.check()
            assert wanderings.waiting == [], "everybody has been answered"
            wanderings.leader = first
            await moved(second, first, next(wanderings.epochs) + 1)
            assert (first.committed("orders", GROUP) or 0) >= wanderings.acknowledged
            assert wanderings.acknowledged > 0

    run(scene())
