"""What a log remembers beside its segments: the recovery point and `log-state.json`."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.disk.memory import MemoryDisk
from odradek.log.state import (
    RECOVERY_POINT_NAME,
    STATE_NAME,
    LogState,
    RecoveryPoint,
    Swap,
    advance_recovery_point,
    read_recovery_point,
    set_recovery_point,
)

POINT = RecoveryPoint(next_offset=2**40, segment=2**39, size_bytes=123)


def empty_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("d")
    return disk


# The recovery point.


def test_a_recovery_point_comes_back() -> None:
    disk = empty_disk()
    assert read_recovery_point(disk, "d") is None
    set_recovery_point(disk, "d", POINT)
    assert read_recovery_point(disk, "d") == POINT
    set_recovery_point(disk, "d", RecoveryPoint(0, 0, 0))
    assert read_recovery_point(disk, "d") == RecoveryPoint(0, 0, 0)


def test_the_point_of_the_last_flush_counts_whoever_s_turn_it_was() -> None:
    disk = empty_disk()
    set_recovery_point(disk, "d", RecoveryPoint(0, 0, 0))
    for turn in range(5):
        point = RecoveryPoint(turn + 1, 0, 100 * turn)
        advance_recovery_point(disk, "d", point, turn)
        assert read_recovery_point(disk, "d") == point


def test_a_recovery_point_with_any_wrong_bit_is_not_believed() -> None:
    disk = empty_disk()
    set_recovery_point(disk, "d", RecoveryPoint(1, 0, 10))
    advance_recovery_point(disk, "d", POINT, 0)
    data = disk.read_file(f"d/{RECOVERY_POINT_NAME}") or b""
    used = len(data[:512].rstrip(b"\0"))
    for at in range(8 * used):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        disk.write_atomic(f"d/{RECOVERY_POINT_NAME}", bytes(flipped))
        assert read_recovery_point(disk, "d") == RecoveryPoint(1, 0, 10), "the one before it is"


def test_a_recovery_point_that_is_cut_short_is_not_believed() -> None:
    disk = empty_disk()
    set_recovery_point(disk, "d", POINT)
    data = disk.read_file(f"d/{RECOVERY_POINT_NAME}") or b""
    for length in range(len(data)):
        disk.write_atomic(f"d/{RECOVERY_POINT_NAME}", data[:length])
        assert read_recovery_point(disk, "d") in (None, POINT)
    for bad in (b"", data[:10], bytes(len(data)), b"x" * len(data)):
        disk.write_atomic(f"d/{RECOVERY_POINT_NAME}", bad)
        assert read_recovery_point(disk, "d") is None


def test_after_a_crash_the_point_is_an_earlier_one_and_there_always_is_one() -> None:
    points = [RecoveryPoint(number, 0, number * 100) for number in range(4)]
    found = set()
    for seed in range(400):
        disk = empty_disk()
        set_recovery_point(disk, "d", points[0])
        for turn, point in enumerate(points[1:]):
            advance_recovery_point(disk, "d", point, turn)
        disk.crash(random.Random(seed))
        found.add(read_recovery_point(disk, "d"))
    assert found == set(points), "never a mixture"


def test_a_point_that_was_set_outlives_every_crash() -> None:
    for seed in range(100):
        disk = empty_disk()
        set_recovery_point(disk, "d", POINT)
        advance_recovery_point(disk, "d", POINT._replace(next_offset=2**41), 0)
        set_recovery_point(disk, "d", RecoveryPoint(5, 0, 50))
        disk.crash(random.Random(seed))
        assert read_recovery_point(disk, "d") == RecoveryPoint(5, 0, 50)


# The state.


def test_a_new_state_is_not_known_until_it_is_saved() -> None:
    disk = empty_disk()
    state = LogState(disk, "d")
    assert not state.known
    assert (state.log_start, state.cleaned_to, state.sparse, state.swap) == (0, 0, False, None)
    state.save()
    assert LogState(disk, "d").known


@given(
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.booleans(),
    st.one_of(
        st.none(), st.builds(Swap, st.integers(0, 2**62), st.lists(st.integers(0, 2**62), min_size=1, max_size=4))
    ),
)
def test_the_state_comes_back(log_start: int, cleaned_to: int, sparse: bool, swap: Swap | None) -> None:
    disk = empty_disk()
    state = LogState(disk, "d")
    state.log_start, state.cleaned_to, state.sparse, state.swap = log_start, cleaned_to, sparse, swap
    state.save()
    again = LogState(disk, "d")
    assert again.known
    assert (again.log_start, again.cleaned_to, again.sparse, again.swap) == (log_start, cleaned_to, sparse, swap)


def test_the_state_is_a_text_that_a_person_can_read() -> None:
    disk = empty_disk()
    state = LogState(disk, "d")
    state.log_start, state.swap = 12, Swap(0, [0, 12], ".x.cleaned")
    state.save()
    assert json.loads(disk.read_file(f"d/{STATE_NAME}") or b"") == {
        "version": 1,
        "log_start": 12,
        "cleaned_to": 0,
        "sparse": False,
        "swap": {"base_offset": 0, "replaced": [0, 12], "suffix": ".x.cleaned"},
        "restart_at": None,
        "topic_id": "",
    }


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"{}", b"null", b"\xff", b'{"log_start": "x", "cleaned_to": 0, "sparse": false, "swap": null}'],
)
def test_a_state_that_is_not_whole_is_not_believed(text: bytes) -> None:
    disk = empty_disk()
    disk.write_atomic(f"d/{STATE_NAME}", text)
    state = LogState(disk, "d")
    assert not state.known and state.log_start == 0


def test_nothing_is_taken_from_a_state_that_is_not_whole() -> None:
    disk = empty_disk()
    disk.write_atomic(f"d/{STATE_NAME}", b'{"log_start": 500, "cleaned_to": "x"}')
    assert LogState(disk, "d").log_start == 0


def test_a_saved_state_outlives_every_crash() -> None:
    for seed in range(100):
        disk = empty_disk()
        state = LogState(disk, "d")
        state.save()
        state.log_start = 7
        state.save()
        disk.crash(random.Random(seed))
        assert LogState(disk, "d").log_start == 7
