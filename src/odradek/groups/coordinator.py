"""The group coordinator: the groups of those partitions of `__consumer_offsets` that this broker leads.

Finds the shard of a group and hands it the request; loads a shard when the broker becomes a partition's leader and
drops it when it stops to be. What a shard does with its groups is in `shard.py`. Timeouts run by the clock that it is
given.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from typing import Any

from odradek.clock import Clock
from odradek.groups.classic_types import JoinAnswer, JoinRequest, Leaving, Left, SyncAnswer, SyncRequest
from odradek.groups.config import GroupConfig
from odradek.groups.consumer_types import Heartbeat, HeartbeatAnswer
from odradek.groups.group import Topics
from odradek.groups.journal import Journal
from odradek.groups.ledger import partition_of
from odradek.groups.shard import NO_EPOCH, Shard, Standing
from odradek.groups.views import LoadedGroups, LoadedOffsets
from odradek.wire.errors import ErrorCode, PeerError

logger = logging.getLogger(__name__)

NAME_LENGTH_MAX = 8_000  # characters of an id or a protocol's name: what is stored has room for 32,767 bytes
_PREFIX_LENGTH_MAX = 255  # characters of a client's or an instance's name that go into a member id
_PARTITIONS_REMEMBERED = 10_000  # ids of groups whose partition need not be hashed again
_SLICE_S = 0.002  # for how long loading may keep the loop from others
_DRAIN_S_MAX = 10  # how long closing waits for a log that cannot reach its replicas


class Coordinator:
    """All groups that this broker coordinates. Lives in one event loop; every method is called there."""

    def __init__(
        self, config: GroupConfig, clock: Clock, journal: Journal, topics: Topics, chance: Callable[[], str]
    ) -> None:
        self.config = config
        self.topics = topics
        self._clock = clock
        self._journal = journal
        self._chance = chance
        self._partition_of = lru_cache(maxsize=_PARTITIONS_REMEMBERED)(partition_of)
        self._shards: dict[int, Shard] = {}  # by partition
        self.groups = LoadedGroups(self._find, self._at_work)
        self.offsets = LoadedOffsets(self._find, self._serving, self._shards.values)
        self._epochs: dict[int, int] = {}  # by partition: the newest epoch of its leader that anybody told
        self._refusal: ErrorCode | None = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # None: at work
        self._is_closed = False
        self._slices = asyncio.Lock()  # loading goes on in one partition at a time
        self._expiry: asyncio.TimerHandle | None = None

    # Called by whoever starts and stops the broker

    def load(self) -> None:
        """Read all partitions that are led now, at once: for a broker that stands alone and serves nobody yet."""
        for index in range(self._journal.partition_count):
            if index not in self._shards and self._journal.leads(index):
                self._load_now(index)
        logger.info("%d groups loaded", len(self.groups))

    def start(self) -> None:
        """Begin to serve, in the running loop; sessions of members that were loaded run from their loading on."""
        self._refusal = None
        for shard in self._at_work():
            shard.start()
        self._schedule_expiry()

    async def close(self) -> None:
        """Refuse what comes, let what was written become durable, and answer everybody who waits."""
        self._is_closed = True
        self._refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._expiry is not None:
            self._expiry.cancel()
        shards = list(self._shards.values())
        for shard in shards:
            shard.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S_MAX):
                for shard in shards:
                    await shard.ledger.drain()
        for shard in shards:
            shard.end(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)

    # Called when the leader of a partition of the journal changes

    def load_partition(self, index: int, epoch: int) -> Coroutine[Any, Any, None]:
        """Load the groups of a partition that this broker leads since that epoch, and serve them when all are loaded.

        Whoever asks for them meanwhile is told to wait, from this call on and not only once it is awaited. A newer
        epoch than that of a partition already loaded loads it anew; news that are older than others do nothing.
        """
        if self._is_closed or epoch <= self._epochs.get(index, NO_EPOCH):
            return self._load(None)
        self._epochs[index] = epoch
        known = self._shards.get(index)
        if known is not None and known.epoch == NO_EPOCH and known.knows_its_log():
            known.epoch = epoch  # led, and written by nobody else, ever since `load`: whoever waits may go on to
            return self._load(None)
        self._drop(index)
        shard = self._shards[index] = self._new_shard(index, epoch)
        return self._load(shard)

    def unload_partition(self, index: int, epoch: int | None) -> None:
        """Forget the groups of a partition that this broker leads no more since that epoch; None: it was deleted.

        All who wait are told to look for the coordinator elsewhere.
        """
        if epoch is None:
            self._epochs.pop(index, None)
        elif epoch < self._epochs.get(index, NO_EPOCH):
            return
        else:
            self._epochs[index] = epoch
        self._drop(index)
        if epoch is None and self._journal.leads(index) and not self._is_closed:
            self._load_now(index)  # a broker that stands alone begins as it did before there was a topic

    def _load_now(self, index: int) -> None:
        shard = self._shards[index] = self._new_shard(index, NO_EPOCH)
        try:
            for _ in shard.loading():
                pass
        except PeerError as error:
            self._give_up(shard, error)
        else:
            self._start_if_at_work(shard)

    async def _load(self, shard: Shard | None) -> None:
        if shard is None:
            return
        try:
            is_loaded = await self._load_in_slices(shard)
        except PeerError as error:
            self._give_up(shard, error)
            return
        except BaseException:
            shard.standing = Standing.DAMAGED
            raise
        if is_loaded:
            logger.info("%d groups of partition %d loaded, epoch %d", len(shard.groups), shard.index, shard.epoch)
            self._start_if_at_work(shard)

    def _start_if_at_work(self, shard: Shard) -> None:
        if self._refusal is None:
            shard.start()

    async def _load_in_slices(self, shard: Shard) -> bool:
        """Load a shard and let others have the loop in between; False if it was overtaken by other news."""
        loop = asyncio.get_running_loop()
        with closing(shard.loading()) as steps:
            while True:
                async with self._slices:
                    if not self._is_current(shard):
                        return False
                    ends_at = loop.time() + _SLICE_S
                    for _ in steps:
                        if loop.time() >= ends_at:
                            break
                    else:
                        return True
                await asyncio.sleep(0)

    def _give_up(self, shard: Shard, error: PeerError) -> None:
        if not self._is_current(shard):
            return
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._drop(shard.index)
            return
        shard.standing = Standing.DAMAGED
        logger.critical("groups of partition %d of the offsets topic are not served: %s", shard.index, error)

    def _drop(self, index: int) -> None:
        shard = self._shards.pop(index, None)
        if shard is not None:
            logger.info("%d groups of partition %d unloaded, epoch %d", len(shard.groups), index, shard.epoch)
            shard.end(ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _new_shard(self, index: int, epoch: int) -> Shard:
        return Shard(index, epoch, self.config, self._clock, self._journal, self.topics)

    # Called for requests of members; all raise PeerError where no group can be asked

    def join(self, group_id: str, request: JoinRequest) -> asyncio.Future[JoinAnswer]:
        """Join a group; the answer comes when all of its members have."""
        shard = self._shard_with(group_id)
        self._check_join(request)
        return shard.join(group_id, request)

    def sync(self, group_id: str, request: SyncRequest) -> asyncio.Future[SyncAnswer]:
        """Fetch an assignment, or bring those of all; the answer comes when they are durable."""
        return self._shard_with(group_id).sync(group_id, request)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Keep a member alive."""
        return self._shard_with(group_id).heartbeat(group_id, member_id, instance_id, generation)

    async def leave(self, group_id: str, leaving: Sequence[Leaving]) -> list[Left]:
        """Let members go; if nobody is left, that is stored first."""
        return await self._shard_with(group_id).leave(group_id, leaving)

    def live(self, group_id: str, beat: Heartbeat) -> asyncio.Future[HeartbeatAnswer]:
        """Join, live on in or leave a group of the consumer protocol; raises PeerError for what is refused."""
        return self._shard_with(group_id).live(group_id, beat)

    def fresh_member_id(self, client_id: str, instance_id: str | None) -> str:
        """Make up an id for a member: its client's or its instance's name, and chance."""
        prefix = client_id if instance_id is None else instance_id
        return f"{prefix[:_PREFIX_LENGTH_MAX]}-{self._chance()}"

    # Called for administrators' requests

    def delete_group(self, group_id: str) -> asyncio.Future[ErrorCode]:
        """Delete an empty group with its offsets; the future tells when that is durable."""
        return self._serving(group_id).delete_group(group_id)

    # Called for requests that concern any group

    def now_ms(self) -> int:
        """The time by which groups live."""
        return self._clock.now_ms()

    def check_at_work(self) -> None:
        """Refuse everything before the start and after closing."""
        if self._refusal is not None:
            raise PeerError(self._refusal)

    def check_all_loaded(self) -> None:
        """Refuse, too, while any partition is loading: whoever lists groups would miss some."""
        self.check_at_work()
        if any(shard.standing is Standing.LOADING for shard in self._shards.values()):
            raise PeerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def check_served(self, group_id: str, *, may_be_nameless: bool = False) -> None:
        """Refuse a group that others coordinate or that cannot be: members need one with a name, offsets do not."""
        self._shard_with(group_id, may_be_nameless=may_be_nameless)

    def _shard_with(self, group_id: str, *, may_be_nameless: bool = False) -> Shard:
        self.check_at_work()
        if len(group_id) > NAME_LENGTH_MAX or not (group_id or may_be_nameless):
            raise PeerError(ErrorCode.INVALID_GROUP_ID)
        return self._serving(group_id)

    def _serving(self, group_id: str) -> Shard:
        self.check_at_work()
        index = self._partition_of(group_id, self._journal.partition_count)
        shard = self._shards.get(index)
        if shard is None or not self._journal.leads(index):
            raise PeerError(ErrorCode.NOT_COORDINATOR)
        if shard.standing is Standing.LOADING:
            raise PeerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if shard.standing is Standing.DAMAGED:
            raise PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "what was stored of the group is damaged")
        return shard

    def _check_join(self, request: JoinRequest) -> None:
        low, high = self.config.group_min_session_timeout_ms, self.config.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            raise PeerError(ErrorCode.INVALID_SESSION_TIMEOUT, f"allowed are {low} to {high} ms")
        names = [request.instance_id or "", request.protocol_type, *(proposal.name for proposal in request.proposals)]
        if max(map(len, names)) > NAME_LENGTH_MAX:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"a name has at most {NAME_LENGTH_MAX} characters")

    # The table of shards

    def _find(self, group_id: str) -> Shard | None:
        """The shard of a group, if it is at work."""
        shard = self._shards.get(self._partition_of(group_id, self._journal.partition_count))
        return shard if shard is not None and shard.standing is Standing.AT_WORK else None

    def _at_work(self) -> Iterator[Shard]:
        return (shard for shard in self._shards.values() if shard.standing is Standing.AT_WORK)

    def _is_current(self, shard: Shard) -> bool:
        return self._shards.get(shard.index) is shard and not self._is_closed

    # Called by timers

    def run_due(self) -> None:
        """Act on every deadline that has passed; timers do so, too."""
        for shard in list(self._at_work()):
            shard.run_due()

    def expire_offsets(self) -> None:
        """Drop the offsets, and the empty groups, that nobody has used for so long as the settings say."""
        for shard in list(self._at_work()):
            if self._journal.leads(shard.index):
                shard.expire_offsets()

    def _schedule_expiry(self) -> None:
        delay = self.config.offsets_retention_check_interval_ms / 1000
        self._expiry = asyncio.get_running_loop().call_later(delay, self._on_expiry)

    def _on_expiry(self) -> None:
        self.expire_offsets()
        self._schedule_expiry()
