"""Writes the batches of one task to their topics, so that each row is there once even if it is not the first attempt.

The order is: claim the batch in the sink's state, then send. An attempt that finds an earlier claim of the same batch
goes on with the same producer, epoch and numbers: it reads what is there and sends the rest with the next number. A
partition takes a batch only if its number is the next one, so nothing is taken from an attempt that has not seen all
that was written: the numbers of KIP-98 serve as a condition. Whoever is refused looks again, or hears that another
attempt has taken over and ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from odradek.client.cluster import Cluster
from odradek.client.errors import ClientError
from odradek.client.retry import pause_ms
from odradek.model import TopicPartition
from odradek.spark.write.replay import Verifier, Written
from odradek.spark.write.sender import BatchSender, BrokenSequenceError, Lane, Prepared, WriteError
from odradek.spark.write.sink_state import Claim, Identity, SinkState
from odradek.spark.write.spool import Spool

logger = logging.getLogger(__name__)


async def deliver(cluster: Cluster, identity: Identity, spool: Spool) -> int:
    """Write all that is spooled; return how many rows this attempt has sent."""
    try:
        return await _Delivery(cluster, identity, spool).run()
    except ClientError as error:
        raise WriteError(f"batch {identity.batch} of task {identity.task} could not be written: {error}") from error


class _Supervisor:
    """Lets an attempt send for as long as nobody else has taken over."""

    def __init__(self, state: SinkState, claim: Claim, verifier: Verifier) -> None:
        self.sent = 0
        self._state = state
        self._claim = claim
        self._verifier = verifier

    async def check(self) -> None:
        await self._state.check_ours(self._claim)

    async def landed(self, partition: TopicPartition, batch: Prepared, offset: int, is_last: bool) -> None:
        # What another attempt sends with our number is a batch of one row (see replay), and only for such a batch can
        # it be acknowledged in place of ours. The last one is the same in both: nothing else was left to be sent.
        if batch.count == 1 and not is_last:
            await self._verifier.check(partition, batch, offset)
        self.sent += batch.count


class _Delivery:
    """One attempt."""

    def __init__(self, cluster: Cluster, identity: Identity, spool: Spool) -> None:
        self._cluster = cluster
        self._identity = identity
        self._state = SinkState(cluster, identity)
        self._verifier = Verifier(cluster)
        self._spool = spool
        self._sent = 0

    async def run(self) -> int:
        """Claim and send."""
        claim = await self._state.claim(self._spool.partitions())
        if claim is None:
            logger.warning("nothing is written for %s: a later batch has been written already", self._identity)
            return 0
        if claim.is_replay:
            return await self._resume(claim)
        lanes = [Lane(partition, self._batches(partition)) for partition in self._spool.partitions()]
        try:
            return await self._send(claim, lanes)
        except BrokenSequenceError:
            return await self._resume(claim)

    def _batches(self, partition: TopicPartition) -> Iterator[Prepared]:
        return (Prepared(spooled.record_count, spooled.data) for spooled in self._spool.batches(partition))

    async def _send(self, claim: Claim, lanes: list[Lane]) -> int:
        supervisor = _Supervisor(self._state, claim, self._verifier)
        try:
            await BatchSender(self._cluster, claim.producer_id, claim.epoch, supervisor).send(lanes)
        finally:
            self._sent += supervisor.sent
        return self._sent

    async def _resume(self, claim: Claim) -> int:
        """Send what is not there yet, until all is there or another attempt has taken over."""
        loop = asyncio.get_running_loop()
        timeout_ms = self._cluster.timeouts.total_ms
        before, tries, deadline = -1, 0, loop.time() + timeout_ms / 1000
        while True:
            await self._state.check_ours(claim)
            written = Written(self._spool, claim)
            await written.look(self._cluster)
            try:
                return await self._send(claim, written.lanes())
            except BrokenSequenceError as error:
                if written.record_count > before:  # something has come meanwhile, and was seen
                    before, tries, deadline = written.record_count, 0, loop.time() + timeout_ms / 1000
                if written.is_cut or written.epoch_max > claim.epoch:
                    claim = await self._state.renewed(claim, written.epoch_max)
                elif loop.time() > deadline:
                    raise WriteError(f"{error}; what was written before cannot be found there") from error
            await asyncio.sleep(pause_ms(tries) / 1000)
            tries += 1
