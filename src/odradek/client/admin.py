"""Topics, partitions, settings and offsets of a cluster, for people and scripts. Brokers are in admin_cluster,
groups in admin_groups.

Each call retries what passes by itself, up to the client's timeout, and waits until a change can be seen, so that the
next step of a script works. What a broker refuses is a RequestError in the broker's own words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from odradek.client.admin_cluster import AdminCluster
from odradek.client.admin_types import ClusterDescription, ConfigEntry, ConfigSource, ResourceKind
from odradek.client.cluster import TopicInfo
from odradek.client.errors import RequestError, UnknownTopicError, check
from odradek.client.offsets import OffsetInfo, look_up
from odradek.client.retry import retry
from odradek.client.start import EARLIEST, LATEST, MAX_TIMESTAMP
from odradek.model import TopicPartition, topic_name_problem
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
)
from odradek.wire.schema import Message

SET, DELETE, APPEND, SUBTRACT = range(4)  # operations of IncrementalAlterConfigs (KIP-339)
BROKER_DEFAULT = -1
SPECS = {"start": EARLIEST, "end": LATEST, "max-timestamp": MAX_TIMESTAMP}

Answer = TypeVar("Answer", bound=Message)


class Admin(AdminCluster):
    """The administration of a cluster, `client.admin`."""

    async def cluster(self) -> ClusterDescription:
        """The brokers as they are now."""
        await retry(self._cluster.refresh, what="describing the cluster", timeout_ms=self._cluster.timeouts.total_ms)
        known = self._cluster
        return ClusterDescription(
            known.cluster_id, known.controller_id, [known.nodes[key] for key in sorted(known.nodes)]
        )

    # Topics.

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        replication: int = BROKER_DEFAULT,
        validate_only: bool = False,
    ) -> TopicInfo | None:
        """Create a topic and wait until it can be used; -1 leaves a number to the broker. None if only validated."""
        _check_name(name)
        request = create_topics.Request(
            topics=[
                create_topics.RequestTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication,
                    configs=[
                        create_topics.RequestConfig(name=key, value=value) for key, value in (configs or {}).items()
                    ],
                )
            ],
            timeout_ms=self._cluster.timeouts.request_ms,
            validate_only=validate_only,
        )
        what = f"creating topic {name}"
        response = await self._controlled(
            request, create_topics.Response, what, lambda answer: [item.error_code for item in answer.topics]
        )
        for topic in response.topics:
            check(topic.error_code, what, topic.error_message)
        if validate_only:
            return None
        return await self._wait_for_partitions(name, max(1, partitions))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records, and wait until it is gone."""
        _check_name(name)
        request = delete_topics.Request(
            topics=[delete_topics.RequestTopic(name=name)],
            topic_names=[name],
            timeout_ms=self._cluster.timeouts.request_ms,
        )
        what = f"deleting topic {name}"
        response = await self._controlled(
            request, delete_topics.Response, what, lambda answer: [item.error_code for item in answer.responses]
        )
        for topic in response.responses:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopicError(name)
            check(topic.error_code, what, topic.error_message)

        async def gone() -> None:
            await self._cluster.refresh([name])
            info = self._cluster.topics.get(name)
            if info is not None and not info.error:
                raise RequestError(ErrorCode.REQUEST_TIMED_OUT, what)

        await retry(gone, what=what, timeout_ms=self._cluster.timeouts.total_ms)
        self._cluster.topics.pop(name, None)

    async def add_partitions(self, name: str, total: int) -> TopicInfo:
        """Let a topic grow to so many partitions in total, and wait until they can be used."""
        request = create_partitions.Request(
            topics=[create_partitions.RequestTopic(name=name, count=total, assignments=None)],
            timeout_ms=self._cluster.timeouts.request_ms,
        )
        what = f"adding partitions to topic {name}"
        response = await self._controlled(
            request, create_partitions.Response, what, lambda answer: [item.error_code for item in answer.results]
        )
        for result in response.results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopicError(name)
            check(result.error_code, what, result.error_message)
        return await self._wait_for_partitions(name, total)

    async def list_topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """All topics by name; those that Kafka keeps for itself only if wanted."""

        async def attempt() -> list[TopicInfo]:
            await self._cluster.refresh(None)
            return [info for _, info in sorted(self._cluster.topics.items()) if internal or not info.is_internal]

        return await retry(attempt, what="listing topics", timeout_ms=self._cluster.timeouts.total_ms)

    async def describe_topic(self, name: str) -> TopicInfo:
        """A topic as it is now."""
        return (await self.describe_topics([name]))[name]

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Topics as they are now; an UnknownTopicError names the first one that does not exist."""
        wanted = list(dict.fromkeys(names))
        for name in wanted:
            _check_name(name)
            self._cluster.topics.pop(name, None)
        return {name: await self._cluster.topic(name) for name in wanted}

    async def _wait_for_partitions(self, name: str, least: int) -> TopicInfo:
        async def attempt() -> TopicInfo:
            await self._cluster.refresh([name])
            info = self._cluster.topics.get(name)
            if info is None or info.error or max(info.partitions, default=-1) + 1 < least:  # there may be gaps
                raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}")
            for partition in info.partitions:
                self._cluster.leader(TopicPartition(name, partition))
            return info

        return await retry(attempt, what=f"waiting for topic {name}", timeout_ms=self._cluster.timeouts.total_ms)

    # Records and offsets.

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete what lies before these offsets (-1: everything); return where the partitions start now."""
        found: dict[TopicPartition, int] = {}
        what = "deleting records"

        async def attempt() -> None:
            missing = [partition for partition in before if partition not in found]
            grouped = await self._cluster.by_leader(missing, refresh=True)
            for node_id, partitions in grouped.items():
                request = _delete_records_request(partitions, before, self._cluster.timeouts.request_ms)
                response = await self._cluster.ask(node_id, request, delete_records.Response)
                for topic in response.topics:
                    for item in topic.partitions:
                        partition = TopicPartition(topic.name, item.partition_index)
                        check(item.error_code, f"{what} of partition {partition} before {before[partition]}")
                        found[partition] = item.low_watermark

        await self.describe_topics(partition.topic for partition in before)
        await retry(attempt, what=what, timeout_ms=self._cluster.timeouts.total_ms)
        return found

    async def list_offsets(self, wanted: Mapping[TopicPartition, str | int]) -> dict[TopicPartition, OffsetInfo]:
        """Look up offsets: "start", "end", "max-timestamp", or the first at or after a time in milliseconds."""
        for spec in wanted.values():
            if spec not in SPECS and not (isinstance(spec, int) and spec >= 0):
                raise ValueError(f"an offset is looked up by start, end, max-timestamp or milliseconds, not {spec!r}")
        timestamps = {key: spec if isinstance(spec, int) else SPECS[spec] for key, spec in wanted.items()}
        return await look_up(self._cluster, timestamps)

    # Settings.

    async def describe_configs(
        self, kind: ResourceKind, name: str, keys: Iterable[str] | None = None
    ) -> dict[str, ConfigEntry]:
        """The settings of a topic, a broker (by its number) or a group: all, or those of some names."""
        request = describe_configs.Request(
            resources=[
                describe_configs.RequestResource(
                    resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
                )
            ],
            include_documentation=True,
        )
        what = _resource("describing the settings of", kind, name)

        async def attempt() -> dict[str, ConfigEntry]:
            response = await self._ask_resource(kind, name, request, describe_configs.Response)
            result = response.results[0]
            check(result.error_code, what, result.error_message)
            return {item.name: _entry(item) for item in result.configs}

        return await retry(attempt, what=what, timeout_ms=self._cluster.timeouts.total_ms)

    async def alter_configs(
        self,
        kind: ResourceKind,
        name: str,
        changes: Mapping[str, str | None],
        *,
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change single settings; None puts one back to its default, the others stay. Lists can be appended to."""
        configs = [
            incremental_alter_configs.RequestConfig(
                name=key, config_operation=DELETE if value is None else SET, value=value
            )
            for key, value in changes.items()
        ]
        for operation, items in ((APPEND, append), (SUBTRACT, subtract)):
            configs += [
                incremental_alter_configs.RequestConfig(name=key, config_operation=operation, value=value)
                for key, value in (items or {}).items()
            ]
        request = incremental_alter_configs.Request(
            resources=[
                incremental_alter_configs.RequestResource(resource_type=kind, resource_name=name, configs=configs)
            ],
            validate_only=validate_only,
        )
        what = _resource("changing the settings of", kind, name)

        async def attempt() -> None:
            response = await self._ask_resource(kind, name, request, incremental_alter_configs.Response)
            result = response.responses[0]
            check(result.error_code, what, result.error_message)

        await retry(attempt, what=what, timeout_ms=self._cluster.timeouts.total_ms)

    async def _ask_resource(self, kind: ResourceKind, name: str, request: Message, answer: type[Answer]) -> Answer:
        """A broker's own settings are known only to itself; all others to every broker."""
        is_node = kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) and name.isdigit()
        if is_node:
            return await self._cluster.ask(int(name), request, answer)
        return await self._cluster.ask_any(request, answer)


def _check_name(name: str) -> None:
    if (problem := topic_name_problem(name)) is not None:
        raise ValueError(problem)


def _delete_records_request(
    partitions: Sequence[TopicPartition], before: Mapping[TopicPartition, int], timeout_ms: int
) -> delete_records.Request:
    topics: dict[str, delete_records.RequestTopic] = {}
    for partition in partitions:
        topic = topics.setdefault(partition.topic, delete_records.RequestTopic(name=partition.topic, partitions=[]))
        topic.partitions.append(
            delete_records.RequestPartition(partition_index=partition.partition, offset=before[partition])
        )
    return delete_records.Request(topics=list(topics.values()), timeout_ms=timeout_ms)


def _resource(verb: str, kind: ResourceKind, name: str) -> str:
    return f"{verb} {kind.name.lower().replace('_', ' ')} {name}".rstrip()


def _entry(item: describe_configs.ResponseConfig) -> ConfigEntry:
    known = item.config_source in ConfigSource._value2member_map_
    source = ConfigSource(item.config_source) if known else ConfigSource.UNKNOWN
    return ConfigEntry(item.name, item.value, source, item.read_only, item.is_sensitive, item.documentation or None)
