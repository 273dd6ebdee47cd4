"""Keeps this broker known to the active controller: it registers, and is heard of at short intervals.

The connection to the controller is the broker's own: when it drops, the controller suspects that the broker died, and
the broker looks for another controller. `lease_until` is for whoever may only act while the cluster counts on him.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from odradek.client.http import HttpError, HttpLink
from odradek.controller.controller import Controller
from odradek.controller.quorum_wire import COMMAND
from odradek.controller.transport import cluster_headers
from odradek.raft.messages import NO_NODE
from odradek.wire.errors import ErrorCode, PeerError

_RETRY_MS = 50
_RETRY_MS_MAX = 500
_DUPLICATE_TRIES_MS = 1.5  # of the session timeout: so long an earlier process of ours may seem to live

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a broker says of itself."""

    broker_id: int
    incarnation: str  # drawn anew at each start
    kafka: tuple[str, int] | None
    http: tuple[str, int] | None
    rack: str | None = None
    grpc: tuple[str, int] | None = None


class Link(Protocol):
    """A connection to one broker's HTTP door."""

    def post(self, path: str, body: Mapping[str, Any], timeout_ms: int) -> Coroutine[Any, Any, tuple[int, Any]]:
        """Send a JSON object; return the answer's status and JSON."""

    async def close(self) -> None:
        """Hang up."""


LinkFactory = Callable[[int, Callable[[], None]], Link]  # (broker id, what to call when it is lost)


