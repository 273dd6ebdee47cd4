"""One member's way to the target assignment of its group (KIP-848): what it may own after this heartbeat.

The rule that keeps two members from owning one partition: who has to give something up stays in its epoch until a
heartbeat says that it has, and what another still holds is given to nobody. A function of its arguments alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from odradek.groups.assignors import Partitions, TopicIdPartition
from odradek.groups.consumer_types import NOTHING, Current, MemberState


@dataclass(frozen=True, slots=True)
class Target:
    """Where the member should get to."""

    epoch: int
    partitions: Partitions


def reconcile(
    current: Current, target: Target, owned: Partitions | None, is_free: Callable[[TopicIdPartition], bool]
) -> Current:
    """Take one step; `owned` is what the heartbeat says of the member's partitions, None if it says nothing."""
    if current.state is MemberState.STABLE and current.epoch == target.epoch:
        return current
    epoch = current.epoch
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or owned & current.revoking:
            return current
        epoch += 1  # it has given up what it had to; there may be more
    return _step(replace(current, revoking=NOTHING), epoch, target, owned, is_free)


def _step(
    current: Current,
    epoch: int,
    target: Target,
    owned: Partitions | None,
    is_free: Callable[[TopicIdPartition], bool],
) -> Current:
    kept = current.assigned & target.partitions
    excess = current.assigned - kept
    if excess and (owned is None or owned & excess):
        return _at(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, excess)
    wanted = target.partitions - kept
    free = frozenset(filter(is_free, wanted))
    state = MemberState.STABLE if len(free) == len(wanted) else MemberState.UNRELEASED_PARTITIONS
    return _at(current, target.epoch, state, kept | free, NOTHING)


def _at(current: Current, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions) -> Current:
    previous = current.previous_epoch if epoch == current.epoch else current.epoch
    return Current(epoch=epoch, previous_epoch=previous, state=state, assigned=assigned, revoking=revoking)
