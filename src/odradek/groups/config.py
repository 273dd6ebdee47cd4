"""What the group coordinator can be told.

The fields carry the settings' names with `_` for `.`. Defaults, ranges and texts stand in the table of settings only,
which makes this object; that is why no field has a default here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings that all groups of a broker share."""

    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int  # how long the first member of a new group waits for others
    group_max_size: int  # members of one classic group
    offset_metadata_max_bytes: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_size: int  # members of one group of the consumer protocol (KIP-848)
    group_consumer_assignors: tuple[str, ...]  # the first is the default
