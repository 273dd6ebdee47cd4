"""EndTxn (key 26): commit or abort a transaction (KIP-98).

Since version 5 every end raises the producer's epoch and the answer says to what (KIP-890).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, boolean, int16, int32, int64, string


class Request(Message, key=ApiKey.END_TXN, versions=(0, 5), flexible=3):
    """End the transaction, committed or not."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class Response(Message, key=ApiKey.END_TXN, versions=(0, 5), flexible=3):
    """Whether it ended, and the producer's next epoch."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(since=5, default=-1)
    producer_epoch: int = int16(since=5, default=-1)
