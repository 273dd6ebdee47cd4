"""DeleteTopics (key 20): remove topics and their records (KIP-4).

By name up to version 5, by name or id from 6 on (KIP-516).
"""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int16, int32, string, uuid


class RequestTopic(Struct):
    """One topic, by name or by id."""

    name: str | None = string(nullable=0, default=None)
    topic_id: bytes = uuid()


class Request(Message, key=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4):
    """Delete these topics."""

    topics: list[RequestTopic] = array(RequestTopic, since=6)
    topic_names: list[str] = array(string, until=5)
    timeout_ms: int = int32()


class ResponseTopic(Struct):
    """The outcome for one topic."""

    name: str | None = string(nullable=6)
    topic_id: bytes = uuid(since=6)
    error_code: int = int16()
    error_message: str | None = string(since=5, nullable=5, default=None)


class Response(Message, key=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4):
    """The outcome, topic by topic."""

    throttle_time_ms: int = int32()
    responses: list[ResponseTopic] = array(ResponseTopic)
