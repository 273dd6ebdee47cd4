"""Brokers of a cluster, for people and scripts: who is there, the quorum, elections, and moves of partitions.

What concerns several partitions answers for each of them, since some may be refused while others are done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from odradek.client.address import Address
from odradek.client.admin_groups import AdminGroups
from odradek.client.admin_types import BrokerInfo, Move, QuorumDescription, QuorumReplica
from odradek.client.errors import ClientError, RequestError, check
from odradek.client.retry import retry
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    alter_partition_reassignments,
    describe_cluster,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
    unregister_broker,
)
from odradek.wire.schema import Message

METADATA_TOPIC = "__cluster_metadata"
PREFERRED, UNCLEAN = 0, 1  # kinds of elections (KIP-460)

Answer = TypeVar("Answer", bound=Message)


class AdminCluster(AdminGroups):
    """The part of the administration that is about brokers and who holds which partition."""

    async def brokers(self) -> list[BrokerInfo]:
        """All registered brokers, with those that are fenced where the broker can tell (Kafka 4.0)."""
        what = "describing the cluster"

        async def attempt() -> list[BrokerInfo]:
            await self._cluster.refresh()
            request = describe_cluster.Request(include_fenced_brokers=True)
            response = await self._cluster.ask_any(request, describe_cluster.Response)
            check(response.error_code, what, response.error_message)
            return [
                BrokerInfo(item.broker_id, Address(item.host, item.port), item.rack, item.is_fenced)
                for item in sorted(response.brokers, key=lambda item: item.broker_id)
            ]

        return await retry(attempt, what=what, timeout_ms=self._cluster.timeouts.total_ms)

    async def quorum(self, node_id: int, *, timeout_ms: int | None = None) -> QuorumDescription:
        """The quorum of the metadata as a broker sees it; asked once, since another may see it otherwise."""
        what = f"asking broker {node_id} for the quorum"
        partition = describe_quorum.RequestPartition(partition_index=0)
        topic = describe_quorum.RequestTopic(topic_name=METADATA_TOPIC, partitions=[partition])
        response = await self._cluster.ask(
            node_id, describe_quorum.Request(topics=[topic]), describe_quorum.Response, timeout_ms=timeout_ms
        )
        check(response.error_code, what, response.error_message)
        found = response.topics[0].partitions[0]
        check(found.error_code, what, found.error_message)
        return QuorumDescription(
            found.leader_id,
            found.leader_epoch,
            found.high_watermark,
            _replicas(found.current_voters),
            _replicas(found.observers),
            {
                node.node_id: Address(listener.host, listener.port)
                for node in response.nodes
                for listener in node.listeners[:1]
            },
        )

    async def elect_leaders(
        self, partitions: Collection[TopicPartition] | None, *, unclean: bool = False
    ) -> dict[TopicPartition, RequestError | None]:
        """Let the preferred replicas lead again, or with `unclean` any that is alive; None for all partitions.

        An unclean election may lose records that were acknowledged. Where nothing is to be elected, the error says so:
        ELECTION_NOT_NEEDED.
        """
        request = elect_leaders.Request(
            election_type=UNCLEAN if unclean else PREFERRED,
            topic_partitions=None
            if partitions is None
            else [
                elect_leaders.RequestTopic(topic=topic, partitions=indexes)
                for topic, indexes in _by_topic(partitions).items()
            ],
            timeout_ms=self._cluster.timeouts.request_ms,
        )
        what = "electing leaders"
        response = await self._controlled(
            request, elect_leaders.Response, what, lambda answer: [answer.error_code, *_election_codes(answer)]
        )
        check(response.error_code, what)
        return {
            TopicPartition(topic.topic, item.partition_id): _error(
                item.error_code, f"electing a leader of {topic.topic}-{item.partition_id}", item.error_message
            )
            for topic in response.replica_election_results
            for item in topic.partition_result
        }

    async def reassign(
        self, wanted: Mapping[TopicPartition, Collection[int] | None]
    ) -> dict[TopicPartition, RequestError | None]:
        """Begin to move partitions to these brokers, the preferred leader first; None stops a move."""
        topics: dict[str, alter_partition_reassignments.RequestTopic] = {}
        for key, replicas in wanted.items():
            topic = topics.setdefault(
                key.topic, alter_partition_reassignments.RequestTopic(name=key.topic, partitions=[])
            )
            topic.partitions.append(
                alter_partition_reassignments.RequestPartition(
                    partition_index=key.partition, replicas=None if replicas is None else list(replicas)
                )
            )
        request = alter_partition_reassignments.Request(
            topics=list(topics.values()), timeout_ms=self._cluster.timeouts.request_ms
        )
        what = "moving partitions"
        response = await self._controlled(
            request,
            alter_partition_reassignments.Response,
            what,
            lambda answer: [answer.error_code, *(item.error_code for t in answer.responses for item in t.partitions)],
        )
        check(response.error_code, what, response.error_message)
        return {
            TopicPartition(topic.name, item.partition_index): _error(
                item.error_code, f"moving {topic.name}-{item.partition_index}", item.error_message
            )
            for topic in response.responses
            for item in topic.partitions
        }

    async def moves(self) -> dict[TopicPartition, Move]:
        """The partitions that are being moved now."""
        what = "listing moves"
        request = list_partition_reassignments.Request(topics=None, timeout_ms=self._cluster.timeouts.request_ms)
        response = await self._controlled(
            request, list_partition_reassignments.Response, what, lambda answer: [answer.error_code]
        )
        check(response.error_code, what, response.error_message)
        return {
            TopicPartition(topic.name, item.partition_index): Move(
                tuple(item.replicas), tuple(item.adding_replicas), tuple(item.removing_replicas)
            )
            for topic in response.topics
            for item in topic.partitions
        }

    async def unregister_broker(self, node_id: int) -> None:
        """Let the cluster forget a broker."""
        what = f"unregistering broker {node_id}"
        response = await self._controlled(
            unregister_broker.Request(broker_id=node_id),
            unregister_broker.Response,
            what,
            lambda answer: [answer.error_code],
        )
        check(response.error_code, what, response.error_message)

    async def _controlled(
        self, request: Message, answer: type[Answer], what: str, codes: Callable[[Answer], Iterable[int]]
    ) -> Answer:
        """Ask the controller; when it has moved, ask who it is and try again."""

        async def attempt() -> Answer:
            try:
                response = await self._cluster.ask_controller(request, answer)
                if ErrorCode.NOT_CONTROLLER in codes(response):
                    raise RequestError(ErrorCode.NOT_CONTROLLER, what)
                return response
            except ClientError:
                await self._cluster.refresh()
                raise

        return await retry(attempt, what=what, timeout_ms=self._cluster.timeouts.total_ms)


def _replicas(found: Iterable[describe_quorum.ResponseReplica]) -> list[QuorumReplica]:
    return [
        QuorumReplica(item.replica_id, item.log_end_offset, item.last_fetch_timestamp, item.last_caught_up_timestamp)
        for item in sorted(found, key=lambda item: item.replica_id)
    ]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def _election_codes(answer: elect_leaders.Response) -> list[int]:
    return [item.error_code for topic in answer.replica_election_results for item in topic.partition_result]


def _error(code: int, what: str, message: str | None) -> RequestError | None:
    return RequestError(code, what, message) if code else None
