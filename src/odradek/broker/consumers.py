"""Eeylops' consumers (seed 004): who has registered for a partition, and how far each has come in it.

A consumer is a Kafka group of the same name: what it commits stands in `__consumer_offsets`, and a group that has
committed counts as registered. Any broker answers; if another one coordinates the group, that one is asked over the
Kafka protocol until the time is over. Nothing is kept here but connections.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from itertools import count
from typing import NamedTuple, TypeVar

from odradek.broker.broker import Broker
from odradek.broker.consumer_requests import commit_at, committed_at, end_at
from odradek.broker.membership import replica_client_id
from odradek.broker.offsets_topic import coordinator_of
from odradek.client.address import Address
from odradek.client.connection import Connection
from odradek.client.errors import BrokerUnavailableError, ClientError, TimedOutError
from odradek.client.pool import Pool
from odradek.client.retry import pause_ms
from odradek.controller.image import PartitionImage
from odradek.groups.coordinator import Coordinator
from odradek.groups.group import NO_GENERATION
from odradek.groups.offsets import EEYLOPS, NO_OFFSET, CommittedOffset, registration
from odradek.model import Offset, TopicPartition
from odradek.wire.errors import ErrorCode, PeerError

CONSUMER_ID_LENGTH_MAX = 256  # characters
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_CONNECT_TIMEOUT_MS = 3_000

# These pass: another broker coordinates or leads, or it will in a moment.
_PASSING = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
# What strangers are told who commit for a group that has members.
_MEMBERS_ONLY = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)

_Result = TypeVar("_Result")


def _shown(tp: TopicPartition) -> str:
    """A partition as those know it who ask here: they count from 1."""
    return f"topic {tp.topic!r}, partition {tp.partition + 1}"


class ConsumerNotRegistered(PeerError):  # noqa: N818 - what Eeylops calls it
    """A consumer commits, resumes or asks for a partition that it has not registered for."""

    def __init__(self, consumer_id: str, tp: TopicPartition) -> None:
        super().__init__(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"consumer {consumer_id!r} has not registered for {_shown(tp)}: call RegisterConsumer first",
        )


class _Where(NamedTuple):
    """A partition; with the id of its topic it is none of another topic that has got the same name since."""

    tp: TopicPartition
    topic_id: bytes | None


def consumer_id_problem(consumer_id: str) -> str | None:
    """Say what is wrong with a consumer's name, or None when nothing is."""
    if not consumer_id:
        return "a consumer needs a name"
    if len(consumer_id) > CONSUMER_ID_LENGTH_MAX:
        return f"a consumer's name has at most {CONSUMER_ID_LENGTH_MAX} characters, this one has {len(consumer_id)}"
    if "::" in consumer_id:
        return f"a consumer's name has no '::' in it: {consumer_id!r}"
    if _CONTROL.search(consumer_id):
        return f"a consumer's name has no control characters in it: {consumer_id!r}"
    return None


