"""Every message in every version, cut short and spoilt: the reader refuses what is no message and never falls over."""

from __future__ import annotations

import contextlib

import pytest

from odradek.wire.errors import DecodeError
from tests.wire.message_samples import Case, all_cases, from_plain, full_value, to_plain

CASES = list(all_cases())


def _sample(case: Case) -> bytes:
    return from_plain(case.cls, full_value(case.cls, case.version)).encode(case.version)


def test_every_module_of_messages_has_cases() -> None:
    assert len({case.module for case in CASES}) == 57
    assert len(CASES) == 521


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_message_comes_back_whatever_lies_before_and_after_it(case: Case) -> None:
    decoded = case.cls.decode(b"before" + _sample(case) + b"after", case.version, at=6)
    assert to_plain(decoded, case.version) == full_value(case.cls, case.version)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_message_cut_at_any_byte_is_refused(case: Case) -> None:
    sample = _sample(case)
    for size in range(len(sample)):
        with pytest.raises(DecodeError):
            case.cls.decode(sample[:size], case.version)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_message_with_a_spoilt_byte_is_read_or_refused(case: Case) -> None:
    sample = _sample(case)
    for place in range(len(sample)):
        for spoilt in (0x00, 0x7F, 0x80, 0xFF):
            with contextlib.suppress(DecodeError):
                case.cls.decode(sample[:place] + bytes([spoilt]) + sample[place + 1 :], case.version)
