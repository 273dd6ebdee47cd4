"""Leader epochs: against a naive model, and byte for byte as Kafka's checkpoint file has them."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.disk.errors import DiskError
from odradek.disk.memory import MemoryDisk
from odradek.log.epochs import FILE_NAME, EpochEnd, LeaderEpochs
from odradek.log.errors import StaleLeaderEpochError

PATH = f"d/{FILE_NAME}"


def empty_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("d")
    return disk


def epochs_of(*items: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(empty_disk(), "d")
    for epoch, start in items:
        epochs.assign(epoch, start)
    return epochs


class NaiveEpochs:
    """For each offset the epoch that wrote it, one by one; `latest` may have written nothing yet."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.latest = -1

    def items(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for offset, epoch in enumerate(self.written):
            if not found or found[-1][0] != epoch:
                found.append((epoch, offset))
        if self.latest > (found[-1][0] if found else -1):
            found.append((self.latest, len(self.written)))
        return found

    def end_of(self, epoch: int) -> EpochEnd:
        """As Kafka's LeaderEpochFileCache.endOffsetFor answers."""
        if epoch < 0 or epoch > self.latest:
            return EpochEnd(-1, -1)
        known = [number for number, _ in self.items() if number <= epoch]
        later = [start for number, start in self.items() if number > epoch]
        return EpochEnd(known[-1] if known else epoch, min(later, default=len(self.written)))

    def cut(self, offset: int) -> None:
        del self.written[offset:]
        self.latest = self.written[-1] if self.written else -1


steps = st.one_of(
    st.tuples(st.just("lead"), st.integers(1, 3)),  # a new leader, so many epochs later
    st.tuples(st.just("write"), st.integers(1, 9)),
    st.tuples(st.just("cut"), st.integers(0, 40)),
)


@given(st.lists(steps, max_size=30), st.booleans())
def test_epochs_agree_with_a_list_of_every_offset(history: list[tuple[str, int]], restart: bool) -> None:
    disk, naive = empty_disk(), NaiveEpochs()
    epochs, leader = LeaderEpochs(disk, "d"), 0
    for step, number in history:
        if step == "lead":
            leader = naive.latest = leader + number
            epochs.assign(leader, len(naive.written))
        elif step == "write" and naive.latest >= 0:
            naive.written += [naive.latest] * number
            epochs.assign(naive.latest, 12345)  # it has begun: nothing changes
        elif step == "cut" and number < len(naive.written):
            naive.cut(number)
            epochs.truncate_end(number)
        if restart:
            epochs = LeaderEpochs(disk, "d")
        assert epochs.items() == naive.items()
        assert epochs.latest == naive.latest
        end = len(naive.written)
        assert [epochs.epoch_at(offset) for offset in range(end)] == naive.written
        for epoch in range(-1, leader + 2):
            assert epochs.end_of(epoch, end) == naive.end_of(epoch)


@given(
    st.lists(st.integers(1, 9), max_size=8),
    st.integers(0, 90),
)
def test_a_new_log_start_forgets_only_epochs_that_lie_below_it(gaps: list[int], log_start: int) -> None:
    starts = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    epochs = epochs_of(*enumerate(starts))
    before = [epochs.epoch_at(offset) for offset in range(log_start, 100)]
    epochs.truncate_start(log_start)
    assert [epochs.epoch_at(offset) for offset in range(log_start, 100)] == before
    assert sum(start <= log_start for _, start in epochs.items()) <= 1


def test_the_file_is_kafkas_to_the_byte() -> None:
    disk = empty_disk()
    epochs = LeaderEpochs(disk, "d")
    epochs.save()
    assert disk.read_file(PATH) == b"0\n0\n"
    epochs.assign(0, 0)
    epochs.assign(7, 120)
    assert disk.read_file(PATH) == b"0\n2\n0 0\n7 120\n"
    epochs.truncate_end(120)
    assert disk.read_file(PATH) == b"0\n1\n0 0\n"


def test_a_file_that_kafka_wrote_is_read() -> None:
    disk = empty_disk()
    disk.write_atomic(PATH, b"0\n3\n0 0\n2 15\n3 1000000000000\n")
    epochs = LeaderEpochs(disk, "d")
    assert epochs.known
    assert epochs.items() == [(0, 0), (2, 15), (3, 10**12)]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0 0\n1 5\n",
        b"0\n1\n0\n",
        b"0\n1\n0 0 0\n",
        b"0\n2\n1 0\n0 5\n",
        b"0\n2\n0 5\n1 5\n",
        b"0\n1\nx y\n",
        b"\xff\xfe",
    ],
)
def test_a_file_that_is_not_whole_is_not_believed(text: bytes) -> None:
    disk = empty_disk()
    disk.write_atomic(PATH, text)
    epochs = LeaderEpochs(disk, "d")
    assert not epochs.known and epochs.items() == [] and epochs.latest == -1


