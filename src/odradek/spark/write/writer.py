"""The sink of Spark: DataFrames and streams into topics, `write.format("odradek")`.

Columns are those of Spark's Kafka sink, and a timestamp. A task first encodes all its rows and only then sends them,
so that one that fails in its computation leaves nothing behind; what a repeated task does is told in `delivery`.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from odradek.client.admin import Admin
from odradek.client.errors import ClientError
from odradek.spark.collector import leave_modules_alone
from odradek.spark.connection import connect
from odradek.spark.errors import OptionError, SparkError
from odradek.spark.options import WriteOptions
from odradek.spark.write.delivery import deliver
from odradek.spark.write.encode import Integers, RowError, Rows, as_binary, encode
from odradek.spark.write.routing import Router, partitions_of
from odradek.spark.write.sender import WriteError
from odradek.spark.write.sink_state import Identity
from odradek.spark.write.spool import Spool
from odradek.spark.write.task_input import whole

CHUNK_BYTES_MIN = 8 * 1024 * 1024  # encoded at once: a few rows at a time cost more each
CHUNK_BYTES_MAX = 64 * 1024 * 1024
DELETED_AT_ONCE = 50
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"

logger = logging.getLogger(__name__)


class SchemaError(SparkError, ValueError):
    """A DataFrame does not have the columns that the sink wants."""


class Columns(NamedTuple):
    """Where the sink's columns stand in a DataFrame."""

    value: int
    key: int | None
    topic: int | None
    partition: int | None
    headers: int | None
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class TaskWritten(WriterCommitMessage):
    """What a task tells the driver."""

    group: str | None  # that holds its state; None if it had no rows
    rows: int
    sent: int  # less than the rows if an earlier attempt had sent some


def check_schema(schema: StructType, topic: str | None) -> Columns:
    """Find the columns of the sink; a SchemaError says what is missing, too much or of a wrong type."""
    places: dict[str, int] = {}
    for index, field in enumerate(schema.fields):
        name = field.name.lower()
        if name not in _TYPES:
            raise SchemaError(
                f"the column {field.name!r} cannot be written to a topic: there are {', '.join(_TYPES)}."
                " Leave it out by select(), or put it into value, for example as to_json(struct('*')) AS value"
            )
        if name in places:
            raise SchemaError(f"the column {field.name!r} is there twice")
        if not _fits(name, field.dataType):
            raise SchemaError(
                f"the column {field.name!r} is of type {field.dataType.simpleString()}: it must be {_TYPES[name]}"
            )
        places[name] = index
    if "value" not in places:
        raise SchemaError("there is no column 'value': it becomes the value of the records, as string or binary")
    if "topic" not in places and topic is None:
        raise SchemaError("where to write is not said: set the option topic, or give the rows a column 'topic'")
    return Columns(**{name: places.get(name) for name in Columns._fields})  # type: ignore[arg-type]


_TYPES = {
    "key": "string or binary",
    "value": "string or binary",
    "topic": "string",
    "partition": "int",
    "headers": "array<struct<key: string, value: binary>>",
    "timestamp": "timestamp",
}


def _fits(name: str, given: DataType) -> bool:
    if name in ("key", "value"):
        return isinstance(given, StringType | BinaryType)
    if name == "headers":
        fields = given.elementType if isinstance(given, ArrayType) else None
        return (
            isinstance(fields, StructType)
            and [field.name.lower() for field in fields.fields] == ["key", "value"]
            and isinstance(fields.fields[0].dataType, StringType)
            and isinstance(fields.fields[1].dataType, BinaryType)
        )
    kinds: dict[str, type[DataType]] = {"topic": StringType, "partition": IntegerType, "timestamp": TimestampType}
    return isinstance(given, kinds[name])