class Registration:
    """Our place in the cluster. Set `wants_fence` while the broker must not be given anything to lead."""

    def __init__(self, controller: Controller, identity: Identity, link: LinkFactory | None = None) -> None:
        self.identity = identity
        self.broker_epoch = -1  # of the last registration; -1: none yet
        self.is_fenced = True
        self.wants_fence = False
        self.lease_until = 0  # loop time in ms: until then no controller counts us as dead
        self.refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # why we may not be here
        self.unfenced = asyncio.Event()
        self._controller = controller
        self._config = controller.config
        self._make_link = link or self._http_link
        self._link: Link | None = None
        self._link_to = NO_NODE
        self._wants_shutdown = False
        self._may_stop = asyncio.Event()
        self._hurry = asyncio.Event()  # do not wait for the next heartbeat's time
        self._duplicate_since: int | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_disputed(self) -> bool:
        """Whether another process seems to be this broker, and it is not clear yet whether it lives."""
        return self._duplicate_since is not None

    def start(self) -> None:
        """Begin to register."""
        self._task = asyncio.create_task(self._run())

    async def shut_down(self, timeout_ms: int) -> bool:
        """Ask to leave in good order; True when all that we led has gone to others."""
        self._wants_shutdown = True
        self._hurry.set()
        if self.broker_epoch < 0 or self._task is None or self._task.done():
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._may_stop.wait()
        return self._may_stop.is_set()

    async def close(self) -> None:
        """Say no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._drop_link()
        self.refused.cancel()

    # The loop.

    def _now(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    async def _run(self) -> None:
        retry_ms = _RETRY_MS
        while not self.refused.done():
            self._hurry.clear()
            if (stranger := self._controller.quorum.refusal) is not None:
                self._refuse(stranger)
                return
            try:
                if self.broker_epoch < 0:
                    await self._register()
                pause_ms = await self._heartbeat()
                retry_ms = _RETRY_MS
            except PeerError as error:
                self._refusal(error)
                pause_ms, retry_ms = retry_ms, min(2 * retry_ms, _RETRY_MS_MAX)
            except HttpError as error:
                logger.debug("the controller cannot be reached: %s", error)
                await self._drop_link()
                pause_ms, retry_ms = retry_ms, min(2 * retry_ms, _RETRY_MS_MAX)
            except Exception:
                logger.exception("a bug in the registration")
                pause_ms = _RETRY_MS_MAX
            await self._pause(pause_ms)

    async def _pause(self, pause_ms: int) -> None:
        """Wait for the next heartbeat's time, for another leader, or for somebody in a hurry."""
        hurry = asyncio.create_task(self._hurry.wait())
        turn = asyncio.create_task(self._controller.leader_turn(pause_ms))
        try:
            await asyncio.wait({hurry, turn}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurry.cancel()
            turn.cancel()

    async def _register(self) -> None:
        identity = self.identity
        args = {
            "broker_id": identity.broker_id,
            "incarnation": identity.incarnation,
            "kafka": None if identity.kafka is None else list(identity.kafka),
            "http": None if identity.http is None else list(identity.http),
            "grpc": None if identity.grpc is None else list(identity.grpc),
            "rack": identity.rack,
            "directory": self._controller.quorum.directory_id,
            "cluster_id": self._controller.cluster_id,
        }
        result = await self._ask("register-broker", args)
        self.broker_epoch, self.is_fenced, self._duplicate_since = int(result["broker_epoch"]), True, None

    async def _heartbeat(self) -> int:
        """Be heard of; return how long to wait until the next time."""
        sent = self._now()
        args = {
            "broker_id": self.identity.broker_id,
            "broker_epoch": self.broker_epoch,
            "applied_offset": self._controller.applied_offset - 1,  # the last one
            "wants_shutdown": self._wants_shutdown,
            "wants_fence": self.wants_fence,
        }
        result = await self._ask("heartbeat", args)
        self.is_fenced = bool(result["fenced"])
        self.lease_until = max(self.lease_until, sent + int(result["lease_ms"]))
        if self.is_fenced:
            self.unfenced.clear()
        else:
            self.unfenced.set()
        if self._wants_shutdown and result["may_stop"]:
            self._may_stop.set()
        is_urgent = self._wants_shutdown or self.is_fenced
        return min(_RETRY_MS, self._config.heartbeat_interval_ms) if is_urgent else self._config.heartbeat_interval_ms

    def _refusal(self, error: PeerError) -> None:
        match error.code:
            case ErrorCode.STALE_BROKER_EPOCH | ErrorCode.BROKER_ID_NOT_REGISTERED:
                logger.warning("the controller does not know this broker any more: registering again")
                self.broker_epoch = -1
            case ErrorCode.INCONSISTENT_CLUSTER_ID | ErrorCode.INVALID_REGISTRATION:
                self._refuse(error.message)
            case ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                now = self._now()
                self._duplicate_since = now if self._duplicate_since is None else self._duplicate_since
                if now - self._duplicate_since >= self._config.session_timeout_ms * _DUPLICATE_TRIES_MS:
                    self._refuse(error.message)
            case _:
                logger.debug("the controller refused: %s", error)

    def _refuse(self, text: str) -> None:
        if not self.refused.done():
            self.refused.set_result(text)

    # Asking the controller.

    async def _ask(self, command: str, args: dict[str, Any]) -> dict[str, Any]:
        if self._controller.is_active:
            await self._drop_link()
            answer: Mapping[str, Any] = await self._controller.serve(command, args)
        else:
            answer = await self._ask_over_link(command, args)
        result = answer.get("result")
        if not isinstance(result, dict):
            raise PeerError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller's answer cannot be read")
        return result

    async def _ask_over_link(self, command: str, args: dict[str, Any]) -> Mapping[str, Any]:
        leader_id = self._controller.leader_id
        if leader_id in (NO_NODE, self.identity.broker_id):
            raise PeerError(ErrorCode.NOT_CONTROLLER, "there is no leader")
        if self._link is None or self._link_to != leader_id:
            await self._drop_link()
            self._link, self._link_to = self._make_link(leader_id, self._hurry.set), leader_id
        body = {"command": command, "args": args, "cluster_id": self._controller.cluster_id}
        if isinstance(self._link, HttpLink):
            self._link.headers = cluster_headers(self._controller.cluster_id, self._controller.quorum.config.secret)
        asking = self._link.post(f"/kraft/v1/{COMMAND}", body, self._config.session_timeout_ms)
        status, answer = await self._controller.while_leading(leader_id, asking)
        if not isinstance(answer, dict):
            raise HttpError("broken", f"broker {leader_id} answered with status {status} and no JSON object")
        if status == 409:
            raise PeerError(ErrorCode.INCONSISTENT_CLUSTER_ID, str(answer.get("detail")))
        if status != 200:
            raise PeerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {leader_id}: {status}: {answer.get('detail')}")
        if "error" in answer:
            known = answer["error"] in ErrorCode._value2member_map_
            code = ErrorCode(answer["error"]) if known else ErrorCode.UNKNOWN_SERVER_ERROR
            raise PeerError(code, str(answer.get("message", code.message)))
        return answer

    def _http_link(self, leader_id: int, on_lost: Callable[[], None]) -> Link:
        return HttpLink(self._controller.quorum.voters[leader_id], on_lost=on_lost)

    async def _drop_link(self) -> None:
        link, self._link, self._link_to = self._link, None, NO_NODE
        if link is not None:
            await link.close()