def test_a_missing_file_is_not_known_until_the_epochs_are_learned_again() -> None:
    disk = empty_disk()
    epochs = LeaderEpochs(disk, "d")
    assert not epochs.known
    epochs.replace([(1, 0), (4, 10)])
    assert epochs.known and LeaderEpochs(disk, "d").items() == [(1, 0), (4, 10)]


def test_an_epoch_that_is_over_cannot_begin_again() -> None:
    epochs = epochs_of((0, 0), (5, 10))
    with pytest.raises(StaleLeaderEpochError, match=f"{PATH}: epoch 4 is over, 5 has begun"):
        epochs.assign(4, 20)
    assert epochs.items() == [(0, 0), (5, 10)]


def test_an_epoch_that_wrote_nothing_is_replaced_by_the_next() -> None:
    assert epochs_of((0, 0), (1, 10), (2, 10)).items() == [(0, 0), (2, 10)]
    assert epochs_of((0, 0), (3, 0)).items() == [(3, 0)]


@pytest.mark.parametrize("seed", range(20))
def test_an_epoch_is_durable_when_assign_returns(seed: int) -> None:
    disk = empty_disk()
    epochs = LeaderEpochs(disk, "d")
    epochs.assign(3, 40)
    disk.crash(random.Random(seed))
    assert LeaderEpochs(disk, "d").items() == [(3, 40)]


def test_a_disk_that_fails_is_heard_of() -> None:
    disk = empty_disk()
    epochs = LeaderEpochs(disk, "d")
    disk.fail_next("flush", errno.EIO)
    with pytest.raises(DiskError, match=FILE_NAME):
        epochs.assign(1, 0)


def test_an_offset_before_the_first_epoch_has_none() -> None:
    epochs = epochs_of((2, 10))
    assert [epochs.epoch_at(offset) for offset in (0, 9, 10)] == [-1, -1, 2]


def test_the_newest_epoch_ends_where_the_log_ends() -> None:
    assert epochs_of((2, 10)).end_of(2, 50) == EpochEnd(2, 50)


def test_an_epoch_that_wrote_nothing_ends_where_the_one_before_it_did() -> None:
    assert epochs_of((2, 10), (5, 20)).end_of(4, 50) == EpochEnd(2, 20)


def test_an_epoch_older_than_all_known_ends_where_the_first_known_one_begins() -> None:
    assert epochs_of((2, 10)).end_of(1, 50) == EpochEnd(1, 10)
    assert epochs_of((2, 10), (3, 20)).end_of(1, 50) == EpochEnd(1, 10)


def test_an_epoch_that_has_not_begun_has_no_end() -> None:
    assert epochs_of((2, 10), (3, 20)).end_of(4, 50) == EpochEnd(-1, -1)
    assert epochs_of().end_of(0, 0) == epochs_of().end_of(-1, 0) == EpochEnd(-1, -1)
