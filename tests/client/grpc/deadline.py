"""Coroutines as tests that may take longer than those of `tests.client.support`: brokers are killed in them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

Parameters = ParamSpec("Parameters")


def within(
    seconds: float,
) -> Callable[[Callable[Parameters, Coroutine[Any, Any, None]]], Callable[Parameters, None]]:
    """Run a coroutine as a test, within so many seconds."""

    def wrapped(test: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
        @functools.wraps(test)
        def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
            asyncio.run(asyncio.wait_for(test(*args, **kwargs), seconds))

        return run

    return wrapped
