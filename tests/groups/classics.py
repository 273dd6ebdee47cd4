"""A classic group under test: a driver that hands out tickets, keeps the answers and holds back the log's."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_types import (
    JoinAnswer,
    JoinRequest,
    Leaving,
    Left,
    Proposal,
    State,
    SyncAnswer,
    SyncRequest,
)
from odradek.groups.config import GroupConfig
from odradek.groups.group import Effects
from odradek.groups.storage import GroupEntry, StoredGroup, decode
from odradek.records.record import NewRecord, Record
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_protocol import Subscription

DELAY_MS = 100
SESSION_MS = 10_000
REBALANCE_MS = 60_000
START_MS = 1_700_000_000_000

CONFIG = GroupConfig(
    group_min_session_timeout_ms=6_000,
    group_max_session_timeout_ms=1_800_000,
    group_initial_rebalance_delay_ms=DELAY_MS,
    group_max_size=100,
    offset_metadata_max_bytes=4096,
    offsets_retention_minutes=60,
    offsets_retention_check_interval_ms=600_000,
    group_consumer_session_timeout_ms=45_000,
    group_consumer_heartbeat_interval_ms=5_000,
    group_consumer_max_size=100,
    group_consumer_assignors=("uniform", "range"),
)


def subscription(*topics: str) -> bytes:
    """What a consumer of these topics sends as its metadata."""
    return struct.pack(">h", 1) + Subscription(topics=list(topics)).encode(1)


def join_request(member_id: str = "", **changes: Any) -> JoinRequest:
    """A request as a consumer of the newest version sends it."""
    request = JoinRequest(
        member_id=member_id,
        instance_id=None,
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        proposals=(Proposal("range", subscription("orders")),),
        fresh_member_id="fresh",
        must_know_its_id=True,
        can_skip_assignment=True,
    )
    return replace(request, **changes)


def stored_group(record: NewRecord) -> StoredGroup | None:
    """What a group's record says; None for a tombstone."""
    entry = decode(Record(0, record.timestamp, record.key, record.value))
    assert isinstance(entry, GroupEntry)
    return entry.stored


class Driver:
    """One group, its clock, and all that it said."""

    def __init__(self, group: ClassicGroup | None = None, **changes: Any) -> None:
        self.now_ms = START_MS
        self.config = replace(CONFIG, **changes)
        self.group = ClassicGroup("g", self.config, self.now_ms) if group is None else group
        self.answers: dict[int, object] = {}
        self.asked: set[int] = set()
        self.log: list[NewRecord] = []  # what is durable
        self.storing: deque[tuple[list[NewRecord], object]] = deque()
        self.fresh = 0

    # Requests; each gives the ticket of its answer

    def join(self, member_id: str = "", **changes: Any) -> int:
        self.fresh += 1
        changes.setdefault("fresh_member_id", f"m{self.fresh}")
        request = join_request(member_id, **changes)
        return self._ask(lambda ticket: self.group.join(request, ticket, self.now_ms))

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        request = SyncRequest(
            member_id=member_id,
            instance_id=instance_id,
            generation=self.group.generation if generation is None else generation,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=assignments or {},
        )
        return self._ask(lambda ticket: self.group.sync(request, ticket, self.now_ms))

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance_id, generation, self.now_ms)

    def leave(self, *member_ids: str, instance_id: str | None = None) -> list[Left]:
        leaving = [Leaving(member_id, instance_id) for member_id in member_ids]
        results, effects = self.group.leave(leaving, self.now_ms)
        self._take(effects)
        return results

    # The world

    def advance(self, ms: int) -> None:
        """Let time pass; the group is called whenever it wants to be."""
        until_ms = self.now_ms + ms
        while (wake_ms := self.group.next_deadline()) is not None and wake_ms <= until_ms:
            self.now_ms = max(self.now_ms, wake_ms)
            self._take(self.group.on_timer(self.now_ms))
        self.now_ms = until_ms

    def store(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let the oldest write become durable, or fail."""
        records, token = self.storing.popleft()
        if error is ErrorCode.NONE:
            self.log += records
        if token is not None:
            self._take(self.group.stored(token, error, self.now_ms))

    def store_all(self) -> None:
        while self.storing:
            self.store()

    # Answers and state

    def is_in(self, state: State) -> bool:
        return self.group.state is state

    def waits(self, ticket: int) -> bool:
        return ticket not in self.answers

    def joined(self, ticket: int) -> JoinAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, ticket: int) -> SyncAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncAnswer)
        return answer

    @property
    def stored(self) -> StoredGroup | None:
        return stored_group(self.log[-1])

    def restarted(self) -> Driver:
        """The group as it comes back from its log, at the same time."""
        assert self.stored is not None
        again = Driver(ClassicGroup.restored(self.stored, self.config, self.now_ms))
        again.now_ms = self.now_ms
        return again

    # Whole scenes

    def enter(self, **changes: Any) -> tuple[str, int]:
        """Be told an id, then join with it."""
        member_id = self.joined(self.join(**changes)).member_id
        return member_id, self.join(member_id, **changes)

    def stable(self, count: int = 1, **changes: Any) -> list[str]:
        """Bring a new group of some members to a stable first generation; the leader comes first."""
        entered = [self.enter(**changes) for _ in range(count)]
        self.advance(DELAY_MS * (count + 1))
        members = [member_id for member_id, _ in entered]
        self.sync_all(members)
        assert self.group.state is State.STABLE
        return members

    def sync_all(self, members: Iterable[str]) -> None:
        """Everybody syncs, the leader last, and the assignment becomes durable."""
        members = list(members)
        leader = self.group.members.leader
        for member_id in members:
            if member_id != leader:
                self.sync(member_id)
        self.sync(str(leader), {member_id: member_id.encode() for member_id in members})
        self.store_all()

    def _ask(self, ask: Any) -> int:
        ticket = len(self.asked) + 1
        self.asked.add(ticket)
        self._take(ask(ticket))
        return ticket

    def _take(self, effects: Effects) -> None:
        for ticket, answer in effects.answers:
            assert ticket in self.asked
            assert ticket not in self.answers, "a request is answered once"
            self.answers[ticket] = answer
        if effects.records:
            self.storing.append((effects.records, effects.token))
