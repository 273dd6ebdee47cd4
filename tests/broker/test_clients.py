"""Keys: good for their topic until they are revoked, hashed off the loop, and guessed at only so often."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from odradek.broker import clients as module
from odradek.broker.clients import Clients, TooManyFailuresError, UnknownClientError
from odradek.wire.errors import ErrorCode, PeerError
from tests.broker.houses import House, at_home, refusal_of
from tests.client.support import asynchronous

PEER = "10.0.0.1:4000"


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Hash quickly, and tell what was hashed."""
    hashed: list[bytes] = []
    real = module._scrypt

    def scrypt(key: bytes, salt: bytes) -> bytes:
        assert threading.current_thread() is not threading.main_thread(), "the loop stands still meanwhile"
        hashed.append(key)
        return real(key, salt)

    monkeypatch.setattr(module, "_SCRYPT", {"n": 2, "r": 1, "p": 1})
    monkeypatch.setattr(module, "_scrypt", scrypt)
    yield hashed


async def clients_of(house: House, failures_max: int = 3) -> Clients:
    await house.broker.create_topic("orders", 1, {})
    return Clients(house.broker, failures_max)


async def is_good(clients: Clients, key: str | None, topic: str = "orders", peer: str = PEER) -> bool:
    try:
        await clients.check(topic, key, peer)
    except UnknownClientError:
        return False
    return True


@asynchronous
async def test_a_generated_key_is_good_for_its_topic_and_no_other() -> None:
    async with at_home() as house:
        clients = await clients_of(house)
        await house.broker.create_topic("letters", 1, {})
        client_id, key, is_new = await clients.register("orders")
        assert is_new
        assert len(bytes.fromhex(key)) >= 16
        assert await is_good(clients, key)
        assert not await is_good(clients, key, "letters")
        assert not await is_good(clients, client_id)
        for wrong in (None, "", key[:-1], key.upper() + "x"):
            assert not await is_good(clients, wrong, peer=f"10.0.1.{wrong is None:d}:1")
        await clients.close()


@asynchronous
async def test_the_metadata_has_no_key_and_the_hash_of_one_key_differs_between_topics() -> None:
    async with at_home() as house:
        clients = await clients_of(house)
        await house.broker.create_topic("letters", 1, {})
        for topic in ("orders", "letters"):
            assert (await clients.register(topic, "my key")).key == "my key"
        content = str(house.broker.metadata.image.to_json())
        assert "my key" not in content
        assert b"my key".hex() not in content
        topics = house.broker.metadata.image.topics
        assert topics["orders"].clients.keys() != topics["letters"].clients.keys()
        await clients.close()


@asynchronous
async def test_one_key_that_two_topics_hear_of_at_the_same_time_is_hashed_for_each() -> None:
    async with at_home() as house:
        clients = await clients_of(house)
        await house.broker.create_topic("letters", 1, {})
        await asyncio.gather(*(clients.register(topic, "same") for topic in ("orders", "letters")))
        await clients.close()
        for topic in ("letters", "orders"):
            anew = Clients(house.broker, 3)
            assert await is_good(anew, "same", topic)
            await anew.close()


@asynchronous
async def test_a_key_of_ones_own_may_be_registered_twice() -> None:
    async with at_home() as house:
        clients = await clients_of(house)
        first, second = await clients.register("orders", "mine"), await clients.register("orders", "mine")
        assert (first.is_new, second.is_new) == (True, False)
        assert first.client_id == second.client_id
        await clients.close()


