"""The members of one classic group: who is in, who waits, who leads, and which protocol they all support.

It knows no states and sends nothing; `classic.py` decides. Static members (KIP-345) are found by their instance id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from odradek.groups.classic_types import JoinedMember, Proposal
from odradek.wire.errors import ErrorCode, PeerError


@dataclass(slots=True, kw_only=True)
class Member:
    """One member; a ticket stands for a request of its own that waits for an answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    proposals: tuple[Proposal, ...]
    expires_ms: int
    is_new: bool = False  # its first join is not answered yet: it knows no generation and sends no heartbeats
    assignment: bytes = b""
    join_ticket: int | None = None  # changed by Members only, which counts those that wait
    sync_ticket: int | None = None

    @property
    def can_expire(self) -> bool:
        """Whether silence counts against it: not while we owe it an answer, save for its very first."""
        return self.is_new or (self.join_ticket is None and self.sync_ticket is None)

    def metadata(self, protocol: str | None) -> bytes:
        """What it said for this protocol; nothing if it does not support it."""
        return next((proposal.metadata for proposal in self.proposals if proposal.name == protocol), b"")


class Members:
    """All members of a group, in the order in which they came."""

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.pending: dict[str, int] = {}  # ids given out (KIP-394) that have not joined yet, and when they lapse
        self.leader: str | None = None  # a key of by_id; None exactly when by_id is empty
        self.awaiting_join = 0  # how many members have a join ticket
        self._static: dict[str, str] = {}  # instance id -> member id
        self._support: Counter[str] = Counter()  # protocol name -> how many members support it

    def __len__(self) -> int:
        return len(self.by_id)

    def all(self) -> list[Member]:
        """Every member; a copy, so that members may be removed meanwhile."""
        return list(self.by_id.values())

    @property
    def have_all_joined(self) -> bool:
        """Whether nobody is missing from the next generation, those included who were only told their id."""
        return self.awaiting_join == len(self.by_id) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits: as long as its most patient member asked for."""
        return max((member.rebalance_timeout_ms for member in self.by_id.values()), default=0)

    # Coming and going

    def add(self, member: Member) -> None:
        """Take in a new member; the first one leads."""
        self.pending.pop(member.member_id, None)
        self.by_id[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._support.update(_names(member.proposals))
        self.awaiting_join += member.join_ticket is not None

    def remove(self, member_id: str) -> Member | None:
        """Let a member go; another leads if it led. Its tickets are left to the caller."""
        self.pending.pop(member_id, None)
        member = self.by_id.pop(member_id, None)
        if member is None:
            return None
        self.awaiting_join -= member.join_ticket is not None
        self._support.subtract(_names(member.proposals))
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.by_id), None)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member that came back its new id, its place and its leadership kept."""
        old_id, member.member_id = member.member_id, member_id
        self.by_id = {each.member_id: each for each in self.by_id.values()}
        if member.instance_id is not None:
            self._static[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id

    def update(self, member: Member, proposals: tuple[Proposal, ...]) -> None:
        """Take note of what a member supports now."""
        self._support.subtract(_names(member.proposals))
        self._support.update(_names(proposals))
        member.proposals = proposals

    # Waiting for a join's answer

    def await_join(self, member: Member, ticket: int) -> int | None:
        """Let a member wait with this ticket; gives back the one it waited with before."""
        before, member.join_ticket = member.join_ticket, ticket
        self.awaiting_join += before is None
        return before

    def take_join_ticket(self, member: Member) -> int | None:
        """End a member's wait."""
        ticket, member.join_ticket = member.join_ticket, None
        self.awaiting_join -= ticket is not None
        return ticket

    # Finding

    def static(self, instance_id: str) -> Member | None:
        """The member with this instance id."""
        member_id = self._static.get(instance_id)
        return None if member_id is None else self.by_id[member_id]

    def require(self, member_id: str, instance_id: str | None) -> Member:
        """Find a member by what a request says of it; FENCED_INSTANCE_ID if another process took its place."""
        if instance_id is not None:
            holder = self._static.get(instance_id)
            if holder is not None and holder != member_id:
                raise PeerError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} is held by another member")
            if holder is None:
                raise PeerError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}")
        member = self.by_id.get(member_id)
        if member is None:
            raise PeerError(ErrorCode.UNKNOWN_MEMBER_ID, "not a member of this group")
        return member

    # Agreeing

    def support_one_of(self, proposals: Iterable[Proposal]) -> bool:
        """Whether every member supports at least one of these."""
        return any(self._support[proposal.name] == len(self.by_id) for proposal in proposals)

    def select_protocol(self) -> str:
        """Vote: each member for its favourite among those that all support; a tie goes to the earlier voter's."""
        candidates = {name for name, supporters in self._support.items() if supporters == len(self.by_id)}
        votes: Counter[str] = Counter()
        for member in self.by_id.values():
            votes[next(proposal.name for proposal in member.proposals if proposal.name in candidates)] += 1
        return votes.most_common(1)[0][0]

    def elect_leader(self) -> bool:
        """Keep a leader that has joined, else let the first that has; False if nobody has joined."""
        leader = self.by_id.get(self.leader or "")
        if leader is None or leader.join_ticket is None:
            joined = next((member for member in self.by_id.values() if member.join_ticket is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def described(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """What the leader needs to know to assign."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self.by_id.values()
        )

    def next_expiry(self) -> int | None:
        """When the next member or given-out id lapses."""
        times = [member.expires_ms for member in self.by_id.values() if member.can_expire]
        return min(times + list(self.pending.values()), default=None)


def _names(proposals: Iterable[Proposal]) -> set[str]:
    return {proposal.name for proposal in proposals}
