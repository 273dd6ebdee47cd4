"""A broker that goes away and comes back, under a client that works on."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from odradek.client import BrokerUnavailableError, Client, ClientError, Delivery
from odradek.testing import EmbeddedBroker, async_broker
from tests.client.support import asynchronous, until


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def broker_at(port: int, directory: Path) -> AbstractAsyncContextManager[EmbeddedBroker]:
    """A broker that can be started again where it was."""
    return async_broker({"kafka": f"127.0.0.1:{port}"}, directory)


@asynchronous
async def test_nothing_is_lost_doubled_or_out_of_order_over_restarts(tmp_path: Path, topic: str, group: str) -> None:
    port = free_port()
    sent: list[asyncio.Task[Delivery]] = []
    read: list[int] = []
    stop = asyncio.Event()
    async with broker_at(port, tmp_path) as broker:
        client = Client(broker.bootstrap_servers)
        await client.start()
        await client.admin.create_topic(topic)
        producer = client.producer(batch_bytes=1_000)
        await producer.start()

    async def produce() -> None:
        while not stop.is_set():
            sent.append(asyncio.create_task(producer.send(topic, b"%d" % len(sent))))
            await asyncio.wait([sent[-1]], timeout=0.001)

    async def consume() -> None:
        async with client.consumer(topic, group=group, heartbeat_interval_ms=100, max_wait_ms=100) as consumer:
            async for record in consumer:
                read.append(int(record.value or b""))
                if stop.is_set() and len(read) == len(sent):
                    return

    tasks = [asyncio.create_task(produce())]
    for round_ in range(3):
        async with broker_at(port, tmp_path):
            if round_ == 0:
                tasks.append(asyncio.create_task(consume()))
            goal = len(read) + 100
            await until(lambda: len(read) >= goal)  # noqa: B023 - called before goal changes
    async with broker_at(port, tmp_path):
        stop.set()
        deliveries = await asyncio.gather(*sent)
        await asyncio.gather(*tasks)
        assert read == list(range(len(sent)))
        assert [delivery.offset for delivery in deliveries] == list(range(len(sent)))
        await producer.close()
        await client.close()


@asynchronous
async def test_a_client_waits_for_a_broker_that_is_about_to_start(tmp_path: Path) -> None:
    port = free_port()
    client = Client(f"127.0.0.1:{port}", timeout_ms=20_000)
    starting = asyncio.create_task(client.start())
    await asyncio.wait([starting], timeout=0.1)
    async with broker_at(port, tmp_path):
        await starting
        assert (await client.admin.cluster()).nodes[0].address.port == port
        await client.close()


@asynchronous
async def test_a_broker_that_is_not_there_is_named_in_time(topic: str) -> None:
    one, other = free_port(), free_port()
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(BrokerUnavailableError, match=rf"127\.0\.0\.1:{one} cannot be reached.*refused.*Is it running"):
        async with Client(f"127.0.0.1:{one}", timeout_ms=300):
            pass
    with pytest.raises(BrokerUnavailableError, match=rf"127\.0\.0\.1:{one}, 127\.0\.0\.1:{other}"):
        async with Client(f"127.0.0.1:{one},127.0.0.1:{other}", timeout_ms=300):
            pass
    assert loop.time() - started < 5


@asynchronous
async def test_a_broker_that_dies_is_named_to_those_who_read_from_it_and_ask_it(tmp_path: Path, topic: str) -> None:
    port = free_port()
    async with broker_at(port, tmp_path) as broker:
        client = Client(broker.bootstrap_servers, timeout_ms=500)
        await client.start()
        await client.admin.create_topic(topic)
        consumer = client.consumer(topic)
        await consumer.start()
        await consumer.poll(timeout_ms=10)
    with pytest.raises(ClientError, match=f"127.0.0.1:{port}"):
        async for _ in consumer:
            pass
    with pytest.raises(BrokerUnavailableError, match=f"127.0.0.1:{port}"):
        await client.admin.list_topics()
    with pytest.raises(BrokerUnavailableError, match=f"127.0.0.1:{port}"):
        async with client.producer():
            pass
    await consumer.close()
    await client.close()


@asynchronous
async def test_one_address_of_several_is_enough(tmp_path: Path) -> None:
    port = free_port()
    async with broker_at(port, tmp_path), Client(f"127.0.0.1:{free_port()},127.0.0.1:{port}") as client:
        assert len((await client.admin.cluster()).nodes) == 1
