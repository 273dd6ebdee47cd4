"""Tests of odradek.records.record."""

from odradek.records.header import NO_TIMESTAMP
from odradek.records.record import NewRecord, Record


def test_a_new_record_needs_only_a_value_and_knows_no_time() -> None:
    assert NewRecord(b"value") == (b"value", None, NO_TIMESTAMP, ())


def test_a_stored_record_has_an_offset_and_a_time() -> None:
    record = Record(5, 1000, b"key", None)
    assert (record.offset, record.timestamp, record.key, record.value, record.headers) == (5, 1000, b"key", None, ())