class _Packer:
    """Collects the rows of a task and spools them as record batches."""

    def __init__(self, columns: Columns, options: WriteOptions, router: Router, spool: Spool) -> None:
        self._columns = columns
        self._options = options
        self._router = router
        self._spool = spool
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        if batch.num_rows:
            self._pending.append(batch)
            self._pending_bytes += batch.nbytes
            full = self._options.batch_bytes * len(self._router.targets)
            if self._pending_bytes >= min(CHUNK_BYTES_MAX, max(CHUNK_BYTES_MIN, full)):
                self.flush()

    def flush(self) -> None:
        """Encode what has been collected."""
        if not self._pending:
            return
        now_ms = time.time_ns() // 1_000_000
        key, headers = self._column(self._columns.key), self._column(self._columns.headers)
        value = self._column(self._columns.value)
        rows = Rows(as_binary(value), None if key is None else as_binary(key), headers, self._milliseconds(now_ms))
        topics = self._options.topic or self._column(self._columns.topic)
        targets = self._router.route(rows, topics, self._column(self._columns.partition))
        self._pending.clear()
        self._pending_bytes = 0
        codec, batch_bytes = self._options.codec, self._options.batch_bytes
        for target, count, data in encode(rows, targets, codec=codec, batch_bytes=batch_bytes, now_ms=now_ms):
            self._spool.add(self._router.targets[target], count, data)

    def _column(self, index: int | None) -> pa.Array | None:
        if index is None:
            return None
        parts = [batch.column(index) for batch in self._pending]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def _milliseconds(self, now_ms: int) -> Integers | None:
        """The times of the rows; those that have none are of now."""
        column = self._column(self._columns.timestamp)
        if column is None or column.null_count == len(column):
            return None
        microseconds = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).fill_null(now_ms * 1000)
        milliseconds = np.asarray(microseconds.to_numpy(), np.int64) // 1000
        if milliseconds.min() < 0:
            raise RowError(f"a row has a timestamp before 1970 ({milliseconds.min()} ms): Kafka has no such times")
        return milliseconds


def write_rows(
    batches: Iterator[pa.RecordBatch], columns: Columns, options: WriteOptions, identity: Identity
) -> TaskWritten:
    """Do the work of one task."""
    leave_modules_alone()
    spool = Spool()
    try:
        router = Router(
            _Partitions(options), seed=f"{identity.group}/{identity.batch}", batch_bytes=options.batch_bytes
        )
        packer = _Packer(columns, options, router, spool)
        for batch in batches:
            packer.add(batch)
        packer.flush()
        if not spool.record_count:
            return TaskWritten(None, 0, 0)
        client = connect(options.connection)
        sent = client.call(deliver(client.cluster, identity, spool))
        return TaskWritten(identity.group, spool.record_count, sent)
    finally:
        spool.close()


class _Partitions:
    """Asks for the partitions of topics, when there are rows for them: a task without rows needs no broker."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def __call__(self, topic: str) -> tuple[int, ...]:
        client = connect(self._options.connection)
        try:
            return client.call(partitions_of(client.cluster, topic))
        except ClientError as error:
            raise WriteError(f"topic {topic} cannot be written to: {error}") from error


class OdradekWriter(DataSourceArrowWriter):
    """A batch write. Spark repeats tasks that fail; sinkId and batchId make the whole of it repeatable."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        self._columns = check_schema(schema, options.topic)
        self._options = options
        self._sink_id = options.sink_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write the rows of one task."""
        task = _task()
        batch = self._options.batch_id or 0
        identity = Identity(self._sink_id, task.partitionId(), batch, task.attemptNumber())
        return write_rows(whole(iterator), self._columns, self._options, identity)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have written: what they kept for a repetition is not needed any more, unless it has a name."""
        if self._options.sink_id is not None:
            return
        groups = [message.group for message in messages if isinstance(message, TaskWritten) and message.group]
        if groups:
            client = connect(self._options.connection)
            try:
                client.call(_delete_groups(client.admin.inner, groups))
            except ClientError as error:  # the rows are written; groups expire by themselves
                logger.warning("the state of this write could not be deleted: %s", error)


class OdradekStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write. Its identity is the query's, which the checkpoint keeps."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        if options.sink_id is not None:
            raise OptionError(
                "sinkId and batchId are for batch writes, for example within foreachBatch:"
                " a streaming write is known by its checkpoint"
            )
        self._columns = check_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write the rows of one task of a micro-batch."""
        task = _task()
        query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise WriteError(
                f"Spark does not say which query and batch this is: {QUERY_ID}={query}, {BATCH_ID}={batch}"
            )
        identity = Identity(query, task.partitionId(), int(batch), task.attemptNumber())
        return write_rows(whole(iterator), self._columns, self._options, identity)


async def _delete_groups(admin: Admin, groups: list[str]) -> None:
    for start in range(0, len(groups), DELETED_AT_ONCE):
        await asyncio.gather(*map(admin.delete_group, groups[start : start + DELETED_AT_ONCE]))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "write() runs in a task of Spark"
    return task
