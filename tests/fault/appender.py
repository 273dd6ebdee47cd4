"""A process that appends and acknowledges until it is killed: `python appender.py DIRECTORY BACKEND FLUSH SEQUENCE...`.

One writer for each sequence number on the command line, which is the first that it sends. Each line on stdout, `writer
sequence offset`, acknowledges a batch.
"""

from __future__ import annotations

import asyncio
import os
import sys

from odradek.clock import SystemClock
from odradek.config import default_settings
from odradek.disk.real import RealDisk
from odradek.log.flusher import GroupFlusher
from odradek.log.log import PartitionLog
from odradek.log.store import LogStore
from odradek.model import TopicPartition
from odradek.records.build import build_batch
from odradek.records.record import NewRecord

PARTITION = TopicPartition("orders", 0)
SETTINGS = {"index.interval.bytes": "1000"}
SEGMENT_BYTES = {"file": "64KiB", "sqlite": "4KiB", "rocksdb": "4KiB"}  # those of databases are tried less often


def open_store(directory: str, backend: str = "file", flush: str = "group") -> LogStore:
    """The store as this test uses it: small segments, so that many are rolled."""
    settings = default_settings()
    asked = {**SETTINGS, "segment.bytes": SEGMENT_BYTES[backend], "segment.backend": backend, "flush": flush}
    return LogStore(RealDisk(), directory, settings.store_config(), SystemClock(), lambda _: settings.log_config(asked))


async def write(log: PartitionLog, flusher: GroupFlusher, writer: int, sequence: int) -> None:
    """Send batch after batch, each when the one before it is acknowledged."""
    while True:
        value = b"%d %d " % (writer, sequence) + bytes(sequence % 700)
        records = [NewRecord(value=value, key=b"%d" % writer, timestamp=SystemClock().now_ms())]
        data = build_batch(records, producer_id=writer, producer_epoch=0, base_sequence=sequence)
        done = log.append(data)
        if log.safe_offset <= done.last_offset:
            await flusher.flushed(log, done.last_offset + 1)
        else:
            await asyncio.to_thread(int)  # let the others have their turn
        os.write(1, b"%d %d %d\n" % (writer, sequence, done.base_offset))
        sequence += 1


async def main(directory: str, backend: str, flush: str, sequences: list[int]) -> None:
    """Write until the end, which comes from outside."""
    store = open_store(directory, backend, flush)
    log = store.logs.get(PARTITION) or store.create(PARTITION)
    flusher = GroupFlusher(2)
    async with asyncio.TaskGroup() as group:
        for writer, sequence in enumerate(sequences):
            group.create_task(write(log, flusher, writer, sequence))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], [int(word) for word in sys.argv[4:]]))
