"""DescribeProducers (key 61): the idempotent producers that a partition remembers (KIP-664)."""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import PeerError
from odradek.wire.messages import describe_producers

VERSIONS = Versions(0, 0)


def handle(context: Context, request: describe_producers.Request) -> describe_producers.Response:
    """Describe the producers of each partition."""
    topics = [
        describe_producers.ResponseTopic(
            name=topic.name, partitions=[_describe(context, topic.name, index) for index in topic.partition_indexes]
        )
        for topic in request.topics
    ]
    return describe_producers.Response(topics=topics)


def _describe(context: Context, name: str, index: int) -> describe_producers.ResponsePartition:
    answer = describe_producers.ResponsePartition(partition_index=index)
    try:
        partition = context.broker.partition(name, index)
    except PeerError as error:
        answer.error_code, answer.error_message = error.code, error.message
        return answer
    answer.active_producers = [
        describe_producers.ResponseProducer(
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.written[-1].last_sequence if producer.written else -1,
            last_timestamp=producer.seen_ms,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.transaction_start,
        )
        for producer_id, producer in partition.log.producers.items()
    ]
    return answer


API = Api(ApiKey.DESCRIBE_PRODUCERS, VERSIONS, describe_producers.Request, handle)
