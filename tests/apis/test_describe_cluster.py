"""DescribeCluster of every version: the one broker, and what a client may do."""

from __future__ import annotations

import pytest

from odradek.apis import describe_cluster as describing
from odradek.apis.authorized import CLUSTER_OPERATIONS
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import describe_cluster
from tests.apis.houses import HOST, PORT, versions, visiting
from tests.client.support import asynchronous

NOT_SAID = -(2**31)


@pytest.mark.parametrize("version", versions(describing.API))
@asynchronous
async def test_every_version_names_the_broker(version: int) -> None:
    async with visiting(settings={"broker.id": 7}) as visitor:
        for with_operations in (False, True):
            asked = describe_cluster.Request(include_cluster_authorized_operations=with_operations)
            answer = await visitor.ask(describing.API, version, asked, describe_cluster.Response)
            assert (answer.error_code, answer.controller_id, answer.endpoint_type) == (0, 7, 1)
            assert answer.cluster_id == visitor.broker.cluster_id
            assert [(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers] == [
                (7, HOST, PORT, None)
            ]
            assert answer.cluster_authorized_operations == (CLUSTER_OPERATIONS if with_operations else NOT_SAID)


@pytest.mark.parametrize("version", [1, 2])
@asynchronous
async def test_controllers_are_not_asked_for_here(version: int) -> None:
    async with visiting() as visitor:
        asked = describe_cluster.Request(endpoint_type=2)
        answer = await visitor.ask(describing.API, version, asked, describe_cluster.Response)
        assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        assert answer.error_message and answer.brokers == []
