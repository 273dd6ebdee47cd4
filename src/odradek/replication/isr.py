"""Who is in sync: collects what the leaders here would change, and asks the controller, one request at a time.

A request whose answer is lost may have been taken: what it proposed stays counted, and is proposed again, until the
controller answers or newer metadata decide (KIP-497). Followers that lag are
looked for several times within the lag allowed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from odradek.model import Offset, TopicPartition
from odradek.replication.config import ReplicationConfig
from odradek.replication.progress import Isr, Progress
from odradek.wire.errors import ErrorCode, PeerError

PAUSE_FIRST_S, PAUSE_MAX_S = 0.05, 1.0
LOOKS = 10  # at the followers, within the lag allowed

# Certain never to be taken. After any other error the proposal may stand already: it counts, and is made again, until
# the metadata decide.
REFUSALS = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INVALID_REQUEST})

Call = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
logger = logging.getLogger(__name__)


class Led(Protocol):
    """A partition that this broker leads."""

    @property
    def tp(self) -> TopicPartition:
        """Its name."""

    @property
    def topic_id(self) -> bytes:
        """The id of its topic."""

    @property
    def progress(self) -> Progress | None:
        """Its followers in the present leader epoch; None when it is led no more."""

    @property
    def high_watermark(self) -> Offset:
        """Records below this can be read."""

    @property
    def log_end(self) -> Offset:
        """Where the next record goes."""

    def isr_changed(self) -> None:
        """Who counts has changed, or somebody is waited for no longer: look at the high watermark again."""


class _Wish(NamedTuple):
    partition: Led
    progress: Progress  # of the epoch in which it was wished
    partition_epoch: int
    isr: Isr

    @property
    def is_open(self) -> bool:
        """Whether nothing has decided it yet."""
        return self.partition.progress is self.progress and self.progress.proposal is self.isr


class IsrKeeper:
    """Keeps the in-sync sets of all partitions that this broker leads. Made and used on one event loop."""

    def __init__(
        self,
        config: ReplicationConfig,
        node_id: int,
        *,
        call: Call,
        broker_epoch: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        """`now_ms` is the monotonic clock by which `Progress.fetched` is told the time, too."""
        self.config = config
        self._node_id = node_id
        self._call = call
        self._broker_epoch = broker_epoch
        self._now_ms = now_ms
        self._led: dict[TopicPartition, Led] = {}
        self._expanding: dict[TopicPartition, Led] = {}
        self._wishes: dict[TopicPartition, _Wish] = {}  # proposed, and not decided yet
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to look for followers that lag, and to ask the controller."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch()), loop.create_task(self._ask_on())]

    async def close(self) -> None:
        """Stop; what was proposed is left to whoever leads next."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lead(self, partition: Led) -> None:
        """Watch a partition that this broker leads; again at each new epoch."""
        self._led[partition.tp] = partition

    def resign(self, tp: TopicPartition) -> None:
        """Watch a partition no longer."""
        self._led.pop(tp, None)
        self._expanding.pop(tp, None)
        self._wishes.pop(tp, None)

    def fetched(self, partition: Led) -> None:
        """Look whether a follower that has just fetched may join those in sync. Cheap when all are."""
        progress = partition.progress
        if progress is not None and progress.wants_expand(partition.high_watermark, partition.log_end) is not None:
            self._expanding[partition.tp] = partition
            self._news.set()

    def check(self) -> None:
        """Look for followers that lag, in all partitions."""
        now, lag_max_ms = self._now_ms(), self.config.replica_lag_time_max_ms
        for partition in list(self._led.values()):
            progress = partition.progress
            if progress is None:
                continue
            isr = progress.wants_shrink(now, lag_max_ms, partition.log_end)
            if isr is not None:
                gone = sorted(set(progress.isr) - {id_ for id_, _ in isr})
                logger.warning("%s: %s lag and shall not count as in sync", partition.tp, gone)
                self._propose(partition, progress, isr)
            partition.isr_changed()
            self.fetched(partition)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.config.replica_lag_time_max_ms / 1000 / LOOKS)
            try:
                self.check()
            except Exception:  # one bug must not end the watch over all partitions
                logger.exception("looking for followers that lag failed")

    def _propose(self, partition: Led, progress: Progress, isr: Isr) -> None:
        progress.proposed(isr)
        self._wishes[partition.tp] = _Wish(partition, progress, progress.partition_epoch, isr)
        self._news.set()

    async def _ask_on(self) -> None:
        attempts = 0
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                self._expand()
            except Exception:
                logger.exception("a bug in looking who may join those in sync")
            wishes = [wish for wish in self._wishes.values() if wish.is_open]
            self._wishes = {wish.partition.tp: wish for wish in wishes}
            if not wishes:
                continue
            try:
                await self._ask(wishes)
                attempts = attempts + 1 if any(wish.is_open for wish in wishes) else 0
            except Exception as error:
                expected = isinstance(error, PeerError)
                logger.log(
                    logging.DEBUG if attempts else logging.WARNING,
                    "the controller cannot be asked to change in-sync sets for now: %s",
                    error,
                    exc_info=None if expected else error,
                )
                attempts += 1
            if self._wishes:
                self._news.set()  # what was not answered is asked again
                await asyncio.sleep(min(PAUSE_MAX_S, PAUSE_FIRST_S * 2.0 ** min(attempts, 16)))

    def _expand(self) -> None:
        expanding, self._expanding = self._expanding, {}
        for partition in expanding.values():
            progress = partition.progress
            if progress is not None:
                isr = progress.wants_expand(partition.high_watermark, partition.log_end)
                if isr is not None:
                    self._propose(partition, progress, isr)

    async def _ask(self, wishes: list[_Wish]) -> None:
        own_epoch = self._broker_epoch()
        answer = await self._call(
            "alter-partition",
            {
                "broker_id": self._node_id,
                "broker_epoch": own_epoch,
                "partitions": [
                    {
                        "topic_id": wish.partition.topic_id.hex(),
                        "partition": wish.partition.tp.partition,
                        "leader_epoch": wish.progress.leader_epoch,
                        "partition_epoch": wish.partition_epoch,
                        "isr": [[id_, own_epoch if id_ == self._node_id else epoch] for id_, epoch in wish.isr],
                    }
                    for wish in wishes
                ],
            },
        )
        found = {(item["topic_id"], item["partition"]): item for item in answer["partitions"]}
        for wish in wishes:
            result = found.get((wish.partition.topic_id.hex(), wish.partition.tp.partition))
            if result is not None:
                self._decide(wish, result)

    def _decide(self, wish: _Wish, result: Mapping[str, Any]) -> None:
        if not wish.is_open:
            return  # newer metadata, or a newer epoch, have decided it
        progress, partition, error = wish.progress, wish.partition, result["error"]
        if error == ErrorCode.NONE:
            progress.settled(result["isr"], result["partition_epoch"])
            logger.info("%s: in sync are %s", partition.tp, list(progress.isr))
        elif error in REFUSALS:
            logger.info("%s: the in-sync set %s was refused (%d)", partition.tp, [id_ for id_, _ in wish.isr], error)
            progress.refused()
        else:
            return
        self._wishes.pop(partition.tp, None)
        partition.isr_changed()
        self.fetched(partition)  # others may have come far enough meanwhile
