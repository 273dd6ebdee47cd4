"""Katar's routes for topics: names, configurations, what PUT resets and PATCH leaves, and who may."""

from __future__ import annotations

import asyncio

import pytest

from odradek.settings_rows import SETTINGS
from tests.edge.doors import on_uvloop
from tests.katar.doors import open_katar

TOPIC_SETTINGS = {name for name, setting in SETTINGS.items() if setting.scope == "topic"}
WEEK_MS = 604_800_000


@on_uvloop
async def test_topics_are_listed_by_name_only() -> None:
    async with open_katar() as katar:
        assert await katar.ask("GET", "/topic") == (200, {"topics": []})
        await katar.create("b")
        await katar.create("a")
        assert await katar.ask("GET", "/topic") == (200, {"topics": ["a", "b"]})


@on_uvloop
async def test_a_topic_tells_every_setting_in_force_and_which_are_its_own() -> None:
    async with open_katar(segment_bytes=1 << 20) as katar:
        made = await katar.create("t", config={"retention.ms": 5000, "cleanup.policy": "compact"})
        assert (made["name"], made["partitions"], made["replication_factor"]) == ("t", 1, 1)
        assert set(made["config"]) == TOPIC_SETTINGS
        assert made["overrides"] == ["cleanup.policy", "retention.ms"]
        assert made["config"]["retention.ms"] == 5000
        assert made["config"]["cleanup.policy"] == "compact"
        assert made["config"]["segment.bytes"] == 1 << 20, "the broker's default"
        assert made["config"]["remote.storage.enable"] is False
        assert await katar.ask("GET", "/topic/t") == (200, {"topics": [made]})


@on_uvloop
async def test_several_topics_are_told_at_once_in_the_order_of_their_names() -> None:
    async with open_katar() as katar:
        one, other = await katar.create("one"), await katar.create("other", partitions=3)
        assert await katar.ask("GET", "/topic/other,one,other") == (200, {"topics": [other, one]})
        assert other["partitions"] == 3
        assert await katar.refusal("GET", "/topic/one,missing") == (404, "there is no topic 'missing'")
        assert await katar.refusal("GET", "/topic/one,") == (404, "there is no topic ''")


@on_uvloop
async def test_a_name_that_exists_gets_a_number_behind_it() -> None:
    async with open_katar() as katar:
        names = [(await katar.create("sample"))["name"] for _ in range(4)]
        assert names == ["sample", "sample__0", "sample__1", "sample__2"]
        assert await katar.ask("DELETE", "/topic/sample__0") == (204, None)
        assert (await katar.create("sample"))["name"] == "sample__0"
        assert (await katar.create("sample__1"))["name"] == "sample__1__0"


@on_uvloop
async def test_those_who_ask_for_one_name_at_once_each_get_a_topic() -> None:
    async with open_katar() as katar:
        made = await asyncio.gather(*(katar.create("sample") for _ in range(8)))
        assert {each["name"] for each in made} == {"sample", *(f"sample__{number}" for number in range(7))}


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2048, 2048), ("2048", 2048), ("2KiB", 2048), (None, 1 << 30)],
)
@on_uvloop
async def test_a_setting_is_taken_as_json_has_it(value: object, shown: int) -> None:
    async with open_katar() as katar:
        made = await katar.create("t", config={"segment.bytes": value, "min.cleanable.dirty.ratio": 0.25})
        assert made["config"]["segment.bytes"] == shown
        assert made["config"]["min.cleanable.dirty.ratio"] == 0.25
        made = await katar.create("u", config={"clients.required": True, "cleanup.policy": ["delete", "compact"]})
        assert made["config"]["clients.required"] is True
        assert made["config"]["cleanup.policy"] == "compact,delete"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"segment.bytes": 1}, "segment.bytes = '1' (topic) is too small; allowed: 1KiB to 2147483647B"),
        ({"retentin.ms": 1}, "there is no setting 'retentin.ms' (topic): did you mean retention.ms?"),
        ({"retentin.ms": None}, "there is no setting 'retentin.ms' (topic): did you mean retention.ms?"),
        ({"num.partitions": 3}, "num.partitions (topic) cannot be set by a topic"),
        ({"num.partitions": None}, "num.partitions (topic) cannot be set by a topic"),
        ({"flush": "sometimes"}, "flush = 'sometimes' (topic) is not in the list"),
        ({"segment.bytes": {}}, "segment.bytes must be a string, a number, true, false, or a list of words"),
        ({"segment.bytes": True}, "segment.bytes = 'true' (topic) is not a whole number of bytes"),
        ([], "config must be an object"),
    ],
)
@on_uvloop
async def test_a_bad_setting_is_refused_with_its_own_words(config: object, text: str) -> None:
    async with open_katar() as katar:
        status, detail = await katar.refusal("POST", "/topic", {"name": "t", "config": config})
        assert status == 422 and detail.startswith(text)
        assert await katar.ask("GET", "/topic") == (200, {"topics": []})
        await katar.create("t")
        for method in ("PUT", "PATCH"):
            status, detail = await katar.refusal(method, "/topic/t", {"config": config})
            assert status == 422 and detail.startswith(text)


