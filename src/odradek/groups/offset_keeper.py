"""Commits, their removal and their expiry: the part of the coordinator that works with offsets.

For members of either protocol and for consumers without a group's membership, who commit with generation -1. Every
change is written first and seen when it is durable. Knows no wire formats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from odradek.clock import Clock
from odradek.groups.classic import ClassicGroup
from odradek.groups.config import GroupConfig
from odradek.groups.group import Group, Topics
from odradek.groups.ledger import TOO_LARGE, Ledger, told
from odradek.groups.offsets import EEYLOPS, CommittedOffset, GroupOffsets
from odradek.groups.storage import offset_record, offset_tombstone
from odradek.model import TopicPartition
from odradek.records.record import NewRecord
from odradek.wire.errors import ErrorCode, PeerError

_MINUTE_MS = 60_000


class OffsetKeeper:
    """The offsets of all groups."""

    def __init__(
        self, config: GroupConfig, clock: Clock, ledger: Ledger, groups: dict[str, Group], topics: Topics
    ) -> None:
        self._config = config
        self._clock = clock
        self._ledger = ledger
        self._groups = groups  # the coordinator's own table
        self._topics = topics
        self._by_group: dict[str, GroupOffsets] = {}  # no group without offsets, committed or under way
        self._latest: dict[str, list[asyncio.Future[ErrorCode]]] = {}  # by group: who waits for its last change

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_group

    def group_ids(self) -> list[str]:
        """Every group with an offset."""
        return list(self._by_group)

    def of(self, group_id: str) -> GroupOffsets | None:
        """A group's offsets."""
        return self._by_group.get(group_id)

    def topics(self) -> set[str]:
        """Every topic of which some group has an offset."""
        return {topic for offsets in self._by_group.values() for topic in offsets.topics()}

    def restore(self, group_id: str, where: TopicPartition, committed: CommittedOffset | None) -> None:
        """Take in what was stored before a restart."""
        offsets = self._by_group.setdefault(group_id, GroupOffsets())
        if committed is not None:
            offsets.put(where, committed)
        else:
            offsets.remove(where)
            self._drop_if_empty(group_id, offsets)

    def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        commits: Mapping[TopicPartition, CommittedOffset],
    ) -> asyncio.Future[ErrorCode]:
        """Store offsets; PeerError if the one who asks may not, else the future tells when it is done.

        Eeylops' consumers commit where they have registered, and only there: GROUP_ID_NOT_FOUND else. Registering
        again changes nothing, and waits for what is under way.
        """
        if any(committed.metadata == EEYLOPS for committed in commits.values()):
            commits = self._sort_out(group_id, commits)
            if not commits:
                return self.settling(group_id) or _done()
        group = self._groups.get(group_id)
        now_ms = self._clock.now_ms()
        if group is None:
            if generation >= 0:
                raise PeerError(ErrorCode.GROUP_ID_NOT_FOUND)
            group = self._groups[group_id] = ClassicGroup(group_id, self._config, now_ms)
        group.check_commit(member_id, instance_id, generation, now_ms)
        return self._write(group_id, commits, now_ms)

    def _sort_out(
        self, group_id: str, commits: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, CommittedOffset]:
        """What is to be written of the commits of Eeylops' consumers: not those who register again."""
        offsets = self._by_group.get(group_id, GroupOffsets())
        found: dict[TopicPartition, CommittedOffset] = {}
        for where, committed in commits.items():
            is_known = offsets.is_coming(where)
            if committed.metadata == EEYLOPS and not is_known and not committed.is_registration:
                raise PeerError(ErrorCode.GROUP_ID_NOT_FOUND, f"consumer {group_id!r} has not registered for {where}")
            if not (is_known and committed.is_registration):
                found[where] = committed
        return found

    def settling(self, group_id: str) -> asyncio.Future[ErrorCode] | None:
        """What to wait for to see every commit that was begun so far; None if all are done."""
        waiting = self._latest.get(group_id)
        if waiting is None:
            return None
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    def delete(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, ErrorCode], asyncio.Future[ErrorCode] | None]:
        """Forget offsets, but of topics that members read; the future is of what had to be written."""
        group = self._groups.get(group_id)
        if group is None:
            raise PeerError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.check_offset_delete()
        offsets = self._by_group.get(group_id, GroupOffsets())
        known = offsets.known_or_staged()
        results = {
            where: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed(where.topic) else ErrorCode.NONE
            for where in partitions
        }
        changes = {where: None for where, error in results.items() if error is ErrorCode.NONE and where in known}
        return results, self._write(group_id, changes, self._clock.now_ms()) if changes else None

    def forget_topic(self, topic: str) -> None:
        """Forget all offsets of a topic that was deleted, so that one of the same name begins anew."""
        self.forget(lambda _, where: where.topic == topic)

    def forget_partition(self, where: TopicPartition) -> None:
        """Forget all offsets of one partition."""
        now_ms = self._clock.now_ms()
        for group_id, offsets in list(self._by_group.items()):
            if offsets.knows(where):
                self._write(group_id, {where: None}, now_ms)

    def forget(self, is_gone: Callable[[str, TopicPartition], bool]) -> None:
        """Forget the offsets of partitions that are gone, or were made again since; asked by group and partition."""
        now_ms = self._clock.now_ms()
        for group_id, offsets in list(self._by_group.items()):
            gone = [where for where in offsets.known_or_staged() if is_gone(group_id, where)]
            if gone:
                self._write(group_id, dict.fromkeys(gone), now_ms)

    def take_all(self, group_id: str, now_ms: int) -> list[NewRecord]:
        """Drop a group's offsets for good; gives the records that say so."""
        self._latest.pop(group_id, None)
        offsets = self._by_group.pop(group_id, None)
        gone = () if offsets is None else offsets.known_or_staged()
        return [offset_tombstone(group_id, where, now_ms) for where in gone]

    def expire(self, group: Group, now_ms: int) -> bool:
        """Drop a group's expired offsets; True if the whole group may go: nobody is in it, and no offset stays."""
        offsets = self._by_group.get(group.group_id, GroupOffsets())
        expired = offsets.expired(group, self._config.offsets_retention_minutes * _MINUTE_MS, now_ms)
        if group.is_empty and len(expired) == len(offsets.known_or_staged()):
            return True
        if expired:
            self._write(group.group_id, dict.fromkeys(expired), now_ms)
        return False

    def _write(
        self, group_id: str, changes: Mapping[TopicPartition, CommittedOffset | None], now_ms: int
    ) -> asyncio.Future[ErrorCode]:
        offsets = self._by_group.get(group_id)
        if offsets is None:
            offsets = self._by_group[group_id] = GroupOffsets()
        records = [
            offset_tombstone(group_id, where, now_ms)
            if committed is None
            else offset_record(group_id, where, committed, self._topics.generation(where) or 0)
            for where, committed in changes.items()
        ]
        offsets.stage(changes)
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        waiting = self._latest[group_id] = [done]
        self._ledger.append(group_id, records, partial(self._on_written, group_id, offsets, changes, waiting))
        return done

    def _on_written(
        self,
        group_id: str,
        offsets: GroupOffsets,
        changes: Mapping[TopicPartition, CommittedOffset | None],
        waiting: list[asyncio.Future[ErrorCode]],
        error: ErrorCode,
    ) -> None:
        offsets.settle(changes, is_durable=error is ErrorCode.NONE)
        self._drop_if_empty(group_id, offsets)
        if self._latest.get(group_id) is waiting:
            del self._latest[group_id]
        answer = ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error in TOO_LARGE else told(error)
        for future in waiting:
            if not future.done():
                future.set_result(answer)

    def _drop_if_empty(self, group_id: str, offsets: GroupOffsets) -> None:
        if not offsets and self._by_group.get(group_id) is offsets:
            del self._by_group[group_id]


def _done() -> asyncio.Future[ErrorCode]:
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    future.set_result(ErrorCode.NONE)
    return future
