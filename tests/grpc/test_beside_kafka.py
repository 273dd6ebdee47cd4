"""Kafka's clients and gRPC's see the same topics, the same records and the same offsets, whoever was first."""

from __future__ import annotations

import shutil
import time

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.proto import mykafka_pb2 as mk
from tests.clients.sample import CODECS
from tests.grpc.doors import CALL_SECONDS, Doors
from tests.grpc.kafka import confluent_send, confluent_values, kcat_send, kcat_values
from tests.process import BrokerProcess, wait_until

pytestmark = pytest.mark.xdist_group("grpc-kafka")

needs_kcat = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed: apt-get install kcat")
BINARY = b"\x00\xff\n\r\n" + bytes(range(256))


def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        made.result(CALL_SECONDS)


@needs_kcat
def test_what_mykafka_stores_is_read_by_kcat(broker: BrokerProcess, doors: Doors) -> None:
    doors.create_partition("sent")
    values = [b"one", b"", "drei é".encode(), b"x" * 5_000]
    assert [doors.send("sent", 0, value) for value in values] == [0, 1, 2, 3]
    assert kcat_values(broker.bootstrap, "sent") == values


def test_what_mykafka_stores_is_read_by_confluent_byte_for_byte(broker: BrokerProcess, doors: Doors) -> None:
    before = int(time.time() * 1000)
    doors.create_partition("binary")
    for value in (BINARY, b"", BINARY[::-1]):
        doors.send("binary", 0, value)
    found = confluent_values(broker.bootstrap, "binary", 3)
    assert [(offset, value) for offset, value, _ in found] == [(0, BINARY), (1, b""), (2, BINARY[::-1])]
    assert all(before <= timestamp <= time.time() * 1000 for _, _, timestamp in found)


