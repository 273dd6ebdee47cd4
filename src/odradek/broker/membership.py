"""A broker's place in the cluster: it registers, copies what others lead, and keeps count of who copies what it leads.

A broker that stands alone registers with itself, and has nobody to copy from.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from contextlib import suppress
from typing import Any

from odradek.broker.broker import Broker
from odradek.controller.registration import Identity, Registration
from odradek.replication.config import ReplicationConfig
from odradek.replication.fetcher import ReplicaFetchers
from odradek.replication.isr import IsrKeeper

_LOOK_SECONDS = 0.1
_UNHEARD_MS = 2_000  # longer than it takes to elect another controller

logger = logging.getLogger(__name__)


class Membership:
    """Made on the running loop, with a broker whose metadata is started."""

    def __init__(self, broker: Broker, identity: Identity, config: ReplicationConfig, secret: str | None) -> None:
        self.registration = Registration(broker.metadata, identity)
        self._broker = broker
        self._fetchers = ReplicaFetchers(
            config,
            broker.node_id,
            broker.flusher,
            client_id=replica_client_id(broker.node_id, secret),
            broker_epoch=lambda: self.registration.broker_epoch,
            failed=broker.stop_for,
        )
        self._in_sync = IsrKeeper(
            config,
            broker.node_id,
            call=broker.metadata.call,
            broker_epoch=lambda: self.registration.broker_epoch,
            now_ms=broker.monotonic_ms,
        )
        broker.hosting.followers = self._fetchers
        broker.hosting.in_sync = self._in_sync
        broker.registration = self.registration

    async def join(self, seconds_max: float) -> bool:
        """Register, and wait until the cluster counts on this broker; False if that takes too long."""
        self._in_sync.start()
        self.registration.start()
        waiting = asyncio.create_task(self._joined())
        either: set[asyncio.Future[Any]] = {waiting, self.registration.refused}
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        while self.registration.is_disputed and not self.registration.refused.done():
            await asyncio.wait(either, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return waiting.done() and not waiting.cancelled()

    async def _joined(self) -> None:
        await self.registration.unfenced.wait()
        await self._broker.hosting.opened.wait()
        await self._broker.hosting.settled()

    async def leave(self, timeout_ms: int) -> None:
        """Let others take over what this broker leads, as far as there are others and a controller answers."""
        if self._broker.stands_alone:
            return
        leaving = asyncio.create_task(self.registration.shut_down(timeout_ms))
        while not leaving.done() and not self._is_unheard():
            await asyncio.wait({leaving}, timeout=_LOOK_SECONDS)
        if not leaving.done() or not leaving.result():
            leaving.cancel()
            logger.warning("nobody has taken over all that this broker leads: it stops all the same")

    def _is_unheard(self) -> bool:
        """Whether no controller has answered for so long that there may be none: all are stopping, say."""
        answered_ms = self.registration.lease_until - self._broker.metadata.config.session_timeout_ms
        return self._broker.monotonic_ms() - answered_ms > _UNHEARD_MS

    async def close(self) -> None:
        """Copy no more, and be heard of no more."""
        self._broker.hosting.followers = self._broker.hosting.in_sync = None
        await self.registration.close()
        await self._in_sync.close()
        await self._fetchers.close()


def replica_client_id(node_id: int, secret: str | None) -> str:
    """The name under which a broker fetches from another; with a secret, nobody else can know it."""
    return f"odradek-broker-{node_id}" + ("" if secret is None else f"-{_token(secret)}")


def is_broker(client_id: str, secret: str | None) -> bool:
    """Whether a client of this name is a broker of this cluster."""
    return secret is None or hmac.compare_digest(client_id.rpartition("-")[2].encode(), _token(secret).encode())


def _token(secret: str) -> str:
    return hmac.new(secret.encode(), b"odradek replica fetch", hashlib.sha256).hexdigest()
