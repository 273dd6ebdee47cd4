"""Asking the leaders of a cluster in a client's place: what is tried again, what never is, how answers join."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from odradek.broker.katar_port import KatarBroker
from odradek.broker.katar_reading import KatarReader, Start
from odradek.client.http import HttpError
from odradek.edge.rest import katar_leaders
from odradek.edge.rest.forwarding import Forwarder
from odradek.edge.rest.katar_leaders import Leaders
from odradek.edge.routing import RequestError
from odradek.model import TopicPartition
from tests.edge.doors import on_uvloop

HERE, THERE = ("one", 1), ("two", 2)
LATEST = Start("latest")


def place(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def page(content: object, status: int = 200) -> tuple[int, bytes]:
    return status, json.dumps(content).encode()


class Elsewhere:
    """A cluster in which others lead: partition 0 at one address, 1 at another, 2 nowhere. It is port and links."""

    def __init__(self, answer: Callable[[tuple[str, int], Any], Any]) -> None:
        self.asked: list[tuple[tuple[str, int], str, Any]] = []
        self._answer = answer
        self.addresses: dict[int, tuple[str, int]] = {0: HERE, 1: THERE}

    def leads(self, _place: TopicPartition) -> bool:
        return False

    def leader_url(self, place: TopicPartition) -> tuple[str, int] | None:
        return self.addresses.get(place.partition)

    def has(self, topic: str) -> bool:
        return topic == "t"

    def partitions(self, _topic: str) -> list[int]:
        return [0, 1, 2]

    async def send(
        self, address: tuple[str, int], method: str, path: str, headers: Mapping[str, str], content: bytes, _ms: int
    ) -> tuple[int, bytes]:
        assert method == "POST" and not headers
        body = json.loads(content)
        self.asked.append((address, path, body))
        answer = self._answer(address, body)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        return cast("tuple[int, bytes]", answer)

    def leaders(self) -> Leaders:
        return Leaders(cast(KatarBroker, self), cast(KatarReader, None), cast(Forwarder, self))


def record(partition: int, offset: int) -> dict[str, object]:
    return {"topic": "t", "partition": partition, "base_offset": 0, "true_offset": offset, "payload": [offset]}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(katar_leaders, "_LEADER_SECONDS_MAX", 0.2)
    monkeypatch.setattr(katar_leaders, "_LEADER_RETRY_SECONDS", 0.01)


@on_uvloop
async def test_values_are_passed_on_as_they_are_and_the_offsets_come_back() -> None:
    stored = [{"topic": "t", "partition": 1, "offset": 7 + number, "timestamp": 5} for number in range(2)]
    cluster = Elsewhere(lambda *_: page({"offsets": stored}))
    written = await cluster.leaders().publish(place(1), [b"1.0", b'"a"'], "é".encode())
    assert written == (place(1), 7, 2, 5)
    body = {"topic": "t", "partition": 1, "payloads": [1.0, "a"], "key": "é"}
    assert cluster.asked == [(THERE, "/publish", body)]


@on_uvloop
async def test_what_was_not_carried_out_is_tried_again() -> None:
    stored = {"offsets": [{"topic": "t", "partition": 0, "offset": 0, "timestamp": 5}]}
    answers = [page({"detail": "not me"}, 421), HttpError("refused", "nobody there"), page(stored)]
    cluster = Elsewhere(lambda *_: answers.pop(0))
    assert (await cluster.leaders().publish(place(0), [b"1"], None)).first_offset == 0
    assert len(cluster.asked) == 3


@pytest.mark.parametrize("kind", ["timeout", "broken"])
@on_uvloop
async def test_what_may_have_been_published_is_never_published_again(kind: Any) -> None:
    cluster = Elsewhere(lambda *_: HttpError(kind, "lost"))
    with pytest.raises(RequestError) as caught:
        await cluster.leaders().publish(place(0), [b"1"], None)
    assert caught.value.status == 503 and "whether it has done its work is not known" in caught.value.detail
    assert len(cluster.asked) == 1


@on_uvloop
async def test_a_read_that_was_lost_is_asked_for_again() -> None:
    answers = [HttpError("broken", "lost"), page({"records": [], "position": {"t": {"0": 3}}})]
    cluster = Elsewhere(lambda *_: answers.pop(0))
    assert await cluster.leaders().read({place(0): LATEST}, 10, 0) == ([], {place(0): 3})


@on_uvloop
async def test_a_partition_without_a_leader_is_waited_for_and_told() -> None:
    cluster = Elsewhere(lambda *_: page({"records": [], "position": {"t": {"2": 3}}}))
    leaders = cluster.leaders()
    with pytest.raises(RequestError) as caught:
        await leaders.read({place(2): LATEST}, 10, 0)
    assert (caught.value.status, caught.value.detail) == (503, "t-2 has no leader at the moment; try again")
    reading = asyncio.create_task(leaders.read({place(2): LATEST}, 10, 0))
    cluster.addresses[2] = HERE
    assert (await reading).positions == {place(2): 3}


@on_uvloop
async def test_a_partition_that_is_not_there_is_not_waited_for() -> None:
    with pytest.raises(RequestError) as caught:
        await Elsewhere(lambda *_: page({})).leaders().read({place(3): LATEST}, 10, 0)
    assert caught.value.status == 404


@on_uvloop
async def test_a_leaders_refusal_is_the_clients() -> None:
    for told, detail in ((page({"detail": "beyond"}, 422), "beyond"), ((422, b"?"), "?")):
        with pytest.raises(RequestError) as caught:
            await Elsewhere(lambda *_, told=told: told).leaders().read({place(0): LATEST}, 10, 0)
        assert (caught.value.status, caught.value.detail) == (422, detail)


@on_uvloop
async def test_all_leaders_say_where_they_stand_also_when_one_has_all_the_records() -> None:
    def answer(address: tuple[str, int], body: Any) -> tuple[int, bytes]:
        partition = 0 if address == HERE else 1
        records = [record(partition, offset) for offset in range(5)][: body["max"]]
        return page({"records": records, "position": {"t": {str(partition): len(records)}}})

    cluster = Elsewhere(answer)
    reading = await cluster.leaders().read({place(0): LATEST, place(1): LATEST}, 5, 10_000)
    assert [(each.place, each.offset) for each in reading.records] == [(place(0), offset) for offset in range(5)]
    assert reading.positions == {place(0): 5, place(1): 0}
    assert [(address, body["max"], body["wait_ms"]) for address, _, body in cluster.asked] == [
        (HERE, 5, 0), (THERE, 0, 0),
    ]  # fmt: skip


@on_uvloop
async def test_the_first_leader_that_has_something_ends_the_wait_at_the_others() -> None:
    given_up: list[object] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.append(True)

    def answer(address: tuple[str, int], body: Any) -> object:
        partition = 0 if address == HERE else 1
        if not body["wait_ms"]:
            return page({"records": [], "position": {"t": {str(partition): 4}}})
        assert body["starts"] == {"t": {str(partition): ["offset", 4]}}, "where it stood at first"
        if address == HERE:
            return forever()
        return page({"records": [record(1, 4)], "position": {"t": {"1": 5}}})

    cluster = Elsewhere(answer)
    reading = await cluster.leaders().read({place(0): LATEST, place(1): Start("timestamp", 9)}, 10, 10_000)
    assert [each.data for each in reading.records] == [json.dumps(record(1, 4)).encode()]
    assert reading.positions == {place(0): 4, place(1): 5}
    assert given_up == [True]


@on_uvloop
async def test_more_leaders_than_records_are_wanted_lose_nothing() -> None:
    def answer(address: tuple[str, int], body: Any) -> tuple[int, bytes]:
        partition = 0 if address == HERE else 1
        records = [record(partition, 4)] if body["wait_ms"] else []
        return page({"records": records, "position": {"t": {str(partition): 4 + len(records)}}})

    reading = await Elsewhere(answer).leaders().read({place(0): LATEST, place(1): LATEST}, 1, 10_000)
    assert len(reading.records) == 1
    told = reading.records[0].place
    assert reading.positions == {place(0): 4, place(1): 4, told: 5}


@on_uvloop
async def test_nothing_new_anywhere_ends_with_the_time() -> None:
    def answer(address: tuple[str, int], _body: Any) -> tuple[int, bytes]:
        return page({"records": [], "position": {"t": {"0" if address == HERE else "1": 4}}})

    reading = await Elsewhere(answer).leaders().read({place(0): LATEST, place(1): LATEST}, 1, 30)
    assert reading == ([], {place(0): 4, place(1): 4})
