"""What the quorum and the controller can be told; `odradek.config` makes it from the table of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """The settings of one member of the metadata quorum."""

    node_id: int
    voters: Mapping[int, tuple[str, int]]  # the HTTP door of each voter; empty: this broker stands alone
    election_timeout_ms: int
    fetch_timeout_ms: int  # without a word from the leader, a follower stands for election
    fetch_wait_ms: int  # how long the leader holds a fetch that has nothing new
    secret: str | None  # what brokers show each other
    snapshot_interval_ms: int
    snapshot_bytes: int  # of the log since the last snapshot

    def __post_init__(self) -> None:
        """A broker without voters is the only one itself, and needs no address for that."""
        if not self.voters:
            object.__setattr__(self, "voters", {self.node_id: ("", 0)})

    @property
    def named_voters(self) -> list[str]:
        """The voters as the setting has them."""
        return [f"{voter}@{host}:{port}" for voter, (host, port) in sorted(self.voters.items())]

    @property
    def is_alone(self) -> bool:
        """Whether this broker is the whole quorum."""
        return set(self.voters) == {self.node_id}


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """The settings of the controller, and of a broker towards it."""

    session_timeout_ms: int  # a broker that is silent for so long is fenced
    heartbeat_interval_ms: int
    default_replication_factor: int  # 0: three, or as many brokers as there are
    leader_rebalance_interval_ms: int  # 0: leaders stay where they are
    partitions_max: int  # of all topics together
