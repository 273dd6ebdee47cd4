"""Both services on three brokers: any of them will do, and those that cannot answer say who can."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from odradek.proto import eeylops_pb2 as ey
from odradek.proto import mykafka_pb2 as mk
from tests.grpc.doors import CALL_SECONDS, Doors
from tests.grpc.kafka import committed, confluent_values
from tests.grpc.three import NODES, SOON, Three
from tests.process import wait_until

pytestmark = pytest.mark.xdist_group("grpc-cluster")

PARTITIONS = 6


def test_mykafka_is_answered_by_every_broker_for_every_partition(three: Three) -> None:
    for partition in range(PARTITIONS):
        three.doors[NODES[partition % 3]].create_partition("anywhere", partition)
    sent: dict[tuple[int, int], bytes] = {}
    for partition in range(PARTITIONS):
        for node, doors in three.doors.items():
            payload = b"%d by %d" % (partition, node)
            sent[partition, doors.send("anywhere", partition, payload)] = payload
    assert len(sent) == 3 * PARTITIONS, "each has an offset of its own"
    leaders = {three.leader(three.doors[1].topic("anywhere").topic_id, at + 1) for at in range(PARTITIONS)}
    assert len(leaders) > 1, "or this shows nothing"
    for doors in three.doors.values():
        for (partition, offset), payload in sent.items():
            assert doors.get("anywhere", partition, offset) == payload
        assert [doors.offsets("anywhere", partition) for partition in range(PARTITIONS)] == [(0, 2, 2)] * PARTITIONS
        beyond = mk.GetMessageRequest(topic="anywhere", partition=0, offset=3)
        assert doors.mykafka.GetMessage(beyond, timeout=CALL_SECONDS).error.code == mk.NO_MESSAGE
    found = confluent_values(three.cluster.bootstrap, "anywhere", 3, 5)
    assert [value for _, value, _ in found] == [sent[5, offset] for offset in range(3)]


def test_what_was_passed_on_once_is_not_passed_on_again(three: Three) -> None:
    three.doors[1].create_partition("once", 0)
    three.doors[1].send("once", 0, b"its leader leads")
    leader = three.leader(three.doors[1].topic("once").topic_id)
    asked = mk.SendMessageRequest(topic="once", partition=0, payload=b"x")
    marked = (("odradek-forwarded", "1"),)
    for node, doors in three.doors.items():
        if node == leader:
            assert doors.mykafka.SendMessage(asked, timeout=CALL_SECONDS, metadata=marked).error.code == mk.OK
            continue
        with pytest.raises(grpc.RpcError) as failure:
            doors.mykafka.SendMessage(asked, timeout=CALL_SECONDS, metadata=marked)
        status: Any = failure.value
        assert status.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert three.doors[1].offsets("once", 0) == (0, 1, 1)


def test_every_broker_describes_every_partition(three: Three) -> None:
    for partition in (0, 7):
        three.doors[1].create_partition("described", partition, max_segment_size=1234, segment_ttl=99)
    three.doors[2].send("described", 7, b"x")

    def parts(node: int) -> str:
        return three.doors[node].dump().partition("Topic:described")[2].partition("Topic:")[0]

    for node in NODES:
        wait_until(lambda node=node: "partition 7" in parts(node), SOON, f"the partition at broker {node}")
        assert all(word in parts(node) for word in ("partition 0", "1234", "99", "next_offset")), parts(node)


def test_mykafka_removes_through_any_broker(three: Three) -> None:
    for partition in range(3):
        three.doors[1].create_partition("removed", partition)
    asked = mk.TopicPartitionRequest(topic="removed", partition=1)
    assert three.doors[3].mykafka.DeletePartition(asked, timeout=CALL_SECONDS).code == mk.OK
    for doors in three.doors.values():
        assert doors.mykafka.DeletePartition(asked, timeout=CALL_SECONDS).code == mk.TOPIC_ERROR
    assert three.doors[2].mykafka.DeleteTopic(asked, timeout=CALL_SECONDS).code == mk.OK
    assert all("removed" not in doors.topics() for doors in three.doors.values())


def test_topics_of_eeylops_are_made_and_seen_by_every_broker(three: Three) -> None:
    ids = {}
    for node, doors in three.doors.items():
        ids[f"made_by_{node}"] = doors.create_topic(f"made_by_{node}", node)
        for other in three.doors.values():
            assert other.topics()[f"made_by_{node}"] == ids[f"made_by_{node}"]
            assert list(other.topic(f"made_by_{node}").partition_ids) == list(range(1, node + 1))
    assert len(set(ids.values())) == 3
    again = ey.CreateTopicRequest(topic=ey.Topic(topic_name="made_by_1"))
    for doors in three.doors.values():
        assert doors.eeylops.CreateTopic(again, timeout=CALL_SECONDS).error.error_code == ey.KErrTopicExists
    three.doors[3].remove_topic(ids["made_by_1"])
    for doors in three.doors.values():
        asked = ey.GetTopicRequest(topic_name="made_by_1", sync=True)
        assert doors.eeylops.GetTopic(asked, timeout=CALL_SECONDS).error.error_code == ey.KErrTopicNotFound


def named_by(doors: Doors, asked: ey.ProduceRequest, reading: ey.ConsumeRequest) -> list[tuple[int, int]]:
    """How a broker refuses, and which leader it names, by each of the four ways to a partition."""
    answers = [
        doors.eeylops.Produce(asked, timeout=CALL_SECONDS),
        doors.eeylops.Publish(iter([asked]), timeout=CALL_SECONDS),
        doors.eeylops.Consume(reading, timeout=CALL_SECONDS),
        *doors.eeylops.Subscribe(reading, timeout=CALL_SECONDS),
    ]
    return [(answer.error.error_code, answer.error.leader_id) for answer in answers]


def test_one_who_does_not_lead_names_the_leader(three: Three) -> None:
    topic = three.doors[1].create_topic("led", PARTITIONS)
    for partition in range(1, PARTITIONS + 1):
        leader = three.leader(topic, partition)
        three.doors[leader].produce(topic, partition, [b"at the leader"])
        for node, doors in three.doors.items():
            asked = ey.ProduceRequest(topic_id=topic, partition_id=partition, values=[b"at a follower"])
            reading = ey.ConsumeRequest(topic_id=topic, partition_id=partition)
            if node == leader:
                continue
            wait_until(  # it may have to make the topic first
                lambda doors=doors, asked=asked, reading=reading, leader=leader: (
                    named_by(doors, asked, reading) == [(ey.KErrNotLeader, leader)] * 4
                ),
                SOON,
                f"the leader's name from broker {node}",
            )
        assert three.doors[leader].values(topic, partition) == [b"at the leader"]


def test_every_broker_tells_where_all_of_them_are(three: Three) -> None:
    expected = {node: three.cluster.address(node, "grpc") for node in NODES}
    topic = three.doors[1].create_topic("where")
    led = set()
    for doors in three.doors.values():
        config = doors.eeylops.GetClusterConfig(ey.GetClusterConfigRequest(), timeout=CALL_SECONDS).config
        assert {node.id: f"{node.host}:{node.port}" for node in config.node_config_list} == expected
        leader = doors.eeylops.GetLeader(ey.GetLeaderRequest(), timeout=CALL_SECONDS).leader_config
        assert f"{leader.host}:{leader.port}" == expected[leader.id]
        led |= {config.leader_id, leader.id}
        asked = ey.GetBrokerRequest(topic_id=topic, partition_id=1)
        wait_until(
            lambda doors=doors, asked=asked: (
                doors.eeylops.GetBroker(asked, timeout=CALL_SECONDS).leader_config.id == three.leader(topic)
            ),
            SOON,
            "the same leader",
        )
    assert len(led) == 1, "all name the same controller"


def test_followers_read_for_those_who_allow_it(three: Three) -> None:
    topic = three.doors[1].create_topic("followed")
    values = [b"%d" % number for number in range(500)]
    three.publish(topic, 1, [values[at : at + 50] for at in range(0, 500, 50)])
    allowed = (("odradek-follower", "1"),)
    asked = ey.ConsumeRequest(topic_id=topic, partition_id=1, batch_size=1_000)
    for doors in three.doors.values():

        def has_all(doors: Any = doors) -> bool:
            answer = doors.eeylops.Consume(asked, timeout=CALL_SECONDS, metadata=allowed)
            found = [value.value for value in answer.values]
            assert found == values[: len(found)] and answer.error.error_code == ey.KNoError, answer.error
            return len(found) == len(values)

        wait_until(has_all, SOON, "what all have")


def test_commits_go_through_any_broker(three: Three) -> None:
    topic = three.doors[1].create_topic("counted")
    three.publish(topic, 1, [[b"%d" % number for number in range(20)]])
    for number, (node, doors) in enumerate(three.doors.items()):
        consumer = f"through_{node}"
        assert doors.commit(consumer, topic, 1).error_code == ey.KErrConsumerNotRegistered
        doors.register(consumer, topic)
        for other in three.doors.values():
            assert other.committed(consumer, topic) == -1
        for step, other in enumerate(three.doors.values()):
            assert other.commit(consumer, topic, 10 + number + step).error_code == ey.KNoError
            assert doors.committed(consumer, topic) == 10 + number + step
        assert committed(three.cluster.bootstrap, consumer, "counted") == 12 + number


def test_every_broker_is_healthy(three: Three) -> None:
    stub: Any = health_pb2_grpc.HealthStub
    for doors in three.doors.values():
        for service in ("", "mykafka.Broker", "eeylops.EeylopsService"):
            asked = health_pb2.HealthCheckRequest(service=service)
            answer = stub(doors.channel).Check(asked, timeout=CALL_SECONDS)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
