"""Which segments a RocksDB database has: its catalogue, replacements that wait, and runs that nobody names."""

from __future__ import annotations

from odradek.log.backends.rocksdb_database import Database
from odradek.log.backends.rocksdb_keys import CATALOG, DATA, KEY_BYTES, NUMBER, PREFIX, REPLACEMENT, Run
from odradek.model import Offset


def catalog(database: Database) -> dict[Offset, Run]:
    """The run of each segment, by base offset."""
    return {run.base_offset: run for run in _named(database, CATALOG).values()}


def replacements(database: Database) -> dict[bytes, Run]:
    """The runs that are not part of the log yet, by the keys of their entries."""
    return _named(database, REPLACEMENT)


def stored_runs(database: Database) -> list[Run]:
    """All runs that have batches, named or not: one step a run, however many batches it has."""
    found: list[Run] = []
    with database.iterator() as iterator:
        iterator.seek(DATA)
        while iterator.valid() and (key := iterator.key()).startswith(DATA) and len(key) == KEY_BYTES:
            run = Run(*PREFIX.unpack_from(key)[1:])
            found.append(run)
            iterator.seek(run.keys.end)
    return found


def _named(database: Database, kind: bytes) -> dict[bytes, Run]:
    found: dict[bytes, Run] = {}
    with database.iterator() as iterator:
        iterator.seek(kind)
        while iterator.valid() and (key := iterator.key()).startswith(kind):
            (base_offset,) = NUMBER.unpack_from(key, len(kind))
            (number,) = NUMBER.unpack(iterator.value())
            found[key] = Run(base_offset, number)
            iterator.next()
    return found
