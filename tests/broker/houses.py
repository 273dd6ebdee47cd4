"""A broker under test, without a door: on a disk in memory that can be slow, cold or broken; time is the test's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from random import Random

from odradek.broker.broker import Broker
from odradek.broker.limits import partition_config
from odradek.broker.watermarks import Watermarks
from odradek.clock import ManualClock
from odradek.config import Settings, load_settings
from odradek.controller.controller import Controller
from odradek.controller.files import DIRECTORY_NAME, read_image
from odradek.controller.registration import Identity, Registration
from odradek.disk.interface import Buffer
from odradek.disk.memory import MemoryDisk, MemoryFile
from odradek.log.store import LogStore
from odradek.records.build import build_batch
from odradek.records.header import iter_headers
from odradek.records.parse import parse_batch
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError
from tests.client.support import CONDITION_SECONDS

DATA = "data"
START_MS = 1_700_000_000_000


class SlowFile(MemoryFile):
    """A file of a `SlowDisk`."""

    slow: SlowDisk

    def sync(self) -> None:
        """Wait until the disk may flush; what is the broker's own, not a partition's, is not held up."""
        if self.path.endswith(".log") and DIRECTORY_NAME not in self.path.split("/"):
            self.slow.flushes_begun += 1
            assert self.slow.may_flush.wait(CONDITION_SECONDS), "nobody let the disk flush"
        super().sync()

    def read(self, length: int, at: int) -> bytes:
        """Wait until the disk may read."""
        if self.path.endswith(".log") and self.slow.is_cold:
            self.slow.reads_begun += 1
            assert self.slow.may_read.wait(CONDITION_SECONDS), "nobody let the disk read"
        return super().read(length, at)

    def read_cached(self, length: int, at: int) -> Buffer | None:
        """Nothing, if the disk is cold."""
        return None if self.slow.is_cold else super().read(length, at)


class SlowDisk(MemoryDisk):
    """A disk whose flushes and reads wait for the test, if it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.may_flush = threading.Event()
        self.may_flush.set()
        self.may_read = threading.Event()
        self.may_read.set()
        self.is_cold = False  # nothing is in memory: reads take a thread
        self.open_files_max = 100  # as if descriptors were used
        self.flushes_begun = 0
        self.reads_begun = 0

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        """Give a file that is as slow as the disk."""
        opened = super().open(path, create=create)
        file = SlowFile(self, path, opened._node)
        file.slow = self
        return file


class House:
    """A broker and what it stands on."""

    def __init__(self, broker: Broker, disk: SlowDisk, clock: ManualClock, settings: Settings) -> None:
        self.broker = broker
        self.disk = disk
        self.clock = clock
        self.settings = settings

    async def produce(self, topic: str, *values: bytes, partition: int = 0, key: bytes | None = None) -> int:
        """Append one batch, wait until it is safe, tell its first offset."""
        found = self.broker.partition(topic, partition)
        written = found.append(batch(*values, key=key))
        await self.broker.flushed(found, written.last_offset + 1)
        return written.base_offset


def batch(*values: bytes | None, key: bytes | None = None, timestamp: int = START_MS) -> bytearray:
    """A batch as a producer sends it."""
    return build_batch([NewRecord(value, key=key, timestamp=timestamp) for value in values])


def values_of(data: memoryview | bytes | bytearray | None) -> list[bytes | None]:
    """The values of all records in some batches."""
    return [record.value for at, _ in iter_headers(data or b"") for record in parse_batch(data or b"", at)]


def settings_of(settings: Mapping[str, object]) -> Settings:
    """Settings by their names with `_` for `.`."""
    named = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return load_settings(None, {}, {"log.flush.threads": "1", **named})


@asynccontextmanager
async def at_home(
    disk: SlowDisk | None = None, clock: ManualClock | None = None, **settings: object
) -> AsyncIterator[House]:
    """A broker while the block runs; with the disk of another one, that is its next life."""
    disk, clock = disk or SlowDisk(), clock or ManualClock(START_MS)
    all_settings = settings_of(settings)
    image, _, _ = read_image(disk, DATA)
    defaults = all_settings.with_overrides(image.broker_configs, "broker")
    store = LogStore(disk, DATA, all_settings.store_config(), clock, partial(partition_config, defaults, image))
    life = disk.life

    def stop(error: Exception) -> None:
        broker.stop_for(error)

    metadata = Controller(
        config=all_settings.controller_config(),
        quorum=all_settings.quorum_config(),
        disk=disk,
        directory=DATA,
        clock=clock,
        chance=Random(0),
        failed=stop,
    )
    broker = Broker(all_settings.broker_config(), all_settings, clock, metadata, store, Watermarks(disk, DATA))
    try:
        await metadata.start()
        broker.start()
        registration = Registration(
            metadata, Identity(broker.node_id, broker.incarnation, ("broker.example", 9092), None)
        )
        registration.start()
        await registration.unfenced.wait()
        await broker.hosting.settled()
        yield House(broker, disk, clock, all_settings)
    finally:
        disk.may_flush.set()
        disk.may_read.set()
        await registration.close()
        await metadata.close()
        await broker.close()
        if disk.life == life and not broker.failed.done():
            store.close()


async def refusal_of(action: asyncio.Future[object] | object) -> ErrorCode:
    """The error that something ends with."""
    try:
        if asyncio.iscoroutine(action) or isinstance(action, asyncio.Future):
            await action
    except PeerError as error:
        assert error.message, "an error without a word"
        return error.code
    return ErrorCode.NONE
