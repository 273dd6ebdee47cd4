"""Trying again: growing pauses, a deadline, and which errors are worth it.

What is tried again is the caller's; whoever is retried must not mind being done twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from odradek.client.errors import BrokerUnavailableError, ClientError, RequestError, TimedOutError

PAUSE_FIRST_MS = 20
PAUSE_MAX_MS = 1_000
JITTER = 0.2  # of the pause, up or down, so that many clients do not come back at once

Result = TypeVar("Result")


def pause_ms(attempt: int) -> float:
    """How long to wait after the attempt of this number, from 0 on."""
    pause = min(PAUSE_MAX_MS, PAUSE_FIRST_MS << min(attempt, 16))
    return pause * random.uniform(1 - JITTER, 1 + JITTER)


def is_retriable(error: ClientError) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, RequestError):
        return error.retriable
    return isinstance(error, BrokerUnavailableError | TimedOutError)


async def retry(attempt: Callable[[], Awaitable[Result]], *, what: str, timeout_ms: int) -> Result:
    """Call until it succeeds, fails for good, or the time is over; then the last error is raised."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    last: ClientError | None = None
    for number in range(2**31):
        try:
            async with asyncio.timeout_at(deadline):
                return await attempt()
        except TimeoutError:
            break
        except ClientError as error:
            if not is_retriable(error):
                raise
            last = error
        pause = pause_ms(number) / 1000
        if loop.time() + pause >= deadline:
            break
        await asyncio.sleep(pause)
    raise last or TimedOutError(f"{what}: no answer within {timeout_ms} ms")
