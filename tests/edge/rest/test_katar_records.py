"""Katar's publish and subscribe: payloads as they were sent, positions, waits, and what is refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from odradek.broker.katar_port import KatarBroker
from odradek.broker.value_writing import Prepared
from odradek.edge.rest import katar_leaders
from odradek.records.build import build_batch
from odradek.records.record import Header, NewRecord
from tests.broker.houses import START_MS
from tests.client.support import until
from tests.edge.doors import on_uvloop
from tests.katar.doors import SECRET, Katar, open_katar

FORWARDED = {"x-odradek-forwarded": "1", "x-odradek-secret": SECRET}


async def raw_read(katar: Katar, body: object) -> bytes:
    client = await katar.connect()
    content = json.dumps(body)
    client.send(f"POST /subscribe HTTP/1.1\nHost: x\nContent-Length: {len(content)}\n\n{content}")
    status, _, answer = await client.read("POST")
    assert status == 200
    return answer


@on_uvloop
async def test_a_payload_comes_out_byte_for_byte_as_it_went_in() -> None:
    payloads = [
        b'{"b" : 1.00, "a":[ ],"b":2}',
        '"é\\u00e9"'.encode(),
        b"1e2",
        b"null",
        b"-0",
        b'{\n  "n": 1\n}',
        b"true",
    ]
    async with open_katar() as katar:
        for payload in payloads:
            status, _ = await katar.ask("POST", "/publish", b'{"topic":"t","payload": ' + payload + b" }")
            assert status == 200
        together = b'{"payloads":[' + b" , ".join(payloads) + b'],"topic":"t"}'
        status, answer = await katar.ask("POST", "/publish", together)
        assert (status, [each["offset"] for each in answer["offsets"]]) == (200, list(range(7, 14)))
        text = await raw_read(katar, {"topic": "t", "offset": 0})
        assert [text.count(b'"payload":' + payload + b"}") for payload in payloads] == [2] * 7
        log = katar.house.broker.partition("t", 0).log
        chunk = log.read(0, 1 << 20)
        assert chunk is not None and payloads[0] in bytes(chunk.data)


@on_uvloop
async def test_what_is_published_is_told_with_its_place_and_time() -> None:
    async with open_katar() as katar:
        place = {"topic": "t", "partition": 0, "timestamp": START_MS}
        assert await katar.ask("POST", "/publish", {"topic": "t", "payload": "a"}) == (
            200, {"offsets": [{**place, "offset": 0}]},
        )  # fmt: skip
        katar.house.clock.advance(5)
        status, answer = await katar.ask("POST", "/publish", {"topics": ["t", "u"], "payloads": ["b", "c"], "key": "k"})
        later = START_MS + 5
        assert (status, [tuple(each.values()) for each in answer["offsets"]]) == (
            200, [("t", 0, 1, later), ("t", 0, 2, later), ("u", 0, 0, later), ("u", 0, 1, later)],
        )  # fmt: skip
        _, answer = await katar.ask("POST", "/subscribe", {"topic": "t", "offset": 1, "max": 1})
        record = {"topic": "t", "partition": 0, "base_offset": 0, "offset": 1, "true_offset": 1, "timestamp": later}
        assert answer == {"records": [{**record, "key": "k", "payload": "b"}], "position": {"t": {"0": 2}}}


@on_uvloop
async def test_the_time_of_arrival_is_told_where_the_topic_stamps_it() -> None:
    async with open_katar() as katar:
        await katar.create("t", config={"message.timestamp.type": "LogAppendTime"})
        _, answer = await katar.ask("POST", "/publish", {"topic": "t", "payload": 1})
        assert answer["offsets"][0]["timestamp"] == START_MS


@on_uvloop
async def test_offsets_count_from_the_segment_that_holds_the_record() -> None:
    async with open_katar() as katar:
        await katar.create("t", config={"segment.bytes": 1024})
        for number in range(30):
            await katar.publish("t", f"{number}" * 50)
        _, answer = await katar.ask("POST", "/subscribe", {"topic": "t", "offset": 0})
        bases = [segment.base_offset for segment in katar.house.broker.partition("t", 0).log.segments]
        assert len(bases) > 2
        for number, record in enumerate(answer["records"]):
            assert record["true_offset"] == number == record["base_offset"] + record["offset"]
            assert record["base_offset"] == max(base for base in bases if base <= number)


@on_uvloop
async def test_reading_goes_on_from_the_position() -> None:
    async with open_katar() as katar:
        await katar.publish("t", *range(250))
        payloads, position = await katar.read(topic="t", offset=0)
        assert (payloads, position) == (list(range(100)), {"t": {"0": 100}}), "a hundred unless said"
        payloads, position = await katar.read(position=position, max=140)
        assert (payloads, position) == (list(range(100, 240)), {"t": {"0": 240}})
        payloads, position = await katar.read(topic="t", position=position)
        assert (payloads, position) == (list(range(240, 250)), {"t": {"0": 250}})
        assert await katar.read(position=position) == ([], position)


@on_uvloop
async def test_latest_is_what_comes_after_the_call() -> None:
    async with open_katar() as katar:
        await katar.publish("t", "before")
        payloads, position = await katar.read(topic="t")
        assert (payloads, position) == ([], {"t": {"0": 1}})
        await katar.publish("t", "after")
        assert (await katar.read(position=position))[0] == ["after"]


@on_uvloop
async def test_a_read_begins_at_a_time() -> None:
    async with open_katar() as katar:
        for number in range(5):
            await katar.publish("t", number)
            katar.house.clock.advance(1000)
        assert (await katar.read(topic="t", timestamp=START_MS + 2000))[0] == [2, 3, 4]
        assert (await katar.read(topic="t", timestamp=str(START_MS + 2001)))[0] == [3, 4]
        assert await katar.read(topic="t", timestamp=START_MS + 9000) == ([], {"t": {"0": 5}})
        assert (await katar.read(topic="t", timestamp=0))[0] == [0, 1, 2, 3, 4]


@on_uvloop
async def test_an_offset_that_is_gone_means_the_first_that_is_there() -> None:
    async with open_katar() as katar:
        await katar.publish("t", *range(10))
        katar.house.broker.partition("t", 0).log.delete_records(4).run()
        payloads, position = await katar.read(topic="t", offset=0)
        assert (payloads, position) == ([4, 5, 6, 7, 8, 9], {"t": {"0": 10}})


@on_uvloop
async def test_an_offset_beyond_the_end_is_refused_with_the_range() -> None:
    async with open_katar() as katar:
        await katar.publish("t", *range(3))
        assert await katar.read(topic="t", offset=3) == ([], {"t": {"0": 3}}), "the next one"
        text = "offset 4 is beyond the end of topic 't', partition 0: send one from 0 to 3, which is the next record's"
        assert await katar.refusal("POST", "/subscribe", {"topic": "t", "offset": 4}) == (422, text)
        assert await katar.refusal("POST", "/subscribe", {"position": {"t": {"0": 4}}}) == (422, text)


@on_uvloop
async def test_a_read_waits_for_the_first_record() -> None:
    async with open_katar() as katar:
        await katar.create("t")
        await katar.create("u")
        reading = katar.read_later(topics=["t", "u"], wait_ms=20_000)
        partition = katar.house.broker.partition("u", 0)
        await until(lambda: bool(partition._wakers))
        await katar.publish("u", "x")
        assert await reading == (["x"], {"t": {"0": 0}, "u": {"0": 1}})
        assert not partition._wakers, "nothing is kept"
        assert (await katar.read(topic="u", offset=0, wait_ms=20_000))[0] == ["x"], "what is there is not waited for"
        assert await katar.read(topic="u", wait_ms=10) == ([], {"u": {"0": 1}})


@on_uvloop
async def test_who_waits_for_a_topic_hears_of_its_end_and_who_hangs_up_leaves_nothing() -> None:
    async with open_katar() as katar:
        await katar.create("t")
        partition = katar.house.broker.partition("t", 0)
        client = await katar.connect()
        client.send('POST /subscribe HTTP/1.1\nHost: x\nContent-Length: 32\n\n{"topic": "t", "wait_ms": 20000}')
        await until(lambda: bool(partition._wakers))
        await client.close()
        await until(lambda: not partition._wakers)
        waiting = asyncio.create_task(katar.refusal("POST", "/subscribe", {"topic": "t", "wait_ms": 20_000}))
        await until(lambda: bool(partition._wakers))
        await katar.ask("DELETE", "/topic/t")
        assert (await waiting)[0] == 404


@on_uvloop
async def test_several_partitions_share_an_answer_and_none_is_left_behind() -> None:
    async with open_katar() as katar:
        await katar.create("t", partitions=3)
        for partition in range(3):
            await katar.publish("t", *(f"{partition}-{number}" for number in range(10)), partition=partition)
        seen: list[str] = []
        payloads, position = await katar.read(topic="t", offset=0, max=6)
        assert sorted(payloads) == ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"]
        while payloads:
            seen += payloads
            payloads, position = await katar.read(position=position, max=7)
        assert sorted(seen) == sorted(f"{partition}-{number}" for partition in range(3) for number in range(10))
        assert position == {"t": {"0": 10, "1": 10, "2": 10}}


@on_uvloop
async def test_a_partition_that_a_position_does_not_know_is_read_whole() -> None:
    async with open_katar() as katar:
        await katar.publish("t", "a")
        _, position = await katar.read(topic="t", offset=0)
        await katar.house.broker.add_partitions("t", 2)
        await katar.publish("t", "b", partition=1)
        assert await katar.read(position=position) == (["b"], {"t": {"0": 1, "1": 1}})


@on_uvloop
async def test_keys_choose_the_partition_and_other_payloads_take_turns() -> None:
    async with open_katar() as katar:
        await katar.create("t", partitions=3)

        async def partition_of(**fields: object) -> int:
            _, answer = await katar.ask("POST", "/publish", {"topic": "t", "payload": 1, **fields})
            return int(answer["offsets"][0]["partition"])

        assert {await partition_of(key="k") for _ in range(5)} == {await partition_of(key="k")}
        assert len({await partition_of(key=f"k{number}") for number in range(20)}) == 3
        assert sorted([await partition_of() for _ in range(3)]) == [0, 1, 2]
        assert await partition_of(partition="2", key="k") == 2
        status, detail = await katar.refusal("POST", "/publish", {"topic": "t", "payload": 1, "partition": 3})
        assert (status, detail) == (404, "topic 't' has no partition 3: they are 0, 1, 2")


@on_uvloop
async def test_records_of_kafka_clients_come_out_as_json_text_or_base64() -> None:
    async with open_katar() as katar:
        await katar.create("t")
        partition = katar.house.broker.partition("t", 0)
        headers = (Header("h", b"v"), Header("h", None), Header("b", b"\xff"))
        records = [
            NewRecord(b'{"a": 1}', b"k", START_MS, headers),
            NewRecord(b"plain", "é".encode(), START_MS),
            NewRecord(b"\xff\x00", b"\xfe", START_MS),
            NewRecord(None, None, START_MS),
            NewRecord(b"", b"", START_MS),
            NewRecord(b'"\xff"', None, START_MS),
            NewRecord(b"01", None, START_MS),
            NewRecord(b"[" * 5000 + b"]" * 5000, None, START_MS),
        ]
        end = partition.append(build_batch(records)).last_offset + 1
        await katar.house.broker.committed(partition, end)
        _, answer = await katar.ask("POST", "/subscribe", {"topic": "t", "offset": 0})
        shown = [
            {name: each[name] for name in each if name.startswith(("key", "payload", "headers"))}
            for each in answer["records"]
        ]
        told = [{"key": "h", "value": "v"}, {"key": "h", "value": None}, {"key": "b", "value_base64": "/w=="}]
        assert shown == [
            {"key": "k", "payload": {"a": 1}, "headers": told},
            {"key": "é", "payload": "plain"},
            {"key_base64": "/g==", "payload_base64": "/wA="},
            {"key": None, "payload": None},
            {"key": "", "payload": ""},
            {"key": None, "payload_base64": "Iv8i"},
            {"key": None, "payload": "01"},
            {"key": None, "payload": "[" * 5000 + "]" * 5000},
        ]


@on_uvloop
async def test_many_payloads_become_as_few_batches_as_the_topic_takes() -> None:
    async with open_katar() as katar:
        await katar.create("t", config={"max.message.bytes": 4096})
        payloads = ["x" * (number * 7) for number in range(100)]
        assert await katar.publish("t", *payloads) == list(range(100))
        assert (await katar.read(topic="t", offset=0))[0] == payloads
        log = katar.house.broker.partition("t", 0).log
        assert 8 < log.flush_stats.batches < 15


@on_uvloop
async def test_a_payload_that_is_too_large_is_refused_and_nothing_of_its_request_is_stored() -> None:
    async with open_katar() as katar:
        await katar.create("t", config={"max.message.bytes": 4096})
        await katar.create("u")
        body = {"topics": ["u", "t"], "payloads": ["a", "x" * 5000]}
        assert await katar.refusal("POST", "/publish", body) == (
            413,
            "a payload of 5002 bytes is too large for topic 't': a batch may have max.message.bytes = 4096",
        )
        assert (await katar.read(topic="u", offset=0))[0] == []


@on_uvloop
async def test_more_payloads_than_one_request_may_have_are_refused() -> None:
    async with open_katar() as katar:
        assert len(await katar.publish("t", *([0] * 10_000))) == 10_000
        body = {"topics": ["t", "u", "v"], "payloads": [0] * 3334}
        text = "3334 payloads for each of 3 topics: at most 10000 at once are taken"
        assert await katar.refusal("POST", "/publish", body) == (413, text)
        _, listed = await katar.ask("GET", "/topic")
        assert listed == {"topics": ["t"]}


@on_uvloop
async def test_a_compacted_topic_wants_keys() -> None:
    async with open_katar() as katar:
        await katar.create("t", config={"cleanup.policy": "compact"})
        assert await katar.refusal("POST", "/publish", {"topic": "t", "payload": 1}) == (
            422, "topic 't' is compacted: its records need a key",
        )  # fmt: skip
        assert await katar.publish("t", 1, key="k") == [0]


@on_uvloop
async def test_too_few_replicas_in_sync_are_told() -> None:
    async with open_katar() as katar:
        await katar.create("t", config={"min.insync.replicas": 2})
        assert (await katar.refusal("POST", "/publish", {"topic": "t", "payload": 1}))[0] == 503


@on_uvloop
async def test_the_answer_leaves_after_the_flush() -> None:
    async with open_katar() as katar:
        await katar.create("t")
        katar.house.disk.may_flush.clear()
        publishing = asyncio.create_task(katar.publish("t", 1))
        await until(lambda: katar.house.disk.flushes_begun > 0)
        assert (await katar.read(topic="t", offset=0))[0] == [], "not readable before it is safe"
        assert not publishing.done()
        katar.house.disk.may_flush.set()
        assert await publishing == [0]


@on_uvloop
async def test_what_is_stored_in_part_is_told() -> None:
    async with open_katar() as katar:
        await katar.create("t")
        await katar.create("u")
        katar.house.disk.may_flush.clear()
        body = {"topics": ["t", "u"], "payload": 1}
        publishing = asyncio.create_task(katar.refusal("POST", "/publish", body))
        partition = katar.house.broker.partition("u", 0)
        await until(lambda: bool(partition._waiting))
        partition.fail(partition.not_led("for a test"))
        katar.house.disk.may_flush.set()
        text = "broker 1 does not lead u-0: for a test (stored all the same: t-0 from offset 0)"
        assert await publishing == (503, text)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"topic": "t"}, 422), ({"payload": 1}, 422), ({"topic": "t", "payload": 1, "payloads": [1]}, 422),
        ({"topic": "t", "topics": ["t"], "payload": 1}, 422), ({"topics": [], "payload": 1}, 422),
        ({"topics": ["t", "t"], "payload": 1}, 422), ({"topic": "t", "payloads": []}, 422),
        ({"topic": "t", "payloads": 1}, 422), ({"topic": 1, "payload": 1}, 422), ({"topic": "a b", "payload": 1}, 422),
        ({"topic": "t", "payload": 1, "key": 1}, 422), ({"topic": "t", "paylod": 1}, 422), ([], 422),
        (b"{", 400), (b"", 400), (b'{"topic":"t","payload":"\xff"}', 400), (b'{"topic":"t","payload":01}', 400),
        (b'{"topic":"t","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    ],
)  # fmt: skip
@on_uvloop
async def test_a_publish_that_is_not_as_it_should_be_is_refused(body: object, status: int) -> None:
    async with open_katar() as katar:
        assert (await katar.refusal("POST", "/publish", body))[0] == status


@pytest.mark.parametrize(
    "body",
    [
        {}, {"topic": "t", "offset": 0, "timestamp": 0}, {"topic": "t", "offset": 0, "position": {}},
        {"topic": "t", "offset": -1}, {"topic": "t", "timestamp": -1}, {"topic": "t", "max": 0},
        {"topic": "t", "max": 10_001}, {"topic": "t", "wait_ms": 60_001}, {"topic": "t", "wait_ms": -1},
        {"position": {}}, {"position": {"t": {"x": 1}}}, {"position": {"t": {"7": 1}}}, {"position": {"t": {"0": -1}}},
        {"topic": "t", "position": {"u": {"0": 1}}}, {"topic": "t", "from": 1}, {"topic": "t", "offset": "a"},
        {"topics": [str(number) for number in range(101)]},
    ],
)  # fmt: skip
@on_uvloop
async def test_a_subscribe_that_is_not_as_it_should_be_is_refused(body: object) -> None:
    async with open_katar() as katar:
        await katar.create("t")
        assert (await katar.refusal("POST", "/subscribe", body))[0] == 422


@on_uvloop
async def test_what_brokers_pass_on_is_taken_from_brokers_only() -> None:
    async with open_katar() as katar:
        await katar.create("t")
        katar.clients.required.add("t")
        publish = {"topic": "t", "partition": 0, "payloads": [1]}
        read = {"starts": {"t": {"0": ["offset", 0]}}, "max": 10, "wait_ms": 0}
        stranger = {"x-odradek-forwarded": "1"}
        for path, body in (("/publish", publish), ("/subscribe", read)):
            assert (await katar.ask("POST", path, body, stranger))[0] == 401
            assert (await katar.ask("POST", path, body, {**stranger, "client_key": "good"}))[0] == 401
            assert (await katar.ask("POST", path, body, FORWARDED))[0] == 401, "its client's key goes along"
            assert (await katar.ask("POST", path, body, {**FORWARDED, "client_key": "good"}))[0] == 200
        assert (await katar.ask("POST", "/publish", {**publish, "partition": 1}, FORWARDED))[0] == 421
        assert (await katar.ask("POST", "/publish", {"topic": "t", "payload": 1}, FORWARDED))[0] == 422
        read["starts"] = {"t": {"1": ["latest", 0]}}
        assert (await katar.ask("POST", "/subscribe", read, FORWARDED))[0] == 421


@on_uvloop
async def test_nothing_is_written_to_a_partition_that_another_leads_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(katar_leaders, "_LEADER_SECONDS_MAX", 0.0)
    async with open_katar() as katar:
        await katar.publish("t", "a")
        await katar.publish("u", "a")
        lost = katar.house.broker.partition("u", 0)
        prepare = KatarBroker.prepare

        def prepare_and_lose(self: KatarBroker, *args: Any) -> Prepared:
            prepared = prepare(self, *args)
            asyncio.get_running_loop().call_soon(setattr, lost, "is_leader", False)
            return prepared

        monkeypatch.setattr(KatarBroker, "prepare", prepare_and_lose)
        status, answer = await katar.ask("POST", "/publish", {"topics": ["t", "u"], "payload": "b"})
        assert status == 503
        assert "stored all the same: t-0 from offset 1" in answer["detail"]
        assert lost.log.next_offset == 1
