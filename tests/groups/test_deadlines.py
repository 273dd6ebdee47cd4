"""One timer for all groups."""

from __future__ import annotations

import asyncio

from odradek.clock import ManualClock, SystemClock
from odradek.groups.deadlines import Deadlines
from tests.groups.brokers import run


class Rung:
    """What a `Deadlines` called, and when."""

    def __init__(self) -> None:
        self.clock = ManualClock(0)
        self.calls: list[tuple[str, int]] = []
        self.deadlines = Deadlines(self.clock, lambda group_id, now_ms: self.calls.append((group_id, now_ms)))


def test_groups_are_called_when_their_time_has_come_the_earliest_first() -> None:
    rung = Rung()
    rung.deadlines.arm("late", 30)
    rung.deadlines.arm("early", 10)
    rung.deadlines.arm("never", None)
    rung.clock.advance(9)
    rung.deadlines.run_due()
    assert rung.calls == []
    rung.clock.advance(21)
    rung.deadlines.run_due()
    rung.deadlines.run_due()
    assert rung.calls == [("early", 30), ("late", 30)]


def test_an_earlier_deadline_takes_the_place_of_a_later_one_and_not_the_other_way() -> None:
    rung = Rung()
    for deadline_ms in (20, 10, 40):
        rung.deadlines.arm("g", deadline_ms)
    rung.clock.advance(10)
    rung.deadlines.run_due()
    rung.clock.advance(100)
    rung.deadlines.run_due()
    assert rung.calls == [("g", 10)], "the stale entry of 20 is passed over"


def test_a_group_that_arms_itself_again_at_once_does_not_hold_up_the_loop() -> None:
    clock = ManualClock(5)
    calls: list[str] = []

    def again(group_id: str, now_ms: int) -> None:
        calls.append(group_id)
        deadlines.arm(group_id, now_ms)

    deadlines = Deadlines(clock, again)
    deadlines.arm("g", 5)
    deadlines.run_due()
    assert calls == ["g"]


def test_the_loops_timer_rings_at_the_earliest_deadline() -> None:
    async def scene() -> None:
        clock = SystemClock()
        rung: asyncio.Queue[str] = asyncio.Queue()
        deadlines = Deadlines(clock, lambda group_id, _: rung.put_nowait(group_id))
        deadlines.arm("before start", clock.now_ms())
        deadlines.start()
        assert await rung.get() == "before start"
        deadlines.arm("hour", clock.now_ms() + 3_600_000)
        deadlines.arm("soon", clock.now_ms() + 5)
        assert await rung.get() == "soon"
        deadlines.close()

    run(scene())


def test_a_closed_one_rings_no_more() -> None:
    async def scene() -> None:
        clock = SystemClock()
        rung: list[str] = []
        deadlines = Deadlines(clock, lambda group_id, _: rung.append(group_id))
        deadlines.start()
        deadlines.arm("g", clock.now_ms() + 1)
        deadlines.close()
        deadlines.arm("h", clock.now_ms())
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.02, done.set_result, None)
        await done
        assert rung == []

    run(scene())
