"""Commits a group's offsets and reads them back, for members and for outsiders.

Versions that know topics by id only (10 on) are used when the ids are known. KIP-447: stable offsets on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.client.cluster import NO_TOPIC_ID, Cluster
from odradek.client.coordinators import Coordinators
from odradek.client.errors import ClientError, check
from odradek.client.pool import Channel
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import offset_commit, offset_fetch

COMMIT_BY_NAME_MAX = 9
FETCH_BY_NAME_MAX = 9


class CommittedOffset(NamedTuple):
    """How far a group has come in a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Member(NamedTuple):
    """On whose behalf offsets are committed; the default is somebody outside of the group's membership."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Commits:
    """The committed offsets of groups."""

    def __init__(self, cluster: Cluster, coordinators: Coordinators) -> None:
        self._cluster = cluster
        self._coordinators = coordinators

    async def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        member: Member | None = None,
        channel: Channel = "",
    ) -> None:
        """Store offsets; a RequestError names the first partition that was refused."""
        if not offsets:
            return
        ids = await self._topic_ids(partition.topic for partition in offsets)
        response = await self._coordinators.ask(
            group,
            _commit_request(group, offsets, ids, member or Member()),
            offset_commit.Response,
            what=f"committing offsets of group {group}",
            error_of=_first_error,
            channel=channel,
            version_max=COMMIT_BY_NAME_MAX if NO_TOPIC_ID in ids.values() else None,
        )
        names = {topic_id: name for name, topic_id in ids.items()}
        for topic in response.topics:
            name = topic.name or names.get(bytes(topic.topic_id), "")
            for item in topic.partitions:
                check(
                    item.error_code, f"committing offsets of group {group} for partition {name}-{item.partition_index}"
                )

    async def fetch(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        stable: bool = False,
        channel: Channel = "",
    ) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that a group has committed, in some partitions or in all; those without one are left out."""
        wanted = None if partitions is None else _by_topic(partitions)
        ids = await self._topic_ids(wanted or ())
        response = await self._coordinators.ask(
            group,
            _fetch_request(group, wanted, ids, stable),
            offset_fetch.Response,
            what=f"fetching the offsets of group {group}",
            error_of=_fetch_error,
            channel=channel,
            version_max=FETCH_BY_NAME_MAX if NO_TOPIC_ID in ids.values() else None,
        )
        check(_fetch_error(response), f"fetching the offsets of group {group}")
        found: dict[TopicPartition, CommittedOffset] = {}
        topics = response.groups[0].topics if response.groups else response.topics
        for topic in topics:
            name = topic.name
            if not name and isinstance(topic, offset_fetch.ResponseGroupTopic):
                name = await self._name_of(topic.topic_id)
            for item in topic.partitions:
                check(item.error_code, f"the offset of group {group} in partition {name}-{item.partition_index}")
                if item.committed_offset >= 0:
                    found[TopicPartition(name, item.partition_index)] = CommittedOffset(
                        item.committed_offset, item.committed_leader_epoch, item.metadata or ""
                    )
        return found

    async def _topic_ids(self, names: Iterable[str]) -> dict[str, bytes]:
        """The ids of topics; zeros for those that do not exist (any more)."""
        topics = dict.fromkeys(names)
        unknown = [name for name in topics if self._cluster.topic_id(name) == NO_TOPIC_ID]
        if unknown:
            await self._cluster.refresh(unknown)
        return {name: self._cluster.topic_id(name) for name in topics}

    async def _name_of(self, topic_id: bytes) -> str:
        name = self._cluster.topic_name(topic_id)
        if name is None:
            await self._cluster.refresh(None)
            name = self._cluster.topic_name(topic_id)
        if name is None:
            raise ClientError(
                f"the broker speaks of a topic with the id {bytes(topic_id).hex()}, which it does not list"
            )
        return name


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _commit_request(
    group: str, offsets: Mapping[TopicPartition, CommittedOffset], ids: Mapping[str, bytes], member: Member
) -> offset_commit.Request:
    topics: dict[str, offset_commit.RequestTopic] = {}
    for (name, index), committed in offsets.items():
        topic = topics.setdefault(name, offset_commit.RequestTopic(name=name, topic_id=ids[name], partitions=[]))
        topic.partitions.append(
            offset_commit.RequestPartition(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    return offset_commit.Request(
        group_id=group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=list(topics.values()),
    )


def _fetch_request(
    group: str, wanted: Mapping[str, list[int]] | None, ids: Mapping[str, bytes], stable: bool
) -> offset_fetch.Request:
    topics = group_topics = None
    if wanted is not None:
        topics = [offset_fetch.RequestTopic(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
        group_topics = [
            offset_fetch.RequestGroupTopic(name=name, topic_id=ids[name], partition_indexes=indexes)
            for name, indexes in wanted.items()
        ]
    return offset_fetch.Request(
        group_id=group,
        topics=topics,
        groups=[offset_fetch.RequestGroup(group_id=group, topics=group_topics)],
        require_stable=stable,
    )


def _first_error(response: offset_commit.Response) -> int:
    codes = (item.error_code for topic in response.topics for item in topic.partitions if item.error_code)
    return next(codes, ErrorCode.NONE)


def _fetch_error(response: offset_fetch.Response) -> int:
    """The error of the whole, or one of a partition that passes by itself."""
    code = response.groups[0].error_code if response.groups else response.error_code
    topics = response.groups[0].topics if response.groups else response.topics
    unstable = any(item.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT for topic in topics for item in topic.partitions)
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if not code and unstable else code
