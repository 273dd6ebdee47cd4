"""A process that changes a log in all ways until it is killed: `python changer.py DIRECTORY BACKEND SEED`.

Each line on stdout is JSON: first what it has found, then of each change what it is about to do and, when that is
durable, that it is done. What is kept in RocksDB is written out often, so that its sorted files are part of it.
"""

from __future__ import annotations

import json
import os
import random
import sys

from odradek.clock import SystemClock
from odradek.config import default_settings
from odradek.disk.real import RealDisk
from odradek.log.compaction import plan_compaction
from odradek.log.log import PartitionLog
from odradek.log.store import LogStore
from odradek.model import TopicPartition
from odradek.records.build import build_batch
from odradek.records.record import NewRecord
from tests.log.support import read_all

PARTITION = TopicPartition("orders", 0)
KEYS = 6
WRITE_BUFFER_BYTES = 64 << 10
CHANGES = ("append", "truncate", "compact", "delete", "start over")
WEIGHTS = (20, 2, 3, 2, 1)


def open_store(directory: str, backend: str) -> LogStore:
    """Small segments, so that many are rolled."""
    settings = default_settings()
    asked = {"segment.bytes": "4KiB", "segment.backend": backend, "cleanup.policy": "compact"}
    if backend == "rocksdb":
        from odradek.log.backends import rocksdb_database  # not everybody has it

        rocksdb_database.WRITE_BUFFER_BYTES = WRITE_BUFFER_BYTES
    return LogStore(RealDisk(), directory, settings.store_config(), SystemClock(), lambda _: settings.log_config(asked))


def tell(**what: object) -> None:
    """One line, at once."""
    os.write(1, json.dumps(what).encode() + b"\n")


class Changer:
    """Changes one log, again and again."""

    def __init__(self, log: PartitionLog, seed: int) -> None:
        self._log = log
        self._chance = random.Random(seed)
        self._life = f"{seed:x}"
        self._count = 0

    def change(self) -> None:
        """One change, whatever comes."""
        (name,) = self._chance.choices(CHANGES, WEIGHTS)
        if name == "append":
            self._append()
            return
        log = self._log
        at = self._chance.randint(log.log_start, log.next_offset)
        if name == "start over":
            at = log.next_offset + self._chance.randint(0, 5)
        tell(begins=name, at=at)
        if name == "truncate":
            log.truncate(at)
        elif name == "start over":
            log.start_over(at)
        elif name == "delete":
            log.delete_records(at).run()
        else:
            self._compact()
        tell(done=name, at=at)

    def _append(self) -> None:
        values = []
        for _ in range(self._chance.randint(1, 6)):
            self._count += 1
            values.append((self._chance.randrange(KEYS), f"{self._life} {self._count}"))
        tell(begins="append", at=self._log.next_offset, values=values)
        for key, value in values:
            filling = self._chance.randbytes(self._chance.randint(0, 1500))
            self._log.append(build_batch([NewRecord(value=value.encode() + b" " + filling, key=b"%d" % key)]))
        self._log.flush()
        tell(done="append")

    def _compact(self) -> None:
        log = self._log
        log.roll()
        log.flush()
        plan = plan_compaction(log, SystemClock().now_ms(), 1 << 20, force=True)
        if plan is not None:
            plan.build()
            plan.install(log)


def main(directory: str, backend: str, seed: int) -> None:
    """Change it until the end, which comes from outside."""
    store = open_store(directory, backend)
    if store.offline:
        tell(offline=str(store.offline))
        return
    log = store.logs.get(PARTITION) or store.create(PARTITION)
    found = [
        (record.offset, int(record.key or b"0"), b" ".join((record.value or b"").split(b" ", 2)[:2]).decode())
        for record in read_all(log)
    ]
    tell(found=found, start=log.log_start, end=log.next_offset)
    changer = Changer(log, seed)
    while True:
        changer.change()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
