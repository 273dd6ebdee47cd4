"""SSKafka's REST door: every status and body of its document, and requests that go to another broker."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from odradek.edge.rest import sskafka
from odradek.edge.routing import Page, Route, Router
from odradek.model import TopicPartition
from odradek.wire.errors import ErrorCode, PeerError
from tests.client.support import until
from tests.edge.doors import on_uvloop
from tests.edge.web import open_door
from tests.sskafka.fakes import Brokers, open_brokers

TOPICS, PRODUCE, CONSUME = "/admin/v1/topics", "/data/v1/produce", "/data/v1/consume"
FIRST = TopicPartition("t", 0)


def topic(name: str, partitions: int) -> dict[str, Any]:
    return {
        "topic_name": name,
        "partitions": [
            {"id": f"{name}-{number}", "replica_brokers": ["1", "2", "3"]} for number in range(1, partitions + 1)
        ],
    }


async def with_topic(brokers: Brokers, partitions: int = 3) -> None:
    status, _ = await brokers.ask(
        brokers.cluster.leader_id, "POST", TOPICS, {"topic_name": "t", "partition_count": partitions}
    )
    assert status == 201


def record(**changes: object) -> dict[str, object]:
    return {"topic_partition": "t-1", "key": "k", "payload": "p", "acks": "all", **changes}


@on_uvloop
async def test_every_broker_says_who_it_is_and_who_leads() -> None:
    async with open_brokers() as brokers:
        for broker in (1, 2, 3):
            content = {"status": "up", "broker_id": broker, "leader_broker_id": 1}
            assert await brokers.ask(broker, "GET", "/healthcheck") == (200, content)
        brokers.cluster.leader_id = -1
        assert (await brokers.ask(2, "GET", "/healthcheck"))[1]["leader_broker_id"] == -1


@on_uvloop
async def test_topics_are_created_listed_and_deleted() -> None:
    async with open_brokers() as brokers:
        body = b'{\n    "topic_name": "testtopic",\n    "partition_count": 3\n}'
        assert await brokers.ask(1, "POST", TOPICS, body, {"Content-Type": "application-json"}) == (
            201, topic("testtopic", 3),
        )  # fmt: skip
        assert await brokers.ask(1, "POST", TOPICS, body) == (409, {"detail": "topic testtopic already exists"})
        other = {"topic_name": "other", "partition_count": "1"}
        assert await brokers.ask(1, "POST", TOPICS, other) == (201, topic("other", 1))
        assert await brokers.ask(1, "GET", TOPICS) == (200, {"topics": [topic("testtopic", 3), topic("other", 1)]})
        assert await brokers.ask(1, "DELETE", f"{TOPICS}/testtopic") == (204, None)
        assert await brokers.ask(1, "DELETE", f"{TOPICS}/testtopic") == (
            404, {"detail": "topic testtopic does not exist"},
        )  # fmt: skip
        assert await brokers.ask(1, "GET", TOPICS) == (200, {"topics": [topic("other", 1)]})


@on_uvloop
async def test_replicas_are_in_ascending_order_whoever_leads() -> None:
    async with open_brokers() as brokers:
        brokers.cluster.leader_id = 3
        assert brokers.cluster.replicas()[0] == 3
        body = {"topic_name": "t", "partition_count": 2}
        assert await brokers.ask(3, "POST", TOPICS, body) == (201, topic("t", 2))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"topic_name": "my-topic", "partition_count": 1}, "topic_name"),
        ({"topic_name": "", "partition_count": 1}, "topic_name"),
        ({"topic_name": None, "partition_count": 1}, "topic_name"),
        ({"topic_name": 7, "partition_count": 1}, "topic_name"),
        ({"partition_count": 1}, "topic_name"),
        ({"topic_name": "t"}, "partition_count"),
        ({"topic_name": "t", "partition_count": 0}, "partition_count"),
        ({"topic_name": "t", "partition_count": -1}, "partition_count"),
        ({"topic_name": "t", "partition_count": 1.5}, "partition_count"),
        ({"topic_name": "t", "partition_count": True}, "partition_count"),
        ({"topic_name": "t", "partition_count": "many"}, "partition_count"),
        ({"topic_name": "t", "partition_count": "٣"}, "partition_count"),
        ({"topic_name": "t", "partition_count": [3]}, "partition_count"),
        ({"topic_name": "t", "partition_count": 10**30}, "partition_count"),
        ({"topic_name": "t", "partition_count": "9" * 5000}, "partition_count"),
        ({"topic_name": "t", "partition_count": 100_000}, "too many"),
        ({"topic_name": "../x", "partition_count": 1}, "topic's name"),
        ({"topic_name": "x\ud800", "partition_count": 1}, "topic's name"),
        ([], "not an object"),
        (b"{", "not JSON"),
        (b'{"a":' * 50_000, "deep"),
    ],
    ids=lambda value: repr(value)[:50],
)
@on_uvloop
async def test_topics_that_cannot_be_are_refused_by_name_of_the_field(body: object, told: str) -> None:
    async with open_brokers(1) as brokers:
        status, content = await brokers.ask(1, "POST", TOPICS, body)
        assert status == 400 and told in content["detail"], content
        assert brokers.cluster.topics == {}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", TOPICS, {"topic_name": "t", "partition_count": 1}),
        ("POST", TOPICS, b"nonsense"),
        ("GET", TOPICS, None),
        ("DELETE", f"{TOPICS}/t", None),
        ("POST", PRODUCE, record()),
        ("POST", CONSUME, {"topic_partition": "t-1", "last_offset": -1, "max_batch_size": 1}),
    ],
)
@on_uvloop
async def test_other_brokers_say_who_the_leader_is(method: str, path: str, body: object) -> None:
    async with open_brokers() as brokers:
        await with_topic(brokers)
        assert await brokers.ask(2, method, path, body) == (421, {"detail": "leader is 1, can't accept"})
        brokers.cluster.leader_id = -1
        assert await brokers.ask(1, method, path, body) == (421, {"detail": "leader is -1, can't accept"})


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, 503),
        (ErrorCode.NOT_CONTROLLER, 421),
        (ErrorCode.POLICY_VIOLATION, 400),
        (ErrorCode.KAFKA_STORAGE_ERROR, 503),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 500),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 403),
    ],
)
@on_uvloop
async def test_a_change_that_fails_is_never_a_success(code: ErrorCode, status: int) -> None:
    async with open_brokers(1) as brokers:
        await with_topic(brokers)
        brokers.cluster.fails = PeerError(code)
        for method, path, body in (
            ("POST", TOPICS, {"topic_name": "u", "partition_count": 1}),
            ("DELETE", f"{TOPICS}/t", None),
            ("POST", PRODUCE, record()),
        ):
            answer = await brokers.ask(1, method, path, body)
            assert answer[0] == status and "detail" in answer[1]


@on_uvloop
async def test_records_are_produced_and_consumed() -> None:
    async with open_brokers() as brokers:
        await with_topic(brokers)
        for number in (1, 2, 3):
            body = record(key=f"msg{number}", payload=f"message {number} é\n\0")
            assert await brokers.ask(1, "POST", PRODUCE, body) == (204, None)
        body = {"topic_partition": "t-1", "last_offset": -1, "max_batch_size": 2}
        status, content = await brokers.ask(1, "POST", CONSUME, body)
        assert (status, content["last_offset"]) == (200, 1)
        assert content["records"] == [
            {"offset": 0, "key": "msg1", "payload": "message 1 é\n\0"},
            {"offset": 1, "key": "msg2", "payload": "message 2 é\n\0"},
        ]
        status, content = await brokers.ask(1, "POST", CONSUME, {**body, "last_offset": "1", "max_batch_size": "5"})
        assert (content["last_offset"], [found["offset"] for found in content["records"]]) == (2, [2])
        assert await brokers.ask(1, "POST", CONSUME, {**body, "last_offset": 2}) == (
            200, {"last_offset": 2, "records": []},
        )  # fmt: skip
        assert await brokers.ask(1, "POST", CONSUME, {"topic_partition": "t-2"}) == (
            200, {"last_offset": -1, "records": []},
        )  # fmt: skip


@on_uvloop
async def test_keys_are_optional_and_empty_texts_are_texts() -> None:
    async with open_brokers(1) as brokers:
        await with_topic(brokers)
        for body in (record(key=None), {"topic_partition": "t-1", "payload": ""}, record(key="")):
            assert await brokers.ask(1, "POST", PRODUCE, body) == (204, None)
        assert brokers.cluster.records[FIRST] == [(0, None, b"p"), (1, None, b""), (2, b"", b"p")]


@on_uvloop
async def test_what_other_doors_wrote_is_shown_as_far_as_it_is_text() -> None:
    async with open_brokers(1) as brokers:
        await with_topic(brokers)
        brokers.cluster.records[FIRST] = [(7, b"\xffk", None)]
        _, content = await brokers.ask(1, "POST", CONSUME, {"topic_partition": "t-1"})
        assert content == {"last_offset": 7, "records": [{"offset": 7, "key": "\ufffdk", "payload": None}]}


@pytest.mark.parametrize(
    ("given", "taken"),
    [("all", "all"), ("1", "1"), (1, "1"), ("0", "0"), (0, "0"), (-1, "all"), ("-1", "all"), (None, "all")],
)
@on_uvloop
async def test_acks_come_in_many_forms(given: object, taken: str) -> None:
    async with open_brokers(1) as brokers:
        await with_topic(brokers)
        assert await brokers.ask(1, "POST", PRODUCE, record(acks=given)) == (204, None)
        assert brokers.cluster.acks == [taken]


@pytest.mark.parametrize(
    ("path", "changes", "told"),
    [
        (PRODUCE, {"payload": None}, "payload"),
        (PRODUCE, {"payload": 7}, "payload"),
        (PRODUCE, {"payload": {"a": 1}}, "payload"),
        (PRODUCE, {"payload": "\ud800"}, "payload"),
        (PRODUCE, {"key": 7}, "key"),
        (PRODUCE, {"key": "\udfff"}, "key"),
        (PRODUCE, {"acks": "some"}, "acks"),
        (PRODUCE, {"acks": 2}, "acks"),
        (PRODUCE, {"acks": True}, "acks"),
        (PRODUCE, {"acks": ["all"]}, "acks"),
        (PRODUCE, {"topic_partition": None}, "topic_partition"),
        (PRODUCE, {"topic_partition": 1}, "topic_partition"),
        (CONSUME, {"last_offset": "x"}, "last_offset"),
        (CONSUME, {"last_offset": -2}, "last_offset"),
        (CONSUME, {"last_offset": 2**63}, "last_offset"),
        (CONSUME, {"max_batch_size": 0}, "max_batch_size"),
        (CONSUME, {"max_batch_size": "-5"}, "max_batch_size"),
        (CONSUME, {"max_batch_size": 1.0}, "max_batch_size"),
        (CONSUME, {"follower_broker_id": "two"}, "follower_broker_id"),
    ],
    ids=lambda value: repr(value)[:50],
)
@on_uvloop
async def test_requests_for_records_that_cannot_be_are_refused(
    path: str, changes: dict[str, object], told: str
) -> None:
    async with open_brokers(1) as brokers:
        await with_topic(brokers)
        status, content = await brokers.ask(1, "POST", path, record(**changes))
        assert status == 400 and told in content["detail"], content


@pytest.mark.parametrize("path", [PRODUCE, CONSUME])
@pytest.mark.parametrize("name", ["u-1", "t-4", "t-0", "t-01", "t--1", "t", "-1", "", "t-x", "t-²", "t-99999999999999"])
@on_uvloop
async def test_partitions_that_do_not_exist_are_not_found(path: str, name: str) -> None:
    async with open_brokers() as brokers:
        await with_topic(brokers)
        status, content = await brokers.ask(1, "POST", path, record(topic_partition=name))
        assert status == 404 and name in content["detail"], content


@on_uvloop
async def test_a_followers_offset_counts_as_its_acknowledgement() -> None:
    async with open_brokers() as brokers:
        await with_topic(brokers)
        brokers.cluster.leaders[TopicPartition("t", 1)] = 3
        for name, broker in (("t-1", "2"), ("t-2", 2)):
            body = {"topic_partition": name, "last_offset": 4, "max_batch_size": 1, "follower_broker_id": broker}
            assert (await brokers.ask(1, "POST", CONSUME, body))[0] == 200
        assert brokers.cluster.acknowledged == [(FIRST, 2, 4), (TopicPartition("t", 1), 2, 4)]


@on_uvloop
async def test_only_brokers_acknowledge_and_forward_where_there_is_a_secret() -> None:
    async with open_brokers() as brokers:
        await with_topic(brokers)
        brokers.cluster.secret = "s3cret"
        brokers.cluster.leaders[FIRST] = 2
        body = {"topic_partition": "t-1", "follower_broker_id": 3}
        assert (await brokers.ask(1, "POST", CONSUME, body))[0] == 401
        assert (await brokers.ask(1, "POST", CONSUME, {**body, "follower_broker_id": None}))[0] == 200
        assert (await brokers.ask(2, "POST", PRODUCE, record(), {"x-odradek-forwarded": "1"}))[0] == 401
        assert (await brokers.ask(1, "POST", PRODUCE, record()))[0] == 204
        assert brokers.cluster.acknowledged == [] and brokers.cluster.served_by == [2, 2]


@on_uvloop
async def test_records_go_to_the_broker_that_leads_their_partition() -> None:
    async with open_brokers() as brokers:
        await with_topic(brokers)
        brokers.cluster.leaders = {FIRST: 2, TopicPartition("t", 1): 3}
        for number in (1, 2, 3):
            assert await brokers.ask(1, "POST", PRODUCE, record(topic_partition=f"t-{number}")) == (204, None)
            status, content = await brokers.ask(1, "POST", CONSUME, {"topic_partition": f"t-{number}"})
            assert (status, content["last_offset"], len(content["records"])) == (200, 0, 1)
        assert brokers.cluster.served_by == [2, 2, 3, 3, 1, 1]


@on_uvloop
async def test_what_the_other_broker_says_is_passed_on() -> None:
    async with open_brokers() as brokers:
        await with_topic(brokers)
        brokers.cluster.leaders[FIRST] = 2
        brokers.cluster.fails = PeerError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
        assert await brokers.ask(1, "POST", PRODUCE, record()) == (413, {"detail": "too large"})


@on_uvloop
async def test_a_forwarded_request_is_served_by_the_partitions_leader_only() -> None:
    async with open_brokers() as brokers:
        await with_topic(brokers)
        brokers.cluster.leaders[FIRST] = 2
        headers = {"x-odradek-forwarded": "1", "x-odradek-cluster": "cluster"}
        assert await brokers.ask(2, "POST", PRODUCE, record(), headers) == (204, None)
        assert await brokers.ask(3, "POST", PRODUCE, record(), headers) == (
            421,
            {"detail": "leader is 1, can't accept"},
        )
        assert (await brokers.ask(1, "POST", PRODUCE, record(), headers))[0] == 421, "it is not sent in a circle"
        headers["x-odradek-cluster"] = "another"
        assert (await brokers.ask(2, "POST", PRODUCE, record(), headers))[0] == 409


@on_uvloop
async def test_a_partition_that_gets_a_leader_is_waited_for() -> None:
    async with open_brokers() as brokers:
        await with_topic(brokers)
        brokers.cluster.leaders[FIRST] = -1
        asked = asyncio.create_task(brokers.ask(1, "POST", PRODUCE, record()))
        await until(lambda: bool(brokers.visits[1].server.tasks))
        brokers.cluster.leaders[FIRST] = 3
        assert await asked == (204, None)
        assert brokers.cluster.served_by == [3]


@pytest.mark.parametrize("path", [PRODUCE, CONSUME])
@on_uvloop
async def test_a_partition_without_a_leader_is_unavailable(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sskafka, "_LEADER_SECONDS_MAX", 0.0)
    async with open_brokers() as brokers:
        await with_topic(brokers)
        brokers.cluster.leaders[FIRST] = -1
        status, content = await brokers.ask(1, "POST", path, record())
        assert status == 503 and "t-1 has no leader" in content["detail"]
        brokers.cluster.leaders[FIRST] = 2
        await brokers.visits[2].server.close()
        status, content = await brokers.ask(1, "POST", path, record())
        assert status == 503 and "cannot be reached" in content["detail"]


@on_uvloop
async def test_a_record_whose_fate_is_not_known_is_not_sent_again() -> None:
    async with open_brokers() as brokers:
        await with_topic(brokers)
        brokers.cluster.leaders[FIRST] = 2
        brokers.cluster.everywhere.clear()
        asked = asyncio.create_task(brokers.ask(1, "POST", PRODUCE, record()))
        await until(lambda: brokers.cluster.waiting == 1)
        await brokers.visits[2].server.close()
        status, content = await asked
        assert status == 503 and "not known" in content["detail"]
        assert len(brokers.cluster.records[FIRST]) == 1


@on_uvloop
async def test_an_answer_that_is_none_of_ours_is_not_passed_on() -> None:
    stranger = Router(Route("POST", PRODUCE, lambda _request: Page(b"hello", "text/plain")))
    async with open_brokers() as brokers, open_door(stranger) as other:
        await with_topic(brokers)
        brokers.cluster.leaders[FIRST] = 2
        brokers.cluster.doors[2] = ("127.0.0.1", other.port)
        status, content = await brokers.ask(1, "POST", PRODUCE, record())
        assert status == 503 and "not JSON" in content["detail"]
        await until(lambda: not other.server._connections)


@on_uvloop
async def test_a_client_that_hangs_up_ends_the_wait_on_the_other_broker() -> None:
    async with open_brokers() as brokers:
        await with_topic(brokers)
        brokers.cluster.leaders[FIRST] = 2
        brokers.cluster.everywhere.clear()
        client = await brokers.visits[1].connect()
        body = json.dumps(record())
        client.send(f"POST {PRODUCE} HTTP/1.1\nHost: x\nContent-Length: {len(body)}\n\n{body}")
        await until(lambda: brokers.cluster.waiting == 1)
        await client.close()
        await until(lambda: brokers.cluster.waiting == 0)


@on_uvloop
async def test_many_that_wait_do_not_keep_others_from_the_same_broker() -> None:
    async with open_brokers() as brokers:
        await with_topic(brokers)
        brokers.cluster.leaders[FIRST] = 2
        brokers.cluster.everywhere.clear()
        asked = [asyncio.create_task(brokers.ask(1, "POST", PRODUCE, record())) for _ in range(20)]
        await until(lambda: brokers.cluster.waiting == 20)
        assert (await brokers.ask(1, "POST", PRODUCE, record(acks=1)))[0] == 204
        brokers.cluster.everywhere.set()
        assert {status for status, _ in await asyncio.gather(*asked)} == {204}
        await until(lambda: len(brokers.visits[2].server._connections) <= 4)
