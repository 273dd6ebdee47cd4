"""Forgets old snapshots of an Iceberg table and deletes the files that only they referred to."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from pathlib import Path

from pyiceberg.table import Table

from odradek.spark.lake.iceberg_catalog import as_path


def expire(table: Table, retain_hours: float) -> None:
    """Forget snapshots that are older than this; the current one always stays."""
    table.maintenance.expire_snapshots().older_than(datetime.now() - timedelta(hours=retain_hours)).commit()


def remove_unreferenced(table: Table, path: Path, retain_hours: float) -> int:
    """Delete the files below `data` and `metadata` that nothing refers to and that are older than this; count them."""
    kept = _referenced(table)
    youngest = time.time() - retain_hours * 3600
    removed = 0
    for folder in (path / "data", path / "metadata"):
        for file in folder.rglob("*"):
            if file.is_file() and file not in kept and file.stat().st_mtime < youngest:
                file.unlink(missing_ok=True)
                removed += 1
    return removed


def _referenced(table: Table) -> set[Path]:
    kept = {as_path(table.metadata_location), *(as_path(entry.metadata_file) for entry in table.metadata.metadata_log)}
    manifests = {}
    for snapshot in table.snapshots():
        kept.add(as_path(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            manifests[manifest.manifest_path] = manifest
    for location, manifest in manifests.items():
        kept.add(as_path(location))
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            kept.add(as_path(entry.data_file.file_path))
    return kept
