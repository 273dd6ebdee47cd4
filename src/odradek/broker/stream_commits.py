"""The commits of one stream that commits for its reader: one under way at a time, and of those that wait the latest.

So a stream need not wait for the disk after each batch. A commit that failed is told when the next one is noted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from odradek.model import Offset
from odradek.wire.errors import PeerError


class StreamCommits:
    """Made when a stream begins; `let_go` when it ends, however it ends."""

    def __init__(self, commit: Callable[[Offset], Awaitable[None]], on_idle: Callable[[StreamCommits], None]) -> None:
        """`on_idle` is called when the stream has let go and nothing is under way any more."""
        self._commit = commit
        self._on_idle = on_idle
        self._wanted: Offset | None = None
        self._task: asyncio.Task[None] | None = None
        self._error: PeerError | None = None
        self._is_over = False

    def note(self, offset: Offset) -> None:
        """Commit this, soon; raises what became of an earlier one if it failed."""
        self._check()
        self._wanted = offset
        if self._task is None or self._task.done():  # done, though nobody has been told yet: it takes no more
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def settle(self) -> None:
        """Wait until all is committed, or raise why not."""
        if self._task is not None:
            await asyncio.wait([self._task])
        self._check()

    def let_go(self) -> None:
        """The stream ends; what is under way is still done."""
        self._is_over = True
        if self._task is None:
            self._on_idle(self)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _run(self) -> None:
        while self._wanted is not None:
            offset, self._wanted = self._wanted, None
            try:
                await self._commit(offset)
            except PeerError as error:
                self._error = error
                return

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None
        if not task.cancelled() and task.exception() is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a stream's commit ended in an unexpected way", "exception": task.exception()}
            )
        if self._is_over and self._task is None:
            self._on_idle(self)
