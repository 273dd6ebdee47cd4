"""The headers before a request and before a response, written by hand since every request passes here.

A frame is what follows the four bytes of its size. The client's id is a classic string in every version (KIP-482
left it so, for a broker must be able to read it without knowing the version); tagged fields follow it if flexible.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from odradek.wire.api import FLEXIBLE_SINCE
from odradek.wire.errors import DecodeError
from odradek.wire.primitives import ReadBuffer, decode_uvarint, skip_tags

_REQUEST = struct.Struct(">hhih")  # key, version, correlation id, length of the client's id
_unpack_request = _REQUEST.unpack_from
_CORRELATION_ID = struct.Struct(">i")
_FLEXIBLE_RESPONSE = struct.Struct(">ix")  # no tagged fields
_new_tuple = tuple.__new__


class RequestHeader(NamedTuple):
    """What stands before every request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(
    frame: ReadBuffer, flexible_since: Mapping[int, int | None] = FLEXIBLE_SINCE
) -> tuple[RequestHeader, int]:
    """Read the header of a request; return it and the position of the body.

    A key that `flexible_since` does not have is given a classic header: nobody will read its body.
    """
    try:
        api_key, api_version, correlation_id, length = _unpack_request(frame)
        at = 10
        client_id = None
        if length >= 0:
            at += length
            client_id = bytes(frame[10:at]).decode()
            if at > len(frame):
                raise DecodeError("request header: the bytes end too soon")
        elif length != -1:
            raise DecodeError(f"request header: the client's id has length {length}")
        since = flexible_since.get(api_key)
        if since is not None and api_version >= since:
            at = _pass_tags(frame, at, "request header")
    except (struct.error, IndexError):
        raise DecodeError("request header: the bytes end too soon") from None
    except UnicodeDecodeError:
        raise DecodeError("request header: the client's id is not UTF-8") from None
    return _new_tuple(RequestHeader, (api_key, api_version, correlation_id, client_id)), at


def encode_request_header(header: RequestHeader) -> bytes:
    """Write the header of a request, without tagged fields."""
    api_key, api_version, correlation_id, client_id = header
    encoded = b"" if client_id is None else client_id.encode()
    since = FLEXIBLE_SINCE.get(api_key)
    tags = b"\0" if since is not None and api_version >= since else b""
    try:
        fixed = _REQUEST.pack(api_key, api_version, correlation_id, -1 if client_id is None else len(encoded))
    except struct.error as error:
        raise ValueError(f"{header} cannot be encoded: {error}") from None
    return fixed + encoded + tags


def encode_response_header(correlation_id: int, flexible: bool) -> bytes:
    """Write the header of a response; whether it is flexible is said by api.response_header_version."""
    return _FLEXIBLE_RESPONSE.pack(correlation_id) if flexible else _CORRELATION_ID.pack(correlation_id)


def decode_response_header(data: ReadBuffer, flexible: bool) -> tuple[int, int]:
    """Read the header of a response; return the correlation id and the position of the body."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(data)
        return correlation_id, _pass_tags(data, 4, "response header") if flexible else 4
    except (struct.error, IndexError):
        raise DecodeError("response header: the bytes end too soon") from None


def _pass_tags(data: ReadBuffer, at: int, header: str) -> int:
    count = data[at]
    if count == 0:
        return at + 1
    count, at = decode_uvarint(data, at)
    at = skip_tags(data, at, count, header)
    if at > len(data):
        raise IndexError
    return at