class Consumers:
    """All consumers of the cluster, as any broker sees them."""

    def __init__(self, broker: Broker, groups: Coordinator, secret: str | None) -> None:
        """`secret` is the cluster's, if it has one: it tells the others that a broker asks."""
        self._broker = broker
        self._groups = groups
        client_id = replica_client_id(broker.node_id, secret)
        self._pool = Pool(client_id, connect_timeout_ms=_CONNECT_TIMEOUT_MS)
        self._is_closed = False

    async def register(
        self, consumer_id: str, tp: TopicPartition, timeout_s: float, *, topic_id: bytes | None = None
    ) -> None:
        """Let a consumer read a partition; again changes nothing, what it has committed stays."""
        where = self._checked(consumer_id, tp, topic_id)
        await self._store(consumer_id, where, registration(self._groups.now_ms()), _deadline(timeout_s))

    async def commit(
        self,
        consumer_id: str,
        tp: TopicPartition,
        offset: Offset,
        timeout_s: float,
        *,
        topic_id: bytes | None = None,
    ) -> None:
        """Store the next offset that a registered consumer will read, durably; it may go backwards."""
        where = self._checked(consumer_id, tp, topic_id)
        if offset < 0:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"an offset is 0 or more, not {offset}")
        deadline = _deadline(timeout_s)
        await self._check_end(where, offset, deadline)
        committed = CommittedOffset(offset, leader_epoch=-1, metadata=EEYLOPS, commit_ms=self._groups.now_ms())
        await self._store(consumer_id, where, committed, deadline)

    async def last_committed(
        self, consumer_id: str, tp: TopicPartition, timeout_s: float, *, sync: bool, topic_id: bytes | None = None
    ) -> Offset:
        """Tell the next offset that a registered consumer will read, -1 before any commit.

        With `sync`, commits that are under way are waited for.
        """
        where = self._checked(consumer_id, tp, topic_id)

        async def here() -> Offset | None:
            return await self._look_up(consumer_id, tp, sync=sync)

        async def there(connection: Connection) -> Offset | None:
            return await committed_at(connection, consumer_id, tp, sync=sync)

        offset = await self._at_coordinator(consumer_id, where, _deadline(timeout_s), here, there)
        self._check_exists(where)  # else it is another topic's, or nobody's
        if offset is None:
            raise ConsumerNotRegistered(consumer_id, tp)
        return offset

    async def close(self) -> None:
        """Hang up; what is under way is not tried again."""
        self._is_closed = True
        await self._pool.close()

    def _checked(self, consumer_id: str, tp: TopicPartition, topic_id: bytes | None) -> _Where:
        problem = consumer_id_problem(consumer_id)
        if problem is not None:
            raise PeerError(ErrorCode.INVALID_REQUEST, problem)
        where = _Where(tp, topic_id)
        self._check_exists(where)
        return where

    def _check_exists(self, where: _Where) -> PartitionImage:
        role = self._role(where)
        if role is None:
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {where.tp}")
        return role

    def _role(self, where: _Where) -> PartitionImage | None:
        topic = self._broker.metadata.image.topics.get(where.tp.topic)
        is_same = topic is not None and where.topic_id in (None, topic.id)
        return topic.partitions.get(where.tp.partition) if topic is not None and is_same else None

    # Storing and looking up.

    async def _store(self, consumer_id: str, where: _Where, committed: CommittedOffset, deadline: float) -> None:
        tp = where.tp

        async def here() -> ErrorCode:
            self._check_exists(where)  # what is committed for one that is deleted would stay
            self._groups.check_served(consumer_id)
            return await self._groups.offsets.commit(consumer_id, "", None, NO_GENERATION, {tp: committed})

        async def there(connection: Connection) -> ErrorCode:
            self._check_exists(where)
            return await commit_at(connection, consumer_id, tp, committed)

        async def store(work: Callable[[], Awaitable[ErrorCode]]) -> None:
            error = await work()
            if error is not ErrorCode.NONE:
                raise PeerError(error)

        try:
            await self._at_coordinator(
                consumer_id, where, deadline, lambda: store(here), lambda connection: store(lambda: there(connection))
            )
        except PeerError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                raise ConsumerNotRegistered(consumer_id, tp) from None
            if error.code in _MEMBERS_ONLY:
                text = f"{consumer_id!r} is a Kafka group that has members at this moment: only they may commit for it"
                raise PeerError(ErrorCode.INVALID_REQUEST, text) from None
            raise

    async def _look_up(self, consumer_id: str, tp: TopicPartition, *, sync: bool) -> Offset | None:
        """What the groups that are coordinated here have: None if nobody has registered."""
        groups = self._groups
        groups.check_served(consumer_id)
        settling = groups.offsets.settling(consumer_id) if sync else None
        if settling is not None:
            await settling
            groups.check_served(consumer_id)  # it may have moved meanwhile
        offsets = groups.offsets.of(consumer_id)
        if offsets is None:
            return None
        committed = offsets.get(*tp)
        if committed is not None and committed.offset >= 0:
            return committed.offset
        return NO_OFFSET if offsets.is_registered(tp) else None

    # The end of a partition.

    async def _check_end(self, where: _Where, offset: Offset, deadline: float) -> None:
        """Refuse an offset beyond the last record; the leader is asked only for what is not known here."""
        tp = where.tp
        end = await self._until(where, deadline, lambda: self._end(where, offset))
        if offset > end:
            raise PeerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is beyond the end of {_shown(tp)}: commit one from "
                f"0 to {end}, which is the next value's",
            )

    async def _end(self, where: _Where, offset: Offset) -> Offset:
        """How far a partition reaches, at least as far as `offset` if it does."""
        tp = where.tp
        topic = self._broker.topics.get(tp.topic)
        replica = None if topic is None else topic.partitions.get(tp.partition)
        if replica is not None and offset <= replica.high_watermark:
            return replica.high_watermark
        role = self._check_exists(where)
        if role.leader == self._broker.node_id:
            led = self._broker.partition(*tp)
            if not led.is_settled:
                raise PeerError(ErrorCode.OFFSET_NOT_AVAILABLE)
            return led.high_watermark
        return await end_at(await self._connection(role.leader, f"leads {tp}"), tp)

    # Asking whoever knows.

    async def _at_coordinator(
        self,
        consumer_id: str,
        where: _Where,
        deadline: float,
        here: Callable[[], Awaitable[_Result]],
        there: Callable[[Connection], Awaitable[_Result]],
    ) -> _Result:
        """Do something where a consumer's group is looked after."""

        async def attempt() -> _Result:
            node_id = await coordinator_of(self._broker, consumer_id)
            if node_id == self._broker.node_id:
                return await here()
            return await there(await self._connection(node_id, f"looks after consumer {consumer_id!r}"))

        return await self._until(where, deadline, attempt)

    async def _connection(self, node_id: int, what: str) -> Connection:
        found = self._broker.metadata.image.brokers.get(node_id)
        if found is None:
            raise PeerError(ErrorCode.LEADER_NOT_AVAILABLE, f"nobody {what} at this moment")
        if found.kafka is None:
            raise PeerError(ErrorCode.NETWORK_EXCEPTION, f"broker {node_id}, which {what}, has no Kafka door")
        return await self._pool.get(Address(*found.kafka))

    async def _until(self, where: _Where, deadline: float, attempt: Callable[[], Awaitable[_Result]]) -> _Result:
        """Try until it is done, is refused for good, or the time is over."""
        loop = asyncio.get_running_loop()
        last = PeerError(ErrorCode.REQUEST_TIMED_OUT)
        for number in count():
            try:
                async with asyncio.timeout_at(deadline):
                    return await attempt()
            except TimeoutError:
                break
            except (BrokerUnavailableError, TimedOutError) as error:
                last = PeerError(ErrorCode.NETWORK_EXCEPTION, str(error))
            except ClientError as error:  # versions that do not fit, or the pool was closed: another try does not help
                raise PeerError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
            except PeerError as error:
                if self._is_closed or not self._passes(error, where):
                    raise
                last = error
            pause = pause_ms(number) / 1000
            if loop.time() + pause >= deadline:
                break
            await asyncio.sleep(pause)
        if last.code is ErrorCode.NETWORK_EXCEPTION:
            raise last
        raise PeerError(ErrorCode.REQUEST_TIMED_OUT, f"not done in time; whether it will be is not known. {last}")

    def _passes(self, error: PeerError, where: _Where) -> bool:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # whoever was asked may only not have heard of it yet
            return self._role(where) is not None
        return error.code in _PASSING


def _deadline(timeout_s: float) -> float:
    return asyncio.get_running_loop().time() + timeout_s
