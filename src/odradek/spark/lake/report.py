"""What a compaction did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """How many files were merged into how many; both are 0 if there was nothing worth it."""

    files_before: int = 0  # only those that were merged
    files_after: int = 0
    partitions: int = 0  # in how many partitions something was merged

    def __add__(self, other: CompactionReport) -> CompactionReport:
        return CompactionReport(
            self.files_before + other.files_before,
            self.files_after + other.files_after,
            self.partitions + other.partitions,
        )
