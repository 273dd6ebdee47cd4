"""DescribeUserScramCredentials (key 50): which SCRAM credentials users have, never the secrets (KIP-554)."""

from odradek.wire.api import ApiKey
from odradek.wire.schema import Message, Struct, array, int8, int16, int32, string


class RequestUser(Struct):
    """One user."""

    name: str = string()


class Request(Message, key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible=0):
    """Describe these users; all if null."""

    users: list[RequestUser] | None = array(RequestUser, nullable=0)


class ResponseCredentialInfo(Struct):
    """A credential's mechanism and number of iterations."""

    mechanism: int = int8()
    iterations: int = int32()


class ResponseResult(Struct):
    """The credentials of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    credential_infos: list[ResponseCredentialInfo] = array(ResponseCredentialInfo)


class Response(Message, key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible=0):
    """The credentials, user by user."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    results: list[ResponseResult] = array(ResponseResult)
