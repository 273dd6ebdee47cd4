from __future__ import annotations

import asyncio

import pytest

from odradek.client.accumulator import EPOCH_MAX, IN_FLIGHT_MAX, Batch, Delivery, PartitionQueue, Tally
from odradek.client.errors import ClientError, TimedOutError
from odradek.model import TopicPartition
from odradek.records.compression import Codec
from odradek.records.header import SEQUENCE_MAX, check_batch
from odradek.records.record import NewRecord
from tests.client.support import asynchronous

PARTITION = TopicPartition("orders", 0)
PRODUCER_ID = 77


class Time:
    """The loop's time, as the tests set it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def queue(*, batch_bytes: int = 100, producer_id: int = PRODUCER_ID, time: Time | None = None) -> PartitionQueue:
    return PartitionQueue(
        PARTITION,
        batch_bytes=batch_bytes,
        codec=Codec.NONE,
        producer_id=producer_id,
        timeout_s=30.0,
        now=time or Time(),
    )


def put(into: PartitionQueue, count: int, size_bytes: int = 100) -> None:
    """Append records of one batch each, unless the size says otherwise."""
    for number in range(count):
        into.append(NewRecord(b"%d" % number, None, 5), size_bytes, None, None)


def numbers(batch: Batch) -> tuple[int, int]:
    """The epoch and sequence that the broker will see."""
    assert batch.data is not None
    header = check_batch(batch.data)
    assert header.producer_id == PRODUCER_ID
    assert (header.producer_epoch, header.base_sequence) == (batch.epoch, batch.sequence)
    return header.producer_epoch, header.base_sequence


def test_records_share_a_batch_until_it_is_full() -> None:
    records = queue(batch_bytes=100)
    assert [records.append(NewRecord(b"x"), 40, None, None) for _ in range(5)] == [True, False, True, False, True]
    assert [len(batch.records) for batch in records.waiting] == [2, 2, 1]


def test_a_batch_lingers_unless_it_is_full_or_somebody_is_in_a_hurry() -> None:
    time = Time()
    time.now = 10.0
    records = queue(time=time)
    assert records.next_at(5.0, hurry=False) is None
    put(records, 1, size_bytes=60)
    assert records.next_at(5.0, hurry=False) == 15.0
    assert records.next_at(5.0, hurry=True) == 0.0
    put(records, 1, size_bytes=60)
    assert records.next_at(5.0, hurry=False) == 0.0


def test_sequences_count_records_and_run_from_zero_again_after_the_last() -> None:
    records = queue()
    records._next_sequence = SEQUENCE_MAX
    put(records, 2, size_bytes=50)
    put(records, 1)
    assert numbers(records.take()) == (0, SEQUENCE_MAX)
    assert numbers(records.take()) == (0, 1)


def test_without_a_producer_id_nothing_is_numbered() -> None:
    records = queue(producer_id=-1)
    put(records, 1)
    batch = records.take()
    assert batch.data is not None
    assert check_batch(batch.data)[9:12] == (-1, -1, -1)


def test_no_more_batches_are_in_flight_than_a_broker_remembers() -> None:
    records = queue()
    put(records, IN_FLIGHT_MAX + 1)
    for _ in range(IN_FLIGHT_MAX):
        assert records.next_at(0.0, hurry=False) == 0.0
        records.take()
    assert records.next_at(0.0, hurry=False) is None


def test_a_retry_keeps_its_number_and_goes_before_what_waits() -> None:
    records = queue()
    put(records, 3)
    first, second = records.take(), records.take()
    records.again(second, 1.0, fate_unknown=True)
    records.again(first, 2.0, fate_unknown=True)
    assert records.next_at(0.0, hurry=True) == 2.0, "the first goes first, whatever else could go"
    assert records.take() is first
    assert records.take() is second
    assert [numbers(first), numbers(second), numbers(records.take())] == [(0, 0), (0, 1), (0, 2)]


def test_nothing_follows_a_batch_that_is_sent_again_until_it_is_settled() -> None:
    records = queue()
    put(records, IN_FLIGHT_MAX + 2)
    first, _ = records.take(), records.take()
    records.again(first, 0.0, fate_unknown=True)
    assert records.take() is first
    assert records.next_at(0.0, hurry=True) is None, "a broker remembers five batches: a sixth would hide this one"
    records.acked(first)
    assert records.next_at(0.0, hurry=True) == 0.0


def test_a_late_word_about_an_early_batch_does_not_turn_the_numbers_back() -> None:
    records = queue()
    put(records, 4)
    first, second, third = records.take(), records.take(), records.take()
    records.again(first, 0.0, fate_unknown=True)
    records.acked(second)
    records.acked(records.take())
    records.dropped(third)
    assert numbers(records.take()) == (0, 2)


def test_out_of_order_behind_an_unsettled_batch_is_simply_sent_again() -> None:
    records = queue()
    put(records, 2)
    first, second = records.take(), records.take()
    records.again(first, 0.0, fate_unknown=False)
    assert records.out_of_order(second, 0.0)
    assert [numbers(records.take()), numbers(records.take())] == [(0, 0), (0, 1)]


def test_out_of_order_at_the_front_begins_a_new_epoch() -> None:
    records = queue()
    put(records, 3)
    records.acked(records.take())
    second, third = records.take(), records.take()
    assert records.out_of_order(second, 0.0)
    assert records.next_at(0.0, hurry=True) is None, "the fate of the one in flight must be known first"
    assert records.out_of_order(third, 0.0)
    assert [numbers(records.take()), numbers(records.take())] == [(1, 0), (1, 1)]


def test_a_batch_that_is_refused_under_every_number_is_given_up() -> None:
    records = queue()
    put(records, 1)
    for _ in range(3):
        assert records.out_of_order(records.take(), 0.0)
    batch = records.take()
    assert not records.out_of_order(batch, 0.0)
    records.dropped(batch)
    assert records.is_idle


def test_a_refused_batch_leaves_no_gap_and_needs_no_new_epoch() -> None:
    records = queue()
    put(records, 3)
    records.acked(records.take())
    second, third = records.take(), records.take()
    records.dropped(second)
    assert records.out_of_order(third, 0.0)
    assert numbers(records.take()) == (0, 1)


def test_a_batch_that_is_given_up_without_an_answer_needs_a_new_epoch() -> None:
    records = queue()
    put(records, 2)
    first = records.take()
    records.again(first, 0.0, fate_unknown=True)
    assert records.expire(29.0) == []
    records.waiting[0].deadline = 60.0
    assert records.expire(30.0) == [first]
    assert numbers(records.take()) == (1, 0)


def test_a_batch_of_unknown_fate_is_asked_about_before_it_is_numbered_anew() -> None:
    records = queue()
    put(records, 3)
    first, second, third = records.take(), records.take(), records.take()
    records.dropped(first)
    records.again(second, 3.0, fate_unknown=True)
    assert records.out_of_order(third, 0.0)
    assert records.next_at(0.0, hurry=True) == 3.0
    assert records.take() is second
    assert numbers(second) == (0, 1)
    assert records.out_of_order(second, 0.0)
    assert [numbers(records.take()), numbers(records.take())] == [(0, 0), (0, 1)]


def test_epochs_that_are_used_up_are_an_error_and_no_wrap() -> None:
    records = queue()
    records._epoch = EPOCH_MAX
    put(records, 1)
    assert records.out_of_order(records.take(), 0.0)
    with pytest.raises(ClientError, match="make a new producer"):
        records.take()
    assert len(records.clear()) == 1


def test_halves_of_a_batch_keep_its_numbers_and_their_order() -> None:
    records = queue(batch_bytes=1000)
    put(records, 5)
    put(records, 1, size_bytes=1000)
    batch, later = records.take(), records.take()
    records.again(later, 0.0, fate_unknown=False)
    records.split(batch, 0.0)
    first = records.take()
    records.split(first, 0.0)
    taken = [records.take() for _ in range(4)]
    assert [(numbers(half)[1], [record.value for record in half.records]) for half in taken] == [
        (0, [b"0"]), (1, [b"1"]), (2, [b"2", b"3", b"4"]), (5, [b"0"]),
    ]  # fmt: skip
    assert sum(half.size_bytes for half in taken[:3]) == 500


@asynchronous
async def test_everyone_who_waits_is_told_where_the_record_landed() -> None:
    loop = asyncio.get_running_loop()
    records = queue(batch_bytes=1000)
    futures = [loop.create_future() for _ in range(3)]
    tally = Tally()
    for number, future in enumerate(futures):
        records.append(NewRecord(b"x", None, number), 10, future, tally)
    futures[1].cancel()
    batch = records.take()
    records.acked(batch)
    batch.settle(PARTITION, 100, -1)
    assert [future.result() for future in (futures[0], futures[2])] == [
        Delivery("orders", 0, 100, 0), Delivery("orders", 0, 102, 2),
    ]  # fmt: skip
    await tally.wait()


@asynchronous
async def test_a_tally_waits_for_both_halves_and_raises_the_first_error() -> None:
    records = queue(batch_bytes=1000)
    tally = Tally()
    for _ in range(2):
        records.append(NewRecord(b"x"), 10, None, tally)
    records.split(records.take(), 0.0)
    waiting = asyncio.create_task(tally.wait())
    records.take().settle(PARTITION, 0, -1)
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    records.take().fail(TimedOutError("late"))
    with pytest.raises(TimedOutError, match="late"):
        await waiting


@asynchronous
async def test_a_record_may_fail_for_a_reason_of_its_own() -> None:
    loop = asyncio.get_running_loop()
    records = queue(batch_bytes=1000)
    futures = [loop.create_future() for _ in range(2)]
    for future in futures:
        records.append(NewRecord(b"x"), 10, future, None)
    records.take().fail(ClientError("another record was bad"), {1: ClientError("this one was bad")})
    assert [str(future.exception()) for future in futures] == ["another record was bad", "this one was bad"]


@asynchronous
async def test_a_topic_that_stamps_records_on_arrival_tells_its_time() -> None:
    future = asyncio.get_running_loop().create_future()
    records = queue()
    records.append(NewRecord(b"x", None, 5), 10, future, None)
    records.take().settle(PARTITION, 3, 99)
    assert future.result() == Delivery("orders", 0, 3, 99)
