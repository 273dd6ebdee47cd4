"""Reads a range of one partition's offsets as Arrow record batches, in an executor: blocking, batch by batch.

The next answer is under way while one is decoded. Broker restarts and changes of the leader are waited out; records
that are gone are an error that says which, or with failOnDataLoss=false a warning.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

import pyarrow as pa

from odradek.client.errors import ClientError, UnknownTopicError
from odradek.client.retry import is_retriable
from odradek.client.sync import Client
from odradek.model import TopicPartition
from odradek.records.errors import RecordError
from odradek.spark.collector import leave_modules_alone
from odradek.spark.connection import ConnectionOptions, connect
from odradek.spark.errors import DataLossError, MissingTopicError, SparkError
from odradek.spark.offsets import OffsetRange
from odradek.spark.read.decode import decode
from odradek.spark.read.fetching import Answer, OutOfRange, PartitionFetcher, ReplacedTopicError
from odradek.spark.read.scan import Scan, scan

FETCH_BYTES_MAX = 16 * 1024 * 1024
FETCH_BYTES_MIN = 64 * 1024
RECORD_BYTES_GUESS = 1024  # before the first answer says how large records are
SHORT_LOG_WAIT_S = 10.0  # how long a log may end before the range does, after a restart for one

logger = logging.getLogger(__name__)


def read_range(
    connection: ConnectionOptions,
    wanted: OffsetRange,
    columns: tuple[str, ...],
    *,
    read_committed: bool,
    fail_on_data_loss: bool,
) -> Iterator[pa.RecordBatch]:
    """The records of [start, end), in order; offsets without a record are passed over."""
    leave_modules_alone()
    if wanted.start < wanted.end:
        reader = _RangeReader(connection, wanted, read_committed, fail_on_data_loss)
        yield from reader.read(columns)


class _RangeReader:
    """One range on its way: the position, and the fetch under way."""

    def __init__(
        self, connection: ConnectionOptions, wanted: OffsetRange, read_committed: bool, fail_on_data_loss: bool
    ) -> None:
        self._wanted = wanted
        self._partition = TopicPartition(wanted.topic, wanted.partition)
        self._client = connect(connection)
        self._fetcher = PartitionFetcher(
            self._client.cluster,
            self._partition,
            read_committed=read_committed,
            timeout_ms=connection.timeout_ms,
        )
        self._timeout_s = connection.timeout_ms / 1000
        self._fail_on_data_loss = fail_on_data_loss
        self._position = wanted.start  # the next offset to fetch; the end when there is nothing more to read
        self._record_bytes = float(RECORD_BYTES_GUESS)  # bytes an offset, as the last answer had it
        self._idle_since: float | None = None

    def read(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Fetch, decode, hand out."""
        under_way = _UnderWay(self._client, self._fetcher, self._position, self._bytes_wanted())
        try:
            while True:
                start = self._position
                scanned = self._take(under_way)
                if self._position < self._wanted.end:
                    under_way = _UnderWay(self._client, self._fetcher, self._position, self._bytes_wanted())
                if scanned is not None:
                    yield from self._decode(scanned, start, columns)
                if self._position >= self._wanted.end:
                    return
        finally:
            under_way.drop()

    def _bytes_wanted(self) -> int:
        """Enough for what is left of the range and a little more, since the last batch of an answer may be cut off."""
        left = (self._wanted.end - self._position) * self._record_bytes * 1.1
        return int(min(FETCH_BYTES_MAX, left + FETCH_BYTES_MIN))

    def _take(self, under_way: _UnderWay) -> Scan | None:
        """Wait for an answer and move the position behind it; None if it brought nothing to decode."""
        try:
            answer = under_way.wait()
        except UnknownTopicError:
            self._lost(MissingTopicError(f"{self._what()}: the topic does not exist any more, it was deleted"))
            return None
        except ReplacedTopicError:
            self._lost(DataLossError(f"{self._what()}: the topic was deleted, and another one was created by its name"))
            return None
        except ClientError as error:
            patience = f" for {self._timeout_s:g} s" if is_retriable(error) else ""
            raise SparkError(f"{self._what()}{patience}: {error}") from error
        if isinstance(answer, OutOfRange):
            self._out_of_range(answer)
        elif not answer.records:
            self._nothing_yet(answer)
        else:
            self._idle_since = None
            return self._scan(answer)
        return None

    def _scan(self, answer: Answer) -> Scan:
        try:
            scanned = scan(answer.records, self._position, self._wanted.end, answer.aborted)
        except RecordError as error:
            raise self._unreadable(error) from error
        self._record_bytes = scanned.size_bytes / (scanned.next_offset - self._position)
        self._position = scanned.next_offset
        return scanned

    def _decode(self, scanned: Scan, start: int, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        try:
            yield from decode(scanned, self._partition, start, self._wanted.end, columns)
        except RecordError as error:
            raise self._unreadable(error) from error

    # Trouble.

    def _what(self) -> str:
        return f"offsets {self._position} to {self._wanted.end - 1} of partition {self._partition} cannot be read"

    def _unreadable(self, error: RecordError) -> SparkError:
        return SparkError(f"what partition {self._partition} holds cannot be read: {error}")

    def _out_of_range(self, available: OutOfRange) -> None:
        """Fail, or go on where the log begins, or stop if it ends before."""
        loss = DataLossError(
            f"{self._what()}: the log has offsets {available.first} to {available.last - 1}"
            if available.first < available.last
            else f"{self._what()}: the log is empty, its next offset is {available.last}"
        )
        resume_at = available.first if self._position < available.first else self._wanted.end
        self._lost(loss, resume_at)

    def _nothing_yet(self, answer: Answer) -> None:
        """The log ends before the range does. A log that was just opened may grow; a transaction may end."""
        now = time.monotonic()
        self._idle_since = now if self._idle_since is None else self._idle_since
        idle_s = now - self._idle_since
        if self._position < answer.high_watermark:
            if idle_s > self._timeout_s:
                raise SparkError(
                    f"{self._what()}: a transaction that is still open holds up the records from offset"
                    f" {answer.last_stable_offset} on, for more than {self._timeout_s:g} s now. Wait for its end, or"
                    " read with kafka.isolation.level=read_uncommitted"
                )
        elif idle_s > min(SHORT_LOG_WAIT_S, self._timeout_s):
            self._lost(DataLossError(f"{self._what()}: the log ends at offset {answer.high_watermark}"))

    def _lost(self, loss: SparkError, resume_at: int | None = None) -> None:
        if self._fail_on_data_loss:
            raise type(loss)(
                f"{loss}. Records were removed before they were read (by retention, by deletion, or with the topic)."
                " If that may happen, set failOnDataLoss to false: the query then goes on with what is there"
            )
        self._position = self._wanted.end if resume_at is None else min(resume_at, self._wanted.end)
        logger.warning("%s. failOnDataLoss is false: going on with what is there", loss)


class _UnderWay:
    """A fetch that runs on the client's loop while something else is done here."""

    def __init__(self, client: Client, fetcher: PartitionFetcher, offset: int, bytes_max: int) -> None:
        async def start() -> asyncio.Task[Answer | OutOfRange]:
            return asyncio.get_running_loop().create_task(fetcher.fetch(offset, bytes_max))

        self._client = client
        self._task = client.call(start())

    def wait(self) -> Answer | OutOfRange:
        """The answer, or what kept it from coming."""

        async def wait() -> Answer | OutOfRange:
            return await self._task

        return self._client.call(wait())

    def drop(self) -> None:
        """Forget it, whether or not it has ended."""

        def cancel() -> None:
            if not self._task.cancel() and not self._task.cancelled():
                self._task.exception()  # or asyncio complains that nobody looked

        self._task.get_loop().call_soon_threadsafe(cancel)
