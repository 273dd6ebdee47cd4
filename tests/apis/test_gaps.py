"""Topics whose partitions are not numbered in a row, and partitions that go: what Kafka's clients are told."""

from __future__ import annotations

import asyncio

import pytest

from odradek.apis import delete_records as deleting
from odradek.apis import describe_topic_partitions as describing_pages
from odradek.apis import fetch as fetching
from odradek.apis import list_offsets as listing
from odradek.apis import metadata as describing
from odradek.apis import offset_commit as committing
from odradek.apis import produce as producing
from odradek.controller.image import PartitionLimits
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    delete_records,
    describe_topic_partitions,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    produce,
)
from tests.apis.houses import Visitor, versions, visiting
from tests.broker.houses import batch
from tests.client.support import CONDITION_SECONDS, asynchronous, tick

LIMITS = PartitionLimits(4096, 0, 0)
TOPIC = "books"
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def make(visitor: Visitor, *indexes: int) -> None:
    for index in indexes:
        await visitor.broker.create_partition(TOPIC, index, LIMITS)


@pytest.mark.parametrize("version", versions(describing.API))
@asynchronous
async def test_every_version_of_metadata_shows_gaps_without_a_leader(version: int) -> None:
    async with visiting() as visitor:
        await make(visitor, 3, 1)
        asked = metadata.Request(topics=[metadata.RequestTopic(name=TOPIC)])
        (told,) = (await visitor.ask(describing.API, version, asked, metadata.Response)).topics
        assert told.error_code == 0
        assert [(each.partition_index, each.error_code, each.leader_id) for each in told.partitions] == [
            (0, ErrorCode.LEADER_NOT_AVAILABLE, -1),
            (1, 0, 1),
            (2, ErrorCode.LEADER_NOT_AVAILABLE, -1),
            (3, 0, 1),
        ]
        assert (told.partitions[0].replica_nodes, told.partitions[0].isr_nodes) == ([], [])


@asynchronous
async def test_pages_of_partitions_show_gaps_too() -> None:
    async with visiting() as visitor:
        await make(visitor, 3, 1)
        found: list[tuple[int, int]] = []
        cursor: describe_topic_partitions.RequestCursor | None = None
        for _ in range(10):
            asked = describe_topic_partitions.Request(
                topics=[describe_topic_partitions.RequestTopic(name=TOPIC)],
                response_partition_limit=3,
                cursor=cursor,
            )
            answer = await visitor.ask(describing_pages.API, 0, asked, describe_topic_partitions.Response)
            found += [(each.partition_index, each.error_code) for topic in answer.topics for each in topic.partitions]
            if answer.next_cursor is None:
                break
            place = answer.next_cursor
            cursor = describe_topic_partitions.RequestCursor(
                topic_name=place.topic_name, partition_index=place.partition_index
            )
        assert found == [(0, 5), (1, 0), (2, 5), (3, 0)]


@asynchronous
async def test_whatever_is_asked_of_a_gap_there_is_no_such_partition() -> None:
    async with visiting() as visitor:
        await make(visitor, 0, 3, 5)
        await visitor.broker.delete_partition(TOPIC, 3)
        for gap in (1, 3):
            assert await codes_of(visitor, gap) == {
                "produce": UNKNOWN,
                "fetch": UNKNOWN,
                "list offsets": UNKNOWN,
                "delete records": UNKNOWN,
                "commit": UNKNOWN,
            }
        assert set((await codes_of(visitor, 5)).values()) == {0}


async def codes_of(visitor: Visitor, index: int) -> dict[str, int]:
    """What each request about a partition is answered."""
    codes: dict[str, int] = {}
    written = produce.RequestPartition(index=index, records=batch(b"v"))
    asked = produce.Request(
        acks=-1, timeout_ms=1_000, topic_data=[produce.RequestTopic(name=TOPIC, partition_data=[written])]
    )
    (stored,) = (await visitor.ask(producing.API, 9, asked, produce.Response)).responses
    codes["produce"] = stored.partition_responses[0].error_code
    codes["fetch"] = only(await visitor.ask(fetching.API, 12, fetch_of(index, 0), fetch.Response)).error_code
    place = list_offsets.RequestPartition(partition_index=index, timestamp=-1)
    ends = list_offsets.Request(replica_id=-1, topics=[list_offsets.RequestTopic(name=TOPIC, partitions=[place])])
    (found,) = (await visitor.ask(listing.API, 7, ends, list_offsets.Response)).topics
    codes["list offsets"] = found.partitions[0].error_code
    low = delete_records.RequestPartition(partition_index=index, offset=0)
    cut = delete_records.Request(topics=[delete_records.RequestTopic(name=TOPIC, partitions=[low])])
    (gone,) = (await visitor.ask(deleting.API, 2, cut, delete_records.Response)).topics
    codes["delete records"] = gone.partitions[0].error_code
    position = offset_commit.RequestPartition(partition_index=index, committed_offset=0)
    commit = offset_commit.Request(group_id="g", topics=[offset_commit.RequestTopic(name=TOPIC, partitions=[position])])
    (kept,) = (await visitor.ask(committing.API, 8, commit, offset_commit.Response)).topics
    codes["commit"] = kept.partitions[0].error_code
    return codes


def fetch_of(index: int, wait_ms: int, session_id: int = 0, session_epoch: int = -1) -> fetch.Request:
    wanted = fetch.RequestPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [fetch.RequestTopic(topic=TOPIC, partitions=[wanted])]
    return fetch.Request(
        max_wait_ms=wait_ms, min_bytes=1, topics=topics, session_id=session_id, session_epoch=session_epoch
    )


def only(answer: fetch.Response) -> fetch.ResponsePartition:
    ((partition,),) = [topic.partitions for topic in answer.responses]
    return partition


@asynchronous
async def test_a_fetch_that_waits_and_a_session_hear_that_the_partition_is_gone() -> None:
    async with visiting() as visitor:
        await make(visitor, 0, 1)
        begun = await visitor.ask(fetching.API, 12, fetch_of(1, 0, session_epoch=0), fetch.Response)
        assert begun.session_id > 0
        waiting = visitor.ask_later(fetching.API, 12, fetch_of(1, 300_000), fetch.Response)
        await tick()
        assert not waiting.done()
        await visitor.broker.delete_partition(TOPIC, 1)
        async with asyncio.timeout(CONDITION_SECONDS):  # at once, and not when it has waited long enough
            assert only(await waiting).error_code == UNKNOWN
        next_one = fetch.Request(max_wait_ms=0, min_bytes=1, session_id=begun.session_id, session_epoch=1)
        assert only(await visitor.ask(fetching.API, 12, next_one, fetch.Response)).error_code == UNKNOWN


@asynchronous
async def test_a_produce_that_waits_hears_that_the_partition_is_gone() -> None:
    async with visiting() as visitor:
        await make(visitor, 0, 1)
        visitor.disk.may_flush.clear()
        written = produce.RequestPartition(index=1, records=batch(b"v"))
        asked = produce.Request(
            acks=-1, timeout_ms=20_000, topic_data=[produce.RequestTopic(name=TOPIC, partition_data=[written])]
        )
        waiting = visitor.ask_later(producing.API, 9, asked, produce.Response)
        await tick()
        assert not waiting.done()
        await make(visitor, 2)  # not that other changes of the topic would end it
        assert not waiting.done()
        going = asyncio.create_task(visitor.broker.delete_partition(TOPIC, 1))
        (stored,) = (await waiting).responses
        assert stored.partition_responses[0].error_code == UNKNOWN
        visitor.disk.may_flush.set()
        await going
