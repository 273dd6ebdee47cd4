"""Request and response headers: golden bytes, round trips, and bytes that are not headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.wire.api import ApiKey, is_flexible
from odradek.wire.errors import DecodeError
from odradek.wire.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)

GOLDEN = [
    (RequestHeader(3, 8, 7, "me"), "0003 0008 00000007 0002 6d65"),
    (RequestHeader(3, 9, -1, "me"), "0003 0009 ffffffff 0002 6d65 00"),
    (RequestHeader(18, 3, 1, None), "0012 0003 00000001 ffff 00"),
    (RequestHeader(17, 1, 1, ""), "0011 0001 00000001 0000"),
    (RequestHeader(ApiKey.PRODUCE, 9, 2**31 - 1, "ü"), "0000 0009 7fffffff 0002 c3bc 00"),
]


@pytest.mark.parametrize(("header", "encoded"), GOLDEN)
def test_a_request_header_looks_as_kafkas_does(header: RequestHeader, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode_request_header(header) == data
    assert decode_request_header(memoryview(data + b"body")) == (header, len(data))


@given(
    st.builds(
        RequestHeader,
        st.sampled_from([key.value for key in ApiKey]),
        st.integers(0, 20),
        st.integers(-(2**31), 2**31 - 1),
        st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    )
)
def test_a_request_header_comes_back_and_no_part_of_it_passes_for_the_whole(header: RequestHeader) -> None:
    data = encode_request_header(header)
    decoded, at = decode_request_header(memoryview(data))
    assert (decoded, at) == (header, len(data))
    assert isinstance(decoded, RequestHeader)
    for end in range(len(data)):
        with pytest.raises(DecodeError, match="request header"):
            decode_request_header(data[:end])


@given(st.binary(max_size=40))
def test_any_bytes_give_a_header_or_a_decode_error(data: bytes) -> None:
    for decode in (decode_request_header, lambda data: decode_response_header(data, True)):
        try:
            _, at = decode(data)
        except DecodeError:
            continue
        assert at <= len(data)


def test_an_unknown_api_is_given_a_classic_header() -> None:
    data = bytes.fromhex("7777 0063 00000001 ffff")
    assert decode_request_header(data) == (RequestHeader(0x7777, 99, 1, None), 10)


def test_the_caller_can_say_what_is_flexible() -> None:
    data = bytes.fromhex("7777 0063 00000001 ffff 00")
    assert decode_request_header(data, {0x7777: 0})[1] == 11


@pytest.mark.parametrize(
    ("encoded", "problem"),
    [
        ("0003 0008 00000007 fffe", "length -2"),
        ("0003 0008 00000007 7fff 61", "end too soon"),
        ("0003 0008 00000007 0002 c328", "UTF-8"),
        ("0003 0009 00000007 ffff 01 00 05 aa", "end too soon"),
        ("0003 0009 00000007 ffff 8101", "129 tagged fields"),
        ("0003 0009 00000007 ffff ffffffffff01", "varint"),
    ],
)
def test_a_bad_request_header_is_refused(encoded: str, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        decode_request_header(memoryview(bytes.fromhex(encoded)))


def test_tags_in_a_header_are_passed_over() -> None:
    data = bytes.fromhex("0003 0009 00000007 ffff 02 00 01 aa 05 00 ee")
    assert decode_request_header(data) == (RequestHeader(3, 9, 7, None), 16)
    assert decode_response_header(bytes.fromhex("00000007 01 00 01 aa ee"), True) == (7, 8)


@pytest.mark.parametrize("header", [RequestHeader(3, 2**15, 0, None), RequestHeader(3, 0, 0, "x" * 32768)])
def test_a_header_that_does_not_fit_is_not_written(header: RequestHeader) -> None:
    with pytest.raises(ValueError, match="cannot be encoded"):
        encode_request_header(header)


@pytest.mark.parametrize(("flexible", "encoded"), [(False, "00000102"), (True, "0000010200")])
def test_a_response_header_looks_as_kafkas_does(flexible: bool, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode_response_header(0x102, flexible) == data
    assert decode_response_header(data + b"body", flexible) == (0x102, len(data))
    for end in range(len(data)):
        with pytest.raises(DecodeError, match="response header"):
            decode_response_header(data[:end], flexible)


def test_the_header_of_a_request_follows_the_table_of_flexible_versions() -> None:
    for key in ApiKey:
        for version in range(15):
            length = len(encode_request_header(RequestHeader(key, version, 0, None)))
            assert length == 10 + is_flexible(key, version)
