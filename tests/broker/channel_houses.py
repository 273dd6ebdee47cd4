"""A broker with channels under test, on stores that can go away, hold requests up, or fail in ways nobody foresaw."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

from odradek.broker.channel_stores import ChannelStores
from odradek.broker.channels import Channels
from odradek.broker.topics import Partition
from odradek.clock import ManualClock
from odradek.objects.errors import StoreUnavailableError
from odradek.objects.keys import parse_object_key
from odradek.objects.slices import Message, read_object
from odradek.objects.stores import ObjectInfo, ObjectStore, open_store
from odradek.records.record import NewRecord
from tests.broker.houses import START_MS, House, SlowDisk, at_home
from tests.client.support import CONDITION_SECONDS, until

QUICK = {"channel.window.ms": "1000", "channel.slice.ms": "20"}


class MoodyStore(ObjectStore):
    """A store that does as the test likes."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner.url)
        self.inner = inner
        self.failure: Exception | None = None  # of every request
        self.may_put = threading.Event()
        self.may_put.set()
        self.puts_begun = 0
        self.keys: list[str] = []  # in the order in which they were put

    def away(self) -> None:
        """Answer nothing from now on."""
        self.failure = StoreUnavailableError(f"{self.url} does not answer: look at the network")

    def back(self) -> None:
        """Answer again."""
        self.failure = None

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _put(self, key: str, parts: Sequence[bytes], only_new: bool) -> None:
        self._check()
        self.puts_begun += 1
        assert self.may_put.wait(CONDITION_SECONDS), "nobody let the store take it"
        self._check()
        self.inner._put(key, parts, only_new)
        self.keys.append(key)

    def _get(self, key: str) -> bytes:
        self._check()
        return self.inner._get(key)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        self._check()
        return self.inner._get_range(key, start, length)

    def _pages(self, prefix: str, after: str | None) -> Iterator[Sequence[ObjectInfo]]:
        self._check()
        return self.inner._pages(prefix, after)

    def _folders(self, prefix: str) -> Sequence[str]:
        self._check()
        return self.inner._folders(prefix)

    def _delete(self, keys: Sequence[str]) -> int:
        self._check()
        return self.inner._delete(keys)


class ChannelHouse:
    """A broker, its channels, and their stores."""

    def __init__(self, house: House, channels: Channels, stores: dict[str, MoodyStore]) -> None:
        self.house = house
        self.broker = house.broker
        self.clock = house.clock
        self.channels = channels
        self._stores = stores

    def store(self, url: str) -> MoodyStore:
        """The store of a URL, once it was opened."""
        return self._stores[url]

    def partition(self, name: str, index: int = 0) -> Partition:
        """A partition that is led here."""
        return self.broker.partition(name, index)

    def partition_here(self, name: str, index: int = 0) -> Partition:
        """A partition, whoever leads it."""
        return self.broker.replica(name, index)

    async def create(self, name: str, url: str, *, fifo: bool = False, partitions: int = 1, **overrides: str) -> None:
        """A channel with short slices; the broker has begun to look after it."""
        named = {key.replace("_", "."): value for key, value in overrides.items()}
        await self.channels.create(name, store=url, fifo=fifo, partitions=partitions, overrides={**QUICK, **named})
        uploaders = self.channels._uploaders[name].values()
        await until(lambda: all(uploader.frontier is not None for uploader in uploaders))

    async def publish(self, name: str, *values: bytes, timestamp: int = START_MS) -> tuple[int, int]:
        """Publish one batch."""
        return await self.channels.publish(name, [NewRecord(value, timestamp=timestamp) for value in values])


@asynccontextmanager
async def at_channels(
    disk: SlowDisk | None = None,
    clock: ManualClock | None = None,
    stores: dict[str, MoodyStore] | None = None,
    **settings: object,
) -> AsyncIterator[ChannelHouse]:
    """A broker with channels while the block runs; with the disk and the stores of another, its next life."""
    opened = {} if stores is None else stores

    def opener(url: str, timeout_ms: int) -> ObjectStore:
        if url not in opened:
            opened[url] = MoodyStore(open_store(url, timeout_ms=timeout_ms))
        return opened[url]

    async with at_home(disk, clock, **settings) as house:
        pool = ChannelStores(house.settings.objects_config(), opener)
        channels = Channels(house.broker, pool.config, house.disk, pool)
        channels.start()
        try:
            yield ChannelHouse(house, channels, opened)
        finally:
            for store in opened.values():
                store.may_put.set()
            await channels.close()
            pool.close()


def objects_in(store: ObjectStore, channel: str) -> dict[str, list[Message]]:
    """The objects of a channel, by key, and what they hold."""
    keys = [info.key for info in store.list(channel) if parse_object_key(info.key) is not None]
    return {key: read_object(store.get(key)) for key in keys}


def stored_in(store: ObjectStore, channel: str) -> list[Message]:
    """All messages that a channel has in its store, by sequence; one that is there twice comes twice."""
    return sorted(message for messages in objects_in(store, channel).values() for message in messages)


def values(messages: Sequence[Message]) -> list[bytes | None]:
    """What they say."""
    return [message.value for message in messages]
