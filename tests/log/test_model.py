"""The log against a list: whatever is done to it, in whatever order, it holds what the list holds."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.disk.memory import MemoryDisk
from odradek.log.producers import BATCHES_REMEMBERED
from odradek.records.compression import Codec
from tests.log.support import LogOnDisk, batch, read_all, records_of

VALUES = st.lists(st.binary(max_size=300), min_size=1, max_size=5)


@dataclass
class Written:
    """What the model knows of one batch."""

    base: int
    values: list[bytes]
    timestamp: int
    epoch: int

    @property
    def last(self) -> int:
        """The offset of its last record."""
        return self.base + len(self.values) - 1


class LogModel(RuleBasedStateMachine):
    """Appends, reads, rolls, retention, truncation, crashes and restarts, in any order."""

    @initialize(
        segment_bytes=st.sampled_from([1024, 4096, 1 << 20]),
        interval=st.sampled_from([0, 64, 1000, 4096]),
        retention=st.sampled_from([-1, 0, 3000]),
    )
    def start(self, segment_bytes: int, interval: int, retention: int) -> None:
        """Begin with an empty log."""
        self.disk = MemoryDisk()
        self.on_disk = LogOnDisk(
            self.disk,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            retention_bytes=retention,
            retention_ms=3_600_000,
        )
        self.log = self.on_disk.log
        self.batches: list[Written] = []
        self.log_start = 0
        self.end = 0  # the next offset
        self.flushed = 0
        self.epoch = 0
        self.sequence = 0
        self.producer_epoch = 0

    def _wrote(self, values: list[bytes]) -> None:
        self.batches.append(Written(self.end, values, self.on_disk.clock.now_ms(), self.epoch))
        self.end += len(values)

    @rule(values=VALUES, codec=st.sampled_from(list(Codec)))
    def append_a_batch(self, values: list[bytes], codec: Codec) -> None:
        """One batch, as a producer sends it."""
        self.on_disk.clock.advance(1)
        data = batch(*values, timestamp=self.on_disk.clock.now_ms(), codec=codec)
        done = self.log.append(data, self.epoch)
        assert (done.base_offset, done.last_offset) == (self.end, self.end + len(values) - 1)
        self._wrote(values)

    @rule(many=st.lists(VALUES, min_size=2, max_size=8))
    def append_many_batches(self, many: list[list[bytes]]) -> None:
        """Several batches in one call."""
        now = self.on_disk.clock.now_ms()
        self.log.append(b"".join(batch(*values, timestamp=now) for values in many), self.epoch)
        for values in many:
            self._wrote(values)

    @rule(values=VALUES, again=st.integers(0, 2))
    def append_idempotently(self, values: list[bytes], again: int) -> None:
        """A producer that sends a batch once or several times: it is written once."""
        now = self.on_disk.clock.now_ms()
        data = batch(*values, timestamp=now, producer=(7, self.producer_epoch, self.sequence))
        first = self.log.append(bytes(data), self.epoch)
        for _ in range(again):
            repeated = self.log.append(bytes(data), self.epoch)
            assert repeated.duplicate
            assert repeated.base_offset == first.base_offset
        self.sequence += len(values)
        self._wrote(values)

    @rule()
    def flush(self) -> None:
        """All that is written is promised from now on."""
        self.log.flush()
        self.flushed = self.end

    @rule()
    def roll(self) -> None:
        """Begin another segment."""
        self.log.roll()

    @rule()
    def checkpoint(self) -> None:
        """Write out indexes and producers."""
        self.log.checkpoint()

    @rule()
    def elect_a_leader(self) -> None:
        """Another leader epoch begins."""
        self.epoch += 1

    @rule(where=st.floats(0, 1), max_bytes=st.integers(1, 5000))
    def read_somewhere(self, where: float, max_bytes: int) -> None:
        """Any offset gives the batch that holds it, and whole batches after it."""
        offset = self.log_start + int(where * (self.end - self.log_start))
        chunk = self.log.read(offset, max_bytes)
        assert chunk is not None
        expected = [b for b in self.batches if b.last >= offset]
        if not expected:
            assert not chunk.data
            return
        assert chunk.base_offset == expected[0].base
        records = records_of(chunk.data)
        flat = [(b.base + n, value) for b in expected for n, value in enumerate(b.values)]
        assert [(r.offset, r.value) for r in records] == flat[: len(records)]
        assert records[-1].offset + 1 == chunk.next_offset
        assert len(chunk.data) <= max_bytes or records[-1].offset == expected[0].last

    @rule(where=st.floats(0, 1))
    def look_up_a_time(self, where: float) -> None:
        """The first record at or after a time."""
        live = [b for b in self.batches if b.last >= self.log_start]
        if not live:
            return
        timestamp = live[int(where * (len(live) - 1))].timestamp
        found = self.log.offset_for_timestamp(timestamp)
        first = next(b for b in live if b.timestamp >= timestamp)
        assert found is not None
        assert (found.offset, found.leader_epoch) == (max(first.base, self.log_start), first.epoch)

    @rule(hours=st.integers(0, 2))
    def retain(self, hours: int) -> None:
        """Old segments go; what stays is unchanged, and the active segment stays."""
        self.on_disk.clock.advance(hours * 3_600_000)
        active = self.log.segments[-1]
        removal = self.log.expire(self.on_disk.clock.now_ms())
        if removal is not None:
            removal.run()
        assert self.log.segments[-1] is active
        assert self.log_start <= self.log.log_start <= active.base_offset or self.log.log_start == self.log_start
        self.log_start = self.log.log_start

    @rule(where=st.floats(0, 1))
    def delete_records(self, where: float) -> None:
        """The log start moves up, for good."""
        self.log_start += int(where * (self.end - self.log_start))
        self.log.delete_records(self.log_start).run()

    @rule(where=st.floats(0, 1))
    def truncate(self, where: float) -> None:
        """A follower gives up its end."""
        offset = self.log_start + int(where * (self.end - self.log_start))
        self.log.truncate(offset)
        self._cut(next((written.base for written in self.batches if written.last >= offset), self.end))

    @rule(seed=st.integers(0, 2**32))
    def crash(self, seed: int) -> None:
        """The machine dies: what was flushed is there, and of the rest a prefix."""
        self.disk.crash(random.Random(seed))
        self.log = self.on_disk.open()
        end = self.log.next_offset
        assert self.flushed <= end <= self.end
        ends = {0, *(written.last + 1 for written in self.batches), self.log_start}
        assert end in ends, "cut inside a batch"
        self._cut(end)

    @rule()
    def restart(self) -> None:
        """Stop in good order and start again; nothing has to be checked."""
        self.log = self.on_disk.reopen()
        assert self.on_disk.report.scanned_bytes == 0
        self.flushed = self.end

    def _cut(self, end: int) -> None:
        """Forget what is not in the log any more. After a loss the model goes on with a new producer."""
        self.batches = [written for written in self.batches if written.last < end]
        self.end = end
        self.flushed = min(self.flushed, end)
        self.log_start = min(self.log_start, end)
        self.producer_epoch += 1
        self.sequence = 0

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def the_ends_agree(self) -> None:
        """First and next offset are the model's."""
        assert (self.log.log_start, self.log.next_offset) == (self.log_start, self.end)
        assert self.flushed <= self.log.flushed_offset <= self.end

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def every_record_is_there(self) -> None:
        """All of it, in order, once."""
        expected = [(b.base + n, value) for b in self.batches for n, value in enumerate(b.values)]
        expected = [(offset, value) for offset, value in expected if offset >= self.log_start]
        found = [(r.offset, r.value) for r in read_all(self.log, max_bytes=2000)]
        differing = [(a, b) for a, b in zip(found, expected, strict=False) if a != b]
        assert found == expected, f"{len(found)} records for {len(expected)}; found, expected: {differing[:1]}"

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def the_epochs_agree(self) -> None:
        """Every batch's epoch is the one that the log would tell a follower."""
        for written in self.batches:
            if written.last >= self.log_start:
                assert self.log.epochs.epoch_at(written.last) == written.epoch


assert BATCHES_REMEMBERED >= 3  # append_idempotently sends a batch at most three times

TestLogModel = LogModel.TestCase
