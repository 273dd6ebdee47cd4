"""MyKafka's door with many callers at once: nothing lost, nothing twice, one winner where only one can win."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc import aio

from odradek.proto import mykafka_pb2 as pb
from odradek.proto import mykafka_pb2_grpc
from odradek.records.build import build_values
from tests.client.support import asynchronous
from tests.mykafka.asking import SECONDS, asking
from tests.process import BrokerProcess

CALLERS = 1_000
THREADS, EACH = 8, 200


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("mykafka") / "data", grpc=True) as process:
        yield process
        assert process.stop() == 0
        log = process.log()
    assert "ERROR" not in log and "CRITICAL" not in log


@asynccontextmanager
async def stub(broker: BrokerProcess) -> AsyncIterator[Any]:
    async with aio.insecure_channel(broker.grpc) as channel:
        yield mykafka_pb2_grpc.BrokerStub(channel)  # type: ignore[no-untyped-call]


def message(topic: str, number: int, partition: int = 0) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(topic=topic, partition=partition, payload=b"%06d" % number)


@asynchronous
async def test_a_thousand_messages_at_once_get_a_thousand_offsets_and_share_batches(broker: BrokerProcess) -> None:
    topic = "crowd"
    async with stub(broker) as asked:
        await asked.CreatePartition(pb.TopicPartitionRequest(topic=topic, max_segment_size=1 << 20), timeout=SECONDS)
        calls = (asked.SendMessage(message(topic, number), timeout=SECONDS) for number in range(CALLERS))
        answers = await asyncio.gather(*calls)
        assert {answer.error.code for answer in answers} == {pb.OK}
        assert sorted(answer.offset for answer in answers) == list(range(CALLERS))
        reads = (
            asked.GetMessage(pb.GetMessageRequest(topic=topic, offset=answer.offset), timeout=SECONDS)
            for answer in answers
        )
        read = await asyncio.gather(*reads)
        assert [each.payload for each in read] == [b"%06d" % number for number in range(CALLERS)]
    stored_bytes = sum(file.stat().st_size for file in (broker.directory / f"{topic}-0").glob("*.log"))
    assert stored_bytes < CALLERS * len(build_values([b"%06d" % 0], None, 0)), "each had a batch of its own"


@asynchronous
async def test_of_a_thousand_who_make_one_partition_exactly_one_succeeds(broker: BrokerProcess) -> None:
    async with stub(broker) as asked:
        request = pb.TopicPartitionRequest(topic="wanted", partition=3)
        answers = await asyncio.gather(*(asked.CreatePartition(request, timeout=SECONDS) for _ in range(CALLERS)))
        assert Counter(answer.code for answer in answers) == {pb.OK: 1, pb.TOPIC_ERROR: CALLERS - 1}
        assert (await asked.SendMessage(message("wanted", 0, 3), timeout=SECONDS)).error.code == pb.OK


def test_eight_callers_make_two_hundred_partitions_each(broker: BrokerProcess) -> None:
    def make(thread: int) -> list[int]:
        with asking(broker.grpc) as client:
            return [client.create(f"parallel_{thread % 4}", thread * EACH + number, 1024) for number in range(EACH)]

    with ThreadPoolExecutor(THREADS) as pool:
        made = [code for codes in pool.map(make, range(THREADS)) for code in codes]
    assert made == [pb.OK] * THREADS * EACH
    with asking(broker.grpc) as client:
        assert client.info().count("max_segment_size: 1024") == THREADS * EACH
        assert client.send("parallel_3", THREADS * EACH - 1, b"last") == 0


@asynchronous
async def test_a_partition_that_is_deleted_under_load_ends_its_calls_with_a_code(broker: BrokerProcess) -> None:
    topic, rounds = "doomed", 5
    known = {pb.OK, pb.NOT_FOUND, pb.PARTITION_ERROR}
    told: Counter[int] = Counter()
    async with stub(broker) as asked:
        stop = asyncio.Event()

        async def send() -> None:
            while not stop.is_set():
                answer = await asked.SendMessage(message(topic, 0), timeout=SECONDS)
                told[answer.error.code] += 1
                read = await asked.GetMessage(pb.GetMessageRequest(topic=topic), timeout=SECONDS)
                assert read.error.code in {pb.OK, pb.NOT_FOUND, pb.NO_MESSAGE, pb.PARTITION_ERROR}

        senders = [asyncio.create_task(send()) for _ in range(20)]
        request = pb.TopicPartitionRequest(topic=topic)
        for number in range(rounds):
            assert (await asked.CreatePartition(request, timeout=SECONDS)).code == pb.OK
            before = told[pb.OK]
            async with asyncio.timeout(SECONDS):
                while told[pb.OK] < before + 20:
                    await asked.GetOffsets(pb.GetOffsetsRequest(topic=topic), timeout=SECONDS)
            deleting = asked.DeleteTopic if number % 2 else asked.DeletePartition
            assert (await deleting(request, timeout=SECONDS)).code == pb.OK
        stop.set()
        await asyncio.gather(*senders)
        assert set(told) <= known and told[pb.OK] >= 20 * rounds
        assert (await asked.GetMessage(pb.GetMessageRequest(topic=topic), timeout=SECONDS)).error.code == pb.NOT_FOUND
        assert (await asked.CreatePartition(request, timeout=SECONDS)).code == pb.OK
        offsets = await asked.GetOffsets(pb.GetOffsetsRequest(topic=topic), timeout=SECONDS)
        assert (offsets.first_offset, offsets.last_offset) == (0, -1)


@asynchronous
async def test_callers_who_hang_up_do_not_disturb_the_others(broker: BrokerProcess) -> None:
    topic = "hasty"
    async with stub(broker) as asked:
        await asked.CreatePartition(pb.TopicPartitionRequest(topic=topic), timeout=SECONDS)
        hasty = [asked.SendMessage(message(topic, number), timeout=0.001) for number in range(200)]
        patient = [asked.SendMessage(message(topic, 1_000 + number), timeout=SECONDS) for number in range(50)]
        for call in hasty[::2]:
            call.cancel()
        answers = await asyncio.gather(*patient)
        assert {answer.error.code for answer in answers} == {pb.OK}
        assert len({answer.offset for answer in answers}) == 50
        ends = await asyncio.gather(*(_end_of(call) for call in hasty))
        assert set(ends) <= {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}


async def _end_of(call: Any) -> grpc.StatusCode:
    code: grpc.StatusCode = await call.code()
    return code
