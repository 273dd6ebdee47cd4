"""Who a heartbeat of the consumer protocol is from, and what it makes of its sender's subscription (KIP-848).

Looks, refuses by PeerError, and changes nothing: once these have passed, a heartbeat is accepted.
"""

from __future__ import annotations

from odradek.groups.consumer_image import Image, Member
from odradek.groups.consumer_types import JOIN_EPOCH, LEAVE_STATIC_EPOCH, Current, Heartbeat, Subscription
from odradek.wire.errors import ErrorCode, PeerError


def require(image: Image, beat: Heartbeat) -> Member:
    """The member that a heartbeat is from."""
    if beat.instance_id is not None:
        holder = image.static(beat.instance_id)
        if holder is not None and holder.member_id != beat.member_id:
            raise PeerError(ErrorCode.FENCED_INSTANCE_ID, f"{beat.instance_id} is held by another member")
    member = image.members.get(beat.member_id)
    if member is None:
        raise PeerError(ErrorCode.UNKNOWN_MEMBER_ID, "not a member of this group: join again")
    if beat.instance_id is not None and beat.instance_id != member.subscription.instance_id:
        raise PeerError(ErrorCode.INVALID_REQUEST, "a member cannot change its instance id")
    return member


def find(image: Image, beat: Heartbeat, size_max: int) -> Member | None:
    """The member whose life a heartbeat continues, under its own id or as its successor; None for a newcomer."""
    if beat.member_epoch != JOIN_EPOCH:
        member = require(image, beat)
        _check_epoch(beat, member.current)
        return member
    holder = None if beat.instance_id is None else image.static(beat.instance_id)
    if holder is not None and holder.member_id != beat.member_id:
        if holder.current.epoch != LEAVE_STATIC_EPOCH:
            raise PeerError(ErrorCode.UNRELEASED_INSTANCE_ID, f"{beat.instance_id} is held by another member")
        if beat.member_id in image.members:
            raise PeerError(ErrorCode.INVALID_REQUEST, "a member cannot change its instance id")
        return holder
    if beat.member_id in image.members:
        return require(image, beat)  # it was fenced, or never got the answer to its join: it owns nothing
    if len(image.members) >= size_max:
        raise PeerError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {len(image.members)} members")
    return None


def subscription_after(beat: Heartbeat, before: Subscription | None) -> Subscription:
    """What a member is and asks for after a heartbeat; one that joins says all of it."""
    if before is None or beat.member_epoch == JOIN_EPOCH:
        return Subscription(
            instance_id=beat.instance_id if before is None else before.instance_id,
            rack_id=beat.rack_id,
            client_id=beat.client_id,
            client_host=beat.client_host,
            topic_names=_sorted(beat.topic_names or ()),
            topic_regex=beat.topic_regex or None,
            rebalance_timeout_ms=beat.rebalance_timeout_ms,
            server_assignor=beat.server_assignor,
        )
    return Subscription(
        instance_id=before.instance_id,
        rack_id=before.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        topic_names=before.topic_names if beat.topic_names is None else _sorted(beat.topic_names),
        topic_regex=before.topic_regex if beat.topic_regex is None else beat.topic_regex or None,
        rebalance_timeout_ms=before.rebalance_timeout_ms
        if beat.rebalance_timeout_ms < 0
        else beat.rebalance_timeout_ms,
        server_assignor=before.server_assignor if beat.server_assignor is None else beat.server_assignor,
    )


def _sorted(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def _check_epoch(beat: Heartbeat, current: Current) -> None:
    if beat.member_epoch == current.epoch:
        return
    # The answer with the newer epoch may be lost; who owns nothing beyond what that answer gave missed no revocation.
    is_retry = beat.member_epoch == current.previous_epoch and current.epoch > 0
    if not is_retry or beat.owned is None or not beat.owned <= current.assigned:
        raise PeerError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"epoch {beat.member_epoch} is not the member's, {current.epoch}: give up all partitions and join again",
        )
