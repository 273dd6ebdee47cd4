"""A store that is away, slow or strange: publishers are told, nothing acknowledged is lost, nothing stays silent."""

from __future__ import annotations

import asyncio
import logging

import pytest

from odradek.objects.errors import StoreError
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.channel_houses import at_channels, objects_in, stored_in, values
from tests.broker.houses import batch
from tests.client.support import asynchronous, until


@asynchronous
async def test_a_publisher_hears_that_the_store_is_away_and_his_message_is_stored_when_it_is_back() -> None:
    async with at_channels(channel_timeout_ms=150) as house:
        await house.create("clicks", "memory://away")
        store = house.store("memory://away")
        store.away()
        with pytest.raises(PeerError, match=r"memory://away has not answered.*look at the network.*in the log") as told:
            await house.publish("clicks", b"one")
        assert told.value.code is ErrorCode.KAFKA_STORAGE_ERROR and told.value.code.retriable
        store.back()
        await asyncio.wait_for(house.channels.stored(house.partition("clicks"), 1), 10)
        assert await house.publish("clicks", b"two") == (1, 1)
        assert values(stored_in(store, "clicks")) == [b"one", b"two"]


@asynchronous
async def test_while_the_store_is_known_to_be_away_nothing_more_is_taken() -> None:
    async with at_channels(channel_timeout_ms=100) as house:
        await house.create("clicks", "memory://known")
        house.store("memory://known").away()
        assert await refusal(house.publish("clicks", b"one")) is ErrorCode.KAFKA_STORAGE_ERROR
        await until(lambda: house.channels.gauges()[0].away_seconds > 0.1)
        with pytest.raises(PeerError, match="nothing was stored, try again later"):
            await asyncio.wait_for(house.publish("clicks", b"two"), 0.05)
        assert house.partition("clicks").log_end == 1, "what was refused at once is not in the log"


@asynchronous
async def test_beyond_the_backlog_a_publisher_is_refused_at_once() -> None:
    async with at_channels(channel_backlog_bytes=4096) as house:
        await house.create("clicks", "memory://backlog")
        store = house.store("memory://backlog")
        store.away()
        first = asyncio.create_task(house.publish("clicks", bytes(5000)))
        await until(lambda: house.partition("clicks").log_end == 1)
        with pytest.raises(PeerError, match=r"more than channel\.backlog\.bytes = 4096") as told:
            await asyncio.wait_for(house.publish("clicks", b"x"), 0.05)
        assert told.value.code.retriable
        (gauge,) = house.channels.gauges()
        assert gauge.behind_bytes > 5000
        store.back()
        assert await first == (0, 0)
        assert await house.publish("clicks", b"y") == (1, 1)
        assert house.channels.gauges()[0].behind_bytes == 0


@asynchronous
async def test_an_outage_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "odradek.broker.channel_upload")
    async with at_channels() as house:
        await house.create("clicks", "memory://told")
        store = house.store("memory://told")
        store.away()
        publishing = asyncio.create_task(house.publish("clicks", b"one"))
        await until(lambda: house.channels.gauges()[0].failures >= 3)
        assert house.channels.gauges()[0].away_seconds > 0
        store.back()
        await publishing
        told = [(record.levelname, record.getMessage()) for record in caplog.records]
        assert [level for level, _ in told] == ["WARNING", "INFO"]
        assert "clicks-0 is not stored for now" in told[0][1] and "clicks-0 is stored again" in told[1][1]
        assert house.channels.gauges()[0].away_seconds == 0


@pytest.mark.parametrize("failure", [StoreError("you may not"), RuntimeError("a bug"), AssertionError("another")])
def test_whatever_goes_wrong_is_said_and_tried_again(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    @asynchronous
    async def run() -> None:
        async with at_channels() as house:
            url = f"memory://wrong-{type(failure).__name__.lower()}"
            await house.create("clicks", url)
            store = house.store(url)
            store.failure = failure
            publishing = asyncio.create_task(house.publish("clicks", b"one"))
            await until(lambda: house.channels.gauges()[0].failures >= 2)
            assert not house.broker.failed.done()
            assert str(failure) in caplog.text
            store.failure = None
            assert await publishing == (0, 0)
            assert house.channels.gauges()[0].objects == 1

    run()


@asynchronous
async def test_a_store_that_is_away_when_the_broker_starts_is_asked_until_it_answers() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://later")
        stores, disk = {"memory://later": house.store("memory://later")}, house.house.disk
    stores["memory://later"].away()
    async with at_channels(disk=disk, stores=stores) as again:
        publishing = asyncio.create_task(again.publish("clicks", b"one"))
        await until(lambda: again.channels.gauges()[0].failures >= 2)
        stores["memory://later"].back()
        assert await publishing == (0, 0)


@asynchronous
async def test_what_lies_in_the_log_for_a_while_goes_as_one_object_a_slice() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://gathers")
        store = house.store("memory://gathers")
        store.away()
        partition = house.partition("clicks")
        for number in range(50):
            partition.append(batch(b"%d" % number))
        await house.broker.flushed(partition, 50)
        await until(lambda: house.channels.gauges()[0].failures >= 1)
        store.back()
        await asyncio.wait_for(house.channels.stored(partition, 50), 10)
        assert [len(messages) for messages in objects_in(store, "clicks").values()] == [50]


@asynchronous
async def test_only_what_every_replica_in_sync_has_is_stored() -> None:
    async with at_channels() as house:
        await house.create("clicks", "memory://flushed")
        await house.publish("clicks", b"one")
        house.house.disk.may_flush.clear()
        publishing = asyncio.create_task(house.publish("clicks", b"two"))
        await until(lambda: house.house.disk.flushes_begun > 0 and house.partition("clicks").log_end == 2)
        assert values(stored_in(house.store("memory://flushed"), "clicks")) == [b"one"]
        house.house.disk.may_flush.set()
        await publishing
        assert values(stored_in(house.store("memory://flushed"), "clicks")) == [b"one", b"two"]


@asynchronous
async def test_a_store_that_hangs_does_not_keep_the_broker_from_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.broker.channels._CLOSE_SECONDS", 0.2)
    async with at_channels() as house:
        await house.create("clicks", "memory://hangs")
        store = house.store("memory://hangs")
        begun = store.puts_begun
        store.may_put.clear()
        publishing = asyncio.create_task(house.publish("clicks", b"one"))
        await until(lambda: store.puts_begun > begun)
        await asyncio.wait_for(house.channels.close(), 5)
        assert await refusal(publishing) is ErrorCode.BROKER_NOT_AVAILABLE
        assert await refusal(house.publish("clicks", b"two")) is ErrorCode.BROKER_NOT_AVAILABLE


async def refusal(action: object) -> ErrorCode:
    """The error that an awaitable ends with."""
    with pytest.raises(PeerError) as told:
        await action  # type: ignore[misc]
    return told.value.code
