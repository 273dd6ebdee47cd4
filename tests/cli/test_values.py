"""What people write on a command line, and what they are told when it makes no sense."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from odradek.cli.values import assignment, moment, number, place, seconds, size
from odradek.client.start import EARLIEST, LATEST, Start
from odradek.clock import SystemClock


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", Start(timestamp=EARLIEST)),
        ("end", Start(timestamp=LATEST)),
        ("12", Start(offset=12)),
        ("+3", Start(timestamp=EARLIEST, shift=3)),
        ("-3", Start(timestamp=LATEST, shift=-3)),
        ("@1700000000000", Start(timestamp=1_700_000_000_000)),
        ("@2023-11-14T22:13:20Z", Start(timestamp=1_700_000_000_000)),
        ("@2023-11-14T22:13:20.123+00:00", Start(timestamp=1_700_000_000_123)),
        ("@2023-11-15 00:13:20+02:00", Start(timestamp=1_700_000_000_000)),
    ],
)
def test_places(text: str, expected: Start) -> None:
    assert place(text) == expected


@pytest.mark.parametrize(
    ("text", "ago_ms"), [("-90s", 90_000), ("-1h30m", 5_400_000), ("-2d", 172_800_000), ("-1.5h", 5_400_000)]
)
def test_times_ago(text: str, ago_ms: int) -> None:
    before = SystemClock().now_ms()
    found = moment(text)
    assert before - ago_ms <= found <= SystemClock().now_ms() - ago_ms


def test_a_day_begins_at_midnight_of_this_place() -> None:
    assert moment("2026-01-31T12:00") - moment("2026-01-31") == 12 * 3_600_000


@pytest.mark.parametrize(("text", "expected"), [("100", 100), ("1KiB", 1024), ("2 MB", 2_000_000), ("1m", 1 << 20)])
def test_sizes(text: str, expected: int) -> None:
    assert size(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("10", 10.0), ("0.5", 0.5), ("500ms", 0.5), ("1h30m", 5400.0)])
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == expected


def test_assignments() -> None:
    assert assignment("a.b=c=d") == ("a.b", "c=d")
    assert assignment(" a =") == ("a", "")


@pytest.mark.parametrize(
    ("read", "text", "hint"),
    [
        (place, "begin", "write start, end"),
        (place, "", "write start, end"),
        (place, "@", "not a time"),
        (place, "@yesterday", "2026-01-31T12:00"),
        (place, "@-1fortnight", "1h30m"),
        (place, "@-99999w", "before 1970"),
        (place, "99999999999999999999", "an offset"),
        (size, "1 parsec", "1KiB"),
        (size, "-1", "1KiB"),
        (seconds, "soon", "500ms"),
        (seconds, "-1", "500ms"),
        (assignment, "a", "NAME=VALUE"),
        (assignment, "=a", "NAME=VALUE"),
        (number(1, 5), "6", "from 1 to 5"),
        (number(1), "0", "from 1 on"),
        (number(), "１", "whole number"),
        (number(), "x" * 99, "whole number"),
    ],
)
def test_nonsense_is_answered_with_what_to_write(read: Callable[[str], object], text: str, hint: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=hint):
        read(text)
