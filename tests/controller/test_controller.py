"""Commands find the active controller, are answered when a majority has them, and are honest in doubt."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from typing import Any

import pytest

from odradek.controller.files import journal_path
from odradek.disk.errors import DiskError
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode, PeerError
from tests.client.support import asynchronous, tick, until
from tests.controller.brokers import House, LinkedNet, active, houses, registered, unfenced


def topic(name: str, partitions: int = 2, factor: int = -1) -> dict[str, Any]:
    return {
        "name": name, "partitions": partitions, "replication_factor": factor, "assignments": None, "configs": {},
        "validate_only": False,
    }  # fmt: skip


async def lone(disk_lines: bytes = b"") -> House:
    house = House(LinkedNet(), 1, ())
    if disk_lines:
        house.disk.make_directory("d/metadata")
        house.disk.write_atomic(journal_path("d"), disk_lines)
    await house.start()
    return house


@asynchronous
async def test_a_lone_broker_has_a_cluster_id_when_it_has_started_and_keeps_it() -> None:
    house = await lone()
    cluster_id = house.controller.image.cluster_id
    assert len(cluster_id) == 22
    assert house.controller.is_active
    await house.stop()
    await house.start()
    assert house.controller.image.cluster_id == house.controller.cluster_id == cluster_id
    await house.stop()


@asynchronous
async def test_a_lone_broker_whose_disk_fails_at_the_start_says_so() -> None:
    house = House(LinkedNet(), 1, ())
    house.disk.fail_next("append to", errno.EIO, ending=".log")
    with pytest.raises(DiskError):
        await house.start()
    assert len(house.failures) == 1
    with pytest.raises(PeerError, match="BROKER_NOT_AVAILABLE"):
        await house.controller.call("create-topic", topic("t"))
    await house.stop()


@asynchronous
async def test_topics_of_a_broker_that_stood_alone_become_its_own() -> None:
    old = (
        b'0 1 cluster {"cluster_id":"old"}\n'
        b'1 1 create-topic {"topic_name":"t","topic_id":"' + b"ab" * 16 + b'","partitions":2,"configs":{}}\n'
    )
    house = await lone(old)
    assert house.controller.image.cluster_id == "old"
    house.register()
    await until(lambda: house.controller.image.partition("t", 1).leader == 1)  # type: ignore[union-attr]
    partition = house.controller.image.topics["t"].partitions[0]
    assert (partition.replicas, partition.isr) == ((1,), (1,))
    await house.stop()


@asynchronous
async def test_any_broker_can_be_asked_and_finds_its_own_change() -> None:
    async with houses() as members:
        await registered(members)
        for number, house in enumerate(members):
            result = await house.controller.call("create-topic", topic(f"t{number}", factor=3))
            made = house.controller.image.topics[f"t{number}"]  # read your writes
            assert made.id.hex() == result["topic_id"]
            assert set(made.partitions[0].replicas) == {1, 2, 3}
        await until(lambda: all(len(house.controller.image.topics) == 3 for house in members))
        assert len({house.controller.image.cluster_id for house in members}) == 1
        images = [house.controller.image.to_json() for house in members]
        await until(lambda: images[0] == images[1] == images[2])


@asynchronous
async def test_a_refusal_comes_back_as_it_was_said() -> None:
    async with houses() as members:
        await registered(members)
        await members[0].controller.call("create-topic", topic("t"))
        for house in members:
            with pytest.raises(PeerError, match="exists already") as caught:
                await house.controller.call("create-topic", topic("t"))
            assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
            with pytest.raises(PeerError, match="no command"):
                await house.controller.call("nonsense", {})


@asynchronous
async def test_changes_are_named_to_those_who_act_on_them() -> None:
    house = await lone()
    house.register()
    await until(lambda: unfenced(house) == {1})
    assert any(changes.brokers == {1} for changes in house.changes)
    house.changes.clear()
    await house.controller.call("create-topic", topic("t"))
    both = {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert [(changes.topics, changes.partitions) for changes in house.changes] == [({"t"}, both)]
    house.changes.clear()
    await house.controller.call("set-broker-configs", {"configs": {"retention.ms": "1"}})
    await house.controller.call("delete-topic", {"name": "t", "topic_id": None})
    assert [changes.configs for changes in house.changes] == [True, False]
    assert house.changes[1].partitions == both
    await house.stop()


@asynchronous
async def test_without_a_majority_the_answer_is_no_leader_and_never_a_yes() -> None:
    async with houses() as members:
        await registered(members)
        leader = await active(members)
        others = [house for house in members if house is not leader]
        for house in others:
            await house.stop()
        with pytest.raises(PeerError) as caught:
            await leader.controller.call("create-topic", topic("t"), timeout_ms=1_500)
        assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
        await until(lambda: leader.controller.leader_id == -1)
        with pytest.raises(PeerError, match="no leader"):
            await leader.controller.call("producer-ids", {"count": 1}, timeout_ms=100)
        assert "t" not in leader.controller.image.topics
        for house in others:
            await house.start()


@asynchronous
async def test_a_topic_whose_leader_was_lost_is_in_doubt_and_what_can_be_repeated_is() -> None:
    async with houses() as members:
        await registered(members)
        leader = await active(members)
        others = [house.node_id for house in members if house is not leader]
        leader.net.isolate(leader.node_id, others)
        asked = asyncio.create_task(leader.controller.call("producer-ids", {"count": 10}))
        with pytest.raises(PeerError, match="may have been done, or not") as caught:
            await leader.controller.call("create-topic", topic("t"))
        assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert not asked.done()
        leader.net.heal()
        assert (await asked)["first"] >= 0


@asynchronous
async def test_who_asks_a_silent_leader_goes_on_with_the_next_one() -> None:
    async with houses() as members:
        await registered(members)
        leader = await active(members)
        follower = next(house for house in members if house is not leader)
        leader.net.isolate(leader.node_id, [house.node_id for house in members if house is not leader])
        result = await follower.controller.call("producer-ids", {"count": 10}, timeout_ms=10_000)
        assert result["first"] == 0
        assert follower.controller.leader_id != leader.node_id


@asynchronous
async def test_a_broker_that_waits_for_a_leader_is_served_when_there_is_one() -> None:
    net = LinkedNet()
    first = House(net, 1, (1, 2, 3))
    await first.start()
    asked = asyncio.create_task(first.controller.call("producer-ids", {"count": 5}))
    second = House(net, 2, (1, 2, 3))
    await second.start()
    assert (await asked)["first"] == 0
    await first.stop()
    await second.stop()


@asynchronous
async def test_only_the_active_controller_serves() -> None:
    async with houses() as members:
        leader = await active(members)
        other = next(house for house in members if house is not leader)
        with pytest.raises(PeerError, match=f"leader is {leader.node_id}, can't accept") as caught:
            await other.controller.serve("producer-ids", {"count": 1})
        assert caught.value.code == ErrorCode.NOT_CONTROLLER
        answer = await leader.controller.serve("producer-ids", {"count": 1})
        assert answer["result"] == {"first": 0}
        assert 0 < answer["offset"] <= leader.controller.applied_offset


@asynchronous
async def test_many_changes_at_once_keep_their_order() -> None:
    async with houses() as members:
        firsts = await asyncio.gather(
            *(house.controller.call("producer-ids", {"count": 10}) for house in members for _ in range(10))
        )
        assert sorted(each["first"] for each in firsts) == list(range(0, 300, 10))


@asynchronous
async def test_a_broker_that_is_silent_is_fenced_and_another_leads() -> None:
    async with houses(session_timeout_ms=500) as members:
        await registered(members)
        leader = await active(members)
        await leader.controller.call("create-topic", topic("t", partitions=3, factor=3))
        silent = next(house for house in members if house is not leader)
        assert silent.registration is not None
        assert silent.registration._task is not None
        silent.registration._task.cancel()  # its connection stands
        await until(lambda: silent.node_id not in unfenced(leader), seconds=5)
        partitions = leader.controller.image.topics["t"].partitions.values()
        assert all(partition.leader not in (-1, silent.node_id) for partition in partitions)
        assert all(silent.node_id not in partition.isr for partition in partitions)


@asynchronous
async def test_a_broker_whose_port_refuses_is_not_waited_for() -> None:
    async with houses(session_timeout_ms=60_000) as members:
        await registered(members)
        leader = await active(members)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        gone = next(house for house in members if house is not leader)
        args = {"broker_id": 77, "incarnation": "x", "kafka": ["127.0.0.1", port], "http": None, "rack": None}
        epoch = (await gone.controller.call("register-broker", args))["broker_epoch"]
        beat = {"broker_id": 77, "broker_epoch": epoch, "applied_offset": epoch, "wants_shutdown": False}
        await gone.controller.call("heartbeat", beat)
        assert 77 in unfenced(gone)
        await leader.stop()
        rest = [house for house in members if house is not leader]
        heir = await active(rest)
        await until(lambda: 77 not in unfenced(heir))
        assert leader.node_id in unfenced(heir)  # nobody knows where to knock
        await leader.start()


@asynchronous
async def test_nobody_is_fenced_because_the_controller_itself_stood_still() -> None:
    async with houses((), session_timeout_ms=500) as (house,):
        args = {"broker_id": 77, "incarnation": "x", "kafka": None, "http": None, "rack": None}
        epoch = (await house.controller.call("register-broker", args))["broker_epoch"]
        beat = {"broker_id": 77, "broker_epoch": epoch, "applied_offset": epoch, "wants_shutdown": False}
        await house.controller.call("heartbeat", beat)
        threading.Event().wait(0.8)  # the loop with it
        for _ in range(5):
            await tick()
        assert unfenced(house) == {77}
        await until(lambda: unfenced(house) == set(), seconds=5)


@asynchronous
async def test_a_controller_does_not_fence_its_own_process_for_being_busy() -> None:
    async with houses((), session_timeout_ms=300) as (house,):
        args = {"incarnation": "x", "kafka": None, "http": None, "rack": None}
        for broker_id in (house.node_id, 77):
            epoch = (await house.controller.call("register-broker", {**args, "broker_id": broker_id}))["broker_epoch"]
            beat = {"broker_id": broker_id, "broker_epoch": epoch, "applied_offset": epoch, "wants_shutdown": False}
            await house.controller.call("heartbeat", beat)
        await until(lambda: unfenced(house) == {house.node_id}, seconds=5)
        renewed = house.controller._active
        assert renewed is not None
        await until(lambda: not renewed.sessions.expired(renewed._now()), seconds=5)
        assert unfenced(house) == {house.node_id}
