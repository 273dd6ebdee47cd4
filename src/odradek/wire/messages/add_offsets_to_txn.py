"""AddOffsetsToTxn (key 25): a group's positions join a transaction (KIP-98); TxnOffsetCommit brings them afterwards."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, int16, int32, int64, string


class Request(Message, key=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible=3):
    """Add the offsets of this group to the transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class Response(Message, key=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible=3):
    """Whether they were added."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
