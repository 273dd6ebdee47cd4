"""What the tests of sqlite segments share: logs in sqlite, and hands that change a database behind their back."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from odradek.clock import ManualClock
from odradek.disk.real import RealDisk
from odradek.log.backends.sqlite import database_path
from odradek.log.backends.sqlite_table import SqliteTable
from odradek.log.backends.table_segment import TableSegment
from odradek.log.log import PartitionLog
from odradek.log.store import LogStore
from odradek.model import TopicPartition
from tests.log.support import START_MS, LogOnDisk, batch, log_config, store_config

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("others", 0)


def store_in_sqlite(directory: Path, **settings: object) -> LogStore:
    config = log_config(segment_backend="sqlite", **settings)
    return LogStore(RealDisk(), str(directory), store_config(), ManualClock(START_MS), lambda _: config)


def log_in_sqlite(directory: Path, **settings: object) -> LogOnDisk:
    return LogOnDisk(RealDisk(), f"{directory}/orders-0", segment_backend="sqlite", **settings)


def fill(log: PartitionLog, count: int) -> None:
    for number in range(count):
        log.append(batch(b"value %d" % number))


def table_of(log: PartitionLog, number: int = -1) -> SqliteTable:
    segment = log.segments[number]
    assert isinstance(segment, TableSegment) and isinstance(segment.table, SqliteTable)
    return segment.table


def change(directory: str, base_offset: int, statement: str, *arguments: object) -> None:
    """Change a database behind everybody's back."""
    connection = sqlite3.connect(database_path(directory, base_offset))
    with connection:
        connection.execute(statement, arguments)
    connection.close()


def row_count(directory: str, base_offset: int) -> int:
    connection = sqlite3.connect(database_path(directory, base_offset))
    (count,) = connection.execute("SELECT count(*) FROM batches").fetchone()
    connection.close()
    return int(count)


def flip(directory: str, base_offset: int, offset: int) -> None:
    """Make one byte of a batch wrong."""
    connection = sqlite3.connect(database_path(directory, base_offset))
    (data,) = connection.execute("SELECT data FROM batches WHERE base_offset = ?", (offset,)).fetchone()
    connection.close()
    wrong = data[:-1] + bytes([data[-1] ^ 1])
    change(directory, base_offset, "UPDATE batches SET data = ? WHERE base_offset = ?", wrong, offset)
