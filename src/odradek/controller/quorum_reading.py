"""Looking at the quorum without taking part: SSKafka's plain fetch of the metadata, and the quorum's state."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

from odradek.controller.transport import RefusedError
from odradek.raft.machine import Raft
from odradek.raft.messages import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from odradek.controller.quorum import Quorum

_REFUSALS = (401, 409)  # the secret is wrong, the cluster is another


def committed_after(raft: Raft, request: FetchRequest) -> FetchResponse:
    """What a plain fetch gets: committed entries behind the asker's last, or where the logs part."""
    diverging = _diverging(raft, request)
    start = max(request.end_offset, raft.log_start.end_offset)
    end = start if diverging is not None else min(start + request.max_entries, raft.high_watermark)
    entries = tuple(raft.entry(offset) for offset in range(start, end))
    return FetchResponse("", raft.epoch, raft.leader_id, raft.high_watermark, start, entries, diverging, None)


def _diverging(raft: Raft, request: FetchRequest) -> tuple[int, int] | None:
    """Where the asker's log parts from ours; None if it does not, or if it does not say what its last epoch is."""
    first, end = raft.log_start.end_offset, raft.end_offset
    if request.last_epoch < 0 or request.end_offset < max(first, 1):
        return None
    if request.end_offset <= end and raft.epoch_at(request.end_offset - 1) == request.last_epoch:
        return None
    while end > first and raft.epoch_at(end - 1) > request.last_epoch:
        end -= 1
    return (raft.epoch_at(end - 1) if end else -1, end)


def describe(quorum: Quorum, now: int, wall_ms: int) -> dict[str, Any]:
    """The state of the quorum as one node sees it; times of day for what the machine measures."""
    raft = quorum.raft

    def time_of_day(at: int | None) -> int:
        return -1 if at is None or at < 0 else wall_ms - (now - at)

    replicas = raft.replicas() if raft.role == "leader" else ()
    return {
        "node_id": quorum.node_id,
        "cluster_id": quorum.cluster_id,
        "role": raft.role,
        "epoch": raft.epoch,
        "leader_id": raft.leader_id,
        "voted_id": raft.voted_id,
        "high_watermark": raft.high_watermark,
        "log_start_offset": raft.log_start.end_offset,
        "end_offset": raft.end_offset,
        "applied_offset": quorum.applied_offset,
        "voters": {str(voter): list(quorum.voters[voter]) for voter in sorted(quorum.voters)},
        "differing_voters": dict(quorum.differing_voters),
        "replicas": [
            {
                "id": replica.id,
                "end_offset": replica.end_offset,
                "last_fetch_ms": time_of_day(replica.last_fetch_ms),
                "last_caught_up_ms": time_of_day(replica.last_caught_up_ms),
                "is_voter": replica.is_voter,
            }
            for replica in replicas
        ],
    }


def majority_ms(raft: Raft, now: int) -> int:
    """Until when a majority of the voters has been heard of by the leader, which counts itself."""
    others = sorted((each.last_fetch_ms for each in raft.replicas() if each.is_voter), reverse=True)
    needed = raft.config.majority - 1
    return now if needed == 0 else others[needed - 1] if len(others) >= needed else 0


def refusal_of(complaints: Mapping[int, Exception], others: Set[int], leader_id: int) -> str | None:
    """What the leader says if it says that we do not belong here, or what the others say if each of them does.

    A follower asks nobody but the leader, which keeps telling it that it leads: the others may never be asked.
    """
    strange = {
        node: str(error)
        for node, error in complaints.items()
        if isinstance(error, RefusedError) and error.status in _REFUSALS
    }
    if leader_id in strange:
        return strange[leader_id]
    return strange[min(others)] if others and others <= strange.keys() else None
