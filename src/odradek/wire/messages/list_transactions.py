"""ListTransactions (key 66): the transactions this broker coordinates (KIP-664).

Filter by duration since version 1 (KIP-994), by a pattern of ids since 2 (KIP-1152).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, int64, string


class Request(Message, key=ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible=0):
    """List the transactions that pass these filters."""

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64(since=1, default=-1)
    transactional_id_pattern: str | None = string(since=2, nullable=2, default=None)


class ResponseTransaction(Struct):
    """One transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class Response(Message, key=ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible=0):
    """The transactions found."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[ResponseTransaction] = array(ResponseTransaction)
