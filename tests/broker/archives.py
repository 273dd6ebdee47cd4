"""A broker that archives into a store in memory or in a directory, which can be away; the test begins each round."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from odradek.broker.archive_reading import ArchiveReader
from odradek.broker.archiving import Archiving
from odradek.broker.channel_stores import ChannelStores
from odradek.broker.housekeeping import Housekeeping
from odradek.broker.topics import Partition
from odradek.objects.archive import ArchivedSegment, archived_segments
from odradek.objects.errors import StoreUnavailableError
from odradek.objects.stores import ObjectInfo, ObjectStore, open_store
from tests.broker.houses import START_MS, House, at_home, batch

TOPIC = "orders"
SEGMENT_BYTES = 1_500
RECORD_BYTES = 600
ARCHIVED = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT_BYTES), "local.retention.bytes": "1"}
_names = itertools.count()


class MoodyStore(ObjectStore):
    """A store that is away, or goes away after some requests that change it."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store.url)
        self.store = store
        self.is_away = False
        self.changes_left: int | None = None  # before it goes away; None: it does not

    def _ask(self, *, changes: bool = False) -> None:
        if changes and self.changes_left is not None:
            self.is_away = self.changes_left <= 0
            self.changes_left -= 1
        if self.is_away:
            raise StoreUnavailableError(f"{self.url} does not answer")

    def come_back(self) -> None:
        self.is_away, self.changes_left = False, None

    def _put(self, key: str, parts: Sequence[bytes], only_new: bool) -> None:
        self._ask(changes=True)
        self.store.put(key, list(parts), only_new=only_new)

    def _get(self, key: str) -> bytes:
        self._ask()
        return self.store.get(key)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        self._ask()
        return self.store.get_range(key, start, length)

    def _pages(self, prefix: str, after: str | None) -> Iterator[Sequence[ObjectInfo]]:
        self._ask()
        yield list(self.store.list(prefix, after=after))

    def _folders(self, prefix: str) -> Sequence[str]:
        self._ask()
        return self.store.folders(prefix)

    def _delete(self, keys: Sequence[str]) -> int:
        self._ask(changes=True)
        return self.store.delete(keys)


class Keeper(NamedTuple):
    """A broker, and what it archives with."""

    house: House
    archiving: Archiving
    housekeeping: Housekeeping
    store: MoodyStore

    def objects(self) -> list[str]:
        """The keys of all objects in the store."""
        return [info.key for info in self.store.store.list("")]

    def segments(self, topic: str = TOPIC) -> list[ArchivedSegment]:
        """What somebody without a broker finds."""
        return archived_segments(self.store.store, topic)

    @property
    def partition(self) -> Partition:
        return self.house.broker.partition(TOPIC, 0)

    async def fill(self, count: int, *, first: int = 0, overrides: Mapping[str, str] | None = None) -> Partition:
        """Produce numbered records, one a batch and about two a segment, a second apart."""
        if TOPIC not in self.house.broker.topics:
            await self.house.broker.create_topic(TOPIC, 1, {**ARCHIVED, **(overrides or {})})
        partition = self.partition
        for number in range(first, first + count):
            made = batch(value(number), timestamp=START_MS + number * 1_000)
            written = partition.append(made)
            await self.house.broker.flushed(partition, written.last_offset + 1)
        return partition

    async def archive(self) -> None:
        """Archive all that can be, then drop from the disk what may go."""
        await self.archiving.run_once()
        await self.housekeeping.expire()


def value(number: int) -> bytes:
    """What stands in the record of this offset."""
    return (b"%06d" % number).ljust(RECORD_BYTES, b".")


def new_url() -> str:
    """A store in memory that nobody has used."""
    return f"memory://kept-{next(_names)}"


@asynccontextmanager
async def keeping(url: str | None = None, house: House | None = None, **settings: object) -> AsyncIterator[Keeper]:
    """A broker that archives; with the disk and store of another one, that is its next life."""
    disk, clock = (None, None) if house is None else (house.disk, house.clock)
    async with (
        at_home(disk, clock, **{"store_url": url or new_url(), **settings}) as home,
        archiving_in(home) as keeper,
    ):
        yield keeper


@asynccontextmanager
async def archiving_in(house: House) -> AsyncIterator[Keeper]:
    """Let a broker archive into its store."""
    config = house.settings.objects_config()
    moody = MoodyStore(open_store(config.store_url))
    stores = ChannelStores(config, lambda _url, _timeout_ms: moody)
    house.broker.archive = ArchiveReader(stores, config.store_url)
    archiving, housekeeping = Archiving(house.broker, config, stores), Housekeeping(house.broker)
    try:
        yield Keeper(house, archiving, housekeeping, moody)
    finally:
        await archiving.close()
        await housekeeping.close()
        stores.close()
