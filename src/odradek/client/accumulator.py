"""Records of one partition on their way to the broker: gathered into batches, numbered, kept until they are settled.

Pure but for the futures that it settles: no socket, no timer (`now` is the loop's time in seconds). It holds the rules
of the idempotent producer (KIP-98, KIP-360): a batch is sent again under the number it had, and when a number is given
up, the rest is numbered anew, under a higher epoch where nobody can say what the broker has.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from odradek.client.errors import ClientError
from odradek.model import TopicPartition
from odradek.records.build import build_batch
from odradek.records.compression import Codec
from odradek.records.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, SEQUENCE_MAX
from odradek.records.record import NewRecord

IN_FLIGHT_MAX = 5  # a broker remembers the last five batches of a producer
EPOCH_MAX = 2**15 - 1
RENUMBERINGS_MAX = 3  # of one batch: a broker that refuses it again and again will not take it


class Delivery(NamedTuple):
    """Where a record landed."""

    topic: str
    partition: int
    offset: int  # -1 where the broker does not tell: acks=0, or a duplicate that it no longer remembers
    timestamp: int  # milliseconds; the broker's own if the topic stamps records on arrival


DeliveryFuture: TypeAlias = asyncio.Future[Delivery]


class Tally:
    """Waits for many records at once: for the batches they are in, which is far cheaper than for each of them."""

    def __init__(self) -> None:
        self._batches = 0
        self._closed = False
        self._error: ClientError | None = None
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def add(self, batches: int = 1) -> None:
        """One more batch, or -1 when one is settled."""
        self._batches += batches
        if self._closed and self._batches == 0 and not self._done.done():
            self._done.set_result(None)

    def failed(self, error: ClientError) -> None:
        """A batch did not make it; the first error is kept."""
        self._error = self._error or error

    async def wait(self) -> None:
        """Wait until every batch is settled; raise the first error."""
        self._closed = True
        self.add(0)
        await self._done
        if self._error is not None:
            raise self._error


class Batch:
    """Records that travel together."""

    __slots__ = (
        "attempts", "created_at", "data", "deadline", "epoch", "fate_unknown", "futures", "last_error", "order",
        "records", "renumberings", "retry_at", "sequence", "size_bytes", "tallies",
    )  # fmt: skip

    def __init__(self, created_at: float, deadline: float) -> None:
        self.records: list[NewRecord] = []
        self.futures: list[tuple[int, DeliveryFuture]] = []  # of those who wait for one record, with its index
        self.tallies: list[Tally] = []  # of those who wait for many
        self.size_bytes = 0  # as the producer's buffer counts them
        self.created_at = created_at
        self.deadline = deadline
        self.order = -1  # the number of its first record among all that were sent to the partition; -1 before that
        self.sequence = NO_SEQUENCE
        self.epoch = NO_PRODUCER_EPOCH
        self.data: bytearray | None = None  # as it goes over the wire, from the first sending on
        self.attempts = 0
        self.retry_at = 0.0
        self.fate_unknown = False  # an attempt ended without an answer: the broker may have it
        self.renumberings = 0
        self.last_error: ClientError | None = None

    def watch(self, tally: Tally) -> None:
        """Let a tally wait for the batch too."""
        self.tallies.append(tally)
        tally.add()

    def settle(self, partition: TopicPartition, base_offset: int, log_append_time: int) -> None:
        """Tell everyone who waits where the records are."""
        topic, number = partition
        for index, future in self.futures:
            if not future.done():
                timestamp = self.records[index].timestamp if log_append_time < 0 else log_append_time
                offset = base_offset + index if base_offset >= 0 else -1
                future.set_result(Delivery(topic, number, offset, timestamp))
        for tally in self.tallies:
            tally.add(-1)

    def fail(self, error: ClientError, by_index: Mapping[int, ClientError] | None = None) -> None:
        """Tell everyone who waits that it did not work, and why; some records may have a reason of their own."""
        reasons = by_index or {}
        for index, future in self.futures:
            fail_delivery(future, reasons.get(index, error))
        for tally in self.tallies:
            tally.failed(next(iter(reasons.values()), error))
            tally.add(-1)


def fail_delivery(future: DeliveryFuture, error: ClientError) -> None:
    """Tell one who waits for one record that it did not work."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # whoever does not await it has chosen not to know: asyncio shall not complain