@asynchronous
async def test_a_key_that_cannot_be_sent_in_a_header_is_refused() -> None:
    async with at_home() as house:
        clients = await clients_of(house)
        for key in ("", "x" * 201, "a\nb", "ä", " a", "a ", "\ud800"):
            assert await refusal_of(clients.register("orders", key)) is ErrorCode.INVALID_REQUEST
            assert not await is_good(clients, key, peer=f"10.1.0.{len(key)}:1")
        assert await refusal_of(clients.register("nowhere")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await refusal_of(clients.check("nowhere", "x", PEER)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await clients.close()


@asynchronous
async def test_a_key_is_hashed_once_and_forgotten_when_it_is_revoked(cheap: list[bytes]) -> None:
    async with at_home() as house:
        clients = await clients_of(house)
        client_id = (await clients.register("orders", "mine")).client_id
        cheap.clear()
        assert all(await asyncio.gather(*(is_good(clients, "mine") for _ in range(20))))
        assert await is_good(clients, "mine")
        assert cheap == [b"mine"]
        await clients.revoke("orders", client_id)
        assert not await is_good(clients, "mine")
        assert await refusal_of(clients.revoke("orders", client_id)) is ErrorCode.RESOURCE_NOT_FOUND
        await clients.close()


@asynchronous
async def test_keys_go_with_the_topic() -> None:
    async with at_home() as house:
        clients = await clients_of(house)
        await clients.register("orders", "mine")
        assert await is_good(clients, "mine")
        await house.broker.delete_topic("orders")
        await house.broker.create_topic("orders", 1, {})
        assert not await is_good(clients, "mine")
        await clients.close()


@asynchronous
async def test_registered_clients_outlive_the_broker() -> None:
    async with at_home() as house:
        clients = await clients_of(house)
        await clients.register("orders", "mine")
        await clients.close()
        disk = house.disk
    async with at_home(disk) as house:
        clients = Clients(house.broker, 3)
        assert await is_good(clients, "mine")
        await clients.close()


@asynchronous
async def test_an_address_that_guesses_has_to_wait_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_home() as house:
        clients = await clients_of(house)
        await house.broker.create_topic("letters", 1, {})
        await clients.register("orders", "mine")
        await clients.register("orders", "other")
        now = 1_000_000
        monkeypatch.setattr(house.broker, "monotonic_ms", lambda: now)
        assert await is_good(clients, "mine")
        for number in range(3):
            assert not await is_good(clients, f"wrong{number}")
            now += 1_000
        with pytest.raises(TooManyFailuresError, match="try again in 57 s") as caught:
            await clients.check("orders", "wrong", "10.0.0.1:9")
        assert caught.value.retry_after_seconds == 57
        with pytest.raises(TooManyFailuresError):
            await clients.check("orders", "other", PEER)
        assert await is_good(clients, "mine"), "a key that is known to be good"
        assert not await is_good(clients, None), "nothing was guessed"
        assert await is_good(clients, "other", peer="10.0.0.2:4000")
        assert not await is_good(clients, "wrong", "letters")
        now += 57_000
        assert not await is_good(clients, "wrong"), "the minute is over"
        await clients.close()


@asynchronous
async def test_guesses_at_the_same_time_are_counted_too(cheap: list[bytes]) -> None:
    async with at_home() as house:
        clients = await clients_of(house)
        guesses = [clients.check("orders", f"guess{number}", PEER) for number in range(30)]
        results = await asyncio.gather(*guesses, return_exceptions=True)
        refused = [result for result in results if isinstance(result, TooManyFailuresError)]
        assert len(refused) >= 30 - 3 - 2 * 2, "those that are being hashed when the last one fails"
        assert len(cheap) == 30 - len(refused)
        await clients.close()


@asynchronous
async def test_all_addresses_of_one_ipv6_network_count_together() -> None:
    async with at_home() as house:
        clients = await clients_of(house)
        for number in range(3):
            assert not await is_good(clients, "wrong", peer=f"2001:db8::{number}:4000")
        with pytest.raises(TooManyFailuresError):
            await clients.check("orders", "wrong", "2001:db8::ff:1")
        assert not await is_good(clients, "wrong", peer="2001:db8:0:1::1:4000")
        await clients.close()


@asynchronous
async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED_MAX", 2)
    async with at_home() as house:
        clients = await clients_of(house)
        for number in range(4):
            key = (await clients.register("orders", f"key{number}")).key
            assert await is_good(clients, key)
            assert not await is_good(clients, "wrong", peer=f"10.0.2.{number}:1")
        assert len(clients._good) == len(clients._failures._counts) == 2
        await clients.close()


@asynchronous
async def test_whether_a_topic_is_guarded_is_its_setting() -> None:
    async with at_home() as house:
        clients = await clients_of(house)
        await house.broker.create_topic("guarded", 1, {"clients.required": "true"})
        assert [clients.is_required(name) for name in ("orders", "guarded", "nowhere")] == [False, True, False]
        await house.broker.set_topic_overrides("guarded", {"clients.required": "false"})
        assert not clients.is_required("guarded")
        await house.broker.set_broker_overrides({"clients.required": "true"})
        assert [clients.is_required(name) for name in ("orders", "guarded")] == [True, False]
        await clients.close()


@asynchronous
async def test_a_hash_takes_long_enough_to_be_worth_nothing_to_a_thief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert module._SCRYPT == {"n": 2**14, "r": 8, "p": 1}
    async with at_home() as house:
        clients = await clients_of(house)
        await clients.register("orders", "mine")
        (hashed,) = house.broker.metadata.image.topics["orders"].clients
        assert len(hashed) == 32
        assert await is_good(clients, "mine")
        await clients.close()


@asynchronous
async def test_the_brokers_own_topics_have_no_clients() -> None:
    async with at_home() as house:
        clients = await clients_of(house)
        with pytest.raises(PeerError):
            await clients.register("__consumer_offsets")
        await clients.close()
