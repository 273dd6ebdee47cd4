"""What the client's tests share: coroutines as tests, and waiting for conditions."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, ParamSpec

Parameters = ParamSpec("Parameters")

TEST_SECONDS = 60
CONDITION_SECONDS = 20
LEAVING_SECONDS = 2


def asynchronous(test: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """Run a coroutine as a test, and fail it if it leaves tasks behind."""

    @functools.wraps(test)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(TEST_SECONDS):
                await test(*args, **kwargs)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            if left:  # a server's handler may still have to notice that its connection is closed
                _, left = await asyncio.wait(left, timeout=LEAVING_SECONDS)
            assert not left, f"tasks are left: {left}"

        asyncio.run(bounded())

    return run


async def until(condition: Callable[[], bool], *, seconds: float = CONDITION_SECONDS) -> None:
    """Let the loop run until a condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await tick()


async def until_async(condition: Callable[[], Awaitable[bool]], *, seconds: float = CONDITION_SECONDS) -> None:
    """The same for a condition that has to be asked for."""
    async with asyncio.timeout(seconds):
        while not await condition():
            await tick()


async def tick() -> None:
    """Let a little time pass: one more turn of the loop, and no busy waiting."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.get_running_loop().create_future(), 0.005)
