"""A partition with a follower, as its clients and the follower see it: what waits for whom, and who may read how far.

The follower is a registered broker without a process: the tests fetch in its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from odradek.apis import fetch as fetching
from odradek.apis import list_offsets as listing
from odradek.apis import metadata as describing
from odradek.apis import produce as producing
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import fetch, list_offsets, metadata, produce
from tests.apis.houses import Visitor, visiting
from tests.broker.houses import batch, values_of
from tests.client.support import asynchronous, tick, until

TOPIC, OWN, OTHER = "orders", 1, 2
LONG = {"broker.session.timeout.ms": "10m"}  # nobody is heard of, and nobody is fenced for it


@asynccontextmanager
async def two_brokers(*, leader: int = OWN, **overrides: str) -> AsyncIterator[Visitor]:
    """A topic with a replica on this broker and on one that the test stands for."""
    async with visiting(settings=LONG) as visitor:
        call = visitor.broker.metadata.call
        other = {"broker_id": OTHER, "incarnation": "other", "kafka": ["b", 9], "http": None, "rack": "far"}
        epoch = (await call("register-broker", other))["broker_epoch"]
        beat = {"broker_id": OTHER, "broker_epoch": epoch, "applied_offset": epoch + 1}
        await call("heartbeat", {**beat, "wants_shutdown": False, "wants_fence": False})
        replicas = [leader, OTHER if leader == OWN else OWN]
        configs = {name.replace("_", "."): value for name, value in overrides.items()}
        await visitor.broker.change_topic(TOPIC, 1, configs, -1, {"0": replicas})
        yield visitor


def follower_asks(
    visitor: Visitor, offset: int, *, last_epoch: int = -1, wait_ms: int = 0
) -> asyncio.Task[fetch.Response]:
    """Fetch as the other broker, which says by it that it has flushed all below the offset."""
    topic = visitor.broker.topics[TOPIC]
    wanted = fetch.RequestPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
        current_leader_epoch=0,
        last_fetched_epoch=last_epoch,
    )
    asked = fetch.Request(
        replica_state=fetch.RequestReplicaState(replica_id=OTHER, replica_epoch=1),
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=[fetch.RequestTopic(topic_id=topic.id, partitions=[wanted])],
    )
    return visitor.ask_later(fetching.API, 17, asked, fetch.Response)


def only(answer: fetch.Response) -> fetch.ResponsePartition:
    assert answer.error_code == 0
    ((partition,),) = [topic.partitions for topic in answer.responses]
    return partition


def produced(
    visitor: Visitor, *values: bytes, acks: int = -1, timeout_ms: int = 60_000
) -> asyncio.Task[produce.Response]:
    sent = produce.RequestPartition(index=0, records=batch(*values))
    asked = produce.Request(
        acks=acks, timeout_ms=timeout_ms, topic_data=[produce.RequestTopic(name=TOPIC, partition_data=[sent])]
    )
    return visitor.ask_later(producing.API, 9, asked, produce.Response)


async def code_of(answer: asyncio.Task[produce.Response]) -> int:
    return (await answer).responses[0].partition_responses[0].error_code


async def consumed(visitor: Visitor, version: int = 12, rack: str = "") -> fetch.ResponsePartition:
    wanted = fetch.RequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = visitor.broker.topics[TOPIC]
    named = fetch.RequestTopic(topic=TOPIC, topic_id=topic.id, partitions=[wanted])
    asked = fetch.Request(max_wait_ms=0, min_bytes=1, topics=[named], rack_id=rack)
    return only(await visitor.ask(fetching.API, version, asked, fetch.Response))


@asynchronous
async def test_acks_all_waits_for_the_follower_and_nobody_reads_before_it_has_the_records() -> None:
    async with two_brokers() as visitor:
        answer = produced(visitor, b"a", b"b")
        assert await code_of(produced(visitor, b"c", acks=1)) == 0
        found = await consumed(visitor)
        assert (found.high_watermark, bytes(found.records or b"")) == (0, b"")
        copied = only(await follower_asks(visitor, 0))
        assert values_of(copied.records) == [b"a", b"b", b"c"], "a follower gets what nobody else may see yet"
        assert not answer.done()
        copied = only(await follower_asks(visitor, 2, last_epoch=0))
        assert await code_of(answer) == 0
        assert copied.high_watermark == 2
        found = await consumed(visitor)
        assert (found.high_watermark, values_of(found.records)) == (2, [b"a", b"b"])


@asynchronous
async def test_a_follower_that_waits_is_told_of_new_records_at_once() -> None:
    async with two_brokers() as visitor:
        waiting = follower_asks(visitor, 0, wait_ms=60_000)
        await tick()
        assert not waiting.done()
        produced(visitor, b"a").cancel()
        assert values_of(only(await waiting).records) == [b"a"]


@asynchronous
async def test_an_answer_whose_time_is_over_tells_so_and_the_records_stay() -> None:
    async with two_brokers() as visitor:
        assert await code_of(produced(visitor, b"a", timeout_ms=1)) == ErrorCode.REQUEST_TIMED_OUT
        assert values_of(only(await follower_asks(visitor, 0)).records) == [b"a"]


@asynchronous
async def test_who_waits_hears_when_another_broker_leads() -> None:
    async with two_brokers() as visitor:
        answer = produced(visitor, b"a")
        await tick()
        partition = visitor.broker.partition(TOPIC, 0)
        partition.take_role(partition.role._replace(leader=OTHER, leader_epoch=1), 0)
        assert await code_of(answer) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@asynchronous
async def test_time_that_runs_out_as_another_takes_over_is_no_success() -> None:
    async with two_brokers() as visitor:
        loop = asyncio.get_running_loop()
        partition = visitor.broker.partition(TOPIC, 0)
        deposed = partition.role._replace(leader=OTHER, leader_epoch=1)
        loop.call_later(0.049, partition.take_role, deposed, 0)
        answer = produced(visitor, b"a", timeout_ms=50)
        deadline = loop.time() + 0.06
        while loop.time() <= deadline:  # both are due in one turn of the loop: first the one, then the other
            pass
        assert await code_of(answer) in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT)


@asynchronous
async def test_acks_all_is_refused_while_too_few_are_in_sync() -> None:
    async with two_brokers(min_insync_replicas="2") as visitor:
        partition = visitor.broker.partition(TOPIC, 0)
        partition.take_role(partition.role._replace(isr=(OWN,), partition_epoch=1), 0)
        assert await code_of(produced(visitor, b"a")) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await code_of(produced(visitor, b"b", acks=1)) == 0
        found = await consumed(visitor)
        assert (found.high_watermark, bytes(found.records or b"")) == (0, b""), "it stands still (KIP-966)"


@pytest.mark.parametrize(("offset", "last_epoch", "told"), [(5, 0, (0, 2)), (2, 3, (0, 2)), (9, 7, (0, 2))])
@asynchronous
async def test_a_follower_with_another_history_is_told_where_the_two_part(
    offset: int, last_epoch: int, told: tuple[int, int]
) -> None:
    async with two_brokers() as visitor:
        visitor.broker.partition(TOPIC, 0).append(batch(b"a", b"b"))
        answer = only(await follower_asks(visitor, offset, last_epoch=last_epoch, wait_ms=60_000))
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == told
        assert not answer.records
        assert visitor.broker.partition(TOPIC, 0).high_watermark == 0, "nothing of it counts"


@asynchronous
async def test_a_new_leader_does_not_say_where_the_end_is_before_it_knows() -> None:
    async with two_brokers() as visitor:
        partition = visitor.broker.partition(TOPIC, 0)
        partition.append(batch(b"a"))
        role = partition.role
        partition.take_role(role._replace(leader=OTHER, leader_epoch=1), 0)
        partition.take_role(role._replace(leader=OWN, leader_epoch=2), 0)
        wanted = list_offsets.RequestPartition(partition_index=0, timestamp=-1)
        asked = list_offsets.Request(topics=[list_offsets.RequestTopic(name=TOPIC, partitions=[wanted])])
        answer = await visitor.ask(listing.API, 7, asked, list_offsets.Response)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE


@asynchronous
async def test_a_follower_takes_no_records_and_gives_those_that_are_committed() -> None:
    async with two_brokers(leader=OTHER) as visitor:
        await until(lambda: 0 in visitor.broker.topics[TOPIC].partitions)
        assert await code_of(produced(visitor, b"a")) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        replica = visitor.broker.replica(TOPIC, 0)
        copy = batch(b"a", b"b")
        replica.replicated(memoryview(copy), 1, 0)
        assert (await consumed(visitor, 10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it does not know of these"
        found = await consumed(visitor)
        assert found.high_watermark == 1
        replica.advanced_to(2)
        assert values_of((await consumed(visitor)).records) == [b"a", b"b"]


@asynchronous
async def test_a_consumer_is_sent_to_the_replica_in_its_rack() -> None:
    async with two_brokers() as visitor:
        visitor.broker.partition(TOPIC, 0).append(batch(b"a"))
        await follower_asks(visitor, 1, last_epoch=0)
        assert (await consumed(visitor, rack="far")).preferred_read_replica == OTHER
        near = await consumed(visitor, rack="elsewhere")
        assert near.preferred_read_replica == -1


@asynchronous
async def test_metadata_names_all_brokers_and_who_leads() -> None:
    async with two_brokers(leader=OTHER) as visitor:
        answer = await visitor.ask(describing.API, 12, metadata.Request(topics=None), metadata.Response)
        assert [(broker.node_id, broker.rack) for broker in answer.brokers] == [(OWN, None), (OTHER, "far")]
        (partition,) = answer.topics[0].partitions
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (
            OTHER,
            [OTHER, OWN],
            [OTHER, OWN],
        )
