"""What a follower does with the leader's answer for one partition: append, truncate, or say why not.

Logs are cut where the epochs part, never at a high watermark (KIP-101, KIP-279). Nothing here waits.
"""

from __future__ import annotations

import logging

from odradek.client.errors import error_code
from odradek.disk.errors import DiskError
from odradek.log.errors import LogStoppedError
from odradek.model import Offset
from odradek.replication.fitting import MisfitError, fit
from odradek.replication.following import Following
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import fetch

# What passes when both brokers have heard of the same metadata.
TRANSIENT = frozenset({
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.STALE_BROKER_EPOCH,
})  # fmt: skip

logger = logging.getLogger(__name__)


class RefusedError(Exception):
    """The leader answered with an error."""

    def __init__(self, number: int) -> None:
        self.code = error_code(number)
        super().__init__(f"the leader says {self.code.name}: {self.code.message}")


class OutOfRangeError(Exception):
    """The leader does not have the offset that was asked for."""


def is_disk_failure(error: Exception) -> bool:
    """Whether an error means that what is on the disk is in doubt; a log that is closed or deleted is not."""
    return isinstance(error.cause if isinstance(error, LogStoppedError) else error, DiskError)


def take(following: Following, answer: fetch.ResponsePartition) -> bool:
    """Take an answer in; say whether the leader is to be asked again from another position."""
    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OutOfRangeError
    if answer.error_code != ErrorCode.NONE:
        raise RefusedError(answer.error_code)
    replica = following.replica
    if replica.log.next_offset != following.asked_offset:
        return True  # the log has changed under the request: what came may not continue it
    if answer.diverging_epoch.end_offset >= 0:
        cut_where_epochs_part(following, answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
        return True
    if answer.records is not None and len(answer.records):
        _append(following, memoryview(answer.records), answer)
        return True
    replica.advanced_to(min(answer.high_watermark, replica.log.next_offset))
    return False


def _append(following: Following, data: memoryview, answer: fetch.ResponsePartition) -> None:
    replica, log = following.replica, following.replica.log
    found = fit(data, log.next_offset, log.epochs.latest, following.leader_epoch)
    if found is None:
        raise MisfitError(f"all that came lies before offset {log.next_offset}")
    if found.base_offset < log.next_offset:
        if log.size_bytes:
            raise MisfitError(f"the batch at offset {found.base_offset} reaches over the end, {log.next_offset}")
        replica.restart_at(found.base_offset)  # the leader's log starts within this batch
    elif found.gap is not None and not (log.config.compacts or log.state.sparse or found.gap == following.gap):
        following.gap = found.gap
        raise MisfitError(f"the offsets from {found.gap[0]} to {found.gap[1] - 1} are left out")
    replica.replicated(found.data, answer.high_watermark, answer.log_start_offset)
    following.gap = None


def cut_where_epochs_part(following: Following, epoch: int, end_offset: Offset) -> None:
    """Truncate to where the leader's last common epoch ended, there or here, whichever is less (KIP-279).

    The epochs before it may part as well; then the next answer says so.
    """
    replica, log = following.replica, following.replica.log
    end = log.next_offset
    own = log.epochs.end_of(epoch, end).end_offset
    if epoch < 0 and end_offset > end:
        raise OutOfRangeError  # the leader has no history that begins before our end
    offset = min(end_offset, own if own >= 0 else end)
    if not 0 <= offset < end:
        raise MisfitError(f"the leader's epoch {epoch} ends at {end_offset}, which is no place to cut off from {end}")
    logger.info("%s: cut from %d to %d, where epoch %d of the leader's log ends", replica.tp, end, offset, epoch)
    replica.cut(offset)
