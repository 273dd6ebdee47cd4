"""What a good broker of ours does not show: transactions, damage, leaders that change, brokers without topic ids."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest

from odradek.client.fetched import AbortedTransaction
from odradek.records.build import ControlType, build_batch, control_batch
from odradek.records.record import NewRecord
from odradek.spark.connection import ConnectionOptions
from odradek.spark.errors import SparkError
from odradek.spark.offsets import OffsetRange
from odradek.spark.read import ranges as ranges_module
from odradek.spark.read.ranges import read_range
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import fetch
from tests.client.scripted import TOPIC, TOPIC_ID, Handler, ScriptedBroker


@contextmanager
def serving(*brokers: ScriptedBroker) -> Iterator[str]:
    """Run scripted brokers in a thread of their own; they know of each other."""
    started, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            for node in brokers:
                node.cluster = list(brokers)
                await stack.enter_async_context(node)
            started.set()
            await stop.wait()

    with asyncio.Runner() as runner:
        thread = threading.Thread(target=runner.run, args=(serve(),))
        thread.start()
        assert started.wait(10), "the brokers did not start"
        try:
            yield brokers[0].address
        finally:
            runner.get_loop().call_soon_threadsafe(stop.set)
            thread.join()


def fetched(data: bytes | bytearray = b"", **more: Any) -> fetch.Response:
    """An answer to Fetch for the only partition."""
    partition = fetch.ResponsePartition(partition_index=0, records=bytes(data), **more)
    return fetch.Response(responses=[fetch.ResponseTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])])


def fetching(answers: Callable[[int], fetch.Response]) -> Handler:
    """Answer a fetch by its offset."""
    return lambda request: answers(request.topics[0].partitions[0].fetch_offset)


def batch(base_offset: int, *values: bytes, producer_id: int = -1) -> bytearray:
    return build_batch(
        [NewRecord(value, None, 0) for value in values],
        base_offset=base_offset,
        producer_id=producer_id,
        transactional=producer_id >= 0,
    )


def marker(base_offset: int, kind: ControlType, producer_id: int) -> bytearray:
    return control_batch(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=base_offset
    )


def values(address: str, start: int, end: int, *, read_committed: bool = True, timeout_ms: int = 20_000) -> list[bytes]:
    found = read_range(
        ConnectionOptions(address, timeout_ms=timeout_ms),
        OffsetRange(TOPIC, 0, start, end),
        ("value",),
        read_committed=read_committed,
        fail_on_data_loss=True,
    )
    return [value for one in found for value in one["value"].to_pylist()]


LOG = {  # by the offset that is asked for: a transaction over three answers, and a range that ends in a marker
    0: batch(0, b"a", b"b", producer_id=7) + batch(2, b"c"),
    3: batch(3, b"d", producer_id=7) + batch(4, b"e", producer_id=8),
    5: marker(5, ControlType.ABORT, 7) + batch(6, b"f", producer_id=7) + marker(7, ControlType.COMMIT, 8),
    8: marker(8, ControlType.COMMIT, 7),
}
ABORTED = [AbortedTransaction(7, 0)]


def transactional(offset: int) -> fetch.Response:
    aborted = [
        fetch.ResponseAbortedTransaction(producer_id=item.producer_id, first_offset=item.first_offset)
        for item in ABORTED
        if offset <= 5
    ]
    return fetched(LOG[offset], high_watermark=9, last_stable_offset=9, aborted_transactions=aborted)


def test_aborted_records_are_no_rows_and_markers_at_the_end_lead_to_the_end() -> None:
    node = ScriptedBroker()
    node.handlers[ApiKey.FETCH] = fetching(transactional)
    with serving(node) as address:
        assert values(address, 0, 9) == [b"c", b"e", b"f"]
        assert [request.isolation_level for request in node.asked_for(fetch.Request)] == [1] * 4
        assert values(address, 0, 9, read_committed=False) == [b"a", b"b", b"c", b"d", b"e", b"f"]
        assert values(address, 3, 7) == [b"e", b"f"]


def test_a_transaction_that_stays_open_is_named_when_the_time_is_over() -> None:
    node = ScriptedBroker()
    node.handlers[ApiKey.FETCH] = fetching(lambda offset: fetched(high_watermark=9, last_stable_offset=offset))
    with (
        serving(node) as address,
        pytest.raises(SparkError, match=r"a transaction that is still open.*from offset 3 on"),
    ):
        values(address, 3, 9, timeout_ms=300)


def test_damaged_records_are_an_error_that_names_the_partition_and_the_offset() -> None:
    damaged = batch(0, b"a") + batch(1, b"b")
    damaged[-3] ^= 1
    node = ScriptedBroker()
    node.handlers[ApiKey.FETCH] = fetching(lambda _: fetched(damaged, high_watermark=2))
    with serving(node) as address, pytest.raises(SparkError, match=r"partition t-0 .*batch of offset 1 has the CRC"):
        values(address, 0, 2)


def test_an_answer_that_holds_no_whole_batch_does_not_go_round_in_circles() -> None:
    node = ScriptedBroker()
    node.handlers[ApiKey.FETCH] = fetching(lambda _: fetched(batch(0, b"a")[:-1], high_watermark=2))
    with serving(node) as address, pytest.raises(SparkError, match="hold no batch"):
        values(address, 0, 2)


def test_a_new_leader_is_found() -> None:
    first, second = ScriptedBroker(node_id=1), ScriptedBroker(node_id=2)
    second.leader_id = 1

    def resign(offset: int) -> fetch.Response:
        if offset < 2:
            return fetched(batch(0, b"a", b"b"), high_watermark=4)
        first.leader_id = second.leader_id = 2
        return fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

    first.handlers[ApiKey.FETCH] = fetching(resign)
    second.handlers[ApiKey.FETCH] = fetching(lambda offset: fetched(batch(offset, b"c", b"d"), high_watermark=4))
    with serving(first, second) as address:
        assert values(address, 0, 4) == [b"a", b"b", b"c", b"d"]


def test_a_broker_without_topic_ids_is_asked_by_name() -> None:
    node = ScriptedBroker()
    node.ranges[int(ApiKey.METADATA)] = (0, 9)
    node.handlers[ApiKey.FETCH] = fetching(lambda offset: fetched(batch(offset, b"a"), high_watermark=2))
    with serving(node) as address:
        assert values(address, 0, 2) == [b"a", b"a"]
    assert {version for key, version in node.versions if key == ApiKey.FETCH} == {12}


def test_the_next_answer_is_under_way_while_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges_module, "FETCH_BYTES_MAX", 200)
    asked = threading.Event()
    node = ScriptedBroker()

    def answer(offset: int) -> fetch.Response:
        if offset == 1:
            asked.set()
        return fetched(batch(offset, b"a"), high_watermark=3)

    node.handlers[ApiKey.FETCH] = fetching(answer)
    with serving(node) as address:
        reading = read_range(
            ConnectionOptions(address),
            OffsetRange(TOPIC, 0, 0, 3),
            ("value",),
            read_committed=True,
            fail_on_data_loss=True,
        )
        next(reading)
        assert asked.wait(10), "nothing was asked for before the first answer was used up"
        assert len(list(reading)) == 2
