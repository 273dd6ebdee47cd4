"""RAMA on three brokers with one store: any of them takes any request, and the end of one loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.fault.cluster import ClusterProcesses
from tests.fault.network import LoopbackNetwork
from tests.process import wait_until
from tests.rama.curl import Door, curl, now_ms, objects

NODES = [1, 2, 3]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    directory = tmp_path_factory.mktemp("cluster")
    settings = {
        "channel.slice.ms": "50",
        "store.url": f"file://{directory}/shared",
        "broker.session.timeout.ms": "2000",
    }
    with ClusterProcesses(directory, LoopbackNetwork(), NODES, settings) as running:
        yield running


def doors_of(cluster: ClusterProcesses) -> dict[int, Door]:
    return {node: Door(f"http://{cluster.address(node, 'http')}") for node in cluster.nodes}


def test_what_one_broker_has_answered_the_others_know_at_once(cluster: ClusterProcesses) -> None:
    doors = doors_of(cluster)
    for turn in range(3):
        first, second, third = (doors[NODES[(turn + step) % 3]] for step in range(3))
        topic = f"turn{turn}"
        assert first.create(topic).status == 201
        client = second.register(topic, "key")
        assert client.status == 201
        for number, door in enumerate((third, second, first)):
            published = door.publish(topic, {"x": number, "_ts": now_ms()})
            assert (published.status, published.content["offset"]) == (201, number)
        assert [door.numbers(topic) for door in (first, second, third)] == [[0, 1, 2]] * 3
        many = curl("-XPOST", f"{third.url}/{topic}", "-H", "client_key: key", "-d", f'[{{"_ts":{now_ms()},"x":3}}]')
        assert (many.status, many.content) == (201, {"offsets": [3, 3]})
        path = f"{third.url}/register/{topic}/{client.content['client_id']}"
        assert curl("-XDELETE", path, "-H", "client_key: key").status == 204
        refused = partial(_all_refuse, (first, second, third), topic)
        wait_until(refused, what="the end of the key everywhere")


def test_whoever_says_that_he_passes_on_needs_a_key_all_the_same(cluster: ClusterProcesses) -> None:
    doors = doors_of(cluster)
    doors[1].channel("guarded")
    message = '{"topic": "guarded", "partition": 0, "payload": 1}'
    start = '{"starts": {"guarded": {"0": ["offset", 0]}}, "max": 1, "wait_ms": 0}'
    forwarded = ("-H", "x-odradek-forwarded: 1")
    for door in doors.values():
        assert curl("-XGET", f"{door.url}/guarded/0", *forwarded).status == 401
        assert curl(f"{door.url}/publish", "-d", message, *forwarded).status in (401, 421)
        assert curl(f"{door.url}/subscribe", "-d", start, *forwarded).status in (401, 421)


def test_katars_routes_take_the_same_keys_on_every_broker(cluster: ClusterProcesses) -> None:
    doors = doors_of(cluster)
    doors[1].channel("shared")
    key = ("-H", "client_key: key")
    for number, door in enumerate(doors.values()):
        publish = (f"{door.url}/publish", "-d", f'{{"topic": "shared", "payload": {{"x": {number}}}}}')
        assert curl(*publish).status == 401
        assert curl(*publish, *key).status == 200
        subscribe = (f"{door.url}/subscribe", "-d", '{"topic": "shared", "offset": 0}')
        assert curl(*subscribe).status == 401
        found = curl(*subscribe, *key)
        assert [record["payload"] for record in found.content["records"]] == [{"x": each} for each in range(number + 1)]
        assert door.numbers("shared") == list(range(number + 1))


def test_a_store_of_one_brokers_own_is_refused(cluster: ClusterProcesses) -> None:
    answer = doors_of(cluster)[2].create("own", store=f"file://{cluster.data(2)}/objects")
    assert answer.status == 422
    assert "store.url" in answer.content["detail"]


def test_what_was_answered_outlives_the_leader_of_the_channel(cluster: ClusterProcesses) -> None:
    doors = doors_of(cluster)
    doors[1].channel("safe", config={"min.insync.replicas": 2})
    for number in range(5):
        assert doors[number % 3 + 1].publish("safe", {"x": number, "_ts": now_ms()}).status == 201
    stored = objects(cluster.directory / "shared" / "safe")
    assert stored
    victim = _leader(cluster, "safe")
    cluster.kill([victim])
    left = [door for node, door in doors.items() if node != victim]
    wait_until(lambda: left[0].read("safe").status == 200, 60, "another leader")
    assert [door.numbers("safe") for door in left] == [list(range(5))] * 2
    assert left[1].publish("safe", {"x": 5, "_ts": now_ms()}).content["offset"] == 5
    cluster.restart([victim])
    wait_until(lambda: doors[victim].read("safe").status == 200, 60, "the broker that was killed")
    assert doors[victim].numbers("safe") == list(range(6))


def _all_refuse(doors: tuple[Door, ...], topic: str) -> bool:
    return all(door.read(topic).status in (401, 429) for door in doors)


def _leader(cluster: ClusterProcesses, topic: str) -> int:
    """Who answers a request that may not be passed on."""
    statuses = {
        node: curl("-XGET", f"{door.url}/{topic}/0", "-H", "client_key: key", "-H", "x-odradek-forwarded: 1").status
        for node, door in doors_of(cluster).items()
    }
    (leader,) = (node for node, status in statuses.items() if status == 200)
    assert sorted(statuses.values()) == [200, 421, 421]
    return leader
