"""Sixteen partitions of fifty thousand values: published and followed by streams at the same time, on one broker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from odradek.proto import eeylops_pb2 as pb
from tests.eeylops.asking import Asker, code
from tests.process import BrokerProcess

PARTITIONS, VALUES, REQUEST_VALUES = 16, 50_000, 500
STREAM_SECONDS = 240.0


def values_of(partition: int) -> list[bytes]:
    return [b"%d:%d" % (partition, number) for number in range(VALUES)]


def test_sixteen_streams_of_fifty_thousand_values_arrive_whole_and_in_order(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", grpc=True) as process, Asker(process.grpc) as asker:
        topic = asker.created("volume", PARTITIONS)

        def publish(partition: int) -> tuple[str, str]:
            values = values_of(partition)

            def requests() -> Iterator[pb.ProduceRequest]:
                for at in range(0, VALUES, REQUEST_VALUES):
                    chosen = values[at : at + REQUEST_VALUES]
                    yield pb.ProduceRequest(topic_id=topic, partition_id=partition, values=chosen)

            answer, call = asker.stub.Publish.with_call(requests(), timeout=STREAM_SECONDS)
            return code(answer.error), dict(call.trailing_metadata())["odradek-stored"]

        def follow(partition: int) -> tuple[list[bytes], list[int]]:
            asked = pb.ConsumeRequest(topic_id=topic, partition_id=partition, batch_size=2_000)
            stream = asker.stub.Subscribe(asked, timeout=STREAM_SECONDS)
            values: list[bytes] = []
            offsets: list[int] = []
            for answer in stream:
                assert code(answer.error) == "KNoError"
                values += [value.value for value in answer.values]
                offsets += [value.offset for value in answer.values]
                if len(values) >= VALUES:
                    stream.cancel()
                    break
            return values, offsets

        with ThreadPoolExecutor(2 * PARTITIONS) as pool:
            following = [pool.submit(follow, partition) for partition in range(1, PARTITIONS + 1)]
            publishing = [pool.submit(publish, partition) for partition in range(1, PARTITIONS + 1)]
            expected = ("KNoError", str(VALUES // REQUEST_VALUES))
            assert [each.result(STREAM_SECONDS) for each in publishing] == [expected] * PARTITIONS
            for partition, each in enumerate(following, start=1):
                values, offsets = each.result(STREAM_SECONDS)
                assert values == values_of(partition), f"partition {partition}"
                assert offsets == list(range(VALUES))
