"""Batches that an idempotent producer sent behind one that was refused, before it knew: they are refused likewise.

To say that they are out of order would be true as well. But librdkafka answers that with a new epoch for all partitions
at once, under which it sends again what may be stored already: a record was there twice, as in the last test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from odradek.apis import fetch as fetching
from odradek.apis import produce as producing
from odradek.apis.table import APIS
from odradek.broker.refusals import COUNT_MAX, KEEP_MS
from odradek.edge.kafka import KafkaServer
from odradek.metrics import DoorStats
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import fetch, produce
from tests.apis.houses import Visitor, visiting
from tests.broker.houses import values_of
from tests.client.support import asynchronous, until
from tests.log.support import batch

TOPIC, OWN, OTHER = "orders", 1, 2
LONG = {"broker.session.timeout.ms": "10m"}  # nobody is heard of, and nobody is fenced for it
NONE, TOO_FEW, OUT_OF_ORDER = ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
NOT_LEADER, UNKNOWN = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Pair:
    """A broker, and one that the test stands for; a topic with replicas on both."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor = visitor
        self.now_ms = 0
        self.sent: list[produce.Request] = []

    async def create_topic(self) -> None:
        replicas = {str(index): [OWN, OTHER] for index in range(2)}
        await self.visitor.broker.change_topic(TOPIC, 2, {"min.insync.replicas": "2"}, -1, replicas)

    def become(self, index: int = 0, **role: Any) -> None:
        """Give a partition another role."""
        partition = self.visitor.broker.replica(TOPIC, index)
        partition.take_role(partition.role._replace(partition_epoch=partition.role.partition_epoch + 1, **role), 0)

    def end(self, index: int) -> int:
        return self.visitor.broker.replica(TOPIC, index).log.next_offset

    def values(self, index: int = 0) -> list[bytes | None]:
        chunk = self.visitor.broker.replica(TOPIC, index).log.read(0, 1 << 20)
        return [] if chunk is None else values_of(chunk.data)

    async def follow(self) -> None:
        """Let the other broker have all that is there."""
        topic = self.visitor.broker.topics[TOPIC]
        wanted = [
            fetch.RequestPartition(
                partition=index,
                fetch_offset=self.end(index),
                partition_max_bytes=1 << 20,
                current_leader_epoch=topic.partitions[index].leader_epoch,
            )
            for index in topic.partitions
        ]
        asked = fetch.Request(
            replica_state=fetch.RequestReplicaState(replica_id=OTHER, replica_epoch=1),
            topics=[fetch.RequestTopic(topic_id=topic.id, partitions=wanted)],
        )
        await self.visitor.ask(fetching.API, 17, asked, fetch.Response)

    async def send(self, sequence: int, *, producer: int = 5, epoch: int = 0, acks: int = -1) -> int:
        """One record of an idempotent producer, and what it is told."""
        records = batch(b"%d" % sequence, producer=(producer, epoch, sequence))
        parts = [produce.RequestPartition(index=0, records=records)]
        asked = produce.Request(
            acks=acks, timeout_ms=60_000, topic_data=[produce.RequestTopic(name=TOPIC, partition_data=parts)]
        )
        answer = self.visitor.ask_later(producing.API, 9, asked, produce.Response)
        if TOPIC in self.visitor.broker.topics:
            await self.follow()
        return (await answer).responses[0].partition_responses[0].error_code

    async def codes(self, *sequences: int) -> list[int]:
        return [await self.send(sequence) for sequence in sequences]


@asynccontextmanager
async def pair(monkeypatch: pytest.MonkeyPatch, *, topic: bool = True) -> AsyncIterator[Pair]:
    async with visiting(settings=LONG) as visitor:
        call = visitor.broker.metadata.call
        other = {"broker_id": OTHER, "incarnation": "other", "kafka": ["127.0.0.1", 9], "http": None, "rack": None}
        epoch = (await call("register-broker", other))["broker_epoch"]
        beat = {"broker_id": OTHER, "broker_epoch": epoch, "applied_offset": epoch + 1}
        await call("heartbeat", {**beat, "wants_shutdown": False, "wants_fence": False})
        house = Pair(visitor)
        monkeypatch.setattr(visitor.broker, "monotonic_ms", lambda: house.now_ms)
        if topic:
            await house.create_topic()
        yield house


@pytest.mark.parametrize("known", [False, True])
@asynchronous
async def test_what_was_sent_behind_a_refused_batch_is_refused_likewise(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """To a producer of which nothing is known, a later batch would even be taken, and the first never again."""
    async with pair(monkeypatch) as house:
        first = await house.codes(0, 1) if known else []
        n = len(first)
        house.become(isr=(OWN,))
        assert await house.codes(n) == [TOO_FEW]
        house.become(isr=(OWN, OTHER))
        assert await house.codes(n + 1, n + 2) == [TOO_FEW, TOO_FEW]
        assert await house.codes(n, n + 1, n + 2) == [NONE, NONE, NONE]
        assert house.values() == [b"%d" % number for number in range(n + 3)]


@asynchronous
async def test_the_same_when_leadership_comes_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as house:
        await house.codes(0)
        house.become(leader=OTHER, leader_epoch=1)
        assert await house.codes(1, 2) == [NOT_LEADER, NOT_LEADER]
        house.become(leader=OWN, leader_epoch=2)
        assert await house.codes(3) == [NOT_LEADER]
        assert await house.codes(1, 2, 3) == [NONE, NONE, NONE]


@asynchronous
async def test_the_same_when_the_topic_comes_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch, topic=False) as house:
        assert await house.codes(0) == [UNKNOWN]
        await house.create_topic()
        assert await house.codes(1, 0, 1) == [UNKNOWN, NONE, NONE]


