"""A machine that loses power at any moment, on a disk that forgets what was not synced. One seed, one story."""

from __future__ import annotations

import os
import random
from contextlib import suppress

import pytest

from odradek.disk.memory import MemoryDisk
from odradek.log.config import Flush
from tests.log.support import LogOnDisk, batch, read_all

SEEDS = 20_000 if os.environ.get("ODRADEK_TEST_PROFILE") == "long" else 1_000
SHARDS = 4
LIVES = 4
STEPS = 40


class PowerLossError(Exception):
    """The lights go out."""


class MortalDisk(MemoryDisk):
    """Dies at the n-th thing that is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.operations_left = 0

    def maybe_fail(self, action: str, path: str) -> None:
        """Count, and die when it is time."""
        super().maybe_fail(action, path)
        self.operations_left -= 1
        if self.operations_left == 0:
            raise PowerLossError


class Story:
    """A producer that remembers what it was promised, and a log that is killed again and again."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = MortalDisk()
        self.segment_bytes = self.chance.choice([1024, 2048, 100_000])
        self.on_disk = self._log()
        self.sequence = 0  # of the next batch
        self.acknowledged = 0  # batches, from the first on
        self.deleted_to = 0  # the log start that was promised

    def _log(self) -> LogOnDisk:
        return LogOnDisk(
            self.disk,
            segment_bytes=self.segment_bytes,
            index_interval_bytes=self.chance.choice([0, 100, 4096]),
        )

    def live(self) -> None:
        """Append, flush, roll, checkpoint, delete until the lights go out."""
        self.disk.operations_left = self.chance.randint(1, 120)
        log = self.on_disk.log
        assert log.config.flush is Flush.GROUP
        try:
            for _ in range(STEPS):
                step = self.chance.random()
                if step < 0.6:
                    self._append()
                elif step < 0.85:
                    log.flush()
                    self.acknowledged = self.sequence
                elif step < 0.9:
                    log.roll()
                elif step < 0.95:
                    log.checkpoint()
                else:
                    start = self.chance.randint(log.log_start, log.flushed_offset)
                    log.delete_records(start).run()
                    self.deleted_to = start
        except PowerLossError:
            pass

    def _append(self) -> None:
        value = b"%d " % self.sequence + bytes(self.chance.randint(0, 600))
        self.on_disk.log.append(batch(value, producer=(1, 0, self.sequence)))
        self.sequence += 1

    def rise(self) -> None:
        """Start again on what the disk kept, and hold the log to its promises."""
        self.disk.operations_left = 0
        self.disk.crash(self.chance)
        if self.chance.random() < 0.3:  # the lights go out again while it starts
            self.disk.operations_left = self.chance.randint(1, 30)
            with suppress(PowerLossError):
                self.on_disk.open()
            self.disk.operations_left = 0
            self.disk.crash(self.chance)
        log = self.on_disk.open()
        records = read_all(log)
        numbers = [int((record.value or b"").split()[0]) for record in records]
        assert numbers == [record.offset for record in records], "a batch is lost, doubled or out of order"
        assert numbers == list(range(log.log_start, log.next_offset)), "a gap"
        assert log.next_offset >= self.acknowledged, "an acknowledged batch is lost"
        assert log.log_start >= self.deleted_to, "deleted records came back"
        self._retry()

    def _retry(self) -> None:
        """Send everything after the last acknowledged batch again: some of it is in the log already."""
        log = self.on_disk.log
        for sequence in range(max(self.acknowledged, log.next_offset - 5, 0), log.next_offset):
            again = log.append(batch(b"%d again" % sequence, producer=(1, 0, sequence)))
            assert again.duplicate
            assert again.base_offset == sequence
        self.sequence = log.next_offset


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_power_loss_takes_or_doubles_an_acknowledged_batch(shard: int) -> None:
    for seed in range(shard, SEEDS, SHARDS):
        try:
            story = Story(seed)
            for _ in range(LIVES):
                story.live()
                story.rise()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
