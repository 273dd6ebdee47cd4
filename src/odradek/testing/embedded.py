"""A broker in a thread of its own, with its own event loop."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvloop

from odradek.config import load_settings
from odradek.node import Node, run_until


class EmbeddedBroker:
    """A broker that serves from within this process."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self._flags = {"kafka": "127.0.0.1:0", "http": "off", "grpc": "off", "dir": str(directory), **settings}
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="odradek-broker", daemon=True)

    @property
    def bootstrap_servers(self) -> str:
        """What a Kafka client is given to connect."""
        assert self._node is not None, "the broker is not running"
        return str(self._node.kafka)

    @property
    def http_url(self) -> str:
        """Where `/metrics` and `/healthcheck` are, if the setting `http` says so."""
        assert self._node is not None and self._node.http is not None, "start it with settings={'http': '127.0.0.1:0'}"
        return f"http://{self._node.http}"

    def start(self) -> None:
        """Serve; raises what kept it from that."""
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Flush, close, end the thread; raises if the disk failed meanwhile."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._node = await Node.start(load_settings(None, {}, self._flags))
        try:
            self._started.set()
            failure = await run_until(self._node, self._stop)
        finally:
            await self._node.stop()
        if failure is not None:
            raise failure


@contextmanager
def broker(settings: Mapping[str, str] | None = None, directory: str | Path | None = None) -> Iterator[EmbeddedBroker]:
    """Run a broker while the block runs; `settings` by their names, as in {"num.partitions": "3"}.

    Without a directory its records are gone with the block. A directory that is named is kept, and can be used again.
    """
    with tempfile.TemporaryDirectory(prefix="odradek-") as temporary:
        embedded = EmbeddedBroker(Path(directory or temporary), settings or {})
        embedded.start()
        try:
            yield embedded
        finally:
            embedded.stop()


@asynccontextmanager
async def async_broker(
    settings: Mapping[str, str] | None = None, directory: str | Path | None = None
) -> AsyncIterator[EmbeddedBroker]:
    """The same for coroutines: the caller's loop is never blocked."""
    manager = broker(settings, directory)
    embedded = await asyncio.to_thread(manager.__enter__)
    try:
        yield embedded
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)