@asynchronous
async def test_the_same_in_a_new_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as house:
        await house.codes(0, 1)
        house.become(isr=(OWN,))
        assert await house.send(0, epoch=1) == TOO_FEW
        house.become(isr=(OWN, OTHER))
        assert await house.send(1, epoch=1) == TOO_FEW
        assert await house.send(2, epoch=0) == NONE, "it is the other epoch's that is missing"
        assert [await house.send(number, epoch=1) for number in (0, 1)] == [NONE, NONE]
        assert await house.send(3, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH


@asynchronous
async def test_the_same_where_the_numbers_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    last = 2**31 - 1
    async with pair(monkeypatch) as house:
        await house.codes(last - 1)
        house.become(isr=(OWN,))
        assert await house.codes(last) == [TOO_FEW]
        house.become(isr=(OWN, OTHER))
        assert await house.codes(0, last - 1, last, 0) == [TOO_FEW, NONE, NONE, NONE]


@asynchronous
async def test_any_other_gap_is_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as house:
        await house.codes(0, 1)
        await house.send(0, producer=6)
        house.become(isr=(OWN,))
        assert await house.codes(2, 3) == [TOO_FEW, TOO_FEW]
        house.become(isr=(OWN, OTHER))
        assert await house.send(9, producer=6) == OUT_OF_ORDER, "nothing of this producer was refused"
        assert await house.codes(0) == [NONE], "a batch from before is there already"
        assert await house.codes(2, 3, 9) == [NONE, NONE, OUT_OF_ORDER], "all that was refused is here now"


@asynchronous
async def test_a_refusal_counts_for_as_long_as_something_can_be_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as house:
        await house.codes(0)
        house.become(isr=(OWN,))
        assert await house.codes(1) == [TOO_FEW]
        house.become(isr=(OWN, OTHER))
        house.now_ms += KEEP_MS
        assert await house.codes(2) == [TOO_FEW]
        house.now_ms += 1
        assert await house.codes(2) == [OUT_OF_ORDER], "it is not waited for, or a wrong client would never be told"


@asynchronous
async def test_of_strangers_not_everything_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as house:
        refusals = house.visitor.broker.refusals
        house.become(isr=(OWN,))
        for number in range(COUNT_MAX + 1):
            assert await house.send(0, producer=number) == TOO_FEW
        assert len(refusals) == COUNT_MAX
        house.become(isr=(OWN, OTHER))
        assert [await house.send(1, producer=number) for number in (0, 1)] == [NONE, TOO_FEW], "the oldest is gone"
        house.now_ms += KEEP_MS + 1
        assert await house.send(0, producer=7) == NONE
        assert not refusals


@asynchronous
async def test_what_has_no_number_or_gets_no_answer_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as house:
        house.become(leader=OTHER, leader_epoch=1)
        assert await house.send(-1, producer=-1, epoch=-1) == NOT_LEADER
        assert await house.send(0, acks=1) == NOT_LEADER
        assert not house.visitor.broker.refusals


@asynchronous
async def test_what_was_written_elsewhere_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch) as house:
        await house.codes(0)
        house.become(leader=OTHER, leader_epoch=1)
        assert await house.codes(1) == [NOT_LEADER]
        log = house.visitor.broker.replica(TOPIC, 0).log
        log.append(batch(b"1", producer=(5, 0, 1)), 1)
        house.become(leader=OWN, leader_epoch=2)
        assert await house.codes(2) == [NONE]


@asynchronous
async def test_librdkafka_writes_every_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers of partition 0 wait behind one of partition 1, which times out: stored, and nobody knows."""
    async with pair(monkeypatch) as house, door(house) as bootstrap:
        told: list[KafkaError | None] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            told.append(error)

        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "request.timeout.ms": 1_000,
                "retry.backoff.ms": 10,
                "log_level": 0,
            }
        )

        async def send(value: bytes, index: int) -> None:
            count = len(house.sent)
            producer.produce(TOPIC, value, partition=index, on_delivery=delivered)
            await until(lambda: len(house.sent) > count)

        async def deliver() -> None:
            while producer.flush(0):
                await house.follow()
                await asyncio.to_thread(producer.poll, 0.01)

        await send(b"a", 0)
        await deliver()
        await send(b"x", 1)
        house.become(isr=(OWN,))
        await send(b"b", 0)
        house.become(isr=(OWN, OTHER))
        await send(b"c", 0)
        await until(lambda: len(house.sent) > 4)
        await deliver()
        assert told == [None] * 4
        assert (house.values(0), house.values(1)) == ([b"a", b"b", b"c"], [b"x"])


@asynccontextmanager
async def door(house: Pair) -> AsyncIterator[str]:
    """A real door, which notes what is sent through it."""
    api = producing.API

    def handle(context: Any, request: produce.Request) -> Any:
        house.sent.append(request)
        return api.handle(context, request)

    config = house.visitor.house.settings.kafka_door_config()
    server = KafkaServer(config, {**APIS, int(ApiKey.PRODUCE): api._replace(handle=handle)}, DoorStats())
    host, port = await server.listen("127.0.0.1", 0)
    await server.open(replace(house.visitor.door, host=host, port=port))
    try:
        yield f"{host}:{port}"
    finally:
        await server.close()
