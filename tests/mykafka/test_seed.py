"""MyKafka's section of SEEDS.md, line by line, on one broker that is a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import grpc
import pytest

from odradek.proto import mykafka_pb2 as pb
from tests.mykafka.asking import SECONDS, TOPIC, Client, asking
from tests.process import BrokerProcess

NUMBERS = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("mykafka") / "data", http=True, grpc=True) as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with asking(broker.grpc) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"topic_{next(NUMBERS)}"


def test_an_empty_partition_and_one_with_messages_tell_their_offsets(client: Client, topic: str) -> None:
    assert client.create(topic, 0) == pb.OK
    assert client.offsets(topic, 0) == (0, -1, -1)
    assert [client.send(topic, 0, payload) for payload in (b"first", b"test")] == [0, 1]
    assert client.offsets(topic, 0) == (0, 1, 1)


def test_any_bytes_come_back_as_they_were_also_none(client: Client, topic: str) -> None:
    client.create(topic, 0)
    payloads = [b"", bytes(range(256)), b"x" * 500_000, "été".encode()]
    for offset, payload in enumerate(payloads):
        assert client.send(topic, 0, payload) == offset
    assert [client.get(topic, 0, offset) for offset in range(4)] == payloads


def test_an_offset_past_the_commit_has_no_message_and_one_below_the_first_is_refused(
    client: Client, topic: str
) -> None:
    client.create(topic, 0)
    assert client.get(topic, 0, 0) == pb.NO_MESSAGE
    client.send(topic, 0, b"one")
    assert client.get(topic, 0, 1) == pb.NO_MESSAGE
    assert client.get(topic, 0, 2**62) == pb.NO_MESSAGE
    assert client.get(topic, 0, -1) == pb.PARTITION_ERROR
    assert client.get(topic, 0, -(2**62)) == pb.PARTITION_ERROR
    assert "begins at offset 0" in client.told_get(topic, 0, -1).error.msg


def test_creating_twice_and_deleting_what_is_not_there_are_errors_of_the_topic(client: Client, topic: str) -> None:
    assert client.create(topic, 0) == pb.OK
    error = client.told_create(topic, 0)
    assert error.code == pb.TOPIC_ERROR and "exists" in error.msg
    assert client.delete(topic, 1) == pb.TOPIC_ERROR
    assert client.delete(f"{topic}_unknown", 0) == pb.TOPIC_ERROR
    assert client.delete(topic, 0) == pb.OK
    assert client.delete(topic, 0) == pb.TOPIC_ERROR


def test_what_is_not_there_cannot_be_read_or_written_and_its_topic_may_be_deleted(client: Client, topic: str) -> None:
    assert client.get(topic, 0, 0) == pb.NOT_FOUND
    assert client.offsets(topic, 0) == pb.NOT_FOUND
    assert client.send(topic, 0, b"x") == -pb.NOT_FOUND
    assert client.delete_topic(topic) == pb.OK
    client.create(topic, 5)
    assert client.get(topic, 0, 0) == pb.NOT_FOUND
    assert client.send(topic, 6, b"x") == -pb.NOT_FOUND


def test_partitions_are_any_numbers_and_the_last_one_takes_its_topic_away(client: Client, topic: str) -> None:
    for partition in (7, 0, 34):
        assert client.create(topic, partition) == pb.OK
        assert client.send(topic, partition, b"%d" % partition) == 0
    assert client.delete(topic, 0) == pb.OK
    assert client.get(topic, 34, 0) == b"34"
    assert client.delete(topic, 7) == client.delete(topic, 34) == pb.OK
    assert f"Topic:{topic}\n" not in client.info()


def test_a_partition_that_is_made_again_is_empty(client: Client, topic: str) -> None:
    client.create(topic, 0)
    client.create(topic, 1)
    client.send(topic, 0, b"old")
    client.delete(topic, 0)
    assert client.create(topic, 0) == pb.OK
    assert client.offsets(topic, 0) == (0, -1, -1)
    assert client.send(topic, 0, b"new") == 0
    assert client.get(topic, 0, 0) == b"new"


def test_a_topic_with_a_number_in_its_name_survives_the_deletion_of_the_one_without(client: Client) -> None:
    for name in ("to_delete_topic", "to_delete_topic-0"):
        client.create(name, 0)
        client.create(name, 1)
        client.send(name, 0, name.encode())
    assert client.delete_topic("to_delete_topic") == pb.OK
    assert client.get("to_delete_topic", 0, 0) == pb.NOT_FOUND
    assert client.get("to_delete_topic-0", 0, 0) == b"to_delete_topic-0"
    assert client.offsets("to_delete_topic-0", 1) == (0, -1, -1)


def test_the_broker_describes_topics_partitions_settings_and_offsets(client: Client) -> None:
    client.create(TOPIC, 0)
    client.create(TOPIC, 1, 1024, 4096, 2)
    for payload in (b"a", b"b", b"c"):
        client.send(TOPIC, 1, payload)
    lines = client.info().splitlines()
    start = lines.index(f"Topic:{TOPIC}")
    assert lines[start : start + 15] == [
        f"Topic:{TOPIC}",
        "        partition 0:",
        "            max_segment_size: 4096",
        "            max_partition_size: 0",
        "            segment_ttl: 0",
        "            first_offset: 0",
        "            next_offset: 0",
        "            commit_offset: -1",
        "        partition 1:",
        "            max_segment_size: 1024",
        "            max_partition_size: 4096",
        "            segment_ttl: 2",
        "            first_offset: 0",
        "            next_offset: 3",
        "            commit_offset: 2",
    ]
    assert "__consumer_offsets" not in client.info()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../../etc", "a\0b", "a b", "x" * 250, "zürich", "a\nb"])
def test_a_name_that_cannot_be_one_is_refused_by_every_call(client: Client, name: str) -> None:
    assert client.create(name, 0) == pb.INVALID_FILENAME
    assert client.delete(name, 0) == pb.INVALID_FILENAME
    assert client.delete_topic(name) == pb.INVALID_FILENAME
    assert client.send(name, 0, b"x") == -pb.INVALID_FILENAME
    assert client.get(name, 0, 0) == pb.INVALID_FILENAME
    assert client.offsets(name, 0) == pb.INVALID_FILENAME


@pytest.mark.parametrize("partition", [-1, -(2**31), 2**31 - 1])
def test_a_number_that_cannot_be_a_partition_s_is_refused_by_every_call(
    client: Client, topic: str, partition: int
) -> None:
    client.create(topic, 0)
    assert client.create(topic, partition) == pb.INVALID_FILENAME
    assert client.delete(topic, partition) == pb.INVALID_FILENAME
    assert client.send(topic, partition, b"x") == -pb.INVALID_FILENAME
    assert client.get(topic, partition, 0) == pb.INVALID_FILENAME
    assert client.offsets(topic, partition) == pb.INVALID_FILENAME


@pytest.mark.parametrize("limits", [(-1, 0, 0), (2**40, 0, 0), (0, -1, 0), (0, 0, -1), (0, 0, 2**62)])
def test_settings_that_cannot_be_are_refused(client: Client, topic: str, limits: tuple[int, int, int]) -> None:
    error = client.told_create(topic, 0, *limits)
    assert error.code == pb.PARTITION_ERROR and error.msg
    assert client.get(topic, 0, 0) == pb.NOT_FOUND


def test_the_brokers_own_topics_are_not_for_this_door(client: Client) -> None:
    own = "__consumer_offsets"
    assert client.create(own, 0) == pb.INVALID_FILENAME
    assert client.delete_topic(own) == pb.TOPIC_ERROR
    assert client.delete(own, 0) == pb.TOPIC_ERROR
    assert client.get(own, 0, 0) == pb.NOT_FOUND
    assert client.send(own, 0, b"x") == -pb.NOT_FOUND


def test_a_message_over_a_bound_is_refused_and_nothing_is_stored(client: Client, topic: str) -> None:
    client.create(topic, 0)
    with pytest.raises(grpc.RpcError) as caught:
        client.told_send(topic, 0, b"x" * (64 << 20))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    answer = client.told_send(topic, 0, b"x" * (2 << 20))
    assert answer.error.code == pb.LOG_ERROR and "max.message.bytes" in answer.error.msg
    assert client.offsets(topic, 0) == (0, -1, -1)
    assert client.send(topic, 0, b"small") == 0


def test_bytes_that_are_no_message_are_told_so(broker: BrokerProcess) -> None:
    with grpc.insecure_channel(broker.grpc) as channel:
        for method in ("SendMessage", "CreatePartition", "BrokerInfo"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(f"/mykafka.Broker/{method}", bytes, bytes)(b"\xff\xff\xff", timeout=SECONDS)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_numbers_of_the_fields_are_those_of_the_document() -> None:
    """A client that was generated from the document's own fields is understood."""
    sent = pb.SendMessageRequest(producer_id=1, group_id=2, topic="t", partition=4, payload=b"p").SerializeToString()
    assert sent == b"\x08\x01\x10\x02\x1a\x01t\x20\x04\x2a\x01p"
    read = pb.GetMessageRequest(consumer_id=1, group_id=2, topic="t", partition=4, offset=5).SerializeToString()
    assert read == b"\x08\x01\x10\x02\x1a\x01t\x20\x04\x28\x05"
    told = pb.GetOffsetsResponse(first_offset=1, commit_offset=2, last_offset=3, error=pb.Error(code=pb.OK))
    assert told.SerializeToString() == b"\x08\x01\x10\x02\x18\x03\x22\x00"
    asked = pb.TopicPartitionRequest(topic="t", partition=2, max_segment_size=3, max_partition_size=4, segment_ttl=5)
    assert asked.SerializeToString() == b"\x0a\x01t\x10\x02\x18\x03\x20\x04\x28\x05"
    names = "OK INVALID_FILENAME FILE_NOT_FOUND FILE_ERROR INDEX_ERROR LOG_ERROR PARTITION_ERROR TOPIC_ERROR NOT_FOUND"
    assert dict(pb.Code.items()) == {name: number for number, name in enumerate([*names.split(), "NO_MESSAGE"])}
