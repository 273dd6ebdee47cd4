from __future__ import annotations

import pytest

from odradek.client.start import EARLIEST, LATEST, Start, StartLike, parse_start


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ("start", Start(timestamp=EARLIEST)),
        ("end", Start(timestamp=LATEST)),
        ("+10", Start(timestamp=EARLIEST, shift=10)),
        ("-10", Start(timestamp=LATEST, shift=-10)),
        ("@1700000000000", Start(timestamp=1_700_000_000_000)),
        ("1234", Start(offset=1234)),
        (0, Start(offset=0)),
        (Start(offset=7), Start(offset=7)),
    ],
)
def test_a_place_to_start_is_read_and_shown_alike(given: StartLike, start: Start) -> None:
    assert parse_start(given) == start
    assert parse_start(str(start)) == start


@pytest.mark.parametrize("given", ["", "begin", "+", "@", "--1", "1.5", "+-1", "@now", "²", str(2**63)])
def test_what_is_no_place_is_refused_with_the_forms_there_are(given: str) -> None:
    with pytest.raises(ValueError, match=r"write start, end, \+n, -n, an offset, or @milliseconds"):
        parse_start(given)


def test_a_negative_number_is_no_offset() -> None:
    with pytest.raises(ValueError, match="not negative"):
        parse_start(-1)
