"""Tests of odradek.records.crc."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.crc import crc32c


def test_the_check_value_of_the_castagnoli_polynomial() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_has_the_same_sum(kind: Callable[[bytes], bytes]) -> None:
    assert crc32c(kind(bytes(32))) == 0x8A9136AA  # RFC 3720, appendix B.4: 32 bytes of zeroes


@given(st.binary(max_size=200), st.integers(0, 200))
def test_a_slice_of_a_view_is_summed_where_it_lies(data: bytes, start: int) -> None:
    assert crc32c(memoryview(bytearray(data))[start:]) == crc32c(data[start:])
