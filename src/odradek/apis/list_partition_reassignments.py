"""ListPartitionReassignments (key 46): the moves under way (KIP-455); what is unknown is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.controller.image import PartitionImage
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import list_partition_reassignments as messages

VERSIONS = Versions(0, 0)


def handle(context: Context, request: messages.Request) -> messages.Response:
    """Look for moves of the partitions asked for; of all if none are named."""
    image = context.broker.metadata.image
    asked = (
        [(name, list(topic.partitions)) for name, topic in image.topics.items()]
        if request.topics is None
        else [(topic.name, topic.partition_indexes) for topic in request.topics]
    )
    for name, indexes in asked:
        known = image.topics[name].partitions if name in image.topics else {}
        unknown = [index for index in indexes if index not in known]
        if unknown:
            return messages.Response(
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=f"there is no partition {unknown[0]} of topic {name!r}",
            )
    moving = [(name, _moving(image.topics[name].partitions, indexes)) for name, indexes in asked if indexes]
    return messages.Response(
        topics=[messages.ResponseTopic(name=name, partitions=found) for name, found in moving if found]
    )


def _moving(partitions: Mapping[int, PartitionImage], indexes: Iterable[int]) -> list[messages.ResponsePartition]:
    return [
        messages.ResponsePartition(
            partition_index=index,
            replicas=list(each.replicas),
            adding_replicas=list(each.adding),
            removing_replicas=list(each.removing),
        )
        for index, each in ((index, partitions[index]) for index in indexes)
        if each.adding or each.removing
    ]


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, VERSIONS, messages.Request, handle)
