"""DescribeTransactions (key 65): transactions by transactional id (KIP-664)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, int64, string


class Request(Message, key=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), flexible=0):
    """Describe these transactions."""

    transactional_ids: list[str] = array(string)


class ResponseTopic(Struct):
    """Partitions that take part."""

    topic: str = string()
    partitions: list[int] = array(int32)


class ResponseTransaction(Struct):
    """One transaction, its producer and its partitions."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[ResponseTopic] = array(ResponseTopic)


class Response(Message, key=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), flexible=0):
    """The transactions asked for."""

    throttle_time_ms: int = int32()
    transaction_states: list[ResponseTransaction] = array(ResponseTransaction)
