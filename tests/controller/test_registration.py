"""A broker's place in the cluster: taken, kept over a change of leaders, given up in good order, never held twice."""

from __future__ import annotations

import asyncio

from tests.client.support import asynchronous, until
from tests.controller.brokers import House, LinkedNet, active, houses, registered, unfenced
from tests.controller.test_controller import topic


@asynchronous
async def test_every_broker_is_registered_and_unfenced_wherever_the_controller_is() -> None:
    async with houses() as members:
        await registered(members)
        for house in members:
            assert house.registration is not None
            await house.registration.unfenced.wait()
            assert house.registration.broker_epoch == house.controller.image.brokers[house.node_id].epoch
            assert not house.registration.is_fenced
            assert house.registration.lease_until > int(asyncio.get_running_loop().time() * 1000)


@asynchronous
async def test_a_broker_that_is_not_ready_stays_fenced() -> None:
    async with houses() as members:
        registration = members[0].register()
        registration.wants_fence = True
        await until(lambda: registration.lease_until > 0)
        assert registration.is_fenced
        registration.wants_fence = False
        await registration.unfenced.wait()


@asynchronous
async def test_registrations_survive_the_death_of_the_controller() -> None:
    async with houses() as members:
        await registered(members)
        leader = await active(members)
        rest = [house for house in members if house is not leader]
        epochs = {house.node_id: house.registration.broker_epoch for house in rest if house.registration}
        await leader.stop()
        heir = await active(rest)
        lease = {house.node_id: house.registration.lease_until for house in rest if house.registration}
        await until(
            lambda: all(house.registration.lease_until > lease[house.node_id] for house in rest if house.registration)
        )
        assert {house.node_id: house.registration.broker_epoch for house in rest if house.registration} == epochs
        assert unfenced(heir) >= {house.node_id for house in rest}
        await leader.start()


@asynchronous
async def test_a_connection_that_drops_is_the_end_after_a_short_grace() -> None:
    async with houses(session_timeout_ms=60_000) as members:
        await registered(members)
        leader = await active(members)
        died = next(house for house in members if house is not leader)
        assert died.registration is not None
        await died.registration.close()
        await until(lambda: died.node_id not in unfenced(leader), seconds=5)


@asynchronous
async def test_a_broker_that_starts_again_at_once_gets_its_place_back() -> None:
    async with houses(session_timeout_ms=60_000) as members:
        await registered(members)
        leader = await active(members)
        again = next(house for house in members if house is not leader)
        before = again.controller.image.brokers[again.node_id].epoch
        await again.stop()
        await again.start()
        registration = again.register()
        await registration.unfenced.wait()
        assert registration.broker_epoch > before


@asynchronous
async def test_a_second_broker_of_the_same_id_is_told_to_go() -> None:
    async with houses(session_timeout_ms=300) as members:
        await registered(members)
        leader = await active(members)
        first = next(house for house in members if house is not leader)
        assert first.registration is not None
        kept = first.registration
        second = first.register(incarnation="another process")
        text = await second.refused
        assert f"another broker with id {first.node_id} is alive" in text
        assert not kept.refused.done()
        assert not kept.is_fenced
        await second.close()
        first.registration = kept


@asynchronous
async def test_an_earlier_process_that_only_seems_to_live_is_waited_out() -> None:
    async with houses(session_timeout_ms=300) as members:
        await registered(members)
        leader = await active(members)
        house = next(house for house in members if house is not leader)
        silent = house.registration
        assert silent is not None
        assert silent._task is not None
        silent._task.cancel()  # its connection stands
        after = house.register(incarnation="the next process")
        await after.unfenced.wait()
        assert after.broker_epoch > silent.broker_epoch
        assert not after.refused.done()
        await silent.close()


@asynchronous
async def test_a_broker_of_another_cluster_is_told_to_go() -> None:
    async with houses() as members:
        leader = await active(members)
        other = next(house for house in members if house is not leader)
        await until(lambda: bool(other.controller.cluster_id))
        other.controller.quorum._files.cluster_id = "another"
        registration = other.register()
        assert "belongs to cluster another" in await registration.refused


@asynchronous
async def test_a_broker_that_shuts_down_hands_over_first() -> None:
    async with houses() as members:
        await registered(members)
        leader = await active(members)
        await leader.controller.call("create-topic", topic("t", partitions=6, factor=3))
        for house in members:
            assert house.registration is not None
        going = next(house for house in members if house is not leader)
        assert going.registration is not None
        assert await going.registration.shut_down(5_000)
        partitions = leader.controller.image.topics["t"].partitions.values()
        assert all(partition.leader != going.node_id for partition in partitions)


@asynchronous
async def test_a_broker_that_was_never_registered_need_not_shut_down() -> None:
    house = House(LinkedNet(), 1, (1, 2, 3))
    await house.start()
    registration = house.register()
    assert not await registration.shut_down(1_000)
    await house.stop()


@asynchronous
async def test_a_broker_that_the_controller_forgot_registers_again() -> None:
    async with houses() as members:
        await registered(members)
        leader = await active(members)
        house = next(house for house in members if house is not leader)
        assert house.registration is not None
        before = house.registration.broker_epoch
        await leader.controller.call("unregister-broker", {"broker_id": house.node_id})
        await until(lambda: house.registration is not None and house.registration.broker_epoch > before)
        await until(lambda: house.node_id in unfenced(leader))
