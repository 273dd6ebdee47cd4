"""What a log can be told: by topic (`LogConfig`) and for all logs of a broker (`StoreConfig`).

The fields carry the settings' names with `_` for `.`. Defaults, ranges and texts stand in one place only, the
table of `odradek.config`, which makes these objects; that is why no field has a default here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal


class Flush(Enum):
    """When an appended batch counts as safe on this machine (docs/ARCHITECTURE.md)."""

    GROUP = "group"  # after an fdatasync that covers it; one covers all that came while the last one ran
    REPLICATED = "replicated"  # at once: the page cache holds it, the replicas carry the durability
    OS = "os"  # at once: the operating system writes it when it likes


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one topic that its logs read; -1 means without limit."""

    segment_bytes: int
    segment_backend: Literal["file", "sqlite", "rocksdb"]  # of logs that are made; one that is there stays what it is
    segment_records_max: int  # of sqlite and rocksdb
    segment_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    retention_bytes: int
    retention_ms: int
    cleanup_policy: frozenset[Literal["delete", "compact"]]
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"]
    flush: Flush

    @property
    def compacts(self) -> bool:
        """Whether old values of a key are cleaned away."""
        return "compact" in self.cleanup_policy

    @property
    def age_max_ms(self) -> int:
        """How old an active segment may become: compaction must get at its records in time, too."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def deletes(self) -> bool:
        """Whether whole old segments are deleted."""
        return "delete" in self.cleanup_policy


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The settings that all logs of a data directory share."""

    log_open_files_max: int  # descriptors for segments; 0: three quarters of what the process may open
    log_index_cache_bytes: int  # memory for the indexes of segments that are read
    log_flush_threads: int
    log_checkpoint_interval_ms: int
    log_cleaner_key_map_bytes: int
    producer_id_expiration_ms: int
    producer_ids_max: int  # remembered by one partition
