"""DescribeTopicPartitions: all topics or some, page by page."""

from __future__ import annotations

import errno

import pytest

from odradek.apis import describe_topic_partitions as describing
from odradek.apis.authorized import TOPIC_OPERATIONS
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import describe_topic_partitions as messages
from tests.apis.houses import Visitor, visiting
from tests.broker.houses import SlowDisk
from tests.client.support import asynchronous


async def ask(
    visitor: Visitor, *names: str, limit: int = 2000, cursor: messages.ResponseCursor | None = None
) -> messages.Response:
    asked = messages.Request(
        topics=[messages.RequestTopic(name=name) for name in names], response_partition_limit=limit
    )
    if cursor is not None:
        asked.cursor = messages.RequestCursor(topic_name=cursor.topic_name, partition_index=cursor.partition_index)
    return await visitor.ask(describing.API, 0, asked, messages.Response)


def indexes(answer: messages.Response) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in answer.topics]


@asynchronous
async def test_topics_are_described_in_order_with_what_is_wrong_with_them() -> None:
    async with visiting(settings={"broker.id": 7}) as visitor:
        topic = await visitor.broker.create_topic("b", 2, {})
        await visitor.broker.create_topic("a", 1, {})
        assert indexes(await ask(visitor)) == [("a", [0]), ("b", [0, 1])]
        answer = await ask(visitor, "unknown", "b", "../x", "b")
        assert [(each.name, each.error_code) for each in answer.topics] == [
            ("../x", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("b", ErrorCode.NONE),
            ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        told = answer.topics[1]
        assert (told.topic_id, told.is_internal, told.topic_authorized_operations) == (
            topic.id,
            False,
            TOPIC_OPERATIONS,
        )
        for each in told.partitions:
            assert (each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes) == (7, 0, [7], [7])
            assert (each.eligible_leader_replicas, each.last_known_elr) == ([], [])  # Java's client fails on null
        assert answer.next_cursor is None
        assert "unknown" not in visitor.broker.topics


@pytest.mark.parametrize("limit", range(1, 9))
@asynchronous
async def test_pages_of_any_size_give_every_partition_once(limit: int) -> None:
    async with visiting() as visitor:
        counts = {"a": 3, "b": 1, "c": 4}
        for name, count in counts.items():
            await visitor.broker.create_topic(name, count, {})
        found: list[tuple[str | None, int]] = []
        cursor, pages = None, 0
        while True:
            answer = await ask(visitor, limit=limit, cursor=cursor)
            page = [(name, index) for name, each in indexes(answer) for index in each]
            assert 0 < len(page) <= limit
            found += page
            pages += 1
            cursor = answer.next_cursor
            if cursor is None:
                break
        assert found == [(name, index) for name, count in counts.items() for index in range(count)]
        assert pages == -(-8 // limit)


@asynchronous
async def test_a_cursor_to_what_is_gone_goes_on_behind_it() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic("a", 1, {})
        await visitor.broker.create_topic("c", 2, {})
        gone = messages.ResponseCursor(topic_name="b", partition_index=1)
        assert indexes(await ask(visitor, cursor=gone)) == [("c", [0, 1])]
        beyond = messages.ResponseCursor(topic_name="c", partition_index=9)
        answer = await ask(visitor, cursor=beyond)
        assert (indexes(answer), answer.next_cursor) == ([("c", [])], None)
        negative = messages.ResponseCursor(topic_name="c", partition_index=-5)
        assert indexes(await ask(visitor, cursor=negative)) == [("c", [0, 1])]


@asynchronous
async def test_without_a_limit_a_page_still_has_one() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic("many", 2100, {})
        for limit in (0, -1, 10**6):
            answer = await ask(visitor, limit=limit)
            assert len(answer.topics[0].partitions) == 2000
            assert answer.next_cursor is not None and answer.next_cursor.partition_index == 2000


@asynchronous
async def test_a_partition_with_damaged_files_has_no_leader_and_keeps_its_place() -> None:
    disk = SlowDisk()
    async with visiting(disk) as visitor:
        await visitor.broker.create_topic("a", 3, {})
        await visitor.house.produce("a", b"v")
    disk.fail_next("open", errno.EIO, ending="a-0/00000000000000000000.log")
    async with visiting(disk) as visitor:
        first = await ask(visitor, limit=2)
        assert indexes(first) == [("a", [0, 1])]
        damaged = first.topics[0].partitions[0]
        assert (damaged.error_code, damaged.leader_id) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert (damaged.isr_nodes, damaged.offline_replicas) == ([], [1])
        assert (damaged.eligible_leader_replicas, damaged.last_known_elr) == ([], [])
        assert indexes(await ask(visitor, limit=2, cursor=first.next_cursor)) == [("a", [2])]
