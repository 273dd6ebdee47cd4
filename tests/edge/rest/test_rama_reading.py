"""RAMA's door: reading from a time on, page by page, and requests that another broker must answer."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.edge.rest import leading
from odradek.wire.errors import ErrorCode, PeerError
from tests.edge.doors import on_uvloop
from tests.rama.fakes import GRACE_MS, NOW, WINDOW_MS, Brokers, Message, open_brokers

BUCKET = NOW - NOW % WINDOW_MS


async def filled(brokers: Brokers, *timestamps: int) -> None:
    """A channel whose messages are numbered in the order of their arrival."""
    await brokers.channel()
    brokers.cluster.channels["orders"] = [
        Message(index, timestamp, b'{"n":%d}' % index) for index, timestamp in enumerate(timestamps)
    ]


async def read(brokers: Brokers, timestamp: int, query: str = "") -> tuple[list[int], dict[str, Any]]:
    status, answer = await brokers.ask("GET", f"/orders/{timestamp}{query}")
    assert status == 200, answer
    return [message["n"] for message in answer["messages"]], answer["next"]


@on_uvloop
async def test_messages_are_read_from_a_time_on() -> None:
    async with open_brokers() as brokers:
        await filled(brokers, NOW, NOW + 1, NOW - 1, NOW + WINDOW_MS)
        assert await read(brokers, NOW) == ([0, 1, 3], {"timestamp": NOW, "o": 3})
        assert await read(brokers, NOW, "?o=1&n=1") == ([1], {"timestamp": NOW, "o": 2})
        assert await read(brokers, NOW + 10 * WINDOW_MS) == ([], {"timestamp": NOW + 10 * WINDOW_MS, "o": 0})
        assert await read(brokers, NOW, "?o=5") == ([], {"timestamp": NOW, "o": 5})
        brokers.cluster.channels["orders"] = [Message(0, NOW, b"{}")] * 200
        assert len((await brokers.ask("GET", "/orders/0"))[1]["messages"]) == 100


@on_uvloop
async def test_pages_join_without_a_gap_and_without_a_double() -> None:
    async with open_brokers() as brokers:
        await filled(brokers, *(BUCKET + number * 7_000 for number in range(50)))
        brokers.cluster.now = BUCKET + 10 * WINDOW_MS
        for size in (1, 3, 9, 10, 100):
            seen: list[int] = []
            position = {"timestamp": BUCKET - 5, "o": 0}
            while len(seen) < 50:
                page, position = await read(brokers, position["timestamp"], f"?o={position['o']}&n={size}")
                assert page
                seen += page
            assert seen == list(range(50))
            if size >= 9:
                assert position["timestamp"] > BUCKET, "the bucket is part of the position, and o stays small"


@on_uvloop
async def test_a_position_does_not_pass_a_bucket_that_may_still_get_messages() -> None:
    async with open_brokers() as brokers:
        await filled(brokers, BUCKET + 1, BUCKET + WINDOW_MS)
        end = BUCKET + WINDOW_MS
        brokers.cluster.now = end + GRACE_MS
        assert await read(brokers, BUCKET) == ([0, 1], {"timestamp": BUCKET, "o": 2})
        brokers.cluster.now = end + GRACE_MS + 1
        assert await read(brokers, BUCKET) == ([0, 1], {"timestamp": end, "o": 1})
        assert await read(brokers, BUCKET, "?o=1") == ([1], {"timestamp": BUCKET, "o": 2})
        assert await read(brokers, BUCKET - WINDOW_MS, "?n=1") == ([0], {"timestamp": BUCKET, "o": 1})


@pytest.mark.parametrize(
    "path",
    ["x", "-1", "1.5", "1e3", str(2**63), "9" * 30, "0?n=0", "0?n=10001", "0?n=x", "0?n=", "0?o=-1", "0?o=1.0",
     "0?wait_ms=30001", "0?wait_ms=-1"],
)  # fmt: skip
@on_uvloop
async def test_numbers_that_cannot_be_are_refused(path: str) -> None:
    async with open_brokers() as brokers:
        await brokers.channel()
        status, answer = await brokers.ask("GET", f"/orders/{path}")
        assert (status, "must be a whole number" in answer["detail"]) == (422, True)


@on_uvloop
async def test_what_kafka_producers_wrote_is_shown_as_far_as_json_can() -> None:
    async with open_brokers() as brokers:
        await brokers.channel()
        values = [b"[1, 2]", None, b"\xff<", b"plain", b'{"a":', b"[" * 100_000, b'"\\ud800"']
        brokers.cluster.channels["orders"] = [Message(index, NOW, value) for index, value in enumerate(values)]
        _, answer = await brokers.ask("GET", "/orders/0?wait_ms=50")
        shown = answer["messages"]
        assert shown == [[1, 2], None, "\ufffd<", "plain", '{"a":', "[" * 100_000, '"\\ud800"']
        assert brokers.cluster.waits == [50]


# In a cluster.


@on_uvloop
async def test_every_broker_takes_every_request_and_the_leader_answers() -> None:
    async with open_brokers(3) as brokers:
        assert (await brokers.ask("PUT", "/create_topic", {"topic": "orders"}, broker=2))[0] == 201
        assert (await brokers.ask("POST", "/register/orders", {"client_key": "k"}, broker=3))[0] == 201
        brokers.cluster.served_by.clear()
        body = b'{ "_ts" : %d, "s": "\xc3\x9f&?" }' % NOW
        for broker in (1, 2, 3):
            assert await brokers.ask("PUT", "/orders", body, broker=broker) == (
                201, {"offset": broker - 1, "timestamp": NOW},
            )  # fmt: skip
        assert (await brokers.ask("POST", "/orders", b"[%b]" % body, broker=2))[1] == {"offsets": [3, 3]}
        assert [each.value for each in brokers.cluster.channels["orders"]] == [body] * 4
        for broker in (1, 2, 3):
            _, answer = await brokers.ask("GET", f"/orders/{NOW}?n=2&o=1", broker=broker)
            assert answer == {"messages": [{"_ts": NOW, "s": "ß&?"}] * 2, "next": {"timestamp": NOW, "o": 3}}
        assert set(brokers.cluster.served_by) == {1}


@on_uvloop
async def test_what_a_broker_passes_on_is_checked_again() -> None:
    async with open_brokers(2) as brokers:
        await brokers.channel()
        brokers.cluster.secret = "s"
        assert (await brokers.ask("PUT", "/orders", {"_ts": NOW}, broker=2))[0] == 201
        forwarded = {"x-odradek-forwarded": "1"}
        assert (await brokers.ask("PUT", "/orders", {"_ts": NOW}, headers=forwarded))[0] == 401
        forwarded["x-odradek-secret"] = "s"
        assert (await brokers.ask("PUT", "/orders", {"_ts": NOW}, headers=forwarded, key="wrong"))[0] == 401
        assert (await brokers.ask("PUT", "/orders", {"_ts": NOW}, headers=forwarded, broker=2))[0] == 421
        assert (await brokers.ask("PUT", "/orders", {"_ts": NOW}, headers=forwarded))[0] == 201


@on_uvloop
async def test_a_channel_without_a_leader_is_waited_for_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leading, "_LEADER_SECONDS_MAX", 0.2)
    async with open_brokers(2) as brokers:
        await brokers.channel()
        brokers.cluster.leader = -1
        status, answer = await brokers.ask("PUT", "/orders", {"_ts": NOW})
        assert (status, "no leader" in answer["detail"]) == (503, True)
        brokers.cluster.leader = 2
        brokers.cluster.doors[2] = ("127.0.0.1", 1)
        status, answer = await brokers.ask("GET", "/orders/0")
        assert (status, "cannot be reached" in answer["detail"]) == (503, True)


@on_uvloop
async def test_a_message_is_not_published_again_when_nobody_knows_what_became_of_it() -> None:
    async with open_brokers(2) as brokers:
        await brokers.channel()
        brokers.cluster.fails = PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads it now")
        assert (await brokers.ask("PUT", "/orders", {"_ts": NOW}, broker=2))[0] == 503
        brokers.cluster.fails = PeerError(ErrorCode.MESSAGE_TOO_LARGE)
        assert (await brokers.ask("PUT", "/orders", {"_ts": NOW}, broker=2))[0] == 413
        assert brokers.cluster.channels == {"orders": []}
