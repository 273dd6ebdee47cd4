"""Membership in a classic consumer group: join, sync, heartbeat, leave (Kafka's "group protocol", eager rebalances).

A member takes part in a rebalance when the consumer polls: until then it keeps its partitions and can commit what it
has processed. Heartbeats run by themselves; a consumer that does not poll for too long leaves. Follows KIP-62,
KIP-345 for static members, KIP-394 for the member id that a first join is given.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from odradek.client.assignors import (
    ASSIGNORS,
    GroupMember,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.client.cluster import Cluster
from odradek.client.commits import Member
from odradek.client.coordinators import MOVED, Coordinators
from odradek.client.errors import ClientError, RequestError, check, error_code
from odradek.client.retry import is_retriable, pause_ms
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import heartbeat, join_group, leave_group, sync_group

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1

# Errors after which a member has lost its partitions, and those that only ask it to join.
EXPELLED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED})

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How a member behaves; see Client.consumer."""

    group: str
    instance_id: str | None
    assignors: tuple[str, ...]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int


class Membership:
    """One member of one group."""

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        settings: GroupSettings,
        topics: Sequence[str],
        needed: Callable[[], None],
    ) -> None:
        """`needed` is called when the consumer should poll, because it must join or has an error to hear of."""
        self.needs_join = True
        self.channel = cluster.new_channel("group")
        self._cluster = cluster
        self._coordinators = coordinators
        self._settings = settings
        self._topics = sorted(set(topics))
        self._needed = needed
        self._loop = asyncio.get_running_loop()
        self._member_id = ""
        self._generation = NO_GENERATION
        self._joining = False
        # The partitions of the topics when this member, as the leader, assigned them
        self._dealt: dict[str, tuple[int, ...]] | None = None
        self._watched: set[str] = set()  # ... and all the topics that anyone is subscribed to
        self._checked_at = 0.0
        self._polled_at = self._loop.time()
        self._heartbeats: asyncio.Task[None] | None = None
        self._error: ClientError | None = None

    @property
    def member(self) -> Member:
        """On whose behalf offsets are committed."""
        return Member(self._generation, self._member_id, self._settings.instance_id)

    def polled(self) -> None:
        """The consumer is alive; it also hears now what went wrong in the background."""
        self._polled_at = self._loop.time()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def request_join(self) -> None:
        """Join (again) at the next poll."""
        self.needs_join = True
        self._needed()

    # Joining.

    async def join(self) -> list[TopicPartition]:
        """Take part in a rebalance and return the partitions that this member has then."""
        failing_since: float | None = None
        attempt = 0
        self._joining = True
        try:
            while True:
                try:
                    partitions = await self._join_once()
                    break
                except ClientError as error:
                    now = self._loop.time()
                    failing_since = failing_since or now
                    too_long = now - failing_since > self._cluster.timeouts.total_ms / 1000
                    if self._is_final(error) or (too_long and not self._is_ordinary(error)):
                        raise
                    logger.debug("group %s: joining again: %s", self._settings.group, error)
                    if not self._is_ordinary(error):
                        await asyncio.sleep(pause_ms(attempt) / 1000)
                        attempt += 1
        finally:
            self._joining = False
        self.needs_join = False
        self._polled_at = self._loop.time()
        if self._heartbeats is None:
            self._heartbeats = self._loop.create_task(self._beat())
        return partitions

    def _is_ordinary(self, error: ClientError) -> bool:
        """Whether an error is part of the protocol, after which one simply joins again."""
        return isinstance(error, RequestError) and error.code in EXPELLED | REJOIN

    def _is_final(self, error: ClientError) -> bool:
        return not self._is_ordinary(error) and not is_retriable(error)

    async def _join_once(self) -> list[TopicPartition]:
        settings = self._settings
        subscription = encode_subscription(self._topics)
        request = join_group.Request(
            group_id=settings.group,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=self._member_id,
            group_instance_id=settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[join_group.RequestProtocol(name=name, metadata=subscription) for name in settings.assignors],
        )
        # The answer comes when all members have joined, or when the slowest one's time is over.
        patience_ms = settings.max_poll_interval_ms + self._cluster.timeouts.request_ms
        joined = await self._coordinators.ask_once(
            settings.group, request, join_group.Response, channel=self.channel, timeout_ms=patience_ms
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
        self._check(joined.error_code, f"joining group {settings.group}")
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments: list[sync_group.RequestAssignment] = []
        self._dealt = None
        if joined.leader == joined.member_id:
            assignments = await self._assign(joined)
        return await self._sync(joined.protocol_name, [] if joined.skip_assignment else assignments)

    async def _assign(self, joined: join_group.Response) -> list[sync_group.RequestAssignment]:
        """Deal out the partitions, as the leader."""
        members = [
            GroupMember(item.member_id, item.group_instance_id, decode_subscription(item.metadata))
            for item in joined.members
        ]
        self._watched = {topic for member in members for topic in member.topics}
        dealt = self._dealt = await self._partitions(self._watched)
        assignor = ASSIGNORS.get(joined.protocol_name or "")
        if assignor is None:
            raise ClientError(
                f"group {self._settings.group} chose the assignor {joined.protocol_name!r}, which is unknown here"
            )
        return [
            sync_group.RequestAssignment(member_id=member_id, assignment=encode_assignment(partitions))
            for member_id, partitions in assignor(members, dealt).items()
        ]

    async def _sync(
        self, protocol_name: str | None, assignments: list[sync_group.RequestAssignment]
    ) -> list[TopicPartition]:
        request = sync_group.Request(
            group_id=self._settings.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol_name,
            assignments=assignments,
        )
        patience_ms = self._settings.max_poll_interval_ms + self._cluster.timeouts.request_ms
        synced = await self._coordinators.ask_once(
            self._settings.group, request, sync_group.Response, channel=self.channel, timeout_ms=patience_ms
        )
        self._check(synced.error_code, f"syncing with group {self._settings.group}")
        return decode_assignment(synced.assignment)

    async def _partitions(self, topics: set[str]) -> dict[str, tuple[int, ...]]:
        """The partitions that the topics have now; topics that do not exist are left out."""
        await self._cluster.refresh(topics)
        self._checked_at = self._loop.time()
        known = self._cluster.topics
        return {name: tuple(known[name].partitions) for name in topics if name in known and not known[name].error}

    def _check(self, code: int, what: str) -> None:
        """Raise on an error code, having drawn the consequences for the next attempt."""
        if code in EXPELLED:
            self._expelled(code)
        elif code in MOVED:
            self._coordinators.forget(self._settings.group)
        check(code, what)

    def _expelled(self, code: int) -> None:
        """The generation is over for this member; its id is good as long as the group knows it."""
        self._generation = NO_GENERATION
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""

    # Staying.

    async def _beat(self) -> None:
        """Send heartbeats for as long as this member lives."""
        while True:
            await asyncio.sleep(self._settings.heartbeat_interval_ms / 1000)
            if self._joining or self._generation == NO_GENERATION:
                continue
            try:
                if self._loop.time() - self._polled_at > self._settings.max_poll_interval_ms / 1000:
                    await self._leave_for_idleness()
                else:
                    await self._beat_once()
                    await self._watch_topics()
            except ClientError as error:
                logger.info("group %s: heartbeat: %s", self._settings.group, error)
                if isinstance(error, RequestError) and error.code is ErrorCode.FENCED_INSTANCE_ID:
                    self._error = error
                    self.request_join()

    async def _beat_once(self) -> None:
        request = heartbeat.Request(
            group_id=self._settings.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
        )
        generation = self._generation
        response = await self._coordinators.ask_once(
            self._settings.group, request, heartbeat.Response, channel=self.channel
        )
        if self._joining or generation != self._generation:
            return  # an answer to a generation that is over
        code = error_code(response.error_code)
        if code in EXPELLED or code is ErrorCode.REBALANCE_IN_PROGRESS:
            if code in EXPELLED:
                self._expelled(code)
            self.request_join()
        else:
            self._check(code, f"heartbeat to group {self._settings.group}")

    async def _watch_topics(self) -> None:
        """As the leader: have the group rebalance when a topic has appeared, grown or gone."""
        if self._dealt is None or self._loop.time() - self._checked_at < self._cluster.timeouts.metadata_age_ms / 1000:
            return
        dealt = self._dealt
        if await self._partitions(self._watched) != dealt and self._dealt is dealt:
            self.request_join()

    async def _leave_for_idleness(self) -> None:
        ms = self._settings.max_poll_interval_ms
        logger.warning("group %s: the consumer did not poll for %d ms and leaves the group", self._settings.group, ms)
        await self._leave_group()
        self.request_join()

    # Leaving.

    async def close(self) -> None:
        """End the heartbeats and leave the group, unless membership is static: such a member is expected back."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
        if self._member_id and self._settings.instance_id is None:
            try:
                await self._leave_group()
            except ClientError as error:
                logger.info("group %s: leaving: %s", self._settings.group, error)
        await self._cluster.pool.close_channel(self.channel)

    async def _leave_group(self) -> None:
        member_id, self._member_id, self._generation = self._member_id, "", NO_GENERATION
        request = leave_group.Request(
            group_id=self._settings.group,
            member_id=member_id,
            members=[leave_group.RequestMember(member_id=member_id, group_instance_id=self._settings.instance_id)],
        )
        # On the ordinary channel: the member's own may have a join under way, which waits for others.
        await self._coordinators.ask_once(self._settings.group, request, leave_group.Response)
