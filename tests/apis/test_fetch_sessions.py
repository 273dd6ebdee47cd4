"""Fetch sessions (KIP-227) as clients use them: begun, gone on with, ended, and lost."""

from __future__ import annotations

import pytest

from odradek.apis import fetch as fetching
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import fetch
from odradek.wire.messages.fetch import RequestForgottenTopic, RequestPartition, RequestTopic
from tests.apis.houses import Visitor, visiting
from tests.broker.houses import batch, values_of
from tests.client.support import asynchronous, tick

TOPIC = "orders"
FIRST, WITH_IDS, LAST = 7, 13, 17
EVERY = range(FIRST, LAST + 1)


class Consumer:
    """A client with a session, which remembers what KIP-227 has it remember."""

    def __init__(self, visitor: Visitor, version: int = LAST) -> None:
        self.visitor = visitor
        self.version = version
        self.session_id = 0
        self.epoch = 0

    def request(
        self, *wanted: tuple[int, int], forget: list[int] | None = None, max_wait_ms: int = 0, max_bytes: int = 1 << 20
    ) -> fetch.Request:
        topic_id = self.visitor.broker.topics[TOPIC].id
        named = [
            RequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in wanted
        ]
        return fetch.Request(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[RequestTopic(topic=TOPIC, topic_id=topic_id, partitions=named)] if named else [],
            forgotten_topics_data=(
                [RequestForgottenTopic(topic=TOPIC, topic_id=topic_id, partitions=forget)] if forget else []
            ),
        )

    async def poll(self, *wanted: tuple[int, int], forget: list[int] | None = None, **bounds: int) -> fetch.Response:
        """Fetch; `wanted` are partitions with offsets that are new or have changed."""
        asked = self.request(*wanted, forget=forget, **bounds)
        return self.heard(await self.visitor.ask(fetching.API, self.version, asked, fetch.Response))

    def heard(self, answer: fetch.Response) -> fetch.Response:
        if answer.error_code == 0:
            self.session_id = answer.session_id
            self.epoch = self.epoch + 1 if answer.session_id else 0
        return answer


def told(answer: fetch.Response) -> dict[int, list[bytes | None]]:
    """The partitions that an answer speaks of, with their records."""
    assert answer.error_code == 0
    return {each.partition_index: values_of(each.records) for topic in answer.responses for each in topic.partitions}


@pytest.mark.parametrize("version", EVERY)
@asynchronous
async def test_a_session_tells_everything_first_and_then_only_what_is_new(version: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 3, {})
        await visitor.house.produce(TOPIC, b"a", partition=1)
        consumer = Consumer(visitor, version)
        assert told(await consumer.poll((0, 0), (1, 0), (2, 0))) == {0: [], 1: [b"a"], 2: []}
        assert consumer.session_id > 0
        assert told(await consumer.poll((1, 1))) == {}
        await visitor.house.produce(TOPIC, b"b", partition=2)
        assert told(await consumer.poll()) == {2: [b"b"]}
        assert told(await consumer.poll()) == {2: [b"b"]}, "until the client says that it has gone on"
        assert told(await consumer.poll((2, 1))) == {}


@asynchronous
async def test_a_high_watermark_or_log_start_that_moved_is_news() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        await visitor.house.produce(TOPIC, b"a", b"b")
        consumer = Consumer(visitor)
        await consumer.poll((0, 2))
        visitor.broker.partition(TOPIC, 0).log.delete_records(1).run()
        answer = await consumer.poll()
        assert told(answer) == {0: []}
        assert answer.responses[0].partitions[0].log_start_offset == 1
        assert told(await consumer.poll()) == {}


@pytest.mark.parametrize("version", EVERY)
@asynchronous
async def test_partitions_are_added_and_forgotten(version: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 2, {})
        for index in range(2):
            await visitor.house.produce(TOPIC, b"v", partition=index)
        consumer = Consumer(visitor, version)
        assert told(await consumer.poll((0, 0))) == {0: [b"v"]}
        assert set(told(await consumer.poll((1, 0)))) == {0, 1}
        assert told(await consumer.poll(forget=[0])) == {1: [b"v"]}
        assert told(await consumer.poll((0, 0), forget=[1])) == {0: [b"v"]}


