"""Tests of odradek.records.build."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.build import ControlType, build_batch, build_values, control_batch, read_control, rebuild_batch
from odradek.records.compression import Codec
from odradek.records.errors import InvalidRecordError, UnsupportedCodecError
from odradek.records.header import BatchHeader, check_batch, stamp_log_append_time
from odradek.records.parse import parse_batch
from odradek.records.record import Header, NewRecord, Record

from .samples import NOW_MS, RECORDS, batch_of, codecs, new_records


def stored(records: list[NewRecord], base_offset: int) -> list[Record]:
    return [
        Record(base_offset + index, record.timestamp, record.key, record.value, record.headers)
        for index, record in enumerate(records)
    ]


@given(new_records, codecs, st.integers(0, 2**60))
def test_what_is_built_is_what_is_parsed(records: list[NewRecord], codec: Codec, base_offset: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base_offset)
    assert parse_batch(batch, check_crc=True) == stored(records, base_offset)


@given(st.lists(st.binary(max_size=3_000), min_size=1, max_size=20), st.none() | st.binary(max_size=3_000))
def test_values_of_one_key_and_time_are_the_batch_that_their_records_are(
    values: list[bytes], key: bytes | None
) -> None:
    assert build_values(values, key, NOW_MS) == build_batch([NewRecord(value, key, NOW_MS) for value in values])


def test_values_may_be_long_and_many_but_not_none() -> None:
    for values in ([b"v" * 3_000_000, b"w" * 2047, b"", b"x" * 2048], [b"v"] * 10_000):
        assert build_values(values, None, 7) == build_batch([NewRecord(value, None, 7) for value in values])
    with pytest.raises(InvalidRecordError, match="at least one record"):
        build_values([], None, 7)


def test_a_record_as_long_as_a_segment_comes_back() -> None:
    records = [NewRecord(b"v" * 3_000_000, b"k" * 70_000), NewRecord(b"w" * 2047, b"x" * 2048)]
    assert parse_batch(build_batch(records)) == stored(records, 0)


def test_a_batch_of_more_records_than_small_varints_comes_back() -> None:
    records = [NewRecord(b"", None, NOW_MS + index * 3) for index in range(10_000)]
    assert parse_batch(build_batch(records)) == stored(records, 0)


def test_the_defaults_are_those_of_a_producer_without_idempotence() -> None:
    header = check_batch(build_batch([NewRecord(b"a", timestamp=5), NewRecord(b"b", timestamp=9), NewRecord(b"c")]))
    assert header == BatchHeader(
        base_offset=0,
        batch_length=header.batch_length,
        leader_epoch=-1,
        magic=2,
        crc=header.crc,
        attributes=0,
        last_offset_delta=2,
        base_timestamp=5,
        max_timestamp=9,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=3,
    )


def test_every_argument_reaches_its_field() -> None:
    header = check_batch(
        build_batch(
            RECORDS,
            base_offset=10,
            leader_epoch=11,
            codec=Codec.LZ4,
            producer_id=12,
            producer_epoch=13,
            base_sequence=14,
            transactional=True,
            control=True,
            log_append_time=True,
        )
    )
    assert (header.base_offset, header.leader_epoch, header.codec) == (10, 11, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (12, 13, 14)
    assert (header.is_transactional, header.is_control, header.uses_log_append_time) == (True, True, True)
    assert (header.last_offset, header.last_sequence) == (13, 17)


def test_the_level_reaches_the_codec() -> None:
    records = [NewRecord(b'{"n": %d, "square": %d}' % (n, n * n)) for n in range(2000)]
    low, high = (build_batch(records, codec=Codec.GZIP, level=level) for level in (1, 9))
    assert len(high) < len(low)


def test_an_empty_batch_is_not_built() -> None:
    with pytest.raises(InvalidRecordError, match="at least one record"):
        build_batch([])


@pytest.mark.parametrize(
    "records",
    [
        [NewRecord(b"", timestamp=2**63)],
        [NewRecord(b"", timestamp=-1), NewRecord(b"", timestamp=2**63)],
        [NewRecord(b"", timestamp=-(2**62)), NewRecord(b"", timestamp=2**63 - 1)],
        [NewRecord(b"", headers=(Header("\ud800", b""),))],
    ],
)
def test_what_does_not_fit_the_format_is_refused(records: list[NewRecord]) -> None:
    with pytest.raises(InvalidRecordError):
        build_batch(records)


@given(new_records, codecs, st.data())
def test_a_compacted_batch_keeps_its_identity_and_the_records_kept(
    records: list[NewRecord], codec: Codec, data: st.DataObject
) -> None:
    batch = build_batch(
        records, base_offset=500, leader_epoch=4, codec=codec, producer_id=9, producer_epoch=2, base_sequence=30
    )
    header, before = check_batch(batch), parse_batch(batch)
    kept = [record for record in before if data.draw(st.booleans())]
    horizon = data.draw(st.one_of(st.none(), st.integers(0, 2**53)))

    rebuilt = rebuild_batch(header, kept, delete_horizon_ms=horizon)
    after = check_batch(rebuilt)
    assert parse_batch(rebuilt) == kept
    assert after == header._replace(
        batch_length=after.batch_length,
        crc=after.crc,
        attributes=header.attributes | (0 if horizon is None else 0x40),
        base_timestamp=header.base_timestamp if horizon is None else horizon,
        max_timestamp=max((record.timestamp for record in kept), default=header.max_timestamp),
        record_count=len(kept),
    )
    assert (after.next_offset, after.last_sequence) == (header.next_offset, header.last_sequence)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_lost_all_records_is_a_bare_head(codec: Codec) -> None:
    header = check_batch(batch_of(codec))
    rebuilt = rebuild_batch(header, [])
    assert len(rebuilt) == 61
    assert parse_batch(rebuilt, check_crc=True) == []
    assert check_batch(rebuilt).codec == codec


def test_a_delete_horizon_once_set_stays() -> None:
    first = rebuild_batch(check_batch(batch_of(Codec.NONE)), parse_batch(batch_of(Codec.NONE)), delete_horizon_ms=111)
    again = rebuild_batch(check_batch(first), parse_batch(first), delete_horizon_ms=222)
    assert again == first
    assert check_batch(again).base_timestamp == 111
    assert [record.timestamp for record in parse_batch(again)] == [record.timestamp for record in RECORDS]


def test_compaction_leaves_log_append_time_alone() -> None:
    batch = bytearray(batch_of(Codec.NONE))
    stamp_log_append_time(batch, NOW_MS + 7)
    kept = [record._replace(timestamp=1) for record in parse_batch(batch)[:1]]
    rebuilt = rebuild_batch(check_batch(batch), kept, delete_horizon_ms=5)
    assert check_batch(rebuilt).max_timestamp == NOW_MS + 7
    assert parse_batch(rebuilt)[0].timestamp == NOW_MS + 7


@pytest.mark.parametrize("offset", [999, 1004])
def test_a_record_of_another_batch_is_not_kept(offset: int) -> None:
    with pytest.raises(InvalidRecordError, match=f"offset {offset} lies outside"):
        rebuild_batch(check_batch(batch_of(Codec.NONE)), [Record(offset, 0, None, None)])


def test_a_batch_of_an_unknown_codec_is_not_rebuilt() -> None:
    header = check_batch(batch_of(Codec.NONE))
    with pytest.raises(UnsupportedCodecError):
        rebuild_batch(header._replace(attributes=6), parse_batch(batch_of(Codec.NONE)))


@pytest.mark.parametrize("kind", list(ControlType))
def test_a_marker_says_how_the_transaction_ended(kind: ControlType) -> None:
    batch = control_batch(
        kind, producer_id=5, producer_epoch=6, coordinator_epoch=7, timestamp=NOW_MS, base_offset=8, leader_epoch=9
    )
    header = check_batch(batch)
    assert (header.is_control, header.is_transactional, header.record_count) == (True, True, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, -1)
    assert (header.base_offset, header.leader_epoch, header.max_timestamp) == (8, 9, NOW_MS)
    (record,) = parse_batch(batch)
    assert record.key == bytes([0, 0, 0, kind])
    assert record.value == bytes.fromhex("000000000007")
    assert read_control(record) == (kind, 7)


def test_a_later_version_of_a_marker_is_read_by_its_first_fields() -> None:
    record = Record(0, 0, bytes.fromhex("0001 0001 ff"), bytes.fromhex("0001 00000003 ff"))
    assert read_control(record) == (ControlType.COMMIT, 3)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, bytes(6)),
        (bytes(4), None),
        (bytes(3), bytes(6)),
        (bytes(4), bytes(5)),
        (bytes.fromhex("00000002"), bytes(6)),  # a change of leader in a KRaft log ends no transaction
        (bytes.fromhex("ffff0001"), bytes(6)),
        (bytes(4), bytes.fromhex("ffff00000000")),
    ],
)
def test_what_is_no_marker_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match="control record at offset 3"):
        read_control(Record(3, 0, key, value))
