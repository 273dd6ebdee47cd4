"""InitProducerId (key 22): an id and an epoch for an idempotent or transactional producer (KIP-98).

A producer can raise its own epoch since version 3 (KIP-360); version 6 is for two-phase commit (KIP-939).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, boolean, int16, int32, int64, string


class Request(Message, key=ApiKey.INIT_PRODUCER_ID, versions=(0, 6), flexible=2):
    """Give this producer an id; without a transactional id it is merely idempotent."""

    transactional_id: str | None = string(nullable=0, default=None)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)
    enable_2pc: bool = boolean(since=6)
    keep_prepared_txn: bool = boolean(since=6)


class Response(Message, key=ApiKey.INIT_PRODUCER_ID, versions=(0, 6), flexible=2):
    """The producer's id and epoch."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64(since=6, default=-1)
    ongoing_txn_producer_epoch: int = int16(since=6, default=-1)
