"""OffsetForLeaderEpoch of every version: where epochs ended (KIP-320)."""

from __future__ import annotations

import pytest

from odradek.apis import offset_for_leader_epoch as looking
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import offset_for_leader_epoch as messages
from tests.apis.houses import Visitor, set_epoch, versions, visiting
from tests.broker.houses import batch
from tests.client.support import asynchronous

TOPIC = "orders"


async def ask(
    visitor: Visitor, version: int, epoch: int, *, current: int = -1, index: int = 0, topic: str = TOPIC
) -> tuple[int, int, int]:
    wanted = messages.RequestPartition(partition=index, leader_epoch=epoch, current_leader_epoch=current)
    asked = messages.Request(topics=[messages.RequestTopic(topic=topic, partitions=[wanted])])
    answer = await visitor.ask(looking.API, version, asked, messages.Response)
    ((found,),) = [each.partitions for each in answer.topics]
    assert found.partition == index
    return found.error_code, found.leader_epoch, found.end_offset


@pytest.mark.parametrize("version", versions(looking.API))
@asynchronous
async def test_every_version_finds_the_end_of_an_epoch(version: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        partition = visitor.broker.partition(TOPIC, 0)
        for epoch in (0, 0, 2, 5):
            partition.log.append(batch(b"v"), epoch)
        set_epoch(visitor, TOPIC, 5)
        assert await ask(visitor, version, 5) == (0, 5, 4)
        assert await ask(visitor, version, 0) == (0, 0, 2)
        assert await ask(visitor, version, 2) == (0, 2, 3)
        assert await ask(visitor, version, 3) == (0, 2, 3), "the greatest epoch up to the one asked for"
        assert await ask(visitor, version, 6) == (0, -1, -1)
        assert await ask(visitor, version, -1) == (0, -1, -1)


@pytest.mark.parametrize("version", versions(looking.API))
@asynchronous
async def test_every_version_is_told_what_is_wrong(version: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        set_epoch(visitor, TOPIC, 5)
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        assert await ask(visitor, version, 0, index=1) == unknown
        assert await ask(visitor, version, 0, topic="letters") == unknown
        assert (await ask(visitor, version, 0, current=4))[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert (await ask(visitor, version, 0, current=6))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await ask(visitor, version, 0, current=5))[0] == 0
