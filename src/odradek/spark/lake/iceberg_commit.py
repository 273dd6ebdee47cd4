"""Commits to an Iceberg table that know when somebody else was quicker, and what a commit of replaced files is."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction

from odradek.spark.lake.errors import LakeError

ATTEMPTS = 20
PAUSE_SECONDS_MAX = 2.0
CONFLICTS = (CommitFailedException, ValidationException)


def single_try(table: Table) -> Transaction:
    """A transaction that is not tried again by itself: first it must be seen whether the batch is there by now."""
    properties = table.metadata.properties | {"commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table.transaction()


def replace(
    transaction: Transaction, table: Table, old: Sequence[DataFile], new: Sequence[str], summary: dict[str, str]
) -> None:
    """Take files out of the table and put others in."""
    with transaction.update_snapshot(snapshot_properties=summary).overwrite() as snapshot:
        for file in old:
            snapshot.delete_data_file(file)
        for location in new:
            snapshot.append_data_file(parquet_file_to_data_file(table.io, transaction.table_metadata, location))


def pauses(what: str, path: Path) -> Iterator[Pause]:
    """A chance for each attempt to commit; the last one lets the conflict out, in words."""
    for attempt in range(ATTEMPTS):
        yield Pause(min(PAUSE_SECONDS_MAX, 0.02 * 2**attempt) * (0.5 + random.random()))
    raise LakeError(f"others kept changing {path} while {what} was written: gave up after {ATTEMPTS} attempts")


class Pause(AbstractContextManager[None]):
    """Swallows a conflict, and waits before the next attempt so that not all try again at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, CONFLICTS):
            return False
        time.sleep(self._seconds)
        return True
