"""What the broker's core can be told; `odradek.config` makes it from the table of settings, which has the defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The settings of one broker, named as in the table with `_` for `.`."""

    broker_id: int
    auto_create_topics_enable: bool
    num_partitions: int  # of a topic that is made without saying how many
    partitions_max: int  # on this broker, all topics together
    delete_topic_enable: bool
    fetch_max_bytes: int  # in one answer
    max_incremental_fetch_session_cache_slots: int
    request_decompressed_max_bytes: int  # of all batches of one Produce request
    request_records_max: int
    log_retention_check_interval_ms: int
    log_cleaner_backoff_ms: int
    offsets_topic_num_partitions: int
    offsets_topic_segment_bytes: int
    offsets_topic_replication_factor: int  # 0: as the controller thinks best
