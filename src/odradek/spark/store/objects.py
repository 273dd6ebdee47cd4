"""What a task does to read a channel: fetches objects from the store, some ahead of time, and decodes them into Arrow.

Objects are plain record batches, so the decoder is that of reads from a broker.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from odradek.model import TopicPartition
from odradek.objects.errors import ObjectMissingError
from odradek.objects.stores import ObjectStore
from odradek.records.errors import RecordError
from odradek.spark.collector import leave_modules_alone
from odradek.spark.errors import DataLossError, SparkError
from odradek.spark.read.decode import ROWS_MAX, decode
from odradek.spark.read.scan import OFFSET_MAX, Scan, scan
from odradek.spark.store.opening import PATIENCE_S, asked, opened
from odradek.spark.store.options import ALWAYS, StoreTarget, TimeRange
from odradek.spark.store.pieces import StoredObject, Unit

THREADS = 8  # requests under way: one alone would wait for the store most of the time
AHEAD_BYTES_MAX = 64 * 1024 * 1024
ROWS_WANTED = ROWS_MAX // 4  # smaller Arrow batches are put together: each costs Spark as much as a thousand rows
BYTES_WANTED = 8 * 1024 * 1024  # enough, however few the rows

logger = logging.getLogger(__name__)


def read_units(
    target: StoreTarget,
    channel: str,
    units: Sequence[Unit],
    columns: tuple[str, ...],
    times: TimeRange,
    *,
    fail_on_data_loss: bool,
) -> Iterator[pa.RecordBatch]:
    """The records of some objects with times in a range, in order."""
    leave_modules_alone()
    return together(_read_units(target, channel, units, columns, times, fail_on_data_loss))


def _read_units(
    target: StoreTarget,
    channel: str,
    units: Sequence[Unit],
    columns: tuple[str, ...],
    times: TimeRange,
    fail_on_data_loss: bool,
) -> Iterator[pa.RecordBatch]:
    times_ms = None if times == ALWAYS else (times.start_ms, times.end_ms)
    wanted = [one for unit in units for one in unit.objects]
    fetched = _fetched(target, wanted)
    for unit in units:
        partition = TopicPartition(channel, unit.partition)
        position = 0  # what a slice has of a publisher ascends: should two objects overlap, each record comes once
        for one in unit.objects:
            data = next(fetched)
            if data is None:
                _lost(target, one.key, fail_on_data_loss)
                continue
            try:
                scanned = _scan_whole(data)
                yield from decode(scanned, partition, position, OFFSET_MAX, columns, times_ms)
            except RecordError as error:
                raise SparkError(f"the object {one.key} of {target.url} cannot be read: {error}") from error
            position = max(position, scanned.next_offset)


def _scan_whole(data: bytes) -> Scan:
    scanned = scan(memoryview(data), 0, OFFSET_MAX)
    if scanned.size_bytes != len(data) or not data:
        raise RecordError(f"it ends in the middle of a batch, behind byte {scanned.size_bytes} of {len(data)}")
    return scanned


def _fetched(target: StoreTarget, wanted: Sequence[StoredObject]) -> Generator[bytes | None]:
    """The bytes of objects, in order; None for one that is not there. Some are asked for ahead of time."""
    store = opened(target)
    under_way: deque[tuple[int, Future[bytes | None]]] = deque()
    ahead_bytes = 0
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="store")

    def get(key: str) -> bytes | None:
        return asked(target, lambda: _get(store, key), patience_s=PATIENCE_S)

    try:
        for key, size_bytes in wanted:
            while under_way and (len(under_way) >= THREADS or ahead_bytes + size_bytes > AHEAD_BYTES_MAX):
                done_bytes, future = under_way.popleft()
                ahead_bytes -= done_bytes
                yield future.result()
            under_way.append((size_bytes, pool.submit(get, key)))
            ahead_bytes += size_bytes
        while under_way:
            yield under_way.popleft()[1].result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _get(store: ObjectStore, key: str) -> bytes | None:
    try:
        return store.get(key)
    except ObjectMissingError:
        return None


def _lost(target: StoreTarget, key: str, fail_on_data_loss: bool) -> None:
    loss = f"the object {key} of {target.url} was there when the read was planned, and is gone"
    if fail_on_data_loss:
        raise DataLossError(
            f"{loss}: by the channel's retention, or with the channel. Records may have been lost. If that may"
            " happen, set failOnDataLoss to false: the query then goes on with what is there"
        )
    logger.warning("%s. failOnDataLoss is false: going on with what is there", loss)


def together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in Arrow batches that are not too small."""
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= ROWS_WANTED or size_bytes >= BYTES_WANTED:
            yield from _joined(waiting)
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield from _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) == 1:
        return batches
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
