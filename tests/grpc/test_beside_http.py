"""HTTP's doors and gRPC's see the same topics and records: Katar's and SSKafka's beside MyKafka's and Eeylops'."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from tests.grpc.doors import CALL_SECONDS, Doors
from tests.process import BrokerProcess

pytestmark = pytest.mark.xdist_group("grpc-http")


def ask(broker: BrokerProcess, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    connection = http.client.HTTPConnection(broker.http_url.removeprefix("http://"), timeout=CALL_SECONDS)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        content = response.read()
        return response.status, json.loads(content) if content else None
    finally:
        connection.close()


def test_katar_reads_what_both_services_store(broker: BrokerProcess, doors: Doors) -> None:
    topic = doors.create_topic("for_katar")
    doors.produce(topic, 1, [b'{"n": 1}', b"text"])
    doors.send("for_katar", 0, b"\xff\xfe")
    status, answer = ask(broker, "POST", "/subscribe", {"topic": "for_katar", "offset": 0})
    shown = [{name: each[name] for name in each if name.startswith("payload")} for each in answer["records"]]
    assert (status, shown) == (200, [{"payload": {"n": 1}}, {"payload": "text"}, {"payload_base64": "//4="}])
    assert answer["position"] == {"for_katar": {"0": 3}}
    found = doors.consume(topic, start_offset=0)
    assert [each.timestamp for each in found.values] == [each["timestamp"] for each in answer["records"]]


def test_both_services_read_what_katar_stores(broker: BrokerProcess, doors: Doors) -> None:
    body = {"topic": "from_katar", "payloads": [{"n": 1}, "text", None]}
    assert ask(broker, "POST", "/publish", body)[0] == 200
    topic = doors.topic("from_katar").topic_id
    values = doors.values(topic)
    assert [json.loads(value) for value in values] == [{"n": 1}, "text", None]
    assert [doors.get("from_katar", 0, offset) for offset in range(3)] == values


def test_katar_writes_and_reads_beside_gaps(broker: BrokerProcess, doors: Doors) -> None:
    for partition in (1, 4):
        doors.create_partition("sparse_for_katar", partition)
        doors.send("sparse_for_katar", partition, b'"by mykafka"')
    for _ in range(6):
        assert ask(broker, "POST", "/publish", {"topic": "sparse_for_katar", "payload": "by katar"})[0] == 200
    status, answer = ask(broker, "POST", "/subscribe", {"topic": "sparse_for_katar", "offset": 0})
    assert status == 200 and {each["partition"] for each in answer["records"]} == {1, 4}
    payloads = [each["payload"] for each in answer["records"]]
    assert sorted(payloads) == ["by katar"] * 6 + ["by mykafka"] * 2
    assert ask(broker, "POST", "/publish", {"topic": "sparse_for_katar", "partition": 2, "payload": 1})[0] == 404


def test_sskafka_and_eeylops_number_partitions_alike(broker: BrokerProcess, doors: Doors) -> None:
    asked = {"topic_name": "shared", "partition_count": 3}
    assert ask(broker, "POST", "/admin/v1/topics", asked)[0] == 201
    topic = doors.topic("shared")
    assert list(topic.partition_ids) == [1, 2, 3]
    doors.produce(topic.topic_id, 3, [b"by eeylops"])
    body = {"topic_partition": "shared-3", "payload": "by sskafka", "acks": "all"}
    assert ask(broker, "POST", "/data/v1/produce", body)[0] == 204
    reading = {"topic_partition": "shared-3", "last_offset": -1, "max_batch_size": 10}
    status, answer = ask(broker, "POST", "/data/v1/consume", reading)
    assert (status, [each["payload"] for each in answer["records"]]) == (200, ["by eeylops", "by sskafka"])
    assert doors.values(topic.topic_id, 3) == [b"by eeylops", b"by sskafka"]
    assert doors.get("shared", 2, 1) == b"by sskafka"


def test_topics_of_the_services_are_listed_by_http(broker: BrokerProcess, doors: Doors) -> None:
    doors.create_topic("listed_by_eeylops", 2)
    doors.create_partition("listed_by_mykafka", 0)
    status, answer = ask(broker, "GET", "/topic/listed_by_eeylops,listed_by_mykafka")
    assert status == 200
    shown = [(each["name"], each["partitions"]) for each in answer["topics"]]
    assert shown == [("listed_by_eeylops", 2), ("listed_by_mykafka", 1)]
    _, listed = ask(broker, "GET", "/admin/v1/topics")
    assert {"listed_by_eeylops", "listed_by_mykafka"} <= {each["topic_name"] for each in listed["topics"]}
    assert ask(broker, "DELETE", "/topic/listed_by_eeylops")[0] == 204
    assert "listed_by_eeylops" not in doors.topics()


def test_topics_of_http_have_ids(broker: BrokerProcess, doors: Doors) -> None:
    assert ask(broker, "POST", "/topic", {"name": "with_an_id", "partitions": 2})[0] == 201
    topic = doors.topic("with_an_id")
    assert topic.topic_id >= 1 and list(topic.partition_ids) == [1, 2]
    assert ask(broker, "DELETE", "/topic/with_an_id")[0] == 204
    assert ask(broker, "POST", "/topic", {"name": "with_an_id"})[0] == 201
    assert doors.topic("with_an_id").topic_id > topic.topic_id
