"""What a heartbeat of the consumer protocol must look like, whatever the state of the group (KIP-848).

The rules that depend on the group (epochs, instance ids, its size) stand in `consumer_group.py`.
"""

from __future__ import annotations

from odradek.groups.assignors import ASSIGNORS
from odradek.groups.config import GroupConfig
from odradek.groups.consumer_types import JOIN_EPOCH, LEAVE_STATIC_EPOCH, Heartbeat
from odradek.wire.errors import ErrorCode, PeerError

ID_LENGTH_MAX = 1_024  # of a member, an instance or a rack
TOPIC_NAMES_MAX = 10_000  # in one subscription


def check_heartbeat(beat: Heartbeat, config: GroupConfig) -> None:
    """Refuse by PeerError what no member may send."""
    problem = _problem(beat)
    if problem is not None:
        raise PeerError(ErrorCode.INVALID_REQUEST, problem)
    if beat.server_assignor is not None and beat.server_assignor not in available_assignors(config):
        offered = ", ".join(available_assignors(config))
        raise PeerError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"there is no assignor {beat.server_assignor!r}, but {offered}")


def available_assignors(config: GroupConfig) -> tuple[str, ...]:
    """The assignors that the settings offer, the default first."""
    return tuple(name for name in config.group_consumer_assignors if name in ASSIGNORS)


def _problem(beat: Heartbeat) -> str | None:
    if not beat.member_id:
        return "the member id is empty"
    if beat.instance_id == "" or beat.rack_id == "":
        return "the instance id or the rack id is empty: leave it out instead"
    if any(len(text or "") > ID_LENGTH_MAX for text in (beat.member_id, beat.instance_id, beat.rack_id)):
        return f"an id has at most {ID_LENGTH_MAX} characters"
    if len(beat.topic_names or ()) > TOPIC_NAMES_MAX:
        return f"a member subscribes to at most {TOPIC_NAMES_MAX} topics by name"
    if beat.rebalance_timeout_ms < -1:
        return f"the rebalance timeout is {beat.rebalance_timeout_ms} ms"
    if beat.member_epoch < LEAVE_STATIC_EPOCH:
        return f"the member epoch is {beat.member_epoch}"
    if beat.member_epoch == LEAVE_STATIC_EPOCH and beat.instance_id is None:
        return "only a member with an instance id can leave to come back"
    return _joining_problem(beat) if beat.member_epoch == JOIN_EPOCH else None


def _joining_problem(beat: Heartbeat) -> str | None:
    if beat.rebalance_timeout_ms == -1:
        return "a member that joins says its rebalance timeout"
    if beat.owned is None or beat.owned:
        return "a member that joins owns no partitions, and says so"
    if beat.topic_names is None and beat.topic_regex is None:
        return "a member that joins says which topics it subscribes to"
    return None
