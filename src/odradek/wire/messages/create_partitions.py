"""CreatePartitions (key 37): let topics grow to more partitions (KIP-195)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, boolean, int16, int32, string


class RequestAssignment(Struct):
    """The brokers of one new partition, when the caller chooses them."""

    broker_ids: list[int] = array(int32)


class RequestTopic(Struct):
    """A topic and the number of partitions it shall have."""

    name: str = string()
    count: int = int32()
    assignments: list[RequestAssignment] | None = array(RequestAssignment, nullable=0)


class Request(Message, key=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible=2):
    """Let these topics grow, or only check whether it would work."""

    topics: list[RequestTopic] = array(RequestTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class ResponseResult(Struct):
    """The outcome for one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class Response(Message, key=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible=2):
    """The outcome, topic by topic."""

    throttle_time_ms: int = int32()
    results: list[ResponseResult] = array(ResponseResult)
