"""RAMA's document on a real broker, with its own commands by real curl; and every refusal that it asks for.

The commands are the document's but for two things: a header has no white space before its colon (RFC 9112), and what
stands in angle brackets is filled in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.process import BrokerProcess, wait_until
from tests.rama.curl import Door, curl, now_ms, objects

SETTINGS = {"channel.slice.ms": "50", "client.failures.max": "3"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("rama") / "data", SETTINGS, http=True) as process:
        yield process


@pytest.fixture
def door(broker: BrokerProcess) -> Door:
    return Door(broker.http_url)


def test_the_documents_commands_one_after_the_other(broker: BrokerProcess) -> None:
    url = broker.http_url.removeprefix("http://")
    made = curl("-XPUT", f"{url}/create_topic", "-d", '{ "topic" : "events" }')
    assert (made.status, made.content) == (201, {"topic": "events"})
    registered = curl("-XPOST", f"{url}/register/events", "-d", '{ "client_key" : "client-key" }')
    assert registered.status == 201
    assert registered.content["client_key"] == "client-key"
    body = f'{{ "x" : 42 , "_ts" : {now_ms()} }}'
    published = curl("-XPUT", f"{url}/events", "-H", "client_key: client-key", "-d", body)
    assert (published.status, published.content["offset"]) == (201, 0)
    stamp = json.loads(body)["_ts"]
    for query in ("", "?o=0&n=10"):
        found = curl("-XGET", f"{url}/events/{stamp}{query}", "-H", "client_key: client-key")
        assert (found.status, found.content["messages"]) == (200, [{"x": 42, "_ts": stamp}])


def test_the_documents_own_header_has_a_space_too_many(door: Door) -> None:
    door.channel("spaced")
    refused = curl("-XGET", f"{door.url}/spaced/0", "-H", "client_key : key")
    assert refused.status == 400
    assert "white space before its colon" in refused.content["detail"]


def test_a_message_comes_out_of_every_door_as_it_went_in(broker: BrokerProcess, door: Door) -> None:
    door.channel("bytes")
    body = f'{{"_ts":{now_ms()} ,  "text" : "Gru\u00df",\t"n":1.50 }}'
    key = ("-H", "client_key: key")
    assert curl("-XPUT", f"{door.url}/bytes", *key, "--data-binary", "@-", body=body.encode()).status == 201
    raw = curl("-XGET", f"{door.url}/bytes/0", *key)
    assert raw.content["messages"] == [json.loads(body)]
    wanted = ("-XPOST", f"{door.url}/data/v1/consume", "-d", '{"topic_partition": "bytes-1"}')
    assert curl(*wanted, *key).content["records"][0]["payload"] == body
    assert curl(*wanted).status == 401
    (stored,) = objects(broker.directory / "objects" / "bytes")
    assert re.fullmatch(r"\d{15}/\d{5}/[0-9a-f]{16}-0{20}", stored)


def test_an_answer_means_that_the_store_has_it(broker: BrokerProcess, door: Door) -> None:
    door.channel("stored")
    directory = broker.directory / "objects" / "stored"
    assert objects(directory) == []
    for number in range(3):
        assert door.publish("stored", {"x": number, "_ts": now_ms()}).status == 201
        assert len(objects(directory)) == number + 1


def test_two_publishers_in_one_tick_do_not_overwrite_each_other(door: Door) -> None:
    door.channel("tick", "key0")
    assert door.register("tick", "key1").status == 201
    stamp = now_ms()
    with ThreadPoolExecutor(8) as threads:
        answers = list(
            threads.map(lambda number: door.publish("tick", {"x": number, "_ts": stamp}, f"key{number % 2}"), range(16))
        )
    assert [answer.status for answer in answers] == [201] * 16
    assert sorted(answer.content["offset"] for answer in answers) == list(range(16))
    assert sorted(door.numbers("tick", "key0")) == list(range(16))


def test_many_messages_go_by_one_request(door: Door) -> None:
    door.channel("many")
    stamp = now_ms()
    body = json.dumps([{"x": number, "_ts": stamp} for number in range(5_000)]).encode()
    key = ("-H", "client_key: key")
    for first in (0, 5_000):
        published = curl("-XPOST", f"{door.url}/many", *key, "--data-binary", "@-", body=body)
        assert (published.status, published.content) == (201, {"offsets": [first, first + 4_999]})
    pages, position = [], {"timestamp": stamp, "o": 0}
    for _ in range(2):
        page = door.read("many", position["timestamp"], f"?o={position['o']}&n=5000").content
        pages.append([message["x"] for message in page["messages"]])
        position = page["next"]
    assert pages == [list(range(5_000))] * 2
    assert door.read("many", position["timestamp"], f"?o={position['o']}").content["messages"] == []


def test_messages_up_to_a_mebibyte_are_taken(door: Door) -> None:
    door.channel("large")
    key = ("-H", "client_key: key")
    frame = f'{{"_ts":{now_ms()},"x":""}}'
    whole = frame.replace('""', '"' + "y" * ((1 << 20) - len(frame)) + '"').encode()
    assert curl("-XPUT", f"{door.url}/large", *key, "--data-binary", "@-", body=whole).status == 201
    refused = curl("-XPUT", f"{door.url}/large", *key, "--data-binary", "@-", body=whole + b" ")
    assert refused.status == 413
    batch = b"[" + b",".join([whole] * 4) + b"]"
    assert curl("-XPOST", f"{door.url}/large", *key, "--data-binary", "@-", body=batch).status == 201
    assert len(door.numbers("large")) == 5


def test_every_refusal_of_the_document(door: Door) -> None:
    door.channel("strict")
    stamp = now_ms()
    assert door.create("strict").status == 409
    assert door.register("nowhere", "key").status == 404
    assert door.publish("nowhere", {"_ts": stamp}).status == door.read("nowhere").status == 404
    assert curl("-XPUT", f"{door.url}/strict", "-d", json.dumps({"_ts": stamp})).status == 401
    assert curl("-XGET", f"{door.url}/strict/0").status == 401
    for body in ("{}", '{"_ts": "x"}', '{"_ts": null}', '{"_ts": true}', "[]"):
        assert curl("-XPUT", f"{door.url}/strict", "-H", "client_key: key", "-d", body).status == 422
    skewed = door.publish("strict", {"_ts": 12131313131})
    assert skewed.status == 422
    clocks = [int(number) for number in re.findall(r"\b(\d{11,13}) \(", skewed.content["detail"])]
    assert clocks[0] == 12131313131
    assert abs(clocks[1] - stamp) < 60_000
    assert curl("-XPUT", f"{door.url}/strict", "-H", "client_key: key", "-d", "x=1").status == 400
    assert door.read("strict").content["messages"] == []


@pytest.mark.parametrize(
    "name",
    ["topic", "publish", "subscribe", "admin", "data", "kraft", "docs", "metrics", "openapi.json", "healthcheck",
     "register", "create_topic"],
)  # fmt: skip
def test_a_channel_cannot_have_the_name_of_a_path(door: Door, name: str) -> None:
    refused = door.create(name)
    assert refused.status == 422
    assert f"/{name} is a path of the broker itself" in refused.content["detail"]


def test_a_revoked_key_is_good_no_longer(door: Door) -> None:
    door.channel("revoked")
    other = curl("-XPOST", f"{door.url}/register/revoked").content
    assert len(bytes.fromhex(other["client_key"])) >= 16
    assert door.publish("revoked", {"x": 1, "_ts": now_ms()}, other["client_key"]).status == 201
    path = f"{door.url}/register/revoked/{other['client_id']}"
    assert curl("-XDELETE", path).status == 401
    assert curl("-XDELETE", path, "-H", "client_key: key").status == 204
    assert door.publish("revoked", {"x": 2, "_ts": now_ms()}, other["client_key"]).status == 401
    assert door.read("revoked", key=other["client_key"]).status == 401
    assert door.numbers("revoked") == [1]


def test_whoever_guesses_keys_has_to_wait(door: Door) -> None:
    door.channel("guessed")
    assert door.read("guessed").status == 200
    for number in range(3):
        assert door.read("guessed", key=f"guess{number}").status == 401
    refused = door.read("guessed", key="guess")
    assert refused.status == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert door.read("guessed").status == 200, "a key that is known is no guess"


def test_a_fifo_channel_gives_what_came_in_the_order_in_which_it_came(door: Door) -> None:
    door.channel("line", fifo=True)
    stamp = now_ms()
    answers = [door.publish("line", {"x": number, "_ts": stamp - number * 1_000}) for number in range(4)]
    assert [answer.status for answer in answers] == [201] * 4
    assert door.numbers("line") == [0, 1, 2, 3]
    last = door.read("line", answers[3].content["timestamp"])
    assert [message["x"] for message in last.content["messages"]] == [3]


def test_keys_and_objects_go_with_the_topic(broker: BrokerProcess, door: Door) -> None:
    door.channel("gone")
    assert door.publish("gone", {"x": 1, "_ts": now_ms()}).status == 201
    assert curl("-XDELETE", f"{door.url}/admin/v1/topics/gone").status == 204
    assert door.read("gone").status == 404
    wait_until(lambda: not list((broker.directory / "objects").glob("gone/**/*-*")), what="the end of the objects")
    wait_until(lambda: door.create("gone").status == 201, what="a channel of the same name")
    assert door.read("gone").status == 401
    assert door.register("gone", "other").status == 201
    assert door.numbers("gone", "other") == []


def test_a_killed_broker_comes_back_with_its_channels_keys_and_messages(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", SETTINGS, http=True)
    with broker:
        door = Door(broker.http_url)
        door.channel("kept")
        client_id = door.register("kept", "revoked").content["client_id"]
        assert curl("-XDELETE", f"{door.url}/register/kept/{client_id}", "-H", "client_key: key").status == 204
        for number in range(3):
            assert door.publish("kept", {"x": number, "_ts": now_ms()}).status == 201
        broker.kill()
        broker.start()
        door = Door(broker.http_url)
        assert door.create("kept").status == 409
        assert door.numbers("kept") == [0, 1, 2]
        assert door.read("kept", key="revoked").status == 401
        assert door.publish("kept", {"x": 3, "_ts": now_ms()}).content["offset"] == 3
        assert door.numbers("kept") == [0, 1, 2, 3]
