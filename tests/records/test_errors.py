"""Tests of odradek.records.errors."""

import pytest

from odradek.records import errors


@pytest.mark.parametrize("name", ["CorruptBatch", "InvalidRecord", "UnsupportedCodec", "BatchTooLarge"])
def test_one_base_catches_every_kind(name: str) -> None:
    assert issubclass(getattr(errors, f"{name}Error"), errors.RecordError)
