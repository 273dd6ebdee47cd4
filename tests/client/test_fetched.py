from __future__ import annotations

import pytest

from odradek.client.fetched import APPEND_TIME, CREATE_TIME, AbortedTransaction, ConsumerRecord, Fetched
from odradek.model import TopicPartition
from odradek.records.build import ControlType, build_batch, control_batch, rebuild_batch
from odradek.records.compression import Codec
from odradek.records.errors import CorruptBatchError, RecordError
from odradek.records.header import read_header
from odradek.records.parse import parse_batch
from odradek.records.record import Header, NewRecord

PARTITION = TopicPartition("orders", 3)


def batch(base_offset: int, *values: bytes, producer_id: int = -1) -> bytearray:
    records = [NewRecord(value, b"key", 1000 + number) for number, value in enumerate(values)]
    is_transactional = producer_id >= 0
    return build_batch(
        records,
        base_offset=base_offset,
        leader_epoch=7,
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=0 if is_transactional else -1,
        transactional=is_transactional,
    )


def marker(base_offset: int, kind: ControlType, producer_id: int) -> bytearray:
    return control_batch(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=base_offset
    )


def consume(fetched: Fetched) -> list[tuple[int, bytes | None]]:
    found = []
    while fetched:
        records, _ = fetched.next_batch()
        found += [(record.offset, record.value) for record in records]
    return found


def fetch(position: int, *batches: bytearray, aborted: list[AbortedTransaction] | None = None) -> Fetched:
    return Fetched(PARTITION, memoryview(b"".join(batches)), position, aborted)


def test_a_record_arrives_with_all_it_was_sent_with() -> None:
    sent = NewRecord(b"value", b"key", 1234, (Header("h", b"1"), Header("h", None)))
    data = build_batch([sent], base_offset=42, leader_epoch=7, codec=Codec.ZSTD)
    (record,), position = Fetched(PARTITION, memoryview(data), 42).next_batch()
    assert record == ConsumerRecord(
        "orders", 3, 42, 1234, CREATE_TIME, b"key", b"value", (Header("h", b"1"), Header("h", None)), 7
    )
    assert position == 43
    assert not hasattr(record, "__dict__")


def test_the_brokers_time_is_told_from_the_producers() -> None:
    data = build_batch([NewRecord(b"a", None, 5), NewRecord(b"b", None, 9)], log_append_time=True)
    records, _ = Fetched(PARTITION, memoryview(data), 0).next_batch()
    assert [(record.timestamp, record.timestamp_type) for record in records] == [(9, APPEND_TIME)] * 2


def test_offsets_before_the_one_that_was_asked_for_are_dropped() -> None:
    fetched = fetch(12, batch(5, b"before"), batch(10, b"a", b"b", b"c", b"d"), batch(14, b"e"))
    assert fetched.next_offset == 15
    assert consume(fetched) == [(12, b"c"), (13, b"d"), (14, b"e")]


def test_the_position_passes_over_offsets_that_compaction_emptied() -> None:
    whole = batch(10, b"a", b"b", b"c")
    kept = parse_batch(whole)[1:2]
    fetched = fetch(10, rebuild_batch(read_header(whole), kept))
    records, position = fetched.next_batch()
    assert [record.offset for record in records] == [11]
    assert position == fetched.next_offset == 13


def test_a_batch_that_is_cut_off_at_the_end_is_fetched_again() -> None:
    fetched = fetch(0, batch(0, b"a"), batch(1, b"b")[:-1])
    assert fetched.next_offset == 1
    assert consume(fetched) == [(0, b"a")]


def test_bytes_without_a_single_batch_are_an_error_and_no_endless_loop() -> None:
    with pytest.raises(CorruptBatchError, match="hold no batch"):
        fetch(0, batch(0, b"a")[:-1])
    with pytest.raises(CorruptBatchError, match="offset 9 of orders-3"):
        fetch(9, batch(0, b"a"))


def test_a_damaged_batch_is_noticed() -> None:
    data = batch(0, b"value")
    data[-3] ^= 1
    with pytest.raises(RecordError, match="CRC"):
        fetch(0, data).next_batch()


def test_markers_are_never_handed_out_but_the_position_passes_them() -> None:
    fetched = fetch(0, batch(0, b"a", producer_id=1), marker(1, ControlType.COMMIT, 1), batch(2, b"b"))
    records, position = fetched.next_batch()
    assert ([record.offset for record in records], position) == ([0], 2)
    assert consume(fetched) == [(2, b"b")]
    only_marker = fetch(1, marker(1, ControlType.COMMIT, 1))
    assert (bool(only_marker), only_marker.next_offset) == (False, 2)


def test_an_uncommitted_reader_sees_what_was_aborted() -> None:
    assert consume(fetch(0, batch(0, b"a", producer_id=1), marker(1, ControlType.ABORT, 1))) == [(0, b"a")]


def test_a_committed_reader_does_not_see_what_was_aborted() -> None:
    data = (
        batch(0, b"kept", producer_id=2),
        batch(1, b"aborted", producer_id=1),
        batch(2, b"plain"),
        marker(3, ControlType.COMMIT, 2),
        marker(4, ControlType.ABORT, 1),
        batch(5, b"the next transaction", producer_id=1),
        marker(6, ControlType.COMMIT, 1),
    )
    fetched = fetch(0, *data, aborted=[AbortedTransaction(1, 1)])
    assert consume(fetched) == [(0, b"kept"), (2, b"plain"), (5, b"the next transaction")]
    assert fetched.next_offset == 7


def test_a_fetch_that_begins_with_the_marker_does_not_lose_the_next_transaction() -> None:
    data = (
        marker(11, ControlType.ABORT, 1),
        batch(12, b"committed", producer_id=1),
        marker(13, ControlType.COMMIT, 1),
    )
    assert consume(fetch(11, *data, aborted=[AbortedTransaction(1, 3)])) == [(12, b"committed")]


def test_aborted_transactions_are_found_in_any_order_and_from_before_the_position() -> None:
    data = (
        batch(10, b"aborted since 3", producer_id=1),
        marker(11, ControlType.ABORT, 1),
        batch(12, b"aborted again", b"x", producer_id=1),
        marker(14, ControlType.ABORT, 1),
        batch(15, b"b"),
    )
    fetched = fetch(10, *data, aborted=[AbortedTransaction(1, 12), AbortedTransaction(1, 3)])
    assert consume(fetched) == [(15, b"b")]
