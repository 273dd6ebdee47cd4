"""The error codes are Kafka's; the exceptions say what they should."""

from __future__ import annotations

import pickle

import kio.schema.errors as kio_errors
import pytest

from odradek.wire.errors import DecodeError, ErrorCode, PeerError


def test_numbers_names_and_retriability_are_those_of_kafka() -> None:
    theirs = {(code.value, code.name.upper(), code.retriable) for code in kio_errors.ErrorCode}
    ours = {(code.value, code.name, code.retriable) for code in ErrorCode}
    assert theirs - ours == set()
    assert {value for value, _, _ in ours - theirs} <= set(range(134, 200))  # newer than our oracle


def test_the_codes_leave_no_gap() -> None:
    assert [code.value for code in ErrorCode] == list(range(-1, len(ErrorCode) - 1))


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_every_code_has_a_short_sentence_of_its_own(code: ErrorCode) -> None:
    assert code.message.endswith(".")
    assert len(code.message) < 80
    assert [other for other in ErrorCode if other.message == code.message] == [code]


def test_a_code_is_found_by_its_number_and_is_one() -> None:
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    code: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code == 3
    assert ErrorCode(3).retriable
    assert not ErrorCode.NONE.retriable
    with pytest.raises(ValueError, match="9999"):
        ErrorCode(9999)


def test_a_peer_error_carries_its_code_and_a_message() -> None:
    error = PeerError(ErrorCode.INVALID_PARTITIONS, "0 partitions")
    assert (error.code, error.message) == (ErrorCode.INVALID_PARTITIONS, "0 partitions")
    assert str(error) == "INVALID_PARTITIONS: 0 partitions"
    assert PeerError(ErrorCode.INVALID_PARTITIONS).message == ErrorCode.INVALID_PARTITIONS.message
    assert PeerError(ErrorCode.INVALID_PARTITIONS, "").message == ""


def test_a_peer_error_survives_a_copy() -> None:
    copied = pickle.loads(pickle.dumps(PeerError(ErrorCode.NOT_CONTROLLER, "m")))  # noqa: S301
    assert (copied.code, copied.message) == (ErrorCode.NOT_CONTROLLER, "m")


def test_a_decode_error_is_no_peer_error() -> None:
    assert not issubclass(DecodeError, PeerError)
    assert not issubclass(PeerError, DecodeError)