def _order(batch: Batch) -> int:
    return batch.order


class PartitionQueue:
    """The batches of one partition: waiting, in flight, or to be sent again."""

    def __init__(
        self,
        partition: TopicPartition,
        *,
        batch_bytes: int,
        codec: Codec,
        producer_id: int,
        timeout_s: float,
        now: Callable[[], float],
    ) -> None:
        """`now` is only asked when a batch is begun, which has `timeout_s` from then on."""
        self.partition = partition
        self.waiting: deque[Batch] = deque()  # never sent; only the last one still takes records
        self.retries: list[Batch] = []  # sent and not settled, ascending by order; they go before those that wait
        self.in_flight: list[Batch] = []
        self._batch_bytes = batch_bytes
        self._codec = codec
        self._producer_id = producer_id
        self._timeout_s = timeout_s
        self._now = now
        self._order = 0
        self._epoch = 0
        self._next_sequence = 0
        self._acked_sequence = 0  # the one that the broker expects, if nothing is in flight and no fate unknown
        self._acked_order = -1  # of the latest batch that was acknowledged
        self._gap = False  # a number was given up: what is left must be numbered anew before it can be sent
        self._bump = False  # ... and under a new epoch, because the broker's last number is not known

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.waiting or self.retries or self.in_flight)

    def append(self, record: NewRecord, size_bytes: int, future: DeliveryFuture | None, tally: Tally | None) -> bool:
        """Take a record; say whether there may be something to send that was not there before."""
        waiting = self.waiting
        batch = waiting[-1] if waiting else None
        is_new = batch is None or batch.size_bytes + size_bytes > self._batch_bytes
        if batch is None or is_new:
            now = self._now()
            batch = Batch(now, now + self._timeout_s)
            waiting.append(batch)
        if future is not None:
            batch.futures.append((len(batch.records), future))
        if tally is not None and (not batch.tallies or batch.tallies[-1] is not tally):
            batch.watch(tally)
        batch.records.append(record)
        batch.size_bytes += size_bytes
        return is_new

    def next_at(self, linger_s: float, hurry: bool) -> float | None:
        """When the next batch may be sent, as far as this queue decides; None while it can only wait for answers."""
        if len(self.in_flight) >= IN_FLIGHT_MAX or self._is_resending():
            return None
        if self._gap:
            unknown = next((batch for batch in self.retries if batch.fate_unknown), None)
            if unknown is not None:
                return unknown.retry_at
            if self.in_flight:
                return None
        if self.retries:
            return self.retries[0].retry_at
        if not self.waiting:
            return None
        first = self.waiting[0]
        is_full = len(self.waiting) > 1 or first.size_bytes >= self._batch_bytes
        return 0.0 if hurry or is_full else first.created_at + linger_s

    def _is_resending(self) -> bool:
        """Whether a numbered batch is being sent again. Were five others to follow, its number would be forgotten."""
        return self._producer_id != NO_PRODUCER_ID and any(batch.attempts > 1 for batch in self.in_flight)

    def take(self) -> Batch:
        """Take the batch that `next_at` spoke of, numbered and built; it is in flight from now on."""
        if self._gap and not self.in_flight and not any(batch.fate_unknown for batch in self.retries):
            self._renumber()
        if self._gap:
            batch = next(batch for batch in self.retries if batch.fate_unknown)
            self.retries.remove(batch)
        elif self.retries:
            batch = self.retries.pop(0)
        else:
            batch = self.waiting.popleft()
            batch.order = self._order
            self._order += len(batch.records)
        if batch.data is None:
            self._number(batch)
        batch.attempts += 1
        self.in_flight.append(batch)
        return batch

    def _number(self, batch: Batch) -> None:
        if self._producer_id != NO_PRODUCER_ID and batch.sequence == NO_SEQUENCE:
            batch.epoch = self._epoch
            batch.sequence = self._next_sequence
            self._next_sequence = (self._next_sequence + len(batch.records)) & SEQUENCE_MAX
        batch.data = build_batch(
            batch.records,
            codec=self._codec,
            producer_id=self._producer_id,
            producer_epoch=batch.epoch,
            base_sequence=batch.sequence,
        )

    def _renumber(self) -> None:
        """Close the gap: the numbers of all that is left follow on what the broker has."""
        if self._bump:
            if self._epoch == EPOCH_MAX:
                raise ClientError(
                    f"the producer's epochs for partition {self.partition} are used up: make a new producer"
                )
            self._epoch += 1
            self._acked_sequence = 0
        self._gap = self._bump = False
        self._next_sequence = self._acked_sequence
        for batch in self.retries:
            batch.data, batch.sequence, batch.fate_unknown = None, NO_SEQUENCE, False
            self._number(batch)

    # What became of a batch in flight.

    def acked(self, batch: Batch) -> None:
        """The broker has it."""
        self.in_flight.remove(batch)
        # An early batch, sent twice, may be acknowledged after a later one: the broker expects what follows the latest.
        if batch.sequence != NO_SEQUENCE and batch.order > self._acked_order:
            self._acked_order = batch.order
            self._acked_sequence = (batch.sequence + len(batch.records)) & SEQUENCE_MAX

    def again(self, batch: Batch, retry_at: float, *, fate_unknown: bool) -> None:
        """It must be sent again, under the number it has."""
        self.in_flight.remove(batch)
        batch.retry_at = retry_at
        batch.fate_unknown = batch.fate_unknown or fate_unknown
        insort(self.retries, batch, key=_order)

    def out_of_order(self, batch: Batch, now: float) -> bool:
        """The broker misses earlier numbers. False if it will not take the batch under any number.

        Behind a batch that is itself not settled that is no surprise. But the first one of all shows that the broker
        does not have what it acknowledged, or has forgotten the producer: a new epoch makes it start afresh.
        """
        batch.fate_unknown = False  # it looked at the number: had it the batch, it would have said so
        if any(other.order < batch.order for other in (*self.in_flight, *self.retries)) or self._gap:
            self.again(batch, now, fate_unknown=False)
            return True
        if batch.renumberings == RENUMBERINGS_MAX:
            return False
        batch.renumberings += 1
        self.again(batch, now, fate_unknown=False)
        self._gap = self._bump = True
        return True

    def split(self, batch: Batch, now: float) -> None:
        """The broker finds it too large: make two of it, which take the same numbers (KIP-126)."""
        self.in_flight.remove(batch)
        middle = len(batch.records) // 2
        first, second = Batch(batch.created_at, batch.deadline), Batch(batch.created_at, batch.deadline)
        first.records, second.records = batch.records[:middle], batch.records[middle:]
        first.futures = [(index, future) for index, future in batch.futures if index < middle]
        second.futures = [(index - middle, future) for index, future in batch.futures if index >= middle]
        first.order, second.order = batch.order, batch.order + middle
        first.size_bytes = batch.size_bytes * middle // len(batch.records)
        second.size_bytes = batch.size_bytes - first.size_bytes
        for half in (first, second):
            half.retry_at, half.last_error = now, batch.last_error
            if batch.sequence != NO_SEQUENCE:
                half.epoch, half.sequence = batch.epoch, (batch.sequence + half.order - batch.order) & SEQUENCE_MAX
        for tally in batch.tallies:
            first.watch(tally)
            second.watch(tally)
            tally.add(-1)
        insort(self.retries, first, key=_order)
        insort(self.retries, second, key=_order)

    def dropped(self, batch: Batch) -> None:
        """It was given up while in flight; its numbers will never be used."""
        self.in_flight.remove(batch)
        self._give_up_numbers(batch)

    def expire(self, now: float) -> list[Batch]:
        """Take out the batches that are not in flight and whose time is over."""
        expired = [batch for batch in self.retries if batch.deadline <= now]
        if expired:
            self.retries = [batch for batch in self.retries if batch.deadline > now]
            for batch in expired:
                self._give_up_numbers(batch)
        while self.waiting and self.waiting[0].deadline <= now:
            expired.append(self.waiting.popleft())
        return expired

    def clear(self) -> list[Batch]:
        """Give up everything."""
        batches = [*self.in_flight, *self.retries, *self.waiting]
        self._gap = self._bump = self._producer_id != NO_PRODUCER_ID
        self.in_flight, self.retries = [], []
        self.waiting.clear()
        return batches

    def _give_up_numbers(self, batch: Batch) -> None:
        if batch.sequence != NO_SEQUENCE:
            self._gap = True
            self._bump = self._bump or batch.fate_unknown
