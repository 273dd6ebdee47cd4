"""Segments as files in Kafka's layout: `<first offset>.log`, `.index` and `.timeindex`, in one directory a partition.

This module knows names: which files belong to a log, which are leftovers of a crash, how a compacted segment takes the
place of those it was made from. What is inside the files is `file_segment`'s.
"""

from __future__ import annotations

import re
from dataclasses import replace
from uuid import uuid4

from odradek.disk.interface import Disk
from odradek.log.backends.file_segment import INDEX, LOG, POSITION_MAX, TIME_INDEX, FileSegment, segment_path
from odradek.log.config import LogConfig
from odradek.log.index import IndexCache
from odradek.log.segment import BatchCheck
from odradek.model import Offset

CLEANED = ".cleaned"  # ends the names of a replacement that compaction writes
_NEVER_MS = 1 << 64  # beyond every timestamp

_SEGMENT_FILE = re.compile(
    r"(?P<base>[0-9]{20})\.(?P<kind>log|index|timeindex)(?P<cleaned>(\.[0-9a-f]{32})?\.cleaned)?"
)


class FileBackend:
    """The segments of one log as files of one directory."""

    def __init__(self, disk: Disk, directory: str, cache: IndexCache, config: LogConfig, check: BatchCheck) -> None:
        self._config = config
        self._disk = disk
        self._directory = directory
        self._cache = cache
        self._check = check
        # Of this log and no other: a partition that is deleted and made again may have a build of the old one about.
        self.replacement_suffix = f".{uuid4().hex}{CLEANED}"
        self._sizes: dict[str, int] = {}  # of the files that were found and not opened yet

    def find(self) -> list[Offset]:
        """The base offsets of the log files; indexes without a log are removed."""
        bases: dict[str, set[int]] = {LOG: set(), INDEX: set(), TIME_INDEX: set()}
        self._sizes.clear()
        for entry in self._disk.list(self._directory):
            match = _SEGMENT_FILE.fullmatch(entry.name)
            if match is not None and not match["cleaned"]:
                bases[f".{match['kind']}"].add(int(match["base"]))
                self._sizes[f"{self._directory}/{entry.name}"] = entry.size_bytes
        for kind in (INDEX, TIME_INDEX):
            for base in bases[kind] - bases[LOG]:
                self._disk.remove(segment_path(self._directory, base, kind))
        return sorted(bases[LOG])

    def open(self, base_offset: Offset) -> FileSegment:
        """Give a segment that `find` found or that was just installed."""
        return self._segment(base_offset)

    def create(self, base_offset: Offset) -> FileSegment:
        """Make an empty, active segment."""
        return self._make(base_offset, "")

    def create_replacement(self, base_offset: Offset) -> FileSegment:
        """Make a segment beside the log, for compaction to fill."""
        segment = self._make(base_offset, self.replacement_suffix)
        # No setting limits it: what it refused would be lost, although the segments it replaces held it.
        segment.configure(
            replace(
                self._config,
                segment_bytes=POSITION_MAX,
                segment_ms=_NEVER_MS,
                max_compaction_lag_ms=_NEVER_MS,
                segment_index_bytes=POSITION_MAX,
            )
        )
        segment.indexes.make_files()
        return segment

    def install_replacement(self, base_offset: Offset, replaced: list[Offset], suffix: str) -> None:
        """Put a replacement in the place of the segments it was made from.

        The log file is renamed last, over the old one: as long as the replacement has its own name, all of this can be
        done again after a crash; once it has not, only leftovers can remain.
        """
        for base in replaced:
            if base != base_offset:
                for kind in (LOG, INDEX, TIME_INDEX):
                    self._disk.remove(segment_path(self._directory, base, kind))
        for kind in (INDEX, TIME_INDEX, LOG):
            target = segment_path(self._directory, base_offset, kind)
            if self._disk.exists(target + suffix):
                self._disk.rename(target + suffix, target)
        self.sync_names()
        own = {segment_path(self._directory, base_offset, kind) for kind in (LOG, INDEX, TIME_INDEX)}
        for entry in self._disk.list(self._directory):
            path = f"{self._directory}/{entry.name}"
            if path in own:
                self._sizes[path] = entry.size_bytes

    def discard_replacements(self) -> None:
        """Remove what compaction left unfinished."""
        for entry in self._disk.list(self._directory):
            match = _SEGMENT_FILE.fullmatch(entry.name)
            if match and match["cleaned"]:
                self._disk.remove(f"{self._directory}/{entry.name}")

    def configure(self, config: LogConfig) -> None:
        """Follow a change of the topic's settings."""
        self._config = config

    def sync_names(self) -> None:
        """Return when creations and removals are on stable storage."""
        self._disk.sync_directory(self._directory)

    def _make(self, base_offset: Offset, suffix: str) -> FileSegment:
        for kind in (LOG, INDEX, TIME_INDEX):
            path = segment_path(self._directory, base_offset, kind) + suffix
            self._disk.remove(path)
            self._sizes.pop(path, None)
        self._disk.open(segment_path(self._directory, base_offset, LOG) + suffix, create=True)
        return self._segment(base_offset, suffix)

    def _segment(self, base_offset: Offset, suffix: str = "") -> FileSegment:
        log, index, time_index = (
            self._sizes.pop(segment_path(self._directory, base_offset, kind) + suffix, 0)
            for kind in (LOG, INDEX, TIME_INDEX)
        )
        return FileSegment(
            self._disk,
            self._directory,
            base_offset,
            log,
            config=self._config,
            cache=self._cache,
            check=self._check,
            index_sizes=(index, time_index),
            suffix=suffix,
        )
