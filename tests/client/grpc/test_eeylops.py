"""Eeylops' client, blocking and async, against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from odradek.client.grpc import AsyncEeylops, AsyncSubscription, Eeylops, EeylopsError, ErrorCodes, Topic, Value
from odradek.clock import SystemClock
from tests.client.support import asynchronous, until_async
from tests.process import BrokerProcess, wait_until


def test_a_script_without_a_loop_does_all_that_the_door_offers(door: str, topic: str) -> None:
    with Eeylops(door) as eeylops:
        made = eeylops.create_topic(topic, partitions=2, ttl_seconds=3600)
        assert made == Topic(made.id, topic, (1, 2), 3600) and made.id > 0
        assert eeylops.get_topic(topic) == made and made in eeylops.get_all_topics()
        eeylops.produce(made, 1, [b"a", b"", b"c"])
        batch = eeylops.consume(made, 1, offset=1)
        assert [(value.offset, value.value) for value in batch.values] == [(1, b""), (2, b"c")]
        assert batch.next_offset == 3 and eeylops.consume(made, 2).values == []
        node = eeylops.leader()
        assert eeylops.broker_of(made, 2) == node and eeylops.cluster_config().nodes == (node,)
        eeylops.remove_topic(made)
        with pytest.raises(EeylopsError) as caught:
            eeylops.produce(made, 1, [b"a"])
        assert caught.value.code == ErrorCodes.TOPIC_NOT_FOUND


def test_errors_have_the_codes_of_the_door_and_its_words(door: str, topic: str) -> None:
    with Eeylops(door) as eeylops:
        made = eeylops.create_topic(topic)
        wrong: dict[ErrorCodes, Callable[[], object]] = {
            ErrorCodes.TOPIC_EXISTS: lambda: eeylops.create_topic(topic),
            ErrorCodes.INVALID_ARG: lambda: eeylops.create_topic("no/name"),
            ErrorCodes.PARTITION_NOT_FOUND: lambda: eeylops.produce(made, 2, [b"a"]),
            ErrorCodes.CONSUMER_NOT_REGISTERED: lambda: eeylops.commit("nobody", made, 1, 0),
            ErrorCodes.TOPIC_NOT_FOUND: lambda: eeylops.get_topic(f"{topic}_not"),
        }
        for code, call in wrong.items():
            with pytest.raises(EeylopsError) as caught:
                call()
            assert (caught.value.code, caught.value.leader_id) == (code, -1) and caught.value.text


def test_values_are_read_by_offset_by_time_and_from_the_last_commit(door: str, topic: str) -> None:
    clock = SystemClock()  # of the broker, too: it is on the same machine
    with Eeylops(door) as eeylops:
        made = eeylops.create_topic(topic)
        for value in (b"a", b"b", b"c"):
            eeylops.produce(made, 1, [value])
            times = [found.timestamp for found in eeylops.consume(made, 1).values]
            wait_until(lambda: clock.now_ms() > times[-1], 30, "the next millisecond")  # noqa: B023
        assert [value.value for value in eeylops.consume(made, 1, since_ms=times[1]).values] == [b"b", b"c"]
        assert [value.value for value in eeylops.consume(made, 1, since_ms=times[0], until_ms=times[2]).values] == [
            b"a",
            b"b",
        ]
        eeylops.register("reader", made, 1)
        assert eeylops.last_committed("reader", made, 1) == -1
        first = eeylops.consume(made, 1, consumer="reader", batch_size=2, auto_commit=True)
        assert [value.value for value in first.values] == [b"a", b"b"] and first.next_offset == 2
        assert eeylops.last_committed("reader", made, 1) == 2
        assert [value.value for value in eeylops.consume(made, 1, consumer="reader").values] == [b"c"]
        eeylops.commit("reader", made, 1, 0)
        assert eeylops.last_committed("reader", made, 1, sync=False) == 0


def test_a_publisher_stores_all_in_order_and_a_subscriber_reads_them(door: str, topic: str) -> None:
    with Eeylops(door) as eeylops:
        made = eeylops.create_topic(topic)
        sent = [b"%d" % number for number in range(20_000)]
        with eeylops.publisher(made, 1) as out:
            for value in sent:
                out.send(value)
        assert out.stored == 20_000
        got: list[bytes] = []
        for read in eeylops.subscribe(made, 1, offset=5):
            got.append(read.value)
            if len(got) == 19_995:
                break
        assert got == sent[5:]


def test_a_single_value_is_on_its_way_without_a_flush(door: str, topic: str) -> None:
    with Eeylops(door) as eeylops:
        made = eeylops.create_topic(topic)
        with eeylops.publisher(made, 1) as out:
            out.send(b"alone")
            wait_until(lambda: out.stored == 1, 30, "that it is stored")
            out.send(b"next")
            out.flush()
            assert out.stored == 2


def test_a_publisher_to_a_topic_that_is_gone_says_so(door: str, topic: str) -> None:
    with Eeylops(door) as eeylops:
        made = eeylops.create_topic(topic)
        eeylops.remove_topic(made)
        with pytest.raises(EeylopsError) as caught, eeylops.publisher(made, 1) as out:
            out.send(b"a")
        assert caught.value.code == ErrorCodes.TOPIC_NOT_FOUND


def test_a_loop_that_outlives_its_client_ends_quietly(door: str, topic: str) -> None:
    with Eeylops(door) as eeylops:
        made = eeylops.create_topic(topic)
        eeylops.produce(made, 1, [b"a", b"b"])
        values = eeylops.subscribe(made, 1, consumer="long", auto_commit=True)
        assert [next(values).value, next(values).value] == [b"a", b"b"]
    del values
    with Eeylops(door) as eeylops:
        assert eeylops.last_committed("long", made, 1) == 1


def test_a_reader_that_fails_sees_the_value_that_it_failed_at_again(door: str, topic: str) -> None:
    with Eeylops(door) as eeylops:
        made = eeylops.create_topic(topic)
        eeylops.produce(made, 1, [b"a", b"b", b"c", b"d"])

        def read(until: bytes) -> list[bytes]:
            seen = []
            for value in eeylops.subscribe(made, 1, consumer="worker", auto_commit=True):
                if value.value == until:
                    raise KeyError(value.value)
                seen.append(value.value)
            return seen

        with pytest.raises(KeyError):
            read(b"c")
        assert eeylops.last_committed("worker", made, 1) == 2
        again = next(iter(eeylops.subscribe(made, 1, consumer="worker")))
        assert (again.offset, again.value) == (2, b"c")


@asynchronous
async def test_what_was_handled_is_committed_while_nothing_new_comes(process: BrokerProcess, topic: str) -> None:
    async with AsyncEeylops(process.grpc) as eeylops:
        made = await eeylops.create_topic(topic)
        await eeylops.produce(made, 1, [b"a", b"b"])
        async with eeylops.subscribe(made, 1, consumer="quiet", auto_commit=True) as subscription:
            got = [await anext(subscription), await anext(subscription)]
            assert [value.value for value in got] == [b"a", b"b"]
            waiting = asyncio.create_task(next_of(subscription))

            async def is_committed() -> bool:
                return await eeylops.last_committed("quiet", made, 1) == 2

            await until_async(is_committed)
            await eeylops.produce(made, 1, [b"c"])
            assert (await waiting).value == b"c"
        assert await eeylops.last_committed("quiet", made, 1) == 2


async def next_of(subscription: AsyncSubscription) -> Value:
    return await anext(subscription)


@asynchronous
async def test_a_subscription_with_an_end_ends(process: BrokerProcess, topic: str) -> None:
    async with AsyncEeylops(process.grpc) as eeylops:
        made = await eeylops.create_topic(topic)
        await eeylops.produce(made, 1, [b"a", b"b"])
        last = (await eeylops.consume(made, 1)).values[-1].timestamp
        async with eeylops.subscribe(made, 1, until_ms=last + 1) as subscription:
            assert [value.value async for value in subscription] == [b"a", b"b"]


@asynchronous
async def test_arguments_that_cannot_be_are_refused_before_anything_is_sent(process: BrokerProcess) -> None:
    async with AsyncEeylops(process.grpc) as eeylops:
        with pytest.raises(ValueError, match="at least one partition"):
            await eeylops.create_topic("t", partitions=0)
        with pytest.raises(ValueError, match="not at both"):
            eeylops.subscribe(1, 1, offset=1, since_ms=1)
        with pytest.raises(ValueError, match="not negative"):
            await eeylops.consume(1, 1, offset=-1)
        with pytest.raises(ValueError, match="needs a consumer"):
            eeylops.subscribe(1, 1, auto_commit=True)
        with pytest.raises(RuntimeError, match="the publisher is not open"):
            await eeylops.publisher(1, 1).send(b"a")
