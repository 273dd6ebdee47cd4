"""Metadata (key 3): the broker, the topics asked for or all of them, and topics made on first use.

Topics by id from version 12 on (KIP-516). This broker stands alone: it leads every partition.
"""

from __future__ import annotations

from odradek.apis.authorized import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.broker.broker import LEADER_EPOCH_ALONE
from odradek.broker.topics import INTERNAL_TOPICS, Topic
from odradek.model import TopicPartition, topic_name_problem
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import metadata

VERSIONS = Versions(0, 13)
_NO_ID = bytes(16)
_FIRST_WITH_LOOK_UP_BY_ID = 12


async def handle(context: Context, request: metadata.Request) -> metadata.Response:
    """Describe the cluster and the topics."""
    broker = context.broker
    wants_all = request.topics is None or (context.version == 0 and not request.topics)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else None
    if wants_all:
        topics = [_describe(context, topic) for topic in broker.topics.values()]
    else:
        topics = [await _find(context, wanted, request) for wanted in request.topics or ()]
    if operations is not None:
        for topic in topics:
            if topic.error_code == ErrorCode.NONE:
                topic.topic_authorized_operations = operations
    response = metadata.Response(
        brokers=[metadata.ResponseBroker(node_id=broker.node_id, host=context.host, port=context.port)],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


async def _find(context: Context, wanted: metadata.RequestTopic, request: metadata.Request) -> metadata.ResponseTopic:
    broker = context.broker
    if wanted.name is None and context.version < _FIRST_WITH_LOOK_UP_BY_ID:
        return metadata.ResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name="", topic_id=wanted.topic_id)
    if wanted.name is None or wanted.topic_id != _NO_ID:
        by_id = broker.topic_by_id(wanted.topic_id)
        if by_id is None:
            return metadata.ResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=wanted.name, topic_id=wanted.topic_id
            )
        return _describe(context, by_id)
    topic = broker.topics.get(wanted.name)
    if topic is None and topic_name_problem(wanted.name) is not None:
        return metadata.ResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=wanted.name)
    may_create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
    if topic is None and may_create and wanted.name not in INTERNAL_TOPICS:
        try:
            topic = await broker.create_topic(wanted.name, -1, {})
        except PeerError as error:
            topic = broker.topics.get(wanted.name)  # somebody else may have made it meanwhile
            if topic is None:
                return metadata.ResponseTopic(error_code=error.code, name=wanted.name)
    if topic is None:
        return metadata.ResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=wanted.name)
    return _describe(context, topic)


def _describe(context: Context, topic: Topic) -> metadata.ResponseTopic:
    node = context.broker.node_id
    partitions = [
        metadata.ResponsePartition(
            partition_index=index,
            leader_id=node,
            leader_epoch=partition.leader_epoch,
            replica_nodes=[node],
            isr_nodes=[node],
        )
        for index, partition in topic.partitions.items()
    ]
    partitions += [
        metadata.ResponsePartition(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR,
            partition_index=index,
            leader_id=-1,
            leader_epoch=LEADER_EPOCH_ALONE,
            replica_nodes=[node],
            isr_nodes=[],
            offline_replicas=[node],
        )
        for index in _offline(context, topic)
    ]
    return metadata.ResponseTopic(
        name=topic.name, topic_id=topic.id, is_internal=topic.is_internal, partitions=partitions
    )


def _offline(context: Context, topic: Topic) -> list[int]:
    """The partitions of a topic whose files are damaged."""
    offline = context.broker.store.offline
    return [tp.partition for tp in offline if tp == TopicPartition(topic.name, tp.partition)] if offline else []


API = Api(ApiKey.METADATA, VERSIONS, metadata.Request, handle)
