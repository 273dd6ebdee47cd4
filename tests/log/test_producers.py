"""Idempotent and transactional producers: what is new, what comes again, what is refused, what is remembered."""

from __future__ import annotations

import struct
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.errors import OutOfOrderSequenceError, StaleProducerEpochError
from odradek.log.producers import BATCHES_REMEMBERED, Producer, Producers, Written
from odradek.records.crc import crc32c
from odradek.records.header import CONTROL, MAGIC, TRANSACTIONAL, BatchHeader

LAST_SEQUENCE = 2**31 - 1
NOW = 1_700_000_000_000


def header(
    sequence: int,
    offset: int = 0,
    *,
    count: int = 1,
    producer: int = 7,
    epoch: int = 0,
    attributes: int = 0,
) -> BatchHeader:
    """The head of a producer's batch of `count` records."""
    return BatchHeader(
        offset, 49, 0, MAGIC, 0, attributes, count - 1, NOW, NOW, producer, epoch, sequence, record_count=count
    )


def marker(offset: int, *, producer: int = 7, epoch: int = 0) -> BatchHeader:
    """The head of the batch that ends a transaction."""
    return header(-1, offset, producer=producer, epoch=epoch, attributes=TRANSACTIONAL | CONTROL)


def producers(*, expiration_ms: int = 1000, count_max: int = 100) -> Producers:
    return Producers(expiration_ms=expiration_ms, count_max=count_max)


def after(*headers: BatchHeader) -> Producers:
    """The state after some batches, each of which was new."""
    state = producers()
    for one in headers:
        assert state.check(one) is None
        state.update(one, NOW)
    return state


# Sequences.


def test_a_producer_that_nobody_knows_may_begin_anywhere() -> None:
    assert producers().check(header(12345, 7)) is None


def test_the_next_sequence_is_new_and_any_other_is_a_gap() -> None:
    state = after(header(0, 0, count=3))
    assert state.check(header(3, 3)) is None
    for sequence in (1, 2, 4, 100):
        with pytest.raises(OutOfOrderSequenceError, match=f"producer 7 sent sequence {sequence}, 3 was expected"):
            state.check(header(sequence, 3))


def test_each_of_the_last_five_batches_is_recognised_when_it_comes_again() -> None:
    sizes = [3, 1, 4, 1, 5, 9, 2]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    state = after(*(header(start, 100 + start, count=size) for start, size in zip(starts, sizes, strict=True)))
    for number, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        again = header(start, 999, count=size)
        if number >= len(sizes) - BATCHES_REMEMBERED:
            assert state.check(again) == Written(start, start + size - 1, 100 + start, 100 + start + size - 1)
        else:
            with pytest.raises(OutOfOrderSequenceError):
                state.check(again)


def test_a_batch_that_only_overlaps_an_earlier_one_is_no_duplicate() -> None:
    state = after(header(0, 0, count=5), header(5, 5, count=5))
    for sequence, count in ((0, 4), (0, 6), (4, 1), (5, 4), (9, 1), (6, 4)):
        with pytest.raises(OutOfOrderSequenceError):
            state.check(header(sequence, 10, count=count))


def test_sequences_begin_again_at_0_behind_the_largest() -> None:
    whole = header(LAST_SEQUENCE, 10)
    assert after(whole).check(header(0, 11)) is None
    crossing = header(LAST_SEQUENCE - 1, 10, count=5)
    state = after(crossing)
    assert crossing.last_sequence == 2
    assert state.check(header(3, 15)) is None
    assert state.check(crossing) == Written(LAST_SEQUENCE - 1, 2, 10, 14)
    with pytest.raises(OutOfOrderSequenceError):
        state.check(header(0, 15))


