"""AlterUserScramCredentials (key 51): set and remove SCRAM credentials (KIP-554).

The password comes salted and hashed: a broker never sees the plain one.
"""

from odradek.wire.api import ApiKey
from odradek.wire.primitives import ReadBuffer
from odradek.wire.schema import Message, Struct, array, data, int8, int16, int32, string


class RequestDeletion(Struct):
    """A credential to remove."""

    name: str = string()
    mechanism: int = int8()


class RequestUpsertion(Struct):
    """A credential to set."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: ReadBuffer = data()
    salted_password: ReadBuffer = data()


class Request(Message, key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible=0):
    """Apply these changes."""

    deletions: list[RequestDeletion] = array(RequestDeletion)
    upsertions: list[RequestUpsertion] = array(RequestUpsertion)


class ResponseResult(Struct):
    """The outcome for one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class Response(Message, key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible=0):
    """The outcome, user by user."""

    throttle_time_ms: int = int32()
    results: list[ResponseResult] = array(ResponseResult)
