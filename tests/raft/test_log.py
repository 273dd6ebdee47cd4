"""The log in memory, beside a plain list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.raft.log import RaftError, RaftLog, joined
from odradek.raft.messages import NO_SNAPSHOT, Entry, SnapshotId


def entries_of(*epochs: int) -> list[Entry]:
    return [Entry(epoch, "set", str(number)) for number, epoch in enumerate(epochs)]


@given(
    st.lists(st.integers(0, 5), max_size=12).map(sorted),
    st.integers(0, 12),
    st.integers(0, 12),
    st.lists(st.integers(5, 7), max_size=3).map(sorted),
)
def test_ends_of_epochs_are_those_of_a_plain_list(epochs: list[int], cut: int, keep: int, more: list[int]) -> None:
    log, plain = RaftLog(NO_SNAPSHOT, entries_of(*epochs)), list(epochs)
    cut = min(cut, len(plain))
    log.cut_before(SnapshotId(cut, plain[cut - 1] if cut else -1))
    keep = max(cut, min(keep, len(plain)))
    log.truncate(keep)
    log.append(entries_of(*more))
    plain = plain[:keep] + more
    assert log.end_offset == len(plain)
    assert log.last_epoch == (plain[-1] if plain else -1)
    for epoch in range(8):
        known = [-1, *plain]
        latest = max(one for one in known if one <= epoch)
        if cut and latest < plain[cut - 1]:
            assert log.end_of(epoch) == (-1, 0)
        else:
            assert log.end_of(epoch) == (latest, sum(one <= epoch for one in plain))
    for offset in range(cut, len(plain) + 1):
        assert log.epoch_before(offset) == (plain[offset - 1] if offset else -1)
    assert [entry.epoch for entry in log.slice(cut, len(plain))] == plain[cut:]


def test_what_is_not_in_the_log_is_not_guessed() -> None:
    log = RaftLog(SnapshotId(5, 2), entries_of(2, 3))
    assert log.epoch_before(4) is None
    assert log.epoch_before(8) is None
    for offset in (4, 7):
        with pytest.raises(IndexError):
            log.entry(offset)
    with pytest.raises(IndexError):
        log.slice(4, 6)


def test_what_would_corrupt_the_log_is_refused() -> None:
    log = RaftLog(SnapshotId(5, 2), entries_of(2, 3))
    with pytest.raises(RaftError, match="cannot follow"):
        log.append(entries_of(2))
    with pytest.raises(RaftError, match="starts at 5"):
        log.truncate(4)
    for snapshot in (SnapshotId(6, 3), SnapshotId(9, 3)):
        with pytest.raises(RaftError, match="no entry of epoch 3"):
            log.cut_before(snapshot)
    assert (log.end_offset, log.last_epoch) == (7, 3)


def test_a_stored_log_is_joined_to_the_newest_snapshot() -> None:
    entries = entries_of(1, 1, 2, 3)
    assert joined(NO_SNAPSHOT, 0, entries) == (NO_SNAPSHOT, entries)
    assert joined(SnapshotId(3, 2), 0, entries) == (SnapshotId(3, 2), entries[3:])
    assert joined(SnapshotId(3, 2), 3, entries[3:]) == (SnapshotId(3, 2), entries[3:])
    assert joined(SnapshotId(9, 4), 0, entries) == (SnapshotId(9, 4), [])  # the snapshot is ahead of the log
    assert joined(SnapshotId(2, 5), 0, entries) == (SnapshotId(2, 5), [])  # the log is of another past
    with pytest.raises(RaftError, match="missing"):
        joined(SnapshotId(3, 2), 4, [])
