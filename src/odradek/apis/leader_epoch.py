"""The check of the leader epoch that a client believes in (KIP-320)."""

from __future__ import annotations

from odradek.wire.errors import ErrorCode, PeerError


def check_leader_epoch(known_by_client: int, current: int) -> None:
    """Refuse a client that asks the leader of another time; -1 means that it does not know."""
    if 0 <= known_by_client < current:
        raise PeerError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {known_by_client} is over, now it is {current}")
    if known_by_client > current:
        raise PeerError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {known_by_client} is not known here yet")
