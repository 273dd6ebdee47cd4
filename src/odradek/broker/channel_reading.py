"""Reads a channel by time, page by page: `GET /<channel>/<timestamp>?o=&n=` and those who wait for what comes next.

Nobody's position is kept; but where a reading has come to is remembered for a while, so that the next page does not
begin at its beginning again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from odradek.broker.broker import Broker
from odradek.broker.channel_scan import ANSWER_BYTES, Page, Scan, StoredMessage
from odradek.broker.channel_stores import ChannelStores
from odradek.broker.errors import CLIENT_FAULTS, peer_error
from odradek.broker.topics import Partition, Topic
from odradek.objects.errors import StoreError
from odradek.objects.spec import ChannelSpec
from odradek.wire.errors import ErrorCode, PeerError

_SCANS_MAX = 512  # that are remembered
_TWINS_MAX = 8  # of them that began alike: readers of the same time, each at its own place
_MERGED_MAX = 100_000  # messages of all partitions of a channel
_MERGED_BYTES = 64 << 20  # of them that are held at once

_Key = tuple[bytes, int, int]  # topic, partition, start; with the number of messages given it is one reading


class ChannelReading:
    """The readings of one broker's channels."""

    def __init__(
        self, broker: Broker, stores: ChannelStores, spec: Callable[[Topic], ChannelSpec], url: Callable[[Topic], str]
    ) -> None:
        self._broker = broker
        self._stores = stores
        self._spec = spec
        self._url = url
        self._scans: OrderedDict[tuple[_Key, int], Scan] = OrderedDict()  # nobody reads on with these, but with twins

    async def read(self, topic: Topic, start_ms: int, skip: int, count: int, wait_ms: int) -> list[StoredMessage]:
        """A page of messages; an empty one only after so many milliseconds."""
        image = self._broker.metadata.image.topics.get(topic.name)
        partitions = [self._broker.partition(topic.name, index) for index in sorted(image.partitions if image else ())]
        loop = asyncio.get_running_loop()
        deadline, moved = loop.time() + wait_ms / 1000, asyncio.Event()
        for partition in partitions:
            partition.wake_on_advance(moved.set)
        try:
            while True:
                moved.clear()
                if any(partition.is_gone for partition in partitions):
                    raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"channel {topic.name!r} was deleted")
                messages = await self._page(partitions, start_ms, skip, count)
                if messages or (seconds := deadline - loop.time()) <= 0:
                    return messages
                async with asyncio.timeout(seconds):
                    await moved.wait()
        except TimeoutError:
            return []
        finally:
            for partition in partitions:
                partition.forget(moved.set)

    async def _page(self, partitions: list[Partition], start_ms: int, skip: int, count: int) -> list[StoredMessage]:
        try:
            if len(partitions) == 1:
                return await self._read_one(partitions[0], start_ms, skip, count)
            return await self._read_many(partitions, start_ms, skip, count)
        except CLIENT_FAULTS as error:
            self._broker.heed(error)
            raise peer_error(error) from error
        except StoreError as error:
            raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    async def _read_one(
        self, partition: Partition, start_ms: int, skip: int, count: int, size_max: int = ANSWER_BYTES
    ) -> list[StoredMessage]:
        key = (partition.topic_id, partition.index, start_ms)
        scan = self._find(key, skip)
        if scan is None:
            scan = Scan(partition, self._spec(partition.topic), self._url(partition.topic), start_ms)
        page = Page(skip - scan.given, count, partition.index, size_max)
        await scan.read(page, self._stores)
        self._remember(key, scan)
        return page.messages

    def _find(self, key: _Key, skip: int) -> Scan | None:
        """A reading that goes on where this reader is, or as near before that as any.

        What was given before its bucket was over depends on when it was read: another reading of that time may have
        given other messages. So what is here stays for other readers who are at the same place.
        """
        places = [each for each in self._scans if each[0] == key and each[1] <= skip]
        place = max(places, key=lambda each: each[1], default=None)
        if place is None:
            return None
        scan = self._scans.pop(place)
        if scan.is_void:
            return self._find(key, skip)
        twin = scan.twin()
        if twin is not None:
            self._scans[place] = scan
        return twin or scan

    def _remember(self, key: _Key, scan: Scan) -> None:
        """Keep a reading; of too many, those go that were not asked for the longest."""
        self._scans[key, scan.given] = scan
        self._scans.move_to_end((key, scan.given))
        alike = [each for each in self._scans if each[0] == key]
        for each in alike[: max(len(alike) - _TWINS_MAX, 0)]:
            del self._scans[each]
        while len(self._scans) > _SCANS_MAX:
            self._scans.popitem(last=False)

    async def _read_many(
        self, partitions: list[Partition], start_ms: int, skip: int, count: int
    ) -> list[StoredMessage]:
        """Merge partitions: the first messages of all are among the first of each."""
        if skip + count > _MERGED_MAX:
            raise PeerError(
                ErrorCode.INVALID_REQUEST,
                f"of a channel with {len(partitions)} partitions at most {_MERGED_MAX} messages are read from one time "
                "on: read from a later time, or one partition after another as a topic",
            )
        window_ms = self._spec(partitions[0].topic).window_ms

        def order(message: StoredMessage) -> tuple[int, int, int]:
            return message.timestamp - message.timestamp % window_ms, message.offset, message.partition

        found: list[StoredMessage] = []
        known_to: list[tuple[int, int, int]] = []  # in partitions that were not read as far as was asked for
        for partition in partitions:
            size_max = _MERGED_BYTES // len(partitions)
            some = await self._read_one(partition, start_ms, 0, skip + count, size_max)
            found += some
            if len(some) < skip + count and _size_of(some) >= size_max:
                known_to.append(max(map(order, some)))
        found.sort(key=order)
        if known_to:
            found = [message for message in found if order(message) <= min(known_to)]
            if len(found) <= skip:
                raise PeerError(
                    ErrorCode.INVALID_REQUEST,
                    f"the {skip} messages to be skipped are too large to be put in order with the other partitions': "
                    "read from a later time, or one partition after another as a topic",
                )
        answer = found[skip : skip + count]
        while len(answer) > 1 and _size_of(answer) > ANSWER_BYTES:
            del answer[len(answer) // 2 :]
        return answer


def _size_of(messages: list[StoredMessage]) -> int:
    return sum([len(message.value or b"") + len(message.key or b"") for message in messages])
