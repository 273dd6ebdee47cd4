"""Where an Iceberg table is registered: by default `catalog.db` (SQLite) in the folder above the table's.

The table `lake/orders` is then `default.orders` of the catalog `default` with the warehouse `lake`.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from odradek.spark.lake.errors import LakeError, LakeOptionError
from odradek.spark.lake.settings import SinkOptions

CATALOG_FILE = "catalog.db"
CATALOG_NAME = "default"
NAMESPACE = "default"
_SCHEME = "file://"


class IcebergCatalog:
    """One table's entry in its catalog."""

    def __init__(self, path: Path, options: SinkOptions) -> None:
        self.path = path
        self.table = options.table or f"{NAMESPACE}.{path.name}"
        self.properties = dict(options.catalog)
        self.name = self.properties.pop("name", CATALOG_NAME)
        if self.table.count(".") != 1 or not all(self.table.split(".")):
            raise LakeOptionError(
                f"{self.table!r} is no name of an Iceberg table: set the option table = 'namespace.name'"
            )

    def _opened(self) -> Catalog:
        if self.properties:
            return load_catalog(self.name, **self.properties)
        with self._alone():  # pyiceberg makes the tables of the database when it opens it, whoever else does so too
            # A commit of another process holds the file for milliseconds: wait for it instead of failing.
            uri = f"sqlite:///{self.path.parent / CATALOG_FILE}?timeout=60"
            return load_catalog(self.name, type="sql", uri=uri, warehouse=as_location(self.path.parent))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Be the only one who makes something new in the warehouse."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with (self.path.parent / f".{CATALOG_FILE}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def load(self) -> Table | None:
        """The table as it is now; None if there is none."""
        try:
            table = self._opened().load_table(self.table)
        except NoSuchTableError:
            return None
        if as_path(table.location()) != self.path:
            raise LakeError(
                f"the Iceberg table {self.table} is at {as_path(table.location())}, not at {self.path}: name the right "
                "folder, or another table"
            )
        return table

    def existing(self) -> Table:
        """The table, which must exist."""
        table = self.load()
        if table is None:
            raise LakeError(f"there is no Iceberg table {self.table} in the catalog of {self.path.parent}")
        return table

    def create(self, schema: Schema, spec: PartitionSpec, properties: dict[str, str]) -> None:
        """Make the table."""
        if self.path.is_dir() and any(self.path.rglob("*.parquet")):
            raise LakeError(f"{self.path} has files, but is no Iceberg table: write to a folder of its own")
        catalog = self._opened()
        with self._alone():
            catalog.create_namespace_if_not_exists(self.table.partition(".")[0])
            catalog.create_table_if_not_exists(
                self.table, schema, location=as_location(self.path), partition_spec=spec, properties=properties
            )


def as_location(path: Path) -> str:
    """How Iceberg names a file: a URI without escapes."""
    return f"{_SCHEME}{path}"


def as_path(location: str) -> Path:
    """The file that a location names."""
    if "://" in location and not location.startswith(_SCHEME):
        raise LakeError(f"{location} is not on a file system that executors have mounted")
    return Path(location.removeprefix(_SCHEME))
