"""What replication can be told. Defaults, ranges and texts stand in the table of settings only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """The broker's settings of replication, by their names with `_` for `.`."""

    replica_lag_time_max_ms: int  # a follower that was not at the leader's end for so long is not in sync
    replica_fetch_max_bytes: int  # of one partition in one answer; a larger batch comes alone
    replica_fetch_response_max_bytes: int  # of one answer
    replica_fetch_wait_max_ms: int  # how long a leader may wait for something new
    replication_throttle_bytes: int  # a second, for replicas that are being added; 0: without limit
