"""What a task of a sink leaves behind for its successors: in the committed offsets of a group of its own.

Each partition that a batch is going to be written to has an entry before the first record goes there: where the
partition ended then, and which batch, producer and attempt it is. Whoever comes later with the same batch knows where
to look for what is there already; see `delivery` for what follows from it. Works with any Kafka.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from odradek.client.admin import Admin
from odradek.client.cluster import Cluster
from odradek.client.commits import CommittedOffset
from odradek.client.errors import check
from odradek.client.offsets import look_up
from odradek.client.retry import retry
from odradek.client.start import LATEST
from odradek.model import SINK_GROUPS, TopicPartition
from odradek.spark.write.sender import WriteError
from odradek.wire.messages import init_producer_id

EPOCH_MAX = 2**15 - 1


class SupersededError(WriteError):
    """Another attempt of the same task has taken over."""


class Identity(NamedTuple):
    """Whose work it is: the same again when Spark repeats it."""

    sink_id: str
    task: int  # Spark's number of the partition
    batch: int
    attempt: int = 0  # of the task, as Spark counts

    @property
    def group(self) -> str:
        """The group that holds the task's state."""
        return f"{SINK_GROUPS}{self.sink_id}-{self.task}"


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of one attempt to write one batch."""

    producer_id: int
    epoch: int
    token: str  # of this attempt: while it stands in the state nobody else has taken over
    starts: Mapping[TopicPartition, int]  # nothing of the batch lies before these offsets
    is_replay: bool  # an earlier attempt may have written some of it


class _Entry(NamedTuple):
    """The state of one partition."""

    batch: int
    epoch: int
    producer_id: int
    token: str
    start: int


class SinkState:
    """The state of one task. Runs on the client's loop."""

    def __init__(self, cluster: Cluster, identity: Identity) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._identity = identity

    async def claim(self, targets: Iterable[TopicPartition]) -> Claim | None:
        """Take over the batch, to be written to these partitions; None if a later one has been written."""
        # The ends are looked up before the state: what an attempt writes that is not in the state yet lies behind them.
        ends = await look_up(self._cluster, dict.fromkeys(targets, LATEST))
        starts = {partition: info.offset for partition, info in ends.items()}
        entries = await self._entries()
        last = max(entries.values(), default=None)
        token = secrets.token_hex(4)
        if last is not None and last.batch > self._identity.batch:
            return None
        if last is not None and last.batch == self._identity.batch:
            known = {partition: entry.start for partition, entry in entries.items() if entry.batch == last.batch}
            claim = Claim(last.producer_id, last.epoch, token, starts | known, is_replay=True)
        else:
            producer_id, epoch = await self._next_producer(last, 1 + self._identity.attempt)
            claim = Claim(producer_id, epoch, token, starts, is_replay=False)
        await self._store(claim)
        return claim

    async def renewed(self, claim: Claim, epoch: int) -> Claim:
        """The same claim with a later epoch than the one given: its numbers begin again at 0."""
        last = _Entry(self._identity.batch, max(epoch, claim.epoch), claim.producer_id, claim.token, 0)
        producer_id, next_epoch = await self._next_producer(last, 1)
        if producer_id != claim.producer_id:
            raise WriteError(
                f"the producer of group {self._identity.group} has used up its epochs within one batch;"
                " start the query again with a new checkpoint"
            )
        again = replace(claim, epoch=next_epoch)
        await self._store(again)
        return again

    async def check_ours(self, claim: Claim) -> None:
        """Raise unless this attempt is still the last one."""
        entries = (await self._entries()).values()
        last = max((entry.batch for entry in entries), default=None)
        tokens = {entry.token for entry in entries if entry.batch == last}
        if tokens != {claim.token}:
            identity = self._identity
            raise SupersededError(
                f"another attempt to write batch {identity.batch} of task {identity.task} has taken over: group"
                f" {identity.group} names attempt {', '.join(sorted(tokens)) or 'none'}, this one is {claim.token}"
            )

    async def _entries(self) -> dict[TopicPartition, _Entry]:
        offsets = await self._admin.group_offsets(self._identity.group)
        return {partition: self._parsed(partition, committed) for partition, committed in offsets.items()}

    def _parsed(self, partition: TopicPartition, committed: CommittedOffset) -> _Entry:
        try:
            state = json.loads(committed.metadata)
            return _Entry(
                int(state["batch"]), int(state["epoch"]), int(state["pid"]), str(state["attempt"]), committed.offset
            )
        except (ValueError, TypeError, KeyError):
            raise WriteError(
                f"the group {self._identity.group} holds for {partition} what no sink wrote: {committed.metadata!r}."
                " Somebody else commits offsets there: delete the group, or choose another sinkId"
            ) from None

    async def _store(self, claim: Claim) -> None:
        state = {"batch": self._identity.batch, "pid": claim.producer_id, "epoch": claim.epoch, "attempt": claim.token}
        metadata = json.dumps(state, separators=(",", ":"))
        offsets = {partition: CommittedOffset(start, -1, metadata) for partition, start in claim.starts.items()}
        await self._admin.set_group_offsets(self._identity.group, offsets)

    async def _next_producer(self, last: _Entry | None, step: int) -> tuple[int, int]:
        """The producer id and epoch after those of the last entry; a new id when there is none, or no epoch left."""
        if last is not None and last.epoch + step <= EPOCH_MAX:
            return last.producer_id, last.epoch + step
        what = "getting a producer id"

        async def attempt() -> tuple[int, int]:
            request = init_producer_id.Request(transactional_id=None, transaction_timeout_ms=2**31 - 1)
            response = await self._cluster.ask_any(request, init_producer_id.Response)
            check(response.error_code, what)
            return response.producer_id, response.producer_epoch

        return await retry(attempt, what=what, timeout_ms=self._cluster.timeouts.total_ms)
