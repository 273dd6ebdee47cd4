from __future__ import annotations

import pytest

from odradek.client.errors import (
    BrokerUnavailableError,
    ClientError,
    RequestError,
    TimedOutError,
    UnknownTopicError,
    check,
    error_code,
)
from odradek.client.retry import JITTER, PAUSE_FIRST_MS, PAUSE_MAX_MS, is_retriable, pause_ms, retry
from odradek.wire.errors import ErrorCode
from tests.client.support import asynchronous


def test_pauses_grow_to_a_bound() -> None:
    assert pause_ms(0) <= PAUSE_FIRST_MS * (1 + JITTER)
    assert pause_ms(3) > pause_ms(0)
    assert PAUSE_MAX_MS * (1 - JITTER) <= pause_ms(10_000) <= PAUSE_MAX_MS * (1 + JITTER)


@pytest.mark.parametrize(
    ("error", "retriable"),
    [
        (BrokerUnavailableError("a:1", "refused"), True),
        (TimedOutError("slow"), True),
        (RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "x"), True),
        (RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, "x"), False),
        (UnknownTopicError("t"), False),
        (UnknownTopicError("t", retriable=True), True),
        (ClientError("never"), False),
    ],
)
def test_only_what_may_pass_is_tried_again(error: ClientError, retriable: bool) -> None:
    assert is_retriable(error) is retriable


@asynchronous
async def test_a_passing_error_is_overcome() -> None:
    failures = [RequestError(ErrorCode.NOT_COORDINATOR, "x"), TimedOutError("slow")]

    async def attempt() -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert await retry(attempt, what="x", timeout_ms=5_000) == "done"


@asynchronous
async def test_an_error_that_stays_is_raised_when_the_time_is_over() -> None:
    async def attempt() -> None:
        raise BrokerUnavailableError("a:1", "refused")

    with pytest.raises(BrokerUnavailableError, match="a:1 cannot be reached: refused"):
        await retry(attempt, what="x", timeout_ms=100)


@asynchronous
async def test_a_final_error_is_raised_at_once() -> None:
    attempts = 0

    async def attempt() -> None:
        nonlocal attempts
        attempts += 1
        raise RequestError(ErrorCode.INVALID_CONFIG, "x")

    with pytest.raises(RequestError):
        await retry(attempt, what="x", timeout_ms=5_000)
    assert attempts == 1


def test_an_error_says_what_was_asked_what_the_broker_said_and_the_code() -> None:
    error = RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, "creating topic orders", "It is there.")
    assert str(error) == "creating topic orders: It is there (TOPIC_ALREADY_EXISTS)"
    assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert "(OFFSET_OUT_OF_RANGE)" in str(RequestError(1, "reading"))


def test_a_code_from_the_future_is_an_unknown_error() -> None:
    assert error_code(31_000) is ErrorCode.UNKNOWN_SERVER_ERROR
    check(0, "nothing")
    with pytest.raises(RequestError, match="UNKNOWN_SERVER_ERROR"):
        check(31_000, "something")
