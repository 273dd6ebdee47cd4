"""Removes the objects of channels that were deleted, in the background and until it is done.

What is still to do stands in the file `metadata/channel-deletions`, so that a broker that is stopped meanwhile goes on
at its next start, and a store that is away is only asked later.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from odradek.broker.channel_stores import ChannelStores, end_tasks
from odradek.disk.errors import DiskError
from odradek.disk.interface import Disk
from odradek.objects.channels import delete_channel
from odradek.objects.errors import StoreError
from odradek.objects.stores import ObjectStore

FILE_NAME = "channel-deletions"
_PAUSE_SECONDS = 1.0
_PAUSE_SECONDS_MAX = 60.0

logger = logging.getLogger(__name__)


class Deleted(NamedTuple):
    """A channel whose objects are to go."""

    url: str
    name: str
    topic_id: str


class Deletions:
    """The deletions of one broker, one after another."""

    def __init__(self, disk: Disk, directory: str, stores: ChannelStores) -> None:
        self._disk = disk
        self._path = f"{directory}/metadata/{FILE_NAME}"
        self._stores = stores
        self._pending = self._load()
        self._writers: dict[Deleted, list[asyncio.Task[None]]] = {}  # what still writes into a channel
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Go on with what was left."""
        if self._pending and self._task is None:
            self._task = asyncio.create_task(self._run())

    def add(self, channel: Deleted, after: Iterable[asyncio.Task[None]]) -> None:
        """Delete a channel's objects when these tasks, which write some, have ended."""
        self._pending.append(channel)
        self._writers[channel] = list(after)
        self._save()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def idle(self) -> None:
        """Wait until nothing is left to be deleted."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Stop; the next start goes on."""
        if self._task is not None:
            await end_tasks([self._task])

    async def _run(self) -> None:
        pause = _PAUSE_SECONDS
        while self._pending:
            channel = self._pending[0]
            if writers := self._writers.pop(channel, None):
                await asyncio.wait(writers)
            try:
                count = await self._stores.run(channel.url, partial(_delete, channel))
            except Exception as error:
                told = logger.warning if isinstance(error, StoreError) else logger.exception
                told("the objects of channel %s stay in %s for now: %s", channel.name, channel.url, error)
                self._pending.append(self._pending.pop(0))  # the others do not wait for it
                await asyncio.sleep(pause)
                pause = min(pause * 2, _PAUSE_SECONDS_MAX)
                continue
            logger.info("channel %s is deleted, with %d objects in %s", channel.name, count, channel.url)
            self._pending.remove(channel)
            self._save()
            pause = _PAUSE_SECONDS

    def _load(self) -> list[Deleted]:
        try:
            return [Deleted(*map(str, each)) for each in json.loads(self._disk.read_file(self._path) or b"[]")]
        except (ValueError, TypeError, DiskError) as error:
            logger.warning("%s cannot be read; objects of deleted channels may stay: %s", self._path, error)
            return []

    def _save(self) -> None:
        try:
            self._disk.write_atomic(self._path, json.dumps(self._pending).encode() + b"\n", durable=False)
        except DiskError as error:
            logger.warning("%s is not written; if the broker stops now, objects may stay: %s", self._path, error)


def _delete(channel: Deleted, store: ObjectStore) -> int:
    """Delete all objects of a channel, unless there is another one of this name by now."""
    return delete_channel(store, channel.name, channel.topic_id)
