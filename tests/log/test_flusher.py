"""Group flush: answers wait for the disk, one flush covers all that came while the last one ran, failures are final."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from odradek.clock import ManualClock
from odradek.disk.memory import MemoryDisk, MemoryFile
from odradek.log.errors import LogError, LogStoppedError
from odradek.log.flusher import GroupFlusher
from odradek.log.log import PartitionLog
from odradek.log.store import LogStore
from odradek.model import TopicPartition
from tests.log.support import START_MS, LogOnDisk, batch, log_config, store_config, values_of

T = TypeVar("T")
WAIT_S = 30.0


def run(scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a scenario on a loop of its own; one that never ends fails."""

    async def limited() -> T:
        return await asyncio.wait_for(scenario(), WAIT_S)

    return asyncio.run(limited())


class SlowDisk(MemoryDisk):
    """A disk whose flushes of log files wait for a gate, and that counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.arrived: asyncio.Queue[str] = asyncio.Queue()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.syncs: list[str] = []

    def close_gate(self) -> None:
        """Let the next flush wait, and tell the loop when it does."""
        self.loop = asyncio.get_running_loop()
        self.gate.clear()

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        file = super().open(path, create=create)
        return _SlowFile(self, path, file._node)


class _SlowFile(MemoryFile):
    def sync(self) -> None:
        disk = self._disk
        assert isinstance(disk, SlowDisk)
        if self.path.endswith(".log") and disk.loop is not None:
            disk.syncs.append(self.path)
            if not disk.gate.is_set():
                disk.loop.call_soon_threadsafe(disk.arrived.put_nowait, self.path)
                assert disk.gate.wait(WAIT_S)
        super().sync()


def append(log: PartitionLog, value: bytes = b"v") -> int:
    """Append one record; give the offset that must be flushed for it."""
    return log.append(batch(value)).last_offset + 1


async def settle(*awaitables: Awaitable[object]) -> list[object]:
    return await asyncio.gather(*awaitables, return_exceptions=True)


def test_an_answer_waits_for_the_disk() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        log = LogOnDisk(disk).log
        flusher = GroupFlusher(2)
        disk.close_gate()
        future = flusher.flushed(log, append(log))
        await disk.arrived.get()
        assert not future.done()
        assert log.flushed_offset == log.safe_offset == 0
        disk.gate.set()
        await future
        assert log.flushed_offset == log.safe_offset == 1
        await flusher.close()

    run(scenario)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_answered_survives_a_crash(seed: int) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        subject = LogOnDisk(disk, segment_bytes=1024)
        flusher = GroupFlusher(1)
        chance = random.Random(seed)
        written: list[bytes] = []
        for _ in range(chance.randint(1, 20)):
            written.append(chance.randbytes(chance.choice([1, 300])))
            future = flusher.flushed(subject.log, append(subject.log, written[-1]))
            if chance.random() < 0.5:
                await future
        await future
        disk.crash(chance)
        subject.open()
        assert values_of(subject.log) == written
        await flusher.close()

    run(scenario)


def test_all_that_comes_while_a_flush_runs_shares_the_next_one() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        log = LogOnDisk(disk).log
        flusher = GroupFlusher(2)
        disk.close_gate()
        first = flusher.flushed(log, append(log))
        await disk.arrived.get()
        others = [flusher.flushed(log, append(log)) for _ in range(50)]
        assert not any(future.done() for future in others)
        disk.gate.set()
        await asyncio.gather(first, *others)
        assert len(disk.syncs) == 2
        assert (log.flush_stats.flushes, log.flush_stats.batches) == (2, 51)
        assert log.flush_stats.batches_per_flush == 25.5
        await flusher.close()

    run(scenario)


def test_all_that_comes_in_one_turn_of_the_loop_shares_a_flush() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        log = LogOnDisk(disk).log
        flusher = GroupFlusher(1)
        disk.close_gate()
        disk.gate.set()
        await asyncio.gather(*[flusher.flushed(log, append(log)) for _ in range(10)])
        assert len(disk.syncs) == 1
        assert log.flush_stats.batches_per_flush == 10
        await flusher.close()

    run(scenario)


def test_a_flush_covers_the_segments_that_were_closed_meanwhile() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        subject = LogOnDisk(disk, segment_bytes=1024)
        flusher = GroupFlusher(1)
        disk.close_gate()
        first = flusher.flushed(subject.log, append(subject.log))
        await disk.arrived.get()
        last = [flusher.flushed(subject.log, append(subject.log, bytes(400))) for _ in range(7)][-1]
        assert len(subject.log.segments) > 3
        disk.gate.set()
        await first
        await last
        disk.crash(random.Random(3))
        assert len(values_of(subject.open())) == 8
        await flusher.close()

    run(scenario)


def test_answers_come_in_the_order_of_the_appends() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        log = LogOnDisk(disk).log
        flusher = GroupFlusher(2)
        disk.close_gate()
        order: list[int] = []
        futures = []
        for number in range(10):
            futures.append(flusher.flushed(log, append(log)))
            futures[-1].add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]
            if number == 4:
                await disk.arrived.get()
        disk.gate.set()
        await asyncio.gather(*futures)
        assert order == list(range(10))
        await flusher.close()

    run(scenario)


def test_many_logs_flush_side_by_side() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        logs = [LogOnDisk(disk, f"data/t-{number}").log for number in range(8)]
        flusher = GroupFlusher(4)
        disk.close_gate()
        futures = [flusher.flushed(log, append(log)) for log in logs]
        waiting = {await disk.arrived.get() for _ in range(4)}  # as many as there are threads
        assert len(waiting) == 4
        disk.gate.set()
        await asyncio.gather(*futures)
        assert sorted(disk.syncs) == sorted(log.segments[0].file.path for log in logs)  # type: ignore[attr-defined]
        await flusher.close()

    run(scenario)


def test_what_is_flushed_already_is_answered_at_once() -> None:
    async def scenario() -> None:
        log = LogOnDisk().log
        offset = append(log)
        log.flush()
        flusher = GroupFlusher(1)
        assert flusher.flushed(log, offset).done()
        assert log.flush_stats.flushes == 1
        await flusher.close()

    run(scenario)


def test_a_cancelled_answer_disturbs_no_other() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        log = LogOnDisk(disk).log
        flusher = GroupFlusher(1)
        disk.close_gate()
        futures = [flusher.flushed(log, append(log)) for _ in range(3)]
        await disk.arrived.get()
        futures[0].cancel()
        futures[2].cancel()
        disk.gate.set()
        await futures[1]
        assert log.flushed_offset == 3
        await flusher.close()

    run(scenario)


def test_closing_waits_for_the_flushes_under_way_and_ends_the_threads() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        log = LogOnDisk(disk).log
        flusher = GroupFlusher(3)
        disk.close_gate()
        first = flusher.flushed(log, append(log))
        await disk.arrived.get()
        second = flusher.flushed(log, append(log))
        closing = asyncio.ensure_future(flusher.close())
        await asyncio.wait({closing}, timeout=0)
        assert not closing.done()
        disk.gate.set()
        await closing
        assert first.done()
        assert second.done()
        assert not any(thread.is_alive() for thread in flusher._threads)

    run(scenario)


# Failing.


def test_a_failed_flush_is_final() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        subject = LogOnDisk(disk)
        log = subject.log
        told: list[tuple[PartitionLog, LogStoppedError]] = []
        flusher = GroupFlusher(1, lambda log, error: told.append((log, error)))
        await flusher.flushed(log, append(log, b"safe"))
        disk.fail_next("flush", errno.EIO, ending=".log")
        disk.close_gate()
        doubtful = [flusher.flushed(log, append(log, b"in doubt"))]
        await disk.arrived.get()
        doubtful.append(flusher.flushed(log, append(log, b"never")))
        disk.gate.set()
        results = await settle(*doubtful)
        assert [type(result) for result in results] == [LogStoppedError, LogStoppedError]
        assert [entry[0] for entry in told] == [log]
        assert log.flushed_offset == 1
        syncs = len(disk.syncs)
        with pytest.raises(LogStoppedError):
            append(log)
        with pytest.raises(LogStoppedError):
            await flusher.flushed(log, 2)
        await flusher.flushed(log, 1)  # what was answered stays answered
        flusher.request(log)
        await flusher.close()
        assert len(disk.syncs) == syncs, "a flush that failed is never tried again"
        log.close()
        assert len(disk.syncs) == syncs
        disk.crash(random.Random(1))
        assert values_of(subject.open())[:1] == [b"safe"]

    run(scenario)


def test_one_log_that_fails_does_not_stop_the_others() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        bad, good = LogOnDisk(disk, "data/bad-0").log, LogOnDisk(disk, "data/good-0").log
        flusher = GroupFlusher(1)
        disk.fail_next("flush", errno.EIO, ending=".log")
        results = await settle(flusher.flushed(bad, append(bad)), flusher.flushed(good, append(good)))
        assert isinstance(results[0], LogStoppedError)
        assert results[1] is None
        await flusher.close()

    run(scenario)


def test_an_error_that_nobody_expected_is_a_failed_flush_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        log = LogOnDisk().log
        flusher = GroupFlusher(1)
        future = flusher.flushed(log, append(log))
        monkeypatch.setattr(MemoryFile, "sync", lambda _: 1 / 0)
        (result,) = await settle(future)
        assert isinstance(result, LogStoppedError)
        assert log.stopped is not None
        await flusher.close()

    run(scenario)


# The log changes under a waiting answer. A future that nobody ends is an answer that never leaves.


def test_an_answer_comes_when_the_owner_has_flushed_by_itself() -> None:
    async def scenario() -> None:
        log = LogOnDisk().log
        flusher = GroupFlusher(1)
        future = flusher.flushed(log, append(log))
        log.flush()  # before the flusher gets its turn
        await flusher.close()
        assert future.done()

    run(scenario)


def cut(log: PartitionLog) -> None:
    log.truncate(0)


def cut_and_go_on(log: PartitionLog) -> None:
    log.truncate(0)
    append(log, b"another record at the same offset")


def begin_elsewhere(log: PartitionLog) -> None:
    log.start_over(100)


@pytest.mark.parametrize("change", [cut, cut_and_go_on, begin_elsewhere])
def test_an_answer_fails_when_its_records_are_cut(change: Callable[[PartitionLog], None]) -> None:
    async def scenario() -> None:
        log = LogOnDisk().log
        flusher = GroupFlusher(1)
        future = flusher.flushed(log, append(log))
        change(log)
        with pytest.raises(LogError, match="orders-0 was cut before these records were flushed"):
            await future
        await flusher.flushed(log, append(log))  # and the log goes on
        await flusher.close()

    run(scenario)


def test_an_answer_fails_when_its_records_are_cut_behind_a_flush_under_way() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        log = LogOnDisk(disk).log
        flusher = GroupFlusher(1)
        disk.close_gate()
        future = flusher.flushed(log, append(log))
        await disk.arrived.get()
        disk.gate.set()
        log.truncate(0)  # waits for the flush, which has brought the record to the disk in vain
        append(log)
        with pytest.raises(LogError, match="was cut"):
            await future
        await flusher.close()

    run(scenario)


def test_a_deleted_log_fails_those_who_wait() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        store = LogStore(disk, "data", store_config(), ManualClock(START_MS), lambda _: log_config())
        log = store.create(TopicPartition("orders", 0))
        flusher = GroupFlusher(1)
        future = flusher.flushed(log, append(log))
        store.delete(TopicPartition("orders", 0))
        (result,) = await settle(future)
        assert isinstance(result, LogStoppedError)
        await flusher.close()

    run(scenario)


def test_a_deleted_log_is_no_failure_of_the_disk() -> None:
    async def scenario() -> None:
        store = LogStore(MemoryDisk(), "data", store_config(), ManualClock(START_MS), lambda _: log_config())
        log = store.create(TopicPartition("orders", 0))
        told: list[LogStoppedError] = []
        flusher = GroupFlusher(1, lambda _, error: told.append(error))
        future = flusher.flushed(log, append(log))
        store.delete(TopicPartition("orders", 0))
        await settle(future)
        await flusher.close()
        assert told == []

    run(scenario)


def test_what_is_asked_for_while_the_flusher_closes_is_answered() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        log = LogOnDisk(disk).log
        flusher = GroupFlusher(1)
        disk.close_gate()
        first = flusher.flushed(log, append(log))
        await disk.arrived.get()
        late: list[asyncio.Future[None]] = []
        first.add_done_callback(lambda _: late.append(flusher.flushed(log, append(log))))
        closing = asyncio.ensure_future(flusher.close())
        await asyncio.wait({closing}, timeout=0)
        disk.gate.set()
        await closing
        assert late[0].done()

    run(scenario)
