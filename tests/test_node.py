"""The composition root: what starts, what refuses to, and what is still answered while it stops."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from grpc import aio
from grpc_health.v1 import health_pb2

from odradek.config import Settings, load_settings
from odradek.node import Address, Node, StartError, run_until
from odradek.proto import mykafka_pb2
from odradek.wire.messages import describe_cluster, fetch, metadata, offset_commit, produce
from tests.broker.houses import SlowDisk, batch
from tests.client.support import tick, until
from tests.edge.doors import AsyncClient, on_uvloop
from tests.edge.raw import fetch_request, produce_request

TOPIC = "orders"


def settings_for(directory: Path | str, **flags: object) -> Settings:
    named = {name.replace("_", "."): str(value) for name, value in flags.items()}
    doors = {"kafka": "127.0.0.1:0", "http": "127.0.0.1:0", "grpc": "off"}
    return load_settings(None, {}, {"dir": str(directory), "log.level": "error", **doors, **named})


@asynccontextmanager
async def started(directory: Path | str, **flags: object) -> AsyncIterator[Node]:
    node = await Node.start(settings_for(directory, **flags))
    try:
        yield node
    finally:
        await node.stop()


@asynccontextmanager
async def connected(node: Node) -> AsyncIterator[AsyncClient]:
    assert node.kafka is not None
    client = AsyncClient(*await asyncio.open_connection(*node.kafka))
    try:
        yield client
    finally:
        await client.close()


async def make_topic(client: AsyncClient, name: str = TOPIC) -> None:
    wanted = metadata.Request(topics=[metadata.RequestTopic(name=name)])
    answer = await client.ask_for(wanted, metadata.Response, 9)
    assert answer.topics[0].error_code == 0


async def get(address: Address | None, path: str) -> tuple[int, str]:
    assert address is not None
    reader, writer = await asyncio.open_connection(*address)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), body


async def health(address: Address | None, service: str) -> int:
    async with aio.insecure_channel(str(address)) as channel:
        encode, decode = health_pb2.HealthCheckRequest.SerializeToString, health_pb2.HealthCheckResponse.FromString
        call = channel.unary_unary("/grpc.health.v1.Health/Check", encode, decode)
        return (await call(health_pb2.HealthCheckRequest(service=service), timeout=30)).status


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    """A disk that the test can hold up, for every node of this test."""
    disk = SlowDisk()
    monkeypatch.setattr("odradek.node.RealDisk", lambda _open_files_max: disk)
    return disk


def test_an_address_is_written_as_people_write_it() -> None:
    assert str(Address("127.0.0.1", 9092)) == "127.0.0.1:9092"
    assert str(Address("::1", 9092)) == "[::1]:9092"


@on_uvloop
async def test_it_serves_on_all_doors_and_says_where(tmp_path: Path) -> None:
    async with started(tmp_path, broker_id=7, grpc="127.0.0.1:0") as node:
        assert node.kafka is not None and node.kafka.port > 0
        assert node.grpc is not None and node.grpc.port > 0
        assert node.ready_line == f"odradek ready broker=7 kafka={node.kafka} http={node.http} grpc={node.grpc}"
        status, body = await get(node.http, "/healthcheck")
        assert (status, json.loads(body)) == (200, {"status": "up", "broker_id": 7, "leader_broker_id": 7})
        async with connected(node) as client:
            told = await client.ask_for(describe_cluster.Request(), describe_cluster.Response, 0)
            assert [(broker.host, broker.port) for broker in told.brokers] == [tuple(node.kafka)]
        for service in ("", "mykafka.Broker", "eeylops.EeylopsService"):
            assert await health(node.grpc, service) == health_pb2.HealthCheckResponse.SERVING


@on_uvloop
async def test_doors_can_be_off_and_clients_can_be_told_another_address(tmp_path: Path) -> None:
    async with started(tmp_path / "a", kafka="off", http="off") as node:
        assert node.ready_line == "odradek ready broker=1 kafka=off http=off grpc=off"
    async with started(tmp_path / "b", advertised_kafka="outside.example:19092") as node, connected(node) as client:
        told = await client.ask_for(describe_cluster.Request(), describe_cluster.Response, 0)
        assert [(broker.host, broker.port) for broker in told.brokers] == [("outside.example", 19092)]


@on_uvloop
async def test_metrics_follow_what_clients_do(tmp_path: Path) -> None:
    async with started(tmp_path) as node, connected(node) as client:
        await make_topic(client)
        await client.ask_for(produce_request(TOPIC, bytes(batch(b"a", b"b"))), produce.Response, 9)
        status, text = await get(node.http, "/metrics")
        assert status == 200
        assert f'odradek_partition_high_watermark{{topic="{TOPIC}",partition="0"}} 2' in text
        assert 'odradek_request_seconds_count{api="PRODUCE"} 1' in text
        assert "odradek_connections 1\n" in text


@on_uvloop
async def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    opened: list[Path] = []
    async with started(tmp_path / "data") as node, connected(node) as client:
        await make_topic(client)
        await client.ask_for(produce_request(TOPIC, bytes(batch(b"a", b"b"))), produce.Response, 9)
    node = await Node.start(settings_for(tmp_path / "data"), on_open=opened.append)
    try:
        assert opened == [tmp_path / "data"]
        assert node.broker.partition(TOPIC, 0).high_watermark == 2
    finally:
        await node.stop()


@pytest.mark.parametrize("door", ["kafka", "http", "grpc"])
@on_uvloop
async def test_an_address_that_is_taken_is_named_and_nothing_is_left_behind(tmp_path: Path, door: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartError, match=f"cannot listen on {address}.*--{door}"):
            await Node.start(settings_for(tmp_path / "data", **{door: address}))
    assert not (tmp_path / "data").exists()
    async with started(tmp_path / "data", **{door: address}) as node:
        assert str(getattr(node, door)) == address


@on_uvloop
async def test_without_being_asked_for_the_grpc_door_stays_closed_if_its_address_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flags = {"dir": str(tmp_path / "data"), "kafka": "127.0.0.1:0", "http": "off"}
    settings = load_settings(None, {}, flags)
    assert settings.source("grpc") == "default"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = replace(settings, values={**settings.values, "grpc": address})  # as if the table said so
        node = await Node.start(settings)
        await node.stop()
    assert node.ready_line.endswith("grpc=off")
    assert any(address in record.message and "--grpc" in record.message for record in caplog.records)
    node = await Node.start(settings)
    await node.stop()
    assert node.ready_line.endswith(f"grpc={address}")


@on_uvloop
async def test_other_brokers_and_clients_are_told_the_grpc_address_that_is_meant_for_them(tmp_path: Path) -> None:
    async with started(tmp_path / "a", grpc="127.0.0.1:0") as node:
        assert node.broker.metadata.image.brokers[1].grpc == node.grpc
    async with started(tmp_path / "b", grpc="127.0.0.1:0", advertised_grpc="outside.example:15051") as node:
        assert node.broker.metadata.image.brokers[1].grpc == ("outside.example", 15051)
    async with started(tmp_path / "c") as node:
        assert node.grpc is None and node.broker.metadata.image.brokers[1].grpc is None


@on_uvloop
async def test_metrics_count_grpc_calls(tmp_path: Path) -> None:
    async with started(tmp_path, grpc="127.0.0.1:0") as node:
        await health(node.grpc, "")
        _, text = await get(node.http, "/metrics")
        assert 'odradek_grpc_calls_total{method="grpc.health.v1.Health/Check",code="OK"} 1' in text
        assert "odradek_grpc_calls_open 0\n" in text


@on_uvloop
async def test_a_directory_in_use_and_a_foreign_one_are_left_alone(tmp_path: Path) -> None:
    async with started(tmp_path / "data"):
        with pytest.raises(StartError, match="--data"):
            await Node.start(settings_for(tmp_path / "data", grpc="127.0.0.1:0"))
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letters.txt").write_text("dear reader", encoding="utf-8")
    with pytest.raises(StartError, match=r"letters\.txt"):
        await Node.start(settings_for(foreign))
    kafkas = tmp_path / "kafka"
    kafkas.mkdir()
    (kafkas / "meta.properties").write_text("version=1", encoding="utf-8")
    with pytest.raises(StartError, match="Apache Kafka"):
        await Node.start(settings_for(kafkas))
    assert [path.name for path in foreign.iterdir()] == ["letters.txt"]


@on_uvloop
async def test_pipelines_may_keep_their_state_in_the_directory_before_a_broker_does(tmp_path: Path) -> None:
    (tmp_path / "data" / "pipelines" / "revenue").mkdir(parents=True)
    async with started(tmp_path / "data"):
        assert (tmp_path / "data" / "pipelines" / "revenue").is_dir()


@on_uvloop
async def test_a_message_by_grpc_whose_flush_is_under_way_is_answered_while_it_stops(slow: SlowDisk) -> None:
    node = await Node.start(settings_for("data", grpc="127.0.0.1:0"))
    await node.broker.create_topic(TOPIC, 1, {})
    async with aio.insecure_channel(str(node.grpc)) as channel:
        encode, decode = mykafka_pb2.SendMessageRequest.SerializeToString, mykafka_pb2.SendMessageResponse.FromString
        send = channel.unary_unary("/mykafka.Broker/SendMessage", encode, decode)
        slow.may_flush.clear()
        begun = slow.flushes_begun
        sending = asyncio.ensure_future(send(mykafka_pb2.SendMessageRequest(topic=TOPIC, payload=b"a"), timeout=30))
        await until(lambda: slow.flushes_begun > begun)
        stopping = asyncio.create_task(node.stop())
        await tick()
        assert not sending.done() and not stopping.done()
        slow.may_flush.set()
        assert (await sending).offset == 0
        await stopping


@on_uvloop
async def test_a_produce_whose_flush_is_under_way_is_answered_while_it_stops(slow: SlowDisk) -> None:
    node = await Node.start(settings_for("data"))
    async with connected(node) as client, connected(node) as waiting:
        await make_topic(client)
        slow.may_flush.clear()
        begun = slow.flushes_begun
        client.writer.write(client.frame_of(produce_request(TOPIC, bytes(batch(b"a"))), 9))
        waiting.writer.write(waiting.frame_of(fetch_request(TOPIC, 0, max_wait_ms=60_000), 12))
        await until(lambda: slow.flushes_begun > begun)
        stopping = asyncio.create_task(node.stop())
        await tick()
        client.writer.write(client.frame_of(produce_request(TOPIC, bytes(batch(b"too late"))), 9))
        await tick()
        assert not stopping.done()
        slow.may_flush.set()
        answer = await client.read_answer(produce.Response, 9)
        where = answer.responses[0].partition_responses[0]
        assert (where.error_code, where.base_offset) == (0, 0)
        assert await client.is_closed()
        await stopping
    async with started("data") as again:
        assert again.broker.partition(TOPIC, 0).high_watermark == 1


@on_uvloop
async def test_a_commit_whose_flush_is_under_way_is_answered_while_it_stops(slow: SlowDisk) -> None:
    node = await Node.start(settings_for("data", offsets_topic_num_partitions=1))
    wanted = offset_commit.RequestTopic(
        name=TOPIC, partitions=[offset_commit.RequestPartition(partition_index=0, committed_offset=5)]
    )
    commit = offset_commit.Request(group_id="g", topics=[wanted])
    async with connected(node) as client:
        await make_topic(client)
        assert (await client.ask_for(commit, offset_commit.Response, 8)).topics[0].partitions[0].error_code == 0
        slow.may_flush.clear()
        begun = slow.flushes_begun
        client.writer.write(client.frame_of(commit, 8))
        await until(lambda: slow.flushes_begun > begun)
        stopping = asyncio.create_task(node.stop())
        slow.may_flush.set()
        answer = await client.read_answer(offset_commit.Response, 8)
        assert answer.topics[0].partitions[0].error_code == 0
        await stopping


@on_uvloop
async def test_producers_that_never_pause_do_not_keep_it_from_stopping(slow: SlowDisk) -> None:
    node = await Node.start(settings_for("data"))
    async with connected(node) as client:
        await make_topic(client)
        frames = b"".join(client.frame_of(produce_request(TOPIC, bytes(batch(b"a"))), 9) for _ in range(2000))
        client.writer.write(frames)
        answered = 0

        async def read() -> None:
            nonlocal answered
            while True:
                await client.read_answer(produce.Response, 9)
                answered += 1

        reading = asyncio.create_task(read())
        await until(lambda: answered > 0)
        async with asyncio.timeout(20):
            await node.stop()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reading
    async with started("data") as again:
        assert again.broker.partition(TOPIC, 0).high_watermark >= answered


@on_uvloop
async def test_a_disk_that_fails_is_told_to_whoever_runs_it_and_to_the_health_check(slow: SlowDisk) -> None:
    node = await Node.start(settings_for("data"))
    async with connected(node) as client:
        await make_topic(client)
        running = asyncio.create_task(run_until(node, asyncio.Event()))
        slow.fail_next("append to", errno.EIO, ending=f"{TOPIC}-0/00000000000000000000.log")
        answer = await client.ask_for(produce_request(TOPIC, bytes(batch(b"a"))), produce.Response, 9)
        assert answer.responses[0].partition_responses[0].error_code == 56
        failure = await running
        assert failure is not None and "Input/output error" in str(failure)
        status, body = await get(node.http, "/healthcheck")
        assert (status, json.loads(body)["status"]) == (503, "down")
    await node.stop()
    assert not slow.exists("data/clean-stop")


@on_uvloop
async def test_whoever_runs_it_can_stop_it(tmp_path: Path) -> None:
    async with started(tmp_path) as node:
        stop = asyncio.Event()
        running = asyncio.create_task(run_until(node, stop))
        stop.set()
        assert await running is None


@on_uvloop
async def test_a_consumer_is_woken_through_both_doors_of_a_produce(tmp_path: Path) -> None:
    async with started(tmp_path) as node, connected(node) as producer, connected(node) as consumer:
        await make_topic(producer)
        consumer.writer.write(consumer.frame_of(fetch_request(TOPIC, 0, max_wait_ms=30_000), 12))
        await producer.ask_for(produce_request(TOPIC, bytes(batch(b"awaited"))), produce.Response, 9)
        answer = await consumer.read_answer(fetch.Response, 12)
        assert bytes(answer.responses[0].partitions[0].records or b"").endswith(b"awaited\0")
