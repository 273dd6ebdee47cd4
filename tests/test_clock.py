"""Clocks: the machine's, and one that stands still."""

from __future__ import annotations

import time

from odradek.clock import Clock, ManualClock, SystemClock


def test_the_system_clock_tells_the_machines_time() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns() // 1_000_000
    now = clock.now_ms()
    assert before <= now <= time.time_ns() // 1_000_000


def test_a_manual_clock_moves_only_when_it_is_told_to() -> None:
    manual = ManualClock(5_000)
    clock: Clock = manual
    assert clock.now_ms() == 5_000
    assert clock.now_ms() == 5_000
    manual.advance(1_500)
    assert clock.now_ms() == 6_500
    manual.advance(0)
    assert clock.now_ms() == 6_500


def test_a_manual_clock_begins_in_a_year_that_records_can_have() -> None:
    assert ManualClock().now_ms() == 1_700_000_000_000
