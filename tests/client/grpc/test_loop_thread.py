"""The loop behind the blocking clients: what it runs, what it tells of, and that it ends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from odradek.client.grpc.loop_thread import LoopThread
from tests.process import wait_until

SOON = 30.0


class PollerCompletionQueue:
    """Called as gRPC's own, which hands on events of loops that are closed."""

    def _handle_events(self) -> None:
        raise RuntimeError("Event loop is closed")


def broken() -> None:
    raise IndexError


def test_an_error_in_a_callback_is_told_and_grpcs_own_is_not(caplog: pytest.LogCaptureFixture) -> None:
    thread = LoopThread()
    thread.start()
    thread.call_soon(PollerCompletionQueue()._handle_events)
    thread.call_soon(broken)
    wait_until(lambda: bool(caplog.records), SOON, "that it is told")
    thread.stop()
    (told,) = caplog.records
    assert told.exc_info is not None and told.exc_info[0] is IndexError


def test_what_still_runs_is_cancelled_and_has_ended_when_it_stops() -> None:
    thread, ended = LoopThread(), threading.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def begin() -> None:
        tasks.append(asyncio.create_task(wait()))
        await asyncio.wait(tasks, timeout=0)

    tasks: list[asyncio.Task[None]] = []
    thread.start()
    assert thread.is_running
    thread.call(begin())
    thread.stop()
    assert ended.is_set() and not thread.is_running
    thread.stop()
