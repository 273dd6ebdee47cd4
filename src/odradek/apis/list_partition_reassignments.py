"""ListPartitionReassignments (key 46): a broker that stands alone has none under way; what is unknown is named."""

from __future__ import annotations

from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import PeerError
from odradek.wire.messages import list_partition_reassignments as messages

VERSIONS = Versions(0, 0)


def handle(context: Context, request: messages.Request) -> messages.Response:
    """Look for moves of the partitions asked for."""
    try:
        for topic in request.topics or ():
            for index in topic.partition_indexes:
                context.broker.partition(topic.name, index)
    except PeerError as error:
        return messages.Response(error_code=error.code, error_message=error.message)
    return messages.Response()


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, VERSIONS, messages.Request, handle)
