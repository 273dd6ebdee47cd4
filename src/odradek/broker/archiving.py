"""Copying closed segments into the object store, and letting the old ones go (tiered storage, after KIP-405).

The leader of a partition copies what is closed, flushed and committed, oldest first, if its checksums are right, and
announces each segment to the controller when all its objects are there. Only then may a disk drop it
(`Partition.droppable_end`). Retention forgets in the metadata first and deletes objects afterwards. So whatever dies in
between leaves objects too many, never too few; a new leader deletes those that nobody has announced and nobody can
announce any more: they lie before the end of what it knows to be archived, so that a leader that lags behind deletes
nothing of its successor's. The active controller deletes what deleted topics left.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from math import inf

from odradek.broker.archive_reading import segment_of
from odradek.broker.archive_rules import expired_pieces, store_problem
from odradek.broker.broker import Broker
from odradek.broker.channel_stores import ChannelStores
from odradek.broker.objects_config import ObjectsConfig
from odradek.broker.topics import Partition
from odradek.controller.image_archive import Piece
from odradek.disk.errors import DiskError
from odradek.log.errors import LogError
from odradek.log.segment import Segment
from odradek.model import Offset
from odradek.objects.archive import delete_archive, delete_segments, put_segment, stray_keys
from odradek.objects.errors import StoreError, StoreUnavailableError
from odradek.objects.stores import ObjectStore
from odradek.records.errors import RecordError
from odradek.wire.errors import PeerError

PIECE_BYTES_MAX = 32 << 20  # of one object: it is in memory while it is put; a larger segment becomes several
UPLOADS_MAX = 4  # at the same time
CLOSE_SECONDS_MAX = 5.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Term:
    """A partition that this broker leads."""

    leader_epoch: int
    known: set[Piece]  # those whose objects are there; of those that the metadata know no more, they must go
    tidy_end: float = 0  # before it the store has nothing left of what earlier leaders did not finish; inf: nowhere


class Archiving:
    """The archived topics of one broker. One round at a time, and in it one upload of a partition at a time."""

    def __init__(self, broker: Broker, config: ObjectsConfig, stores: ChannelStores) -> None:
        self._broker = broker
        self._config = config
        self._stores = stores
        self._terms: dict[tuple[bytes, int], _Term] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_away = False  # the store did not answer; said once
        self._refused: set[str] = set()  # what cannot be archived; said once

    def start(self) -> None:
        """Begin the rounds."""
        self._task = asyncio.create_task(self._repeat())

    async def close(self) -> None:
        """Stop after the request under way, if it does not take long."""
        if self._task is not None:
            self._task.cancel()
            _, hanging = await asyncio.wait([self._task], timeout=CLOSE_SECONDS_MAX)
            if hanging:
                self._task.cancel()  # what it waits for is left to its thread
                await asyncio.wait([self._task])

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(self._config.remote_log_manager_task_interval_ms / 1000)
            try:
                await self.run_once()
            except Exception:
                logger.exception("a bug in archiving; it is tried again")

    async def run_once(self) -> None:
        """One round over all partitions that are led here, then over what deleted topics have left."""
        led = [each for each in self._broker.hosting.partitions() if each.is_leader and _concerns(each)]
        keys = {(each.topic_id, each.index) for each in led}
        self._terms = {key: term for key, term in self._terms.items() if key in keys}
        try:
            await self._tend_all(led)
            if self._broker.metadata.is_active:
                await self._delete_doomed()
        except StoreUnavailableError as error:
            if not self._is_away:
                logger.warning("the archive is away, and tried again until it is back: %s", error)
            self._is_away = True
            return
        if self._is_away and (led or self._broker.metadata.image.doomed_archives):
            logger.info("the archive is back")
            self._is_away = False

    async def _tend_all(self, led: list[Partition]) -> None:
        """Look after each partition, a few at a time; StoreUnavailableError when the store is away."""
        remaining = iter(led)

        async def work() -> None:
            for partition in remaining:
                await self._tend_safely(partition)

        workers = min(UPLOADS_MAX, self._config.store_threads, len(led))
        for result in await asyncio.gather(*(work() for _ in range(workers)), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _tend_safely(self, partition: Partition) -> None:
        problem = store_problem(self._config, stands_alone=self._broker.stands_alone)
        try:
            if problem is not None:
                raise StoreError(problem)
            await self._tend(partition)
        except StoreUnavailableError:
            raise
        except (StoreError, LogError, DiskError, RecordError) as error:
            self._broker.heed(error)
            said = f"{partition.tp}: {error}"
            if said not in self._refused:
                logger.error("%s is not archived any further: %s", partition.tp, error)
                self._refused.add(said)
        except PeerError as error:  # another leads by now, or the controller is away
            logger.info("archiving %s goes on later: %s", partition.tp, error)

    async def _tend(self, partition: Partition) -> None:
        key, epoch = (partition.topic_id, partition.index), partition.leader_epoch
        term = self._terms.get(key)
        if term is None or term.leader_epoch != epoch:
            term = self._terms[key] = _Term(epoch, set())
        term.known.update(_pieces(partition))  # also those whose announcement had no answer
        if partition.topic.is_archived:
            await self._upload(partition, term)
        await self._delete_strays(partition, term)
        await self._forget_old(partition, term)
        await self._delete_forgotten(partition, term)

    # Copying.

    async def _upload(self, partition: Partition, term: _Term) -> None:
        log, first = partition.log, _archived_end(partition)
        if log.stopped is None and log.segments[-1].base_offset > log.flushed_segment:
            self._broker.flusher.request(log)  # where producers do not wait for it, nobody else may
        begin = first
        while (found := next_closed(partition, begin)) is not None and self._leads(partition, term):
            segment, begin = found
            piece = await self._put(partition, segment, begin)
            if piece is None:
                begin = segment.next_offset  # all that it had from there on was compacted away
                continue
            if piece.base_offset < log.log_start:
                term.tidy_end = 0  # somebody has deleted its first records meanwhile: it is cut anew
                continue
            await self._change("archive-segment", partition, term, piece._asdict())
            term.known.add(piece)
            begin = piece.end_offset
        if _archived_end(partition) > first:
            logger.info("%s is archived from offset %d to %d", partition.tp, first, _archived_end(partition))

    async def _put(self, partition: Partition, segment: Segment, begin: Offset) -> Piece | None:
        """Put what a segment has from an offset on, as far as one object may reach; None if it has nothing."""
        topic, topic_id, index = partition.tp.topic, partition.topic_id.hex(), partition.index

        def work(store: ObjectStore) -> Piece | None:
            chunk = segment.read(begin, PIECE_BYTES_MAX, segment.next_offset)
            if chunk is None or not chunk.data:
                return None
            data, end = bytes(chunk.data), chunk.next_offset
            archived, indexed = put_segment(store, topic, topic_id, index, begin, end, data)
            return Piece(begin, end, archived.size_bytes, indexed.max_timestamp)

        segment.hold()
        try:
            return await self._stores.run(self._config.store_url, work)
        finally:
            segment.release()

    def _leads(self, partition: Partition, term: _Term) -> bool:
        return partition.is_leader and partition.leader_epoch == term.leader_epoch and not self._broker.is_fenced

    # Letting go.

    async def _forget_old(self, partition: Partition, term: _Term) -> None:
        """Let retention have the oldest pieces, and all of them if the disk has dropped what came behind them."""
        archive, log = partition.archive, partition.log
        if archive is None or not archive.pieces:
            return
        # Archiving was turned off, and the disk's own retention went on. Else it is the disk that has lost something.
        if archive.end < log.log_start and not partition.topic.is_archived:
            await self._change("forget-archived", partition, term, {"start": log.log_start})
            return
        values = self._broker.settings.with_overrides(partition.topic.overrides).values
        behind = sum(segment.size_bytes for segment in log.segments if segment.base_offset >= archive.end)
        count = expired_pieces(archive.pieces, behind, values, self._broker.clock.now_ms())
        if count:
            start = archive.pieces[count - 1].end_offset
            await self._change("forget-archived", partition, term, {"start": start})
            logger.info("%s now begins at offset %d", partition.tp, partition.log_start)

    async def _delete_forgotten(self, partition: Partition, term: _Term) -> None:
        """Delete the objects of what the metadata know no more: by retention, or because a client asked for it."""
        gone = term.known - set(_pieces(partition))
        if gone and self._leads(partition, term):
            segments = [segment_of(partition, piece) for piece in sorted(gone)]
            await self._stores.run(self._config.store_url, partial(delete_segments, segments=segments))
            term.known -= gone

    async def _delete_strays(self, partition: Partition, term: _Term) -> None:
        """Delete what uploads have left that were not finished, by this broker in an earlier life or by another.

        What lies behind the archive may be announced yet, or be by now: it is looked at again when that has grown.
        """
        topic, topic_id, index = partition.tp.topic, partition.topic_id.hex(), partition.index
        end, known = _archived_end(partition), [segment_of(partition, piece) for piece in _pieces(partition)]
        if end <= term.tidy_end:
            return

        def work(store: ObjectStore) -> tuple[int, bool]:
            strays = stray_keys(store, topic, topic_id, index, known)
            keys = [key for base, key in strays if base < end]
            return (store.delete(keys) if keys else 0), len(keys) == len(strays)

        count, is_all = await self._stores.run(self._config.store_url, work)
        term.tidy_end = inf if is_all else end
        if count:
            logger.info("%s: %d objects of unfinished uploads are deleted from the archive", partition.tp, count)

    async def _delete_doomed(self) -> None:
        """Delete what deleted topics left; those that had nothing left in this round are done.

        Not at the first look: a leader that has not heard of it yet may be putting objects still.
        """
        for topic_id, name in list(self._broker.metadata.image.doomed_archives.items()):
            work = partial(delete_archive, topic=name, topic_id=topic_id)
            try:
                count = await self._stores.run(self._config.store_url, work)
                if not count:
                    await self._broker.change("archive-deleted", {"topic_id": topic_id})
            except PeerError as error:
                logger.info("the archive of the deleted topic %s is looked at again: %s", name, error)
                continue
            if count:
                logger.info("%d archived objects of the deleted topic %s are deleted", count, name)

    async def _change(self, command: str, partition: Partition, term: _Term, args: dict[str, int]) -> None:
        place = {"topic_id": partition.topic_id.hex(), "partition": partition.index, "leader_epoch": term.leader_epoch}
        await self._broker.change(command, {**place, **args})


def _concerns(partition: Partition) -> bool:
    return partition.topic.is_archived or partition.archive is not None


def _pieces(partition: Partition) -> tuple[Piece, ...]:
    return () if partition.archive is None else partition.archive.pieces


def _archived_end(partition: Partition) -> Offset:
    return 0 if partition.archive is None else partition.archive.end


def next_closed(partition: Partition, begin: Offset) -> tuple[Segment, Offset] | None:
    """The segment to copy next, and from where; None if there is none that is closed, flushed and committed."""
    log = partition.log
    if log.stopped is not None:
        return None
    begin = max(begin, log.log_start)
    safe = min(partition.last_stable_offset, log.flushed_segment)
    for segment in log.segments[:-1]:
        if segment.size_bytes and segment.next_offset > begin:
            return (segment, max(begin, segment.base_offset)) if segment.next_offset <= safe else None
    return None