@asynchronous
async def test_an_error_is_told_every_time() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        consumer = Consumer(visitor)
        await consumer.poll((0, 0), (5, 0))
        for _ in range(2):
            answer = await consumer.poll()
            assert [each.error_code for each in answer.responses[0].partitions] == [
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ]


@asynchronous
async def test_a_bounded_answer_does_not_starve_the_partitions_behind() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 3, {})
        for index in range(3):
            await visitor.house.produce(TOPIC, bytes(900), partition=index)
        consumer = Consumer(visitor)
        small = 1000
        first = told(await consumer.poll((0, 0), (1, 0), (2, 0), max_bytes=small))
        seen = [index for index, records in first.items() if records]
        for _ in range(2):
            seen += [index for index, records in told(await consumer.poll(max_bytes=small)).items() if records]
        assert sorted(seen) == [0, 1, 2]


@pytest.mark.parametrize("wrong", [-2, 0, 1, 3, 2**31 - 1])
@asynchronous
async def test_a_wrong_epoch_is_refused_and_the_session_stays(wrong: int) -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        consumer = Consumer(visitor)
        await consumer.poll((0, 0))
        await consumer.poll()
        right, consumer.epoch = consumer.epoch, wrong
        if wrong != 0:  # 0 begins a new session
            answer = await consumer.poll()
            assert (answer.error_code, answer.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
            consumer.epoch = right
            assert (await consumer.poll()).error_code == 0
        else:
            old = consumer.session_id
            assert told(await consumer.poll((0, 0))) == {0: []}
            assert consumer.session_id not in (0, old)
            assert len(visitor.door.sessions) == 1, "the old one is gone"


@asynchronous
async def test_an_unknown_session_is_not_found() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        consumer = Consumer(visitor)
        consumer.session_id, consumer.epoch = 77, 5
        assert (await consumer.poll((0, 0))).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@asynchronous
async def test_the_last_request_ends_the_session_and_is_still_answered() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        await visitor.house.produce(TOPIC, b"a")
        consumer = Consumer(visitor)
        await consumer.poll((0, 0))
        consumer.epoch = -1
        assert told(await consumer.poll((0, 0))) == {0: [b"a"]}
        assert (consumer.session_id, len(visitor.door.sessions)) == (0, 0)


@asynchronous
async def test_a_client_that_gets_no_place_fetches_without_a_session() -> None:
    async with visiting(settings={"max.incremental.fetch.session.cache.slots": 1}) as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        await visitor.house.produce(TOPIC, b"a")
        first, second = Consumer(visitor), Consumer(visitor)
        await first.poll((0, 0))
        for _ in range(2):
            assert told(await second.poll((0, 0))) == {0: [b"a"]}
            assert second.session_id == 0
        visitor.clock.advance(120_001)
        await second.poll((0, 0))
        assert second.session_id > 0, "the first one was silent for too long"
        assert (await first.poll()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@asynchronous
async def test_a_session_waits_for_news_of_partitions_that_it_did_not_name_again() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 2, {"flush": "os"})
        consumer = Consumer(visitor)
        await consumer.poll((0, 0), (1, 0))
        asked = consumer.request(max_wait_ms=60_000)
        fetched = visitor.ask_later(fetching.API, LAST, asked, fetch.Response)
        await tick()
        assert not fetched.done()
        partition = visitor.broker.partition(TOPIC, 1)
        partition.append(batch(b"news"))
        partition.advanced()
        assert told(consumer.heard(await fetched)) == {1: [b"news"]}
        assert told(await consumer.poll((1, 1))) == {}


@asynchronous
async def test_a_topic_that_is_deleted_and_made_again_is_another_one_to_a_session_by_ids() -> None:
    async with visiting() as visitor:
        await visitor.broker.create_topic(TOPIC, 1, {})
        consumer = Consumer(visitor)
        await consumer.poll((0, 0))
        await visitor.broker.delete_topic(TOPIC)
        await visitor.broker.create_topic(TOPIC, 1, {})
        answer = await consumer.poll()
        assert [each.error_code for each in answer.responses[0].partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]
