"""The cluster's metadata as a broker uses it: the committed image, and commands that change it.

Commands go to the active controller, wherever it is, and are answered when a majority has the change and this broker
has applied it. What could not be done because nobody leads is tried again until its time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

from odradek.client.http import HttpError
from odradek.clock import Clock
from odradek.controller.active import ActiveController, OnClose
from odradek.controller.changes import Changes
from odradek.controller.config import ControllerConfig, QuorumConfig
from odradek.controller.image import ClusterImage, MetadataRecord
from odradek.controller.quorum import Quorum
from odradek.controller.quorum_errors import LostError, NotLeaderError, QuorumStoppedError
from odradek.controller.quorum_wire import COMMAND
from odradek.controller.transport import HttpTransport, Transport
from odradek.disk.interface import Disk
from odradek.raft.messages import NO_NODE
from odradek.wire.errors import ErrorCode, PeerError

__all__ = ["Changes", "Controller", "OnChange"]

Answer = TypeVar("Answer")
OnChange = Callable[[ClusterImage, Changes], None]

# Whoever asks for one of these twice may get another answer the second time: they are not asked again in doubt.
_ONCE = frozenset({
    "create-topic", "delete-topic", "add-partitions", "create-partition", "delete-partition", "revoke-client",
})  # fmt: skip
_PAUSE_SECONDS = 0.1  # before asking again, unless the leader changes meanwhile
_UNKNOWN = "the leader changed or did not answer; the change may be made yet, or not"


class _TryAgain(Exception):  # noqa: N818 - it never leaves this module
    """Nothing was done, or doing it again does no harm."""


class Controller:
    """Keeps the image, and takes commands. Implements `Applier`."""

    def __init__(
        self,
        *,
        config: ControllerConfig,
        quorum: QuorumConfig,
        disk: Disk,
        directory: str,
        clock: Clock,
        chance: Random,
        failed: Callable[[Exception], None],
        on_change: OnChange | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.config = config
        self.image = ClusterImage()  # committed; changed in place
        self.on_change = on_change
        self.applied_offset = 0
        self._chance = chance
        self._transport = transport or HttpTransport(quorum.voters, lambda: self.quorum.cluster_id, quorum.secret)
        self.quorum = Quorum(
            config=quorum,
            disk=disk,
            directory=directory,
            clock=clock,
            chance=chance,
            apply=self,
            failed=self._stop_by,
            transport=transport,
        )
        self._failed = failed
        self._active: ActiveController | None = None
        self._ended: list[asyncio.Task[None]] = []  # of terms that are over
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # for an offset to be applied
        self._turn = asyncio.Event()  # set, and replaced, when the leader changes

    @property
    def node_id(self) -> int:
        """Who we are."""
        return self.quorum.node_id

    @property
    def leader_id(self) -> int:
        """Which broker is the active controller; -1: none, as far as this one knows."""
        return self.quorum.leader_id

    @property
    def is_active(self) -> bool:
        """Whether it is this one, and ready."""
        return self._active is not None

    @property
    def cluster_id(self) -> str:
        """The cluster's id; empty while it is not known here."""
        return self.quorum.cluster_id

    async def start(self) -> None:
        """Read the metadata and join the quorum; a broker that stands alone has all of it when this returns."""
        await self.quorum.start()
        if self.quorum.config.is_alone:
            failure = self._failure = asyncio.get_running_loop().create_future()
            ready = asyncio.create_task(self._until_ready())
            try:
                await asyncio.wait({ready, failure}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ready.cancel()
                self._failure = None
            if failure.done():
                raise failure.result()

    _failure: asyncio.Future[Exception] | None = None  # while a lone broker starts

    async def _until_ready(self) -> None:
        while self._active is None or not self.image.cluster_id:
            await self._turn.wait()

    def _stop_by(self, error: Exception) -> None:
        self.deposed()
        if self._failure is not None and not self._failure.done():
            self._failure.set_result(error)
        self._failed(error)

    async def close(self, *, resign: bool = True) -> None:
        """Leave the quorum; whoever waits is told."""
        await self.quorum.close(resign=resign)
        await self._transport.close()
        self.deposed()
        await asyncio.gather(*self._ended, return_exceptions=True)
        for _, waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(QuorumStoppedError())
        self._waiting.clear()

    # Commands.

    async def call(self, command: str, args: Mapping[str, Any], *, timeout_ms: int = 30_000) -> dict[str, Any]:
        """Have the active controller do something; return its result when this broker has applied the change.

        PeerError says why not: its own refusal, or REQUEST_TIMED_OUT when there is no leader, or when nobody knows.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            turn = self._turn
            try:
                result, offset = await self._attempt(command, args, deadline)
                break
            except _TryAgain as error:
                if self.quorum.is_stopped:
                    raise QuorumStoppedError from None
                remaining = deadline - loop.time()
                if remaining <= 0:
                    raise PeerError(ErrorCode.REQUEST_TIMED_OUT, f"no leader: {error}") from None
            await _first(turn.wait(), min(remaining, _PAUSE_SECONDS))
        await self._applied(offset, deadline)
        return result

    async def serve(
        self, command: str, args: Mapping[str, Any], connection_lost: OnClose | None = None
    ) -> dict[str, Any]:
        """Do what another broker asks of the active controller; NotLeaderError if that is not here.

        `connection_lost` has something called when the asking broker's connection is lost.
        """
        if self._active is None:
            raise NotLeaderError(self.leader_id)
        try:
            result, offset = await self._active.execute(command, args, connection_lost)
        except LostError:
            raise PeerError(ErrorCode.REQUEST_TIMED_OUT, _UNKNOWN) from None
        return {"result": result, "offset": offset}

    async def _attempt(self, command: str, args: Mapping[str, Any], deadline: float) -> tuple[dict[str, Any], int]:
        remaining = deadline - asyncio.get_running_loop().time()
        if self._active is not None:
            return await self._attempt_here(self._active, command, args, remaining)
        leader_id = self.leader_id
        if leader_id in (NO_NODE, self.node_id) or remaining <= 0:
            raise _TryAgain("no majority of the voters has agreed on one")
        body = {"command": command, "args": dict(args), "cluster_id": self.cluster_id}
        sending = self._transport.send(leader_id, COMMAND, body, max(1, int(remaining * 1000)))
        try:
            answer = await self.while_leading(leader_id, sending)
        except HttpError as error:
            if error.kind == "refused":
                raise _TryAgain(error.text) from None
            raise self._in_doubt(command, error.text) from None
        return self._read(command, answer)

    async def _attempt_here(
        self, active: ActiveController, command: str, args: Mapping[str, Any], remaining: float
    ) -> tuple[dict[str, Any], int]:
        try:
            async with asyncio.timeout(max(0.0, remaining)):
                return await active.execute(command, args)
        except NotLeaderError:
            raise _TryAgain("this broker led and does no longer") from None
        except LostError as error:
            raise self._in_doubt(command, str(error)) from None
        except TimeoutError:
            raise PeerError(
                ErrorCode.REQUEST_TIMED_OUT, "no majority of the voters has confirmed the change; it may be made yet"
            ) from None

    def _read(self, command: str, answer: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        if "error" in answer:
            try:
                code = ErrorCode(answer["error"])
            except ValueError:
                code = ErrorCode.UNKNOWN_SERVER_ERROR
            message = str(answer.get("message", code.message))
            if code in (ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE):
                raise _TryAgain(message)
            if code == ErrorCode.REQUEST_TIMED_OUT:
                raise self._in_doubt(command, message)
            raise PeerError(code, message)
        result, offset = answer.get("result"), answer.get("offset")
        if not isinstance(result, dict) or not isinstance(offset, int):
            raise PeerError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller's answer cannot be read")
        return result, offset

    def _in_doubt(self, command: str, reason: str) -> PeerError | _TryAgain:
        """What to raise when nobody knows whether it was done."""
        if command in _ONCE:
            return PeerError(ErrorCode.REQUEST_TIMED_OUT, f"{reason}; {command} may have been done, or not: look")
        return _TryAgain(reason)

    async def _applied(self, offset: int, deadline: float) -> None:
        """Wait until this broker knows the change as well: whoever asks it next must find it."""
        if self.applied_offset >= offset:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append((offset, future))
        try:
            async with asyncio.timeout_at(max(deadline, loop.time())):
                await future
        except TimeoutError:
            text = "the change is made, but this broker has not heard of it in time"
            raise PeerError(ErrorCode.REQUEST_TIMED_OUT, text) from None

    def _leader_turned(self) -> None:
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()

    async def while_leading(self, leader_id: int, asking: Coroutine[Any, Any, Answer]) -> Answer:
        """Ask a leader, and wait no longer once another one leads: HttpError."""
        task = asyncio.create_task(asking)
        try:
            while not task.done() and self.leader_id in (leader_id, NO_NODE):
                turned = asyncio.create_task(self._turn.wait())
                try:
                    await asyncio.wait({task, turned}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    turned.cancel()
            if not task.done():
                raise HttpError("broken", f"broker {leader_id} did not answer, and leads no longer")
            return task.result()
        finally:
            task.cancel()

    async def leader_turn(self, timeout_ms: int) -> None:
        """Wait until the leader changes or is ready, or for so long."""
        await _first(self._turn.wait(), timeout_ms / 1000)

    # Called by the quorum.

    def applied(self, offset: int, records: Sequence[MetadataRecord]) -> None:
        """Take committed records into the image, and tell who acts on them."""
        changes = Changes()
        for at, record in enumerate(records, offset):
            changes.take(self.image, record, at)
        self._advance(offset + len(records), changes)
        if any(record.type == "cluster" for record in records):
            self._leader_turned()

    def loaded(self, image: Mapping[str, Any], offset: int) -> None:
        """Start over from a snapshot."""
        self.image = ClusterImage.from_json(image)
        self._advance(offset, Changes(everything=True))

    def _advance(self, offset: int, changes: Changes) -> None:
        self.applied_offset = offset
        if changes and self.on_change is not None:
            self.on_change(self.image, changes)
        still: list[tuple[int, asyncio.Future[None]]] = []
        for wanted, future in self._waiting:
            if wanted > offset:
                still.append((wanted, future))
            elif not future.done():
                future.set_result(None)
        self._waiting = still

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Let those go on who wait for a leader."""
        self._leader_turned()

    def elected(self, epoch: int) -> None:
        """Begin a term as the active controller."""
        self.deposed()
        self._active = ActiveController(self.config, self.quorum, self.image, self._chance)
        self._leader_turned()

    def deposed(self) -> None:
        """End it."""
        active, self._active = self._active, None
        if active is not None:
            self._ended = [task for task in (*self._ended, *active.end()) if not task.done()]

    def snapshot(self) -> dict[str, Any]:
        """The image as it is now."""
        return self.image.to_json()


async def _first(wait: Awaitable[object], seconds: float) -> None:
    """Wait for something, but no longer than that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wait
