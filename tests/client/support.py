"""What the client's tests share: coroutines as tests, waiting for conditions, a line to the broker that can be cut."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from odradek.client.address import parse_addresses

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

TEST_SECONDS = 60
CONDITION_SECONDS = 20


def asynchronous(test: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """Run a coroutine as a test, and fail it if it leaves tasks behind."""

    @functools.wraps(test)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(TEST_SECONDS):
                await test(*args, **kwargs)
            left = asyncio.all_tasks() - {asyncio.current_task()}
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


class Line:
    """A line between a client and a broker: it can be cut, and it can fall silent.

    Brokers tell clients their own address, so the line only serves clients that are shown `address` instead.
    """

    def __init__(self, target: str) -> None:
        self._target = parse_addresses(target)[0]
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._port = 0
        self.connections = 0
        self.silent = False  # what the broker answers is dropped

    @property
    def address(self) -> str:
        """Where the line begins."""
        return f"127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Take connections, at the same address as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Break every connection; new ones can be made."""
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Break every connection and take no more."""
        assert self._server is not None
        self._server.close()
        await self.cut()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(self._target.host, self._target.port)
            self._writers |= {writer, far_writer}
            try:
                await asyncio.gather(
                    self._copy(reader, far_writer, is_answer=False), self._copy(far_reader, writer, is_answer=True)
                )
            finally:
                self._writers -= {writer, far_writer}
                for end in (writer, far_writer):
                    end.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if not (is_answer and self.silent):
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()
