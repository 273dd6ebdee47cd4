"""One partition that this broker follows: what the broker's partition must be able to do, and where the copy stands."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from odradek.log.errors import LogError
from odradek.log.log import PartitionLog
from odradek.model import Offset, TopicPartition
from odradek.replication.config import ReplicationConfig
from odradek.wire.messages import fetch

NO_OFFSET: Offset = -1
PartitionKey: TypeAlias = tuple[bytes, int]  # the topic's id and the partition's number


class Followed(Protocol):
    """A partition as its follower needs it; `broker` has one. Nothing here is called after `unfollow`."""

    @property
    def tp(self) -> TopicPartition:
        """Its name."""

    @property
    def topic_id(self) -> bytes:
        """The id of its topic: another topic of the same name has another."""

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader that is followed."""

    @property
    def log(self) -> PartitionLog:
        """Its records; nobody else writes to it meanwhile."""

    @property
    def is_adding(self) -> bool:
        """Whether it is here on account of a reassignment, which is throttled."""

    def replicated(self, data: memoryview, high_watermark: Offset, log_start: Offset) -> None:
        """Append batches of the leader, which said how far it can be read, and from where; raises LogError."""

    def cut(self, offset: Offset) -> None:
        """Truncate the log: the leader's is another from here on. The high watermark falls to the end at most."""

    def restart_at(self, offset: Offset) -> None:
        """Throw the log away and begin again at an offset; the high watermark goes there, too."""

    def advanced_to(self, high_watermark: Offset) -> None:
        """The leader's high watermark, never beyond the end of the log here; it may be lower than the last one."""


class Following:
    """A replica and how far its leader has been asked. A new one is made whenever the leader or its epoch changes."""

    __slots__ = ("asked_offset", "attempts", "gap", "is_prepared", "key", "leader_epoch", "replica")

    def __init__(self, replica: Followed) -> None:
        self.replica = replica
        self.key: PartitionKey = (replica.topic_id, replica.tp.partition)
        self.leader_epoch = replica.leader_epoch
        self.asked_offset = NO_OFFSET  # as the leader's session has it: only an answer from here is taken
        self.attempts = 0  # that failed since the last success
        self.gap: tuple[Offset, Offset] | None = None  # refused once; if it comes again, the leader has nothing there
        self.is_prepared = False

    @property
    def is_of_now(self) -> bool:
        """Whether the replica still follows the leader of this epoch."""
        return self.replica.leader_epoch == self.leader_epoch

    @property
    def is_safe(self) -> bool:
        """Whether all that is in the log may be acknowledged, as the topic's `flush` has it."""
        log = self.replica.log
        return log.safe_offset >= log.next_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; -1 if there is none."""
        log = self.replica.log
        return log.epochs.epoch_at(log.next_offset - 1)

    def prepare(self) -> None:
        """Forget the epochs that wrote nothing: this broker may have led, and a leader's epoch begins before a record.

        Otherwise the log would claim a history that its last record does not have (KIP-279).
        """
        if not self.is_prepared:
            log = self.replica.log
            log.epochs.truncate_end(log.next_offset)
            self.is_prepared = True

    def position(self, config: ReplicationConfig) -> fetch.RequestPartition:
        """Where the leader shall read on; all before it is safe here."""
        log = self.replica.log
        if not self.is_safe:
            raise LogError(f"{log.directory}: {log.next_offset} is about to be acknowledged without a flush")
        self.asked_offset = log.next_offset
        max_bytes = config.replica_fetch_max_bytes
        if self.replica.is_adding and config.replication_throttle_bytes:
            max_bytes = min(max_bytes, config.replication_throttle_bytes)
        return fetch.RequestPartition(
            partition=self.key[1],
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.asked_offset,
            last_fetched_epoch=self.last_epoch,
            log_start_offset=log.log_start,
            partition_max_bytes=max_bytes,
        )
