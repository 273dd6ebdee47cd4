"""A coordinator under test: a journal in memory that can hold back and fail, a clock that a test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count, islice
from typing import Any, TypeVar

from odradek.clock import ManualClock
from odradek.groups.classic_types import JoinAnswer, SyncAnswer, SyncRequest
from odradek.groups.coordinator import Coordinator
from odradek.groups.ledger import partition_of
from odradek.groups.offsets import CommittedOffset
from odradek.model import TopicPartition
from odradek.records.record import NewRecord, Record
from odradek.wire.errors import ErrorCode, PeerError
from tests.groups.classics import CONFIG, DELAY_MS, join_request
from tests.groups.consumers import FakeTopics

TIMEOUT_S = 10
T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; it fails rather than hangs."""

    async def limited() -> T:
        async with asyncio.timeout(TIMEOUT_S):
            return await coroutine

    return asyncio.run(limited())


async def turns(number: int = 5) -> None:
    """Let the loop go round a few times, so that all that can happen now has happened."""
    for _ in range(number):
        turned = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turned.set_result, None)
        await turned


def group_in(index: int, number: int = 0, partition_count: int = 3) -> str:
    """The id of a group that a partition keeps; another for another number."""
    kept = (name for name in map("group-{}".format, count()) if partition_of(name, partition_count) == index)
    return next(islice(kept, number, None))


class MemoryJournal:
    """Partitions of `__consumer_offsets`; what is in `logs` is durable."""

    def __init__(self, partition_count: int = 3) -> None:
        self.partition_count = partition_count
        self.logs: list[list[Record]] = [[] for _ in range(partition_count)]
        self.is_held = False  # records wait for `release`
        self.error: PeerError | None = None  # what every write ends with
        self.waiting: list[tuple[int, Sequence[NewRecord], asyncio.Future[None]]] = []
        self.led: set[int] = set(range(partition_count))
        self.damage: BaseException | None = None  # what reading ends with

    def leads(self, partition: int) -> bool:
        return partition in self.led

    def append(self, partition: int, records: Sequence[NewRecord]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((partition, records, future))
        if not self.is_held:
            self.release()
        return future

    def release(self) -> None:
        """Let everything that waits become durable, or fail."""
        waiting, self.waiting = self.waiting, []
        for partition, records, future in waiting:
            if self.error is not None:
                future.set_exception(self.error)
                continue
            log = self.logs[partition]
            log += [Record(len(log), each.timestamp, each.key, each.value, each.headers) for each in records]
            future.set_result(None)

    def read(self, partition: int) -> Iterator[Record]:
        yield from list(self.logs[partition])
        if self.damage is not None:
            raise self.damage

    def compact(self) -> None:
        """Keep the last record of each key, and no tombstones."""
        for log in self.logs:
            last = {record.key: record for record in log}
            log[:] = sorted(record for record in last.values() if record.value is not None)

    def of(self, group_id: str) -> list[Record]:
        return self.logs[partition_of(group_id, self.partition_count)]


class House:
    """A coordinator with all that it needs, and short words for what clients do."""

    def __init__(self, journal: MemoryJournal | None = None, clock: ManualClock | None = None, **changes: Any) -> None:
        self.journal = MemoryJournal() if journal is None else journal
        self.clock = ManualClock() if clock is None else clock
        self.topics = FakeTopics(orders=4, other=1)
        numbers = count(1)
        self.groups = Coordinator(
            replace(CONFIG, **changes), self.clock, self.journal, self.topics, lambda: f"{next(numbers)}"
        )

    def advance(self, ms: int) -> None:
        """Let time pass as far as the groups are concerned."""
        self.clock.advance(ms)
        self.groups.run_due()

    def join(self, group_id: str = "g", member_id: str = "", **changes: Any) -> asyncio.Future[JoinAnswer]:
        fresh = self.groups.fresh_member_id("client", changes.get("instance_id"))
        return self.groups.join(group_id, join_request(member_id, fresh_member_id=fresh, **changes))

    def sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, group_id: str = "g"
    ) -> asyncio.Future[SyncAnswer]:
        request = SyncRequest(
            member_id=member_id,
            instance_id=None,
            generation=generation,
            protocol_type=None,
            protocol_name=None,
            assignments=assignments or {},
        )
        return self.groups.sync(group_id, request)

    async def enter(self, group_id: str = "g", **changes: Any) -> tuple[str, asyncio.Future[JoinAnswer]]:
        """Be told an id, then join with it."""
        told = await self.join(group_id, **changes)
        assert told.error is ErrorCode.MEMBER_ID_REQUIRED
        return told.member_id, self.join(group_id, told.member_id, **changes)

    async def stable(self, group_id: str = "g", size: int = 1, **changes: Any) -> list[str]:
        """Bring a new group to its first stable generation; the leader comes first."""
        entered = [await self.enter(group_id, **changes) for _ in range(size)]
        for _ in range(size + 1):
            self.advance(DELAY_MS)
        generation = (await entered[0][1]).generation
        members = [member_id for member_id, _ in entered]
        assignments = {member_id: member_id.encode() for member_id in members}
        waiting = [self.sync(each, generation, assignments, group_id) for each in reversed(members)]
        assert [(await answer).error for answer in waiting] == [ErrorCode.NONE] * size
        return members

    def commit(
        self, group_id: str = "g", member_id: str = "", generation: int = -1, **offsets: int
    ) -> asyncio.Future[ErrorCode]:
        """Commit offsets of partition 0 of the topics named."""
        now_ms = self.clock.now_ms()
        commits = {
            TopicPartition(topic, 0): CommittedOffset(offset, 0, "", now_ms) for topic, offset in offsets.items()
        }
        return self.groups.offsets.commit(group_id, member_id, None, generation, commits)

    def committed(self, topic: str, group_id: str = "g") -> int | None:
        """The offset that a group has committed for partition 0 of a topic."""
        offsets = self.groups.offsets.of(group_id)
        found = None if offsets is None else offsets.get(topic, 0)
        return None if found is None else found.offset

    def successor(self) -> House:
        """A coordinator of another broker, which has a replica of all that is durable here and leads nothing yet."""
        other = MemoryJournal(self.journal.partition_count)
        other.logs = self.journal.logs
        other.led.clear()
        return House(other, self.clock)

    async def lead(self, index: int, epoch: int) -> None:
        """Become the leader of a partition, and load it."""
        self.journal.led.add(index)
        await self.groups.load_partition(index, epoch)

    def resign(self, index: int, epoch: int | None) -> None:
        """Be told that somebody else leads a partition since this epoch."""
        self.journal.led.discard(index)
        self.groups.unload_partition(index, epoch)

    def restarted(self) -> House:
        """Another coordinator on what is durable in the same journal."""
        again = MemoryJournal(self.journal.partition_count)
        again.logs = [list(log) for log in self.journal.logs]
        return House(again, self.clock)


@asynccontextmanager
async def started(house: House) -> AsyncIterator[House]:
    """A coordinator that serves what it is told that it leads."""
    house.groups.start()
    try:
        yield house
    finally:
        house.journal.release()
        await house.groups.close()


@asynccontextmanager
async def at_work(house: House | None = None, **changes: Any) -> AsyncIterator[House]:
    """A coordinator that has loaded its groups and serves."""
    house = House(**changes) if house is None else house
    house.groups.load()
    async with started(house):
        yield house
