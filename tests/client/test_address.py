from __future__ import annotations

import pytest

from odradek.client.address import Address, parse_addresses


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("127.0.0.1:9092", [Address("127.0.0.1", 9092)]),
        ("localhost", [Address("localhost", 9092)]),
        (" a:1 , b:2,a:1 ", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9093", [Address("::1", 9093)]),
        ("[::1]", [Address("::1", 9092)]),
    ],
)
def test_addresses_are_read_as_people_write_them(text: str, addresses: list[Address]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize("text", ["a:b", "a:0", "a:65536", ":9092", "::1", "[::1", "[::1]x", "a:1:2", "a:-1", "a:²"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"write it as host:port, for example 127\.0\.0\.1:9092"):
        parse_addresses(text)


@pytest.mark.parametrize("text", ["", " ", ","])
def test_no_address_at_all_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no broker address given"):
        parse_addresses(text)


def test_an_address_is_shown_as_it_is_written() -> None:
    assert str(Address("localhost", 9092)) == "localhost:9092"
    assert str(Address("::1", 9092)) == "[::1]:9092"