@given(st.integers(LAST_SEQUENCE - 20, LAST_SEQUENCE), st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_any_run_of_batches_is_new_once_and_recognised_afterwards(first: int, sizes: list[int]) -> None:
    state, sequence, offset, sent = producers(), first, 0, []
    for size in sizes:
        batch = header(sequence, offset, count=size)
        assert state.check(batch) is None
        state.update(batch, NOW)
        sent.append(batch)
        offset += size
        sequence = (sequence + size) % 2**31
    for batch in sent[-BATCHES_REMEMBERED:]:
        written = state.check(batch)
        assert written is not None and (written.base_offset, written.last_offset) == (
            batch.base_offset,
            batch.last_offset,
        )


# Epochs.


def test_a_new_epoch_begins_with_sequence_0_and_forgets_the_old_batches() -> None:
    state = after(header(0, 0), header(1, 1))
    with pytest.raises(OutOfOrderSequenceError, match="producer 7 begins epoch 1 with 2, not 0"):
        state.check(header(2, 2, epoch=1))
    bumped = header(0, 2, epoch=1)
    assert state.check(bumped) is None
    state.update(bumped, NOW)
    assert state.check(header(0, 9, epoch=1)) == Written(0, 0, 2, 2)
    with pytest.raises(OutOfOrderSequenceError):
        state.check(header(2, 3, epoch=1))


def test_an_old_epoch_is_fenced_also_its_duplicates_and_markers() -> None:
    state = after(header(0, 0), header(0, 1, epoch=3))
    for stale in (header(0, 0), header(1, 2, epoch=2), marker(2, epoch=2)):
        with pytest.raises(StaleProducerEpochError, match=r"producer 7 has epoch 3 here, \d is fenced"):
            state.check(stale)


def test_producers_do_not_mind_each_other() -> None:
    state = after(header(0, 0, producer=1), header(0, 1, producer=2), header(1, 2, producer=1))
    assert len(state) == 2
    assert state.check(header(1, 3, producer=2)) is None


# Transactions.


def test_readers_of_committed_data_stop_at_the_oldest_open_transaction() -> None:
    state = after(header(0, 0), header(0, 5, producer=1, attributes=TRANSACTIONAL))
    state.update(header(0, 9, producer=2, attributes=TRANSACTIONAL), NOW)
    state.update(header(1, 12, producer=1, attributes=TRANSACTIONAL), NOW)
    assert state.first_unstable_offset == 5
    state.update(marker(15, producer=1), NOW, coordinator_epoch=4)
    assert state.first_unstable_offset == 9
    state.update(marker(16, producer=2), NOW)
    assert state.first_unstable_offset is None
    assert dict(state.items())[1].coordinator_epoch == 4


def test_a_marker_takes_no_sequence() -> None:
    state = after(header(0, 0, attributes=TRANSACTIONAL), marker(1))
    assert state.check(header(1, 2)) is None
    assert state.check(header(0, 2)) == Written(0, 0, 0, 0)
    assert state.check(marker(2)) is None, "and none comes for the second time"


def test_a_marker_of_a_higher_epoch_fences_and_ends_the_transaction() -> None:
    state = after(header(0, 0, attributes=TRANSACTIONAL), marker(1, epoch=1))
    assert state.first_unstable_offset is None
    with pytest.raises(StaleProducerEpochError):
        state.check(header(1, 2))
    assert state.check(header(0, 2, epoch=2)) is None


def test_a_transaction_goes_on_over_a_bump_of_the_epoch() -> None:
    state = after(header(0, 3, attributes=TRANSACTIONAL), header(0, 4, epoch=1, attributes=TRANSACTIONAL))
    assert state.first_unstable_offset == 3


# Bounds.


def test_silent_producers_are_forgotten_but_not_in_the_middle_of_a_transaction() -> None:
    state = producers(expiration_ms=1000)
    state.update(header(0, 0, producer=1), NOW)
    state.update(header(0, 1, producer=2, attributes=TRANSACTIONAL), NOW)
    state.update(header(0, 2, producer=3), NOW + 500)
    state.update(header(1, 3, producer=1), NOW + 600)
    state.expire(NOW + 1000)
    assert len(state) == 3
    state.expire(NOW + 1501)
    assert [producer_id for producer_id, _ in state.items()] == [2, 1]
    state.expire(NOW + 10_000)
    assert [producer_id for producer_id, _ in state.items()] == [2]


def test_only_so_many_producers_are_remembered_the_latest_ones() -> None:
    state = producers(count_max=3)
    for producer in range(10):
        state.update(header(0, producer, producer=producer), NOW)
        state.update(header(producer, 50 + producer, producer=0), NOW)
        assert len(state) <= 3
    assert [producer_id for producer_id, _ in state.items()] == [8, 9, 0]


def test_an_open_transaction_is_not_evicted() -> None:
    state = producers(count_max=2)
    state.update(header(0, 0, producer=1, attributes=TRANSACTIONAL), NOW)
    for producer in range(2, 9):
        state.update(header(0, producer, producer=producer), NOW)
    assert [producer_id for producer_id, _ in state.items()] == [1, 8]
    state.clear()
    assert len(state) == 0 and state.first_unstable_offset is None


# Snapshots.


def test_a_snapshot_has_kafkas_bytes() -> None:
    state = after(header(5, 40, count=3, producer=9, epoch=2, attributes=TRANSACTIONAL))
    state.update(marker(50, producer=3, epoch=1), NOW + 1, coordinator_epoch=6)
    body = struct.pack(">i", 2)
    body += struct.pack(">qhiqiqiq", 9, 2, 7, 42, 2, NOW, -1, 40)
    body += struct.pack(">qhiqiqiq", 3, 1, -1, -1, 0, NOW + 1, 6, -1)
    assert state.snapshot() == struct.pack(">hI", 1, crc32c(body)) + body


def test_a_snapshot_of_nobody_is_ten_bytes() -> None:
    empty = producers().snapshot()
    assert len(empty) == 10
    state = after(header(0, 0))
    assert state.restore(empty) and len(state) == 0


def test_a_batch_across_the_largest_sequence_comes_back_from_a_snapshot() -> None:
    crossing, restored = header(LAST_SEQUENCE - 1, 10, count=5), producers()
    assert restored.restore(after(crossing).snapshot())
    assert restored.check(crossing) == Written(LAST_SEQUENCE - 1, 2, 10, 14)


def test_other_readers_keep_the_last_of_a_producers_entries() -> None:
    state = after(*(header(number, number) for number in range(7)))
    entries = list(struct.iter_unpack(">qhiqiqiq", state.snapshot()[10:]))
    assert [entry[2] for entry in entries] == [2, 3, 4, 5, 6]


ids = st.integers(0, 2**63 - 1)
offsets = st.integers(0, 2**62)


@st.composite
def some_producers(draw: st.DrawFn) -> dict[int, Producer]:
    """Producers as a log may come to know them: sequences that follow each other, offsets that grow."""
    drawn: dict[int, Producer] = {}
    for producer_id in draw(st.lists(ids, unique=True, max_size=6)):
        written: deque[Written] = deque(maxlen=BATCHES_REMEMBERED)
        sequence, offset = draw(st.integers(0, LAST_SEQUENCE)), draw(offsets)
        for size in draw(st.lists(st.integers(1, 1000), max_size=7)):
            written.append(Written(sequence, (sequence + size - 1) % 2**31, offset, offset + size - 1))
            sequence, offset = (sequence + size) % 2**31, offset + size + draw(st.integers(0, 99))
        drawn[producer_id] = Producer(
            epoch=draw(st.integers(0, 2**15 - 1)),
            seen_ms=draw(offsets),
            coordinator_epoch=draw(st.integers(-1, 2**31 - 1)),
            transaction_start=draw(st.one_of(st.just(-1), offsets)),
            written=written,
        )
    return drawn


def state_of(drawn: dict[int, Producer]) -> Producers:
    state = producers()
    state._by_id.update(drawn)
    return state


@given(some_producers())
def test_a_snapshot_brings_everything_back(drawn: dict[int, Producer]) -> None:
    restored = producers()
    restored.update(header(0, 0, producer=1), NOW)
    assert restored.restore(state_of(drawn).snapshot())
    assert restored.items() == list(drawn.items())


@given(some_producers(), st.data())
def test_a_snapshot_that_is_not_whole_is_not_believed(drawn: dict[int, Producer], data: st.DataObject) -> None:
    snapshot = state_of(drawn).snapshot()
    at = data.draw(st.integers(0, len(snapshot) - 1))
    flipped = bytearray(snapshot)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    state = after(header(0, 0))
    before = state.items()
    for broken in (snapshot[:at], bytes(flipped), snapshot + b"\0"):
        assert not state.restore(broken)
    assert state.items() == before


def test_a_snapshot_of_another_version_is_not_believed() -> None:
    snapshot = after(header(0, 0)).snapshot()
    assert not producers().restore(b"\x00\x02" + snapshot[2:])
