"""The rules of the idempotent producer against a model of a broker, on a line that loses whatever it likes.

The model checks numbers as a Kafka broker does: the next one, or one of the last five batches, or a new epoch.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

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


class Simulation:
    """A producer's partition, a broker, and requests on the line between them, which keeps their order."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
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

    def step(self) -> None:
        """Let one of the things happen that can happen now, the ordinary ones more often."""
        can_happen: list[Callable[[], None]] = [self.send]
        if self.can_take():
            can_happen += [self.take] * 4
        if self.line:
            can_happen += [self.deliver] * 4 + [self.line_breaks, self.not_the_leader]
            if len(self.line[0].records) > 1 and not self.line[0].fate_unknown:
                can_happen.append(self.too_large)
            if self.chance.random() < 0.3:
                can_happen.append(self.refused_for_good)
        if self.queue.retries and self.chance.random() < 0.2:
            can_happen.append(self.expires)
        self.chance.choice(can_happen)()
        self.check()

    def can_take(self) -> bool:
        return self.queue.next_at(0.0, hurry=True) is not None

    def send(self) -> None:
        count = self.chance.randint(1, 3)
        for number in range(count):
            # The last record of a batch fills it, the others leave room.
            size_bytes = 90 if number == count - 1 else 5
            self.queue.append(NewRecord(b"%08d" % self.sent, None, 0), size_bytes, None, None)
            self.sent += 1

    def take(self) -> None:
        self.line.append(self.queue.take())

    def deliver(self) -> None:
        batch = self.line.popleft()
        assert batch.data is not None
        said = self.broker.append(batch.data)
        if said == "ok":
            self.queue.acked(batch)
            self.acked |= values(batch)
        else:
            assert said == "out of order", "a single producer is not fenced"
            assert self.queue.out_of_order(batch, 0.0), "nor is it refused for good"

    def line_breaks(self) -> None:
        """The broker hears some of what is on the line; the producer hears nothing."""
        lost = list(self.line)
        self.line.clear()
        for batch in lost[: self.chance.randint(0, 5)]:
            assert batch.data is not None
            self.broker.append(batch.data)
        for batch in lost:
            self.queue.again(batch, 0.0, fate_unknown=True)

    def not_the_leader(self) -> None:
        self.queue.again(self.line.popleft(), 0.0, fate_unknown=False)

    def too_large(self) -> None:
        self.queue.split(self.line.popleft(), 0.0)

    def refused_for_good(self) -> None:
        batch = self.line.popleft()
        self.queue.dropped(batch)
        self.dropped |= values(batch)

    def expires(self) -> None:
        self.queue.retries[0].deadline = -1.0
        for batch in self.queue.expire(0.0):
            self.dropped |= values(batch)

    def recover(self) -> None:
        """On a line that works again everything arrives that was not given up."""
        while self.line or self.can_take():
            if self.can_take():
                self.take()
            else:
                self.deliver()
        self.check()
        assert self.queue.is_idle
        assert self.acked | self.dropped == {b"%08d" % number for number in range(self.sent)}

    def check(self) -> None:
        log = self.broker.log
        assert log == sorted(set(log)), "nothing is there twice or out of order"
        assert self.acked <= set(log), "what is acknowledged is there"


def values(batch: Batch) -> set[bytes]:
    return {record.value or b"" for record in batch.records}


@pytest.mark.parametrize("part", range(10))
def test_what_is_acknowledged_is_in_the_log_once_and_in_order(part: int) -> None:
    for seed in range(300 * part, 300 * part + 300):
        simulation = Simulation(seed)
        try:
            for _ in range(simulation.chance.randint(5, 150)):
                simulation.step()
            simulation.recover()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
