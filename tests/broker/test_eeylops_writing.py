"""Streams of values for Eeylops: joined, in order, bounded, and ended by the first that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from odradek.broker.eeylops_topics import EeylopsTopics, PartitionNotFound
from odradek.broker.eeylops_writing import VALUES_MAX, EeylopsWriting, PublishError, PublishStream, Request
from odradek.model import TopicPartition
from odradek.records.header import iter_headers
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.houses import House, at_home, values_of
from tests.client.support import asynchronous, tick, until

BYTES_MAX = 64 << 10


class Stage:
    """A topic of two partitions, and a stream that the test feeds."""

    def __init__(self, house: House, bytes_max: int = BYTES_MAX) -> None:
        self.house = house
        self.writing = EeylopsWriting(house.broker, EeylopsTopics(house.broker))
        self.stream = PublishStream(self.writing, bytes_max)
        self.given = 0  # how many requests the stream has taken
        self._more: asyncio.Queue[Request | None] = asyncio.Queue()

    async def create(self, name: str, **overrides: str) -> int:
        await self.house.broker.create_topic(name, 2, {key.replace("_", "."): each for key, each in overrides.items()})
        return self.house.broker.metadata.image.topics[name].number

    def send(self, topic: int, partition: int, *values: bytes) -> None:
        self._more.put_nowait(Request(topic, partition, values, sum(map(len, values))))

    def end(self) -> None:
        self._more.put_nowait(None)

    async def requests(self) -> AsyncIterator[Request]:
        while (request := await self._more.get()) is not None:
            self.given += 1
            yield request

    def run(self) -> asyncio.Task[int]:
        return asyncio.create_task(self.stream.run(self.requests()))

    def batches(self, name: str, partition: int = 0) -> int:
        return sum(1 for _ in iter_headers(self._data(name, partition)))

    def stored(self, name: str, partition: int = 0) -> list[bytes | None]:
        return values_of(self._data(name, partition))

    def _data(self, name: str, partition: int) -> bytes:
        log = self.house.broker.partition(name, partition).log
        chunk = log.read(0, 1 << 30)
        assert chunk is not None
        return bytes(chunk.data)


@asynchronous
async def test_all_that_comes_is_stored_in_order_and_counted() -> None:
    async with at_home() as house:
        stage = Stage(house)
        topic = await stage.create("orders")
        running = stage.run()
        for number in range(300):
            stage.send(topic, number % 2 + 1, b"%d a" % number, b"%d b" % number)
        stage.end()
        assert await running == 300
        for partition in range(2):
            mine = [number for number in range(300) if number % 2 == partition]
            assert stage.stored("orders", partition) == [
                b"%d %b" % (number, each) for number in mine for each in (b"a", b"b")
            ]


@asynchronous
async def test_requests_that_come_while_a_flush_is_under_way_are_joined() -> None:
    async with at_home() as house:
        stage = Stage(house)
        topic = await stage.create("orders")
        house.disk.may_flush.clear()
        running = stage.run()
        stage.send(topic, 1, b"first")
        await until(lambda: house.disk.flushes_begun > 0)
        for number in range(100):
            stage.send(topic, 1, b"%d" % number)
        stage.end()
        await until(lambda: stage.given == 101)
        assert stage.batches("orders") == 1, "they wait"
        assert not running.done(), "nothing is safe yet"
        house.disk.may_flush.set()
        assert await running == 101
        assert stage.batches("orders") == 2, "one append for all that waited"
        assert stage.stored("orders") == [b"first", *(b"%d" % number for number in range(100))]


@asynchronous
async def test_a_stream_does_not_wait_for_safety_to_append_more_and_holds_no_more_than_its_bound() -> None:
    async with at_home(max_message_bytes=4 << 20) as house:
        stage = Stage(house, bytes_max=1 << 20)
        topic = await stage.create("orders")
        house.disk.may_flush.clear()
        running = stage.run()
        for _ in range(100):
            stage.send(topic, 1, bytes(100 << 10))
        stage.end()
        await until(lambda: stage.given >= 10)
        for _ in range(5):  # turns in which it could take more
            await tick()
        assert stage.given == 11, "a MiB and what brought it there"
        assert len(stage.stored("orders")) > 1, "appended, though nothing is safe"
        house.disk.may_flush.set()
        assert await running == 100
        assert len(stage.stored("orders")) == 100


Spoil = Callable[[Stage, int], None]
SPOILERS: Sequence[tuple[Spoil, ErrorCode]] = (
    (lambda stage, topic: stage.send(topic, 1), ErrorCode.INVALID_REQUEST),
    (lambda stage, topic: stage.send(topic, 1, *[b""] * (VALUES_MAX + 1)), ErrorCode.INVALID_REQUEST),
    (lambda stage, topic: stage.send(topic, 1, b"small", bytes(3000)), ErrorCode.MESSAGE_TOO_LARGE),
    (lambda stage, topic: stage.send(topic, 3, b"x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (lambda stage, topic: stage.send(topic, 0, b"x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (lambda stage, topic: stage.send(topic + 1, 1, b"x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (lambda stage, topic: stage.send(-1, 1, b"x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
)


@pytest.mark.parametrize(("spoil", "code"), SPOILERS)
@pytest.mark.parametrize("is_joined", [False, True])
@asynchronous
async def test_a_request_that_fails_ends_the_stream_behind_those_before_it(
    spoil: Spoil, code: ErrorCode, is_joined: bool
) -> None:
    async with at_home() as house:
        stage = Stage(house)
        topic = await stage.create("orders", max_message_bytes="2000")
        running = stage.run()
        if is_joined:
            house.disk.may_flush.clear()
        stage.send(topic, 1, b"one")
        stage.send(topic, 2, b"two")
        if is_joined:
            await until(lambda: house.disk.flushes_begun > 0)
        stage.send(topic, 1, b"three")
        spoil(stage, topic)
        stage.send(topic, 1, b"behind it")
        stage.send(topic, 2, b"behind it")
        await until(lambda: stage.given >= 4)
        house.disk.may_flush.set()
        with pytest.raises(PublishError) as failed:
            await running
        assert (failed.value.error.code, failed.value.stored) == (code, 3)
        assert stage.stored("orders", 0) == [b"one", b"three"]
        assert stage.stored("orders", 1) == [b"two"]


@asynchronous
async def test_a_topic_that_goes_ends_the_stream_and_its_name_gets_nothing() -> None:
    async with at_home() as house:
        stage = Stage(house)
        topic = await stage.create("orders")
        running = stage.run()
        stage.send(topic, 1, b"old")
        await until(lambda: stage.stream.stored == 1)
        await house.broker.delete_topic("orders")
        again = await stage.create("orders")
        assert again == topic + 1, "an id is not used again"
        stage.send(topic, 1, b"for the old one")
        with pytest.raises(PublishError) as failed:
            await running
        assert (failed.value.error.code, failed.value.stored) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1)
        assert stage.stored("orders") == []


@asynchronous
async def test_what_is_under_way_when_its_topic_is_deleted_hears_of_it() -> None:
    async with at_home() as house:
        stage = Stage(house)
        topic = await stage.create("orders")
        running = stage.run()
        house.disk.may_flush.clear()
        stage.send(topic, 1, b"not safe yet")
        await until(lambda: stage.given == 1)
        await until(lambda: house.disk.flushes_begun > 0)
        deleting = asyncio.create_task(house.broker.delete_topic("orders"))
        with pytest.raises(PublishError) as failed:
            await running
        assert (failed.value.error.code, failed.value.stored) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
        assert TopicPartition("orders", 0) in house.broker.store.logs, "the loop went on: its flush is not over yet"
        house.disk.may_flush.set()
        await deleting
        assert TopicPartition("orders", 0) not in house.broker.store.logs


@asynchronous
async def test_a_stream_that_is_given_up_leaves_what_was_appended() -> None:
    async with at_home() as house:
        stage = Stage(house)
        topic = await stage.create("orders")
        running = stage.run()
        stage.send(topic, 1, b"stays")
        await until(lambda: stage.stream.stored == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert stage.stored("orders") == [b"stays"]


@asynchronous
async def test_a_stream_without_a_request_is_stored_at_once() -> None:
    async with at_home() as house:
        stage = Stage(house)
        stage.end()
        assert await stage.run() == 0


@asynchronous
async def test_what_the_reader_meets_reaches_the_caller_behind_what_came_before() -> None:
    async with at_home() as house:
        stage = Stage(house)
        topic = await stage.create("orders")

        async def broken() -> AsyncIterator[Request]:
            yield Request(topic, 1, [b"before"], 6)
            raise ValueError("this is no message")

        with pytest.raises(ValueError, match="no message"):
            await stage.stream.run(broken())
        assert (stage.stream.stored, stage.stored("orders")) == (1, [b"before"])


@asynchronous
async def test_one_request_is_stored_as_one_batch_and_a_large_one_as_several() -> None:
    async with at_home() as house:
        stage = Stage(house)
        topic = await stage.create("orders", max_message_bytes="2000")
        await stage.writing.produce(Request(topic, 2, [b"a", b"", b"c"], 3), 1000)
        assert (stage.batches("orders", 1), stage.stored("orders", 1)) == (1, [b"a", b"", b"c"])
        await stage.writing.produce(Request(topic, 1, [bytes(900)] * 4, 3600), 1000)
        assert (stage.batches("orders"), stage.stored("orders")) == (2, [bytes(900)] * 4)


@asynchronous
async def test_a_failing_append_is_heard_in_its_turn() -> None:
    async with at_home() as house:
        stage = Stage(house)
        topic = await stage.create("orders", min_insync_replicas="2")
        with pytest.raises(PeerError) as refused:
            await stage.writing.produce(Request(topic, 1, [b"x"], 1), 1000)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        with pytest.raises(PartitionNotFound):
            await stage.writing.produce(Request(topic, 9, [b"x"], 1), 1000)
        running = stage.run()
        stage.send(topic, 1, b"x")
        with pytest.raises(PublishError) as failed:
            await running
        assert (failed.value.error.code, failed.value.stored) == (ErrorCode.NOT_ENOUGH_REPLICAS, 0)
