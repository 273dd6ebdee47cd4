"""Fetch of every version: what is read, how much of it, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.apis import fetch as fetching
from odradek.records.header import read_header
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import fetch
from odradek.wire.messages.fetch import RequestPartition, RequestTopic
from tests.apis.houses import Visitor, set_epoch, versions, visiting
from tests.broker.houses import batch, values_of
from tests.client.support import asynchronous
from tests.log.support import batch as any_batch

TOPIC = "orders"
BY_ID = 13


def topics(visitor: Visitor, **partitions: list[RequestPartition]) -> list[RequestTopic]:
    """Partitions by their topic's name; with its id, which later versions use instead."""
    wanted = []
    for name, each in partitions.items():
        topic = visitor.broker.topics.get(name)
        wanted.append(RequestTopic(topic=name, topic_id=b"\1" * 16 if topic is None else topic.id, partitions=each))
    return wanted


def at(offset: int, index: int = 0, *, max_bytes: int = 1 << 20, epoch: int = -1) -> RequestPartition:
    return RequestPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=epoch
    )


async def ask(visitor: Visitor, version: int = 12, *wanted: RequestPartition, **fields: Any) -> fetch.Response:
    asked = fetch.Request(max_wait_ms=0, min_bytes=1, topics=topics(visitor, orders=list(wanted)), **fields)
    return await visitor.ask(fetching.API, version, asked, fetch.Response)


def only(answer: fetch.Response) -> fetch.ResponsePartition:
    assert answer.error_code == 0
    ((partition,),) = [topic.partitions for topic in answer.responses]
    return partition


@pytest.mark.parametrize("version", versions(fetching.API))
@asynchronous
async def test_every_version_reads_records_and_tells_offsets(version: int) -> None:
    async with visiting() as visitor:
        topic = await visitor.broker.create_topic(TOPIC, 1, {})
        await visitor.house.produce(TOPIC, b"a", b"b", b"c")
        await visitor.house.produce(TOPIC, b"d")
        visitor.broker.partition(TOPIC, 0).log.delete_records(1).run()
        answer = await ask(visitor, version, at(1))
        named = answer.responses[0]
        assert (named.topic_id, named.topic) == ((topic.id, "") if version >= BY_ID else (bytes(16), TOPIC))
        partition = only(answer)
        assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (0, 4, 4)
        assert partition.log_start_offset == (1 if version >= 5 else -1)
        assert partition.aborted_transactions is None
        assert answer.session_id == 0
        assert values_of(partition.records) == [b"a", b"b", b"c", b"d"], "the batch that holds the offset comes whole"
        assert read_header(partition.records or b"").leader_epoch == 0
        at_end = only(await ask(visitor, version, at(4)))
        assert (at_end.error_code, bytes(at_end.records or b"")) == (0, b"")