@needs_kcat
def test_a_partition_beside_gaps_is_written_and_read_by_kafka_clients(broker: BrokerProcess, doors: Doors) -> None:
    doors.create_partition("sparse", 1)
    doors.create_partition("sparse", 4)
    doors.send("sparse", 4, b"by grpc")
    confluent_send(broker.bootstrap, "sparse", [b"by confluent"], 4, "zstd")
    kcat_send(broker.bootstrap, "sparse", [b"by kcat"], 4)
    expected = [b"by grpc", b"by confluent", b"by kcat"]
    assert kcat_values(broker.bootstrap, "sparse", 4) == expected
    assert [value for _, value, _ in confluent_values(broker.bootstrap, "sparse", 3, 4)] == expected
    assert [doors.get("sparse", 4, offset) for offset in range(3)] == expected
    assert doors.offsets("sparse", 1) == (0, -1, -1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_all_partitions_beside_gaps(broker: BrokerProcess, doors: Doors, protocol: str) -> None:
    name = f"sparse_{protocol}"
    for partition in (1, 4):
        doors.create_partition(name, partition)
        doors.send(name, partition, b"in %d" % partition)
    settings = {"group.id": name, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.subscribe([name])
    found: set[bytes | None] = set()

    def has_all() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.add(message.value())
        return len(found) == 2

    try:
        wait_until(has_all, CALL_SECONDS, "both messages")
        assert found == {b"in 1", b"in 4"}
    finally:
        consumer.close()


@needs_kcat
def test_what_eeylops_stores_is_read_by_kcat_and_confluent(broker: BrokerProcess, doors: Doors) -> None:
    topic = doors.create_topic("published", 3)
    values = [b"%d" % number for number in range(1_000)]
    doors.produce(topic, 2, values[:10])
    doors.publish(topic, 2, [values[at : at + 30] for at in range(10, 1_000, 30)])
    assert kcat_values(broker.bootstrap, "published", 1) == values
    found = confluent_values(broker.bootstrap, "published", 1_000, 1)
    assert [(offset, value) for offset, value, _ in found] == list(enumerate(values))
    shown = doors.consume(topic, 2, start_offset=0, batch_size=1_000)
    assert [(each.offset, each.value, each.timestamp) for each in shown.values] == found


@pytest.mark.parametrize("codec", CODECS)
def test_what_confluent_stores_is_read_by_both_services(broker: BrokerProcess, doors: Doors, codec: str) -> None:
    name = f"from_confluent_{codec}"
    create(broker, name, 2)
    values = [BINARY, None, b"", *(b"%d" % number * 50 for number in range(200))]
    plain = [value or b"" for value in values]  # neither service has a word for null
    confluent_send(broker.bootstrap, name, values, 1, codec)
    topic = doors.topic(name)
    assert list(topic.partition_ids) == [1, 2]
    assert doors.values(topic.topic_id, 2) == plain
    assert doors.streamed(topic.topic_id, 2, len(plain)) == plain
    assert [doors.get(name, 1, offset) for offset in (0, 1, 2, 3, 101, 202)] == [
        plain[offset] for offset in (0, 1, 2, 3, 101, 202)
    ]
    assert doors.offsets(name, 1) == (0, 202, 202)
    beyond = doors.mykafka.GetMessage(mk.GetMessageRequest(topic=name, partition=1, offset=203), timeout=CALL_SECONDS)
    assert beyond.error.code == mk.NO_MESSAGE


@needs_kcat
@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_what_kcat_stores_is_read_by_both_services(broker: BrokerProcess, doors: Doors, codec: str) -> None:
    name = f"from_kcat_{codec}"
    topic = doors.create_topic(name)
    values = [b"%d by kcat" % number for number in range(100)]
    kcat_send(broker.bootstrap, name, values, codec=codec)
    assert doors.values(topic) == values
    assert [doors.get(name, 0, offset) for offset in range(0, 100, 9)] == values[::9]


def test_records_of_all_clients_stand_in_one_order(broker: BrokerProcess, doors: Doors) -> None:
    topic = doors.create_topic("mixed")
    doors.produce(topic, 1, [b"eeylops 1", b"eeylops 2"])
    assert doors.send("mixed", 0, b"mykafka") == 2
    confluent_send(broker.bootstrap, "mixed", [b"confluent 1", b"confluent 2"], codec="lz4")
    doors.publish(topic, 1, [[b"eeylops 3"], [b"eeylops 4"]])
    expected = [b"eeylops 1", b"eeylops 2", b"mykafka", b"confluent 1", b"confluent 2", b"eeylops 3", b"eeylops 4"]
    assert doors.values(topic) == expected
    assert [value for _, value, _ in confluent_values(broker.bootstrap, "mixed", 7)] == expected
    assert [doors.get("mixed", 0, offset) for offset in range(7)] == expected


def test_a_topic_of_one_door_is_seen_and_removed_by_the_others(broker: BrokerProcess, doors: Doors) -> None:
    create(broker, "made.by-kafka", 2)
    doors.create_partition("made.by-mykafka", 3)
    eeylops = doors.create_topic("made_by_eeylops", 2)
    topics = doors.topics()
    ours = {name: topics[name] for name in ("made.by-kafka", "made.by-mykafka", "made_by_eeylops")}
    assert len(set(topics.values())) == len(topics) and min(topics.values()) >= 1, "each has an id of its own, from 1"
    assert ours["made_by_eeylops"] == eeylops
    assert list(doors.topic("made.by-mykafka").partition_ids) == [4]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    listed = admin.list_topics(timeout=CALL_SECONDS).topics
    assert ours.keys() <= listed.keys()
    assert sorted(listed["made_by_eeylops"].partitions) == [0, 1]
    assert all(f"Topic:{name}" in doors.dump() for name in ours)
    assert "__consumer_offsets" not in topics and "__consumer_offsets" not in doors.dump()

    doors.remove_topic(ours["made.by-kafka"])
    admin.delete_topics(["made_by_eeylops"])["made_by_eeylops"].result(CALL_SECONDS)
    gone = mk.TopicPartitionRequest(topic="made.by-mykafka", partition=0)
    assert doors.mykafka.DeleteTopic(gone, timeout=CALL_SECONDS).code == mk.OK

    def all_gone() -> bool:
        listed = admin.list_topics(timeout=CALL_SECONDS).topics
        return not ours.keys() & (listed.keys() | doors.topics().keys())

    wait_until(all_gone, 30, "the topics to go")
    again = doors.create_topic("made_by_eeylops")
    assert again > max(topics.values()), "an id is never used again"
