"""A full disk and a flush that fails: a clear error, the log stops, what was acknowledged is there afterwards."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest

from odradek.disk.memory import MemoryDisk
from odradek.log.errors import LogStoppedError
from odradek.log.flusher import GroupFlusher
from odradek.log.log import PartitionLog
from tests.log.support import LogOnDisk, batch, values_of


def _with_acknowledged(disk: MemoryDisk, count: int = 5) -> LogOnDisk:
    on_disk = LogOnDisk(disk, segment_bytes=1024)
    for number in range(count):
        on_disk.log.append(batch(b"acknowledged %d" % number))
    on_disk.log.flush()
    return on_disk


def _acknowledged(count: int = 5) -> list[bytes]:
    return [b"acknowledged %d" % number for number in range(count)]


@pytest.mark.parametrize("room", range(0, 200, 7))
def test_a_full_disk_is_named_and_takes_nothing_that_was_acknowledged(room: int) -> None:
    disk = MemoryDisk()
    on_disk = _with_acknowledged(disk)
    disk.capacity_bytes = 0
    disk.capacity_bytes = _used(disk) + room
    with pytest.raises(LogStoppedError, match="no space is left on the device; free some and start again"):
        for _ in range(4):
            on_disk.log.append(batch(bytes(100)))
    with pytest.raises(LogStoppedError, match=r"data/orders-0 takes no more records"):
        on_disk.log.append(batch(b"later"))
    assert values_of(on_disk.log)[:5] == _acknowledged(), "what is there can still be read"
    disk.capacity_bytes = None
    disk.crash(random.Random(room))
    log = on_disk.open()
    assert values_of(log)[:5] == _acknowledged()
    log.append(batch(b"goes on"))
    log.flush()
    assert values_of(log)[-1] == b"goes on"


def _used(disk: MemoryDisk) -> int:
    """How many bytes lie on a disk."""
    disk.capacity_bytes = 1 << 40
    return (1 << 40) - disk.room()


@pytest.mark.parametrize("seed", range(20))
def test_a_failing_flush_stops_the_log_and_is_never_tried_again(seed: int) -> None:
    disk = MemoryDisk()
    on_disk = _with_acknowledged(disk)
    on_disk.log.append(batch(b"in doubt"))
    disk.fail_next("flush", errno.EIO, ending=".log")
    with pytest.raises(LogStoppedError, match=r"cannot flush data/orders-0/0+\.log: Input/output error"):
        on_disk.log.flush()
    with pytest.raises(LogStoppedError):
        on_disk.log.flush()
    with pytest.raises(LogStoppedError):
        on_disk.log.append(batch(b"later"))
    assert on_disk.log.flushed_offset == 5
    disk.crash(random.Random(seed))
    assert values_of(on_disk.open())[:5] == _acknowledged()


@pytest.mark.parametrize(
    ("action", "ending"),
    [
        ("append to", ".log"),
        ("create", ".log"),
        ("flush", ".log"),
        ("flush", ".index"),
        ("flush directory", "orders-0"),
        ("write", "recovery-point"),
        ("write", "leader-epoch-checkpoint"),
        ("append to", ".snapshot.tmp"),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_whatever_fails_the_log_stops_and_keeps_its_promises(action: str, ending: str, seed: int) -> None:
    disk = MemoryDisk()
    on_disk = LogOnDisk(disk, segment_bytes=1024, index_interval_bytes=100)
    acknowledged = 0
    disk.fail_next(action, errno.EIO, ending=ending)
    with pytest.raises(LogStoppedError, match=r"cannot .*orders-0.*: Input/output error"):
        for number in range(100):
            on_disk.log.append(batch(b"%d" % number, bytes(200)), leader_epoch=number // 40)
            on_disk.log.flush()
            acknowledged += 1
    assert on_disk.log.stopped is not None
    disk.crash(random.Random(seed))
    log = on_disk.open()
    assert values_of(log)[0 : 2 * acknowledged : 2] == [b"%d" % number for number in range(acknowledged)]
    log.append(batch(b"goes on"), leader_epoch=9)
    log.flush()


def test_those_who_wait_for_a_flush_that_fails_are_told() -> None:
    disk = MemoryDisk()
    on_disk = _with_acknowledged(disk)
    failed: list[PartitionLog] = []

    async def wait() -> None:
        flusher = GroupFlusher(1, lambda log, _: failed.append(log))
        disk.fail_next("flush", errno.EIO, ending=".log")
        waiting = [
            flusher.flushed(on_disk.log, on_disk.log.append(batch(b"in doubt")).last_offset + 1) for _ in range(10)
        ]
        for future in waiting:
            with pytest.raises(LogStoppedError, match="Input/output error"):
                await future
        with pytest.raises(LogStoppedError):
            await flusher.flushed(on_disk.log, 100)
        await flusher.close()

    asyncio.run(wait())
    assert failed == [on_disk.log]
    assert on_disk.log.flushed_offset == 5
