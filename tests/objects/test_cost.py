"""The bill of a channel: every line can be reckoned by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.objects.cost import MONTH_SECONDS, PROVIDERS, Prices, Use, bill, slices_within

S3 = PROVIDERS["s3"]
MILLION = Use(rate=1e6, size_bytes=100)


def dollars(use: Use, prices: Prices = S3) -> dict[str, float]:
    return {line.what: line.dollars for line in bill(use, prices).lines}


def test_one_publisher_of_a_million_messages_a_second_stays_below_a_hundred_dollars_of_requests() -> None:
    found = bill(MILLION, S3)
    puts = 3  # a slice of 100 MB fills one object of 64 MiB and begins another; and one for those that came late
    assert dollars(MILLION)["PUT of slices"] == pytest.approx(puts * MONTH_SECONDS / 1_000 * 0.005)
    assert dollars(MILLION)["GET by readers"] == pytest.approx(puts * MONTH_SECONDS / 1_000 * 0.0004)
    assert 65 < found.request_dollars < 75
    assert found.dollars == pytest.approx(found.request_dollars + 100e6 * 86_400 / 1e9 * 0.023)


def test_five_publishers_need_longer_slices_for_that() -> None:
    five = replace(MILLION, publishers=5)
    assert bill(five, S3).request_dollars > 100
    shortest = next(slices_within(five, S3, 100))
    assert shortest == 2_000
    assert bill(replace(five, slice_ms=shortest), S3).request_dollars <= 100


def test_slices_that_are_full_before_their_time_make_more_objects() -> None:
    small = replace(MILLION, slice_bytes=1_000_000)
    assert small.puts_per_second == pytest.approx(101)


def test_no_more_objects_than_messages_are_put() -> None:
    assert Use(rate=0.5, size_bytes=100).puts_per_second == 0.5


def test_a_target_that_nothing_meets_gives_no_slice() -> None:
    assert list(slices_within(replace(MILLION, readers=100), S3, 1)) == []


def test_prices_come_from_a_table() -> None:
    table = {"put_per_1000": 1, "list_per_1000": 0.0, "get_per_1000": 0, "storage_per_gb_month": 0, "provider": "ours"}
    prices = Prices.read(table)
    assert (prices.provider, prices.date) == ("ours", "not stated")
    assert dollars(Use(10, 100), prices)["PUT of slices"] == pytest.approx(2 * MONTH_SECONDS / 1_000, rel=1e-3)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [({"put_per_1000": "cheap"}, "put_per_1000"), ({"get_per_1000": -1}, "get_per_1000"), ({"gte": 1}, "gte")],
)
def test_a_table_with_something_wrong_says_what(wrong: dict[str, object], told: str) -> None:
    right = {"put_per_1000": 1, "list_per_1000": 1, "get_per_1000": 1, "storage_per_gb_month": 1}
    with pytest.raises(ValueError, match=told):
        Prices.read({**right, **wrong})
