"""Groups of a cluster, for people and scripts: listing, describing, their offsets and how far they are behind.

Both kinds of groups are described: those of the classic protocol and those of KIP-848.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from odradek.client.admin_types import GroupDescription, GroupListing, MemberDescription, PartitionLag
from odradek.client.assignors import decode_assignment
from odradek.client.cluster import Cluster
from odradek.client.commits import Commits, CommittedOffset
from odradek.client.coordinators import Coordinators
from odradek.client.errors import ClientError, RequestError, UnknownTopicError, check
from odradek.client.offsets import look_up
from odradek.client.retry import retry
from odradek.client.start import LATEST
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import consumer_group_describe, delete_groups, describe_groups, list_groups

DEAD = "Dead"
NOT_OF_THIS_KIND = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


class AdminGroups:
    """The part of the administration that is about groups."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)
        self._commits = Commits(cluster, self._coordinators)

    async def list_groups(self) -> list[GroupListing]:
        """All groups by name; every broker is asked for those that it coordinates."""
        what = "listing groups"

        async def attempt() -> list[GroupListing]:
            await self._cluster.refresh()
            answers = await asyncio.gather(
                *(
                    self._cluster.ask(node_id, list_groups.Request(), list_groups.Response)
                    for node_id in self._cluster.nodes
                )
            )
            found: dict[str, GroupListing] = {}
            for response in answers:
                check(response.error_code, what)
                for item in response.groups:
                    found[item.group_id] = GroupListing(
                        item.group_id, item.protocol_type, item.group_state, item.group_type.lower()
                    )
            return [found[name] for name in sorted(found)]

        return await retry(attempt, what=what, timeout_ms=self._cluster.timeouts.total_ms)

    async def describe_group(self, group: str) -> GroupDescription:
        """A group with its members, whichever protocol it follows."""

        async def find() -> tuple[int, bool]:
            node_id = await self._coordinators.find(group)
            connection = await self._cluster.connection(node_id)
            return node_id, connection.ranges.offers(consumer_group_describe.Request)

        what = f"finding the coordinator of group {group}"
        node_id, knows_both = await retry(find, what=what, timeout_ms=self._cluster.timeouts.total_ms)
        if knows_both:
            described = await self._describe_consumer_group(group, node_id)
            if described is not None:
                return described
        return await self._describe_classic_group(group, node_id)

    async def _describe_consumer_group(self, group: str, node_id: int) -> GroupDescription | None:
        response = await self._coordinators.ask(
            group,
            consumer_group_describe.Request(group_ids=[group]),
            consumer_group_describe.Response,
            what=f"describing group {group}",
            error_of=lambda response: response.groups[0].error_code,
        )
        found = response.groups[0]
        if found.error_code in NOT_OF_THIS_KIND:
            return None
        check(found.error_code, f"describing group {group}", found.error_message)
        members = [
            MemberDescription(
                item.member_id,
                item.instance_id,
                item.client_id,
                item.client_host,
                [
                    TopicPartition(topic.topic_name, partition)
                    for topic in item.assignment.topic_partitions
                    for partition in topic.partitions
                ],
            )
            for item in found.members
        ]
        return GroupDescription(group, found.group_state, "consumer", "consumer", found.assignor_name, node_id, members)

    async def _describe_classic_group(self, group: str, node_id: int) -> GroupDescription:
        response = await self._coordinators.ask(
            group,
            describe_groups.Request(groups=[group]),
            describe_groups.Response,
            what=f"describing group {group}",
            error_of=lambda response: response.groups[0].error_code,
        )
        found = response.groups[0]
        check(found.error_code, f"describing group {group}", found.error_message)
        if found.group_state == DEAD:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"describing group {group}", "there is no such group")
        members = [
            MemberDescription(
                item.member_id,
                item.group_instance_id,
                item.client_id,
                item.client_host,
                _assigned(found.protocol_type, item),
            )
            for item in found.members
        ]
        return GroupDescription(
            group, found.group_state, "classic", found.protocol_type, found.protocol_data, node_id, members
        )

    async def group_offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """All offsets that a group has committed."""
        return dict(sorted((await self._commits.fetch(group)).items()))

    async def set_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Commit offsets for a group that has no members at the moment."""
        committed = {key: CommittedOffset(value) if isinstance(value, int) else value for key, value in offsets.items()}
        await self._commits.commit(group, committed)

    async def delete_group(self, group: str) -> None:
        """Delete a group that has no members, with its offsets."""
        what = f"deleting group {group}"
        response = await self._coordinators.ask(
            group,
            delete_groups.Request(groups_names=[group]),
            delete_groups.Response,
            what=what,
            error_of=lambda response: response.results[0].error_code,
        )
        check(response.results[0].error_code, what)

    async def group_lag(self, group: str) -> dict[TopicPartition, PartitionLag]:
        """How far a group is behind, in every partition it has committed an offset of; deleted topics are left out."""
        committed = await self.group_offsets(group)
        present: dict[TopicPartition, CommittedOffset] = {}
        for partition, info in committed.items():
            try:
                topic = await self._cluster.topic(partition.topic)
            except UnknownTopicError:
                continue
            if partition.partition in topic.partitions:
                present[partition] = info
        ends = await look_up(self._cluster, dict.fromkeys(present, LATEST))
        return {
            partition: PartitionLag(info.offset, ends[partition].offset, max(0, ends[partition].offset - info.offset))
            for partition, info in present.items()
        }


def _assigned(protocol_type: str, member: describe_groups.ResponseMember) -> list[TopicPartition]:
    """The partitions of a member; groups of other kinds (Connect) have assignments of another form."""
    if protocol_type != "consumer":
        return []
    try:
        return decode_assignment(member.member_assignment)
    except ClientError:
        return []
