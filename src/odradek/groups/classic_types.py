"""The classic protocol's vocabulary: states with their one table of legal transitions, requests and answers.

Free of wire formats: the API files translate. `ClassicGroup` in `classic.py` gives these their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from odradek.wire.errors import ErrorCode

UNKNOWN_GENERATION = -1


class State(StrEnum):
    """Where a group is in its round; spelled as Kafka's tools show it."""

    EMPTY = "Empty"  # no members; offsets may remain
    PREPARING = "PreparingRebalance"  # waits for the members to join the next generation
    COMPLETING = "CompletingRebalance"  # waits for the leader's assignment, or for its record to be durable
    STABLE = "Stable"  # every member of the generation has or can get its assignment
    DEAD = "Dead"  # deleted; the object is no longer in the coordinator's table


TRANSITIONS: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
        State.PREPARING: frozenset({State.COMPLETING, State.EMPTY, State.DEAD}),
        State.COMPLETING: frozenset({State.STABLE, State.PREPARING, State.DEAD}),
        State.STABLE: frozenset({State.PREPARING, State.DEAD}),
        State.DEAD: frozenset(),
    }
)


class Proposal(NamedTuple):
    """One way of assigning partitions that a member supports, with its metadata (for consumers: its subscription)."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup request, freed of its version."""

    member_id: str  # "" for one that has none yet
    instance_id: str | None  # set for a static member (KIP-345)
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    proposals: tuple[Proposal, ...]  # in the member's order of preference
    fresh_member_id: str  # what the member will be called if it has no id
    must_know_its_id: bool  # from version 4 on, a new dynamic member is told its id and joins again (KIP-394)
    can_skip_assignment: bool  # from version 9 on, a returning static leader learns that it need not assign (KIP-814)


class JoinedMember(NamedTuple):
    """What the leader is told of a member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The answer to a join; `members` is filled for the leader only."""

    error: ErrorCode
    member_id: str = ""
    generation: int = UNKNOWN_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A SyncGroup request; `assignments` come from the leader only."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """The answer to a sync: the member's assignment, or an error."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Leaving(NamedTuple):
    """One member of a LeaveGroup request: by its id, or by its instance id alone (an administrator's removal)."""

    member_id: str
    instance_id: str | None


class Left(NamedTuple):
    """What became of one who wanted to leave."""

    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    """Token: the leader's assignment of a generation is being made durable."""

    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class StaticMemberStored:
    """Token: the new id of a static member that came back to a stable group is being made durable."""

    generation: int
    member_id: str
    leader_before: str
    can_skip_assignment: bool
