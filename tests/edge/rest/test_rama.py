"""RAMA's door: every status of its document, bodies that stay as they came, and what may be a message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.wire.errors import ErrorCode, PeerError
from tests.edge.doors import on_uvloop
from tests.rama.fakes import NOW, Message, open_brokers

FORM = {"Content-Type": "application/x-www-form-urlencoded"}  # what curl says of whatever it sends


def message(**changes: Any) -> dict[str, Any]:
    return {"x": 42, "_ts": NOW, **changes}


@on_uvloop
async def test_a_channel_is_made_once() -> None:
    async with open_brokers() as brokers:
        body = b'{ "topic" : "orders" }'
        assert await brokers.ask("PUT", "/create_topic", body, headers=FORM) == (201, {"topic": "orders"})
        status, answer = await brokers.ask("PUT", "/create_topic", body)
        assert (status, answer) == (409, {"detail": "topic orders already exists"})
        made = brokers.cluster.created["orders"]
        assert (made["store"], made["fifo"], made["overrides"]["clients.required"]) == (None, False, "true")


@on_uvloop
async def test_a_channel_is_made_as_its_creator_wants_it() -> None:
    async with open_brokers() as brokers:
        config = {"clients.required": False, "channel.slice.ms": 500, "channel.grace.ms": "1s"}
        body = {"topic": "t", "fifo": True, "store": "memory://x", "config": config}
        assert (await brokers.ask("PUT", "/create_topic", body))[0] == 201
        made = brokers.cluster.created["t"]
        assert (made["store"], made["fifo"]) == ("memory://x", True)
        texts = {"clients.required": "false", "channel.slice.ms": "500", "channel.grace.ms": "1s"}
        assert texts.items() <= made["overrides"].items()


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 422, "not an object"),
        (b"{}", 422, "topic is missing"),
        (b'{"topic": 5}', 422, "topic must be a string"),
        (b'{"topic": "a b"}', 422, "a b"),
        (b'{"topic": "t", "fifo": "yes"}', 422, "fifo"),
        (b'{"topic": "t", "store": 5}', 422, "store"),
        (b'{"topic": "t", "config": {"a": []}}', 422, "config"),
        (b'{"topic": "t", "config": "a"}', 422, "config"),
    ],
)
@on_uvloop
async def test_a_channel_that_cannot_be_is_refused(body: bytes, status: int, told: str) -> None:
    async with open_brokers() as brokers:
        answered, answer = await brokers.ask("PUT", "/create_topic", body)
        assert (answered, brokers.cluster.channels) == (status, {})
        assert told in answer["detail"]


@pytest.mark.parametrize("name", ["topic", "docs", "metrics", "openapi.json", "register", "create_topic"])
@on_uvloop
async def test_no_channel_has_the_name_of_a_path(name: str) -> None:
    async with open_brokers() as brokers:
        status, answer = await brokers.ask("PUT", "/create_topic", {"topic": name})
        assert status == 422
        assert f"/{name} is a path of the broker itself" in answer["detail"]


@on_uvloop
async def test_a_client_registers_with_its_key_or_gets_one() -> None:
    async with open_brokers() as brokers:
        await brokers.ask("PUT", "/create_topic", {"topic": "orders"})
        path = "/register/orders"
        mine = {"topic": "orders", "client_key": "mine", "client_id": "id0"}
        assert await brokers.ask("POST", path, b'{ "client_key" : "mine" }', headers=FORM) == (201, mine)
        assert await brokers.ask("POST", path, {"client_key": "mine"}) == (200, mine)
        for body in (None, {}, {"client_key": None}, b"  \n"):
            status, answer = await brokers.ask("POST", path, body)
            assert (status, answer["client_key"][:5]) == (201, "made-")
        assert (await brokers.ask("POST", path, {"client_key": ""}))[0] == 422
        assert (await brokers.ask("POST", path, {"client_key": 5}))[0] == 422
        assert (await brokers.ask("POST", path, b"x"))[0] == 400
        assert (await brokers.ask("POST", "/register/nowhere"))[0] == 404


@on_uvloop
async def test_without_a_key_nothing_is_published_or_read() -> None:
    async with open_brokers() as brokers:
        await brokers.channel()
        for key in (None, "", "wrong", "K"):
            for method, path in (("PUT", "/orders"), ("POST", "/orders"), ("GET", "/orders/0")):
                assert (await brokers.ask(method, path, message(), key=key))[0] == 401
        assert brokers.cluster.channels == {"orders": []}
        for method, path in (("PUT", "/nowhere"), ("POST", "/nowhere"), ("GET", "/nowhere/0")):
            for key in (None, "k"):
                assert (await brokers.ask(method, path, message(), key=key))[0] == 404


@on_uvloop
async def test_a_topic_that_is_no_channel_is_not_found_here() -> None:
    async with open_brokers() as brokers:
        brokers.cluster.plain.add("table")
        status, answer = await brokers.ask("PUT", "/table", message())
        assert (status, answer["detail"]) == (404, "topic table is no channel: it is kept in no store")
        assert (await brokers.ask("POST", "/register/table"))[0] == 201, "its clients may be guarded all the same"


@on_uvloop
async def test_a_key_is_revoked_by_whoever_has_one_or_knows_the_secret() -> None:
    async with open_brokers() as brokers:
        await brokers.channel()
        await brokers.ask("POST", "/register/orders", {"client_key": "other"})
        assert (await brokers.ask("DELETE", "/register/orders/id1", key=None))[0] == 401
        secret = {"x-odradek-secret": "s"}
        assert (await brokers.ask("DELETE", "/register/orders/id1", key=None, headers=secret))[0] == 401
        assert await brokers.ask("DELETE", "/register/orders/id1") == (204, None)
        assert (await brokers.ask("DELETE", "/register/orders/id1"))[0] == 404
        assert (await brokers.ask("PUT", "/orders", message(), key="other"))[0] == 401
        brokers.cluster.secret = "s"
        assert (await brokers.ask("DELETE", "/register/orders/id0", key=None, headers=secret))[0] == 204
        assert (await brokers.ask("DELETE", "/register/nowhere/id0", headers=secret))[0] == 404


@on_uvloop
async def test_a_message_is_kept_byte_for_byte() -> None:
    async with open_brokers() as brokers:
        await brokers.channel()
        body = f'{{ "x" : 42 , "_ts" : {NOW}, "Straße": [1.50, null]}}\n'
        assert await brokers.ask("PUT", "/orders", body.encode(), headers=FORM) == (
            201,
            {"offset": 0, "timestamp": NOW},
        )
        assert brokers.cluster.channels["orders"] == [Message(0, NOW, body.encode())]
        assert (await brokers.ask("GET", f"/orders/{NOW}"))[1]["messages"] == [json.loads(body)]


@on_uvloop
async def test_many_messages_are_kept_each_as_it_stood() -> None:
    async with open_brokers() as brokers:
        await brokers.channel()
        body = b'[ {"_ts" : %d.75 , "a":1}\n,{"_ts":%d} ]' % (NOW, NOW - 5)
        assert await brokers.ask("POST", "/orders", body) == (201, {"offsets": [0, 1]})
        assert brokers.cluster.channels["orders"] == [
            Message(0, NOW, b'{"_ts" : %d.75 , "a":1}' % NOW),
            Message(1, NOW - 5, b'{"_ts":%d}' % (NOW - 5)),
        ]


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"", 400, "not JSON"),
        (b"x=1", 400, "not JSON"),
        (b'{"_ts":1} x', 400, "not JSON"),
        (b'{"_ts":%d,"a":"\xff"}' % NOW, 400, "not JSON"),
        (b'{"_ts":%d,"a":NaN}' % NOW, 400, "not JSON"),
        (b'{"_ts":%d,"a":' % NOW + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "nested too deep"),
        (b"5", 422, "is a JSON object"),
        (b"null", 422, "is a JSON object"),
        (b"{}", 422, "_ts"),
        (b'{"_ts":null}', 422, "_ts"),
        (b'{"_ts":true}', 422, "_ts"),
        (b'{"_ts":"%d"}' % NOW, 422, "_ts"),
        (b'{"_ts":[%d]}' % NOW, 422, "_ts"),
        (b'{"_ts":1e400}', 422, "_ts"),
        (b'{"a":{"_ts":%d}}' % NOW, 422, "_ts"),
        (b'{"_ts":%d}' % 10**200, 422, "rama.max.skew.ms"),
        (b'{"_ts":-%d}' % 10**350, 422, "rama.max.skew.ms"),
        (b'{"_ts":%d}' % (NOW // 1000), 422, "rama.max.skew.ms"),
    ],
)
@on_uvloop
async def test_what_is_no_message_is_refused_alone_and_among_others(body: bytes, status: int, told: str) -> None:
    async with open_brokers() as brokers:
        await brokers.channel()
        answered, answer = await brokers.ask("PUT", "/orders", body)
        assert (answered, told in answer["detail"]) == (status, True), answer
        answered, answer = await brokers.ask("POST", "/orders", b'[{"_ts":%d},%b]' % (NOW, body))
        assert answered == status, answer
        assert brokers.cluster.channels == {"orders": []}


@on_uvloop
async def test_what_is_no_array_is_refused_as_many_messages() -> None:
    async with open_brokers() as brokers:
        await brokers.channel()
        for body in (b"[]", b'{"_ts":1}', b"5"):
            assert (await brokers.ask("POST", "/orders", body))[0] == 422
        status, answer = await brokers.ask("POST", "/orders", [message(), {"x": 1}])
        assert status == 422
        assert answer["detail"].startswith("message 1: ")


@on_uvloop
async def test_a_clock_that_is_too_far_off_is_shown_beside_the_brokers() -> None:
    async with open_brokers() as brokers:
        await brokers.channel()
        for skew in (-10_000, 10_000, 0):
            assert (await brokers.ask("PUT", "/orders", message(_ts=NOW + skew)))[0] == 201
        for skew in (-10_001, 10_001):
            status, answer = await brokers.ask("PUT", "/orders", message(_ts=NOW + skew))
            assert status == 422
            assert str(NOW + skew) in answer["detail"]
            assert f"{NOW} (2023-11-14T22:13:20.000Z)" in answer["detail"]
        status, answer = await brokers.ask("PUT", "/orders", b'{ "x" : 42 , "_ts" : 12131313131 }')
        assert status == 422
        assert "12131313131 (1970-05-21T09:48:33.131Z)" in answer["detail"]


@on_uvloop
async def test_a_message_has_at_most_a_mebibyte_and_a_request_many() -> None:
    async with open_brokers() as brokers:
        await brokers.channel()
        empty = b'{"_ts":%d,"a":""}' % NOW
        whole = empty[:-2] + b"x" * ((1 << 20) - len(empty)) + b'"}'
        assert (await brokers.ask("PUT", "/orders", whole))[0] == 201
        for method, body in (("PUT", whole + b" "), ("POST", b"[%b,%b]" % (empty, whole[:-2] + b'x"}'))):
            status, answer = await brokers.ask(method, "/orders", body)
            assert (status, "1048576" in answer["detail"]) == (413, True)
        assert (await brokers.ask("POST", "/orders", b"[%b,%b,%b]" % (whole, whole, whole)))[0] == 201
        assert (await brokers.ask("POST", "/orders", b"[%b]" % b",".join([whole] * 8)))[0] == 413


@on_uvloop
async def test_whoever_guesses_is_told_when_to_come_back() -> None:
    async with open_brokers() as brokers:
        await brokers.channel()
        brokers.cluster.is_throttling = True
        client = await brokers.visits[1].connect()
        client.send("GET /orders/0 HTTP/1.1\nHost: x\nclient_key: wrong\n\n")
        status, headers, _ = await client.read()
        assert (status, headers["retry-after"]) == (429, "7")


@on_uvloop
async def test_a_store_that_is_away_is_told_in_its_own_words() -> None:
    async with open_brokers() as brokers:
        await brokers.channel()
        brokers.cluster.fails = PeerError(ErrorCode.KAFKA_STORAGE_ERROR, "the store memory://x has not answered")
        status, answer = await brokers.ask("PUT", "/orders", message())
        assert (status, answer["detail"]) == (503, "the store memory://x has not answered")


@on_uvloop
async def test_a_header_with_white_space_before_its_colon_is_no_header() -> None:
    async with open_brokers() as brokers:
        await brokers.channel()
        client = await brokers.visits[1].connect()
        client.send("GET /orders/0 HTTP/1.1\nHost: x\nclient_key : k\n\n")
        assert (await client.read())[0] == 400


@on_uvloop
async def test_paths_that_are_nobodys_are_not_found() -> None:
    async with open_brokers() as brokers:
        await brokers.channel()
        assert (await brokers.ask("GET", "/nothing"))[0] == 404
        status, answer = await brokers.ask("GET", "/orders")
        assert (status, "GET /orders/<ms since 1970>" in answer["detail"]) == (404, True)
        assert (await brokers.ask("GET", "/topic/orders"))[1] == "something of another door"
        assert (await brokers.ask("GET", "/register/orders"))[0] == 405


@on_uvloop
async def test_the_routes_are_described_with_their_headers_and_queries() -> None:
    async with open_brokers() as brokers:
        paths = (await brokers.ask("GET", "/openapi.json"))[1]["paths"]
        assert {"/create_topic", "/register/{topic}", "/register/{topic}/{client_id}"} < set(paths)
        assert set(paths["/{topic}"]) == {"put", "post"}
        read = {
            (each["name"], each["in"], each["required"]) for each in paths["/{topic}/{timestamp}"]["get"]["parameters"]
        }
        assert read == {
            ("topic", "path", True), ("timestamp", "path", True), ("client_key", "header", False),
            ("o", "query", False), ("n", "query", False), ("wait_ms", "query", False),
        }  # fmt: skip
        _, _, page = await (await brokers.visits[1].connect()).get("/docs")
        for field in (b'name="timestamp" data-in="path" required', b'name="o" data-in="query">', b'data-in="header">'):
            assert field in page
        assert paths["/{topic}"]["post"]["requestBody"]["content"]["application/json"]["schema"]["type"] == "array"
