"""Eeylops' client when brokers do not lead, go away or break in the middle. The doors are made up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import grpc
import pytest

from odradek.client import BrokerUnavailableError
from odradek.client.grpc import AsyncEeylops, EeylopsError, ErrorCodes
from odradek.proto import eeylops_pb2 as pb
from tests.client.grpc.scripted import NOBODY, OK, Door, address, doors, values
from tests.client.support import asynchronous, until


@asynchronous
async def test_the_leader_that_an_answer_names_is_followed() -> None:
    async with doors(2) as (first, second), AsyncEeylops(address(first)) as eeylops:
        await eeylops.produce(7, 1, [b"a"])
        first.nodes.leader = 2
        await eeylops.produce(7, 1, [b"b"])
        await eeylops.produce(7, 1, [b"c"])
        assert first.nodes.stored == [b"a", b"b", b"c"]
        assert (first.asked, second.asked) == (["GetBroker", "Produce", "Produce"], ["Produce", "Produce"])


@asynchronous
async def test_a_partition_without_a_leader_is_waited_for() -> None:
    async with doors(1) as (door,), AsyncEeylops(address(door)) as eeylops:
        door.nodes.next_leaders = [NOBODY, NOBODY, 1]
        await eeylops.produce(7, 1, [b"a"])
        assert door.nodes.stored == [b"a"]


@asynchronous
async def test_who_never_gets_a_leader_hears_so_at_the_deadline() -> None:
    async with doors(1) as (door,), AsyncEeylops(address(door), timeout_s=2) as eeylops:
        door.nodes.leader = NOBODY
        with pytest.raises(EeylopsError, match="nobody leads partition 1") as caught:
            await eeylops.produce(7, 1, [b"a"])
        assert (caught.value.code, caught.value.leader_id) == (ErrorCodes.NOT_LEADER, NOBODY)


@asynchronous
async def test_a_broker_that_is_not_there_is_passed_over() -> None:
    async with doors(1) as (door,), AsyncEeylops(["127.0.0.1:1", address(door)]) as eeylops:
        await eeylops.produce(7, 1, [b"a"])
        assert door.nodes.stored == [b"a"]
        assert (await eeylops.get_topic("t")).id == 7


@asynchronous
async def test_nobody_at_all_is_an_error_with_the_address() -> None:
    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:1 cannot be reached"):
        async with AsyncEeylops("127.0.0.1:1", timeout_s=0.5):
            pass


@asynchronous
async def test_a_topic_that_was_made_by_a_call_whose_answer_was_lost_is_ours() -> None:
    async with doors(1) as (door,), AsyncEeylops(address(door)) as eeylops:
        calls = count()

        async def create(_: Door, context: Any) -> pb.Error:
            if next(calls) == 0:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
            return pb.Error(error_code=pb.KErrTopicExists, error_msg="it exists", leader_id=NOBODY)

        door.create = create
        assert (await eeylops.create_topic("t")).id == 7
        with pytest.raises(EeylopsError, match="it exists"):
            await eeylops.create_topic("t")


@asynchronous
async def test_a_topic_that_was_removed_by_a_call_whose_answer_was_lost_is_removed() -> None:
    async with doors(1) as (door,), AsyncEeylops(address(door)) as eeylops:
        calls = count()

        async def remove(_: Door, context: Any) -> pb.Error:
            if next(calls) == 0:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
            return pb.Error(error_code=pb.KErrTopicNotFound, error_msg="there is none", leader_id=NOBODY)

        door.remove = remove
        await eeylops.remove_topic(7)
        with pytest.raises(EeylopsError, match="there is none"):
            await eeylops.remove_topic(7)


# Publish.


@asynchronous
async def test_what_a_failed_stream_has_stored_is_not_sent_again() -> None:
    async with doors(2) as (first, second), AsyncEeylops(address(first)) as eeylops:

        async def move_away(door: Door, requests: AsyncIterator[pb.ProduceRequest], context: Any) -> pb.Error:
            taken = 0
            async for request in requests:
                door.nodes.stored.extend(request.values)
                taken += 1
                if taken == 2:
                    break
            door.nodes.leader = 2
            context.set_trailing_metadata((("odradek-stored", "2"),))
            return pb.Error(error_code=pb.KErrNotLeader, error_msg="moved", leader_id=2)

        first.publish = move_away
        sent = [b"%d" % number for number in range(5_000)]
        async with eeylops.publisher(7, 1) as out:
            await out.send_many(sent)
        assert (first.nodes.stored, out.stored) == (sent, 5_000)
        assert (first.asked.count("Publish"), second.asked) == (1, ["Publish"])


@asynchronous
async def test_what_a_broken_stream_has_not_confirmed_is_sent_again() -> None:
    async with doors(1) as (door,), AsyncEeylops(address(door)) as eeylops:
        calls = count()

        async def break_once(door: Door, requests: AsyncIterator[pb.ProduceRequest], context: Any) -> pb.Error:
            if next(calls) == 0:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
            async for request in requests:
                door.nodes.stored.extend(request.values)
            return OK

        door.publish = break_once
        told: list[int] = []
        async with eeylops.publisher(7, 1, on_stored=told.append) as out:
            await out.send(b"a")
            await out.flush()
            assert (out.stored, told) == (1, [1])
        assert door.nodes.stored == [b"a"]


@asynchronous
async def test_a_publisher_that_cannot_go_on_says_why_and_stays_so() -> None:
    async with doors(1) as (door,), AsyncEeylops(address(door)) as eeylops:

        async def refuse(*_: Any) -> pb.Error:
            return pb.Error(error_code=pb.KErrTopicNotFound, error_msg="there is no topic 7", leader_id=NOBODY)

        door.publish = refuse
        out = eeylops.publisher(7, 1)
        await out.start()
        await out.send(b"a")
        with pytest.raises(EeylopsError, match="there is no topic 7"):
            await out.flush()
        with pytest.raises(EeylopsError, match="there is no topic 7"):
            await out.send(b"b")
        with pytest.raises(EeylopsError, match="there is no topic 7"):
            await out.close()
        assert out.stored == 0


@asynchronous
async def test_the_end_of_a_publisher_that_failed_before_it_is_no_success() -> None:
    async with doors(1) as (door,), AsyncEeylops(address(door)) as eeylops:

        async def refuse(*_: Any) -> pb.Error:
            return pb.Error(error_code=pb.KErrTopicNotFound, error_msg="there is no topic 7", leader_id=NOBODY)

        door.publish = refuse
        with pytest.raises(EeylopsError, match="there is no topic 7"):
            async with eeylops.publisher(7, 1) as out:
                await out.send(b"a")
                await until(lambda: out.error is not None)
        with pytest.raises(KeyError):  # the caller's own error is the one that counts
            async with eeylops.publisher(7, 1) as out:
                await out.send(b"a")
                raise KeyError


@asynchronous
async def test_what_was_sent_before_the_caller_failed_is_stored() -> None:
    async with doors(1) as (door,), AsyncEeylops(address(door)) as eeylops:
        with pytest.raises(KeyError):
            async with eeylops.publisher(7, 1) as out:
                await out.send(b"a")
                raise KeyError
        assert door.nodes.stored == [b"a"]


@asynchronous
async def test_who_sends_more_than_is_stored_waits() -> None:
    async with doors(1) as (door,), AsyncEeylops(address(door)) as eeylops:
        sent = [bytes(100_000) for _ in range(150)]
        async with eeylops.publisher(7, 1) as out:
            for value in sent:
                await out.send(value)
                assert out.held_bytes < 5 << 20
        assert len(door.nodes.stored) == out.stored == 150


# Subscribe.


@asynchronous
async def test_a_subscription_goes_on_where_it_was_at_the_next_leader() -> None:
    async with doors(2) as (first, second), AsyncEeylops(address(first)) as eeylops:

        async def two_then_moved(door: Door, *_: Any) -> AsyncIterator[pb.ConsumeResponse]:
            yield values(0, b"a", b"b")
            door.nodes.leader = 2
            yield pb.ConsumeResponse(error=pb.Error(error_code=pb.KErrNotLeader, error_msg="moved", leader_id=2))

        async def one_then_gone(door: Door, _: Any, context: Any) -> AsyncIterator[pb.ConsumeResponse]:
            yield values(2, b"c")
            door.subscribe = the_rest
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

        async def the_rest(*_: Any) -> AsyncIterator[pb.ConsumeResponse]:
            yield values(3, b"d")

        first.subscribe, second.subscribe = two_then_moved, one_then_gone
        async with eeylops.subscribe(7, 1, until_ms=9) as subscription:
            got = [(value.offset, value.value) async for value in subscription]
        assert got == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
        assert "Subscribe 0" in first.asked
        assert [asked for asked in second.asked if asked != "GetBroker"] == ["Subscribe 2", "Subscribe 3"]


@asynchronous
async def test_who_waits_with_a_timeout_loses_nothing_by_it() -> None:
    async with doors(1) as (door,), AsyncEeylops(address(door)) as eeylops:
        more = asyncio.Event()

        async def later(*_: Any) -> AsyncIterator[pb.ConsumeResponse]:
            yield values(0, b"a")
            await more.wait()
            yield values(1, b"b")

        door.subscribe = later
        async with eeylops.subscribe(7, 1) as subscription:
            assert (await anext(subscription)).value == b"a"
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(subscription.next_batch(), 0.05)
            more.set()
            assert (await anext(subscription)).value == b"b"
        assert door.asked.count("Subscribe 0") == 1


@asynchronous
async def test_a_topic_that_goes_away_ends_a_subscription_with_its_error() -> None:
    async with doors(1) as (door,), AsyncEeylops(address(door)) as eeylops:

        async def gone(*_: Any) -> AsyncIterator[pb.ConsumeResponse]:
            yield values(0, b"a")
            yield pb.ConsumeResponse(error=pb.Error(error_code=pb.KErrTopicNotFound, error_msg="gone", leader_id=-1))

        door.subscribe = gone
        subscription = eeylops.subscribe(7, 1)
        assert (await anext(subscription)).value == b"a"
        with pytest.raises(EeylopsError, match="gone") as caught:
            await anext(subscription)
        assert caught.value.code == ErrorCodes.TOPIC_NOT_FOUND


@asynchronous
async def test_a_reader_that_allows_followers_asks_the_broker_at_hand_and_then_the_leader() -> None:
    async with doors(2) as (first, second), AsyncEeylops(address(second)) as eeylops:

        async def one(_: Door, __: Any, context: Any) -> AsyncIterator[pb.ConsumeResponse]:
            assert ("odradek-follower", "1") in context.invocation_metadata()
            yield values(0, b"a")

        first.subscribe = one
        async with eeylops.subscribe(7, 1, follower=True, until_ms=9) as subscription:
            assert [value.value async for value in subscription] == [b"a"]
        assert (second.asked[0], first.asked[-1]) == ("Subscribe 0", "Subscribe 0")
