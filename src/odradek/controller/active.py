"""One term of the active controller: it decides, has its decisions committed, and watches over the brokers.

Decisions are taken one after the other on `working`, the committed image with all that is under way, and answered when
a majority has them. When the term ends all of it is thrown away.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from odradek.controller.config import ControllerConfig
from odradek.controller.decisions import Facts, decide
from odradek.controller.image import CLUSTER, BrokerImage, ClusterImage, MetadataRecord
from odradek.controller.quorum import Quorum
from odradek.controller.quorum_errors import LostError, NotLeaderError
from odradek.controller.sessions import BrokerSessions
from odradek.wire.errors import PeerError

OnClose = Callable[[Callable[[], None]], None]  # has something called when the asking broker's connection is lost

_CLUSTER_ID_BYTES = 16
_PROBE_SECONDS = 0.05  # between knocks at the door of a broker that is not heard of
_IDLE_SECONDS = 1.0  # between looks while all are
_PROBE_TIMEOUT_SECONDS = 0.1  # silence proves nothing, so it is not waited for
_REFUSALS_MAX = 2  # after these a broker is taken for dead

logger = logging.getLogger(__name__)


class ActiveController:
    """Made when this node is elected; `end` when it is not any more."""

    def __init__(self, config: ControllerConfig, quorum: Quorum, image: ClusterImage, chance: Random) -> None:
        self.working = image.copy()
        self.next_offset = quorum.end_offset  # where the next record will stand: nobody else appends
        self.sessions = BrokerSessions(config.session_timeout_ms)
        self._config = config
        self._quorum = quorum
        self._chance = chance
        self._connections: dict[int, object] = {}  # by broker: which of its connections counts
        self._refusals: dict[int, int] = {}  # by broker: connections refused in a row
        self._news = asyncio.Event()  # the sessions have changed
        self._suspicion = asyncio.Event()  # a connection was lost: is its broker alive?
        now = self._now()
        self._rebalance_ms = now + config.leader_rebalance_interval_ms
        self.sessions.begin((broker.id for broker in image.brokers.values() if not broker.fenced), now)
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._probe())]

    def end(self) -> list[asyncio.Task[None]]:
        """Stop to watch; what was asked and is not committed fails by itself. Return what is left to wait for."""
        for task in self._tasks:
            task.cancel()
        return self._tasks

    async def execute(
        self, command: str, args: Mapping[str, Any], on_close: OnClose | None = None
    ) -> tuple[dict[str, Any], int]:
        """Decide and commit; return the result and the offset behind the change.

        PeerError: refused, nothing was done. NotLeaderError: the term is over, nothing was done. LostError: unknown.
        """
        facts = Facts(
            now=self._now(),
            node_id=self._quorum.node_id,
            live=self.sessions.alive(self._now()),
            default_replication_factor=self._config.default_replication_factor,
            chance=self._chance,
            next_offset=self.next_offset,
            partitions_max=self._config.partitions_max,
        )
        decision = decide(command, self.working, args, facts)
        if command in ("register-broker", "heartbeat"):
            self._heard(int(args["broker_id"]), on_close)
        elif command in ("fence-broker", "unregister-broker"):
            self._forget(int(args["broker_id"]))
        result = decision.result
        if command == "heartbeat":  # no longer than until a majority without us may count on another controller
            silence_ms = self._now() - self._quorum.majority_ms()
            result = {**result, "lease_ms": max(0, self._config.session_timeout_ms - silence_ms)}
        return result, await self.commit(decision.records)

    async def commit(self, records: Sequence[MetadataRecord]) -> int:
        """Have records committed; without any, wait until all that the decision was based on is."""
        if not records and self._quorum.applied_offset >= self.next_offset:
            return self.next_offset
        for offset, record in enumerate(records, self.next_offset):
            self.working.apply(record, offset)
        self.next_offset += len(records)
        expected = self.next_offset
        end_offset = await self._quorum.propose(records)
        if end_offset != expected:
            raise AssertionError(f"the controller's records end at {end_offset}, not at {expected}")
        return end_offset

    # Sessions.

    def _now(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def _heard(self, broker_id: int, on_close: OnClose | None) -> None:
        self.sessions.touch(broker_id, self._now())
        self._refusals.pop(broker_id, None)
        connection = self._connections[broker_id] = object()
        if on_close is not None:
            on_close(lambda: self._lost(broker_id, connection))

    def _lost(self, broker_id: int, connection: object) -> None:
        """A connection broke; it says nothing if the broker has been heard over another one since."""
        if self._connections.get(broker_id) is connection:
            del self._connections[broker_id]
            self.sessions.lost(broker_id, self._now())
            self._news.set()
            self._suspicion.set()

    def _forget(self, broker_id: int) -> None:
        self.sessions.forget(broker_id)
        self._connections.pop(broker_id, None)
        self._refusals.pop(broker_id, None)

    async def _watch(self) -> None:
        """Begin the term, then fence brokers whose time is up and move leaders back where they belong."""
        try:
            await self._begin()
            while True:
                await self._pause()
                try:
                    await self._look_after_brokers()
                except PeerError as error:
                    if isinstance(error, NotLeaderError):
                        raise
                    logger.error("the controller could not look after the brokers: %s", error)
        except (NotLeaderError, LostError) as error:
            logger.info("the controller's term ends: %s", error)
        except Exception:
            logger.exception("a bug in the controller: it lets another one lead")
            self._quorum.resign()

    async def _look_after_brokers(self) -> None:
        now = self._now()
        for broker_id in self.sessions.expired(now):
            if broker_id == self._quorum.node_id and self.sessions.was_heard(broker_id):
                self.sessions.touch(broker_id, now)  # it is this very process: it lives, and has much to do
                continue
            broker = self.working.brokers.get(broker_id)
            if broker is not None and not broker.fenced:
                logger.warning("broker %d is fenced: it was not heard of in time", broker_id)
            await self.execute("fence-broker", {"broker_id": broker_id})
        if self._config.leader_rebalance_interval_ms and now >= self._rebalance_ms:
            self._rebalance_ms = now + self._config.leader_rebalance_interval_ms
            await self.execute("rebalance", {})

    async def _begin(self) -> None:
        if not self.working.cluster_id:
            cluster_id = base64.urlsafe_b64encode(self._chance.randbytes(_CLUSTER_ID_BYTES)).decode().rstrip("=")
            await self.commit([MetadataRecord(CLUSTER, {"cluster_id": cluster_id})])
        await self.execute("adopt", {})

    async def _pause(self) -> None:
        now = self._now()
        deadline = self.sessions.next_deadline()
        due = now + self._config.session_timeout_ms  # nobody who is first heard of meanwhile can be late before
        if deadline is not None:
            due = min(due, deadline)
        if self._config.leader_rebalance_interval_ms:
            due = min(due, self._rebalance_ms)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0, due - now) / 1000):
                await self._news.wait()
        self._news.clear()
        if self._now() - due > self._config.session_timeout_ms // 4:
            self._oversleep()

    def _oversleep(self) -> None:
        """Our own process stood still: whoever was not heard of meanwhile may not be blamed for that."""
        logger.warning("this process stood still: all brokers get a new session")
        self.sessions.begin((broker.id for broker in self.working.brokers.values() if not broker.fenced), self._now())

    # Brokers that have no connection to us.

    async def _probe(self) -> None:
        """Knock at the doors of brokers that are not heard of: where a process died, its machine refuses at once."""
        while True:
            unheard = [
                broker
                for broker in self.working.brokers.values()
                if not broker.fenced and broker.id not in self._connections and broker.id != self._quorum.node_id
            ]
            await asyncio.gather(*map(self._knock, unheard), return_exceptions=True)
            self._suspicion.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_PROBE_SECONDS if unheard else _IDLE_SECONDS):
                    await self._suspicion.wait()

    async def _knock(self, broker: BrokerImage) -> None:
        address = broker.http or broker.kafka
        if address is None or not await _refuses(address):
            self._refusals.pop(broker.id, None)
            return
        self._refusals[broker.id] = self._refusals.get(broker.id, 0) + 1
        if self._refusals[broker.id] == _REFUSALS_MAX:
            self.sessions.dead(broker.id, self._now())
            self._news.set()


async def _refuses(address: tuple[str, int]) -> bool:
    """Whether nobody listens there; silence proves nothing."""
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(*address)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError, ValueError, OverflowError):  # the last two: an address that cannot be one
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return False
