"""Where a group's records go, and how those who wrote them hear of their fate."""

from __future__ import annotations

import asyncio
import gc

import pytest

from odradek.groups.ledger import Ledger, java_hash, partition_of, told
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError
from tests.groups.brokers import MemoryJournal, run, turns

RECORD = NewRecord(value=b"v", key=b"k", timestamp=1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("console-consumer-12345", None),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
        ("ü", 252),
    ],
)
def test_the_hash_is_javas(text: str, value: int | None) -> None:
    if value is not None:
        assert java_hash(text) == value
    assert -(2**31) <= java_hash(text) < 2**31


def test_a_groups_partition_is_the_one_kafka_would_choose() -> None:
    assert partition_of("hello", 50) == 99162322 % 50
    assert partition_of("polygenelubricants", 50) == 0, "the one number without a positive twin"
    assert java_hash("order-service-2") < 0
    assert partition_of("order-service-2", 50) == -java_hash("order-service-2") % 50


def test_writers_are_told_in_the_order_of_writing() -> None:
    async def scene() -> None:
        journal = MemoryJournal()
        journal.is_held = True
        ledger = Ledger(journal, partition_of("g", journal.partition_count))
        told_of: list[tuple[int, ErrorCode]] = []
        for number in range(3):
            ledger.append("g", [RECORD], lambda error, number=number: told_of.append((number, error)))  # type: ignore[misc]
        assert told_of == []
        journal.release()
        await ledger.drain()
        assert told_of == [(number, ErrorCode.NONE) for number in range(3)]
        assert len(journal.of("g")) == 3

    run(scene())


def test_a_writer_is_told_of_a_failure() -> None:
    async def scene() -> None:
        journal = MemoryJournal()
        ledger = Ledger(journal, partition_of("g", journal.partition_count))
        heard: list[ErrorCode] = []
        journal.error = PeerError(ErrorCode.KAFKA_STORAGE_ERROR)
        ledger.append("g", [RECORD], heard.append)
        await ledger.drain()
        journal.is_held = True
        ledger.append("g", [RECORD], heard.append)
        ledger.append("g", [RECORD], heard.append)
        journal.waiting[0][2].set_exception(OSError("of no known kind"))
        journal.waiting[1][2].cancel()
        await ledger.drain()
        assert heard == [ErrorCode.KAFKA_STORAGE_ERROR] + [ErrorCode.UNKNOWN_SERVER_ERROR] * 2

    run(scene())


def test_draining_waits_for_what_is_written_meanwhile() -> None:
    async def scene() -> None:
        journal = MemoryJournal()
        journal.is_held = True
        ledger = Ledger(journal, partition_of("g", journal.partition_count))
        heard: list[ErrorCode] = []
        ledger.append("g", [RECORD], lambda _: ledger.append("g", [RECORD], heard.append))
        draining = asyncio.create_task(ledger.drain())
        while not draining.done():
            journal.release()
            await turns()
        assert heard == [ErrorCode.NONE]

    run(scene())


def test_when_all_is_abandoned_everybody_is_told_once_and_late_results_are_no_ones() -> None:
    async def scene() -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        journal = MemoryJournal()
        journal.is_held = True
        ledger = Ledger(journal, 0)
        heard: list[tuple[int, ErrorCode]] = []
        for number in range(3):
            ledger.append("g", [RECORD], lambda error, number=number: heard.append((number, error)))  # type: ignore[misc]
        ledger.abandon(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        ledger.abandon(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await ledger.drain()
        journal.waiting.pop()[2].cancel()
        journal.waiting.pop()[2].set_exception(PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        journal.release()
        await turns()
        gc.collect()
        assert heard == [(number, ErrorCode.NOT_LEADER_OR_FOLLOWER) for number in range(3)]
        assert complaints == []

    run(scene())


def test_clients_are_not_told_of_logs() -> None:
    assert told(ErrorCode.NONE) is ErrorCode.NONE
    assert told(ErrorCode.NOT_LEADER_OR_FOLLOWER) is ErrorCode.NOT_COORDINATOR
    assert told(ErrorCode.NOT_ENOUGH_REPLICAS) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert told(ErrorCode.MESSAGE_TOO_LARGE) is ErrorCode.UNKNOWN_SERVER_ERROR