@pytest.mark.parametrize(
    "body",
    [
        {}, {"name": 1}, {"name": ""}, {"name": "a b"}, {"name": "x" * 250}, {"name": "t", "partitions": 0},
        {"name": "t", "partitions": 10**9}, {"name": "t", "replication_factor": 2}, {"name": "t", "cfg": {}},
        {"name": "__consumer_offsets"},
    ],
)  # fmt: skip
@on_uvloop
async def test_a_topic_that_cannot_be_is_refused(body: object) -> None:
    async with open_katar() as katar:
        assert (await katar.refusal("POST", "/topic", body))[0] == 422


@on_uvloop
async def test_a_body_that_is_no_json_object_is_refused() -> None:
    async with open_katar() as katar:
        await katar.create("t")
        for method, path in (("POST", "/topic"), ("PUT", "/topic/t"), ("PATCH", "/topic/t")):
            for body in (b"", b"{", b"[]", b"x=1"):
                assert (await katar.refusal(method, path, body))[0] == 400


@on_uvloop
async def test_put_resets_what_is_not_sent_and_patch_leaves_it() -> None:
    async with open_katar() as katar:
        await katar.create("t", config={"retention.ms": 5000, "segment.bytes": 2048})
        status, topic = await katar.ask("PATCH", "/topic/t", {"retention.ms": 6000, "retention.bytes": "7KiB"})
        assert status == 200
        assert topic["overrides"] == ["retention.bytes", "retention.ms", "segment.bytes"]
        assert [topic["config"][name] for name in topic["overrides"]] == [7168, 6000, 2048]

        status, topic = await katar.ask("PATCH", "/topic/t", {"config": {"retention.bytes": None}})
        assert (status, topic["overrides"]) == (200, ["retention.ms", "segment.bytes"])
        assert topic["config"]["retention.bytes"] == -1

        status, topic = await katar.ask("PUT", "/topic/t", {"retention.bytes": 1})
        assert (status, topic["overrides"]) == (200, ["retention.bytes"])
        assert (topic["config"]["retention.ms"], topic["config"]["segment.bytes"]) == (WEEK_MS, 1 << 30)
        status, topic = await katar.ask("PUT", "/topic/t", {"config": {}})
        assert (status, topic["overrides"]) == (200, [])
        assert await katar.ask("GET", "/topic/t") == (200, {"topics": [topic]})


@on_uvloop
async def test_the_logs_follow_a_change_at_once() -> None:
    async with open_katar() as katar:
        await katar.create("t")
        await katar.ask("PATCH", "/topic/t", {"segment.bytes": 4096})
        assert katar.house.broker.partition("t", 0).log.config.segment_bytes == 4096


