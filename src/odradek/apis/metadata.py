"""Metadata (key 3): the brokers, the topics asked for or all of them, and topics made on first use.

Topics by id from version 12 on (KIP-516).
"""

from __future__ import annotations

from odradek.apis.authorized import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.apis.whereabouts import controller_of, endpoints
from odradek.apis.whereabouts import partitions as partitions_of
from odradek.controller.image import TopicImage
from odradek.model import INTERNAL_TOPICS, topic_name_problem
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import metadata

VERSIONS = Versions(0, 13)
_NO_ID = bytes(16)
_FIRST_WITH_LOOK_UP_BY_ID = 12
_CREATION_MAX_MS = 5_000  # for a topic to be made on first use, when there is no majority of brokers


async def handle(context: Context, request: metadata.Request) -> metadata.Response:
    """Describe the cluster and the topics."""
    broker = context.broker
    wants_all = request.topics is None or (context.version == 0 and not request.topics)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else None
    if wants_all:
        topics = [_describe(context, topic) for topic in broker.metadata.image.topics.values()]
    else:
        topics = [await _find(context, wanted, request) for wanted in request.topics or ()]
    if operations is not None:
        for topic in topics:
            if topic.error_code == ErrorCode.NONE:
                topic.topic_authorized_operations = operations
    response = metadata.Response(
        brokers=[
            metadata.ResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in endpoints(context)
        ],
        cluster_id=broker.cluster_id,
        controller_id=controller_of(context),
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


async def _find(context: Context, wanted: metadata.RequestTopic, request: metadata.Request) -> metadata.ResponseTopic:
    broker, image = context.broker, context.broker.metadata.image
    if wanted.name is None and context.version < _FIRST_WITH_LOOK_UP_BY_ID:
        return metadata.ResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name="", topic_id=wanted.topic_id)
    if wanted.name is None or wanted.topic_id != _NO_ID:
        by_id = image.topic_by_id(wanted.topic_id)
        if by_id is None:
            return metadata.ResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=wanted.name, topic_id=wanted.topic_id
            )
        return _describe(context, by_id)
    topic = image.topics.get(wanted.name)
    if topic is None and topic_name_problem(wanted.name) is not None:
        return metadata.ResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=wanted.name)
    may_create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
    if topic is None and may_create and wanted.name not in INTERNAL_TOPICS:
        try:
            await broker.create_topic(wanted.name, -1, {}, timeout_ms=_CREATION_MAX_MS)
            topic = broker.metadata.image.topics.get(wanted.name)
        except PeerError as error:
            topic = broker.metadata.image.topics.get(wanted.name)  # somebody else may have made it meanwhile
            if topic is None:
                is_no_quorum = error.code is ErrorCode.REQUEST_TIMED_OUT  # clients try again after the other one
                code = ErrorCode.LEADER_NOT_AVAILABLE if is_no_quorum else error.code
                return metadata.ResponseTopic(error_code=code, name=wanted.name)
    if topic is None:
        return metadata.ResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=wanted.name)
    return _describe(context, topic)


def _describe(context: Context, topic: TopicImage) -> metadata.ResponseTopic:
    partitions = [
        metadata.ResponsePartition(
            error_code=where.error,
            partition_index=where.partition,
            leader_id=where.leader,
            leader_epoch=where.leader_epoch,
            replica_nodes=where.replicas,
            isr_nodes=where.isr,
            offline_replicas=where.offline,
        )
        for where in partitions_of(context, topic)
    ]
    return metadata.ResponseTopic(
        name=topic.name, topic_id=topic.id, is_internal=topic.name in INTERNAL_TOPICS, partitions=partitions
    )


API = Api(ApiKey.METADATA, VERSIONS, metadata.Request, handle)
