"""What a parquet table remembers, in its folder `_odradek`, which readers of Parquet pass over.

- `lock`: held while files are put in place or swapped, never while Spark computes.
- `table.json`: the columns and how they are partitioned.
- `sinks/<id>.json`: the last batch of each sink. It is written before the batch's files are moved and says what goes
  where: so whoever takes the lock after a crash ends the moves (`Journal.locked`), and a replay finds the batch done.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from odradek.spark.lake.errors import LakeError
from odradek.spark.lake.staging import sync

FOLDER = "_odradek"


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """The last batch of a sink."""

    batch: int
    rows: int
    published: bool  # all moves were made
    staging: str = ""  # the folder beside the table that the files come from
    moves: tuple[tuple[str, str], ...] = ()  # from below the staging folder, to below the table


@dataclass(frozen=True, slots=True)
class TableRecord:
    """What a table is."""

    columns: str  # Spark's schema as JSON, with the columns that are in folder names
    partition_by: tuple[str, ...]
    mode: str


class Journal:
    """The folder `_odradek` of a table."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.folder = table / FOLDER

    def exists(self) -> bool:
        """Whether a sink has ever written here."""
        return (self.folder / "table.json").exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who changes the table; what a crash has left half done is done first."""
        (self.folder / "sinks").mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.finish_moves()
            yield

    def finish_moves(self) -> None:
        """End what every sink has begun; only under the lock."""
        for name in self.sinks():
            record = self.sink(name)
            if record is not None and not record.published:
                self.publish(name, record)

    def publish(self, sink_id: str, record: SinkRecord) -> None:
        """Move a batch's files to where they belong; it can be done again after it was cut short anywhere."""
        staging = self.table.parent / record.staging
        folders = set()
        for source, target in record.moves:
            self._move(staging / source, self.table / target)
            folders.add((self.table / target).parent)
        sync([*sorted(folders), self.table])
        self.write_sink(sink_id, SinkRecord(record.batch, record.rows, published=True))

    @staticmethod
    def _move(source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            source.rename(target)
        except FileNotFoundError:
            if not target.exists():
                raise LakeError(
                    f"{target} is missing: its batch was recorded, but neither the file nor {source} is there. "
                    "Somebody has removed it; if its rows are not needed, create an empty Parquet file in its place"
                ) from None

    def sinks(self) -> list[str]:
        """Who has written here."""
        return sorted(file.stem for file in (self.folder / "sinks").glob("*.json"))

    def sink(self, sink_id: str) -> SinkRecord | None:
        """The last batch of a sink."""
        found = _read(self.folder / "sinks" / f"{sink_id}.json")
        if found is None:
            return None
        moves = tuple((source, target) for source, target in found.pop("moves"))
        return SinkRecord(**found, moves=moves)

    def write_sink(self, sink_id: str, record: SinkRecord) -> None:
        """Remember the last batch of a sink, durably."""
        _write(self.folder / "sinks" / f"{sink_id}.json", asdict(record))

    def description(self) -> TableRecord | None:
        """What the table is; None before the first batch."""
        found = _read(self.folder / "table.json")
        return None if found is None else TableRecord(found["columns"], tuple(found["partition_by"]), found["mode"])

    def describe(self, record: TableRecord) -> None:
        """Remember what the table is, durably."""
        _write(self.folder / "table.json", asdict(record))

    def copy_to(self, table: Path) -> Journal:
        """Give another folder, which is to take the table's place, the same memory and the same lock."""
        copy = Journal(table)
        (copy.folder / "sinks").mkdir(parents=True)
        os.link(self.folder / "lock", copy.folder / "lock")
        for file in (self.folder / "table.json", *(self.folder / "sinks").glob("*.json")):
            if file.exists():
                (copy.folder / file.relative_to(self.folder)).write_bytes(file.read_bytes())
        return copy

    def data_files(self) -> list[Path]:
        """All files of the table that readers see, those of a batch that is just being moved included."""
        return sorted(
            Path(folder) / name for folder, folders, names in os.walk(self.table) for name in _visible(folders, names)
        )


def _visible(folders: list[str], names: list[str]) -> list[str]:
    folders[:] = [name for name in folders if not name.startswith(("_", "."))]
    return [name for name in names if name.endswith(".parquet") and not name.startswith(("_", "."))]


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found


def _write(file: Path, record: dict[str, Any]) -> None:
    """Replace a file in one step."""
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(record), encoding="utf-8")
    sync([draft])
    draft.replace(file)
    sync([file.parent])
