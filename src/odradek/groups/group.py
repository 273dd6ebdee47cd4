"""What the coordinator asks of a group, whichever protocol its members speak: classic or consumer (KIP-848).

A machine is pure: it is called with a request and the time and returns `Effects`. The coordinator makes the records
durable first, then reports that to `stored`, and hands the answers to whoever waits. Offsets are kept apart from
the machines, because they outlive a change of protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from odradek.model import TopicPartition
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode

GroupKind: TypeAlias = Literal["classic", "consumer"]

NO_GENERATION = -1  # of those who commit without being a member, as admin tools do


@dataclass(slots=True)
class Effects:
    """What a machine wants done: `answers` now, `records` on stable storage, then a call of `stored(token)`."""

    answers: list[tuple[int, object]] = field(default_factory=list)  # (ticket of a waiting request, its answer)
    records: list[NewRecord] = field(default_factory=list)
    token: object = None  # handed back to `stored` when the records are durable, or when that failed


class Group(Protocol):
    """One group of either kind; an id belongs to one kind at a time."""

    @property
    def group_id(self) -> str:
        """Its name."""

    @property
    def kind(self) -> GroupKind:
        """Which protocol its members speak."""

    @property
    def state(self) -> str:
        """The state's name, spelled as Kafka's tools show it: `Empty`, `Stable`, ..."""

    @property
    def protocol_type(self) -> str | None:
        """`consumer`, `connect`, ...; None for a group that only keeps offsets."""

    @property
    def is_empty(self) -> bool:
        """Whether nobody is a member: it may be deleted, expire, or change its kind."""

    def next_deadline(self) -> int | None:
        """The earliest time in milliseconds at which `on_timer` may have work to do; None if it has none."""

    def on_timer(self, now_ms: int) -> Effects:
        """Act on every deadline that has passed."""

    def stored(self, token: object, error: ErrorCode, now_ms: int) -> Effects:
        """Hear that the records of an `Effects` with this token are durable (NONE), or why they are not."""

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Refuse a commit by PeerError; `generation` is a member epoch in the consumer protocol."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuse an OffsetFetch by PeerError; -1 stands for no epoch."""

    def check_offset_delete(self) -> None:
        """Refuse by PeerError that offsets of the group are deleted, whatever the topic."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads the topic: its offsets neither expire nor can they be deleted."""

    def expires_from(self, commit_ms: int) -> int | None:
        """The moment from which the retention of an offset committed at `commit_ms` counts; None: it stays."""

    def tombstones(self, now_ms: int) -> list[NewRecord]:
        """The records that remove all that was stored of the group, save its offsets."""

    def delete(self, now_ms: int) -> None:
        """Refuse with NON_EMPTY_GROUP while there are members; else turn away what may still come."""


class Topics(Protocol):
    """What the machines know of topics: all of the cluster's, as soon as the metadata tells of them.

    Offsets of a topic that is not there when they are loaded are taken for those of a deleted one, and deleted.
    """

    @property
    def version(self) -> int:
        """A number that changes with any change of a topic."""

    def partition_counts(self) -> Mapping[str, int]:
        """One more than the highest number of a partition of each topic."""

    def gaps(self, name: str) -> frozenset[int]:
        """The numbers below a topic's highest that have no partition."""

    def generation(self, where: TopicPartition) -> int | None:
        """How often a partition was deleted and made again; None if there is no such partition."""

    def topic_id(self, name: str) -> bytes | None:
        """The id of a topic, 16 bytes."""

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic with this id."""
