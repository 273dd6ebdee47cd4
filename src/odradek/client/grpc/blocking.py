"""What the blocking clients have in common: an async one that lives in a loop of its own, from `start` to `close`."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from odradek.client.grpc.loop_thread import LoopThread


class AsyncClient(Protocol):
    """A client that is opened and closed on a loop."""

    async def start(self) -> None:
        """Connect."""

    async def close(self) -> None:
        """Hang up."""


class BlockingClient:
    """Opens and closes an async client; use it with `with`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._thread = LoopThread()

    def start(self) -> None:
        """Connect, and learn which brokers there are; a BrokerUnavailableError if none can be reached."""
        self._thread.start()
        try:
            self._thread.call(self._client.start())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Hang up; a client that is not open has nothing to close."""
        if not self._thread.is_running:
            return
        try:
            self._thread.call(self._client.close())
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
