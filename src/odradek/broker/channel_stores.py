"""The object stores that a broker's channels live in, and the threads that talk to them.

A store is opened when a channel needs it first, in a thread, and kept: a broker without channels has neither threads
nor the library for stores in its memory. Requests wait in threads of their own, so that a store that hangs holds up
neither the loop nor the flushes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar
from urllib.parse import unquote

from odradek.broker.objects_config import ObjectsConfig, TopicObjects
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import SCHEMES, ObjectStore, open_store
from odradek.wire.errors import ErrorCode, PeerError

_HANGING_SECONDS = 0.2

_Result = TypeVar("_Result")
Opener = Callable[[str, int], ObjectStore]  # a URL, and the milliseconds that a request may take


def _open(url: str, timeout_ms: int) -> ObjectStore:
    return open_store(url, timeout_ms=timeout_ms)


class ChannelStores:
    """Stores by URL; its coroutines are called on the loop, the stores are used in threads."""

    def __init__(self, config: ObjectsConfig, opener: Opener = _open) -> None:
        self.config = config
        self._opener = opener
        self._opening = threading.Lock()
        self._stores: dict[str, ObjectStore] = {}
        self._threads: ThreadPoolExecutor | None = None  # each does one thing for one channel
        self._putters: ThreadPoolExecutor | None = None  # the requests of one that wants to send several

    @property
    def is_used(self) -> bool:
        """Whether anything was asked of a store yet."""
        return self._threads is not None

    async def run(self, url: str, work: Callable[[ObjectStore], _Result], *, only_reads: bool = False) -> _Result:
        """Do something with a store in a thread, and wait for its end, also when cancelled, unless twice.

        What only reads is left to its thread at once: a store that hangs must not keep a broker from stopping.
        """
        if self._threads is None:
            threads = self.config.store_threads
            self._threads = ThreadPoolExecutor(threads, thread_name_prefix="channel")
            self._putters = ThreadPoolExecutor(threads, thread_name_prefix="channel-put")
        job = self._threads.submit(lambda: work(self._store(url)))
        future = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_forget)
            if not job.cancel() and not only_reads:
                await asyncio.wait([future])
            raise

    def _store(self, url: str) -> ObjectStore:
        with self._opening:
            store = self._stores.get(url)
            if store is None:
                store = self._stores[url] = self._opener(url, self.config.channel_timeout_ms)
            return store

    def run_all(self, jobs: list[Callable[[], None]]) -> None:
        """Do all of these at the same time, as far as there are threads; called in one. The first error is raised."""
        if len(jobs) < 2 or self._putters is None:
            for job in jobs:
                job()
            return
        futures: list[Future[None]] = [self._putters.submit(job) for job in jobs]
        wait(futures)
        for future in futures:
            future.result()

    def close(self) -> None:
        """Begin nothing more; what hangs in a thread is not waited for."""
        for threads in (self._threads, self._putters):
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)


async def end_tasks(tasks: Sequence[asyncio.Task[None]]) -> None:
    """End tasks that use stores; one whose request hangs is not waited for."""
    for task in tasks:
        task.cancel()
    if tasks:
        _, hanging = await asyncio.wait(tasks, timeout=_HANGING_SECONDS)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _forget(future: asyncio.Future[_Result]) -> None:
    """Nobody wants to know any more how it ended."""
    if not future.cancelled():
        future.exception()


def spec_of(name: str, topic_id: bytes, settings: TopicObjects) -> ChannelSpec:
    """What readers without a broker are told of a channel; PeerError if it cannot be one."""
    try:
        return ChannelSpec(
            name=name,
            id=topic_id.hex(),
            window_ms=settings.channel_window_ms,
            slice_ms=settings.channel_slice_ms,
            slice_bytes=settings.channel_slice_bytes,
            grace_ms=settings.channel_grace_ms,
            fifo=settings.channel_fifo,
            retention_ms=settings.channel_retention_ms,
        )
    except ValueError as error:
        raise PeerError(ErrorCode.INVALID_CONFIG, str(error)) from error


def check_place(url: str, config: ObjectsConfig, *, stands_alone: bool) -> None:
    """Refuse a store that a channel of this broker cannot have: the brokers' own machines are not the clients' to use.

    A directory is taken only if it is the one of `store.url` or lies in it, and in a cluster only one that all share.
    """
    scheme, pieces = _parts(url)
    if scheme not in SCHEMES:
        kinds = ", ".join(f"{each}://" for each in SCHEMES)
        raise PeerError(
            ErrorCode.INVALID_CONFIG, f"{url!r} is not the URL of an object store: these begin with {kinds}"
        )
    if any(piece.startswith("!") for piece in pieces):
        raise PeerError(ErrorCode.INVALID_CONFIG, f"{url}: a folder that begins with ! is the broker's own")
    if scheme not in ("file", "memory"):
        return
    if not stands_alone and (scheme == "memory" or _lies_in_own(url, config)):
        raise PeerError(
            ErrorCode.INVALID_CONFIG,
            f"no other broker of the cluster can read {url}: start all of them with the same store.url, of a store "
            "that they share",
        )
    if scheme == "file" and not _lies_in(url, config.store_url):
        raise PeerError(
            ErrorCode.INVALID_CONFIG,
            f"{url} is a directory of the broker's machine outside of its store.url ({config.store_url}): leave the "
            "store out, or start the broker with another store.url",
        )


def _lies_in_own(url: str, config: ObjectsConfig) -> bool:
    return config.store_is_own and _lies_in(url, config.store_url)


def _lies_in(url: str, parent: str) -> bool:
    (scheme, here), (other, there) = _parts(url), _parts(parent)
    return scheme == other and ".." not in here and here[: len(there)] == there


def _parts(url: str) -> tuple[str, list[str]]:
    """The scheme, and the pieces of the path; taken apart just as `open_store` does it, where `?` is a letter."""
    scheme, _, path = url.partition("://")
    return scheme.lower(), [piece for piece in unquote(path).split("/") if piece not in ("", ".")]