@pytest.mark.parametrize("version", versions(fetching.API))
@asynchronous
async def test_every_version_tells_what_is_wrong_partition_by_partition(version: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 2, {})
        await visitor.house.produce(TOPIC, b"a", b"b")
        asked = fetch.Request(topics=topics(visitor, orders=[at(0), at(3, 1), at(0, 7)], unknown=[at(0)]))
        answer = await visitor.ask(fetching.API, version, asked, fetch.Response)
        known, unknown = answer.responses
        assert [each.error_code for each in known.partitions] == [
            ErrorCode.NONE,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        code = ErrorCode.UNKNOWN_TOPIC_ID if version >= BY_ID else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [each.error_code for each in unknown.partitions] == [code]


@asynchronous
async def test_offsets_that_are_not_there_are_out_of_range() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        await visitor.house.produce(TOPIC, b"a", b"b", b"c")
        visitor.broker.partition(TOPIC, 0).log.delete_records(2).run()
        for offset, code in ((1, 1), (2, 0), (3, 0), (4, 1), (-1, 1), (2**62, 1)):
            partition = only(await ask(visitor, 12, at(offset)))
            assert partition.error_code == (ErrorCode.OFFSET_OUT_OF_RANGE if code else 0), offset
            assert partition.high_watermark == 3


@asynchronous
async def test_an_offset_between_the_high_watermark_and_the_end_waits_and_is_not_out_of_range() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        visitor.broker.partition(TOPIC, 0).append(batch(b"not", b"safe"))
        partition = only(await ask(visitor, 12, at(1)))
        assert (partition.error_code, partition.high_watermark, bytes(partition.records or b"")) == (0, 0, b"")


@pytest.mark.parametrize(
    ("epoch", "code"), [(-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (99, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
@asynchronous
async def test_a_client_of_another_leader_epoch_is_told(epoch: int, code: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        assert only(await ask(visitor, 12, at(0, epoch=epoch))).error_code == code


@asynchronous
async def test_a_client_of_an_epoch_that_is_over_is_fenced() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        set_epoch(visitor, TOPIC, 5)
        assert only(await ask(visitor, 12, at(0, epoch=4))).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert only(await ask(visitor, 12, at(0, epoch=5))).error_code == 0


@pytest.mark.parametrize("version", [12, 15, 17])
@asynchronous
async def test_a_stranger_that_fetches_as_a_replica_is_refused(version: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        asked = fetch.Request(max_wait_ms=60_000, min_bytes=1, replica_id=3, topics=topics(visitor, orders=[at(0)]))
        asked.replica_state = fetch.RequestReplicaState(replica_id=3)
        answer = await visitor.ask(fetching.API, version, asked, fetch.Response)
        assert only(answer).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@asynchronous
async def test_committed_readers_stop_at_an_open_transaction() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {"flush": "os"})
        partition = visitor.broker.partition(TOPIC, 0)
        partition.append(any_batch(b"plain"))
        partition.append(any_batch(b"open", producer=(7, 0, 0), transactional=True))
        partition.advanced()
        everything = only(await ask(visitor, 12, at(0)))
        committed = only(await ask(visitor, 12, at(0), isolation_level=1))
        assert values_of(everything.records) == [b"plain", b"open"]
        assert values_of(committed.records) == [b"plain"]
        assert (committed.high_watermark, committed.last_stable_offset) == (2, 1)


@asynchronous
async def test_an_answer_holds_whole_batches_within_its_bounds_and_at_least_one() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 3, {})
        size = len(batch(bytes(1000)))
        for index in range(3):
            for _ in range(4):
                await visitor.house.produce(TOPIC, bytes(1000), partition=index)

        async def counts(max_bytes: int, *partition_max: int) -> list[int]:
            wanted = [at(0, index, max_bytes=each) for index, each in enumerate(partition_max)]
            answer = await ask(visitor, 12, *wanted, max_bytes=max_bytes)
            return [len(values_of(each.records)) for each in answer.responses[0].partitions]

        assert await counts(10**6, 10**6, 10**6, 10**6) == [4, 4, 4]
        assert await counts(10**6, size, 2 * size, 3 * size + 5) == [1, 2, 3]
        assert await counts(5 * size, 10**6, 10**6, 10**6) == [4, 1, 0]
        assert await counts(10, 10**6, 10**6, 10**6) == [1, 0, 0], "one that is too large comes alone"
        assert await counts(10**6, 10, 10, 10**6) == [1, 0, 4], "but only one"
        assert await counts(-5, -5, 0) == [1, 0]


@asynchronous
async def test_the_broker_has_a_bound_of_its_own_and_slow_clients_make_it_smaller() -> None:
    async with visiting(settings={"fetch.max.bytes": "4KiB"}) as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        for _ in range(8):
            await visitor.house.produce(TOPIC, bytes(1000))

        async def count() -> int:
            return len(values_of(only(await ask(visitor, 12, at(0), max_bytes=2**31 - 1)).records))

        assert await count() == 3
        visitor.door.room.left_bytes = 2500
        assert await count() == 2
        visitor.door.room.left_bytes = -1
        assert await count() == 1


@asynchronous
async def test_a_request_without_partitions_is_answered() -> None:
    async with visiting() as visitor:
        answer = await visitor.ask(fetching.API, 12, fetch.Request(max_wait_ms=60_000, min_bytes=1), fetch.Response)
        assert (answer.error_code, answer.responses) == (0, [])
