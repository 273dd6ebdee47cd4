"""AddPartitionsToTxn (key 24): partitions join a transaction before they are written to (KIP-98).

Clients send up to version 3, of one transaction; brokers verify several at once from 4 on (KIP-890).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string


class RequestTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(int32)


class RequestTransaction(Struct):
    """One producer's transaction, from version 4 on."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[RequestTopic] = array(RequestTopic)


class Request(Message, key=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5), flexible=3):
    """Add these partitions to these transactions, or verify that they are in."""

    transactions: list[RequestTransaction] = array(RequestTransaction, since=4)
    v3_and_below_transactional_id: str = string(until=3)
    v3_and_below_producer_id: int = int64(until=3)
    v3_and_below_producer_epoch: int = int16(until=3)
    v3_and_below_topics: list[RequestTopic] = array(RequestTopic, until=3)


class ResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = int32()
    partition_error_code: int = int16()


class ResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = string()
    results_by_partition: list[ResponsePartition] = array(ResponsePartition)


class ResponseTransaction(Struct):
    """The outcome for one transaction, from version 4 on."""

    transactional_id: str = string()
    topic_results: list[ResponseTopic] = array(ResponseTopic)


class Response(Message, key=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5), flexible=3):
    """The outcome, partition by partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=4)
    results_by_transaction: list[ResponseTransaction] = array(ResponseTransaction, since=4)
    results_by_topic_v3_and_below: list[ResponseTopic] = array(ResponseTopic, until=3)
