"""How MyKafka's partitions lie on the disk: segments of so many messages, retention by size and by age, reopening."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.proto import mykafka_pb2 as pb
from odradek.records.build import build_values
from tests.mykafka.asking import TOPIC, Client, asking, segments
from tests.process import BrokerProcess, wait_until

SECONDS_MAX = 60.0


def message(number: int) -> bytes:
    return b"message %06d" % number


MESSAGE_BYTES = len(build_values([message(0)], None, 0))  # as it lies on the disk, in a batch of its own
TEN = 10 * MESSAGE_BYTES


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Its timer does nothing for retention: what goes, goes because a segment was rolled."""
    settings = {"log.retention.check.interval.ms": "1d"}
    with BrokerProcess(tmp_path_factory.mktemp("mykafka") / "data", settings, grpc=True) as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with asking(broker.grpc) as client:
        yield client


def fill(client: Client, topic: str, partition: int, count: int) -> None:
    for number in range(count):
        assert client.send(topic, partition, message(number)) == number


@pytest.mark.parametrize(("count", "expected"), [(10, 1), (15, 2), (100, 10), (1_100, 110)])
def test_messages_roll_into_segments_of_ten(broker: BrokerProcess, client: Client, count: int, expected: int) -> None:
    topic = f"rolls_{count}"
    client.create(topic, 0, TEN)
    fill(client, topic, 0, count)
    assert segments(broker.directory, topic, 0) == expected
    assert client.offsets(topic, 0) == (0, count - 1, count - 1)
    for offset in {0, count // 2, count - 1}:
        assert client.get(topic, 0, offset) == message(offset)


def test_a_message_that_is_larger_than_a_segment_has_one_for_itself(broker: BrokerProcess, client: Client) -> None:
    client.create("larger", 0, 100)
    for number in range(3):
        assert client.send("larger", 0, b"%d" % number + b"x" * 5_000) == number
    assert segments(broker.directory, "larger", 0) == 3
    assert client.get("larger", 0, 1) == b"1" + b"x" * 5_000


def test_retention_by_size_leaves_two_segments_when_the_roll_asks_for_it(broker: BrokerProcess, client: Client) -> None:
    client.create("sized", 0, TEN, 2 * TEN)
    fill(client, "sized", 0, 95)
    wait_until(lambda: segments(broker.directory, "sized", 0) == 2, SECONDS_MAX, "the old segments' end")
    assert client.offsets("sized", 0) == (80, 94, 94)
    assert client.get("sized", 0, 79) == pb.PARTITION_ERROR
    assert client.get("sized", 0, 80) == message(80)


def test_retention_by_size_never_takes_the_active_segment(broker: BrokerProcess, client: Client) -> None:
    client.create("tiny", 0, TEN, 1)
    fill(client, "tiny", 0, 15)
    wait_until(lambda: segments(broker.directory, "tiny", 0) == 1, SECONDS_MAX, "the first segment's end")
    assert client.offsets("tiny", 0) == (10, 14, 14)


def test_retention_by_age_takes_old_segments_and_never_the_active_one(broker: BrokerProcess, client: Client) -> None:
    client.create("aged", 0, TEN, 0, 1)
    client.create("kept", 0, TEN)
    for topic in ("aged", "kept"):
        fill(client, topic, 0, 20)
    first = client.offsets("aged", 0)
    assert isinstance(first, tuple) and first[1:] == (19, 19)

    def rolls_and_forgets() -> bool:
        client.send("aged", 0, message(0))
        told = client.offsets("aged", 0)
        return isinstance(told, tuple) and told[0] >= 20

    wait_until(rolls_and_forgets, SECONDS_MAX, "the end of what is older than a second")
    told = client.offsets("aged", 0)
    assert isinstance(told, tuple) and told[0] <= told[1] == told[2]
    assert client.get("aged", 0, told[2]) == message(0)
    assert client.offsets("kept", 0) == (0, 19, 19)


def test_the_timer_takes_old_segments_too_when_nothing_is_written(tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": "200"}
    with BrokerProcess(tmp_path / "data", settings, grpc=True) as process, asking(process.grpc) as client:
        client.create(TOPIC, 0, TEN, 0, 1)
        fill(client, TOPIC, 0, 25)
        wait_until(lambda: segments(process.directory, TOPIC, 0) == 1, SECONDS_MAX, "the end of what is old")
        assert client.offsets(TOPIC, 0) == (20, 24, 24)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_partition_is_the_same_after_the_broker_was_ended_and_started_again(tmp_path: Path, end: str) -> None:
    with BrokerProcess(tmp_path / "data", grpc=True) as process:
        with asking(process.grpc) as client:
            client.create(TOPIC, 3, TEN, 100 * TEN, 3_600)
            client.create("deleted", 0)
            client.delete("deleted", 0)
            fill(client, TOPIC, 3, 37)
            before = client.info()
        assert process.stop() == 0 if end == "stop" else process.kill() is None  # type: ignore[func-returns-value]
        process.start()
        with asking(process.grpc) as client:
            assert client.info() == before
            assert client.offsets(TOPIC, 3) == (0, 36, 36)
            assert [client.get(TOPIC, 3, offset) for offset in range(37)] == [message(n) for n in range(37)]
            assert client.send(TOPIC, 3, message(37)) == 37
            for number in range(38, 50):
                client.send(TOPIC, 3, message(number))
            assert segments(process.directory, TOPIC, 3) == 5  # the size of a segment was kept, too
            assert client.get("deleted", 0, 0) == pb.NOT_FOUND


def test_damaged_files_are_told_by_their_code_and_the_others_serve(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, grpc=True) as process:
        with asking(process.grpc) as client:
            for partition in range(4):
                client.create(TOPIC, partition, 2 * MESSAGE_BYTES)
                fill(client, TOPIC, partition, 7)
        process.stop()
        flipped = data / f"{TOPIC}-0" / f"{0:020}.log"
        content = bytearray(flipped.read_bytes())
        content[-3] ^= 0xFF
        flipped.write_bytes(content)
        (data / f"{TOPIC}-1" / f"{2:020}.log").unlink()
        blocked = data / f"{TOPIC}-2" / f"{6:020}.log"
        blocked.unlink()
        blocked.mkdir()
        process.start()
        with asking(process.grpc) as client:
            assert client.get(TOPIC, 0, 1) == pb.LOG_ERROR
            assert client.get(TOPIC, 1, 2) == pb.FILE_NOT_FOUND
            assert client.get(TOPIC, 2, 0) == pb.FILE_ERROR
            assert client.send(TOPIC, 2, b"x") == -pb.FILE_ERROR
            assert client.info().count("first_offset: unknown") == 1
            assert client.get(TOPIC, 0, 2) == client.get(TOPIC, 3, 2) == message(2)
            assert client.send(TOPIC, 3, b"x") == 7
