"""CreatePartitions (key 37): topics grow, they never shrink."""

from __future__ import annotations

import asyncio
from collections import Counter

from odradek.apis.clustered import change_timeout_ms
from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import create_partitions

VERSIONS = Versions(0, 3)


async def handle(context: Context, request: create_partitions.Request) -> create_partitions.Response:
    """Add partitions to each topic, or only check it."""
    names = Counter(topic.name for topic in request.topics)
    results = []
    for wanted in request.topics:
        result = create_partitions.ResponseResult(name=wanted.name)
        try:
            if names[wanted.name] > 1:
                raise PeerError(ErrorCode.INVALID_REQUEST, f"topic {wanted.name!r} is named twice in one request")
            await _grow(context, wanted, request)
        except PeerError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
        await asyncio.sleep(0)  # many topics must not hold up the others
    return create_partitions.Response(results=results)


async def _grow(context: Context, wanted: create_partitions.RequestTopic, request: create_partitions.Request) -> None:
    replicas = None if wanted.assignments is None else [list(each.broker_ids) for each in wanted.assignments]
    await context.broker.add_partitions(
        wanted.name,
        wanted.count,
        replicas,
        validate_only=request.validate_only,
        timeout_ms=change_timeout_ms(request.timeout_ms),
    )


API = Api(ApiKey.CREATE_PARTITIONS, VERSIONS, create_partitions.Request, handle)
