"""The rules of the idempotent producer against a model of a broker, on a line that loses whatever it likes.

The model checks numbers as a Kafka broker does: the next one, or one of the last five batches, or a new epoch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.client.accumulator import Batch, PartitionQueue
from odradek.model import TopicPartition
from odradek.records.compression import Codec
from odradek.records.header import check_batch
from odradek.records.parse import parse_batch
from odradek.records.record import NewRecord

REMEMBERED = 5


@dataclass
class ModelBroker:
    """One partition's log, and what the broker knows of the producer."""

    log: list[bytes] = field(default_factory=list)
    epoch: int = -1
    expected: int = 0
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def append(self, data: bytes | bytearray) -> str:
        """Answer as a broker does."""
        header = check_batch(data)
        if header.producer_epoch < self.epoch:
            return "fenced"
        if header.producer_epoch > self.epoch:
            if header.base_sequence != 0:
                return "out of order"
            self.epoch, self.expected = header.producer_epoch, 0
            self.recent.clear()
        if (header.base_sequence, header.record_count) in self.recent:
            return "ok"
        if header.base_sequence != self.expected:
            return "out of order"
        self.recent.append((header.base_sequence, header.record_count))
        self.expected += header.record_count
        self.log += [record.value or b"" for record in parse_batch(data)]
        return "ok"


class Idempotence(RuleBasedStateMachine):
    """A producer's partition, a broker, and requests on the line between them, which keeps their order."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = PartitionQueue(
            TopicPartition("t", 0),
            batch_bytes=100,
            codec=Codec.NONE,
            producer_id=1,
            timeout_s=1_000_000.0,
            now=lambda: 0.0,
        )
        self.broker = ModelBroker()
        self.line: deque[Batch] = deque()
        self.sent = 0
        self.acked: set[bytes] = set()
        self.dropped: set[bytes] = set()  # refused or given up: no promise, but never twice and never out of place

    @rule(count=st.integers(1, 3))
    def send(self, count: int) -> None:
        for number in range(count):
            # The last record of a batch fills it, the others leave room.
            size_bytes = 90 if number == count - 1 else 5
            self.queue.append(NewRecord(b"%08d" % self.sent, None, 0), size_bytes, None, None)
            self.sent += 1

    def can_take(self) -> bool:
        return self.queue.next_at(0.0, hurry=True) is not None

    @precondition(can_take)
    @rule()
    def take(self) -> None:
        self.line.append(self.queue.take())

    @precondition(lambda self: self.line)
    @rule()
    def delivered(self) -> None:
        self.answer(self.line.popleft())

    def answer(self, batch: Batch) -> None:
        assert batch.data is not None
        said = self.broker.append(batch.data)
        if said == "ok":
            self.queue.acked(batch)
            self.acked |= {record.value or b"" for record in batch.records}
        elif said == "fenced" or not self.queue.out_of_order(batch, 0.0):
            raise AssertionError(f"{said}: a single producer is neither fenced nor refused for good")

    @precondition(lambda self: self.line)
    @rule(heard=st.integers(0, 5))
    def line_breaks(self, heard: int) -> None:
        """The broker hears some of what is on the line; the producer hears nothing."""
        lost = list(self.line)
        self.line.clear()
        for batch in lost[:heard]:
            assert batch.data is not None
            self.broker.append(batch.data)
        for batch in lost:
            self.queue.again(batch, 0.0, fate_unknown=True)

    @precondition(lambda self: self.line)
    @rule()
    def not_the_leader(self) -> None:
        self.queue.again(self.line.popleft(), 0.0, fate_unknown=False)

    @precondition(lambda self: self.line and len(self.line[0].records) > 1 and not self.line[0].fate_unknown)
    @rule()
    def too_large(self) -> None:
        self.queue.split(self.line.popleft(), 0.0)

    @precondition(lambda self: self.line)
    @rule()
    def refused_for_good(self) -> None:
        batch = self.line.popleft()
        self.queue.dropped(batch)
        self.dropped |= {record.value or b"" for record in batch.records}

    @precondition(lambda self: self.queue.retries)
    @rule()
    def expires(self) -> None:
        self.queue.retries[0].deadline = -1.0
        for batch in self.queue.expire(0.0):
            self.dropped |= {record.value or b"" for record in batch.records}

    @invariant()
    def nothing_is_there_twice_or_out_of_order(self) -> None:
        assert self.broker.log == sorted(set(self.broker.log))

    @invariant()
    def what_is_acknowledged_is_there(self) -> None:
        assert self.acked <= set(self.broker.log)

    def teardown(self) -> None:
        """On a line that works again everything arrives that was not given up."""
        for _ in range(10_000):
            while self.can_take():
                self.take()
            if not self.line:
                break
            self.delivered()
        assert self.queue.is_idle
        self.nothing_is_there_twice_or_out_of_order()
        everything = {b"%08d" % number for number in range(self.sent)}
        assert self.acked | self.dropped >= everything
        assert self.acked <= set(self.broker.log)


TestIdempotence = Idempotence.TestCase
