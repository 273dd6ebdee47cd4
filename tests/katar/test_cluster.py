"""Katar's door in a cluster of three: any broker answers, whoever leads."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.fault.cluster import ClusterProcesses
from tests.fault.network import LoopbackNetwork
from tests.katar.curl import Events, curl, curl_bytes
from tests.process import wait_until

pytestmark = pytest.mark.xdist_group("katar")

NODES = (1, 2, 3)


class Three:
    """Three brokers, asked with curl."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self.cluster = cluster

    def url(self, node: int) -> str:
        return f"http://{self.cluster.address(node, 'http')}"

    def create(self, node: int, name: str, **fields: object) -> str:
        status, topic = curl(f"{self.url(node)}/topic", "POST", {"name": name, **fields})
        assert status == 201, topic
        return str(topic["name"])

    def publish(self, node: int, **body: object) -> list[dict[str, Any]]:
        status, answer = curl(f"{self.url(node)}/publish", "POST", body)
        assert status == 200, answer
        return list(answer["offsets"])

    def subscribe(self, node: int, **body: object) -> tuple[list[dict[str, Any]], dict[str, dict[str, int]]]:
        status, answer = curl(f"{self.url(node)}/subscribe", "POST", body)
        assert status == 200, answer
        return answer["records"], answer["position"]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    with ClusterProcesses(tmp_path_factory.mktemp("three"), LoopbackNetwork(), NODES) as cluster:
        yield Three(cluster)


def test_a_topic_that_one_broker_made_is_known_to_the_others_at_once(three: Three) -> None:
    for round_ in range(3):
        for node in NODES:
            name = three.create(node, f"known_{node}_{round_}")
            for other in NODES:
                status, answer = curl(f"{three.url(other)}/topic/{name}")
                assert (status, answer["topics"][0]["replication_factor"]) == (200, 3)


def test_racing_creators_at_different_brokers_each_get_a_topic(three: Three) -> None:
    with ThreadPoolExecutor(6) as pool:
        names = list(pool.map(lambda number: three.create(number % 3 + 1, "raced"), range(6)))
    assert sorted(names) == ["raced", *(f"raced__{number}" for number in range(5))]


def test_settings_are_changed_from_any_broker(three: Three) -> None:
    three.create(1, "settings", config={"retention.ms": 5000, "segment.bytes": 65536})
    assert curl(f"{three.url(2)}/topic/settings", "PATCH", {"retention.ms": 6000})[0] == 200
    _, put = curl(f"{three.url(3)}/topic/settings", "PUT", {"flush": "os"})
    assert put["overrides"] == ["flush"]
    for node in NODES:

        def is_known(node: int = node) -> bool:
            return bool(curl(f"{three.url(node)}/topic/settings")[1]["topics"] == [put])

        wait_until(is_known, what=f"the settings at broker {node}")
    assert curl(f"{three.url(1)}/topic/settings", "PATCH", {"flush": "never"})[0] == 422
    assert curl(f"{three.url(2)}/topic/settings", "DELETE") == (204, None)


def test_every_broker_publishes_to_every_partition_and_reads_all_of_them(three: Three) -> None:
    three.create(2, "spread", partitions=6)
    sent = set()
    for node in NODES:
        for partition in range(6):
            payload = f"{node}/{partition}"
            (place,) = three.publish(node, topic="spread", partition=partition, payload=payload)
            assert place["partition"] == partition
            sent.add(payload)
    for node in NODES:
        seen: list[str] = []
        records, position = three.subscribe(node, topic="spread", offset=0, max=4)
        assert len(records) == 4
        while records:
            seen += [each["payload"] for each in records]
            records, position = three.subscribe(node % 3 + 1, position=position, max=4)
        assert sorted(seen) == sorted(sent), "each once, asked of one broker after the other"
        assert position == {"spread": {str(partition): 3 for partition in range(6)}}


def test_a_payload_is_passed_on_byte_for_byte(three: Three) -> None:
    three.create(1, "bytes", partitions=3)
    payload = '{"b":1.00,  "a" :"\\u00e9 é", "b":[ ]}'.encode()
    for node in NODES:
        for partition in range(3):
            head = f'{{"topic":"bytes","partition":{partition},"key":"é","payload":'.encode()
            assert curl(f"{three.url(node)}/publish", "POST", head + payload + b"}")[0] == 200
    for node in NODES:
        _, answer = curl_bytes(f"{three.url(node)}/subscribe", "POST", {"topic": "bytes", "offset": 0})
        assert answer.count('"key":"é","payload":'.encode() + payload + b"}") == 9


def test_a_first_publish_makes_the_topic_at_any_broker(three: Three) -> None:
    with ThreadPoolExecutor(6) as pool:
        places = list(pool.map(lambda number: three.publish(number % 3 + 1, topic="fresh", payload=number), range(6)))
    assert sorted(place["offset"] for (place,) in places) == [0, 1, 2, 3, 4, 5]


def test_a_read_waits_at_all_leaders_at_once(three: Three) -> None:
    three.create(1, "waited", partitions=3)
    for partition in range(3):
        records, position = three.subscribe(1, topic="waited")
        assert records == []
        found: list[Any] = []

        def read(position: object = position, found: list[Any] = found) -> None:
            found.extend(three.subscribe(2, position=position, wait_ms=30_000))

        reading = threading.Thread(target=read)
        reading.start()
        three.publish(3, topic="waited", partition=partition, payload=partition)
        reading.join(30)
        assert [each["payload"] for each in found[0]] == [partition]


def test_refusals_of_a_leader_reach_the_client(three: Three) -> None:
    three.create(1, "refused", partitions=3, config={"max.message.bytes": 2000})
    for node in NODES:
        url = three.url(node)
        assert curl(f"{url}/subscribe", "POST", {"topic": "refused", "offset": 5})[0] == 422
        for partition in range(3):
            body = {"topic": "refused", "partition": partition, "payload": "x" * 3000}
            assert curl(f"{url}/publish", "POST", body)[0] == 413
        assert curl(f"{url}/topic/none")[0] == 404
        assert curl(f"{url}/subscribe", "POST", {"topic": "none"})[0] == 404


def test_a_stream_and_publishers_outlive_a_leader(three: Three) -> None:
    three.create(1, "moved", partitions=3, config={"min.insync.replicas": 2})
    victim = 3
    events = Events(f"{three.url(1)}/subscribe", {"topic": "moved", "offset": 0})
    for partition in range(3):
        three.publish(2, topic="moved", partition=partition, payload=f"before {partition}")
    seen = {events.next()[1]["payload"] for _ in range(3)}
    three.cluster.kill([victim])
    try:
        for partition in range(3):

            def is_published(partition: int = partition) -> bool:
                body = {"topic": "moved", "partition": partition, "payload": f"after {partition}"}
                status, answer = curl(f"{three.url(2)}/publish", "POST", body)
                assert status in (200, 503), answer
                return status == 200

            wait_until(is_published, 40, "the next leader")
        wanted = {f"{when} {partition}" for when in ("before", "after") for partition in range(3)}
        while seen < wanted:
            last_id, record = events.next()
            seen.add(record["payload"])
        assert set(json.loads(last_id)["moved"]) == {"0", "1", "2"}
    finally:
        events.close()
        three.cluster.restart([victim])