@on_uvloop
async def test_deleting_takes_the_records_away() -> None:
    async with open_katar(auto_create_topics_enable=False) as katar:
        await katar.create("t")
        assert await katar.publish("t", 1, 2) == [0, 1]
        assert await katar.ask("DELETE", "/topic/t") == (204, None)
        assert await katar.ask("GET", "/topic") == (200, {"topics": []})
        await katar.create("t")
        assert await katar.read(topic="t", offset=0) == ([], {"t": {"0": 0}})


@on_uvloop
async def test_an_unknown_topic_is_404_everywhere_but_in_a_publish_that_makes_it() -> None:
    async with open_katar() as katar:
        missing = (404, "there is no topic 'none'")
        assert await katar.refusal("GET", "/topic/none") == missing
        for method in ("PUT", "PATCH", "DELETE"):
            assert await katar.refusal(method, "/topic/none", {}) == missing
        assert await katar.refusal("POST", "/subscribe", {"topic": "none"}) == missing
        assert await katar.refusal("POST", "/subscribe", {"topics": ["none"], "timestamp": 1}) == missing
        assert await katar.publish("none", 1) == [0]
        assert await katar.ask("GET", "/topic") == (200, {"topics": ["none"]})


@on_uvloop
async def test_many_first_publishes_at_once_make_one_topic() -> None:
    async with open_katar() as katar:
        offsets = await asyncio.gather(*(katar.publish("t", number) for number in range(8)))
        assert sorted(offsets) == [[number] for number in range(8)]
        assert await katar.ask("GET", "/topic") == (200, {"topics": ["t"]})


@on_uvloop
async def test_a_publish_makes_no_topic_where_the_broker_is_told_not_to() -> None:
    async with open_katar(auto_create_topics_enable=False) as katar:
        await katar.create("t")
        status, detail = await katar.refusal("POST", "/publish", {"topics": ["t", "none"], "payload": 1})
        assert status == 404 and "auto.create.topics.enable is false" in detail
        assert await katar.read(topic="t", offset=0) == ([], {"t": {"0": 0}}), "nothing is published in part"


@on_uvloop
async def test_the_brokers_own_topics_are_not_shown_and_not_touched() -> None:
    own = "__consumer_offsets"
    async with open_katar() as katar:
        await katar.house.broker.create_topic(own, 1, {}, internal=True)
        assert await katar.ask("GET", "/topic") == (200, {"topics": []})
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            assert (await katar.refusal(method, f"/topic/{own}", {}))[0] == 404
        assert (await katar.refusal("POST", "/subscribe", {"topic": own}))[0] == 404
        assert (await katar.refusal("POST", "/publish", {"topic": own, "payload": 1}))[0] == 422
        assert (await katar.refusal("POST", "/topic", {"name": own}))[0] == 422


@on_uvloop
async def test_a_protected_topic_asks_for_a_key_on_every_route_that_names_it() -> None:
    async with open_katar() as katar:
        await katar.create("open")
        await katar.create("shut")
        katar.clients.required.add("shut")
        calls = [
            ("GET", "/topic/open,shut", None), ("PUT", "/topic/shut", {}), ("PATCH", "/topic/shut", {}),
            ("POST", "/publish", {"topics": ["open", "shut"], "payload": 1}),
            ("POST", "/subscribe", {"topic": "shut", "offset": 0}), ("DELETE", "/topic/shut", None),
        ]  # fmt: skip
        for method, path, body in calls:
            assert await katar.refusal(method, path, body) == (401, "no key for shut")
            assert (await katar.refusal(method, path, body, client_key="bad"))[0] == 401
        assert await katar.read(topic="open", offset=0) == ([], {"open": {"0": 0}}), "nothing is published in part"
        for method, path, body in calls:
            assert (await katar.ask(method, path, body, {"client_key": "good"}))[0] in (200, 204)
        assert all(peer.startswith("127.0.0.1:") for peer in katar.clients.peers)


@on_uvloop
async def test_deletion_can_be_switched_off() -> None:
    async with open_katar(delete_topic_enable=False) as katar:
        await katar.create("t")
        assert await katar.refusal("DELETE", "/topic/t") == (403, "delete.topic.enable is false")
