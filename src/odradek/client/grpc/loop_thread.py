"""An event loop in a thread of its own: what makes a blocking client of an async one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")

_GRPC_EVENTS = "PollerCompletionQueue._handle_events"


class LoopThread:
    """A loop that other threads hand coroutines to, between `start` and `stop`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._loop is not None

    def start(self) -> None:
        """Begin."""
        assert self._loop is None, "it was started before"
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_tell)
        self._thread = threading.Thread(target=self._loop.run_forever, name="odradek-grpc-client", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and wait for its result."""
        if self._loop is None:
            coroutine.close()
            raise RuntimeError("the client is not open: use it in a 'with' block, or between start() and close()")
        future: Future[Result] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # the caller was interrupted: nobody waits for it any more
            raise

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Let the loop call something, and do not wait for it."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(callback)

    def stop(self) -> None:
        """End the thread. What still runs on the loop is cancelled and has ended then."""
        if self._loop is None or self._thread is None:
            return
        self.call(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tell of what went wrong in a callback, less what is nothing.

    The loops of a process hand each other gRPC's events: one for a loop that is closed by now is an error to gRPC.
    """
    if _GRPC_EVENTS not in str(context.get("message")):
        loop.default_exception_handler(context)


async def _cancel_others() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
