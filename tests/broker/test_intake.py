"""What only a stranger's batch gets wrong, and what is said of it."""

from __future__ import annotations

import struct

import pytest

from odradek.broker.errors import peer_error
from odradek.broker.intake import Allowance, check_produced
from odradek.log.config import LogConfig
from odradek.records.build import ControlType, build_batch, control_batch
from odradek.records.compression import Codec
from odradek.records.errors import RecordError
from odradek.records.header import DELETE_HORIZON, reseal
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError
from tests.log.support import log_config

ROOM = 1 << 20
RECORDS = 1000
PLAIN = log_config()
COMPACTED = log_config(cleanup_policy="compact")
ATTRIBUTES_AT, COUNT_AT, MAGIC_AT = 21, 57, 16


def verdict(data: bytes | bytearray, config: LogConfig = PLAIN, room: int = ROOM) -> ErrorCode:
    try:
        check_produced(memoryview(data), config, Allowance(room, RECORDS))
    except (RecordError, PeerError) as error:
        told = peer_error(error)
        assert told.message
        return told.code
    return ErrorCode.NONE


def batch(*records: NewRecord, codec: Codec = Codec.NONE) -> bytearray:
    return build_batch(records or [NewRecord(b"v", key=b"k", timestamp=7)], codec=codec)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_of_any_codec_passes(codec: Codec) -> None:
    assert verdict(batch(codec=codec)) == ErrorCode.NONE
    assert verdict(batch(codec=codec), COMPACTED) == ErrorCode.NONE


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_an_older_or_newer_format_is_named_whatever_else_is_wrong(magic: int) -> None:
    old = bytearray(34)
    old[MAGIC_AT] = magic
    assert verdict(old) == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("size", [0, 1, 12, 17, 60])
def test_a_piece_of_a_batch_is_corrupt(size: int) -> None:
    assert verdict(batch()[:size]) == ErrorCode.CORRUPT_MESSAGE


def test_a_batch_that_is_cut_is_corrupt_and_two_batches_are_one_too_many() -> None:
    assert verdict(batch()[:-1]) == ErrorCode.CORRUPT_MESSAGE
    assert verdict(batch() + batch()) == ErrorCode.INVALID_RECORD
    assert verdict(batch() + b"x") == ErrorCode.INVALID_RECORD


def test_damage_is_said_before_anything_else_that_is_wrong() -> None:
    marker = control_batch(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=7)
    assert verdict(marker) == ErrorCode.INVALID_RECORD
    marker[-1] ^= 1
    assert verdict(marker) == ErrorCode.CORRUPT_MESSAGE


def test_control_batches_and_delete_horizons_are_not_for_clients() -> None:
    horizon = batch()
    struct.pack_into(">h", horizon, ATTRIBUTES_AT, DELETE_HORIZON)
    reseal(horizon)
    assert verdict(horizon) == ErrorCode.INVALID_RECORD


def test_a_transactional_batch_belongs_to_no_open_transaction() -> None:
    inside = build_batch([NewRecord(b"v", timestamp=7)], producer_id=1, producer_epoch=0, base_sequence=0,
                         transactional=True)  # fmt: skip
    assert verdict(inside) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("config", [PLAIN, COMPACTED])
@pytest.mark.parametrize("count", [0, 2, 1000])
def test_the_number_of_records_is_as_announced(count: int, config: LogConfig) -> None:
    wrong = batch()
    struct.pack_into(">i", wrong, COUNT_AT, count)
    reseal(wrong)
    assert verdict(wrong, config) == ErrorCode.INVALID_RECORD


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    keyless = batch(NewRecord(b"v", key=b"k", timestamp=7), NewRecord(b"v", timestamp=7))
    assert verdict(keyless) == ErrorCode.NONE
    assert verdict(keyless, COMPACTED) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("config", [PLAIN, COMPACTED])
def test_what_grows_too_large_when_decompressed_is_refused(config: LogConfig) -> None:
    bomb = batch(NewRecord(bytes(ROOM), key=b"k", timestamp=7), codec=Codec.ZSTD)
    assert len(bomb) < 1000
    assert verdict(bomb, config) == ErrorCode.MESSAGE_TOO_LARGE
    assert verdict(bomb, config, room=2 * ROOM) == ErrorCode.NONE


def test_a_batch_over_the_topics_maximum_is_not_decompressed_here() -> None:
    small = log_config(max_message_bytes=80)
    bomb = batch(NewRecord(bytes(ROOM), key=b"k", timestamp=7), codec=Codec.ZSTD)
    assert len(bomb) > 80
    assert verdict(bomb, small) == ErrorCode.NONE, "the log refuses it by its size"
